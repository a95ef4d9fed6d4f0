"""Loops that end when a context is done.

Go: k8s.io/apimachinery/pkg/util/wait/wait.go, backoff.go
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pkg import golang, klog

# Seconds until it is tried again to start a thread.
_THREAD_RETRY_PERIOD = 1.0


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

    DIVERGES (safer): an exception in fn is logged, and the loop goes on.
    Go: k8s.io/apimachinery/pkg/util/wait/backoff.go, JitterUntilWithContext: the process logs the panic and ends.
    Why: one broken input must not end a loop that serves every pod.
    Test: wait_test.py:test_until_survives_a_crash_and_logs_it
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
            # See above: fn is asked again after the pause.
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
    if sleep(ctx, seconds, clock):
        ctx.raise_if_done()


def go(
    ctx: golang.Context,
    fn: Callable[..., object],
    *args: Any,
    name: str,
    clock: golang.TimerSource | None = None,
) -> golang.Thread | None:
    """golang.go, once a second until the machine has a thread for it; None once ctx is done.

    For threads without which others cannot go on. Nothing in Go corresponds: a goroutine can always be started.
    """
    while ctx.err() is None:
        try:
            return golang.go(fn, *args, name=name)
        except golang.ThreadError as err:
            klog.error_s(err, "Unable to start a thread, will retry", name=name)
        sleep(ctx, _THREAD_RETRY_PERIOD, clock)
    return None


def _log_crash(err: Exception) -> None:
    klog.error_s(err, "Observed a panic", stacktrace=klog.stacktrace(err))
