"""Encode the memory manager's state for the disk exactly as the Go kubelet does, including the checksum.

Go's format with pod-level blocks belongs to its feature gate PodLevelResourceManagers, which is off.

Go: pkg/kubelet/cm/memorymanager/state/checkpoint.go
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kubelet.checkpointmanager.errors import CorruptCheckpointError
from kubelet.cm.memorymanager.state.state import (
    Block,
    ContainerMemoryAssignments,
    MemoryTable,
    NUMANodeMap,
    NUMANodeState,
)
from pkg.apimachinery.runtime import codec
from pkg.util import hash

# _TYPE_NAME is the name of the struct in Go's checksum when the file is written. Newer kubelets append V1, which is
# accepted too.
_TYPE_NAME = "MemoryManagerCheckpoint"


class _Document(msgspec.Struct):
    policy_name: str = msgspec.field(default="", name="policyName")
    machine_state: NUMANodeMap = msgspec.field(default_factory=dict, name="machineState")
    entries: ContainerMemoryAssignments = msgspec.field(default_factory=dict)
    checksum: int = 0


class MemoryManagerCheckpoint:
    """Hold the policy, the NUMA nodes, and the allocations of a checkpoint."""

    def __init__(
        self,
        policy_name: str = "",
        machine_state: NUMANodeMap | None = None,
        entries: ContainerMemoryAssignments | None = None,
    ) -> None:
        """Create a checkpoint. Without arguments it is empty, and unmarshal_checkpoint fills it."""
        self.policy_name = policy_name
        self.machine_state = machine_state or {}
        self.entries = entries or {}
        self.checksum = 0

    def marshal_checkpoint(self) -> bytes:
        self.checksum = self._checksum()
        document = {
            "policyName": self.policy_name,
            # The keys are text because Go's encoder sorts a map's keys as text.
            "machineState": {str(node): state for node, state in self.machine_state.items()},
            **({"entries": self.entries} if self.entries else {}),
            "checksum": self.checksum,
        }
        return msgspec.json.encode(_ordered(document))

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Parse a checkpoint. Raise ValueError, which names the wrong field."""
        document = codec.json_decoder(_Document).decode(blob)
        self.policy_name, self.checksum = document.policy_name, document.checksum
        self.machine_state, self.entries = document.machine_state, document.entries

    def verify_checksum(self) -> None:
        """Compare the checksum.

        Raise CorruptCheckpointError. A checksum of 0 stands for old kubelets, which wrote none.
        """
        actual = self._checksum()
        if self.checksum not in (0, actual, self._checksum(f"{_TYPE_NAME}V1")):
            raise CorruptCheckpointError(actual, self.checksum)

    def _checksum(self, type_name: str = _TYPE_NAME) -> int:
        """Return the 32-bit FNV-1a hash of the output of Go's debug printer for its struct with a checksum of 0."""
        text = (
            f"(*state.{type_name}){{PolicyName:(string){self.policy_name}"
            f" MachineState:(state.NUMANodeMap){_map(_of_nodes(self.machine_state))}"
            f" Entries:(state.ContainerMemoryAssignments){_map(_of_pods(self.entries))}"
            " Checksum:(checksum.Checksum)0}"
        )
        return hash.fnv32a(text.encode())


def _ordered(document: dict[str, object]) -> dict[str, object]:
    """Return the document with all nested maps sorted by key, but its own keys in their order."""
    return {key: _sorted(value) for key, value in document.items()}


def _sorted(value: object) -> object:
    if isinstance(value, NUMANodeState):
        return msgspec.structs.replace(value, memory_map=dict(sorted(value.memory_map.items())))
    return {key: _sorted(found) for key, found in sorted(value.items())} if isinstance(value, dict) else value


def _map(entries: Iterable[tuple[object, str]]) -> str:
    return f"map[{' '.join(f'{key}:{text}' for key, text in entries)}]"


def _of_nodes(nodes: NUMANodeMap) -> Iterable[tuple[int, str]]:
    for node, state in sorted(nodes.items()):
        tables = ((name, _of_table(table)) for name, table in sorted(state.memory_map.items()))
        yield (
            node,
            f"<*>{{NumberOfAssignments:(int){state.number_of_assignments}"
            f" MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(tables)} Cells:([]int){_list(state.cells)}}}",
        )


def _of_table(table: MemoryTable) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table.total_mem_size} SystemReserved:(uint64){table.system_reserved}"
        f" Allocatable:(uint64){table.allocatable} Reserved:(uint64){table.reserved} Free:(uint64){table.free}}}"
    )


def _of_pods(entries: ContainerMemoryAssignments) -> Iterable[tuple[str, str]]:
    for pod, containers in sorted(entries.items()):
        yield pod, _map((name, _list(map(_of_block, blocks))) for name, blocks in sorted(containers.items()))


def _of_block(block: Block) -> str:
    affinity = _list(block.numa_affinity)
    return f"{{NUMAAffinity:([]int){affinity} Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"


def _list(values: Iterable[object]) -> str:
    return f"[{' '.join(map(str, values))}]"
