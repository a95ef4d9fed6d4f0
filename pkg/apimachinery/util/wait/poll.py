"""Asking again at a fixed interval until the answer is yes.

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
    """Return once the condition is true; asks every `interval` seconds, and at once if `immediate`.

    Raises ctx.err() once ctx is done, and what the condition raises.
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
    """As poll_until_context_cancel, for at most `timeout` seconds; then raises golang.DeadlineExceeded."""
    child, cancel = golang.with_timeout(ctx, timeout)
    try:
        poll_until_context_cancel(child, interval, immediate, condition)
    finally:
        cancel()
