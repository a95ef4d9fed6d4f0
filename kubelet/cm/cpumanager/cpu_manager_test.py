"""Test the CPU manager.

Go: pkg/kubelet/cm/cpumanager/cpu_manager_test.go, policy_static_restore_test.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm.containermap import ContainerMap, ContainerRef
from kubelet.cm.cpumanager import Manager
from kubelet.cm.cpumanager.state import StateCheckpoint
from kubelet.cm.cpumanager.testing import pod
from kubelet.cm.topologymanager.testing import FakeTopologyManager
from kubelet.config.testing import FakeSourcesReady
from kubelet.status.testing import FakePodStatusProvider
from kubelet.util.store import testing as storetesting
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.util.runtime import testing as runtimetesting
from pkg.util.testing import lines_run
from pkg.utils import cpuset

# No test runs as long as this period, in seconds.
_LONG = 3600.0


def _machine(threads: int = 2, cores: int = 4) -> cadvisorapi.MachineInfo:
    """Return a machine whose CPUs are numbered as usual: 0 and 4 share a core."""
    of_core = [tuple(range(core, cores * threads, cores)) for core in range(cores)]
    nodes = (cadvisorapi.Node(id=0, cores=tuple(cadvisorapi.Core(id=i, threads=t) for i, t in enumerate(of_core))),)
    return cadvisorapi.MachineInfo(num_cores=cores * threads, memory_capacity=0, num_sockets=1, topology=nodes)


class Node:
    """Hold the node's pods and the updates that the runtime received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: list[v1.Pod] = []
        # `ending` holds the UIDs of terminating pods.
        self.ending: set[str] = set()
        self.sources = FakeSourcesReady()
        self.statuses = FakePodStatusProvider()
        self.err: Exception | None = None
        # `told` maps container IDs to the CPU sets that the containers received last.
        self.told: dict[str, str] = {}
        # This channel receives a container's ID for each update.
        self.updates: golang.Channel[str] = golang.Channel(100)

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        if self.err is not None:
            raise self.err
        self.told[container_id] = resources.linux.cpuset_cpus
        self.updates.send(container_id)

    def manager(self, policy: str = "static", options: dict[str, str] | None = None, cpu: str = "1") -> Manager:
        reserved = {v1.RESOURCE_CPU: resource.parse_quantity(cpu)}
        machine = _machine()
        return Manager(
            policy, options or {}, _LONG, machine, cpuset.new(), reserved, str(self.folder), FakeTopologyManager()
        )

    def start(self, manager: Manager, ctx: golang.Context, containers: ContainerMap | None = None) -> None:
        could_run = self.ending.__contains__
        containers = containers or ContainerMap()
        manager.start(ctx, lambda: self.pods, could_run, self.sources, self.statuses, self, containers)

    def run(self, wants: v1.Pod, **state: object) -> None:
        """Set the state of all the pod's containers, by default to running."""
        self.pods.append(wants)
        of = v1.ContainerState(**(state or {"running": v1.ContainerStateRunning()}))  # type: ignore[arg-type]

        def statuses(containers: list[v1.Container]) -> list[v1.ContainerStatus]:
            uid = wants.metadata.uid
            return [v1.ContainerStatus(name=c.name, container_id=f"x://{uid}-{c.name}", state=of) for c in containers]

        self.statuses.statuses[wants.metadata.uid] = v1.PodStatus(
            init_container_statuses=statuses(wants.spec.init_containers),
            container_statuses=statuses(wants.spec.containers),
        )

    def next_told(self) -> str:
        found, ok = self.updates.recv(timeout=30)
        assert ok and found is not None, "nobody was told"
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def cancelled() -> golang.Context:
    """Return a cancelled context, with which a started manager does not reconcile by itself."""
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    return ctx


@pytest.fixture
def running() -> Iterator[tuple[golang.Context, Callable[[], None]]]:
    ctx, cancel = golang.with_cancel(golang.background())
    yield ctx, cancel
    cancel()


@pytest.mark.parametrize(
    ("policy", "options", "cpu", "want"),
    [
        ("other", {}, "1", 'unknown policy: "other"'),
        ("none", {"full-pcpus-only": "true"}, "1", "new none policy error: None policy: received unsupported options="),
        ("static", {"fake": "true"}, "1", 'new static policy error: unknown CPU Manager Policy option: "fake"'),
        ("static", {}, "9", "new static policy error: [cpumanager] unable to reserve the required amount of CPUs"),
        (
            "static",
            {},
            "0",
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater",
        ),
    ],
)
def test_new_manager_refuses(node: Node, policy: str, options: dict[str, str], cpu: str, want: str) -> None:
    with pytest.raises(ValueError) as err:
        node.manager(policy, options, cpu)
    assert str(err.value).startswith(want)


