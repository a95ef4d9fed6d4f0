"""Remove what dead pods left in the runtime: containers, sandboxes, log directories and links.

Go: pkg/kubelet/kuberuntime/kuberuntime_gc.go
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import helpers, labels, legacy
from kubelet.kuberuntime.kuberuntime_container import REASON_UNKNOWN, PodStateProvider
from kubelet.kuberuntime.kuberuntime_sandbox import ListOptions
from pkg import golang, klog
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime import contain
from pkg.component_base import tracing

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi
    from kubelet.kuberuntime.kuberuntime_termination_order import TerminationOrdering
    from pkg.api.core import v1
    from pkg.apimachinery import clock as clockpkg


@dataclass(frozen=True, slots=True)
class ContainerGCInfo:
    """Describe a dead container. If `unknown` is True, the container may still run and must be stopped first."""

    id: str
    name: str
    attempt: int
    create_time: datetime
    unknown: bool


@dataclass(frozen=True, slots=True)
class SandboxGCInfo:
    """Describe a sandbox. It is active while it is ready or has containers."""

    id: str
    attempt: int
    create_time: datetime
    active: bool


class EvictUnit(NamedTuple):
    """Identify a pod's container by name; the limits count the runs of each unit."""

    uid: types.UID
    name: str


_Info = TypeVar("_Info", ContainerGCInfo, SandboxGCInfo)

ContainersByEvictUnit = dict[EvictUnit, list[ContainerGCInfo]]


def _num_containers(units: ContainersByEvictUnit) -> int:
    return sum(map(len, units.values()))


def _newest_first(infos: Iterable[_Info]) -> list[_Info]:
    """Sort the runs of one container, or the sandboxes of one pod, newest first.

    DIVERGES (fault of Go): containers and sandboxes are sorted by attempt first, and then by creation time.
    Go: pkg/kubelet/kuberuntime/kuberuntime_gc.go, byCreated.Less: the Go kubelet compares only the creation times.
    Why: after somebody has set back the clock, the last container looks oldest and is removed, and with it its exit
    status and restart count.
    Test: kuberuntime_gc_test.py:test_container_gc, kuberuntime_gc_test.py:test_sandbox_gc
    """
    return sorted(infos, key=lambda info: (info.attempt, info.create_time), reverse=True)


class GCManager(Protocol):
    """Define what garbage collection needs from the runtime manager."""

    def get_containers(self, ctx: golang.Context, opts: ListOptions) -> Sequence[runtimeapi.Container]: ...

    def get_sandboxes(self, ctx: golang.Context, opts: ListOptions) -> Sequence[runtimeapi.PodSandbox]: ...

    def kill_container(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        container_id: kubecontainer.ContainerID,
        container_name: str,
        message: str,
        reason: str,
        grace_period_override: int | None,
        ordering: TerminationOrdering | None,
    ) -> None: ...

    def remove_container(self, ctx: golang.Context, container_id: str, keep_logs: bool) -> None: ...


