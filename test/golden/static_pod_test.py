"""The whole kubelet, started as a process, says about a static pod what the Go kubelet said.

It runs as a hollow node, so that nothing but the calls is under test; what follows from that is not compared.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.hollow import HollowNode
from framework.waiting import wait_for
from golden import normalize

_SCENARIO = "05-static"
_POD = "static-labnode"
_IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
# A hollow node has no cgroups of its own, and other pages and swap than the recorded machine.
_NOT_COMPARED = (
    "RunPodSandbox.config.linux.cgroup_parent",
    "CreateContainer.sandbox_config.linux.cgroup_parent",
    "CreateContainer.config.linux.resources.hugepage_limits",
    "CreateContainer.config.linux.resources.unified",
    "CreateContainer.config.linux.resources.memory_swap_limit_in_bytes",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HollowNode]:
    with HollowNode(
        tmp_path, "--hostname-override=labnode", "--cluster-dns=10.96.0.10", "--cluster-domain=cluster.local"
    ) as node:
        node.runtime.images.add(_IMAGE)
        yield node


def _recorded() -> list[normalize.Call]:
    lines = normalize.load(_SCENARIO)
    for line in lines:
        if line["method"] == "CreateContainer":
            # The variables of services come from an API server.
            config = line["request"]["config"]
            config["envs"] = [env for env in config["envs"] if not env["key"].startswith("KUBERNETES_")]
            if not config["envs"]:
                del config["envs"]
    return normalize.conversations(lines)[_POD]


def _ours(node: HollowNode) -> list[normalize.Call]:
    lines = [json.loads(json.dumps(call.as_json())) for call in node.runtime.recorder.calls()]
    directories = {str(node.root_directory): "/var/lib/kubelet"}
    for line in lines:
        if line["method"] == "RunPodSandbox":
            log_directory = line["request"]["config"].get("log_directory", "")
            directories[str(Path(log_directory).parent)] = "/var/log/pods"
    return normalize.conversations(lines, directories=directories).get(_POD, [])


def test_static_pod(node: HollowNode) -> None:
    node.runtime.recorder.on = True
    manifest = node.manifests / "static.yaml"
    shutil.copy(normalize.DATA / _SCENARIO / "input.yaml", manifest)
    wait_for("the container runs", lambda: node.runtime.recorder.counts.get("StartContainer"), timeout=30)
    wait_for("the start is noticed", lambda: node.runtime.recorder.counts.get("ContainerStatus"), timeout=30)
    manifest.unlink()
    wait_for("the container is gone", lambda: not node.runtime.containers, timeout=60)
    found = normalize.diff_conversations(_recorded(), _ours(node), _NOT_COMPARED)
    assert "\n".join(found) == ""
