"""Every call of the CRI goes wrong in every way, while the kubelet needs it.

A case is a method of the CRI and a kind of fault. The methods come from the description of the API, so that a new one
cannot be forgotten: each needs an entry in TRIGGERS, which says what makes the kubelet call it, or in UNUSED.

All cases of one kind share a node. Calls that are about one pod go wrong side by side, each for a pod of its own; so do
those of a start. Calls that are about the whole node go wrong one after the other.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode, HastyKubelet, running
from framework.faults import Kind, add_fault, each, noting, side_by_side
from framework.log_followers import insecure_context
from framework.pod_history import PodHistory
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for
from kubelet.cri.remote.fake import Fault

BYSTANDER = "bystander"
# The time limit of a call of the runtime is short, so that a call that hangs ends soon; and what the kubelet does from
# time to time it does often.
CONFIG: Mapping[str, object] = {
    "runtimeRequestTimeout": "2s",
    "syncFrequency": "1s",
    "nodeStatusUpdateFrequency": "1s",
    "containerLogMaxSize": "1Ki",
    "containerLogMonitorInterval": "3s",
    "enableServer": True,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "featureGates": {"PodAndContainerStatsFromCRI": True},
}
# With it the kubelet follows the runtime's events, and asks cAdvisor for what pods use.
_WITH_EVENTS: Mapping[str, object] = {"featureGates": {"EventedPLEG": True}}
_ANSWER_TIMEOUT = 30.0
_PATIENCE = 60.0


# Methods that the kubelet does not call, as Go's does not.
UNUSED = frozenset({"ContainerStats"})
# Methods that the kubelet calls so seldom, or only on a node with cgroups, that tests have to ask for it within their
# own process: runtime_seldom_calls_test.py does.
SELDOM = frozenset({"RemovePodSandbox", "RemoveImage", "PodSandboxStats", "UpdatePodSandboxResources"})
# Each answers for all pods, so a lie about one of these makes the kubelet start all pods anew.
LISTS = frozenset({"ListPodSandbox", "ListContainers", "GetContainerEvents"})


def manifest(name: str) -> Manifest:
    main = sleeper(
        imagePullPolicy="Always",
        livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1000},
        resources={"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}},
    )
    return pod(name, main, grace=1, initContainers=[shell("exit 0", "init")])


class Phase(Enum):
    """When calls go wrong, and which do so at the same time."""

    POD = "those about one pod, side by side"
    NODE = "those about all pods, one after the other"
    AWAITED = "the one for whose answer it waits before it starts"
    START = "those that the kubelet makes when it starts, side by side"
    FIRST_CALL = "the one without which it does not start"
    EVENTS = "those with another configuration, one after the other"


@dataclass
class Case:
    """A method whose calls go wrong on a node where a bystander runs."""

    node: ClusterNode
    method: str
    kind: Kind
    fault: Fault | None = None
    # Why the case has failed, if it has.
    failure: str = ""

    @property
    def name(self) -> str:
        """That of the case's pod."""
        return f"{self.method}-{self.kind}".lower()

    @property
    def trigger(self) -> Trigger:
        return TRIGGERS[self.method]

    def prepare(self) -> None:
        if self.trigger.pod_runs:
            self.create()
            self.node.wait_for_api_running(self.name)

    def begin(self) -> None:
        """Let the calls go wrong from now on."""
        sandbox = self.name if self.trigger.phase is Phase.POD else ""
        self.fault = add_fault(self.node.runtime.faults, self.method, self.kind, sandbox)

    def wait_until_hit(self) -> None:
        fault = self.fault
        assert fault is not None
        wait_for(f"a call of {self.method} goes wrong", lambda: fault.hits, _PATIENCE, self.node.end_of_log)

    def end(self) -> None:
        """Let nothing go wrong any more."""
        assert self.fault is not None
        self.node.runtime.faults.remove(self.fault)

    def see_pod_run(self) -> None:
        """Unless there is none, or it is to go."""
        latest = self.node.history.latest(self.name)
        if latest is not None and not latest.deleted:
            self.node.wait_for_api_running(self.name)
            self.delete()

    def see_pod_gone(self) -> None:
        if self.node.history.of(self.name):
            self.node.wait_until_gone(self.name)

    def create(self) -> None:
        self.node.create(manifest(self.name))

    def delete(self) -> None:
        self.node.delete(self.name)

    def ask_until_hit(self, method: str, path: str) -> None:
        """Ask again when the kubelet refuses for another reason: a busy runtime may not list its containers in time."""
        answers: list[int] = []

        def hit() -> int:
            assert self.fault is not None
            if not self.fault.hits:
                answers.append(self.ask(method, path))
            return self.fault.hits

        wait_for(f"a request makes a call of {self.method} go wrong", hit, _PATIENCE, lambda: answers)

    def ask(self, method: str, path: str) -> int:
        """Send the kubelet's server a request; returns the status of the answer, or 0 when there was none."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.node.port, timeout=_ANSWER_TIMEOUT, context=insecure_context()
        )
        with closing(connection):
            try:
                connection.request(method, path)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def resize(self) -> None:
        container = {"name": "main", "resources": {"requests": {"cpu": "20m"}}}
        self.node.patch(self.name, {"spec": {"containers": [container]}}, "resize")

    def fill_log(self) -> None:
        """Let the container log more than the kubelet keeps in one file."""
        for log in self.node.folder.glob(f"logs/*_{self.name}_*/main/*.log"):
            with log.open("a") as file:
                file.write("2026-01-01T00:00:00.000000000Z stdout F line\n" * 100)

    def give_addresses(self) -> None:
        """Give the node's pods another range of addresses, of which the kubelet tells the runtime."""
        number = list(Kind).index(self.kind)
        addresses = f"10.{number}.0.0/24"
        self.node.cluster.store.patch(
            "nodes", self.node.node, {"spec": {"podCIDR": addresses, "podCIDRs": [addresses]}}
        )

    def fail_twice(self) -> None:
        """Let the container end twice: of the dead ones only the newest is kept."""
        for _ in range(2):
            self.end_container()

    def end_container(self) -> None:
        """Let the container end, and wait for the next one."""
        (running,) = self.node.container_ids(self.name)
        self.node.runtime.end_container(running, 1)
        self.node.wait_for_condition("the next container", lambda: set(self.node.container_ids(self.name)) - {running})


