"""Test that errors drop the frames that they refer to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pkg.golang import without_frames
from pkg.golang.testing import frames_kept_after


def _raise() -> None:
    raise ValueError("bad")


def _with_cause() -> None:
    try:
        _raise()
    except ValueError as err:
        raise RuntimeError("worse") from err


def _with_context() -> None:
    try:
        _raise()
    except ValueError:
        raise RuntimeError("worse") from None


def _with_parts() -> None:
    errors: list[Exception] = []
    for fail in (_with_cause, _with_context):
        try:
            fail()
        except RuntimeError as err:
            errors.append(err)
    raise ExceptionGroup("several", errors)


def _result_of(fail: Callable[[], None]) -> Exception | None:
    try:
        fail()
    except Exception as err:
        return without_frames(err)
    return None


@pytest.mark.parametrize("fail", [_raise, _with_cause, _with_context])
def test_error_that_is_returned_keeps_no_frames(fail: Callable[[], None]) -> None:
    def ask() -> None:
        result = _result_of(fail)
        assert result is not None

    assert frames_kept_after(ask) == []


def test_neither_do_the_parts_of_one() -> None:
    def ask() -> list[str]:
        result = _result_of(_with_parts)
        assert isinstance(result, ExceptionGroup)
        return [str(each) for each in result.exceptions]

    assert ask() == ["worse", "worse"]
    # The code that creates the group holds its parts in a list.
    assert "ask" not in frames_kept_after(ask)


def test_error_that_goes_back_to_itself() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__context__ = second, first
    assert without_frames(first) is first
