"""When dead containers are removed.

Go: pkg/kubelet/container/container_gc.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kubelet.container.runtime import Runtime
from pkg import golang, klog


@dataclass(frozen=True, slots=True)
class GCPolicy:
    """How many dead containers may stay, and how long they do at least."""

    # Seconds; 0 for no limit.
    min_age: float
    # Dead containers of one container of a pod; less than 0 for no limit.
    max_per_pod_container: int
    # Dead containers in all; less than 0 for no limit.
    max_containers: int


class GC(Protocol):
    """Removing dead containers."""

    def garbage_collect(self, ctx: golang.Context) -> None: ...

    def delete_all_unused_containers(self, ctx: golang.Context) -> None:
        """Remove those too whose pods have ended but still exist."""
        ...


class SourcesReadyProvider(Protocol):
    """Knows whether every pod source has been heard."""

    def all_ready(self) -> bool: ...


class RealContainerGC:
    """Garbage collection by a fixed policy."""

    def __init__(self, runtime: Runtime, policy: GCPolicy, sources_ready_provider: SourcesReadyProvider) -> None:
        """Raises ValueError if the policy's age is negative."""
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
