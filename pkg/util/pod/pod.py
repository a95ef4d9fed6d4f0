"""Read and patch the status of pods.

Go: pkg/util/pod/pod.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import strategicpatch

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """Describe the result of patching a pod's status."""

    # `pod` is the pod as the server returned it, or None if nothing changed, because then no call was made.
    pod: v1.Pod | None
    patch: bytes


def patch_pod_status(
    ctx: golang.Context,
    client: kubernetes.Interface,
    namespace: str,
    name: str,
    uid: types.UID,
    old_pod_status: v1.PodStatus,
    new_pod_status: v1.PodStatus,
) -> StatusPatch:
    """Change the pod's status on the server from the old status to the new one.

    The patch contains only the differences between the two statuses, so that fields of other writers and of newer
    versions survive. The patch also contains the UID, so that it cannot change a new pod of the same name. Raise what
    the client raises.
    """
    status = strategicpatch.create_two_way_merge_map_patch(
        codec.to_builtins(old_pod_status), codec.to_builtins(new_pod_status), v1.PodStatus
    )
    changes = {"metadata": {"uid": uid}, **({"status": status} if status else {})}
    patch = codec.encode_json(changes, sort_keys=True)
    if not status:
        return StatusPatch(None, patch)
    pods = client.core_v1.pods(namespace)
    patch_type = types.PatchType.STRATEGIC_MERGE
    pod = _readable(lambda: pods.patch(ctx, name, patch_type, patch, None, "status"))
    return StatusPatch(pod, patch)


def get_pod(ctx: golang.Context, client: kubernetes.Interface, namespace: str, name: str) -> v1.Pod:
    """Return the pod from the server, without the parts that cannot be decoded. Raise what the client raises.

    DIVERGES (safer): this kubelet uses the decodable parts of a pod that cannot be decoded completely.
    Go: pkg/kubelet/status/status_manager.go, (*manager).syncPod: the Go kubelet fails for such a pod.
    Why: the status of the pod would never be written, and the pod would never be deleted.
    Test: kubelet/status/status_manager_test.py:test_delete_pod_that_cannot_be_decoded
    """
    return _readable(lambda: client.core_v1.pods(namespace).get(ctx, name))


def _readable(call: Callable[[], v1.Pod]) -> v1.Pod:
    from pkg.apimachinery import watch  # This import is not needed without an API server.

    try:
        return call()
    except watch.UndecodableError as err:
        if err.partial is None:
            raise
        klog.error_s(err, "Unable to decode parts of a pod, continuing without them", pod=klog.kobj(err.partial))
        partial: v1.Pod = err.partial
        return partial


def replace_or_append_pod_condition(
    conditions: Sequence[v1.PodCondition], condition: v1.PodCondition
) -> list[v1.PodCondition]:
    """Return the conditions with this one in place of the condition of the same type, or at the end."""
    index, _ = podutil.get_pod_condition_from_list(conditions, condition.type)
    if index < 0:
        return [*conditions, condition]
    return [*conditions[:index], condition, *conditions[index + 1 :]]
