"""Test the delays of shutdowns with a real bus and a fake logind."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import jeepney
import pytest
from jeepney.io import blocking

from kubelet.nodeshutdown import systemd
from kubelet.nodeshutdown.systemd import inhibit
from kubelet.nodeshutdown.systemd.testing import LOGIND, FakeLogind
from pkg import golang
from pkg.apimachinery.util.runtime.testing import failures, raising
from pkg.golang import testing as golangtesting
from pkg.util import dbus
from pkg.util.testing import open_files


class Bus:
    """Run a private dbus-daemon."""

    def __init__(self) -> None:
        assert shutil.which("dbus-daemon"), "dbus-daemon is missing; `hack/setup dbus` installs it, as root on Debian"
        self._process = subprocess.Popen(
            ["dbus-daemon", "--session", "--nofork", "--print-address"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    made = Bus()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", made.address)
    yield made
    made.stop()


@pytest.fixture
def logind(bus: Bus) -> Iterator[FakeLogind]:
    made = FakeLogind()
    yield made
    made.close()


@pytest.fixture
def connection(logind: FakeLogind, tmp_path: Path) -> Iterator[systemd.DBusCon]:
    made = systemd.DBusCon(tmp_path / "logind.conf.d")
    yield made
    made.close()


def test_current_inhibit_delay(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    assert connection.current_inhibit_delay() == 5.0
    logind.delay = ("s", "long")
    with pytest.raises(systemd.InhibitError, match="not a uint64"):
        connection.current_inhibit_delay()


def test_lock(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    lock = connection.inhibit_shutdown()
    assert lock is not None
    assert logind.inhibits == [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    (hold,) = logind.holds
    hold.setblocking(False)
    with pytest.raises(BlockingIOError):
        hold.recv(1)
    connection.release_inhibit_lock(lock)
    hold.settimeout(30)
    assert hold.recv(1) == b"", "the lock is gone"
    with pytest.raises(systemd.InhibitError, match="unable to close systemd inhibitor lock"):
        connection.release_inhibit_lock(lock)


def test_no_lock_while_a_shutdown_goes_on(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    logind.in_progress = True
    assert connection.inhibit_shutdown() is None


def test_reload(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    connection.reload_logind_conf()
    assert logind.kills == [("systemd-logind.service", "all", 1)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (systemd.DBusCon.current_inhibit_delay, "failed reading InhibitDelayMaxUSec property from logind"),
        (systemd.DBusCon.inhibit_shutdown, "failed creating systemd inhibitor"),
        (systemd.DBusCon.reload_logind_conf, "unable to reload logind conf"),
    ],
)
def test_refusals(
    logind: FakeLogind, connection: systemd.DBusCon, call: Callable[[systemd.DBusCon], object], text: str
) -> None:
    logind.refuse = True
    denied = "org.freedesktop.DBus.Error.AccessDenied: Permission denied"
    with pytest.raises(systemd.InhibitError, match=f"{text}: {denied}"):
        call(connection)


def test_signals(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    events = connection.monitor_shutdown()
    logind.signal(member="PrepareForSleep")
    logind.signal("s", ("not a bool",))
    logind.signal(None, ())
    logind.signal(body=(True,))
    logind.signal(body=(False,))
    assert [events.recv(timeout=30) for _ in range(2)] == [(True, True), (False, True)]
    assert connection.current_inhibit_delay() == 5.0, "calls work beside the signals"
    connection.close()
    assert golangtesting.closes(events)


def test_close_while_nobody_takes_the_signals(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    events = connection.monitor_shutdown()
    for _ in range(3):
        logind.signal()
    assert events.recv(timeout=30) == (True, True)
    connection.close()  # The fixture that checks for threads shows whether the reader has ended.


def test_logind_goes_away_while_the_bus_stays(bus: Bus, tmp_path: Path) -> None:
    """The channel closes when logind ends, because a new logind does not know about the old one's shutdown."""
    first = FakeLogind()
    connection = systemd.DBusCon(tmp_path)
    events = connection.monitor_shutdown()
    first.close()
    assert golangtesting.closes(events)
    connection.close()


