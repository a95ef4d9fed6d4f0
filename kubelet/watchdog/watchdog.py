"""Tells systemd again and again that the kubelet is well, if the unit says WatchdogSec: systemd kills it otherwise.

Go: pkg/kubelet/watchdog/watchdog_linux.go
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.apiserver.server import healthz
from pkg.component_base.cli.flag import format_duration
from pkg.util import sdnotify

# Seconds; systemd must wait for longer than that.
_MINIMAL_NOTIFY_INTERVAL = 1.0
# How often it is tried to tell systemd, and the seconds between two tries.
_RETRY_BACKOFF = wait.Backoff(duration=1.0, factor=2.0, jitter=0.1, steps=2)


class HealthChecker:
    """Runs the checks, and tells systemd twice in the time of its watchdog while all pass.

    Until set_health_checkers is called there are no checks: systemd is told from the beginning of a start, however long
    that takes. Thread-safe.
    """

    def __init__(self) -> None:
        """Raises ValueError when systemd's settings cannot be read, or leave too little time."""
        self._checkers: tuple[healthz.HealthChecker, ...] = ()
        # Seconds; 0 where there is no watchdog.
        self._interval = 0.0
        try:
            timeout = sdnotify.watchdog_timeout()
        except ValueError as err:
            raise ValueError(f"configure watchdog: {err}") from err
        if timeout is None:
            klog.info_s("Systemd watchdog is not enabled")
            return
        if timeout <= _MINIMAL_NOTIFY_INTERVAL:
            raise ValueError(f"configure watchdog timeout too small: {format_duration(timeout)}")
        self._interval = timeout / 2

    def set_health_checkers(
        self, sync_loop_health_check: Callable[[], object], checkers: Iterable[healthz.HealthChecker]
    ) -> None:
        """From now on look at the sync loop and at the others too.

        DIVERGES (safer): it is not checked whether the log takes what is written.
        Go: pkg/kubelet/watchdog/watchdog_linux.go, (*healthChecker).SetHealthCheckers: checks it as well.
        Why: the check waits for the log, with the thread that tells systemd. A log that stands still for WatchdogSec,
        as while journald starts again, would have systemd kill the kubelet. A log that never goes on stops the sync
        loop, which is checked.
        Test: watchdog_test.py:test_log_that_stands_still_does_not_keep_systemd_from_being_told
        """
        sync_loop = healthz.HealthChecker("syncloop", sync_loop_health_check)
        self._checkers = (healthz.PING_HEALTHZ, sync_loop, *checkers)

    def start(self, ctx: golang.Context) -> None:
        """Check and tell on a thread that ends with ctx; nothing to do without a watchdog. Raises ThreadError."""
        if self._interval <= 0:
            klog.info_s(
                "Systemd watchdog is not enabled or the interval is invalid, so health checking will not be started."
            )
            return
        klog.info_s("Starting systemd watchdog with interval", interval=self._interval)
        golang.go(wait.until, functools.partial(self._tell, ctx), self._interval, ctx, name="systemd-watchdog")

    def _tell(self, ctx: golang.Context) -> None:
        try:
            self._do_check()
        except healthz.UnhealthyError as err:
            # systemd is not told, and kills the kubelet unless it is well in time.
            klog.error_s(err, "Do not notify watchdog this iteration as the kubelet is reportedly not healthy")
            return
        try:
            _notify(ctx)
        except OSError as err:
            klog.error_s(err, "Failed to notify watchdog")

    def _do_check(self) -> None:
        """Raises healthz.UnhealthyError, which names the check that has failed."""
        for checker in self._checkers:
            try:
                checker.check()
            except Exception as err:  # any failure of a check is its answer
                raise healthz.UnhealthyError(f"checker {checker.name} failed: {err}") from err


def _notify(ctx: golang.Context) -> None:
    """Tell systemd, and once more if that fails. Raises OSError, or a ContextError once ctx is done."""
    backoff = replace(_RETRY_BACKOFF)
    while True:
        try:
            acknowledged = sdnotify.notify(sdnotify.WATCHDOG)
        except OSError as err:
            klog.v(5).info_s("Failed to notify systemd watchdog, retrying", error=err)
            if backoff.steps == 1:
                raise
        else:
            break
        wait.pause(ctx, backoff.step())
    if not acknowledged:
        raise OSError("failed to notify systemd watchdog, notification not supported - (i.e. NOTIFY_SOCKET is unset)")
    klog.v(5).info_s("Watchdog plugin notified", acknowledgment=True, state=sdnotify.WATCHDOG.decode())
