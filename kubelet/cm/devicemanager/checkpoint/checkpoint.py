"""Read and write the checkpoint of devices in the Go kubelet's format.

Go: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from kubelet.checkpointmanager import errors
from pkg.apimachinery.runtime import codec
from pkg.util import hash

_Key = TypeVar("_Key", str, int)


class DevicesPerNUMA(dict[int, list[str]]):
    """Map NUMA nodes to the IDs of the devices near them. A device that is near several nodes is listed for each."""

    def devices(self) -> set[str]:
        """Return the IDs of all devices."""
        return {device for devices in self.values() for device in devices}


class PodDevicesEntry(msgspec.Struct, frozen=True):
    """Record a container's devices of one resource. None stands for Go's nil."""

    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = msgspec.field(name="ContainerName", default="")
    resource_name: str = msgspec.field(name="ResourceName", default="")
    device_ids: dict[int, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    # `alloc_resp` is the plugin's serialized ContainerAllocateResponse.
    alloc_resp: bytes | None = msgspec.field(name="AllocResp", default=None)


class CheckpointData(msgspec.Struct):
    """Hold the part of the file that the checksum covers.

    Go: checkpointData
    """

    pod_device_entries: list[PodDevicesEntry] | None = msgspec.field(name="PodDeviceEntries", default=None)
    registered_devices: dict[str, list[str] | None] | None = msgspec.field(name="RegisteredDevices", default=None)


class _File(msgspec.Struct):
    data: CheckpointData = msgspec.field(name="Data")
    checksum: int = msgspec.field(name="Checksum")


class Data:
    """Implement checkpointmanager.Checkpoint."""

    def __init__(
        self, entries: Iterable[PodDevicesEntry] = (), registered: Mapping[str, list[str] | None] | None = None
    ) -> None:
        # Go writes an empty list of entries as null.
        self._data = CheckpointData(list(entries) or None, dict(registered or {}))
        self._checksum = 0

    def marshal_checkpoint(self) -> bytes:
        self._checksum = _checksum(self._data)
        return msgspec.json.encode(_File(self._data, self._checksum))

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Parse a checkpoint's file. Raise ValueError."""
        try:
            file = codec.json_decoder(_File).decode(blob)
        except msgspec.DecodeError as err:
            raise ValueError(f"not a checkpoint of devices: {err}") from err
        self._data, self._checksum = file.data, file.checksum

    def verify_checksum(self) -> None:
        """Compare the checksum. Raise CorruptCheckpointError."""
        actual = _checksum(self._data)
        if actual != self._checksum:
            raise errors.CorruptCheckpointError(actual, self._checksum)

    def get_data(self) -> tuple[list[PodDevicesEntry], dict[str, list[str]]]:
        """Return the containers' devices, and the devices of each registered resource by resource name."""
        registered = self._data.registered_devices or {}
        return self._data.pod_device_entries or [], {name: ids or [] for name, ids in registered.items()}


def devices_per_numa(entry: PodDevicesEntry) -> DevicesPerNUMA:
    """Return the entry's devices by NUMA node."""
    return DevicesPerNUMA({node: ids or [] for node, ids in (entry.device_ids or {}).items()})


def _checksum(data: CheckpointData) -> int:
    return hash.fnv32a(_dump(data).encode())


def _dump(data: CheckpointData) -> str:
    """Return the data in the format of Go's debug printer, over which Go computes the checksum."""
    entries = None if data.pod_device_entries is None else [_dump_entry(entry) for entry in data.pod_device_entries]
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){_list(entries)} "
        f"RegisteredDevices:(map[string][]string){_map(data.registered_devices)}}}"
    )


def _dump_entry(entry: PodDevicesEntry) -> str:
    response = None if entry.alloc_resp is None else [str(byte) for byte in entry.alloc_resp]
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:(checkpoint.DevicesPerNUMA){_map(entry.device_ids)} "
        f"AllocResp:([]uint8){_list(response)}}}"
    )


def _list(items: list[str] | None) -> str:
    return "<nil>" if items is None else f"[{' '.join(items)}]"


def _map(items: Mapping[_Key, list[str] | None] | None) -> str:
    if items is None:
        return "<nil>"
    return f"map[{' '.join(f'{key}:{_list(items[key])}' for key in sorted(items))}]"
