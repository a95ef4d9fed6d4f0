"""Calls of a driver's node service.

Go: pkg/volume/csi/csi_client.go
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity
from pkg.csi_spec import csi_pb2 as csipbv1
from pkg.csi_spec import csi_pb2_grpc
from pkg.util import grpcconn, grpcstatus
from pkg.volume.csi import csi_drivers_store, csi_metrics, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_util import FS_TYPE_BLOCK_NAME, log
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import Metrics

_RPC = csipbv1.NodeServiceCapability.RPC
_MODE = csipbv1.VolumeCapability.AccessMode
_ACCESS_MODES = {
    v1.READ_WRITE_ONCE: _MODE.SINGLE_NODE_WRITER,
    v1.READ_ONLY_MANY: _MODE.MULTI_NODE_READER_ONLY,
    v1.READ_WRITE_MANY: _MODE.MULTI_NODE_MULTI_WRITER,
    # A driver that does not tell several writers on a node from one can be used with this mode all the same.
    v1.READ_WRITE_ONCE_POD: _MODE.SINGLE_NODE_WRITER,
}
_SINGLE_NODE_MULTI_WRITER_ACCESS_MODES = {
    **_ACCESS_MODES,
    v1.READ_WRITE_ONCE: _MODE.SINGLE_NODE_MULTI_WRITER,
    v1.READ_WRITE_ONCE_POD: _MODE.SINGLE_NODE_SINGLE_WRITER,
}
_NOT_FINAL = {
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # The driver went away; what it had begun may still go on.
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # The driver works on that volume already.
    grpc.StatusCode.ABORTED,
}
_OPTIONS = [
    ("grpc.default_authority", "localhost"),
    # A proxy of the environment is nothing for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
    # Connections share nothing, and so no waiting time after a driver could not be reached.
    ("grpc.use_local_subchannel_pool", 1),
    grpcconn.LONG_ERRORS,
]

# A connection to a driver's node service for one call, by the path of its socket.
NodeV1ClientCreator = Callable[[str], AbstractContextManager[csi_pb2_grpc.NodeStub]]


@dataclass(frozen=True, slots=True)
class CSIResizeOptions:
    """What a driver is told of a volume that it is to make larger."""

    volume_id: str
    volume_path: str
    staging_target_path: str
    fs_type: str
    access_mode: str
    new_size: Quantity
    mount_options: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)


class CSIDriverClient:
    """One driver. Thread-safe; a connection lasts for one call.

    Methods raise ValueError for missing arguments, grpcstatus.StatusError for what the driver answers, and those that
    change something types.UncertainProgressError for an answer, or none, after which it may still be at it.
    """

    def __init__(
        self,
        driver_name: str,
        addr: str,
        metrics_manager: csi_metrics.MetricsManager,
        node_v1_client_creator: NodeV1ClientCreator,
    ) -> None:
        self._driver_name = driver_name
        self._addr = addr
        self._metrics_manager = metrics_manager
        self._node_v1_client_creator = node_v1_client_creator

    def node_get_info(self, ctx: golang.Context) -> tuple[str, int, dict[str, str]]:
        """The node's name among the driver's, how many volumes it can have (0: no limit) and its topology."""
        klog.v(4).info_s(log("calling NodeGetInfo rpc"))
        try:
            return self._node_get_info_v1(ctx)
        except grpcstatus.StatusError as err:
            klog.info_s("Error calling CSI NodeGetInfo()", err=err)
            raise

    def _node_get_info_v1(self, ctx: golang.Context) -> tuple[str, int, dict[str, str]]:
        response = self._call(ctx, "NodeGetInfo", csipbv1.NodeGetInfoRequest())
        return response.node_id, response.max_volumes_per_node, dict(response.accessible_topology.segments)

    def node_publish_volume(
        self,
        ctx: golang.Context,
        volume_id: str,
        read_only: bool,
        staging_target_path: str,
        target_path: str,
        access_mode: str,
        publish_context: dict[str, str],
        volume_context: dict[str, str],
        secrets: dict[str, str],
        fs_type: str,
        mount_options: list[str],
        fs_group: int | None,
    ) -> None:
        """Have the volume in a pod's directory. fs_group must be None unless node_supports_volume_mount_group."""
        klog.v(4).info_s(log("calling NodePublishVolume rpc"), volID=volume_id, targetPath=target_path)
        _require(volume_id, "missing volume id")
        _require(target_path, "missing target path")
        with csi_util.before_the_driver_acts():
            mode = self._get_node_v1_access_mode_mapper(ctx)(access_mode)
        request = csipbv1.NodePublishVolumeRequest(
            volume_id=volume_id,
            target_path=target_path,
            readonly=read_only,
            publish_context=publish_context,
            volume_context=volume_context,
            secrets=secrets,
            staging_target_path=staging_target_path,
            volume_capability=_volume_capability(mode, fs_type, mount_options, fs_group),
        )
        self._change(ctx, "NodePublishVolume", request)

    def node_expand_volume(self, ctx: golang.Context, opts: CSIResizeOptions) -> Quantity:
        """Make the volume larger on the node; the size it has then."""
        _require(opts.volume_id, "missing volume id")
        _require(opts.volume_path, "missing volume path")
        if opts.new_size.value() < 0:
            raise ValueError("size can not be less than 0")
        with csi_util.before_the_driver_acts():
            mode = self._get_node_v1_access_mode_mapper(ctx)(opts.access_mode)
        request = csipbv1.NodeExpandVolumeRequest(
            volume_id=opts.volume_id,
            volume_path=opts.volume_path,
            capacity_range=csipbv1.CapacityRange(required_bytes=opts.new_size.value()),
            volume_capability=_volume_capability(mode, opts.fs_type, opts.mount_options, None),
            secrets=opts.secrets,
            staging_target_path=opts.staging_target_path,
        )
        response = self._change(ctx, "NodeExpandVolume", request)
        return resource.new_quantity(response.capacity_bytes, resource.Format.BINARY_SI)

    def node_unpublish_volume(self, ctx: golang.Context, vol_id: str, target_path: str) -> None:
        """Take the volume out of a pod's directory."""
        klog.v(4).info_s(log("calling NodeUnpublishVolume rpc"), volID=vol_id, targetPath=target_path)
        _require(vol_id, "missing volume id")
        _require(target_path, "missing target path")
        request = csipbv1.NodeUnpublishVolumeRequest(volume_id=vol_id, target_path=target_path)
        self._call(ctx, "NodeUnpublishVolume", request)

    def node_stage_volume(
        self,
        ctx: golang.Context,
        vol_id: str,
        publish_context: dict[str, str],
        staging_target_path: str,
        fs_type: str,
        access_mode: str,
        secrets: dict[str, str],
        volume_context: dict[str, str],
        mount_options: list[str],
        fs_group: int | None,
    ) -> None:
        """Have the volume on the node. fs_group must be None unless node_supports_volume_mount_group."""
        klog.v(4).info_s(log("calling NodeStageVolume rpc"), volID=vol_id, stagingTargetPath=staging_target_path)
        _require(vol_id, "missing volume id")
        _require(staging_target_path, "missing staging target path")
        with csi_util.before_the_driver_acts():
            mode = self._get_node_v1_access_mode_mapper(ctx)(access_mode)
        request = csipbv1.NodeStageVolumeRequest(
            volume_id=vol_id,
            publish_context=publish_context,
            staging_target_path=staging_target_path,
            volume_capability=_volume_capability(mode, fs_type, mount_options, fs_group),
            secrets=secrets,
            volume_context=volume_context,
        )
        self._change(ctx, "NodeStageVolume", request)

    def node_unstage_volume(self, ctx: golang.Context, vol_id: str, staging_target_path: str) -> None:
        """Take the volume off the node."""
        klog.v(4).info_s(log("calling NodeUnstageVolume rpc"), volID=vol_id, stagingTargetPath=staging_target_path)
        _require(vol_id, "missing volume id")
        _require(staging_target_path, "missing staging target path")
        request = csipbv1.NodeUnstageVolumeRequest(volume_id=vol_id, staging_target_path=staging_target_path)
        self._call(ctx, "NodeUnstageVolume", request)

    def node_supports_node_expand(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.EXPAND_VOLUME)

    def node_supports_stage_unstage(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.STAGE_UNSTAGE_VOLUME)

    def _get_node_v1_access_mode_mapper(
        self, ctx: golang.Context
    ) -> Callable[[str], csipbv1.VolumeCapability.AccessMode.Mode]:
        if self.node_supports_single_node_multi_writer_access_mode(ctx):
            return as_single_node_multi_writer_capable_csi_access_mode_v1
        return as_csi_access_mode_v1

    def node_supports_volume_stats(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.GET_VOLUME_STATS)

    def node_supports_single_node_multi_writer_access_mode(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.SINGLE_NODE_MULTI_WRITER)

    def node_get_volume_stats(self, ctx: golang.Context, vol_id: str, target_path: str) -> Metrics:
        """How full the volume is, and how it is if the driver knows. Raises ValueError for an answer without usage."""
        klog.v(4).info_s(log("calling NodeGetVolumeStats rpc"), volID=vol_id, targetPath=target_path)
        _require(vol_id, "missing volume id")
        _require(target_path, "missing target path")
        request = csipbv1.NodeGetVolumeStatsRequest(volume_id=vol_id, volume_path=target_path)
        response = self._call(ctx, "NodeGetVolumeStats", request)
        zero = resource.new_quantity(0, resource.Format.BINARY_SI)
        metrics = Metrics(used=zero, capacity=zero, available=zero, inodes_used=zero, inodes=zero, inodes_free=zero)
        knows_condition = features.feature_gate.enabled(
            features.CSI_VOLUME_HEALTH
        ) and self._node_supports_volume_condition(ctx)
        if knows_condition:
            condition = response.volume_condition
            metrics = dataclasses.replace(metrics, abnormal=condition.abnormal, message=condition.message)
        if not knows_condition and not response.usage:
            raise ValueError("failed to get usage from response. usage is nil")
        for usage in response.usage:
            metrics = _with_usage(metrics, usage)
        return metrics

    def _node_supports_volume_condition(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.VOLUME_CONDITION)

    def node_supports_volume_mount_group(self, ctx: golang.Context) -> bool:
        return self._node_supports_capability(ctx, _RPC.VOLUME_MOUNT_GROUP)

    def _node_supports_capability(
        self, ctx: golang.Context, capability_type: csipbv1.NodeServiceCapability.RPC.Type
    ) -> bool:
        klog.v(4).info_s(
            log("calling NodeGetCapabilities rpc to determine if the node service has capability"),
            capability=_RPC.Type.Name(capability_type),
        )
        capabilities = self._node_get_capabilities(ctx)
        return any(capability.rpc.type == capability_type for capability in capabilities if capability.HasField("rpc"))

    def _node_get_capabilities(self, ctx: golang.Context) -> list[csipbv1.NodeServiceCapability]:
        return list(self._change(ctx, "NodeGetCapabilities", csipbv1.NodeGetCapabilitiesRequest()).capabilities)

    def _change(self, ctx: golang.Context, method: str, request: object) -> Any:
        """_call, with types.UncertainProgressError for what does not say that all is over."""
        try:
            return self._call(ctx, method, request)
        except grpcstatus.StatusError as err:
            if is_final_error(err):
                raise
            raise volumetypes.UncertainProgressError(str(err)) from err
        except Exception as err:
            # A lack of memory or threads, say: that is no answer of the driver, which may have done it.
            raise volumetypes.UncertainProgressError(str(err) or type(err).__name__) from err

    def _call(self, ctx: golang.Context, method: str, request: object) -> Any:
        with self._node_v1_client_creator(self._addr) as client:
            try:
                return self._metrics_manager.record_metrics_interceptor(
                    ctx, f"/csi.v1.Node/{method}", lambda: getattr(client, method)(request, timeout=ctx.remaining())
                )
            except grpc.RpcError as err:
                raise grpcstatus.from_call(err, self._addr) from err


