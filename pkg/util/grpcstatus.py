"""Represent errors of gRPC calls with the codes and texts that users of Go programs know from events.

Go: google.golang.org/grpc/status
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

# "NOT_FOUND" becomes "NotFound", the spelling of Go's codes, which users see in events.
_CODE_NAMES = {code: "".join(word.title() for word in code.name.split("_")) for code in grpc.StatusCode}
_CODE_NAMES[grpc.StatusCode.OK] = "OK"
_CODE_NAMES[grpc.StatusCode.CANCELLED] = "Canceled"

# At most this many characters of a server's text are kept. A failure is logged several times, and quoting a text
# temporarily takes about 70 bytes for each character. The text may contain what a registry has sent.
MAX_TEXT_LENGTH = 64 << 10

CLIENT_CONN_CLOSING = "grpc: the client connection is closing"


class StatusError(Exception):
    """Signal a call that the server refused or that did not reach it. `message` is the server's own text.

    DIVERGES (safer): this kubelet keeps only the first MAX_TEXT_LENGTH characters of a server's error text.
    Go: google.golang.org/grpc/internal/status/status.go, FromProto: the Go kubelet has no bound.
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
    """Return the code's name in Go's spelling."""
    return _CODE_NAMES[code]


def code(err: BaseException | None) -> grpc.StatusCode | None:
    """Return the code of the error, or of the nearest of its causes that comes from a call.

    Return OK for None, and None if the error does not come from a call.
    """
    if err is None:
        return grpc.StatusCode.OK
    while err is not None:
        if isinstance(err, StatusError):
            return err.code
        err = err.__cause__
    return None


def client_conn_closing() -> StatusError:
    """Return the error of a call that starts on a closed connection.

    Go: grpc.ErrClientConnClosing
    """
    return StatusError(grpc.StatusCode.CANCELLED, CLIENT_CONN_CLOSING)


def leave_frames(err: BaseException) -> None:
    """Drop the frames that a caught gRPC error refers to.

    The error is also the call itself, and those frames refer to the call. Error, request and the callers' variables
    would stay in memory together until the garbage collector runs.
    """
    err.with_traceback(None)


def from_call(err: Any, addr: str) -> StatusError:
    """Convert the failure of a call on the socket at `addr` to a StatusError.

    The text is Go's where Python's gRPC has its own.
    """
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
