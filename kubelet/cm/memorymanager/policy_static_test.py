"""Test the static policy of the memory manager.

Go: pkg/kubelet/cm/memorymanager/policy_static_test.go
"""

from __future__ import annotations

import copy
import io
import re

import pytest

from kubelet import cadvisor, metrics
from kubelet.cm.memorymanager import state
from kubelet.cm.memorymanager.policy_static import PolicyStatic
from kubelet.cm.memorymanager.testing import GB, MB, PAGES, container, hint_of, machine, pod
from kubelet.cm.topologymanager import TopologyHint
from kubelet.cm.topologymanager.testing import FakeTopologyManager
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.component_base.metrics import testing as metricstesting


def policy(
    info: cadvisor.MachineInfo, hint: TopologyHint | None = None, reserved: dict[int, dict[str, int]] | None = None
) -> PolicyStatic:
    return PolicyStatic(info, reserved or {0: {"memory": 512 * MB}}, FakeTopologyManager(hint))


def started(made: PolicyStatic) -> state.StateMemory:
    s = state.StateMemory()
    made.start(s)
    return s


def free(s: state.State, name: str = "memory") -> list[float]:
    """Return the free GiB of each node."""
    return [node.memory_map[name].free / GB for _, node in sorted(s.get_machine_state().items())]


def sizes(s: state.State, uid: str) -> dict[str, list[tuple[str, tuple[int, ...], float]]]:
    """Return the kind, the nodes and the GiB of each container's blocks."""
    return {
        name: [(block.type, block.numa_affinity, block.size / GB) for block in blocks]
        for name, blocks in s.get_memory_assignments().get(uid, {}).items()
    }


def cells(s: state.State) -> list[tuple[int, list[int]]]:
    """Return the number of assignments and the group of each node."""
    nodes = sorted(s.get_machine_state().items())
    return [(node.number_of_assignments, node.cells) for _, node in nodes]


def test_static_policy_new() -> None:
    for reserved in ({}, {0: {}, 1: {PAGES: GB}}, {0: {"memory": 0}}):
        with pytest.raises(ValueError, match=r"\[memorymanager\] you should specify the system reserved memory"):
            PolicyStatic(machine(4), reserved, FakeTopologyManager())
    assert policy(machine(4)).name() == "Static"


def test_nodes_that_are_memory_of_gpus() -> None:
    nodes = (cadvisor.Node(id=0, memory=4 * GB), cadvisor.Node(id=250, memory=4 * GB))
    info = cadvisor.MachineInfo(num_cores=1, memory_capacity=8 * GB, topology=nodes)
    with pytest.raises(ValueError, match=r"memory of the NUMA nodes \[0, 250\] cannot be managed: bit number must be"):
        policy(info)


def test_default_state() -> None:
    """Huge pages do not count as regular memory, and reserved memory is not allocatable."""
    made = policy(machine(4, 2, pages=1), reserved={0: {"memory": 512 * MB, PAGES: GB}})
    s = started(made)
    assert s.get_machine_state() == {
        0: state.NUMANodeState(
            0,
            {
                PAGES: state.MemoryTable(GB, GB, 0, 0, 0),
                "memory": state.MemoryTable(4 * GB, 512 * MB, 2560 * MB, 0, 2560 * MB),
            },
            [0],
        ),
        1: state.NUMANodeState(
            0,
            {PAGES: state.MemoryTable(GB, 0, GB, 0, GB), "memory": state.MemoryTable(2 * GB, 0, GB, 0, GB)},
            [1],
        ),
    }
    assert made.get_allocatable_memory(s) == [
        state.Block((0,), "memory", 2560 * MB),
        state.Block((1,), PAGES, GB),
        state.Block((1,), "memory", GB),
    ]