def test_a_period_that_is_none() -> None:
    with pytest.raises(ValueError, match="cpuManagerReconcilePeriod must be greater than 0 seconds, not -1"):
        reserved = {v1.RESOURCE_CPU: resource.parse_quantity("1")}
        Manager("static", {}, -1.0, _machine(), cpuset.new(), reserved, "/nowhere", FakeTopologyManager())


def test_nothing_reserved() -> None:
    with pytest.raises(ValueError, match="unable to determine reserved CPU resources for static policy"):
        Manager("static", {}, _LONG, _machine(), cpuset.new(), {}, "/nowhere", FakeTopologyManager())


@pytest.mark.parametrize(("cpu", "reserved"), [("100m", "0"), ("1", "0"), ("1001m", "0,4"), ("2500m", "0-1,4")])
def test_reserved_are_whole_processors(node: Node, cancelled: golang.Context, cpu: str, reserved: str) -> None:
    manager = node.manager(cpu=cpu)
    node.start(manager, cancelled)
    assert manager.get_all_cpus() - manager.get_allocatable_cpus() == cpuset.parse(reserved)
    assert str(manager.get_cpu_affinity("pod", "anybody")) == "0-7", "everybody else may use them too"


def test_none_gives_out_nothing(node: Node, cancelled: golang.Context) -> None:
    manager = node.manager("none")
    node.start(manager, cancelled)
    wants = pod("2")
    manager.allocate(wants, wants.spec.containers[0])
    assert manager.get_cpu_affinity("pod", "c0").is_empty() and manager.get_exclusive_cpus("pod", "c0").is_empty()
    assert (manager.get_allocatable_cpus(), str(manager.get_all_cpus())) == (cpuset.new(), "0-7")


def test_what_was_given_is_found_again(node: Node, cancelled: golang.Context) -> None:
    wants = pod("2", "1")
    node.pods.append(wants)
    manager = node.manager()
    node.start(manager, cancelled)
    for container in wants.spec.containers:
        manager.allocate(wants, container)
    want = {"pod": {"c0": cpuset.new(1, 5), "c1": cpuset.new(4)}}
    assert manager.state().get_cpu_assignments() == want
    again = node.manager()
    node.start(again, cancelled)
    for container in wants.spec.containers:
        again.allocate(wants, container)
    assert again.state().get_cpu_assignments() == want
    assert str(again.get_cpu_affinity("other", "c0")) == "0,2-3,6-7"
    with pytest.raises(ValueError, match='configured policy "none" differs from state checkpoint policy "static"'):
        node.start(node.manager("none"), cancelled)


