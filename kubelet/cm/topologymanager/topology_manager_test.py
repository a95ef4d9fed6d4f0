"""Test the topology manager and its scopes.

Go: pkg/kubelet/cm/topologymanager/topology_manager_test.go, policy_options_test.go, scope_test.go,
scope_container_test.go, scope_pod_test.go
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest

from kubelet import lifecycle, metrics
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm import admission
from kubelet.cm.topologymanager import Hints, Manager, TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.cm.topologymanager.policy_options import PolicyOptions, new_policy_options
from kubelet.cm.topologymanager.testing import FakeHintProvider
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.metrics import legacyregistry

_TWO = [cadvisorapi.Node(id=0, distances=(10, 21)), cadvisorapi.Node(id=1, distances=(21, 10))]


class NoMore(admission.Error):
    type = "NoMoreOfIt"


class NotYet(admission.Error):
    wait = True


def _pod() -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name="p", uid=types.UID("uid")),
        spec=v1.PodSpec(
            init_containers=[v1.Container(name="init")],
            containers=[v1.Container(name="c1"), v1.Container(name="c2")],
        ),
    )


def _admit(manager: Manager, *providers: FakeHintProvider) -> lifecycle.PodAdmitResult:
    for provider in providers:
        provider.manager = manager
        manager.add_hint_provider(provider)
    return manager.admit(lifecycle.PodAdmitAttributes(pod=_pod()))


def _metric(name: str, labels: Mapping[str, str] | None = None) -> float:
    metrics.register()
    value = legacyregistry.DEFAULT_GATHERER.get_sample_value(name, dict(labels or {}))
    return value or 0.0


@pytest.mark.parametrize(
    ("nodes", "policy", "scope", "options", "want"),
    [
        (2, "unknown", "container", {}, 'unknown policy: "unknown"'),
        (2, "restricted", "unknown", {}, 'unknown scope: "unknown"'),
        (2, "restricted", "pod", {"fake": "1"}, 'unknown Topology Manager Policy option: "fake"'),
        (9, "best-effort", "pod", {}, "unsupported on machines with more than 8 NUMA Nodes"),
        (
            1,
            "best-effort",
            "pod",
            {"prefer-closest-numa-nodes": "true"},
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
        ),
    ],
)
def test_new_manager_refuses(nodes: int, policy: str, scope: str, options: dict[str, str], want: str) -> None:
    with pytest.raises(ValueError) as err:
        Manager([cadvisorapi.Node(id=node) for node in range(nodes)], policy, scope, options)
    assert str(err.value) == want


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_new_manager(policy: str, scope: str) -> None:
    manager = Manager(_TWO, policy, scope, {"prefer-closest-numa-nodes": "true"})
    assert (manager.name(), manager.get_policy().name()) == (scope, policy)


def test_new_manager_without_policy_wants_nothing_else() -> None:
    manager = Manager([cadvisorapi.Node(id=node) for node in range(20)], "none", "unknown", {"fake": "1"})
    assert (manager.name(), manager.get_policy().name()) == ("none", "none")


def test_more_nodes_with_an_option() -> None:
    nodes = [cadvisorapi.Node(id=node) for node in range(9)]
    assert Manager(nodes, "restricted", "pod", {"max-allowable-numa-nodes": "9"}).name() == "pod"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, PolicyOptions()),
        ({"prefer-closest-numa-nodes": "true"}, PolicyOptions(prefer_closest_numa=True)),
        (
            {"prefer-closest-numa-nodes": "0", "max-allowable-numa-nodes": "10"},
            PolicyOptions(max_allowable_numa_nodes=10),
        ),
        (
            {"prefer-closest-numa-nodes": "maybe"},
            'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            {"max-allowable-numa-nodes": "many"},
            'unable to convert policy option to integer "max-allowable-numa-nodes": '
            'strconv.Atoi: parsing "many": invalid syntax',
        ),
        (
            {"max-allowable-numa-nodes": "7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
    ],
)
def test_policy_options(options: dict[str, str], want: PolicyOptions | str) -> None:
    if isinstance(want, PolicyOptions):
        assert new_policy_options(options) == want
        return
    with pytest.raises(ValueError) as err:
        new_policy_options(options)
    assert str(err.value) == want


_ON_ZERO = TopologyHint(BitMask(0), True)
_ON_BOTH = TopologyHint(BitMask(0, 1), False)
_ON_ANY: Hints = {"cpu": [_ON_ZERO, TopologyHint(BitMask(1), True), _ON_BOTH]}
_ON_NONE: Hints = {"cpu": []}


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_admitted_containers_get_what_the_hints_say(scope: str) -> None:
    manager, first, second = Manager(_TWO, "restricted", scope, {}), FakeHintProvider(_ON_ANY), FakeHintProvider()
    assert _admit(manager, first, second) == lifecycle.PodAdmitResult(admit=True)
    want = [("init", _ON_ZERO), ("c1", _ON_ZERO), ("c2", _ON_ZERO)]
    assert (first.allocated, second.allocated) == (want, want)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    ("policy", "hints", "admitted"),
    [
        ("best-effort", _ON_NONE, True),
        ("restricted", _ON_NONE, False),
        ("restricted", {"cpu": [_ON_BOTH]}, False),
        ("single-numa-node", {"cpu": [TopologyHint(BitMask(0, 1), True)]}, False),
        ("restricted", {"cpu": [TopologyHint(BitMask(0, 1), True)]}, True),
        ("single-numa-node", {"cpu": None}, True),
    ],
)
def test_admission_by_policy(scope: str, policy: str, hints: Hints, admitted: bool) -> None:
    requests, errors = (f"kubelet_topology_manager_admission_{what}_total" for what in ("requests", "errors"))
    before = _metric(requests), _metric(errors)
    result = _admit(Manager(_TWO, policy, scope, {}), FakeHintProvider(hints))
    assert result.admit == admitted
    if not admitted:
        text = "Resources cannot be allocated with Topology locality"
        assert (result.reason, result.message) == ("TopologyAffinityError", text)
    assert (_metric(requests) - before[0], _metric(errors) - before[1]) == (1, 0 if admitted else 1)


@pytest.mark.parametrize(("policy", "scope"), [("none", ""), ("best-effort", "container"), ("best-effort", "pod")])
@pytest.mark.parametrize(
    ("err", "reason", "message"),
    [
        (NoMore("none left"), "NoMoreOfIt", "none left"),
        (OSError("no disk"), "UnexpectedAdmissionError", "Allocate failed due to no disk, which is unexpected"),
    ],
)
def test_allocation_that_fails(policy: str, scope: str, err: Exception, reason: str, message: str) -> None:
    fails, after = FakeHintProvider(err=err), FakeHintProvider()
    result = _admit(Manager(_TWO, policy, scope, {}), fails, after)
    assert result == lifecycle.PodAdmitResult(admit=False, reason=reason, message=message)
    assert [name for name, _ in after.allocated] == ["init"], "nothing is given out after the first that failed"


@pytest.mark.parametrize("err", [MemoryError(), RecursionError(), RuntimeError("can't start new thread")], ids=repr)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_allocation_that_fails_by_accident_says_nothing_of_the_pod(scope: str, err: Exception) -> None:
    manager, provider = Manager(_TWO, "restricted", scope, {}), FakeHintProvider(_ON_ANY, err)
    with pytest.raises(type(err)):
        _admit(manager, provider)
    provider.err = None
    assert manager.admit(lifecycle.PodAdmitAttributes(pod=_pod())).admit


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_what_was_decided_for_a_pod_that_is_turned_away_is_forgotten(scope: str) -> None:
    manager = Manager(_TWO, "restricted", scope, {})
    assert not _admit(manager, FakeHintProvider(_ON_ANY, NoMore("none left"), of="c2")).admit
    assert [manager.get_affinity("uid", name) for name in ("init", "c1", "c2")] == [TopologyHint()] * 3


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_provider_that_cannot_tell_yet(scope: str) -> None:
    """If a provider has no hints yet, the pod waits, gets nothing, and does not count as rejected."""
    errors = "kubelet_topology_manager_admission_errors_total"
    before, other, waits = _metric(errors), FakeHintProvider(), FakeHintProvider()
    waits.no_hints = NotYet("waits for it")
    result = _admit(Manager(_TWO, "restricted", scope, {}), other, waits)
    assert (result.admit, result.wait, result.message) == (False, True, "waits for it")
    assert (other.allocated, _metric(errors)) == ([], before)


@pytest.mark.parametrize("err", [NotYet("waits for it"), MemoryError()], ids=lambda err: type(err).__name__)
def test_pod_that_has_a_part_of_its_resources(err: Exception) -> None:
    """A pod with a part of its resources keeps its hint, although its providers' new hints exclude that part."""
    manager, provider = Manager(_TWO, "restricted", "pod", {}), FakeHintProvider(_ON_ANY, err)
    with contextlib.suppress(MemoryError):
        assert _admit(manager, provider).wait
    ((_, decided),) = provider.allocated
    provider.hints, provider.err = _ON_NONE, None
    assert manager.admit(lifecycle.PodAdmitAttributes(pod=_pod())).admit
    assert provider.allocated[1:] == [("init", decided), ("c1", decided), ("c2", decided)]
    # The next admission computes a new hint.
    assert not manager.admit(lifecycle.PodAdmitAttributes(pod=_pod())).admit


