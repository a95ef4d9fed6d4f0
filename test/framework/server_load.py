"""Load a kubelet's server with many concurrent streams: commands, forwarded ports, and followed logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from framework import streams
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, shell
from pkg import golang

ECHO = 8083
# The pod writes a line all the time, and echoes what it receives on a port.
SCRIPT = f"""
nc -ll -p {ECHO} -e cat &
trap 'exit 0' TERM
while true; do date; sleep 0.2; done
"""
# The server accepts requests from everybody.
OPEN_SERVER: Mapping[str, object] = {
    "enableServer": True,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
_MESSAGE = bytes(range(256)) * 8


def load_pod() -> Manifest:
    return pod("load", shell(SCRIPT))


@dataclass(frozen=True)
class Usage:
    """Describe what a process holds. `memory` is in MiB."""

    threads: int
    descriptors: int
    memory: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        memory = int(status["VmRSS"].split()[0]) / 1024
        return cls(int(status["Threads"]), len(list((process / "fd").iterdir())), memory)


@dataclass
class Load:
    """Run a number of streams of each kind for some time. `run` raises the first errors."""

    kubelet: KubeletProcess
    execs: int = 50
    forwards: int = 20
    followers: int = 200
    exchanges: int = field(default=0, init=False)  # The field counts messages that were sent and came back.
    lines: int = field(default=0, init=False)  # The field counts log lines.
    peak: Usage = field(init=False)  # The field holds the usage in the middle of the run.

    def run(self, seconds: float) -> None:
        self._lock = threading.Lock()  # The lock guards exchanges, lines and _errors.
        self._errors: list[BaseException] = []
        self._deadline = time.monotonic() + seconds
        kinds = [(self._exec, self.execs), (self._forward, self.forwards), (self._follow, self.followers)]
        threads = [
            golang.go(self._one, kind, name=f"load-{number}") for kind, count in kinds for number in range(count)
        ]
        threading.Event().wait(seconds / 2)
        self.peak = Usage.of(self.kubelet.pid)
        for thread in threads:
            thread.join()
        if self._errors:
            raise ExceptionGroup(f"{len(self._errors)} of {len(threads)} failed", self._errors[:3])  # type: ignore[type-var]

    def _one(self, kind: Callable[[], None]) -> None:
        try:
            kind()
        except BaseException as err:
            with self._lock:
                self._errors.append(err)

    @property
    def _pod(self) -> str:
        return f"load-{self.kubelet.node}"

    def _exchange(self, talk: streams.Streams, out: int, back: int) -> None:
        """Exchange messages until the deadline."""
        count = 0
        while time.monotonic() < self._deadline:
            talk.send(out, _MESSAGE)
            got = b""
            while len(got) < len(_MESSAGE):
                data = talk.read(back)
                assert data, "the stream has ended"
                got += data
            assert got == _MESSAGE
            count += 1
            # The test is about many clients that talk now and then, not about the fastest possible clients.
            time.sleep(0.05)
        with self._lock:
            self.exchanges += count

    def _exec(self) -> None:
        path = streams.exec_path(self._pod, "main", ["cat"], stdin=True)
        with streams.Command(streams.connect("127.0.0.1", self.kubelet.port, True), path, stdin=True) as command:
            self._exchange(command, command.stdin, command.stdout)
            command.send(command.stdin, b"", end=True)
            assert command.status()["status"] == "Success"

    def _forward(self) -> None:
        path = f"/portForward/default/{self._pod}"
        with streams.Forwarding(streams.connect("127.0.0.1", self.kubelet.port, True), path) as forwarding:
            stream = forwarding.connect(ECHO)
            self._exchange(forwarding, stream, stream)
            forwarding.send(stream, b"", end=True)

    def _follow(self) -> None:
        path = f"/containerLogs/default/{self._pod}/main?follow=true&tailLines=1"
        with streams.connect("127.0.0.1", self.kubelet.port, True) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
            lines = 0
            while time.monotonic() < self._deadline:
                data = sock.recv(65536)
                assert data, "the log has ended"
                lines += data.count(b"UTC")
        assert lines, "the log had no lines"
        with self._lock:
            self.lines += lines
