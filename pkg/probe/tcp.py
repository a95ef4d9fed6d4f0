"""Probing by opening a connection.

Go: pkg/probe/tcp/tcp.go
"""

from __future__ import annotations

from pkg.probe.dialer import dial
from pkg.probe.probe import Result


def probe_tcp(host: str, port: int, timeout: float) -> tuple[Result, str]:
    """Whether host:port accepts a connection within timeout seconds, and if not, why."""
    try:
        dial(host, port, timeout).close()
    except OSError as err:
        return Result.FAILURE, str(err)
    return Result.SUCCESS, ""
