"""Test how the DRA manager prepares and unprepares claims.

Go: pkg/kubelet/cm/dra/manager_test.go
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.waiting import wait_for

from kubelet import metrics
from kubelet.apis.dra.v1 import DRA_PLUGIN_SERVICE
from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealth
from kubelet.cm.dra import manager as dramanager
from kubelet.cm.dra.testing import FakeDRADriver
from kubelet.config.testing import FakeSourcesReady
from pkg import features, golang
from pkg.api.core import v1
from pkg.api.resource import v1 as resourceapi
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics.testing import moves

DRIVER, OTHER = "gpu.example.com", "nic.example.com"
POD_UID = types.UID("uid-of-p")


def new_pod(
    *claims: v1.PodResourceClaim, name: str = "p", uses: list[v1.ResourceClaim] | None = None, **status: Any
) -> v1.Pod:
    """Return a pod whose only container uses all claims, unless `uses` names others."""
    used = [v1.ResourceClaim(name=claim.name) for claim in claims] if uses is None else uses
    container = v1.Container(name="c", resources=v1.ResourceRequirements(claims=used))
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(f"uid-of-{name}")),
        spec=v1.PodSpec(containers=[container], resource_claims=list(claims)),
        status=v1.PodStatus(**status),
    )


def named(claim_name: str) -> v1.PodResourceClaim:
    """Return a pod's reference to an existing ResourceClaim."""
    return v1.PodResourceClaim(name=f"my-{claim_name}", resource_claim_name=claim_name)


def new_claim(name: str = "claim", drivers: tuple[str, ...] = (DRIVER,), pods: tuple[str, ...] = ("p",)) -> Any:
    """Return a claim for devices of these drivers, reserved for these pods."""
    results = [resourceapi.DeviceRequestAllocationResult(driver=driver, request="r") for driver in drivers]
    reserved = [
        resourceapi.ResourceClaimConsumerReference(resource="pods", name=pod, uid=types.UID(f"uid-of-{pod}"))
        for pod in pods
    ]
    allocation = resourceapi.AllocationResult(devices=resourceapi.DeviceAllocationResult(results=results))
    return resourceapi.ResourceClaim(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(f"uid-of-{name}")),
        status=resourceapi.ResourceClaimStatus(allocation=allocation, reserved_for=reserved),
    )


def device(name: str = "dev-0", *requests: str, ids: tuple[str, ...] = (), share: str | None = None) -> drapb.Device:
    cdi = ids or (f"example.com/gpu={name}",)
    return drapb.Device(pool_name="pool", device_name=name, request_names=requests, cdi_device_ids=cdi, share_id=share)


@dataclass
class Node:
    """Hold a manager with one registered driver that has a device for each claim."""

    directory: Path
    client: FakeClientset
    ctx: golang.Context
    manager: dramanager.Manager = field(init=False)
    clock: FakeClock = field(default_factory=FakeClock)
    drivers: dict[str, FakeDRADriver] = field(default_factory=dict)
    restarts: list[Callable[[], None]] = field(default_factory=list)

    def start(self) -> None:
        """Start or restart the manager, which then knows the checkpoint, and no plugins."""
        self.manager = dramanager.Manager(self.client, str(self.directory), self.clock)
        self.manager.init_dra_plugin_manager(self.ctx, lambda ctx: v1.Node(metadata=metav1.ObjectMeta(name="n")), 1000)
        self.restarts.append(self.manager.get_watcher_handler().stop)  # type: ignore[attr-defined]

    def register(self, driver: FakeDRADriver, name: str = DRIVER, timeout: float | None = None) -> None:
        self.drivers[name] = driver
        self.manager.get_watcher_handler().register_plugin(name, driver.endpoint, [DRA_PLUGIN_SERVICE], timeout)

    @property
    def driver(self) -> FakeDRADriver:
        return self.drivers[DRIVER]

    def prepare(self, pod: v1.Pod) -> None:
        self.manager.prepare_resources(self.ctx, pod)

    def unprepare(self, pod: v1.Pod) -> None:
        self.manager.unprepare_resources(self.ctx, pod)

    def cdi(self, pod: v1.Pod) -> list[str]:
        """List the CDI devices of the pod's only container."""
        return [each.name for each in self.manager.get_resources(pod, pod.spec.containers[0]).cdi_devices]


@pytest.fixture
def node(tmp_path: Path, stack: ExitStack) -> Node:
    ctx, cancel = golang.with_cancel(golang.background())
    stack.callback(cancel)
    node = Node(tmp_path, FakeClientset(new_claim()), ctx)
    node.start()
    stack.callback(lambda: [stop() for stop in node.restarts])
    driver = stack.enter_context(FakeDRADriver(tmp_path / "gpu.sock", health=True))
    driver.devices["uid-of-claim"] = [device()]
    node.register(driver)
    return node


def with_other_driver(node: Node, stack: ExitStack) -> FakeDRADriver:
    """Register a second driver, which provides devices for the claim too."""
    other = stack.enter_context(FakeDRADriver(node.directory / "nic.sock"))
    other.devices["uid-of-claim"] = [device("nic-0")]
    node.register(other, OTHER)
    node.client.add(new_claim(drivers=(DRIVER, OTHER)))
    return other


# ---- Prepare ----


