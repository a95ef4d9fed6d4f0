"""Run the tests' DRA driver as a process, and create claims with allocated devices of the driver."""

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
    """Run the DRA driver within a `with` block. `cdi` is the directory in which it describes devices."""

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
        """Set the devices of a claim. Each has a `device`, and `requests` unless it is for all requests."""
        self._write("claims", f"{claim}.json", devices)

    def tell_health(self, **devices: tuple[str, str]) -> None:
        """Set the health of devices, each with a message. Underscores in the keywords stand for dashes in the names."""
        told = [
            {"device": name.replace("_", "-"), "health": health, "message": message}
            for name, (health, message) in devices.items()
        ]
        self._write(".", "health.json", told)

    def asked(self, method: str) -> list[list[str]]:
        """Return, for each successful call of a method, the names of the claims in it."""
        return [_names(call.request) for call in self.calls(method) if call.code == "OK"]

    def prepared(self) -> list[str]:
        """Return the CDI IDs that the runtime could resolve now."""
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
    """Return a claim as its user creates it. Its status says later which devices it has."""
    wanted = [{"name": request, "exactly": {"deviceClassName": drivers[0]}} for request in requests]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": wanted}}}


def allocated(drivers: Sequence[str], pods: Sequence[tuple[str, str]], node: str, request: str = "device") -> Any:
    """Return the status of a claim as the scheduler writes it for pods. Each pod is a pair of its name and UID."""
    results = [{"request": request, "driver": driver, "pool": node, "device": "some"} for driver in drivers]
    return {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid} for name, uid in pods],
    }


def with_claims(manifest: dict[str, Any], **claims: str) -> dict[str, Any]:
    """Make all containers of the pod use these claims. Each keyword is the claim's name within the pod."""
    manifest["spec"]["resourceClaims"] = [{"name": key, "resourceClaimName": name} for key, name in claims.items()]
    for container in manifest["spec"]["containers"]:
        container.setdefault("resources", {})["claims"] = [{"name": key} for key in claims]
    return manifest


def put_claim(node: ClusterMember, name: str, *drivers: str) -> None:
    made = claim(name, drivers)
    made["metadata"]["namespace"] = "default"
    node.cluster.store.create("resourceclaims", made)


def allocate(node: ClusterMember, name: str, pods: Sequence[str], *drivers: str) -> None:
    """Allocate the claim for these pods, as the scheduler does before it binds them."""
    store = node.cluster.store
    users = [(each, store.get("pods", each, "default")["metadata"]["uid"]) for each in pods]
    status = {"status": allocated(drivers, users, node.node)}
    store.patch("resourceclaims", name, status, "default", subresource="status")


def put_pod(node: ClusterMember, manifest: Manifest, **claims: str) -> None:
    """Create a pod with claims that no scheduler handles."""
    manifest["spec"].update(schedulerName="nobody", nodeName=None)
    node.create(with_claims(manifest, **claims))


def bind(node: ClusterMember, *names: str) -> None:
    for name in names:
        target = {"kind": "Node", "name": node.node}
        binding = {"metadata": {"name": name, "namespace": "default"}, "target": target}
        node.cluster.store.create("pods", binding, subresource="binding")


def start(node: ClusterMember, manifest: Manifest, *drivers: str) -> str:
    """Create a pod and its own claim of the same name, and return the claim's UID."""
    name = manifest["metadata"]["name"]
    put_claim(node, name, *drivers)
    put_pod(node, manifest, mine=name)
    allocate(node, name, [name], *drivers)
    bind(node, name)
    uid: str = node.cluster.store.get("resourceclaims", name, "default")["metadata"]["uid"]
    return uid
