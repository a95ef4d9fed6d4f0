"""Measure an attack's effect on a kubelet's memory, its sync loop, a bystander's pod, and other clients' requests."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from framework.apiserver.authentication import MASTERS
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterMember
from framework.log_followers import insecure_context
from framework.pod_history import Version
from framework.pods import Manifest, pod
from framework.program import environment
from framework.sync_loop import Ticks
from kubelet.kubelet import SYNC_PERIOD

BYSTANDER = "bystander"
# This is not an address of the attackers.
_ADDRESS = "127.0.0.200"
_TIMEOUT = 30.0
_PERIOD = 1.0
# The observer reads the ticks after this many periods.
_LOOK_EVERY = 5
_FAILED_PROBES = re.compile(rf'^prober_probe_total\{{(?=.*pod="{BYSTANDER}")(?=.*result="(?!succ)).*\}} (\S+)$', re.M)


def server_config(cluster: Cluster) -> dict[str, object]:
    """Return the configuration of a server that authenticates and authorizes clients through the API server."""
    authentication = {
        "x509": {"clientCAFile": str(cluster.ca_file)},
        "webhook": {"enabled": True},
        "anonymous": {"enabled": False},
    }
    return {"enableServer": True, "authentication": authentication, "authorization": {"mode": "Webhook"}}


def bystander(container: Mapping[str, Any], *handlers: Mapping[str, object]) -> Manifest:
    """Return a pod with probes every second: the first handler for liveness, the last for readiness."""
    kinds = {"livenessProbe": handlers[0], "readinessProbe": handlers[-1]}
    probes = {kind: {**handler, "periodSeconds": 1, "timeoutSeconds": 5} for kind, handler in kinds.items()}
    resources = {"limits": {"cpu": "100m", "memory": "64Mi"}}
    return pod(BYSTANDER, {**container, **probes, "resources": resources})


@dataclass
class Seen:
    """Hold the measurements of a period. Times are in seconds, memory in MiB."""

    late: float = 0.0  # `late` is the worst lateness of the loop's ticks.
    idle_late: float = 0.0  # `idle_late` is the worst lateness of an idle process.
    memory: float = 0.0  # `memory` is the usage at the end.
    peak: float = 0.0
    slowest_answer: float = 0.0
    answers: int = 0
    refused: list[str] = field(default_factory=list)


class Observer:
    """Observe a node whose server has server_config, and its bystander pod."""

    def __init__(self, node: ClusterMember) -> None:
        self._node = node
        self._client = _client(node.cluster)
        self._begin = self._latest()
        self._failed = self._failed_probes()

    def watch(self, seconds: float) -> Seen:
        """Send the kubelet a request each second. Raise AssertionError if its process has ended."""
        seen, ticks = Seen(), Ticks(self._node)
        Path(f"/proc/{self._node.pid}/clear_refs").write_text("5")  # Writing 5 resets the peak.
        with _idle_process(self._node.within, seconds) as idle:
            self._ask_for(seconds, seen, ticks)
            seen.idle_late = float(idle.communicate()[0])
        ticks.look()
        seen.late = ticks.worst_lateness()
        seen.memory, seen.peak = self._memory("VmRSS"), self._memory("VmHWM")
        return seen

    def _ask_for(self, seconds: float, seen: Seen, ticks: Ticks) -> None:
        deadline, number = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            assert self._node.alive, self._node.end_of_log()
            self._ask(seen, number)
            number += 1
            if number % _LOOK_EVERY == 0:
                with contextlib.suppress(OSError):
                    ticks.look()
            time.sleep(_PERIOD)

    # The following methods describe the bystander since the observer was created.

    def restarts(self) -> int:
        now = self._latest()
        return now.restarts() - self._begin.restarts() + (now.container_id() != self._begin.container_id())

    def failed_probes(self) -> int:
        return self._failed_probes() - self._failed

    def times_not_ready(self) -> int:
        versions = [each for each in self._node.history.of(BYSTANDER) if each.version >= self._begin.version]
        return sum(before.ready and not after.ready for before, after in pairwise(versions))

    def _latest(self) -> Version:
        latest = self._node.history.latest(BYSTANDER)
        assert latest is not None, "the bystander is gone"
        return latest

    def _failed_probes(self) -> int:
        return sum(int(float(count)) for count in _FAILED_PROBES.findall(self._node.get("/metrics/probes")))

    def _memory(self, name: str) -> float:
        status = Path(f"/proc/{self._node.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:")) / 1024

    def _ask(self, seen: Seen, number: int) -> None:
        paths = ("/pods", "/healthz", "/metrics/probes", f"/containerLogs/default/{BYSTANDER}/main?tailLines=1")
        path = paths[number % len(paths)]
        begun = time.monotonic()
        fault = self._fault(path)
        seen.answers += 1
        seen.slowest_answer = max(seen.slowest_answer, time.monotonic() - begun)
        if fault:
            seen.refused.append(f"{path}: {fault}")

    def _fault(self, path: str) -> str:
        """Return what was wrong with the response to a request on a new connection, or "" if it was right."""
        try:
            plain = socket.create_connection(("127.0.0.1", self._node.port), _TIMEOUT, (_ADDRESS, 0))
            with plain, self._client.wrap_socket(plain) as sock:
                sock.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
                begin = sock.recv(1 << 16)
                while sock.recv(1 << 16):
                    pass
        except OSError as err:
            return repr(err)
        return "" if begin.startswith(b"HTTP/1.1 200 ") else repr(begin[:80])


@contextmanager
def _idle_process(within: Sequence[str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run an idle process with the kubelet's command prefix. It ends after this many seconds or with the block."""
    command = [*within, sys.executable, "-m", "framework.hostile.idle", str(SYNC_PERIOD), str(seconds)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _client(cluster: Cluster) -> ssl.SSLContext:
    """Return a TLS context with the certificate of a user with all permissions."""
    pair = cluster.authority.client_pair("observer", [MASTERS])
    context = insecure_context()
    context.load_cert_chain(*pair.write(cluster.directory, "observer"))
    return context
