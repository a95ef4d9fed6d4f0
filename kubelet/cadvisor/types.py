"""What the kubelet asks about the machine.

Go: pkg/kubelet/cadvisor/types.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """What the machine has. Bytes where it says memory or size."""

    num_cores: int
    memory_capacity: int
    swap_capacity: int = 0
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    # Pages by page size in bytes.
    huge_pages: dict[int, int] = field(default_factory=dict)


class Interface(Protocol):
    """Where machine facts come from; safe from any thread."""

    def machine_info(self) -> MachineInfo:
        """Raises OSError when /proc cannot be read."""
        ...
