"""Publish this node's drivers in its CSINode object, and in labels and an annotation of the node.

Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager.go
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import wait
from pkg.component_helpers.node import util as nodeutil
from pkg.volume.plugins import VolumeHost

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

MIGRATED_PLUGINS_ANNOTATION_KEY = "storage.alpha.kubernetes.io/migrated-plugins"
# The annotation holds a JSON object: the drivers' names for the node, by driver.
ANNOTATION_KEY_NODE_ID = "csi.volume.kubernetes.io/nodeid"
_UPDATE_ATTEMPTS = 4
_MAX_INT32 = 2**31 - 1

# A `NodeUpdateFunc` is a function that changes a node in place and reports whether anything changed. It raises
# ValueError.
NodeUpdateFunc = Callable[[v1.Node], bool]


class NodeInfoError(Exception):
    """Signal that a driver's information about the node could not be published."""


class NodeInfoManager:
    """Publish drivers in the cluster. Every method is safe from any thread.

    Methods raise NodeInfoError after a few attempts, and ctx.err() when ctx ends.
    """

    def __init__(
        self,
        node_name: str,
        volume_host: VolumeHost,
        migrated_plugins: Collection[str],
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._node_name = node_name
        self._volume_host = volume_host
        self._migrated_plugins = frozenset(migrated_plugins)
        self._clock = clock or clocklib.RealClock()
        # The thread that changes the objects holds this lock, also during its requests, because each change is based on
        # the object that it has read.
        self._lock = threading.Lock()
        # `_node_id` is the node's UID as last read. `_lock` guards this field.
        self._node_id = types.UID("")

    def install_csi_driver(
        self,
        ctx: golang.Context,
        driver_name: str,
        driver_node_id: str,
        max_attach_limit: int,
        topology: dict[str, str],
    ) -> None:
        """Publish a driver that is new or has new information about the node.

        Raise ValueError if driver_node_id is empty.
        """
        if not driver_node_id:
            raise ValueError("error adding CSI driver node info: driverNodeID must not be empty")
        try:
            self._update_node(
                ctx, update_node_id_in_node(driver_name, driver_node_id), update_topology_labels(topology)
            )
        except NodeInfoError as err:
            raise NodeInfoError(f"error updating Node object with CSI driver node info: {err}") from err
        self.update_csi_driver(ctx, driver_name, driver_node_id, max_attach_limit, topology)

    def update_csi_driver(
        self,
        ctx: golang.Context,
        driver_name: str,
        driver_node_id: str,
        max_attach_limit: int,
        topology: dict[str, str],
    ) -> None:
        """Publish the driver's information in the CSINode object only."""
        try:
            self._update_csi_node(ctx, driver_name, driver_node_id, max_attach_limit, topology)
        except NodeInfoError as err:
            raise NodeInfoError(f"error updating CSINode object with CSI driver node info: {err}") from err

    def uninstall_csi_driver(self, ctx: golang.Context, driver_name: str, is_used: Callable[[], bool]) -> None:
        """Remove a driver, unless it is in use again by then. Its topology stays in the node's labels.

        DIVERGES (fault of Go): an entry stays if a driver of the same name, which registers meanwhile at another
        socket, has just added it.
        Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager.go, (*nodeInfoManager).UninstallCSIDriver: the Go kubelet
        removes whichever entry has the name, also when it repeats a failed attempt.
        Why: nothing would ever add the entry again, and no volume of the driver could be attached to the node.
        Test: pkg/volume/csi/csi_plugin_test.py:test_driver_that_registers_while_its_namesake_goes_stays_known
        """

        def remove_node_id(node: v1.Node) -> bool:
            return not is_used() and remove_node_id_from_node(driver_name)(node)

        try:
            self._uninstall_driver_from_csi_node(ctx, driver_name, is_used)
        except NodeInfoError as err:
            raise NodeInfoError(f"error uninstalling CSI driver from CSINode object {err}") from err
        try:
            self._update_node(ctx, remove_node_id)
        except NodeInfoError as err:
            raise NodeInfoError(f"error removing CSI driver node info from Node object {err}") from err

    def initialize_csi_node_with_annotation(self, ctx: golang.Context) -> None:
        """Ensure that the CSINode exists, belongs to this node and lists the migrated plugins."""
        self._retry(ctx, "error updating CSINode annotation", self._try_initialize_csi_node_with_annotation)

    def _update_node(self, ctx: golang.Context, *update_funcs: NodeUpdateFunc) -> None:
        self._retry(ctx, "error updating node", lambda ctx: self._try_update_node(ctx, *update_funcs))

    def _try_update_node(self, ctx: golang.Context, *update_funcs: NodeUpdateFunc) -> None:
        with self._lock:
            core = self._kube_client().core_v1
            original = core.nodes().get(ctx, self._node_name)
            node = metav1.deepcopy(original)
            updated = [update(node) for update in update_funcs]
            if any(updated):
                nodeutil.patch_node_status(ctx, core, self._node_name, original, node)

    def _update_csi_node(
        self,
        ctx: golang.Context,
        driver_name: str,
        driver_node_id: str,
        max_attach_limit: int,
        topology: dict[str, str],
    ) -> None:
        def attempt(ctx: golang.Context) -> None:
            self._try_update_csi_node(ctx, driver_name, driver_node_id, max_attach_limit, topology)

        self._retry(ctx, "error updating CSINode", attempt)

    def _try_update_csi_node(
        self,
        ctx: golang.Context,
        driver_name: str,
        driver_node_id: str,
        max_attach_limit: int,
        topology: dict[str, str],
    ) -> None:
        with self._lock:
            if not self._node_id:
                # DIVERGES (fault of Go): if a driver registers before the kubelet has examined the CSINode, the kubelet
                # first asks for the node's UID.
                # Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager.go, (*nodeInfoManager).ensureNodeOwnsCSINode: the
                # UID is still empty then, and the Go kubelet deletes the node's own CSINode as that of another node.
                # Why: after a restart of the kubelet the entries of all other drivers would be lost.
                # Test: nodeinfomanager_test.py:test_install_csi_driver
                self._node_id = self._kube_client().core_v1.nodes().get(ctx, self._node_name).metadata.uid
            csi_node = self._get_csi_node(ctx) or self.create_csi_node(ctx)
            self._ensure_node_owns_csi_node(ctx, csi_node)
            self._install_driver_to_csi_node(
                ctx, metav1.deepcopy(csi_node), driver_name, driver_node_id, max_attach_limit, topology
            )

    def _try_initialize_csi_node_with_annotation(self, ctx: golang.Context) -> None:
        with self._lock:
            self._node_id = self._kube_client().core_v1.nodes().get(ctx, self._node_name).metadata.uid
            csi_node = self._get_csi_node(ctx)
            if csi_node is None:
                self.create_csi_node(ctx)
                return
            self._ensure_node_owns_csi_node(ctx, csi_node)
            csi_node = metav1.deepcopy(csi_node)
            if self._set_migration_annotation(csi_node):
                self._kube_client().storage_v1.csi_nodes().update(ctx, csi_node)

    def _ensure_node_owns_csi_node(self, ctx: golang.Context, csi_node: storagev1.CSINode) -> None:
        """Delete a CSINode that belongs to an older node of the same name, and raise NodeInfoError.

        The next attempt creates a new one.
        """
        owner_id = self._other_owner(csi_node)
        if owner_id is None:
            return
        klog.v(2).info_s(
            "Existing CSINode is owned by different node, cleaning up",
            CSINode=csi_node.metadata.name,
            oldNodeID=owner_id,
            newNodeID=self._node_id,
        )
        self.delete_csi_node(ctx)
        raise NodeInfoError(
            f'CSINode "{csi_node.metadata.name}" was owned by different node '
            f'(oldNodeID="{owner_id}", newNodeID="{self._node_id}"), deleted it'
        )

    def _other_owner(self, csi_node: storagev1.CSINode) -> str | None:
        """Return the UID of the node that owns the object, "" if it has no owner, or None if this node owns it."""
        owners = [owner for owner in csi_node.metadata.owner_references if owner.kind == "Node"]
        if any(owner.name == self._node_name and owner.uid == self._node_id for owner in owners):
            return None
        return owners[-1].uid if owners else ""

    def _get_csi_node(self, ctx: golang.Context) -> storagev1.CSINode | None:
        try:
            return self._kube_client().storage_v1.csi_nodes().get(ctx, self._node_name)
        except apierrors.StatusError as err:
            if not apierrors.is_not_found(err):
                raise
            return None

    def create_csi_node(self, ctx: golang.Context) -> storagev1.CSINode:
        """Create the CSINode, owned by this node. Raise any error of the API server."""
        owner = metav1.OwnerReference(api_version="v1", kind="Node", name=self._node_name, uid=self._node_id)
        csi_node = storagev1.CSINode(metadata=metav1.ObjectMeta(name=self._node_name, owner_references=[owner]))
        self._set_migration_annotation(csi_node)
        return self._kube_client().storage_v1.csi_nodes().create(ctx, csi_node)

    def delete_csi_node(self, ctx: golang.Context) -> None:
        """Delete the CSINode. Raise any error of the API server."""
        self._kube_client().storage_v1.csi_nodes().delete(ctx, self._node_name)

    def _set_migration_annotation(self, csi_node: storagev1.CSINode) -> bool:
        """Set the list of migrated plugins in the annotation. Report whether that changed anything."""
        annotations = csi_node.metadata.annotations
        old = {name for name in annotations.get(MIGRATED_PLUGINS_ANNOTATION_KEY, "").split(",") if name}
        if old == self._migrated_plugins:
            return False
        if self._migrated_plugins:
            annotations[MIGRATED_PLUGINS_ANNOTATION_KEY] = ",".join(sorted(self._migrated_plugins))
        else:
            annotations.pop(MIGRATED_PLUGINS_ANNOTATION_KEY, None)
        return True

    def _install_driver_to_csi_node(
        self,
        ctx: golang.Context,
        csi_node: storagev1.CSINode,
        driver_name: str,
        driver_node_id: str,
        max_attach_limit: int,
        topology: dict[str, str],
    ) -> None:
        """Update the CSINode if the driver's entry differs. csi_node must be the caller's own copy."""
        unchanged = any(
            driver.name == driver_name
            and driver.node_id == driver_node_id
            and set(driver.topology_keys) == topology.keys()
            and keep_allocatable_count(driver, max_attach_limit)
            for driver in csi_node.spec.drivers
        )
        annotation_modified = self._set_migration_annotation(csi_node)
        if unchanged and not annotation_modified:
            return
        spec = storagev1.CSINodeDriver(name=driver_name, node_id=driver_node_id, topology_keys=sorted(topology))
        if max_attach_limit > 0:
            if max_attach_limit > _MAX_INT32:
                klog.warning_s(f"Exceeded max supported attach limit value, truncating it to {_MAX_INT32}")
            spec.allocatable = storagev1.VolumeNodeResources(count=min(max_attach_limit, _MAX_INT32))
        elif max_attach_limit != 0:
            klog.error_s(None, "Invalid attach limit value", limit=max_attach_limit, driver=driver_name)
        others = [driver for driver in csi_node.spec.drivers if driver.name != driver_name]
        csi_node.spec.drivers = [*others, spec]
        self._kube_client().storage_v1.csi_nodes().update(ctx, csi_node)

    def _uninstall_driver_from_csi_node(
        self, ctx: golang.Context, csi_driver_name: str, is_used: Callable[[], bool]
    ) -> None:
        self._retry(
            ctx,
            "error updating CSINode",
            lambda ctx: self._try_uninstall_driver_from_csi_node(ctx, csi_driver_name, is_used),
        )

    def _try_uninstall_driver_from_csi_node(
        self, ctx: golang.Context, csi_driver_name: str, is_used: Callable[[], bool]
    ) -> None:
        with self._lock:
            if is_used():
                return
            found = self._get_csi_node(ctx)
            if found is None or all(driver.name != csi_driver_name for driver in found.spec.drivers):
                return
            csi_node = metav1.deepcopy(found)
            csi_node.spec.drivers = [driver for driver in csi_node.spec.drivers if driver.name != csi_driver_name]
            self._kube_client().storage_v1.csi_nodes().update(ctx, csi_node)

    def _kube_client(self) -> kubernetes.Interface:
        client = self._volume_host.get_kube_client()
        if client is None:
            raise NodeInfoError("error getting kube client")
        return client

    def _retry(self, ctx: golang.Context, what: str, attempt: Callable[[golang.Context], None]) -> None:
        """Make a few attempts with a growing backoff. Raise NodeInfoError with the causes, or ctx.err()."""
        backoff = wait.Backoff(duration=0.01, factor=5.0, jitter=0.1, steps=_UPDATE_ATTEMPTS)
        failures: list[Exception] = []
        for number in range(_UPDATE_ATTEMPTS):
            if number > 0:
                wait.pause(ctx, backoff.step(), self._clock)
            try:
                attempt(ctx)
                return
            except golang.ContextError:
                raise
            except Exception as err:
                # Whatever the error is: the node may not be registered yet, or another writer may have been faster.
                klog.v(2).info_s("Failed to publish CSINode", err=err)
                failures.append(golang.without_frames(err))
        causes = list(dict.fromkeys(str(err) for err in failures))
        cause = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
        message = f"{what}: timed out waiting for the condition; caused by: {cause}"
        raise NodeInfoError(message) from failures[-1]


def build_node_id_map_from_annotation(node: v1.Node) -> dict[str, str]:
    """Return the drivers' names for the node. Raise ValueError if the annotation is not a JSON object of strings."""
    text = node.metadata.annotations.get(ANNOTATION_KEY_NODE_ID, "")
    if not text:
        return {}
    problem = f'failed to parse node\'s "{ANNOTATION_KEY_NODE_ID}" annotation value ({klog.quote(text)})'
    try:
        return codec.decode_json(text, dict[str, str])
    except ValueError as err:
        raise ValueError(f"{problem} err={err}") from err


def update_node_id_in_node(csi_driver_name: str, csi_driver_node_id: str) -> NodeUpdateFunc:
    """Return a function that adds the driver's name for the node to the annotation."""

    def update(node: v1.Node) -> bool:
        names = build_node_id_map_from_annotation(node)
        if names.get(csi_driver_name) == csi_driver_node_id:
            return False
        names[csi_driver_name] = csi_driver_node_id
        node.metadata.annotations[ANNOTATION_KEY_NODE_ID] = _encode(names)
        return True

    return update


def remove_node_id_from_node(csi_driver_name: str) -> NodeUpdateFunc:
    """Return a function that removes the driver's name for the node from the annotation."""

    def update(node: v1.Node) -> bool:
        names = build_node_id_map_from_annotation(node)
        if names.pop(csi_driver_name, None) is None:
            return False
        if names:
            node.metadata.annotations[ANNOTATION_KEY_NODE_ID] = _encode(names)
        else:
            del node.metadata.annotations[ANNOTATION_KEY_NODE_ID]
        return True

    return update


def update_topology_labels(topology: dict[str, str]) -> NodeUpdateFunc:
    """Return a function that adds the driver's topology to the labels.

    The function raises ValueError if an existing label contradicts the topology.
    """

    def update(node: v1.Node) -> bool:
        labels = node.metadata.labels
        for key, value in topology.items():
            if labels.get(key, value) != value:
                raise ValueError(
                    f'detected topology value collision: driver reported "{key}":"{value}" '
                    f'but existing label is "{key}":"{labels[key]}"'
                )
        labels.update(topology)
        return bool(topology)

    return update


def keep_allocatable_count(driver_info_spec: storagev1.CSINodeDriver, max_attach_limit: int) -> bool:
    """Report whether the entry already has this volume limit."""
    allocatable = driver_info_spec.allocatable
    count = allocatable.count if allocatable is not None else None
    return count is None if max_attach_limit == 0 else count == max_attach_limit


def _encode(names: dict[str, str]) -> str:
    return json.dumps(names, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
