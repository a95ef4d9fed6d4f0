"""Errors that a container runtime answers with, and the ones it names by their text.

Go: k8s.io/cri-api/pkg/errors/errors.go
"""

from __future__ import annotations

import grpc

from pkg import golang

# A runtime puts this word at the start of the message of a failed container creation.
ERR_IMAGE_VOLUME_MOUNT_FAILED = "ImageVolumeMountFailed"

# "NOT_FOUND" → "NotFound": the spelling of Go's codes, which is what users find in events.
_CODE_NAMES = {code: "".join(word.title() for word in code.name.split("_")) for code in grpc.StatusCode}
_CODE_NAMES[grpc.StatusCode.OK] = "OK"
_CODE_NAMES[grpc.StatusCode.CANCELLED] = "Canceled"


class RemoteError(Exception):
    """A call that the runtime refused or that did not reach it.

    `code` tells which, `message` is the runtime's own text; as a string it reads as in Go.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        Exception.__init__(self, code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"rpc error: code = {_CODE_NAMES[self.code]} desc = {self.message}"


class UncodedError(RemoteError):
    """A refusal whose code says nothing: it reads as the runtime's text alone."""

    def __init__(self, message: str) -> None:
        super().__init__(grpc.StatusCode.UNKNOWN, message)

    def __str__(self) -> str:
        return self.message


class InvalidResponseError(UncodedError, ValueError):
    """An answer that lacks what every runtime must say."""


class RemoteCanceledError(RemoteError, golang.Canceled):
    """The caller's context was cancelled while the call was under way.

    DIVERGES: it is a `golang.Canceled` too, so that whoever waits for that need not know of gRPC.
    """

    def __init__(self) -> None:
        RemoteError.__init__(self, grpc.StatusCode.CANCELLED, "context canceled")


def status_code(err: BaseException | None) -> grpc.StatusCode:
    """OK for None, UNKNOWN for what did not come from a call. Go: status.Code"""
    if err is None:
        return grpc.StatusCode.OK
    while err is not None:
        if isinstance(err, RemoteError):
            return err.code
        err = err.__cause__
    return grpc.StatusCode.UNKNOWN


def is_not_found(err: BaseException | None) -> bool:
    """Whether the runtime does not know the sandbox, container or image that was asked for."""
    return status_code(err) is grpc.StatusCode.NOT_FOUND
