"""Test that pods keep running while the API server is away or silent, and that the kubelet reports everything later."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from framework.apiserver import errors
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode
from framework.pod_history import PodHistory, Version, assert_history_monotonic, assert_never_unready
from framework.pods import pod, sleeper
from framework.waiting import wait_for

from pkg import golang

# `OUTAGE` is the length of the long outage, in seconds.
OUTAGE = 60.0

# The kubelet creates a missing mirror pod at the next sync of its static pod.
SYNCS_OFTEN = {"syncFrequency": "5s"}

NewNode = Callable[..., ClusterNode]


# --- The long outage --------------------------------------------------------------------------------


@dataclasses.dataclass
class Absence:
    """Represent an outage in which the API server's socket and all connections are closed.

    Tests still write to the server's store, as if they reached the cluster through another server.
    """

    node: ClusterNode
    # These values must be the same after the outage: the running containers, and the time at which the node became
    # ready.
    containers: dict[str, list[str]]
    ready_since: str
    died: str
    before: PodHistory
    ends: float

    def end(self) -> None:
        """Wait until the minute is over, and open the socket again.

        A new history begins here with the last state before the end of the outage.
        """
        wait_for("a minute is over", lambda: time.monotonic() >= self.ends, OUTAGE + 1)
        self.node.history = PodHistory(self.node.cluster.store)
        self.node.cluster.server.start()

    def versions(self) -> list[Version]:
        return [*self.before.all(), *self.node.history.all()]


@pytest.fixture(scope="module")
def absence(cluster: Cluster, history: PodHistory, new_node: NewNode) -> Iterator[Absence]:
    """Yield an outage that begins while one pod is starting and another is terminating."""
    node = new_node("outage", SYNCS_OFTEN)
    node.write(pod("static-stays", sleeper()))
    node.write(pod("static-goes", sleeper()))
    node.join()
    for name in ("stays", "dies", "terminates", "deleted-meanwhile"):
        node.create(pod(name, sleeper()))
    mirrors = ("static-stays-outage", "static-goes-outage")
    node.wait_for_api_running("stays", "dies", "terminates", "deleted-meanwhile", *mirrors)
    stay = ("stays", "static-stays-outage")
    stays = {name: node.container_ids(name) for name in stay}
    (dies,) = node.container_ids("dies")
    starting, stopping = node.hang("RunPodSandbox", "starts"), node.hang("StopContainer", "terminates")
    node.create(pod("starts", sleeper()))
    node.delete("terminates")
    node.wait_for_call_in(starting)
    node.wait_for_call_in(stopping)
    ready_since = transition_of_ready(node)

    cluster.server.stop()

    absence = Absence(node, stays, ready_since, dies, history, time.monotonic() + OUTAGE)
    node.runtime.faults.remove(starting)
    node.runtime.faults.remove(stopping)
    yield absence
    if node.history is not history:
        node.history.stop()


def test_pods_live_on_without_api_server(absence: Absence, cluster: Cluster) -> None:
    node = absence.node
    node.runtime.end_container(absence.died, 3)
    node.write(pod("static-comes", sleeper()))
    node.remove("static-goes")
    cluster.store.delete("pods", "deleted-meanwhile", "default")
    node.create(pod("made-meanwhile", sleeper()))

    node.wait_for_condition("the pod that was starting runs", lambda: node.container_ids("starts"))
    node.wait_for_condition("the terminating pod has ended", lambda: pod_is_gone(node, "terminates"))
    node.wait_for_condition("the new static pod runs", lambda: node.container_ids("static-comes-outage"))
    node.wait_for_condition("the old static pod has ended", lambda: pod_is_gone(node, "static-goes-outage"))
    wait_for_next_container(node, "dies", absence.died)
    assert not node.container_ids("made-meanwhile")
    assert node.container_ids("deleted-meanwhile")


# Other API servers stop responding during this outage.


class Link:
    """Forward connections to an API server. A silent link passes no data, and neither end notices."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._carries = threading.Event()
        self._carries.set()
        # The lock guards the sockets and the threads.
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads = [golang.go(self._accept, name="link")]

    def silence(self) -> None:
        self._carries.clear()

    def mend(self, *, lost: bool) -> None:
        """Forward data again, including the delayed data. If `lost` is true, close all connections instead."""
        if lost:
            self._cut()
        self._carries.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.mend(lost=True)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    self._threads.append(golang.go(self._carry, one, other, name="link-carry"))

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._carries.wait()
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _cut(self) -> None:
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


@dataclasses.dataclass
class Linked:
    """Hold a node that reaches its cluster over a link."""

    cluster: Cluster
    link: Link
    node: ClusterNode


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    folder = tmp_path_factory.mktemp("linked")
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(folder / "cluster"))
        history = PodHistory(cluster.store)
        stack.callback(history.stop)
        link = Link(cluster.server.port)
        stack.callback(link.close)
        kubeconfig = json.loads(cluster.node_kubeconfig("linked").read_bytes())
        kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{link.port}"
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig))
        # The timeout of a heartbeat's request is as long as the interval between heartbeats.
        often = {"nodeStatusUpdateFrequency": "2s", "nodeStatusReportFrequency": "2s", **SYNCS_OFTEN}
        node = ClusterNode(folder, "linked", cluster, history, often, {"kubeconfig": path})
        stack.callback(node.end)
        node.server.start()
        node.join()
        node.create(pod("stays", sleeper()))
        node.wait_for_api_running("stays")
        yield Linked(cluster, link, node)


