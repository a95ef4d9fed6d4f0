"""Named threads: the only way this project starts one.

Go: the `go` statement, and the crash of the process when a goroutine panics
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from pkg import klog

# Many threads only wait; the default of 8 MiB would make hundreds of them look like gigabytes.
_STACK_SIZE = 512 * 1024


class Thread(threading.Thread):
    """A thread started by `go`. Like a goroutine it does not keep the process alive; its owner joins it."""


def go(fn: Callable[..., object], *args: Any, name: str = "") -> Thread:
    """Run fn(*args) in a new thread. Name it after what it does and for whom: `podworker-<uid>`."""
    if threading.stack_size() != _STACK_SIZE:
        threading.stack_size(_STACK_SIZE)
    thread = Thread(target=fn, args=args, name=name or getattr(fn, "__name__", "go"), daemon=True)
    thread.start()
    return thread


def install_crash_handler() -> None:
    """Make an exception that leaves a thread end the process, as a panic does in Go: no half-dead kubelet."""
    threading.excepthook = _crash


def _crash(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:
        return
    try:
        name = args.thread.name if args.thread else "unknown"
        trace = klog.stacktrace(args.exc_value)
        klog.error_s(args.exc_value, "Observed a panic", thread=name, stacktrace=trace)
        klog.flush()
    finally:
        os._exit(2)
