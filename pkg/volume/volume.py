"""One volume of one pod: what can be done with it.

Go: pkg/volume/volume.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pkg.apimachinery.api.resource import Quantity


@dataclass(frozen=True, slots=True)
class Attributes:
    """How a mounted volume may be used."""

    read_only: bool = False
    # Whether the kubelet may change its ownership.
    managed: bool = False
    selinux_relabel: bool = False


@dataclass(frozen=True, slots=True)
class MounterArgs:
    """What the pod asks of a volume."""

    # The group that is to own the volume; None leaves it alone.
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    desired_size: Quantity | None = None


class Volume(Protocol):
    """A volume of a pod."""

    def get_path(self) -> str:
        """Where it is on the host, mounted or not."""
        ...


class Mounter(Volume, Protocol):
    """Makes a volume ready for use."""

    def set_up(self, args: MounterArgs) -> None:
        """Make the volume usable at its path; may be called again. Raises OSError or ValueError."""
        ...

    def get_attributes(self) -> Attributes: ...


class Unmounter(Volume, Protocol):
    """Takes a volume away."""

    def tear_down(self) -> None:
        """Unmount it and remove its directory; "already gone" is success. Raises OSError."""
        ...
