"""Test the node's registration and status.

Go: pkg/kubelet/kubelet_node_status_test.go, pkg/kubelet/kubelet_nodecache_test.go
"""

from __future__ import annotations

import datetime
import io
import json
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor, kubelet_node_status
from kubelet import container as kubecontainer
from kubelet.cadvisor.testing import FakeCadvisor
from kubelet.cm.testing import FakeReservingContainerManager
from kubelet.errors import NodeStatusError
from kubelet.eviction import testing as evictiontesting
from kubelet.images.testing import FakeImageGCManager
from kubelet.testing import TestKubelet
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api.testing import quantities, texts
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime.testing import FAILURES, failing_once
from pkg.client_go import kubernetes, rest
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.client_go.rest import testing as resttesting
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

CMAD = "volumes.kubernetes.io/controller-managed-attach-detach"
START = datetime.datetime(2026, 11, 21, 3, 41, 13, 200, datetime.UTC)
MACHINE = cadvisor.MachineInfo(
    num_cores=2,
    memory_capacity=24684084 * 1024,
    machine_id="machine",
    system_uuid="system",
    boot_id="boot",
    huge_pages=(cadvisor.HugePagesInfo(2048, 0), cadvisor.HugePagesInfo(2**20, 0)),
)
Resources = dict[str, str]

# Every node declares these features of resizes.
DECLARED = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
)


def fake_machine() -> FakeCadvisor:
    return FakeCadvisor(
        machine=MACHINE,
        version=cadvisor.VersionInfo("6.18.44-fc-v669", "Debian GNU/Linux 12 (bookworm)"),
        root_fs=cadvisor.FsInfo(capacity=264212084 * 1024),
    )


class DelegatingLister:
    """Read the node from the client, so that the test sees each use of the informer; or return the test's own node."""

    def __init__(self, client: FakeClientset) -> None:
        self.client = client
        self.node: v1.Node | None = None

    def get(self, name: str) -> v1.Node:
        if self.node is not None:
            return self.node
        return self.client.core_v1.nodes().get(golang.background(), name)


class NodeKubelet:
    """Run a kubelet with a fake machine and a fake API server that has the given objects."""

    def __init__(self, root: Path) -> None:
        self.test = TestKubelet(root)
        self.clock = self.test.clock
        self.clock.set_time(START)
        self.machine = fake_machine()
        self.manager = FakeReservingContainerManager(self.machine)
        kubelet: Any = self.test.kubelet
        kubelet.cadvisor, kubelet.container_manager = self.machine, self.manager
        kubelet.image_manager = FakeImageGCManager()
        kubelet.hostname = kubelet.node_name = "labnode"
        kubelet.node_ips = [ip_address("192.0.2.2")]
        kubelet.max_pods = 120
        kubelet.kubelet_configuration.port = 10250
        kubelet.kubelet_configuration.register_node = True
        # No modules should start when the kubelet finds the runtime ready.
        kubelet.runtime_modules_started = True
        runtime = self.test.runtime
        runtime.version_info, runtime.runtime_type = "2.1.9+unknown", "containerd"
        conditions = [kubecontainer.RuntimeCondition(type=t, status=True) for t in kubecontainer.RuntimeConditionType]
        runtime.runtime_status = kubecontainer.RuntimeStatus(conditions=conditions)
        self.kubelet = self.test.kubelet
        self.use()
        self.be_well()

    def use(self, *objects: Any) -> FakeClientset:
        """Give the API server these objects."""
        self.client = FakeClientset(*objects)
        self.lister = DelegatingLister(self.client)
        kubelet: Any = self.kubelet
        kubelet.kube_client = kubelet.heartbeat_client = self.client
        kubelet.node_lister = self.lister
        return self.client

    def be_well(self) -> None:
        state = self.kubelet.runtime_state
        state.set_runtime_sync(self.clock.monotonic())
        state.set_network_state(None)
        state.set_storage_state(None)

    def calls(self) -> list[str]:
        """Return the calls of the API server since the last call of this method."""
        found = [f"{action.verb} {action.resource}" for action in self.client.actions()]
        self.client.clear_actions()
        return found

    def patch(self) -> dict[str, Any]:
        """Return the last patch."""
        patches = [action for action in self.client.actions() if action.verb == "patch"]
        found: dict[str, Any] = json.loads(patches[-1].patch)
        return found

    def step(self, seconds: float) -> None:
        """Let time pass while the runtime stays healthy."""
        self.clock.step(seconds)
        self.kubelet.runtime_state.set_runtime_sync(self.clock.monotonic())


@pytest.fixture
def node_kubelet(tmp_path: Path) -> Iterator[NodeKubelet]:
    kubelet = NodeKubelet(tmp_path)
    yield kubelet
    kubelet.test.close()


CTX = golang.background()


# ---- The node as recorded from a registration by the Go kubelet ----


