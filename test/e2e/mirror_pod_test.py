"""Test static pods as the API server shows them. The tests need the node's manifest directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.cluster_client import Namespace, container, container_statuses, is_running
from framework.local_cluster import LocalCluster
from framework.pods import Manifest, pod, sleeper
from kubernetes.client import CoreV1Api

pytestmark = pytest.mark.local
MIRROR = "kubernetes.io/config.mirror"


@pytest.fixture(autouse=True)
def _no_manifests_left(local: LocalCluster) -> Iterator[None]:
    yield
    for path in local.kubelet.manifests.glob("*.json"):
        path.unlink()


def write(local: LocalCluster, namespace: Namespace, name: str, manifest: Manifest | None = None) -> str:
    """Write the manifest of a static pod, and return the name of its mirror pod."""
    manifest = manifest or pod(name, sleeper())
    manifest["metadata"]["namespace"] = namespace.name
    local.kubelet.write(manifest)
    return local.kubelet.full_name(name)


def container_id(local: LocalCluster, name: str) -> str:
    (running,) = local.cri.running_containers(name)
    return running.id


def test_static_pod_has_a_mirror(local: LocalCluster, namespace: Namespace) -> None:
    name = write(local, namespace, "shown")

    (found,) = namespace.wait_for_running(name)

    assert found.metadata.annotations["kubernetes.io/config.source"] == "file"
    assert found.metadata.annotations[MIRROR] == found.metadata.annotations["kubernetes.io/config.hash"]
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.name, owner.controller) == ("Node", namespace.node, True)
    assert found.spec.node_name == namespace.node
    main = container(found)
    assert main is not None and main.container_id.endswith(container_id(local, name))


def test_deleted_mirror_comes_back_and_nothing_is_restarted(
    core: CoreV1Api, local: LocalCluster, namespace: Namespace
) -> None:
    name = write(local, namespace, "deleted")
    (first,) = namespace.wait_for_running(name)
    running = container_id(local, name)

    core.delete_namespaced_pod(name, namespace.name)

    namespace.wait_for(
        name,
        "the new mirror pod is running",
        lambda found: found.metadata.uid != first.metadata.uid and is_running(found),
    )
    assert container_id(local, name) == running


def test_forced_deletion_of_a_mirror_is_no_different(
    core: CoreV1Api, local: LocalCluster, namespace: Namespace
) -> None:
    name = write(local, namespace, "forced")
    (first,) = namespace.wait_for_running(name)
    running = container_id(local, name)

    core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=0)

    namespace.wait_for(
        name,
        "the new mirror pod is running",
        lambda found: found.metadata.uid != first.metadata.uid and is_running(found),
    )
    assert container_id(local, name) == running


def test_mirror_goes_with_its_manifest(local: LocalCluster, namespace: Namespace) -> None:
    name = write(local, namespace, "removed")
    namespace.wait_for_running(name)

    local.kubelet.remove("removed")

    namespace.wait_deleted(name)
    assert not local.cri.running_containers(name)


def test_edited_manifest_gives_a_new_mirror(local: LocalCluster, namespace: Namespace) -> None:
    name = write(local, namespace, "edited")
    (first,) = namespace.wait_for_running(name)

    write(local, namespace, "edited", pod("edited", sleeper(), sleeper("second")))

    found = namespace.wait_for(
        name, "two containers", lambda found: is_running(found) and len(container_statuses(found)) == 2
    )
    assert found.metadata.uid != first.metadata.uid
    assert found.metadata.annotations[MIRROR] != first.metadata.annotations[MIRROR]


def test_foreign_changes_of_a_mirror_change_nothing_that_runs(
    core: CoreV1Api, local: LocalCluster, namespace: Namespace
) -> None:
    name = write(local, namespace, "changed")
    namespace.wait_for_running(name)
    running = container_id(local, name)

    # As with the Go kubelet, the mirror pod keeps the foreign change, because the kubelet compares only its annotation.
    other = {"containers": [{"name": "main", "image": namespace.images.pause}]}
    core.patch_namespaced_pod(name, namespace.name, {"spec": other})
    core.patch_namespaced_pod_status(name, namespace.name, {"status": {"phase": "Pending"}})

    namespace.wait_for_seen(name, "the change", lambda found: found.spec.containers[0].image == namespace.images.pause)
    namespace.wait_for(name, "a corrected status", is_running)
    assert container_id(local, name) == running
