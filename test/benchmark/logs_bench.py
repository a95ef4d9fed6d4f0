"""Measure the speed of reading logs, and the cost of two hundred followers.

The fake runtime and the clients run in this process, and the kubelet in a separate one. The benchmark itself writes the
logs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from framework.hollow_kubelet import HollowKubelet
from framework.log_followers import Follower, LogFollowers, insecure_context, line
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from kubelet_bench import cpu_seconds, process_status

from kubelet.cri import testing as critesting
from kubelet.kuberuntime import logs
from pkg import golang

FOLLOWERS = 200
_PODS = 10
_ROUNDS = 30
_ROUND = 0.1  # seconds
_IDLE = 10.0
_SIZE = 100 << 20
# The mix of streams is typical of programs that write to both streams.
_LINES = [line(0, stream)[:-2] + b"x" * 60 + b"\x03\n" for stream in ("stdout", "stdout", "stderr")]
_CONFIG = {
    "enableServer": True,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}


class _Nowhere:
    def write(self, data: bytes, /) -> int:
        return len(data)


def reading() -> dict[str, float]:
    """Return, for different requests, how many MB of a log the kubelet reads in a CPU second, without the network."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench.") as directory:
        log = Path(directory, "0.log")
        _fill(log)
        asked: Mapping[str, logs.LogOptions] = {
            "all": logs.LogOptions(),
            "timestamps": logs.LogOptions(timestamp=True),
            "the first 90 MB": logs.LogOptions(limit_bytes=90 << 20),
            "the last 500 000 lines": logs.LogOptions(tail_lines=500_000),
        }
        for name, options in asked.items():
            out = _Nowhere()
            begun = time.process_time()
            logs.read_logs(golang.background(), str(log), "", options, critesting.FakeRuntimeService(), out, out)
            found[name] = _SIZE / 1e6 / (time.process_time() - begun)
    return found


def _fill(log: Path) -> None:
    some = b"".join(_LINES) * 1000
    with log.open("wb") as f:
        for _ in range(_SIZE // len(some)):
            f.write(some)


def following() -> dict[str, float]:
    """Return the seconds from the writing of a line to its arrival, and the kubelet's resource usage until then."""
    with _hollow_kubelet() as kubelet:
        found = {"a whole log for one before, MB a second": _download(kubelet)}
        memory = process_status(kubelet.pid, "VmRSS")
        targets = [_target(kubelet, i % _PODS) for i in range(FOLLOWERS)]
        with LogFollowers(kubelet.port, targets, insecure_context()) as clients:
            followers = clients.followers
            wait_for("the first line of every log", lambda: all(each.lines == 1 for each in followers), 60)
            found["idle, cores"] = _cores(kubelet, lambda: time.sleep(_IDLE))
            late: list[float] = []
            found["10 lines a second each, cores"] = _cores(
                kubelet, lambda: late.extend(_write_rounds(kubelet, followers))
            )
            found["late, median"] = statistics.median(late) * 1000
            found["late, p99"] = statistics.quantiles(late, n=100)[-1] * 1000
            found["RSS more"] = (process_status(kubelet.pid, "VmRSS") - memory) / 1024
            found["threads"] = process_status(kubelet.pid, "Threads")
        return found


@contextmanager
def _hollow_kubelet() -> Iterator[HollowKubelet]:
    with tempfile.TemporaryDirectory(prefix="bench.") as directory:
        kubelet = HollowKubelet(Path(directory), "logs", _CONFIG)
        kubelet.server.start()
        try:
            kubelet.start()
            kubelet.write_all(*(pod(f"p{i}", sleeper(), grace=1) for i in range(_PODS)))
            for i in range(_PODS):
                kubelet.wait_for_running(f"p{i}")
            for log in _logs(kubelet):
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_bytes(line(0))
            yield kubelet
        finally:
            kubelet.end()


def _logs(kubelet: HollowKubelet) -> list[Path]:
    return [Path(each.status.log_path) for each in kubelet.runtime.containers]


def _target(kubelet: HollowKubelet, i: int, follow: str = "true") -> str:
    return f"/containerLogs/default/{kubelet.full_name(f'p{i}')}/main?follow={follow}"


def _download(kubelet: HollowKubelet) -> float:
    """Return the MB of the file per second, over TLS."""
    name = kubelet.full_name("p0")
    (log,) = [log for log in _logs(kubelet) if f"_{name}_" in str(log)]
    _fill(log)
    begun = time.perf_counter()
    with LogFollowers(kubelet.port, [_target(kubelet, 0, "false")], insecure_context()) as clients:
        wait_for("the whole log", lambda: clients.followers[0].ended, 120)
        taken = time.perf_counter() - begun
    log.write_bytes(line(0))
    return _SIZE / 1e6 / taken


def _write_rounds(kubelet: HollowKubelet, followers: list[Follower]) -> list[float]:
    """Repeatedly write a line to each log, and return the delay of each line at each follower in seconds."""
    late: list[float] = []
    files = [log.open("ab", buffering=0) for log in _logs(kubelet)]
    for number in range(1, _ROUNDS + 1):
        begun = time.monotonic()
        for f in files:
            f.write(line(number))
        wait_for("the line at all followers", lambda: all(each.lines > number for each in followers), 60)  # noqa: B023
        late += [each.last_line_at - begun for each in followers]
        time.sleep(max(begun + _ROUND - time.monotonic(), 0.0))
    for f in files:
        f.close()
    return late


def _cores(kubelet: HollowKubelet, does: Callable[[], object]) -> float:
    begun, used = time.monotonic(), cpu_seconds(kubelet.pid)
    does()
    return (cpu_seconds(kubelet.pid) - used) / (time.monotonic() - begun)