def test_prepares_and_gives_back(node: Node) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    node.prepare(pod)
    node.unprepare(pod)
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    node.unprepare(pod)
    assert node.driver.calls == [("prepare", ["uid-of-claim"]), ("unprepare", ["uid-of-claim"])]


def test_pod_without_claims_asks_nobody(node: Node) -> None:
    node.client.clear_actions()
    node.prepare(new_pod())
    node.unprepare(new_pod())
    assert node.cdi(new_pod()) == []
    assert node.driver.calls == [] and node.client.actions("get") == []


def _claim_not_allocated() -> Any:
    claim = new_claim()
    claim.status.allocation = None
    return claim


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        pytest.param(
            None, 'fetch ResourceClaim claim: resourceclaims.resource.k8s.io "claim" not found', id="no-claim"
        ),
        pytest.param(
            new_claim(drivers=("unknown",)), "DRA driver unknown is not registered", id="driver-is-not-registered"
        ),
        pytest.param(new_claim(drivers=("",)), "DRA driver name is empty", id="driver-without-a-name"),
        pytest.param(
            new_claim(pods=("other",)),
            "pod p (uid-of-p) is not allowed to use ResourceClaim claim (uid-of-claim)",
            id="for-another-pod",
        ),
        pytest.param(_claim_not_allocated(), "ResourceClaim claim: not allocated", id="not-allocated"),
    ],
)
def test_claim_that_cannot_be_used(node: Node, claim: Any, reason: str) -> None:
    node.client.remove(new_claim())
    if claim is not None:
        node.client.add(claim)
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.prepare(new_pod(named("claim")))
    assert str(raised.value) == f"prepare dynamic resources: {reason}"
    # The pod's end need not wait for any claim.
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    assert node.driver.calls == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"errors": {"uid-of-claim": "no power"}},
            "NodePrepareResources failed for ResourceClaim claim: no power",
            id="error-of-the-claim",
        ),
        pytest.param({"skipped": {"uid-of-claim"}}, "NodePrepareResources skipped 1 ResourceClaims", id="empty-answer"),
        pytest.param(
            {"unasked": {"who"}},
            "NodePrepareResources returned result for unknown claim UID who",
            id="answer-for-another-claim",
        ),
        pytest.param(
            {"failure": (grpc.StatusCode.INTERNAL, "broken")},
            "NodePrepareResources: rpc error: code = Internal desc = broken",
            id="call-fails",
        ),
    ],
)
def test_driver_that_fails_is_asked_again(node: Node, change: dict[str, Any], reason: str) -> None:
    before = {name: getattr(node.driver, name) for name in change}
    for name, value in change.items():
        setattr(node.driver, name, value)
    pod = new_pod(named("claim"))
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.prepare(pod)
    assert str(raised.value) == f"prepare dynamic resources: {reason}"
    # The driver may have done a part of the work, and must undo it.
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    for name, value in before.items():
        setattr(node.driver, name, value)
    node.prepare(pod)
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    assert node.driver.asked("prepare") == [["uid-of-claim"]] * 2


def test_driver_that_hangs_has_a_time_limit(node: Node) -> None:
    node.manager.get_watcher_handler().deregister_plugin(DRIVER, node.driver.endpoint)
    node.register(node.driver, timeout=0.05)
    node.driver.gate = threading.Event()
    with pytest.raises(dramanager.ResourcesError, match="code = DeadlineExceeded desc = context deadline exceeded"):
        node.prepare(new_pod(named("claim")))


def test_call_ends_with_the_context(node: Node) -> None:
    node.driver.gate = threading.Event()
    ctx, cancel = golang.with_cancel(node.ctx)
    failures: list[Exception] = []

    def prepare() -> None:
        try:
            node.manager.prepare_resources(ctx, new_pod(named("claim")))
        except dramanager.ResourcesError as err:
            failures.append(err)

    thread = golang.go(prepare, name="prepare")
    wait_for("the driver is called", lambda: node.driver.calls)
    cancel()
    thread.join(30)
    assert "code = Canceled" in str(failures[0])


def test_plugin_that_died(node: Node) -> None:
    node.driver.stop()
    with pytest.raises(dramanager.ResourcesError, match="NodePrepareResources: rpc error: code = Unavailable"):
        node.prepare(new_pod(named("claim")))


def test_two_pods_share_a_claim(node: Node) -> None:
    node.client.add(new_claim(pods=("p", "q")))
    first, second = new_pod(named("claim")), new_pod(named("claim"), name="q")
    node.prepare(first)
    node.prepare(second)
    assert node.cdi(second) == ["example.com/gpu=dev-0"]
    node.unprepare(first)
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    assert node.cdi(second) == ["example.com/gpu=dev-0"]
    node.unprepare(second)
    assert node.driver.calls == [("prepare", ["uid-of-claim"]), ("unprepare", ["uid-of-claim"])]


def test_pod_that_never_got_the_claim_does_not_take_it_along(node: Node) -> None:
    user, stranger = new_pod(named("claim")), new_pod(named("claim"), name="stranger")
    node.prepare(user)
    with pytest.raises(dramanager.ResourcesError, match="is not allowed to use ResourceClaim"):
        node.prepare(stranger)
    node.unprepare(stranger)
    assert node.driver.asked("unprepare") == []
    assert node.cdi(user) == ["example.com/gpu=dev-0"]


