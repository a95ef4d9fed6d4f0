"""The node as the cluster sees it: what it tells of itself, that it goes on doing so, and what it leaves to others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from framework.cluster_client import Namespace, conditions, is_true
from framework.local_cluster import LocalCluster
from framework.pods import pod, sleeper
from framework.recorder import Recorder

from pkg import golang
from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes

LEASES = "kube-node-lease"
# Seconds: a lease is renewed four times in its time, which is 40.
RENEWAL = 40.0


@pytest.fixture(scope="module")
def nodes(client: kubernetes.Clientset) -> Iterator[Recorder[v1.Node]]:
    recorder = Recorder("nodes", client.core_v1.nodes())
    yield recorder
    recorder.stop()


@pytest.fixture(scope="module", autouse=True)
def leases(client: kubernetes.Clientset) -> Iterator[Recorder[coordinationv1.Lease]]:
    """Recorded from the first test on, so that the tests of other things are part of the wait."""
    recorder = Recorder("leases", client.coordination_v1.leases(LEASES))
    yield recorder
    recorder.stop()


@pytest.fixture
def node(nodes: Recorder[v1.Node], namespace: Namespace) -> v1.Node:
    """The tested node as it is now."""
    return wait_for_node(nodes, namespace.node, "there", lambda found: True)


def wait_for_node(
    nodes: Recorder[v1.Node], name: str, what: str, condition: Callable[[v1.Node], object], timeout: float = 120
) -> v1.Node:
    def look() -> v1.Node | None:
        found = nodes.latest(name)
        return found if found is not None and condition(found) else None

    found = nodes.wait_for(f"node {name}: {what}", look, timeout, lambda: nodes.latest(name))
    assert found is not None
    return found


def patch_node(client: kubernetes.Clientset, name: str, patch: object) -> None:
    data = json.dumps(patch).encode()
    client.core_v1.nodes().patch(golang.background(), name, types.PatchType.STRATEGIC_MERGE, data)


def test_conditions_are_told_with_their_reasons(node: v1.Node) -> None:
    assert {
        name: (each.status, each.reason, each.message)
        for name, each in conditions(node).items()
        if name != "NetworkUnavailable"
    } == {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    }
    assert all(each.last_heartbeat_time and each.last_transition_time for each in node.status.conditions)


def test_labels_say_what_and_where_it_is(node: v1.Node) -> None:
    labels = node.metadata.labels
    assert labels["kubernetes.io/hostname"]
    for key in ("kubernetes.io/os", "beta.kubernetes.io/os"):
        assert labels[key] == node.status.node_info.operating_system == "linux"
    for key in ("kubernetes.io/arch", "beta.kubernetes.io/arch"):
        assert labels[key] == node.status.node_info.architecture


def test_capacity_and_what_pods_may_have_of_it(node: v1.Node) -> None:
    for name in ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi"):
        if name in node.status.capacity:
            assert node.status.allocatable[name].cmp(node.status.capacity[name]) <= 0
    assert {"cpu", "memory", "pods", "ephemeral-storage"} <= set(node.status.capacity)
    assert node.status.capacity["cpu"].value() >= 1
    assert node.status.allocatable["memory"].value() > 0


def test_addresses(node: v1.Node) -> None:
    addresses = {each.type: each.address for each in node.status.addresses}
    assert addresses["Hostname"]
    assert addresses["InternalIP"]


def test_versions_and_the_machine(node: v1.Node) -> None:
    info = node.status.node_info
    assert re.match(r"v1\.\d+\.\d+", info.kubelet_version)
    assert re.match(r"\w+://", info.container_runtime_version)
    assert info.machine_id and info.boot_id and info.kernel_version and info.os_image
    assert node.status.daemon_endpoints.kubelet_endpoint.port > 0


def test_images_that_pods_use_are_told(namespace: Namespace, nodes: Recorder[v1.Node]) -> None:
    namespace.create(pod("uses-image", sleeper()))
    namespace.wait_for_running("uses-image")
    image = namespace.images.busybox

    def told(found: v1.Node) -> bool:
        return any(image in each.names and each.size_bytes > 0 for each in found.status.images)

    wait_for_node(nodes, namespace.node, f"image {image}", told, timeout=330)


def test_foreign_label_annotation_and_taint_stay(
    client: kubernetes.Clientset, nodes: Recorder[v1.Node], leases: Recorder[coordinationv1.Lease], namespace: Namespace
) -> None:
    name = namespace.node
    mark = {"labels": {"e2e.example.com/l": "1"}, "annotations": {"e2e.example.com/a": "2"}}
    taint = {"key": "e2e.example.com/t", "effect": "PreferNoSchedule"}
    patch_node(client, name, {"metadata": mark, "spec": {"taints": [taint]}})
    try:
        wait_for_renewals(leases, name, 1)
        kept = wait_for_node(nodes, name, "there", lambda found: found.metadata.labels.get("e2e.example.com/l") == "1")
        assert kept.metadata.annotations["e2e.example.com/a"] == "2"
        assert "e2e.example.com/t" in [each.key for each in kept.spec.taints]
    finally:
        gone = {"labels": {"e2e.example.com/l": None}, "annotations": {"e2e.example.com/a": None}}
        patch_node(client, name, {"metadata": gone, "spec": {"taints": [{**taint, "$patch": "delete"}]}})


def test_cordon_is_left_alone(
    client: kubernetes.Clientset, nodes: Recorder[v1.Node], leases: Recorder[coordinationv1.Lease], namespace: Namespace
) -> None:
    name = namespace.node
    patch_node(client, name, {"spec": {"unschedulable": True}})
    try:
        wait_for_node(nodes, name, "cordoned", lambda found: found.spec.unschedulable)
        wait_for_renewals(leases, name, 1)
        node = wait_for_node(nodes, name, "there", lambda found: True)
        assert node.spec.unschedulable and is_true(node, v1.NODE_READY)
        # Only the scheduler goes by it.
        namespace.create(pod("on-cordoned", sleeper(), tolerations=[{"operator": "Exists"}]))
        namespace.wait_for_running("on-cordoned")
    finally:
        patch_node(client, name, {"spec": {"unschedulable": None}})


def wait_for_renewals(leases: Recorder[coordinationv1.Lease], name: str, count: int) -> None:
    """Wait for so many more renewals of a node's lease."""
    wait_for_versions(leases, name, len(leases.history(name)) + count)


