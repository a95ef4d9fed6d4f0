"""Manage one cgroup for each pod.

Go: pkg/kubelet/cm/pod_container_manager_linux.go, pod_container_manager_stub.go
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Protocol

from kubelet.cm.cgroup_common import huge_page_sizes, parse_cgroup_name
from kubelet.cm.cgroup_manager import CgroupManager
from kubelet.cm.helpers import MIN_SHARES, resource_config_for_pod
from kubelet.cm.types import CgroupName, QOSContainersInfo, ResourceConfig, cgroup_name, quoted
from pkg import features, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apis.core.v1.helper import qos as v1qos

POD_CGROUP_NAME_PREFIX = "pod"


def get_pod_cgroup_name_suffix(pod_uid: types.UID) -> str:
    """Return the last part of the name of a pod's cgroup."""
    return POD_CGROUP_NAME_PREFIX + pod_uid


class PodContainerManager(Protocol):
    """Define operations on the cgroups of pods. All methods raise OSError if the kernel refuses."""

    def get_pod_container_name(self, pod: v1.Pod) -> tuple[CgroupName, str]:
        """Return the name of the pod's cgroup, and its path in the form of the cgroup driver."""
        ...

    def exists(self, pod: v1.Pod) -> bool: ...

    def ensure_exists(self, pod: v1.Pod) -> None: ...

    def destroy(self, name: CgroupName) -> None:
        """Kill the processes that still run in the pod's cgroup and remove the cgroup."""
        ...

    def reduce_cpu_limits(self, name: CgroupName) -> None: ...

    def get_all_pods_from_cgroups(self) -> dict[types.UID, CgroupName]:
        """Return the UIDs of the pods that have a cgroup, with the names of the cgroups."""
        ...

    def is_pod_cgroup(self, cgroupfs: str) -> types.UID | None:
        """Return the UID of the pod that owns a cgroup, or None if no pod does.

        `cgroupfs` is the cgroup's path in the form of the cgroup driver.
        """
        ...

    def get_pod_cgroup_config(self, pod: v1.Pod, resource: str) -> ResourceConfig | None:
        """Return the settings of "cpu" or "memory", or None if the pod has no cgroup. Raise OSError or ValueError."""
        ...

    def set_pod_cgroup_config(self, pod: v1.Pod, config: ResourceConfig) -> None:
        """Change the settings that `config` contains and leave the others."""
        ...

    def get_pod_memory_usage(self, pod: v1.Pod) -> int | None:
        """Return the bytes that count against the pod's limit, or None if it has no cgroup.

        Raise OSError or ValueError.
        """
        ...


