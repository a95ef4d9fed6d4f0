"""Probe a container by opening a connection.

Go: pkg/probe/tcp/tcp.go
"""

from __future__ import annotations

from pkg import golang
from pkg.probe.dialer import close, dial
from pkg.probe.probe import Result


def probe_tcp(ctx: golang.Context, host: str, port: int, timeout: float) -> tuple[Result, str]:
    """Connect to host:port within `timeout` seconds; return the result, and the reason for a failure.

    Raise Canceled if ctx is cancelled, and NoSocketError.
    """
    limited, cancel = golang.with_timeout(ctx, timeout)
    try:
        close(limited, dial(limited, host, port))
    except (OSError, ValueError) as err:
        if isinstance(ctx.err(), golang.Canceled):
            raise golang.Canceled from err
        return Result.FAILURE, str(err)
    finally:
        cancel()
    return Result.SUCCESS, ""
