"""Provide a plugin under test, and a driver for it.

Go: pkg/volume/csi/fake/fake_client.go, pkg/volume/csi/testing/testing.go
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import grpc

from pkg import golang
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import version
from pkg.client_go import informers
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.csi_spec import csi_pb2 as csi
from pkg.csi_spec import csi_pb2_grpc
from pkg.volume.csi import csi_attacher
from pkg.volume.csi.csi_drivers_store import Driver
from pkg.volume.csi.csi_plugin import CSIPlugin
from pkg.volume.testing import FakeVolumeHost

NODE_NAME = "fakeNode"
TEST_DRIVER = "test-driver"
TEST_VOL = "vol-123"
# `_SYNC_TIMEOUT` is the time, in seconds, after which a test fails.
_SYNC_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class CSIVolume:
    """Record the arguments of a call that stages or publishes a volume."""

    path: str
    volume_context: dict[str, str]
    publish_context: dict[str, str]
    secrets: dict[str, str]
    fs_type: str = ""
    mount_flags: list[str] = field(default_factory=list)
    volume_mount_group: str = ""
    access_mode: str = ""
    device_mount_path: str = ""
    read_only: bool = False
    block: bool = False


class FakeNode(csi_pb2_grpc.NodeServicer):
    """Serve as a node service that creates directories and files where others mount.

    Every method is safe from any thread.
    """

    def __init__(self, *capabilities: str) -> None:
        """Create a service with these capabilities, which have the names of the specification: STAGE_UNSTAGE_VOLUME."""
        self.capabilities = list(capabilities)
        self.published: dict[str, CSIVolume] = {}
        self.staged: dict[str, CSIVolume] = {}
        # `calls` holds the methods that were called, without NodeGetCapabilities.
        self.calls: list[str] = []
        # `errors` holds the errors that calls of a method return.
        self.errors: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.info = csi.NodeGetInfoResponse(node_id="node-id")
        self.stats = csi.NodeGetVolumeStatsResponse()
        self.expansion: csi.NodeExpandVolumeRequest | None = None

    def _begin(self, method: str, context: grpc.ServicerContext) -> None:
        if method != "NodeGetCapabilities":
            self.calls.append(method)
        if method in self.errors:
            _abort(context, *self.errors[method])

    def NodeGetCapabilities(
        self, request: csi.NodeGetCapabilitiesRequest, context: grpc.ServicerContext
    ) -> csi.NodeGetCapabilitiesResponse:
        self._begin("NodeGetCapabilities", context)
        response = csi.NodeGetCapabilitiesResponse()
        for name in self.capabilities:
            rpc = csi.NodeServiceCapability.RPC(type=name)
            response.capabilities.append(csi.NodeServiceCapability(rpc=rpc))
        return response

    def NodeGetInfo(self, request: csi.NodeGetInfoRequest, context: grpc.ServicerContext) -> csi.NodeGetInfoResponse:
        self._begin("NodeGetInfo", context)
        return self.info

    def NodeStageVolume(
        self, request: csi.NodeStageVolumeRequest, context: grpc.ServicerContext
    ) -> csi.NodeStageVolumeResponse:
        self._begin("NodeStageVolume", context)
        self.staged[request.volume_id] = _volume(request, request.staging_target_path)
        return csi.NodeStageVolumeResponse()

    def NodeUnstageVolume(
        self, request: csi.NodeUnstageVolumeRequest, context: grpc.ServicerContext
    ) -> csi.NodeUnstageVolumeResponse:
        self._begin("NodeUnstageVolume", context)
        self.staged.pop(request.volume_id, None)
        return csi.NodeUnstageVolumeResponse()

    def NodePublishVolume(
        self, request: csi.NodePublishVolumeRequest, context: grpc.ServicerContext
    ) -> csi.NodePublishVolumeResponse:
        self._begin("NodePublishVolume", context)
        if request.volume_capability.HasField("block"):
            Path(request.target_path).touch()
        else:
            Path(request.target_path).mkdir(exist_ok=True)
        self.published[request.volume_id] = _volume(request, request.target_path)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(
        self, request: csi.NodeUnpublishVolumeRequest, context: grpc.ServicerContext
    ) -> csi.NodeUnpublishVolumeResponse:
        self._begin("NodeUnpublishVolume", context)
        self.published.pop(request.volume_id, None)
        if os.path.isdir(request.target_path):
            os.rmdir(request.target_path)
        else:
            Path(request.target_path).unlink(missing_ok=True)
        return csi.NodeUnpublishVolumeResponse()

    def NodeExpandVolume(
        self, request: csi.NodeExpandVolumeRequest, context: grpc.ServicerContext
    ) -> csi.NodeExpandVolumeResponse:
        self._begin("NodeExpandVolume", context)
        self.expansion = request
        return csi.NodeExpandVolumeResponse(capacity_bytes=request.capacity_range.required_bytes)

    def NodeGetVolumeStats(
        self, request: csi.NodeGetVolumeStatsRequest, context: grpc.ServicerContext
    ) -> csi.NodeGetVolumeStatsResponse:
        self._begin("NodeGetVolumeStats", context)
        return self.stats


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
    context.abort(code, message)
    raise AssertionError("abort does not return")


def _volume(request: csi.NodePublishVolumeRequest | csi.NodeStageVolumeRequest, path: str) -> CSIVolume:
    capability = request.volume_capability
    publication = request if isinstance(request, csi.NodePublishVolumeRequest) else None
    return CSIVolume(
        path=path,
        volume_context=dict(request.volume_context),
        publish_context=dict(request.publish_context),
        secrets=dict(request.secrets),
        fs_type=capability.mount.fs_type,
        mount_flags=list(capability.mount.mount_flags),
        volume_mount_group=capability.mount.volume_mount_group,
        access_mode=csi.VolumeCapability.AccessMode.Mode.Name(capability.access_mode.mode),
        device_mount_path=publication.staging_target_path if publication is not None else "",
        read_only=publication is not None and publication.readonly,
        block=capability.HasField("block"),
    )


@contextmanager
def serve(node: csi_pb2_grpc.NodeServicer, socket: str) -> Iterator[grpc.Server]:
    """Serve the driver on a unix socket, and stop it at the end."""
    with futures.ThreadPoolExecutor(4, thread_name_prefix="csi-driver") as pool:
        server = grpc.server(pool)
        csi_pb2_grpc.add_NodeServicer_to_server(node, server)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield server
        finally:
            server.stop(None).wait()


class TestPlugin:
    """Run a plugin with a host, an API server and a registered driver; a context manager."""

    __test__ = False

    def __init__(self, root: Path, node: FakeNode | None = None, *csi_drivers: storagev1.CSIDriver) -> None:
        """Create the plugin. The driver is TEST_DRIVER; by default it supports staging and volume statistics."""
        self.root = root
        self.node = node or FakeNode("STAGE_UNSTAGE_VOLUME", "GET_VOLUME_STATS")
        self.client = FakeClientset(
            v1.Node(metadata=metav1.ObjectMeta(name=NODE_NAME, uid=types.UID("node-uid"))), *csi_drivers
        )
        self.socket = str(root / "csi.sock")
        self.host = FakeVolumeHost(str(root), self.client, plugins=[], node_name=NODE_NAME)
        self.plugin = CSIPlugin()
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._factory = informers.SharedInformerFactory(self.client, 0)
        self._serving = serve(self.node, self.socket)
        self._server: grpc.Server

    def __enter__(self) -> Self:
        drivers = self._factory.storage_v1.csi_drivers()
        self.host.csi_driver_informer = drivers.informer()
        self.host.csi_drivers = drivers.lister()
        self._factory.start(self._ctx)
        limited, cancel = golang.with_timeout(self._ctx, _SYNC_TIMEOUT)
        assert all(self._factory.wait_for_cache_sync(limited).values())
        cancel()
        self.host.plugin_mgr.init_plugins([self.plugin], self.host)
        self._server = self._serving.__enter__()
        self.register(TEST_DRIVER)
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)
        self._cancel()
        self.client.stop_watches()
        self._factory.shutdown()

    def kill(self) -> None:
        """Stop the driver at once, in the middle of its calls."""
        self._server.stop(None)

    def register(self, name: str) -> None:
        """Register the driver under another name, too."""
        self.plugin.csi_drivers.set(name, Driver(self.socket, version.parse_generic("1.0.0")))

    def attach(self, volume: str = TEST_VOL, driver: str = TEST_DRIVER, attached: bool = True, **status: str) -> str:
        """Attach a volume. Return the name of the attachment. `status` is the metadata from the driver's controller."""
        name = csi_attacher.get_attachment_name(volume, driver, NODE_NAME)
        self.client.add(
            storagev1.VolumeAttachment(
                metadata=metav1.ObjectMeta(name=name),
                spec=storagev1.VolumeAttachmentSpec(attacher=driver, node_name=NODE_NAME),
                status=storagev1.VolumeAttachmentStatus(attached=attached, attachment_metadata=status),
            )
        )
        return name
