"""Log structured lines in the formats of the Go components: klog's text and component-base's JSON.

Go: k8s.io/klog/v2, k8s.io/component-base/logs/json

A disabled line costs one call and one comparison. Write `klog.v(4).info_s(…)`, and check `klog.v(4).enabled` first if
computing the values is expensive. All functions are thread-safe. Messages and keys are those of the Go lines, so that
two logs can be compared.
"""

from __future__ import annotations

import contextlib
import enum
import fnmatch
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Protocol, TextIO, TypeVar


class ObjectRef(str):
    """Represent an object as `namespace/name`, or as the name alone; JSON output splits it again."""

    __slots__ = ()


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> Any: ...


def kref(namespace: str, name: str) -> ObjectRef:
    """Return the reference to log for an object of which only the names are known."""
    return ObjectRef(f"{namespace}/{name}" if namespace else name)


def kobj(obj: _HasMetadata | None) -> ObjectRef:
    """Return the reference to log for an API object."""
    if obj is None:
        return ObjectRef("")
    return kref(obj.metadata.namespace or "", obj.metadata.name or "")


def kobjs(objs: Iterable[_HasMetadata]) -> list[ObjectRef]:
    """Return the references to log for several API objects."""
    return [kobj(obj) for obj in objs]


_Values = Mapping[str, Any]
_Part = TypeVar("_Part")


class _Settings:
    """Hold the values of the flags. The fields are read without the lock; `lock` only keeps lines whole."""

    verbosity = 0
    vmodule: tuple[tuple[str, int], ...] = ()
    json = False
    output: TextIO | None = None
    lock = threading.Lock()


# The dict holds the verbosity that vmodule sets for a code object. It is cleared when vmodule changes.
_levels: dict[CodeType, int] = {}


def set_verbosity(level: int) -> None:
    """Apply --v: `v(n)` logs for n up to `level`."""
    _Settings.verbosity = level


def set_vmodule(patterns: str) -> None:
    """Apply --vmodule: `pattern=N,…` raises the verbosity of files whose base name matches the glob pattern."""
    parsed = []
    for item in filter(None, patterns.split(",")):
        pattern, sep, level = item.partition("=")
        if not pattern or not sep or not level.isdecimal():
            raise ValueError(f"vmodule: expected pattern=N, got {item!r}")
        parsed.append((pattern, int(level)))
    _Settings.vmodule = tuple(parsed)
    _levels.clear()


def set_format(name: str) -> None:
    """Apply --logging-format: text or json."""
    if name not in ("text", "json"):
        raise ValueError(f"logging format: expected text or json, got {name!r}")
    _Settings.json = name == "json"


def set_output(stream: TextIO | None) -> None:
    """Write to the stream; None means standard error."""
    _Settings.output = stream


def flush() -> None:
    """Write out the buffered lines. A failed write, for example to a full disk, does not fail the caller."""
    with _Settings.lock, contextlib.suppress(OSError, ValueError):
        _stream().flush()


class Verbose:
    """Log if `enabled`; `v` returns such an object."""

    __slots__ = ("enabled", "level")

    def __init__(self, level: int, enabled: bool) -> None:
        self.level = level
        self.enabled = enabled

    def __bool__(self) -> bool:
        return self.enabled

    def info_s(self, msg: str, /, **kv: Any) -> None:
        if self.enabled:
            _log("I", self.level, sys._getframe(1), msg, None, kv)

    def error_s(self, err: BaseException | None, msg: str, /, **kv: Any) -> None:
        if self.enabled:
            _log("E", self.level, sys._getframe(1), msg, err, kv)


_on = tuple(Verbose(level, True) for level in range(11))
_off = Verbose(0, False)


def v(level: int) -> Verbose:
    """Return a logger for this verbosity: 2 is the usual one for operators, 4 for debugging, 5 for tracing."""
    enabled = level <= _Settings.verbosity
    if not enabled and _Settings.vmodule:
        enabled = level <= _module_level(sys._getframe(1).f_code)
    if enabled:
        return _on[level] if level < len(_on) else Verbose(level, True)
    return _off


