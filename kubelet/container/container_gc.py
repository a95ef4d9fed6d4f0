"""Decide when dead containers are removed.

Go: pkg/kubelet/container/container_gc.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubelet.container.runtime import Runtime
from pkg import golang, klog


@dataclass(frozen=True, slots=True)
class GCPolicy:
    """Hold how many dead containers may stay, and how long they stay at least."""

    # `min_age` is in seconds; 0 means no minimum.
    min_age: float
    # `max_per_pod_container` limits the dead runs of one container of a pod; a negative value means no limit.
    max_per_pod_container: int
    # `max_containers` limits all dead containers together; a negative value means no limit.
    max_containers: int


class GC(Protocol):
    """Define the removal of dead containers."""

    def garbage_collect(self, ctx: golang.Context) -> None: ...

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        """Remove dead containers, and the containers of terminated pods that still exist."""
        ...


class SourcesReadyProvider(Protocol):
    """Define a check that every pod source has sent its pods."""

    def all_ready(self) -> bool: ...


class RealContainerGC:
    """Remove dead containers according to a fixed policy."""

    def __init__(self, runtime: Runtime, policy: GCPolicy, sources_ready_provider: SourcesReadyProvider) -> None:
        """Set up the collection. Raise ValueError if the policy's age is negative."""
        if policy.min_age < 0:
            raise ValueError(f"invalid minimum garbage collection age: {policy.min_age}s")
        self._runtime = runtime
        self._policy = policy
        self._sources_ready_provider = sources_ready_provider

    def garbage_collect(self, ctx: golang.Context) -> None:
        self._runtime.garbage_collect(ctx, self._policy, self._sources_ready_provider.all_ready(), False)

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        klog.info_s("Attempting to delete unused containers")
        self._runtime.garbage_collect(ctx, self._policy, self._sources_ready_provider.all_ready(), True)
