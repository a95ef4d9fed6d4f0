"""Every call of the CRI goes wrong in every way, while the kubelet needs it.

A case is a method of the CRI and a kind of fault. The methods come from the description of the API, so that a new one
cannot be forgotten: each needs an entry in TRIGGERS, which says what makes the kubelet call it, or in UNUSED.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode, HastyKubelet, running
from framework.faults import Kind, add_fault
from framework.log_followers import insecure_context
from framework.pod_history import PodHistory
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for

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
_ANSWER_TIMEOUT = 30.0
_PATIENCE = 60.0


def methods() -> list[str]:
    """The methods of both services of the CRI."""
    return [method.name for service in runtimeapi.DESCRIPTOR.services_by_name.values() for method in service.methods]


# Methods that the kubelet does not call, as Go's does not.
UNUSED = frozenset({"ContainerStats"})
# Methods that the kubelet calls so seldom, or only on a node with cgroups, that tests have to ask for it within their
# own process: runtime_seldom_calls_test.py does.
SELDOM = frozenset({"RemovePodSandbox", "RemoveImage", "PodSandboxStats", "UpdatePodSandboxResources"})
# Each answers for all pods, so a lie about one of these makes the kubelet start all pods anew.
LISTS = frozenset({"ListPodSandbox", "ListContainers", "GetContainerEvents"})


@dataclass
class Story:
    """One case on a node where a bystander runs."""

    node: ClusterNode
    method: str
    kind: Kind

    @property
    def name(self) -> str:
        """That of the case's pod."""
        return f"{self.method}-{self.kind}".lower()

    def run(self) -> None:
        """Let the calls go wrong, and see that the kubelet, the bystander, another pod and this pod get over it."""
        trigger = TRIGGERS[self.method]
        if trigger.config is None:
            self._run(trigger)
        else:
            with self.node.configured(trigger.config):
                self._run(trigger)

    def _run(self, trigger: Trigger) -> None:
        before = self.node.container_ids(BYSTANDER)
        if trigger.pod_runs:
            self.create()
            self.node.wait_for_api_running(self.name)
        sandbox = self.name if trigger.own else ""
        fault = add_fault(self.node.runtime.faults, self.method, self.kind, sandbox)
        try:
            trigger.act(self)
            wait_for(f"a call of {self.method} goes wrong", lambda: fault.hits, _PATIENCE, self.node.end_of_log)
            if trigger.own:
                self.other_pod_lives()
        finally:
            self.node.runtime.faults.remove(fault)
        if trigger.ends_the_start:
            self.node.kill()
            self.node.spawn()
        self.recover()
        if self.kind in (Kind.EMPTY, Kind.NONSENSE) and self.method in LISTS:
            # Nobody can tell when the old one has begun anew for the last time.
            self.node.delete(BYSTANDER)
            self.node.wait_until_gone(BYSTANDER)
            create_bystander(self.node)
        else:
            assert self.node.container_ids(BYSTANDER) == before, "the bystander was touched"

    def manifest(self, name: str) -> Manifest:
        main = sleeper(
            imagePullPolicy="Always",
            livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1000},
            resources={"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}},
        )
        return pod(name, main, grace=1, initContainers=[shell("exit 0", "init")])

    def create(self) -> None:
        self.node.create(self.manifest(self.name))

    def delete(self) -> None:
        self.node.delete(self.name)

    def other_pod_lives(self) -> None:
        """While the calls about one pod go wrong, another one starts and ends."""
        other = f"{self.name}-other"
        self.node.create(self.manifest(other))
        self.node.wait_for_api_running(other)
        self.node.delete(other)
        self.node.wait_until_gone(other)

    def recover(self) -> None:
        """Now that nothing goes wrong, the node is ready, and the pod runs and ends as any other."""
        self.node.wait_until_ready()
        self.node.wait_for_condition("the bystander runs", lambda: self.node.container_ids(BYSTANDER))
        latest = self.node.history.latest(self.name)
        if latest is not None and latest.type != "DELETED" and not latest.json["metadata"].get("deletionTimestamp"):
            self.node.wait_for_api_running(self.name)
            self.delete()
        if latest is not None:
            self.node.wait_until_gone(self.name)

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

    def restart(self) -> None:
        self.node.stop()
        self.node.spawn()

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

    act: Callable[[Story], object]
    # The calls that go wrong are those about the case's pod alone; else all.
    own: bool = True
    # The pod runs before the calls go wrong.
    pod_runs: bool = False
    # A kubelet that begins and gets no answer to this call says so and ends, as Go's does, to be started again.
    ends_the_start: bool = False
    # The kubelet calls it with this configuration alone.
    config: Mapping[str, object] | None = None


