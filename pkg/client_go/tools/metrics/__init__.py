"""Where the client tells how its requests go; who wants to know sets the hooks.

Go: k8s.io/client-go/tools/metrics
"""

from __future__ import annotations

from collections.abc import Callable

# Code ("<error>" without an answer), method and host of one try.
ResultHook = Callable[[str, str, str], None]
# Method, host and seconds of one request with all its tries.
LatencyHook = Callable[[str, str, float], None]

_result_hooks: list[ResultHook] = []
_latency_hooks: list[LatencyHook] = []


def register(result: ResultHook | None = None, latency: LatencyHook | None = None) -> None:
    """Call these from now on, in whatever thread makes the request."""
    if result is not None:
        _result_hooks.append(result)
    if latency is not None:
        _latency_hooks.append(latency)


def request_result(code: str, method: str, host: str) -> None:
    for hook in _result_hooks:
        hook(code, method, host)


def request_latency(method: str, host: str, seconds: float) -> None:
    for hook in _latency_hooks:
        hook(method, host, seconds)
