"""Reads, filters and follows one container log in the CRI's format, or Docker's.

Go: k8s.io/cri-client/pkg/logs/logs.go
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kubelet import container as kubecontainer
from kubelet.cri import apis as internalapi
from kubelet.kuberuntime.logs.followers import Follower
from kubelet.kuberuntime.logs.log_files import LogFiles
from kubelet.kuberuntime.logs.turns import TURNS
from pkg import golang, klog
from pkg.apimachinery.runtime import codec
from pkg.golang.turn import Turn

_STREAMS = (b"stdout", b"stderr")
_TAG_PARTIAL = b"P"
# How much of a line that makes no sense a message quotes, in bytes.
_QUOTED = 1024
# Lines of the usual form: whole ones, with the time in UTC. A block of such is taken apart at once, which is several
# times as fast as line by line.
_USUAL_DATE = rb"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_USUAL_TIME = _USUAL_DATE + rb"(?:T[01]\d|T2[0-3]):[0-5]\d:[0-5]\d\.\d{1,9}"
_USUAL_TEXTS = re.compile(rb"^" + _USUAL_TIME + rb"Z std(?:out|err) F (.*\n)", re.MULTILINE)
_USUAL_LINES = re.compile(rb"^(" + _USUAL_TIME + rb")Z (stdout|stderr) F (.*\n)", re.MULTILINE)
_TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 10**9  # nanoseconds
# Lines that are looked at one by one in one turn: half a millisecond. A block may have 1600, and hundreds of clients
# one block each.
LINES_IN_TURN = 128
_TIME_LENGTH = len("2006-01-02T15:04:05.000000000")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to read of a log; None means no limit. since is exclusive of older lines.

    rotated: also what was rotated away before.
    """

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    follow: bool = False
    timestamp: bool = False
    rotated: bool = False


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
    nanoseconds = round((moment - _EPOCH).total_seconds()) * _SECOND + int(fraction)
    printed_zone = b"Z" if zone == b"+00:00" else zone
    return nanoseconds, match[1] + b"." + fraction + printed_zone


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
        raise ValueError(f"failed with {err} to unmarshal log {line[:_QUOTED]!r}") from err
    nanoseconds, printed = _parse_timestamp(entry.time.encode())
    return _LogMessage(nanoseconds, printed, entry.stream.encode(), entry.log.encode())


def _get_parse_func(line: bytes) -> _ParseFunc:
    for parse in (parse_cri_log, parse_docker_json_log):
        try:
            parse(line)
        except ValueError:
            continue
        return parse
    text = klog.quote(line[:_QUOTED].decode(errors="replace"))
    raise ValueError(f"failed to get parse function: unsupported log format: {text}")


class _MaximumWriteError(Exception):
    """All bytes that were asked for have been written."""


