"""The forms in which the CPU manager's state stands on disk: byte for byte Go's, their checksums too.

Written is version 2. Version 1, of kubelets before 1.18, names containers by id alone. Version 3 belongs to Go's gate
PodLevelResourceManagers, which is off; it can be used as long as no pod had processors as a whole.

Go: pkg/kubelet/cm/cpumanager/state/checkpoint.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubelet.checkpointmanager.errors import CorruptCheckpointError
from pkg.apimachinery.runtime import codec
from pkg.util import hash

# By the pod's uid and the container's name.
Entries = dict[str, dict[str, str]]
# By the container's id.
EntriesV1 = dict[str, str]


class _Document(msgspec.Struct):
    policy_name: str = msgspec.field(default="", name="policyName")
    default_cpu_set: str = msgspec.field(default="", name="defaultCpuSet")
    checksum: int = 0


class _DocumentV1(_Document):
    entries: EntriesV1 = msgspec.field(default_factory=dict)


class _DocumentV2(_Document):
    entries: Entries = msgspec.field(default_factory=dict)
    pod_entries: dict[str, Any] = msgspec.field(default_factory=dict, name="podEntries")


class CPUManagerCheckpoint:
    """Version 2: the policy that was in force, the shared pool, and who has what; sets as the kernel writes them."""

    def __init__(self, policy_name: str = "", default_cpu_set: str = "", entries: Entries | None = None) -> None:
        """Without arguments it is empty, to be filled in by unmarshal_checkpoint."""
        self.policy_name = policy_name
        self.default_cpu_set = default_cpu_set
        self.entries = entries or {}
        self.checksum = 0

    def marshal_checkpoint(self) -> bytes:
        self.checksum = self._checksum("CPUManagerCheckpoint")
        # In Go's order: that of its struct, maps by their keys, and no map that is empty.
        entries = {pod_uid: dict(sorted(cpus.items())) for pod_uid, cpus in sorted(self.entries.items())}
        document = {
            "policyName": self.policy_name,
            "defaultCpuSet": self.default_cpu_set,
            **({"entries": entries} if entries else {}),
            "checksum": self.checksum,
        }
        return msgspec.json.encode(document)

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Raises ValueError, which names the field that is wrong."""
        document = codec.json_decoder(_DocumentV2).decode(blob)
        if document.pod_entries:
            raise ValueError("checkpoint is of a kubelet with feature gate PodLevelResourceManagers, which is off here")
        self.policy_name, self.default_cpu_set = document.policy_name, document.default_cpu_set
        self.entries, self.checksum = document.entries, document.checksum

    def verify_checksum(self) -> None:
        """Raises CorruptCheckpointError. Some kubelets put another name of the type, or version 3, into the sum."""
        version_3 = self._checksum("CPUManagerCheckpoint", " PodEntries:(state.PodCPUAssignments)map[]")
        if self.checksum not in (0, self._checksum("CPUManagerCheckpointV2"), version_3):
            _verify(self.checksum, self._checksum("CPUManagerCheckpoint"))

    def _checksum(self, type_name: str, more: str = "") -> int:
        entries = _dump_map({pod_uid: _dump_map(cpus) for pod_uid, cpus in self.entries.items()})
        entries = f"(map[string]map[string]string){entries}{more}"
        return _checksum(type_name, self.policy_name, self.default_cpu_set, entries)


class CPUManagerCheckpointV1:
    """Version 1, which is only read."""

    def __init__(self) -> None:
        self.policy_name = self.default_cpu_set = ""
        self.entries: EntriesV1 = {}
        self.checksum = 0

    def marshal_checkpoint(self) -> bytes:
        raise NotImplementedError("checkpoints of version 1 are not written")

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Raises ValueError, which names the field that is wrong."""
        document = codec.json_decoder(_DocumentV1).decode(blob)
        self.policy_name, self.default_cpu_set = document.policy_name, document.default_cpu_set
        self.entries, self.checksum = document.entries, document.checksum

    def verify_checksum(self) -> None:
        """Raises CorruptCheckpointError. The oldest kubelets wrote no checksum."""
        if self.checksum:
            entries = f"(map[string]string){_dump_map(self.entries)}"
            actual = _checksum("CPUManagerCheckpoint", self.policy_name, self.default_cpu_set, entries)
            _verify(self.checksum, actual)


def _verify(expected: int, actual: int) -> None:
    if actual != expected:
        raise CorruptCheckpointError(actual, expected)


def _checksum(type_name: str, policy_name: str, default_cpu_set: str, entries: str) -> int:
    """FNV-1a (32 bits) of what Go's debug printer makes of its struct, the checksum being 0."""
    text = (
        f"(*state.{type_name}){{PolicyName:(string){policy_name} DefaultCPUSet:(string){default_cpu_set} "
        f"Entries:{entries} Checksum:(checksum.Checksum)0}}"
    )
    return hash.fnv32a(text.encode())


def _dump_map(values: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{key}:{value}' for key, value in sorted(values.items()))}]"
