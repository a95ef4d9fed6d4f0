"""Test that the whole kubelet, as a process, makes the Go kubelet's calls about static pods.

The kubelet runs as a hollow node, so that only the calls are under test. The test does not compare differences that
follow from the hollow node. Pods that came from the API server in the recording come from a file here, and the test
does not compare differences that follow from that either. One recorded pod came from a file, so its calls have no such
differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from framework.hollow_kubelet import HollowKubelet
from golden import cri_calls, normalize

from kubelet.cri.remote import fake

_NODE = "labnode"
_IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# The annotations name the source, and the hash covers the mount of the service account.
_FROM_API_SERVER = (
    "RunPodSandbox.config.annotations",
    "CreateContainer.sandbox_config.annotations",
    "CreateContainer.config.annotations.io.kubernetes.container.hash",
    "ImageStatus.image.annotations",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HollowKubelet]:
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text(cri_calls.resolv_conf())
    config = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local", "resolvConf": str(resolv_conf)}
    node = HollowKubelet(tmp_path, _NODE, config)
    node.runtime.images.add(_IMAGE)
    try:
        node.server.start()
        node.start()
        yield node
    finally:
        node.end()


def _recorded(scenario: str, pod: str) -> list[normalize.Call]:
    lines = normalize.load(scenario)
    for line in lines:
        if line["method"] == "CreateContainer":
            _without_api_server(line["request"]["config"])
    return normalize.conversations(lines)[pod]


def _without_api_server(config: dict[str, Any]) -> None:
    """Remove the variables of services and the service account's volume."""
    config["mounts"] = [m for m in config["mounts"] if m["container_path"] != _SERVICE_ACCOUNT]
    envs = [env for env in config.pop("envs", []) if not env["key"].startswith("KUBERNETES_")]
    if envs:
        config["envs"] = envs


def _ours(node: HollowKubelet, pod: str) -> list[normalize.Call]:
    text = "\n".join(cri_calls.recorded(node))
    if not pod.endswith(f"-{_NODE}"):
        text = text.replace(f"{pod}-{_NODE}", pod)
    return cri_calls.conversation(map(json.loads, text.splitlines()), node.root_dir, pod)


def _manifest(scenario: str, pod: str) -> str:
    documents = yaml.safe_load_all((normalize.DATA / scenario / "input.yaml").read_text())
    [manifest] = [d for d in documents if d["kind"] == "Pod" and d["metadata"]["name"] == pod]
    manifest["metadata"]["namespace"] = "golden"
    return str(yaml.safe_dump(manifest))


def _called(node: HollowKubelet, method: str) -> int:
    """Return the number of calls of this method that have ended."""
    return len(node.runtime.recorder.calls([method]))


def _run(node: HollowKubelet, manifest: str, containers: int) -> Path:
    """Start a pod, and return the path of its manifest."""
    path = node.manifests / "pod.yaml"
    path.write_text(manifest)
    node.wait_for_condition("the containers run", lambda: _called(node, "StartContainer") >= containers, timeout=60)
    node.wait_for_condition(
        "the kubelet has seen the start", lambda: _called(node, "ContainerStatus") >= containers, timeout=60
    )
    return path


def _run_and_delete(node: HollowKubelet, manifest: str, containers: int) -> None:
    """Start a pod, and remove it again."""
    _run(node, manifest, containers).unlink()
    node.wait_for_condition("the sandbox is stopped", lambda: _called(node, "StopPodSandbox"), timeout=60)
    node.wait_for_condition("the containers are gone", lambda: not node.runtime.containers, timeout=90)


def test_static_pod(node: HollowKubelet) -> None:
    _run_and_delete(node, _manifest("05-static", "static"), 1)
    found = normalize.diff_conversations(
        _recorded("05-static", "static-labnode"), _ours(node, "static-labnode"), cri_calls.HOLLOW
    )
    assert "\n".join(found) == ""


@pytest.mark.parametrize(
    ("scenario", "pod", "containers"),
    [("01-plain", "plain", 1), ("04-host", "host", 1), ("04-host", "shared", 2)],
)
def test_pod_that_runs_until_it_is_deleted(node: HollowKubelet, scenario: str, pod: str, containers: int) -> None:
    _run_and_delete(node, _manifest(scenario, pod), containers)
    found = normalize.diff_conversations(
        _recorded(scenario, pod), _ours(node, pod), (*cri_calls.HOLLOW, *_FROM_API_SERVER)
    )
    assert "\n".join(found) == ""


@pytest.mark.parametrize("pod", ["succeeds", "fails", "oom"])
def test_pod_that_ends(node: HollowKubelet, pod: str) -> None:
    node.runtime.behaviours.add(fake.Behaviour(run_for=0.5, oom_killed=True), command="tail /dev/zero")
    _run(node, _manifest("03-ends", pod), 1)
    node.wait_for_condition("the kubelet has seen the end", lambda: _called(node, "StopPodSandbox"), timeout=60)
    found = normalize.diff_conversations(
        _recorded("03-ends", pod), _ours(node, pod), (*cri_calls.HOLLOW, *_FROM_API_SERVER)
    )
    assert "\n".join(found) == ""
