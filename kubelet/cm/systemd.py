"""Slices: cgroups that systemd makes and removes, when it is asked to over D-Bus.

A cgroup that systemd does not know of is one that it may take away at its next reload.

Go: vendor/github.com/opencontainers/cgroups/systemd
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pkg import klog

if TYPE_CHECKING:
    import jeepney
    from jeepney.io import blocking

# A property's name, and its value with the D-Bus signature.
Property = tuple[str, tuple[str, Any]]

INFINITY = (1 << 64) - 1
RUNNING = "/run/systemd/system"
_DEFAULT_QUOTA_PERIOD = 100_000  # µs
_UNIT_EXISTS = "org.freedesktop.systemd1.UnitExists"
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_JOB_TIMEOUT = 30.0  # seconds
_CALL_TIMEOUT = 25.0  # seconds
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
        """Return when the unit has stopped; one that is not known has."""
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
    """As in 0-1,8 to the bytes \\x03\\x01: a bit per core, that of core 0 first.  Go: RangeToBits"""
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes(max(1, (mask.bit_length() + 7) // 8), "little")


class DBusManager:
    """Asks systemd over the system bus, with a connection that is made when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one conversation at a time; guards the connection
        self._connection: blocking.DBusConnection | None = None
        self._version: int | None = None

    def version(self) -> int:
        if self._version is None:
            try:
                self._version = _parse_version(self._get_manager_property("Version"))
            except (SystemdError, ValueError) as err:
                klog.error_s(err, "unable to get systemd version")
                self._version = -1
        return self._version

    def close(self) -> None:
        """Leave the bus until something is asked again."""
        with self._lock:
            self._disconnect()

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        body: tuple[Any, ...] = (unit, "replace", list(properties), [])
        try:
            result = self._run_job("StartTransientUnit", "ssa(sv)a(sa(sv))", body)
        except SystemdError as err:
            if err.name == _UNIT_EXISTS:
                return
            raise
        if result != "done":
            self._reset_failed_unit(unit)
            raise SystemdError(f"error creating systemd unit `{unit}`: got `{result}`")

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None:
        with self._lock:
            self._call("SetUnitProperties", "sba(sv)", (unit, True, list(properties)))

    def stop_unit(self, unit: str) -> None:
        try:
            result = self._run_job("StopUnit", "ss", (unit, "replace"))
        except SystemdError as err:
            if err.name != _NO_SUCH_UNIT:
                raise
        else:
            if result != "done":
                klog.warning_s("error removing systemd unit. Continuing...", unit=unit, result=result)
        self._reset_failed_unit(unit)

    def _reset_failed_unit(self, unit: str) -> None:
        """Have systemd forget that it failed, which it mostly has not."""
        with self._lock:
            try:
                self._call("ResetFailedUnit", "s", (unit,))
            except SystemdError as err:
                klog.v(4).info_s("Nothing to reset of systemd unit", unit=unit, err=err)

    def _get_manager_property(self, name: str) -> str:
        import jeepney

        with self._lock:
            body = self._exchange(jeepney.Properties(_systemd()).get(name))
        return str(body[0][1])

    def _run_job(self, method: str, signature: str, body: tuple[Any, ...]) -> str:
        """How the job ended that the call has started, "done" if well."""
        import jeepney

        rule = jeepney.MatchRule(type="signal", interface=_INTERFACE, member="JobRemoved", path=_OBJECT)
        with self._lock:
            connection = self._connect()
            with connection.filter(rule, bufsize=1000) as removed:
                job = self._call(method, signature, body)[0]
                try:
                    while True:
                        signal = connection.recv_until_filtered(removed, timeout=_JOB_TIMEOUT)
                        if signal.body[1] == job:
                            return str(signal.body[3])
                except (OSError, ValueError) as err:
                    self._disconnect()
                    raise SystemdError(f"timeout waiting for systemd to finish {method} of {body[0]}: {err}") from err

    def _call(self, method: str, signature: str, body: tuple[Any, ...]) -> tuple[Any, ...]:
        import jeepney

        return self._exchange(jeepney.new_method_call(_systemd(), method, signature, body))

    def _exchange(self, message: jeepney.Message) -> tuple[Any, ...]:
        import jeepney
        from jeepney import wrappers

        connection = self._connect()
        try:
            reply = connection.send_and_get_reply(message, timeout=_CALL_TIMEOUT)
            return wrappers.unwrap_msg(reply)  # type: ignore[no-any-return]
        except jeepney.DBusErrorResponse as err:
            detail = err.data[0] if err.data else ""
            raise SystemdError(f"{err.name}: {detail}", err.name) from err
        except (OSError, ValueError) as err:
            # The next call gets a new connection.
            self._disconnect()
            raise SystemdError(f"the system bus does not answer: {err}") from err

    def _connect(self) -> blocking.DBusConnection:
        if self._connection is not None:
            return self._connection
        import jeepney
        from jeepney.io import blocking

        try:
            self._connection = blocking.open_dbus_connection("SYSTEM")
            rule = jeepney.MatchRule(type="signal", interface=_INTERFACE, member="JobRemoved", path=_OBJECT)
            self._exchange(jeepney.message_bus.AddMatch(rule))
            # Without it systemd tells the bus nothing.
            self._call("Subscribe", "", ())
        except SystemdError:
            self._disconnect()
            raise
        except (OSError, KeyError, RuntimeError, jeepney.AuthenticationError) as err:
            raise SystemdError(f"cannot connect to the system bus: {err}") from err
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_INTERFACE = "org.freedesktop.systemd1.Manager"
_OBJECT = "/org/freedesktop/systemd1"


def _systemd() -> jeepney.DBusAddress:
    import jeepney

    return jeepney.DBusAddress(_OBJECT, "org.freedesktop.systemd1", _INTERFACE)


def _parse_version(text: str) -> int:
    """As in v245.4-1.fc32 or 245. Raises ValueError."""
    text = text.strip('"').removeprefix("v")
    digits = len(text) - len(text.lstrip("0123456789"))
    return int(text[:digits])
