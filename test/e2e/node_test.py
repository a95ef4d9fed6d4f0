"""Test the node as the cluster sees it: what the kubelet reports, that it keeps reporting, and what it leaves alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from framework.cluster_client import Namespace, conditions, is_true
from framework.local_cluster import Environment, LocalCluster
from framework.pods import pod, sleeper
from framework.recorder import Recorder
from kubernetes.client import CoordinationV1Api, CoreV1Api, V1Node, V1NodeCondition, V1Taint
from kubernetes.client.exceptions import NotFoundException
from kubernetes.utils import parse_quantity

LEASES = "kube-node-lease"
# The kubelet renews a lease four times in the lease's duration of 40 s.
RENEWAL = 40.0


@pytest.fixture(scope="module")
def nodes(core: CoreV1Api) -> Iterator[Recorder]:
    recorder = Recorder(core.list_node)
    yield recorder
    recorder.stop()


@pytest.fixture(scope="module", autouse=True)
def leases(environment: Environment) -> Iterator[Recorder]:
    """Record the leases from the first test on, so that waiting for renewals overlaps with the other tests."""
    recorder = Recorder(CoordinationV1Api(environment.api).list_namespaced_lease, LEASES)
    yield recorder
    recorder.stop()


@pytest.fixture
def node(nodes: Recorder, namespace: Namespace) -> V1Node:
    """Return the tested node as it is now."""
    return wait_for_node(nodes, namespace.node, "there", lambda found: True)


def wait_for_node(
    nodes: Recorder, name: str, what: str, condition: Callable[[V1Node], object], timeout: float = 120
) -> V1Node:
    def look() -> V1Node | None:
        found = nodes.latest(name)
        return found if found is not None and condition(found) else None

    found = nodes.wait_for(f"node {name}: {what}", look, timeout, lambda: nodes.latest(name))
    assert found is not None
    return found


def test_conditions_are_told_with_their_reasons(node: V1Node) -> None:
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


def test_labels_say_what_and_where_it_is(node: V1Node) -> None:
    labels = node.metadata.labels
    assert labels["kubernetes.io/hostname"]
    for key in ("kubernetes.io/os", "beta.kubernetes.io/os"):
        assert labels[key] == node.status.node_info.operating_system == "linux"
    for key in ("kubernetes.io/arch", "beta.kubernetes.io/arch"):
        assert labels[key] == node.status.node_info.architecture


def test_capacity_and_what_pods_may_have_of_it(node: V1Node) -> None:
    for name in ("cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi"):
        if name in node.status.capacity:
            assert parse_quantity(node.status.allocatable[name]) <= parse_quantity(node.status.capacity[name])
    assert {"cpu", "memory", "pods", "ephemeral-storage"} <= set(node.status.capacity)
    assert parse_quantity(node.status.capacity["cpu"]) >= 1
    assert parse_quantity(node.status.allocatable["memory"]) > 0


def test_addresses(node: V1Node) -> None:
    addresses = {each.type: each.address for each in node.status.addresses}
    assert addresses["Hostname"]
    assert addresses["InternalIP"]


def test_versions_and_the_machine(node: V1Node) -> None:
    info = node.status.node_info
    assert re.match(r"v1\.\d+\.\d+", info.kubelet_version)
    assert re.match(r"\w+://", info.container_runtime_version)
    assert info.machine_id and info.boot_id and info.kernel_version and info.os_image
    assert node.status.daemon_endpoints.kubelet_endpoint.port > 0


def test_images_that_pods_use_are_told(namespace: Namespace, nodes: Recorder) -> None:
    namespace.create(pod("uses-image", sleeper()))
    namespace.wait_for_running("uses-image")
    image = namespace.images.busybox

    def told(found: V1Node) -> bool:
        return any(image in each.names and each.size_bytes > 0 for each in found.status.images or [])

    wait_for_node(nodes, namespace.node, f"image {image}", told, timeout=330)


def test_foreign_label_annotation_and_taint_stay(
    core: CoreV1Api, nodes: Recorder, leases: Recorder, namespace: Namespace
) -> None:
    name, key = namespace.node, "e2e.example.com/t"
    mark = {"labels": {"e2e.example.com/l": "1"}, "annotations": {"e2e.example.com/a": "2"}}
    # The taints of a patch replace the existing taints, because the list does not merge.
    taints = [*other_taints(core.read_node(name), key), {"key": key, "effect": "PreferNoSchedule"}]
    core.patch_node(name, {"metadata": mark, "spec": {"taints": taints}})
    try:
        wait_for_renewals(leases, name, 1)
        kept = wait_for_node(nodes, name, "there", lambda found: found.metadata.labels.get("e2e.example.com/l") == "1")
        assert kept.metadata.annotations["e2e.example.com/a"] == "2"
        assert key in [each.key for each in kept.spec.taints]
    finally:
        gone = {"labels": {"e2e.example.com/l": None}, "annotations": {"e2e.example.com/a": None}}
        core.patch_node(name, {"metadata": gone, "spec": {"taints": other_taints(core.read_node(name), key)}})
    wait_for_node(
        nodes,
        name,
        "without the foreign taint",
        lambda found: other_taints(found, key) == (found.spec.taints or []),
    )


def other_taints(node: V1Node, key: str) -> list[V1Taint]:
    return [each for each in node.spec.taints or [] if each.key != key]


def test_cordon_is_left_alone(core: CoreV1Api, nodes: Recorder, leases: Recorder, namespace: Namespace) -> None:
    name = namespace.node
    core.patch_node(name, {"spec": {"unschedulable": True}})
    try:
        wait_for_node(nodes, name, "cordoned", lambda found: found.spec.unschedulable)
        wait_for_renewals(leases, name, 1)
        node = wait_for_node(nodes, name, "there", lambda found: True)
        assert node.spec.unschedulable and is_true(node, "Ready")
        # Only the scheduler obeys a cordon, not the kubelet.
        namespace.create(pod("on-cordoned", sleeper(), tolerations=[{"operator": "Exists"}]))
        namespace.wait_for_running("on-cordoned")
    finally:
        core.patch_node(name, {"spec": {"unschedulable": None}})


def wait_for_renewals(leases: Recorder, name: str, count: int) -> None:
    """Wait for `count` more renewals of a node's lease."""
    wait_for_versions(leases, name, len(leases.history(name)) + count)


