"""Measure the speed of streams through the kubelet and directly from the runtime, and the cost of many streams."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from cri_api.v1 import api_pb2 as runtimeapi
from framework import streams
from framework.containerd import Containerd, new_run_dir
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, shell
from framework.server_load import OPEN_SERVER, Load, Usage, load_pod
from framework.waiting import wait_for
from kubelet_bench import cpu_seconds

_MB = 1_000_000
_SIZE = 200 * _MB
_REPEATS = 5
_LOAD_SECONDS = 60.0
_PORT = 8081
_SENDS = f"nc -ll -p {_PORT} -e head -c {_SIZE} /dev/zero & sleep 100000"
_PIECE = bytes(32 << 10)


def streaming() -> dict[str, float]:
    """Return the MB/s of each stream, directly and through the kubelet, and the kubelet's CPU for a GB."""
    with _node() as (kubelet, cri):
        kubelet.write(pod("bench", shell(_SENDS)))
        kubelet.wait_for_running("bench")
        bench = _Bench(kubelet, cri)
        figures: dict[str, float] = {}
        for name, once in (("stdout", bench.stdout), ("stdin", bench.stdin), ("port", bench.port)):
            direct, through = [], []
            cpu = cpu_seconds(kubelet.pid)
            # The two measurements alternate because the speed of the machine varies.
            for _ in range(_REPEATS):
                direct.append(once(False))
                through.append(once(True))
            figures[f"{name}, directly"] = statistics.median(direct)
            figures[f"{name}, through the kubelet"] = statistics.median(through)
            figures[f"{name}, share of speed lost"] = 1 - statistics.median(through) / statistics.median(direct)
            figures[f"{name}, CPU for a GB"] = (cpu_seconds(kubelet.pid) - cpu) / _REPEATS / (_SIZE / 1e9)
        return figures


def load() -> dict[str, float]:
    """Return the kubelet's usage during and after a minute of 50 commands, 20 ports and 200 followers."""
    with _node() as (kubelet, _):
        kubelet.write(load_pod())
        kubelet.wait_for_running("load")
        Load(kubelet, execs=1, forwards=1, followers=1).run(1.0)
        before, cpu = Usage.of(kubelet.pid), cpu_seconds(kubelet.pid)
        running = Load(kubelet)
        running.run(_LOAD_SECONDS)
        figures = {
            "exchanges a second": running.exchanges / _LOAD_SECONDS,
            "log lines a second": running.lines / _LOAD_SECONDS,
            "cores": (cpu_seconds(kubelet.pid) - cpu) / _LOAD_SECONDS,
            "threads": running.peak.threads,
            "RSS": running.peak.memory,
        }
        wait_for("the end of the streams' threads", lambda: Usage.of(kubelet.pid).threads <= before.threads + 2, 30)
        after = Usage.of(kubelet.pid)
        figures["threads kept"] = after.threads - before.threads
        figures["descriptors kept"] = after.descriptors - before.descriptors
        figures["RSS kept"] = after.memory - before.memory
        return figures


@contextmanager
def _node() -> Iterator[tuple[KubeletProcess, CRIClient]]:
    containerd = Containerd(new_run_dir())
    try:
        containerd.start()
        containerd.import_images()
        cri = containerd.client()
        config = {**OPEN_SERVER, "cgroupRoot": containerd.cgroup_root, "podLogsDir": str(containerd.run_dir / "logs")}
        kubelet = KubeletProcess(containerd.run_dir, "node", containerd.endpoint, config, {"v": 2})
        kubelet.start()
        try:
            yield kubelet, cri
        finally:
            kubelet.clean(cri)
            cri.close()
    finally:
        containerd.clean()


class _Bench:
    """Move a large amount of data with each method, through the kubelet or directly, and return the MB/s."""

    def __init__(self, kubelet: KubeletProcess, cri: CRIClient) -> None:
        self._kubelet = kubelet
        self._cri = cri
        self._pod = f"bench-{kubelet.node}"
        (self._container,) = cri.running_containers(self._pod)

    def stdout(self, through: bool) -> float:
        with self._command(through, ["head", "-c", str(_SIZE), "/dev/zero"], stdin=False) as command:
            return _rate(lambda: command.count(command.stdout))

    def stdin(self, through: bool) -> float:
        # The command must not write to /dev/null: a runtime ends the stdin of a command that has closed its stdout.
        with self._command(through, ["wc", "-c"], stdin=True) as command:

            def send() -> int:
                for _ in range(_SIZE // len(_PIECE)):
                    command.send(command.stdin, _PIECE)
                command.send(command.stdin, b"", end=True)
                return int(command.read_all(command.stdout))

            return _rate(send)

    def port(self, through: bool) -> float:
        request = runtimeapi.PortForwardRequest(pod_sandbox_id=self._container.pod_sandbox_id, port=[_PORT])
        url = self._cri.runtime.PortForward(request).url
        path = f"/portForward/default/{self._pod}" if through else urlsplit(url).path
        with streams.Forwarding(self._connect(through, url), path) as forwarding:
            stream = forwarding.connect(_PORT)
            return _rate(lambda: forwarding.count(stream))

    def _command(self, through: bool, command: list[str], *, stdin: bool) -> streams.Command:
        request = runtimeapi.ExecRequest(container_id=self._container.id, cmd=command, stdin=stdin, stdout=True)
        url = self._cri.runtime.Exec(request).url
        path = streams.exec_path(self._pod, "main", command, stdin=stdin) if through else urlsplit(url).path
        return streams.Command(self._connect(through, url), path, stdin=stdin)

    def _connect(self, through: bool, url: str) -> socket.socket:
        if through:
            return streams.connect("127.0.0.1", self._kubelet.port, True)
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        return streams.connect(parts.hostname, parts.port, False)


def _rate(move: Callable[[], int]) -> float:
    begin = time.monotonic()
    moved = move()
    assert moved >= _SIZE - len(_PIECE), f"only {moved} bytes"
    return moved / _MB / (time.monotonic() - begin)
