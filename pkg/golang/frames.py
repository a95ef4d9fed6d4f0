"""Free the frames that an error refers to.

Go has no counterpart, because an error in Go refers to no frames.
"""

from __future__ import annotations

from typing import TypeVar

_E = TypeVar("_E", bound=BaseException)


def without_frames(err: _E) -> _E:
    """Drop the tracebacks of the error and of its causes and contexts, and return the error.

    Use this for an error that is stored or returned. A traceback refers to frames, and each frame refers to the local
    variables of its function and to the frame of the caller. If one of these variables also refers to the error,
    everything stays in memory until the garbage collector runs.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [err]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.with_traceback(None)
        left += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
    return err
