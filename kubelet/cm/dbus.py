"""Share one connection to the system bus among threads.

A connection of the jeepney library serves one thread at a time, or its reading thread ends with an exception. This
module uses jeepney only for addresses, authentication and messages.

Go: github.com/coreos/go-systemd/v22/dbus/dbus.go, methods.go
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import jeepney
from jeepney import wrappers
from jeepney.bus import get_bus
from jeepney.io import blocking

from kubelet.cm.systemd import Disconnected, JobTimeoutError, SystemdError
from pkg import golang, klog
from pkg.util import dbus

# These timeouts are in seconds.
AUTH_TIMEOUT = 5.0
CALL_TIMEOUT = 25.0
JOB_TIMEOUT = 30.0

_NAME = "org.freedesktop.systemd1"
_INTERFACE = "org.freedesktop.systemd1.Manager"
_OBJECT = "/org/freedesktop/systemd1"
SYSTEMD = jeepney.DBusAddress(_OBJECT, _NAME, _INTERFACE)


def _job_removed(sender: str) -> jeepney.MatchRule:
    """Match the signal that systemd sends when a job ends. `sender` is a well-known or a unique bus name."""
    return jeepney.MatchRule(type="signal", sender=sender, interface=_INTERFACE, member="JobRemoved", path=_OBJECT)


_OWNER_CHANGED = dbus.owner_changed(_NAME)


class Conn:
    """Talk to systemd over the system bus. The class is thread-safe: each caller waits only for its own reply.

    The thread `systemd-bus` reads incoming messages until either side closes the connection.

    DIVERGES (safer): the kubelet accepts messages only from systemd and from the bus itself.
    Go: github.com/coreos/go-systemd/v22/dbus/subscription.go, (*Conn).dispatch: it accepts the signal JobRemoved of any
    sender.
    Why: any user of the machine could make the kubelet believe that systemd created a slice, or failed to.
    Test: systemd_test.py:test_nobody_but_systemd_is_believed
    """

    def __init__(self) -> None:
        """Connect, and subscribe to the signals about jobs. Raise SystemdError."""
        self._lock = threading.Lock()  # This lock guards the fields from here to _closed.
        self._replies: dict[int, Future[jeepney.Message]] = {}
        self._jobs: dict[str, Future[str]] = {}
        # `_ended` holds the results of jobs that ended before their caller learned the job's path. They are kept while
        # any call that starts a job is in progress.
        self._ended: dict[str, str] = {}
        self._starting = 0
        self._closed = False
        # `_owner` is the bus's unique name for systemd's connection; "" while systemd is not connected.
        self._owner = ""
        self._send_lock = threading.Lock()  # Concurrent messages must not interleave on the socket.
        self._serials = itertools.count(1)
        self._sock = _open_socket()
        try:
            self._reader = golang.go(self._read, name="systemd-bus")
        except RuntimeError as err:
            self._sock.close()
            raise SystemdError(f"cannot connect to the system bus: {err}") from err
        try:
            self.call(jeepney.message_bus.Hello())
            for rule in (_job_removed(_NAME), _OWNER_CHANGED):
                self.call(jeepney.message_bus.AddMatch(rule))
            self._owner = str(self.call(jeepney.message_bus.GetNameOwner(_NAME))[0])
            # systemd sends these signals only to subscribers.
            self.call(jeepney.new_method_call(SYSTEMD, "Subscribe"))
        except SystemdError as err:
            self.close()
            raise SystemdError(f"cannot connect to the system bus: {err}", err.name) from err

    def close(self) -> None:
        """Fail all pending calls and end the reading thread."""
        self._shut_down()
        if threading.current_thread() is not self._reader:
            self._reader.join(CALL_TIMEOUT)

    def call(self, message: jeepney.Message) -> tuple[Any, ...]:
        """Send a method call and return the body of the reply. Raise SystemdError."""
        answer: Future[jeepney.Message] = Future()
        serial = next(self._serials)
        try:
            data = message.serialise(serial=serial)
        except (struct.error, ValueError) as err:
            raise SystemdError(f"cannot encode the request to systemd: {err}") from err
        with self._lock:
            self._check_open_locked()
            self._replies[serial] = answer
        try:
            self._send(data)
            return wrappers.unwrap_msg(answer.result(CALL_TIMEOUT))  # type: ignore[no-any-return]
        except jeepney.DBusErrorResponse as err:
            detail = err.data[0] if err.data else ""
            raise SystemdError(f"{err.name}: {detail}", err.name or "") from err
        except TimeoutError as err:
            raise SystemdError(f"no reply from the system bus in {CALL_TIMEOUT:g} s") from err
        finally:
            with self._lock:
                self._replies.pop(serial, None)

    def run_job(self, message: jeepney.Message) -> str:
        """Send a call that starts a job of systemd and return the job's result, "done" on success.

        Raise SystemdError, or JobTimeoutError if the job takes longer than JOB_TIMEOUT.
        """
        with self._starting_job():
            path = str(self.call(message)[0])
            job = self._job(path)
        try:
            return job.result(JOB_TIMEOUT)
        except TimeoutError as err:
            raise JobTimeoutError(f"job {path} of systemd has not ended in {JOB_TIMEOUT:g} s") from err
        finally:
            with self._lock:
                self._jobs.pop(path, None)

    @contextmanager
    def _starting_job(self) -> Iterator[None]:
        """Keep the results of jobs that end before their callers learn the jobs' paths."""
        with self._lock:
            self._starting += 1
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
                if self._starting == 0:
                    self._ended.clear()

    def _job(self, path: str) -> Future[str]:
        job: Future[str] = Future()
        with self._lock:
            self._check_open_locked()
            if path in self._ended:
                job.set_result(self._ended.pop(path))
            else:
                self._jobs[path] = job
        return job

    def _check_open_locked(self) -> None:
        if self._closed:
            raise Disconnected("the connection to the system bus is closed")

    def _send(self, data: bytes) -> None:
        with self._send_lock:
            try:
                self._sock.sendall(data)
            except OSError as err:
                # A partly sent message makes the connection unusable.
                self._shut_down()
                raise Disconnected(f"lost the connection to the system bus: {err}") from err

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The socket is already closed.

    def _read(self) -> None:
        """Dispatch incoming messages until the connection ends."""
        try:
            reader = dbus.Reader()
            while data := self._sock.recv(reader.bytes_desired()):
                if message := reader.feed(data):
                    self._dispatch(message)
            klog.v(4).info_s("The connection to the system bus has ended")
        except Exception as err:
            # The bus may send anything that cannot be parsed. The pending calls then fail, and their callers reconnect.
            klog.error_s(err, "Lost the connection to the system bus")
        finally:
            self._fail_all()
            self._sock.close()

    def _dispatch(self, data: bytes) -> None:
        """Dispatch a message from systemd or the bus.

        Anyone on the bus can send signals to this connection, so messages of other senders are dropped before they are
        parsed.
        """
        header = dbus.header_of(data)
        if header is None:
            return
        fields = header.fields
        sender = fields.get(jeepney.HeaderFields.sender)
        if sender not in (dbus.BUS, self._owner):
            klog.v(4).info_s("Ignoring a message on the system bus that systemd did not send", sender=sender)
            return
        message = jeepney.Message.from_buffer(data)
        with self._lock:
            waiting = self._replies.pop(fields.get(jeepney.HeaderFields.reply_serial, 0), None)
        if waiting is not None:
            waiting.set_result(message)
        elif _OWNER_CHANGED.matches(message):
            _name, _before, self._owner = message.body
            if self._owner:
                # This new instance of systemd does not know the subscription.
                klog.info_s("systemd was restarted, reconnecting to the system bus")
                self._shut_down()
        elif _job_removed(self._owner).matches(message):
            _number, path, _unit, result = message.body
            self._job_ended(str(path), str(result))

    def _job_ended(self, path: str, result: str) -> None:
        with self._lock:
            job = self._jobs.pop(path, None)
            if job is None and self._starting:
                self._ended[path] = result
        if job is not None:
            job.set_result(result)

    def _fail_all(self) -> None:
        with self._lock:
            self._closed = True
            waiting = [*self._replies.values(), *self._jobs.values()]
            self._replies.clear()
            self._jobs.clear()
        for each in waiting:
            each.set_exception(Disconnected("lost the connection to the system bus"))


def _open_socket() -> socket.socket:
    """Connect and authenticate. Raise SystemdError."""
    try:
        sock: socket.socket = blocking.prep_socket(get_bus("SYSTEM"), timeout=AUTH_TIMEOUT)
    except (OSError, KeyError, ValueError, RuntimeError, jeepney.AuthenticationError) as err:
        raise SystemdError(f"cannot connect to the system bus: {err}") from err
    # Reads may block without limit. Writes may not: a bus that accepts no data must not block the callers.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(CALL_TIMEOUT), 0))
    return sock
