"""Who plays the commands that run in fake containers, and what listens at the ports of fake pods."""

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
    """A command in a container, as who plays it sees it; used by the thread that plays it.

    `stdin` is at its end once the client sends no more. Writing raises OSError when the client has gone. With `tty`,
    what is written to `stderr` comes out at `stdout`.
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


# Returns the exit code; None is 0.
Play = Callable[[Process], int | None]
# What is at a port of a pod: an address, or a function that serves the connection in a thread of its own.
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
    """Decides who plays a command: the rule added last that matches. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _rules
        self._rules: list[_Rule] = []

    def add(
        self, play: Play, *, command: Sequence[str] = (), pod_uid: str | None = None, container: str | None = None
    ) -> None:
        """Have commands played that begin with these words, in this pod's container of this name, or in all."""
        with self._lock:
            self._rules.insert(0, _Rule(play, list(command), pod_uid, container))

    def find(self, container: Container, command: Sequence[str]) -> Play | None:
        """Who plays it; None if the container's behaviour says how it ends."""
        with self._lock:
            return next((rule.play for rule in self._rules if rule.matches(container, command)), None)


class Ports:
    """What is at the ports of pods. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _targets
        self._targets: dict[tuple[str, int], Target] = {}

    def set(self, pod_uid: str, port: int, target: Target) -> None:
        with self._lock:
            self._targets[pod_uid, port] = target

    def find(self, sandbox: Sandbox, port: int) -> Target:
        """Where a connection goes; without a target to the pod's own address, at which a test may listen."""
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
    """A command in a container; without files it reads nothing, and what it writes is kept in memory."""
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
