"""Test the services for volume plugins."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kubelet import configmap, secret, token
from kubelet.kubelet_build import ObjectManagers
from kubelet.testing import TestKubelet
from kubelet.volume_host import KubeletVolumeHost
from pkg import golang, volume
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.volume import emptydir

UID = types.UID("u")


def new_host(test_kubelet: TestKubelet, plugins: list[volume.VolumePlugin]) -> KubeletVolumeHost:
    """Return a host of the plugins, with the kubelet's API server if it has one."""
    kubelet, builder, client = test_kubelet.kubelet, test_kubelet.builder, test_kubelet.kubelet.kube_client
    builder.client = client
    tokens = None if client is None else token.Manager(client, test_kubelet.clock)
    objects = ObjectManagers()
    if client is not None:
        objects = ObjectManagers(
            secret_manager=secret.SimpleSecretManager(test_kubelet.ctx, client),
            config_map_manager=configmap.SimpleConfigMapManager(test_kubelet.ctx, client),
        )
    host = builder.new_volume_host(objects, tokens, kubelet.runtime_state, kubelet.allocation_manager)
    host.plugin_mgr.init_plugins(plugins, host)
    return host


def test_host(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    kubelet, host = test_kubelet.kubelet, new_host(test_kubelet, [])
    assert host.get_pod_volume_dir(UID, "plugin", "name") == str(tmp_path / "pods/u/volumes/plugin/name")
    assert host.get_pod_plugin_dir(UID, "plugin") == str(tmp_path / "pods/u/plugins/plugin")
    assert host.get_pods_dir() == str(tmp_path / "pods")
    assert host.get_plugin_dir("plugin") == str(tmp_path / "plugins/plugin")
    assert host.get_mounter() is kubelet.mounter
    assert host.get_hostutil() is kubelet.hostutil
    assert host.get_subpather() is kubelet.subpather
    assert host.get_event_recorder() is kubelet.recorder
    assert host.get_node_name() == "node"
    node = kubelet.get_node(test_kubelet.ctx)
    assert host.get_node_allocatable() == node.status.allocatable
    assert host.get_node_labels() == node.metadata.labels
    assert host.get_attached_volumes_from_node_status() == {}


def test_pod_that_waits_for_a_resize_has_what_it_was_given(test_kubelet: TestKubelet) -> None:
    def pod(memory: str) -> v1.Pod:
        resources = v1.ResourceRequirements(requests={"memory": resource.parse_quantity(memory)})
        container = v1.Container(name="c", resources=resources)
        return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")), spec=v1.PodSpec(containers=[container]))

    host = new_host(test_kubelet, [])
    assert host.get_allocated_pod(pod("1M")) == pod("1M")
    test_kubelet.kubelet.allocation_manager.set_allocated_resources(pod("1M"))
    assert host.get_allocated_pod(pod("2M")) == pod("1M")


def test_plugins_are_told_of_their_host(test_kubelet: TestKubelet) -> None:
    class Plugin:
        host: object = None

        def init(self, host: object) -> None:
            self.host = host

        def get_plugin_name(self) -> str:
            return "fake"

    plugin = Plugin()
    assert new_host(test_kubelet, [plugin]) is plugin.host  # type: ignore[list-item]


def test_wrapped_volume_has_a_name_of_its_own(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    host = new_host(test_kubelet, emptydir.probe_volume_plugins())
    spec = volume.Spec(v1.Volume(name="v", empty_dir=v1.EmptyDirVolumeSource()))
    pod = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")))
    path = str(tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/wrapped_v")
    assert host.new_wrapper_mounter("v", spec, pod).get_path() == path
    assert host.new_wrapper_unmounter("v", spec, UID).get_path() == path
    assert spec.name() == "v"


def test_storage_error_keeps_the_node_from_being_ready(test_kubelet: TestKubelet) -> None:
    host = new_host(test_kubelet, [])
    host.set_kubelet_error(ValueError("no CSINode"))
    assert "no CSINode" in str(test_kubelet.kubelet.runtime_state.storage_errors())
    host.set_kubelet_error(None)
    assert test_kubelet.kubelet.runtime_state.storage_errors() is None


def test_standalone_has_nothing_of_an_api_server(test_kubelet: TestKubelet) -> None:
    host = new_host(test_kubelet, [])
    test_kubelet.kubelet.secret_manager = test_kubelet.kubelet.config_map_manager = None
    assert host.get_kube_client() is None and host.csi_driver_lister() is None
    for get in (host.get_secret, host.get_config_map):
        with pytest.raises(ValueError, match="not supported due to running kubelet in standalone mode"):
            get("ns", "name")
    with pytest.raises(ValueError, match="standalone"):
        host.get_service_account_token("ns", "name", authenticationv1.TokenRequest())
    with pytest.raises(LookupError, match="static kubelet mode"):
        host.get_trust_anchors_by_name("name", False)
    with pytest.raises(ValueError, match="csiDriversSynced"):
        host.wait_for_cache_sync(golang.background())
    host.delete_service_account_token(UID)


def test_api_server_is_asked(test_kubelet: TestKubelet) -> None:
    metadata = metav1.ObjectMeta(namespace="ns", name="name")
    client = FakeClientset(
        v1.Secret(metadata=metadata, data={"a": b"1"}),
        v1.ConfigMap(metadata=metadata, data={"b": "2"}),
        storagev1.CSIDriver(metadata=metav1.ObjectMeta(name="driver")),
    )
    test_kubelet.kubelet.kube_client = client
    host = new_host(test_kubelet, [])
    assert host.get_kube_client() is client
    assert host.get_secret("ns", "name").data == {"a": b"1"}
    assert host.get_config_map("ns", "name").data == {"b": "2"}
    host.wait_for_cache_sync(test_kubelet.ctx)
    lister = host.csi_driver_lister()
    assert lister is not None and lister.get("driver").metadata.name == "driver"


def test_tokens_of_a_pod_are_forgotten(test_kubelet: TestKubelet) -> None:
    client = FakeClientset()

    def answer(action: Action) -> tuple[bool, object]:
        action.object.status.token = f"token {len(client.actions(resource='serviceaccounts/token'))}"
        action.object.status.expiration_timestamp = test_kubelet.clock.now() + timedelta(hours=1)
        return True, action.object

    client.prepend_reactor("create", "serviceaccounts/token", answer)
    test_kubelet.kubelet.kube_client = client
    host = new_host(test_kubelet, [])
    bound = authenticationv1.BoundObjectReference(kind="Pod", uid=types.UID("u"))
    spec = authenticationv1.TokenRequestSpec(expiration_seconds=3600, bound_object_ref=bound)

    def get() -> str:
        request = authenticationv1.TokenRequest(spec=spec)
        return host.get_service_account_token("ns", "sa", request).status.token

    first = get()
    assert get() == first
    host.delete_service_account_token(types.UID("other"))
    assert get() == first
    host.delete_service_account_token(UID)
    assert get() != first
