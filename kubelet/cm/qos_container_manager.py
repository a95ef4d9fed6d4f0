"""Manage the cgroups of the QoS classes, which contain the cgroups of the classes' pods.

Go: pkg/kubelet/cm/qos_container_manager_linux.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubelet import metrics
from kubelet.cm.cgroup_common import huge_page_sizes
from kubelet.cm.cgroup_manager import CgroupManager
from kubelet.cm.helpers import MEMORY_LOW, MEMORY_MIN, MIN_SHARES, TIERED_RESERVATION, milli_cpu_to_shares
from kubelet.cm.types import CgroupName, InvalidCgroupError, QOSContainersInfo, ResourceConfig, cgroup_name
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import wait
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource

PERIODIC_QOS_CGROUP_UPDATE_INTERVAL = 60.0  # seconds
# This limit of huge pages, in bytes, has the effect of no limit.
_UNBOUNDED = 1 << 62


class QOSContainerManager:
    """Create the classes' cgroups, and keep their settings at what the pods request."""

    def __init__(
        self,
        cgroup_root: CgroupName,
        cgroup_manager: CgroupManager,
        qos_reserved: dict[str, int] | None = None,
        memory_reservation_policy: str = "None",
    ) -> None:
        """Create the manager. `qos_reserved` holds the percentage of memory requests that lower classes cannot use."""
        self._cgroup_manager = cgroup_manager
        self._info = QOSContainersInfo(
            guaranteed=cgroup_root,
            burstable=cgroup_name(cgroup_root, "burstable"),
            best_effort=cgroup_name(cgroup_root, "besteffort"),
        )
        self._qos_reserved = qos_reserved or {}
        self._memory_reservation_policy = memory_reservation_policy
        # The lock is held while amounts are computed and written, so that an older sum never overwrites a newer one.
        self._lock = threading.Lock()
        self._active_pods: Callable[[], list[v1.Pod]] = list
        self._get_node_allocatable: Callable[[], dict[str, Quantity]] = dict

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return self._info

    def start(
        self,
        ctx: golang.Context,
        get_node_allocatable: Callable[[], dict[str, Quantity]],
        active_pods: Callable[[], list[v1.Pod]],
    ) -> None:
        """Create the cgroups and update them once a minute until `ctx` ends.

        Raise InvalidCgroupError if the cgroup above them lacks a controller or does not exist, OSError if the kernel
        refuses.
        """
        info = self._info
        try:
            self._cgroup_manager.validate(info.guaranteed)
        except InvalidCgroupError as err:
            raise InvalidCgroupError(f"error validating root container {list(info.guaranteed)} : {err}") from err
        is_new = [self._ensure_exists(name) for name in (info.burstable, info.best_effort)]
        self._active_pods = active_pods
        self._get_node_allocatable = get_node_allocatable
        # DIVERGES (fault of Go): at its start the kubelet keeps the CPU shares and the memory protection of existing
        # cgroups.
        # Go: pkg/kubelet/cm/qos_container_manager_linux.go, (*qosContainerManagerImpl).Start: it recomputes both.
        # Why: no pod is known yet, and all running pods would have almost no CPU shares for up to a minute.
        # Test: pod_container_manager_test.py:test_start_mends_what_an_earlier_kubelet_left
        if any(is_new):
            self._try_update()
        golang.go(self._update_periodically, ctx, name="qos-cgroups")

    def _ensure_exists(self, name: CgroupName) -> bool:
        """Create the cgroup of a class or reset its settings; report whether it was created."""
        shares = MIN_SHARES if name == self._info.best_effort else None
        config = ResourceConfig(cpu_shares=shares, huge_page_limit=_huge_pages_unbounded())
        if self._cgroup_manager.exists(name):
            # Another program may have changed what an earlier kubelet set.
            self._cgroup_manager.update(name, config)
            return False
        self._cgroup_manager.create(name, config)
        return True

    def _update_periodically(self, ctx: golang.Context) -> None:
        if not ctx.wait(PERIODIC_QOS_CGROUP_UPDATE_INTERVAL):
            wait.until(self._try_update, PERIODIC_QOS_CGROUP_UPDATE_INTERVAL, ctx)

    def _try_update(self) -> None:
        try:
            self.update_cgroups()
        except OSError as err:
            klog.info_s("Failed to reserve QoS requests", err=err)

    def update_cgroups(self) -> None:
        """Update the classes' cgroups to what their pods request. Raise OSError."""
        with self._lock:
            pods = self._active_pods()
            configs = self._configs(pods)
            if features.feature_gate.enabled(features.QOS_RESERVED):
                percent = self._qos_reserved.get(v1.RESOURCE_MEMORY)
                if percent is not None:
                    self._set_memory_reserve(configs, pods, percent)
                if self._all_updated(configs):
                    return
                if percent is not None:
                    self._retry_set_memory_reserve(configs)
            for name, config in configs.items():
                self._cgroup_manager.update(name, config)
            klog.v(4).info_s("Updated QoS cgroup configuration")

    def _all_updated(self, configs: dict[CgroupName, ResourceConfig]) -> bool:
        all_updated = True
        for name, config in configs.items():
            try:
                self._cgroup_manager.update(name, config)
            except OSError as err:
                klog.v(2).info_s("Failed to update QoS cgroup configuration", cgroupName=list(name), err=err)
                all_updated = False
        return all_updated

    def _configs(self, pods: list[v1.Pod]) -> dict[CgroupName, ResourceConfig]:
        info = self._info
        unbounded = _huge_pages_unbounded()
        burstable = milli_cpu_to_shares(_requested(pods, v1.POD_QOS_BURSTABLE, v1.RESOURCE_CPU))
        configs = {
            info.guaranteed: ResourceConfig(huge_page_limit=unbounded),
            info.burstable: ResourceConfig(cpu_shares=burstable, huge_page_limit=unbounded),
            info.best_effort: ResourceConfig(cpu_shares=MIN_SHARES, huge_page_limit=unbounded),
        }
        if features.feature_gate.enabled(features.MEMORY_QOS) and self._cgroup_manager.version() == 2:
            self._set_memory_qos(configs, pods)
        return configs

    def _set_memory_qos(self, configs: dict[CgroupName, ResourceConfig], pods: list[v1.Pod]) -> None:
        """Protect the memory that pods request: strictly for guaranteed pods, as far as possible for burstable pods.

        The kernel protects a cgroup only as far as the cgroups above it are protected, so each cgroup's protection
        includes that of its children.
        """
        guaranteed = burstable = 0
        if self._memory_reservation_policy == TIERED_RESERVATION:
            guaranteed = _requested(pods, v1.POD_QOS_GUARANTEED, v1.RESOURCE_MEMORY)
            burstable = _requested(pods, v1.POD_QOS_BURSTABLE, v1.RESOURCE_MEMORY)
        metrics.MEMORY_QOS_NODE_MEMORY_MIN_BYTES.set(guaranteed)
        metrics.MEMORY_QOS_NODE_MEMORY_LOW_BYTES.set(burstable)
        configs[self._info.guaranteed].unified[MEMORY_MIN] = str(guaranteed + burstable)
        configs[self._info.burstable].unified[MEMORY_LOW] = str(burstable)

    def _set_memory_reserve(self, configs: dict[CgroupName, ResourceConfig], pods: list[v1.Pod], percent: int) -> None:
        """Limit the memory of lower classes to what higher classes have not reserved."""
        allocatable = self._get_node_allocatable().get(v1.RESOURCE_MEMORY)
        if allocatable is None or allocatable.is_zero():
            klog.v(2).info_s("Allocatable memory value could not be determined, not setting QoS memory limits")
            return
        limit = allocatable.value()
        for qos, below in (
            (v1.POD_QOS_GUARANTEED, self._info.burstable),
            (v1.POD_QOS_BURSTABLE, self._info.best_effort),
        ):
            requested = _requested(pods, qos, v1.RESOURCE_MEMORY)
            klog.v(2).info_s("QoS pod memory limit", qos=qos, limits=requested, percentReserve=percent)
            limit -= requested * percent // 100
            configs[below].memory = limit

    def _retry_set_memory_reserve(self, configs: dict[CgroupName, ResourceConfig]) -> None:
        """Set each class's memory limit to at least its current usage, because the kernel may refuse a lower limit."""
        for name, config in configs.items():
            try:
                usage = self._cgroup_manager.memory_usage(name)
            except (OSError, ValueError) as err:
                klog.v(2).info_s("Failed to get resource stats", err=err)
                return
            if config.memory is not None:
                config.memory = max(config.memory, usage)


def _requested(pods: list[v1.Pod], qos: str, name: str) -> int:
    """Return the sum of the requests of a class's pods; cores are in thousandths."""
    skip = not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES)
    options = resource.PodResourcesOptions(skip_pod_level_resources=skip)
    total = 0
    for pod in pods:
        if v1qos.get_pod_qos(pod) == qos:
            quantity = resource.pod_requests(pod, options).get(name)
            if quantity is not None:
                total += quantity.milli_value() if name == v1.RESOURCE_CPU else quantity.value()
    return total


def _huge_pages_unbounded() -> dict[int, int]:
    return dict.fromkeys(huge_page_sizes(), _UNBOUNDED)
