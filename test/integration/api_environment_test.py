"""Test containers' variables from the API server's objects, for each way in which a kubelet detects changes."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from framework.apiserver.cluster import Cluster
from framework.apiserver.interfaces import Object, Request
from framework.cluster_node import ClusterNode
from framework.pods import Manifest, pod, sleeper

TTL = "node.alpha.kubernetes.io/ttl"
# Tests wait up to this many seconds for a restart or a retry, because both come only after a back-off.
AGAIN = 40
STRATEGIES = ("Watch", "Cache", "Get")


@pytest.fixture(scope="module")
def nodes(new_node: Callable[..., ClusterNode]) -> dict[str, ClusterNode]:
    made = {}
    for strategy in STRATEGIES:
        config = {
            "configMapAndSecretChangeDetectionStrategy": strategy,
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        }
        made[strategy] = new_node(strategy.lower(), {**config, "featureGates": {"KubeletCrashLoopBackOffMax": True}})
        made[strategy].join()
    return made


@pytest.fixture(params=STRATEGIES)
def node(request: pytest.FixtureRequest, nodes: dict[str, ClusterNode]) -> ClusterNode:
    return nodes[request.param]


@pytest.fixture
def name(request: pytest.FixtureRequest, node: ClusterNode) -> str:
    """Return a name for the test's pod and objects."""
    return f"{request.node.originalname.removeprefix('test_').replace('_', '-')}-{node.node}"[:63].rstrip("-")


def config_map(name: str, immutable: bool = False, **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data, "immutable": immutable}


def secret(name: str, **data: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name, "namespace": "default"}, "data": encoded, "type": "Opaque"}


def from_map(name: str, of: str, key: str, optional: bool = False) -> Object:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": of, "key": key, "optional": optional}}}


def from_secret(name: str, of: str, key: str) -> Object:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": of, "key": key}}}


def with_env(name: str, *env: Object, sources: tuple[Object, ...] = ()) -> Manifest:
    return pod(name, sleeper(env=list(env), envFrom=list(sources)))


def variables(node: ClusterNode, name: str) -> dict[str, str]:
    """Return the variables of the pod's newest container, without those that describe services."""
    envs = {each.key: each.value for each in node.runtime.container(name, "main").config.envs}
    return {key: value for key, value in envs.items() if not key.startswith("KUBERNETES_")}


def start_again(node: ClusterNode, name: str) -> None:
    """End the pod's container, and wait for the container that replaces it."""
    before = node.runtime.container(name, "main").id
    node.runtime.end_container(before, 1)
    node.wait_for_condition(
        f"another container of {name}", lambda: set(node.container_ids(name)) - {before}, timeout=AGAIN
    )


def watches(node: ClusterNode, name: str) -> list[Request]:
    """List the kubelet's watches of config maps and secrets with this name."""
    return [
        each
        for each in node.cluster.faults.watches
        if each.user.name == f"system:node:{node.node}"
        and each.resource in ("configmaps", "secrets")
        and each.parameter("fieldSelector") == f"metadata.name={name}"
    ]


def test_variables_of_objects(node: ClusterNode, name: str, cluster: Cluster) -> None:
    cluster.store.create("configmaps", config_map(name, PLAIN="from map", BOTH="map"))
    cluster.store.create("secrets", secret(name, HIDDEN="from secret", BOTH="secret"))
    sources = (
        {"configMapRef": {"name": name}},
        {"secretRef": {"name": name}},
        {"prefix": "P_", "secretRef": {"name": name}},
        {"configMapRef": {"name": "missing", "optional": True}},
    )
    env = (
        from_map("ONE", name, "PLAIN"),
        from_secret("TWO", name, "HIDDEN"),
        from_map("NONE", name, "no-such-key", optional=True),
        {"name": "ALL", "value": "$(ONE), $(P_HIDDEN), $(NONE)"},
    )
    node.create(with_env(name, *env, sources=sources))
    node.wait_for_api_running(name)

    assert variables(node, name) == {
        "PLAIN": "from map",
        "BOTH": "secret",
        "HIDDEN": "from secret",
        "P_HIDDEN": "from secret",
        "P_BOTH": "secret",
        "ONE": "from map",
        "TWO": "from secret",
        "ALL": "from map, from secret, $(NONE)",
    }


def test_change_between_two_starts(node: ClusterNode, name: str, cluster: Cluster) -> None:
    cluster.store.create("configmaps", config_map(name, key="old"))
    cluster.store.create("secrets", secret(name, key="old"))
    set_ttl(node, 3600)
    node.create(with_env(name, from_map("MAP", name, "key"), from_secret("SECRET", name, "key")))
    node.wait_for_api_running(name)
    old, new = ({"MAP": value, "SECRET": value} for value in ("old", "new"))
    assert variables(node, name) == old

    for made in (config_map(name, key="new"), secret(name, key="new")):
        resource = "secrets" if "type" in made else "configmaps"
        cluster.store.patch(resource, name, {"data": made["data"]}, "default")
    start_again(node, name)

    if node.node == "cache":
        assert variables(node, name) == old, "the kubelet did not use its cached objects"
        set_ttl(node, 0)
    if node.node != "get":
        # A change of a watched object, or of its node's TTL annotation, reaches the kubelet only after a moment.
        node.wait_for_condition("the change", lambda: variables_of_next_start(node, name) == new)
    assert variables(node, name) == new


def variables_of_next_start(node: ClusterNode, name: str) -> dict[str, str]:
    start_again(node, name)
    return variables(node, name)


def set_ttl(node: ClusterNode, seconds: int) -> None:
    node.cluster.store.patch("nodes", node.node, {"metadata": {"annotations": {TTL: str(seconds)}}})


