"""Create and delete mirror pods in the API server.

Go: pkg/kubelet/pod/mirror_client.go
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime import contain

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


# `TIMEOUT` is the time, in seconds, that the API server has to respond to a request.
# DIVERGES (safer): the kubelet gives up a request that takes longer, and repeats it at the static pod's next sync.
# Go: pkg/kubelet/pod/mirror_client.go, (*basicMirrorClient).CreateMirrorPod: the Go kubelet has no time limit of its
# own.
# Why: the containers of a static pod would not start while the API server does not respond.
# Test: pod_manager_test.py:test_mirror_client_gives_up_on_an_api_server_that_does_not_answer
TIMEOUT = 5.0


class NodeUIDError(Exception):
    """Signal that the UID of this node, which owns the mirror pods, is unknown."""


class MirrorClient(Protocol):
    """Define the operations on mirror pods in the API server."""

    def create_mirror_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Create the mirror pod of a static pod. An equal existing mirror pod is not an error."""
        ...

    def delete_mirror_pod(self, ctx: golang.Context, pod_full_name: str, uid: types.UID | None) -> bool:
        """Delete the mirror pod, if `uid` is None or matches; report whether it was deleted.

        Raise ValueError for an invalid name. Errors of the API server are only logged.
        """
        ...

    def delete_in_background(self, ctx: golang.Context, uids_by_full_name: Mapping[str, types.UID]) -> None:
        """Delete mirror pods for a caller that cannot wait for the API server; log the errors.

        A mirror pod with another UID stays, because a new pod may have taken the name by the time of the deletion.
        """
        ...


class NodeGetter(Protocol):
    """Define the part of a node lister that the kubelet needs."""

    def get(self, name: str) -> v1.Node:
        """Return the node, which is shared and must not be modified. Raise apierrors.StatusError if it is not found."""
        ...


class BasicMirrorClient:
    """Create and delete mirror pods with an API client; without one, as in standalone mode, do nothing."""

    def __init__(
        self, apiserver_client: kubernetes.Interface | None, node_name: str, node_getter: NodeGetter | None
    ) -> None:
        """Set up the client. An API client requires a node_getter."""
        self._apiserver_client = apiserver_client
        self._node_name = node_name
        self._node_getter = node_getter
        self._lock = threading.Lock()  # This lock guards _deleting.
        self._deleting: set[str] = set()  # These are full names of pods that are being deleted in the background.

    def create_mirror_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Create the mirror pod.

        Raise NodeUIDError if the node has no UID yet, the errors of the API server, and a timeout.
        """
        client = self._apiserver_client
        if client is None:
            return
        mirror = v1.deepcopy(pod)
        hash = get_pod_hash(pod)
        mirror.metadata.annotations[kubetypes.CONFIG_MIRROR_ANNOTATION_KEY] = hash
        # The API server requires that the node owns its mirror pods.
        owner = metav1.OwnerReference(
            api_version="v1", kind="Node", name=self._node_name, uid=self._get_node_uid(), controller=True
        )
        mirror.metadata.owner_references = [owner]
        pods = client.core_v1.pods(mirror.metadata.namespace)
        ctx, cancel = golang.with_timeout(ctx, TIMEOUT)
        try:
            pods.create(ctx, mirror)
        except apierrors.StatusError as err:
            if not apierrors.is_already_exists(err):
                raise
            if get_hash_from_mirror_pod(pods.get(ctx, mirror.metadata.name)) != hash:
                raise
        finally:
            cancel()

    def delete_mirror_pod(self, ctx: golang.Context, pod_full_name: str, uid: types.UID | None) -> bool:
        if self._apiserver_client is None:
            return False
        try:
            name, namespace = kubecontainer.parse_pod_full_name(pod_full_name)
        except ValueError as err:
            klog.error_s(err, "Failed to parse a pod full name", podFullName=pod_full_name)
            raise
        ref = klog.kref(namespace, name)
        klog.v(2).info_s("Deleting a mirror pod", pod=ref, podUID=uid or "")
        options = metav1.DeleteOptions(grace_period_seconds=0)
        if uid is not None:
            options.preconditions = metav1.Preconditions(uid=uid)
        ctx, cancel = golang.with_timeout(ctx, TIMEOUT)
        try:
            self._apiserver_client.core_v1.pods(namespace).delete(ctx, name, options)
        except Exception as err:  # The next sync tries again.
            if not (apierrors.is_not_found(err) or apierrors.is_conflict(err)):
                klog.error_s(err, "Failed deleting a mirror pod", pod=ref)
            return False
        finally:
            cancel()
        return True

    def delete_in_background(self, ctx: golang.Context, uids_by_full_name: Mapping[str, types.UID]) -> None:
        if self._apiserver_client is None:
            return
        with self._lock:
            new = {name: uid for name, uid in uids_by_full_name.items() if name not in self._deleting}
            self._deleting |= new.keys()
        if not new:
            return
        try:
            golang.go(self._delete_and_forget, ctx, new, name="mirror-pod-deletion")
        except golang.ThreadError:
            # The next housekeeping finds these mirror pods again.
            self._forget(*new)
            raise

    def _delete_and_forget(self, ctx: golang.Context, uids_by_full_name: Mapping[str, types.UID]) -> None:
        """Delete the mirror pods one after another, because there may not be enough threads for all of them."""
        for full_name, uid in uids_by_full_name.items():
            try:
                with contain("Failed deleting a mirror pod", golang.background(), podFullName=full_name):
                    self.delete_mirror_pod(ctx, full_name, uid)
            finally:
                self._forget(full_name)

    def _forget(self, *full_names: str) -> None:
        with self._lock:
            self._deleting.difference_update(full_names)

    def _get_node_uid(self) -> types.UID:
        assert self._node_getter is not None
        try:
            node = self._node_getter.get(self._node_name)
        except Exception as err:
            # Whatever the error is, the API server would reject the mirror pod without the UID of its owner.
            raise NodeUIDError(f"failed to get node UID: {err}") from err
        if not node.metadata.uid:
            raise NodeUIDError(f"failed to get node UID: UID unset for node {self._node_name}")
        return node.metadata.uid


def get_hash_from_mirror_pod(pod: v1.Pod) -> str | None:
    """Return the hash of the static pod that the mirror pod represents, or None if the pod is not a mirror pod."""
    return pod.metadata.annotations.get(kubetypes.CONFIG_MIRROR_ANNOTATION_KEY)


def get_pod_hash(pod: v1.Pod) -> str:
    """Return a static pod's hash, which its source has written into an annotation."""
    return pod.metadata.annotations.get(kubetypes.CONFIG_HASH_ANNOTATION_KEY, "")