def test_a_kubelet_that_dies_at_any_moment_starts_again(
    node: Node, cancelled: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet can start with every state that was written, even one that was written only for a moment."""
    written = storetesting.record_writes(monkeypatch)
    manager = node.manager()
    node.start(manager, cancelled)
    wants = pod("2", init=["1"])
    node.pods.append(wants)
    for container in (*wants.spec.init_containers, *wants.spec.containers):
        manager.allocate(wants, container)
    node.pods.remove(wants)
    manager.reconcile_state(cancelled)
    states = list(written)
    for content in states:
        (node.folder / "cpu_manager_state").write_bytes(content)
        node.start(node.manager(), cancelled)
    # The states are the empty state, the initial shared pool, two allocations and two releases.
    assert len(states) == 6


def test_another_reservation_does_not_fit(node: Node, cancelled: golang.Context) -> None:
    wants = pod("2")
    node.pods.append(wants)
    manager = node.manager()
    node.start(manager, cancelled)
    manager.allocate(wants, wants.spec.containers[0])
    with pytest.raises(ValueError, match='not all reserved cpus: "0-1,4" are present in defaultCpuSet: "0,2-4,6-7"'):
        node.start(node.manager(cpu="3"), cancelled)


def test_too_many(node: Node, cancelled: golang.Context) -> None:
    wants = pod("8")
    node.pods.append(wants)
    manager = node.manager()
    node.start(manager, cancelled)
    with pytest.raises(ValueError, match="not enough cpus available to satisfy request: requested=8, available=7"):
        manager.allocate(wants, wants.spec.containers[0])


def test_container_that_starts_again_and_again_is_known_once(node: Node, cancelled: golang.Context) -> None:
    restarts = pod("2")
    (container,) = restarts.spec.containers
    containers = ContainerMap({f"id-{number}": ContainerRef("pod", container.name) for number in range(2)})
    manager = node.manager()
    node.start(manager, cancelled, containers)
    node.pods.append(restarts)
    manager.allocate(restarts, container)
    manager.add_container(restarts, container, "id-2")
    assert set(containers) == {"id-2"}


def test_who_is_gone_has_nothing_any_more(node: Node, cancelled: golang.Context) -> None:
    gone, comes = pod("4", uid="gone"), pod("6", uid="comes")
    manager = node.manager()
    node.start(manager, cancelled)
    node.pods.append(gone)
    manager.allocate(gone, gone.spec.containers[0])
    manager.add_container(gone, gone.spec.containers[0], "gone-id")
    node.pods[:] = [comes]
    node.sources.ready = False
    with pytest.raises(ValueError, match="not enough cpus"):
        manager.allocate(comes, comes.spec.containers[0])
    node.sources.ready = True
    manager.allocate(comes, comes.spec.containers[0])
    assert set(manager.state().get_cpu_assignments()) == {"comes"}
    manager.remove_container("gone-id")


def test_pod_that_is_ending_keeps_its_processors(node: Node, cancelled: golang.Context) -> None:
    ending, comes = pod("4", uid="ending"), pod("4", uid="comes")
    before = node.manager()
    node.start(before, cancelled)
    node.pods.append(ending)
    before.allocate(ending, ending.spec.containers[0])
    # The pod was deleted while no kubelet ran, and its containers still run.
    node.pods[:] = [comes]
    node.ending.add("ending")
    manager = node.manager()
    node.start(manager, cancelled)
    with pytest.raises(ValueError, match="not enough cpus"):
        manager.allocate(comes, comes.spec.containers[0])
    assert manager.pods() == {"ending"}
    node.ending.clear()
    manager.allocate(comes, comes.spec.containers[0])
    assert manager.pods() == {"comes"}


def test_pod_that_cannot_be_read_in_full_keeps_its_processors(node: Node, cancelled: golang.Context) -> None:
    wants = pod("2")
    node.pods.append(wants)
    manager = node.manager()
    node.start(manager, cancelled)
    manager.allocate(wants, wants.spec.containers[0])
    node.pods[:] = [v1.PartialPod(metadata=wants.metadata)]
    manager.reconcile_state(cancelled)
    assert str(manager.get_exclusive_cpus("pod", "c0")) == "1,5"


@runtimetesting.failures
@pytest.mark.parametrize("step", ["set_cpu_set", "set_default_cpu_set", "delete"])
def test_what_goes_wrong_half_way_changes_nothing(
    node: Node, cancelled: golang.Context, monkeypatch: pytest.MonkeyPatch, step: str, err: Exception
) -> None:
    """A failure in the middle of a change leaves the state unchanged.

    CPUs that belong neither to a container nor to the shared pool would keep the next kubelet from starting.
    """
    pods = [pod("2", uid="first"), pod("1", uid="second")]
    node.pods[:] = pods[:1]
    manager = node.manager()
    node.start(manager, cancelled)
    manager.allocate(pods[0], pods[0].spec.containers[0])
    before = manager.state().get_cpu_assignments(), manager.state().get_default_cpu_set()
    with monkeypatch.context() as patched:
        patched.setattr(StateCheckpoint, step, runtimetesting.raising(err))
        if step == "delete":
            node.pods.clear()
            manager.reconcile_state(cancelled)
        else:
            node.pods[:] = pods
            with pytest.raises(type(err)):
                manager.allocate(pods[1], pods[1].spec.containers[0])
            node.pods.clear()
            if step == "set_default_cpu_set":
                manager.reconcile_state(cancelled)
    assert (manager.state().get_cpu_assignments(), manager.state().get_default_cpu_set()) == before
    node.start(node.manager(), cancelled)
    manager.reconcile_state(cancelled)
    assert str(manager.state().get_default_cpu_set()) == "0-7"


def test_remove_container(node: Node, cancelled: golang.Context) -> None:
    wants = pod("2")
    node.pods.append(wants)
    manager = node.manager()
    node.start(manager, cancelled)
    manager.allocate(wants, wants.spec.containers[0])
    manager.add_container(wants, wants.spec.containers[0], "id")
    manager.remove_container("unknown")
    assert not manager.get_exclusive_cpus("pod", "c0").is_empty()
    manager.remove_container("id")
    manager.remove_container("id")
    assert manager.get_exclusive_cpus("pod", "c0").is_empty()
    assert str(manager.get_cpu_affinity("pod", "c0")) == "0-7"


_WAITING = {"waiting": v1.ContainerStateWaiting()}
_TERMINATED = {"terminated": v1.ContainerStateTerminated(exit_code=0)}


@pytest.mark.parametrize(
    ("state", "err", "success", "failure"),
    [
        ({}, None, True, False),
        ({}, ConnectionError("away"), False, True),
        (_WAITING, None, False, True),
        (_TERMINATED, None, False, False),
        ({"running": None}, None, False, True),
    ],
    ids=["runs", "runtime is away", "waits", "has ended", "in no state"],
)
def test_reconcile_state(
    node: Node,
    cancelled: golang.Context,
    state: dict[str, object],
    err: Exception | None,
    success: bool,
    failure: bool,
) -> None:
    manager = node.manager()
    node.start(manager, cancelled)
    node.run(pod("1/2", init=["1"]), **state)
    node.err = err
    found = [
        {container.container_name for container in containers} for containers in manager.reconcile_state(cancelled)
    ]
    both = {"i0", "c0"}
    assert found == [both if success else set(), both if failure else set()]
    assert node.told == ({"pod-i0": "0-7", "pod-c0": "0-7"} if success else {})


@runtimetesting.failures
def test_reconcile_tells_others_when_something_breaks_for_one_pod(
    node: Node, cancelled: golang.Context, err: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = node.manager()
    node.start(manager, cancelled)
    node.run(pod("1/2", uid="broken"))
    node.run(pod("1/2", uid="other"))
    failing = runtimetesting.failing_once(node.statuses.get_pod_status, err, "broken")
    monkeypatch.setattr(node.statuses, "get_pod_status", failing)
    success, _ = manager.reconcile_state(golang.background())
    assert [container.container_id for container in success] == ["other-c0"]


def test_reconciliation_grows_with_a_pods_containers_and_not_with_their_square(
    node: Node, cancelled: golang.Context
) -> None:
    manager = node.manager()
    node.start(manager, cancelled)

    def lines(count: int) -> int:
        node.pods = []
        node.updates = golang.Channel(count)
        node.run(pod(*["1/2"] * count, uid=f"p{count}"))
        manager.reconcile_state(cancelled)  # Do one-time work before counting.
        return lines_run(lambda: manager.reconcile_state(cancelled))

    assert lines(1000) < 15 * lines(100)


def test_reconcile_pods_of_which_too_little_is_known(node: Node, cancelled: golang.Context) -> None:
    manager = node.manager()
    node.start(manager, cancelled)
    node.pods = [pod("1/2", uid="without-status"), pod("1/2", uid="without-container")]
    node.statuses.statuses[types.UID("without-container")] = v1.PodStatus()
    success, failure = manager.reconcile_state(cancelled)
    assert success == []
    assert [tuple(container) for container in failure] == [
        ("without-status", "", ""),
        ("without-container", "c0", ""),
    ]


def test_reconcile_tells_once(node: Node, cancelled: golang.Context) -> None:
    manager = node.manager()
    node.start(manager, cancelled)
    alone, shares = pod("2", uid="alone"), pod("1/2", uid="shares")
    node.run(alone)
    node.run(shares)
    manager.allocate(alone, alone.spec.containers[0])
    # The container was created with its CPU set, so it needs no update.
    manager.add_container(alone, alone.spec.containers[0], "alone-c0")
    manager.reconcile_state(cancelled)
    assert node.told == {"shares-c0": "0,2-4,6-7"}
    node.told.clear()
    assert len(manager.reconcile_state(cancelled)[0]) == 2
    assert node.told == {}
    node.pods.remove(alone)
    manager.reconcile_state(cancelled)
    assert node.told == {"shares-c0": "0-7"}


def test_who_shares_is_told_as_soon_as_somebody_gets_or_leaves_processors(
    node: Node, running: tuple[golang.Context, Callable[[], None]]
) -> None:
    manager = node.manager()
    alone, shares = pod("2", uid="alone"), pod("1/2", uid="shares")
    node.run(shares)
    node.start(manager, running[0])
    assert (node.next_told(), node.told) == ("shares-c0", {"shares-c0": "0-7"})
    node.pods.append(alone)
    manager.allocate(alone, alone.spec.containers[0])
    assert (node.next_told(), node.told) == ("shares-c0", {"shares-c0": "0,2-4,6-7"})
    node.pods.remove(alone)
    manager.get_topology_hints(shares, shares.spec.containers[0])
    assert (node.next_told(), node.told) == ("shares-c0", {"shares-c0": "0-7"})


def test_stale_state_is_looked_for_once_for_all_containers_of_a_pod(
    node: Node, cancelled: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, looks = node.manager(), list[str]()
    node.start(manager, cancelled)

    def active_pods() -> list[v1.Pod]:
        looks.append("look")
        return node.pods

    monkeypatch.setattr(manager, "_active_pods", active_pods)
    many = pod(*("100m" for _ in range(20)), init=("100m",))
    for c in (*many.spec.init_containers, *many.spec.containers):
        manager.get_topology_hints(many, c)
        manager.allocate(many, c)
    assert len(looks) == 2, "once for the hints, once to allocate"


def test_stale_container_of_several_ids_is_forgotten_at_once(node: Node, cancelled: golang.Context) -> None:
    manager, containers = node.manager(), ContainerMap()
    for container_id in ("first", "second"):
        containers.add("gone", "c", container_id)
    node.start(manager, cancelled, containers)
    manager.get_pod_topology_hints(pod("1"))
    assert containers == {}
