"""Test calls of a driver that serves on a real socket.

Go: pkg/volume/csi/csi_client_test.go, pkg/volume/csi/csi_metrics_test.go
"""

from __future__ import annotations

import contextlib
import socket as socketlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import version
from pkg.csi_spec import csi_pb2
from pkg.util import grpcstatus
from pkg.volume import Spec, metrics_errors
from pkg.volume.csi import csi_client, csi_drivers_store, csi_metrics, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_drivers_store import Driver, DriversStore
from pkg.volume.csi.testing import TEST_DRIVER, FakeNode, serve
from pkg.volume.util import metrics as volumeutil
from pkg.volume.util import types as volumetypes

CTX = golang.background()
V1 = version.parse_generic("1.0.0")


@pytest.fixture
def socket(tmp_path: Path) -> str:
    return str(tmp_path / "csi.sock")


@contextlib.contextmanager
def client_of(node: FakeNode, socket: str) -> Iterator[csi_client.CSIDriverClient]:
    with serve(node, socket):
        yield new_client(socket)


def new_client(socket: str) -> csi_client.CSIDriverClient:
    store = DriversStore()
    store.set(TEST_DRIVER, Driver(socket, V1))
    return csi_client.new_csi_driver_client(store, TEST_DRIVER)


def publish(client: csi_client.CSIDriverClient, path: str, **changes: Any) -> None:
    arguments: dict[str, Any] = {
        "volume_id": "vol-test",
        "read_only": False,
        "staging_target_path": "/staging",
        "target_path": path,
        "access_mode": v1.READ_WRITE_ONCE,
        "publish_context": {"device": "/dev/null"},
        "volume_context": {"attr0": "val0"},
        "secrets": {"key": "secret"},
        "fs_type": "ext4",
        "mount_options": ["noatime"],
        "fs_group": None,
    }
    client.node_publish_volume(CTX, **(arguments | changes))


def stage(client: csi_client.CSIDriverClient, path: str, **changes: Any) -> None:
    arguments: dict[str, Any] = {
        "vol_id": "vol-test",
        "publish_context": {"device": "/dev/null"},
        "staging_target_path": path,
        "fs_type": "ext4",
        "access_mode": v1.READ_WRITE_ONCE,
        "secrets": {"key": "secret"},
        "volume_context": {"attr0": "val0"},
        "mount_options": ["noatime"],
        "fs_group": None,
    }
    client.node_stage_volume(CTX, **(arguments | changes))


def test_driver_that_has_not_registered() -> None:
    with pytest.raises(
        csierrors.UnknownDriverError, match=r"^driver name d not found in the list of registered CSI drivers$"
    ):
        csi_client.new_csi_driver_client(DriversStore(), "d")
    with pytest.raises(csierrors.UnknownDriverError, match=r"^driver name is empty$"):
        csi_client.new_csi_driver_client(DriversStore(), "")


def test_client_is_looked_for_until_it_is_there(socket: str) -> None:
    store = DriversStore()
    getter = csi_client.CSIClientGetter(store, TEST_DRIVER)
    with pytest.raises(csierrors.UnknownDriverError, match="not found"):
        getter.get()
    store.set(TEST_DRIVER, Driver(socket, V1))
    with serve(FakeNode(), socket):
        getter.get().node_unstage_volume(CTX, "vol", "/path")


@pytest.mark.parametrize("topology", [{}, {"zone": "a", "rack": "1"}], ids=["no topology", "topology"])
def test_client_node_get_info(socket: str, topology: dict[str, str]) -> None:
    node = FakeNode()
    node.info = csi_pb2.NodeGetInfoResponse(
        node_id="maxID", max_volumes_per_node=16, accessible_topology=csi_pb2.Topology(segments=topology)
    )
    with client_of(node, socket) as client:
        assert client.node_get_info(CTX) == ("maxID", 16, topology)
        node.errors["NodeGetInfo"] = (grpc.StatusCode.INTERNAL, "no")
        with pytest.raises(grpcstatus.StatusError, match=r"^rpc error: code = Internal desc = no$"):
            client.node_get_info(CTX)


