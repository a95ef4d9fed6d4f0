"""Make every call of the CRI fail in every way while the kubelet needs it.

A case is a method of the CRI and a kind of fault. The methods come from the description of the API, so that no new
method can be forgotten. Each method needs an entry in TRIGGERS, which says what makes the kubelet call it, or in
UNUSED.

All cases of one kind share a node. Calls that are about one pod fail at the same time, each for its own pod, and so do
the calls that the kubelet makes at its start. Calls that are about the whole node fail one after the other.
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
# The time limit of runtime calls is short, so that a call that hangs ends soon. The kubelet does its periodic work
# often.
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
# With this configuration the kubelet follows the runtime's events, and asks cAdvisor for the usage of pods.
_WITH_EVENTS: Mapping[str, object] = {"featureGates": {"EventedPLEG": True}}
_ANSWER_TIMEOUT = 30.0
_PATIENCE = 60.0


# Neither this kubelet nor the Go kubelet calls these methods.
UNUSED = frozenset({"ContainerStats"})
# The kubelet calls these methods rarely, or only on a node with cgroups. Other tests make the kubelet call them in the
# test's process: see runtime_seldom_calls_test.py.
SELDOM = frozenset({"RemovePodSandbox", "RemoveImage", "PodSandboxStats", "UpdatePodSandboxResources"})
# Each of these methods reports all pods, so a false response from one of them makes the kubelet restart all pods.
LISTS = frozenset({"ListPodSandbox", "ListContainers", "GetContainerEvents"})


def manifest(name: str) -> Manifest:
    main = sleeper(
        imagePullPolicy="Always",
        livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1000},
        resources={"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}},
    )
    return pod(name, main, grace=1, initContainers=[shell("exit 0", "init")])


class Phase(Enum):
    """Define when calls fail, and which of them fail at the same time."""

    POD = "calls about one pod, at the same time"
    NODE = "calls about all pods, one after the other"
    AWAITED = "the call whose answer the kubelet awaits before it starts"
    START = "calls that the kubelet makes at its start, at the same time"
    FIRST_CALL = "the call without which the kubelet does not start"
    EVENTS = "calls with another configuration, one after the other"


@dataclass
class Case:
    """Describe a method whose calls fail on a node where a bystander runs."""

    node: ClusterNode
    method: str
    kind: Kind
    fault: Fault | None = None
    # `failure` says why the case has failed. It is empty if the case has not failed.
    failure: str = ""

    @property
    def name(self) -> str:
        """Return the name of the case's pod."""
        return f"{self.method}-{self.kind}".lower()

    @property
    def trigger(self) -> Trigger:
        return TRIGGERS[self.method]

    def prepare(self) -> None:
        if self.trigger.pod_runs:
            self.create()
            self.node.wait_for_api_running(self.name)

    def begin(self) -> None:
        """Make the calls fail from now on."""
        sandbox = self.name if self.trigger.phase is Phase.POD else ""
        self.fault = add_fault(self.node.runtime.faults, self.method, self.kind, sandbox)

    def wait_until_hit(self) -> None:
        fault = self.fault
        assert fault is not None
        wait_for(f"a call of {self.method} fails", lambda: fault.hits, _PATIENCE, self.node.end_of_log)

    def end(self) -> None:
        """End the fault."""
        assert self.fault is not None
        self.node.runtime.faults.remove(self.fault)

    def see_pod_run(self) -> None:
        """Check that the pod runs, unless it does not exist or its deletion is requested, and delete it."""
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
        """Repeat the request until it makes the call fail.

        The kubelet may refuse a request for another reason: a busy runtime may not list its containers in time.
        """
        answers: list[int] = []

        def hit() -> int:
            assert self.fault is not None
            if not self.fault.hits:
                answers.append(self.ask(method, path))
            return self.fault.hits

        wait_for(f"a request makes a call of {self.method} fail", hit, _PATIENCE, lambda: answers)

    def ask(self, method: str, path: str) -> int:
        """Send the kubelet's server a request, and return the status of the response, or 0 if there is none."""
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
        """Make the container log more than the kubelet keeps in one file."""
        for log in self.node.folder.glob(f"logs/*_{self.name}_*/main/*.log"):
            with log.open("a") as file:
                file.write("2026-01-01T00:00:00.000000000Z stdout F line\n" * 100)

    def give_addresses(self) -> None:
        """Give the node's pods another range of addresses, which the kubelet sends to the runtime."""
        number = list(Kind).index(self.kind)
        addresses = f"10.{number}.0.0/24"
        self.node.cluster.store.patch(
            "nodes", self.node.node, {"spec": {"podCIDR": addresses, "podCIDRs": [addresses]}}
        )

    def fail_twice(self) -> None:
        """Make the container exit twice. The kubelet then removes the older dead container."""
        for _ in range(2):
            self.end_container()

    def end_container(self) -> None:
        """Make the container exit, and wait for the next one."""
        (running,) = self.node.container_ids(self.name)
        self.node.runtime.end_container(running, 1)
        self.node.wait_for_condition("the next container", lambda: set(self.node.container_ids(self.name)) - {running})


