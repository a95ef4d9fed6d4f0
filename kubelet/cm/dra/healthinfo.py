"""Store what drivers report about their devices' health.

Go: pkg/kubelet/cm/dra/healthinfo.go
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubelet.cm.dra import state
from kubelet.util import store
from pkg import klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.runtime import codec

# DEFAULT_HEALTH_TIMEOUT is the time, in seconds, for which a report of a device's health is valid if its driver names
# no other.
DEFAULT_HEALTH_TIMEOUT = 30.0
# MAX_DEVICES is the maximum number of a driver's devices whose health is kept.
# DIVERGES (safer): beyond MAX_DEVICES, the kubelet drops the devices whose last report is the oldest.
# Go: pkg/kubelet/cm/dra/healthinfo.go, (*healthInfoCache).updateHealthInfo: there is no limit.
# Why: a driver may report other devices each time.
# Test: healthinfo_test.py:test_a_driver_with_ever_new_devices
MAX_DEVICES = 10_000
# MAX_NAME_LENGTH is the maximum length of a pool's or a device's name in a ResourceSlice.
MAX_NAME_LENGTH = 253
# _NEVER is Go's zero time.
_NEVER = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class HealthInfoCache:
    """Hold the last report about each device, in memory and in a file. All methods are thread-safe."""

    def __init__(self, state_file: str, clock: clock_.Clock) -> None:
        """Read the file, if there is one. With an empty name there is no file."""
        self._state_file = state_file
        self._clock = clock
        self._lock = threading.Lock()  # This lock guards _health_info and the file.
        self._health_info: state.DevicesHealthMap = {}
        try:
            self._health_info = self._load()
        except (OSError, ValueError) as err:
            # Drivers report everything again after they have registered.
            klog.error_s(err, "Failed to load health checkpoint, proceeding with empty cache", path=state_file)

    def count(self) -> int:
        """Return the number of devices with a known health, of all drivers."""
        with self._lock:
            return sum(map(len, self._health_info.values()))

    def get_health_info(self, driver_name: str, pool_name: str, device_name: str) -> state.DeviceHealth:
        """Return the health of a device, which is unknown if the last report is too old."""
        with self._lock:
            device = self._health_info.get(driver_name, {}).get(f"{pool_name}/{device_name}")
        if device is None or self._is_old(device):
            return state.DeviceHealth(pool_name, device_name)
        return device

    def update_health_info(self, driver_name: str, devices: Iterable[state.DeviceHealth]) -> list[state.DeviceHealth]:
        """Store a driver's report about all its devices; return the devices that changed.

        A device that the report lacks becomes unknown when its last report expires. It is dropped at once if the driver
        has since reported too many others.
        """
        now = self._clock.steady()
        changed = []
        with self._lock:
            known = self._health_info.setdefault(driver_name, {})
            reported = {f"{device.pool_name}/{device.device_name}": device for device in devices}
            for key, device in reported.items():
                if _differs(known.get(key), device):
                    changed.append(device)
                # Devices are dropped in this order, so a reported device moves to the end.
                known.pop(key, None)
                known[key] = dataclasses.replace(device, last_updated=now)
            for key in list(known)[: max(len(known) - MAX_DEVICES, 0)]:
                changed.append(known.pop(key))
            for key, device in known.items():
                is_known = device.health is not state.DeviceHealthStatus.UNKNOWN
                if key not in reported and is_known and self._is_old(device):
                    known[key] = dataclasses.replace(
                        device, health=state.DeviceHealthStatus.UNKNOWN, message="", last_updated=now
                    )
                    changed.append(known[key])
            if changed:
                self._save_locked()
        return changed

    def clear_driver(self, driver_name: str) -> list[state.DeviceHealth]:
        """Drop the driver's devices and return them."""
        with self._lock:
            devices = self._health_info.pop(driver_name, {})
            if devices:
                self._save_locked()
        return list(devices.values())

    def _is_old(self, device: state.DeviceHealth) -> bool:
        if device.last_updated is None:
            return True
        timeout = device.health_check_timeout or DEFAULT_HEALTH_TIMEOUT
        return (self._clock.steady() - device.last_updated).total_seconds() > timeout

    def _to_json(self, device: state.DeviceHealth) -> dict[str, Any]:
        updated = _NEVER if device.last_updated is None else clock_.from_steady(self._clock, device.last_updated)
        return {
            "PoolName": device.pool_name,
            "DeviceName": device.device_name,
            "Health": device.health.value,
            "LastUpdated": updated.isoformat().replace("+00:00", "Z"),
            "HealthCheckTimeout": round(device.health_check_timeout * 1e9),
            "Message": device.message,
        }

    def _from_json(self, device: dict[str, Any]) -> state.DeviceHealth:
        updated = datetime.datetime.fromisoformat(device["LastUpdated"]).astimezone(datetime.UTC)
        return state.DeviceHealth(
            pool_name=device["PoolName"],
            device_name=device["DeviceName"],
            health=state.DeviceHealthStatus(device["Health"]),
            last_updated=None if updated == _NEVER else clock_.to_steady(self._clock, updated),
            health_check_timeout=device.get("HealthCheckTimeout", 0) / 1e9,
            message=device.get("Message", ""),
        )

    def _load(self) -> state.DevicesHealthMap:
        path = Path(self._state_file)
        if not self._state_file or not path.exists():
            return {}
        try:
            with codec.reading(self._state_file):
                document = json.loads(path.read_bytes())
                return {
                    driver: {key: self._from_json(device) for key, device in (devices["Devices"] or {}).items()}
                    for driver, devices in (document or {}).items()
                }
        except (AttributeError, KeyError, TypeError, OverflowError) as err:
            raise ValueError(f"{self._state_file} is not a state file of devices' health: {err!r}") from err

    def _save_locked(self) -> None:
        if not self._state_file:
            return
        document = {
            driver: {"Devices": {key: self._to_json(device) for key, device in sorted(devices.items())}}
            for driver, devices in sorted(self._health_info.items())
        }
        path = Path(self._state_file)
        try:
            store.FileStore(str(path.parent)).write(path.name, state.go_json(document).encode())
        except OSError as err:
            message = "Kubelet restart may lose the device health information."
            klog.error_s(err, f"Failed to save health checkpoint after update. {message}")


def _differs(known: state.DeviceHealth | None, reported: state.DeviceHealth) -> bool:
    return known is None or dataclasses.replace(known, last_updated=None) != dataclasses.replace(
        reported, last_updated=None
    )
