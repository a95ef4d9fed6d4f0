"""Test slices on a real bus with an imitation of systemd."""

from __future__ import annotations

import contextlib
import io
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
from jeepney.low_level import Parser

from kubelet.cm import systemd, systemd_manager
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.testing import FakeCgroupfs, FakeSystemd
from kubelet.cm.types import CgroupName, ResourceConfig
from pkg import golang
from pkg.apimachinery.util.runtime.testing import raising
from pkg.util import dbus

MANAGER = jeepney.DBusAddress("/org/freedesktop/systemd1", interface="org.freedesktop.systemd1.Manager")
POD = CgroupName(("kubepods", "burstable", "podabc-1"))
UNIT = "kubepods-burstable-podabc_1.slice"
SLICE = "kubepods.slice"


class BusSystemd:
    """Imitate systemd: a call starts a job, and a signal reports the job's result."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, Any]] = {SLICE: {}}
        self.result = "done"
        self.subscribed = 0
        self.reset: list[str] = []
        # The jobs of these units end only when release() is called.
        self.hanging: dict[str, str] = {}
        # If set, StopUnit fails with this D-Bus error.
        self.stop_error = ""
        # `client` is the name of the connection that sent the last call.
        self.client = ""
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
            pass  # The connection is closed.

    def _answer(self, message: jeepney.Message) -> None:
        body = message.body
        self.client = message.header.fields[jeepney.HeaderFields.sender]
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
            case "StopUnit" if self.stop_error:
                self._error(message, self.stop_error, "Access denied")
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
        if unit in self.hanging:
            self.hanging[unit] = path
            self._reply(message, "o", (path,))
            return
        # Another job ends too, and this job ends before the caller learns its path.
        for number, job, result in ((999, "/org/freedesktop/systemd1/job/999", "failed"), (1, path, self.result)):
            self._send(jeepney.new_signal(MANAGER, "JobRemoved", "uoss", (number, job, unit, result)))
        self._reply(message, "o", (path,))

    def release(self, unit: str) -> None:
        self._send(jeepney.new_signal(MANAGER, "JobRemoved", "uoss", (1, self.hanging[unit], unit, "done")))

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
def manager(bus: BusSystemd) -> Iterator[systemd_manager.DBusManager]:
    made = systemd_manager.DBusManager()
    yield made
    made.close()


def test_a_slice_lives(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
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
    assert UNIT not in bus.units
    manager.stop_unit(UNIT)
    assert bus.reset == [UNIT, UNIT]
    assert bus.subscribed == 1


def test_version_that_could_not_be_learnt_is_asked_for_again(
    bus: BusSystemd, manager: systemd_manager.DBusManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(manager, "_get_manager_property", raising(systemd.SystemdError("no answer")))
        assert manager.version() == -1
    assert manager.version() == 252


def test_a_slice_that_cannot_be_made(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    bus.result = "failed"
    with pytest.raises(systemd.SystemdError, match=f"error creating systemd unit `{UNIT}`: got `failed`"):
        manager.start_slice(UNIT, [])


def test_a_number_that_does_not_fit(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    with pytest.raises(systemd.SystemdError, match="cannot encode the request to systemd: argument out of range"):
        manager.set_unit_properties(UNIT, [("MemoryMax", ("t", 1 << 64))])
    assert manager.version() == 252


def test_a_lost_connection_fails_no_call(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    manager.start_slice(UNIT, [])
    lost = manager._conn
    assert lost is not None
    lost._sock.shutdown(socket.SHUT_RDWR)
    manager.set_unit_properties(UNIT, [("MemoryMax", ("t", 5))])
    assert bus.units[UNIT]["MemoryMax"] == 5
    assert manager._conn is not lost


def test_a_job_that_hangs_holds_up_nobody_else(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    manager.start_slice(UNIT, [])
    bus.hanging[UNIT] = ""
    stopping = golang.go(manager.stop_unit, UNIT, name="stopping")
    other = "kubepods-podother.slice"
    manager.start_slice(other, [])
    manager.set_unit_properties(other, [("MemoryMax", ("t", 5))])
    manager.stop_unit(other)
    while not bus.hanging[UNIT]:
        manager.set_unit_properties(SLICE, [])
    assert stopping.is_alive()
    bus.release(UNIT)
    stopping.join(30)
    assert bus.reset == [other, UNIT]


def test_who_waits_for_a_job_hears_of_a_lost_connection(
    bus: BusSystemd, manager: systemd_manager.DBusManager, log: io.StringIO
) -> None:
    bus.hanging[UNIT] = ""
    starting = golang.go(manager.start_slice, UNIT, [], name="starting")
    while not bus.hanging[UNIT]:
        manager.set_unit_properties(SLICE, [])
    assert manager._conn is not None
    # The slice exists when the call is repeated.
    manager._conn._sock.shutdown(socket.SHUT_RDWR)
    starting.join(30)
    assert not starting.is_alive()


def signal(*body: Any, signature: str | None = "uoss", **fields: Any) -> jeepney.Message:
    """Return a signal that a job has ended, or a signal that resembles one."""
    message = jeepney.new_signal(MANAGER, "JobRemoved", signature, body)
    message.header.fields |= {jeepney.HeaderFields[name]: value for name, value in fields.items()}
    return message


def test_nobody_but_systemd_is_believed(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    bus.hanging[UNIT] = ""
    starting = golang.go(manager.start_slice, UNIT, [], name="starting")
    while not bus.hanging[UNIT]:
        manager.set_unit_properties(SLICE, [])
    conn, job = manager._conn, bus.hanging[UNIT]
    with blocking.open_dbus_connection("SYSTEM") as stranger:
        for message in (
            signal(1, job, UNIT, "failed"),
            signal(1, job, UNIT, "failed", destination=bus.client),
            signal("no", "job", signature="ss", destination=bus.client),
            signal([1] * dbus.MAX_MESSAGE, signature="ai", destination=bus.client),
            # These messages pretend to be replies to the next calls.
            *(signal(destination=bus.client, signature=None, reply_serial=serial) for serial in range(1, 1000)),
        ):
            stranger.send(message)
        # Once this call has returned, the bus has received all messages.
        stranger.send_and_get_reply(jeepney.message_bus.GetId())
    manager.set_unit_properties(SLICE, [("MemoryMax", ("t", 5))])
    assert bus.units[SLICE]["MemoryMax"] == 5
    assert starting.is_alive()
    assert manager._conn is conn
    bus.release(UNIT)
    starting.join(30)
    assert not starting.is_alive()


def test_a_systemd_that_is_started_anew_is_asked_again(bus: BusSystemd, manager: systemd_manager.DBusManager) -> None:
    manager.start_slice(UNIT, [])
    before = manager._conn
    assert before is not None
    bus._send(jeepney.message_bus.ReleaseName("org.freedesktop.systemd1"))
    anew = BusSystemd()
    before._reader.join(30)
    manager.start_slice(UNIT, [])
    assert manager._conn is not before
    assert (anew.subscribed, list(anew.units)) == (1, [SLICE, UNIT])
    anew.close()


def test_a_unit_that_systemd_does_not_stop_keeps_no_pod_from_ending(
    bus: BusSystemd, manager: systemd_manager.DBusManager, log: io.StringIO
) -> None:
    bus.stop_error = "org.freedesktop.DBus.Error.AccessDenied"
    manager.stop_unit(UNIT)
    assert "Access denied" in log.getvalue()


class RefusingBus:
    """Accept every connection, and respond to each message with an error, or with bytes that are not a message."""

    def __init__(self, path: Path, nonsense: bytes = b"") -> None:
        self.address = f"unix:path={path}"
        self._nonsense = nonsense
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = golang.go(self._serve, name="refusing-bus")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # The connection is closed.
            # The client does not read such bytes to their end.
            with connection, contextlib.suppress(ConnectionResetError):
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        stream.readline()  # This line is the AUTH command.
        connection.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        stream.readline()  # This line is the BEGIN command.
        parser = Parser()
        while data := stream.read1():
            for message in parser.feed(data):
                answer = jeepney.new_error(message, "org.freedesktop.DBus.Error.LimitsExceeded", "s", ("too many",))
                answer.header.fields[jeepney.HeaderFields.sender] = "org.freedesktop.DBus"
                connection.sendall(self._nonsense or answer.serialise(serial=1))


@pytest.mark.parametrize(
    ("nonsense", "fault"),
    [
        pytest.param(b"", "cannot connect to the system bus: .*LimitsExceeded: too many", id="error"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot connect to the system bus", id="no D-Bus"),
    ],
)
def test_a_bus_that_refuses_everybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: io.StringIO, nonsense: bytes, fault: str
) -> None:
    refusing = RefusingBus(tmp_path / "bus", nonsense)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", refusing.address)
    manager = systemd_manager.DBusManager()
    with pytest.raises(systemd.SystemdError, match=fault):
        manager.start_slice(UNIT, [])
    assert manager.version() == -1
    refusing.close()


def test_without_a_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    manager = systemd_manager.DBusManager()
    assert manager.version() == -1
    with pytest.raises(systemd.SystemdError, match="cannot connect to the system bus"):
        manager.start_slice(UNIT, [])


@pytest.mark.parametrize(
    ("text", "version"), [('"v245.4-1.fc32"', 245), ("245", 245), ("v245-1.fc32", 245), ('"239.4"', 239)]
)
def test_parse_version(text: str, version: int) -> None:
    assert systemd_manager._parse_version(text) == version


@pytest.mark.parametrize("text", ["", "-245", "NaN"])
def test_parse_version_that_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        systemd_manager._parse_version(text)


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


# ---- What the cgroup managers request from systemd ----

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


def test_more_cores_than_there_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCgroupfs(tmp_path, 2, monkeypatch)
    bus = FakeSystemd()
    manager = new_cgroup_manager("systemd", str(tmp_path), systemd=bus)
    manager.create(POD, ResourceConfig(cpu_quota=1 << 70, pids_limit=5))
    assert (bus.slices[UNIT]["CPUQuotaPerSecUSec"], bus.slices[UNIT]["TasksMax"]) == (systemd.INFINITY, 5)


def test_limits_hold_that_systemd_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are written to the cgroup even if systemd refuses them.

    A pod without a process limit could use all processes of the node.
    """
    FakeCgroupfs(tmp_path, 2, monkeypatch)
    bus = FakeSystemd()
    manager = new_cgroup_manager("systemd", str(tmp_path), systemd=bus)

    def refuse(unit: str, properties: object) -> None:
        raise systemd.SystemdError("no such property")

    monkeypatch.setattr(bus, "set_unit_properties", refuse)
    manager.create(POD, FULL)
    (directory,) = manager.paths(POD)
    assert Path(directory, "pids.max").read_text() == "100"
    with pytest.raises(systemd.SystemdError):
        manager.update(POD, ResourceConfig(pids_limit=5))
    assert Path(directory, "pids.max").read_text() == "100", "systemd would take it back"


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
