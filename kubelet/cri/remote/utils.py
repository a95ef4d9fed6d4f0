"""Check the responses of a runtime before other code relies on them.

Go: k8s.io/cri-client/pkg/utils.go
"""

from __future__ import annotations

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import errors

# gRPC's default of 4 MiB is too small for the lists of a busy node.
MAX_MSG_SIZE = 16 * 1024 * 1024


def verify_sandbox_status(status: runtimeapi.PodSandboxStatus, sandbox_id: str) -> None:
    """Raise errors.InvalidResponseError, which names the first missing field or the unexpected id."""
    _verify_id(status.id, sandbox_id)
    if not status.HasField("metadata"):
        raise errors.InvalidResponseError("status.Metadata is not set")
    metadata = status.metadata
    if not metadata.name or not metadata.namespace or not metadata.uid:
        raise errors.InvalidResponseError(
            f"metadata.Name, metadata.Namespace or metadata.Uid is not in metadata {_one_line(metadata)!r}"
        )
    if not status.created_at:
        raise errors.InvalidResponseError("status.CreatedAt is not set")


def verify_container_status(status: runtimeapi.ContainerStatus, container_id: str) -> None:
    """Raise the same errors as verify_sandbox_status."""
    _verify_id(status.id, container_id)
    if not status.HasField("metadata"):
        raise errors.InvalidResponseError("status.Metadata is not set")
    if not status.metadata.name:
        raise errors.InvalidResponseError(f"metadata.Name is not in metadata {_one_line(status.metadata)!r}")
    if not status.created_at:
        raise errors.InvalidResponseError("status.CreatedAt is not set")
    if not status.image.image:
        raise errors.InvalidResponseError("status.Image is not set")
    if not status.image_ref:
        raise errors.InvalidResponseError("status.ImageRef is not set")


def _verify_id(found: str, asked: str) -> None:
    """Raise errors.InvalidResponseError if the ids differ.

    DIVERGES (safer): the kubelet rejects a status with another id than the requested one.
    Go: k8s.io/cri-client/pkg/utils.go, verifyContainerStatus: the Go kubelet accepts any id that is not empty.
    Why: the pod would keep the status of another container or sandbox until its next change.
    Test: remote_runtime_test.py:test_status_of_another_container_or_sandbox_is_refused
    """
    if not found:
        raise errors.InvalidResponseError("status.Id is not set")
    if found != asked:
        raise errors.InvalidResponseError(f"status.Id is {found!r}, but the request was for {asked!r}")


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
