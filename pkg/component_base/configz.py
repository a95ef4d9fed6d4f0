"""Show the configurations of the running program on the page /configz.

Go: k8s.io/component-base/configz/configz.go
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pkg.golang import http

DEFAULT_CONFIGZ_PATH = "/configz"

_lock = threading.Lock()  # The lock guards _configs and what they hold.
_configs: dict[str, Config] = {}


class Config:
    """Hold one configuration; use `new` to make it."""

    def __init__(self) -> None:
        self._value: Mapping[str, Any] | None = None

    def set(self, value: Mapping[str, Any]) -> None:
        """Show this document; raise ValueError if it lacks its kind or API version."""
        if not value.get("kind"):
            raise ValueError("val must specify a kind")
        if not value.get("apiVersion"):
            raise ValueError("val must specify a group/version")
        with _lock:
            self._value = value


def new(name: str) -> Config:
    """Register a configuration; raise ValueError if the name is already in use."""
    with _lock:
        if name in _configs:
            raise ValueError(f'register config "{name}" twice')
        _configs[name] = config = Config()
        return config


def delete(name: str) -> None:
    with _lock:
        _configs.pop(name, None)


def install_handler(mux: http.ServeMux) -> None:
    mux.handle(DEFAULT_CONFIGZ_PATH, handle)


def handle(w: http.ResponseWriter, r: http.Request) -> None:
    with _lock:
        body = json.dumps({name: config._value for name, config in sorted(_configs.items())}, separators=(",", ":"))
    w.headers.set("Content-Type", "application/json")
    w.headers.set("X-Content-Type-Options", "nosniff")
    w.write(body.encode())
