"""Test the memory manager.

Go: pkg/kubelet/cm/memorymanager/memory_manager_test.go, policy_static_restore_test.go
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor
from kubelet.apis import config as kubeletconfig
from kubelet.cm import memorymanager
from kubelet.cm.containermap import ContainerMap
from kubelet.cm.memorymanager import state
from kubelet.cm.memorymanager.memory_manager import get_system_reserved_memory
from kubelet.cm.memorymanager.testing import GB, MB, container, hint_of, machine, pod
from kubelet.cm.topologymanager.testing import FakeTopologyManager
from kubelet.config.testing import FakeSourcesReady
from kubelet.util.store import testing as storetesting
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api.resource import must_parse
from pkg.apimachinery.util.runtime.testing import failures, raising

_TESTDATA = Path(__file__).parent / "state/testdata"


def reservation(node: int, **limits: str) -> kubeletconfig.MemoryReservation:
    named = {name.replace("hugepages_", "hugepages-"): must_parse(amount) for name, amount in limits.items()}
    return kubeletconfig.MemoryReservation(numa_node=node, limits=named)


class Node:
    """Hold a manager on a machine with two nodes of 4 GiB, and the active pods."""

    def __init__(self, directory: Path, policy: str = "Static", hint: object = None) -> None:
        self.affinity = FakeTopologyManager(hint)  # type: ignore[arg-type]
        self.pods: list[v1.Pod] = []
        # `ending` holds the UIDs of terminating pods.
        self.ending: set[str] = set()
        self.sources = FakeSourcesReady()
        self.containers = ContainerMap()
        reserved = [reservation(0, memory="512Mi"), reservation(1, memory="512Mi")]
        self.manager = memorymanager.Manager(
            policy, machine(4, 4), {"memory": must_parse("1Gi")}, reserved, str(directory), self.affinity
        )
        sources: Any = self.sources
        rest: Any = None
        could_run = self.ending.__contains__
        self.manager.start(golang.background(), lambda: self.pods, could_run, sources, rest, rest, self.containers)

    def run(self, asking: v1.Pod) -> None:
        """Admit a pod and start its containers, one after the other."""
        self.pods.append(asking)
        everybody = (*asking.spec.init_containers, *asking.spec.containers)
        for c in everybody:
            self.manager.allocate(asking, c)
        for c in everybody:
            self.manager.add_container(asking, c, f"{asking.metadata.uid}-{c.name}")


@pytest.mark.parametrize(
    ("reserved", "allocatable", "fault"),
    [
        pytest.param([], {}, "", id="nothing"),
        pytest.param([], {"cpu": "1", "ephemeral-storage": "1Gi"}, "", id="other resources do not matter"),
        pytest.param([reservation(0, memory="2Gi")], {"memory": "2Gi"}, "", id="one node"),
        pytest.param([reservation(0, memory="1Gi"), reservation(1, memory="1Gi")], {"memory": "2Gi"}, "", id="two"),
        pytest.param([reservation(0, hugepages_2Mi="4Mi")], {"hugepages-2Mi": "4Mi"}, "", id="huge pages"),
        pytest.param(
            [],
            {"memory": "1Gi"},
            'the total amount "0" of type "memory" is not equal to the value "1Gi" determined by Node Allocatable',
            id="not reserved",
        ),
        pytest.param(
            [reservation(0, memory="100Mi")],
            {},
            'the total amount "100Mi" of type "memory" is not equal to the value "0" determined by Node Allocatable',
            id="reserved for nobody",
        ),
        pytest.param(
            [reservation(0, memory="1Gi"), reservation(1, memory="1Gi", hugepages_1Gi="1Gi")],
            {"memory": "2Gi", "hugepages-1Gi": "2Gi"},
            'the total amount "1Gi" of type "hugepages-1Gi" is not equal to the value "2Gi"',
            id="other huge pages",
        ),
        pytest.param(
            [reservation(0, memory="1Gi"), reservation(2, memory="1Gi")],
            {"memory": "2Gi"},
            "references a NUMA node 2 that does not exist on this machine",
            id="no such node",
        ),
    ],
)
def test_get_system_reserved_memory(
    reserved: list[kubeletconfig.MemoryReservation], allocatable: dict[str, str], fault: str
) -> None:
    quantities = {name: must_parse(amount) for name, amount in allocatable.items()}
    if fault:
        with pytest.raises(ValueError, match=fault):
            get_system_reserved_memory(machine(4, 4), quantities, reserved)
        return
    wanted: dict[int, dict[str, int]] = {0: {}, 1: {}}
    for one in reserved:
        wanted[one.numa_node] = {name: quantity.value() for name, quantity in one.limits.items()}
    assert get_system_reserved_memory(machine(4, 4), quantities, reserved) == wanted


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("fake", 'unknown policy: "fake"'),
        ("BestEffort", 'policy "BestEffort" is not available for platform "linux"'),
        ("Static", r"\[memorymanager\] you should specify the system reserved memory"),
    ],
)
def test_new_manager(tmp_path: Path, policy: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        memorymanager.Manager(policy, machine(4), {}, [], str(tmp_path), FakeTopologyManager())


def test_policy_none(tmp_path: Path) -> None:
    node = Node(tmp_path, "None")
    asking = pod("pod1", container("c", "1Gi"))
    node.run(asking)
    manager, c = node.manager, asking.spec.containers[0]
    assert manager.get_topology_hints(asking, c) == manager.get_pod_topology_hints(asking) == {}
    assert manager.get_memory_numa_nodes(asking, c) == frozenset()
    assert manager.get_memory("pod1", "c") == manager.get_allocatable_memory() == []
    manager.remove_container("pod1-c")
    assert (tmp_path / "memory_manager_state").read_text() == (_TESTDATA / "none.json").read_text()


def test_container_is_bound_to_the_nodes_of_its_memory(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(1))
    asking = pod("pod1", container("c", "1Gi"))
    assert node.manager.get_topology_hints(asking, asking.spec.containers[0]).keys() == {"memory"}
    node.run(asking)
    assert node.manager.get_memory_numa_nodes(asking, asking.spec.containers[0]) == {1}
    assert node.manager.get_memory("pod1", "c") == [state.Block((1,), "memory", GB)]
    assert node.manager.get_memory("pod1", "other") == []
    big = pod("pod2", container("c", "3584Mi"))
    node.affinity.hint = hint_of(0, 1)
    with pytest.raises(ValueError, match=r"\[memorymanager\]"):
        node.run(big)
    assert node.manager.get_memory("pod2", "c") == []
    blocks = [(block.numa_affinity, block.size) for block in node.manager.get_allocatable_memory()]
    assert blocks == [((0,), 3584 * MB), ((1,), 3584 * MB)]


def test_a_pod_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's allocations are written once.

    The sync loop waits for the disk, and a pod may have thousands of containers.
    """
    node = Node(tmp_path)
    written = storetesting.record_writes(monkeypatch)
    asking = pod("pod1", *(container(name, "1Mi") for name in "abc"), init=(container("init", "1Mi"),))
    node.pods.append(asking)
    everybody = (*asking.spec.init_containers, *asking.spec.containers)
    for c in everybody:
        node.manager.allocate(asking, c)
    assert len(written) == 1
    for c in everybody:  # Admit the pod once more, as after a restart of the kubelet.
        node.manager.allocate(asking, c)
    assert len(written) == 1
    assert json.loads(written[0])["entries"]["pod1"].keys() == {"init", "a", "b", "c"}


