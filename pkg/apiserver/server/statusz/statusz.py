"""Serve the status of the program.

Go: k8s.io/apiserver/pkg/server/statusz/statusz.go, textserializer.go
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pkg.apimachinery.runtime import codec
from pkg.apiserver.server import zpage
from pkg.apiserver.server.statusz.registry import Registry

if TYPE_CHECKING:
    from pkg.golang import http

DEFAULT_STATUSZ_PATH = "/statusz"

# These paths serve an API and do not help with debugging.
_NON_DEBUGGING_ENDPOINTS = {"/apis", "/api", "/openid", "/openapi", "/.well-known"}


def install(mux: http.ServeMux, component_name: str, registry: Registry) -> None:
    """Serve the page; call this after all other paths are registered, because the page lists them."""

    def text() -> str:
        return _text(registry)

    def fields() -> dict[str, Any]:
        return {
            "startTime": codec.to_builtins(registry.process_start_time),
            "uptimeSeconds": _uptime_seconds(registry),
            "goVersion": registry.go_version,
            "binaryVersion": registry.binary_version,
            "emulationVersion": registry.emulation_version,
            "paths": aggregate_paths(registry.paths),
        }

    mux.handle(DEFAULT_STATUSZ_PATH, zpage.handler(component_name, "statusz", text, fields))


def _text(registry: Registry) -> str:
    delimiter = zpage.delimiter()
    lines = {
        "Started": f"{registry.process_start_time:%a %b %e %H:%M:%S UTC %Y}",
        "Up": uptime(_uptime_seconds(registry)),
        "Python version": registry.go_version,
        "Binary version": registry.binary_version,
        "Emulation version": registry.emulation_version,
        "Paths": " ".join(aggregate_paths(registry.paths)),
    }
    return "\n" + "".join(f"{name}{delimiter} {value}\n" for name, value in lines.items() if value)


def _uptime_seconds(registry: Registry) -> int:
    # time of day: the page shows the start time next to the uptime.
    return max(0, int((datetime.datetime.now(datetime.UTC) - registry.process_start_time).total_seconds()))


def uptime(seconds: int) -> str:
    return f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"


def aggregate_paths(listed_paths: Iterable[str]) -> list[str]:
    """Return the first segment of each path without duplicates."""
    folders = {f"/{path.split('/')[1]}" for path in listed_paths if path.strip("/")}
    return sorted(folders - _NON_DEBUGGING_ENDPOINTS)
