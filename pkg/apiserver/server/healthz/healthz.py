"""Serve health checks over HTTP.

Go: k8s.io/apiserver/pkg/server/healthz/healthz.go
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import klog
from pkg.component_base.metrics.prometheus import slis

if TYPE_CHECKING:
    from pkg.golang import http

DEFAULT_HEALTHZ_PATH = "/healthz"
# `_LOG_BLOCKED_AFTER` is the time, in seconds, after which a log that accepts no output counts as blocked.
_LOG_BLOCKED_AFTER = 120.0


class UnhealthyError(Exception):
    """Signal that a health check failed."""


@dataclass(frozen=True, slots=True)
class HealthChecker:
    """Describe a named check; `check` raises an exception that says what is wrong. It must be thread-safe."""

    name: str
    check: Callable[[], object]


class _LogCheck:
    """Fail when the log accepts no output.

    The check flushes the log itself. In Go a goroutine does so every minute, even without requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _flushing_since.
        self._flushing_since: float | None = None

    def __call__(self) -> None:
        with self._lock:
            since = self._flushing_since
            if since is None:
                self._flushing_since = time.monotonic()
        if since is not None:
            if time.monotonic() - since > _LOG_BLOCKED_AFTER:
                raise UnhealthyError("logging blocked")
            return
        try:
            klog.flush()
        finally:
            with self._lock:
                self._flushing_since = None


PING_HEALTHZ = HealthChecker("ping", lambda: None)
LOG_HEALTHZ = HealthChecker("log", _LogCheck())


def install_handler(mux: http.ServeMux, *checks: HealthChecker) -> None:
    """Serve all checks at /healthz and each at /healthz/NAME.

    Without checks there is one that always passes.
    """
    checks = checks or (PING_HEALTHZ,)
    mux.handle(DEFAULT_HEALTHZ_PATH, _handle_root_health("healthz", checks))
    for check in checks:
        mux.handle(f"{DEFAULT_HEALTHZ_PATH}/{check.name}", _adapt_check_to_handler(check))


def _handle_root_health(name: str, checks: tuple[HealthChecker, ...]) -> http.Handler:
    from pkg.golang import http

    def handle(w: http.ResponseWriter, r: http.Request) -> None:
        excluded = set(r.query.get("exclude", ()))
        unknown = sorted(excluded - {check.name for check in checks})
        lines = list[str]()
        failed = dict[str, str]()
        for check in checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok\n")
                continue
            try:
                check.check()
            except Exception as err:  # Any exception of a check is its result, not an error of the server.
                failed[check.name] = str(err)
                slis.observe_healthcheck(check.name, name, slis.ERROR)
                # The reason is shown only at the check's own path, which requires its own permission.
                lines.append(f"[-]{check.name} failed: reason withheld\n")
            else:
                slis.observe_healthcheck(check.name, name, slis.SUCCESS)
                lines.append(f"[+]{check.name} ok\n")
        if unknown:
            quoted = ",".join(f'"{each}"' for each in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}\n")
        if failed:
            details = "; ".join(f"{each}: {err}" for each, err in failed.items())
            klog.v(2).info_s(f"{','.join(failed)} check failed: {name}", err=details)
            http.error(w, f"{''.join(lines)}{name} check failed", 500)
            return
        w.headers.set("Content-Type", "text/plain; charset=utf-8")
        w.headers.set("X-Content-Type-Options", "nosniff")
        w.write(f"{''.join(lines)}{name} check passed\n".encode() if "verbose" in r.query else b"ok")

    return handle


def _adapt_check_to_handler(check: HealthChecker) -> http.Handler:
    from pkg.golang import http

    def handle(w: http.ResponseWriter, r: http.Request) -> None:
        try:
            check.check()
        except Exception as err:  # Any exception of a check is its result.
            http.error(w, f"internal server error: {err}", 500)
            return
        w.write(b"ok")

    return handle