def test_each_init_container_gives_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each init container's memory is released once, because a pod may have thousands of them."""
    node, taken = Node(tmp_path), list[str]()
    remove = node.manager._policy.remove_container

    def note(s: state.State, pod_uid: str, container_name: str) -> None:
        taken.append(container_name)
        remove(s, pod_uid, container_name)

    monkeypatch.setattr(node.manager._policy, "remove_container", note)
    node.run(pod("pod1", container("app", "1Mi"), init=tuple(container(name, "1Mi") for name in "abcd")))
    assert taken == ["a", "b", "c", "d"]
    assert [ref.container_name for ref in node.containers.values()] == ["app"]


def test_init_container_that_has_ended_leaves_the_state(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(0))
    sidecar = container("sidecar", "1Gi", restart_policy="Always")
    asking = pod("pod1", container("app", "1Gi"), init=(container("init", "2Gi"), sidecar, container("last", "1Gi")))
    node.run(asking)
    reader = node.manager.state()
    assert list(reader.get_memory_assignments()["pod1"]) == ["sidecar", "app"]
    assert reader.get_machine_state()[0].memory_map["memory"].reserved == 2 * GB
    assert sorted(node.containers) == ["pod1-app", "pod1-sidecar"]


def test_remove_container(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(0, 1))
    node.run(pod("pod1", container("c", "5Gi")))
    node.manager.remove_container("unknown")
    assert node.manager.get_memory("pod1", "c") != []
    node.manager.remove_container("pod1-c")
    assert node.manager.get_memory("pod1", "c") == []
    assert [n.cells for _, n in sorted(node.manager.state().get_machine_state().items())] == [[0], [1]]
    assert node.containers == {}


