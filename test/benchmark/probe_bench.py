"""Measure the kubelet's cost of probes, and the probes' lateness.

The fake runtime, which answers exec probes, and the servers for the other probes are separate processes.
"""

from __future__ import annotations

import datetime
import http.server
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import api_bench
from framework.waiting import wait_for
from kubelet_bench import IMAGE, HollowKubelet, cpu_seconds, fake_runtime, process_status

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import watch
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes

_PERIOD = 1.0
_KILLING = re.compile(r'^I(\d{4} [\d:.]+) .*"Killing container with a grace period"', re.MULTILINE)
_LATENESS = "kubelet_probe_lateness_seconds"


class Servers:
    """Control the process of probe_servers.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("probe_servers.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.http_port, self.grpc_port = json.loads(self._process.stdout.readline())

    def arrivals(self) -> dict[str, list[float]]:
        """Return the arrivals of HTTP probes since the last call of this method, in monotonic seconds, by path."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self._process.stdout.readline())
        return found

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def new_pod(number: int, servers: Servers | None) -> dict[str, Any]:
    """Return a pod of two containers with three probes: exec, HTTP, and TCP or gRPC in turn.

    If `servers` is None, the pod has no probe.
    """
    first: dict[str, Any] = {"name": "c", "image": IMAGE, "command": ["sleep", "100000"]}
    second = {**first, "name": "d"}
    if servers is not None:
        common = {"periodSeconds": int(_PERIOD), "timeoutSeconds": 1}
        first["livenessProbe"] = {**common, "exec": {"command": ["true"]}}
        first["readinessProbe"] = {**common, "httpGet": {"path": f"/{number}", "port": servers.http_port}}
        third: dict[str, Any] = {"tcpSocket": {"port": servers.http_port}}
        if number % 2:
            third = {"grpc": {"port": servers.grpc_port}}
        second["livenessProbe"] = {**common, **third}
    return manifest(number, [first, second])


def crowded_pod(number: int, servers: Servers) -> dict[str, Any]:
    """Return a pod of ten containers, each with a liveness and a readiness probe that run every ten seconds."""
    common = {"periodSeconds": 10, "timeoutSeconds": 1}
    handlers: list[dict[str, Any]] = [
        {"exec": {"command": ["true"]}},
        {"httpGet": {"path": f"/{number}", "port": servers.http_port}},
        {"tcpSocket": {"port": servers.http_port}},
    ]
    containers = [
        {
            "name": f"c{index}",
            "image": IMAGE,
            "command": ["sleep", "100000"],
            "livenessProbe": {**common, **handlers[index % 3]},
            "readinessProbe": {**common, **handlers[(index + 1) % 3]},
        }
        for index in range(10)
    ]
    return manifest(number, containers)


def manifest(number: int, containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:03}"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": containers},
    }


@contextmanager
def hollow_kubelet(
    pods: int, servers: Servers | None, new_pod: Callable[[int, Any], dict[str, Any]] = new_pod
) -> Iterator[HollowKubelet]:
    """Run a kubelet, and yield it when its pods have been ready for some seconds."""
    with tempfile.TemporaryDirectory(prefix="bench.") as directory, fake_runtime(Path(directory)) as endpoint:
        kubelet = HollowKubelet(Path(directory), endpoint, ["--max-pods=1000"])
        kubelet.start()
        try:
            for number in range(pods):
                unfinished = kubelet.manifests / f".{number:03}.json"
                unfinished.write_text(json.dumps(new_pod(number, servers)))
                unfinished.rename(kubelet.manifests / f"{number:03}.json")
            wait_for(f"{pods} ready pods", lambda: ready(kubelet) == pods, 180, lambda: ready(kubelet))
            golang.background().wait(5.0)
            yield kubelet
        finally:
            kubelet.stop()


def ready(kubelet: HollowKubelet) -> int:
    """Return the number of ready pods. Raise AssertionError with the end of the log if the kubelet has ended."""
    assert kubelet.process.poll() is None, kubelet.log.read_text()[-2000:]
    try:
        pods: list[Any] = kubelet.pods()
    except OSError:
        return 0
    return sum(
        any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
        for pod in pods
    )


