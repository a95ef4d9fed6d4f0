"""Run a logind on the bus, whose replies the test sets."""

from __future__ import annotations

import socket
import threading
from typing import Any

import jeepney
from jeepney.io import blocking

from pkg import golang

LOGIND = jeepney.DBusAddress("/org/freedesktop/login1", interface="org.freedesktop.login1.Manager")


class FakeLogind:
    """Reply to the kubelet's calls to logind and systemd, until `close`."""

    def __init__(self) -> None:
        self.delay: tuple[str, Any] = ("t", 5_000_000)
        self.inhibits: list[tuple[str, ...]] = []
        self.kills: list[tuple[Any, ...]] = []
        self.refuse = False
        self.in_progress = False  # True means that a shutdown is in progress, so there are no locks.
        # The fake holds its ends of the locks here. An end becomes readable when its lock is released.
        self.holds: list[socket.socket] = []
        self._connection = blocking.open_dbus_connection("SYSTEM", enable_fds=True)
        for name in ("org.freedesktop.login1", "org.freedesktop.systemd1"):
            self._connection.send_and_get_reply(jeepney.message_bus.RequestName(name))
        self._sending = threading.Lock()
        self._thread = golang.go(self._serve, name="fake-logind")

    def signal(
        self, signature: str | None = "b", body: tuple[Any, ...] = (True,), member: str = "PrepareForShutdown"
    ) -> None:
        with self._sending:
            self._connection.send(jeepney.new_signal(LOGIND, member, signature, body))

    def close(self) -> None:
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._connection.close()
        for hold in self.holds:
            hold.close()

    def _serve(self) -> None:
        try:
            while True:
                message = self._connection.receive()
                if message.header.message_type is jeepney.MessageType.method_call:
                    reply, given = self._answer(message)
                    with self._sending:
                        self._connection.send(reply)
                    if given is not None:
                        given.close()
        except OSError:
            pass  # The connection is closed.

    def _answer(self, message: jeepney.Message) -> tuple[jeepney.Message, socket.socket | None]:
        if self.refuse:
            error = "org.freedesktop.DBus.Error.AccessDenied"
            return jeepney.new_error(message, error, "s", ("Permission denied",)), None
        match message.header.fields[jeepney.HeaderFields.member]:
            case "Get":
                assert message.body == ("org.freedesktop.login1.Manager", "InhibitDelayMaxUSec")
                return jeepney.new_method_return(message, "v", (self.delay,)), None
            case "Inhibit" if self.in_progress:
                error = "org.freedesktop.login1.OperationInProgress"
                text = "The operation inhibition has been requested for is already running"
                return jeepney.new_error(message, error, "s", (text,)), None
            case "Inhibit":
                self.inhibits.append(message.body)
                ours, given = socket.socketpair()
                self.holds.append(ours)
                return jeepney.new_method_return(message, "h", (given,)), given
            case "KillUnit":
                self.kills.append(message.body)
                return jeepney.new_method_return(message), None
            case other:
                return jeepney.new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", "s", (other,)), None
