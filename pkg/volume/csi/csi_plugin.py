"""Sees to it that the node has its CSINode object before it is ready.

Go: pkg/volume/csi/csi_plugin.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait
from pkg.volume.csi import nodeinfomanager

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# Kinds of volumes that Kubernetes once had itself, and leaves to CSI drivers now.
MIGRATED_PLUGINS = (
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
)
# Seconds between two questions whether the API server answers at all.
_API_SERVER_CHECK_PERIOD = 1.0


def initialize_csi_node(
    ctx: golang.Context,
    kube_client: kubernetes.Interface,
    node_name: str,
    set_kubelet_error: Callable[[Exception | None], None],
    node_info_manager: nodeinfomanager.NodeInfoManager,
    clock: clocklib.Clock,
) -> golang.Thread:
    """Keep the node from being ready until its CSINode exists, which is made on a thread that ends with ctx.

    set_kubelet_error is told why the node is not ready, and None when it is.
    DIVERGES: Go's kubelet ends after six failures, for whoever watches it to start it again; this one goes on trying.
    """
    set_kubelet_error(RuntimeError("CSINode is not yet initialized"))

    def initialize() -> None:
        try:
            _wait_for_api_server(ctx, kube_client, node_name, clock)
            _initialize_with_backoff(ctx, set_kubelet_error, node_info_manager, clock)
        except golang.ContextError as err:
            klog.v(4).info_s("Stopped initializing the CSINode", err=err)

    return golang.go(initialize, name="csi-node")


def _wait_for_api_server(
    ctx: golang.Context, client: kubernetes.Interface, node_name: str, clock: clocklib.Clock
) -> None:
    """Return when the API server has answered whether there is a CSINode. Raises ctx.err() once ctx is done."""
    # Any version will do, so that the answer need not come from the store.
    options = metav1.GetOptions(resource_version="0")

    def answers() -> bool:
        try:
            client.storage_v1.csi_nodes().get(ctx, node_name, options)
        except golang.ContextError:
            raise
        except Exception as err:
            if apierrors.is_not_found(err):
                return True
            # Whatever keeps it from answering: it is asked again.
            klog.v(2).info_s("Failed to contact API server when waiting for CSINode publishing", err=err)
            return False
        return True

    wait.poll_until_context_cancel(ctx, _API_SERVER_CHECK_PERIOD, True, answers, clock)


def _initialize_with_backoff(
    ctx: golang.Context,
    set_kubelet_error: Callable[[Exception | None], None],
    node_info_manager: nodeinfomanager.NodeInfoManager,
    clock: clocklib.Clock,
) -> None:
    # The longest pause is two minutes.
    backoff = wait.Backoff(duration=0.03, factor=8.0, jitter=0.1, steps=4)
    while True:
        klog.v(4).info_s("Initializing migrated drivers on CSINode")
        try:
            node_info_manager.initialize_csi_node_with_annotation(ctx)
        except golang.ContextError:
            raise
        except Exception as err:
            # Shown in the node's Ready condition, and tried again.
            set_kubelet_error(RuntimeError(f"failed to initialize CSINode: {err}"))
            klog.error_s(err, "Failed to initialize CSINode")
        else:
            set_kubelet_error(None)
            return
        wait.pause(ctx, backoff.step(), clock)
