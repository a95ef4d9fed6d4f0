"""Test the classification of connection errors."""

from __future__ import annotations

import errno

import pytest

from pkg.apimachinery.util.net import util


def wrapped(err: Exception) -> Exception:
    """Return the error as the cause of another one, as a client reports it."""
    try:
        try:
            raise err
        except Exception as cause:
            raise ValueError("Get https://example.com/") from cause
    except ValueError as outer:
        return outer


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
RESET = ConnectionResetError(errno.ECONNRESET, "connection reset by peer")


@pytest.mark.parametrize(
    ("err", "refused", "reset"),
    [
        (REFUSED, True, False),
        (RESET, False, True),
        (wrapped(REFUSED), True, False),
        (wrapped(wrapped(RESET)), False, True),
        (ValueError("connection refused"), False, False),
    ],
)
def test_connection_errors(err: Exception, refused: bool, reset: bool) -> None:
    assert (util.is_connection_refused(err), util.is_connection_reset(err)) == (refused, reset)
