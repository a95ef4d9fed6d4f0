"""Define the operations on one volume of one pod.

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
    """Describe how a mounted volume may be used."""

    read_only: bool = False
    # `managed` says whether the kubelet may change the ownership of the volume.
    managed: bool = False
    selinux_relabel: bool = False


@dataclass(frozen=True, slots=True)
class Metrics:
    """Hold the usage of a volume in bytes and inodes; None where its file system does not report a value.

    If a volume shares a file system with others, capacity, available and the inodes are those of the whole file system.
    """

    time: datetime | None = None
    used: Quantity | None = None
    capacity: Quantity | None = None
    available: Quantity | None = None
    inodes_used: Quantity | None = None
    inodes: Quantity | None = None
    inodes_free: Quantity | None = None
    # Only CSI drivers that watch the health of their volumes set these fields.
    abnormal: bool | None = None
    message: str | None = None


class MetricsProvider(Protocol):
    """Define what can report the usage of a volume."""

    def get_metrics(self) -> Metrics:
        """Return the usage. The call may be slow.

        Raise OSError, ValueError, or MetricsError if the volume has no metrics.
        """
        ...


@dataclass(frozen=True, slots=True)
class MounterArgs:
    """Hold what the pod requires of a volume."""

    # `fs_user` is the user that must own the volume's files. Only service account tokens have one.
    fs_user: int | None = None
    # `fs_group` is the group that must own the volume's files. None leaves their group unchanged.
    fs_group: int | None = None
    fs_group_change_policy: str | None = None
    desired_size: Quantity | None = None
    selinux_label: str = ""
    # `recorder` is the recorder of events about slow changes of ownership.
    recorder: record.EventRecorder | None = None
    # `reconstructed_volume` says whether the volume was found on disk after a restart, and may be incomplete.
    reconstructed_volume: bool = False
    # `is_remount` says whether the pod already uses the volume. Its content must then stay visible without
    # interruption, even if set_up fails.
    is_remount: bool = False


class Volume(MetricsProvider, Protocol):
    """Define a volume of a pod."""

    def get_path(self) -> str:
        """Return the volume's path on the host, whether or not it is mounted."""
        ...


class Mounter(Volume, Protocol):
    """Define how a volume is set up."""

    def set_up(self, args: MounterArgs) -> None:
        """Make the volume usable at its path. The method may be called again.

        Raise types.TransientOperationFailure, types.UncertainProgressError, or another error, which is final.
        """
        ...

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """Set the volume up as set_up does, but at the given directory."""
        ...

    def get_attributes(self) -> Attributes: ...


class Unmounter(Volume, Protocol):
    """Define how a volume is torn down."""

    def tear_down(self) -> None:
        """Unmount the volume and remove its directory. A missing directory is not an error. Raise OSError."""
        ...

    def tear_down_at(self, directory: str) -> None:
        """Tear the volume down as tear_down does, but at the given directory."""
        ...


class BlockVolume(MetricsProvider, Protocol):
    """Define a volume that a pod uses as a block device."""

    def get_global_map_path(self, spec: Spec) -> str:
        """Return the directory that has a bind mount of the device for each pod. Raise ValueError."""
        ...

    def get_pod_device_map_path(self) -> tuple[str, str]:
        """Return the pod's directory for devices of the plugin, and the name of the link in it."""
        ...

    def supports_metrics(self) -> bool: ...


class BlockVolumeMapper(BlockVolume, Protocol):
    """Define how a block device is mapped. A plugin-specific part is in CustomBlockVolumeMapper."""


class CustomBlockVolumeMapper(BlockVolumeMapper, Protocol):
    """Define a mapper that itself makes its device available."""

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        """Make the device available on the node. Return its staging path. The method may be called again.

        reconstructed_volume says that the device was found on disk after a restart. It may then be staged, whatever
        the result of this attempt is.
        """
        ...

    def map_pod_device(self) -> str:
        """Make the device available to the pod. Return its path, or "" for the path of the attachment."""
        ...

    def get_staging_path(self) -> str: ...


class BlockVolumeUnmapper(BlockVolume, Protocol):
    """Define how a block device is unmapped."""


class CustomBlockVolumeUnmapper(BlockVolumeUnmapper, Protocol):
    """Define how to undo the work of a CustomBlockVolumeMapper."""

    def tear_down_device(self, map_path: str, device_path: str) -> None: ...

    def unmap_pod_device(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DeviceMounterArgs:
    """Hold the requirements for the global mount of a device."""

    fs_group: int | None = None
    selinux_label: str = ""
    # `reconstructed_volume` says whether the device was found on disk after a restart. It may then be mounted, whatever
    # the result of another attempt is.
    reconstructed_volume: bool = False


class DeviceMounter(Protocol):
    """Define how a volume is mounted once for the whole node; pods get bind mounts of that mount."""

    def get_device_mount_path(self, spec: Spec) -> str:
        """Return the path of the global mount. Raise ValueError if the volume has none."""
        ...

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        """Mount the device. Raise the errors of Mounter.set_up. device_path is "" for a volume that is not attached."""
        ...


class Attacher(DeviceMounter, Protocol):
    """Define how the kubelet waits for an attachment, which the control plane makes."""

    def attach(self, spec: Spec, node_name: str) -> str:
        """Attach the volume and return its device's path.

        Only nodes without an attach/detach controller use this method.
        """
        ...

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        """Report for each spec, by its name, whether its volume is still attached."""
        ...

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        """Wait for the device and return its path. Raise TimeoutError after `timeout` seconds, or another error."""
        ...


class DeviceUnmounter(Protocol):
    """Define how to undo the work of a DeviceMounter."""

    def unmount_device(self, device_mount_path: str) -> None:
        """Unmount the device. Call this only when no pod has the volume any more."""
        ...


class Detacher(DeviceUnmounter, Protocol):
    """Define how to undo the work of an Attacher."""

    def detach(self, volume_name: str, node_name: str) -> None: ...
