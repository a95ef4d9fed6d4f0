"""Serve CSI's Identity and Node services, and the kubelet's registration of plugins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message

from csi_driver import faults
from csi_driver.calls import CallLog
from csi_driver.faults import Faults
from csi_driver.volumes import Usage, VolumeError, Volumes
from kubelet.apis.pluginregistration.v1 import api_pb2 as registration_pb2
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from pkg.csi_spec import csi_pb2, csi_pb2_grpc

R = TypeVar("R")
EPHEMERAL = "csi.storage.k8s.io/ephemeral"
_RPC = csi_pb2.NodeServiceCapability.RPC
CAPABILITIES = {
    "stage": _RPC.STAGE_UNSTAGE_VOLUME,
    "stats": _RPC.GET_VOLUME_STATS,
    "expand": _RPC.EXPAND_VOLUME,
    "condition": _RPC.VOLUME_CONDITION,
    "single-node-multi-writer": _RPC.SINGLE_NODE_MULTI_WRITER,
    "volume-mount-group": _RPC.VOLUME_MOUNT_GROUP,
}


@dataclass(frozen=True)
class Settings:
    """Hold the driver's description of itself. `state` is the directory of its volumes."""

    name: str
    state: Path
    node_id: str = "test-node"
    capabilities: Collection[str] = ("stage", "stats", "expand")
    topology: Mapping[str, str] = field(default_factory=dict)
    max_volumes: int = 0


class Handler:
    """Log calls, apply their faults, and return errors."""

    def __init__(self, log: CallLog, met: Faults) -> None:
        self._log = log
        self._faults = met

    def handle(
        self, method: str, request: Message, context: grpc.ServicerContext, work: Callable[[Callable[[], None]], R]
    ) -> R:
        call = self._log.begin(method, json_format.MessageToDict(request, preserving_proto_field_name=True))
        volume = getattr(request, "volume_id", "")
        try:
            self._faults.meet(method, volume, faults.BEFORE)
            answer = work(lambda: self._faults.meet(method, volume, faults.DURING))
            self._faults.meet(method, volume, faults.AFTER)
        except (faults.FaultError, VolumeError) as err:
            self._log.end(call, err.code, str(err))
            context.abort(grpc.StatusCode[err.code], str(err))
        except Exception as err:
            self._log.end(call, "UNKNOWN", repr(err))
            raise
        self._log.end(call, "OK")
        return answer


class Identity(csi_pb2_grpc.IdentityServicer):
    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings = settings
        self._handle = handler.handle

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        info = csi_pb2.GetPluginInfoResponse(name=self._settings.name, vendor_version="1.0")
        return self._handle("GetPluginInfo", request, context, lambda half: info)

    def GetPluginCapabilities(self, request: Any, context: Any) -> Any:
        answer = csi_pb2.GetPluginCapabilitiesResponse()
        return self._handle("GetPluginCapabilities", request, context, lambda half: answer)

    def Probe(self, request: Any, context: Any) -> Any:
        return self._handle("Probe", request, context, lambda half: csi_pb2.ProbeResponse())


