"""The checkpoint of devices, in the form that the Go kubelet writes and reads.

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
    """Ids of devices by the NUMA node they are near to; one that is near to several stands at each."""

    def devices(self) -> set[str]:
        """All of them."""
        return {device for devices in self.values() for device in devices}


class PodDevicesEntry(msgspec.Struct, frozen=True):
    """The devices of one resource that a container was given. None stands for what Go calls nil."""

    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = msgspec.field(name="ContainerName", default="")
    resource_name: str = msgspec.field(name="ResourceName", default="")
    device_ids: dict[int, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    # The plugin's ContainerAllocateResponse, serialized.
    alloc_resp: bytes | None = msgspec.field(name="AllocResp", default=None)


class CheckpointData(msgspec.Struct):
    """Go: checkpointData"""

    pod_device_entries: list[PodDevicesEntry] | None = msgspec.field(name="PodDeviceEntries", default=None)
    registered_devices: dict[str, list[str] | None] | None = msgspec.field(name="RegisteredDevices", default=None)


class _File(msgspec.Struct):
    data: CheckpointData = msgspec.field(name="Data")
    checksum: int = msgspec.field(name="Checksum")


class Data:
    """A checkpointmanager.Checkpoint."""

    def __init__(
        self, entries: Iterable[PodDevicesEntry] = (), registered: Mapping[str, list[str] | None] | None = None
    ) -> None:
        # Go has no word for an empty list of entries.
        self._data = CheckpointData(list(entries) or None, dict(registered or {}))
        self._checksum = 0

    def marshal_checkpoint(self) -> bytes:
        self._checksum = _checksum(self._data)
        return msgspec.json.encode(_File(self._data, self._checksum))

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Raises ValueError."""
        try:
            file = codec.json_decoder(_File).decode(blob)
        except msgspec.DecodeError as err:
            raise ValueError(f"not a checkpoint of devices: {err}") from err
        self._data, self._checksum = file.data, file.checksum

    def verify_checksum(self) -> None:
        """Raises CorruptCheckpointError."""
        actual = _checksum(self._data)
        if actual != self._checksum:
            raise errors.CorruptCheckpointError(actual, self._checksum)

    def get_data(self) -> tuple[list[PodDevicesEntry], dict[str, list[str]]]:
        """What containers were given, and the devices of each resource by its name."""
        registered = self._data.registered_devices or {}
        return self._data.pod_device_entries or [], {name: ids or [] for name, ids in registered.items()}


def devices_per_numa(entry: PodDevicesEntry) -> DevicesPerNUMA:
    """The entry's devices."""
    return DevicesPerNUMA({node: ids or [] for node, ids in (entry.device_ids or {}).items()})


def _checksum(data: CheckpointData) -> int:
    return hash.fnv32a(_dump(data).encode())


def _dump(data: CheckpointData) -> str:
    """The data as Go's debug printer writes it, of which Go takes the checksum."""
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