def lateness_buckets(kubelet: HollowKubelet) -> dict[float, float]:
    """Return the numbers of probes since the kubelet's start that began at most this many seconds late."""
    with urllib.request.urlopen(f"http://127.0.0.1:{kubelet.read_only_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found: dict[float, float] = {}
    for line in lines:
        if line.startswith(f"{_LATENESS}_bucket"):
            bound = float(line.split('le="')[1].split('"')[0])
            found[bound] = found.get(bound, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


def quantile(share: float, buckets: dict[float, float]) -> float:
    """Return a quantile as the histogram_quantile of Prometheus does."""
    bounds = sorted(buckets)
    rank, low, below = share * buckets[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            return low if bound == float("inf") else low + (bound - low) * (rank - below) / (buckets[bound] - below)
        low, below = bound, buckets[bound]
    return low


def gaps(arrivals: dict[str, list[float]]) -> list[float]:
    """Return, sorted, by how much the intervals between a pod's probes differ from the period."""
    return sorted(abs(b - a - _PERIOD) for times in arrivals.values() for a, b in itertools.pairwise(times))


def cpu_share(pid: int, seconds: float) -> float:
    begin, cpu = time.monotonic(), cpu_seconds(pid)
    golang.background().wait(seconds)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - begin)


def probing(pods: int = 200, seconds: float = 30.0) -> dict[str, float]:
    """Measure three probes a second for each pod, and compare with the same pods without probes."""
    with hollow_kubelet(pods, None) as kubelet:
        idle = cpu_share(kubelet.pid, seconds)
        idle_rss = process_status(kubelet.pid, "VmRSS") / 1000
        idle_threads = process_status(kubelet.pid, "Threads")
    servers = Servers()
    try:
        with hollow_kubelet(pods, servers) as kubelet:
            servers.arrivals()
            before, begin = lateness_buckets(kubelet), time.monotonic()
            share = cpu_share(kubelet.pid, seconds)
            arrivals, elapsed = servers.arrivals(), time.monotonic() - begin
            after = lateness_buckets(kubelet)
            buckets = {bound: after[bound] - before[bound] for bound in after}
            found = gaps(arrivals)
            return {
                "begun": buckets[float("inf")] / elapsed,
                "by HTTP, as they arrive": sum(map(len, arrivals.values())) / elapsed,
                "cores": share,
                "cores without probes": idle,
                "RSS": process_status(kubelet.pid, "VmRSS") / 1000,
                "RSS without probes": idle_rss,
                "threads": process_status(kubelet.pid, "Threads"),
                "threads without probes": idle_threads,
                "late, p50": quantile(0.5, buckets) * 1000,
                "late, p99": quantile(0.99, buckets) * 1000,
                "gaps off the period, p50": found[len(found) // 2] * 1000,
                "gaps off the period, p99": found[len(found) * 99 // 100] * 1000,
            }
    finally:
        servers.stop()


def crowd(pods: int = 250, seconds: float = 30.0) -> dict[str, float]:
    """Measure a node with 5,000 probes, which run 500 times a second."""
    servers = Servers()
    try:
        with hollow_kubelet(pods, servers, crowded_pod) as kubelet:
            before, begin = lateness_buckets(kubelet), time.monotonic()
            share = cpu_share(kubelet.pid, seconds)
            after, elapsed = lateness_buckets(kubelet), time.monotonic() - begin
            buckets = {bound: after[bound] - before[bound] for bound in after}
            return {
                "begun": buckets[float("inf")] / elapsed,
                "cores": share,
                "RSS": process_status(kubelet.pid, "VmRSS") / 1000,
                "threads": process_status(kubelet.pid, "Threads"),
                "late, p50": quantile(0.5, buckets) * 1000,
                "late, p99": quantile(0.99, buckets) * 1000,
            }
    finally:
        servers.stop()


class Patient(http.server.ThreadingHTTPServer):
    """Serve a container's health over HTTP.

    The health can be switched. The server records the first response after a switch.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self._lock = threading.Condition()  # The condition guards the two fields below.
        self._healthy = True
        self._answered: float | None = None
        super().__init__(("0.0.0.0", 0), _PatientHandler)
        self._thread = golang.go(self.serve_forever, 0.05, name="bench-patient")

    def switch(self, healthy: bool) -> float:
        """Switch the health, and return the monotonic time at which the first probe got the new response."""
        with self._lock:
            self._healthy, self._answered = healthy, None
            assert self._lock.wait_for(lambda: self._answered is not None, 10)
            assert self._answered is not None
            return self._answered

    def answer(self) -> int:
        """Return the status code of the next response."""
        with self._lock:
            return 200 if self._healthy else 500

    def note(self, status: int) -> None:
        """Record that a response has been sent."""
        with self._lock:
            if self._answered is None and (status == 200) == self._healthy:
                self._answered = time.monotonic()
                self._lock.notify_all()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _PatientHandler(http.server.BaseHTTPRequestHandler):
    server: Patient

    def do_GET(self) -> None:
        status = self.server.answer()
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.note(status)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Latest:
    """Hold the newest version of each pod that a watch has shown."""

    def __init__(self, client: kubernetes.Clientset) -> None:
        self._changed = threading.Condition()  # The condition guards _pods.
        self._pods: dict[str, v1.Pod] = {}
        ctx, self._cancel = golang.with_cancel(golang.background())
        # Bookmarks keep a watch alive that shows no change for a long time.
        options = metav1.ListOptions(allow_watch_bookmarks=True)
        self._watch = client.core_v1.pods(api_bench.NAMESPACE).watch(ctx, options)
        self._thread = golang.go(self._run, name="bench-watch")

    def stop(self) -> None:
        self._cancel()
        self._thread.join()

    def wait(self, name: str, condition: Callable[[v1.Pod], bool]) -> float:
        """Wait for a version that meets the condition, and return the monotonic time of its arrival."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self._pods and condition(self._pods[name]), 30)
            return time.monotonic()

    def wait_gone(self, name: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: name not in self._pods, 30)

    def _run(self) -> None:
        for event in self._watch.result_chan():
            with self._changed:
                if event.type == watch.DELETED:
                    self._pods.pop(event.object.metadata.name, None)
                elif event.type != watch.BOOKMARK:
                    self._pods[event.object.metadata.name] = event.object
                self._changed.notify_all()


def reactions(rounds: int = 10) -> dict[str, float]:
    """Return the seconds from a probe's response until the API server shows its effect, on an otherwise idle node."""
    with api_bench.hollow_node() as (_, kubelet, client):
        api_bench.start_until_ready(kubelet, client)
        patient, latest = Patient(), Latest(client)
        try:
            found = readiness_reactions(patient, latest, client, rounds)
            found |= liveness_reactions(patient, latest, client, kubelet, rounds)
            return found
        finally:
            latest.stop()
            patient.stop()


def probed_pod(name: str, patient: Patient) -> v1.Pod:
    """Return a pod with the kind of probe that the pod's name contains."""
    pod = api_bench.new_pod(name)
    action = v1.HTTPGetAction(path="/", port=patient.server_port)
    probe = v1.Probe(http_get=action, period_seconds=1, timeout_seconds=1, failure_threshold=1)
    pod.spec.containers[0].readiness_probe = probe if "readiness" in name else None
    pod.spec.containers[0].liveness_probe = probe if "liveness" in name else None
    return pod


def readiness_reactions(
    patient: Patient, latest: Latest, client: kubernetes.Clientset, rounds: int
) -> dict[str, float]:
    """Measure the time from a readiness probe's changed response to the change of the pod's condition."""
    name = "readiness"
    client.core_v1.pods(api_bench.NAMESPACE).create(golang.background(), probed_pod(name, patient))
    latest.wait(name, api_bench.is_ready)
    found = []
    for number in range(2 * rounds):
        golang.background().wait(random.uniform(0.5, 1.5))
        healthy = bool(number % 2)
        answered = patient.switch(healthy)
        found.append(latest.wait(name, api_bench.is_ready if healthy else is_not_ready) - answered)
    client.core_v1.pods(api_bench.NAMESPACE).delete(golang.background(), name)
    return {"readiness to API, median": statistics.median(found), "readiness to API, longest": max(found)}


def is_not_ready(pod: v1.Pod) -> bool:
    return not api_bench.is_ready(pod)


def liveness_reactions(
    patient: Patient, latest: Latest, client: kubernetes.Clientset, kubelet: HollowKubelet, rounds: int
) -> dict[str, float]:
    """Measure the time from a failing liveness probe to the kill of its container.

    Each round uses another pod, because restarts wait for their backoff.
    """
    pods = client.core_v1.pods(api_bench.NAMESPACE)
    found = []
    for number in range(rounds):
        name = f"liveness-{number}"
        pods.create(golang.background(), probed_pod(name, patient))
        latest.wait(name, api_bench.is_ready)
        patient.switch(True)
        golang.background().wait(random.uniform(0.5, 1.5))
        before = len(kills(kubelet))
        answered = patient.switch(False)
        wait_for("the kill of the container", lambda before=before: len(kills(kubelet)) > before, 30)  # type: ignore[misc]
        found.append(kills(kubelet)[before] - answered)
        patient.switch(True)
        pods.delete(golang.background(), name)
        latest.wait_gone(name)
    return {"liveness to kill, median": statistics.median(found), "liveness to kill, longest": max(found)}


def kills(kubelet: HollowKubelet) -> list[float]:
    """Return the times of the containers' kills in monotonic seconds."""
    now, monotonic = datetime.datetime.now(), time.monotonic()
    times = _KILLING.findall(kubelet.log.read_text())
    parsed = (datetime.datetime.strptime(f"{now.year}{at}", "%Y%m%d %H:%M:%S.%f") for at in times)
    return [monotonic - (now - at).total_seconds() for at in parsed]
