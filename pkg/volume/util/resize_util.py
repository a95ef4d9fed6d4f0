"""Record the expansion of a volume in its claim's status, and expand file systems.

This module has only the part of Go's file that runs on a node.

Go: pkg/volume/util/resize_util.go
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pkg import golang, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import strategicpatch
from pkg.util import exec as utilexec

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

KNOWN_RESIZE_CONDITIONS = frozenset(
    {
        v1.PERSISTENT_VOLUME_CLAIM_FILE_SYSTEM_RESIZE_PENDING,
        v1.PERSISTENT_VOLUME_CLAIM_RESIZING,
        v1.PERSISTENT_VOLUME_CLAIM_CONTROLLER_RESIZE_ERROR,
        v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_ERROR,
    }
)


def mark_fs_resize_finished(
    pvc: v1.PersistentVolumeClaim, new_size: Quantity, kube_client: kubernetes.Interface
) -> v1.PersistentVolumeClaim:
    """Record in the claim's status that the file system has the new size."""
    new_pvc = v1.deepcopy(pvc)
    new_pvc.status.capacity[v1.RESOURCE_STORAGE] = new_size
    new_pvc.status.allocated_resource_statuses.pop(v1.RESOURCE_STORAGE, None)
    merge_resize_condition_on_pvc(new_pvc, [], keep_old_resize_conditions=False)
    return patch_pvc_status(pvc, new_pvc, kube_client)


def mark_node_expansion_finished_with_recovery(
    pvc: v1.PersistentVolumeClaim, new_size: Quantity, kube_client: kubernetes.Interface
) -> v1.PersistentVolumeClaim:
    """Record the end of the expansion, as mark_fs_resize_finished does."""
    return mark_fs_resize_finished(pvc, new_size, kube_client)


def mark_node_expansion_infeasible(
    pvc: v1.PersistentVolumeClaim, kube_client: kubernetes.Interface, err: Exception
) -> v1.PersistentVolumeClaim:
    """Record that the node can never expand the volume to this size, so that the controller may try another one."""
    new_pvc = v1.deepcopy(pvc)
    new_pvc.status.allocated_resource_statuses[v1.RESOURCE_STORAGE] = v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_INFEASIBLE
    return _patch_with_error_condition(pvc, new_pvc, kube_client, err)


def mark_node_expansion_failed_condition(
    pvc: v1.PersistentVolumeClaim, kube_client: kubernetes.Interface, err: Exception
) -> v1.PersistentVolumeClaim:
    """Record that the node failed to expand the volume and will try again."""
    return _patch_with_error_condition(pvc, v1.deepcopy(pvc), kube_client, err)


def mark_node_expansion_in_progress(
    pvc: v1.PersistentVolumeClaim, kube_client: kubernetes.Interface
) -> v1.PersistentVolumeClaim:
    new_pvc = v1.deepcopy(pvc)
    new_pvc.status.allocated_resource_statuses[v1.RESOURCE_STORAGE] = v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_IN_PROGRESS
    return patch_pvc_status(pvc, new_pvc, kube_client)


def patch_pvc_status(
    old_pvc: v1.PersistentVolumeClaim,
    new_pvc: v1.PersistentVolumeClaim,
    kube_client: kubernetes.Interface,
    add_resource_version_check: bool = True,
) -> v1.PersistentVolumeClaim:
    """Send only the changed fields, so that fields that this code does not know survive.

    By default the patch fails if the claim has changed since. Raise any error of the client.
    """
    patch = create_pvc_patch(old_pvc, new_pvc, add_resource_version_check)
    claims = kube_client.core_v1.persistent_volume_claims(old_pvc.metadata.namespace)
    ctx = golang.background()
    return claims.patch(ctx, old_pvc.metadata.name, types.PatchType.STRATEGIC_MERGE, patch, None, "status")


def create_pvc_patch(
    old_pvc: v1.PersistentVolumeClaim, new_pvc: v1.PersistentVolumeClaim, add_resource_version_check: bool
) -> bytes:
    patch = strategicpatch.create_two_way_merge_map_patch(
        codec.to_builtins(old_pvc), codec.to_builtins(new_pvc), v1.PersistentVolumeClaim
    )
    if add_resource_version_check:
        patch.setdefault("metadata", {})["resourceVersion"] = old_pvc.metadata.resource_version
    return codec.encode_json(patch, sort_keys=True)


def merge_resize_condition_on_pvc(
    pvc: v1.PersistentVolumeClaim,
    resize_conditions: Sequence[v1.PersistentVolumeClaimCondition],
    keep_old_resize_conditions: bool,
) -> v1.PersistentVolumeClaim:
    """Merge the conditions into the claim, in place. A condition whose status does not change stays as it is."""
    wanted = {condition.type: condition for condition in resize_conditions}
    merged: list[v1.PersistentVolumeClaimCondition] = []
    for condition in pvc.status.conditions:
        new = wanted.pop(condition.type, None) if condition.type in KNOWN_RESIZE_CONDITIONS else None
        if new is not None:
            merged.append(new if new.status != condition.status else condition)
        elif condition.type not in KNOWN_RESIZE_CONDITIONS or keep_old_resize_conditions:
            merged.append(condition)
    pvc.status.conditions = [*merged, *wanted.values()]
    return pvc


def generic_resize_fs(device_path: str, device_mount_path: str) -> bool:
    """Expand the file system to the size of its device. Report whether its type can be expanded. Raise OSError."""
    return mount_utils.ResizeFs(utilexec.Executor()).resize(device_path, device_mount_path)


def _patch_with_error_condition(
    pvc: v1.PersistentVolumeClaim,
    new_pvc: v1.PersistentVolumeClaim,
    kube_client: kubernetes.Interface,
    err: Exception,
) -> v1.PersistentVolumeClaim:
    condition = v1.PersistentVolumeClaimCondition(
        type=v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_ERROR,
        status=v1.CONDITION_TRUE,
        last_transition_time=_now(),
        message=f"failed to expand pvc with {err}",
    )
    merge_resize_condition_on_pvc(new_pvc, [condition], keep_old_resize_conditions=True)
    return patch_pvc_status(pvc, new_pvc, kube_client, add_resource_version_check=False)


def _now() -> datetime:
    return clocklib.RealClock().now().replace(microsecond=0)
