"""Run a kubelet with a bystander pod, attack the kubelet, and measure the result."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from framework.apiserver.cluster import Cluster, Options
from framework.cluster_node import ClusterMember, ClusterNode, ContainerdNode
from framework.containerd import Containerd, new_run_dir
from framework.hostile import client, pods
from framework.hostile.harm import BYSTANDER, Observer, Seen, bystander, server_config
from framework.log_followers import line
from framework.pod_history import PodHistory
from framework.pods import pod, shell, sleeper
from framework.program import Program
from pkg import golang

NODE = "attacked"
# MAX_GROWTH is the number of MiB by which an attack may increase the kubelet's memory.
MAX_GROWTH = 64.0
_END_TIMEOUT = 30.0
# Without its own cgroup, the kernel gives each session the same share of the processors. Each container's shim has its
# own session, so the kubelet would get a fortieth or less. On a real node the service manager gives it a quarter.
_WITH_A_SHARE = ("sh", "-c", 'test ! -w /proc/self/autogroup || echo -10 > /proc/self/autogroup; exec "$@"', "share")
# These are the size of the large logs in bytes, and the seconds between two lines of the growing log.
_LARGE_LOG = 60 << 20
_LINE_PERIOD = 0.001
_PART = b"2026-01-02T03:04:05.000000000Z stdout P " + b"x" * 16_000 + b"\n"


@dataclass(frozen=True)
class Times:
    """Hold the number of seconds for which a node is watched before, during and after the attack."""

    calm: float
    attack: float
    settling: float


@dataclass(frozen=True)
class Harm:
    """Hold the measurements before, during and after the attack.

    The other fields are its effects on the bystander and the counts of the attacker's actions.
    """

    calm: Seen
    attacked: Seen
    after: Seen
    restarts: int
    failed_probes: int
    times_not_ready: int
    done: Mapping[str, int]

    @property
    def growth(self) -> float:
        """Return the growth of the kubelet's memory in MiB."""
        return self.after.memory - self.calm.memory

    @property
    def peak_growth(self) -> float:
        return max(self.attacked.peak, self.after.peak) - self.calm.memory

    def assert_harmless(self) -> None:
        """Check that the attack has done no harm. Times are not checked because they depend on the machine."""
        assert self.done, "the attacker did nothing"
        assert (self.restarts, self.failed_probes, self.times_not_ready) == (0, 0, 0), self
        assert self.growth <= MAX_GROWTH, self


def by_pods(times: Times) -> Harm:
    """Attack with pods on a containerd. This needs root and the programs that hack/containerd needs."""
    with _containerd_node() as node:
        server = shell("httpd -p 8080 -h /etc; echo begun; sleep 100000")
        get = {"httpGet": {"port": 8080, "path": "/passwd"}}
        node.create(bystander(server, {"exec": {"command": ["true"]}}, get))
        node.wait_for_api_running(BYSTANDER)
        return _attacked(node, times, lambda: _pods(node))


def by_client(kind: str, times: Times) -> Harm:
    """Attack with a client of the kubelet's port. Its kind is "anonymous" or "logs"."""
    with _hollow_node() as node:
        names = ("large", "parts", "busy")
        for name in names:
            node.create(pod(name, sleeper()))
        node.create(bystander(sleeper(), {"exec": {"command": ["true"]}}))
        node.wait_for_api_running(BYSTANDER, *names)
        with _logs(node):
            targets = [f"/containerLogs/default/{name}/main" for name in names]
            return _attacked(node, times, lambda: _client(node, kind, targets if kind == "logs" else []))


def _attacked(
    node: ClusterMember, times: Times, attack: Callable[[], AbstractContextManager[Mapping[str, int]]]
) -> Harm:
    observer = Observer(node)
    calm = observer.watch(times.calm)
    with attack() as done:
        attacked = observer.watch(times.attack)
    after = observer.watch(times.settling)
    return Harm(calm, attacked, after, observer.restarts(), observer.failed_probes(), observer.times_not_ready(), done)


@contextmanager
def _pods(node: ClusterMember) -> Iterator[Mapping[str, int]]:
    with pods.HostilePods(node) as attacker:
        yield attacker.ran


@contextmanager
def _client(node: ClusterNode, kind: str, targets: Sequence[str]) -> Iterator[Mapping[str, int]]:
    """Run a client, and yield the counts of its actions, which are filled in at the end."""
    directory = node.folder / "attacker"
    node.cluster.authority.client_pair(client.LOG_READER).write(directory, client.LOG_READER)
    for suffix in ("crt", "key"):
        shutil.copy(node.cluster.directory / f"{client.API_SERVER}.{suffix}", directory)
    arguments = [kind, str(node.port), str(directory), *targets]
    program = Program("framework.hostile.client", arguments, directory / "client.log")
    done: dict[str, int] = {}
    program.start()
    try:
        yield done
    finally:
        program.end(signal.SIGTERM, _END_TIMEOUT)
        done.update(json.loads((directory / client.REPORT).read_text()))


@contextmanager
def _containerd_node() -> Iterator[ContainerdNode]:
    run_dir = new_run_dir()
    with ExitStack() as stack:
        containerd = Containerd(run_dir)
        stack.callback(containerd.clean)
        containerd.start()
        containerd.import_images()
        cluster, history = _cluster(stack, run_dir)
        node = ContainerdNode(NODE, containerd, cluster, history, server_config(cluster), flags={"v": 2})
        stack.callback(node.end)
        node.within = [*_WITH_A_SHARE]
        node.join()
        yield node


@contextmanager
def _hollow_node() -> Iterator[ClusterNode]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile.")))
        cluster, history = _cluster(stack, folder)
        node = ClusterNode(folder, NODE, cluster, history, server_config(cluster), {"v": 2})
        node.runtime.recorder.on = False
        stack.callback(node.end)
        node.within = [*_WITH_A_SHARE]
        node.server.start()
        node.join()
        yield node


def _cluster(stack: ExitStack, folder: Path) -> tuple[Cluster, PodHistory]:
    cluster = stack.enter_context(Cluster(folder / "cluster", Options(node_grace_period=None)))
    history = PodHistory(cluster.store)
    stack.callback(history.stop)
    return cluster, history


@contextmanager
def _logs(node: ClusterNode) -> Iterator[None]:
    """Write the pods' logs: a large one, one with a single endless line, and one that grows."""
    paths = {each.sandbox.config.metadata.name: Path(each.status.log_path) for each in node.runtime.containers}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(line(0))
    for name, some in (("large", b"".join(line(number) for number in range(1000))), ("parts", _PART)):
        with paths[name].open("ab") as log:
            for _ in range(_LARGE_LOG // len(some)):
                log.write(some)
    ending = threading.Event()
    thread = golang.go(_grow, paths["busy"], ending, name="growing-log")
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _grow(path: Path, ending: threading.Event) -> None:
    with path.open("ab", buffering=0) as log:
        number = 0
        while not ending.wait(_LINE_PERIOD):
            number += 1
            log.write(line(number))
