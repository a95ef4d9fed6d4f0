"""What operations on volumes work on, whom they tell what they did, and who starts them.

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


class VolumeOperationError(Exception):
    """An operation on a volume has failed, for which it is named."""


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
        return VolumeOperationError(self.generate_msg_detailed(prefix_msg, _err_suffix(err)))

    def generate_error(self, prefix_msg: str, err: Exception | None) -> tuple[Exception, Exception]:
        """The short error and the long one."""
        simple, detailed = self.generate_msg(prefix_msg, _err_suffix(err))
        return VolumeOperationError(simple), VolumeOperationError(detailed)


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
    pod_uid: types.UID
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
    pod_uid: types.UID
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


class OperationExecutor:
    """Starts operations on volumes, each on a thread of its own; safe from any thread.

    Every method that starts one raises AlreadyExistsError while another on the volume is in the way,
    ExponentialBackoffError when the same one failed lately, and what makes the operation impossible to begin.
    """

    def __init__(
        self,
        operation_generator: OperationGenerator,
        on_complete: Callable[[], None] | None = None,
        clock: clocklib.Clock | None = None,
        stuck_unmounts: StuckUnmounts | None = None,
    ) -> None:
        """on_complete is called after each operation, from its thread; then stuck_unmounts may be worth a look."""
        self._operation_generator = operation_generator
        self._pending_operations = nestedpendingoperations.NestedPendingOperations(True, on_complete, clock)
        self._stuck_unmounts = stuck_unmounts

    def is_operation_pending(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Whether one on the volume is running that another for the pod or node would have to wait for."""
        return self._pending_operations.is_operation_pending(volume_name, pod_name, node_name)

    def is_operation_safe_to_retry(self, volume_name: str, pod_name: str, node_name: str, operation_name: str) -> bool:
        """Whether the operation could be started now: nothing runs, and no failure is too fresh."""
        return self._pending_operations.is_operation_safe_to_retry(volume_name, pod_name, node_name, operation_name)

    def has_operation_failed(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Whether the last operation on the volume, for just this pod or node, has failed."""
        return self._pending_operations.has_operation_failed(volume_name, pod_name, node_name)

    def next_retry(self) -> float | None:
        """Seconds until the first of those that failed may be started again, None when none waits."""
        return self._pending_operations.next_retry()

    def forget_failures(self, volume_name: str) -> None:
        """What failed on the volume may be started again at once."""
        self._pending_operations.forget_failures(volume_name)

    def attach_volume(
        self, volume_to_attach: VolumeToAttach, actual_state_of_world: ActualStateOfWorldAttacherUpdater
    ) -> None:
        """Attach the volume to the node. Only where no controller does."""
        operations = self._operation_generator.generate_attach_volume_func(volume_to_attach, actual_state_of_world)
        node_name = volume_to_attach.node_name if util.is_multi_attach_allowed(volume_to_attach.volume_spec) else ""
        self._pending_operations.run(volume_to_attach.volume_name, "", node_name, operations)

    def detach_volume(
        self,
        volume_to_detach: AttachedVolume,
        verify_safe_to_detach: bool,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> None:
        """Detach the volume from the node; with verify_safe_to_detach only if node status does not say it is in use."""
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
        """Find out, by node, which volumes are not attached any more."""
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
        # Of no volume: it may run beside anything.
        self._pending_operations.run("", "", "", operations)

    def mount_volume(
        self,
        wait_for_attach_timeout: float,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        is_remount: bool,
    ) -> None:
        """Mount the volume's device on the node and then the volume for the pod; or make the device itself usable."""
        if util.check_volume_mode_filesystem(volume_to_mount.volume_spec):
            operations = self._operation_generator.generate_mount_volume_func(
                wait_for_attach_timeout, volume_to_mount, actual_state_of_world, is_remount
            )
        else:
            operations = self._operation_generator.generate_map_volume_func(
                wait_for_attach_timeout, volume_to_mount, actual_state_of_world
            )
        # Pods that share a device must not mount it at one time; without one they may.
        shared = volume_to_mount.plugin_is_attachable or volume_to_mount.plugin_is_device_mountable
        pod_name = "" if shared else util.get_unique_pod_name(volume_to_mount.pod)
        self._pending_operations.run(volume_to_mount.volume_name, pod_name, "", operations)

    def unmount_volume(
        self, volume_to_unmount: MountedVolume, actual_state_of_world: ActualStateOfWorldMounterUpdater, pods_dir: str
    ) -> None:
        """Take the volume, with its sub-paths, away from the pod."""
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
        """Take the volume's device away from the node, once no pod has it, so that it may be detached."""
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
        """Make the file system of a mounted volume as large as the volume is wanted."""
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
        """Note the volume as attached once node status says so, or at once if it need not be attached.

        Raises MountPreConditionFailed when it is known already that it is not.
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
        """The volume that has this directory, or this link to a device. At once, on the caller's thread.

        Raises OSError or ValueError.
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
    """An error's text; that of one of the system as Go writes it, for users read it in events."""
    if not isinstance(err, OSError) or err.errno is None or not err.strerror:
        return str(err)
    # Whoever put something else in its place has said more of it.
    of_system = err.strerror == os.strerror(err.errno)
    text = err.strerror.lower() if of_system else err.strerror
    return text if err.filename is None else f"{err.filename}: {text}"