def test_prepared_and_new_claim(node: Node) -> None:
    node.client.add(new_claim(pods=("p", "q")))
    node.client.add(new_claim("new", pods=("q",)))
    node.prepare(new_pod(named("claim")))
    node.driver.devices["uid-of-new"] = [device("dev-1")]
    pod = new_pod(named("claim"), named("new"), name="q")
    node.prepare(pod)
    assert node.driver.asked("prepare") == [["uid-of-claim"], ["uid-of-new"]]
    assert node.cdi(pod) == ["example.com/gpu=dev-0", "example.com/gpu=dev-1"]


def test_claims_of_one_driver_go_in_one_call(node: Node) -> None:
    node.client.add(new_claim("new"))
    node.prepare(new_pod(named("claim"), named("new")))
    node.unprepare(new_pod(named("claim"), named("new")))
    both = ["uid-of-claim", "uid-of-new"]
    assert node.driver.calls == [("prepare", both), ("unprepare", both)]


def test_two_drivers_of_which_one_fails_at_first(node: Node, stack: ExitStack) -> None:
    other = with_other_driver(node, stack)
    other.errors["uid-of-claim"] = "busy"
    pod = new_pod(named("claim"))
    with pytest.raises(dramanager.ResourcesError, match="failed for ResourceClaim claim: busy"):
        node.prepare(pod)
    other.errors.clear()
    node.prepare(pod)
    assert node.cdi(pod) == ["example.com/gpu=dev-0", "example.com/gpu=nic-0"]
    (info,) = node.manager.get_container_claim_infos(pod, pod.spec.containers[0])
    # The first driver was called twice, and its device appears once.
    assert [len(driver.devices) for driver in info.driver_state.values()] == [1, 1]
    node.unprepare(pod)
    assert [driver.asked("unprepare") for driver in node.drivers.values()] == [[["uid-of-claim"]]] * 2


def test_another_claim_of_the_same_name(node: Node) -> None:
    node.prepare(new_pod(named("claim")))
    another = new_claim(pods=("q",))
    another.metadata.uid = "another"
    node.client.add(another)
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.prepare(new_pod(named("claim"), name="q"))
    assert str(raised.value) == (
        "prepare dynamic resources: old ResourceClaim with same name claim and different UID uid-of-claim "
        "still exists (previous pod force-deleted?!)"
    )
    assert not node.manager.pod_might_need_to_unprepare_resources(types.UID("uid-of-q"))


def test_a_claim_that_a_driver_may_have_taken_back_is_prepared_again(node: Node) -> None:
    """A claim is prepared again after a driver unprepared it and the response was lost.

    Another pod shares the claim, and is synced next.
    """
    node.client.add(new_claim(pods=("p", "q")))
    node.prepare(new_pod(named("claim")))
    node.driver.failure = (grpc.StatusCode.UNAVAILABLE, "restarted")
    with pytest.raises(dramanager.ResourcesError, match="restarted"):
        node.unprepare(new_pod(named("claim")))
    node.driver.failure = None
    for _ in range(2):
        node.prepare(new_pod(named("claim"), name="q"))
    assert node.driver.asked("prepare") == [["uid-of-claim"]] * 2


def test_a_claim_that_no_driver_was_asked_to_take_back_stays_prepared(node: Node) -> None:
    """A claim stays prepared if its drivers were gone when a pod ended.

    The drivers return before the next pod that shares the claim.
    """
    node.client.add(new_claim(pods=("p", "q")))
    node.prepare(new_pod(named("claim")))
    node.manager.get_watcher_handler().deregister_plugin(DRIVER, node.driver.endpoint)
    with pytest.raises(dramanager.ResourcesError, match="not registered"):
        node.unprepare(new_pod(named("claim")))
    family = node.manager.new_metrics_collector().collect()[0]
    assert {sample.labels["driver_name"]: sample.value for sample in family.samples} == {DRIVER: 1, "<any>": 1}
    node.register(node.driver)
    node.prepare(new_pod(named("claim"), name="q"))
    assert node.driver.calls == [("prepare", ["uid-of-claim"])]


def test_a_claim_that_a_pod_names_twice_is_asked_for_once(node: Node) -> None:
    """A claim that a pod names twice is prepared and fetched once, because a pod may name it thousands of times."""
    again = v1.PodResourceClaim(name="again", resource_claim_name="claim")
    node.client.clear_actions()
    node.prepare(new_pod(named("claim"), again))
    assert len(node.client.actions("get")) == 1
    assert node.driver.calls == [("prepare", ["uid-of-claim"])]


def test_a_claim_that_is_allocated_anew_before_a_pod_has_ended(node: Node) -> None:
    """A pod waits if its claim got other devices after the earlier pod was deleted by force."""
    node.prepare(new_pod(named("claim")))
    again = new_claim(pods=("q",))
    again.status.allocation.devices.results[0].device = "dev-1"
    node.client.add(again)
    second = new_pod(named("claim"), name="q")
    with pytest.raises(dramanager.ResourcesError, match="ResourceClaim claim has a new allocation, and an earlier pod"):
        node.prepare(second)
    assert not node.manager.pod_might_need_to_unprepare_resources(types.UID("uid-of-q"))
    node.unprepare(new_pod(named("claim")))
    node.driver.devices["uid-of-claim"] = [device("dev-1")]
    node.prepare(second)
    assert node.cdi(second) == ["example.com/gpu=dev-1"]


