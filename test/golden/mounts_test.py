"""What containers of the recorded pod with all kinds of volumes are given to mount, by our kubelet as by Go's.

The kubelet runs as a hollow node, with an API server that gives pods their service account's token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from framework.apiserver.cluster import Cluster, Options
from framework.cluster_node import ClusterNode
from framework.pod_history import PodHistory
from golden import api_scenarios, cri_calls, normalize

from kubelet.cri.remote import fake

_NODE = "labnode"
_NAMESPACE = "golden"
_CONTAINERS = ("first", "sidecar", "second", "main", "other")
_TIMEOUT = 60.0
# The name of a token's volume is chosen at random.
_TOKEN = re.compile(r"kube-api-access-[a-z0-9]{5}")

# A hollow node mounts nothing, and so has a part of a volume where it is; that it is bound is tested on containerd.
_NOT_BOUND = ("volume-subpaths/conf/main/3", "volumes/kubernetes.io~configmap/conf/key")

Mounts = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Outcome:
    """What containers of the one pod mount, what was told of the other, and what the runtime heard of that."""

    mounts: Mounts
    message: str
    calls: list[normalize.Call]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("mounts")
    with Cluster(folder / "cluster", Options(mount_tokens=True)) as cluster:
        cluster.store.create("namespaces", {"metadata": {"name": _NAMESPACE}})
        history = PodHistory(cluster.store)
        node = ClusterNode(folder, _NODE, cluster, history)
        for name in ("first", "second"):
            node.runtime.behaviours.add(fake.Behaviour(run_for=0.1), pod="everything", name=name)
        try:
            node.server.start()
            node.join()
            for resource, each in api_scenarios.sources("02-everything"):
                cluster.store.create(resource, each)
            for scenario, pod in (("02-everything", "everything"), ("03-ends", "no-volume")):
                cluster.store.create("pods", _manifest(scenario, pod))
            node.wait_for_condition("all made", lambda: set(_CONTAINERS) == set(_mounts_of(node)), timeout=_TIMEOUT)
            told = node.wait_for_api_event("no-volume", "FailedMount", timeout=_TIMEOUT)
            return Outcome(_mounts_of(node), told["message"], _said(node, "no-volume"))
        finally:
            node.end()
            history.stop()


def _manifest(scenario: str, name: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((normalize.DATA / scenario / "input.yaml").read_text())
    [pod] = [each for each in documents if each["kind"] == "Pod" and each["metadata"]["name"] == name]
    pod["metadata"]["namespace"] = _NAMESPACE
    pod["spec"]["nodeName"] = _NODE
    return dict(pod)


def _mounts(calls: Iterable[normalize.Call]) -> Mounts:
    """Of each container, when it was made for the first time."""
    found: Mounts = {}
    for call in calls:
        if call.method == "CreateContainer":
            config = json.loads(_TOKEN.sub("kube-api-access-?", json.dumps(call.request["config"])))
            found.setdefault(config["metadata"]["name"], config["mounts"])
    return found


def _said(node: ClusterNode, pod: str) -> list[normalize.Call]:
    return cri_calls.conversation(map(json.loads, cri_calls.recorded(node)), node.root_dir, pod)


def _mounts_of(node: ClusterNode) -> Mounts:
    return _mounts(_said(node, "everything"))


@pytest.mark.parametrize("container", _CONTAINERS)
def test_mounts(outcome: Outcome, container: str) -> None:
    recorded = _mounts(normalize.conversations(normalize.load("02-everything"))["everything"])
    wanted = json.loads(json.dumps(recorded[container]).replace(*_NOT_BOUND))
    assert outcome.mounts[container] == wanted


def test_volume_that_cannot_be_had(outcome: Outcome) -> None:
    """The same is told, and the runtime hears nothing of the pod."""
    events = json.loads((normalize.DATA / "03-ends" / "events.json").read_text())["items"]
    [recorded] = {
        each["message"]
        for each in events
        if each["involvedObject"]["name"] == "no-volume" and each["reason"] == "FailedMount"
    }
    assert outcome.message == recorded
    assert outcome.calls == []
