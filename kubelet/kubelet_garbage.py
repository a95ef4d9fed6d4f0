"""Collect garbage periodically: dead containers and unused images.

Go: pkg/kubelet/kubelet.go (StartGarbageCollection)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import events
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.util import wait

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from kubelet import images
    from kubelet.apis import config as kubeletconfig
    from pkg.apimachinery import clock
    from pkg.client_go.tools import record

# These periods are in seconds.
CONTAINER_GC_PERIOD = 60.0
IMAGE_GC_PERIOD = 300.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletGarbage:
    """Collect garbage periodically."""

    kubelet_configuration: kubeletconfig.KubeletConfiguration
    container_gc: kubecontainer.GC
    image_manager: images.ImageGCManager
    node_ref: v1.ObjectReference
    recorder: record.EventRecorder
    clock: clock.Clock

    def start_garbage_collection(self, ctx: golang.Context) -> None:
        """Remove dead containers and unused images periodically, each in a thread that ends with ctx."""
        collect_containers = _GarbageCollection("Container", lambda: self.container_gc.garbage_collect(ctx))
        golang.go(
            wait.until,
            lambda: self._collect(collect_containers, events.CONTAINER_GC_FAILED, first_failure_event=True),
            CONTAINER_GC_PERIOD,
            ctx,
            name="container-gc",
        )
        kube_cfg = self.kubelet_configuration
        if kube_cfg.image_gc_high_threshold_percent == 100 and kube_cfg.image_maximum_gc_age == 0:
            klog.v(2).info_s("ImageGCHighThresholdPercent is set 100 and ImageMaximumGCAge is 0, Disable image GC")
            return
        began = self.clock.steady()
        collect_images = _GarbageCollection("Image", lambda: self.image_manager.garbage_collect(ctx, began))
        golang.go(
            wait.until,
            lambda: self._collect(collect_images, events.IMAGE_GC_FAILED, first_failure_event=False),
            IMAGE_GC_PERIOD,
            ctx,
            name="image-gc",
        )

    def _collect(self, collection: _GarbageCollection, event: str, first_failure_event: bool) -> None:
        """Run one collection. Record a failure as an event if `first_failure_event` is set or the last run failed too.

        The first failure of the image collection is no event, because the runtime's statistics may not be available
        yet.
        """
        try:
            collection.run()
        except Exception as err:
            # Garbage that stays is collected in the next run; nothing depends on the current run.
            klog.error_s(err, f"{collection.what} garbage collection failed")
            if first_failure_event or collection.failed:
                self.recorder.event(self.node_ref, v1.EVENT_TYPE_WARNING, event, str(err))
            collection.failed = True
            return
        klog.v(1 if collection.failed else 4).info_s(f"{collection.what} garbage collection succeeded")
        collection.failed = False


@dataclass(slots=True)
class _GarbageCollection:
    what: str
    run: Callable[[], None]
    failed: bool = False