def test_client_node_publish_volume(socket: str, tmp_path: Path) -> None:
    node, path = FakeNode(), str(tmp_path / "path")
    with client_of(node, socket) as client:
        publish(client, path, fs_group=3000)
    published = node.published["vol-test"]
    assert published.path == path
    assert published.device_mount_path == "/staging"
    assert published.volume_mount_group == "3000"
    assert published.volume_context == {"attr0": "val0"}
    assert published.publish_context == {"device": "/dev/null"}
    assert published.secrets == {"key": "secret"}
    assert (published.fs_type, published.mount_flags) == ("ext4", ["noatime"])
    assert not published.read_only and not published.block


def test_client_node_stage_volume(socket: str) -> None:
    node = FakeNode()
    with client_of(node, socket) as client:
        stage(client, "/staging", fs_group=3000)
    staged = node.staged["vol-test"]
    assert (staged.path, staged.volume_mount_group, staged.secrets) == ("/staging", "3000", {"key": "secret"})
    assert (staged.volume_context, staged.publish_context) == ({"attr0": "val0"}, {"device": "/dev/null"})
    assert (staged.fs_type, staged.mount_flags) == ("ext4", ["noatime"])


def test_device_has_no_mount_options(socket: str, tmp_path: Path) -> None:
    node = FakeNode()
    with client_of(node, socket) as client:
        publish(client, str(tmp_path / "dev"), fs_type="block", fs_group=1)
    published = node.published["vol-test"]
    assert published.block and (published.fs_type, published.volume_mount_group) == ("", "")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: publish(client, "/path", volume_id=""), "missing volume id"),
        (lambda client: publish(client, ""), "missing target path"),
        (lambda client: stage(client, "/path", vol_id=""), "missing volume id"),
        (lambda client: stage(client, ""), "missing staging target path"),
        (lambda client: client.node_unpublish_volume(CTX, "", "/path"), "missing volume id"),
        (lambda client: client.node_unpublish_volume(CTX, "vol", ""), "missing target path"),
        (lambda client: client.node_unstage_volume(CTX, "", "/path"), "missing volume id"),
        (lambda client: client.node_unstage_volume(CTX, "vol", ""), "missing staging target path"),
        (lambda client: client.node_get_volume_stats(CTX, "", "/path"), "missing volume id"),
        (lambda client: client.node_get_volume_stats(CTX, "vol", ""), "missing target path"),
        (lambda client: expand(client, volume_id=""), "missing volume id"),
        (lambda client: expand(client, volume_path=""), "missing volume path"),
        (lambda client: expand(client, new_size=resource.new_quantity(-10)), "size can not be less than 0"),
    ],
)
def test_nothing_is_asked_without_arguments(
    socket: str, call: Callable[[csi_client.CSIDriverClient], object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        call(new_client(socket))


def expand(client: csi_client.CSIDriverClient, **changes: Any) -> resource.Quantity:
    options: dict[str, Any] = {
        "volume_id": "vol-abcde",
        "volume_path": "/foo/bar",
        "staging_target_path": "/staging",
        "fs_type": "ext4",
        "access_mode": v1.READ_WRITE_ONCE,
        "new_size": resource.must_parse("10Gi"),
    }
    return client.node_expand_volume(CTX, csi_client.CSIResizeOptions(**(options | changes)))


def test_node_expand_volume(socket: str) -> None:
    node = FakeNode()
    with client_of(node, socket) as client:
        assert str(expand(client, secrets={"a": "b"}, mount_options=["ro"])) == "10Gi"
    assert node.expansion is not None
    assert node.expansion.capacity_range.required_bytes == 10 * 2**30
    assert node.expansion.staging_target_path == "/staging"
    assert list(node.expansion.volume_capability.mount.mount_flags) == ["ro"]
    assert dict(node.expansion.secrets) == {"a": "b"}


FINAL = {code: True for code in grpc.StatusCode if code is not grpc.StatusCode.OK} | dict.fromkeys(
    (
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    ),
    False,
)


@pytest.mark.parametrize(("code", "final"), FINAL.items(), ids=[code.name for code in FINAL])
def test_what_an_answer_says_of_the_operation(socket: str, tmp_path: Path, code: grpc.StatusCode, final: bool) -> None:
    node = FakeNode()
    node.errors = dict.fromkeys(("NodePublishVolume", "NodeStageVolume", "NodeExpandVolume"), (code, "no"))
    expected = grpcstatus.StatusError if final else volumetypes.UncertainProgressError
    text = f"^rpc error: code = {grpcstatus.code_name(code)} desc = no$"
    with client_of(node, socket) as client:
        for call in (publish, stage):
            with pytest.raises(expected, match=text):
                call(client, str(tmp_path / "path"))
        with pytest.raises(expected, match=text):
            expand(client)


def test_capabilities_that_are_not_told_leave_it_uncertain(socket: str) -> None:
    node = FakeNode()
    node.errors["NodeGetCapabilities"] = (grpc.StatusCode.UNAVAILABLE, "connection error")
    with client_of(node, socket) as client, pytest.raises(volumetypes.UncertainProgressError, match="connection error"):
        client.node_supports_stage_unstage(CTX)


def test_call_that_is_broken_off_leaves_it_uncertain() -> None:
    """A call that fails with an error such as a lack of memory leaves the volume uncertain.

    The driver may have done its work.
    """

    class Node:
        def NodeGetCapabilities(self, request: Any, timeout: float) -> Any:
            return csi_pb2.NodeGetCapabilitiesResponse()

        def NodeStageVolume(self, request: Any, timeout: float) -> Any:
            raise MemoryError

    def create(addr: str) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext(Node())

    client = csi_client.CSIDriverClient(TEST_DRIVER, "", csi_metrics.MetricsManager(TEST_DRIVER), create)
    with pytest.raises(volumetypes.UncertainProgressError, match="MemoryError"):
        stage(client, "/path")


def test_driver_that_is_away(socket: str) -> None:
    dialing = f'desc = "transport: Error while dialing: dial unix {socket}: connect: '
    with pytest.raises(grpcstatus.StatusError) as raised:
        new_client(socket).node_unstage_volume(CTX, "vol", "/path")
    assert str(raised.value) == (
        f'rpc error: code = Unavailable desc = connection error: {dialing}no such file or directory"'
    )
    with serve(FakeNode(), socket):
        pass
    Path(socket).touch()
    with pytest.raises(volumetypes.UncertainProgressError, match="connect: connection refused"):
        stage(new_client(socket), "/path")


@contextlib.contextmanager
def dies_at_first_call(path: str) -> Iterator[None]:
    """Run a server that closes the connection when a call has arrived."""
    listener = socketlib.socket(socketlib.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve_once() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as received:
            connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # This is an empty SETTINGS frame.
            received.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
            kind = -1
            while kind != 1:  # This is the type of a HEADERS frame.
                frame = received.read(9)
                kind = frame[3]
                received.read(int.from_bytes(frame[:3]))

    thread = golang.go(serve_once, name="dying-driver")
    with listener:
        yield
        thread.join(30)


def test_driver_that_dies_in_the_middle_of_a_call(socket: str) -> None:
    with dies_at_first_call(socket), pytest.raises(volumetypes.UncertainProgressError) as raised:
        new_client(socket).node_supports_stage_unstage(CTX)
    assert str(raised.value) == "rpc error: code = Unavailable desc = error reading from server: EOF"


def test_driver_that_comes_back_is_found_at_once(socket: str) -> None:
    client = new_client(socket)
    for _ in range(5):
        with pytest.raises(volumetypes.UncertainProgressError):
            client.node_supports_stage_unstage(CTX)
    with serve(FakeNode("STAGE_UNSTAGE_VOLUME"), socket):
        assert client.node_supports_stage_unstage(CTX)


def test_time_limit_of_a_call(socket: str) -> None:
    release = golang.Channel[None]()

    class Slow(FakeNode):
        def NodeStageVolume(self, request: Any, context: Any) -> Any:
            release.recv(30)
            return csi_pb2.NodeStageVolumeResponse()

    with client_of(Slow(), socket) as client:
        ctx, cancel = golang.with_timeout(CTX, 0.2)
        try:
            with pytest.raises(volumetypes.UncertainProgressError, match="DeadlineExceeded desc = context deadline"):
                client.node_stage_volume(ctx, "vol", {}, "/path", "", v1.READ_WRITE_ONCE, {}, {}, [], None)
        finally:
            cancel()
            release.close()


@pytest.mark.parametrize(
    ("capability", "ask"),
    [
        ("STAGE_UNSTAGE_VOLUME", csi_client.CSIDriverClient.node_supports_stage_unstage),
        ("EXPAND_VOLUME", csi_client.CSIDriverClient.node_supports_node_expand),
        ("GET_VOLUME_STATS", csi_client.CSIDriverClient.node_supports_volume_stats),
        ("VOLUME_MOUNT_GROUP", csi_client.CSIDriverClient.node_supports_volume_mount_group),
        (
            "SINGLE_NODE_MULTI_WRITER",
            csi_client.CSIDriverClient.node_supports_single_node_multi_writer_access_mode,
        ),
    ],
)
def test_client_node_supports_capabilities(
    socket: str, capability: str, ask: Callable[[csi_client.CSIDriverClient, golang.Context], bool]
) -> None:
    others = {"STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", "GET_VOLUME_STATS", "VOLUME_MOUNT_GROUP"} - {capability}
    node = FakeNode(capability, "VOLUME_CONDITION")
    with client_of(node, socket) as client:
        assert ask(client, CTX)
        node.capabilities = list(others)
        assert not ask(client, CTX)


@pytest.mark.parametrize(
    ("capable", "mode", "expected"),
    [
        (False, v1.READ_WRITE_ONCE, "SINGLE_NODE_WRITER"),
        (False, v1.READ_ONLY_MANY, "MULTI_NODE_READER_ONLY"),
        (False, v1.READ_WRITE_MANY, "MULTI_NODE_MULTI_WRITER"),
        (False, v1.READ_WRITE_ONCE_POD, "SINGLE_NODE_WRITER"),
        (True, v1.READ_WRITE_ONCE, "SINGLE_NODE_MULTI_WRITER"),
        (True, v1.READ_ONLY_MANY, "MULTI_NODE_READER_ONLY"),
        (True, v1.READ_WRITE_MANY, "MULTI_NODE_MULTI_WRITER"),
        (True, v1.READ_WRITE_ONCE_POD, "SINGLE_NODE_SINGLE_WRITER"),
        (True, "Another", "UNKNOWN"),
    ],
)
def test_access_mode_mapping(socket: str, capable: bool, mode: str, expected: str) -> None:
    node = FakeNode(*(["SINGLE_NODE_MULTI_WRITER"] if capable else []))
    with client_of(node, socket) as client:
        stage(client, "/path", access_mode=mode)
    assert node.staged["vol-test"].access_mode == expected


STATS = csi_pb2.NodeGetVolumeStatsResponse(
    usage=[
        csi_pb2.VolumeUsage(available=1, total=3, used=2, unit=csi_pb2.VolumeUsage.BYTES),
        csi_pb2.VolumeUsage(available=10, total=30, used=20, unit=csi_pb2.VolumeUsage.INODES),
    ],
    volume_condition=csi_pb2.VolumeCondition(abnormal=True, message="on fire"),
)


def test_volume_stats(socket: str) -> None:
    node = FakeNode("VOLUME_CONDITION")
    node.stats = STATS
    with client_of(node, socket) as client:
        metrics = client.node_get_volume_stats(CTX, "vol", "/path")
    bytes_ = [metrics.available, metrics.capacity, metrics.used]
    inodes = [metrics.inodes_free, metrics.inodes, metrics.inodes_used]
    assert [quantity and quantity.value() for quantity in bytes_] == [1, 3, 2]
    assert [quantity and quantity.value() for quantity in inodes] == [10, 30, 20]
    assert (metrics.abnormal, metrics.message) == (None, None), "the feature gate is off"


def test_volume_stats_without_usage(socket: str) -> None:
    with client_of(FakeNode(), socket) as client, pytest.raises(ValueError, match="usage is nil"):
        client.node_get_volume_stats(CTX, "vol", "/path")


@pytest.fixture
def volume_health() -> Iterator[None]:
    features.feature_gate.set_from_map({features.CSI_VOLUME_HEALTH: True})
    yield
    features.feature_gate.set_from_map({features.CSI_VOLUME_HEALTH: False})


@pytest.mark.usefixtures("volume_health")
def test_volume_health(socket: str) -> None:
    node = FakeNode("VOLUME_CONDITION")
    node.stats = csi_pb2.NodeGetVolumeStatsResponse(volume_condition=STATS.volume_condition)
    with client_of(node, socket) as client:
        metrics = client.node_get_volume_stats(CTX, "vol", "/path")
        assert (metrics.abnormal, metrics.message) == (True, "on fire")
        node.capabilities, node.stats = [], STATS
        metrics = client.node_get_volume_stats(CTX, "vol", "/path")
        assert (metrics.abnormal, metrics.message) == (None, None)


def test_get_metrics(socket: str) -> None:
    node, store = FakeNode("GET_VOLUME_STATS"), DriversStore()
    node.stats = STATS
    metrics = csi_metrics.MetricsCSI("vol", "/path", csi_client.CSIClientGetter(store, TEST_DRIVER))
    with pytest.raises(volumetypes.TransientOperationFailure, match="not found in the list"):
        metrics.get_metrics()
    store.set(TEST_DRIVER, Driver(socket, V1))
    with serve(node, socket):
        found = metrics.get_metrics()
        assert found.capacity == resource.new_quantity(3)
        assert found.time is not None
        node.capabilities.clear()
        with pytest.raises(metrics_errors.MetricsError, match=f"not supported for {TEST_DRIVER} volumes") as raised:
            metrics.get_metrics()
        assert metrics_errors.is_not_supported(raised.value)


def test_metrics_of_a_driver_that_comes_back_on_another_socket(socket: str) -> None:
    """The metrics come from the driver's current socket.

    The stats provider keeps the volume's mounter for as long as the pod lives.
    """
    node, store = FakeNode("GET_VOLUME_STATS"), DriversStore()
    node.stats = STATS
    metrics = csi_metrics.MetricsCSI("vol", "/path", csi_client.CSIClientGetter(store, TEST_DRIVER))
    for path in (socket, f"{socket}.new"):
        store.set(TEST_DRIVER, Driver(path, V1))
        with serve(node, path):
            assert metrics.get_metrics().capacity == resource.new_quantity(3)


@pytest.mark.parametrize(
    ("spec", "migrated"),
    [(None, "false"), (Spec(volume=v1.Volume()), "false"), (Spec(volume=v1.Volume(), migrated=True), "true")],
)
def test_calls_are_counted(socket: str, spec: Spec | None, migrated: str) -> None:
    node, store = FakeNode(), DriversStore()
    name = f"counted-{migrated}-{spec is None}"
    store.set(name, Driver(socket, V1))
    node.errors["NodeUnstageVolume"] = (grpc.StatusCode.NOT_FOUND, "no")
    ctx, cancel = csi_util.create_csi_operation_context(spec, 30.0)
    with serve(node, socket), pytest.raises(grpcstatus.StatusError):
        csi_client.new_csi_driver_client(store, name).node_unstage_volume(ctx, "vol", "/path")
    cancel()
    counted = [
        (sample.labels, sample.value)
        for family in volumeutil.CSI_OPERATIONS_LATENCY_METRIC.collect()
        for sample in family.samples
        if sample.name.endswith("_count") and sample.labels["driver_name"] == name
    ]
    method = "/csi.v1.Node/NodeUnstageVolume"
    labels = {"driver_name": name, "method_name": method, "grpc_status_code": "NotFound", "migrated": migrated}
    assert counted == [(labels, 1.0)]


def test_drivers_store() -> None:
    store = csi_drivers_store.DriversStore()
    assert store.get("a") is None
    driver = Driver("/a.sock", V1)
    store.set("a", driver)
    assert store.get("a") == driver
    store.delete("a")
    store.delete("a")
    assert store.get("a") is None
    store.set("a", driver)
    store.clear()
    assert store.get("a") is None
