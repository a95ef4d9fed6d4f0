"""The cgroups of the QoS classes, under which the pods of each class stand.

Go: pkg/kubelet/cm/qos_container_manager_linux.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubelet.cm.cgroup_manager import CgroupManager
from kubelet.cm.helpers import MIN_SHARES, milli_cpu_to_shares
from kubelet.cm.types import CgroupName, QOSContainersInfo, ResourceConfig, cgroup_name
from pkg.api.core import v1
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource


class QOSContainerManager:
    """Makes the classes' cgroups and keeps the shares of the burstable one at what its pods ask for."""

    def __init__(self, cgroup_root: CgroupName, cgroup_manager: CgroupManager) -> None:
        self._cgroup_manager = cgroup_manager
        self._info = QOSContainersInfo(
            guaranteed=cgroup_root,
            burstable=cgroup_name(cgroup_root, "burstable"),
            best_effort=cgroup_name(cgroup_root, "besteffort"),
        )
        # Held while shares are computed and written, so that an older sum never overwrites a newer one.
        self._lock = threading.Lock()
        self._active_pods: Callable[[], list[v1.Pod]] = list

    def get_qos_containers_info(self) -> QOSContainersInfo:
        return self._info

    def start(self, active_pods: Callable[[], list[v1.Pod]]) -> None:
        """Make the cgroups. Raises OSError when the kernel refuses."""
        self._active_pods = active_pods
        for name in (self._info.guaranteed, self._info.burstable, self._info.best_effort):
            shares = MIN_SHARES if name == self._info.best_effort else None
            config = ResourceConfig(cpu_shares=shares)
            if self._cgroup_manager.exists(name):
                # Somebody may have changed what an earlier kubelet set.
                self._cgroup_manager.update(name, config)
            else:
                self._cgroup_manager.create(name, config)
        self.update_cgroups()

    def update_cgroups(self) -> None:
        """Set the shares of the burstable class from its pods' requests. Raises OSError."""
        with self._lock:
            milli_cpu = sum(
                requests[v1.RESOURCE_CPU].milli_value()
                for pod in self._active_pods()
                if v1qos.get_pod_qos(pod) == v1.POD_QOS_BURSTABLE
                and v1.RESOURCE_CPU in (requests := resource.pod_requests(pod, resource.PodResourcesOptions()))
            )
            if self._cgroup_manager.exists(self._info.burstable):
                config = ResourceConfig(cpu_shares=milli_cpu_to_shares(milli_cpu))
                self._cgroup_manager.update(self._info.burstable, config)
