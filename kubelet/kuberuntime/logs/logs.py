"""Reads, filters and follows one container log in the CRI's format, or Docker's.

Rotated files are not read: a follower goes on in the new file when the log is rotated.

Go: k8s.io/cri-client/pkg/logs/logs.go
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import grpc
import msgspec
from cri_api.v1 import api_pb2 as runtimeapi
from watchdog import events as fsevents
from watchdog.observers import Observer

from kubelet import container as kubecontainer
from kubelet.cri import apis as internalapi
from kubelet.cri import errors as crierror
from kubelet.kuberuntime.logs.tail import find_tail_line_start_index
from pkg import golang, klog
from pkg.apimachinery.runtime import codec

# How often a followed log is looked at when nothing tells of a change, in seconds.
_LOG_FORCE_CHECK_PERIOD = 1.0

_STREAMS = (b"stdout", b"stderr")
_TAG_PARTIAL = b"P"
_TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to read of a log; None means no limit. since is exclusive of older lines."""

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    follow: bool = False
    timestamp: bool = False


@dataclass(frozen=True, slots=True)
class _LogMessage:
    """A parsed line: nanoseconds since 1970, the time as printed, the stream, the text with its newline."""

    nanoseconds: int
    timestamp: bytes
    stream: bytes
    log: bytes


_ParseFunc = Callable[[bytes], _LogMessage]