@dataclass(frozen=True)
class Trigger:
    """Describe what makes the kubelet call a method."""

    act: Callable[[Case], object]
    # In Phase.POD, only the calls about the case's pod fail. In the other phases all calls fail.
    phase: Phase = Phase.POD
    # `pod_runs` says that the pod runs before the calls fail.
    pod_runs: bool = False


def _nothing(case: Case) -> None:
    """Do nothing: the kubelet makes the call all the time."""


def _end_events(case: Case) -> None:
    """End the event stream, so that the kubelet subscribes again, and create a pod that has events."""
    case.node.runtime.end_events()
    case.create()


_AT_START = Trigger(_nothing, Phase.START)
_ALWAYS = Trigger(_nothing, Phase.NODE)
_POD_STARTS = Trigger(Case.create)
_POD_ENDS = Trigger(Case.delete, pod_runs=True)


def _request(method: str, path: str, phase: Phase = Phase.POD) -> Trigger:
    """Return a trigger that sends the kubelet's server a request. POD in the path stands for the pod's name."""
    return Trigger(lambda case: case.ask_until_hit(method, path.replace("POD", case.name)), phase, pod_runs=True)


TRIGGERS: Mapping[str, Trigger] = {
    # A starting kubelet that gets no response to this call reports the error and exits, as in Go, and is then started
    # again.
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
    """Run a node on which all calls to the runtime fail in one way, one phase after the other."""

    def __init__(self, node: ClusterNode, kind: Kind) -> None:
        self._node = node
        self._kind = kind
        self._cases = {method: Case(node, method, kind) for method in TRIGGERS}

    def run(self) -> None:
        self._node.runtime.write_logs = True
        # No server listens there, but the runtime answers the calls that return the URL.
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
        """Raise AssertionError with the reason if the case has failed."""
        assert not self._cases[method].failure, self._cases[method].failure

    def _of(self, phase: Phase) -> list[Case]:
        return [case for case in self._cases.values() if case.trigger.phase is phase]

    def _run(
        self,
        several: Sequence[Case],
        meanwhile: Callable[[], object] = lambda: None,
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        """Make the calls fail, and check that the kubelet, the bystander and the cases' pods recover."""
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
        """Check that a pod whose calls succeed starts and ends."""
        self._node.create(manifest("other"))
        self._node.wait_for_api_running("other")
        self._node.delete("other")
        self._node.wait_until_gone("other")

    def _restart_with_events(self) -> None:
        """End the fault of the first call and restart the kubelet with the other configuration."""
        self._node.kill()
        each(self._of(Phase.FIRST_CALL), Case.end)
        self._node.configure(_WITH_EVENTS)
        self._node.start()

    def _create_bystander(self) -> None:
        self._node.create(pod(BYSTANDER, sleeper()))
        self._node.wait_for_api_running(BYSTANDER)

    def _check_bystander(self, several: Sequence[Case], before: list[str]) -> None:
        if self._kind in (Kind.EMPTY, Kind.NONSENSE) and any(case.method in LISTS for case in several):
            # The test cannot know when the old bystander has restarted for the last time.
            self._node.delete(BYSTANDER)
            self._node.wait_until_gone(BYSTANDER)
            self._create_bystander()
        else:
            assert self._node.container_ids(BYSTANDER) == before, "the fault affected the bystander"


@contextmanager
def round_of(kind: Kind, folder: Path) -> Iterator[Round]:
    """Run a cluster and a node, and yield the node's round when it is over."""
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
