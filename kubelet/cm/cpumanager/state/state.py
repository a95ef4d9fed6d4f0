"""Define the state of the CPU manager.

Go: pkg/kubelet/cm/cpumanager/state/state.go
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pkg.utils.cpuset import CPUSet

# The keys are the pod's UID and the container's name.
ContainerCPUAssignments = dict[str, dict[str, CPUSet]]


class Reader(Protocol):
    """Define queries about the CPUs of containers. All methods are thread-safe."""

    def get_cpu_set(self, pod_uid: str, container_name: str) -> CPUSet | None:
        """Return the container's exclusive CPUs, or None if it has none."""
        ...

    def get_default_cpu_set(self) -> CPUSet:
        """Return the pool that all other containers share."""
        ...

    def get_cpu_set_or_default(self, pod_uid: str, container_name: str) -> CPUSet:
        """Return the CPUs on which the container may run."""
        ...

    def get_cpu_assignments(self) -> ContainerCPUAssignments:
        """Return a copy of all exclusive assignments."""
        ...


class State(Reader, Protocol):
    """Define queries and changes. A change that cannot be written to disk is logged and kept in memory."""

    def together(self) -> AbstractContextManager[None]:
        """Write the changes of the block to disk at once, at the end of the block.

        A part of the changes would be inconsistent for the next kubelet. If an exception leaves the block, the changes
        are undone. Only one thread at a time may change the state.

        DIVERGES (fault of Go): the kubelet writes a container's CPUs and the rest of the shared pool at once.
        Go: pkg/kubelet/cm/cpumanager/state/state_checkpoint.go, (*stateCheckpoint).SetCPUSet: it writes each
        separately.
        Why: if a kubelet is killed between the two, it does not start again until an administrator removes the file.
        Test: kubelet/cm/cpumanager/cpu_manager_test.py:test_a_kubelet_that_dies_at_any_moment_starts_again
        """
        ...

    def set_cpu_set(self, pod_uid: str, container_name: str, cpus: CPUSet) -> None: ...

    def set_default_cpu_set(self, cpus: CPUSet) -> None: ...

    def delete(self, pod_uid: str, container_name: str) -> None:
        """Delete the container's exclusive assignment; the pool stays unchanged."""
        ...
