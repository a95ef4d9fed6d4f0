"""Contain the failure of work for one pod, client, plugin or file.

Go: k8s.io/apimachinery/pkg/util/runtime/runtime.go
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pkg import klog
from pkg.golang.context import Context, ContextError


@contextmanager
def contain(message: str, ctx: Context | None = None, /, **keys: object) -> Iterator[None]:
    """Log an exception that leaves the block, with its stack, and continue after the block.

    Use this around the smallest step that serves one pod, client, plugin or file, inside the loop that serves them all.
    Python raises exceptions where Go has no counterpart (RecursionError, UnicodeError, "can't start new thread"), and
    an exception that leaves a thread ends the process.

    A ContextError passes through, because it ends the caller too. If the caller passes its ctx, a ContextError passes
    through only once that ctx is done; until then the error comes from a call that had a timeout of its own or that
    another thread cancelled. The function is thread-safe.
    """
    try:
        yield
    except Exception as err:
        # By using this function, the caller decides that a failure of one object must not affect others.
        if isinstance(err, ContextError) and (ctx is None or ctx.err() is not None):
            raise
        klog.error_s(err, message, **keys, stacktrace=klog.stacktrace(err))
