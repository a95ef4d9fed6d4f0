"""Measure the kubelet's cost with an API server: pods from the API server, their statuses, and an idle node.

The API server and the fake runtime are separate processes, so that the figures are the kubelet's alone. Times are from
a request of the benchmark until its watch shows the result.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from api_server import APIServer, api_server
from framework.containerd import Containerd
from framework.kubelet_process import KubeletProcess
from kubelet_bench import IMAGE, HollowKubelet, cpu_seconds, fake_runtime, process_status

from kubelet import config as kubeletconfig
from kubelet import types as kubetypes
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import watch
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes
from pkg.client_go.tools import cache, clientcmd, record

NODE = "bench"
NAMESPACE = "default"
# Pods need a DNS server in their configuration. None listens at this address.
CLUSTER_DNS = "10.96.0.10"
_TIMEOUT = 120.0
# Short operations are repeated this often. The result is the median.
_REPEATS = 5


def new_client(server: APIServer) -> kubernetes.Clientset:
    """Return a client without a rate limit."""
    config = clientcmd.build_config_from_flags("", str(server.admin_kubeconfig))
    config.qps = -1.0
    return kubernetes.new_for_config(config)


def new_pod(name: str) -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace=NAMESPACE),
        spec=v1.PodSpec(
            node_name=NODE,
            automount_service_account_token=False,
            termination_grace_period_seconds=1,
            containers=[v1.Container(name="c", image=IMAGE, command=["sleep", "100000"])],
        ),
    )


def is_ready(obj: v1.Pod | v1.Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in obj.status.conditions)


class Watched:
    """Hold the names of the objects that a watch has shown as ready, and of those that it has shown as deleted."""

    def __init__(self, client: kubernetes.ResourceClient[v1.Pod] | kubernetes.ResourceClient[v1.Node]) -> None:
        self._changed = threading.Condition()  # The condition guards the two sets.
        self._ready: set[str] = set()
        self._gone: set[str] = set()
        ctx, self._cancel = golang.with_cancel(golang.background())
        # Bookmarks keep a watch alive that shows no change for a long time.
        self._watch = client.watch(ctx, metav1.ListOptions(allow_watch_bookmarks=True))
        self._thread = golang.go(self._run, name="bench-watch")

    def stop(self) -> None:
        self._cancel()
        self._thread.join()

    def wait_ready(self, *names: str) -> None:
        self._wait(lambda: self._ready.issuperset(names), f"{names} ready")

    def wait_gone(self, *names: str) -> None:
        self._wait(lambda: self._gone.issuperset(names), f"{names} gone")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, _TIMEOUT):
                raise AssertionError(f"not within {_TIMEOUT:g} s: {what}")

    def _run(self) -> None:
        for event in self._watch.result_chan():
            with self._changed:
                if event.type == watch.DELETED:
                    self._gone.add(event.object.metadata.name)
                elif is_ready(event.object):
                    self._ready.add(event.object.metadata.name)
                self._changed.notify_all()


class Pods:
    """Start and delete pods of the benchmark on its node."""

    def __init__(self, client: kubernetes.Clientset) -> None:
        self._client = client.core_v1.pods(NAMESPACE)
        self._watched = Watched(self._client)

    def stop(self) -> None:
        self._watched.stop()

    def start(self, *names: str) -> float:
        """Create pods, and return the seconds from the first request until all are ready."""
        begin = time.monotonic()
        for name in names:
            self._client.create(golang.background(), new_pod(name))
        self._watched.wait_ready(*names)
        return time.monotonic() - begin

    def delete(self, *names: str) -> float:
        """Delete pods, and return the seconds from the first request until all are gone."""
        begin = time.monotonic()
        for name in names:
            self._client.delete(golang.background(), name)
        self._watched.wait_gone(*names)
        return time.monotonic() - begin


@contextmanager
def hollow_node() -> Iterator[tuple[APIServer, HollowKubelet, kubernetes.Clientset]]:
    """Run an API server, and yield it with a client and with a kubelet, which the caller starts."""
    with (
        tempfile.TemporaryDirectory(prefix="bench.") as name,
        api_server(Path(name)) as server,
        fake_runtime(Path(name)) as endpoint,
    ):
        directory = Path(name)
        flags = (
            f"--kubeconfig={server.node_kubeconfig(NODE)}",
            f"--cert-dir={directory}/pki",
            # Without this flag, the kubelet emits a warning for each pod.
            f"--cluster-dns={CLUSTER_DNS}",
        )
        kubelet = HollowKubelet(directory, endpoint, flags)
        client = new_client(server)
        try:
            yield server, kubelet, client
        finally:
            kubelet.stop()
            client.close()


def start_until_ready(kubelet: HollowKubelet, client: kubernetes.Clientset) -> float:
    """Return the seconds from the start of the process until the node is ready."""
    nodes = Watched(client.core_v1.nodes())
    begin = time.monotonic()
    kubelet.start()
    nodes.wait_ready(NODE)
    seconds = time.monotonic() - begin
    nodes.stop()
    return seconds


def start_to_node_ready_seconds() -> float:
    found = []
    for _ in range(_REPEATS):
        with hollow_node() as (_, kubelet, client):
            found.append(start_until_ready(kubelet, client))
    return statistics.median(found)


def pod_lives() -> dict[str, float]:
    """Return the seconds until a pod is ready and until it is gone, and the calls for it by verb and resource."""
    with hollow_node() as (server, kubelet, client):
        start_until_ready(kubelet, client)
        pods = Pods(client)
        # The node's own first requests must not count.
        golang.background().wait(3.0)
        started, deleted = [], []
        server.clear_calls()
        for number in range(_REPEATS):
            started.append(pods.start(f"pod-{number}"))
            golang.background().wait(1.5)
            deleted.append(pods.delete(f"pod-{number}"))
        golang.background().wait(2.0)
        calls = server.calls(NODE)
        pods.stop()
    figures = {"create to Ready": statistics.median(started), "delete to gone": statistics.median(deleted)}
    for call in ("get pods", "patch pods/status", "delete pods", "create events"):
        figures[call] = calls.pop(call, 0) / _REPEATS
    # The calls for the node's lease do not depend on pods.
    of_node = ("get nodes", "get leases", "create leases", "update leases")
    figures["others"] = sum(count for call, count in calls.items() if call not in of_node) / _REPEATS
    return figures


def burst(count: int = 100) -> dict[str, float]:
    """Return the seconds until pods that are created at once are ready and until they are gone, and the CPU seconds."""
    with hollow_node() as (_, kubelet, client):
        start_until_ready(kubelet, client)
        pods = Pods(client)
        names = [f"pod-{number:03}" for number in range(count)]
        cpu = cpu_seconds(kubelet.pid)
        figures = {"to Ready": pods.start(*names)}
        figures["to Ready, CPU"] = cpu_seconds(kubelet.pid) - cpu
        golang.background().wait(5.0)
        cpu = cpu_seconds(kubelet.pid)
        figures["to gone"] = pods.delete(*names)
        figures["to gone, CPU"] = cpu_seconds(kubelet.pid) - cpu
        pods.stop()
        return figures


def idle(count: int = 50, seconds: float = 60.0) -> dict[str, float]:
    """Return the cost of an idle kubelet, and its calls to the API server."""
    with hollow_node() as (server, kubelet, client):
        start_until_ready(kubelet, client)
        pods = Pods(client)
        pods.start(*(f"pod-{number:03}" for number in range(count)))
        pods.stop()
        golang.background().wait(15.0)
        server.clear_calls()
        begin, cpu = time.monotonic(), cpu_seconds(kubelet.pid)
        golang.background().wait(seconds)
        share = (cpu_seconds(kubelet.pid) - cpu) / (time.monotonic() - begin)
        calls = server.calls(NODE)
        leases = calls.pop("update leases", 0)
        return {
            "CPU": share * 60,
            "RSS": process_status(kubelet.pid, "VmRSS") / 1000,
            "threads": process_status(kubelet.pid, "Threads"),
            "leases": leases / seconds * 60,
            "others": sum(calls.values()) / seconds * 60,
        }


def source_milliseconds(count: int = 500, rounds: int = 20) -> dict[str, float]:
    """Return the CPU time of the API source for a list of unchanged pods, and for a change of one pod."""
    ctx, cancel = golang.with_cancel(golang.background())
    with tempfile.TemporaryDirectory(prefix="bench.") as directory, api_server(Path(directory)) as server:
        client = new_client(server)
        pods = client.core_v1.pods("")
        for number in range(count):
            client.core_v1.pods(NAMESPACE).create(ctx, new_pod(f"pod-{number:03}"))
        store = _pod_source(ctx)
        store.replace(pods.list(ctx).items, "1")
        begin = time.process_time()
        for _ in range(rounds):
            store.replace(pods.list(ctx).items, "1")
        relist = time.process_time() - begin
        changed = pods.list(ctx).items
        begin = time.process_time()
        for pod in changed[:rounds]:
            pod.status.message = "changed"
            store.update(pod)
        change = time.process_time() - begin
        client.close()
    cancel()
    return {"relist": relist / rounds * 1000, "change": change / rounds * 1000}


class _NoObserver:
    def observed_pod_on_watch(self, pod: v1.Pod, when: object) -> None:
        pass


def _pod_source(ctx: golang.Context) -> cache.UndeltaStore[v1.Pod]:
    """Return the store to which a reflector writes.

    The store passes the pods to a merge of the sources, and a consumer receives the updates.
    """
    mode = kubeletconfig.POD_CONFIG_NOTIFICATION_INCREMENTAL
    pod_config = kubeletconfig.PodConfig(mode, record.StandaloneRecorder(), _NoObserver())
    golang.go(lambda: [None for _ in pod_config.updates()], name="bench-updates")
    channel = pod_config.channel(ctx, kubetypes.APISERVER_SOURCE)

    def send(pods: list[v1.Pod]) -> None:
        channel.send(kubetypes.PodUpdate(list(pods), kubetypes.SET, kubetypes.APISERVER_SOURCE), ctx)

    return cache.UndeltaStore(send, cache.meta_namespace_key_func)


def on_containerd(count: int = 30) -> dict[str, float]:
    """Return the seconds until pods on a containerd are ready and gone: for one pod, and for `count` pods at once."""
    with tempfile.TemporaryDirectory(prefix="bench.") as name, api_server(Path(name)) as server:
        directory = Path(name)
        containerd, client = Containerd(directory), new_client(server)
        kubelet: KubeletProcess | None = None
        try:
            containerd.start()
            containerd.import_images()
            config = {
                "cgroupRoot": containerd.cgroup_root,
                "podLogsDir": str(directory / "pod-logs"),
                "clusterDNS": [CLUSTER_DNS],
            }
            flags = {"kubeconfig": server.node_kubeconfig(NODE), "cert-dir": directory / "pki", "v": 2}
            kubelet = KubeletProcess(directory, NODE, containerd.endpoint, config, flags)
            nodes, pods = Watched(client.core_v1.nodes()), Pods(client)
            begin = time.monotonic()
            kubelet.spawn()
            nodes.wait_ready(NODE)
            figures = {"start to node Ready": time.monotonic() - begin}
            nodes.stop()
            singles = [(pods.start(f"one-{i}"), pods.delete(f"one-{i}")) for i in range(_REPEATS)]
            figures["create to Ready"] = statistics.median(started for started, _ in singles)
            figures["delete to gone"] = statistics.median(deleted for _, deleted in singles)
            names = [f"pod-{number:03}" for number in range(count)]
            cpu = cpu_seconds(kubelet.pid)
            figures["burst to Ready"] = pods.start(*names)
            figures["burst to Ready, CPU"] = cpu_seconds(kubelet.pid) - cpu
            figures["burst to gone"] = pods.delete(*names)
            pods.stop()
            return figures
        finally:
            if kubelet is not None:
                kubelet.kill()
            client.close()
            containerd.clean()