def wait_for_versions(leases: Recorder[coordinationv1.Lease], name: str, count: int) -> None:
    leases.wait_for(
        f"{count} versions of lease {name}",
        lambda: len(leases.history(name)) >= count,
        RENEWAL * count,
        lambda: leases.latest(name),
    )


def test_lease_is_the_nodes_and_is_renewed(leases: Recorder[coordinationv1.Lease], node: v1.Node) -> None:
    name = node.metadata.name
    wait_for_versions(leases, name, 3)

    lease = leases.latest(name)
    assert lease is not None
    assert lease.spec.holder_identity == name
    assert lease.spec.lease_duration_seconds == 40
    (owner,) = lease.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", name, node.metadata.uid)
    renewals = [each.object.spec.renew_time for each in leases.history(name)]
    assert all(earlier < later for earlier, later in pairwise(renewals) if earlier and later)


def test_node_stays_ready(nodes: Recorder[v1.Node], namespace: Namespace) -> None:
    """Over all that the tests before did to it."""
    assert all(is_true(each.object, v1.NODE_READY) for each in nodes.history(namespace.node))


@pytest.mark.local
def test_heartbeats_go_on_and_transitions_do_not(
    local: LocalCluster, nodes: Recorder[v1.Node], namespace: Namespace
) -> None:
    def heartbeats() -> set[object]:
        return {each.last_heartbeat_time for each in all_ready_conditions(nodes, namespace.node)}

    nodes.wait_for("three heartbeats", lambda: len(heartbeats()) >= 3, 120, lambda: nodes.latest(namespace.node))
    assert len({each.last_transition_time for each in all_ready_conditions(nodes, namespace.node)}) == 1


def all_ready_conditions(nodes: Recorder[v1.Node], name: str) -> list[v1.NodeCondition]:
    """The Ready condition in each version of the node."""
    versions = [each.object for each in nodes.history(name)]
    return [each for node in versions for each in node.status.conditions if each.type == v1.NODE_READY]


@pytest.mark.local
def test_deleted_node_stays_away_until_the_kubelet_is_started_again(
    local: LocalCluster, client: kubernetes.Clientset, nodes: Recorder[v1.Node], namespace: Namespace, node: v1.Node
) -> None:
    name, old = node.metadata.name, node.metadata.uid
    namespace.create(pod("survives", sleeper()))
    namespace.wait_for_running("survives")

    told = len(local.kubelet.logged("Unable to update node status"))
    client.core_v1.nodes().delete(golang.background(), name, metav1.DeleteOptions())
    local.kubelet.wait_for_log("Unable to update node status", count=told + 2)
    with pytest.raises(apierrors.StatusError, match="not found"):
        client.core_v1.nodes().get(golang.background(), name)

    local.kubelet.stop()
    local.kubelet.start()
    again = wait_for_node(
        nodes, name, "Ready again", lambda found: found.metadata.uid != old and is_true(found, v1.NODE_READY)
    )
    assert again.metadata.labels == node.metadata.labels
    namespace.create(pod("after", sleeper()))
    namespace.wait_for_running("after", "survives")