class Node(csi_pb2_grpc.NodeServicer):
    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings = settings
        self._handle = handler.handle
        self._volumes = Volumes(settings.state / "volumes")
        self._stages = "stage" in settings.capabilities

    def NodeGetCapabilities(self, request: Any, context: Any) -> Any:
        answer = csi_pb2.NodeGetCapabilitiesResponse()
        for name in self._settings.capabilities:
            answer.capabilities.add().rpc.type = CAPABILITIES[name]
        return self._handle("NodeGetCapabilities", request, context, lambda half: answer)

    def NodeGetInfo(self, request: Any, context: Any) -> Any:
        settings = self._settings
        answer = csi_pb2.NodeGetInfoResponse(node_id=settings.node_id, max_volumes_per_node=settings.max_volumes)
        if settings.topology:
            answer.accessible_topology.segments.update(settings.topology)
        return self._handle("NodeGetInfo", request, context, lambda half: answer)

    def NodeStageVolume(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "staging_target_path", "volume_capability")
            with self._volumes.alone(request.volume_id):
                block = request.volume_capability.HasField("block")
                self._volumes.stage(request.volume_id, Path(request.staging_target_path), block, half)
            return csi_pb2.NodeStageVolumeResponse()

        return self._handle("NodeStageVolume", request, context, work)

    def NodeUnstageVolume(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "staging_target_path")
            with self._volumes.alone(request.volume_id):
                self._volumes.unstage(request.volume_id, Path(request.staging_target_path), half)
            return csi_pb2.NodeUnstageVolumeResponse()

        return self._handle("NodeUnstageVolume", request, context, work)

    def NodePublishVolume(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "target_path", "volume_capability")
            with self._volumes.alone(request.volume_id):
                self._publish(request, half)
            return csi_pb2.NodePublishVolumeResponse()

        return self._handle("NodePublishVolume", request, context, work)

    def _publish(self, request: Any, half: Callable[[], None]) -> None:
        volume, block = request.volume_id, request.volume_capability.HasField("block")
        staging = None
        if request.volume_context.get(EPHEMERAL) == "true":
            self._volumes.mark_ephemeral(volume)
        elif self._stages:
            _require(request, "staging_target_path")
            staging = Path(request.staging_target_path)
            if not self._volumes.is_staged(volume, staging, block):
                raise VolumeError("FAILED_PRECONDITION", f"volume {volume} is not staged at {staging}")
        self._volumes.publish(volume, staging, Path(request.target_path), request.readonly, block, half)

    def NodeUnpublishVolume(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "target_path")
            with self._volumes.alone(request.volume_id):
                self._volumes.unpublish(Path(request.target_path), half)
                self._volumes.remove_if_ephemeral(request.volume_id)
            return csi_pb2.NodeUnpublishVolumeResponse()

        return self._handle("NodeUnpublishVolume", request, context, work)

    def NodeExpandVolume(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "volume_path")
            with self._volumes.alone(request.volume_id):
                half()
                size = self._volumes.expand(request.volume_id, request.capacity_range.required_bytes)
            return csi_pb2.NodeExpandVolumeResponse(capacity_bytes=size)

        return self._handle("NodeExpandVolume", request, context, work)

    def NodeGetVolumeStats(self, request: Any, context: Any) -> Any:
        def work(half: Callable[[], None]) -> Any:
            _require(request, "volume_id", "volume_path")
            if not Path(request.volume_path).exists():
                raise VolumeError("NOT_FOUND", f"no volume at {request.volume_path}")
            space, inodes = self._volumes.usage(request.volume_id)
            answer = csi_pb2.NodeGetVolumeStatsResponse()
            for unit, usage in ((csi_pb2.VolumeUsage.BYTES, space), (csi_pb2.VolumeUsage.INODES, inodes)):
                answer.usage.append(_usage(unit, usage))
            if "condition" in self._settings.capabilities:
                complaint = self._volumes.complaint(request.volume_id)
                answer.volume_condition.abnormal = bool(complaint)
                answer.volume_condition.message = complaint or "all is well"
            return answer

        return self._handle("NodeGetVolumeStats", request, context, work)


def _usage(unit: Any, usage: Usage) -> Any:
    return csi_pb2.VolumeUsage(unit=unit, total=usage.total, used=usage.used, available=usage.available)


def _require(request: Any, *names: str) -> None:
    for name in names:
        present = request.HasField(name) if name == "volume_capability" else getattr(request, name)
        if not present:
            raise VolumeError("INVALID_ARGUMENT", f"{name} is missing")


class Registration(registration_grpc.RegistrationServicer):
    """Register the driver as node-driver-registrar does."""

    def __init__(self, settings: Settings, endpoint: Path, handler: Handler) -> None:
        self._info = registration_pb2.PluginInfo(
            type="CSIPlugin", name=settings.name, endpoint=str(endpoint), supported_versions=["1.0.0"]
        )
        self._handle = handler.handle

    def GetInfo(self, request: Any, context: Any) -> Any:
        return self._handle("GetInfo", request, context, lambda half: self._info)

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        answer = registration_pb2.RegistrationStatusResponse()
        return self._handle("NotifyRegistrationStatus", request, context, lambda half: answer)
