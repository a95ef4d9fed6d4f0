"""Rotate the logs of running containers.

The manager renames the log 0.log to 0.log.20060102-150405, and the runtime opens a new 0.log. The next rotation
compresses the renamed file to 0.log.20060102-150405.gz.

Go: pkg/kubelet/logs/container_log_manager.go
"""

from __future__ import annotations

import glob
import gzip
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cri import apis as internalapi
from kubelet.cri import errors as crierror
from kubelet.logs.container_log_manager_stub import ContainerLogManagerStub
from pkg import golang, klog
from pkg.apimachinery import clock
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain

_TIMESTAMP_FORMAT = "%Y%m%d-%H%M%S"
_COMPRESS_SUFFIX = ".gz"
# This is Go's default. Python's default takes twice the time and saves little space.
_COMPRESS_LEVEL = 6
_TMP_SUFFIX = ".tmp"


class ContainerLogManager(Protocol):
    """Define how container logs are managed. Implementations are thread-safe."""

    def start(self, ctx: golang.Context) -> None:
        """Start the threads, which end with ctx."""
        ...

    def clean(self, ctx: golang.Context, container_id: str) -> None:
        """Remove all logs of a container. Raise OSError and crierror.RemoteError."""
        ...


@dataclass(frozen=True, slots=True)
class LogRotatePolicy:
    """Hold the limits: logs of max_size bytes are rotated, and max_files includes the current log."""

    max_size: int
    max_files: int


def get_all_logs(log: str) -> list[str]:
    """Return the rotated files of a log that are in use, oldest first, and the log itself."""
    inuse, _ = _filter_unused_logs(glob.glob(f"{glob.escape(log)}.*"))
    return [*sorted(inuse), log]


def new_container_log_manager(
    runtime_service: internalapi.RuntimeService,
    os_interface: kubecontainer.OSInterface,
    max_size: str,
    max_files: int,
    max_workers: int,
    monitor_interval: float,
    clock: clock.Clock,
) -> ContainerLogManager:
    """Return a manager. max_size is a quantity, and a negative one disables rotation; monitor_interval is in seconds.

    Raise ValueError.
    """
    if max_files <= 1:
        raise ValueError(f"invalid MaxFiles {max_files}, must be > 1")
    try:
        parsed_max_size = resource.parse_quantity(max_size).value()
    except ValueError as err:
        raise ValueError(f'failed to parse container log max size "{max_size}": {err}') from err
    if parsed_max_size < 0:
        return ContainerLogManagerStub()
    policy = LogRotatePolicy(parsed_max_size, max_files)
    return ContainerLogManagerImpl(runtime_service, os_interface, policy, max_workers, monitor_interval, clock)


