"""Write the status of nodes.

Go: k8s.io/component-helpers/node/util/status.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import strategicpatch

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


def patch_node_status(
    ctx: golang.Context, core_v1_client: kubernetes.CoreV1, node_name: str, old_node: v1.Node, new_node: v1.Node
) -> tuple[v1.Node, bytes]:
    """Patch the node's metadata and status on the server to those of `new_node`; return the node and the patch.

    The patch contains only the differences between the two nodes, and never their specs. Raise the client's errors.
    """
    patch = _prepare_patch_for_node_status(old_node, new_node)
    nodes = core_v1_client.nodes()
    return nodes.patch(ctx, node_name, types.PatchType.STRATEGIC_MERGE, patch, None, "status"), patch


def _prepare_patch_for_node_status(old_node: v1.Node, new_node: v1.Node) -> bytes:
    old, new = codec.to_builtins(old_node), codec.to_builtins(new_node)
    if "spec" in old:
        new["spec"] = old["spec"]
    else:
        new.pop("spec", None)
    # A node may have several addresses of one type, but a patch merges addresses by type, so all of them are replaced.
    addresses = new.get("status", {}).get("addresses", [])
    replace = bool(old_node.status.addresses) and old_node.status.addresses != new_node.status.addresses
    if replace:
        new.setdefault("status", {})["addresses"] = old["status"]["addresses"]
    patch = strategicpatch.create_two_way_merge_map_patch(old, new, v1.Node)
    if replace:
        patch.setdefault("status", {})["addresses"] = [*addresses, {"$patch": "replace"}]
    return codec.encode_json(patch, sort_keys=True)
