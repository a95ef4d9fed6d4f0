"""Test the status of a call."""

from __future__ import annotations

import grpc

from pkg.util import grpcstatus


def test_of_a_long_text_the_beginning_is_kept() -> None:
    err = grpcstatus.StatusError(grpc.StatusCode.UNKNOWN, "a" * grpcstatus.MAX_TEXT_LENGTH + "b")
    assert err.message == "a" * grpcstatus.MAX_TEXT_LENGTH
    assert str(err) == f"rpc error: code = Unknown desc = {err.message}"
