"""Test that the kubelet accepts the arguments and the configuration of a kind node, where hack/kind installs it.

test/data/kind has the configuration that kubeadm 1.36 writes for kind, and the two files of flags.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from kubelet_cmd.kubelet.app import configuration, options, supported

from pkg import klog

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data" / "kind"
# kind's 10-kubeadm.conf sets these variables, and the path of the configuration.
ENVIRONMENT = {
    "KUBELET_KUBECONFIG_ARGS": "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf "
    "--kubeconfig=/etc/kubernetes/kubelet.conf",
    "KUBELET_CONFIG_ARGS": f"--config={DATA / 'config.yaml'}",
}


def command_line() -> list[str]:
    """Return the arguments that systemd makes from the drop-in and the environment."""
    environment = dict(ENVIRONMENT)
    for name in ("kubeadm-flags.env", "kubelet.env"):
        for line in shlex.split((DATA / name).read_text()):
            key, _, value = line.partition("=")
            environment[key] = value
    drop_in = (ROOT / "hack" / "kind" / "20-python.conf").read_text()
    commands = re.findall(r"^ExecStart=(.*)$", drop_in, re.MULTILINE)
    assert commands[0] == "", "the drop-in must first reset the command of the other drop-in"
    arguments = commands[1].partition(" -m cmd.kubelet ")[2].split()
    # systemd splits an unbraced variable that is a separate word into words.
    return [word for argument in arguments for word in environment[argument.removeprefix("$")].split()]


@pytest.fixture
def loaded() -> configuration.Loaded:
    args = command_line()
    found = configuration.parse_flags(args)
    configuration.load(found, args)
    return found


def test_all_variables_of_the_node_are_passed_on(loaded: configuration.Loaded) -> None:
    flags, kc = loaded.kubelet_flags, loaded.kubelet_configuration

    assert loaded.arguments == []
    assert flags.kube_config == "/etc/kubernetes/kubelet.conf"
    assert flags.bootstrap_kubeconfig == "/etc/kubernetes/bootstrap-kubelet.conf"
    assert (flags.node_ip, flags.node_labels) == ("172.18.0.3", {})
    assert kc.provider_id == "kind://docker/kind/kind-worker"
    assert (kc.cgroup_driver, kc.cgroup_root) == ("systemd", "/kubelet")
    assert kc.container_runtime_endpoint == "unix:///run/containerd/containerd.sock"
    assert kc.rotate_certificates
    assert kc.eviction_hard == {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}


def test_zeros_of_the_file_mean_the_defaults(loaded: configuration.Loaded) -> None:
    kc, default = loaded.kubelet_configuration, options.new_kubelet_configuration()

    for name in ("sync_frequency", "node_status_update_frequency", "runtime_request_timeout", "file_check_frequency"):
        assert getattr(kc, name) == getattr(default, name) > 0, name


def test_nothing_is_refused(loaded: configuration.Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kind node has the cgroup version of its host.
    monkeypatch.setattr(loaded.kubelet_configuration, "fail_cgroup_v1", False)
    told: list[str] = []
    monkeypatch.setattr(klog, "warning_s", lambda message, **keys: told.append(keys["field"]))

    options.validate_kubelet_server(options.KubeletServer(loaded.kubelet_flags, loaded.kubelet_configuration))
    supported.check_supported(loaded)

    assert {field.partition(".")[0] for field in told} <= {"evictionHard", "logging"}
