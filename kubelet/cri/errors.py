"""Errors that a container runtime answers with, and the ones it names by their text.

Go: k8s.io/cri-api/pkg/errors/errors.go
"""

from __future__ import annotations

import grpc

from pkg import golang
from pkg.util import grpcstatus

# A runtime puts this word at the start of the message of a failed container creation.
ERR_IMAGE_VOLUME_MOUNT_FAILED = "ImageVolumeMountFailed"


class RemoteError(grpcstatus.StatusError):
    """A call that the runtime refused or that did not reach it.

    `code` tells which, `message` is the runtime's own text; as a string it reads as in Go.
    """


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

    It is a `golang.Canceled` too, so that whoever waits for that need not know of gRPC.
    """

    def __init__(self) -> None:
        RemoteError.__init__(self, grpc.StatusCode.CANCELLED, "context canceled")


def status_code(err: BaseException | None) -> grpc.StatusCode:
    """OK for None, UNKNOWN for what did not come from a call. Go: status.Code"""
    return grpcstatus.code(err) or grpc.StatusCode.UNKNOWN


def is_not_found(err: BaseException | None) -> bool:
    """Whether the runtime does not know the sandbox, container or image that was asked for."""
    return status_code(err) is grpc.StatusCode.NOT_FOUND