def test_pod_that_is_gone_before_it_has_all_its_resources_is_forgotten() -> None:
    manager, provider = Manager(_TWO, "restricted", "pod", {}), FakeHintProvider(_ON_ANY, NotYet("waits for it"))
    assert _admit(manager, provider).wait
    provider.hints, provider.err = _ON_NONE, None
    manager.forget_all_but({"other"})
    # The admission computes a new hint.
    assert not manager.admit(lifecycle.PodAdmitAttributes(pod=_pod())).admit


def test_figures_of_alignment_are_there_before_the_first_pod() -> None:
    metrics.register()
    counters = metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES, metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE
    for counter in counters:
        counter.clear()
    Manager(_TWO, "restricted", "pod", {})
    for name in ("", "_failure"):
        for scope in ("container", "pod"):
            labels = {"scope": scope, "boundary": "numa_node"}
            shown = f"kubelet_container_aligned_compute_resources{name}_count"
            assert legacyregistry.DEFAULT_GATHERER.get_sample_value(shown, labels) == 0


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_guaranteed_alignment_is_counted(scope: str) -> None:
    labels = {"scope": scope, "boundary": "numa_node"}
    good, bad = (f"kubelet_container_aligned_compute_resources{what}_count" for what in ("", "_failure"))
    before = _metric(good, labels), _metric(bad, labels)
    _admit(Manager(_TWO, "single-numa-node", scope, {}), FakeHintProvider(_ON_ANY))
    _admit(Manager(_TWO, "single-numa-node", scope, {}), FakeHintProvider(_ON_NONE))
    containers = 3 if scope == "container" else 1
    assert (_metric(good, labels) - before[0], _metric(bad, labels) - before[1]) == (containers, 1)


def test_what_was_decided_is_forgotten_with_the_last_container() -> None:
    manager = Manager(_TWO, "restricted", "container", {})
    _admit(manager, FakeHintProvider(_ON_ANY))
    pod = _pod()
    container = pod.spec.containers[0]
    manager.add_container(pod, container, "first")
    manager.add_container(pod, container, "again")
    manager.remove_container("first")
    assert manager.get_affinity("uid", "c1") == _ON_ZERO
    manager.remove_container("again")
    manager.remove_container("again")
    assert manager.get_affinity("uid", "c1") == TopologyHint()
    assert manager.get_affinity("uid", "c2") == _ON_ZERO


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_what_was_decided_is_forgotten_with_the_pod(scope: str) -> None:
    manager = Manager(_TWO, "restricted", scope, {})
    _admit(manager, FakeHintProvider(_ON_ANY))
    manager.add_container(_pod(), _pod().spec.containers[0], "id")
    manager.forget_all_but({"uid", "other"})
    assert manager.get_affinity("uid", "c2") == _ON_ZERO
    manager.forget_all_but({"other"})
    assert manager.get_affinity("uid", "c1") == manager.get_affinity("uid", "c2") == TopologyHint()
    manager.remove_container("id")