def test_container_that_starts_again_and_again_is_known_once(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(0))
    restarts = pod("pod1", container("c", "1Gi"))
    node.run(restarts)
    for number in range(3):
        node.manager.add_container(restarts, restarts.spec.containers[0], f"id-{number}")
    assert set(node.containers) == {"id-2"}


def test_remove_stale_state(tmp_path: Path) -> None:
    """The memory of pods that are gone is released at the next admission, but not before all sources are ready."""
    node = Node(tmp_path, hint=hint_of(0))
    for uid in ("pod1", "pod2"):
        node.run(pod(uid, container("c", "1Gi")))
    node.containers.add("older", "c", "older-c")
    del node.pods[0]
    node.sources.ready = False
    node.run(pod("pod3", container("c", "1Gi")))
    assert sorted(node.manager.state().get_memory_assignments()) == ["pod1", "pod2", "pod3"]
    node.sources.ready = True
    node.manager.get_pod_topology_hints(node.pods[0])
    assert sorted(node.manager.state().get_memory_assignments()) == ["pod2", "pod3"]
    assert sorted(node.containers) == ["pod2-c", "pod3-c"]
    assert node.manager.state().get_machine_state()[0].memory_map["memory"].reserved == 2 * GB


def test_pod_that_is_ending_keeps_its_memory(tmp_path: Path) -> None:
    """A pod that was deleted while no kubelet ran keeps its memory, because its containers still run."""
    before = Node(tmp_path, hint=hint_of(0))
    before.run(pod("ending", container("c", "1Gi")))
    node = Node(tmp_path, hint=hint_of(0))
    node.ending.add("ending")
    node.run(pod("first", container("c", "1Gi")))
    assert node.manager.pods() == {"ending", "first"}
    node.ending.clear()
    node.run(pod("second", container("c", "1Gi")))
    assert node.manager.pods() == {"first", "second"}


def test_pod_that_cannot_be_read_in_full_keeps_its_memory(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(0))
    node.run(pod("pod1", container("c", "1Gi")))
    node.pods[:] = [v1.PartialPod(metadata=node.pods[0].metadata)]
    node.run(pod("pod2", container("c", "1Gi")))
    assert sorted(node.manager.state().get_memory_assignments()) == ["pod1", "pod2"]


