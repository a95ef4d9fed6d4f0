"""Rotates the logs of running containers.

The log 0.log is moved to 0.log.20060102-150405, the runtime opens a new 0.log, and at the next rotation
the moved file is compressed to 0.log.20060102-150405.gz.

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
# Go's default: Python's own takes twice the time, for hardly less.
_COMPRESS_LEVEL = 6
_TMP_SUFFIX = ".tmp"


class ContainerLogManager(Protocol):
    """Thread-safe."""

    def start(self, ctx: golang.Context) -> None:
        """Starts the threads, which end with ctx."""
        ...

    def clean(self, ctx: golang.Context, container_id: str) -> None:
        """Removes all logs of a container. Raises OSError and crierror.RemoteError."""
        ...


@dataclass(frozen=True, slots=True)
class LogRotatePolicy:
    """Logs of max_size bytes are rotated; max_files counts the current one too."""

    max_size: int
    max_files: int


def get_all_logs(log: str) -> list[str]:
    """The rotated files of a log that are in use, oldest first, and the log itself."""
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
    """max_size is a quantity, a negative one switches rotation off; monitor_interval is in seconds.

    Raises ValueError.
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
    """Go: containerLogManager"""

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
        # Containers to look at: never more than one round's, since a worker takes them at its own pace.
        self._queue: golang.Channel[str] = golang.Channel()
        # Guards _busy: a container whose logs are being worked on, by rotation or by clean.
        self._lock = threading.Lock()
        self._busy: dict[str, golang.Channel[None]] = {}

    def start(self, ctx: golang.Context) -> None:
        """See ContainerLogManager."""
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
        """See ContainerLogManager."""
        status = self._runtime_service.container_status(ctx, container_id, False).status
        self._acquire(container_id)
        try:
            self._remove_logs(container_id, status.log_path)
        finally:
            self._release(container_id)

    def _remove_logs(self, container_id: str, log_path: str) -> None:
        if not os.path.isabs(log_path):
            # DIVERGES (fault of Go): of a container for which the runtime names no log file, nothing is removed.
            # Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).Clean: removes what matches `*`, the
            # files and links in the kubelet's working directory.
            # Why: that is often the root directory, where /bin is a link; a container made by hand may have no log.
            # Test: container_log_manager_test.py:test_clean_removes_nothing_for_a_container_without_a_log
            klog.v(4).info_s("Container has no log of its own to remove", containerID=container_id, path=log_path)
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
        """None if the container's logs are the caller's now; else what is closed when somebody else is done."""
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
            # The next round looks at this container's log again.
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
        """Hands all running containers to the workers. Raises crierror.RemoteError, golang.ContextError."""
        klog.v(4).info_s("Starting container log rotation sequence")
        containers = self._runtime_service.list_containers(ctx, runtimeapi.ContainerFilter())
        for container in containers:
            # Who does not run writes nothing more.
            if container.state == runtimeapi.CONTAINER_RUNNING:
                klog.v(4).info_s(
                    "Adding new entry to the queue for processing",
                    id=container.id,
                    name=container.metadata.name,
                    labels=container.labels,
                )
                self._queue.send(container.id, ctx)

    def process_container(self, ctx: golang.Context, container_id: str, worker: int) -> None:
        """Rotates one container's log if it has grown too large; failures are logged."""
        who = {"worker": worker, "containerID": container_id}
        if self._try_acquire(container_id) is not None:
            # To compress a log may take longer than a round: no other worker waits for that.
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
            # A kubelet that died between moving the log and telling the runtime leaves it so.
            self._runtime_service.reopen_container_log(ctx, container_id)
            return self._os.stat(path).st_size

    def _rotate_log(self, ctx: golang.Context, container_id: str, log: str) -> None:
        logs = self._cleanup_unused_logs(glob.glob(f"{glob.escape(log)}.*"))
        for rotated in self._remove_excess_logs(logs):
            if not rotated.endswith(_COMPRESS_SUFFIX):
                self._compress_log(rotated)
        self._rotate_latest_log(ctx, container_id, log)

    def _cleanup_unused_logs(self, logs: Sequence[str]) -> list[str]:
        """Removes what an interrupted rotation left; returns the rest."""
        inuse, unused = _filter_unused_logs(logs)
        for log in unused:
            self._os.remove(log)
        return inuse

    def _remove_excess_logs(self, logs: Sequence[str]) -> list[str]:
        """Removes the oldest: with the log, and the one it is about to become, there are max_files."""
        ordered = sorted(logs)
        excess = max(len(ordered) - max(self._policy.max_files - 2, 0), 0)
        for log in ordered[:excess]:
            self._os.remove(log)
        return ordered[excess:]

    def _compress_log(self, log: str) -> None:
        """Compresses through a temporary file, so that a reader finds the old file or the whole new one.

        DIVERGES (safer): the compressed log is on the disk before the one that was compressed is removed.
        Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).compressLog: does not sync the new file.
        Why: a crash of the machine can leave an empty compressed log and nothing else.
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
        """Moves the log away uncompressed: the container and log collectors may still be at it."""
        # Local time, as in Go.
        timestamp = self._clock.now().astimezone().strftime(_TIMESTAMP_FORMAT)
        rotated = f"{log}.{timestamp}"
        if os.path.lexists(rotated) or os.path.lexists(rotated + _COMPRESS_SUFFIX):
            # DIVERGES (fault of Go): a log is not rotated in a second in whose name there is a rotated log already.
            # Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).rotateLatestLog: replaces the older
            # log, or the next rotation removes the new one, because a compressed log has its name.
            # Why: names repeat, and lines are lost, when the clock is set back or summer time ends.
            # Test: container_log_manager_test.py:test_rotated_log_of_the_same_second_is_kept
            klog.v(4).info_s("Log of this second was rotated before", path=rotated, containerID=container_id)
            return
        self._os.rename(log, rotated)
        try:
            self._runtime_service.reopen_container_log(ctx, container_id)
        except crierror.RemoteError:
            self._move_back(container_id, rotated, log)
            raise

    def _move_back(self, container_id: str, rotated: str, log: str) -> None:
        """The runtime still writes to the file: give it its name back, for the next round.

        DIVERGES (fault of Go): when the runtime has opened a new log in spite of its error, both logs stay.
        Go: pkg/kubelet/logs/container_log_manager.go, (*containerLogManager).rotateLatestLog: the old one replaces it.
        Why: an answer can come too late; what the container writes from then on would be lost.
        Test: container_log_manager_test.py:test_log_that_the_runtime_has_reopened_is_kept_when_its_answer_is_lost
        """
        try:
            os.link(rotated, log)
            self._os.remove(rotated)
        except FileExistsError:
            klog.v(4).info_s("The runtime has reopened the log all the same", path=log, containerID=container_id)
        except OSError as err:
            klog.error_s(err, "Failed to rename rotated log", rotatedLog=rotated, newLog=log, containerID=container_id)


def _filter_unused_logs(logs: Sequence[str]) -> tuple[list[str], list[str]]:
    """(in use, left over)"""
    known = set(logs)
    inuse = [log for log in logs if _is_in_use(log, known)]
    return inuse, [log for log in logs if log not in inuse]


def _is_in_use(log: str, logs: set[str]) -> bool:
    if log.endswith(_TMP_SUFFIX):
        return False
    # What was compressed already is only waiting to be removed.
    return log.endswith(_COMPRESS_SUFFIX) or log + _COMPRESS_SUFFIX not in logs
