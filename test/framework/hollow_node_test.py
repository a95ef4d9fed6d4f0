"""Test a cluster with hollow nodes in the process of the tests that use it."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.apiserver.cluster import Cluster
from framework.hollow_node import HollowNode
from framework.waiting import wait_for

Object = dict[str, Any]


def _pod(name: str, **spec: object) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "web:1"}], **spec},
    }


def _get(api: Cluster | APIServer, name: str) -> Object:
    return api.store.get("pods", name, "default")


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _wait_until_ready(api: Cluster | APIServer, name: str) -> Object:
    wait_for(f"pod {name} ready", lambda: _is_ready(_get(api, name)), timeout=30)
    return _get(api, name)


def test_pods_on_two_nodes_live_and_go(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster, HollowNode(cluster, "node-1"), HollowNode(cluster, "node-2") as second:
        nodes = [node["metadata"]["name"] for node in cluster.store.list("nodes")]
        assert nodes == ["node-1", "node-2"]
        for number in (1, 2):
            cluster.store.create("pods", _pod(f"web-{number}", nodeName=f"node-{number}"))
        for number in (1, 2):
            assert _wait_until_ready(cluster, f"web-{number}")["status"]["hostIP"] == "127.0.0.1"
        [container] = second.runtime.containers
        assert container.sandbox.config.metadata.name == "web-2"
        for number in (1, 2):
            cluster.store.delete("pods", f"web-{number}", "default")
        wait_for("no pod", lambda: not cluster.store.list("pods"), timeout=30)


def test_options(tmp_path: Path) -> None:
    taint = {"key": "only", "value": "us", "effect": "NoSchedule"}
    with (
        Cluster(tmp_path) as cluster,
        HollowNode(
            cluster,
            "special",
            labels={"disk": "fast"},
            taints=[taint],
            capacity={"cpu": "2", "pods": "3", "example.com/gpu": "1"},
            config={"nodeStatusUpdateFrequency": "1s"},
        ) as node,
    ):
        registered = cluster.store.get("nodes", "special")
        assert registered["metadata"]["labels"]["disk"] == "fast"
        assert taint in registered["spec"]["taints"]
        expected = {"cpu": "2", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "3", "example.com/gpu": "1"}
        assert registered["status"]["capacity"] == registered["status"]["allocatable"] == expected
        assert node.kubelet is not None
        assert node.kubelet.node_status_update_frequency == 1.0
        tolerations = [{"key": "only", "operator": "Exists"}]
        containers = [{"name": "c", "image": "web:1", "resources": {"limits": {"example.com/gpu": "1"}}}]
        cluster.store.create("pods", _pod("tolerates", containers=containers, tolerations=tolerations))
        _wait_until_ready(cluster, "tolerates")


def test_a_server_without_a_cluster() -> None:
    with APIServer() as api, HollowNode(api):
        api.store.create("pods", _pod("web", nodeName="node-1"))
        _wait_until_ready(api, "web")


def test_configuration_that_is_none(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        with pytest.raises(ValueError, match="maxBods"):
            HollowNode(cluster, config={"maxBods": 3}).start()
        with pytest.raises(ValueError, match="cpu"):
            HollowNode(cluster, capacity={"cpu": "many"})


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped node leaves no threads and files behind, even if its pods run and a call to the runtime hangs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Cluster(tmp_path / "cluster") as cluster:
        before = set(threading.enumerate())
        node = HollowNode(cluster)
        node.start()
        cluster.store.create("pods", _pod("runs", nodeName="node-1"))
        _wait_until_ready(cluster, "runs")
        hang = node.runtime.faults.hang("RunPodSandbox")
        cluster.store.create("pods", _pod("hangs", nodeName="node-1"))
        wait_for("a call that hangs", lambda: hang.waiting, timeout=30)
        assert len(list(tmp_path.iterdir())) == 2
        node.stop()
        started = {each.name for each in set(threading.enumerate()) - before}
        assert not {name for name in started if not name.startswith("apiserver-")}
        assert [each.name for each in tmp_path.iterdir()] == ["cluster"]
