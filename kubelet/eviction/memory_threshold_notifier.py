"""Wake the eviction manager as soon as memory runs short, before its next regular check.

Go: pkg/kubelet/eviction/memory_threshold_notifier.go, memory_threshold_notifier_others.go
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction import helpers, threshold_notifier
from kubelet.eviction.types import CgroupNotifier, NotifierFactory, ThresholdNotifier
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import golang, klog
from pkg.apimachinery.api import resource
from pkg.apimachinery.util.runtime import contain

MEMORY_USAGE_ATTRIBUTE = "memory.usage_in_bytes"


class CgroupNotifierFactory:
    """Create notifiers that use the kernel."""

    def new_cgroup_notifier(self, path: str, attribute: str, threshold: int) -> CgroupNotifier:
        return threshold_notifier.new_cgroup_notifier(path, attribute, threshold)


class LinuxMemoryThresholdNotifier:
    """Call the handler when usage may have crossed the threshold. Only one thread may call update_threshold."""

    def __init__(
        self,
        threshold: evictionapi.Threshold,
        cgroup_root: str,
        factory: NotifierFactory,
        handler: Callable[[str], object],
        root: str = CGROUP_ROOT,
    ) -> None:
        """Create a notifier for the node or, with an allocatable threshold, for the cgroup of all pods.

        `cgroup_root` is that cgroup, relative to the hierarchy. Raise OSError if there is no memory controller.
        """
        self._threshold = threshold
        self._factory = factory
        self._handler = handler
        self._events: golang.Channel[None] = golang.Channel(1)
        self._notifier: CgroupNotifier | None = None
        self._cgroup_path = root if is_cgroup2_unified_mode(root) else os.path.join(root, "memory")
        if not os.path.isdir(self._cgroup_path):
            raise FileNotFoundError(f"memory cgroup mount point not found: {self._cgroup_path}")
        if helpers.is_allocatable_eviction_threshold(threshold):
            self._cgroup_path = os.path.join(self._cgroup_path, cgroup_root.lstrip("/"))

    def update_threshold(self, ctx: golang.Context, summary: statsapi.Summary) -> None:
        """Set the kernel's threshold from current statistics.

        The kernel measures the usage, which includes caches, and not the working set. Therefore the current difference
        between the two is added to the threshold. Raise OSError, golang.ThreadError, ValueError for incomplete
        statistics, and LookupError without statistics of all pods.
        """
        memory = summary.node.memory
        if helpers.is_allocatable_eviction_threshold(self._threshold):
            containers = summary.node.system_containers
            memory = helpers.get_sys_container(containers, statsapi.SYSTEM_CONTAINER_PODS).memory
        if (
            memory is None
            or memory.usage_bytes is None
            or memory.working_set_bytes is None
            or memory.available_bytes is None
        ):
            raise ValueError(f"summary was incomplete: expected usage, working set and available memory, got {memory}")
        inactive_file = memory.usage_bytes - memory.working_set_bytes
        capacity = resource.new_quantity(memory.available_bytes + memory.working_set_bytes, resource.Format.BINARY_SI)
        kept = evictionapi.get_threshold_quantity(self._threshold.value, capacity)
        threshold = capacity.value() - kept.value() + inactive_file
        klog.v(3).info_s(
            "Eviction manager: setting notifier to capacity", notifier=self.description(), capacity=threshold
        )
        if self._notifier is not None:
            self._notifier.stop()
            self._notifier = None
        notifier = self._factory.new_cgroup_notifier(self._cgroup_path, MEMORY_USAGE_ATTRIBUTE, threshold)
        try:
            golang.go(self._listen, ctx, notifier, name="eviction-memcg-events")
        except golang.ThreadError:
            # A notifier that is stopped before its start only closes its files.
            notifier.stop()
            notifier.start(ctx, self._events)
            raise
        self._notifier = notifier

    def _listen(self, ctx: golang.Context, notifier: CgroupNotifier) -> None:
        """Listen to the kernel and contain any error.

        Even without a notifier the eviction manager checks the node every ten seconds, and it then creates a new
        notifier.
        """
        with contain("Eviction manager: failed to listen to the kernel", golang.background()):
            notifier.start(ctx, self._events)

    def start(self, ctx: golang.Context) -> None:
        klog.info_s("Eviction manager: created memoryThresholdNotifier", notifier=self.description())
        while golang.select(self._events, ctx.done()).took(self._events):
            with contain("Eviction manager: failed to handle a memory threshold notification", golang.background()):
                self._handler(f"eviction manager: {self.description()} crossed")

    def description(self) -> str:
        hard = "hard" if helpers.is_hard_eviction_threshold(self._threshold) else "soft"
        allocatable = "allocatable " if helpers.is_allocatable_eviction_threshold(self._threshold) else ""
        return f"{hard} {allocatable}memory eviction threshold"


if TYPE_CHECKING:

    def _check(
        factory: CgroupNotifierFactory, notifier: LinuxMemoryThresholdNotifier
    ) -> tuple[NotifierFactory, ThresholdNotifier]:
        return factory, notifier
