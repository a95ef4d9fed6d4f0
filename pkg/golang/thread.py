"""Start named threads. The project starts threads only through this module.

Go: runtime/proc.go (newproc), which the `go` statement calls, runtime/panic.go (fatalpanic)
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from pkg import klog

# Most threads only wait; with the default stack of 8 MiB, hundreds of threads would look like gigabytes of memory. But
# Python 3.12 and 3.13 let C code recurse ten thousand times, whatever the size of the stack: decoding 10 KiB of deeply
# nested JSON takes more than 1 MiB of stack, and a stack overflow kills the process. Older versions limit recursion in
# C code to a thousand calls, as in Python code, and newer versions check how much of the stack is left.
_NEEDS_LARGE_STACKS = (3, 12) <= sys.version_info[:2] <= (3, 13)
_STACK_SIZE = 8 << 20 if _NEEDS_LARGE_STACKS else 512 << 10


# `group` is the ThreadGroup of the threads that this thread starts.
_current = threading.local()


class Thread(threading.Thread):
    """Represent a thread started by `go`. Like a goroutine, it does not keep the process alive; its owner joins it."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.group: ThreadGroup | None = getattr(_current, "group", None)

    def run(self) -> None:
        _current.group = self.group
        super().run()


class ThreadGroup:
    """Collect all threads that the `with` block starts, directly or through other threads.

    So one owner can join them all.
    """

    def __enter__(self) -> Self:
        self._outer: ThreadGroup | None = getattr(_current, "group", None)
        _current.group = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.group = self._outer

    def alive(self) -> list[Thread]:
        return [each for each in threading.enumerate() if isinstance(each, Thread) and each.group is self]

    def join(self, timeout: float) -> list[Thread]:
        """Wait until all threads have ended, for at most `timeout` seconds. Return the threads that have not ended."""
        deadline = time.monotonic() + timeout
        while (alive := self.alive()) and (remaining := deadline - time.monotonic()) > 0:
            alive[0].join(remaining)
        return alive


class ThreadError(RuntimeError):
    """Signal that no thread can be started, because the process is at its thread limit or out of memory.

    Go has no such error.
    """


def go(fn: Callable[..., object], *args: Any, name: str = "") -> Thread:
    """Run fn(*args) in a new thread. Name the thread after its task and the object that it serves: `podworker-<uid>`.

    Raise ThreadError when no thread can be started. The caller must then restore its state, and try again later.
    """
    if threading.stack_size() != _STACK_SIZE:
        threading.stack_size(_STACK_SIZE)
    name = name or getattr(fn, "__name__", "go")
    try:
        thread = Thread(fn, args, name)
        thread.start()
    except (RuntimeError, MemoryError) as err:
        raise ThreadError(
            f"start thread {name!r} in addition to {threading.active_count()} threads: {err or 'out of memory'}; "
            "the limit is TasksMax of the unit, pids.max of the cgroup, ulimit -u, or the memory"
        ) from err
    return thread


def install_crash_handler() -> None:
    """End the process when an exception leaves a thread, as a panic does in Go.

    Otherwise the kubelet would continue without one of its parts.
    """
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
