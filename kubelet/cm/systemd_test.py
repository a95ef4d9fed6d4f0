"""Slices, with a real bus on which a systemd of ours sits."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jeepney
import pytest
from jeepney.io import blocking

from kubelet.cm import systemd
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.testing import FakeCgroupfs, FakeSystemd
from kubelet.cm.types import CgroupName, ResourceConfig
from pkg import golang

MANAGER = jeepney.DBusAddress("/org/freedesktop/systemd1", interface="org.freedesktop.systemd1.Manager")
POD = CgroupName(("kubepods", "burstable", "podabc-1"))
UNIT = "kubepods-burstable-podabc_1.slice"


class BusSystemd:
    """Answers as systemd does: a call starts a job, and a signal tells how that ended."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, Any]] = {}
        self.result = "done"
        self.subscribed = 0
        self.reset: list[str] = []
        self._jobs = 0
        self._connection = blocking.open_dbus_connection("SYSTEM")
        self._connection.send_and_get_reply(jeepney.message_bus.RequestName("org.freedesktop.systemd1"))
        self._lock = threading.Lock()
        self._thread = golang.go(self._serve, name="fake-systemd")

    def close(self) -> None:
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._connection.close()

    def _serve(self) -> None:
        try:
            while True:
                message = self._connection.receive()
                if message.header.message_type is jeepney.MessageType.method_call:
                    self._answer(message)
        except OSError:
            pass  # closed

    def _answer(self, message: jeepney.Message) -> None:
        body = message.body
        match message.header.fields[jeepney.HeaderFields.member]:
            case "Get":
                self._reply(message, "v", (("s", "v252.5-2"),))
            case "Subscribe":
                self.subscribed += 1
                self._reply(message)
            case "StartTransientUnit":
                unit, _mode, properties, _aux = body
                if unit in self.units:
                    self._error(message, "org.freedesktop.systemd1.UnitExists", f"Unit {unit} already exists.")
                    return
                if self.result == "done":
                    self.units[unit] = {name: value for name, (_signature, value) in properties}
                self._job(message, unit)
            case "StopUnit":
                if self.units.pop(body[0], None) is None:
                    self._error(message, "org.freedesktop.systemd1.NoSuchUnit", f"Unit {body[0]} not loaded.")
                    return
                self._job(message, body[0])
            case "SetUnitProperties":
                unit, runtime, properties = body
                assert runtime
                self.units[unit] |= {name: value for name, (_signature, value) in properties}
                self._reply(message)
            case "ResetFailedUnit":
                self.reset.append(body[0])
                self._error(message, "org.freedesktop.systemd1.NoSuchUnit", f"Unit {body[0]} not loaded.")
            case other:
                self._error(message, "org.freedesktop.DBus.Error.UnknownMethod", other)

    def _job(self, message: jeepney.Message, unit: str) -> None:
        self._jobs += 1
        path = f"/org/freedesktop/systemd1/job/{self._jobs}"
        # Another job ends as well, and one may end before its caller hears of its beginning.
        for number, job, result in ((999, "/org/freedesktop/systemd1/job/999", "failed"), (1, path, self.result)):
            self._send(jeepney.new_signal(MANAGER, "JobRemoved", "uoss", (number, job, unit, result)))
        self._reply(message, "o", (path,))

    def _reply(self, message: jeepney.Message, signature: str | None = None, body: tuple[Any, ...] = ()) -> None:
        self._send(jeepney.new_method_return(message, signature, body))

    def _error(self, message: jeepney.Message, name: str, text: str) -> None:
        self._send(jeepney.new_error(message, name, "s", (text,)))

    def _send(self, message: jeepney.Message) -> None:
        with self._lock:
            self._connection.send(message)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[BusSystemd]:
    assert shutil.which("dbus-daemon"), "dbus-daemon is missing; `hack/setup dbus` installs it, as root on Debian"
    command = ["dbus-daemon", "--session", "--nofork", "--print-address"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", process.stdout.readline().strip())
    made = BusSystemd()
    yield made
    made.close()
    process.terminate()
    process.communicate(timeout=10)


@pytest.fixture
def manager(bus: BusSystemd) -> Iterator[systemd.DBusManager]:
    made = systemd.DBusManager()
    yield made
    made.close()


def test_a_slice_lives(bus: BusSystemd, manager: systemd.DBusManager) -> None:
    assert manager.version() == 252
    manager.start_slice(UNIT, systemd.slice_properties(UNIT, "kubepods-burstable.slice", 2))
    assert bus.units[UNIT] == {
        "Description": f"libcontainer container {UNIT}",
        "Wants": ["kubepods-burstable.slice"],
        "MemoryAccounting": True,
        "CPUAccounting": True,
        "IOAccounting": True,
        "TasksAccounting": True,
        "DefaultDependencies": False,
    }
    manager.start_slice(UNIT, [])
    manager.set_unit_properties(UNIT, [("MemoryMax", ("t", 5)), ("AllowedCPUs", ("ay", b"\x03"))])
    assert (bus.units[UNIT]["MemoryMax"], bus.units[UNIT]["AllowedCPUs"]) == (5, b"\x03")
    manager.stop_unit(UNIT)
    assert bus.units == {}
    manager.stop_unit(UNIT)
    assert bus.reset == [UNIT, UNIT]
    assert bus.subscribed == 1


def test_a_slice_that_cannot_be_made(bus: BusSystemd, manager: systemd.DBusManager) -> None:
    bus.result = "failed"
    with pytest.raises(systemd.SystemdError, match=f"error creating systemd unit `{UNIT}`: got `failed`"):
        manager.start_slice(UNIT, [])


def test_a_bus_that_has_gone_is_found_again(bus: BusSystemd, manager: systemd.DBusManager) -> None:
    manager.start_slice(UNIT, [])
    assert manager._connection is not None
    manager._connection.sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(systemd.SystemdError, match="the system bus does not answer"):
        manager.set_unit_properties(UNIT, [])
    manager.set_unit_properties(UNIT, [("MemoryMax", ("t", 5))])
    assert bus.units[UNIT]["MemoryMax"] == 5


def test_without_a_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    manager = systemd.DBusManager()
    assert manager.version() == -1
    with pytest.raises(systemd.SystemdError, match="cannot connect to the system bus"):
        manager.start_slice(UNIT, [])


@pytest.mark.parametrize(
    ("text", "version"), [('"v245.4-1.fc32"', 245), ("245", 245), ("v245-1.fc32", 245), ('"239.4"', 239)]
)
def test_parse_version(text: str, version: int) -> None:
    assert systemd._parse_version(text) == version


@pytest.mark.parametrize("text", ["", "-245", "NaN"])
def test_parse_version_that_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        systemd._parse_version(text)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [("0", b"\x01"), ("0-1", b"\x03"), ("4-7", b"\xf0"), ("0-7,9", b"\xff\x02"), ("8,10", b"\x00\x05")],
)
def test_cpus_to_bytes(cpus: str, expected: bytes) -> None:
    assert systemd.cpus_to_bytes(cpus) == expected


