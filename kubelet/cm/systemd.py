"""Slices: cgroups that systemd makes and removes, when it is asked to over D-Bus.

A cgroup that systemd does not know of is one that it may take away at its next reload.

Go: github.com/opencontainers/cgroups/systemd
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pkg import klog
from pkg.golang import singleflight

if TYPE_CHECKING:
    import jeepney

    from kubelet.cm import dbus

_T = TypeVar("_T")

# A property's name, and its value with the D-Bus signature.
Property = tuple[str, tuple[str, Any]]

INFINITY = (1 << 64) - 1
RUNNING = "/run/systemd/system"
_DEFAULT_QUOTA_PERIOD = 100_000  # µs
_UNIT_EXISTS = "org.freedesktop.systemd1.UnitExists"
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
# How often a call is made when the connection is lost meanwhile, as when the bus is restarted.
_TRIES = 3
# What systemd calls a limit of version 2, by the file that holds it.
_MEMORY_PROPERTIES = {
    "memory.high": "MemoryHigh",
    "memory.low": "MemoryLow",
    "memory.min": "MemoryMin",
    "memory.max": "MemoryMax",
    "memory.swap.max": "MemorySwapMax",
}


class SystemdError(OSError):
    """systemd did not do what was asked; name is that of the D-Bus error, if there was one."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Disconnected(SystemdError):
    """The connection to the bus is closed. What was asked may have been done."""


class JobTimeoutError(SystemdError):
    """A job of systemd takes too long."""


class Manager(Protocol):
    """What is asked of systemd. All methods raise SystemdError, and are safe from any thread."""

    def version(self) -> int:
        """As in 252; -1 when it does not tell."""
        ...

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        """Return when the slice is there; one that was there already is left as it is."""
        ...

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None: ...

    def stop_unit(self, unit: str) -> None:
        """Return when the unit has stopped, or when systemd refuses to stop it. Raises JobTimeoutError alone."""
        ...


def is_running_systemd(path: str = RUNNING) -> bool:
    """Whether systemd runs this machine."""
    return os.path.isdir(path) and not os.path.islink(path)


def slice_properties(unit: str, parent: str, cgroup_version: int) -> list[Property]:
    """How a slice is made below another: with all of its use counted from the beginning."""
    io = "IOAccounting" if cgroup_version == 2 else "BlockIOAccounting"
    return [
        ("Description", ("s", f"libcontainer container {unit}")),
        ("Wants", ("as", [parent])),
        *((name, ("b", True)) for name in ("MemoryAccounting", "CPUAccounting", io, "TasksAccounting")),
        ("DefaultDependencies", ("b", False)),
    ]


def unit_and_parent(path: str) -> tuple[str, str]:
    """The names of a slice and of that above it, from the slice's path as in /a.slice/a-b.slice."""
    above, _, unit = path.rpartition("/")
    return unit or "-.slice", above.rpartition("/")[2] or "-.slice"


def round_quota(quota: int, period: int) -> int:
    """The quota in µs that systemd makes of it, which knows whole percents of a core: never less."""
    if quota <= 0:
        return quota
    period = period or _DEFAULT_QUOTA_PERIOD
    return _per_second(quota, period) * period // 1_000_000