class _LogWriter:
    """Writes lines to where their stream goes, as the options say. Go: logWriter"""

    def __init__(
        self,
        path: str,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
        opts: LogOptions,
    ) -> None:
        self._path = path
        self._timestamp = opts.timestamp
        self._remain = opts.limit_bytes
        self._since = 0
        if opts.since is not None:
            self._since = round((opts.since - _EPOCH).total_seconds() * 10**6) * 1000
        self._parse: _ParseFunc | None = None
        self._is_new_line = True
        self._turn = Turn(TURNS)
        # What is to be written to a stream, in pieces; the same list if both go to the same place.
        out: list[bytes] = []
        err: list[bytes] = out if stderr is stdout else []
        self._outputs = [(stdout, out)] if stderr is stdout else [(stdout, out), (stderr, err)]
        # Nobody asked for a stream that is None here: its bytes do not count.
        self._pieces = {b"stdout": None if stdout is None else out, b"stderr": None if stderr is None else err}
        # Whether of a usual line nothing but the text matters.
        self._all_alike = not opts.timestamp and opts.since is None and stdout is stderr and stdout is not None
        self._since_text = b""
        if opts.since is not None:
            # Without final zeros, so that it compares as the times do.
            self._since_text = opts.since.astimezone(UTC).isoformat(timespec="microseconds")[:26].rstrip("0").encode()

    def write(self, data: bytes) -> None:
        """data is one or more lines. Raises ValueError for no known format, and what a stream raises.

        Raises _MaximumWriteError after the last byte.
        """
        if self._parse is None:
            self._parse = _get_parse_func(data[: data.find(b"\n") + 1] or data)
        try:
            with self._turn:
                self._add(data)
        finally:
            self._flush()

    def _add(self, data: bytes) -> None:
        if not self._add_usual_lines(data):
            for count, line in enumerate(io.BytesIO(data), 1):
                self._add_line(line)
                if count % LINES_IN_TURN == 0:
                    self._turn.pass_on()

    def _flush(self) -> None:
        for stream, pieces in self._outputs:
            if stream is not None and pieces:
                data = b"".join(pieces)
                pieces.clear()
                stream.write(data)

    def _add_usual_lines(self, data: bytes) -> bool:
        """The same as _add_line for each; does nothing and returns False if there are others, or too many bytes."""
        if self._parse is not parse_cri_log or not self._is_new_line or not data.endswith(b"\n"):
            return False
        if self._all_alike:
            return self._add_usual_texts(data)
        lines = _USUAL_LINES.findall(data) if self._remain is None else []
        if len(lines) != data.count(b"\n"):
            return False
        for time, stream, text in lines:
            if time >= self._since_text and (pieces := self._pieces[stream]) is not None:
                if self._timestamp:
                    pieces.append(time.ljust(_TIME_LENGTH, b"0") + b"Z ")
                pieces.append(text)
        return True

    def _add_usual_texts(self, data: bytes) -> bool:
        texts = _USUAL_TEXTS.findall(data)
        if len(texts) != data.count(b"\n"):
            return False
        if self._remain is not None:
            size = sum(map(len, texts))
            if size >= self._remain:
                return False
            self._remain -= size
        self._outputs[0][1].extend(texts)
        return True

    def _add_line(self, line: bytes) -> None:
        assert self._parse is not None
        try:
            msg = self._parse(line)
        except ValueError as err:
            klog.error_s(err, "Failed when parsing line in log file", path=self._path, line=line[:_QUOTED])
            return
        if msg.nanoseconds >= self._since:
            self._add_message(msg)
        self._is_new_line = not msg.log or msg.log.endswith(b"\n")

    def _add_message(self, msg: _LogMessage) -> None:
        text = msg.log
        if self._timestamp and self._is_new_line:
            text = msg.timestamp + b" " + text
        if self._remain is not None:
            text = text[: self._remain]
        if msg.stream not in self._pieces:
            raise ValueError(f"unexpected stream type {msg.stream!r}")
        pieces = self._pieces[msg.stream]
        if pieces is None:
            return
        pieces.append(text)
        if self._remain is not None:
            self._remain -= len(text)
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

    DIVERGES (preference: --read-rotated-logs): what was rotated away is read too, as long as it is there.
    Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: reads the newest file alone.
    Why: a container that writes much would lose the log of its last minutes with each rotation.
    Test: logs_test.py:test_what_was_rotated_away_is_read_by_who_wants_it
    """
    path = os.path.realpath(path)
    writer = _LogWriter(path, stdout, stderr, opts)
    with contextlib.ExitStack() as stack:
        files = stack.enter_context(_open(path, opts))
        blocks = _blocks(ctx, files, opts)
        if opts.follow:
            follower = stack.enter_context(Follower(path, container_id, runtime_service))
            blocks = _followed_blocks(ctx, files, follower)
        try:
            for data in blocks:
                writer.write(data)
        except _MaximumWriteError:
            klog.v(2).info_s("Finished parsing log file, hit bytes limit", path=path, limit=opts.limit_bytes)
            return
    klog.v(2).info_s("Finished parsing log file", path=path)


def _open(path: str, opts: LogOptions) -> LogFiles:
    """Raises OSError, in words for who asked for the log."""
    since = opts.since.timestamp() if opts.since is not None else 0.0
    try:
        return LogFiles(path, opts.tail_lines, since, opts.rotated)
    except FileNotFoundError as err:
        why = f"lstat {path}: no such file or directory"
        raise FileNotFoundError(f'failed to try resolving symlinks in path "{path}": {why}') from err
    except OSError as err:
        raise OSError(f'failed to open log file "{path}": {os.strerror(err.errno or 0).lower()}') from err


def _blocks(ctx: golang.Context, files: LogFiles, opts: LogOptions) -> Iterator[bytes]:
    """What is there. With tail, no more lines than there were at the start."""
    left = opts.tail_lines
    while left != 0 and (data := files.read(follow=False)):
        if left is not None:
            data = _first_lines(data, left)
            left -= data.count(b"\n")
        yield data
        ctx.raise_if_done()


def _first_lines(data: bytes, n: int) -> bytes:
    if data.count(b"\n") < n:
        return data
    return b"".join(itertools.islice(io.BytesIO(data), n))


def _followed_blocks(ctx: golang.Context, files: LogFiles, follower: Follower) -> Iterator[bytes]:
    """What is there and what comes, until the container has ended and all that it wrote was read."""
    running = True
    while True:
        while data := files.read(follow=True, ended=not running):
            yield data
            ctx.raise_if_done()
        if not running:
            return
        running = follower.wait(ctx)