# ---- Claims that were created for a pod ----


def templated(owner_uid: str = POD_UID, **status: Any) -> tuple[v1.Pod, Any]:
    """Return a pod whose claim was created from a template, and the claim, which the pod owns."""
    claim = new_claim("p-made")
    claim.metadata.owner_references = [metav1.OwnerReference(uid=types.UID(owner_uid), controller=True)]
    pod_claim = v1.PodResourceClaim(name="made", resource_claim_template_name="template")
    return new_pod(pod_claim, resource_claim_statuses=[v1.PodResourceClaimStatus(name="made", **status)]), claim


def test_claim_of_a_template(node: Node) -> None:
    pod, claim = templated(resource_claim_name="p-made")
    node.client.add(claim)
    node.driver.devices["uid-of-p-made"] = [device("made")]
    node.prepare(pod)
    assert node.cdi(pod) == ["example.com/gpu=made"]


def test_claim_of_a_template_with_another_owner(node: Node) -> None:
    pod, claim = templated("somebody", resource_claim_name="p-made")
    node.client.add(claim)
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.prepare(pod)
    reason = "ResourceClaim ns/p-made was not created for Pod ns/p (Pod is not owner)"
    assert str(raised.value) == f"prepare dynamic resources: {reason}"


def test_claim_that_is_not_needed(node: Node) -> None:
    pod, _ = templated(resource_claim_name=None)
    node.prepare(pod)
    assert node.cdi(pod) == [] and node.driver.calls == []
    node.unprepare(pod)


@pytest.mark.parametrize(
    ("pod_claim", "reason"),
    [
        (
            v1.PodResourceClaim(name="made", resource_claim_template_name="t"),
            'pod "ns/p": ResourceClaim not created yet',
        ),
        (
            v1.PodResourceClaim(name="made"),
            'pod "ns/p", spec.resourceClaim "made": none of the supported fields are set',
        ),
    ],
    ids=["not-made-yet", "of-no-known-kind"],
)
def test_claim_without_a_name(node: Node, pod_claim: v1.PodResourceClaim, reason: str) -> None:
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.prepare(new_pod(pod_claim))
    assert str(raised.value) == f"prepare dynamic resources: {reason}"
    # Nothing was prepared, so the pod can end.
    node.unprepare(new_pod(pod_claim))
    assert node.driver.calls == []


def test_claim_is_given_back_that_the_pod_no_longer_tells_of(node: Node) -> None:
    pod, claim = templated(resource_claim_name="p-made")
    node.client.add(claim)
    node.prepare(pod)
    pod.status.resource_claim_statuses = []
    node.unprepare(pod)
    assert node.driver.asked("unprepare") == [["uid-of-p-made"]]


# ---- What containers get ----


@pytest.mark.parametrize(
    ("uses", "ids"),
    [
        ([], []),
        ([""], ["all", "a", "b"]),
        (["a"], ["all", "a"]),
        (["b"], ["all", "b"]),
        (["a", "b"], ["all", "a", "b"]),
        (["c"], ["all"]),
    ],
    ids=["nothing", "everything", "one-request", "the-other-request", "both-requests", "request-without-devices"],
)
def test_devices_of_requests(node: Node, uses: list[str], ids: list[str]) -> None:
    node.driver.devices["uid-of-claim"] = [
        device("all", ids=("all",)),
        device("dev-a", "a", ids=("a",)),
        device("dev-b", "b", ids=("b",)),
    ]
    requests = [v1.ResourceClaim(name="my-claim", request=request) for request in uses]
    pod = new_pod(named("claim"), uses=requests)
    node.prepare(pod)
    assert node.cdi(pod) == ids


def test_claim_that_no_container_uses_is_prepared_too(node: Node) -> None:
    pod = new_pod(named("claim"), uses=[])
    node.prepare(pod)
    assert node.driver.asked("prepare") == [["uid-of-claim"]]
    assert node.cdi(pod) == []


def test_container_whose_claim_was_not_prepared(node: Node) -> None:
    pod = new_pod(named("claim"))
    reason = "unable to get claim info for ResourceClaim claim in namespace ns"
    with pytest.raises(LookupError, match=reason):
        node.cdi(pod)
    with pytest.raises(LookupError, match=reason):
        node.manager.get_container_claim_infos(pod, pod.spec.containers[0])


def test_claim_infos_are_copies_and_have_the_share(node: Node) -> None:
    node.driver.devices["uid-of-claim"] = [device(share="share-1")]
    pod = new_pod(named("claim"))
    node.prepare(pod)
    (info,) = node.manager.get_container_claim_infos(pod, pod.spec.containers[0])
    assert info.driver_state[DRIVER].devices[0].share_id == "share-1"
    info.driver_state.clear()
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    assert node.manager.get_container_claim_infos(pod, v1.Container(name="c")) == []


