"""Call a driver's node service.

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
    # This mode also fits a driver that does not distinguish one writer on a node from several.
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
    # The driver is gone, but what it has started may still be in progress.
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # The driver is already working on the volume.
    grpc.StatusCode.ABORTED,
}
_OPTIONS = [
    ("grpc.default_authority", "localhost"),
    # A proxy from the environment must not be used for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
    # Connections must not share a backoff, which gRPC starts when a driver cannot be reached.
    ("grpc.use_local_subchannel_pool", 1),
    grpcconn.LONG_ERRORS,
]

# A `NodeV1ClientCreator` is a function that connects to the node service at a socket's path, for one call.
NodeV1ClientCreator = Callable[[str], AbstractContextManager[csi_pb2_grpc.NodeStub]]


@dataclass(frozen=True, slots=True)
class CSIResizeOptions:
    """Hold the arguments of the driver's expand call."""

    volume_id: str
    volume_path: str
    staging_target_path: str
    fs_type: str
    access_mode: str
    new_size: Quantity
    mount_options: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)


class CSIDriverClient:
    """Call one driver. Every method is safe from any thread. A connection lasts for one call.

    Methods raise ValueError for missing arguments, and grpcstatus.StatusError for an error of the driver. A method that
    changes something raises types.UncertainProgressError if the driver does not respond, or reports that it may still
    be working.
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
        """Return the driver's name for the node, the volume limit (0 means none) and the topology."""
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
        """Publish the volume in a pod's directory.

        fs_group must be None unless node_supports_volume_mount_group returns true.
        """
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
        """Expand the volume on the node. Return its new size."""
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
        """Unpublish the volume from a pod's directory."""
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
        """Stage the volume on the node.

        fs_group must be None unless node_supports_volume_mount_group returns true.
        """
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
        """Unstage the volume on the node."""
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
        """Return the usage of the volume, and its condition if the driver supports that.

        Raise ValueError for a response without usage.
        """
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
        """Make a call as _call does, but raise types.UncertainProgressError for an error that is not final."""
        try:
            return self._call(ctx, method, request)
        except grpcstatus.StatusError as err:
            if is_final_error(err):
                raise
            raise volumetypes.UncertainProgressError(str(err)) from err
        except Exception as err:
            # The error may be a lack of memory or threads. It does not come from the driver, which may have done its
            # work.
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
    """Return a client for the driver. Raise errors.UnknownDriverError if the driver is not registered."""
    if not driver_name:
        raise csierrors.UnknownDriverError("driver name is empty")
    driver = csi_drivers.get(driver_name)
    if driver is None:
        raise csierrors.UnknownDriverError(f"driver name {driver_name} not found in the list of registered CSI drivers")
    metrics_manager = csi_metrics.MetricsManager(driver_name)
    return CSIDriverClient(driver_name, driver.endpoint, metrics_manager, new_v1_node_client)


@contextmanager
def new_v1_node_client(addr: str) -> Iterator[csi_pb2_grpc.NodeStub]:
    """Yield the node service at a socket, and close its connection at the end."""
    with new_grpc_conn(addr) as channel:
        yield csi_pb2_grpc.NodeStub(channel)


def new_grpc_conn(addr: str) -> grpc.Channel:
    """Return a channel to a unix socket. The first call on the channel connects."""
    klog.v(4).info_s(log("creating new gRPC connection"), protocol="unix", endpoint=addr)
    return grpc.insecure_channel(f"unix:{addr}", options=_OPTIONS)


def as_csi_access_mode_v1(mode: str) -> csipbv1.VolumeCapability.AccessMode.Mode:
    return _ACCESS_MODES.get(mode, _MODE.UNKNOWN)


def as_single_node_multi_writer_capable_csi_access_mode_v1(mode: str) -> csipbv1.VolumeCapability.AccessMode.Mode:
    return _SINGLE_NODE_MULTI_WRITER_ACCESS_MODES.get(mode, _MODE.UNKNOWN)


def is_final_error(err: Exception) -> bool:
    """Report whether the driver's error means that the driver is no longer working on the request.

    A missing response does not mean that.
    """
    code = grpcstatus.code(err)
    return code is not None and code not in _NOT_FINAL


class CSIClientGetter:
    """Return the client of a driver that may not be registered yet, and that may return on another socket.

    Every method is safe from any thread.

    DIVERGES (fault of Go): each request about a volume goes to the current socket of its driver.
    Go: pkg/volume/csi/csi_client.go, (*csiClientGetter).Get: the Go kubelet keeps the first client, with the socket
    that the driver had then.
    Why: a driver that returns on another socket would not be asked for the usage of a volume again for as long as the
    volume's pod lives.
    Test: csi_client_test.py:test_metrics_of_a_driver_that_comes_back_on_another_socket
    """

    def __init__(self, csi_drivers: csi_drivers_store.DriversStore, driver_name: str) -> None:
        self.driver_name = driver_name
        self._csi_drivers = csi_drivers

    def get(self) -> CSIDriverClient:
        """Return the client. Raise errors.UnknownDriverError while the driver is not registered."""
        return new_csi_driver_client(self._csi_drivers, self.driver_name)

    def get_for(self, caller: str) -> CSIDriverClient:
        """Return the client for an operation that is retried.

        Raise types.TransientOperationFailure, with the caller in its message, while the driver is not registered.
        """
        try:
            return self.get()
        except csierrors.UnknownDriverError as err:
            # The driver may be about to register, for the first time or again (kubernetes issue 120268).
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
