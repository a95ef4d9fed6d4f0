"""Run loops that end when a context is done.

Go: k8s.io/apimachinery/pkg/util/wait/wait.go, backoff.go
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pkg import golang, klog

# `_THREAD_RETRY_PERIOD` is the delay, in seconds, before another attempt to start a thread.
_THREAD_RETRY_PERIOD = 1.0


def jitter(duration: float, max_factor: float) -> float:
    """Return a random time between `duration` and `duration * (1 + max_factor)`.

    A factor that is not positive counts as 1.
    """
    return duration + random.random() * (max_factor if max_factor > 0 else 1.0) * duration


def until(
    fn: Callable[[], object], period: float, ctx: golang.Context, clock: golang.TimerSource | None = None
) -> None:
    """Call fn until ctx is done, with `period` seconds from the end of one call to the start of the next."""
    jitter_until(fn, period, 0.0, True, ctx, clock)


def jitter_until(
    fn: Callable[[], object],
    period: float,
    jitter_factor: float,
    sliding: bool,
    ctx: golang.Context,
    clock: golang.TimerSource | None = None,
) -> None:
    """Call fn until ctx is done; each delay is jittered if jitter_factor is positive.

    With `sliding` the delay starts at the end of fn, and otherwise at its start.

    DIVERGES (safer): the kubelet logs an exception in a periodic function, and the loop continues.
    Go: k8s.io/apimachinery/pkg/util/wait/backoff.go, JitterUntilWithContext: the Go kubelet logs the panic and exits.
    Why: one bad input must not end a loop that serves every pod.
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
            if ctx.err() is None:  # Something other than ctx was cancelled.
                _log_crash(err)
        except Exception as err:
            # The loop calls fn again after the delay; see the docstring.
            _log_crash(err)
        if sliding:
            timer.reset(pause)
        golang.select(ctx.done(), timer.channel)
    timer.stop()


def sleep(ctx: golang.Context, seconds: float, clock: golang.TimerSource | None = None) -> bool:
    """Wait for a time that the clock measures, or until ctx is done; report whether ctx is done."""
    timer = golang.Timer(seconds, clock)
    golang.select(ctx.done(), timer.channel)
    timer.stop()
    return ctx.err() is not None


def pause(ctx: golang.Context, seconds: float, clock: golang.TimerSource | None = None) -> None:
    """Wait for a time that the clock measures; raise ctx.err() once ctx is done."""
    if sleep(ctx, seconds, clock):
        ctx.raise_if_done()


def go(
    ctx: golang.Context,
    fn: Callable[..., object],
    *args: Any,
    name: str,
    clock: golang.TimerSource | None = None,
) -> golang.Thread | None:
    """Start a thread, and retry every second while the machine has no thread for it.

    Return None once ctx is done. This function is for threads on which others depend. Go has no counterpart, because a
    goroutine can always be started.
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
