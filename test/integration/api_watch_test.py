"""Test that the kubelet misses nothing when watches break, versions expire, or the API server is slow, busy or broken.

For a minute the API server breaks the watches of one node every second while its pods change. The other tests run
meanwhile, each on a second node of the same cluster.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.apiserver import Request
from framework.apiserver.cluster import Cluster
from framework.apiserver.faults import Filter
from framework.cluster_node import ClusterNode
from framework.pod_history import Version, assert_history_monotonic, assert_never_unready
from framework.pods import Pod, pod, sleeper

from pkg import golang

SHAKEN_PODS = 50
# These are, in seconds, the whole duration, the interval between broken watches, and the interval between changes.
SHAKEN_FOR = 60.0
CUT_EVERY = 1.0
CHANGE_EVERY = 0.15
# Each time this many changes have been made, the API server forgets all old versions.
COMPACT_EVERY = 100
SEED = 20240229

LABEL = "example.org/revision"


def user(node: ClusterNode) -> str:
    return f"system:node:{node.node}"


# --- A minute of broken watches ---------------------------------------------------------------------


@dataclass
class Wanted:
    """Describe the state that a pod must have at the end."""

    name: str
    uid: str
    revision: str = ""


class Shaker:
    """Change pods at random for a fixed time: change their labels, or delete and create them again."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.random = random.Random(SEED)
        self.wanted: list[Wanted] = []
        # `deleted` holds the UIDs of the deleted pods, and the grace period of each deletion.
        self.deleted: list[tuple[str, int | None]] = []
        self.cuts = 0
        # A thread holds this lock while the API server forgets old versions, and a test holds it to prevent that.
        self.memory = threading.Lock()
        self._stopped = threading.Event()
        self._thread = golang.go(self._run, name="shaker")
        self.error: BaseException | None = None

    def wait(self) -> None:
        self._thread.join()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        faults = self.node.cluster.faults
        try:
            with faults.cut_watches(every=CUT_EVERY, user=user(self.node)) as cut:
                self._change_pods()
            self.cuts = cut.hits
        except BaseException as err:  # The test raises the error again.
            self.error = err

    def _change_pods(self) -> None:
        self.wanted = [self._create(f"shaken-{number}") for number in range(SHAKEN_PODS)]
        ctx, cancel = golang.with_timeout(golang.background(), SHAKEN_FOR)
        count = 0
        while ctx.err() is None and not self._stopped.wait(CHANGE_EVERY):
            count += 1
            if count % COMPACT_EVERY == 0:
                with self.memory:
                    self.node.cluster.server.compact()
            self._change(self.random.randrange(SHAKEN_PODS), str(count))
        cancel()

    def _change(self, index: int, count: str) -> None:
        wanted = self.wanted[index]
        match self.random.choices(("label", "delete", "force"), (8, 1, 1))[0]:
            case "label":
                self.node.patch(wanted.name, {"metadata": {"labels": {LABEL: count}}})
                wanted.revision = count
            case "delete":
                self._delete(wanted, None)
                self.wanted[index] = self._create(f"{wanted.name.rpartition('.')[0] or wanted.name}.{count}")
            case "force":
                # Another pod gets the name at once.
                self._delete(wanted, 0)
                self.wanted[index] = self._create(wanted.name)

    def _create(self, name: str) -> Wanted:
        return Wanted(name, self.node.create(pod(name, sleeper(), grace=1)).uid)

    def _delete(self, wanted: Wanted, grace: int | None) -> None:
        self.deleted.append((wanted.uid, grace))
        self.node.delete(wanted.name, grace)


@pytest.fixture(scope="module", autouse=True)
def shaker(new_node: Callable[..., ClusterNode]) -> Iterator[Shaker]:
    node = new_node("shaken", {"maxPods": 2 * SHAKEN_PODS})
    node.join()
    shaker = Shaker(node)
    yield shaker
    shaker.stop()


# --- Tests during that minute -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(new_node: Callable[..., ClusterNode], shaker: Shaker) -> ClusterNode:
    node = new_node("node")
    node.join()
    return node


@pytest.fixture(scope="module")
def witness(node: ClusterNode) -> Version:
    """Return a running pod that nothing changes or disturbs."""
    node.create(pod("witness", sleeper()))
    return node.wait_for_api_running("witness")[0]


def assert_untouched(node: ClusterNode, witness: Version) -> None:
    """Check that the pod runs as before, and that no client wrote to it."""
    assert node.history.latest("witness") == witness
    assert node.container_ids("witness") == [witness.container_id()]
    assert node.calls("witness", "StopContainer", "StopPodSandbox", "RemoveContainer") == []