class ContainerLogManagerImpl:
    """Rotate logs with a pool of workers.

    Go: containerLogManager
    """

    def __init__(
        self,
        runtime_service: internalapi.RuntimeService,
        os_interface: kubecontainer.OSInterface,
        policy: LogRotatePolicy,
        max_workers: int,
        monitoring_period: float,
        clock: clock.Clock,
    ) -> None:
        self._runtime_service = runtime_service
        self._os = os_interface
        self._policy = policy
        self._max_workers = max_workers
        self._monitoring_period = monitoring_period
        self._clock = clock
        # The workers check the containers in this queue. The channel is unbuffered, so it never holds more than one
        # scan's containers.
        self._queue: golang.Channel[str] = golang.Channel()
        # The lock guards _busy: the containers whose logs are in use by a rotation or by `clean`.
        self._lock = threading.Lock()
        self._busy: dict[str, golang.Channel[None]] = {}

    def start(self, ctx: golang.Context) -> None:
        """Start the threads as ContainerLogManager describes."""
        klog.info_s(
            "Initializing container log rotate workers",
            workers=self._max_workers,
            monitorPeriod=self._monitoring_period,
        )
        for worker in range(1, self._max_workers + 1):
            golang.go(self._process_queue_items, ctx, worker, name=f"log-rotate-{worker}")
        golang.go(
            wait.until,
            lambda: self._rotate_logs_or_log(ctx),
            self._monitoring_period,
            ctx,
            name="log-rotate-monitor",
        )

    def clean(self, ctx: golang.Context, container_id: str) -> None:
        """Remove all logs of a container as ContainerLogManager describes."""
        status = self._runtime_service.container_status(ctx, container_id, False).status
        self._acquire(container_id)
        try:
            self._remove_logs(container_id, status.log_path)
        finally:
            self._release(container_id)

    def _remove_logs(self, container_id: str, log_path: str) -> None:
        if not os.path.isabs(log_path):
            # DIVERGES (fault of Go): if the runtime names no log file for a container, nothing is removed.
            # Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).Clean: the Go kubelet removes what
            # matches `*`: the files and links in its working directory.
            # Why: the working directory is often the root directory, where /bin is a link, and a container created by
            # hand may have no log.
            # Test: container_log_manager_test.py:test_clean_removes_nothing_for_a_container_without_a_log
            klog.v(4).info_s("Container has no log file to remove", containerID=container_id, path=log_path)
            return
        for path in self._os.glob(f"{glob.escape(log_path)}*"):
            try:
                self._os.remove(path)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise OSError(f'failed to remove container "{container_id}" log "{path}": {err}') from err

    def _acquire(self, container_id: str) -> None:
        while (other := self._try_acquire(container_id)) is not None:
            other.recv()

    def _try_acquire(self, container_id: str) -> golang.Channel[None] | None:
        """Acquire the container's logs and return None, or return a channel that closes when they are released."""
        with self._lock:
            other = self._busy.get(container_id)
            if other is None:
                self._busy[container_id] = golang.Channel()
            return other

    def _release(self, container_id: str) -> None:
        with self._lock:
            done = self._busy.pop(container_id)
        done.close()

    def _process_queue_items(self, ctx: golang.Context, worker: int) -> None:
        klog.v(4).info_s("Starting container log rotation worker", workerID=worker)
        while True:
            taken = golang.select(ctx.done(), self._queue).took(self._queue)
            if taken is None:
                break
            # The next scan checks this container's log again.
            with contain("Failed to rotate log for container", golang.background(), containerID=taken.value):
                self.process_container(ctx, taken.value, worker)
        klog.v(4).info_s("Terminating container log rotation worker", workerID=worker)

    def _rotate_logs_or_log(self, ctx: golang.Context) -> None:
        try:
            self.rotate_logs(ctx)
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to rotate container logs")
        except golang.ContextError:
            return

    def rotate_logs(self, ctx: golang.Context) -> None:
        """Pass all running containers to the workers. Raise crierror.RemoteError and golang.ContextError."""
        klog.v(4).info_s("Starting container log rotation sequence")
        containers = self._runtime_service.list_containers(ctx, runtimeapi.ContainerFilter())
        for container in containers:
            # A container that does not run writes no more logs.
            if container.state == runtimeapi.CONTAINER_RUNNING:
                klog.v(4).info_s(
                    "Adding new entry to the queue for processing",
                    id=container.id,
                    name=container.metadata.name,
                    labels=container.labels,
                )
                self._queue.send(container.id, ctx)

    def process_container(self, ctx: golang.Context, container_id: str, worker: int) -> None:
        """Rotate one container's log if it is too large. Errors are logged."""
        who = {"worker": worker, "containerID": container_id}
        if self._try_acquire(container_id) is not None:
            # Another worker still processes this log, because a compression may take longer than the interval between
            # scans.
            return
        try:
            status = self._runtime_service.container_status(ctx, container_id, False).status
            path = status.log_path
            size = self._log_size(ctx, container_id, path)
            if size < self._policy.max_size:
                klog.v(7).info_s(
                    "log file doesn't need to be rotated",
                    **who,
                    path=path,
                    currentSize=size,
                    maxSize=self._policy.max_size,
                )
                return
            self._rotate_log(ctx, container_id, path)
        except (OSError, crierror.RemoteError) as err:
            klog.error_s(err, "Failed to rotate log for container", **who)
        finally:
            self._release(container_id)

    def _log_size(self, ctx: golang.Context, container_id: str, path: str) -> int:
        try:
            return self._os.stat(path).st_size
        except FileNotFoundError:
            # A kubelet that died between the rename and the call to the runtime leaves the container without a log, so
            # the runtime must open it again.
            self._runtime_service.reopen_container_log(ctx, container_id)
            return self._os.stat(path).st_size

    def _rotate_log(self, ctx: golang.Context, container_id: str, log: str) -> None:
        logs = self._cleanup_unused_logs(glob.glob(f"{glob.escape(log)}.*"))
        for rotated in self._remove_excess_logs(logs):
            if not rotated.endswith(_COMPRESS_SUFFIX):
                self._compress_log(rotated)
        self._rotate_latest_log(ctx, container_id, log)

    def _cleanup_unused_logs(self, logs: Sequence[str]) -> list[str]:
        """Remove what an interrupted rotation left, and return the other files."""
        inuse, unused = _filter_unused_logs(logs)
        for log in unused:
            self._os.remove(log)
        return inuse

    def _remove_excess_logs(self, logs: Sequence[str]) -> list[str]:
        """Remove the oldest files, so that there are max_files with the log and the file that it becomes."""
        ordered = sorted(logs)
        excess = max(len(ordered) - max(self._policy.max_files - 2, 0), 0)
        for log in ordered[:excess]:
            self._os.remove(log)
        return ordered[excess:]

    def _compress_log(self, log: str) -> None:
        """Compress into a temporary file, so that a reader finds either the old file or the whole new one.

        DIVERGES (safer): the compressed log is synced to the disk before the original is removed.
        Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).compressLog: the Go kubelet does not sync
        the new file.
        Why: a crash of the machine can leave an empty compressed log and no original.
        Test: container_log_manager_test.py:test_compressed_log_is_on_the_disk_before_the_other_goes
        """
        tmp = log + _TMP_SUFFIX
        mode = os.stat(log).st_mode & 0o777
        try:
            with (
                self._os.open(log) as source,
                self._os.open_file(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode) as f,
            ):
                with gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESS_LEVEL, fileobj=f) as target:
                    shutil.copyfileobj(source, target)
                f.flush()
                os.fsync(f.fileno())
            self._os.rename(tmp, log + _COMPRESS_SUFFIX)
        except OSError:
            try:
                self._os.remove(tmp)
            except OSError as err:
                klog.v(4).info_s("Failed to remove temporary log", path=tmp, err=err)
            raise
        self._os.remove(log)

    def _rotate_latest_log(self, ctx: golang.Context, container_id: str, log: str) -> None:
        """Rename the log without compressing it, because the container and log collectors may still be using it."""
        # The name contains local time, as in Go.
        timestamp = self._clock.now().astimezone().strftime(_TIMESTAMP_FORMAT)
        rotated = f"{log}.{timestamp}"
        if os.path.lexists(rotated) or os.path.lexists(rotated + _COMPRESS_SUFFIX):
            # DIVERGES (fault of Go): a log is not rotated while a rotated log with the current second in its name
            # exists.
            # Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).rotateLatestLog: the Go kubelet
            # replaces the older log, or the next rotation removes the new one because a compressed log has its name.
            # Why: names repeat when the clock is set back or summer time ends, and lines would be lost.
            # Test: container_log_manager_test.py:test_rotated_log_of_the_same_second_is_kept
            klog.v(4).info_s("Log was already rotated in this second", path=rotated, containerID=container_id)
            return
        self._os.rename(log, rotated)
        try:
            self._runtime_service.reopen_container_log(ctx, container_id)
        except crierror.RemoteError:
            self._move_back(container_id, rotated, log)
            raise

    def _move_back(self, container_id: str, rotated: str, log: str) -> None:
        """Rename the file back, so that the next scan tries again. The runtime still writes to this file.

        DIVERGES (fault of Go): when the runtime has opened a new log in spite of its error, both logs stay.
        Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).rotateLatestLog: in the Go kubelet the old
        log replaces the new one.
        Why: the response may only have been late, and everything that the container writes from then on would be lost.
        Test: container_log_manager_test.py:test_log_that_the_runtime_has_reopened_is_kept_when_its_answer_is_lost
        """
        try:
            os.link(rotated, log)
            self._os.remove(rotated)
        except FileExistsError:
            klog.v(4).info_s(
                "The runtime has reopened the log in spite of its error", path=log, containerID=container_id
            )
        except OSError as err:
            klog.error_s(err, "Failed to rename rotated log", rotatedLog=rotated, newLog=log, containerID=container_id)


def _filter_unused_logs(logs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the logs in use and the leftovers."""
    known = set(logs)
    inuse = [log for log in logs if _is_in_use(log, known)]
    return inuse, [log for log in logs if log not in inuse]


def _is_in_use(log: str, logs: set[str]) -> bool:
    if log.endswith(_TMP_SUFFIX):
        return False
    # A log that is already compressed only waits for its removal.
    return log.endswith(_COMPRESS_SUFFIX) or log + _COMPRESS_SUFFIX not in logs
