"""Removes what dead pods left in the runtime: containers, sandboxes, log directories and links.

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
    """A dead container; unknown means that it may be alive and is to be stopped first."""

    id: str
    name: str
    attempt: int
    create_time: datetime
    unknown: bool


@dataclass(frozen=True, slots=True)
class SandboxGCInfo:
    """A sandbox; active ones are ready, or have containers left in them."""

    id: str
    attempt: int
    create_time: datetime
    active: bool


class EvictUnit(NamedTuple):
    """Containers are counted by pod and name."""

    uid: types.UID
    name: str


_Info = TypeVar("_Info", ContainerGCInfo, SandboxGCInfo)

ContainersByEvictUnit = dict[EvictUnit, list[ContainerGCInfo]]


def _num_containers(units: ContainersByEvictUnit) -> int:
    return sum(map(len, units.values()))


def _newest_first(infos: Iterable[_Info]) -> list[_Info]:
    """Containers of one name, or sandboxes of one pod.

    DIVERGES (fault of Go): they are sorted by attempt first, then by creation time.
    Go: pkg/kubelet/kuberuntime/kuberuntime_gc.go, byCreated.Less: compares the creation time alone.
    Why: after the clock was set back the last one looks oldest and is removed, and with it how it ended and how often
    the container was restarted.
    Test: kuberuntime_gc_test.py:test_container_gc, kuberuntime_gc_test.py:test_sandbox_gc
    """
    return sorted(infos, key=lambda info: (info.attempt, info.create_time), reverse=True)


class GCManager(Protocol):
    """What garbage collection has the runtime manager do."""

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
    """Go: containerGC. Safe from any thread: what two want to remove at once is logged by the later one."""

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
        """Containers by the policy, then sandboxes without containers, then logs.

        Raises an ExceptionGroup.
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
            except Exception as err:  # One step's failure must not keep the others from freeing what they can.
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
        """Returns those kept. What could not be removed counts as removed: nothing else goes instead."""
        num_to_keep = len(newest_first) - to_remove
        for info in reversed(newest_first[num_to_keep:]):
            if info.unknown and not self._stop(ctx, info):
                continue
            try:
                self.manager.remove_container(ctx, info.id, False)
            except Exception as err:  # The next round tries again.
                klog.error_s(err, "Failed to remove container", containerID=info.id)
        return list(newest_first[:num_to_keep])

    def _stop(self, ctx: golang.Context, info: ContainerGCInfo) -> bool:
        container_id = kubecontainer.ContainerID(self.runtime_name, info.id)
        message = "Container is in unknown state, try killing it before removal"
        try:
            self.manager.kill_container(ctx, None, container_id, info.name, message, REASON_UNKNOWN, None, None)
        except Exception as err:  # The next round tries again.
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
            # It should have been stopped long ago; make sure.
            client.stop_pod_sandbox(ctx, sandbox_id)
        except Exception as err:  # Whatever is wrong with one sandbox, the others go. The next round tries again.
            klog.error_s(err, "Failed to stop sandbox before removing", sandboxID=sandbox_id)
            return
        try:
            client.remove_pod_sandbox(ctx, sandbox_id)
        except Exception as err:  # As above.
            klog.error_s(err, "Failed to remove sandbox", sandboxID=sandbox_id)

    def _evictable_containers(self, ctx: golang.Context, min_age: float) -> ContainersByEvictUnit:
        """Those that do not run and were created more than min_age seconds ago."""
        units: ContainersByEvictUnit = {}
        # time of day: the runtime says when it created a container.
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
        """The same number for each unit, at least one; then the oldest of all."""
        per_unit = max(max_containers // len(units), 1)
        self._enforce_max_containers_per_evict_unit(ctx, units, per_unit)
        left = [info for unit in units.values() for info in unit]
        if len(left) > max_containers:
            left.sort(key=lambda info: info.create_time, reverse=True)
            self._remove_oldest_n(ctx, left, len(left) - max_containers)

    def _evict_sandboxes(self, ctx: golang.Context, evict_non_deleted_pods: bool) -> None:
        """Those that are not ready and empty, and whose pod is gone or has a newer one."""
        # Containers first: a container made meanwhile then has its sandbox in the second list as ready.
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
        """Directories of pods that are gone, and links whose container is."""
        if all_sources_ready:
            self._remove_pod_logs_directories()
        pattern = os.path.join(legacy.LEGACY_CONTAINER_LOGS_DIR, f"*.{legacy.LEGACY_LOG_SUFFIX}")
        for link in self.os_interface.glob(pattern):
            with contain("Failed to look at container log symlink", ctx, path=link):
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
            except Exception as err:  # As above.
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
            # DIVERGES (safer): a link to a missing log stays while the runtime cannot say that the container is gone.
            # Go: pkg/kubelet/kuberuntime/kuberuntime_gc.go, (*containerGC).evictPodLogsDirectories: removes the link.
            # Why: the log of a living container is missing for a moment as it is rotated, for longer if the runtime
            # hangs, and nothing makes the link again.
            # Test: kuberuntime_gc_test.py:test_dangling_log_link_stays_when_the_runtime_does_not_answer
            return crierror.is_not_found(err)
        # During a log rotation the link of a living container dangles for a moment.
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
