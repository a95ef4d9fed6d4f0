"""What operations on volumes work on, and whom they tell what they did.

Go: pkg/volume/util/operationexecutor/operation_executor.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.volume.plugins import Spec
from pkg.volume.volume import BlockVolumeMapper, Mounter

ZERO = Quantity(0)


class DeviceMountState(enum.StrEnum):
    """Whether the node has a volume's device mounted."""

    DEVICE_GLOBALLY_MOUNTED = "DeviceGloballyMounted"
    # A mount was begun and may have succeeded, or may yet.
    DEVICE_MOUNT_UNCERTAIN = "DeviceMountUncertain"
    DEVICE_NOT_MOUNTED = "DeviceNotMounted"


class VolumeMountState(enum.StrEnum):
    """Whether a pod has a volume mounted."""

    VOLUME_MOUNTED = "VolumeMounted"
    # A mount was begun and may have succeeded, or may yet.
    VOLUME_MOUNT_UNCERTAIN = "VolumeMountUncertain"
    VOLUME_NOT_MOUNTED = "VolumeNotMounted"


class MountPreConditionFailed(Exception):
    """A volume must not be mounted as it is, whatever the driver might say."""


class VolumeLogger:
    """Says of a volume what happened to it, shortly for events and at length for the log."""

    __slots__ = ()

    def volume_name_and_details(self) -> tuple[str, str]:
        """What the volume is called in messages, and what tells it from all others."""
        raise NotImplementedError

    def generate_msg_detailed(self, prefix_msg: str, suffix_msg: str) -> str:
        name, details = self.volume_name_and_details()
        return f"{prefix_msg} for volume {klog.quote(name)} {details} {suffix_msg}"

    def generate_msg(self, prefix_msg: str, suffix_msg: str) -> tuple[str, str]:
        """The short message and the long one."""
        name, _ = self.volume_name_and_details()
        simple = f"{prefix_msg} for volume {klog.quote(name)} {suffix_msg}"
        return simple, self.generate_msg_detailed(prefix_msg, suffix_msg)

    def generate_error_detailed(self, prefix_msg: str, err: Exception | None) -> Exception:
        return RuntimeError(self.generate_msg_detailed(prefix_msg, _err_suffix(err)))

    def generate_error(self, prefix_msg: str, err: Exception | None) -> tuple[Exception, Exception]:
        """The short error and the long one."""
        simple, detailed = self.generate_msg(prefix_msg, _err_suffix(err))
        return RuntimeError(simple), RuntimeError(detailed)


@dataclass(frozen=True, slots=True)
class VolumeToAttach(VolumeLogger):
    """A volume that is to be attached to a node."""

    volume_name: str  # unique among all volumes
    volume_spec: Spec
    node_name: str
    # The pods on the node that use it.
    scheduled_pods: list[v1.Pod] = field(default_factory=list)
    # Whether it was told already that another node has it.
    multi_attach_error_reported: bool = False

    def volume_name_and_details(self) -> tuple[str, str]:
        return (
            self.volume_spec.name(),
            f"(UniqueName: {klog.quote(self.volume_name)}) from node {klog.quote(self.node_name)}",
        )

    def __str__(self) -> str:
        return f"{self.volume_spec.name()} (UniqueName: {self.volume_name}) from node {self.node_name}"


@dataclass(frozen=True, slots=True)
class VolumeToMount(VolumeLogger):
    """A volume that a pod wants."""

    volume_name: str  # unique on the node
    pod_name: str  # what volumes know the pod by: its uid
    volume_spec: Spec
    pod: v1.Pod
    # What the pod calls it: one claim may stand in a pod under several names.
    outer_volume_spec_names: list[str] = field(default_factory=list)
    plugin_is_attachable: bool = False
    plugin_is_device_mountable: bool = False
    volume_gid_value: str = ""
    # "" for a volume that is not attached.
    device_path: str = ""
    # Whether the node's status names it among volumesInUse.
    reported_in_use: bool = False
    # How large it may become, where the plugin can see to that.
    desired_size_limit: Quantity | None = None
    mount_request_time: datetime | None = None
    # How large its persistent volume is to be.
    desired_persistent_volume_size: Quantity = ZERO
    # "" unless it is to be mounted with -o context=.
    selinux_label: str = ""

    def volume_name_and_details(self) -> tuple[str, str]:
        metadata = self.pod.metadata
        details = (
            f"(UniqueName: {klog.quote(self.volume_name)}) pod {klog.quote(metadata.name)} "
            f"(UID: {klog.quote(metadata.uid)})"
        )
        return self.volume_spec.name(), details