def _per_second(quota: int, period: int) -> int:
    return -(-(quota * 1_000_000 // period) // 10_000) * 10_000


def common_properties(
    quota: int | None, period: int | None, pids_limit: int | None, cpuset: str, version: Callable[[], int]
) -> list[Property]:
    """Properties that both versions of cgroups have."""
    found: list[Property] = []
    if period and version() >= 242:
        found.append(("CPUQuotaPeriodUSec", ("t", period)))
    if quota or period:
        limited = quota is not None and quota > 0
        per_second = _per_second(quota or 0, period or _DEFAULT_QUOTA_PERIOD) if limited else INFINITY
        # A pod may ask for any number of cores.
        per_second = min(per_second, INFINITY)
        found.append(("CPUQuotaPerSecUSec", ("t", per_second)))
    if pids_limit is not None:
        # systemd takes no 0.
        found.append(("TasksMax", ("t", INFINITY if pids_limit < 0 else max(pids_limit, 1))))
    if cpuset and version() >= 244:
        found.append(("AllowedCPUs", ("ay", cpus_to_bytes(cpuset))))
    return found


def unified_properties(unified: Mapping[str, str]) -> list[Property]:
    """Of what is set by the names of files of version 2, that which systemd knows. Raises ValueError."""
    found: list[Property] = []
    for file, text in unified.items():
        if file in _MEMORY_PROPERTIES:
            found.append((_MEMORY_PROPERTIES[file], ("t", INFINITY if text == "max" else int(text))))
    return found


def cpus_to_bytes(cpus: str) -> bytes:
    """As in 0-1,8 to the bytes \\x03\\x01: a bit per core, that of core 0 first. Go: RangeToBits"""
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes(max(1, (mask.bit_length() + 7) // 8), "little")


class DBusManager:
    """Asks systemd over the system bus, with a connection that is made when it is first needed.

    Go: github.com/opencontainers/cgroups/systemd/dbus.go
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _conn and _version
        self._conn: dbus.Conn | None = None
        self._version: int | None = None
        # All who need a connection wait for one attempt to make it.
        self._connecting: singleflight.Group[dbus.Conn] = singleflight.Group()

    def version(self) -> int:
        if self._version is None:
            try:
                self._version = _parse_version(self._get_manager_property("Version"))
            except (SystemdError, ValueError) as err:
                # DIVERGES (fault of Go): a version of systemd that could not be learnt is asked for again.
                # Go: github.com/opencontainers/cgroups/systemd/common.go, systemdVersion: it counts as -1 from then on.
                # Why: systemd would not be told of settings that it has, such as which cores a pod may use.
                # Test: systemd_test.py:test_version_that_could_not_be_learnt_is_asked_for_again
                klog.error_s(err, "unable to get systemd version")
                return -1
        return self._version

    def close(self) -> None:
        """Leave the bus until something is asked again."""
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
            # The caller removes the cgroup all the same; a refusal must not keep a pod from ending.
            level = 4 if err.name == _NO_SUCH_UNIT else 0
            klog.v(level).info_s("Failed to stop systemd unit. Continuing...", unit=unit, err=err)
        else:
            if result != "done":
                klog.warning_s("error removing systemd unit. Continuing...", unit=unit, result=result)
        self._reset_failed_unit(unit)

    def _reset_failed_unit(self, unit: str) -> None:
        """Have systemd forget that the unit failed, which it mostly has not."""
        try:
            self._call("ResetFailedUnit", "s", (unit,))
        except SystemdError as err:
            klog.v(4).info_s("Nothing to reset of systemd unit", unit=unit, err=err)

    def _get_manager_property(self, name: str) -> str:
        import jeepney

        from kubelet.cm import dbus

        message = jeepney.Properties(dbus.SYSTEMD).get(name)
        match self._retry_on_disconnect(lambda conn: conn.call(message)):
            case ((_, str() as text), *_):
                return text
            case answer:
                raise SystemdError(f"property {name} of systemd: no text: {answer!r}")

    def _run_job(self, method: str, signature: str, body: tuple[Any, ...]) -> str:
        """How the job ended that the call has started, "done" if well."""
        message = _method_call(method, signature, body)
        return self._retry_on_disconnect(lambda conn: conn.run_job(message))

    def _call(self, method: str, signature: str, body: tuple[Any, ...]) -> None:
        message = _method_call(method, signature, body)
        self._retry_on_disconnect(lambda conn: conn.call(message))

    def _retry_on_disconnect(self, operation: Callable[[dbus.Conn], _T]) -> _T:
        """Repeat the operation on a new connection when the old one turns out to be closed.

        Every call of this class may be repeated: a slice that exists, and a unit that is gone, are no errors.
        """
        for _ in range(_TRIES - 1):
            conn = self._get_connection()
            try:
                return operation(conn)
            except Disconnected as err:
                klog.v(2).info_s("Connecting to the system bus again", err=err)
                self._reset_connection(conn)
        return operation(self._get_connection())

    def _get_connection(self) -> dbus.Conn:
        with self._lock:
            if self._conn is not None:
                return self._conn
        return self._connecting.do("conn", self._new_connection)

    def _new_connection(self) -> dbus.Conn:
        from kubelet.cm import dbus

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
    import jeepney

    from kubelet.cm import dbus

    return jeepney.new_method_call(dbus.SYSTEMD, method, signature, body)


def _parse_version(text: str) -> int:
    """As in v245.4-1.fc32 or 245. Raises ValueError."""
    text = text.strip('"').removeprefix("v")
    digits = len(text) - len(text.lstrip("0123456789"))
    return int(text[:digits])
