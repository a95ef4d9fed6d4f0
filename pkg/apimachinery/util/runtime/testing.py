"""What Python raises where Go has no counterpart: for tests of what must not leave the thread that serves all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import pytest

_P = ParamSpec("_P")
_T = TypeVar("_T")

FAILURES: tuple[Exception, ...] = (
    RecursionError("maximum recursion depth exceeded"),
    RuntimeError("can't start new thread"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    MemoryError(),
)

# Runs a test once with each of them as `err`.
failures = pytest.mark.parametrize("err", FAILURES, ids=lambda err: type(err).__name__)


def failing_once(fn: Callable[_P, _T], err: Exception, about: str = "") -> Callable[_P, _T]:
    """fn, but its first call raises err: with `about`, the first one that has that text in its arguments."""
    failed: list[bool] = []

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not failed and about in str(args):
            failed.append(True)
            raise err.with_traceback(None)
        return fn(*args, **kwargs)

    return call


def raising(err: Exception) -> Callable[..., Any]:
    """A function that raises err whatever it is called with."""

    def call(*args: object, **kwargs: object) -> Any:
        raise err.with_traceback(None)

    return call
