"""Contain the failure of work that is done for one pod, client, plugin or file.

Go: k8s.io/apimachinery/pkg/util/runtime/runtime.go
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pkg import klog
from pkg.golang.context import Context, ContextError


@contextmanager
def contain(message: str, ctx: Context | None = None, /, **keys: object) -> Iterator[None]:
    """Log an exception that leaves the block, with its stack, and go on after the block.

    Use it around the smallest step that serves one pod, client, plugin or file, inside the loop that serves them
    all: Python raises where Go has no counterpart (RecursionError, UnicodeError, "can't start new thread"), and an
    exception that leaves a thread ends the process. A ContextError passes through, because it ends the caller too;
    if the caller's ctx is given, then only once that has ended: until then the error is of a call whose own time was
    over, or that somebody else has cancelled. Safe for use by several threads.
    """
    try:
        yield
    except Exception as err:
        # The caller decides by using this function that nobody else may suffer for the failure.
        if isinstance(err, ContextError) and (ctx is None or ctx.err() is not None):
            raise
        klog.error_s(err, message, **keys, stacktrace=klog.stacktrace(err))