@failures
@pytest.mark.parametrize("step", ["set_machine_state", "set_memory_blocks"])
def test_what_goes_wrong_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, err: Exception
) -> None:
    """A failure in the middle of a change leaves the state unchanged.

    Memory that is neither free nor allocated would keep the next kubelet from starting.
    """
    node = Node(tmp_path, hint=hint_of(0))
    node.run(pod("pod1", container("c", "1Gi")))
    state_of = node.manager.state()
    before = state_of.get_memory_assignments(), state_of.get_machine_state()
    with monkeypatch.context() as patched:
        patched.setattr(state.StateCheckpoint, step, raising(err))
        with pytest.raises(type(err)):
            node.run(pod("pod2", container("c", "1Gi")))
        if step == "set_machine_state":
            node.pods.clear()
            with pytest.raises(type(err)):
                node.manager.remove_container("pod1-c")
            node.manager.get_pod_topology_hints(pod("pod2", container("c", "1Gi")))
    assert (state_of.get_memory_assignments(), state_of.get_machine_state()) == before
    Node(tmp_path, hint=hint_of(0))


def test_restart(tmp_path: Path) -> None:
    """After a restart containers keep their memory, and the pods are admitted again."""
    first = Node(tmp_path, hint=hint_of(1))
    asking = pod("pod1", container("a", "1Gi"), container("b", "2Gi"))
    first.run(asking)
    text = (tmp_path / "memory_manager_state").read_text()
    second = Node(tmp_path, hint=hint_of(1))
    second.run(asking)
    assert (tmp_path / "memory_manager_state").read_text() == text
    for name, size in (("a", GB), ("b", 2 * GB)):
        assert second.manager.get_memory("pod1", name) == [state.Block((1,), "memory", size)]
    # The machine differs now.
    document = json.loads(text)
    document["machineState"]["0"]["memoryMap"]["memory"]["total"] += 1
    (tmp_path / "memory_manager_state").write_text(json.dumps(document | {"checksum": 0}))
    with pytest.raises(ValueError, match="the expected machine state is different from the real one"):
        Node(tmp_path)


