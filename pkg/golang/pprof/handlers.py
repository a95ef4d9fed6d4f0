"""Serve the pages under /debug/pprof/.

Go: net/http/pprof/pprof.go
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pkg.golang.pprof import encoding, profiles, sampler

if TYPE_CHECKING:
    from pkg.golang.http import Request, ResponseWriter

BASE_PATH = "/debug/pprof/"

_DEFAULT_SECONDS = 30.0
# Go: the server's WriteTimeout.
_MAX_SECONDS = 4 * 3600.0

_PROFILES: dict[str, Callable[[], encoding.Profile]] = {
    "goroutine": profiles.thread_profile,
    "heap": profiles.heap_profile,
    "threadcreate": profiles.thread_profile,
}

_NOT_KEPT = {
    "allocs": "Python does not count allocations; heap shows the memory in use",
    "block": "Python does not record how long threads wait for each other",
    "mutex": "Python does not record which locks threads wait for",
    "trace": "Python has no execution tracer; profile shows where the processor time goes",
}

_DESCRIPTIONS = {
    "cmdline": "The command line of this program",
    "goroutine": "Stacks of all threads. Use debug=2 for a separate stack of each thread, with its name",
    "heap": "Memory in use by place of allocation, if the process was started with PYTHONTRACEMALLOC",
    "profile": "Processor time by function. Give the duration with seconds=; open it with go tool pprof",
    "threadcreate": "The same as goroutine",
    **_NOT_KEPT,
}

# Two simultaneous profiles would each measure the work of the other.
_profiling = threading.Lock()


def serve(w: ResponseWriter, r: Request) -> None:
    """Serve the page that the rest of the path after BASE_PATH names."""
    w.headers.set("X-Content-Type-Options", "nosniff")
    match r.path.removeprefix(BASE_PATH).strip("/"):
        case "":
            _index(w)
        case "cmdline":
            _write_text(w, Path("/proc/self/cmdline").read_text(errors="replace").rstrip("\0"))
        case "symbol":
            # The profiles already contain the names of functions.
            _write_text(w, "num_symbols: 0\n")
        case "profile":
            _profile(w, r)
        case name if name in _NOT_KEPT:
            _serve_error(w, 501, _NOT_KEPT[name])
        case name if name in _PROFILES:
            _named_profile(w, r, name)
        case _:
            _serve_error(w, 404, "Unknown profile")


def _profile(w: ResponseWriter, r: Request) -> None:
    seconds = _seconds(r)
    if seconds > _MAX_SECONDS:
        _serve_error(w, 400, "profile duration exceeds server's WriteTimeout")
        return
    if not _profiling.acquire(blocking=False):
        _serve_error(w, 500, "Could not enable CPU profiling: cpu profiling already in use")
        return
    try:
        profile = sampler.cpu_profile(r.ctx, seconds)
    finally:
        _profiling.release()
    _write_profile(w, "profile", profile)


def _seconds(r: Request) -> float:
    try:
        seconds = float(int(r.param("seconds")))
    except (ValueError, OverflowError):
        return _DEFAULT_SECONDS
    return seconds if seconds > 0 else _DEFAULT_SECONDS


def _named_profile(w: ResponseWriter, r: Request, name: str) -> None:
    debug = r.param("debug", "0")
    try:
        if name == "goroutine" and debug == "2":
            _write_text(w, profiles.thread_stacks())
        elif debug in ("", "0"):
            _write_profile(w, name, _PROFILES[name]())
        else:
            _write_text(w, profiles.text(name, _PROFILES[name]()))
    except profiles.NotKeptError as err:
        _serve_error(w, 501, str(err))


def _write_profile(w: ResponseWriter, name: str, profile: encoding.Profile) -> None:
    w.headers.set("Content-Type", "application/octet-stream")
    w.headers.set("Content-Disposition", f'attachment; filename="{name}"')
    w.write(encoding.encode(profile))


def _write_text(w: ResponseWriter, text: str) -> None:
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.write(text.encode(errors="replace"))


def _serve_error(w: ResponseWriter, status: int, text: str) -> None:
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.headers.set("X-Go-Pprof", "1")
    w.write_header(status)
    w.write(f"{text}\n".encode())


def _index(w: ResponseWriter) -> None:
    rows = "".join(
        f'<li><a href="{name}{"?debug=1" if name in _PROFILES else ""}">{name}</a>: {html.escape(description)}</li>\n'
        for name, description in sorted(_DESCRIPTIONS.items())
    )
    page = (
        f"<html>\n<head>\n<title>{BASE_PATH}</title>\n</head>\n<body>\n{BASE_PATH}\n<p>Profiles:</p>\n"
        f'<ul>\n{rows}</ul>\n<p><a href="goroutine?debug=2">full thread stack dump</a></p>\n</body>\n</html>\n'
    )
    w.headers.set("Content-Type", "text/html; charset=utf-8")
    w.write(page.encode())
