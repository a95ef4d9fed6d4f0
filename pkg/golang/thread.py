"""Named threads: the only way this project starts one.

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

# Many threads only wait; the default of 8 MiB would make hundreds of them look like gigabytes. But Python 3.12 and 3.13
# may let code in C call itself ten thousand times, whatever the stack: to decode 10 KiB of JSON that is nothing but
# nested takes more than a MiB, and a stack that is used up ends the process. Older ones let that code do so a thousand
# times, as code in Python, and newer ones look at what is left of the stack.
_NEEDS_LARGE_STACKS = (3, 12) <= sys.version_info[:2] <= (3, 13)
_STACK_SIZE = 8 << 20 if _NEEDS_LARGE_STACKS else 512 << 10


# `group`: whose threads those are that this thread starts.
_current = threading.local()


class Thread(threading.Thread):
    """A thread started by `go`. Like a goroutine it does not keep the process alive; its owner joins it."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.group: ThreadGroup | None = getattr(_current, "group", None)

    def run(self) -> None:
        _current.group = self.group
        super().run()


class ThreadGroup:
    """All threads that its `with` block starts, that these start, and so on: one owner for what has many parts.

    Nothing in Go waits for goroutines that it does not know; who embeds a kubelet wants to see its end.
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
        """Wait until all have ended, for so many seconds at most; returns those that have not."""
        deadline = time.monotonic() + timeout
        while (alive := self.alive()) and (remaining := deadline - time.monotonic()) > 0:
            alive[0].join(remaining)
        return alive


class ThreadError(RuntimeError):
    """The machine has no more threads for this process, or no memory for one more. Go has no such error."""


def go(fn: Callable[..., object], *args: Any, name: str = "") -> Thread:
    """Run fn(*args) in a new thread. Name it after what it does and for whom: `podworker-<uid>`.

    Raises ThreadError when no thread can be started. The caller must then be as it was before, and try again later.
    """
    if threading.stack_size() != _STACK_SIZE:
        threading.stack_size(_STACK_SIZE)
    name = name or getattr(fn, "__name__", "go")
    try:
        thread = Thread(fn, args, name)
        thread.start()
    except (RuntimeError, MemoryError) as err:
        raise ThreadError(
            f"start thread {name!r} beside {threading.active_count()} others: {err or 'out of memory'}; "
            "the limit is TasksMax of the unit, pids.max of the cgroup, ulimit -u, or the memory"
        ) from err
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
