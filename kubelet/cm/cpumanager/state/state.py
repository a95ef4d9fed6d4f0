"""What is known of processors that were given out.

Go: pkg/kubelet/cm/cpumanager/state/state.go
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pkg.utils.cpuset import CPUSet

# By the pod's uid and the container's name.
ContainerCPUAssignments = dict[str, dict[str, CPUSet]]


class Reader(Protocol):
    """Tells who has which processors. Thread-safe."""

    def get_cpu_set(self, pod_uid: str, container_name: str) -> CPUSet | None:
        """Those that are this container's alone; None if it has none of its own."""
        ...

    def get_default_cpu_set(self) -> CPUSet:
        """The pool that all other containers share."""
        ...

    def get_cpu_set_or_default(self, pod_uid: str, container_name: str) -> CPUSet:
        """Where the container may run."""
        ...

    def get_cpu_assignments(self) -> ContainerCPUAssignments:
        """A copy of all that are somebody's alone."""
        ...


class State(Reader, Protocol):
    """Tells, and is told. What does not reach the disk is logged and kept in memory."""

    def together(self) -> AbstractContextManager[None]:
        """What is changed within reaches the disk as one, for a part of it would make no sense to the next kubelet.

        If an exception leaves the block, nothing is changed. One at a time changes the state.

        DIVERGES (fault of Go): a container's processors and what is left in the shared pool are written at once.
        Go: pkg/kubelet/cm/cpumanager/state/state_checkpoint.go, (*stateCheckpoint).SetCPUSet: each is written by
        itself.
        Why: a kubelet that is killed between the two does not start again until somebody removes the file.
        Test: kubelet/cm/cpumanager/cpu_manager_test.py:test_a_kubelet_that_dies_at_any_moment_starts_again
        """
        ...

    def set_cpu_set(self, pod_uid: str, container_name: str, cpus: CPUSet) -> None: ...

    def set_default_cpu_set(self, cpus: CPUSet) -> None: ...

    def delete(self, pod_uid: str, container_name: str) -> None:
        """The container has none of its own any more; the pool is not changed."""
        ...
