"""A pod of a hollow node in the hands of a test, which says what its containers' processes would do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kubelet.cri.remote import fake
from kubelet.cri.remote.fake.sandboxes import RUNNING, Container

from .apiserver.interfaces import Object, Store
from .hollow_files import HollowFiles
from .hollow_probes import Readiness
from .watching import wait_for_object

Process = fake.Process
# Seconds that a container may take to run.
START_TIMEOUT = 30.0
_STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Node:
    """What a pod needs of its node."""

    store: Store
    runtime: fake.FakeRuntime
    files: HollowFiles
    readiness: Readiness


class HollowPod:
    """What HollowNode.pod returns: one pod, until it is deleted. Safe from any thread.

    `container` may be left out of each call where the pod has one container. It may be an ephemeral one. What needs a
    container that runs waits for it. Raises ValueError for a container that the pod does not have, LookupError when the
    pod is gone, and TimeoutError when no container runs within START_TIMEOUT seconds.
    """

    def __init__(self, node: Node, pod: Object) -> None:
        self._node = node
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self._containers: list[str] = [each["name"] for each in pod["spec"]["containers"]]
        self._others: list[str] = [each["name"] for each in pod["spec"].get("initContainers") or []]

    # What becomes of its containers.

    def exit(self, code: int = 0, *, container: str | None = None) -> None:
        """Let a container's process end with this code."""
        if not 0 <= code <= 255:
            raise ValueError(f"there is no exit code {code}: it is one of 0 to 255")
        self._node.runtime.end_container(self._running(container).id, code)

    def oom(self, *, container: str | None = None) -> None:
        """Let a container's process be killed for want of memory."""
        self._node.runtime.end_container(self._running(container).id, 137, oom_killed=True)

    def set_ready(self, ready: bool | None, *, container: str | None = None) -> None:
        """Let a container be ready, or not, whatever its probe says and whether it has one; None: as the probe says.

        It needs not run yet, and the same holds after a restart.
        """
        self._node.readiness.set(self.uid, self._known(container), ready)

    # What it says and answers.

    def log(self, text: str, *, stream: str = "stdout", container: str | None = None) -> None:
        """Have a container say these lines, for `kubectl logs` and who is attached; `stream`: stdout or stderr."""
        if stream not in _STREAMS:
            raise ValueError(f"there is no stream {stream!r}: it is one of {', '.join(_STREAMS)}")
        self._node.runtime.outputs.say(self._running(container), text, stream)

    def on_exec(
        self,
        answer: str | fake.Play,
        *,
        command: str | Sequence[str] = (),
        stderr: str = "",
        exit_code: int = 0,
        container: str | None = None,
    ) -> None:
        """Answer commands that begin with `command`, of `kubectl exec`, probes and hooks, with this output and code.

        A function is given the Process: it reads and writes its files, and returns the exit code. What was set last
        counts. Without `container` all of the pod's containers answer so.
        """
        if callable(answer):
            if stderr or exit_code:
                raise ValueError("a function writes to stderr and returns the exit code itself")
            play = answer
        else:
            play = _Answer(answer.encode(), stderr.encode(), exit_code)
        words = shlex.split(command) if isinstance(command, str) else command
        name = None if container is None else self._known(container)
        self._node.runtime.plays.add(play, command=words, pod_uid=self.uid, container=name)

    def on_port(self, port: int, target: fake.Target) -> None:
        """Let connections to a port (of `kubectl port-forward`) go to an address, or to a function.

        The function is given a socket, in a thread of its own; the connection ends when it returns. Without a target
        they go to the port at the pod's own address, where a test may listen.
        """
        self._node.runtime.ports.set(self.uid, port, target)

    def write_file(self, path: str, content: str | bytes, *, container: str | None = None) -> None:
        """Put a file there, for `kubectl cp` and `kubectl exec POD -- cat`."""
        data = content.encode() if isinstance(content, str) else content
        self._node.files.write(self.uid, self._known(container), path, data)

    def read_file(self, path: str, *, container: str | None = None) -> bytes:
        """A file that was put there, by `kubectl cp` or write_file. Raises FileNotFoundError."""
        return self._node.files.read(self.uid, self._known(container), path)

    # Containers.

    def _known(self, container: str | None) -> str:
        """The container's name. Raises ValueError."""
        where = f"pod {self.namespace}/{self.name}"
        if container is None:
            if len(self._containers) > 1:
                raise ValueError(f"{where} has several containers, say which: {', '.join(self._containers)}")
            return self._containers[0]
        known = [*self._containers, *self._others, *self._ephemeral()]
        if container not in known:
            raise ValueError(f"{where} has no container {container!r}: it has {', '.join(known)}")
        return container

    def _ephemeral(self) -> list[str]:
        pod = self._node.store.get("pods", self.name, self.namespace)
        return [each["name"] for each in pod["spec"].get("ephemeralContainers") or []]

    def _running(self, container: str | None) -> Container:
        """The container once it runs, and the API server knows."""
        name = self._known(container)
        return wait_for_object(
            self._node.store,
            "pods",
            self.name,
            lambda pod: self._running_now(pod, name),
            namespace=self.namespace,
            timeout=START_TIMEOUT,
            what=f"container {name} runs",
        )

    def _running_now(self, pod: Object, name: str) -> Container | None:
        if pod["metadata"]["uid"] != self.uid:
            raise LookupError(f"pod {self.namespace}/{self.name} is another one now")
        told = pod.get("status") or {}
        statuses = [
            each
            for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
            for each in told.get(kind) or []
            if each["name"] == name and "running" in each["state"]
        ]
        ids = {status["containerID"].partition("://")[2] for status in statuses}
        running = [each for each in self._node.runtime.containers if each.id in ids and each.state == RUNNING]
        return running[0] if running else None


@dataclass(frozen=True)
class _Answer:
    stdout: bytes
    stderr: bytes
    exit_code: int

    def __call__(self, process: fake.Process) -> int:
        process.stdout.write(self.stdout)
        process.stderr.write(self.stderr)
        return self.exit_code
