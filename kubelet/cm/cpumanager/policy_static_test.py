"""Test the static policy of the CPU manager.

Go: pkg/kubelet/cm/cpumanager/policy_static_test.go, topology_hints_test.go
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelet import metrics
from kubelet.cm.cpumanager.policy_static import SMTAlignmentError, StaticPolicy
from kubelet.cm.cpumanager.state import ContainerCPUAssignments, StateMemory
from kubelet.cm.cpumanager.testing import pod, topology
from kubelet.cm.topologymanager import TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.cm.topologymanager.testing import FakeTopologyManager
from pkg import features, klog
from pkg.api.core import v1
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import legacyregistry
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

_CASES: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("testdata").joinpath("policy_static.json").read_text()
)
_UID = "pod"


@pytest.fixture(autouse=True)
def alpha_options() -> Iterator[None]:
    with set_feature_gate_during_test(features.feature_gate, features.CPU_MANAGER_POLICY_ALPHA_OPTIONS, True):
        yield


def _policy(
    machine: str, number_reserved: int = 0, reserved: str = "", options: tuple[str, ...] = (), **fake: Any
) -> StaticPolicy:
    on = dict.fromkeys(options, "true")
    return StaticPolicy(topology(machine), number_reserved, cpuset.parse(reserved), FakeTopologyManager(**fake), on)


def _of_case(case: dict[str, Any]) -> tuple[StaticPolicy, StateMemory]:
    hint = TopologyHint(BitMask(*case["hint"]), True) if "hint" in case else None
    reserved, options = case.get("reserved", ""), tuple(case.get("options", ()))
    policy = _policy(case["machine"], case["number_reserved"], reserved, options, hint=hint)
    assigned = {name: cpuset.parse(cpus) for name, cpus in case.get("assigned", {}).items()}
    return policy, _state(case["default"], {_UID: assigned} if assigned else {})


def _state(default: str, assignments: ContainerCPUAssignments | None = None) -> StateMemory:
    return StateMemory(assignments, cpuset.parse(default))


@pytest.mark.parametrize("case", _CASES["start"])
def test_start(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(ValueError) as err:
            policy, state = _of_case(case)
            policy.start(state)
        assert str(err.value) == case["error"]
        return
    policy, state = _of_case(case)
    policy.start(state)
    assert str(state.get_default_cpu_set()) == case["want"]


@pytest.mark.parametrize(
    ("options", "cpus", "given", "left"),
    [
        ((), "2", "1,5", "0,2-4,6-7"),
        (("strict-cpu-reservation",), "2", "1,5", "2-3,6-7"),
        (("strict-cpu-reservation",), "6", "1-3,5-7", ""),
    ],
    ids=["shared", "strict", "strict, with nothing left"],
)
def test_start_again(options: tuple[str, ...], cpus: str, given: str, left: str) -> None:
    policy, state = _policy("single_socket_ht", 2, options=options), _state("")
    policy.start(state)
    assert _allocated(policy, state, pod(cpus)) == [given]
    policy.start(state)
    assert (str(state.get_cpu_set("pod", "c0")), str(state.get_default_cpu_set())) == (given, left)


@pytest.mark.parametrize("case", _CASES["allocate"])
def test_allocate(case: dict[str, Any]) -> None:
    policy, state = _of_case(case)
    wants = pod(*(f"{request}/{limit}" for _, request, limit in case["containers"]), uid=_UID)
    for container, (name, _, _) in zip(wants.spec.containers, case["containers"], strict=True):
        container.name = name
    before = state.get_cpu_assignments(), state.get_default_cpu_set()
    if "error" in case:
        with pytest.raises((ValueError, SMTAlignmentError)) as err:
            policy.allocate(state, wants, wants.spec.containers[0])
        assert str(err.value) == case["error"]
        assert (state.get_cpu_assignments(), state.get_default_cpu_set()) == before
        return
    for container in wants.spec.containers:
        policy.allocate(state, wants, container)
    taken = [state.get_cpu_set(_UID, container.name) for container in wants.spec.containers]
    if "want_uncore" in case:
        details = topology(case["machine"]).cpu_details.keep_only(cpuset.new().union(*filter(None, taken)))
        assert str(details.uncore_caches()) == case["want_uncore"]
    elif "want" in case:
        assert str(taken[0]) == case["want"]
        assert not state.get_default_cpu_set() & cpuset.parse(case["want"])
    else:
        assert (taken, state.get_default_cpu_set()) == ([None], before[1])


def _allocated(policy: StaticPolicy, state: StateMemory, wants: v1.Pod) -> list[str]:
    containers = [*wants.spec.init_containers, *wants.spec.containers]
    for container in containers:
        policy.allocate(state, wants, container)
    return [str(state.get_cpu_set(wants.metadata.uid, container.name)) for container in containers]


def test_init_containers_leave_theirs_to_those_that_follow() -> None:
    policy, state = _policy("single_socket_ht"), _state("0-7")
    assert _allocated(policy, state, pod("2", "2", init=["4", "6"])) == ["0-1,4-5", "0-2,4-6", "0,4", "1,5"]
    assert str(state.get_default_cpu_set()) == "3,7"
    # CPUs of the last init container that no container reuses become free when it is removed.
    policy.remove_container(state, "pod", "i0")
    policy.remove_container(state, "pod", "i1")
    assert str(state.get_default_cpu_set()) == "2-3,6-7"
    assert not state.get_cpu_set("pod", "i1")


def test_sidecars_keep_theirs() -> None:
    policy, state = _policy("single_socket_ht"), _state("0-7")
    assert _allocated(policy, state, pod("4", init=["4*"])) == ["0-1,4-5", "2-3,6-7"]
    assert policy.cpus_to_reuse == {"pod": cpuset.new()}


def test_another_pod_ends_what_can_be_reused() -> None:
    policy, state = _policy("single_socket_ht"), _state("0-7")
    first, second = pod("2", uid="first", init=["2"]), pod("2", uid="second")
    policy.allocate(state, first, first.spec.init_containers[0])
    assert set(policy.cpus_to_reuse) == {"first"}
    policy.allocate(state, second, second.spec.containers[0])
    assert set(policy.cpus_to_reuse) == {"second"}


@pytest.mark.parametrize(
    ("assigned", "default", "removed", "want"),
    [
        ({"c1": "1-3"}, "4-7", "c1", "1-7"),
        ({"c1": "4-5", "c2": "1-3"}, "6-7", "c1", "4-7"),
        ({"c1": "1,3,5", "c2": "2,4"}, "", "c1", "1,3,5"),
        ({"c1": "1,3,5"}, "2,4,6-7", "c2", "2,4,6-7"),
        ({"c1": "1-4", "c2": "1-2"}, "5-7", "c1", "3-7"),
    ],
)
def test_remove_container(assigned: dict[str, str], default: str, removed: str, want: str) -> None:
    state = _state(default, {"pod": {name: cpuset.parse(cpus) for name, cpus in assigned.items()}})
    _policy("single_socket_ht").remove_container(state, "pod", removed)
    assert str(state.get_default_cpu_set()) == want
    assert set(state.get_cpu_assignments().get("pod", {})) == set(assigned) - {removed}


@pytest.mark.parametrize(
    ("number", "nodes", "want"),
    [(2, None, "0,6"), (2, 0, "0,6"), (2, 1, "1,7"), (8, 0, "0-2,4,6-8,10"), (8, 1, "0-1,3,5-7,9,11")],
)
def test_what_is_near_is_taken_first(number: int, nodes: int | None, want: str) -> None:
    hint = TopologyHint(None if nodes is None else BitMask(nodes), True)
    assert _allocated(_policy("dual_socket_ht", hint=hint), _state("0-11"), pod(str(number))) == [want]


def test_pods_with_amounts_of_their_own_have_nothing_alone(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klog._Settings, "verbosity", 3)
    policy, state = _policy("single_socket_ht"), _state("0-7")
    wants = pod("2", pod_level="3")
    assert _allocated(policy, state, wants) == ["None"]
    skipped = "{} generation skipped, pod is using pod-level resources but the PodLevelResourceManagers feature gate is"
    for what, hints, keys in (
        ("CPU Manager hint", policy.get_topology_hints(state, wants, wants.spec.containers[0]), 'containerName="c0"'),
        ("CPU Manager pod hint", policy.get_pod_topology_hints(state, wants), ""),
    ):
        assert hints == {}
        (line,) = (line for line in log.getvalue().splitlines() if skipped.format(what) in line)
        assert 'podUID="pod"' in line and line.endswith(keys)


def test_whole_cores_on_a_full_node_stay_with_their_container() -> None:
    policy, state = _policy("single_socket_ht", 2, options=("full-pcpus-only",)), _state("0-7")
    wants = pod("6")
    assert _allocated(policy, state, wants) == ["1-3,5-7"]
    assert _allocated(policy, state, wants) == ["1-3,5-7"], "asked again, as after a restart of the kubelet"
    with pytest.raises(SMTAlignmentError) as err:
        _allocated(policy, state, pod("2", uid="next"))
    assert (err.value.type, str(err.value)) == (
        "SMTAlignmentError",
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, "
        "CPUs per core = 2",
    )


def test_reserved_processors_that_the_machine_has_not() -> None:
    with pytest.raises(ValueError, match="the reserved physical CPUs from the reserved set: unknown CPU ID: 9"):
        _policy("single_socket_ht", 1, "9")
    with pytest.raises(ValueError, match=r"unable to reserve the required amount of CPUs \(size of  did not equal 9\)"):
        _policy("single_socket_ht", 9)


@pytest.mark.parametrize(
    ("cpus", "init", "want"),
    [
        (["1", "2"], [], 3),
        (["1", "500m"], [], 1),
        (["1/2"], [], 0),
        (["1"], ["4", "2"], 4),
        (["3"], ["1*", "2"], 4),
        (["1"], ["1*", "4"], 5),
        (["1"], ["4", "1*"], 4),
    ],
)
def test_pod_guaranteed_cpus(cpus: list[str], init: list[str], want: int) -> None:
    """The hints show how many CPUs a pod needs: it fits on nodes with that many free CPUs."""
    policy = _policy("dual_socket_multi_numa_per_socket_ht")
    wants = pod(*cpus, init=init)
    for free in range(7):
        hints = policy.get_pod_topology_hints(_state(str(cpuset.new(*range(free)))), wants)
        assert bool(hints.get("cpu")) == (0 < want <= free), free


# Return each hint as the digits of its nodes, with a plus if it is preferred.
def _text(hints: list[TopologyHint] | None) -> str | None:
    if hints is None:
        return None
    return " ".join(
        "".join(map(str, (hint.numa_node_affinity or BitMask()).get_bits())) + "+" * hint.preferred for hint in hints
    )


@pytest.mark.parametrize(
    ("machine", "options", "default", "amount", "assigned", "want"),
    [
        ("two_nodes", (), "2-11", "2", "", "0+ 1+ 01"),
        ("two_nodes", (), "2-11", "5", "", "1+ 01"),
        ("two_nodes", (), "2-11", "7", "", "01+"),
        ("two_nodes", (), "2-11", "11", "", ""),
        ("two_nodes", (), "0,3", "2", "", "01"),
        ("two_nodes", (), "0-3", "5", "", ""),
        # A container that already has CPUs gets hints for the same CPUs.
        ("two_nodes", (), "", "2", "0,6", "0+ 01"),
        ("two_nodes", (), "", "2", "3,9", "1+ 01"),
        ("two_nodes", (), "", "4", "0,3,6,9", "01"),
        ("two_nodes", (), "", "2", "0,3,6,9", ""),
        ("two_nodes", (), "", "4", "0,6", ""),
        ("two_nodes", (), "0-11", "1/2", "", None),
        ("two_nodes", (), "0-11", "977m", "", None),
        ("four_nodes", (), "2-3,11", "2", "", "0+ 01 02 03 012 013 023 0123"),
        ("four_nodes", ("align-by-socket",), "2-3,11", "2", "", "0+ 01+ 02 03 012 013 023 0123"),
        ("four_nodes", ("align-by-socket",), "0-28,40-57", "41", "", "012+ 0123+"),
    ],
)
def test_hints(
    machine: str, options: tuple[str, ...], default: str, amount: str, assigned: str, want: str | None
) -> None:
    machines = {"two_nodes": "by_node", "four_nodes": "dual_socket_multi_numa_per_socket_ht"}
    policy = _policy(machines[machine], options=options)
    state = _state(default, {"pod": {"c0": cpuset.parse(assigned)}} if assigned else {})
    wants = pod(amount)
    found = policy.get_topology_hints(state, wants, wants.spec.containers[0])
    assert _text(found.get("cpu")) == want
    assert policy.get_pod_topology_hints(state, wants) == found


def test_hints_for_what_follows_an_init_container() -> None:
    """A container after an init container must reuse the init container's CPUs."""
    policy, state = _policy("by_node", hint=TopologyHint(BitMask(1), True)), _state("0-11")
    wants = pod("2", init=["2"])
    policy.allocate(state, wants, wants.spec.init_containers[0])
    assert str(state.get_cpu_set("pod", "i0")) == "3,9"
    assert _text(policy.get_topology_hints(state, wants, wants.spec.containers[0])["cpu"]) == "1+ 01"