def extended_pod(requests: dict[str, str]) -> v1.Pod:
    """Return a pod whose container requests extended resources that the claim provides."""
    mappings = [
        v1.ContainerExtendedResourceRequest(container_name="c", resource_name="example.com/gpu", request_name="a"),
        v1.ContainerExtendedResourceRequest(container_name="d", resource_name="example.com/gpu", request_name="b"),
    ]
    status = v1.PodExtendedResourceClaimStatus(resource_claim_name="claim", request_mappings=mappings)
    pod = new_pod(extended_resource_claim_status=status)
    pod.spec.containers[0].resources.requests = {
        name: resource.parse_quantity(value) for name, value in requests.items()
    }
    return pod


@pytest.mark.parametrize(
    ("requests", "ids"),
    [({"example.com/gpu": "1"}, ["a"]), ({"example.com/gpu": "0"}, []), ({"cpu": "1"}, [])],
    ids=["asked-for", "none-of-it", "another"],
)
def test_extended_resource(node: Node, requests: dict[str, str], ids: list[str]) -> None:
    node.driver.devices["uid-of-claim"] = [device("dev-a", "a", ids=("a",)), device("dev-b", "b", ids=("b",))]
    pod = extended_pod(requests)
    node.prepare(pod)
    assert node.cdi(pod) == ids
    assert len(node.manager.get_container_claim_infos(pod, pod.spec.containers[0])) == 1
    assert node.manager.get_container_claim_infos(pod, v1.Container(name="other")) == []
    node.unprepare(pod)
    assert node.driver.asked("unprepare") == [["uid-of-claim"]]


def test_extended_resource_without_the_gate(node: Node) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.DRA_EXTENDED_RESOURCE, False):
        pod = extended_pod({"example.com/gpu": "1"})
        node.prepare(pod)
        assert node.cdi(pod) == [] and node.driver.calls == []


# ---- Unprepare ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"errors": {"uid-of-claim": "in use"}},
            "NodeUnprepareResources failed for ResourceClaim claim: in use",
            id="error-of-the-claim",
        ),
        pytest.param(
            {"skipped": {"uid-of-claim"}}, "NodeUnprepareResources skipped 1 ResourceClaims", id="empty-answer"
        ),
        pytest.param(
            {"failure": (grpc.StatusCode.UNKNOWN, "broken")},
            "NodeUnprepareResources: rpc error: code = Unknown desc = broken",
            id="call-fails",
        ),
    ],
)
def test_claim_that_is_not_given_back_stays(node: Node, change: dict[str, Any], reason: str) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    before = {name: getattr(node.driver, name) for name in change}
    for name, value in change.items():
        setattr(node.driver, name, value)
    with pytest.raises(dramanager.ResourcesError) as raised:
        node.unprepare(pod)
    assert str(raised.value) == f"unprepare dynamic resources: {reason}"
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    for name, value in before.items():
        setattr(node.driver, name, value)
    node.unprepare(pod)
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)


def test_claim_of_a_driver_that_is_gone_is_kept_until_it_is_back(node: Node) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    node.manager.get_watcher_handler().deregister_plugin(DRIVER, node.driver.endpoint)
    with pytest.raises(dramanager.ResourcesError, match=r"DRA driver gpu\.example\.com is not registered"):
        node.unprepare(pod)
    node.register(node.driver)
    node.unprepare(pod)
    assert node.driver.asked("unprepare") == [["uid-of-claim"]]


def test_pods_that_wait_for_a_driver_are_told_when_it_comes(node: Node, stack: ExitStack) -> None:
    node.client.add(new_claim(drivers=(OTHER,), pods=("p", "q")))
    for name in ("p", "q"):
        with pytest.raises(dramanager.ResourcesError, match="is not registered"):
            node.prepare(new_pod(named("claim"), name=name))
    node.unprepare(new_pod(named("claim"), name="q"))
    assert node.manager.updates().try_recv()[2] is False
    node.register(stack.enter_context(FakeDRADriver(node.directory / "nic.sock")), OTHER)
    update, _ = node.manager.updates().recv(30)
    assert update is not None and update.pod_uids == (POD_UID,)


def test_no_pod_gets_a_claim_that_is_being_given_back(node: Node) -> None:
    node.client.add(new_claim(pods=("p", "q")))
    first, second = new_pod(named("claim")), new_pod(named("claim"), name="q")
    node.prepare(first)
    gate = node.driver.gate = threading.Event()
    thread = golang.go(node.unprepare, first, name="unprepare")
    wait_for("the driver is asked to unprepare", lambda: node.driver.asked("unprepare"))
    with pytest.raises(dramanager.ResourcesError, match="ResourceClaim claim is being unprepared"):
        node.prepare(second)
    gate.set()
    thread.join(30)
    node.prepare(second)
    assert node.cdi(second) == ["example.com/gpu=dev-0"]
    assert len(node.driver.asked("prepare")) == 2


def test_only_one_at_a_time_gives_a_claim_back(node: Node) -> None:
    """The second attempt to unprepare a claim fails while the first one runs.

    It could unprepare the claim of a pod that got it meanwhile.
    """
    pod = new_pod(named("claim"))
    node.prepare(pod)
    gate = node.driver.gate = threading.Event()
    thread = golang.go(node.unprepare, pod, name="unprepare")
    wait_for("the driver is asked to unprepare", lambda: node.driver.asked("unprepare"))
    with pytest.raises(dramanager.ResourcesError, match="ResourceClaim claim is being unprepared"):
        node.unprepare(pod)
    gate.set()
    thread.join(30)
    node.unprepare(pod)
    assert len(node.driver.asked("unprepare")) == 1