@dataclass(frozen=True)
class Trigger:
    """What makes the kubelet call a method."""

    act: Callable[[Case], object]
    # In that of pods, the calls that go wrong are those about the case's pod alone; else all.
    phase: Phase = Phase.POD
    # The pod runs before the calls go wrong.
    pod_runs: bool = False


def _nothing(case: Case) -> None:
    """For calls that the kubelet makes all the time."""


def _end_events(case: Case) -> None:
    """The kubelet subscribes again, and a pod has events."""
    case.node.runtime.end_events()
    case.create()


_AT_START = Trigger(_nothing, Phase.START)
_ALWAYS = Trigger(_nothing, Phase.NODE)
_POD_STARTS = Trigger(Case.create)
_POD_ENDS = Trigger(Case.delete, pod_runs=True)


def _request(method: str, path: str, phase: Phase = Phase.POD) -> Trigger:
    """A request to the kubelet's server; POD in the path is the pod's name."""
    return Trigger(lambda case: case.ask_until_hit(method, path.replace("POD", case.name)), phase, pod_runs=True)


TRIGGERS: Mapping[str, Trigger] = {
    # A kubelet that begins and gets no answer to this call says so and ends, as Go's does, to be started again.
    "Version": Trigger(_nothing, Phase.FIRST_CALL),
    "RuntimeConfig": Trigger(_nothing, Phase.AWAITED),
    "ListMetricDescriptors": _AT_START,
    "Status": _ALWAYS,
    "ListPodSandbox": _ALWAYS,
    "ListContainers": _ALWAYS,
    "ListImages": _AT_START,
    "ImageFsInfo": _ALWAYS,
    "GetContainerEvents": Trigger(_end_events, Phase.EVENTS),
    "RunPodSandbox": _POD_STARTS,
    "PodSandboxStatus": _POD_STARTS,
    "ImageStatus": Trigger(Case.create, Phase.NODE),
    "PullImage": Trigger(Case.create, Phase.NODE),
    "CreateContainer": _POD_STARTS,
    "StartContainer": _POD_STARTS,
    "ContainerStatus": _POD_STARTS,
    "ExecSync": _POD_STARTS,
    "StopContainer": _POD_ENDS,
    "StopPodSandbox": _POD_ENDS,
    "RemoveContainer": Trigger(Case.fail_twice, Phase.NODE, pod_runs=True),
    "UpdateContainerResources": Trigger(Case.resize, pod_runs=True),
    "ReopenContainerLog": Trigger(Case.fill_log, pod_runs=True),
    "Exec": _request("POST", "/exec/default/POD/main?command=ls&output=1"),
    "Attach": _request("POST", "/attach/default/POD/main?output=1"),
    "PortForward": _request("POST", "/portForward/default/POD?port=80"),
    "CheckpointContainer": _request("POST", "/checkpoint/default/POD/main"),
    "ListContainerStats": _request("GET", "/stats/summary", Phase.EVENTS),
    "ListPodSandboxStats": _request("GET", "/stats/summary", Phase.NODE),
    "ListPodSandboxMetrics": _request("GET", "/metrics/cadvisor", Phase.NODE),
    "UpdateRuntimeConfig": Trigger(Case.give_addresses, Phase.NODE),
}


