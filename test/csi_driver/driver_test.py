"""Test the driver over real gRPC, with real mounts."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.csi import CSIDriver

from csi_driver import faults
from kubelet.apis.pluginregistration.v1 import api_pb2 as registration_pb2
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from pkg.csi_spec import csi_pb2, csi_pb2_grpc

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")

NAME = "test.csi.example"
TIMEOUT = 20.0
ALL = "stage,stats,expand,condition"
MIB = 1 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """Create a directory with a short name, so that the paths of sockets fit."""
    with tempfile.TemporaryDirectory(prefix="csi-") as name:
        yield Path(name)


@pytest.fixture
def driver(folder: Path) -> Iterator[CSIDriver]:
    options = {"capabilities": ALL, "topology": "zone=a", "max-volumes": 3}
    with CSIDriver(folder, NAME, folder / "kubelet", "n1", options) as driver:
        yield driver
        driver.forget_faults()


class Client:
    """Make the calls that the kubelet makes for one volume, on a separate channel."""

    def __init__(self, driver: CSIDriver, volume: str = "v", block: bool = False) -> None:
        self._channel = grpc.insecure_channel(f"unix://{driver.socket}")
        self.node = csi_pb2_grpc.NodeStub(self._channel)
        self.identity = csi_pb2_grpc.IdentityStub(self._channel)
        self.volume = volume
        folder = driver.socket.parent / volume
        folder.mkdir(exist_ok=True)
        self.staging, self.target = folder / "globalmount", folder / "target"
        self.staging.mkdir(exist_ok=True)
        self._capability = csi_pb2.VolumeCapability()
        self._capability.access_mode.mode = csi_pb2.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
        kind = self._capability.block if block else self._capability.mount
        kind.SetInParent()

    def stage(self) -> None:
        request = csi_pb2.NodeStageVolumeRequest(
            volume_id=self.volume, staging_target_path=str(self.staging), volume_capability=self._capability
        )
        self.node.NodeStageVolume(request, timeout=TIMEOUT)

    def publish(self, **more: Any) -> None:
        request = csi_pb2.NodePublishVolumeRequest(
            volume_id=self.volume, target_path=str(self.target), volume_capability=self._capability, **more
        )
        if "volume_context" not in more:
            request.staging_target_path = str(self.staging)
        self.node.NodePublishVolume(request, timeout=TIMEOUT)

    def unpublish(self) -> None:
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=self.volume, target_path=str(self.target))
        self.node.NodeUnpublishVolume(request, timeout=TIMEOUT)

    def unstage(self) -> None:
        request = csi_pb2.NodeUnstageVolumeRequest(volume_id=self.volume, staging_target_path=str(self.staging))
        self.node.NodeUnstageVolume(request, timeout=TIMEOUT)

    def expand(self, size: int) -> int:
        request = csi_pb2.NodeExpandVolumeRequest(volume_id=self.volume, volume_path=str(self.target))
        request.capacity_range.required_bytes = size
        return int(self.node.NodeExpandVolume(request, timeout=TIMEOUT).capacity_bytes)

    def stats(self) -> Any:
        request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=self.volume, volume_path=str(self.target))
        return self.node.NodeGetVolumeStats(request, timeout=TIMEOUT)

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def client(driver: CSIDriver) -> Iterator[Client]:
    client = Client(driver)
    yield client
    client.close()


@pytest.fixture
def disk(driver: CSIDriver) -> Iterator[Client]:
    client = Client(driver, "disk", block=True)
    yield client
    client.close()


def test_what_it_is(driver: CSIDriver, client: Client) -> None:
    info = client.node.NodeGetInfo(csi_pb2.NodeGetInfoRequest())
    assert (info.node_id, info.max_volumes_per_node) == ("n1", 3)
    assert dict(info.accessible_topology.segments) == {"zone": "a"}
    assert client.identity.GetPluginInfo(csi_pb2.GetPluginInfoRequest()).name == NAME
    rpc = csi_pb2.NodeServiceCapability.RPC
    answer = client.node.NodeGetCapabilities(csi_pb2.NodeGetCapabilitiesRequest())
    types = [rpc.STAGE_UNSTAGE_VOLUME, rpc.GET_VOLUME_STATS, rpc.EXPAND_VOLUME, rpc.VOLUME_CONDITION]
    assert [each.rpc.type for each in answer.capabilities] == types


def test_it_registers(driver: CSIDriver, folder: Path) -> None:
    registration = folder / "kubelet" / "plugins_registry" / f"{NAME}-reg.sock"
    with grpc.insecure_channel(f"unix://{registration}") as channel:
        stub = registration_grpc.RegistrationStub(channel)
        info = stub.GetInfo(registration_pb2.InfoRequest())
        stub.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=True))
    assert (info.type, info.name, info.endpoint) == ("CSIPlugin", NAME, str(driver.socket))
    assert driver.calls("NotifyRegistrationStatus")[0].request == {"plugin_registered": True}
    driver.stop()
    assert not registration.exists()


def test_life_of_a_volume(driver: CSIDriver, client: Client) -> None:
    """Each call for a volume can be repeated."""
    for _ in range(2):
        client.stage()
    for _ in range(2):
        client.publish()
    assert sorted(driver.mounts()) == sorted([str(client.staging), str(client.target)])
    (client.target / "file").write_text("content")
    assert (client.staging / "file").read_text() == "content"
    for _ in range(2):
        client.unpublish()
    assert not client.target.exists()
    for _ in range(2):
        client.unstage()
    assert driver.mounts() == []
    client.stage()
    client.publish(readonly=True)
    assert (client.target / "file").read_text() == "content"
    with pytest.raises(OSError, match="Read-only"):
        (client.target / "file").write_text("other")
    client.unpublish()
    client.unstage()


def test_life_of_a_disk(driver: CSIDriver, disk: Client) -> None:
    for _ in range(2):
        disk.stage()
    assert len(driver.loop_devices()) == 1
    for _ in range(2):
        disk.publish()
    assert disk.target.is_block_device()
    assert disk.expand(32 * MIB) == 32 * MIB
    with disk.target.open("rb") as device:
        assert device.seek(0, os.SEEK_END) == 32 * MIB
    for _ in range(2):
        disk.unpublish()
    for _ in range(2):
        disk.unstage()
    assert driver.loop_devices() == [] and driver.mounts() == [] and not disk.target.exists()


def test_nothing_is_left_of_what_a_test_did_not_undo(driver: CSIDriver, disk: Client, client: Client) -> None:
    """The clean-up removes everything, including the loop devices with which a kubelet keeps devices open."""
    for each in (disk, client):
        each.stage()
        each.publish()
    subprocess.run(["losetup", "--find", disk.target], check=True)
    assert len(driver.loop_devices()) == 2 and len(driver.mounts()) == 3
    driver.clean()
    assert driver.loop_devices() == [] and driver.mounts() == []


def test_a_volume_of_a_pod_alone(driver: CSIDriver, client: Client) -> None:
    client.publish(volume_context={"csi.storage.k8s.io/ephemeral": "true"})
    (client.target / "file").write_text("content")
    client.unpublish()
    assert driver.mounts() == [] and not (driver.state / "volumes" / "v").exists()
    assert driver.violations() == []


def test_stats_and_size(driver: CSIDriver, client: Client) -> None:
    client.stage()
    client.publish()
    (client.target / "file").write_bytes(b"x" * 1000)
    space, inodes = client.stats().usage
    assert (space.total, space.used, space.available) == (16 * MIB, 1000, 16 * MIB - 1000)
    assert (inodes.unit, inodes.used) == (csi_pb2.VolumeUsage.INODES, 1)
    assert client.expand(20 * MIB) == 20 * MIB
    assert client.expand(10 * MIB) == 20 * MIB, "the volume has shrunk"
    assert client.stats().usage[0].total == 20 * MIB and not client.stats().volume_condition.abnormal
    (driver.state / "volumes" / "v" / "abnormal").write_text("on fire")
    condition = client.stats().volume_condition
    assert (condition.abnormal, condition.message) == (True, "on fire")


CALLS: list[tuple[str, Callable[[Client], object], grpc.StatusCode]] = [
    ("not staged", lambda client: client.publish(), grpc.StatusCode.FAILED_PRECONDITION),
    ("no such volume", lambda client: client.expand(1), grpc.StatusCode.NOT_FOUND),
    ("nowhere", lambda client: client.stats(), grpc.StatusCode.NOT_FOUND),
    (
        "nothing said",
        lambda client: client.node.NodeStageVolume(csi_pb2.NodeStageVolumeRequest()),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
]


@pytest.mark.parametrize(("what", "call", "code"), CALLS, ids=[each[0] for each in CALLS])
def test_refusals(
    driver: CSIDriver, client: Client, what: str, call: Callable[[Client], object], code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(client)
    assert caught.value.code() == code
    assert driver.calls()[-1].code == code.name


def test_calls_that_fail(driver: CSIDriver, client: Client) -> None:
    driver.let("NodeStageVolume", faults.FAIL, times=2, code="RESOURCE_EXHAUSTED", message="no room")
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as caught:
            client.stage()
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")
    client.stage()
    assert [call.code for call in driver.calls()] == ["RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", "OK"]


def test_a_call_that_waits(driver: CSIDriver, client: Client) -> None:
    driver.let("NodeStageVolume", faults.WAIT, faults.DURING)
    with futures.ThreadPoolExecutor(1) as threads:
        staging = threads.submit(client.stage)
        driver.wait_for_waiting("NodeStageVolume")
        with pytest.raises(grpc.RpcError) as caught:
            client.stage()
        assert caught.value.code() == grpc.StatusCode.ABORTED and driver.mounts() == []
        driver.go_on("NodeStageVolume")
        staging.result(TIMEOUT)
    assert driver.mounts() == [str(client.staging)]
    assert [call.code for call in driver.calls()] == ["OK", "ABORTED"]


@pytest.mark.parametrize("where", [faults.BEFORE, faults.DURING, faults.AFTER])
@pytest.mark.parametrize("block", [False, True], ids=["mount", "block"])
def test_death_at_every_call(driver: CSIDriver, client: Client, disk: Client, where: str, block: bool) -> None:
    """If a driver is killed during a call, the restarted driver completes the repeated call."""
    asking = disk if block else client
    for step in (asking.stage, asking.publish, asking.unpublish, asking.unstage):
        method = f"Node{step.__name__.capitalize()}Volume"
        driver.let(method, faults.DIE, where)
        with pytest.raises(grpc.RpcError) as caught:
            step()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        driver.wait_for_death()
        driver.start()
        again = Client(driver, asking.volume, block)
        getattr(again, step.__name__)()
        again.close()
        assert [call.code for call in driver.calls(method)] == ["", "OK"]
    assert driver.mounts() == driver.loop_devices() == driver.violations() == []
