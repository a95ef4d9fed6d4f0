"""Check a condition at a fixed interval until it is true.

Go: k8s.io/apimachinery/pkg/util/wait/poll.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg import golang


def poll_until_context_cancel(
    ctx: golang.Context,
    interval: float,
    immediate: bool,
    condition: Callable[[], bool],
    clock: golang.TimerSource | None = None,
) -> None:
    """Return once the condition is true; check it every `interval` seconds, and at once if `immediate`.

    Raise ctx.err() once ctx is done, and any exception of the condition.
    """
    if immediate and condition():
        return
    ticker = golang.Ticker(interval, clock)
    try:
        while True:
            golang.select(ctx.done(), ticker.channel)
            ctx.raise_if_done()
            if condition():
                return
    finally:
        ticker.stop()


def poll_until_context_timeout(
    ctx: golang.Context, interval: float, timeout: float, immediate: bool, condition: Callable[[], bool]
) -> None:
    """Return once the condition is true; raise golang.DeadlineExceeded after `timeout` seconds.

    Otherwise the function works like poll_until_context_cancel.
    """
    child, cancel = golang.with_timeout(ctx, timeout)
    try:
        poll_until_context_cancel(child, interval, immediate, condition)
    finally:
        cancel()
