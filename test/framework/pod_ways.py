"""Create and observe pods in the same way, whether they come from the API server or from a manifest.

The tests see static pods through their mirror pods. All names are those in the manifests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Event, V1Pod

from framework.cluster_client import TIMEOUT, Namespace
from framework.local_cluster import LocalCluster
from framework.pods import Manifest, shell
from framework.recorder import Seen
from framework.waiting import wait_for

CONFIG_HASH = "kubernetes.io/config.hash"
# A shell prints this word when SIGKILL, sent to all processes of a container, reached its child before the shell.
_CHILD_KILLED = "Killed"
# In scripts, `say WORDS` writes a line with the machine's uptime, in seconds with two decimals, before the words.
SAY = 'say() { read up idle < /proc/uptime; echo "$up $*"; }; '


def teller(script: str, name: str = "main", **fields: object) -> dict[str, Any]:
    """Return a busybox container whose script can use `say`."""
    return shell(SAY + script, name, **fields)


@dataclass(frozen=True)
class Said:
    """Describe a line that a container wrote with `say`. `at` is the machine's uptime in seconds."""

    at: float
    text: str

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


class ContainerLog:
    """Read a container's log whose lines begin with the uptime. It stays readable after the file has been removed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def close(self) -> None:
        self._file.close()

    def raw(self) -> list[str]:
        """Return the container's lines without the prefix of the runtime."""
        size = os.fstat(self._file.fileno()).st_size
        lines = os.pread(self._file.fileno(), size, 0).decode(errors="replace").split("\n")
        return [line.split(" ", 3)[3] for line in lines[:-1]]

    def lines(self) -> list[Said]:
        found = []
        for line in self.raw():
            if line == _CHILD_KILLED:
                continue
            at, _, text = line.partition(" ")
            found.append(Said(float(at), text))
        return found

    def when(self, text: str) -> list[float]:
        """Return the times at which the container said exactly this text."""
        return [said.at for said in self.lines() if said.text == text]


class Pods:
    """Create the pods of a namespace through the API server."""

    way = "api"

    def __init__(self, namespace: Namespace, local: LocalCluster | None) -> None:
        self.namespace = namespace
        self._local = local
        self._logs: list[ContainerLog] = []

    def create(self, manifest: Manifest) -> None:
        self.namespace.create(manifest)

    def delete(self, name: str) -> None:
        """Request the deletion of a pod. The method does not wait."""
        self.namespace.core.delete_namespaced_pod(name, self.namespace.name)

    def full_name(self, name: str) -> str:
        """Return the name by which the API server and the runtime know the pod."""
        return name

    def uid(self, name: str) -> str:
        """Return the UID by which the kubelet, too, knows the pod, for example in the names of directories."""
        return str(self.namespace.history(self.full_name(name))[-1].object.metadata.uid)

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def latest(self, name: str) -> V1Pod | None:
        return self.namespace.pods.latest(self.full_name(name))

    def history(self, name: str) -> list[Seen]:
        return self.namespace.history(self.full_name(name))

    def events_of(self, name: str) -> list[CoreV1Event]:
        return self.namespace.events_of(self.full_name(name))

    def wait_for(self, name: str, what: str, condition: Callable[[V1Pod], object], timeout: float = TIMEOUT) -> V1Pod:
        return self.namespace.wait_for(self.full_name(name), what, condition, timeout)

    def wait_for_seen(
        self, name: str, what: str, condition: Callable[[V1Pod], object], timeout: float = TIMEOUT
    ) -> V1Pod:
        return self.namespace.wait_for_seen(self.full_name(name), what, condition, timeout)

    def wait_for_running(self, name: str, timeout: float = TIMEOUT) -> V1Pod:
        (found,) = self.namespace.wait_for_running(self.full_name(name), timeout=timeout)
        return found

    def wait_for_event(
        self, name: str, reason: str, message: str, field_path: str | None = None, timeout: float = TIMEOUT
    ) -> CoreV1Event:
        return self.namespace.wait_for_event(self.full_name(name), reason, message, field_path, timeout)

    def wait_deleted(self, name: str, timeout: float = TIMEOUT) -> Seen:
        return self.namespace.wait_deleted(self.full_name(name), timeout)

    def log(self, name: str, container: str = "main", restart: int = 0) -> ContainerLog:
        """Wait until a container has a log, and return the log. The container runs or has recently run."""
        assert self._local is not None, "a test that reads container logs must be marked local"
        folder = f"{self.namespace.name}_{self.full_name(name)}_{self.uid(name)}"
        path = self._local.folder / "pod-logs" / folder / container / f"{restart}.log"
        wait_for(f"log {path}", path.exists, TIMEOUT, lambda: self.namespace.describe(self.full_name(name)))
        self._logs.append(ContainerLog(path))
        return self._logs[-1]

    def wait_for_said(self, log: ContainerLog, text: str, count: int = 1, timeout: float = TIMEOUT) -> list[float]:
        """Wait until the container has said this text `count` times, and return the times."""

        def look() -> list[float]:
            return found if len(found := log.when(text)) >= count else []

        return wait_for(f"{text!r} logged {count} times", look, timeout, log.raw)


class StaticPods(Pods):
    """Create static pods, from manifests in the kubelet's directory."""

    way = "static"

    def __init__(self, namespace: Namespace, local: LocalCluster) -> None:
        super().__init__(namespace, local)
        self._kubelet = local.kubelet
        self._written: set[str] = set()

    def create(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        self._kubelet.write({**manifest, "metadata": {**manifest["metadata"], "namespace": self.namespace.name}})
        self._written.add(name)

    def delete(self, name: str) -> None:
        self._kubelet.remove(name)
        self._written.remove(name)

    def full_name(self, name: str) -> str:
        return self._kubelet.full_name(name)

    def uid(self, name: str) -> str:
        return str(self.history(name)[-1].object.metadata.annotations[CONFIG_HASH])

    def close(self) -> None:
        super().close()
        for name in list(self._written):
            self.delete(name)