def _nothing(story: Story) -> None:
    """For calls that the kubelet makes all the time."""


def _end_events(story: Story) -> None:
    """The kubelet subscribes again, and a pod has events."""
    story.node.runtime.end_events()
    story.create()


_AT_START = Trigger(Story.restart, own=False)
_ALWAYS = Trigger(_nothing, own=False)
_POD_STARTS = Trigger(Story.create)
_POD_ENDS = Trigger(Story.delete, pod_runs=True)


def _request(method: str, path: str, own: bool = False, config: Mapping[str, object] | None = None) -> Trigger:
    """A request to the kubelet's server; POD in the path is the pod's name."""
    return Trigger(lambda story: story.ask(method, path.replace("POD", story.name)), own, pod_runs=True, config=config)


TRIGGERS: Mapping[str, Trigger] = {
    "Version": Trigger(Story.restart, own=False, ends_the_start=True),
    "RuntimeConfig": _AT_START,
    "ListMetricDescriptors": _AT_START,
    "Status": _ALWAYS,
    "ListPodSandbox": _ALWAYS,
    "ListContainers": _ALWAYS,
    "ListImages": _AT_START,
    "ImageFsInfo": _ALWAYS,
    "GetContainerEvents": Trigger(_end_events, own=False, config={"featureGates": {"EventedPLEG": True}}),
    "RunPodSandbox": _POD_STARTS,
    "PodSandboxStatus": _POD_STARTS,
    "ImageStatus": Trigger(Story.create, own=False),
    "PullImage": Trigger(Story.create, own=False),
    "CreateContainer": _POD_STARTS,
    "StartContainer": _POD_STARTS,
    "ContainerStatus": _POD_STARTS,
    "ExecSync": _POD_STARTS,
    "StopContainer": _POD_ENDS,
    "StopPodSandbox": _POD_ENDS,
    "RemoveContainer": Trigger(Story.fail_twice, own=False, pod_runs=True),
    "UpdateContainerResources": Trigger(Story.resize, pod_runs=True),
    "ReopenContainerLog": Trigger(Story.fill_log, pod_runs=True),
    "Exec": _request("POST", "/exec/default/POD/main?command=ls&output=1", own=True),
    "Attach": _request("POST", "/attach/default/POD/main?output=1", own=True),
    "PortForward": _request("POST", "/portForward/default/POD?port=80", own=True),
    "CheckpointContainer": _request("POST", "/checkpoint/default/POD/main", own=True),
    "ListContainerStats": _request("GET", "/stats/summary", config={"featureGates": {}}),
    "ListPodSandboxStats": _request("GET", "/stats/summary"),
    "ListPodSandboxMetrics": _request("GET", "/metrics/cadvisor"),
    "UpdateRuntimeConfig": Trigger(Story.give_addresses, own=False),
}


@contextmanager
def node_with_bystander(folder: Path, cluster: Cluster, history: PodHistory) -> Iterator[ClusterNode]:
    """A kubelet on a runtime whose calls can go wrong, and a pod that has nothing to do with that."""
    with running(HastyKubelet(folder, "faulty", cluster, history, CONFIG)) as node:
        node.runtime.write_logs = True
        node.join()
        create_bystander(node)
        yield node


def create_bystander(node: ClusterNode) -> None:
    node.create(pod(BYSTANDER, sleeper()))
    node.wait_for_api_running(BYSTANDER)


def cases(*kinds: Kind) -> pytest.MarkDecorator:
    """Parametrize a test with all cases of these kinds."""
    found = [pytest.param(method, kind, id=f"{method}-{kind}") for method in TRIGGERS for kind in kinds]
    return pytest.mark.parametrize(("method", "kind"), found)
