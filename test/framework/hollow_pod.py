"""Let a test drive a pod of a hollow node: the test decides what the containers' processes do."""

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
# START_TIMEOUT is the time, in seconds, that a container may take to start.
START_TIMEOUT = 30.0
_STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Node:
    """Hold the parts of the node that a pod needs."""

    store: Store
    runtime: fake.FakeRuntime
    files: HollowFiles
    readiness: Readiness


class HollowPod:
    """Drive one pod of a hollow node until it is deleted. HollowNode.pod returns it. All methods are thread-safe.

    Each method has the argument `container`, which a pod with one container does not need. It may name an ephemeral
    container. A method that needs a running container waits for it. Each method raises ValueError if the pod does not
    have the container, LookupError if the pod is deleted, and TimeoutError if no container runs within START_TIMEOUT
    seconds.
    """

    def __init__(self, node: Node, pod: Object) -> None:
        self._node = node
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self._containers: list[str] = [each["name"] for each in pod["spec"]["containers"]]
        self._others: list[str] = [each["name"] for each in pod["spec"].get("initContainers") or []]

    def exit(self, code: int = 0, *, container: str | None = None) -> None:
        """End a container's process with this exit code."""
        if not 0 <= code <= 255:
            raise ValueError(f"exit code {code} is not between 0 and 255")
        self._node.runtime.end_container(self._running(container).id, code)

    def oom(self, *, container: str | None = None) -> None:
        """Kill a container's process as the kernel's OOM killer does."""
        self._node.runtime.end_container(self._running(container).id, 137, oom_killed=True)

    def set_ready(self, ready: bool | None, *, container: str | None = None) -> None:
        """Set whether a container is ready, with or without a readiness probe. None restores the probe's result.

        The container need not run yet. The setting survives restarts of the container.
        """
        self._node.readiness.set(self.uid, self._known(container), ready)

    def log(self, text: str, *, stream: str = "stdout", container: str | None = None) -> None:
        """Make a container log these lines to "stdout" or "stderr", for `kubectl logs` and `kubectl attach`."""
        if stream not in _STREAMS:
            raise ValueError(f"stream {stream!r} is not one of {', '.join(_STREAMS)}")
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
        """Set the output and exit code of commands that begin with `command`, of `kubectl exec`, probes and hooks.

        If `answer` is a function, its argument is the Process: the function reads and writes the process's files and
        returns the exit code. A later call takes precedence over an earlier one. Without `container`, the setting
        applies to all containers of the pod.
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
        """Forward connections to a port (of `kubectl port-forward`) to an address or to a function.

        The function gets a socket and runs in its own thread. The connection ends when the function returns. Without a
        target, connections go to the port at the pod's own address, where a test may listen.
        """
        self._node.runtime.ports.set(self.uid, port, target)

    def write_file(self, path: str, content: str | bytes, *, container: str | None = None) -> None:
        """Put a file into a container, for `kubectl cp` and `kubectl exec POD -- cat`."""
        data = content.encode() if isinstance(content, str) else content
        self._node.files.write(self.uid, self._known(container), path, data)

    def read_file(self, path: str, *, container: str | None = None) -> bytes:
        """Return a file that `kubectl cp` or write_file put there. Raise FileNotFoundError if there is none."""
        return self._node.files.read(self.uid, self._known(container), path)

    def _known(self, container: str | None) -> str:
        """Return the container's name. Raise ValueError if the pod does not have the container."""
        where = f"pod {self.namespace}/{self.name}"
        if container is None:
            if len(self._containers) > 1:
                raise ValueError(f"{where} has several containers; name one of {', '.join(self._containers)}")
            return self._containers[0]
        known = [*self._containers, *self._others, *self._ephemeral()]
        if container not in known:
            raise ValueError(f"{where} has no container {container!r}: it has {', '.join(known)}")
        return container

    def _ephemeral(self) -> list[str]:
        pod = self._node.store.get("pods", self.name, self.namespace)
        return [each["name"] for each in pod["spec"].get("ephemeralContainers") or []]

    def _running(self, container: str | None) -> Container:
        """Wait until the API server reports the container as running, and return it."""
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
            raise LookupError(f"another pod has replaced {self.namespace}/{self.name}")
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