def new_csi_driver_client(csi_drivers: csi_drivers_store.DriversStore, driver_name: str) -> CSIDriverClient:
    """The client of a driver. Raises errors.UnknownDriverError if it has not registered."""
    if not driver_name:
        raise csierrors.UnknownDriverError("driver name is empty")
    driver = csi_drivers.get(driver_name)
    if driver is None:
        raise csierrors.UnknownDriverError(f"driver name {driver_name} not found in the list of registered CSI drivers")
    metrics_manager = csi_metrics.MetricsManager(driver_name)
    return CSIDriverClient(driver_name, driver.endpoint, metrics_manager, new_v1_node_client)


@contextmanager
def new_v1_node_client(addr: str) -> Iterator[csi_pb2_grpc.NodeStub]:
    """The node service on a socket, with a connection of its own that is closed in the end."""
    with new_grpc_conn(addr) as channel:
        yield csi_pb2_grpc.NodeStub(channel)


def new_grpc_conn(addr: str) -> grpc.Channel:
    """A channel to a unix socket; the first call on it connects."""
    klog.v(4).info_s(log("creating new gRPC connection"), protocol="unix", endpoint=addr)
    return grpc.insecure_channel(f"unix:{addr}", options=_OPTIONS)


def as_csi_access_mode_v1(mode: str) -> csipbv1.VolumeCapability.AccessMode.Mode:
    return _ACCESS_MODES.get(mode, _MODE.UNKNOWN)


