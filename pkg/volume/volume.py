"""What can be done with one volume of one pod.

Go: pkg/volume/volume.go
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

if TYPE_CHECKING:
    from pkg.client_go.tools import record
    from pkg.volume.plugins import Spec


@dataclass(frozen=True, slots=True)
class Attributes:
    """How a mounted volume may be used."""

    read_only: bool = False
    # Whether the kubelet may change its ownership.
    managed: bool = False
    selinux_relabel: bool = False


@dataclass(frozen=True, slots=True)
class Metrics:
    """How full a volume is: bytes and inodes as quantities, None where its file system does not tell.

    Where a volume shares a file system with others, capacity, available and the inodes are those of all of it.
    """

    time: datetime | None = None
    used: Quantity | None = None
    capacity: Quantity | None = None
    available: Quantity | None = None
    inodes_used: Quantity | None = None
    inodes: Quantity | None = None
    inodes_free: Quantity | None = None
    # Only told by CSI drivers that watch the health of their volumes.
    abnormal: bool | None = None
    message: str | None = None


class MetricsProvider(Protocol):
    """Can be asked how full it is."""

    def get_metrics(self) -> Metrics:
        """Maybe slow. Raises OSError, ValueError, or a MetricsError when the volume has none."""
        ...


@dataclass(frozen=True, slots=True)
class MounterArgs:
    """What the pod asks of a volume."""

    # The user that is to own it: only service account tokens ask for one.
    fs_user: int | None = None
    # The group that is to own the volume; None leaves it alone.
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    desired_size: Quantity | None = None
    selinux_label: str = ""
    # Is told of changes of ownership that take long.
    recorder: record.EventRecorder | None = None
    # Found on disk after a restart, and not known to be whole.
    reconstructed_volume: bool = False
    # The pod uses it already: what it sees must not go away, not even for a moment or on failure.
    is_remount: bool = False


class Volume(MetricsProvider, Protocol):
    """A volume of a pod."""

    def get_path(self) -> str:
        """Where it is on the host, mounted or not."""
        ...


class Mounter(Volume, Protocol):
    """Makes a volume ready for use."""

    def set_up(self, args: MounterArgs) -> None:
        """Make the volume usable at its path; may be called again.

        Raises types.TransientOperationFailure, types.UncertainProgressError, or anything else, which is final.
        """
        ...

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """As set_up, but at a directory of the caller's choice."""
        ...

    def get_attributes(self) -> Attributes: ...


class Unmounter(Volume, Protocol):
    """Takes a volume away."""

    def tear_down(self) -> None:
        """Unmount it and remove its directory; "already gone" is success. Raises OSError."""
        ...

    def tear_down_at(self, directory: str) -> None:
        """As tear_down, but at a directory of the caller's choice."""
        ...


class BlockVolume(MetricsProvider, Protocol):
    """A volume that a pod uses as a device."""

    def get_global_map_path(self, spec: Spec) -> str:
        """The directory that holds a bind mount of the device for each pod. Raises ValueError."""
        ...

    def get_pod_device_map_path(self) -> tuple[str, str]:
        """The pod's directory for devices of the plugin, and the name of the link in it."""
        ...

    def supports_metrics(self) -> bool: ...


class BlockVolumeMapper(BlockVolume, Protocol):
    """Makes a device ready for use; what the kubelet itself does not do, a CustomBlockVolumeMapper does."""


class CustomBlockVolumeMapper(BlockVolumeMapper, Protocol):
    """Knows how to make its device itself."""

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        """Make the device available on the node; the path it was staged at. May be called again.

        A reconstructed_volume was found on disk after a restart: it may be staged, whatever becomes of this attempt.
        """
        ...

    def map_pod_device(self) -> str:
        """Make the device available to the pod; its path, "" for the one that attaching gave."""
        ...

    def get_staging_path(self) -> str: ...


class BlockVolumeUnmapper(BlockVolume, Protocol):
    """Takes a device away."""


class CustomBlockVolumeUnmapper(BlockVolumeUnmapper, Protocol):
    """Undoes what a CustomBlockVolumeMapper did."""

    def tear_down_device(self, map_path: str, device_path: str) -> None: ...

    def unmap_pod_device(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceMounterArgs:
    """What is asked of the one mount of a device on the node."""

    fs_group: int | None = None
    selinux_label: str = ""
    # Found on disk after a restart: it may be mounted, whatever becomes of another attempt.
    reconstructed_volume: bool = False


class DeviceMounter(Protocol):
    """Mounts a volume once for the whole node; pods get bind mounts of that."""

    def get_device_mount_path(self, spec: Spec) -> str:
        """Raises ValueError."""
        ...

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        """Raises as Mounter.set_up. device_path is "" for a volume that is not attached."""
        ...


class Attacher(DeviceMounter, Protocol):
    """Waits until a volume is attached to this node, which the control plane sees to."""

    def attach(self, spec: Spec, node_name: str) -> str:
        """The device's path. Only for nodes whose volumes no controller attaches."""
        ...

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        """Whether they are still attached, by the names of the specs."""
        ...

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        """The device's path, once it is there. Raises TimeoutError after timeout seconds, and what it learns."""
        ...


class DeviceUnmounter(Protocol):
    """Undoes what a DeviceMounter did."""

    def unmount_device(self, device_mount_path: str) -> None:
        """Only to be called when no pod has the volume any more."""
        ...


class Detacher(DeviceUnmounter, Protocol):
    """Undoes what an Attacher did."""

    def detach(self, volume_name: str, node_name: str) -> None: ...
