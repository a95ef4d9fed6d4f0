"""What probes cost the kubelet, and how late they are.

The fake runtime, which answers exec probes, and what the others ask are processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framework.waiting import wait_for
from kubelet_bench import IMAGE, ROOT, HollowKubelet, cpu_seconds, fake_runtime, process_status

from pkg import golang

_PERIOD = 1.0
_LATENESS = "kubelet_probe_lateness_seconds"


class Servers:
    """The process of probe_servers.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("probe_servers.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.http_port, self.grpc_port = json.loads(self._process.stdout.readline())

    def arrivals(self) -> dict[str, list[float]]:
        """When each pod's HTTP probes came since the last call, in monotonic seconds, by path."""
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
    """Two containers with three probes: by exec, by HTTP, and by TCP or gRPC in turn; without servers, no probe."""
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
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:03}"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [first, second]},
    }


@contextmanager
def hollow_kubelet(pods: int, servers: Servers | None) -> Iterator[HollowKubelet]:
    """A kubelet whose pods run since a while."""
    with tempfile.TemporaryDirectory(prefix="bench.") as directory, fake_runtime(Path(directory)) as endpoint:
        kubelet = HollowKubelet(Path(directory), endpoint, ["--max-pods=1000"])
        kubelet.start()
        try:
            for number in range(pods):
                unfinished = kubelet.manifests / f".{number:03}.json"
                unfinished.write_text(json.dumps(new_pod(number, servers)))
                unfinished.rename(kubelet.manifests / f"{number:03}.json")
            wait_for(f"{pods} pods ready", lambda: ready(kubelet) == pods, 180, lambda: ready(kubelet))
            golang.background().wait(5.0)
            yield kubelet
        finally:
            kubelet.stop()


def ready(kubelet: HollowKubelet) -> int:
    """How many pods are. Raises AssertionError with the end of the log when the kubelet has ended."""
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
    """How many probes began at most so many seconds late, since the kubelet's start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{kubelet.read_only_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found: dict[float, float] = {}
    for line in lines:
        if line.startswith(f"{_LATENESS}_bucket"):
            bound = float(line.split('le="')[1].split('"')[0])
            found[bound] = found.get(bound, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


def quantile(share: float, buckets: dict[float, float]) -> float:
    """As Prometheus' histogram_quantile has it."""
    bounds = sorted(buckets)
    rank, low, below = share * buckets[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            return low if bound == float("inf") else low + (bound - low) * (rank - below) / (buckets[bound] - below)
        low, below = bound, buckets[bound]
    return low


def gaps(arrivals: dict[str, list[float]]) -> list[float]:
    """By how much the times between two probes of a pod differ from the period, in order of size."""
    return sorted(abs(b - a - _PERIOD) for times in arrivals.values() for a, b in zip(times, times[1:], strict=False))


def cpu_share(pid: int, seconds: float) -> float:
    begin, cpu = time.monotonic(), cpu_seconds(pid)
    golang.background().wait(seconds)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - begin)


def probing(pods: int = 200, seconds: float = 30.0) -> dict[str, float]:
    """Three probes a second of each pod, against the same pods without."""
    with hollow_kubelet(pods, None) as kubelet:
        idle = cpu_share(kubelet.pid, seconds)
        idle_rss = process_status(kubelet.pid, "VmRSS") / 1000
        idle_threads = process_status(kubelet.pid, "Threads")
    servers = Servers()
    try:
        with hollow_kubelet(pods, servers) as kubelet:
            servers.arrivals()
            before = lateness_buckets(kubelet)
            share = cpu_share(kubelet.pid, seconds)
            after = lateness_buckets(kubelet)
            arrivals = servers.arrivals()
            buckets = {bound: after[bound] - before[bound] for bound in after}
            found = gaps(arrivals)
            return {
                "probes per second": buckets[float("inf")] / seconds,
                "HTTP probes per second, as they arrive": sum(map(len, arrivals.values())) / seconds,
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