def as_single_node_multi_writer_capable_csi_access_mode_v1(mode: str) -> csipbv1.VolumeCapability.AccessMode.Mode:
    return _SINGLE_NODE_MULTI_WRITER_ACCESS_MODES.get(mode, _MODE.UNKNOWN)


def is_final_error(err: Exception) -> bool:
    """Whether the driver's answer says that it is not at it any more. No answer of a driver does not say so."""
    code = grpcstatus.code(err)
    return code is not None and code not in _NOT_FINAL


class CSIClientGetter:
    """The client of a driver that need not have registered yet, and may come back on another socket. Thread-safe.

    DIVERGES (fault of Go): each question about a volume goes to the socket that its driver has now.
    Go: pkg/volume/csi/csi_client.go, (*csiClientGetter).Get: the first client is kept, with the socket that the driver
    had then.
    Why: a driver that comes back on another socket is never again asked for the usage of a volume as long as the
    volume's pod lives.
    Test: csi_client_test.py:test_metrics_of_a_driver_that_comes_back_on_another_socket
    """

    def __init__(self, csi_drivers: csi_drivers_store.DriversStore, driver_name: str) -> None:
        self.driver_name = driver_name
        self._csi_drivers = csi_drivers

    def get(self) -> CSIDriverClient:
        """Raises errors.UnknownDriverError as long as the driver has not registered."""
        return new_csi_driver_client(self._csi_drivers, self.driver_name)

    def get_for(self, caller: str) -> CSIDriverClient:
        """As get, for an operation that is tried again: raises types.TransientOperationFailure, which names it."""
        try:
            return self.get()
        except csierrors.UnknownDriverError as err:
            # The driver may be about to come, or to come back.
            raise volumetypes.TransientOperationFailure(log(f"{caller} failed to get CSI client: {err}")) from err


