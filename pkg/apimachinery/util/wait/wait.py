"""Loops that end when a context is done.

Go: k8s.io/apimachinery/pkg/util/wait/wait.go, backoff.go
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pkg import golang, klog


def jitter(duration: float, max_factor: float) -> float:
    """A random time from `duration` up to `duration * (1 + max_factor)`; a factor not above 0 counts as 1."""
    return duration + random.random() * (max_factor if max_factor > 0 else 1.0) * duration


def until(
    fn: Callable[[], object], period: float, ctx: golang.Context, clock: golang.TimerSource | None = None
) -> None:
    """Call fn until ctx is done, `period` seconds from the end of one call to the start of the next."""
    jitter_until(fn, period, 0.0, True, ctx, clock)


def jitter_until(
    fn: Callable[[], object],
    period: float,
    jitter_factor: float,
    sliding: bool,
    ctx: golang.Context,
    clock: golang.TimerSource | None = None,
) -> None:
    """Call fn until ctx is done; each pause is jittered if jitter_factor is above 0.

    `sliding` counts the pause from the end of fn, otherwise from its start.
    DIVERGES: an exception in fn is logged and the loop goes on, where Go logs it and lets the process crash:
    one broken input must not stop a loop that serves every pod.
    """
    timer = golang.Timer(0, clock)
    timer.stop()
    while ctx.err() is None:
        pause = jitter(period, jitter_factor) if jitter_factor > 0 else period
        if not sliding:
            timer.reset(pause)
        try:
            fn()
        except golang.Canceled as err:
            if ctx.err() is None:  # someone else's cancellation
                _log_crash(err)
        except Exception as err:
            _log_crash(err)
        if sliding:
            timer.reset(pause)
        golang.select(ctx.done(), timer.channel)
    timer.stop()


def sleep(ctx: golang.Context, seconds: float, clock: golang.TimerSource | None = None) -> bool:
    """Wait by the clock, or until ctx is done; returns whether it is."""
    timer = golang.Timer(seconds, clock)
    golang.select(ctx.done(), timer.channel)
    timer.stop()
    return ctx.err() is not None


def pause(ctx: golang.Context, seconds: float, clock: golang.TimerSource | None = None) -> None:
    """Wait by the clock; raises ctx.err() once ctx is done."""
    if sleep(ctx, seconds, clock) and (err := ctx.err()) is not None:
        raise err


def _log_crash(err: Exception) -> None:
    klog.error_s(err, "Observed a panic", stacktrace=klog.stacktrace(err))
