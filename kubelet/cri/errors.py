"""Define the errors of calls to a container runtime.

Go: k8s.io/cri-api/pkg/errors/errors.go
"""

from __future__ import annotations

import grpc

from pkg import golang
from pkg.util import grpcstatus

# A runtime puts this word at the start of the message of a failed container creation.
ERR_IMAGE_VOLUME_MOUNT_FAILED = "ImageVolumeMountFailed"


class RemoteError(grpcstatus.StatusError):
    """Signal that the runtime refused a call or could not be reached.

    `code` is the gRPC status code, `message` the runtime's text. The string form is that of Go.
    """


class UncodedError(RemoteError):
    """Signal an error whose code has no meaning; the string form is the runtime's text alone."""

    def __init__(self, message: str) -> None:
        super().__init__(grpc.StatusCode.UNKNOWN, message)

    def __str__(self) -> str:
        return self.message


class InvalidResponseError(UncodedError, ValueError):
    """Signal that a response lacks a required field."""


class RemoteCanceledError(RemoteError, golang.Canceled):
    """Signal that the caller's context was cancelled during the call.

    The class is a `golang.Canceled` too, so that callers that handle `Canceled` need not know gRPC.
    """

    def __init__(self) -> None:
        RemoteError.__init__(self, grpc.StatusCode.CANCELLED, "context canceled")


def status_code(err: BaseException | None) -> grpc.StatusCode:
    """Return the error's code: OK for None, UNKNOWN for an error that is not from a call.

    Go: status.Code
    """
    return grpcstatus.code(err) or grpc.StatusCode.UNKNOWN


def is_not_found(err: BaseException | None) -> bool:
    """Report whether the runtime does not know the sandbox, container or image."""
    return status_code(err) is grpc.StatusCode.NOT_FOUND