def _require(value: str, message: str) -> None:
    if not value:
        raise ValueError(message)


def _volume_capability(
    mode: csipbv1.VolumeCapability.AccessMode.Mode, fs_type: str, mount_options: list[str], fs_group: int | None
) -> csipbv1.VolumeCapability:
    access_mode = csipbv1.VolumeCapability.AccessMode(mode=mode)
    if fs_type == FS_TYPE_BLOCK_NAME:
        block = csipbv1.VolumeCapability.BlockVolume()
        return csipbv1.VolumeCapability(access_mode=access_mode, block=block)
    mount = csipbv1.VolumeCapability.MountVolume(
        fs_type=fs_type,
        mount_flags=mount_options,
        volume_mount_group=str(fs_group) if fs_group is not None else "",
    )
    return csipbv1.VolumeCapability(access_mode=access_mode, mount=mount)


def _with_usage(metrics: Metrics, usage: csipbv1.VolumeUsage) -> Metrics:
    available, total, used = (
        resource.new_quantity(amount, resource.Format.BINARY_SI)
        for amount in (usage.available, usage.total, usage.used)
    )
    match usage.unit:
        case csipbv1.VolumeUsage.BYTES:
            return dataclasses.replace(metrics, available=available, capacity=total, used=used)
        case csipbv1.VolumeUsage.INODES:
            return dataclasses.replace(metrics, inodes_free=available, inodes=total, inodes_used=used)
    klog.error_s(None, "unknown unit in VolumeUsage", unit=usage.unit)
    return metrics