def test_missing(nodes: dict[str, ClusterNode], cluster: Cluster) -> None:
    """A container waits while an object or a key is missing, and starts once it exists.

    The test creates all pods at once, because the kubelet retries each of them only after a while.
    """
    set_ttl(nodes["Cache"], 0)
    pods = {}
    for strategy, node in nodes.items():
        # With the strategy Watch the kubelet writes the message itself. Otherwise the API server writes it.
        kind = "configmap" if strategy == "Watch" else "configmaps"
        no_key, no_object = f"no-key-{node.node}", f"no-object-{node.node}"
        cluster.store.create("configmaps", config_map(no_key, other="x"))
        pods[no_key] = (node, f"couldn't find key key in ConfigMap default/{no_key}")
        pods[no_object] = (node, f'{kind} "{no_object}" not found')
    for name, (node, _) in pods.items():
        node.create(with_env(name, from_map("MAP", name, "key")))

    for name, (node, message) in pods.items():
        waiting = {"is": "waiting", "reason": "CreateContainerConfigError", "message": message}
        node.wait_for_api_pod(name, f"waits: {message}", lambda found, state=waiting: found.state() == state)  # type: ignore[misc]
        node.wait_for_api_event(name, "Failed", f"Error: {message}")
    for name in pods:
        if name.startswith("no-key"):
            cluster.store.patch("configmaps", name, {"data": {"key": "there"}}, "default")
        else:
            cluster.store.create("configmaps", config_map(name, key="there"))
    for name, (node, _) in pods.items():
        node.wait_for_api_running(name, timeout=AGAIN)
        assert variables(node, name) == {"MAP": "there"}


def test_pull_secret_that_is_missing(node: ClusterNode, name: str, cluster: Cluster) -> None:
    cluster.store.create("secrets", secret(name, unused="x"))
    made = with_env(name)
    made["spec"]["imagePullSecrets"] = [{"name": name}, {"name": "no-such-secret"}]
    node.create(made)
    node.wait_for_api_running(name)
    event = node.wait_for_api_event(name, "FailedToRetrieveImagePullSecret")
    assert event["message"] == (
        "Unable to retrieve some image pull secrets (no-such-secret); attempting to pull the image may not succeed."
    )


# --- Requests to the API server ---------------------------------------------------------------------


@pytest.fixture
def watching(nodes: dict[str, ClusterNode]) -> ClusterNode:
    return nodes["Watch"]


def test_one_watch_per_object_as_long_as_a_pod_needs_it(watching: ClusterNode, cluster: Cluster) -> None:
    node, name = watching, "shared"
    cluster.store.create("configmaps", config_map(name, key="x"))
    for one in ("shared-1", "shared-2"):
        node.create(with_env(one, from_map("MAP", name, "key")))
    node.wait_for_api_running("shared-1", "shared-2")
    assert [each.resource for each in watches(node, name)] == ["configmaps"]
    node.delete("shared-1", 0)
    node.wait_until_gone("shared-1")
    assert len(watches(node, name)) == 1
    node.delete("shared-2", 0)
    node.wait_for_condition("no watch", lambda: not watches(node, name))


def test_immutable_objects_are_not_watched(watching: ClusterNode, cluster: Cluster) -> None:
    node, name = watching, "never-changes"
    cluster.store.create("configmaps", config_map(name, immutable=True, key="x"))
    node.create(with_env(name, from_map("MAP", name, "key")))
    node.wait_for_api_running(name)
    node.wait_for_condition("no watch", lambda: not watches(node, name))
    start_again(node, name)
    assert variables(node, name) == {"MAP": "x"}
    assert not watches(node, name)


def test_nothing_but_single_objects_is_asked_for(nodes: dict[str, ClusterNode], cluster: Cluster) -> None:
    """The kubelet requests single objects only.

    The node authorizer allows nothing else, and a list would reveal secrets that the node has no need to know.
    """
    calls = {
        node.node: [
            each
            for each in cluster.requests.calls(user=f"system:node:{node.node}")
            if each.resource in ("configmaps", "secrets")
        ]
        for node in nodes.values()
    }
    assert not [each for found in calls.values() for each in found if each.code == 403]
    assert {each.verb for each in calls["get"]} == {each.verb for each in calls["cache"]} == {"get"}
    assert {each.verb for each in calls["watch"]} == {"watch"}
    running = [each for each in cluster.faults.watches if each.resource in ("configmaps", "secrets")]
    assert running
    assert all(each.parameter("fieldSelector").startswith("metadata.name=") for each in running)
    assert {each.user.name for each in running} == {"system:node:watch"}


def test_watches_survive_an_outage(watching: ClusterNode, cluster: Cluster) -> None:
    node, name = watching, "outlives"
    cluster.store.create("configmaps", config_map(name, key="old"))
    node.create(with_env(name, from_map("MAP", name, "key")))
    node.wait_for_api_running(name)
    with cluster.faults.hang(resource="configmaps", user="system:node:watch") as hang:
        cluster.faults.cut_watches(resource="configmaps", user="system:node:watch")
        node.wait_for_condition("the kubelet tries to watch again", lambda: hang.hits)
        cluster.store.patch("configmaps", name, {"data": {"key": "new"}}, "default")
        start_again(node, name)
        assert variables(node, name) == {"MAP": "old"}, "the kubelet did not use the last objects that it knows"
    node.wait_for_condition("a new watch", lambda: watches(node, name))

    node.wait_for_condition("the change", lambda: variables_of_next_start(node, name) == {"MAP": "new"})
