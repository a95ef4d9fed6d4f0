"""What an error has beside its text. No counterpart in Go, where an error is a text."""

from __future__ import annotations

from typing import TypeVar

_E = TypeVar("_E", bound=BaseException)


def without_frames(err: _E) -> _E:
    """The error, once it and all that it goes back to have forgotten the frames that they have passed.

    For one that is kept, or returned. A frame has all that its function had at hand, and the frame of its caller with
    the same. If one of these has the error in a variable, too, they would stay until garbage is collected.
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
