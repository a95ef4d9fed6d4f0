"""Read and write pods as plain JSON objects, so that the tests do not rely on the kubelet's code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.containerd import BUSYBOX

Manifest = dict[str, Any]


def shell(script: str, name: str = "main", **fields: object) -> dict[str, Any]:
    """Return a busybox container that runs a shell script."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **fields}


def sleeper(name: str = "main", **fields: object) -> dict[str, Any]:
    """Return a container that does nothing and exits at once on SIGTERM."""
    return shell("trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done", name, **fields)


def pod(name: str, *containers: dict[str, Any], grace: int = 2, **spec: object) -> Manifest:
    """Return the manifest of a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": grace, "containers": list(containers), **spec},
    }


def with_evidence(manifest: Manifest, folder: Path) -> Manifest:
    """Mount a directory of the host at /evidence in all containers, which record there what they see."""
    folder.mkdir(exist_ok=True)
    spec = manifest["spec"]
    spec.setdefault("volumes", []).append({"name": "evidence", "hostPath": {"path": str(folder)}})
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        container.setdefault("volumeMounts", []).append({"name": "evidence", "mountPath": "/evidence"})
    return manifest


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that may not exist yet."""
    return path.read_text().splitlines() if path.exists() else []


@dataclass(frozen=True)
class Pod:
    """Hold a pod as the kubelet's /pods shows it."""

    json: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.json["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.json["metadata"]["uid"])

    @property
    def status(self) -> dict[str, Any]:
        return self.json.get("status") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def running(self) -> bool:
        """Report whether all containers run and are ready."""
        statuses = self.status.get("containerStatuses") or []
        return self.phase == "Running" and bool(statuses) and all(each.get("ready") for each in statuses)

    def container(self, name: str = "main", kind: str = "containerStatuses") -> dict[str, Any]:
        """Return the status of a container, or an empty one while there is none."""
        return next((each for each in self.status.get(kind) or [] if each["name"] == name), {})

    def container_id(self, name: str = "main") -> str:
        """Return the runtime's ID of a container, without its scheme."""
        return str(self.container(name).get("containerID", "")).rpartition("/")[2]

    def restarts(self, name: str = "main", kind: str = "containerStatuses") -> int:
        return int(self.container(name, kind).get("restartCount", 0))

    def state(self, name: str = "main", which: str = "state") -> dict[str, Any]:
        """Return the part of a state that is set, with its kind under "is": {"is": "waiting", "reason": ...}."""
        state = self.container(name).get(which) or {}
        return next(({"is": kind, **(value or {})} for kind, value in state.items() if value is not None), {})

    def summary(self) -> str:
        states = [f"{each['name']}={each.get('state')}" for each in self.status.get("containerStatuses") or []]
        why = [self.status[part] for part in ("reason", "message") if self.status.get(part)]
        return f"{self.name}: {self.phase} {' '.join([*why, *states])}"


def summaries(pods: Sequence[Pod]) -> str:
    return "\n".join(each.summary() for each in pods) or "no pods"
