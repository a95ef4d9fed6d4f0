"""Choose the functions that simulate commands in fake containers and servers at ports of fake pods."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from kubelet.cri.remote.fake.sandboxes import Container, Sandbox


@dataclass(slots=True, eq=False)
class Process:
    """Represent a command in a container for the function that simulates it. Only that function's thread may use it.

    `stdin` ends when the client has sent all data. Writing raises OSError if the client has closed its connection. With
    `tty`, output to `stderr` appears on `stdout`.
    """

    command: list[str]
    container: str
    pod: str
    namespace: str
    pod_uid: str
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    tty: bool = False


# A Play simulates a command, and returns its exit code; None means 0.
Play = Callable[[Process], int | None]
# A Target is an address, or a function that serves the connection in its own thread.
Target = tuple[str, int] | Callable[[socket.socket], object]


@dataclass(frozen=True, slots=True)
class _Rule:
    play: Play
    command: list[str]
    pod_uid: str | None
    container: str | None

    def matches(self, container: Container, command: Sequence[str]) -> bool:
        return (
            list(command[: len(self.command)]) == self.command
            and self.pod_uid in (None, container.sandbox.config.metadata.uid)
            and self.container in (None, container.config.metadata.name)
        )


class Plays:
    """Choose the function that simulates a command: that of the newest matching rule. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _rules.
        self._rules: list[_Rule] = []

    def add(
        self, play: Play, *, command: Sequence[str] = (), pod_uid: str | None = None, container: str | None = None
    ) -> None:
        """Use a function for commands that begin with these words, in this container of this pod, or in all."""
        with self._lock:
            self._rules.insert(0, _Rule(play, list(command), pod_uid, container))

    def find(self, container: Container, command: Sequence[str]) -> Play | None:
        """Return the function for a command, or None if the container's behaviour determines the result."""
        with self._lock:
            return next((rule.play for rule in self._rules if rule.matches(container, command)), None)


class Ports:
    """Map the ports of pods to their targets. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _targets.
        self._targets: dict[tuple[str, int], Target] = {}

    def set(self, pod_uid: str, port: int, target: Target) -> None:
        with self._lock:
            self._targets[pod_uid, port] = target

    def find(self, sandbox: Sandbox, port: int) -> Target:
        """Return the target of a port, or else the pod's own address, on which a test may listen."""
        with self._lock:
            target = self._targets.get((sandbox.config.metadata.uid, port))
        return target or (sandbox.ip or "127.0.0.1", port)


def new_process(
    container: Container,
    command: Sequence[str],
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    *,
    tty: bool = False,
) -> Process:
    """Return a command in a container; without files its input is empty and its output stays in memory."""
    pod = container.sandbox.config.metadata
    return Process(
        list(command),
        container.config.metadata.name,
        pod.name,
        pod.namespace,
        pod.uid,
        stdin or io.BytesIO(),
        stdout or io.BytesIO(),
        stderr or io.BytesIO(),
        tty,
    )
