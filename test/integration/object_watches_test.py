"""Test that volumes cause only one watch of each API object, however many pods use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode
from framework.pods import Manifest, pod, sleeper

NODE = "watches"
PODS, VOLUMES = 12, 5
OBJECTS = ("configmaps", "secrets")


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node(NODE)
    node.join()
    return node


def put(cluster: Cluster, resource: str, name: str) -> None:
    metadata = {"name": name, "namespace": "default"}
    cluster.store.create(resource, {"metadata": metadata, "data": {f"key-{name}": "YQ=="}})


def sources(number: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"configMap": {"name": f"common-{number}"}}
    yield {"secret": {"name": f"common-{number}"}}
    yield {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    if number == 0:
        yield {"configMap": {"name": name}}


def projecting(name: str) -> Manifest:
    volumes = [{"name": f"v{each}", "projected": {"sources": list(sources(each, name))}} for each in range(VOLUMES)]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    return pod(name, sleeper(volumeMounts=mounts), volumes=volumes)


def test_object_is_watched_once(cluster: Cluster, node: ClusterNode) -> None:
    names = [f"pod-{number}" for number in range(PODS)]
    for each in range(VOLUMES):
        for resource in OBJECTS:
            put(cluster, resource, f"common-{each}")
    for name in names:
        put(cluster, "configmaps", name)
    count = len(OBJECTS) * VOLUMES + PODS
    asks: dict[str, Any] = {"resource": OBJECTS, "namespace": "default", "user": f"system:node:{NODE}"}
    faults = cluster.faults
    with (
        faults.slow(0.0, verb="watch", **asks) as watches,
        faults.slow(0.0, verb="list", **asks) as lists,
        faults.slow(0.0, verb="get", **asks) as gets,
    ):
        for name in names:
            node.create(projecting(name))
        node.wait_for_api_running(*names)

    assert (watches.hits, gets.hits) == (count, 0)
    # The initial list may come with the watch.
    assert lists.hits <= count