def _parse_timestamp(text: bytes) -> tuple[int, bytes]:
    """(nanoseconds since 1970, the time with all nine digits). Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"unexpected timestamp format: {text!r}")
    fraction = (match[2] or b"")[:9].ljust(9, b"0")
    zone = b"+00:00" if match[3] == b"Z" else match[3]
    moment = datetime.fromisoformat((match[1] + zone).decode())
    nanoseconds = round((moment - _EPOCH).total_seconds()) * 10**9 + int(fraction)
    return nanoseconds, match[1] + b"." + fraction + match[3]


def parse_cri_log(line: bytes) -> _LogMessage:
    """A line such as "2026-01-02T03:04:05.678901234Z stdout F text". Raises ValueError."""
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        raise ValueError("timestamp, stream type or log tag is not found")
    timestamp, stream, tags, log = parts
    nanoseconds, printed = _parse_timestamp(timestamp)
    if stream not in _STREAMS:
        raise ValueError(f"unexpected stream type {stream!r}")
    # What follows a colon is left to later versions of the format.
    if tags.split(b":", 1)[0] == _TAG_PARTIAL:
        log = log.removesuffix(b"\n")
    return _LogMessage(nanoseconds, printed, stream, log)


class _JSONLog(msgspec.Struct):
    time: str
    log: str = ""
    stream: str = ""


def parse_docker_json_log(line: bytes) -> _LogMessage:
    """A line such as {"log":"text\\n","stream":"stdout","time":"2026-01-02T03:04:05.67890123Z"}.

    Raises ValueError.
    """
    try:
        entry = codec.json_decoder(_JSONLog).decode(line)
    except msgspec.MsgspecError as err:
        raise ValueError(f"failed with {err} to unmarshal log {line!r}") from err
    nanoseconds, printed = _parse_timestamp(entry.time.encode())
    return _LogMessage(nanoseconds, printed, entry.stream.encode(), entry.log.encode())


def _get_parse_func(line: bytes) -> _ParseFunc:
    for parse in (parse_cri_log, parse_docker_json_log):
        try:
            parse(line)
        except ValueError:
            continue
        return parse
    raise ValueError(f"failed to get parse function: unsupported log format: {line!r}")


class _MaximumWriteError(Exception):
    """All bytes that were asked for have been written."""


class _LogWriter:
    """Writes messages to where their stream goes, as the options say. Go: logWriter"""

    def __init__(
        self,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
        opts: LogOptions,
    ) -> None:
        self._streams = {b"stdout": stdout, b"stderr": stderr}
        self._timestamp = opts.timestamp
        self._remain = opts.limit_bytes
        self._since = 0
        if opts.since is not None:
            self._since = round((opts.since - _EPOCH).total_seconds() * 10**6) * 1000

    def write(self, msg: _LogMessage, add_prefix: bool) -> None:
        """Raises _MaximumWriteError after the last byte, and what the stream raises."""
        if msg.nanoseconds < self._since:
            return
        line = msg.log
        if self._timestamp and add_prefix:
            line = msg.timestamp + b" " + line
        if self._remain is not None:
            line = line[: self._remain]
        if msg.stream not in self._streams:
            raise ValueError(f"unexpected stream type {msg.stream!r}")
        stream = self._streams[msg.stream]
        if stream is None:
            # Nobody asked for this stream: its bytes do not count.
            return
        stream.write(line)
        if self._remain is not None:
            self._remain -= len(line)
            if self._remain <= 0:
                raise _MaximumWriteError


def read_logs(
    ctx: golang.Context,
    path: str,
    container_id: str,
    opts: LogOptions,
    runtime_service: internalapi.RuntimeService,
    stdout: kubecontainer.BinaryWriter | None,
    stderr: kubecontainer.BinaryWriter | None,
) -> None:
    """Copies the log to the two streams; with follow, until the container has ended or ctx is done.

    container_id is needed for follow alone. Raises OSError, ValueError for a log in no known format,
    golang.ContextError, and what the streams raise.
    """
    with _LogReader(ctx, os.path.realpath(path), container_id, opts, runtime_service) as reader:
        writer = _LogWriter(stdout, stderr, opts)
        parse: _ParseFunc | None = None
        is_new_line = True
        while (line := reader.next_line()) is not None:
            parse = parse or _get_parse_func(line)
            try:
                msg = parse(line)
            except ValueError as err:
                klog.error_s(err, "Failed when parsing line in log file", path=path, line=line)
                continue
            try:
                writer.write(msg, is_new_line)
            except _MaximumWriteError:
                klog.v(2).info_s("Finished parsing log file, hit bytes limit", path=path, limit=opts.limit_bytes)
                return
            reader.line_written()
            is_new_line = not msg.log or msg.log.endswith(b"\n")
    klog.v(2).info_s("Finished parsing log file", path=path)


class _LogReader:
    """Hands out the lines of a log file, and waits for more when it follows."""

    def __init__(
        self,
        ctx: golang.Context,
        path: str,
        container_id: str,
        opts: LogOptions,
        runtime_service: internalapi.RuntimeService,
    ) -> None:
        self._ctx = ctx
        self._path = path
        self._container_id = container_id
        self._follow = opts.follow
        self._runtime_service = runtime_service
        # With tail and without follow, no more lines than there were at the start.
        self._lines_left = opts.tail_lines if not opts.follow else None
        self._tail = -1 if opts.tail_lines is None else opts.tail_lines
        self._stack = ExitStack()
        self._file: BinaryIO
        self._watcher: _Watcher | None = None
        self._running = True

    def __enter__(self) -> _LogReader:
        self._file = Path(self._path).open("rb")
        try:
            self._file.seek(find_tail_line_start_index(self._file, self._tail))
        except OSError:
            self._file.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()
        self._file.close()

    def line_written(self) -> None:
        if self._lines_left is not None:
            self._lines_left -= 1

    def next_line(self) -> bytes | None:
        """The next line, or None at the end."""
        while self._lines_left != 0:
            line = self._file.readline()
            if line.endswith(b"\n"):
                return line
            if not self._follow:
                return self._last_line(line)
            if not self._running:
                # The container has ended, and all that it wrote was read.
                return None
            # An incomplete line is read again when it is whole.
            self._file.seek(-len(line), os.SEEK_CUR)
            self._wait_logs()
        return None

    def _last_line(self, line: bytes) -> bytes | None:
        self._lines_left = 1 if line else 0
        if not line:
            return None
        klog.info_s("Incomplete line in log file", path=self._path, line=line)
        return line

    def _wait_logs(self) -> None:
        if self._watcher is None:
            # Read once more afterwards: what was written before the watch began would go unnoticed.
            self._watcher = _Watcher(self._path)
            self._stack.callback(self._watcher.close)
            return
        if not self._is_container_running():
            self._running = False
            return
        chosen = golang.select(self._ctx.done(), self._watcher.changes, timeout=_LOG_FORCE_CHECK_PERIOD)
        if chosen.index == 0:
            raise self._ctx.err() or golang.Canceled()
        if chosen.index == 1 and chosen.value == _CREATED:
            self._reopen()

    def _reopen(self) -> None:
        try:
            new = Path(self._path).open("rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        self._file.close()
        self._file = new

    def _is_container_running(self) -> bool:
        try:
            response = self._runtime_service.container_status(self._ctx, self._container_id, False)
        except crierror.RemoteError as err:
            if err.code is grpc.StatusCode.UNAVAILABLE:
                # The runtime is away; the container need not be.
                return True
            raise
        return response.status.state == runtimeapi.CONTAINER_RUNNING


_CHANGED = "changed"
_CREATED = "created"


class _Watcher(fsevents.FileSystemEventHandler):
    """Tells of changes of one file; a creation is never lost, other changes are merged."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.changes: golang.Channel[str] = golang.Channel(16)
        self._observer = Observer()
        self._observer.name = f"log-watcher-{os.path.basename(os.path.dirname(path))}"
        self._observer.schedule(self, os.path.dirname(path))
        self._observer.start()

    def on_any_event(self, event: fsevents.FileSystemEvent) -> None:
        if event.event_type == fsevents.EVENT_TYPE_CREATED and event.src_path == self._path:
            self.changes.send(_CREATED)
        elif event.event_type != fsevents.EVENT_TYPE_OPENED and len(self.changes) == 0:
            self.changes.try_send(_CHANGED)

    def close(self) -> None:
        self._observer.unschedule_all()
        self._observer.stop()
        # A creation may still wait for room.
        while self.changes.try_recv()[2]:
            pass
        self._observer.join()
