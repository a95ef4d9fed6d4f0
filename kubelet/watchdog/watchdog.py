"""Tells systemd again and again that the kubelet is well, if the unit says WatchdogSec: systemd kills it otherwise.

Go: pkg/kubelet/watchdog/watchdog_linux.go
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.util import sdnotify

# How often it is tried to tell systemd, and the seconds between two tries.
_TRIES = 2
_RETRY_PERIOD = 1.0


def start(ctx: golang.Context, check: Callable[[], object]) -> None:
    """Tell systemd while `check` raises nothing, on a thread that ends with ctx. Nothing to do without a watchdog.

    Raises ValueError when systemd's settings cannot be read.

    Go also checks whether the log takes what is written. If it does not, the sync loop soon stands still.
    """
    try:
        timeout = sdnotify.watchdog_timeout()
    except ValueError as err:
        raise ValueError(f"configure watchdog: {err}") from err
    if timeout is None:
        klog.info_s("Systemd watchdog is not enabled")
        return
    period = timeout / 2
    klog.info_s("Starting systemd watchdog with interval", interval=period)
    golang.go(wait.until, functools.partial(_tell, ctx, check), period, ctx, name="systemd-watchdog")


def _tell(ctx: golang.Context, check: Callable[[], object]) -> None:
    try:
        check()
    except Exception as err:
        # systemd is not told, and kills the kubelet unless it is well in time.
        klog.error_s(err, "Do not notify watchdog this iteration as the kubelet is reportedly not healthy")
        return
    for _ in range(_TRIES):
        try:
            sdnotify.notify(sdnotify.WATCHDOG)
            return
        except OSError as err:
            klog.error_s(err, "Failed to notify watchdog")
        if ctx.wait(_RETRY_PERIOD):
            return
