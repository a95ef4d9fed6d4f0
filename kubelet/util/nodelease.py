"""Set the owner of the node's lease.

Go: pkg/kubelet/util/nodelease.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.coordination import v1 as coordinationv1
from pkg.apimachinery.apis.meta import v1 as metav1

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.component_helpers.apimachinery import lease as leasepkg


def set_node_owner_func(ctx: golang.Context, client: kubernetes.Interface, node_name: str) -> leasepkg.ProcessLeaseFunc:
    """Return a function that makes the node the owner of its lease.

    The function needs the node's UID, and raises an error if the node cannot be read.
    """

    def set_owner(lease: coordinationv1.Lease) -> None:
        if lease.metadata.owner_references:
            return
        try:
            node = client.core_v1.nodes().get(ctx, node_name)
        except golang.ContextError:
            raise
        except Exception as err:
            klog.error_s(
                err,
                "Failed to get node when trying to set owner ref to the node lease",
                node=klog.kref("", node_name),
            )
            raise
        owner = metav1.OwnerReference(api_version="v1", kind="Node", name=node_name, uid=node.metadata.uid)
        lease.metadata.owner_references = [owner]

    return set_owner
