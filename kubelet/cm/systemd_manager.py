"""Request slices from systemd over the system bus.

Go: github.com/opencontainers/cgroups/systemd/dbus.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jeepney

from kubelet.cm import dbus
from kubelet.cm.systemd import Disconnected, JobTimeoutError, Property, SystemdError
from pkg import klog
from pkg.golang import singleflight

_T = TypeVar("_T")

_UNIT_EXISTS = "org.freedesktop.systemd1.UnitExists"
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
# _TRIES is the number of attempts of a call that loses its connection, for example because the bus restarts.
_TRIES = 3


class DBusManager:
    """Send requests to systemd over the system bus. The first request opens the connection.

    Go: github.com/opencontainers/cgroups/systemd/dbus.go
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards _conn and _version.
        self._conn: dbus.Conn | None = None
        self._version: int | None = None
        # All callers that need a connection share one attempt to open it.
        self._connecting: singleflight.Group[dbus.Conn] = singleflight.Group()

    def version(self) -> int:
        if self._version is None:
            try:
                self._version = _parse_version(self._get_manager_property("Version"))
            except (SystemdError, ValueError) as err:
                # DIVERGES (fault of Go): after a failure to get systemd's version, the kubelet asks for it again.
                # Go: github.com/opencontainers/cgroups/systemd/common.go, systemdVersion: the version counts as -1 from
                # then on.
                # Why: the kubelet would not send settings that this systemd supports, such as the cores that a pod may
                # use.
                # Test: systemd_test.py:test_version_that_could_not_be_learnt_is_asked_for_again
                klog.error_s(err, "unable to get systemd version")
                return -1
        return self._version

    def close(self) -> None:
        """Disconnect from the bus until the next request."""
        with self._lock:
            conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        body: tuple[Any, ...] = (unit, "replace", list(properties), [])
        try:
            result = self._run_job("StartTransientUnit", "ssa(sv)a(sa(sv))", body)
        except JobTimeoutError:
            self._reset_failed_unit(unit)
            raise
        except SystemdError as err:
            if err.name == _UNIT_EXISTS:
                return
            raise
        if result != "done":
            self._reset_failed_unit(unit)
            raise SystemdError(f"error creating systemd unit `{unit}`: got `{result}`")

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self._call("SetUnitProperties", "sba(sv)", (unit, True, list(properties)))

    def stop_unit(self, unit: str) -> None:
        try:
            result = self._run_job("StopUnit", "ss", (unit, "replace"))
        except JobTimeoutError:
            raise
        except SystemdError as err:
            # The caller removes the cgroup itself then; a refusal by systemd must not keep a pod from terminating.
            level = 4 if err.name == _NO_SUCH_UNIT else 0
            klog.v(level).info_s("Failed to stop systemd unit. Continuing...", unit=unit, err=err)
        else:
            if result != "done":
                klog.warning_s("error removing systemd unit. Continuing...", unit=unit, result=result)
        self._reset_failed_unit(unit)

    def _reset_failed_unit(self, unit: str) -> None:
        """Clear the failed state of a unit. Most units have none, which systemd reports as an error."""
        try:
            self._call("ResetFailedUnit", "s", (unit,))
        except SystemdError as err:
            klog.v(4).info_s("Systemd unit has no failed state to reset", unit=unit, err=err)

    def _get_manager_property(self, name: str) -> str:
        message = jeepney.Properties(dbus.SYSTEMD).get(name)
        match self._retry_on_disconnect(lambda conn: conn.call(message)):
            case ((_, str() as text), *_):
                return text
            case answer:
                raise SystemdError(f"property {name} of systemd is not text: {answer!r}")

    def _run_job(self, method: str, signature: str, body: tuple[Any, ...]) -> str:
        """Return the result of the job that the call starts, "done" on success."""
        message = _method_call(method, signature, body)
        return self._retry_on_disconnect(lambda conn: conn.run_job(message))

    def _call(self, method: str, signature: str, body: tuple[Any, ...]) -> None:
        message = _method_call(method, signature, body)
        self._retry_on_disconnect(lambda conn: conn.call(message))

    def _retry_on_disconnect(self, operation: Callable[[dbus.Conn], _T]) -> _T:
        """Run the operation, and repeat it on a new connection if the old one is closed.

        Every call of this class may be repeated: neither an existing slice nor a missing unit is an error.
        """
        for _ in range(_TRIES - 1):
            conn = self._get_connection()
            try:
                return operation(conn)
            except Disconnected as err:
                klog.v(2).info_s("Reconnecting to the system bus", err=err)
                self._reset_connection(conn)
        return operation(self._get_connection())

    def _get_connection(self) -> dbus.Conn:
        with self._lock:
            if self._conn is not None:
                return self._conn
        return self._connecting.do("conn", self._new_connection)

    def _new_connection(self) -> dbus.Conn:
        with self._lock:
            if self._conn is not None:
                return self._conn
        conn = dbus.Conn()
        with self._lock:
            self._conn = conn
        return conn

    def _reset_connection(self, conn: dbus.Conn) -> None:
        with self._lock:
            if self._conn is conn:
                self._conn = None
        conn.close()


def _method_call(method: str, signature: str, body: tuple[Any, ...]) -> jeepney.Message:
    return jeepney.new_method_call(dbus.SYSTEMD, method, signature, body)


def _parse_version(text: str) -> int:
    """Return the number of a version such as v245.4-1.fc32 or 245. Raise ValueError."""
    text = text.strip('"').removeprefix("v")
    digits = len(text) - len(text.lstrip("0123456789"))
    return int(text[:digits])
