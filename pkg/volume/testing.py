"""Provide a host for plugins under test.

Go: pkg/volume/testing/volume_host.go, pkg/volume/testing/testing.go
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.mount_utils.testing import FakeMounter
from pkg.volume import Attributes, MetricsNil, MounterArgs, emptydir
from pkg.volume.plugins import Spec, VolumePlugin, VolumePluginMgr
from pkg.volume.util.hostutil.testing import FakeHostUtil
from pkg.volume.util.subpath.testing import FakeSubpather
from pkg.volume.volume import Mounter, Unmounter

if TYPE_CHECKING:
    from pkg.api.authentication import v1 as authenticationv1
    from pkg.api.storage import v1 as storagev1
    from pkg.apimachinery.apis.meta import v1 as metav1
    from pkg.client_go import kubernetes
    from pkg.client_go.listers.storage import v1 as storagelisters
    from pkg.client_go.tools import cache
    from pkg.volume.plugins import VolumeHost


class FakeVolumeHost:
    """Keep everything below root, mount nothing, and read objects with the client. A test may replace the fields."""

    def __init__(
        self,
        root: str,
        kube_client: kubernetes.Interface | None = None,
        plugins: list[VolumePlugin] | None = None,
        *,
        node_name: str = "node",
    ) -> None:
        """Create a host. The plugins, by default emptyDir's, serve wrapper mounters and get this host."""
        self.root = root
        self.kube_client = kube_client
        self.node_name = node_name
        self.mounter = FakeMounter()
        self.hostutil = FakeHostUtil()
        self.subpather = FakeSubpather()
        self.recorder = FakeRecorder(1000)
        self.node_allocatable: dict[str, Quantity] = {}
        # `allocated_pods` holds the pods whose allocated resources differ from their specs, by UID.
        self.allocated_pods: dict[str, v1.Pod] = {}
        self.node_labels: dict[str, str] = {}
        self.volumes_attached: dict[str, str] = {}
        self.csi_drivers: storagelisters.CSIDriverLister | None = None
        self.csi_driver_informer: cache.SharedIndexInformer[storagev1.CSIDriver] | None = None
        self.kubelet_errors: list[Exception | None] = []
        self.deleted_token_pods: list[str] = []
        # These fields hold the PEM data of trust bundles, by name and by signer.
        self.trust_anchors_by_name: dict[str, bytes] = {}
        self.trust_anchors_by_signer: dict[str, bytes] = {}
        self.plugin_mgr = VolumePluginMgr()
        self.plugin_mgr.init_plugins(emptydir.probe_volume_plugins() if plugins is None else plugins, self)

    def get_plugin_dir(self, plugin_name: str) -> str:
        return os.path.join(self.root, "plugins", plugin_name)

    def get_volume_device_plugin_dir(self, plugin_name: str) -> str:
        return os.path.join(self.root, "plugins", plugin_name, "volumeDevices")

    def get_pods_dir(self) -> str:
        return os.path.join(self.root, "pods")

    def get_pod_volume_dir(self, pod_uid: types.UID, plugin_name: str, volume_name: str) -> str:
        return os.path.join(self.root, "pods", pod_uid, "volumes", plugin_name, volume_name)

    def get_pod_plugin_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return os.path.join(self.root, "pods", pod_uid, "plugins", plugin_name)

    def get_pod_volume_device_dir(self, pod_uid: types.UID, plugin_name: str) -> str:
        return os.path.join(self.root, "pods", pod_uid, "volumeDevices", plugin_name)

    def get_kube_client(self) -> kubernetes.Interface | None:
        return self.kube_client

    def _client(self) -> kubernetes.Interface:
        if self.kube_client is None:
            raise ValueError("not supported due to running kubelet in standalone mode")
        return self.kube_client

    def new_wrapper_mounter(self, vol_name: str, spec: Spec, pod: v1.Pod) -> Mounter:
        spec = _wrapped(vol_name, spec)
        return self.plugin_mgr.find_plugin_by_spec(spec).new_mounter(spec, pod)

    def new_wrapper_unmounter(self, vol_name: str, spec: Spec, pod_uid: types.UID) -> Unmounter:
        spec = _wrapped(vol_name, spec)
        return self.plugin_mgr.find_plugin_by_spec(spec).new_unmounter(spec.name(), pod_uid)

    def get_mounter(self) -> FakeMounter:
        return self.mounter

    def get_hostutil(self) -> FakeHostUtil:
        return self.hostutil

    def get_subpather(self) -> FakeSubpather:
        return self.subpather

    def get_node_allocatable(self) -> dict[str, Quantity]:
        return self.node_allocatable

    def get_allocated_pod(self, pod: v1.Pod) -> v1.Pod:
        return self.allocated_pods.get(pod.metadata.uid, pod)

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self._client().core_v1.secrets(namespace).get(golang.background(), name)

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        return self._client().core_v1.config_maps(namespace).get(golang.background(), name)

    def get_service_account_token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        accounts = self._client().core_v1.service_accounts(namespace)
        return accounts.create_token(golang.background(), name, request)

    def delete_service_account_token(self, pod_uid: types.UID) -> None:
        self.deleted_token_pods.append(pod_uid)

    def get_node_labels(self) -> dict[str, str]:
        return self.node_labels

    def get_node_name(self) -> str:
        return self.node_name

    def get_attached_volumes_from_node_status(self) -> dict[str, str]:
        return self.volumes_attached

    def get_event_recorder(self) -> FakeRecorder:
        return self.recorder

    def set_kubelet_error(self, err: Exception | None) -> None:
        self.kubelet_errors.append(err)

    def csi_driver_lister(self) -> storagelisters.CSIDriverLister | None:
        return self.csi_drivers

    def get_csi_driver_informer(self) -> cache.SharedIndexInformer[storagev1.CSIDriver] | None:
        return self.csi_driver_informer

    def wait_for_cache_sync(self, ctx: golang.Context) -> None: ...

    def get_trust_anchors_by_name(self, name: str, allow_missing: bool) -> bytes:
        return _anchors(self.trust_anchors_by_name, name, allow_missing)

    def get_trust_anchors_by_signer(
        self, signer_name: str, label_selector: metav1.LabelSelector | None, allow_missing: bool
    ) -> bytes:
        return _anchors(self.trust_anchors_by_signer, signer_name, allow_missing)


def _wrapped(vol_name: str, spec: Spec) -> Spec:
    if spec.volume is None:
        return spec
    return Spec(msgspec.structs.replace(spec.volume, name=f"wrapped_{vol_name}"), read_only=spec.read_only)


def _anchors(known: dict[str, bytes], key: str, allow_missing: bool) -> bytes:
    if key not in known and not allow_missing:
        raise LookupError(f'no trust anchors for "{key}"')
    return known.get(key, b"")


class FakeVolumeMounter(MetricsNil):
    """Represent a mounter without a path of its own; the test passes the directory."""

    def __init__(self, read_only: bool = False) -> None:
        self._read_only = read_only

    def get_path(self) -> str:
        return "FAKE_DIR_DOESNT_EXIST"

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=self._read_only)

    def set_up(self, args: MounterArgs) -> None: ...

    def set_up_at(self, directory: str, args: MounterArgs) -> None: ...


if TYPE_CHECKING:

    def _conforms(host: FakeVolumeHost) -> VolumeHost:
        return host
