"""Test what the kubelet reads about disks in /sys."""

from pathlib import Path

import pytest

from pkg.volume.util import device_util

IQN = "iqn.2014-12.com.example:test.tgt00"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create two disks, one of which has two paths, and sessions of two targets."""
    for disk in ("sda", "sdb", "sdc"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / disk).touch()
    (tmp_path / "dev/disk").mkdir()
    (tmp_path / "dev/disk/link").symlink_to("../sda")
    for disk in ("sda", "sdb"):
        (tmp_path / "sys/block/dm-1/slaves" / disk).mkdir(parents=True)
    (tmp_path / "sys/block/dm-0/slaves").mkdir(parents=True)
    session(tmp_path, 2, 1, IQN, "10.0.0.1", "sda")
    session(tmp_path, 3, 2, IQN, "fd00::2", "sdb")
    session(tmp_path, 4, 3, "iqn.other", "10.0.0.3", "sdc")
    (tmp_path / "sys/class/iscsi_host/nohost").mkdir()
    return tmp_path


def session(root: Path, host: int, number: int, iqn: str, address: str, disk: str) -> None:
    top = root / f"sys/class/iscsi_host/host{host}/device/session{number}"
    (top / f"iscsi_session/session{number}").mkdir(parents=True)
    (top / f"iscsi_session/session{number}/targetname").write_text(iqn + "\n")
    connection = top / f"connection{number}:0/iscsi_connection/connection{number}:0"
    connection.mkdir(parents=True)
    for name, value in {"address": address, "port": "3260", "persistent_address": address}.items():
        (connection / name).write_text(value + "\n")
    (connection / "persistent_port").write_text("3261\n")
    (top / f"target{host}:0:0/{host}:0:0:7/block" / disk).mkdir(parents=True)


@pytest.mark.parametrize(
    ("device", "mapped"),
    [
        ("/dev/disk/link", "/dev/dm-1"),
        ("/dev/sdb", "/dev/dm-1"),
        ("/dev/dm-9", "/dev/dm-9"),
        ("/dev/sdc", ""),
        ("/dev/missing", ""),
        ("/sys/block", ""),
    ],
)
def test_multipath_device(root: Path, device: str, mapped: str) -> None:
    assert device_util.DeviceHandler(str(root)).find_multipath_device_for_device(device) == mapped


def test_paths_of_a_multipath_device(root: Path) -> None:
    handler = device_util.DeviceHandler(str(root))
    assert handler.find_slave_devices_on_multipath("/dev/dm-1") == ["/dev/sda", "/dev/sdb"]
    assert handler.find_slave_devices_on_multipath("/dev/dm-7") == []
    assert handler.find_slave_devices_on_multipath("/dev/disk/x") == []


def test_portals_of_a_target(root: Path) -> None:
    handler = device_util.DeviceHandler(str(root))
    assert handler.get_iscsi_portal_host_map_for_target(IQN) == {
        "10.0.0.1:3260": 2,
        "10.0.0.1:3261": 2,
        "[fd00::2]:3260": 3,
        "[fd00::2]:3261": 3,
    }
    (root / "sys/class/iscsi_host/host2/device/session1/iscsi_session/session1/targetname").unlink()
    (root / "sys/class/iscsi_host/host3/device/session2/connection2:0/iscsi_connection/connection2:0/port").unlink()
    assert handler.get_iscsi_portal_host_map_for_target(IQN) == {}


def test_devices_of_a_lun(root: Path) -> None:
    handler = device_util.DeviceHandler(str(root))
    assert handler.find_devices_for_iscsi_lun(IQN, 7) == ["sda", "sdb"]
    assert handler.find_devices_for_iscsi_lun(IQN, 8) == []


def test_node_without_iscsi(tmp_path: Path) -> None:
    handler = device_util.DeviceHandler(str(tmp_path))
    assert handler.get_iscsi_portal_host_map_for_target(IQN) == {} and handler.find_devices_for_iscsi_lun(IQN, 0) == []
    assert handler.find_multipath_device_for_device("/dev/sda") == ""
