"""Provide exceptions of Python without a counterpart in Go, for tests that they do not end a shared thread."""

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

# This decorator runs a test once for each exception, as `err`.
failures = pytest.mark.parametrize("err", FAILURES, ids=lambda err: type(err).__name__)


def failing_once(fn: Callable[_P, _T], err: Exception, about: str = "") -> Callable[_P, _T]:
    """Return a version of fn whose first call raises err.

    With `about`, the call that fails is the first whose arguments contain this text.
    """
    failed: list[bool] = []

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not failed and about in str(args):
            failed.append(True)
            raise err.with_traceback(None)
        return fn(*args, **kwargs)

    return call


def raising(err: Exception) -> Callable[..., Any]:
    """Return a function that raises err for any arguments."""

    def call(*args: object, **kwargs: object) -> Any:
        raise err.with_traceback(None)

    return call