def rounds(node: ClusterNode) -> int:
    """Return how often the kubelet has listed all of its pods, because it could not continue its watch."""
    return len(node.logged("Listing and watching", 'reflector="config-api"'))


def test_what_happened_while_the_version_was_forgotten(node: ClusterNode, witness: Version) -> None:
    for name in ("relabelled", "deleted", "forced", "replaced"):
        node.create(pod(name, sleeper()))
    before = {each.name: each for each in node.wait_for_api_running("relabelled", "deleted", "forced", "replaced")}
    asked = rounds(node)

    with node.unseen():
        node.patch("relabelled", {"metadata": {"labels": {LABEL: "unseen"}}})
        node.delete("deleted")
        node.delete("forced", grace=0)
        node.delete("replaced", grace=0)
        new = node.create(pod("replaced", sleeper()))
        node.create(pod("created", sleeper()))
        # The kubelet never sees this pod.
        node.create(pod("brief", sleeper()))
        node.delete("brief", grace=0)

    node.wait_for_api_running("created")
    node.wait_for_api_pod(
        "replaced", "is running with its new UID", lambda found: found.uid == new.uid and found.running
    )
    node.wait_until_gone("deleted")
    node.wait_for_condition(
        "the containers of the forcibly deleted pod have ended", lambda: not node.container_ids("forced")
    )
    node.wait_for_condition(
        "the old incarnation's containers have ended", lambda: len(node.container_ids("replaced")) == 1
    )
    assert node.pods()["relabelled"].json["metadata"]["labels"] == {LABEL: "unseen"}
    assert node.container_ids("relabelled") == [before["relabelled"].container_id()]
    assert node.calls("brief") == []
    assert rounds(node) > asked
    assert_untouched(node, witness)
    for name in (*before, "created"):
        assert_history_monotonic(node.history.of(name))


def test_old_lists_neither_bring_back_nor_end_pods(node: ClusterNode, witness: Version, cluster: Cluster) -> None:
    """The kubelet accepts no list that is older than what it has already seen."""
    old = cluster.faults.version()
    node.create(pod("comes", sleeper()))
    node.create(pod("goes", sleeper()))
    node.wait_for_api_running("comes", "goes")
    node.delete("goes")
    node.wait_until_gone("goes")

    with cluster.faults.stale_lists(old, resource="pods", user=user(node)) as stale:
        with node.unseen():
            node.create(pod("comes-later", sleeper()))
        node.wait_for_api_running("comes-later")

    assert stale.hits == 0
    assert (len(node.container_ids("comes")), node.container_ids("goes")) == (1, [])
    assert len(node.calls("goes", "StartContainer")) == 1
    assert_untouched(node, witness)
    for name in ("comes", "goes", "comes-later"):
        assert_history_monotonic(node.history.of(name))


class Bookmarks:
    """Count the bookmarks that the API server has sent on a node's watch of pods."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._versions: list[int] = []

    def wrap(self, request: Request, events: Iterator[bytes]) -> Iterator[bytes]:
        for line in events:
            yield line
            if (request.resource, request.user.name) == ("pods", user(self._node)):
                event = json.loads(line)
                if event["type"] == "BOOKMARK":
                    self._versions.append(int(event["object"]["metadata"]["resourceVersion"]))

    def since(self, version: int) -> int:
        return sum(each >= version for each in self._versions)


def test_bookmarks_spare_the_kubelet_what_others_did(
    node: ClusterNode, witness: Version, cluster: Cluster, shaker: Shaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookmarks let the kubelet continue a watch from a recent version, although its own pods have not changed.

    The API server forgets old versions first.
    """
    bookmarks = Bookmarks(node)
    monkeypatch.setattr(cluster.faults, "wrap_stream", bookmarks.wrap)
    monkeypatch.setattr(cluster.server, "bookmark_interval", 0.1)
    with node.unseen():
        pass  # This breaks the watch, so that the kubelet watches again.
    node.create(pod("before-bookmark", sleeper()))
    node.wait_for_api_running("before-bookmark")
    with shaker.memory:
        asked = rounds(node)
        node.create(pod("elsewhere", sleeper(), nodeName="another-node"))
        changed = int(cluster.store.get("pods", "elsewhere", "default")["metadata"]["resourceVersion"])
        node.wait_for_condition("bookmarks", lambda: bookmarks.since(changed) > 5)

        old = watches_of_pods(node)
        with cluster.faults.hang(verb="watch", resource="pods", user=user(node)) as hang:
            cluster.faults.cut_watches(resource="pods", user=user(node))
            node.wait_for_condition("the kubelet watches again", lambda: hang.hits)
        # The server may still serve the old watch.
        (watch,) = node.wait_for_condition(
            "the kubelet's watch",
            lambda: [each for each in watches_of_pods(node) if all(each is not one for one in old)],
        )

    assert rounds(node) == asked
    assert int(watch.parameter("resourceVersion")) >= changed
    node.create(pod("after-bookmark", sleeper()))
    node.wait_for_api_running("after-bookmark")
    assert_untouched(node, witness)


