"""Provide the kubelet's services to volume plugins.

Go: pkg/kubelet/volume_host.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from pkg import golang, klog, mount_utils, volume
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.util import hostutil as hostutils
from pkg.volume.util import subpath

if TYPE_CHECKING:
    from kubelet import allocation, clustertrustbundle, configmap, secret, token
    from kubelet.kubelet_getters import KubeletDirectories
    from kubelet.runtime import RuntimeState
    from pkg.api.authentication import v1 as authenticationv1
    from pkg.api.storage import v1 as storagev1
    from pkg.apimachinery.apis.meta import v1 as metav1
    from pkg.client_go import kubernetes
    from pkg.client_go.listers.storage import v1 as storagelisters
    from pkg.client_go.tools import cache, record


def follow_csi_drivers(
    ctx: golang.Context, client: kubernetes.Interface | None
) -> cache.SharedIndexInformer[storagev1.CSIDriver] | None:
    """Start an informer of CSIDriver objects, which runs until ctx ends. Go starts it with the volume manager."""
    if client is None:
        klog.info_s("KubeClient is nil. Skip initialization of CSIDriverLister")
        return None
    # This import is lazy because only a kubelet with an API server needs it.
    from pkg.client_go import informers

    factory = informers.SharedInformerFactory(client, 0)
    informer = factory.storage_v1.csi_drivers().informer()
    factory.start(ctx)
    return informer


class Nodes(Protocol):
    """Define what the host needs from the kubelet: two of its methods, from kubelet_node_status.py."""

    def get_node(self, ctx: golang.Context) -> v1.Node: ...

    def get_node_any_way(self, ctx: golang.Context) -> v1.Node: ...


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletVolumeHost:
    """Provide the kubelet's services to volume plugins.

    `plugin_mgr` holds the plugins once its init_plugins has been called with this host.
    """

    directories: KubeletDirectories
    nodes: Nodes
    runtime_state: RuntimeState
    allocation_manager: allocation.Manager
    # `kube_client` is None in standalone mode.
    kube_client: kubernetes.Interface | None
    node_name: str
    recorder: record.EventRecorder
    mounter: mount_utils.Interface
    hostutil: hostutils.HostUtils
    subpather: subpath.Interface
    secret_manager: secret.Manager | None
    config_map_manager: configmap.Manager | None
    token_manager: token.Manager | None
    cluster_trust_bundle_manager: clustertrustbundle.Manager
    csi_driver_informer: cache.SharedIndexInformer[storagev1.CSIDriver] | None
    plugin_mgr: volume.VolumePluginMgr = field(default_factory=volume.VolumePluginMgr)

    def set_kubelet_error(self, err: Exception | None) -> None:
        self.runtime_state.set_storage_state(err)

    def get_plugin_dir(self, plugin_name: str) -> str:
        return self.directories.get_plugin_dir(plugin_name)

    def get_volume_device_plugin_dir(self, plugin_name: str) -> str:
        return self.directories.get_volume_device_plugin_dir(plugin_name)

    def get_pods_dir(self) -> str:
        return self.directories.get_pods_dir()

    def get_pod_volume_dir(self, pod_uid: types.UID, plugin_name: str, volume_name: str) -> str:
        return self.directories.get_pod_volume_dir(pod_uid, plugin_name, volume_name)

    def get_pod_volume_device_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return self.directories.get_pod_volume_device_dir(pod_uid, plugin_name)

    def get_pod_plugin_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return self.directories.get_pod_plugin_dir(pod_uid, plugin_name)

    def get_kube_client(self) -> kubernetes.Interface | None:
        return self.kube_client

    def get_subpather(self) -> subpath.Interface:
        return self.subpather

    def get_hostutil(self) -> hostutils.HostUtils:
        return self.hostutil

    def csi_driver_lister(self) -> storagelisters.CSIDriverLister | None:
        if self.csi_driver_informer is None:
            return None
        from pkg.client_go.listers.storage import v1 as storagelisters

        return storagelisters.CSIDriverLister(self.csi_driver_informer.get_indexer())

    def get_csi_driver_informer(self) -> cache.SharedIndexInformer[storagev1.CSIDriver] | None:
        return self.csi_driver_informer

    def wait_for_cache_sync(self, ctx: golang.Context) -> None:
        if self.csi_driver_informer is None:
            raise ValueError("csiDriversSynced not found on KubeletVolumeHost")
        from pkg.client_go.tools import cache

        if not cache.wait_for(ctx, self.csi_driver_informer):
            klog.info_s("Failed to wait for cache sync for CSIDriverLister")
            raise ctx.err() or TimeoutError("failed to wait for cache sync for CSIDriverLister")

    def new_wrapper_mounter(self, vol_name: str, spec: volume.Spec, pod: v1.Pod) -> volume.Mounter:
        spec = _wrapped(vol_name, spec)
        return self.plugin_mgr.find_plugin_by_spec(spec).new_mounter(spec, pod)

    def new_wrapper_unmounter(self, vol_name: str, spec: volume.Spec, pod_uid: types.UID) -> volume.Unmounter:
        spec = _wrapped(vol_name, spec)
        return self.plugin_mgr.find_plugin_by_spec(spec).new_unmounter(spec.name(), pod_uid)

    def get_mounter(self) -> mount_utils.Interface:
        return self.mounter

    def get_node_allocatable(self) -> dict[str, Quantity]:
        return self.nodes.get_node_any_way(golang.background()).status.allocatable

    def get_allocated_pod(self, pod: v1.Pod) -> v1.Pod:
        return self.allocation_manager.update_pod_from_allocation(pod).pod

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        if self.secret_manager is None:
            raise ValueError("not supported due to running kubelet in standalone mode")
        return self.secret_manager.get_secret(namespace, name)

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        if self.config_map_manager is None:
            raise ValueError("not supported due to running kubelet in standalone mode")
        return self.config_map_manager.get_config_map(namespace, name)

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        if self.token_manager is None:
            raise ValueError("failed to fetch token: cannot use TokenManager when kubelet is in standalone mode")
        return self.token_manager.get_service_account_token(namespace, name, request)

    def delete_service_account_token(self, pod_uid: types.UID) -> None:
        if self.token_manager is not None:
            self.token_manager.delete_service_account_token(pod_uid)

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        return self.cluster_trust_bundle_manager.get_trust_anchors_by_name(name, allow_missing)

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        manager = self.cluster_trust_bundle_manager
        return manager.get_trust_anchors_by_signer(signer_name, label_selector, allow_missing)

    def get_node_labels(self) -> dict[str, str]:
        return self.nodes.get_node(golang.background()).metadata.labels

    def get_attached_volumes_from_node_status(self) -> dict[str, str]:
        attached = self.nodes.get_node(golang.background()).status.volumes_attached
        return {volume.name: volume.device_path for volume in attached}

    def get_node_name(self) -> str:
        return self.node_name

    def get_event_recorder(self) -> record.EventRecorder:
        return self.recorder


def _wrapped(vol_name: str, spec: volume.Spec) -> volume.Spec:
    if spec.volume is None:
        return spec
    # No volume of a pod can have this name.
    return volume.Spec(msgspec.structs.replace(spec.volume, name=f"wrapped_{vol_name}"), read_only=spec.read_only)


if TYPE_CHECKING:

    def _conforms(host: KubeletVolumeHost) -> volume.VolumeHost:
        return host
