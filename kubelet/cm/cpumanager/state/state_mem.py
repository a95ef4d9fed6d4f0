"""Keep the CPUs of containers in memory.

Go: pkg/kubelet/cm/cpumanager/state/state_mem.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubelet.cm.cpumanager.state.state import ContainerCPUAssignments
from pkg import klog
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

if TYPE_CHECKING:
    from kubelet.cm.cpumanager.state.state import State


class StateMemory:
    """Implement State in memory."""

    def __init__(
        self, assignments: ContainerCPUAssignments | None = None, default_cpu_set: CPUSet | None = None
    ) -> None:
        klog.info_s("Initialized new in-memory state store")
        self._lock = threading.Lock()  # This lock guards the fields below.
        self._assignments = assignments or {}
        self._default_cpu_set = default_cpu_set or cpuset.new()

    def get_cpu_set(self, pod_uid: str, container_name: str) -> CPUSet | None:
        with self._lock:
            return self._assignments.get(pod_uid, {}).get(container_name)

    def get_default_cpu_set(self) -> CPUSet:
        with self._lock:
            return self._default_cpu_set

    def get_cpu_set_or_default(self, pod_uid: str, container_name: str) -> CPUSet:
        with self._lock:
            return self._assignments.get(pod_uid, {}).get(container_name, self._default_cpu_set)

    def get_cpu_assignments(self) -> ContainerCPUAssignments:
        with self._lock:
            return {pod_uid: dict(containers) for pod_uid, containers in self._assignments.items()}

    @contextmanager
    def together(self) -> Iterator[None]:
        before = self.get_cpu_assignments(), self.get_default_cpu_set()
        try:
            yield
        except BaseException:
            with self._lock:
                self._assignments, self._default_cpu_set = before
            raise

    def set_cpu_set(self, pod_uid: str, container_name: str, cpus: CPUSet) -> None:
        with self._lock:
            self._assignments.setdefault(pod_uid, {})[container_name] = cpus
        klog.info_s("Updated desired CPUSet", podUID=pod_uid, containerName=container_name, cpuSet=str(cpus))

    def set_default_cpu_set(self, cpus: CPUSet) -> None:
        with self._lock:
            self._default_cpu_set = cpus
        klog.info_s("Updated default CPUSet", cpuSet=str(cpus))

    def delete(self, pod_uid: str, container_name: str) -> None:
        with self._lock:
            containers = self._assignments.get(pod_uid, {})
            containers.pop(container_name, None)
            if not containers:
                self._assignments.pop(pod_uid, None)
        klog.v(2).info_s("Deleted CPUSet assignment", podUID=pod_uid, containerName=container_name)


if TYPE_CHECKING:

    def _is_state(state: StateMemory) -> State:
        return state