def test_many_pods_at_once(node: Node) -> None:
    names = [f"p{number}" for number in range(20)]
    for name in names:
        node.client.add(new_claim(f"of-{name}", pods=(name,)))
        node.driver.devices[f"uid-of-of-{name}"] = [device(name)]
    pods = [new_pod(named(f"of-{name}"), name=name) for name in names]

    def live(pod: v1.Pod) -> None:
        node.prepare(pod)
        assert node.cdi(pod) == [f"example.com/gpu={pod.metadata.name}"]
        node.unprepare(pod)

    threads = [golang.go(live, pod, name=pod.metadata.name) for pod in pods]
    for thread in threads:
        thread.join(30)
    assert len(node.driver.asked("unprepare")) == 20
    assert not any(node.manager.pod_might_need_to_unprepare_resources(pod.metadata.uid) for pod in pods)


# ---- Restarts ----


def test_devices_are_known_after_a_restart(node: Node) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    node.start()
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    node.register(node.driver)
    # A new sandbox prepares the claims once more, without effect.
    node.prepare(pod)
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    node.unprepare(pod)
    node.start()
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)


def test_claim_is_on_disk_before_the_driver_is_asked(node: Node) -> None:
    node.driver.failure = (grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(dramanager.ResourcesError):
        node.prepare(new_pod(named("claim")))
    node.start()
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)


@pytest.mark.parametrize("content", ["", '{"Data":"{', '{"Data":"{}","Checksum":1}'], ids=["empty", "cut", "checksum"])
def test_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "dra_manager_state").write_text(content)
    with pytest.raises(ValueError, match=f"cannot read {tmp_path}/dra_manager_state: .*please drain the node"):
        dramanager.Manager(FakeClientset(), str(tmp_path))


def test_claims_of_pods_that_are_gone_are_given_back(node: Node, log: Any) -> None:
    node.client.add(new_claim("kept", pods=("q",)))
    gone, stays = new_pod(named("claim")), new_pod(named("kept"), name="q")
    node.prepare(gone)
    node.prepare(stays)
    sources = FakeSourcesReady(False)
    active = [gone, stays]
    node.manager.start(node.ctx, lambda: active, lambda uid: False, lambda ctx: v1.Node(), sources)
    node.restarts.append(node.manager.get_watcher_handler().stop)  # type: ignore[attr-defined]
    # The manager's own thread must not reconcile at the same time.
    node.clock.wait_for_waiters()
    active.remove(gone)
    node.manager.reconcile_loop(node.ctx)
    # The manager does not know yet which pods exist.
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    sources.ready = True
    node.manager.reconcile_loop(node.ctx)
    assert "Unpreparing pod resources in reconcile loop failed, will retry" in log.getvalue()
    node.register(node.driver)
    node.manager.reconcile_loop(node.ctx)
    assert node.driver.asked("unprepare") == [["uid-of-claim"]]
    assert not node.manager.pod_might_need_to_unprepare_resources(POD_UID)
    assert node.manager.pod_might_need_to_unprepare_resources(types.UID("uid-of-q"))


def test_claims_of_a_pod_that_is_ending_are_left_to_it(node: Node) -> None:
    """A pod that was deleted while no kubelet ran keeps its claims, because its containers still run."""
    node.prepare(new_pod(named("claim")))
    sources, ending = FakeSourcesReady(False), {POD_UID}
    sources.ready = True
    node.manager.start(node.ctx, list, ending.__contains__, lambda ctx: v1.Node(), sources)
    node.restarts.append(node.manager.get_watcher_handler().stop)  # type: ignore[attr-defined]
    node.register(node.driver)
    node.clock.wait_for_waiters()
    assert not node.manager.reconcile_loop(node.ctx)
    assert node.driver.asked("unprepare") == []
    ending.clear()
    assert node.manager.reconcile_loop(node.ctx)
    assert node.driver.asked("unprepare") == [["uid-of-claim"]]


def test_claim_of_a_pod_that_comes_at_that_moment_is_left_to_it(node: Node) -> None:
    sources, active = FakeSourcesReady(False), list[v1.Pod]()
    pod = new_pod(named("claim"))

    def active_pods() -> list[v1.Pod]:
        found = list(active)
        if sources.ready and not active:
            active.append(pod)
            node.prepare(pod)
        return found

    node.manager.start(node.ctx, active_pods, lambda uid: False, lambda ctx: v1.Node(), sources)
    node.restarts.append(node.manager.get_watcher_handler().stop)  # type: ignore[attr-defined]
    node.register(node.driver)
    node.clock.wait_for_waiters()
    sources.ready = True
    assert node.manager.reconcile_loop(node.ctx)
    assert node.driver.asked("unprepare") == []
    assert node.manager.pod_might_need_to_unprepare_resources(POD_UID)


# ---- Metrics ----