def test_signal_of_somebody_else_is_no_shutdown(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    events = connection.monitor_shutdown()
    assert connection._signals is not None
    with blocking.open_dbus_connection("SYSTEM") as stranger:
        stranger.send(jeepney.new_signal(LOGIND, "PrepareForShutdown", "b", (True,)))
        unicast = jeepney.new_signal(LOGIND, "PrepareForShutdown", "b", (True,))
        unicast.header.fields[jeepney.HeaderFields.destination] = connection._signals.unique_name
        stranger.send(unicast)
        # The reply shows that the bus has received both signals.
        stranger.send_and_get_reply(jeepney.message_bus.GetId())
    logind.signal(body=(False,))
    assert events.recv(timeout=30) == (False, True)


def test_signal_that_looks_like_an_answer_is_none(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    """A signal of any client with a reply serial is not taken for the reply to a later call."""
    with blocking.open_dbus_connection("SYSTEM") as stranger:
        for serial in range(1, 100):
            message = jeepney.new_signal(LOGIND, "Answer", "v", (("t", 1),))
            message.header.fields[jeepney.HeaderFields.destination] = connection._calls.unique_name
            message.header.fields[jeepney.HeaderFields.reply_serial] = serial
            stranger.send(message)
        # The reply shows that the bus has received all signals.
        stranger.send_and_get_reply(jeepney.message_bus.GetId())
    assert connection.current_inhibit_delay() == 5.0


def test_signals_that_anybody_may_send(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    """Very long signals, malformed ones, and ones with a descriptor disturb neither connection."""
    events = connection.monitor_shutdown()
    assert connection._signals is not None
    with blocking.open_dbus_connection("SYSTEM", enable_fds=True) as stranger, Path("/dev/null").open() as file:
        for each in (connection._calls, connection._signals):
            long = _unicast(each, "au", [1] * dbus.MAX_MESSAGE)
            no_such_descriptor = _unicast(each, "u", 7).serialise(serial=2).replace(b"\x01u\0", b"\x01h\0")
            stranger.send(long, serial=1)
            stranger.sock.sendall(no_such_descriptor)
            stranger.send(_unicast(each, "h", file), serial=3)
        # The reply shows that the bus has received all of them.
        stranger.send_and_get_reply(jeepney.message_bus.GetId())
    lock = connection.inhibit_shutdown()
    assert lock is not None
    logind.holds[0].setblocking(False)
    with pytest.raises(BlockingIOError):  # The lock came from logind.
        logind.holds[0].recv(1)
    connection.release_inhibit_lock(lock)
    logind.holds[0].settimeout(30)
    assert logind.holds[0].recv(1) == b""
    logind.signal()
    assert events.recv(timeout=30) == (True, True)


def test_signals_without_a_pause_end_no_wait(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    with blocking.open_dbus_connection("SYSTEM") as stranger:
        stranger.send(_unicast(connection._calls, "b", True))
        # The reply shows that the bus has received the signal.
        stranger.send_and_get_reply(jeepney.message_bus.GetId())
    with pytest.raises(TimeoutError):
        connection._calls.receive(timeout=0.0)
    assert connection.current_inhibit_delay() == 5.0


def _unicast(connection: blocking.DBusConnection, signature: str, value: object) -> jeepney.Message:
    message = jeepney.new_signal(LOGIND, "PrepareForShutdown", signature, (value,))
    message.header.fields[jeepney.HeaderFields.destination] = connection.unique_name
    return message


def test_bus_goes_away(bus: Bus, connection: systemd.DBusCon) -> None:
    events = connection.monitor_shutdown()
    bus.stop()
    assert golangtesting.closes(events)
    with pytest.raises(systemd.InhibitError, match="failed creating systemd inhibitor"):
        connection.inhibit_shutdown()


def test_no_bus_and_no_logind(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = systemd.DBusCon()
    with pytest.raises(systemd.InhibitError, match=r"failed creating systemd inhibitor: .*ServiceUnknown"):
        connection.inhibit_shutdown()
    connection.close()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/socket")
    with pytest.raises(systemd.InhibitError, match="cannot connect to the system bus"):
        systemd.DBusCon()


def test_bus_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet starts without a bus that accepts its connection but does not respond."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{tmp_path}/bus")
    listener.listen()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    monkeypatch.setattr(inhibit, "CALL_TIMEOUT", 0.1)
    faults: list[Exception] = []

    def connect() -> None:
        try:
            systemd.DBusCon()
        except systemd.InhibitError as err:
            faults.append(err)

    thread = golang.go(connect, name="connect")
    peer, _ = listener.accept()
    with listener, peer, peer.makefile("rb") as requests:
        for answer in (b"OK 0123456789abcdef0123456789abcdef\r\n", b"AGREE_UNIX_FD\r\n"):
            requests.readline()
            peer.sendall(answer)
        thread.join(30)
        assert not thread.is_alive()
    assert [str(fault) for fault in faults] == ["cannot connect to the system bus: no response within 0.1s"]


def test_override(connection: systemd.DBusCon, tmp_path: Path) -> None:
    connection.override_inhibit_delay(30.0)
    path = tmp_path / "logind.conf.d/99-kubelet.conf"
    assert path.read_text() == "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n"
    assert path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    with pytest.raises(systemd.InhibitError, match=r"failed writing .*99-kubelet.conf"):
        connection.override_inhibit_delay(30.0)


def test_descriptors_are_given_back(logind: FakeLogind) -> None:
    before = open_files()
    for _ in range(3):
        connection = systemd.DBusCon()
        connection.monitor_shutdown()
        lock = connection.inhibit_shutdown()
        assert lock is not None
        connection.release_inhibit_lock(lock)
        # The reply arrives after logind has closed the copy of the lock that it sent.
        connection.current_inhibit_delay()
        connection.close()
        logind.holds.pop().close()
    assert open_files() <= before


@failures
def test_signal_that_cannot_be_read_ends_the_connection(
    logind: FakeLogind, connection: systemd.DBusCon, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    monkeypatch.setattr(jeepney.MatchRule, "matches", raising(err))
    events = connection.monitor_shutdown()
    logind.signal()
    assert golangtesting.closes(events), "so that the manager makes another"


def test_no_thread_for_signals(logind: FakeLogind, connection: systemd.DBusCon) -> None:
    before = open_files()
    with golangtesting.out_of_threads("logind-monitor"), pytest.raises(golang.ThreadError):
        connection.monitor_shutdown()
    assert open_files() <= before
    assert connection.monitor_shutdown() is not None
