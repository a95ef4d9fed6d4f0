"""Start operations on volumes, and define the data and interfaces that operations use.

Go: pkg/volume/util/operationexecutor/operation_executor.go
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.volume import util
from pkg.volume.plugins import BlockVolumePlugin, ReconstructedVolume, Spec, VolumePlugin
from pkg.volume.util import hostutil, nestedpendingoperations
from pkg.volume.volume import BlockVolumeMapper, Mounter

if TYPE_CHECKING:
    from pkg.volume.util.operationexecutor.operation_generator import OperationGenerator
    from pkg.volume.util.operationexecutor.stuck_unmounts import StuckUnmounts

ZERO = Quantity(0)


class DeviceMountState(enum.StrEnum):
    """Describe whether the node has a volume's device mounted."""

    DEVICE_GLOBALLY_MOUNTED = "DeviceGloballyMounted"
    # A mount has started; it may have succeeded, or may still succeed.
    DEVICE_MOUNT_UNCERTAIN = "DeviceMountUncertain"
    DEVICE_NOT_MOUNTED = "DeviceNotMounted"


class VolumeMountState(enum.StrEnum):
    """Describe whether a pod has a volume mounted."""

    VOLUME_MOUNTED = "VolumeMounted"
    # A mount has started; it may have succeeded, or may still succeed.
    VOLUME_MOUNT_UNCERTAIN = "VolumeMountUncertain"
    VOLUME_NOT_MOUNTED = "VolumeNotMounted"


class MountPreConditionFailed(Exception):
    """Signal that a precondition of a mount is not met, so that the driver need not be asked."""


class VolumeOperationError(Exception):
    """Signal that an operation on a volume has failed. The message names the volume."""


class VolumeLogger:
    """Build messages about a volume: a short one for events, and a detailed one for the log."""

    __slots__ = ()

    def volume_name_and_details(self) -> tuple[str, str]:
        """Return the volume's name for messages, and the details that make it unique."""
        raise NotImplementedError

    def generate_msg_detailed(self, prefix_msg: str, suffix_msg: str) -> str:
        name, details = self.volume_name_and_details()
        return f"{prefix_msg} for volume {klog.quote(name)} {details} {suffix_msg}"

    def generate_msg(self, prefix_msg: str, suffix_msg: str) -> tuple[str, str]:
        """Return the short and the detailed message."""
        name, _ = self.volume_name_and_details()
        simple = f"{prefix_msg} for volume {klog.quote(name)} {suffix_msg}"
        return simple, self.generate_msg_detailed(prefix_msg, suffix_msg)

    def generate_error_detailed(self, prefix_msg: str, err: Exception | None) -> Exception:
        return VolumeOperationError(self.generate_msg_detailed(prefix_msg, _err_suffix(err)))

    def generate_error(self, prefix_msg: str, err: Exception | None) -> tuple[Exception, Exception]:
        """Return the short and the detailed error."""
        simple, detailed = self.generate_msg(prefix_msg, _err_suffix(err))
        return VolumeOperationError(simple), VolumeOperationError(detailed)