@dataclass(kw_only=True, eq=False, repr=False)
class ContainerGC:
    """Remove dead containers, sandboxes and logs.

    All methods are thread-safe: if two threads try to remove the same object, the later one logs an error.

    Go: containerGC
    """

    runtime_service: internalapi.RuntimeService
    manager: GCManager
    pod_state_provider: PodStateProvider
    os_interface: kubecontainer.OSInterface
    runtime_name: str
    pod_logs_directory: str
    clock: clockpkg.Clock
    tracer: tracing.Tracer

    def garbage_collect(
        self,
        ctx: golang.Context,
        gc_policy: kubecontainer.GCPolicy,
        all_sources_ready: bool,
        evict_non_deleted_pods: bool,
    ) -> None:
        """Remove containers according to the policy, then sandboxes without containers, and then logs.

        Raise an ExceptionGroup.
        """
        with self.tracer.start(ctx, "Containers/GarbageCollect") as span:
            self._garbage_collect(span.ctx, gc_policy, all_sources_ready, evict_non_deleted_pods)

    def _garbage_collect(
        self,
        ctx: golang.Context,
        gc_policy: kubecontainer.GCPolicy,
        all_sources_ready: bool,
        evict_non_deleted_pods: bool,
    ) -> None:
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._evict_containers(ctx, gc_policy, all_sources_ready, evict_non_deleted_pods),
            lambda: self._evict_sandboxes(ctx, evict_non_deleted_pods),
            lambda: self._evict_pod_logs_directories(ctx, all_sources_ready),
        )
        errors: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as err:  # The failure of one step must not keep the others from running.
                errors.append(err)
        if errors:
            raise ExceptionGroup("garbage collection failed", errors)

    def _should_be_removed(self, uid: types.UID, evict_non_deleted_pods: bool) -> bool:
        provider = self.pod_state_provider
        return provider.should_pod_content_be_removed(uid) or (
            evict_non_deleted_pods and provider.should_pod_runtime_be_removed(uid)
        )

    def _enforce_max_containers_per_evict_unit(
        self, ctx: golang.Context, units: ContainersByEvictUnit, max_containers: int
    ) -> None:
        for key, unit in units.items():
            to_remove = len(unit) - max_containers
            if to_remove > 0:
                units[key] = self._remove_oldest_n(ctx, _newest_first(unit), to_remove)

    def _remove_oldest_n(
        self, ctx: golang.Context, newest_first: Sequence[ContainerGCInfo], to_remove: int
    ) -> list[ContainerGCInfo]:
        """Remove the oldest containers, and return those that were kept.

        A container whose removal fails counts as removed, so that no other container is removed in its place.
        """
        num_to_keep = len(newest_first) - to_remove
        for info in reversed(newest_first[num_to_keep:]):
            if info.unknown and not self._stop(ctx, info):
                continue
            try:
                self.manager.remove_container(ctx, info.id, False)
            except Exception as err:  # The next garbage collection tries again.
                klog.error_s(err, "Failed to remove container", containerID=info.id)
        return list(newest_first[:num_to_keep])

    def _stop(self, ctx: golang.Context, info: ContainerGCInfo) -> bool:
        container_id = kubecontainer.ContainerID(self.runtime_name, info.id)
        message = "Container is in unknown state, try killing it before removal"
        try:
            self.manager.kill_container(ctx, None, container_id, info.name, message, REASON_UNKNOWN, None, None)
        except Exception as err:  # The next garbage collection tries again.
            klog.error_s(err, "Failed to stop container", containerID=info.id)
            return False
        return True

    def _remove_oldest_n_sandboxes(
        self, ctx: golang.Context, sandboxes: Sequence[SandboxGCInfo], to_remove: int
    ) -> None:
        ordered = _newest_first(sandboxes)
        for info in reversed(ordered[len(ordered) - to_remove :]):
            if not info.active:
                self._remove_sandbox(ctx, info.id)

    def _remove_sandbox(self, ctx: golang.Context, sandbox_id: str) -> None:
        klog.v(4).info_s("Removing sandbox", sandboxID=sandbox_id)
        client = self.runtime_service
        try:
            # The sandbox should have been stopped long ago; this call ensures it.
            client.stop_pod_sandbox(ctx, sandbox_id)
        except Exception as err:
            # A fault of one sandbox must not keep others from being removed. The next garbage collection tries again.
            klog.error_s(err, "Failed to stop sandbox before removing", sandboxID=sandbox_id)
            return
        try:
            client.remove_pod_sandbox(ctx, sandbox_id)
        except Exception as err:  # The next garbage collection tries again.
            klog.error_s(err, "Failed to remove sandbox", sandboxID=sandbox_id)

    def _evictable_containers(self, ctx: golang.Context, min_age: float) -> ContainersByEvictUnit:
        """Return the containers that do not run and were created more than min_age seconds ago."""
        units: ContainersByEvictUnit = {}
        # time of day: the runtime reports the creation of a container as a time of day.
        newest = self.clock.now() - timedelta(seconds=min_age)
        for container in self.manager.get_containers(ctx, ListOptions()):
            if container.state == runtimeapi.CONTAINER_RUNNING:
                continue
            created_at = helpers.time_from_nanoseconds(container.created_at)
            if newest < created_at:
                continue
            name = container.metadata.name
            uid = labels.get_container_info_from_labels(container.labels).pod_uid
            unknown = container.state == runtimeapi.CONTAINER_UNKNOWN
            info = ContainerGCInfo(container.id, name, container.metadata.attempt, created_at, unknown)
            units.setdefault(EvictUnit(uid, name), []).append(info)
        return units

    def _evict_containers(
        self,
        ctx: golang.Context,
        gc_policy: kubecontainer.GCPolicy,
        all_sources_ready: bool,
        evict_non_deleted_pods: bool,
    ) -> None:
        units = self._evictable_containers(ctx, gc_policy.min_age)
        if all_sources_ready:
            for key in list(units):
                if self._should_be_removed(key.uid, evict_non_deleted_pods):
                    unit = units.pop(key)
                    self._remove_oldest_n(ctx, _newest_first(unit), len(unit))
        if gc_policy.max_per_pod_container >= 0:
            self._enforce_max_containers_per_evict_unit(ctx, units, gc_policy.max_per_pod_container)
        if 0 <= gc_policy.max_containers < _num_containers(units):
            self._enforce_max_containers(ctx, units, gc_policy.max_containers)

    def _enforce_max_containers(self, ctx: golang.Context, units: ContainersByEvictUnit, max_containers: int) -> None:
        """Limit each unit to the same share, at least one container; then remove the oldest containers of all units."""
        per_unit = max(max_containers // len(units), 1)
        self._enforce_max_containers_per_evict_unit(ctx, units, per_unit)
        left = [info for unit in units.values() for info in unit]
        if len(left) > max_containers:
            left.sort(key=lambda info: info.create_time, reverse=True)
            self._remove_oldest_n(ctx, left, len(left) - max_containers)

    def _evict_sandboxes(self, ctx: golang.Context, evict_non_deleted_pods: bool) -> None:
        """Remove sandboxes that are empty and not ready, and whose pod is gone or has a newer sandbox."""
        # The containers are listed first. If a container is created between the two lists, the second list shows its
        # sandbox as ready.
        containers = self.manager.get_containers(ctx, ListOptions())
        sandboxes = self.manager.get_sandboxes(ctx, ListOptions())
        with_containers = {container.pod_sandbox_id for container in containers}
        by_pod: dict[types.UID, list[SandboxGCInfo]] = {}
        for sandbox in sandboxes:
            active = sandbox.state == runtimeapi.SANDBOX_READY or sandbox.id in with_containers
            created_at = helpers.time_from_nanoseconds(sandbox.created_at)
            info = SandboxGCInfo(sandbox.id, sandbox.metadata.attempt, created_at, active)
            by_pod.setdefault(types.UID(sandbox.metadata.uid), []).append(info)
        for uid, infos in by_pod.items():
            remove_all = self._should_be_removed(uid, evict_non_deleted_pods)
            self._remove_oldest_n_sandboxes(ctx, infos, len(infos) - (0 if remove_all else 1))

    def _evict_pod_logs_directories(self, ctx: golang.Context, all_sources_ready: bool) -> None:
        """Remove the log directories of pods that are gone, and the links of containers that are gone."""
        if all_sources_ready:
            self._remove_pod_logs_directories()
        pattern = os.path.join(legacy.LEGACY_CONTAINER_LOGS_DIR, f"*.{legacy.LEGACY_LOG_SUFFIX}")
        for link in self.os_interface.glob(pattern):
            with contain("Failed to check a container log symlink", ctx, path=link):
                if self._is_dead_log_symlink(ctx, link):
                    self._remove_log_symlink(link)

    def _remove_pod_logs_directories(self) -> None:
        os_interface = self.os_interface
        directory = self.pod_logs_directory
        try:
            entries = os_interface.read_dir(directory)
        except OSError as err:
            raise OSError(f'failed to read podLogsDirectory "{directory}": {err}') from err
        for entry in entries:
            uid = helpers.parse_pod_uid_from_logs_directory(entry.name)
            if not self.pod_state_provider.should_pod_content_be_removed(uid):
                continue
            klog.v(4).info_s("Removing pod logs", podUID=uid)
            try:
                os_interface.remove_all(os.path.join(directory, entry.name))
            except Exception as err:  # The next garbage collection tries again.
                klog.error_s(err, "Failed to remove pod logs directory", path=entry.name)

    def _is_dead_log_symlink(self, ctx: golang.Context, link: str) -> bool:
        try:
            self.os_interface.stat(link)
            return False
        except FileNotFoundError:
            pass
        except OSError:
            return False
        try:
            container_id = legacy.get_container_id_from_legacy_log_symlink(link)
        except ValueError as err:
            klog.v(4).info_s("Unable to obtain container ID", err=err)
            return True
        try:
            status = self.runtime_service.container_status(ctx, container_id, False).status
        except crierror.RemoteError as err:
            klog.info_s("Error getting ContainerStatus for containerID", containerID=container_id, err=err)
            # DIVERGES (safer): a link to a missing log stays unless the runtime says that the container is gone.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_gc.go, (*containerGC).evictPodLogsDirectories: the Go kubelet
            # removes the link.
            # Why: the log of a running container is missing for a moment during its rotation, and for longer if the
            # runtime hangs; nothing creates the link again.
            # Test: kuberuntime_gc_test.py:test_dangling_log_link_stays_when_the_runtime_does_not_answer
            return crierror.is_not_found(err)
        # During a log rotation the link of a running container dangles for a moment.
        if status.state != runtimeapi.CONTAINER_EXITED:
            klog.v(5).info_s("Container is still running, not removing symlink", containerID=container_id, path=link)
            return False
        return True

    def _remove_log_symlink(self, link: str) -> None:
        try:
            self.os_interface.remove(link)
        except OSError as err:
            klog.error_s(err, "Failed to remove container log dead symlink", path=link)
        else:
            klog.v(4).info_s("Removed symlink", path=link)