class PodContainerManagerImpl:
    """Manage the cgroups of pods, which are below the cgroups of the QoS classes."""

    def __init__(
        self,
        qos_containers: QOSContainersInfo,
        cgroup_manager: CgroupManager,
        pod_pids_limit: int,
        enforce_cpu_limits: bool,
        cpu_cfs_quota_period: int,
        memory_reservation_policy: str = "None",
        pod_has_exclusive_cpus: Callable[[v1.Pod], bool] = lambda pod: False,
    ) -> None:
        self._qos_containers = qos_containers
        self._cgroup_manager = cgroup_manager
        self._pod_pids_limit = pod_pids_limit
        self._enforce_cpu_limits = enforce_cpu_limits
        self._cpu_cfs_quota_period = cpu_cfs_quota_period
        self._memory_reservation_policy = memory_reservation_policy
        self._pod_has_exclusive_cpus = pod_has_exclusive_cpus

    def get_pod_container_name(self, pod: v1.Pod) -> tuple[CgroupName, str]:
        match v1qos.get_pod_qos(pod):
            case v1.POD_QOS_GUARANTEED:
                parent = self._qos_containers.guaranteed
            case v1.POD_QOS_BURSTABLE:
                parent = self._qos_containers.burstable
            case _:
                parent = self._qos_containers.best_effort
        name = cgroup_name(parent, get_pod_cgroup_name_suffix(pod.metadata.uid))
        return name, self._cgroup_manager.name(name)

    def exists(self, pod: v1.Pod) -> bool:
        name, _ = self.get_pod_container_name(pod)
        return self._cgroup_manager.exists(name)

    def ensure_exists(self, pod: v1.Pod) -> None:
        name, _ = self.get_pod_container_name(pod)
        if self._cgroup_manager.exists(name):
            return
        config = resource_config_for_pod(
            pod,
            self._cpu_limits_enforced(pod),
            self._cpu_cfs_quota_period,
            features.feature_gate.enabled(features.MEMORY_QOS) and self._cgroup_manager.version() == 2,
            self._memory_reservation_policy,
        )
        if self._pod_pids_limit > 0:
            config.pids_limit = self._pod_pids_limit
        # DIVERGES (fault of Go): only when the kubelet creates a pod's cgroup does it forbid the huge pages that the
        # pod does not request.
        # Go: pkg/kubelet/cm/cgroup_manager_linux.go, (*cgroupCommon).maybeSetHugetlb: every change of a cgroup forbids
        # all huge pages that the change does not name.
        # Why: a pod whose CPU is resized would lose its huge pages, and so would the daemons in a reserved cgroup.
        # Test: pod_container_manager_test.py:test_pod_that_is_resized_keeps_its_huge_pages
        for size in huge_page_sizes():
            config.huge_page_limit.setdefault(size, 0)
        self._cgroup_manager.create(name, config)

    def _cpu_limits_enforced(self, pod: v1.Pod) -> bool:
        """Report whether the pod gets a CPU quota.

        A pod with exclusive cores needs no quota: the quota could only throttle it.
        """
        if not features.feature_gate.enabled(features.DISABLE_CPU_QUOTA_WITH_EXCLUSIVE_CPUS):
            return self._enforce_cpu_limits
        if self._pod_has_exclusive_cpus(pod):
            klog.v(2).info_s("Disabled CFS quota", pod=klog.kobj(pod))
            return False
        return self._enforce_cpu_limits

    def destroy(self, name: CgroupName) -> None:
        self._try_killing_cgroup_processes(name)
        self._cgroup_manager.destroy(name)

    def _try_killing_cgroup_processes(self, name: CgroupName) -> None:
        """Kill all processes in the cgroup. After the last process, raise OSError if one could not be killed."""
        errors: list[OSError] = []
        for pid in self._cgroup_manager.pids(name):
            klog.v(3).info_s("Attempt to kill process of pod cgroup", pid=pid, cgroup="/".join(name))
            try:
                _kill_one_pid(pid)
            except OSError as err:
                errors.append(err)
        if errors:
            faults = "; ".join(map(str, errors))
            raise OSError(f"failed to kill all the processes attached to the {quoted(name)} cgroups: {faults}")

    def reduce_cpu_limits(self, name: CgroupName) -> None:
        self._cgroup_manager.update(name, ResourceConfig(cpu_shares=MIN_SHARES))

    def get_all_pods_from_cgroups(self) -> dict[types.UID, CgroupName]:
        found: dict[types.UID, CgroupName] = {}
        qos = self._qos_containers
        for parent in (qos.guaranteed, qos.burstable, qos.best_effort):
            for child in self._cgroup_manager.children(parent):
                uid = child[-1].removeprefix(POD_CGROUP_NAME_PREFIX)
                if uid and uid != child[-1]:
                    found[types.UID(uid)] = child
        return found

    def is_pod_cgroup(self, cgroupfs: str) -> types.UID | None:
        name, qos = parse_cgroup_name(cgroupfs), self._qos_containers
        if not name or name[:-1] not in (qos.guaranteed, qos.burstable, qos.best_effort):
            return None
        uid = name[-1].removeprefix(POD_CGROUP_NAME_PREFIX)
        return types.UID(uid) if uid != name[-1] else None

    def get_pod_cgroup_config(self, pod: v1.Pod, resource: str) -> ResourceConfig | None:
        name, _ = self.get_pod_container_name(pod)
        return self._cgroup_manager.get_cgroup_config(name, resource)

    def set_pod_cgroup_config(self, pod: v1.Pod, config: ResourceConfig) -> None:
        name, _ = self.get_pod_container_name(pod)
        self._cgroup_manager.update(name, config)

    def get_pod_memory_usage(self, pod: v1.Pod) -> int | None:
        name, _ = self.get_pod_container_name(pod)
        return self._cgroup_manager.memory_usage(name)


def _kill_one_pid(pid: int) -> None:
    """Kill one process, and ignore a process that has already ended. Raise OSError."""
    if pid < 1:
        # The kernel lists a process of another PID namespace as 0, and kill(0) would kill the kubelet's own process
        # group.
        raise OSError(f"process {pid} of the cgroup is in another PID namespace")
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class PodContainerManagerNoop:
    """Implement PodContainerManager without pod cgroups: all pods are directly below the cgroup root.

    DIVERGES (fault of Go): with cgroupsPerQOS: false, the kubelet passes the configured cgroupRoot to the runtime.
    Go: pkg/kubelet/cm/pod_container_manager_linux.go, (*podContainerManagerNoop).GetPodContainerName: it passes "".
    Why: the documentation of cgroupRoot says that the runtime handles it.
    Test: pod_container_manager_test.py:test_without_cgroups_all_pods_stand_at_the_root
    """

    def __init__(self, cgroup_root: CgroupName) -> None:
        self._cgroup_root = cgroup_root

    def get_pod_container_name(self, pod: v1.Pod) -> tuple[CgroupName, str]:
        return self._cgroup_root, "" if not self._cgroup_root else "/" + "/".join(self._cgroup_root)

    def exists(self, pod: v1.Pod) -> bool:
        return True

    def ensure_exists(self, pod: v1.Pod) -> None:
        return None

    def destroy(self, name: CgroupName) -> None:
        return None

    def reduce_cpu_limits(self, name: CgroupName) -> None:
        return None

    def get_all_pods_from_cgroups(self) -> dict[types.UID, CgroupName]:
        return {}

    def is_pod_cgroup(self, cgroupfs: str) -> types.UID | None:
        return None

    def get_pod_cgroup_config(self, pod: v1.Pod, resource: str) -> ResourceConfig | None:
        return None

    def set_pod_cgroup_config(self, pod: v1.Pod, config: ResourceConfig) -> None:
        return None

    def get_pod_memory_usage(self, pod: v1.Pod) -> int | None:
        return None
