"""Makes the node's CSINode object and keeps its annotation right. Drivers do not come into it yet.

Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager.go
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

MIGRATED_PLUGINS_ANNOTATION_KEY = "storage.alpha.kubernetes.io/migrated-plugins"
_UPDATE_ATTEMPTS = 4


class NodeInfoManager:
    """Thread-safe."""

    def __init__(
        self,
        node_name: str,
        kube_client: kubernetes.Interface,
        migrated_plugins: Collection[str],
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._node_name = node_name
        self._kube_client = kube_client
        self._migrated_plugins = frozenset(migrated_plugins)
        self._clock = clock or clocklib.RealClock()

    def initialize_csi_node_with_annotation(self, ctx: golang.Context) -> None:
        """See that the CSINode exists, belongs to this node and names the migrated plugins.

        Raises RuntimeError after a few attempts, and ctx.err() once ctx is done.
        """
        backoff = wait.Backoff(duration=0.01, factor=5.0, jitter=0.1, steps=_UPDATE_ATTEMPTS)
        last: Exception | None = None
        for attempt in range(_UPDATE_ATTEMPTS):
            if attempt > 0:
                wait.pause(ctx, backoff.step(), self._clock)
            try:
                self._try_initialize(ctx)
                return
            except golang.ContextError:
                raise
            except Exception as err:
                # The node may not be registered yet.
                klog.v(2).info_s("Failed to publish CSINode", err=err)
                last = err
        raise RuntimeError(
            f"error updating CSINode annotation: timed out waiting for the condition; caused by: {last}"
        ) from last

    def _try_initialize(self, ctx: golang.Context) -> None:
        node_id = self._kube_client.core_v1.nodes().get(ctx, self._node_name).metadata.uid
        try:
            csi_node = self._kube_client.storage_v1.csi_nodes().get(ctx, self._node_name)
        except apierrors.StatusError as err:
            if not apierrors.is_not_found(err):
                raise
            self.create_csi_node(ctx, node_id)
            return
        self._ensure_node_owns_csi_node(ctx, csi_node, node_id)
        csi_node = metav1.deepcopy(csi_node)
        if self._set_migration_annotation(csi_node):
            self._kube_client.storage_v1.csi_nodes().update(ctx, csi_node)

    def _ensure_node_owns_csi_node(self, ctx: golang.Context, csi_node: storagev1.CSINode, node_id: str) -> None:
        """Deletes one that is left of an older node of the name, and raises, for the next attempt to make a new one."""
        owners = [owner for owner in csi_node.metadata.owner_references if owner.kind == "Node"]
        if any(owner.name == self._node_name and owner.uid == node_id for owner in owners):
            return
        old = owners[-1].uid if owners else ""
        klog.v(2).info_s(
            "Existing CSINode is owned by different node, cleaning up",
            CSINode=csi_node.metadata.name,
            oldNodeID=old,
            newNodeID=node_id,
        )
        self.delete_csi_node(ctx)
        raise RuntimeError(
            f'CSINode "{csi_node.metadata.name}" was owned by different node '
            f'(oldNodeID="{old}", newNodeID="{node_id}"), deleted it'
        )

    def create_csi_node(self, ctx: golang.Context, node_id: str) -> storagev1.CSINode:
        """Make the object, owned by the node of that uid. Raises what the API server says."""
        owner = metav1.OwnerReference(api_version="v1", kind="Node", name=self._node_name, uid=node_id)
        csi_node = storagev1.CSINode(metadata=metav1.ObjectMeta(name=self._node_name, owner_references=[owner]))
        self._set_migration_annotation(csi_node)
        return self._kube_client.storage_v1.csi_nodes().create(ctx, csi_node)

    def delete_csi_node(self, ctx: golang.Context) -> None:
        """Raises what the API server says."""
        self._kube_client.storage_v1.csi_nodes().delete(ctx, self._node_name)

    def _set_migration_annotation(self, csi_node: storagev1.CSINode) -> bool:
        """Name the migrated plugins. Whether that changed anything."""
        annotations = csi_node.metadata.annotations
        old = {name for name in annotations.get(MIGRATED_PLUGINS_ANNOTATION_KEY, "").split(",") if name}
        if old == self._migrated_plugins:
            return False
        if self._migrated_plugins:
            annotations[MIGRATED_PLUGINS_ANNOTATION_KEY] = ",".join(sorted(self._migrated_plugins))
        else:
            annotations.pop(MIGRATED_PLUGINS_ANNOTATION_KEY, None)
        return True