@pytest.mark.parametrize("lost", [False, True], ids=["late", "lost"])
def test_api_server_falls_silent(linked: Linked, lost: bool) -> None:
    """The kubelet keeps managing its pods while calls hang and watches deliver nothing."""
    node, stays = linked.node, linked.node.container_ids("stays")
    names = [f"{what}-{lost}".lower() for what in ("dies", "deleted", "made", "static-comes", "static-goes")]
    dies, deleted, made, comes, goes = names
    node.write(pod(goes, sleeper()))
    node.create(pod(dies, sleeper()))
    node.create(pod(deleted, sleeper()))
    node.wait_for_api_running(dies, deleted, f"{goes}-linked")
    (died,) = node.container_ids(dies)
    timeouts = len(node.logged("Error updating node status"))

    linked.link.silence()

    node.runtime.end_container(died, 3)
    node.write(pod(comes, sleeper()))
    node.remove(goes)
    node.delete(deleted)
    node.create(pod(made, sleeper()))
    node.wait_for_condition("the new static pod runs", lambda: node.container_ids(f"{comes}-linked"))
    node.wait_for_condition("the old static pod has ended", lambda: pod_is_gone(node, f"{goes}-linked"))
    again = wait_for_next_container(node, dies, died)
    node.wait_for_log("Error updating node status", count=timeouts + 1)
    node.runtime.end_container(again, 4)
    wait_for_next_container(node, dies, again, timeout=60)

    linked.link.mend(lost=lost)

    node.wait_for_api_running("stays", made, f"{comes}-linked")
    node.wait_for_api_pod(dies, "restarted", lambda found: found.restarts() == 2 and found.ready)
    node.wait_until_gone(deleted)
    node.wait_until_gone(f"{goes}-linked")
    for name, reason in ((f"{goes}-linked", "Killing"), (f"{comes}-linked", "Started"), (made, "Started")):
        node.wait_for_api_event(name, reason)
    assert node.container_ids("stays") == stays
    assert_histories([each for each in node.history.all() if each.name != dies], "stays")


def test_api_server_is_slow(linked: Linked) -> None:
    """Pods start and end while every response of the API server takes a second."""
    node, stays = linked.node, linked.node.container_ids("stays")
    names = [f"slow-{number}" for number in range(5)]
    with linked.cluster.faults.slow(1.0, user="system:node:linked"):
        for name in names:
            node.create(pod(name, sleeper()))
        node.wait_for_condition("all pods run", lambda: all(node.container_ids(name) for name in names))
        node.wait_for_api_running(*names)
        for name in names:
            node.delete(name)
        for name in names:
            node.wait_until_gone(name)
        assert node.ready()
    assert node.container_ids("stays") == stays
    assert_histories(node.history.all(), "stays")


# The API server of the long outage comes back.


def test_what_happened_meanwhile_is_told_and_caught_up_with(absence: Absence, cluster: Cluster) -> None:
    node = absence.node
    (again,) = node.container_ids("dies")
    node.runtime.end_container(again, 4)
    wait_for_next_container(node, "dies", again, timeout=60)

    absence.end()

    # The kubelet retries its watches after up to a minute.
    new = ("starts", "made-meanwhile", "static-comes-outage")
    node.wait_for_api_running(*absence.containers, *new, timeout=90)
    restarted = node.wait_for_api_pod("dies", "restarted", lambda found: found.restarts() == 2 and found.ready)
    assert restarted.state(which="lastState")["exitCode"] == 4
    for name in ("terminates", "deleted-meanwhile", "static-goes-outage"):
        wait_until_forgotten(node, name)
    for name, reason in (
        ("starts", "Started"),
        ("terminates", "Killing"),
        ("dies", "Started"),
        ("static-comes-outage", "Started"),
        ("static-goes-outage", "Killing"),
        ("made-meanwhile", "Started"),
    ):
        node.wait_for_api_event(name, reason, timeout=60)
    node.wait_for_condition("the lease is renewed", lambda: lease_version(cluster, "outage") > restarted.version)
    assert {name: node.container_ids(name) for name in absence.containers} == absence.containers
    assert transition_of_ready(node) == absence.ready_since
    # The restarted pod was unready for a while, which the kubelet never reported to the API server.
    assert_histories([each for each in absence.versions() if each.name != "dies"], *absence.containers)


def transition_of_ready(node: ClusterNode) -> str:
    """Return the time at which the node became ready."""
    (found,) = (each for each in (node.api_object() or {})["status"]["conditions"] if each["type"] == "Ready")
    assert found["status"] == "True"
    return str(found["lastTransitionTime"])


def pod_is_gone(node: ClusterNode, name: str) -> bool:
    """Report whether the runtime runs no container of the pod."""
    return not node.container_ids(name)


def wait_until_forgotten(node: ClusterNode, name: str) -> None:
    """Wait until the API server no longer has the pod. By then the runtime must not have it either."""
    node.wait_for_condition(f"{name} is gone", lambda: node.history.latest(name) is None)
    assert pod_is_gone(node, name)


def wait_for_next_container(node: ClusterNode, name: str, last: str, timeout: float = 30) -> str:
    """Wait until another container of the pod runs, and return its ID."""
    (found,) = node.wait_for_condition(
        f"{name} runs again", lambda: [each for each in node.container_ids(name) if each != last], timeout
    )
    return found


def lease_version(cluster: Cluster, node: str) -> int:
    """Return the version of the node's lease, or 0 if there is none.

    A node whose first attempt fails creates its lease at the next attempt, 10 s later.
    """
    try:
        lease = cluster.store.get("leases", node, "kube-node-lease")
    except errors.ApiError as err:
        assert err.code == 404
        return 0
    return int(lease["metadata"]["resourceVersion"])


def assert_histories(versions: list[Version], *undisturbed: str) -> None:
    """Check that no pod's status moved backwards, and that the undisturbed pods were never unready."""
    assert_history_monotonic(versions)
    for name in undisturbed:
        assert_never_unready([each for each in versions if each.name == name])
