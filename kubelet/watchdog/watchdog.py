"""Notify systemd periodically that the kubelet is healthy, if the unit sets WatchdogSec.

Without the notifications systemd kills the kubelet.

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

# WatchdogSec must be longer than this time, in seconds.
_MINIMAL_NOTIFY_INTERVAL = 1.0
# This is the number of attempts to notify systemd, with the delays between them in seconds.
_RETRY_BACKOFF = wait.Backoff(duration=1.0, factor=2.0, jitter=0.1, steps=2)


class HealthChecker:
    """Run the health checks, and notify systemd twice per watchdog timeout while all of them pass.

    Until set_health_checkers is called there are no checks, so that systemd is notified during a start of any length.
    This class is thread-safe.
    """

    def __init__(self) -> None:
        """Read systemd's settings. Raise ValueError if they are malformed or leave too little time."""
        self._checkers: tuple[healthz.HealthChecker, ...] = ()
        # The interval is in seconds. 0 means that there is no watchdog.
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
        """Check the sync loop from now on, and run the other checks too.

        DIVERGES (safer): the watchdog does not check whether the log accepts writes.
        Go: pkg/kubelet/watchdog/watchdog_linux.go, (*healthChecker).SetHealthCheckers: the Go kubelet also checks the
        log.
        Why: the check waits for the log on the thread that notifies systemd. If the log is blocked for WatchdogSec, for
        example while journald restarts, systemd would kill the kubelet. A log that is blocked permanently stops the
        sync loop, which is checked.
        Test: watchdog_test.py:test_log_that_stands_still_does_not_keep_systemd_from_being_told
        """
        sync_loop = healthz.HealthChecker("syncloop", sync_loop_health_check)
        self._checkers = (healthz.PING_HEALTHZ, sync_loop, *checkers)

    def start(self, ctx: golang.Context) -> None:
        """Check and notify on a thread that ends with ctx. Without a watchdog, do nothing. Raise ThreadError."""
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
            # Without a notification, systemd kills the kubelet unless the checks pass again in time.
            klog.error_s(err, "Do not notify watchdog this iteration as the kubelet is reportedly not healthy")
            return
        try:
            _notify(ctx)
        except OSError as err:
            klog.error_s(err, "Failed to notify watchdog")

    def _do_check(self) -> None:
        """Run the checks. Raise healthz.UnhealthyError with the name of the failed check."""
        for checker in self._checkers:
            try:
                checker.check()
            except Exception as err:  # Any error of a check counts as a failed check.
                raise healthz.UnhealthyError(f"checker {checker.name} failed: {err}") from err


def _notify(ctx: golang.Context) -> None:
    """Notify systemd, and try once more after an error. Raise OSError, or a ContextError once ctx is done."""
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