@pytest.mark.parametrize(
    ("reserved", "fault"),
    [
        ({0: {"memory": 4 * GB}}, "4294967296 bytes of memory are reserved on NUMA node 0, which has 3221225472"),
        ({0: {"memory": GB}, 1: {PAGES: 2 * GB}}, "2147483648 bytes of hugepages-1Gi .* NUMA node 1, which has 1073"),
    ],
)
def test_more_is_reserved_than_there_is(reserved: dict[int, dict[str, int]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        started(policy(machine(4, 4, pages=1), reserved=reserved))


def _used() -> tuple[state.NUMANodeMap, state.ContainerMemoryAssignments]:
    """Return a valid state of a machine with a container on node 0, and another on nodes 1 and 2."""
    made = policy(machine(4, 4, 4, pages=1), hint_of(0))
    s = started(made)
    made.allocate(s, (one := pod("pod1", container("c", "1Gi", "1Gi"))), one.spec.containers[0])
    made = policy(machine(4, 4, 4, pages=1), hint_of(1, 2))
    made.allocate(s, (two := pod("pod2", container("c", "4Gi"))), two.spec.containers[0])
    return s.get_machine_state(), s.get_memory_assignments()


def _validate(nodes: state.NUMANodeMap, assignments: state.ContainerMemoryAssignments) -> None:
    s = state.StateMemory()
    s.set_machine_state(nodes)
    s.set_memory_assignments(assignments)
    policy(machine(4, 4, 4, pages=1)).start(s)


def test_state_of_before_fits() -> None:
    _validate(*_used())


def test_memory_of_a_group_may_be_taken_in_any_order() -> None:
    nodes, assignments = _used()
    for node, moved in ((1, GB // 2), (2, -GB // 2)):
        table = nodes[node].memory_map["memory"]
        table.free += moved
        table.reserved -= moved
    _validate(nodes, assignments)
    nodes[1].memory_map["memory"].free += 1
    with pytest.raises(ValueError, match="different from the real one"):
        _validate(nodes, assignments)


_DIFFERENT = re.escape("[memorymanager] the expected machine state is different from the real one")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("del nodes[2]; del assignments['pod2']", _DIFFERENT),
        ("del nodes[0].memory_map['memory']", _DIFFERENT),
        ("nodes[0].memory_map['memory'].total_mem_size += 1", _DIFFERENT),
        ("nodes[0].memory_map['memory'].system_reserved += 1", _DIFFERENT),
        ("nodes[0].memory_map['memory'].allocatable += 1", _DIFFERENT),
        ("nodes[0].memory_map['memory'].reserved += 1", _DIFFERENT),
        ("nodes[0].memory_map['memory'].free += 1", _DIFFERENT),
        ("nodes[0].memory_map[PAGES].total_mem_size += 1", _DIFFERENT),
        ("nodes[0].memory_map[PAGES].system_reserved += 1", _DIFFERENT),
        ("nodes[0].memory_map[PAGES].reserved += 1", _DIFFERENT),
        ("nodes[0].number_of_assignments += 1", _DIFFERENT),
        ("nodes[0].cells.append(1)", _DIFFERENT),
        ("del assignments['pod1']", _DIFFERENT),
        ("nodes.clear()", "machine state can not be empty when it has memory assignments"),
        (
            "assignments['pod1']['c'] = [state.Block((0, 3), 'memory', GB)]",
            r"\(pod: pod1, container: c\) the memory assignment uses the NUMA that does not exist",
        ),
        (
            "assignments['pod1']['c'] = [state.Block((0,), 'hugepages-2Mi', GB)]",
            r"\(pod: pod1, container: c\) the memory assignment uses memory resource that does not exist",
        ),
    ],
)
def test_state_of_before_does_not_fit(change: str, fault: str) -> None:
    nodes, assignments = _used()
    exec(change, {"nodes": nodes, "assignments": assignments, "state": state, "PAGES": PAGES, "GB": GB})
    with pytest.raises(ValueError, match=fault):
        _validate(nodes, assignments)


# The columns are the machine, the hint, the container's memory and huge pages, and the resulting nodes and free memory.
@pytest.mark.parametrize(
    ("nodes", "hint", "memory", "pages", "affinity", "left"),
    [
        pytest.param([2], hint_of(0), "1Gi", "", (0,), [0.5], id="as the hint says"),
        pytest.param([2, 2], hint_of(1), "1Gi", "", (1,), [1.5, 1], id="as the hint says, not the first"),
        pytest.param([2, 2], TopologyHint(), "1Gi", "", (0,), [0.5, 2], id="default hint"),
        pytest.param([2, 4], TopologyHint(), "3Gi", "", (1,), [1.5, 1], id="default hint is the narrowest"),
        pytest.param([2, 2], hint_of(0, preferred=False), "3Gi", "", (0, 1), [0, 0.5], id="hint is extended"),
        pytest.param([2, 2], hint_of(0), "3Gi", "", (0, 1), [0, 0.5], id="extended hint is preferred too"),
        pytest.param([2, 2, 2], hint_of(0, 1, 2), "5Gi", "", (0, 1, 2), [0, 0, 0.5], id="several nodes"),
        pytest.param([3, 3], hint_of(1), "1Gi", "1Gi", (1,), [1.5, 1], id="huge pages"),
    ],
)
def test_static_policy_allocate(
    nodes: list[float], hint: TopologyHint, memory: str, pages: str, affinity: tuple[int, ...], left: list[float]
) -> None:
    made = policy(machine(*nodes, pages=1 if pages else 0), hint)
    s = started(made)
    asking = pod("pod1", container("c", memory, pages))
    made.allocate(s, asking, asking.spec.containers[0])
    wanted = [("memory", affinity, float(memory[:-2])), *([(PAGES, affinity, 1.0)] if pages else [])]
    assert sizes(s, "pod1") == {"c": wanted}
    assert free(s) == left
    for node in affinity:
        assert cells(s)[node] == (len(wanted), list(affinity))
    before = s.get_machine_state()
    made.allocate(s, asking, asking.spec.containers[0])
    assert s.get_machine_state() == before, "who has it keeps it"
    made.remove_container(s, "pod1", "c")
    made.remove_container(s, "pod1", "c")
    assert (s.get_memory_assignments(), s.get_machine_state()) == ({}, started(made).get_machine_state())


@pytest.mark.parametrize(
    ("first", "hint", "memory", "fault"),
    [
        pytest.param(
            (),
            TopologyHint(),
            "9Gi",
            "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            id="too much for all nodes",
        ),
        pytest.param(
            (1, (0,), "1Gi"),
            TopologyHint(preferred=True),
            "3Gi",
            "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            id="nodes in use are not used together with others",
        ),
        pytest.param(
            (1, (0, 1), "2Gi"),
            TopologyHint(preferred=True),
            "1Gi",
            "failed to find the default preferred hint",
            id="an idle machine would do better than the default",
        ),
        pytest.param(
            (),
            hint_of(0),
            "9Gi",
            "failed to find NUMA nodes to extend the current topology hint",
            id="no wider hint",
        ),
        pytest.param(
            (2, (0, 1), "1Gi"),
            hint_of(0),
            "1Gi",
            "failed to find the extended preferred hint",
            id="an idle machine would do better than the wider hint",
        ),
        pytest.param(
            (1, (0,), "1Gi"),
            hint_of(0, 1),
            "512Mi",
            "preferred hint violates NUMA node allocation",
            id="a node that is used alone",
        ),
    ],
)
def test_static_policy_cannot_allocate(
    first: tuple[int, tuple[int, ...], str] | tuple[()], hint: TopologyHint, memory: str, fault: str
) -> None:
    """A failed allocation leaves the state as it was."""
    info = machine(2, 2)
    s = started(policy(info))
    if first:
        count, nodes, amount = first
        for number in range(count):
            there = pod(f"there{number}", container("c", amount))
            policy(info, hint_of(*nodes)).allocate(s, there, there.spec.containers[0])
    before = copy.deepcopy(s.get_machine_state())
    asking = pod("pod1", container("c", memory))
    with (
        metricstesting.moves(metrics.MEMORY_MANAGER_PINNING_ERRORS_TOTAL),
        pytest.raises(ValueError, match=re.escape(f"[memorymanager] {fault}")),
    ):
        policy(info, hint).allocate(s, asking, asking.spec.containers[0])
    assert s.get_machine_state() == before
    assert sizes(s, "pod1") == {}


def test_a_size_of_huge_pages_that_the_machine_has_not() -> None:
    made = policy(machine(4))
    quantities = {name: resource.must_parse("1Gi") for name in ("cpu", "memory", "hugepages-2Mi")}
    asking = pod("p", v1.Container(name="c", resources=v1.ResourceRequirements(requests=quantities, limits=quantities)))
    s = started(made)
    with pytest.raises(ValueError, match="no NUMA nodes with enough memory"):
        made.allocate(s, asking, asking.spec.containers[0])
    assert made.get_topology_hints(s, asking, asking.spec.containers[0]) == {}


def test_nothing_of_huge_pages_that_the_machine_has_not() -> None:
    """A request of 0 huge pages of an unknown size, which the API server allows, changes nothing."""
    made = policy(machine(4))
    asking = pod("p", container("c", "1Gi"))
    for quantities in (asking.spec.containers[0].resources.requests, asking.spec.containers[0].resources.limits):
        quantities["hugepages-4Mi"] = resource.must_parse("0")
    s = started(made)
    before = s.get_machine_state()
    made.allocate(s, asking, asking.spec.containers[0])
    policy(machine(4)).start(s)
    made.remove_container(s, "p", "c")
    assert s.get_machine_state() == before


@pytest.mark.parametrize("amount", ["100m", "1.0000000001Gi"])
def test_an_amount_that_is_no_number_of_bytes(amount: str) -> None:
    made = policy(machine(4))
    asking = pod("p", container("c", amount))
    s = started(made)
    with pytest.raises(ValueError, match=r"\[memorymanager\] failed to represent quantity .* as int64"):
        made.allocate(s, asking, asking.spec.containers[0])
    assert made.get_topology_hints(s, asking, asking.spec.containers[0]) == {}
    assert made.get_pod_topology_hints(s, asking) == {}


def test_whole_number_of_bytes_that_is_written_with_a_point() -> None:
    made = policy(machine(4))
    asking = pod("p", container("c", "1.5Gi"))
    s = started(made)
    made.allocate(s, asking, asking.spec.containers[0])
    assert sizes(s, "p") == {"c": [("memory", (0,), 1.5)]}


def _not_managed() -> list[v1.Pod]:
    burstable = container("c", "1Gi")
    burstable.resources.limits = {}
    pod_level = pod("pod-level", container("c", "1Gi"))
    pod_level.spec.resources = container("", "2Gi").resources
    return [pod("burstable", burstable), pod("best-effort", v1.Container(name="c")), pod_level]


@pytest.mark.parametrize("asking", _not_managed(), ids=lambda asking: asking.metadata.uid)
def test_pods_that_get_no_memory_of_their_own(asking: v1.Pod) -> None:
    made = policy(machine(4))
    s = started(made)
    made.allocate(s, asking, asking.spec.containers[0])
    assert s.get_memory_assignments() == {}
    assert made.get_topology_hints(s, asking, asking.spec.containers[0]) == {}
    assert made.get_pod_topology_hints(s, asking) == {}


def test_hints_that_are_skipped_are_logged(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klog._Settings, "verbosity", 5)
    made = policy(machine(4))
    s = started(made)
    for asking in _not_managed():
        made.get_topology_hints(s, asking, asking.spec.containers[0])
        made.get_pod_topology_hints(s, asking)
    lines = [line for line in log.getvalue().splitlines() if "kipped" in line]
    assert len(lines) == 2, "not those of pods that are not guaranteed"
    for line in lines:
        assert (
            '"Memory Manager pod hint generation skipped, pod is using pod-level resources but the '
            'PodLevelResourceManagers feature gate is not enabled" pod="pod-level" podUID="pod-level"'
        ) in line


def _both(size: float) -> list[tuple[str, tuple[int, ...], float]]:
    return [("memory", (0,), size), (PAGES, (0,), size)]


# The columns are the GiB that init containers and containers request of each kind ("+" marks a sidecar), the GiB of
# each container at the end, and the GiB that are taken from the node.
@pytest.mark.parametrize(
    ("init", "apps", "has", "taken"),
    [
        pytest.param("1 2", "3 4", "0 0 3 4", 7, id="init 1 and 2, apps 3 and 4"),
        pytest.param("4 3", "2 1", "0 1 2 1", 4, id="init 4 and 3, apps 2 and 1"),
        pytest.param("7 4", "4 3", "0 0 4 3", 7, id="init 7 and 4, apps 4 and 3"),
        pytest.param("7 4", "5 2", "0 0 5 2", 7, id="init 7 and 4, apps 5 and 2"),
        pytest.param("1 +2 3 +4", "5 6", "0 2 0 4 5 6", 17, id="sidecars keep theirs"),
    ],
)
def test_init_containers_leave_their_memory(init: str, apps: str, has: str, taken: int) -> None:
    made = policy(machine(50, pages=20), TopologyHint())
    s = started(made)
    names = [f"init{number}" for number in range(len(init.split()))]
    inits = tuple(
        container(name, f"{text.strip('+')}Gi", f"{text.strip('+')}Gi", "Always" if "+" in text else None)
        for name, text in zip(names, init.split(), strict=True)
    )
    wanted = [container(f"app{number}", f"{text}Gi", f"{text}Gi") for number, text in enumerate(apps.split())]
    # The memory of another pod is not reused.
    other = pod("other", container("c", "1Gi"), init=(container("i", "9Gi"),))
    for c in (*other.spec.init_containers, *other.spec.containers):
        made.allocate(s, other, c)
    idle = free(s)[0]
    asking = pod("pod1", *wanted, init=inits)
    for c in (*inits, *wanted):
        made.allocate(s, asking, c)
    everybody = [*names, *(c.name for c in wanted)]
    amounts = [float(text) for text in has.split()]
    assert sizes(s, "pod1") == {name: _both(size) for name, size in zip(everybody, amounts, strict=True)}
    assert idle - free(s)[0] == taken
    assert free(s, PAGES) == [20 - taken]
    for name in everybody:
        made.remove_container(s, "pod1", name)
    assert free(s)[0] == idle


def test_containers_that_are_admitted_again_after_a_restart() -> None:
    """After a restart, a new policy takes the containers' memory from the state, and allocates nothing more."""
    info = machine(20)
    first = policy(info)
    s = started(first)
    asking = pod("pod1", container("app", "3Gi"), init=(container("init", "2Gi"),))
    everybody = (*asking.spec.init_containers, *asking.spec.containers)
    for c in everybody:
        first.allocate(s, asking, c)
    before = (s.get_memory_assignments(), s.get_machine_state())
    second = policy(info)
    second.start(s)
    for c in everybody:
        second.allocate(s, asking, c)
    assert (s.get_memory_assignments(), s.get_machine_state()) == before
    hints = second.get_topology_hints(s, asking, asking.spec.containers[0])
    assert hints == {"memory": [hint_of(0)]}


def _names(hints: dict[str, list[TopologyHint] | None]) -> dict[str, list[str]]:
    return {
        name: [f"{hint.numa_node_affinity}{'!' if hint.preferred else ''}" for hint in found or []]
        for name, found in hints.items()
    }


@pytest.mark.parametrize(
    ("nodes", "there", "memory", "pages", "hints"),
    [
        pytest.param([4, 4], [], "1Gi", "", {"memory": ["01!", "10!", "11"]}, id="idle"),
        pytest.param([4, 4], [], "5Gi", "", {"memory": ["11!"]}, id="too much for one"),
        pytest.param([4, 4], [], "9Gi", "", {}, id="too much for all"),
        pytest.param([4, 4], [((0,), "3Gi")], "1Gi", "", {"memory": ["10!"]}, id="one is nearly full"),
        pytest.param([4, 4], [((0,), "1Gi")], "1Gi", "", {"memory": ["01!", "10!"]}, id="one is used alone"),
        pytest.param([4, 4], [((0, 1), "5Gi")], "1Gi", "", {"memory": ["11"]}, id="both are used together"),
        pytest.param([4, 4, 4], [((0, 1), "5Gi")], "1Gi", "", {"memory": ["100!", "11"]}, id="a group and a node"),
        pytest.param([4, 4, 4], [((0, 1), "5Gi")], "5Gi", "", {}, id="other groups are not made"),
        pytest.param(
            [4, 4],
            [],
            "1Gi",
            "1Gi",
            {"memory": ["01!", "10!", "11"], PAGES: ["01!", "10!", "11"]},
            id="huge pages",
        ),
        pytest.param([4, 4], [], "1Gi", "2Gi", {"memory": ["11!"], PAGES: ["11!"]}, id="huge pages of both"),
    ],
)
def test_static_policy_get_topology_hints(
    nodes: list[float], there: list[tuple[tuple[int, ...], str]], memory: str, pages: str, hints: dict[str, list[str]]
) -> None:
    info = machine(*nodes, pages=1 if pages else 0)
    s = started(policy(info))
    for number, (affinity, amount) in enumerate(there):
        using = pod(f"there{number}", container("c", amount))
        policy(info, hint_of(*affinity)).allocate(s, using, using.spec.containers[0])
    asking = pod("pod1", container("c", memory, pages))
    made = policy(info)
    assert _names(made.get_topology_hints(s, asking, asking.spec.containers[0])) == hints
    assert _names(made.get_pod_topology_hints(s, asking)) == hints


@pytest.mark.parametrize(
    ("blocks", "hints"),
    [
        ([("memory", 1), (PAGES, 1)], {"memory": ["11!"], PAGES: ["11!"]}),
        ([("memory", 1)], {}),
        ([("memory", 1), ("hugepages-2Mi", 1)], {}),
        ([("memory", 2), (PAGES, 1)], {}),
    ],
    ids=["as asked", "another number", "another kind", "another size"],
)
def test_hints_of_what_a_container_has(blocks: list[tuple[str, int]], hints: dict[str, list[str]]) -> None:
    made = policy(machine(4, 4, pages=1))
    s = started(made)
    s.set_memory_blocks("pod1", "c", [state.Block((0, 1), name, size * GB) for name, size in blocks])
    asking = pod("pod1", container("c", "1Gi", "1Gi"))
    assert _names(made.get_topology_hints(s, asking, asking.spec.containers[0])) == hints
    assert _names(made.get_pod_topology_hints(s, asking)) == hints


# The columns are the GiB of init containers ("+" marks a sidecar) and of containers, and the most that the pod needs.
@pytest.mark.parametrize(
    ("init", "apps", "most"),
    [
        ("4 7", "1 2", 7),
        ("4 3", "5 4", 9),
        ("2 +3 6", "1 2", 9),
        ("2 +3 4", "4 5", 12),
    ],
)
def test_pod_requested_resources(init: str, apps: str, most: int) -> None:
    """A machine with exactly the requested memory has one hint, and a machine with less has none."""
    inits = tuple(
        container(f"i{number}", f"{text.strip('+')}Gi", restart_policy="Always" if "+" in text else None)
        for number, text in enumerate(init.split())
    )
    asking = pod("p", *(container(f"a{number}", f"{text}Gi") for number, text in enumerate(apps.split())), init=inits)
    for size, count in ((most + 0.5, 1), (most + 0.499, 0)):
        made = policy(machine(size))
        assert len(made.get_pod_topology_hints(started(made), asking).get("memory") or []) == count