def recorded_condition(type: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {
        "type": type,
        "status": status,
        "lastHeartbeatTime": "2026-11-21T03:41:13Z",
        "lastTransitionTime": "2026-11-21T03:41:13Z",
        "reason": reason,
        "message": message,
    }


RECORDED_NODE: dict[str, Any] = {
    "metadata": {
        "name": "labnode",
        "labels": {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "labnode",
            "kubernetes.io/os": "linux",
        },
        "annotations": {CMAD: "true"},
    },
    "status": {
        "capacity": {
            "cpu": "2",
            "ephemeral-storage": "264212084Ki",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": "24684084Ki",
            "pods": "120",
        },
        "allocatable": {
            "cpu": "2",
            "ephemeral-storage": "267847642337",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": "24581684Ki",
            "pods": "120",
        },
        "conditions": [
            recorded_condition(
                "MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"
            ),
            recorded_condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            recorded_condition(
                "PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"
            ),
            recorded_condition("Ready", "False", "KubeletNotReady", "CSINode is not yet initialized"),
        ],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.2"}, {"type": "Hostname", "address": "labnode"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": "machine",
            "systemUUID": "system",
            "bootID": "boot",
            "kernelVersion": "6.18.44-fc-v669",
            "osImage": "Debian GNU/Linux 12 (bookworm)",
            "containerRuntimeVersion": "containerd://2.1.9+unknown",
            "kubeletVersion": "v1.36.2",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [
            {"names": ["agnhost:2.55", "agnhost:2.63.0"], "sizeBytes": 86775172},
            {"names": ["pause:3.10"], "sizeBytes": 686872},
        ],
        "runtimeHandlers": [
            {"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}},
        ],
        "features": {"supplementalGroupsPolicy": True},
        "declaredFeatures": [*DECLARED, "RestartAllContainersOnContainerExits"],
    },
}


def test_node_and_its_first_report_are_as_recorded(node_kubelet: NodeKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    kubelet, state = node_kubelet.kubelet, node_kubelet.kubelet.runtime_state
    state.set_runtime_features(kubecontainer.RuntimeFeatures(supplemental_groups_policy=True))
    handlers = [kubecontainer.RuntimeHandler(name, supports_recursive_read_only_mounts=True) for name in ("runc", "")]
    state.set_runtime_handlers(handlers)
    state.set_storage_state(RuntimeError("CSINode is not yet initialized"))
    node = kubelet.initial_node(CTX)
    found = codec.to_builtins(node)
    found.pop("spec", None)
    assert found == RECORDED_NODE
    assert [text.removeprefix("Normal ") for text in node_kubelet.test.events()] == [
        f"{event} Node labnode status is now: {event}"
        for event in ("NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID")
    ]

    assert kubelet.try_register_with_api_server(CTX, node)
    state.set_storage_state(None)
    node_kubelet.step(1)
    kubelet.update_node_status(CTX)
    heartbeat = {"lastHeartbeatTime": "2026-11-21T03:41:14Z"}
    assert node_kubelet.patch() == {
        "status": {
            "$setElementOrder/conditions": [
                {"type": "MemoryPressure"},
                {"type": "DiskPressure"},
                {"type": "PIDPressure"},
                {"type": "Ready"},
            ],
            "conditions": [
                {**heartbeat, "type": "MemoryPressure"},
                {**heartbeat, "type": "DiskPressure"},
                {**heartbeat, "type": "PIDPressure"},
                {
                    **heartbeat,
                    "lastTransitionTime": "2026-11-21T03:41:14Z",
                    "message": "kubelet is posting ready status",
                    "reason": "KubeletReady",
                    "status": "True",
                    "type": "Ready",
                },
            ],
        }
    }
    assert node_kubelet.test.events() == ["Normal NodeReady Node labnode status is now: NodeReady"]


# ---- Status ----


def registered(node_kubelet: NodeKubelet) -> v1.Node:
    """Return the node that this kubelet would register."""
    node = node_kubelet.kubelet.initial_node(CTX)
    node_kubelet.use(node)
    node_kubelet.test.events()
    return node


def server_node(node_kubelet: NodeKubelet) -> v1.Node:
    node = node_kubelet.client.core_v1.nodes().get(CTX, "labnode")
    return v1.deepcopy(node)


def test_update_new_node_status(node_kubelet: NodeKubelet) -> None:
    """Another client created the node, without any status."""
    node_kubelet.use(v1.Node(metadata=metav1.ObjectMeta(name="labnode")))
    node_kubelet.kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes", "patch nodes"]
    node = server_node(node_kubelet)
    types = [condition.type for condition in node.status.conditions]
    assert types == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"], "Ready comes last"
    assert node.status.conditions[-1].status == "True"
    assert node.status.node_info.kubelet_version == "v1.36.2"


def test_update_node_status_under_pressure(node_kubelet: NodeKubelet) -> None:
    node_kubelet.kubelet.eviction_manager = evictiontesting.FakeEvictionManager(memory=True, disk=True)
    registered(node_kubelet)
    node_kubelet.kubelet.update_node_status(CTX)
    conditions = server_node(node_kubelet).status.conditions
    assert [(c.type, c.status, c.reason) for c in conditions[:3]] == [
        ("MemoryPressure", "True", "KubeletHasInsufficientMemory"),
        ("DiskPressure", "True", "KubeletHasDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ]


@pytest.mark.parametrize(
    ("runtime", "network", "message"),
    [
        pytest.param(None, None, "", id="well"),
        pytest.param("container runtime is down", None, "container runtime is down", id="runtime is down"),
        pytest.param(None, "network plugin", "network plugin", id="network is not ready"),
        pytest.param("no runtime", "no network", "[no runtime, no network]", id="both"),
    ],
)
def test_update_node_status_with_runtime_state_error(
    node_kubelet: NodeKubelet, runtime: str | None, network: str | None, message: str
) -> None:
    registered(node_kubelet)
    state = node_kubelet.kubelet.runtime_state
    state.set_runtime_state(RuntimeError(runtime) if runtime else None)
    state.set_network_state(RuntimeError(network) if network else None)
    node_kubelet.kubelet.update_node_status(CTX)
    ready = server_node(node_kubelet).status.conditions[-1]
    assert (ready.status, ready.reason, ready.message) == (
        ("False", "KubeletNotReady", message)
        if message
        else ("True", "KubeletReady", "kubelet is posting ready status")
    )


def test_update_node_status_error(node_kubelet: NodeKubelet) -> None:
    """Without a node, the kubelet asks the informer once and then the API server; each failure counts."""
    failures: list[None] = []
    node_kubelet.kubelet.on_repeated_heartbeat_failure = lambda: failures.append(None)
    with pytest.raises(NodeStatusError, match="update node status exceeds retry count") as info:
        node_kubelet.kubelet.update_node_status(CTX)
    assert apierrors.is_not_found(info.value)
    assert node_kubelet.calls() == ["get nodes"] * kubelet_node_status.NODE_STATUS_UPDATE_RETRY
    assert len(failures) == kubelet_node_status.NODE_STATUS_UPDATE_RETRY - 1


def test_conflict_is_resolved_from_the_server(node_kubelet: NodeKubelet) -> None:
    node = registered(node_kubelet)
    node_kubelet.lister.node = node
    conflicts = [apierrors.new_conflict("nodes", "labnode", "changed")]
    node_kubelet.client.prepend_reactor(
        "patch", "nodes", lambda action: (True, conflicts.pop()) if conflicts else (False, None)
    )
    node_kubelet.kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["patch nodes", "get nodes", "patch nodes"]


def test_update_node_status_with_lease(node_kubelet: NodeKubelet) -> None:
    kubelet = node_kubelet.kubelet
    kubelet.node_status_report_frequency = 30.0
    registered(node_kubelet)

    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes", "patch nodes"], "the first report after a start"

    node_kubelet.step(60)
    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes", "patch nodes"], "nothing changed, but a report is due"
    assert all(
        condition.last_heartbeat_time == START.replace(microsecond=0) + datetime.timedelta(seconds=60)
        for condition in server_node(node_kubelet).status.conditions
    )
    node_kubelet.calls()

    node_kubelet.step(10)
    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes"], "nothing changed, and no report is due"

    node_kubelet.step(10)
    node_kubelet.machine.machine = cadvisor.MachineInfo(num_cores=2, memory_capacity=40 * 2**30)
    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes", "patch nodes"], "something changed"
    assert str(server_node(node_kubelet).status.capacity["memory"]) == "40Gi"

    node = server_node(node_kubelet)
    node.spec.pod_cidr, node.spec.pod_cidrs = "10.0.0.0/24", ["10.0.0.0/24", "2000::/10"]
    node_kubelet.use(node)
    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes", "patch nodes"], "the pod CIDR changed"
    assert kubelet.runtime_state.pod_cidr() == "10.0.0.0/24,2000::/10"
    kubelet.delay_after_node_status_change = 0.0
    kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes"], "the pod CIDR is known by now"


@pytest.mark.parametrize(
    ("existing", "in_use", "patches"),
    [
        pytest.param(["vol1"], ["vol1"], False, id="no volumes and no update"),
        pytest.param([], ["vol1"], True, id="volumes inuse on node and volumeManager"),
        pytest.param(["vol1"], [], True, id="volumes gone"),
    ],
)
def test_update_node_status_and_volumes_in_use(
    node_kubelet: NodeKubelet, existing: list[str], in_use: list[str], patches: bool
) -> None:
    node = node_kubelet.kubelet.initial_node(CTX)
    node.status.volumes_in_use = existing
    node_kubelet.use(node)
    node_kubelet.test.volumes.volumes_in_use = in_use
    node_kubelet.kubelet.last_status_report_time = node_kubelet.clock.monotonic()
    node_kubelet.kubelet.update_node_status(CTX)
    assert node_kubelet.calls() == (["get nodes", "patch nodes"] if patches else ["get nodes"])
    assert node_kubelet.test.volumes.reported_in_use == in_use


def test_labels_of_the_machine_come_back(node_kubelet: NodeKubelet) -> None:
    node = registered(node_kubelet)
    del node.metadata.labels["kubernetes.io/os"]
    node.metadata.labels["kubernetes.io/arch"] = "other"
    client = node_kubelet.use(node)
    node_kubelet.kubelet.last_status_report_time = node_kubelet.clock.monotonic()
    node_kubelet.kubelet.update_node_status(CTX)
    assert [action.verb for action in client.actions()] == ["get", "patch"]
    patched = node_kubelet.patch()["metadata"]["labels"]
    assert patched.keys() == {"kubernetes.io/os", "kubernetes.io/arch"}


def test_cordon_is_told_once_and_left_alone(node_kubelet: NodeKubelet) -> None:
    node = registered(node_kubelet)
    node.spec.unschedulable = True
    node_kubelet.use(node)
    for _ in range(2):
        node_kubelet.kubelet.update_node_status(CTX)
    assert node_kubelet.test.events() == ["Normal NodeNotSchedulable Node labnode status is now: NodeNotSchedulable"]
    assert server_node(node_kubelet).spec.unschedulable
    node.spec.unschedulable = False
    node_kubelet.use(node)
    node_kubelet.kubelet.update_node_status(CTX)
    assert node_kubelet.test.events() == ["Normal NodeSchedulable Node labnode status is now: NodeSchedulable"]


def test_setter_that_fails_does_not_keep_the_others_from_it(node_kubelet: NodeKubelet) -> None:
    node_kubelet.machine.err = OSError("no machine info")
    node = node_kubelet.kubelet.initial_node(CTX)
    assert node.status.addresses
    assert node.status.conditions[-1].type == "Ready"


@pytest.mark.parametrize(
    ("gate", "value", "in_runtime", "expected"),
    [
        pytest.param(
            "NodeDeclaredFeatures", True, False, [*DECLARED, "RestartAllContainersOnContainerExits"], id="default"
        ),
        pytest.param("RestartAllContainersOnContainerExits", False, False, [*DECLARED], id="switched off"),
        pytest.param("NodeDeclaredFeatures", False, False, ["Old"], id="feature gate disabled"),
        pytest.param(
            "UserNamespacesHostNetworkSupport",
            True,
            False,
            [*DECLARED, "RestartAllContainersOnContainerExits"],
            id="not supported by the runtime",
        ),
        pytest.param(
            "UserNamespacesHostNetworkSupport",
            True,
            True,
            [*DECLARED, "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"],
            id="supported by the runtime",
        ),
    ],
)
def test_declared_features(
    node_kubelet: NodeKubelet, gate: str, value: bool, in_runtime: bool, expected: list[str]
) -> None:
    runtime_features = kubecontainer.RuntimeFeatures(user_namespaces_host_network=in_runtime)
    node_kubelet.kubelet.runtime_state.set_runtime_features(runtime_features)
    node = v1.Node(status=v1.NodeStatus(declared_features=["Old"]))
    with set_feature_gate_during_test(features.feature_gate, gate, value):
        node_kubelet.kubelet.set_node_status(CTX, node)
    assert node.status.declared_features == expected


def test_update_new_node_status_too_large_reservation(node_kubelet: NodeKubelet) -> None:
    node_kubelet.manager.reserved = {"cpu": "40"}
    node = node_kubelet.kubelet.initial_node(CTX)
    assert str(node.status.allocatable["cpu"]) == "0"
    assert str(node.status.capacity["cpu"]) == "2"


@pytest.mark.parametrize("err", [MemoryError(), RecursionError(), golang.ThreadError()], ids=repr)
def test_an_accident_makes_no_half_of_a_node(node_kubelet: NodeKubelet, err: Exception) -> None:
    """A node without capacity has room for no pod, and a rejected static pod is not tried again."""
    kubelet = node_kubelet.kubelet
    kubelet.set_node_status_funcs = [failing_once(setter, err) for setter in kubelet.default_node_status_funcs()]
    with pytest.raises(type(err)):
        kubelet.initial_node(CTX)
    assert str(kubelet.initial_node(CTX).status.capacity["cpu"]) == "2"


NOW = START.replace(microsecond=0)
LATER = NOW + datetime.timedelta(minutes=1)


def condition(
    type: str = "Ready", status: str = "True", beat: datetime.datetime = NOW, turn: datetime.datetime = NOW
) -> v1.NodeCondition:
    return v1.NodeCondition(type=type, status=status, last_heartbeat_time=beat, last_transition_time=turn)


READY, MEMORY = condition(), condition("MemoryPressure", "False")


@pytest.mark.parametrize(
    ("original", "new", "changed"),
    [
        pytest.param(v1.NodeStatus(), v1.NodeStatus(), False, id="default status"),
        pytest.param([READY, MEMORY], [READY, MEMORY], False, id="no change"),
        pytest.param([READY, MEMORY], [condition(beat=LATER), MEMORY], False, id="heartbeat time"),
        pytest.param([READY, MEMORY], [MEMORY, condition(beat=LATER)], False, id="order of conditions"),
        pytest.param([READY, MEMORY], [condition(status="False"), MEMORY], True, id="condition status"),
        pytest.param([READY, MEMORY], [condition(beat=LATER, turn=LATER), MEMORY], True, id="transition time"),
        pytest.param([READY], [READY, MEMORY], True, id="number of conditions"),
        pytest.param(v1.NodeStatus(phase="Pending"), v1.NodeStatus(phase="Running"), True, id="phase"),
        pytest.param(
            v1.NodeStatus(capacity=quantities(cpu="1")),
            v1.NodeStatus(capacity=quantities(cpu="1000m")),
            False,
            id="the same amount in another notation",
        ),
    ],
)
def test_node_status_has_changed(original: Any, new: Any, changed: bool) -> None:
    first, second = (
        value if isinstance(value, v1.NodeStatus) else v1.NodeStatus(conditions=value) for value in (original, new)
    )
    assert kubelet_node_status.node_status_has_changed(first, second) is changed


@pytest.mark.parametrize(
    ("ago", "delay", "expired"),
    [
        pytest.param(None, 0.0, True, id="no status update before and no delay"),
        pytest.param(None, 30.0, True, id="no status update before and existing delay"),
        pytest.param(240.0, 0.0, False, id="not expired and no delay"),
        pytest.param(300.0, 60.0, False, id="not expired"),
        pytest.param(240.0, -120.0, True, id="expired"),
        pytest.param(300.0, 0.0, True, id="exactly at threshold"),
    ],
)
def test_is_update_status_period_expired(
    node_kubelet: NodeKubelet, ago: float | None, delay: float, expired: bool
) -> None:
    kubelet = node_kubelet.kubelet
    kubelet.node_status_report_frequency = 300.0
    if ago is not None:
        kubelet.last_status_report_time = node_kubelet.clock.monotonic() - ago
    kubelet.delay_after_node_status_change = delay
    assert kubelet.is_update_status_period_expired() is expired


def test_calculate_delay(node_kubelet: NodeKubelet) -> None:
    node_kubelet.kubelet.node_status_report_frequency = 300.0
    delays = [node_kubelet.kubelet.calculate_delay() for _ in range(100)]
    assert min(delays) < 0 < max(delays)
    assert all(abs(delay) <= 150.0 for delay in delays)


@pytest.mark.parametrize(
    ("mark_ready", "next_ready", "timeout", "patch_failures", "calls", "patches"),
    [
        pytest.param(9, 9, 2, 0, 3, 0, id="timeout after third loop"),
        pytest.param(9, 1, 9, 0, 2, 0, id="already ready on third loop"),
        pytest.param(2, 9, 9, 0, 3, 1, id="turns ready on third loop"),
        pytest.param(1, 9, 9, 1, 3, 2, id="turns ready on second loop then first patch fails"),
        pytest.param(1, 9, 9, 7, 7, 6, id="turns ready on second loop then all patches fail"),
    ],
)
def test_fast_status_update_once(
    node_kubelet: NodeKubelet,
    mark_ready: int,
    next_ready: int,
    timeout: int,
    patch_failures: int,
    calls: int,
    patches: int,
) -> None:
    kubelet = node_kubelet.kubelet
    kubelet.registration_completed = True
    registered(node_kubelet)
    not_ready = server_node(node_kubelet)
    not_ready.status.conditions = [condition(status="False")]
    node_kubelet.use(not_ready)
    node_kubelet.lister.node = v1.deepcopy(not_ready)
    usual = kubelet.set_node_status_funcs
    called: list[None] = []

    def set_status(ctx: golang.Context, node: v1.Node) -> None:
        assert not kubelet.container_runtime_ready_expected
        called.append(None)
        if len(called) > mark_ready:
            for setter in usual:
                setter(ctx, node)
        if len(called) > next_ready:
            node_kubelet.lister.node = v1.Node(status=v1.NodeStatus(conditions=[condition()]))
        if len(called) > timeout:
            node_kubelet.clock.step(kubelet_node_status.NODE_READY_GRACE_PERIOD)

    patched: list[None] = []

    def fail_some(action: Action) -> tuple[bool, Any]:
        patched.append(None)
        return (True, ConnectionError("try again")) if len(patched) <= patch_failures else (False, None)

    node_kubelet.client.prepend_reactor("patch", "nodes", fail_some)
    kubelet.set_node_status_funcs = [set_status]
    kubelet.fast_status_update_once(CTX, kubelet.update_runtime_up)
    assert kubelet.container_runtime_ready_expected
    assert (len(called), len(patched)) == (calls, patches)


# ---- Registration ----


def test_register_with_api_server(node_kubelet: NodeKubelet) -> None:
    """The kubelet tries again after growing pauses, and registers once."""
    refusals: list[Exception] = [ConnectionError("refused")] * 9
    node_kubelet.client.prepend_reactor(
        "create", "nodes", lambda action: (True, refusals.pop()) if refusals else (False, None)
    )
    pauses = node_kubelet.clock.skip_pauses()
    node_kubelet.kubelet.register_with_api_server(CTX)
    node_kubelet.kubelet.register_with_api_server(CTX)
    assert node_kubelet.calls() == ["create nodes"] * 10
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0, 7.0]


def test_node_that_is_not_registered_yet_is_no_error(node_kubelet: NodeKubelet, log: io.StringIO) -> None:
    kubelet = node_kubelet.kubelet
    assert not kubelet.fast_node_status_update(CTX, False, kubelet.update_runtime_up)
    assert log.getvalue() == ""


def test_first_report_after_a_restart_waits_for_storage(
    node_kubelet: NodeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = node_kubelet.kubelet
    registered(node_kubelet)
    state = kubelet.runtime_state
    state.set_storage_state(RuntimeError("CSINode is not yet initialized"))

    def pause(ctx: golang.Context, seconds: float, clock: object) -> None:
        node_kubelet.step(seconds)
        if kubelet.registration_completed:
            state.set_storage_state(None)

    monkeypatch.setattr("kubelet.kubelet_node_status.wait.pause", pause)
    kubelet.sync_node_status(CTX)
    (ready,) = (c for c in server_node(node_kubelet).status.conditions if c.type == v1.NODE_READY)
    assert ready.status == v1.CONDITION_TRUE


def test_end_of_the_kubelet_ends_its_registration(node_kubelet: NodeKubelet) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    cancel()
    with pytest.raises(golang.Canceled):
        node_kubelet.kubelet.sync_node_status(ctx)
    assert node_kubelet.calls() == []


def test_informer_that_does_not_have_the_new_node_yet(node_kubelet: NodeKubelet) -> None:
    """The kubelet then uses the node from its registration, but only once."""
    node_kubelet.clock.skip_pauses()
    node_kubelet.lister.client = FakeClientset()
    node_kubelet.kubelet.sync_node_status(CTX)
    assert node_kubelet.calls() == ["create nodes", "patch nodes"]
    node_kubelet.kubelet.sync_node_status(CTX)
    assert node_kubelet.calls() == ["get nodes"]


def test_node_that_was_deleted_stays_away(node_kubelet: NodeKubelet) -> None:
    node_kubelet.clock.skip_pauses()
    node_kubelet.kubelet.sync_node_status(CTX)
    assert node_kubelet.calls() == ["create nodes", "get nodes", "patch nodes"]
    node_kubelet.client.core_v1.nodes().delete(CTX, "labnode")
    node_kubelet.calls()
    for _ in range(2):
        node_kubelet.kubelet.sync_node_status(CTX)
    assert set(node_kubelet.calls()) == {"get nodes"}


def test_kubelet_that_is_not_to_register(node_kubelet: NodeKubelet) -> None:
    node_kubelet.kubelet.kubelet_configuration.register_node = False
    node_kubelet.kubelet.sync_node_status(CTX)
    assert "create nodes" not in node_kubelet.calls()


EXISTS = apierrors.new_already_exists("nodes", "labnode")
FORBIDDEN = apierrors.new_forbidden("nodes", "labnode", "no")
CONFLICT = apierrors.new_conflict("nodes", "labnode", "conflict")
ALL_CALLS = ["create nodes", "get nodes", "patch nodes"]


@pytest.mark.parametrize(
    ("new_cmad", "old_cmad", "errors", "registers", "calls"),
    [
        pytest.param(True, None, {}, True, 1, id="new node"),
        pytest.param(True, True, {"create": EXISTS}, True, 2, id="existing node, no change in CMAD"),
        pytest.param(True, True, {"create": FORBIDDEN}, True, 2, id="create forbidden, no change in CMAD"),
        pytest.param(False, True, {"create": FORBIDDEN}, True, 3, id="create forbidden, CMAD disabled"),
        pytest.param(False, True, {"create": EXISTS}, True, 3, id="CMAD disabled"),
        pytest.param(True, False, {"create": EXISTS}, True, 3, id="CMAD enabled"),
        pytest.param(False, None, {"create": CONFLICT}, False, 1, id="create failed"),
        pytest.param(False, None, {"create": EXISTS, "get": CONFLICT}, False, 2, id="get existing node failed"),
        pytest.param(False, True, {"create": EXISTS, "patch": CONFLICT}, False, 3, id="update existing node failed"),
    ],
)
def test_try_register_with_api_server(
    node_kubelet: NodeKubelet,
    new_cmad: bool,
    old_cmad: bool | None,
    errors: dict[str, Exception],
    registers: bool,
    calls: int,
) -> None:
    kubelet = node_kubelet.kubelet

    def make(cmad: bool) -> v1.Node:
        kubelet.kubelet_configuration.enable_controller_attach_detach = cmad
        return kubelet.initial_node(CTX)

    client = node_kubelet.use(*([make(old_cmad)] if old_cmad is not None else []))
    for verb, err in errors.items():
        client.prepend_reactor(verb, "nodes", _raising(err))
    assert kubelet.try_register_with_api_server(CTX, make(new_cmad)) is registers
    assert node_kubelet.calls() == ALL_CALLS[:calls]
    if registers:
        assert server_node(node_kubelet).metadata.annotations.get(CMAD) == ("true" if new_cmad else None)


def test_node_that_may_not_be_created_is_told_of(node_kubelet: NodeKubelet, log: io.StringIO) -> None:
    """The error that the node does not exist would not explain anything."""
    kubelet = node_kubelet.kubelet
    node_kubelet.use().prepend_reactor("create", "nodes", _raising(FORBIDDEN))
    assert not kubelet.try_register_with_api_server(CTX, kubelet.initial_node(CTX))
    (line,) = (line for line in log.getvalue().splitlines() if "Unable to register node" in line)
    assert 'nodes \\"labnode\\" is forbidden: no' in line


def _raising(err: Exception) -> Callable[[Action], tuple[bool, Any]]:
    return lambda action: (True, err)


def test_register_with_taints(node_kubelet: NodeKubelet) -> None:
    kubelet = node_kubelet.kubelet
    taint = v1.Taint(key="k", value="v", effect="NoExecute")
    kubelet.kubelet_configuration.register_with_taints = [taint]
    kubelet.kubelet_configuration.provider_id = "cloud://1"
    kubelet.external_cloud_provider = True
    kubelet.node_labels = {"zone": "a", "kubernetes.io/arch": "mine"}
    node = kubelet.initial_node(CTX)
    external = v1.Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule")
    assert node.spec.taints == [taint, external]
    assert node.spec.provider_id == "cloud://1"
    assert (node.metadata.labels["zone"], node.metadata.labels["kubernetes.io/arch"]) == ("a", "mine")


DEFAULT_LABELS = {
    "kubernetes.io/hostname": "new-hostname",
    "topology.kubernetes.io/zone": "new-zone",
    "topology.kubernetes.io/region": "new-region",
    "failure-domain.beta.kubernetes.io/zone": "new-zone",
    "failure-domain.beta.kubernetes.io/region": "new-region",
    "node.kubernetes.io/instance-type": "new-instance-type",
    "beta.kubernetes.io/instance-type": "new-instance-type",
    "kubernetes.io/os": "new-os",
    "kubernetes.io/arch": "new-arch",
    "beta.kubernetes.io/os": "new-os",
    "beta.kubernetes.io/arch": "new-arch",
}
OLD_LABELS = {key: value.replace("new", "old") for key, value in DEFAULT_LABELS.items()}
OTHER = {"please-persist": "foo"}


@pytest.mark.parametrize(
    ("initial", "existing", "final"),
    [
        pytest.param(DEFAULT_LABELS, {}, DEFAULT_LABELS, id="default labels exist"),
        pytest.param(DEFAULT_LABELS, OLD_LABELS, DEFAULT_LABELS, id="default labels are up to date"),
        pytest.param(DEFAULT_LABELS, OLD_LABELS | OTHER, DEFAULT_LABELS | OTHER, id="existing labels stay"),
        pytest.param(DEFAULT_LABELS | {"x": "y"}, OLD_LABELS, DEFAULT_LABELS, id="other labels are not added"),
        pytest.param(DEFAULT_LABELS, DEFAULT_LABELS, DEFAULT_LABELS, id="no update"),
        pytest.param({}, OTHER, OTHER, id="nothing to add"),
        pytest.param({"kubernetes.io/os": ""}, {"kubernetes.io/os": "x"}, {}, id="empty labels are removed"),
    ],
)
def test_update_default_labels(initial: dict[str, str], existing: dict[str, str], final: dict[str, str]) -> None:
    first = v1.Node(metadata=metav1.ObjectMeta(labels=dict(initial)))
    second = v1.Node(metadata=metav1.ObjectMeta(labels=dict(existing)))
    assert kubelet_node_status.update_default_labels(first, second) is (existing != final)
    assert second.metadata.labels == final


def resource_node(capacity: Resources, allocatable: Resources) -> v1.Node:
    status = v1.NodeStatus(capacity=quantities(**capacity), allocatable=quantities(**allocatable))
    return v1.Node(status=status)


HUGE = {"hugepages-1Gi": "0", "hugepages-2Mi": "100Mi"}
BASE = {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("initial", "existing", "final"),
    [
        pytest.param((HUGE, HUGE), (BASE, BASE), (BASE | HUGE, BASE | HUGE), id="no huge pages before"),
        pytest.param((HUGE, HUGE), (HUGE, HUGE), (HUGE, HUGE), id="no update"),
        pytest.param(
            (HUGE, HUGE),
            (HUGE | {"hugepages-2Mi": "50Mi"}, HUGE | {"hugepages-2Mi": "50Mi"}),
            (HUGE, HUGE),
            id="another number of pages",
        ),
        pytest.param(
            (HUGE, HUGE | {"hugepages-2Mi": "4Mi"}),
            (HUGE, HUGE),
            (HUGE, HUGE | {"hugepages-2Mi": "4Mi"}),
            id="more of them reserved",
        ),
        pytest.param((BASE, BASE), (BASE | HUGE, BASE | HUGE), (BASE, BASE), id="removed page sizes"),
        pytest.param((BASE | HUGE, BASE | HUGE), ({}, {}), (BASE | HUGE, BASE | HUGE), id="no resources before"),
    ],
)
def test_reconcile_huge_page_resource(
    initial: tuple[Resources, Resources], existing: tuple[Resources, Resources], final: tuple[Resources, Resources]
) -> None:
    node = resource_node(*existing)
    changes = kubelet_node_status.reconcile_huge_page_resource(resource_node(*initial), node)
    assert (texts(node.status.capacity), texts(node.status.allocatable)) == final
    assert changes is (existing != final)


@pytest.mark.parametrize("reset", [True, False], ids=["node was made anew", "node was there"])
def test_reconcile_extended_resource(node_kubelet: NodeKubelet, reset: bool) -> None:
    node_kubelet.manager.reset_extended_resources = reset
    devices = {"example.com/device": "2"}
    node = resource_node(BASE | devices, BASE | devices)
    assert node_kubelet.kubelet.reconcile_extended_resource(resource_node(BASE, BASE), node) is reset
    expected = BASE | ({"example.com/device": "0"} if reset else devices)
    assert (texts(node.status.capacity), texts(node.status.allocatable)) == (expected, expected)


@pytest.mark.parametrize(
    ("ip", "message"),
    [
        pytest.param("127.0.0.1", "nodeIP can't be loopback address", id="loopback"),
        pytest.param("::1", "nodeIP can't be loopback address", id="loopback, version 6"),
        pytest.param("224.0.0.1", "nodeIP can't be a multicast address", id="multicast"),
        pytest.param("169.254.0.1", "nodeIP can't be a link-local unicast address", id="link-local"),
        pytest.param("0.0.0.0", "nodeIP can't be an all zeros address", id="unspecified"),
        pytest.param("192.0.2.77", 'node IP: "192.0.2.77" not found', id="address of another machine"),
    ],
)
def test_validate_node_ip(ip: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kubelet_node_status.validate_node_ip(ip_address(ip))


def test_validate_node_ip_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[str, int]] = []

    class Socket:
        def __init__(self, family: int, kind: int) -> None:
            assert family == socket.AF_INET6

        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *args: object) -> None: ...

        def bind(self, address: tuple[str, int]) -> None:
            bound.append(address)

    monkeypatch.setattr(socket, "socket", Socket)
    kubelet_node_status.validate_node_ip(ip_address("2001:db8::7"))
    assert bound == [("2001:db8::7", 0)]


# ---- Look-ups ----


def test_node_of_standalone_mode(node_kubelet: NodeKubelet) -> None:
    kubelet: Any = node_kubelet.kubelet
    kubelet.kube_client = kubelet.heartbeat_client = kubelet.node_lister = None
    first = kubelet.get_node(CTX)
    assert kubelet.get_node(CTX) is first, "the node is created only once"
    node_kubelet.machine.machine = cadvisor.MachineInfo(num_cores=4, memory_capacity=2**30)
    node_kubelet.step(10)
    second = kubelet.get_node(CTX)
    assert str(second.status.capacity["cpu"]) == "4"
    assert [c.last_transition_time for c in second.status.conditions] == [NOW] * 4
    kubelet.runtime_state.set_runtime_features(kubecontainer.RuntimeFeatures(supplemental_groups_policy=True))
    assert kubelet.get_node_any_way(CTX).status.features.supplemental_groups_policy
    assert kubelet.get_cached_node(CTX, False).metadata.name == "labnode"
    assert kubelet.get_host_ips_any_way(CTX) == ["192.0.2.2"]


def test_node_of_standalone_mode_is_brought_up_to_date_by_one_thread(
    node_kubelet: NodeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet: Any = node_kubelet.kubelet
    kubelet.kube_client = kubelet.heartbeat_client = kubelet.node_lister = None
    first = kubelet.get_node(CTX)
    node_kubelet.step(10)
    update: Callable[[golang.Context, v1.Node], object] = kubelet._update_node
    meanwhile: list[v1.Node] = []

    def update_slowly(ctx: golang.Context, original: v1.Node) -> object:
        if not meanwhile:
            golang.go(lambda: meanwhile.append(kubelet.get_node(ctx)), name="other").join(30)
        return update(ctx, original)

    monkeypatch.setattr(kubelet, "_update_node", update_slowly)
    second = kubelet.get_node(CTX)
    assert meanwhile == [first] and meanwhile[0] is first and second is not first
    assert kubelet.get_node(CTX) is second


def test_node_that_is_not_registered_yet_is_made_up(node_kubelet: NodeKubelet) -> None:
    assert node_kubelet.kubelet.get_node_any_way(CTX).metadata.name == "labnode"
    with pytest.raises(apierrors.StatusError):
        node_kubelet.kubelet.get_node(CTX)


def versioned(version: str) -> v1.Node:
    return v1.Node(metadata=metav1.ObjectMeta(name="labnode", resource_version=version))


@pytest.mark.parametrize(
    ("cached", "informer", "expected"),
    [
        pytest.param("1", "2", "2", id="informer is newer"),
        pytest.param("2", "1", "2", id="cache is newer"),
        pytest.param("1", "1", "1", id="the same"),
        pytest.param("1", "abc", "abc", id="informer's version is no number"),
        pytest.param("abc", "1", "1", id="cached version is no number"),
        pytest.param(None, "1", "1", id="nothing cached"),
        pytest.param("1", None, "1", id="informer has none"),
        pytest.param(None, None, "", id="nobody has one"),
    ],
)
def test_get_cached_node(node_kubelet: NodeKubelet, cached: str | None, informer: str | None, expected: str) -> None:
    kubelet = node_kubelet.kubelet
    kubelet.cached_node = versioned(cached) if cached is not None else None
    node_kubelet.lister.node = versioned(informer) if informer is not None else None
    assert kubelet.get_cached_node(CTX, True).metadata.resource_version == expected


def test_get_cached_node_does_not_wait_for_a_frozen_server(
    node_kubelet: NodeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubelet.kubelet_nodecache.SYNC_GET_TIMEOUT", 0.05)
    frozen = resttesting.serve_raw(lambda connection, _: connection.recv(1 << 20) and connection.recv(1))
    with frozen as url:
        node_kubelet.kubelet.kube_client = kubernetes.new_for_config(rest.Config(host=url))
        with pytest.raises(TimeoutError, match='get node "labnode": no response within'):
            node_kubelet.kubelet.get_cached_node(CTX, False)


def test_get_cached_node_anew(node_kubelet: NodeKubelet) -> None:
    node_kubelet.use(versioned("7"))
    node = node_kubelet.kubelet.get_cached_node(CTX, False)
    assert node_kubelet.kubelet.cached_node is node
    node_kubelet.lister.node = versioned("1")
    assert node_kubelet.kubelet.get_cached_node(CTX, True) is node


def test_answer_of_the_server_counts_although_its_versions_go_back(node_kubelet: NodeKubelet) -> None:
    kubelet = node_kubelet.kubelet
    node_kubelet.use(versioned(""))
    kubelet.cached_node = newer = versioned("99")
    assert kubelet.get_cached_node(CTX, False) is not newer
    assert kubelet.cached_node is not newer
    kubelet.cached_node = newer
    kubelet.update_node_status(CTX)
    node_kubelet.lister.node = versioned("98")
    assert kubelet.get_cached_node(CTX, True) is node_kubelet.lister.node


def test_what_was_reported_is_known_before_the_informer_sees_it(node_kubelet: NodeKubelet) -> None:
    """The scheduler may have placed a pod because of this report, for example on a node that another client created."""
    node_kubelet.use(versioned(""))
    node_kubelet.lister.node = server_node(node_kubelet)
    assert not node_kubelet.kubelet.get_cached_node(CTX, True).status.allocatable
    node_kubelet.kubelet.update_node_status(CTX)
    assert "pods" in node_kubelet.kubelet.get_cached_node(CTX, True).status.allocatable


@pytest.mark.parametrize("err", [*FAILURES, golang.DeadlineExceeded()], ids=lambda err: type(err).__name__)
def test_setter_that_fails_leaves_the_others(test_kubelet: TestKubelet, err: Exception) -> None:
    """Even if a setter runs into its own timeout, the report continues."""
    set_by: list[str] = []

    def fail(ctx: golang.Context, node: v1.Node) -> None:
        raise err

    test_kubelet.kubelet.set_node_status_funcs = [fail, lambda ctx, node: set_by.append("other")]
    test_kubelet.kubelet.set_node_status(test_kubelet.ctx, v1.Node())
    assert set_by == ["other"]
