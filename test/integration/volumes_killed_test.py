"""Test that no volume is left of pods that are deleted while the kubelet is down after a kill.

The kubelet is the real one, on the hollow runtime, which runs nothing. Its mounts are real.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from framework.apiserver import errors
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode, real_node
from framework.pods import Manifest, pod, sleeper

from pkg import mount_utils

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

NODE = "volumes-killed"
TIMEOUT = 60.0
VOLUMES: list[dict[str, Any]] = [
    {"name": "disk", "emptyDir": {}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"name": "config", "configMap": {"name": "settings"}},
    {"name": "secret", "secret": {"secretName": "key"}},
    {"name": "fields", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {
        "name": "all",
        "projected": {"sources": [{"secret": {"name": "key"}}, {"serviceAccountToken": {"path": "token"}}]},
    },
    {"name": "host", "hostPath": {"path": "/etc"}},
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, history: Any) -> Iterator[ClusterNode]:
    cluster.store.create(
        "configmaps", {"metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "1", "b": "2"}}
    )
    cluster.store.create("secrets", {"metadata": {"name": "key", "namespace": "default"}, "data": {"k": "c2VjcmV0"}})
    folder = tmp_path_factory.mktemp(NODE)
    with real_node(folder, NODE, cluster, history) as node:
        node.join()
        yield node


def volumes_pod(name: str) -> Manifest:
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in VOLUMES]
    mounts.append({"name": "disk", "mountPath": "/part", "subPath": "part"})
    return pod(name, sleeper(volumeMounts=mounts), volumes=VOLUMES)


def mounts(node: ClusterNode, uid: str = "") -> list[str]:
    """List the IDs and paths of the mounts below the kubelet's directory, only those of one pod if a UID is given."""
    table = mount_utils.parse_mount_info(mount_utils.MOUNT_INFO)
    here = [each for each in table if each.mount_point.startswith(str(node.root_dir)) and uid in each.mount_point]
    return [f"{each.id} {each.mount_point}" for each in here]


def wait_until_nothing_is_left(node: ClusterNode, *uids: str) -> None:
    def left() -> list[str]:
        directories = [each for each in node.pod_directories() if any(uid in str(each) for uid in uids)]
        return [*map(str, directories), *(mount for uid in uids for mount in mounts(node, uid))]

    node.wait_for_condition("nothing is left of the pods", lambda: not left(), TIMEOUT)


def force_delete(node: ClusterNode, *names: str) -> None:
    """Delete the pods that still exist, because a pod that is being deleted may be gone already."""
    for name in names:
        try:
            node.delete(name, 0)
        except errors.ApiError as err:
            assert err.code == 404


def test_pods_go_while_the_kubelet_is_down(node: ClusterNode) -> None:
    """A new kubelet unmounts and removes the volumes of deleted pods, and leaves the other pods' volumes alone."""
    before = mounts(node)
    names = [f"goes-{number}" for number in range(4)]
    stays = node.create(volumes_pod("stays"))
    uids = [node.create(volumes_pod(name)).uid for name in names]
    node.wait_for_api_running("stays", *names, timeout=TIMEOUT)
    kept = mounts(node, stays.uid)
    assert len(kept) >= 4 and all(len(mounts(node, uid)) == len(kept) for uid in uids)
    node.kill()
    force_delete(node, *names)
    node.join()
    wait_until_nothing_is_left(node, *uids)
    node.wait_for_api_running("stays", timeout=TIMEOUT)
    assert mounts(node, stays.uid) == kept, "volumes were mounted again"
    force_delete(node, "stays")
    wait_until_nothing_is_left(node, stays.uid)
    assert mounts(node) == before and not node.pod_directories()


@pytest.mark.parametrize("waits", [False, True])
def test_kubelet_is_killed_while_volumes_come_and_go(node: ClusterNode, waits: bool) -> None:
    """No volume is left when the kubelet is killed during set-up or tear-down, whether or not the pods remain."""
    before = mounts(node)
    names = [f"half-{int(waits)}-{number}" for number in range(8)]
    uids = [node.create(volumes_pod(name)).uid for name in names]
    if waits:
        node.wait_for_api_running(*names, timeout=TIMEOUT)
        for name in names:
            node.delete(name)
    else:
        node.wait_for_condition("some volumes are mounted", lambda: len(mounts(node)) > len(before), TIMEOUT)
    node.kill()
    force_delete(node, *names[:4])
    node.join()
    if not waits:
        node.wait_for_api_running(*names[4:], timeout=TIMEOUT)
        force_delete(node, *names[4:])
    wait_until_nothing_is_left(node, *uids)
    assert mounts(node) == before and not node.pod_directories()