def test_durations_and_claims_in_use_are_counted(node: Node) -> None:
    pod = new_pod(named("claim"))
    method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    call: dict[str, Any] = {"driver_name": DRIVER, "method_name": method, "grpc_status_code": "OK"}
    done: dict[str, Any] = {"operation_name": "PrepareResources", "is_error": "false"}
    collector = node.manager.new_metrics_collector()

    def in_use() -> dict[str, float]:
        (family,) = collector.collect()
        assert family.name == "dra_resource_claims_in_use"
        return {sample.labels["driver_name"]: sample.value for sample in family.samples}

    assert in_use() == {"<any>": 0}
    with (
        moves(metrics.DRA_GRPC_OPERATIONS_DURATION, **call),
        moves(metrics.DRA_OPERATIONS_DURATION, **done),
    ):
        node.prepare(pod)
    assert in_use() == {DRIVER: 1, "<any>": 1}
    node.driver.failure = (grpc.StatusCode.PERMISSION_DENIED, "no")
    method = method.replace("NodePrepare", "NodeUnprepare")
    call = {"driver_name": DRIVER, "method_name": method, "grpc_status_code": "PermissionDenied"}
    done = {"operation_name": "UnprepareResources", "is_error": "true"}
    with (
        moves(metrics.DRA_GRPC_OPERATIONS_DURATION, **call),
        moves(metrics.DRA_OPERATIONS_DURATION, **done),
        pytest.raises(dramanager.ResourcesError),
    ):
        node.unprepare(pod)


# ---- Health ----


def health(name: str, how: int, message: str = "", timeout: int = 0) -> drahealth.DeviceHealth:
    return drahealth.DeviceHealth(
        device=drahealth.DeviceIdentifier(pool_name="pool", device_name=name),
        health=how,  # type: ignore[arg-type]
        health_check_timeout_seconds=timeout,
        message=message,
    )


def shown(node: Node, pod: v1.Pod) -> list[tuple[str, list[tuple[str, str, str | None]]]]:
    """Return the resources of the pod's only container as its status shows them."""
    status = v1.PodStatus(container_statuses=[v1.ContainerStatus(name="c"), v1.ContainerStatus(name="unknown")])
    node.manager.update_allocated_resources_status(pod, status)
    return [
        (entry.name, [(each.resource_id, each.health, each.message) for each in entry.resources])
        for entry in status.container_statuses[0].allocated_resources_status
    ]


def test_health_of_devices_is_told(node: Node) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Unknown", None)])]
    node.driver.report(health("dev-0", drahealth.UNHEALTHY, "hot"), health("other", drahealth.HEALTHY))
    update, _ = node.manager.updates().recv(30)
    assert update is not None and update.pod_uids == (POD_UID,)
    assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Unhealthy", "hot")])]
    with set_feature_gate_during_test(features.feature_gate, features.RESOURCE_HEALTH_STATUS_MESSAGE, False):
        assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Unhealthy", None)])]
    node.driver.report(health("dev-0", drahealth.HEALTHY))
    node.manager.updates().recv(30)
    assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Healthy", None)])]
    # The last report has expired.
    node.clock.step(31)
    assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Unknown", None)])]


def test_health_is_forgotten_with_the_plugin(node: Node) -> None:
    pod = new_pod(named("claim"))
    node.prepare(pod)
    node.driver.report(health("dev-0", drahealth.HEALTHY))
    node.manager.updates().recv(30)
    node.manager.get_watcher_handler().deregister_plugin(DRIVER, node.driver.endpoint)
    update, _ = node.manager.updates().recv(30)
    assert update is not None and update.pod_uids == (POD_UID,)
    assert shown(node, pod) == [("claim:my-claim", [("example.com/gpu=dev-0", "Unknown", None)])]


def reports(count: int, devices: int = 1) -> Iterator[drahealth.NodeWatchResourcesResponse]:
    for _ in range(count):
        told = [health(f"dev-{number}", drahealth.HEALTHY) for number in range(devices)]
        yield drahealth.NodeWatchResourcesResponse(devices=told)


def _done() -> golang.Context:
    """Return a cancelled context, with which no wait takes time."""
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    return ctx


_DONE = _done()


