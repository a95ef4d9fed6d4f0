"""The DRA driver for tests as a process, and claims that were allocated devices of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.cluster_node import ClusterMember
from framework.driver_process import DriverProcess
from framework.pods import Manifest

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


class DRADriver(DriverProcess):
    """A context manager. `cdi` is where it describes devices."""

    def __init__(
        self,
        folder: Path,
        name: str,
        kubelet_root: Path,
        cdi: Path | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.cdi = cdi or folder / name / "cdi"
        self.socket = kubelet_root / "plugins" / name / "dra.sock"
        flags = {"socket": self.socket, "cdi-dir": self.cdi, **(options or {})}
        super().__init__(folder, name, kubelet_root, "dra_driver", flags)

    def give(self, claim: str, *devices: Mapping[str, Any]) -> None:
        """Which devices a claim has: `device`, and `requests` unless it is for all of them."""
        self._write("claims", f"{claim}.json", devices)

    def tell_health(self, **devices: tuple[str, str]) -> None:
        """How devices are, and a message; underscores stand for dashes in their names."""
        told = [
            {"device": name.replace("_", "-"), "health": health, "message": message}
            for name, (health, message) in devices.items()
        ]
        self._write(".", "health.json", told)

    def asked(self, method: str) -> list[list[str]]:
        """The names of the claims of each call of a method that has ended well."""
        return [_names(call.request) for call in self.calls(method) if call.code == "OK"]

    def prepared(self) -> list[str]:
        """The ids that the runtime could find now."""
        specs = [json.loads(path.read_text()) for path in sorted(self.cdi.glob(f"{self.name}-*.json"))]
        return [f"{spec['kind']}={device['name']}" for spec in specs for device in spec["devices"]]

    def _write(self, folder: str, name: str, content: Sequence[Mapping[str, Any]]) -> None:
        place = self.state / folder
        place.mkdir(exist_ok=True)
        unfinished = place / f".{name}"
        unfinished.write_text(json.dumps(content))
        unfinished.rename(place / name)


def _names(request: Mapping[str, Any]) -> list[str]:
    return [claim["name"] for claim in request.get("claims", [])]


def claim(name: str, drivers: Sequence[str], requests: Sequence[str] = ("device",)) -> dict[str, Any]:
    """A claim as its user makes it. Where its devices come from says its status."""
    wanted = [{"name": request, "exactly": {"deviceClassName": drivers[0]}} for request in requests]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": wanted}}}


def allocated(drivers: Sequence[str], pods: Sequence[tuple[str, str]], node: str, request: str = "device") -> Any:
    """The status of a claim for pods, by name and UID, as the scheduler writes it."""
    results = [{"request": request, "driver": driver, "pool": node, "device": "some"} for driver in drivers]
    return {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid} for name, uid in pods],
    }


def with_claims(manifest: dict[str, Any], **claims: str) -> dict[str, Any]:
    """The pod's containers all use these claims, by the names that they have in the pod."""
    manifest["spec"]["resourceClaims"] = [{"name": key, "resourceClaimName": name} for key, name in claims.items()]
    for container in manifest["spec"]["containers"]:
        container.setdefault("resources", {})["claims"] = [{"name": key} for key in claims]
    return manifest


def put_claim(node: ClusterMember, name: str, *drivers: str) -> None:
    made = claim(name, drivers)
    made["metadata"]["namespace"] = "default"
    node.cluster.store.create("resourceclaims", made)


def allocate(node: ClusterMember, name: str, pods: Sequence[str], *drivers: str) -> None:
    """What the scheduler does before it binds the pods."""
    store = node.cluster.store
    users = [(each, store.get("pods", each, "default")["metadata"]["uid"]) for each in pods]
    status = {"status": allocated(drivers, users, node.node)}
    store.patch("resourceclaims", name, status, "default", subresource="status")


def put_pod(node: ClusterMember, manifest: Manifest, **claims: str) -> None:
    """A pod with claims that nobody schedules."""
    manifest["spec"].update(schedulerName="nobody", nodeName=None)
    node.create(with_claims(manifest, **claims))


def bind(node: ClusterMember, *names: str) -> None:
    for name in names:
        target = {"kind": "Node", "name": node.node}
        binding = {"metadata": {"name": name, "namespace": "default"}, "target": target}
        node.cluster.store.create("pods", binding, subresource="binding")


def start(node: ClusterMember, manifest: Manifest, *drivers: str) -> str:
    """A pod with a claim of its own that has its name; returns the claim's UID."""
    name = manifest["metadata"]["name"]
    put_claim(node, name, *drivers)
    put_pod(node, manifest, mine=name)
    allocate(node, name, [name], *drivers)
    bind(node, name)
    uid: str = node.cluster.store.get("resourceclaims", name, "default")["metadata"]["uid"]
    return uid