@dataclass(frozen=True, slots=True)
class AttachedVolume(VolumeLogger):
    """A volume that this node has."""

    volume_name: str
    volume_spec: Spec
    node_name: str
    plugin_is_attachable: bool = False
    device_path: str = ""
    # Where the node mounts the device, "" if it does not.
    device_mount_path: str = ""
    plugin_name: str = ""
    selinux_mount_context: str = ""

    def volume_name_and_details(self) -> tuple[str, str]:
        return (
            self.volume_spec.name(),
            f"(UniqueName: {klog.quote(self.volume_name)}) on node {klog.quote(self.node_name)}",
        )

    def __str__(self) -> str:
        return f"{self.volume_spec.name()} (UniqueName: {self.volume_name}) from node {self.node_name}"


@dataclass(frozen=True, slots=True)
class MountedVolume(VolumeLogger):
    """A volume that a pod has."""

    pod_name: str
    volume_name: str
    # The persistent volume's name if it came by a claim, otherwise what the pod calls it: the name of its directory.
    inner_volume_spec_name: str
    plugin_name: str
    pod_uid: str
    volume_spec: Spec
    # One of the two, depending on whether it is mounted or a device.
    mounter: Mounter | None = None
    block_volume_mapper: BlockVolumeMapper | None = None
    volume_gid_value: str = ""
    device_mount_path: str = ""
    selinux_mount_context: str = ""

    def volume_name_and_details(self) -> tuple[str, str]:
        details = (
            f"(UniqueName: {klog.quote(self.volume_name)}) pod {klog.quote(self.pod_name)} "
            f"(UID: {klog.quote(self.pod_uid)})"
        )
        return self.volume_name, details


@dataclass(frozen=True, slots=True)
class MarkVolumeOpts:
    """What is written down of a volume that was, or may have been, set up for a pod."""

    pod_name: str
    pod_uid: str
    volume_name: str
    volume_spec: Spec
    mounter: Mounter | None = None
    block_volume_mapper: BlockVolumeMapper | None = None
    volume_gid_volume: str = ""
    volume_mount_state: VolumeMountState = VolumeMountState.VOLUME_NOT_MOUNTED
    selinux_mount_context: str = ""


class ActualStateOfWorldMounterUpdater(Protocol):
    """Where operations write down what they did. Safe from any thread; raises ValueError for unknown volumes."""

    def mark_volume_as_mounted(self, mark_volume_opts: MarkVolumeOpts) -> None: ...

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None: ...

    def mark_volume_mount_as_uncertain(self, mark_volume_opts: MarkVolumeOpts) -> None: ...

    def mark_device_as_mounted(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None: ...

    def mark_device_as_uncertain(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None: ...

    def mark_device_as_unmounted(self, volume_name: str) -> None: ...

    def mark_volume_as_resized(self, volume_name: str, claim_size: Quantity) -> bool:
        """Whether the volume is known and was smaller."""
        ...

    def get_device_mount_state(self, volume_name: str) -> DeviceMountState: ...

    def get_volume_mount_state(self, volume_name: str, pod_name: str) -> VolumeMountState: ...

    def is_volume_mounted_elsewhere(self, volume_name: str, pod_name: str) -> bool:
        """Whether another pod has the volume mounted."""
        ...

    def mark_for_in_use_expansion_error(self, volume_name: str) -> None:
        """Do not try again to expand the volume while it is in use."""
        ...

    def check_and_mark_volume_as_uncertain_via_reconstruction(self, opts: MarkVolumeOpts) -> bool:
        """Add a volume that was found on disk, unless it is known. Whether it was added."""
        ...

    def check_and_mark_device_uncertain_via_reconstruction(self, volume_name: str, device_mount_path: str) -> bool:
        """As above, for a device. Whether it was added."""
        ...

    def is_volume_reconstructed(self, volume_name: str, pod_name: str) -> bool: ...

    def is_volume_device_reconstructed(self, volume_name: str) -> bool: ...

    def mark_volume_expansion_failed_with_final_error(self, volume_name: str) -> None: ...

    def remove_volume_from_failed_with_final_errors(self, volume_name: str) -> None: ...

    def check_volume_in_failed_expansion_with_final_errors(self, volume_name: str) -> bool: ...


class ActualStateOfWorldAttacherUpdater(Protocol):
    """Where operations write down which volumes a node has. Safe from any thread."""

    def mark_volume_as_attached(self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str) -> None:
        """With volume_name "" the plugin is asked for it. Raises ValueError."""
        ...

    def mark_volume_as_uncertain(self, volume_name: str, volume_spec: Spec, node_name: str) -> None:
        """The volume may be attached: an attempt failed and said nothing sure. Raises ValueError."""
        ...

    def mark_volume_as_detached(self, volume_name: str, node_name: str) -> None: ...

    def remove_volume_from_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """The volume is about to be detached; node status must not name it. Raises ValueError."""
        ...

    def add_volume_to_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Detaching failed: node status names the volume again."""
        ...

    def initialize_claim_size(self, volume_name: str, claim_size: Quantity) -> None:
        """How large the claim's status says the volume is."""
        ...

    def get_claim_size(self, volume_name: str) -> Quantity: ...


def _err_suffix(err: Exception | None) -> str:
    return f": {err}" if err is not None else ""
