"""Tests of the kubelet as volume plugins see it."""

from __future__ import annotations

from pathlib import Path

from kubelet.testing import TestKubelet
from kubelet.volume_host import KubeletVolumeHost, new_initialized_volume_plugin_mgr


def test_host(tmp_path: Path) -> None:
    test_kubelet = TestKubelet(tmp_path)
    kubelet = test_kubelet.kubelet
    host = KubeletVolumeHost(kubelet)
    assert host.get_pod_volume_dir("u", "plugin", "name") == str(tmp_path / "pods/u/volumes/plugin/name")
    assert host.get_pod_plugin_dir("u", "plugin") == str(tmp_path / "pods/u/plugins/plugin")
    assert host.get_mounter() is kubelet.mounter
    assert host.get_hostutil() is kubelet.hostutil
    assert host.get_subpather() is kubelet.subpather
    assert host.get_node_allocatable() == kubelet.get_node(test_kubelet.ctx).status.allocatable
    test_kubelet.close()


def test_plugins_are_told_of_their_host(tmp_path: Path) -> None:
    class Plugin:
        host: object = None

        def init(self, host: object) -> None:
            self.host = host

        def get_plugin_name(self) -> str:
            return "fake"

    test_kubelet, plugin = TestKubelet(tmp_path), Plugin()
    _, host = new_initialized_volume_plugin_mgr(test_kubelet.kubelet, [plugin])  # type: ignore[list-item]
    assert plugin.host is host
    test_kubelet.close()