@dataclass(frozen=True, slots=True)
class VolumeToAttach(VolumeLogger):
    """Describe a volume that must be attached to a node."""

    volume_name: str  # The name is unique among all volumes.
    volume_spec: Spec
    node_name: str
    # `scheduled_pods` are the pods on the node that use the volume.
    scheduled_pods: list[v1.Pod] = field(default_factory=list)
    # `multi_attach_error_reported` says whether the conflict with another node's attachment has already been reported.
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
    """Describe a volume that a pod needs."""

    volume_name: str  # The name is unique on the node.
    pod_name: str  # This is the pod's UID, which is the pod's name for volumes.
    volume_spec: Spec
    pod: v1.Pod
    # `outer_volume_spec_names` are the volume's names in the pod's spec: a pod may list the same claim under several
    # names.
    outer_volume_spec_names: list[str] = field(default_factory=list)
    plugin_is_attachable: bool = False
    plugin_is_device_mountable: bool = False
    volume_gid_value: str = ""
    # `device_path` is "" for a volume that is not attached.
    device_path: str = ""
    # `reported_in_use` says whether the node's status lists the volume in volumesInUse.
    reported_in_use: bool = False
    # `desired_size_limit` is the size limit, which only some plugins can enforce.
    desired_size_limit: Quantity | None = None
    mount_request_time: datetime | None = None
    # `desired_persistent_volume_size` is the capacity in the spec of the persistent volume.
    desired_persistent_volume_size: Quantity = ZERO
    # `selinux_label` is the label for the mount option -o context=, or "" if the volume is mounted without it.
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
    """Describe a volume that this node has."""

    volume_name: str
    volume_spec: Spec
    node_name: str
    plugin_is_attachable: bool = False
    device_path: str = ""
    # `device_mount_path` is the path of the device's mount on the node, or "" if the node does not mount the device.
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
    """Describe a volume that a pod has."""

    pod_name: str
    volume_name: str
    # `inner_volume_spec_name` is the name of the volume's directory: the persistent volume's name, or for other volumes
    # the name in the pod's spec.
    inner_volume_spec_name: str
    plugin_name: str
    pod_uid: types.UID
    volume_spec: Spec
    # One of these two is set: the mounter for a file system, the mapper for a block device.
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
    """Hold what the actual state records about a volume that was, or may have been, set up for a pod."""

    pod_name: str
    pod_uid: types.UID
    volume_name: str
    volume_spec: Spec
    mounter: Mounter | None = None
    block_volume_mapper: BlockVolumeMapper | None = None
    volume_gid_volume: str = ""
    volume_mount_state: VolumeMountState = VolumeMountState.VOLUME_NOT_MOUNTED
    selinux_mount_context: str = ""


class ActualStateOfWorldMounterUpdater(Protocol):
    """Define how operations record mounts.

    Every method is safe from any thread, and raises ValueError for an unknown volume.
    """

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
        """Set the size. Report whether the volume is known."""
        ...

    def get_device_mount_state(self, volume_name: str) -> DeviceMountState: ...

    def get_volume_mount_state(self, volume_name: str, pod_name: str) -> VolumeMountState: ...

    def is_volume_mounted_elsewhere(self, volume_name: str, pod_name: str) -> bool:
        """Report whether another pod has the volume mounted."""
        ...

    def mark_for_in_use_expansion_error(self, volume_name: str) -> None:
        """Disable further attempts to expand the volume while it is in use."""
        ...

    def check_and_mark_volume_as_uncertain_via_reconstruction(self, opts: MarkVolumeOpts) -> bool:
        """Add a volume that was found on disk, unless it is already known. Report whether it was added."""
        ...

    def check_and_mark_device_uncertain_via_reconstruction(self, volume_name: str, device_mount_path: str) -> bool:
        """Mark a device that was found on disk, unless its state is already known. Report whether it was marked."""
        ...

    def is_volume_reconstructed(self, volume_name: str, pod_name: str) -> bool: ...

    def is_volume_device_reconstructed(self, volume_name: str) -> bool: ...

    def mark_volume_expansion_failed_with_final_error(self, volume_name: str) -> None: ...

    def remove_volume_from_failed_with_final_errors(self, volume_name: str) -> None: ...

    def check_volume_in_failed_expansion_with_final_errors(self, volume_name: str) -> bool: ...


class ActualStateOfWorldAttacherUpdater(Protocol):
    """Define how operations record which volumes a node has. Every method is safe from any thread."""

    def mark_volume_as_attached(self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str) -> None:
        """Record the attachment. If volume_name is "", the plugin names the volume. Raise ValueError."""
        ...

    def mark_volume_as_uncertain(self, volume_name: str, volume_spec: Spec, node_name: str) -> None:
        """Record that the volume may be attached, after an attempt whose result is unknown. Raise ValueError."""
        ...

    def mark_volume_as_detached(self, volume_name: str, node_name: str) -> None: ...

    def remove_volume_from_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Remove the volume from the node's status, because it is about to be detached. Raise ValueError."""
        ...

    def add_volume_to_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """List the volume in the node's status again, because its detachment has failed."""
        ...

    def initialize_claim_size(self, volume_name: str, claim_size: Quantity) -> None:
        """Set the size that the claim's status gives."""
        ...

    def get_claim_size(self, volume_name: str) -> Quantity: ...


