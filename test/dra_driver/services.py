"""Serve the preparation of claims in two versions, the health of devices, and the kubelet's registration of plugins."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from csi_driver import faults
from csi_driver.calls import CallLog
from csi_driver.faults import Faults
from google.protobuf import json_format

from kubelet.apis.dra.v1 import api_pb2 as dra_pb2
from kubelet.apis.dra.v1 import api_pb2_grpc as dra_grpc
from kubelet.apis.dra.v1beta1 import api_pb2 as v1beta1_pb2
from kubelet.apis.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as health_pb2
from kubelet.apis.dra_health.v1alpha1 import api_pb2_grpc as health_grpc
from kubelet.apis.pluginregistration.v1 import api_pb2 as registration_pb2
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc

SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
_PERIOD = 0.05


@dataclass(frozen=True)
class Work:
    """Prepare and unprepare claims. The kubelet may repeat every step."""

    name: str
    pool: str
    state: Path
    cdi: Path
    log: CallLog
    met: Faults

    def handle(self, method: str, request: Any, context: Any, each: Callable[[Any, Any], None], answer: Any) -> Any:
        """Log a call, and do its work for each of the claims.

        A fault of the call ends the whole call. A fault of a claim becomes the error of that claim.
        """
        call = self.log.begin(method, json_format.MessageToDict(request, preserving_proto_field_name=True))
        try:
            self.met.meet(method, "", faults.BEFORE)
            for claim in getattr(request, "claims", ()):
                self._do_one(method, claim, answer, each)
            self.met.meet(method, "", faults.AFTER)
        except faults.FaultError as err:
            self.log.end(call, err.code, str(err))
            context.abort(grpc.StatusCode[err.code], str(err))
        self.log.end(call, "OK")
        return answer

    def _do_one(self, method: str, claim: Any, answer: Any, each: Callable[[Any, Any], None]) -> None:
        result = answer.claims[claim.uid]
        try:
            self.met.meet(method, claim.name, faults.BEFORE)
            each(claim, result)
            self.met.meet(method, claim.name, faults.AFTER)
        except faults.FaultError as err:
            result.error = str(err)

    def prepare(self, claim: Any, result: Any) -> None:
        """Describe the claim's devices in the directory where the runtime finds them."""
        devices = self._devices_of(claim.name) or [{"device": f"of-{claim.name}"}]
        described = []
        for each in devices:
            name, id = each["device"], f"{claim.uid}-{each['device']}"
            place = self.state / "devices" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / "name").write_text(f"{name} of {self.name}\n")
            mount = {"hostPath": str(place), "containerPath": f"/devices/{name}", "options": ["ro", "bind"]}
            variable = f"DEVICE_{name.upper().replace('-', '_')}={claim.name}"
            described.append({"name": id, "containerEdits": {"env": [variable], "mounts": [mount]}})
            result.devices.add(
                request_names=each.get("requests", []),
                pool_name=self.pool,
                device_name=name,
                cdi_device_ids=[f"{self.name}/claim={id}"],
            )
        spec = {"cdiVersion": "0.5.0", "kind": f"{self.name}/claim", "devices": described}
        unfinished = self.cdi / f".{claim.uid}"
        unfinished.write_text(json.dumps(spec))
        unfinished.rename(self._spec(claim))

    def unprepare(self, claim: Any, result: Any) -> None:
        self._spec(claim).unlink(missing_ok=True)

    def _spec(self, claim: Any) -> Path:
        return self.cdi / f"{self.name}-{claim.uid}.json"

    def _devices_of(self, claim_name: str) -> list[dict[str, Any]]:
        path = self.state / "claims" / f"{claim_name}.json"
        return json.loads(path.read_text()) if path.exists() else []


class DRAPlugin(dra_grpc.DRAPluginServicer):
    def __init__(self, work: Work) -> None:
        self._work = work

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        answer = dra_pb2.NodePrepareResourcesResponse()
        return self._work.handle(PREPARE, request, context, self._work.prepare, answer)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        answer = dra_pb2.NodeUnprepareResourcesResponse()
        return self._work.handle(UNPREPARE, request, context, self._work.unprepare, answer)


class V1Beta1(v1beta1_grpc.DRAPluginServicer):
    def __init__(self, work: Work) -> None:
        self._work = work

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        answer = v1beta1_pb2.NodePrepareResourcesResponse()
        return self._work.handle(PREPARE, request, context, self._work.prepare, answer)

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        answer = v1beta1_pb2.NodeUnprepareResourcesResponse()
        return self._work.handle(UNPREPARE, request, context, self._work.unprepare, answer)


class Health(health_grpc.DRAResourceHealthServicer):
    """Report all devices whenever the file of their health changes.

    The file has a list of objects with `device`, `health` and `message`.
    """

    def __init__(self, work: Work, ended: threading.Event) -> None:
        self._work = work
        self._ended = ended

    def NodeWatchResources(self, request: Any, context: Any) -> Iterator[Any]:
        path, told = self._work.state / "health.json", None
        while context.is_active() and not self._ended.wait(_PERIOD):
            text = path.read_text() if path.exists() else "[]"
            if text != told:
                told = text
                yield health_pb2.NodeWatchResourcesResponse(devices=[self._health(each) for each in json.loads(text)])

    def _health(self, each: dict[str, str]) -> health_pb2.DeviceHealth:
        return health_pb2.DeviceHealth(
            device=health_pb2.DeviceIdentifier(pool_name=self._work.pool, device_name=each["device"]),
            health=each["health"],
            last_updated_time=int(time.time()),
            message=each.get("message", ""),
        )


class Registration(registration_grpc.RegistrationServicer):
    """Register the driver with the kubelet."""

    def __init__(self, work: Work, endpoint: Path, services: Sequence[str]) -> None:
        self._info = registration_pb2.PluginInfo(
            type="DRAPlugin", name=work.name, endpoint=str(endpoint), supported_versions=services
        )
        self._work = work

    def GetInfo(self, request: Any, context: Any) -> Any:
        return self._work.handle("GetInfo", request, context, _nothing, self._info)

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        answer = registration_pb2.RegistrationStatusResponse()
        return self._work.handle("NotifyRegistrationStatus", request, context, _nothing, answer)


def _nothing(claim: Any, result: Any) -> None:
    return None
