"""Encode the CPU manager's state for the disk exactly as the Go kubelet does, including the checksums.

The kubelet writes version 2. Version 1, from kubelets before 1.18, names containers only by ID. Version 3 belongs to
Go's feature gate PodLevelResourceManagers, which is off; the kubelet can read it if no pod as a whole had CPUs.

Go: pkg/kubelet/cm/cpumanager/state/checkpoint.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubelet.checkpointmanager.errors import CorruptCheckpointError
from pkg.apimachinery.runtime import codec
from pkg.util import hash

# The keys are the pod's UID and the container's name.
Entries = dict[str, dict[str, str]]
# The keys are container IDs.
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
    """Hold a checkpoint of version 2: the policy, the shared pool, and the containers' CPUs.

    The CPU sets are in the kernel's notation.
    """

    def __init__(self, policy_name: str = "", default_cpu_set: str = "", entries: Entries | None = None) -> None:
        """Create a checkpoint. Without arguments it is empty, and unmarshal_checkpoint fills it."""
        self.policy_name = policy_name
        self.default_cpu_set = default_cpu_set
        self.entries = entries or {}
        self.checksum = 0

    def marshal_checkpoint(self) -> bytes:
        self.checksum = self._checksum("CPUManagerCheckpoint")
        # Go's order has the fields as in the struct and maps sorted by key, and leaves empty maps out.
        entries = {pod_uid: dict(sorted(cpus.items())) for pod_uid, cpus in sorted(self.entries.items())}
        document = {
            "policyName": self.policy_name,
            "defaultCpuSet": self.default_cpu_set,
            **({"entries": entries} if entries else {}),
            "checksum": self.checksum,
        }
        return msgspec.json.encode(document)

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Parse a checkpoint. Raise ValueError, which names the wrong field."""
        document = codec.json_decoder(_DocumentV2).decode(blob)
        if document.pod_entries:
            raise ValueError("checkpoint was written with feature gate PodLevelResourceManagers, which is off here")
        self.policy_name, self.default_cpu_set = document.policy_name, document.default_cpu_set
        self.entries, self.checksum = document.entries, document.checksum

    def verify_checksum(self) -> None:
        """Compare the checksum. Raise CorruptCheckpointError.

        Some kubelets include another type name, or version 3's fields, in the checksum.
        """
        version_3 = self._checksum("CPUManagerCheckpoint", " PodEntries:(state.PodCPUAssignments)map[]")
        if self.checksum not in (0, self._checksum("CPUManagerCheckpointV2"), version_3):
            _verify(self.checksum, self._checksum("CPUManagerCheckpoint"))

    def _checksum(self, type_name: str, more: str = "") -> int:
        entries = _dump_map({pod_uid: _dump_map(cpus) for pod_uid, cpus in self.entries.items()})
        entries = f"(map[string]map[string]string){entries}{more}"
        return _checksum(type_name, self.policy_name, self.default_cpu_set, entries)


class CPUManagerCheckpointV1:
    """Hold a checkpoint of version 1, which the kubelet only reads."""

    def __init__(self) -> None:
        self.policy_name = self.default_cpu_set = ""
        self.entries: EntriesV1 = {}
        self.checksum = 0

    def marshal_checkpoint(self) -> bytes:
        raise NotImplementedError("checkpoints of version 1 are not written")

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Parse a checkpoint. Raise ValueError, which names the wrong field."""
        document = codec.json_decoder(_DocumentV1).decode(blob)
        self.policy_name, self.default_cpu_set = document.policy_name, document.default_cpu_set
        self.entries, self.checksum = document.entries, document.checksum

    def verify_checksum(self) -> None:
        """Compare the checksum, which the oldest kubelets did not write. Raise CorruptCheckpointError."""
        if self.checksum:
            entries = f"(map[string]string){_dump_map(self.entries)}"
            actual = _checksum("CPUManagerCheckpoint", self.policy_name, self.default_cpu_set, entries)
            _verify(self.checksum, actual)


def _verify(expected: int, actual: int) -> None:
    if actual != expected:
        raise CorruptCheckpointError(actual, expected)


def _checksum(type_name: str, policy_name: str, default_cpu_set: str, entries: str) -> int:
    """Return the 32-bit FNV-1a hash of the output of Go's debug printer for its struct with a checksum of 0."""
    text = (
        f"(*state.{type_name}){{PolicyName:(string){policy_name} DefaultCPUSet:(string){default_cpu_set} "
        f"Entries:{entries} Checksum:(checksum.Checksum)0}}"
    )
    return hash.fnv32a(text.encode())


def _dump_map(values: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{key}:{value}' for key, value in sorted(values.items()))}]"
