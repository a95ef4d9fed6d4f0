"""Call logind over D-Bus.

Go: pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import jeepney
from jeepney import bus, fds, wrappers
from jeepney.io import blocking

from pkg import golang, klog
from pkg.util import dbus, filesystem

InhibitLock = int  # An InhibitLock is a file descriptor that delays the shutdown until it is closed.

_LOGIND_SERVICE = "org.freedesktop.login1"
_LOGIND_OBJECT = "/org/freedesktop/login1"
_LOGIND_INTERFACE = "org.freedesktop.login1.Manager"
# While a shutdown is in progress, logind returns this error instead of a lock.
_IN_PROGRESS = "org.freedesktop.login1.OperationInProgress"
_LOGIND = jeepney.DBusAddress(_LOGIND_OBJECT, _LOGIND_SERVICE, _LOGIND_INTERFACE)
_SYSTEMD = jeepney.DBusAddress(
    "/org/freedesktop/systemd1", "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
)
_SIGHUP = 1
# A call has this timeout, in seconds.
CALL_TIMEOUT = 25.0

LOGIND_CONFIG_DIRECTORY = Path("/etc/systemd/logind.conf.d")
KUBELET_LOGIND_CONF = "99-kubelet.conf"


class InhibitError(RuntimeError):
    """Signal that the bus or logind did not do what was requested. The text names the request."""


class RefusedError(InhibitError):
    """Signal that the reply is an error with this name."""

    def __init__(self, what: str, name: str, detail: str) -> None:
        super().__init__(f"{what}: {name}: {detail}")
        self.name = name


class DBusCon:
    """Connect to the system bus.

    All methods raise InhibitError, and any thread may call them.
    """

    def __init__(self, config_directory: Path = LOGIND_CONFIG_DIRECTORY) -> None:
        self._config_directory = config_directory
        self._lock = threading.Lock()  # The lock allows one call at a time on _calls.
        self._calls = _connect()
        self._signals: _Connection | None = None
        self._reader: golang.Thread | None = None
        self._ctx, self._cancel = golang.with_cancel(golang.background())

    def current_inhibit_delay(self) -> float:
        """Return for how many seconds logind lets programs delay a shutdown at most."""
        message = jeepney.Properties(_LOGIND).get("InhibitDelayMaxUSec")
        signature, delay = self._call("failed reading InhibitDelayMaxUSec property from logind", message)[0]
        if signature != "t":
            raise InhibitError("InhibitDelayMaxUSec from logind is not a uint64 as expected")
        return int(delay) / 1_000_000

    def inhibit_shutdown(self) -> InhibitLock | None:
        """Delay shutdowns until the lock is released. Return None while a shutdown is in progress."""
        why = "Kubelet needs time to handle node shutdown"
        message = jeepney.new_method_call(_LOGIND, "Inhibit", "ssss", ("shutdown", "kubelet", why, "delay"))
        try:
            return int(self._call("failed creating systemd inhibitor", message)[0].to_raw_fd())
        except RefusedError as err:
            if err.name == _IN_PROGRESS:
                return None
            raise

    def release_inhibit_lock(self, lock: InhibitLock) -> None:
        """Let the shutdown continue, if there is one."""
        try:
            os.close(lock)
        except OSError as err:
            raise InhibitError(f"unable to close systemd inhibitor lock: {err}") from err

    def reload_logind_conf(self) -> None:
        """Let logind read its configuration again, which takes a moment."""
        unit = ("systemd-logind.service", "all", _SIGHUP)
        self._call("unable to reload logind conf", jeepney.new_method_call(_SYSTEMD, "KillUnit", "ssi", unit))

    def monitor_shutdown(self) -> golang.Channel[bool]:
        """Return a channel that receives True when a shutdown begins and False when it is canceled.

        The channel is closed when the bus or logind is gone.

        DIVERGES (safer): only signals from logind itself report a shutdown.
        Go: pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go, (*DBusCon).MonitorShutdown: the Go kubelet accepts the
        signal from any sender.
        Why: any process of the node that may use the bus could terminate all pods.
        Test: inhibit_test.py:test_signal_of_somebody_else_is_no_shutdown

        DIVERGES (safer): when logind has ended, the kubelet reconnects and finds out whether a shutdown is in progress.
        Go: pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go, (*DBusCon).MonitorShutdown: the Go kubelet waits for
        further signals.
        Why: a new logind does not know about the shutdown that the old one has begun, and never cancels it.
        Test: inhibit_test.py:test_logind_goes_away_while_the_bus_stays
        """
        # The signals have their own connection, because the thread that waits for them would otherwise receive the
        # replies to calls.
        signals = _connect()
        events: golang.Channel[bool] = golang.Channel(1)
        try:
            rule = _subscribe(signals)
            self._reader = golang.go(self._read_signals, signals, rule, events, name="logind-monitor")
        except Exception:
            signals.close()
            raise
        self._signals = signals
        return events

    def override_inhibit_delay(self, inhibit_delay_max: float) -> None:
        """Write a configuration for logind that allows a delay of this many seconds."""
        path = self._config_directory / KUBELET_LOGIND_CONF
        content = f"# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={inhibit_delay_max:.0f}\n"
        try:
            filesystem.mkdir_all(self._config_directory, 0o755)
            path.write_text(content)
            path.chmod(0o644)
        except OSError as err:
            raise InhibitError(f"failed writing logind shutdown inhibit override file {path}: {err}") from err

    def close(self) -> None:
        """Disconnect, and end the thread that waits for signals. Locks stay."""
        self._cancel()
        if self._signals is not None and self._reader is not None:
            _wake(self._signals.sock)
            self._reader.join(5)
        with self._lock:
            self._calls.close()

    def _call(self, what: str, message: jeepney.Message) -> tuple[Any, ...]:
        with self._lock:
            return _reply_of(self._calls, what, message)

    def _read_signals(self, connection: _Connection, rule: jeepney.MatchRule, events: golang.Channel[bool]) -> None:
        try:
            while True:
                message = connection.receive()
                if _LOGIND_LEFT.matches(message):
                    klog.info_s("logind left the system bus")
                    return
                if not rule.matches(message):
                    continue
                match message.body:
                    case (bool() as active, *_):
                        events.send(active, self._ctx)
                    case _:
                        klog.error_s(None, "Failed obtaining shutdown event, PrepareForShutdown event was not a bool")
        except golang.Canceled:
            pass
        except Exception as err:
            # A message that cannot be read ends only this connection, and the manager creates another one.
            if self._ctx.err() is None:
                klog.error_s(err, "Lost the connection to the system bus")
        finally:
            connection.close()
            events.close()


class _Connection(blocking.DBusConnection):  # type: ignore[misc]
    """Connect with a timeout for every call. The library itself sends Hello, the first call, without a timeout.

    The bus delivers replies only from the connection that was called, but signals from any connection. Signals from
    other senders than the bus and logind are not decoded.
    """

    def __init__(self, sock: socket.socket) -> None:
        # The connection receives signals of these senders, which are unique names on the bus.
        self.heard = {dbus.BUS}
        self._reader = dbus.Reader()
        self._fds: list[fds.FileDescriptor] = []  # These descriptors came with the current message.
        super().__init__(sock, enable_fds=True)

    def receive(self, *, timeout: float | None = None) -> jeepney.Message:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError  # The time also runs out when other connections send without a pause.
            self.sock.settimeout(left)
            data, ancillary, _flags, _ = self.sock.recvmsg(self._reader.bytes_desired(), fds.fds_buf_size())
            if not data:
                raise ConnectionResetError("the connection was closed")
            self._fds += fds.FileDescriptor.from_ancdata(ancillary)
            content = self._reader.feed(data)
            if content is None:
                continue
            came, self._fds = self._fds, []
            if content and self._is_for_us(content):
                message = jeepney.Message.from_buffer(content, came)
                if message.header.message_type is jeepney.MessageType.signal:
                    # The library takes a message with this field for a reply, but a signal is never a reply.
                    message.header.fields.pop(jeepney.HeaderFields.reply_serial, None)
                return message
            for each in came:
                each.close()

    def _is_for_us(self, content: bytes) -> bool:
        header = dbus.header_of(content)
        if header is None:
            return False
        answers = jeepney.MessageType.method_return, jeepney.MessageType.error
        return header.message_type in answers or header.fields.get(jeepney.HeaderFields.sender) in self.heard

    def send_and_get_reply(self, message: jeepney.Message, *, timeout: float | None = None) -> jeepney.Message:
        limit = CALL_TIMEOUT if timeout is None else timeout
        self.sock.settimeout(limit)
        try:
            return super().send_and_get_reply(message, timeout=limit)
        except TimeoutError as err:
            raise TimeoutError(f"no response within {limit:g}s") from err


def _connect() -> _Connection:
    try:
        sock = blocking.prep_socket(bus.get_bus("SYSTEM"), enable_fds=True)
        try:
            return _Connection(sock)
        except BaseException:
            sock.close()
            raise
    except (OSError, KeyError, RuntimeError, jeepney.DBusErrorResponse, jeepney.AuthenticationError) as err:
        raise InhibitError(f"cannot connect to the system bus: {err}") from err


def _subscribe(signals: _Connection) -> jeepney.MatchRule:
    """Subscribe to the signals of logind's shutdowns and end. Return a rule for signals of the current logind."""
    what = "failed to subscribe to shutdown signals"
    for rule in (_shutdown_rule(_LOGIND_SERVICE), _LOGIND_LEFT):
        _reply_of(signals, what, jeepney.message_bus.AddMatch(rule))
    # This call must come last: signals that arrive while the connection waits for a reply are lost.
    (owner,) = _reply_of(signals, what, jeepney.message_bus.GetNameOwner(_LOGIND_SERVICE))
    signals.heard.add(owner)
    return _shutdown_rule(owner)


def _shutdown_rule(sender: str) -> jeepney.MatchRule:
    return jeepney.MatchRule(
        type="signal", sender=sender, interface=_LOGIND_INTERFACE, member="PrepareForShutdown", path=_LOGIND_OBJECT
    )


# The bus sends this signal when logind has ended and no process owns its name.
_LOGIND_LEFT = dbus.owner_changed(_LOGIND_SERVICE, "")


def _reply_of(connection: _Connection, what: str, message: jeepney.Message) -> tuple[Any, ...]:
    try:
        reply = connection.send_and_get_reply(message)
        return wrappers.unwrap_msg(reply)  # type: ignore[no-any-return]
    except jeepney.DBusErrorResponse as err:
        raise RefusedError(what, err.name, err.data[0] if err.data else "") from err
    except (OSError, ValueError) as err:  # A ValueError means that the connection is already closed.
        raise InhibitError(f"{what}: {err}") from err


def _wake(sock: socket.socket) -> None:
    """End the read in which another thread waits."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # The other side has already closed the connection.