@pytest.mark.parametrize(
    ("path", "unit", "parent"),
    [
        ("/kubepods.slice", "kubepods.slice", "-.slice"),
        ("/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice", "kubepods.slice"),
        ("/a.slice/a-b.slice/a-b-c.slice", "a-b-c.slice", "a-b.slice"),
    ],
)
def test_unit_and_parent(path: str, unit: str, parent: str) -> None:
    assert systemd.unit_and_parent(path) == (unit, parent)


@pytest.mark.parametrize(
    ("quota", "period", "rounded"),
    [
        (-1, 100_000, -1),
        (20_000, 100_000, 20_000),
        (20_001, 100_000, 21_000),
        (1_000, 0, 1_000),
        (12_345, 50_000, 12_500),
    ],
)
def test_quota_is_rounded_up_to_whole_percents(quota: int, period: int, rounded: int) -> None:
    assert systemd.round_quota(quota, period) == rounded


# ---- What the cgroup managers ask of systemd ----

FULL = ResourceConfig(
    memory=1 << 20, cpu_shares=1024, cpu_quota=20_001, cpu_period=100_000, pids_limit=100, cpuset="0-1"
)


@pytest.mark.parametrize(
    ("version", "own"),
    [
        (1, {"MemoryLimit": 1 << 20, "CPUShares": 1024, "BlockIOAccounting": True}),
        (2, {"MemoryMax": 1 << 20, "CPUWeight": 39, "IOAccounting": True}),
    ],
)
def test_systemd_is_told_of_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, own: dict[str, Any]
) -> None:
    fake, bus = FakeCgroupfs(tmp_path, version, monkeypatch), FakeSystemd()
    manager = new_cgroup_manager("systemd", str(tmp_path), systemd=bus)
    manager.create(POD, FULL)
    common = {
        "CPUQuotaPeriodUSec": 100_000,
        "CPUQuotaPerSecUSec": 210_000,
        "TasksMax": 100,
        "AllowedCPUs": b"\x03",
        "Wants": ["kubepods-burstable.slice"],
    }
    found = bus.slices[UNIT]
    assert {name: found[name] for name in own | common} == own | common
    written = manager.get_cgroup_config(POD, "cpu")
    assert written.cpu_quota == 21_000, "what systemd makes of it"
    manager.update(POD, ResourceConfig(cpu_quota=-1, cpu_period=100_000, pids_limit=-1, memory=-1))
    assert (found["CPUQuotaPerSecUSec"], found["TasksMax"]) == (systemd.INFINITY, systemd.INFINITY)
    assert found["MemoryLimit" if version == 1 else "MemoryMax"] == systemd.INFINITY
    manager.destroy(POD)
    assert bus.slices == {}
    assert [call for call, _ in bus.calls] == ["start", "set", "set", "stop"]
    assert not manager.exists(POD)
    assert fake.directories()


def test_unified_settings_are_told_by_the_names_systemd_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCgroupfs(tmp_path, 2, monkeypatch)
    bus = FakeSystemd(241)
    manager = new_cgroup_manager("systemd", str(tmp_path), systemd=bus)
    manager.create(POD, ResourceConfig(unified={"memory.min": "5", "memory.high": "max", "io.weight": "1"}))
    found = bus.slices[UNIT]
    assert (found["MemoryMin"], found["MemoryHigh"]) == (5, systemd.INFINITY)
    manager.update(POD, FULL)
    assert not {"AllowedCPUs", "CPUQuotaPeriodUSec"} & found.keys(), "an old systemd does not know them"


def test_cgroupfs_driver_does_not_ask_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCgroupfs(tmp_path, 1, monkeypatch)
    bus = FakeSystemd()
    new_cgroup_manager("cgroupfs", str(tmp_path), systemd=bus).create(POD, FULL)
    assert bus.calls == []