def test_a_kubelet_that_dies_at_any_moment_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet can start with every state that was written, even one that was written only for a moment."""
    written = storetesting.record_writes(monkeypatch)
    node = Node(tmp_path, hint=hint_of(1))
    asking = pod("pod1", container("app", "1Gi"), init=(container("init", "2Gi"),))
    node.run(asking)
    node.manager.remove_container("pod1-app")
    states = list(written)
    for content in states:
        (tmp_path / "memory_manager_state").write_bytes(content)
        Node(tmp_path, hint=hint_of(1))
    # The states are the empty state, the machine, the allocations, and the releases.
    assert len(states) == 5


def test_restart_after_a_pod_was_asked_about_again(tmp_path: Path) -> None:
    """A restart succeeds after a pod was admitted in several attempts.

    Its last container had to wait at first, for a device plugin for example.
    """
    node = Node(tmp_path, hint=hint_of(0))
    asking = pod("pod1", container("c0", "256Mi"), container("c1", "1Gi"), init=(container("i0", "1Gi"),))
    node.pods.append(asking)
    i0, c0, c1 = *asking.spec.init_containers, *asking.spec.containers
    for each in (i0, c0, i0, c0, c1):
        node.manager.allocate(asking, each)
    table = node.manager.state().get_machine_state()[0].memory_map["memory"]
    assert table.reserved == GB + 256 * MB
    assert Node(tmp_path).manager.state().get_machine_state()[0].memory_map["memory"] == table


def test_pod_that_comes_back_counts_on_nothing_that_it_had(tmp_path: Path) -> None:
    """A static pod returns with the same UID, and its earlier memory does not count as reusable."""
    node = Node(tmp_path, hint=hint_of(0))
    static = pod("static", container("c", "1Gi"), init=(container("i", "2Gi"),))
    for _ in range(2):
        node.run(static)
        assert node.manager.state().get_machine_state()[0].memory_map["memory"].reserved == GB
        node.pods.clear()
        node.manager.get_pod_topology_hints(pod("other"))
        assert not node.manager.pods()


@pytest.mark.parametrize("size", ["2Gi", "256Mi"], ids=["more than is free", "less"])
def test_restart_after_init_containers_have_ended(tmp_path: Path, size: str) -> None:
    """Init containers that have ended get no memory again after a restart, because no process would use it."""
    first = Node(tmp_path, hint=hint_of(1))
    init = (container("init", size), container("side", "64Mi", restart_policy="Always"), container("last", size))
    asking = pod("pod1", container("app", "3Gi"), init=init)
    first.run(asking)
    text = (tmp_path / "memory_manager_state").read_text()
    second = Node(tmp_path, hint=hint_of(1))
    second.pods.append(asking)
    hints = second.manager.get_topology_hints
    assert [bool(hints(asking, c)) for c in (*asking.spec.init_containers, *asking.spec.containers)] == [0, 1, 0, 1]
    second.run(asking)
    assert (tmp_path / "memory_manager_state").read_text() == text


@pytest.mark.parametrize("text", ["", "{", '{"policyName": "None"}', '{"policyName": "Static", "checksum": 1}'])
def test_checkpoint_that_cannot_be_trusted(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory_manager_state").write_text(text)
    with pytest.raises(ValueError, match=f'delete the memory manager checkpoint file "{tmp_path}/memory_manager_st'):
        Node(tmp_path)


def test_goes_on_where_go_left_off(tmp_path: Path) -> None:
    """The manager continues with the Go kubelet's state while its pods still run.

    The recorded machine has 16 GiB on each node, with 64 and 32 huge pages.
    """
    text = (_TESTDATA / "static_two_sockets.json").read_text()
    (tmp_path / "memory_manager_state").write_text(text)
    recorded = json.loads(text)["machineState"]
    pages = [[cadvisor.HugePagesInfo(2048, count), cadvisor.HugePagesInfo(2**20, 0)] for count in (64, 32)]
    nodes = tuple(cadvisor.Node(id=id, memory=16 * GB, huge_pages=tuple(pages[id])) for id in range(2))
    info = cadvisor.MachineInfo(num_cores=16, memory_capacity=32 * GB, topology=nodes)
    kept = [str(recorded[str(id)]["memoryMap"]["memory"]["systemReserved"]) for id in range(2)]
    reserved = [reservation(id, memory=amount) for id, amount in enumerate(kept)]
    total = {"memory": must_parse(str(sum(map(int, kept))))}
    manager = memorymanager.Manager("Static", info, total, reserved, str(tmp_path), FakeTopologyManager())
    rest: Any = None
    manager.start(golang.background(), list, rest, rest, rest, rest, ContainerMap())
    assert manager.get_memory("c8585244-ec40-4950-8fd4-78d5410cf3f3", "main") == [state.Block((1,), "memory", GB // 2)]
    assert (tmp_path / "memory_manager_state").read_text() == text


def test_stale_state_is_looked_for_once_for_all_containers_of_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, looks = Node(tmp_path, hint=hint_of(0)), list[str]()

    def active_pods() -> list[v1.Pod]:
        looks.append("look")
        return node.pods

    monkeypatch.setattr(node.manager, "_active_pods", active_pods)
    many = pod("many", *(container(f"c{number}", "1Mi") for number in range(20)), init=(container("init", "1Mi"),))
    for c in (*many.spec.init_containers, *many.spec.containers):
        node.manager.get_topology_hints(many, c)
        node.manager.allocate(many, c)
    assert len(looks) == 2, "once for the hints, once to allocate"


def test_stale_container_of_several_ids_is_forgotten_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path, hint=hint_of(0))
    for container_id in ("first", "second"):
        node.containers.add("gone", "c", container_id)
    node.manager.get_pod_topology_hints(pod("pod1", container("c", "1Gi")))
    assert node.containers == {}
