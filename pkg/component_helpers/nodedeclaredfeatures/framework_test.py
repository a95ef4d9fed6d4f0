"""Test declared features.

Go: k8s.io/component-helpers/nodedeclaredfeatures/framework_test.go, and the tests below
k8s.io/component-helpers/nodedeclaredfeatures/features
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import version
from pkg.component_helpers import nodedeclaredfeatures as ndf

VERSION = version.parse("v1.36.2")
RESTART_ALL = "RestartAllContainersOnContainerExits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"


@dataclass
class Gates:
    on: set[str]

    def enabled(self, key: str) -> bool:
        return key in self.on


def feature(name: str, max_version: str | None = None) -> ndf.Feature:
    """Return a feature that all nodes have and all pods need."""
    limit = None if max_version is None else version.parse(max_version)
    return ndf.Feature(name, lambda cfg: True, lambda pod: True, limit)


@pytest.mark.parametrize(
    ("gates", "in_runtime", "expected"),
    [
        (set(), True, []),
        ({RESTART_ALL}, False, [RESTART_ALL]),
        ({HOST_NETWORK}, False, []),
        ({HOST_NETWORK, "ExtendWebSocketsToKubelet"}, True, ["ExtendWebSocketsToKubelet", HOST_NETWORK]),
    ],
)
def test_discover_node_features(gates: set[str], in_runtime: bool, expected: list[str]) -> None:
    cfg = ndf.NodeConfiguration(Gates(gates), VERSION, ndf.RuntimeFeatures(user_namespaces_host_network=in_runtime))
    assert ndf.DEFAULT_FRAMEWORK.discover_node_features(cfg) == expected


def restarting(action: str, init: bool = False) -> v1.Pod:
    container = v1.Container(restart_policy_rules=[v1.ContainerRestartRule(action=action)])
    spec = v1.PodSpec(init_containers=[container]) if init else v1.PodSpec(containers=[container])
    return v1.Pod(spec=spec)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (v1.Pod(), set()),
        (restarting("Restart"), set()),
        (restarting("RestartAllContainers"), {RESTART_ALL}),
        (restarting("RestartAllContainers", init=True), {RESTART_ALL}),
        (v1.Pod(spec=v1.PodSpec(host_network=True)), set()),
        (v1.Pod(spec=v1.PodSpec(host_network=True, host_users=True)), set()),
        (v1.Pod(spec=v1.PodSpec(host_users=False)), set()),
        (v1.Pod(spec=v1.PodSpec(host_network=True, host_users=False)), {HOST_NETWORK}),
    ],
)
def test_infer_for_pod_scheduling(pod: v1.Pod, expected: set[str]) -> None:
    assert ndf.DEFAULT_FRAMEWORK.infer_for_pod_scheduling(pod, VERSION) == expected


def test_feature_that_all_nodes_of_a_version_have() -> None:
    framework = ndf.Framework([feature("old", "1.35.0"), feature("last", "1.36.2"), feature("endless")])
    assert framework.infer_for_pod_scheduling(v1.Pod(), VERSION) == {"last", "endless"}
    assert framework.discover_node_features(ndf.NodeConfiguration(Gates(set()), VERSION)) == ["endless", "last"]
    assert framework.discover_node_features(ndf.NodeConfiguration(Gates(set()))) == ["endless", "last", "old"]


@pytest.mark.parametrize(
    ("required", "declared", "missing"),
    [(set(), set(), ()), ({"a"}, {"a", "b"}, ()), ({"b", "a"}, {"c"}, ("a", "b")), ({"b", "a"}, {"a"}, ("b",))],
)
def test_match_node_feature_set(required: set[str], declared: set[str], missing: tuple[str, ...]) -> None:
    match = ndf.DEFAULT_FRAMEWORK.match_node_feature_set(frozenset(required), frozenset(declared))
    assert (match.is_match, match.unsatisfied_requirements) == (not missing, missing)


def resized(pod_cpu: str = "", init_cpu: str = "100m", sidecar: bool = False) -> v1.Pod:
    def requests(cpu: str) -> v1.ResourceRequirements:
        return v1.ResourceRequirements(requests={"cpu": resource.must_parse(cpu)})

    init = v1.Container(name="init", resources=requests(init_cpu), restart_policy="Always" if sidecar else None)
    return v1.Pod(spec=v1.PodSpec(init_containers=[init], resources=requests(pod_cpu) if pod_cpu else None))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (resized(), resized(), set()),
        (resized("1"), resized("1000m"), set()),
        (resized("1"), resized("2"), {"InPlacePodLevelResourcesVerticalScaling"}),
        (resized(), resized("2"), {"InPlacePodLevelResourcesVerticalScaling"}),
        (resized(), resized(init_cpu="200m"), {"InPlacePodVerticalScalingInitContainers"}),
        (resized(sidecar=True), resized(init_cpu="200m", sidecar=True), set()),
    ],
    ids=["nothing", "the same amount", "pod", "pod that had none", "init container", "sidecar"],
)
def test_infer_for_pod_update(old: v1.Pod, new: v1.Pod, expected: set[str]) -> None:
    assert ndf.DEFAULT_FRAMEWORK.infer_for_pod_update(old, new, VERSION) == expected


def test_outdated_feature_is_not_needed_for_an_update() -> None:
    for limit, expected in (("v1.36.2", {"x"}), ("v1.35.0", set())):
        known = ndf.Feature("x", lambda cfg: True, lambda pod: True, version.parse(limit), lambda old, new: True)
        assert ndf.Framework([known]).infer_for_pod_update(v1.Pod(), v1.Pod(), VERSION) == expected