def test_each_report_costs_what_is_read_and_written(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report costs a wait for the devices that are read, and for all known devices if the report changes any."""
    ctx, waits, wait = _done(), list[float | None](), golang.Context.wait

    def note(waiting: golang.Context, seconds: float | None) -> bool:
        if waiting is ctx:
            waits.append(seconds)
        return wait(waiting, seconds)

    monkeypatch.setattr(golang.Context, "wait", note)
    told = itertools.chain(reports(1, devices=100), reports(1, devices=50), reports(1, devices=200))
    node.manager.handle_watch_resources_stream(ctx, told, DRIVER)
    assert waits == [(100 + 100) / 5000, 50 / 5000, (200 + 200) / 5000]


@pytest.mark.parametrize("taking", [0.0, 1.0])
def test_driver_that_tells_without_a_pause(node: Node, monkeypatch: pytest.MonkeyPatch, taking: float) -> None:
    """The stream of a driver that reports without a pause ends, however long the kubelet takes for a report.

    The plugin's thread opens the stream again.
    """
    monkeypatch.setattr(node.manager, "_announce", lambda *_: node.clock.step(taking))
    handle = functools.partial(node.manager.handle_watch_resources_stream, _DONE)
    most = dramanager.MAX_HEALTH_REPORTS
    handle(reports(most), DRIVER)
    with pytest.raises(dramanager.HealthStreamError, match=r"^more than 10 reports in each second$"):
        handle(reports(most + 1), DRIVER)


def test_driver_that_pauses_may_tell_for_ever(node: Node) -> None:
    def told() -> Iterator[drahealth.NodeWatchResourcesResponse]:
        for report in reports(3 * dramanager.MAX_HEALTH_REPORTS):
            node.clock.step(0.125)
            yield report

    node.manager.handle_watch_resources_stream(_DONE, told(), DRIVER)


def test_driver_that_tells_of_too_many_devices(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dramanager, "MAX_DEVICES", 3)
    handle = functools.partial(node.manager.handle_watch_resources_stream, _DONE)
    handle(reports(1, devices=3), DRIVER)
    with pytest.raises(dramanager.HealthStreamError, match=r"^report of 4 devices, maximum 3$"):
        handle(reports(1, devices=4), DRIVER)


def test_devices_with_names_that_no_device_can_have_are_not_kept(node: Node) -> None:
    told = [health(name, drahealth.HEALTHY) for name in ("d" * 253, "d" * 254)]
    told.append(drahealth.DeviceHealth(device=drahealth.DeviceIdentifier(pool_name="p" * 254, device_name="d")))
    known: list[str] = []

    def stream() -> Iterator[drahealth.NodeWatchResourcesResponse]:
        yield drahealth.NodeWatchResourcesResponse(devices=told)
        known.extend(node.manager._health_info_cache._health_info[DRIVER])

    node.manager.handle_watch_resources_stream(_DONE, stream(), DRIVER)
    assert known == [f"pool/{'d' * 253}"]


@pytest.mark.parametrize(
    ("request_", "ids"),
    [("", ["a", "b"]), ("r", ["a"]), ("r/large", ["a"]), ("other", [])],
    ids=["all", "request", "alternative", "another-request"],
)
def test_health_of_requests(node: Node, request_: str, ids: list[str]) -> None:
    # Two devices with the same ID appear once.
    node.driver.devices["uid-of-claim"] = [
        device("x", "r", ids=("a",)),
        device("y", "r", ids=("a",)),
        device("z", "s", ids=("b",)),
    ]
    pod = new_pod(named("claim"), uses=[v1.ResourceClaim(name="my-claim", request=request_)])
    node.prepare(pod)
    found = shown(node, pod)
    assert [name for name, _ in found] == ([f"claim:my-claim/{request_}" if request_ else "claim:my-claim"][: len(ids)])
    assert [each[0] for _, devices in found for each in devices] == ids


def test_health_of_a_device_without_cdi_id(node: Node) -> None:
    node.driver.devices["uid-of-claim"] = [drapb.Device(pool_name="pool", device_name="d")]
    pod = new_pod(named("claim"))
    node.prepare(pod)
    assert shown(node, pod) == [("claim:my-claim", [(f"{DRIVER}/pool/d", "Unknown", None)])]


def test_health_of_claims_that_are_not_there(node: Node) -> None:
    pod = new_pod(named("claim"), v1.PodResourceClaim(name="broken"), uses=[v1.ResourceClaim(name="broken")])
    assert shown(node, pod) == []
    assert shown(node, new_pod(named("claim"))) == []


class Looks(list[Any]):
    """Count the iterations over the list."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        self.seen += 1
        return super().__iter__()


def test_many_claims_are_not_looked_through_for_each_of_them(node: Node) -> None:
    """Each list is iterated over once, because a pod that was never scheduled may name thousands of missing claims."""
    claims = Looks(v1.PodResourceClaim(name=f"c{number}", resource_claim_name="claim") for number in range(100))
    uses = Looks(v1.ResourceClaim(name=f"c{number}") for number in range(100))
    pod = new_pod(uses=uses)
    pod.spec.resource_claims = claims
    assert shown(node, pod) == []
    assert claims.seen == 1
    node.prepare(pod)
    assert len(shown(node, pod)) == 100
    claims.seen = uses.seen = 0
    assert node.cdi(pod) == ["example.com/gpu=dev-0"]
    assert (claims.seen, uses.seen) == (1, 1)


@pytest.mark.parametrize(
    ("message", "expected"),
    [("", ""), ("short", "short"), ("x" * 1024, "x" * 1024), ("x" * 1025, "x" * 1021 + "...")],
    ids=["empty", "short", "longest", "too-long"],
)
def test_message_has_a_greatest_length(message: str, expected: str) -> None:
    assert dramanager.truncate_health_message(message) == expected


@pytest.mark.parametrize("err", [RecursionError("too deep"), UnicodeError("no text"), MemoryError()])
def test_reconciliation_that_fails_is_tried_again(node: Node, log: Any, err: Exception) -> None:
    asked: list[None] = []

    def active_pods() -> list[v1.Pod]:
        asked.append(None)
        if len(asked) == 1:
            raise err
        return []

    sources = FakeSourcesReady(False)
    sources.ready = True
    node.manager.start(node.ctx, active_pods, lambda uid: False, lambda ctx: v1.Node(), sources)
    node.restarts.append(node.manager.get_watcher_handler().stop)  # type: ignore[attr-defined]
    node.clock.wait_for_waiters()
    node.clock.step(1)
    wait_for("the API server is asked again", lambda: len(asked) == 2)
    assert "Failed to reconcile resource claims" in log.getvalue()
