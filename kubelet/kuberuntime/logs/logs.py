"""Read, filter and follow one container log in the format of the CRI or of Docker.

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
# A message quotes this many bytes of an invalid line.
_QUOTED = 1024
# These patterns match complete lines with the time in UTC, the usual form. Parsing a whole block of such lines at once
# is several times as fast as parsing line by line.
_USUAL_DATE = rb"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_USUAL_TIME = _USUAL_DATE + rb"(?:T[01]\d|T2[0-3]):[0-5]\d:[0-5]\d\.\d{1,9}"
_USUAL_TEXTS = re.compile(rb"^" + _USUAL_TIME + rb"Z std(?:out|err) F (.*\n)", re.MULTILINE)
_USUAL_LINES = re.compile(rb"^(" + _USUAL_TIME + rb")Z (stdout|stderr) F (.*\n)", re.MULTILINE)
_TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 10**9  # nanoseconds
# One turn parses this many single lines, which takes half a millisecond. A block may have 1600 lines, and hundreds of
# clients may have a block each.
LINES_IN_TURN = 128
_TIME_LENGTH = len("2006-01-02T15:04:05.000000000")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Select what to read of a log; None means no limit. Lines older than `since` are omitted.

    `rotated` includes the files that were rotated before.
    """

    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    follow: bool = False
    timestamp: bool = False
    rotated: bool = False


@dataclass(frozen=True, slots=True)
class _LogMessage:
    """Hold a parsed line: nanoseconds since 1970, the printed time, the stream, and the text with its newline."""

    nanoseconds: int
    timestamp: bytes
    stream: bytes
    log: bytes


_ParseFunc = Callable[[bytes], _LogMessage]


def _parse_timestamp(text: bytes) -> tuple[int, bytes]:
    """Return the nanoseconds since 1970, and the time with nine decimal places. Raise ValueError."""
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
    """Parse a line such as "2026-01-02T03:04:05.678901234Z stdout F text". Raise ValueError."""
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        raise ValueError("timestamp, stream type or log tag is not found")
    timestamp, stream, tags, log = parts
    nanoseconds, printed = _parse_timestamp(timestamp)
    if stream not in _STREAMS:
        raise ValueError(f"unexpected stream type {stream!r}")
    # Later versions of the format may add tags after a colon.
    if tags.split(b":", 1)[0] == _TAG_PARTIAL:
        log = log.removesuffix(b"\n")
    return _LogMessage(nanoseconds, printed, stream, log)


class _JSONLog(msgspec.Struct):
    time: str
    log: str = ""
    stream: str = ""


def parse_docker_json_log(line: bytes) -> _LogMessage:
    r"""Parse a line such as {"log":"text\n","stream":"stdout","time":"2026-01-02T03:04:05.67890123Z"}.

    Raise ValueError.
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
    """Signal that the requested number of bytes has been written."""


class _LogWriter:
    """Write lines to the output of their stream, according to the options.

    Go: logWriter
    """

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
        # These lists collect the pieces to write to each stream. Both are the same list if both streams have the same
        # output.
        out: list[bytes] = []
        err: list[bytes] = out if stderr is stdout else []
        self._outputs = [(stdout, out)] if stderr is stdout else [(stdout, out), (stderr, err)]
        # A stream whose output is None is not requested, so its bytes do not count.
        self._pieces = {b"stdout": None if stdout is None else out, b"stderr": None if stderr is None else err}
        # If `_all_alike` is True, only the text of a usual line matters.
        self._all_alike = not opts.timestamp and opts.since is None and stdout is stderr and stdout is not None
        self._since_text = b""
        if opts.since is not None:
            # The text has no trailing zeros, so that a comparison with the text of another time has the same result as
            # a comparison of the times.
            self._since_text = opts.since.astimezone(UTC).isoformat(timespec="microseconds")[:26].rstrip("0").encode()

    def write(self, data: bytes) -> None:
        """Write `data`, which is one or more lines.

        Raise ValueError if the format is unknown, the errors of the output, and _MaximumWriteError after the last byte.
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
        """Add a block of usual lines at once, with the same result as _add_line.

        Report False, and add nothing, if the block has other lines or exceeds the limit on bytes.
        """
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
    """Copy the log to the two streams; with `follow`, continue until the container has exited or ctx is done.

    Only `follow` needs container_id. Raise OSError, ValueError if the log has no known format, golang.ContextError, and
    the errors of the streams.

    DIVERGES (preference: --read-rotated-logs): the kubelet also reads rotated files as long as they exist.
    Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: the Go kubelet reads only the newest file.
    Why: readers of a container that writes a lot would lose its last minutes with each rotation.
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
    """Open the log. Raise OSError with a message for the client that requested the log."""
    since = opts.since.timestamp() if opts.since is not None else 0.0
    try:
        return LogFiles(path, opts.tail_lines, since, opts.rotated)
    except FileNotFoundError as err:
        why = f"lstat {path}: no such file or directory"
        raise FileNotFoundError(f'failed to try resolving symlinks in path "{path}": {why}') from err
    except OSError as err:
        raise OSError(f'failed to open log file "{path}": {os.strerror(err.errno or 0).lower()}') from err


def _blocks(ctx: golang.Context, files: LogFiles, opts: LogOptions) -> Iterator[bytes]:
    """Yield the existing lines; with tail_lines, yield no more lines than there were at the start."""
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
    """Yield existing and new lines until the container has exited and all its output has been read."""
    running = True
    while True:
        while data := files.read(follow=True, ended=not running):
            yield data
            ctx.raise_if_done()
        if not running:
            return
        running = follower.wait(ctx)
