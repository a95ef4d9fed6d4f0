"""Answer queries for logs of the node: of services from the journal, or of files below /var/log.

Go: pkg/kubelet/kubelet_server_journal.go, kubelet_server_journal_linux.go
"""

from __future__ import annotations

import gzip
import os
import re
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Protocol

from pkg import golang, klog
from pkg.apimachinery.util import errors as utilerrors
from pkg.apimachinery.util import validation as utilvalidation
from pkg.apimachinery.util.validation import field as fieldpath
from pkg.golang import http
from pkg.util import securejoin

NODE_LOG_DIR = "/var/log/"

_MAX_TAIL_LINES = 100_000
_MAX_SERVICE_LENGTH = 256
_MAX_SERVICES = 4
# Go's parser limits a pattern by itself; Python's takes very long for a very long pattern.
_MAX_PATTERN_LENGTH = 4096
# Python does not understand these parts of a pattern, which Go and the journal do: character classes, quotes, and
# flags in the middle.
_NOT_PYTHON = re.compile(
    r"\\\\|(\\Q.*?(?:\\E|$)|\\[pP](?:\{\^?\w+\}|[A-Z])|\\[zC]|\\x\{[0-9A-Fa-f]{1,6}\}|\\[uU][0-9A-Fa-f]{4,8}|\\N(?:\{[^}]{0,100}\})?|\[:\^?[a-z]+:\]|\(\?[imsU-]+\))"
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_FLAGS = re.compile(r"\(\?[imsU-]+:")
_NAMED_GROUP = re.compile(r"\(\?<(?=\w)")
_UNSAFE_IN_SERVICE_NAME = re.compile(r"[^a-zA-Z\-_.:0-9@]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_JOURNALCTL = "journalctl"
# All commands of a query together may take this long, in seconds.
_TIMEOUT = 30.0
_BLOCK_SIZE = 64 * 1024
_GZIP_BEST_SPEED = 1


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


@dataclass(slots=True)
class NodeLogQuery:
    """Describe a query; None and "" stand for unset options.

    Go: nodeLogQuery, options
    """

    # A query has either names of services or paths below /var/log.
    services: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    since_time: datetime | None = None
    until_time: datetime | None = None
    # The query returns this many lines from the end.
    tail_lines: int | None = None
    # `boot` is 0 for the current boot, -1 for the one before, and so on.
    boot: int | None = None
    # Lines must match this regular expression.
    pattern: str = ""

    def is_empty(self) -> bool:
        return not self.services and not self.files and not self.has_options()

    def has_options(self) -> bool:
        return any(getattr(self, each.name) not in (None, "") for each in fields(self) if each.name not in _SOURCES)

    def validate(self) -> fieldpath.ErrorList:
        """Return all errors in the query."""
        errs = validate_services(self.services)
        errs.extend(self._validate_sources())
        if self.since_time is not None and self.until_time is not None and self.since_time > self.until_time:
            until = self.until_time.isoformat()
            errs.append(fieldpath.invalid(fieldpath.Path("untilTime"), until, "must be after `sinceTime`"))
        if self.boot is not None and self.boot > 0:
            errs.append(fieldpath.invalid(fieldpath.Path("boot"), self.boot, "must be less than 1"))
        if self.tail_lines is not None:
            for message in utilvalidation.is_in_range(self.tail_lines, 0, _MAX_TAIL_LINES):
                errs.append(fieldpath.invalid(fieldpath.Path("tailLines"), self.tail_lines, message))
        errs.extend(_validate_pattern(self.pattern))
        return errs

    def _validate_sources(self) -> Iterator[fieldpath.Error]:
        query = fieldpath.Path("query")
        if not self.files and not self.services:
            yield fieldpath.required(query, "cannot be empty with options")
        elif self.files and self.services:
            both = f"{_go_list(self.files)}, {_go_list(self.services)}"
            yield fieldpath.invalid(query, both, "cannot specify a file and service")
        elif len(self.files) > 1:
            yield fieldpath.invalid(query, self.files, "cannot specify more than one file")
        elif self.files and self.has_options():
            yield fieldpath.invalid(query, self.files, "cannot specify file with options")
        elif self.files:
            try:
                os.close(securejoin.open_in_root(NODE_LOG_DIR, self.files[0].replace("\\", "/")))
            except OSError as err:
                yield fieldpath.invalid(query, self.files, os.strerror(err.errno or 0).lower())

    def copy(self, ctx: golang.Context, w: _Writer) -> None:
        """Write the requested logs, or a line that says why there are none.

        Raise golang.ContextError, or the error of `w`.
        """
        limited, cancel = golang.with_timeout(ctx, _TIMEOUT)
        try:
            self._copy_for_boot(limited, w)
        except golang.DeadlineExceeded as err:
            _write_line(w, f"context error: {err}")
        finally:
            cancel()

    def _copy_for_boot(self, ctx: golang.Context, w: _Writer) -> None:
        native_loggers, file_loggers = self._split_native_vs_file_loggers(ctx)
        if native_loggers:
            self._copy_service_logs(ctx, w, native_loggers)
        if file_loggers and self.has_options():
            names = _go_list(file_loggers)
            _write_line(
                w, f"options present and query resolved to log files for {names}\ntry without specifying options"
            )
            return
        for service in file_loggers:
            heuristics_copy_file_logs(ctx, w, NODE_LOG_DIR, service)

    def _split_native_vs_file_loggers(self, ctx: golang.Context) -> tuple[list[str], list[str]]:
        """Return the services that write to the journal, and those that may have a file."""
        units = journal_units(ctx)
        native = [service for service in self.services if f"{service}.service".encode() in units]
        return native, [service for service in self.services if service not in native]

    def _copy_service_logs(self, ctx: golang.Context, w: _Writer, services: Sequence[str]) -> None:
        command = get_logging_cmd(self, services)
        try:
            # journalctl also fails if no entry matches; its output already contains the explanation.
            with _started(ctx, command) as process:
                for block in _output(ctx, process):
                    w.write(block)
        except FileNotFoundError as err:
            klog.error_s(err, "Failed to read the journal", command=command)
            if not self.boot:
                _write_line(w, "error: journal output not available")


_SOURCES = ("services", "files")


def serve_journal(w: http.ResponseWriter, r: http.Request, query: NodeLogQuery) -> None:
    """Send the logs of services, compressed if the client accepts that.

    Go: journalServer.ServeHTTP
    """
    w.headers.set("Content-Type", "text/plain;charset=UTF-8")
    if r.headers.get("Accept-Encoding") != "gzip":
        query.copy(r.ctx, w)
        return
    w.headers.set("Content-Encoding", "gzip")
    # GzipFile only calls `w.write`, and only once a block is full.
    with gzip.GzipFile(fileobj=w, mode="wb", compresslevel=_GZIP_BEST_SPEED) as compressed:
        query.copy(r.ctx, compressed)


def new_node_log_query(values: Mapping[str, Sequence[str]]) -> NodeLogQuery | None:
    """Parse the query string. Return None if it contains nothing about logs.

    Raise errors.Aggregate with all options that cannot be parsed.
    """
    errs = fieldpath.ErrorList()
    query = NodeLogQuery()
    queries = values.get("query", [])
    for each in queries:
        # A name with a slash is a file. A file without one, such as foo.log, is found in the same way as the log of a
        # service.
        if "/" in each or "\\" in each:
            query.files.append(each)
        elif each.strip():
            query.services.append(each)
    if "query" in values and not query.files and not query.services:
        errs.append(fieldpath.invalid(fieldpath.Path("query"), list(queries), "query cannot be empty"))
    query.since_time = _time(values, "sinceTime", errs)
    query.until_time = _time(values, "untilTime", errs)
    query.boot = _integer(values, "boot", errs)
    query.tail_lines = _integer(values, "tailLines", errs)
    query.pattern = _first(values, "pattern")
    if errs:
        raise utilerrors.Aggregate(errs)
    return None if query.is_empty() else query


def _first(values: Mapping[str, Sequence[str]], name: str) -> str:
    found = values.get(name)
    return found[0] if found else ""


def _time(values: Mapping[str, Sequence[str]], name: str, errs: fieldpath.ErrorList) -> datetime | None:
    text = _first(values, name)
    try:
        return golang.parse_rfc3339(text) if text else None
    except ValueError:
        errs.append(fieldpath.invalid(fieldpath.Path(name), text, "invalid time format"))
        return None


def _integer(values: Mapping[str, Sequence[str]], name: str, errs: fieldpath.ErrorList) -> int | None:
    text = _first(values, name)
    if not text:
        return None
    if _INTEGER.fullmatch(text) is None:
        message = f"strconv.Atoi: parsing {klog.quote(text)}: invalid syntax"
        errs.append(fieldpath.invalid(fieldpath.Path(name), text, message))
        return None
    return int(text)


def validate_services(services: Sequence[str]) -> fieldpath.ErrorList:
    """Return the errors in names that become arguments of a command."""
    errs = fieldpath.ErrorList()
    for service in services:
        try:
            _safe_service_name(service)
        except ValueError as err:
            errs.append(fieldpath.invalid(fieldpath.Path("query"), service, str(err)))
    if len(services) > _MAX_SERVICES:
        errs.append(fieldpath.too_many(fieldpath.Path("query"), len(services), _MAX_SERVICES))
    return errs


def _safe_service_name(service: str) -> None:
    if len(service.encode()) > _MAX_SERVICE_LENGTH:
        raise ValueError(f"length must be less than {_MAX_SERVICE_LENGTH}")
    if _UNSAFE_IN_SERVICE_NAME.search(service):
        raise ValueError("input contains unsupported characters")


def _validate_pattern(pattern: str) -> Iterator[fieldpath.Error]:
    path = fieldpath.Path("pattern")
    if len(pattern.encode()) > _MAX_PATTERN_LENGTH:
        yield fieldpath.too_long(path, pattern, _MAX_PATTERN_LENGTH)
        return
    try:
        # Compiling the pattern finds missing brackets and incomplete patterns; the journal judges the rest.
        re.compile(_for_python(pattern))
    except (re.error, RecursionError, OverflowError) as err:
        yield fieldpath.invalid(path, pattern, str(err))


def _for_python(pattern: str) -> str:
    """Return the pattern with a plain character in place of each part that Python does not know."""
    replaced = _NOT_PYTHON.sub(lambda match: "x" if match[1] else match[0], pattern)
    # Python expands ranges with non-ASCII characters, and any range if case is ignored, character by character: a short
    # pattern could take seconds.
    replaced = _NOT_ASCII.sub("\x7f", _FLAGS.sub("(?:", replaced))
    return _NAMED_GROUP.sub("(?P<", replaced)


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _write_line(w: _Writer, text: str) -> None:
    w.write(f"\n{text}\n".encode(errors="replace"))


# ---- Journal ----


def get_logging_cmd(query: NodeLogQuery, services: Sequence[str]) -> list[str]:
    """Return the command that prints the journal's entries of the services."""
    command = [_JOURNALCTL, "--utc", "--no-pager", "--output=short-precise"]
    if query.since_time is not None:
        command.append(f"--since={_journal_time(query.since_time)}")
    if query.until_time is not None:
        # DIVERGES (fault of Go): entries end at the client's untilTime.
        # Go: pkg/kubelet/kubelet_server_journal_linux.go, getLoggingCmd: they end at sinceTime. Without a sinceTime the
        # function panics.
        # Why: the client gets no entries, or no response.
        # Test: kubelet_server_journal_test.py:test_get_logging_cmd
        command.append(f"--until={_journal_time(query.until_time)}")
    if query.tail_lines is not None:
        command += ["--pager-end", f"--lines={query.tail_lines}"]
    command += [f"--unit={service}" for service in services if service]
    if query.pattern:
        command.append(f"--grep={query.pattern}")
    if query.boot is not None:
        command += ["--boot", str(query.boot)]
    return command


def _journal_time(moment: datetime) -> str:
    """Format a time for journalctl.

    DIVERGES (fault of Go): the time is in UTC and names that zone.
    Go: pkg/kubelet/kubelet_server_journal_linux.go, getLoggingCmd: the time does not name its zone.
    Why: journalctl assumes the node's zone for such a time, and shows other hours than the client requested.
    Test: kubelet_server_journal_test.py:test_get_logging_cmd
    """
    return moment.astimezone(UTC).isoformat(sep=" ", timespec="seconds").removesuffix("+00:00") + " UTC"


def journal_units(ctx: golang.Context) -> bytes:
    """Return the names of all units in the journal, one per line; empty without a journal.

    Go: checkForNativeLogger
    """
    # For a unit that does not exist, journalctl prints nothing and reports no error.
    try:
        with _started(ctx, [_JOURNALCTL, "--field", "_SYSTEMD_UNIT"]) as process:
            return b"".join(_output(ctx, process))
    except FileNotFoundError:
        return b""


def _output(ctx: golang.Context, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the process's output as it arrives. Raise golang.ContextError when ctx ends."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        remaining = ctx.remaining()
        ready = poll.poll(None if remaining is None else remaining * 1000)
        data = os.read(fd, _BLOCK_SIZE) if ready else b""
        ctx.raise_if_done()
        if data:
            yield data
        elif ready:
            return


@contextmanager
def _started(ctx: golang.Context, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and kill it when ctx ends and at the end of the block.

    Raise FileNotFoundError if the program does not exist.
    """
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # The kill ends the output, which wakes its reader.
    stop = golang.after_func(ctx, process.kill)
    try:
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
    finally:
        stop()


# ---- Files ----


def heuristics_copy_file_logs(ctx: golang.Context, w: _Writer, log_dir: str, service: str) -> None:
    """Write the first existing file of log_dir/SERVICE, SERVICE.log and SERVICE/SERVICE.log.

    Raise golang.ContextError, or the error of `w`.
    """
    for name in (service, f"{service}.log", f"{service}/{service}.log"):
        try:
            fd = securejoin.open_in_root(log_dir, name)
        except FileNotFoundError:
            continue
        except OSError as err:
            _write_line(w, f"error getting log for {service}: {os.strerror(err.errno or 0).lower()}")
            return
        try:
            if _copy_file(ctx, w, fd):
                return
        finally:
            os.close(fd)
    _write_line(w, f"log not found for {service}")


def _copy_file(ctx: golang.Context, w: _Writer, fd: int) -> bool:
    """Copy a file. Return False for a directory, which may contain the log."""
    try:
        data = os.read(fd, _BLOCK_SIZE)
    except IsADirectoryError:
        return False
    while data:
        w.write(data)
        ctx.raise_if_done()
        data = os.read(fd, _BLOCK_SIZE)
    return True