def watches_of_pods(node: ClusterNode) -> list[Request]:
    """List the requests of the node's current watches of pods."""
    running = node.cluster.faults.watches
    return [each for each in running if (each.resource, each.user.name) == ("pods", user(node))]


def test_slow_api_server(node: ClusterNode, witness: Version, cluster: Cluster) -> None:
    with cluster.faults.slow(0.4, user=user(node)) as slow:
        node.create(pod("slow", sleeper()))
        node.wait_for_api_running("slow")
        node.delete("slow")
        node.wait_until_gone("slow")

    assert slow.hits
    assert_untouched(node, witness)
    assert_history_monotonic(node.history.of("slow"))


def test_busy_api_server(node: ClusterNode, witness: Version, cluster: Cluster) -> None:
    """The kubelet repeats a refused call after the time that the API server named, and writes nothing meanwhile."""
    only: Filter = {"verb": ("get", "patch", "delete"), "resource": "pods", "user": user(node), "times": 3}
    with cluster.faults.status(429, retry_after=1, **only) as busy:
        node.create(pod("busy", sleeper()))
        node.wait_for_api_running("busy")
    assert busy.hits == 3
    with cluster.faults.status(429, retry_after=1, **only) as busy:
        node.delete("busy")
        node.wait_until_gone("busy")

    assert busy.hits == 3
    assert_untouched(node, witness)
    assert_history_monotonic(node.history.of("busy"))


def test_broken_api_server(node: ClusterNode, witness: Version, cluster: Cluster) -> None:
    """The kubelet survives when all of its requests fail and when, in addition, its watches end."""
    with cluster.faults.status(500, user=user(node)) as broken:
        cluster.faults.cut_watches(user=user(node))
        node.create(pod("broken", sleeper()))
        node.wait_for_condition("errors", lambda: broken.hits >= 5)
        assert node.container_ids("witness") == [witness.container_id()]

    node.wait_for_api_running("broken")
    assert_untouched(node, witness)
    assert_history_monotonic(node.history.of("broken"))


# --- After the minute -------------------------------------------------------------------------------


def test_nothing_is_missed_over_cut_watches(shaker: Shaker) -> None:
    """Every pod is finally in its last wanted state, and none was disturbed before."""
    shaker.wait()
    node, wanted = shaker.node, {each.name: each for each in shaker.wanted}
    uids = {each.uid for each in shaker.wanted}

    def as_wanted() -> bool:
        shown = {name: (each.uid, _revision(each)) for name, each in node.pods().items()}
        return shown == {name: (each.uid, each.revision) for name, each in wanted.items()}

    node.wait_for_condition("the kubelet knows the last state of each pod", as_wanted)
    running = node.wait_for_api_running(*wanted)
    assert {each.uid for each in running} == uids
    node.wait_for_condition("nothing is left of the deleted pods", lambda: node.pod_directories() == uids)

    assert shaker.cuts >= SHAKEN_FOR / CUT_EVERY / 2
    assert {each.container_id() for each in running} == _running_containers(node)
    assert {each.restarts() for each in running} == {0}
    _assert_each_was_started_once(node)
    for uid in uids | {uid for uid, _ in shaker.deleted}:
        versions = [each for each in node.history.all() if each.uid == uid]
        assert_history_monotonic(versions)
        assert_never_unready(versions)
    for uid, grace in shaker.deleted:
        if grace is None:  # A pod whose deletion was forced cannot report its end.
            last = [each for each in node.history.all() if each.uid == uid][-1]
            assert (last.type, last.phase in ("Failed", "Succeeded")) == ("DELETED", True)


def _revision(pod: Pod) -> str:
    return str((pod.json["metadata"].get("labels") or {}).get(LABEL, ""))


def _running_containers(node: ClusterNode) -> set[str]:
    return {each.id for each in node.runtime.containers if each.state == runtimeapi.CONTAINER_RUNNING}


def _assert_each_was_started_once(node: ClusterNode) -> None:
    created = Counter(
        call.request.sandbox_config.metadata.uid for call in node.runtime.recorder.calls(["CreateContainer"])
    )
    assert set(created.values()) == {1}
