"""Test paths, queries, and the node object of standalone mode."""

from __future__ import annotations

import os
import platform
import pwd
import stat
from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet import kubelet_getters
from kubelet import types as kubetypes
from kubelet.kubelet_getters import get_kubelet_mappings, list_pods_from_disk, parse_get_sub_ids_output
from kubelet.testing import TestKubelet, new_pod, runtime_pod
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.volume.util import hostutil

UID = types.UID("abc123")


def test_paths(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    kubelet = test_kubelet.kubelet
    paths = {
        kubelet.get_root_dir(): "",
        kubelet.get_pods_dir(): "pods",
        kubelet.get_plugins_dir(): "plugins",
        kubelet.get_plugins_registration_dir(): "plugins_registry",
        kubelet.get_plugin_dir("foobar"): "plugins/foobar",
        kubelet.get_checkpoints_dir(): "checkpoints",
        kubelet.get_pod_resources_dir(): "pod-resources",
        kubelet.get_pod_dir(UID): "pods/abc123",
        kubelet.get_pod_volumes_dir(UID): "pods/abc123/volumes",
        kubelet.get_pod_volume_dir(UID, "plugin", "foobar"): "pods/abc123/volumes/plugin/foobar",
        kubelet.get_pod_volume_subpaths_dir(UID): "pods/abc123/volume-subpaths",
        kubelet.get_volume_device_plugin_dir("foobar"): "plugins/foobar/volumeDevices",
        kubelet.get_pod_volume_devices_dir(UID): "pods/abc123/volumeDevices",
        kubelet.get_pod_volume_device_dir(UID, "foobar"): "pods/abc123/volumeDevices/foobar",
        kubelet.get_pod_plugins_dir(UID): "pods/abc123/plugins",
        kubelet.get_pod_plugin_dir(UID, "foobar"): "pods/abc123/plugins/foobar",
        kubelet.get_pod_container_dir(UID, "def456"): "pods/abc123/containers/def456",
    }
    for found, expected in paths.items():
        assert Path(found) == tmp_path / expected


def test_pods_on_disk_are_directories_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("a")
    assert list_pods_from_disk(str(tmp_path)) == ["a", "b"]


def test_setup_data_dirs(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet = test_kubelet.kubelet
    labels: dict[str, str] = {}
    monkeypatch.setattr(hostutil, "selinux_enabled", lambda: True)
    monkeypatch.setattr(hostutil, "set_file_label", labels.__setitem__)
    kubelet.setup_data_dirs()
    modes = {
        kubelet.pod_logs_directory: 0o750,
        kubelet.get_plugins_dir(): 0o750,
        kubelet.get_plugins_registration_dir(): 0o750,
        kubelet.get_pod_resources_dir(): 0o750,
        kubelet.get_checkpoints_dir(): 0o700,
    }
    assert {path: stat.S_IMODE(os.stat(path).st_mode) for path in modes} == modes
    label = "system_u:object_r:container_file_t:s0"
    assert labels == {kubelet.get_plugins_registration_dir(): label, kubelet.get_plugins_dir(): label}


def test_a_label_that_cannot_be_set_is_no_reason_not_to_start(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str, label: str) -> None:
        raise OSError(95, "Operation not supported", path)

    monkeypatch.setattr(hostutil, "selinux_enabled", lambda: True)
    monkeypatch.setattr(hostutil, "set_file_label", refuse)
    test_kubelet.kubelet.setup_data_dirs()
    assert capfd.readouterr().err.count("Unprivileged containerized plugins might not work") == 2


def test_pods_have_the_status_that_the_kubelet_knows_if_they_are_static(test_kubelet: TestKubelet) -> None:
    static, other, unknown = new_pod("static"), new_pod("other"), new_pod("unknown")
    for pod in (static, unknown):
        pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = "file"
    other.status.phase = "Pending"
    for pod in (static, other, unknown):
        test_kubelet.kubelet.pod_manager.add_pod(pod)
    for pod in (static, other):
        test_kubelet.status_manager.set_pod_status(pod, v1.PodStatus(phase="Running"))
    phases = {pod.metadata.name: pod.status.phase for pod in test_kubelet.kubelet.get_pods()}
    assert phases == {"static": "Running", "other": "Pending", "unknown": ""}
    assert static.status.phase == "", "the pod manager's pod must not change"


def test_look_ups(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    kubelet = test_kubelet.kubelet
    kubelet.pod_manager.add_pod(pod)
    assert kubelet.get_pod_by_name("ns", "p") is pod
    assert kubelet.get_pod_by_full_name("p_ns") is pod
    assert kubelet.get_pod_by_name("other", "p") is None
    test_kubelet.runtime.pod_list = [runtime_pod(new_pod("running"))]
    assert [found.metadata.name for found in kubelet.get_running_pods(test_kubelet.ctx)] == ["running"]


def test_node(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.node_labels = {"zone": "a", "kubernetes.io/os": "made-up"}
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    reserved = {"cpu": resource.parse_quantity("100m"), "memory": resource.parse_quantity("1Ei")}
    monkeypatch.setattr(kubelet.container_manager, "get_node_allocatable_reservation", lambda: reserved)
    node = kubelet.get_node(test_kubelet.ctx)
    assert node.metadata.name == "node"
    assert node.metadata.labels["kubernetes.io/hostname"] == "127.0.0.1"
    assert node.metadata.labels["zone"] == "a"
    assert node.metadata.labels["kubernetes.io/os"] == "made-up", "a configured label wins"
    assert node.metadata.labels["kubernetes.io/arch"] == "arm64", "the label has Go's name of the architecture"
    capacity, allocatable = node.status.capacity, node.status.allocatable
    assert allocatable["cpu"].milli_value() == capacity["cpu"].milli_value() - 100
    assert allocatable["memory"].value() == 0, "allocatable memory is never negative"
    assert capacity["pods"].value() == kubelet.max_pods
    assert [(a.type, a.address) for a in node.status.addresses] == [
        ("InternalIP", "127.0.0.1"),
        ("Hostname", "127.0.0.1"),
    ]
    assert kubelet.get_host_ips_any_way(test_kubelet.ctx) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("output", "want"),
    [
        ("0: kubelet 65536 2147483648\n", (65536, 2147483648)),
        ("0: kubelet 65536 2147483648", (65536, 2147483648)),
        ("0: kubelet 65536 2147483648\n1: kubelet 0 65536\n", "it must contain only one line"),
        ("", "invalid line"),
        ("0: kubelet 65536\n", "invalid line"),
        ("0: kubelet foo 2147483648\n", "error parsing line"),
        ("0: kubelet 65536 4294967296\n", "out of range"),
        ("0: kubelet -1 65536\n", "out of range"),
    ],
)
def test_parse_get_sub_ids_output(output: str, want: tuple[int, int] | str) -> None:
    if isinstance(want, tuple):
        assert parse_get_sub_ids_output(output) == want
        return
    with pytest.raises(ValueError, match=want):
        parse_get_sub_ids_output(output)


def _getsubids(directory: Path, script: str) -> None:
    tool = directory / "getsubids"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


@pytest.mark.parametrize(
    ("user", "script", "want"),
    [
        (False, "echo 0: kubelet 131072 65536", (65536, 2**32 - 65536)),
        (True, None, (65536, 2**32 - 65536)),
        (True, "echo 0: kubelet 131072 6553600", (131072, 6553600)),
        (True, "test $1 = -g && set 65536; echo 0: kubelet ${1#kubelet} 65536", "mismatched subuids and subgids"),
        (True, "echo server is down >&2; exit 1", "error retrieving additional uids for user .*: server is down"),
    ],
    ids=["no user", "no tool", "both", "uids and gids differ", "the tool fails"],
)
def test_get_kubelet_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: bool, script: str | None, want: tuple[int, int] | str
) -> None:
    def getpwnam(name: str) -> None:
        if not user:
            raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        _getsubids(tmp_path, script)
    if isinstance(want, tuple):
        assert get_kubelet_mappings(65536) == want
        return
    with pytest.raises(ValueError, match=want):
        get_kubelet_mappings(65536)


def test_get_kubelet_mappings_of_a_tool_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool may wait for a server forever, and the kubelet would not start."""
    monkeypatch.setattr(pwd, "getpwnam", lambda name: None)
    monkeypatch.setattr(kubelet_getters, "GETSUBIDS_TIMEOUT", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _getsubids(tmp_path, "exec sleep 60")
    with pytest.raises(ValueError, match=r"error retrieving additional uids .*: context deadline exceeded"):
        get_kubelet_mappings(65536)


def test_handler_supports_user_namespaces(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.runtime_state.set_runtime_handlers([])
    assert not kubelet.handler_supports_user_namespaces("")
    kubelet.runtime_state.set_runtime_handlers(
        [
            kubecontainer.RuntimeHandler("", supports_user_namespaces=True),
            kubecontainer.RuntimeHandler("kata", supports_user_namespaces=False),
        ]
    )
    assert kubelet.handler_supports_user_namespaces("")
    assert not kubelet.handler_supports_user_namespaces("kata")
    with pytest.raises(LookupError, match='the handler "other" is not known'):
        kubelet.handler_supports_user_namespaces("other")
