"""Test the admission of pods: each reason for which a node refuses one, and preemption for critical pods."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from framework.apiserver.interfaces import Object
from framework.cluster_node import ClusterNode
from framework.pod_history import Version, assert_history_monotonic
from framework.pods import Manifest, pod, sleeper

DEVICE = "example.org/device"
HOST_PORT = 18080
PREEMPTED = "Preempted in order to admit critical pod"

NewNode = Callable[..., ClusterNode]


def requesting(name: str = "main", **requests: str) -> dict[str, Any]:
    return sleeper(name, resources={"requests": {key.replace("__", "-"): text for key, text in requests.items()}})


def needing(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return an affinity that requires a node that matches one of the terms."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labelled(manifest: Manifest, key: str, value: str) -> Manifest:
    manifest["metadata"]["labels"] = {key: value}
    return manifest


@dataclass(frozen=True)
class Refused:
    """Describe a pod and the failure that admission must report."""

    manifest: Manifest
    reason: str
    message: str  # The whole message must match this regular expression.
    qos: str = "BestEffort"

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def lacking(name: str, requested: int, capacity: str = "[0-9]+") -> str:
    return f"Node didn't have enough resource: {name}, requested: {requested}, used: [0-9]+, capacity: {capacity}"


NO_AFFINITY = r"Predicate NodeAffinity failed: node\(s\) didn't match Pod's node affinity/selector"
NO_PORTS = r"Predicate NodePorts failed: node\(s\) didn't have free ports for the requested pod ports"
SIDECAR = requesting("sidecar", cpu="500")
SIDECAR["restartPolicy"] = "Always"
RESTARTS_ALL = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}

REFUSED = [
    Refused(pod("cpu", requesting(cpu="1000")), "OutOfcpu", lacking("cpu", 1_000_000), "Burstable"),
    Refused(pod("memory", requesting(memory="1Ei")), "OutOfmemory", lacking("memory", 2**60), "Burstable"),
    Refused(
        pod("storage", requesting(ephemeral__storage="1Ei")),
        "OutOfephemeral-storage",
        lacking("ephemeral-storage", 2**60),
    ),
    Refused(
        pod("init", sleeper(), initContainers=[requesting("init", cpu="1000")]),
        "OutOfcpu",
        lacking("cpu", 1_000_000),
        "Burstable",
    ),
    Refused(
        pod("sidecar", requesting(cpu="500"), initContainers=[SIDECAR]),
        "OutOfcpu",
        lacking("cpu", 1_000_000),
        "Burstable",
    ),
    Refused(
        pod("pod-level", sleeper(), resources={"requests": {"cpu": "1000"}}),
        "OutOfcpu",
        lacking("cpu", 1_000_000),
        "Burstable",
    ),
    Refused(
        pod("device", sleeper(resources={"requests": {DEVICE: "3"}, "limits": {DEVICE: "3"}})),
        f"OutOf{DEVICE}",
        lacking(DEVICE, 3, "2"),
    ),
    Refused(
        pod("huge", sleeper(resources={"limits": {"hugepages-1Gi": "512Gi", "cpu": "10m"}})),
        "OutOfhugepages-1Gi",
        lacking("hugepages-1Gi", 512 * 2**30),
        "Burstable",
    ),
    Refused(
        pod("port", sleeper(ports=[{"containerPort": 80, "hostPort": HOST_PORT}])),
        "NodePorts",
        NO_PORTS,
    ),
    Refused(
        pod("host-network", sleeper(ports=[{"containerPort": HOST_PORT}]), hostNetwork=True), "NodePorts", NO_PORTS
    ),
    Refused(pod("selector", sleeper(), nodeSelector={"disk": "none"}), "NodeAffinity", NO_AFFINITY),
    Refused(
        pod("not-in", sleeper(), affinity=needing({"matchExpressions": [expression("disk", "NotIn", "fast")]})),
        "NodeAffinity",
        NO_AFFINITY,
    ),
    Refused(
        pod("greater", sleeper(), affinity=needing({"matchExpressions": [expression("size", "Gt", "10")]})),
        "NodeAffinity",
        NO_AFFINITY,
    ),
    Refused(
        pod("field", sleeper(), affinity=needing({"matchFields": [expression("metadata.name", "In", "other")]})),
        "NodeAffinity",
        NO_AFFINITY,
    ),
    Refused(
        labelled(pod("os-label", sleeper()), "kubernetes.io/os", "windows"),
        "PodOSSelectorNodeLabelDoesNotMatch",
        "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    ),
    Refused(
        pod("os", sleeper(), os={"name": "windows"}),
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    ),
    Refused(
        pod("groups", sleeper(), securityContext={"supplementalGroupsPolicy": "Strict"}),
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    ),
    Refused(
        pod("sysctl", sleeper(), securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1000"}]}),
        "SysctlForbidden",
        'forbidden sysctl: "kernel.msgmax" not allowlisted',
    ),
    Refused(
        pod("feature", sleeper(restartPolicy="Never", restartPolicyRules=[RESTARTS_ALL])),
        "PodFeatureUnsupported",
        "Pod requires node features that are not available: RestartAllContainersOnContainerExits",
    ),
]
if not Path("/sys/kernel/security/apparmor").exists():
    REFUSED.append(
        Refused(
            pod("armor", sleeper(), securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}),
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        )
    )

# The node must admit these pods. Each resembles a refused pod, but fits.
ADMITTED = [
    pod("port-holder", sleeper(ports=[{"containerPort": 80, "hostPort": HOST_PORT}])),
    pod("udp", sleeper(ports=[{"containerPort": 80, "hostPort": HOST_PORT, "protocol": "UDP"}])),
    pod("two-devices", sleeper(resources={"requests": {DEVICE: "2"}, "limits": {DEVICE: "2"}})),
    pod("unknown-device", sleeper(resources={"requests": {"example.org/x": "2"}, "limits": {"example.org/x": "2"}})),
    pod("fast", sleeper(), nodeSelector={"disk": "fast"}),
    pod("less", sleeper(), affinity=needing({"matchExpressions": [expression("size", "Lt", "10")]})),
    pod("safe-sysctl", sleeper(), securityContext={"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}]}),
    pod("unsafe-sysctl", sleeper(), securityContext={"sysctls": [{"name": "net.core.somaxconn", "value": "1000"}]}),
    pod("linux", sleeper(), os={"name": "linux"}),
]


@pytest.fixture(scope="module")
def node(new_node: NewNode) -> ClusterNode:
    """Return a node that has labels, devices, all pods that fit and then all pods that do not."""
    config = {
        "allowedUnsafeSysctls": ["net.core.*"],
        "featureGates": {"RestartAllContainersOnContainerExits": False},
    }
    node = new_node("node", config, {"node-labels": "disk=fast,size=5"})
    node.join()
    resources = {DEVICE: "2"}
    node.cluster.store.patch("nodes", "node", {"status": {"capacity": resources}}, subresource="status")
    node.wait_for_condition("the node has devices", lambda: DEVICE in allocatable(node))
    for manifest in ADMITTED:
        node.create(manifest)
    node.wait_for_api_running(*(each["metadata"]["name"] for each in ADMITTED))
    for each in REFUSED:
        node.create(each.manifest)
    return node


def allocatable(node: ClusterNode) -> dict[str, str]:
    return (node.api_object() or {}).get("status", {}).get("allocatable") or {}


def wait_until_failed(node: ClusterNode, name: str) -> Version:
    return node.wait_for_api_pod(name, "failed", lambda found: found.phase == "Failed")


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused(node: ClusterNode, case: Refused) -> None:
    found = wait_until_failed(node, case.name)

    status = found.status
    assert status["reason"] == case.reason
    assert re.fullmatch(f"Pod was rejected: {case.message}", status["message"])
    assert status["qosClass"] == case.qos
    assert status["startTime"]
    assert status["observedGeneration"] == found.json["metadata"]["generation"]
    assert set(status) == {"phase", "reason", "message", "qosClass", "startTime", "observedGeneration"}
    event = node.wait_for_api_event(case.name, case.reason)
    assert (event["type"], re.fullmatch(case.message, event["message"]) is not None) == ("Warning", True)
    assert node.calls(case.name) == [], "the runtime got calls for a refused pod"
    assert_history_monotonic(node.history.of(case.name))


def test_what_fits_beside_those_runs_on(node: ClusterNode) -> None:
    for case in REFUSED:
        wait_until_failed(node, case.name)
    node.wait_for_api_running(*(each["metadata"]["name"] for each in ADMITTED))


def test_refused_pods_stay_so_when_the_kubelet_comes_again(node: ClusterNode) -> None:
    before = {case.name: wait_until_failed(node, case.name) for case in REFUSED}
    # Without this pod, the refused pods that want its port would fit.
    node.delete("port-holder", 0)
    node.wait_until_gone("port-holder")
    node.kill()
    node.spawn()
    node.create(pod("after", sleeper()))
    node.wait_for_api_running("after")

    for name, version in before.items():
        assert_same_end(node, name, version)
        assert node.calls(name) == []


def assert_same_end(node: ClusterNode, name: str, before: Version) -> None:
    after = node.history.latest(name)
    assert after is not None
    for key in ("phase", "reason", "message", "startTime", "qosClass"):
        assert after.status[key] == before.status[key], key


def test_no_execute_taint_keeps_new_pods_away_and_no_old_one(node: ClusterNode) -> None:
    taint = {"key": "example.org/broken", "effect": "NoExecute"}
    node.cluster.store.patch("nodes", "node", {"spec": {"taints": [taint]}})
    tolerations = [{"key": "example.org/broken", "operator": "Exists"}]

    def refused() -> bool:
        """Report whether the kubelet refuses a new pod. The kubelet admits pods until it has received the taint."""
        name = f"tainted-{len(node.history.present())}"
        node.create(pod(name, sleeper()))
        found = node.wait_for_api_pod(
            name, "running or refused", lambda found: found.running or found.phase == "Failed"
        )
        return found.phase == "Failed" and found.status["reason"] == "TaintToleration"

    try:
        node.wait_for_condition("a pod is refused", refused)
        node.create(pod("tolerant", sleeper(), tolerations=tolerations))
        node.write(pod("static-tainted", sleeper()))
        node.wait_for_api_running("tolerant", "static-tainted-node", "fast")
    finally:
        node.cluster.store.patch("nodes", "node", {"spec": {"taints": None}})


def test_static_pod_with_a_forbidden_sysctl(node: ClusterNode) -> None:
    sysctls = {"sysctls": [{"name": "kernel.msgmax", "value": "1000"}]}
    node.write(pod("static-sysctl", sleeper(), securityContext=sysctls))

    found = wait_for_static_failure(node, "static-sysctl")

    assert found["reason"] == "SysctlForbidden"
    assert found["message"] == 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'
    assert node.history.latest("static-sysctl-node") is None, "a refused static pod has a mirror pod"
    assert node.calls("static-sysctl-node") == []


def wait_for_static_failure(node: ClusterNode, name: str) -> Object:
    """Wait until the static pod has failed, and return its status. It has no mirror pod."""

    def look() -> Object | None:
        found = node.pods().get(name)
        return found.status if found is not None and found.phase == "Failed" else None

    status = node.wait_for_condition(f"static pod {name} failed", look)
    assert status is not None
    return status


def test_static_pod_that_no_pod_could_make_room_for(node: ClusterNode) -> None:
    node.write(pod("static-huge", requesting(cpu="1000")))

    found = wait_for_static_failure(node, "static-huge")

    # Static pods are critical. But the kubelet preempts no pod, because even preempting all pods would not free enough.
    assert found["reason"] == "UnexpectedAdmissionError"
    assert re.fullmatch(
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: "
        "preemption: error finding a set of pods to preempt: "
        r"no set of running pods found to reclaim resources: \[\(res: cpu, q: [0-9]+\), \]",
        found["message"],
    )
    node.wait_for_api_running("fast")


def test_refused_static_pod_is_asked_again_when_its_manifest_changes(node: ClusterNode) -> None:
    node.write(pod("static-later", sleeper(), nodeSelector={"disk": "none"}))
    assert wait_for_static_failure(node, "static-later")["reason"] == "NodeAffinity"

    node.write(pod("static-later", sleeper(), nodeSelector={"disk": "fast"}))

    node.wait_for_api_running("static-later-node")


# --- Preemption -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(new_node: NewNode) -> ClusterNode:
    """Return a node with room for four pods and four devices."""
    node = new_node("small", {"maxPods": 4})
    node.join()
    node.cluster.store.patch("nodes", "small", {"status": {"capacity": {DEVICE: "4"}}}, subresource="status")
    node.wait_for_condition("the node has devices", lambda: DEVICE in allocatable(node))
    return node


@pytest.fixture
def crowd(small: ClusterNode) -> Any:
    """Yield a function that creates pods and waits until they run. Delete all pods after the test."""

    def make(*manifests: Manifest) -> list[Version]:
        for manifest in manifests:
            small.create(manifest)
        return small.wait_for_api_running(*(each["metadata"]["name"] for each in manifests))

    yield make
    for found in small.history.present():
        if found.json["spec"].get("nodeName") == "small":
            small.delete(found.name, 0)
            small.wait_until_gone(found.name)


def devices(name: str, count: int, **spec: Any) -> Manifest:
    amount = {DEVICE: str(count)}
    return pod(name, sleeper(resources={"requests": amount, "limits": amount}), **spec)


def critical(manifest: Manifest, level: str = "cluster") -> Manifest:
    manifest["spec"]["priorityClassName"] = f"system-{level}-critical"
    return manifest


def assert_preempted(node: ClusterNode, name: str) -> None:
    found = node.wait_for_api_pod(name, "has ended", lambda found: found.phase == "Failed" and found.statuses)
    assert (found.status["reason"], found.status["message"]) == ("Preempting", PREEMPTED)
    target = found.conditions["DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    assert target["message"] == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert target["observedGeneration"] == found.json["metadata"]["generation"]
    assert found.conditions["Ready"]["status"] == "False"
    assert "terminated" in found.container()["state"]
    event = node.wait_for_api_event(name, "Preempting", PREEMPTED)
    assert event["type"] == "Warning"
    assert node.container_ids(name) == []
    assert_history_monotonic(node.history.of(name))


def test_pod_beyond_the_limit_is_refused(small: ClusterNode, crowd: Callable[..., list[Version]]) -> None:
    crowd(*(pod(f"full-{number}", sleeper()) for number in range(4)))

    small.create(pod("one-too-many", sleeper()))

    status = wait_until_failed(small, "one-too-many").status
    assert status["reason"] == "OutOfpods"
    text = "Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"
    assert status["message"] == f"Pod was rejected: {text}"


def test_critical_pod_takes_the_place_of_one(small: ClusterNode, crowd: Callable[..., list[Version]]) -> None:
    """A critical pod preempts the pod with the lowest QoS class, which is BestEffort."""
    crowd(
        *(pod(f"burstable-{number}", requesting(cpu="1m")) for number in range(2)),
        pod("effortless", sleeper()),
        critical(pod("also-critical", sleeper())),
    )

    crowd(critical(pod("critical", sleeper())))

    assert_preempted(small, "effortless")
    small.wait_for_api_running("burstable-0", "burstable-1", "also-critical", "critical")
    ended = max(call.start + call.duration for call in small.calls("effortless", "StopContainer"))
    begun = min(call.start for call in small.calls("critical", "RunPodSandbox"))
    assert ended <= begun, "the critical pod started before the preempted pod had stopped"
    assert small.metric('kubelet_preemptions{preemption_signal="pods"}') == 1


def test_as_many_go_as_must(small: ClusterNode, crowd: Callable[..., list[Version]]) -> None:
    crowd(devices("one", 1), devices("two", 2), devices("other", 1))

    crowd(critical(devices("needs-three", 3)))

    assert_preempted(small, "two")
    # The API server may receive the end of the second preempted pod later than the start of the pod that replaces it.
    # So the test asks the runtime.
    (gone,) = (name for name in ("one", "other") if not small.container_ids(name))
    assert_preempted(small, gone)


def test_static_pod_takes_the_place_of_one_too(small: ClusterNode, crowd: Callable[..., list[Version]]) -> None:
    crowd(*(pod(f"common-{number}", sleeper()) for number in range(4)))

    small.write(pod("static", sleeper()))

    small.wait_for_api_running("static-small")
    (ended,) = (name for name in (f"common-{n}" for n in range(4)) if not small.container_ids(name))
    assert_preempted(small, ended)
    small.remove("static")
    small.wait_until_gone("static-small")


def test_node_critical_goes_before_cluster_critical(small: ClusterNode, crowd: Callable[..., list[Version]]) -> None:
    crowd(critical(devices("cluster-critical", 4)))

    small.create(critical(devices("another", 4)))
    refused = wait_until_failed(small, "another").status
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert "no set of running pods found to reclaim resources" in refused["message"]

    crowd(critical(devices("node-critical", 4), "node"))

    assert_preempted(small, "cluster-critical")


def test_critical_pod_that_fails_for_more_than_resources_ends_nobody(
    small: ClusterNode, crowd: Callable[..., list[Version]]
) -> None:
    crowd(devices("innocent", 4))

    small.create(critical(devices("misplaced", 4, nodeSelector={"disk": "none"})))

    assert wait_until_failed(small, "misplaced").status["reason"] == "NodeAffinity"
    assert small.events("innocent", "Preempting") == []
    small.wait_for_api_running("innocent")


def test_preempted_pod_stays_failed_when_the_kubelet_comes_again(
    small: ClusterNode, crowd: Callable[..., list[Version]]
) -> None:
    crowd(devices("victim", 4))
    crowd(critical(devices("winner", 4)))
    assert_preempted(small, "victim")
    before = small.history.latest("victim")
    small.kill()
    small.spawn()
    crowd(pod("afterwards", sleeper()))

    assert before is not None
    assert_same_end(small, "victim", before)
    small.wait_for_api_running("winner")
