"""What the kubelet asks about volumes, and the thread that keeps them as they should be.

Go: pkg/kubelet/volumemanager/volume_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kubelet import config
from kubelet import container as kubecontainer
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from kubelet.volumemanager.populator import DesiredStateOfWorldPopulator, PodManager, PodStateProvider
from kubelet.volumemanager.reconciler import Reconciler
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util import errors as utilerrors
from pkg.volume import VolumeHost, VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util.operationexecutor.simple_executor import OperationExecutor

if TYPE_CHECKING:
    from pkg.client_go.tools import record

# Seconds. A pod's sync gives up waiting after the timeout, so that its worker can hear of changes.
POD_ATTACH_AND_MOUNT_TIMEOUT = 123.0
# How soon a state that still differs is looked at again without anything having happened: back-offs end by then.
RETRY_PERIOD = 0.5
# How often all is looked at although nothing was announced.
RESYNC_PERIOD = 10.0
GID_ANNOTATION = "pv.beta.kubernetes.io/gid"


class VolumeManager:
    """Volumes of the node's pods. Every method is safe from any thread.

    DIVERGES: Go looks at everything ten times a second; here a round starts when a pod waits for its volumes, when an
    operation has ended, or when sources become ready, and otherwise every ten seconds.
    """

    def __init__(
        self,
        pod_manager: PodManager,
        pod_state_provider: PodStateProvider,
        plugins: VolumePluginMgr,
        host: VolumeHost,
        pods_dir: str,
        recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._desired = DesiredStateOfWorld(plugins)
        self._actual = ActualStateOfWorld()
        self._populator = DesiredStateOfWorldPopulator(pod_manager, pod_state_provider, self._desired)
        self._reconciler = Reconciler(
            self._desired,
            self._actual,
            self._populator,
            OperationExecutor(plugins, host, recorder, self._operation_done, clock),
            plugins,
            pods_dir,
        )
        self._wake: golang.Channel[None] = golang.Channel(1)
        self._lock = threading.Lock()  # guards _waiters
        # One channel for each pod worker that waits, told whenever something may have changed.
        self._waiters: set[golang.Channel[None]] = set()
        self._clock = clock or clocklib.RealClock()

    def run(self, ctx: golang.Context, sources_ready: config.SourcesReady) -> None:
        """Keep volumes as they should be until ctx ends."""
        klog.info_s("Starting Kubelet Volume Manager")
        self._reconciler.reconstruct()
        while ctx.err() is None:
            self._populator.populate(sources_ready.all_ready())
            pending = self._reconciler.reconcile()
            self._tell_waiters()
            soon = pending or not self._populator.has_added_pods()
            golang.select(self._wake, ctx.done(), timeout=RETRY_PERIOD if soon else RESYNC_PERIOD)
        klog.info_s("Shutting down Kubelet Volume Manager")

    def wait_for_attach_and_mount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Return when all volumes that containers of the pod use are set up.

        Raises TimeoutError, which names the volumes that are missing, after about two minutes, RuntimeError as soon
        as a volume is found to be of no known kind, and golang.Canceled when ctx ends.
        """
        expected = _expected_volumes(pod)
        if not expected:
            return
        klog.v(3).info_s("Waiting for volumes to attach and mount for pod", pod=klog.kobj(pod))
        pod_name = volumeutil.get_unique_pod_name(pod)
        self._populator.reprocess_pod(pod_name)
        self._desired.pop_pod_errors(pod_name)
        cause = self._wait(ctx, lambda: self._mounted_or_failed(pod_name, expected))
        errors = self._desired.pop_pod_errors(pod_name)
        unmounted = self._unmounted_volumes(pod_name, expected)
        if not unmounted:
            klog.v(3).info_s("All volumes are attached and mounted for pod", pod=klog.kobj(pod))
            return
        wanted = {volume.outer_volume_spec_name for volume in self._desired.get_volumes_of_pod(pod_name)}
        message = (
            f"unmounted volumes={_go_list(unmounted)}, unattached volumes=[], "
            f"failed to process volumes={_go_list([name for name in expected if name not in wanted])}: "
        )
        if isinstance(cause, golang.Canceled):
            raise cause
        if errors:
            raise RuntimeError(message + "; ".join(errors))
        raise TimeoutError(message + "timed out waiting for the condition")

    def wait_for_unmount(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Return when none of the pod's volumes is set up any more.

        Raises TimeoutError, which names those that are, after about two minutes, and golang.Canceled.
        """
        klog.v(3).info_s("Waiting for volumes to unmount for pod", pod=klog.kobj(pod))
        pod_name = volumeutil.get_unique_pod_name(pod)
        self._populator.reprocess_pod(pod_name)
        cause = self._wait(ctx, lambda: not self._actual.get_possibly_mounted_volumes_for_pod(pod_name))
        mounted = sorted(v.volume_name for v in self._actual.get_possibly_mounted_volumes_for_pod(pod_name))
        if mounted and isinstance(cause, golang.Canceled):
            raise cause
        if mounted:
            raise TimeoutError(f"mounted volumes={_go_list(mounted)}: timed out waiting for the condition")
        klog.v(3).info_s("All volumes are unmounted for pod", pod=klog.kobj(pod))

    def wait_for_all_pods_unmount(self, ctx: golang.Context, pods: Sequence[v1.Pod]) -> None:
        """Return when none of the volumes of any of the pods is set up any more.

        Raises an Aggregate of what wait_for_unmount raises.
        """
        errs: list[Exception] = []
        for pod in pods:
            try:
                self.wait_for_unmount(ctx, pod)
            except (TimeoutError, golang.Canceled) as err:
                errs.append(err)
        if (aggregate := utilerrors.new_aggregate(errs)) is not None:
            raise aggregate

    def get_mounted_volumes_for_pod(self, pod_name: str) -> kubecontainer.VolumeMap:
        """The pod's volumes that are ready for use, by their name in its spec."""
        return {
            volume.outer_volume_spec_name: kubecontainer.VolumeInfo(
                mounter=volume.mounter,
                read_only=volume.spec.read_only,
                inner_volume_spec_name=volume.inner_volume_spec_name,
            )
            for volume in self._actual.get_mounted_volumes_for_pod(pod_name)
        }

    def has_possibly_mounted_volumes_for_pod(self, pod_name: str) -> bool:
        """Whether the pod may have a volume set up, surely or half-way."""
        return bool(self._actual.get_possibly_mounted_volumes_for_pod(pod_name))

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Groups that the pod's persistent volumes ask for by annotation, without the pod's own fsGroup."""
        groups: set[int] = set()
        for volume in self._actual.get_mounted_volumes_for_pod(volumeutil.get_unique_pod_name(pod)):
            persistent = volume.spec.persistent_volume
            gid = persistent.metadata.annotations.get(GID_ANNOTATION, "") if persistent is not None else ""
            if gid.isdigit():
                groups.add(int(gid))
        return sorted(groups)

    def reconciler_states_have_been_synced(self) -> bool:
        """Whether the pods of all sources have been taken into account."""
        return self._populator.has_added_pods()

    def get_volumes_in_use(self) -> list[str]:
        """Names of the volumes that must not be detached from the node; no volume here is one that is attached."""
        return []

    def mark_volumes_as_reported_in_use(self, volumes_reported_as_in_use: list[str]) -> None:
        """The node's status names these volumes. Nothing here waits for that."""

    def _wait(self, ctx: golang.Context, done: Callable[[], bool]) -> Exception | None:
        """Wait until done, or for the timeout; what ended the wait if not done."""
        told: golang.Channel[None] = golang.Channel(1)
        with self._lock:
            self._waiters.add(told)
        deadline = self._clock.after(POD_ATTACH_AND_MOUNT_TIMEOUT)
        self._wake.try_send(None)
        try:
            while not done():
                match golang.select(told, ctx.done(), deadline).index:
                    case 1:
                        return ctx.err()
                    case 2:
                        return TimeoutError()
            return None
        finally:
            with self._lock:
                self._waiters.discard(told)

    def _tell_waiters(self) -> None:
        with self._lock:
            waiters = list(self._waiters)
        for told in waiters:
            told.try_send(None)

    def _operation_done(self) -> None:
        self._tell_waiters()
        self._wake.try_send(None)

    def _mounted_or_failed(self, pod_name: str, expected: list[str]) -> bool:
        return not self._unmounted_volumes(pod_name, expected) or self._desired.has_pod_errors(pod_name)

    def _unmounted_volumes(self, pod_name: str, expected: list[str]) -> list[str]:
        mounted = {v.outer_volume_spec_name for v in self._actual.get_mounted_volumes_for_pod(pod_name)}
        return [name for name in expected if name not in mounted]


def _expected_volumes(pod: v1.Pod) -> list[str]:
    mounts, devices, _ = volumeutil.get_pod_volume_names(pod)
    return sorted(mounts | devices)


def _go_list(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
