"""Test admission by the properties of the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kubelet import lifecycle
from kubelet import types as kubetypes
from kubelet.lifecycle import predicate
from kubelet.lifecycle.predicate import InsufficientResourceError, PredicateFailureError
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.scheduler import framework
from pkg.scheduler.framework.plugins import nodeaffinity, nodename, nodeports, tainttoleration

EXTENDED = "foo.com/bar"
HUGE = "hugepages-2Mi"
CTX = golang.background()
Resources = dict[str, resource.Quantity]


def quantities(**amounts: int) -> Resources:
    """Return quantities; cpu is in millicores, and two underscores in a name stand for a hyphen."""
    return {
        name.replace("__", "-"): (
            resource.new_milli_quantity(amount) if name == "cpu" else resource.new_quantity(amount)
        )
        for name, amount in amounts.items()
    }


ALLOCATABLE = quantities(cpu=10, memory=20, pods=32, ephemeral__storage=0)


def make_node(allocatable: Resources | None = None, taints: list[v1.Taint] | None = None, **labels: str) -> v1.Node:
    return v1.Node(
        metadata=metav1.ObjectMeta(name="machine1", labels=labels),
        spec=v1.NodeSpec(taints=taints or []),
        status=v1.NodeStatus(allocatable=ALLOCATABLE if allocatable is None else allocatable),
    )


def resource_pod(*requests: Resources, init: tuple[Resources, ...] = ()) -> v1.Pod:
    def containers(of: tuple[Resources, ...]) -> list[v1.Container]:
        return [v1.Container(resources=v1.ResourceRequirements(requests=r)) for r in of]

    return v1.Pod(spec=v1.PodSpec(containers=containers(requests), init_containers=containers(init)))


def with_sidecar(pod: v1.Pod, requests: Resources) -> v1.Pod:
    resources = v1.ResourceRequirements(requests=requests)
    sidecar = v1.Container(restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS, resources=resources)
    pod.spec.init_containers.append(sidecar)
    return pod


def sidecar_port_pod(port: int) -> v1.Pod:
    container = v1.Container(
        restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS, ports=[v1.ContainerPort(host_port=port)]
    )
    return v1.Pod(spec=v1.PodSpec(init_containers=[container]))


def port_pod(port: int, ip: str = "", protocol: str = "") -> v1.Pod:
    container_port = v1.ContainerPort(host_port=port, host_ip=ip, protocol=protocol)
    return v1.Pod(spec=v1.PodSpec(containers=[v1.Container(ports=[container_port])]))


def static_pod() -> v1.Pod:
    annotations = {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: kubetypes.FILE_SOURCE}
    return v1.Pod(metadata=metav1.ObjectMeta(annotations=annotations))


def named_node_pod(name: str) -> v1.Pod:
    return v1.Pod(spec=v1.PodSpec(node_name=name))


def tolerating_pod(*keys: str) -> v1.Pod:
    return v1.Pod(spec=v1.PodSpec(tolerations=[v1.Toleration(key=key) for key in keys]))


def affinity_pod(node_name: str = "") -> v1.Pod:
    """Return a static pod for nodes with the label foo."""
    term = v1.NodeSelectorTerm(
        match_expressions=[v1.NodeSelectorRequirement(key="foo", operator=v1.NODE_SELECTOR_OP_EXISTS)]
    )
    required = v1.NodeSelector(node_selector_terms=[term])
    pod = static_pod()
    pod.spec.node_name = node_name
    pod.spec.affinity = v1.Affinity(
        node_affinity=v1.NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )
    return pod


def taint(key: str, effect: str) -> v1.Taint:
    return v1.Taint(key=key, effect=effect)


NOT_TOLERATED = PredicateFailureError(tainttoleration.NAME, tainttoleration.ERR_REASON_NOT_MATCH)
NO_AFFINITY = PredicateFailureError(nodeaffinity.NAME, nodeaffinity.ERR_REASON_POD)
OTHER_NODE = PredicateFailureError(nodename.NAME, nodename.ERR_REASON)
PORT_TAKEN = PredicateFailureError(nodeports.NAME, nodeports.ERR_REASON)


@dataclass
class Case:
    name: str
    pod: v1.Pod
    node: v1.Node = field(default_factory=make_node)
    others: tuple[v1.Pod, ...] = ()
    # `fresh_node` is the node that a request without the cache returns.
    fresh_node: v1.Node | None = None
    reasons: list[object] = field(default_factory=list)


CASES = [
    Case("nothing wanted", v1.Pod(), others=(resource_pod(quantities(cpu=9, memory=19)),)),
    Case("nothing wanted, node full", v1.Pod(), others=(resource_pod(quantities(cpu=99, memory=99)),)),
    Case(
        "not enough cpu and memory",
        resource_pod(quantities(cpu=8, memory=10)),
        others=(resource_pod(quantities(cpu=5, memory=19)),),
        reasons=[
            InsufficientResourceError("cpu", 8, 5, 10),
            InsufficientResourceError("memory", 10, 19, 20),
        ],
    ),
    Case(
        "just enough",
        resource_pod(quantities(cpu=5, memory=1)),
        others=(resource_pod(quantities(cpu=5, memory=19)),),
    ),
    Case(
        "an init container wants too much",
        resource_pod(quantities(cpu=1), init=(quantities(cpu=11),)),
        reasons=[InsufficientResourceError("cpu", 11, 0, 10)],
    ),
    Case(
        "too many pods",
        v1.Pod(),
        node=make_node(quantities(pods=1)),
        others=(v1.Pod(),),
        reasons=[InsufficientResourceError("pods", 1, 1, 1)],
    ),
    Case(
        "not enough storage and extended resources",
        resource_pod({**quantities(ephemeral__storage=5), EXTENDED: resource.new_quantity(2)}),
        node=make_node({**quantities(pods=5, ephemeral__storage=4), EXTENDED: resource.new_quantity(1)}),
        reasons=[
            InsufficientResourceError("ephemeral-storage", 5, 0, 4),
            InsufficientResourceError(EXTENDED, 2, 0, 1),
        ],
    ),
    Case(
        "an init container wants less than the containers",
        resource_pod(quantities(cpu=4), quantities(cpu=5), init=(quantities(cpu=9),)),
    ),
    Case(
        "sidecars run beside the containers",
        with_sidecar(resource_pod(quantities(cpu=5)), quantities(cpu=6)),
        reasons=[InsufficientResourceError("cpu", 11, 0, 10)],
    ),
    Case(
        "sidecars of others take, too",
        resource_pod(quantities(cpu=5)),
        others=(with_sidecar(resource_pod(quantities(cpu=5)), quantities(cpu=1)),),
        reasons=[InsufficientResourceError("cpu", 5, 6, 10)],
    ),
    Case(
        "overhead",
        v1.Pod(
            spec=v1.PodSpec(
                containers=resource_pod(quantities(cpu=8)).spec.containers, overhead=quantities(cpu=2, memory=21)
            )
        ),
        reasons=[InsufficientResourceError("memory", 21, 0, 20)],
    ),
    Case(
        "the pod as a whole asks for more than its containers",
        v1.Pod(
            spec=v1.PodSpec(
                containers=resource_pod(quantities(cpu=1)).spec.containers,
                resources=v1.ResourceRequirements(requests=quantities(cpu=11)),
            )
        ),
        reasons=[InsufficientResourceError("cpu", 11, 0, 10)],
    ),
    Case(
        "huge pages",
        resource_pod({HUGE: resource.must_parse("8Mi")}),
        node=make_node({**quantities(pods=5), HUGE: resource.must_parse("8Mi")}),
        others=(resource_pod({HUGE: resource.must_parse("2Mi")}),),
        reasons=[InsufficientResourceError(HUGE, 8 << 20, 2 << 20, 8 << 20)],
    ),
    Case(
        "host port taken by a sidecar",
        port_pod(1),
        others=(sidecar_port_pod(1),),
        reasons=[PORT_TAKEN],
    ),
    Case(
        "one reason does not hide another",
        v1.Pod(
            spec=v1.PodSpec(
                node_name="machine2",
                node_selector={"foo": "bar"},
                containers=[*resource_pod(quantities(cpu=11)).spec.containers, *port_pod(1).spec.containers],
            )
        ),
        node=make_node(taints=[taint("bar", v1.TAINT_EFFECT_NO_EXECUTE)]),
        others=(port_pod(1),),
        reasons=[InsufficientResourceError("cpu", 11, 0, 10), NO_AFFINITY, OTHER_NODE, PORT_TAKEN, NOT_TOLERATED],
    ),
    Case("another node", named_node_pod("machine2"), reasons=[OTHER_NODE]),
    Case("this node", named_node_pod("machine1")),
    Case("host port taken", port_pod(123), others=(port_pod(123),), reasons=[PORT_TAKEN]),
    Case("another host port taken", port_pod(123), others=(port_pod(124),)),
    Case("host port taken for another protocol", port_pod(1), others=(port_pod(1, protocol="UDP"),)),
    Case("host port taken at another address", port_pod(1, "10.0.0.1"), others=(port_pod(1, "10.0.0.2"),)),
    Case(
        "host port taken at one address, wanted at all",
        port_pod(1),
        others=(port_pod(1, "10.0.0.2"),),
        reasons=[PORT_TAKEN],
    ),
    Case(
        "host port taken at all addresses",
        port_pod(1, "10.0.0.2"),
        others=(port_pod(1, "0.0.0.0"),),
        reasons=[PORT_TAKEN],
    ),
    Case(
        "taints tolerated",
        tolerating_pod("foo", "bar"),
        node=make_node(taints=[taint("foo", v1.TAINT_EFFECT_NO_SCHEDULE), taint("bar", v1.TAINT_EFFECT_NO_EXECUTE)]),
    ),
    Case(
        "NoSchedule not tolerated",
        v1.Pod(),
        node=make_node(taints=[taint("foo", v1.TAINT_EFFECT_NO_SCHEDULE)]),
    ),
    Case(
        "NoExecute not tolerated",
        v1.Pod(),
        node=make_node(taints=[taint("bar", v1.TAINT_EFFECT_NO_EXECUTE)]),
        reasons=[NOT_TOLERATED],
    ),
    Case(
        "PreferNoSchedule not tolerated",
        v1.Pod(),
        node=make_node(taints=[taint("baz", v1.TAINT_EFFECT_PREFER_NO_SCHEDULE)]),
    ),
    Case(
        "static pods stay whatever the taint",
        static_pod(),
        node=make_node(taints=[taint("bar", v1.TAINT_EFFECT_NO_EXECUTE)]),
    ),
    Case("affinity", affinity_pod(), node=make_node(foo="bar")),
    Case("no affinity", affinity_pod(), fresh_node=make_node(), reasons=[NO_AFFINITY]),
    Case(
        "no affinity, and more: the node is not asked for anew",
        affinity_pod("machine2"),
        fresh_node=make_node(foo="bar"),
        reasons=[NO_AFFINITY, OTHER_NODE],
    ),
    Case("affinity to the node as it is now", affinity_pod(), fresh_node=make_node(foo="bar")),
    Case(
        "affinity to the node as it was",
        affinity_pod(),
        node=make_node(foo="bar"),
        fresh_node=make_node(),
    ),
]


def handler(
    get_node: Callable[[golang.Context, bool], v1.Node],
    failures: lifecycle.AdmissionFailureHandler | None = None,
    update: predicate.PluginResourceUpdateFunc = lambda node_info, attrs: None,
) -> lifecycle.PredicateAdmitHandler:
    return lifecycle.PredicateAdmitHandler(get_node, failures or lifecycle.AdmissionFailureHandlerStub(), update)


@pytest.mark.parametrize("tc", CASES, ids=lambda tc: tc.name)
def test_general_predicates(tc: Case) -> None:
    def get_node(ctx: golang.Context, use_cache: bool) -> v1.Node:
        if use_cache:
            return tc.node
        if tc.fresh_node is None:
            raise LookupError("no such node")
        return tc.fresh_node

    node_info = framework.NodeInfo(*tc.others)
    node_info.set_node(tc.node)
    assert handler(get_node).general_filter(CTX, tc.pod, node_info) == tc.reasons


@pytest.mark.parametrize(
    ("requests", "limits", "allocatable", "expected"),
    [
        pytest.param({}, {EXTENDED: 1}, {"foo.com/baz": 1}, {}, id="limits do not count"),
        pytest.param({EXTENDED: 1}, {}, {EXTENDED: 1}, {EXTENDED: 1}, id="the node has it"),
        pytest.param({EXTENDED: 1}, {}, {"foo.com/baz": 1}, {}, id="the node has it not"),
        pytest.param({EXTENDED: 1}, {EXTENDED: 1}, {EXTENDED: 0}, {EXTENDED: 1}, id="the node has none left"),
        pytest.param({"cpu": 1}, {}, {}, {"cpu": 1}, id="not an extended resource"),
    ],
)
def test_remove_missing_extended_resources(
    requests: dict[str, int], limits: dict[str, int], allocatable: dict[str, int], expected: dict[str, int]
) -> None:
    def of(amounts: dict[str, int]) -> Resources:
        return {name: resource.new_quantity(amount) for name, amount in amounts.items()}

    def pod(requests: dict[str, int]) -> v1.Pod:
        def container() -> v1.Container:
            resources = v1.ResourceRequirements(requests=of(requests), limits=of(limits))
            return v1.Container(resources=resources)

        return v1.Pod(spec=v1.PodSpec(containers=[container()], init_containers=[container()]))

    node_info = framework.NodeInfo()
    node_info.set_node(make_node(of(allocatable)))
    given = pod(requests)
    assert predicate.remove_missing_extended_resources(given, node_info) == pod(expected)
    assert given == pod(requests), "the argument is not modified"


@pytest.mark.parametrize("enabled", [True, False])
def test_requests_backed_by_claims_are_removed(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    is_enabled = features.feature_gate.enabled
    monkeypatch.setattr(
        features.feature_gate,
        "enabled",
        lambda key: enabled if key == features.DRA_EXTENDED_RESOURCE else is_enabled(key),
    )
    pod = resource_pod({EXTENDED: resource.new_quantity(1)})
    pod.spec.containers[0].name = "c"
    mapping = v1.ContainerExtendedResourceRequest(resource_name=EXTENDED, container_name="c")
    pod.status.extended_resource_claim_status = v1.PodExtendedResourceClaimStatus(request_mappings=[mapping])
    node_info = framework.NodeInfo()
    node_info.set_node(make_node({EXTENDED: resource.new_quantity(0)}))
    got = predicate.remove_missing_extended_resources(pod, node_info)
    assert (EXTENDED in got.spec.containers[0].resources.requests) is not enabled


@pytest.mark.parametrize(
    ("pod_label", "node_label", "expected"),
    [
        pytest.param("linux", "linux", False, id="the same"),
        pytest.param("linux", "dummyOS", False, id="the node's label is wrong, the pod's right"),
        pytest.param("dummyOS", "dummyOS", True, id="both are wrong"),
        pytest.param(None, "dummyOS", False, id="the pod says nothing"),
    ],
)
def test_reject_pod_admission_based_on_os_selector(pod_label: str | None, node_label: str, expected: bool) -> None:
    labels = {} if pod_label is None else {"kubernetes.io/os": pod_label}
    pod = v1.Pod(metadata=metav1.ObjectMeta(labels=labels))
    node = make_node()
    node.metadata.labels["kubernetes.io/os"] = node_label
    assert predicate.reject_pod_admission_based_on_os_selector(pod, node) is expected


@pytest.mark.parametrize(("os", "expected"), [("linux", False), ("dummyOS", True), (None, False)])
def test_reject_pod_admission_based_on_os_field(os: str | None, expected: bool) -> None:
    pod = v1.Pod(spec=v1.PodSpec(os=None if os is None else v1.PodOS(name=os)))
    assert predicate.reject_pod_admission_based_on_os_field(pod) is expected


@pytest.mark.parametrize(
    ("policy", "supported", "expected"),
    [
        (v1.SUPPLEMENTAL_GROUPS_POLICY_STRICT, None, True),
        (v1.SUPPLEMENTAL_GROUPS_POLICY_STRICT, False, True),
        (v1.SUPPLEMENTAL_GROUPS_POLICY_STRICT, True, False),
        (v1.SUPPLEMENTAL_GROUPS_POLICY_MERGE, None, False),
        (None, None, False),
    ],
)
def test_pod_admission_based_on_supplemental_groups_policy(
    policy: str | None, supported: bool | None, expected: bool
) -> None:
    node = make_node()
    if supported is not None:
        node.status.features = v1.NodeFeatures(supplemental_groups_policy=supported)
    context = v1.PodSecurityContext(supplemental_groups_policy=policy)
    pod = v1.Pod(spec=v1.PodSpec(security_context=context))
    assert predicate.reject_pod_admission_based_on_supplemental_groups_policy(pod, node) is expected


# ---- admit ----


def attributes(pod: v1.Pod, *others: v1.Pod) -> lifecycle.PodAdmitAttributes:
    return lifecycle.PodAdmitAttributes(pod=pod, other_pods=list(others))


def rejected(reason: str, message: str) -> lifecycle.PodAdmitResult:
    return lifecycle.PodAdmitResult(admit=False, reason=reason, message=message)


@pytest.mark.parametrize(
    ("pod", "others", "expected"),
    [
        (v1.Pod(), [], lifecycle.PodAdmitResult(admit=True)),
        (
            resource_pod(quantities(cpu=8)),
            [resource_pod(quantities(cpu=5))],
            rejected("OutOfcpu", "Node didn't have enough resource: cpu, requested: 8, used: 5, capacity: 10"),
        ),
        (
            resource_pod(quantities(memory=21)),
            [],
            rejected(
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 21, used: 0, capacity: 20",
            ),
        ),
        (
            port_pod(80),
            [port_pod(80)],
            rejected(
                "NodePorts",
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            ),
        ),
        (resource_pod({EXTENDED: resource.new_quantity(1)}), [], lifecycle.PodAdmitResult(admit=True)),
        (
            v1.Pod(spec=v1.PodSpec(os=v1.PodOS(name="windows"))),
            [],
            rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
        ),
    ],
)
def test_admit(pod: v1.Pod, others: list[v1.Pod], expected: lifecycle.PodAdmitResult) -> None:
    got = handler(lambda ctx, use_cache: make_node()).admit(attributes(pod, *others))
    assert got == expected


def test_admit_without_a_node() -> None:
    def get_node(ctx: golang.Context, use_cache: bool) -> v1.Node:
        raise LookupError("no such node")

    got = handler(get_node).admit(attributes(v1.Pod()))
    assert got == rejected("InvalidNodeInfo", "Kubelet cannot get node info.")


def test_admit_when_plugin_resources_cannot_be_updated() -> None:
    def update(node_info: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        raise LookupError("injected")

    got = handler(lambda ctx, use_cache: make_node(), update=update).admit(attributes(v1.Pod()))
    assert got.reason == "UnexpectedAdmissionError"
    assert "injected" in got.message


_ACCIDENTS = pytest.mark.parametrize(
    "err", [MemoryError(), RecursionError(), RuntimeError("can't start new thread")], ids=repr
)


@_ACCIDENTS
@pytest.mark.parametrize("step", ["node", "update", "room", "labels"])
def test_nobody_is_turned_away_for_an_accident(step: str, err: Exception) -> None:
    def get_node(ctx: golang.Context, use_cache: bool) -> v1.Node:
        if step == "node" or (step == "labels" and not use_cache):
            raise err
        return make_node()

    def update(node_info: framework.NodeInfo, attrs: lifecycle.PodAdmitAttributes) -> None:
        if step == "update":
            raise err

    pod = v1.Pod(spec=v1.PodSpec(node_name="other"))
    if step == "labels":
        pod = v1.Pod(spec=v1.PodSpec(node_selector={"foo": "bar"}))
    with pytest.raises(type(err)):
        handler(get_node, _Preemption(err), update).admit(attributes(pod))


class _Preemption:
    def __init__(self, left: list[lifecycle.PredicateFailureReason] | Exception) -> None:
        self.left = left

    def handle_admission_failure(
        self,
        ctx: golang.Context,
        admit_pod: v1.Pod,
        failure_reasons: list[lifecycle.PredicateFailureReason],
        other_pods: list[v1.Pod],
    ) -> list[lifecycle.PredicateFailureReason]:
        assert (failure_reasons, other_pods) == ([OTHER_NODE], [])
        if isinstance(self.left, Exception):
            raise self.left
        return self.left


class _Reason:
    def get_reason(self) -> str:
        return "odd"

    def __str__(self) -> str:
        return "something odd"


@pytest.mark.parametrize(
    ("left", "admit", "reason"),
    [
        pytest.param([], True, "", id="room was made"),
        pytest.param([PORT_TAKEN, OTHER_NODE], False, "NodePorts", id="the first reason counts"),
        pytest.param([_Reason()], False, "UnexpectedPredicateFailureType", id="an odd reason"),
        pytest.param([lifecycle.RoomIsToBeMade("waits", list)], False, "RoomIsToBeMade", id="room is to be made"),
        pytest.param(LookupError("injected"), False, "UnexpectedAdmissionError", id="it failed"),
    ],
)
def test_admit_after_handling_the_failure(
    left: list[lifecycle.PredicateFailureReason] | Exception, admit: bool, reason: str
) -> None:
    admitting = handler(lambda ctx, use_cache: make_node(), _Preemption(left))
    got = admitting.admit(attributes(named_node_pod("machine2")))
    assert (got.admit, got.reason) == (admit, reason)
    assert got.wait == (got.make_room is not None) == (reason == "RoomIsToBeMade")


def test_admit_decides_nothing_while_the_kubelet_is_being_stopped() -> None:
    admitting = handler(lambda ctx, use_cache: make_node(), _Preemption(golang.Canceled()))
    with pytest.raises(golang.Canceled):
        admitting.admit(attributes(named_node_pod("machine2")))


def test_insufficient_amount() -> None:
    lacking = InsufficientResourceError("cpu", requested=8, used=5, capacity=10)
    assert lacking.get_insufficient_amount() == 3
    assert lacking.get_reason() == "Insufficient cpu"