class Round:
    """The life of a node in whose course all calls of the runtime go wrong in one way."""

    def __init__(self, node: ClusterNode, kind: Kind) -> None:
        self._node = node
        self._kind = kind
        self._cases = {method: Case(node, method, kind) for method in TRIGGERS}

    def run(self) -> None:
        self._node.runtime.write_logs = True
        # Nobody is there, but the calls that ask for it are answered.
        self._node.runtime.streaming_url = "http://127.0.0.1:1"
        self._node.join()
        self._create_bystander()
        self._run(self._of(Phase.POD), self._see_other_pod_live)
        for case in self._of(Phase.NODE):
            self._run([case])
        self._node.stop()
        self._run(self._of(Phase.AWAITED), begin=self._node.spawn)
        self._node.stop()
        at_start = self._of(Phase.START)
        self._run(at_start, begin=self._node.spawn)
        with noting(*at_start):
            self._see_other_pod_live()
        self._node.stop()
        self._run(self._of(Phase.FIRST_CALL), self._restart_with_events, begin=self._node.spawn)
        for case in self._of(Phase.EVENTS):
            self._run([case])

    def check(self, method: str) -> None:
        """Raises AssertionError that says why the case has failed."""
        assert not self._cases[method].failure, self._cases[method].failure

    def _of(self, phase: Phase) -> list[Case]:
        return [case for case in self._cases.values() if case.trigger.phase is phase]

    def _run(
        self,
        several: Sequence[Case],
        meanwhile: Callable[[], object] = lambda: None,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        """Let the calls go wrong, and see that the kubelet, the bystander and the cases' pods get over it."""
        before = self._node.container_ids(BYSTANDER)
        side_by_side(several, Case.prepare)
        each(several, Case.begin)
        begin()
        side_by_side(several, lambda case: case.trigger.act(case))
        each(several, Case.wait_until_hit)
        with noting(*several):
            meanwhile()
        each(several, Case.end)
        with noting(*several):
            assert self._node.alive, "the kubelet has ended"
            self._node.wait_until_ready()
            self._node.wait_for_condition("the bystander runs", lambda: self._node.container_ids(BYSTANDER))
        each(several, Case.see_pod_run)
        each(several, Case.see_pod_gone)
        with noting(*several):
            self._check_bystander(several, before)

    def _see_other_pod_live(self) -> None:
        """A pod about which no call goes wrong starts and ends."""
        self._node.create(manifest("other"))
        self._node.wait_for_api_running("other")
        self._node.delete("other")
        self._node.wait_until_gone("other")

    def _restart_with_events(self) -> None:
        """The next kubelet gets an answer."""
        self._node.kill()
        each(self._of(Phase.FIRST_CALL), Case.end)
        self._node.configure(_WITH_EVENTS)
        self._node.start()

    def _create_bystander(self) -> None:
        self._node.create(pod(BYSTANDER, sleeper()))
        self._node.wait_for_api_running(BYSTANDER)

    def _check_bystander(self, several: Sequence[Case], before: list[str]) -> None:
        if self._kind in (Kind.EMPTY, Kind.NONSENSE) and any(case.method in LISTS for case in several):
            # Nobody can tell when the old one has begun anew for the last time.
            self._node.delete(BYSTANDER)
            self._node.wait_until_gone(BYSTANDER)
            self._create_bystander()
        else:
            assert self._node.container_ids(BYSTANDER) == before, "the bystander was touched"


@contextmanager
def round_of(kind: Kind, folder: Path) -> Iterator[Round]:
    """A cluster and a node that has lived its life."""
    with Cluster(folder / "cluster") as cluster:
        history = PodHistory(cluster.store)
        try:
            with running(HastyKubelet(folder, "faulty", cluster, history, CONFIG)) as node:
                life = Round(node, kind)
                life.run()
                yield life
        finally:
            history.stop()


def cases(kind: Kind) -> pytest.MarkDecorator:
    """Parametrize a test with all methods."""
    return pytest.mark.parametrize("method", [pytest.param(method, id=f"{method}-{kind}") for method in TRIGGERS])