def wait_for_versions(leases: Recorder, name: str, count: int) -> None:
    leases.wait_for(
        f"{count} versions of lease {name}",
        lambda: len(leases.history(name)) >= count,
        RENEWAL * count,
        lambda: leases.latest(name),
    )


def test_lease_is_the_nodes_and_is_renewed(leases: Recorder, node: V1Node) -> None:
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


def test_node_stays_ready(nodes: Recorder, namespace: Namespace) -> None:
    """The node stays Ready through everything that the earlier tests did to it."""
    assert all(is_true(each.object, "Ready") for each in nodes.history(namespace.node))


@pytest.mark.local
def test_heartbeats_go_on_and_transitions_do_not(local: LocalCluster, nodes: Recorder, namespace: Namespace) -> None:
    def heartbeats() -> set[object]:
        return {each.last_heartbeat_time for each in all_ready_conditions(nodes, namespace.node)}

    nodes.wait_for("three heartbeats", lambda: len(heartbeats()) >= 3, 120, lambda: nodes.latest(namespace.node))
    assert len({each.last_transition_time for each in all_ready_conditions(nodes, namespace.node)}) == 1


def all_ready_conditions(nodes: Recorder, name: str) -> list[V1NodeCondition]:
    """List the Ready condition in each version of the node."""
    versions = [each.object for each in nodes.history(name)]
    return [each for node in versions for each in node.status.conditions if each.type == "Ready"]


@pytest.mark.local
def test_deleted_node_stays_away_until_the_kubelet_is_started_again(
    local: LocalCluster, core: CoreV1Api, nodes: Recorder, namespace: Namespace, node: V1Node
) -> None:
    name, old = node.metadata.name, node.metadata.uid
    namespace.create(pod("survives", sleeper()))
    namespace.wait_for_running("survives")

    told = len(local.kubelet.logged("Unable to update node status"))
    core.delete_node(name)
    local.kubelet.wait_for_log("Unable to update node status", count=told + 2)
    with pytest.raises(NotFoundException):
        core.read_node(name)

    local.kubelet.stop()
    local.kubelet.start()
    again = wait_for_node(
        nodes, name, "Ready again", lambda found: found.metadata.uid != old and is_true(found, "Ready")
    )
    assert again.metadata.labels == node.metadata.labels
    namespace.create(pod("after", sleeper()))
    namespace.wait_for_running("after", "survives")