def info_s(msg: str, /, **kv: Any) -> None:
    _log("I", 0, sys._getframe(1), msg, None, kv)


def warning_s(msg: str, /, **kv: Any) -> None:
    _log("W", 0, sys._getframe(1), msg, None, kv)


def error_s(err: BaseException | None, msg: str, /, **kv: Any) -> None:
    """Log an error: its text, and its traceback only if the error means a bug in our own code."""
    _log("E", 0, sys._getframe(1), msg, err, kv)


def info_s_depth(depth: int, msg: str, /, **kv: Any) -> None:
    """Log as info_s does, with the place of the caller `depth` levels further up. Helpers that log use this."""
    _log("I", 0, sys._getframe(depth + 1), msg, None, kv)


def stacktrace(err: BaseException | None) -> str:
    """Return the traceback of an exception as a value to log."""
    return "" if err is None else "".join(traceback.format_exception(err)).rstrip()


class _Bridge(logging.Handler):
    """Forward the records of the standard logging module, which libraries use, to this log."""

    _severities = ((logging.ERROR, "E"), (logging.WARNING, "W"), (logging.NOTSET, "I"))

    def emit(self, record: logging.LogRecord) -> None:
        kv: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1]:
            kv["stacktrace"] = stacktrace(record.exc_info[1])
        severity = next(letter for level, letter in self._severities if record.levelno >= level)
        _write(severity, 0, record.pathname, record.lineno, record.getMessage(), None, kv)


