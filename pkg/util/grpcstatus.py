"""Errors of gRPC calls, with the codes and texts that Go's users know from events.

Go: google.golang.org/grpc/status
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

# "NOT_FOUND" → "NotFound": the spelling of Go's codes, which is what users find in events.
_CODE_NAMES = {code: "".join(word.title() for word in code.name.split("_")) for code in grpc.StatusCode}
_CODE_NAMES[grpc.StatusCode.OK] = "OK"
_CODE_NAMES[grpc.StatusCode.CANCELLED] = "Canceled"

# As much of a server's text as is kept, in characters. A failure is logged several times, and quoting a text takes some
# 70 bytes for each of its characters meanwhile; what a registry has sent may be part of it.
MAX_TEXT_LENGTH = 64 << 10

CLIENT_CONN_CLOSING = "grpc: the client connection is closing"


class StatusError(Exception):
    """A call that was refused or that did not arrive: `code` tells which, `message` is the server's own text.

    DIVERGES (safer): of a longer text the beginning is kept.
    Go: google.golang.org/grpc/internal/status/status.go, FromProto: has no bound.
    Why: a runtime or a plugin could fill the memory, the log and the events with its errors.
    Test: grpcstatus_test.py:test_of_a_long_text_the_beginning_is_kept
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        message = message[:MAX_TEXT_LENGTH]
        Exception.__init__(self, code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"rpc error: code = {code_name(self.code)} desc = {self.message}"


def code_name(code: grpc.StatusCode) -> str:
    """As Go spells it."""
    return _CODE_NAMES[code]


def code(err: BaseException | None) -> grpc.StatusCode | None:
    """OK for None, and None for what did not come from a call."""
    if err is None:
        return grpc.StatusCode.OK
    while err is not None:
        if isinstance(err, StatusError):
            return err.code
        err = err.__cause__
    return None


def client_conn_closing() -> StatusError:
    """What becomes of a call that begins when its connection is closed. Go: grpc.ErrClientConnClosing"""
    return StatusError(grpc.StatusCode.CANCELLED, CLIENT_CONN_CLOSING)


def leave_frames(err: BaseException) -> None:
    """Have an error of gRPC that was caught forget the frames that it has passed.

    It is the call itself, which those frames have at hand. Together they would stay, with the request and all that the
    callers have, until garbage is collected.
    """
    err.with_traceback(None)


def from_call(err: Any, addr: str) -> StatusError:
    """The failure of a call of the socket at addr, in the words of Go's gRPC where this one has its own."""
    leave_frames(err)
    code, details = err.code(), err.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
        reason = "connection refused" if Path(addr).exists() else "no such file or directory"
        details = f'connection error: desc = "transport: Error while dialing: dial unix {addr}: connect: {reason}"'
    elif code is grpc.StatusCode.UNAVAILABLE and "Socket closed" in details:
        details = "error reading from server: EOF"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED and details == "Deadline Exceeded":
        details = "context deadline exceeded"
    return StatusError(code, details)
