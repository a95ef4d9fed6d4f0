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


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """Which kernel runs, and which system it was made for, in the system's own words."""

    kernel_version: str = ""
    container_os_version: str = ""


@dataclass(frozen=True, slots=True)
class FsInfo:
    """A file system; sizes in bytes."""

    capacity: int


class Interface(Protocol):
    """Where machine facts come from; safe from any thread."""

    def machine_info(self) -> MachineInfo:
        """Raises OSError when /proc cannot be read."""
        ...

    def version_info(self) -> VersionInfo:
        """Raises OSError when the kernel does not tell its version."""
        ...

    def root_fs_info(self) -> FsInfo:
        """The file system of the kubelet's root directory. Raises OSError."""
        ...