def capture_logging(level: int = logging.WARNING) -> None:
    """Forward records of the standard logging module from `level` on to this log. Call this before gRPC is loaded.

    gRPC's C library writes to standard error by itself. For three bytes that a server sends, it can write a hundred
    bytes, repeatedly, with text that the server chose. So it logs nothing unless the environment asks for it.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.basicConfig(handlers=[_Bridge()], level=level, force=True)


def _module_level(code: CodeType) -> int:
    level = _levels.get(code)
    if level is None:
        stem = PurePath(code.co_filename).stem
        level = next((n for pattern, n in _Settings.vmodule if fnmatch.fnmatchcase(stem, pattern)), -1)
        _levels[code] = level
    return level


def _stream() -> TextIO:
    return _Settings.output or sys.stderr


# At most this many characters of one value or of the message are logged. Names, commands and messages of pods may have
# millions; escaping them is a single operation, during which no other thread runs Python.
# DIVERGES (safer): this kubelet logs only the first MAX_VALUE characters of a value or message.
# Go: k8s.io/klog/v2/internal/serialize/keyvalues_slog.go, Formatter.KVFormat: the Go kubelet has no bound.
# Why: one pod could block all threads, and fill the disk with its own text.
# Test: klog_test.py:test_of_a_value_without_end_the_beginning_is_logged
MAX_VALUE = 64 << 10

# These exceptions mean a bug in the code and not a problem of the environment.
_PROGRAMMING_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    RecursionError,
    TypeError,
)


def _log(severity: str, level: int, frame: FrameType, msg: str, err: BaseException | None, kv: _Values) -> None:
    # A kubelet meets failures all the time, and their text is sufficient. For a bug in our own code, which a broad
    # handler caught to keep the node running, only the place helps.
    caught = kv.get("err") if err is None else err
    if isinstance(caught, _PROGRAMMING_ERRORS) and "stacktrace" not in kv:
        kv = {**kv, "stacktrace": stacktrace(caught)}
    _write(severity, level, frame.f_code.co_filename, frame.f_lineno, msg, err, kv)


def _write(severity: str, level: int, path: str, line: int, msg: str, err: BaseException | None, kv: _Values) -> None:
    layout = _json_line if _Settings.json else _text_line
    # Some messages contain the text of an error, and messages of libraries may contain what a client has sent.
    msg = msg[:MAX_VALUE]
    try:
        fault = None if err is None else _Room().cut(err)
        values = {key: _Room().cut(value) for key, value in kv.items()}
        text = layout(severity, level, path, line, msg, fault, values)
    except Exception as failure:
        # The value may be of any kind, for example nested too deeply or a number too large for JSON. Logging must not
        # fail its caller.
        text = layout(severity, level, path, line, msg, None, {"notLogged": repr(failure)})
    with _Settings.lock:
        try:
            stream = _stream()
            try:
                stream.write(text)
            except UnicodeEncodeError:
                # A name that is not valid text can appear in a value of several lines, or in JSON.
                stream.write(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
            stream.flush()
        except (OSError, ValueError):
            pass  # The log itself is gone or closed, so there is nowhere to report the error.


class _Room:
    """Track how much of MAX_VALUE is left while one value is converted."""

    def __init__(self) -> None:
        self._left = MAX_VALUE

    def cut(self, value: Any) -> Any:
        """Return the value in types that a layout supports; truncate strings and collections to the remaining room."""
        match value:
            case str():
                return self._take(value)
            case None | bool() | int() | float() | enum.Enum() | datetime():
                return value
            case dict():
                return {self.cut(key): self.cut(each) for key, each in self._as_far_as_it_goes(value.items())}
            case list() | tuple():
                return [self.cut(each) for each in self._as_far_as_it_goes(value)]
            case set() | frozenset():
                return self.cut(sorted(value, key=str))
            case _:
                return self._take(str(value))

    def _take(self, text: str) -> str:
        kept = text if len(text) <= self._left else text[: self._left]
        self._left -= len(kept)
        return kept

    def _as_far_as_it_goes(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        for part in parts:
            if self._left <= 0:
                return
            self._left -= 1
            yield part


def _text_line(severity: str, _: int, path: str, line: int, msg: str, err: str | None, kv: _Values) -> str:
    now = time.time()
    day = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    place = f"{os.path.basename(path)}:{line}"  # A PurePath would cost ten times as much.
    parts = [f"{severity}{day}.{int(now % 1 * 1_000_000):06d} {os.getpid():7d} {place}] {quote(msg)}"]
    if err is not None:
        parts.append(f" err{_text_value(err)}")
    for key, value in kv.items():
        parts.append(f" {key}{_text_value(value)}")
    parts.append("\n")
    return "".join(parts)


def _text_value(value: Any) -> str:
    """Return `=value`: strings are quoted, several lines are indented, and other types become JSON or quoted text."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        if "\n" not in value:
            return "=" + quote(value)
        return "=<\n\t" + value.rstrip("\n").replace("\n", "\n\t") + "\n >"
    if value is None or isinstance(value, bool | int | float | list | dict):
        return "=" + _dumps(value)
    return _text_value(str(value))


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


def quote(text: str) -> str:
    """Quote as Go's strconv.Quote does."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(ord(c))) for c in text) + '"'


def _escape(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_line(severity: str, level: int, path: str, line: int, msg: str, err: str | None, kv: _Values) -> str:
    place = "/".join(PurePath(path).parts[-2:])
    entry: dict[str, Any] = {"ts": time.time_ns() / 1_000_000, "caller": f"{place}:{line}", "msg": msg}
    if severity != "E":
        entry["v"] = level
    for key, value in kv.items():
        entry[key] = _json_ref(value) if isinstance(value, ObjectRef) else value
    if err is not None:
        entry["err"] = err
    return _dumps(entry) + "\n"


def _json_ref(ref: ObjectRef) -> dict[str, str]:
    namespace, _, name = ref.rpartition("/")
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _dumps(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"), skipkeys=True)


def _plain(value: Any) -> Any:
    """Convert a type that JSON does not support: times to RFC 3339, everything else to its text."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