def test_figures() -> None:
    metrics.register()

    def figures() -> list[float | None]:
        find = legacyregistry.DEFAULT_GATHERER.get_sample_value
        return [
            find("kubelet_cpu_manager_shared_pool_size_millicores"),
            find("kubelet_cpu_manager_exclusive_cpu_allocation_count"),
            find("kubelet_cpu_manager_allocation_per_numa", {"numa_node": "0"}),
            find("kubelet_cpu_manager_allocation_per_numa", {"numa_node": "1"}),
        ]

    policy = _policy("by_node", 2, options=("full-pcpus-only",), hint=TopologyHint(BitMask(1), True))
    state = _state("")
    policy.start(state)
    assert figures() == [10000, 0, 0, 0]
    find = legacyregistry.DEFAULT_GATHERER.get_sample_value
    asked = find("kubelet_cpu_manager_pinning_requests_total") or 0
    failed = find("kubelet_cpu_manager_pinning_errors_total") or 0
    assert _allocated(policy, state, pod("4")) == ["3-4,9-10"]
    assert figures() == [6000, 4, 0, 4]
    with pytest.raises(SMTAlignmentError):
        _allocated(policy, state, pod("3", uid="odd"))
    assert find("kubelet_cpu_manager_pinning_requests_total") == asked + 2
    assert find("kubelet_cpu_manager_pinning_errors_total") == failed + 1
    policy.remove_container(state, "pod", "c0")
    assert figures() == [10000, 0, 0, 0]
    assert state.get_default_cpu_set() == CPUSet(range(12))