class OperationExecutor:
    """Start operations on volumes, each on a thread of its own. Every method is safe from any thread.

    A method that starts an operation raises AlreadyExistsError if a conflicting operation on the volume is running,
    ExponentialBackoffError if the same operation failed a short time ago, and any error that prevents the start.
    """

    def __init__(
        self,
        operation_generator: OperationGenerator,
        on_complete: Callable[[], None] | None = None,
        clock: clocklib.Clock | None = None,
        stuck_unmounts: StuckUnmounts | None = None,
    ) -> None:
        """Create the executor.

        It calls on_complete after each operation, from the operation's thread. At that time stuck_unmounts may have a
        new failure to investigate.
        """
        self._operation_generator = operation_generator
        self._pending_operations = nestedpendingoperations.NestedPendingOperations(True, on_complete, clock)
        self._stuck_unmounts = stuck_unmounts

    def is_operation_pending(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Report whether an operation on the volume is running that conflicts with one for the pod or node."""
        return self._pending_operations.is_operation_pending(volume_name, pod_name, node_name)

    def is_operation_safe_to_retry(self, volume_name: str, pod_name: str, node_name: str, operation_name: str) -> bool:
        """Report whether the operation could start now: no conflicting one is running, and its backoff is over."""
        return self._pending_operations.is_operation_safe_to_retry(volume_name, pod_name, node_name, operation_name)

    def has_operation_failed(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Report whether the last operation on the volume, for exactly this pod and node, has failed."""
        return self._pending_operations.has_operation_failed(volume_name, pod_name, node_name)

    def next_retry(self) -> float | None:
        """Return the time, in seconds, until the first failed operation may be retried, or None if there is none."""
        return self._pending_operations.next_retry()

    def forget_failures(self, volume_name: str) -> None:
        """End the backoff of failed operations on the volume, so that they may be retried at once."""
        self._pending_operations.forget_failures(volume_name)

    def attach_volume(
        self, volume_to_attach: VolumeToAttach, actual_state_of_world: ActualStateOfWorldAttacherUpdater
    ) -> None:
        """Attach the volume to the node. Call this only if no controller attaches volumes to the node."""
        operations = self._operation_generator.generate_attach_volume_func(volume_to_attach, actual_state_of_world)
        node_name = volume_to_attach.node_name if util.is_multi_attach_allowed(volume_to_attach.volume_spec) else ""
        self._pending_operations.run(volume_to_attach.volume_name, "", node_name, operations)

    def detach_volume(
        self,
        volume_to_detach: AttachedVolume,
        verify_safe_to_detach: bool,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> None:
        """Detach the volume from the node.

        With verify_safe_to_detach, fail if the node's status lists the volume as in use.
        """
        operations = self._operation_generator.generate_detach_volume_func(
            volume_to_detach, verify_safe_to_detach, actual_state_of_world
        )
        node_name = volume_to_detach.node_name if util.is_multi_attach_allowed(volume_to_detach.volume_spec) else ""
        self._pending_operations.run(volume_to_detach.volume_name, "", node_name, operations)

    def verify_volumes_are_attached(
        self,
        attached_volumes: dict[str, list[AttachedVolume]],
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> None:
        """Find out, for each node, which volumes are no longer attached.

        The check runs concurrently with other operations, and may mark a volume as detached that has just been
        attached. The reconciler soon corrects that.
        """
        for node_name, volumes in attached_volumes.items():
            self.verify_volumes_are_attached_per_node(volumes, node_name, actual_state_of_world)

    def verify_volumes_are_attached_per_node(
        self,
        attached_volumes: list[AttachedVolume],
        node_name: str,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> None:
        operations = self._operation_generator.generate_volumes_are_attached_func(
            attached_volumes, node_name, actual_state_of_world
        )
        # The operation has no volume, so it conflicts with no other.
        self._pending_operations.run("", "", "", operations)

    def mount_volume(
        self,
        wait_for_attach_timeout: float,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        is_remount: bool,
    ) -> None:
        """Mount the volume's device on the node, then the volume for the pod; or map the block device."""
        if util.check_volume_mode_filesystem(volume_to_mount.volume_spec):
            operations = self._operation_generator.generate_mount_volume_func(
                wait_for_attach_timeout, volume_to_mount, actual_state_of_world, is_remount
            )
        else:
            operations = self._operation_generator.generate_map_volume_func(
                wait_for_attach_timeout, volume_to_mount, actual_state_of_world
            )
        # Pods that share a device must not mount it at the same time. Volumes without a device may be mounted
        # concurrently.
        shared = volume_to_mount.plugin_is_attachable or volume_to_mount.plugin_is_device_mountable
        pod_name = "" if shared else util.get_unique_pod_name(volume_to_mount.pod)
        self._pending_operations.run(volume_to_mount.volume_name, pod_name, "", operations)

    def unmount_volume(
        self, volume_to_unmount: MountedVolume, actual_state_of_world: ActualStateOfWorldMounterUpdater, pods_dir: str
    ) -> None:
        """Unmount or unmap the volume, with its sub-paths, for the pod."""
        if util.check_volume_mode_filesystem(volume_to_unmount.volume_spec):
            operations = self._operation_generator.generate_unmount_volume_func(
                volume_to_unmount, actual_state_of_world, pods_dir
            )
        else:
            operations = self._operation_generator.generate_unmap_volume_func(volume_to_unmount, actual_state_of_world)
        if self._stuck_unmounts is not None:
            operations = self._stuck_unmounts.watch_volume(operations, volume_to_unmount, pods_dir)
        self._pending_operations.run(volume_to_unmount.volume_name, volume_to_unmount.pod_uid, "", operations)

    def unmount_device(
        self,
        device_to_detach: AttachedVolume,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        host_util: hostutil.HostUtils,
    ) -> None:
        """Unmount or unmap the volume's device, so that the volume can be detached. No pod may have the volume."""
        if util.check_volume_mode_filesystem(device_to_detach.volume_spec):
            operations = self._operation_generator.generate_unmount_device_func(
                device_to_detach, actual_state_of_world, host_util
            )
        else:
            operations = self._operation_generator.generate_unmap_device_func(
                device_to_detach, actual_state_of_world, host_util
            )
        if self._stuck_unmounts is not None:
            operations = self._stuck_unmounts.watch_device(operations, device_to_detach)
        self._pending_operations.run(device_to_detach.volume_name, "", "", operations)

    def expand_in_use_volume(
        self,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        current_size: Quantity,
    ) -> None:
        """Expand the file system of a mounted volume to the desired size."""
        operations = self._operation_generator.generate_expand_in_use_volume_func(
            volume_to_mount, actual_state_of_world, current_size
        )
        self._pending_operations.run(volume_to_mount.volume_name, "", "", operations)

    def verify_controller_attached_volume(
        self,
        volume_to_mount: VolumeToMount,
        node_name: str,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> None:
        """Record the volume as attached once the node's status lists it, or at once if it need not be attached.

        Raise MountPreConditionFailed if the kubelet already knows that the volume is not attached.
        """
        operations = self._operation_generator.generate_verify_controller_attached_volume_func(
            volume_to_mount, node_name, actual_state_of_world
        )
        self._pending_operations.run(volume_to_mount.volume_name, "", "", operations)

    def reconstruct_volume_operation(
        self,
        volume_mode: str,
        plugin: VolumePlugin,
        mapper_plugin: BlockVolumePlugin | None,
        uid: types.UID,
        pod_name: str,
        volume_spec_name: str,
        volume_path: str,
    ) -> ReconstructedVolume:
        """Identify the volume that has this directory, or this link to a device, on the caller's thread.

        Raise OSError or ValueError.
        """
        if volume_mode == v1.PERSISTENT_VOLUME_FILESYSTEM:
            klog.v(5).info_s("Starting operationExecutor.ReconstructVolume for file volume on pod", podName=pod_name)
            return plugin.construct_volume_spec(volume_spec_name, volume_path)
        klog.v(5).info_s("Starting operationExecutor.ReconstructVolume for block volume on pod", podName=pod_name)
        if mapper_plugin is None:
            raise ValueError(f'could not find block volume plugin for volume "{volume_spec_name}" (pod "{pod_name}")')
        return ReconstructedVolume(mapper_plugin.construct_block_volume_spec(uid, volume_spec_name, volume_path))


def _err_suffix(err: Exception | None) -> str:
    return f": {_cause(err)}" if err is not None else ""


def _cause(err: Exception) -> str:
    """Return the error's text; a system error gets the form that Go gives it, because users read it in events."""
    if not isinstance(err, OSError) or err.errno is None or not err.strerror:
        return str(err)
    # If the text differs from the system's, our code has set it to say more about the error.
    of_system = err.strerror == os.strerror(err.errno)
    text = err.strerror.lower() if of_system else err.strerror
    return text if err.filename is None else f"{err.filename}: {text}"
