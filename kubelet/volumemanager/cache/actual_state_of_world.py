"""Record which volumes this node has, and which pods have them.

Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pkg import klog
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.volume import PluginNotFoundError, Spec, VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util import operationexecutor
from pkg.volume.util.operationexecutor import DeviceMountState, MarkVolumeOpts, MountedVolume, VolumeMountState
from pkg.volume.volume import BlockVolumeMapper, Mounter

ZERO = Quantity(0)


class VolumeAttachability(enum.StrEnum):
    """Describe whether a volume must be attached to the node."""

    TRUE = "True"
    FALSE = "False"
    # The volume was found on disk, and the node's status has not been read yet.
    UNCERTAIN = "Uncertain"


class VolumeNotAttachedError(Exception):
    """Signal that the volume is not attached to the node."""

    def __init__(self, volume_name: str) -> None:
        super().__init__(f"volumeName {klog.quote(volume_name)} does not exist in the list of attached volumes")


class RemountRequiredError(Exception):
    """Signal that the pod has the volume, and that the volume's content must be updated."""

    def __init__(self, volume_name: str, pod_name: str) -> None:
        super().__init__(
            f"volumeName {klog.quote(volume_name)} is mounted to {klog.quote(pod_name)} but should be remounted"
        )


class FsResizeRequiredError(Exception):
    """Signal that the pod has the volume, and that the volume's file system must grow."""

    def __init__(self, volume_name: str, pod_name: str, current_size: Quantity) -> None:
        super().__init__(
            f"volumeName {klog.quote(volume_name)} mounted to {klog.quote(pod_name)} needs to resize file system"
        )
        self.current_size = current_size


class SELinuxMountMismatchError(Exception):
    """Signal that the volume is mounted for another pod with another SELinux label."""

    def __init__(self, volume_name: str) -> None:
        super().__init__(
            f"waiting for unmount of volume {klog.quote(volume_name)}, because it is already mounted to a different "
            "pod with a different SELinux label"
        )


@dataclass(frozen=True, slots=True)
class AttachedVolume(operationexecutor.AttachedVolume):
    """Describe a volume that this node has, and the state of its device."""

    device_mount_state: DeviceMountState = DeviceMountState.DEVICE_NOT_MOUNTED

    def device_may_be_mounted(self) -> bool:
        return self.device_mount_state is not DeviceMountState.DEVICE_NOT_MOUNTED


@dataclass(frozen=True, slots=True)
class PodInVolume:
    """Describe the state of a volume for one pod."""

    # `is_mounted` says whether the volume is known to be mounted for the pod.
    is_mounted: bool = False
    # `device_path` is the path of the device, or "" if it is not known.
    device_path: str = ""
    # `err` is one of the errors above if the volume needs an operation before the pod can use it; otherwise None.
    err: Exception | None = None


@dataclass(slots=True)
class _MountedPod:
    """Describe a pod that has, or may have, a volume."""

    pod_name: str
    pod_uid: types.UID
    # `volume_spec` is the volume as the pod's spec gives it: two pods may refer to the same volume by different specs.
    volume_spec: Spec
    mounter: Mounter | None
    block_volume_mapper: BlockVolumeMapper | None
    volume_gid_value: str
    volume_mount_state_for_pod: VolumeMountState
    selinux_mount_context: str
    # `remounts_required` counts the requested remounts, `remounts_begun` those that the current or last operation
    # covers, and `remounts_done` those that are done.
    remounts_required: int = 0
    remounts_begun: int = 0
    remounts_done: int = 0


@dataclass(slots=True)
class _AttachedVolume:
    """Describe a volume that this node has.

    A volume that need not be attached is recorded here as soon as a pod needs it.
    """

    volume_name: str
    # The spec's name is also the name of the volume's directories.
    spec: Spec
    plugin_name: str
    plugin_is_attachable: VolumeAttachability
    device_path: str
    mounted_pods: dict[str, _MountedPod] = field(default_factory=dict)
    device_mount_state: DeviceMountState = DeviceMountState.DEVICE_NOT_MOUNTED
    device_mount_path: str = ""
    # `volume_in_use_error_for_expansion` says whether the driver has reported that it cannot expand a volume that is in
    # use.
    volume_in_use_error_for_expansion: bool = False
    # `persistent_volume_size` is the size at the pod's start, or after the last expansion.
    persistent_volume_size: Quantity = ZERO
    # `selinux_mount_context` is None while the volume is not mounted, and "" if it is mounted without -o context=.
    selinux_mount_context: str | None = None


class ActualStateOfWorld:
    """Record volumes and the pods that have them. Every method is safe from any thread, and returns copies.

    Operations write the actual state, and the reconciler compares it with the desired state. A pod counts as having a
    volume from the moment when an operation begins to set it up ("uncertain") until the volume is known to be
    unmounted.
    """

    def __init__(
        self,
        node_name: str,
        volume_plugin_mgr: VolumePluginMgr,
        on_pod_change: Callable[[str], None] | None = None,
    ) -> None:
        """Create an empty state.

        The state calls on_pod_change, from any thread, with the name of a pod that has gained or lost a volume.
        """
        self._node_name = node_name
        self._volume_plugin_mgr = volume_plugin_mgr
        self._on_pod_change = on_pod_change or (lambda pod_name: None)
        self._lock = threading.Lock()  # This lock guards all fields below.
        self._attached_volumes: dict[str, _AttachedVolume] = {}
        # `_found_during_reconstruction` holds, by volume, the pods that were found on disk after a restart and whose
        # volume has not been set up since.
        self._found_during_reconstruction: dict[str, set[str]] = {}
        self._volumes_with_final_expansion_errors: set[str] = set()

    # ---- Attaching ----

    def mark_volume_as_attached(self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str) -> None:
        """Record that the node has the volume; update the device path if it is already known.

        Raise ValueError if no plugin supports the volume.
        """
        attachability = VolumeAttachability.FALSE
        if self._is_attachable(volume_spec):
            attachability = VolumeAttachability.TRUE
        self._add_volume(volume_name, volume_spec, device_path, attachability)

    def add_attach_uncertain_reconstructed_volume(
        self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str
    ) -> None:
        """Add a volume that was found on disk and that may be attached. Raise ValueError if no plugin supports it."""
        self._add_volume(volume_name, volume_spec, device_path, VolumeAttachability.UNCERTAIN)
        with self._lock:
            # Add the volume even if no pod has it, because it may be staged.
            self._found_during_reconstruction.setdefault(volume_name, set())

    def mark_volume_as_uncertain(self, volume_name: str, volume_spec: Spec, node_name: str) -> None:
        """Do nothing: only the attach/detach controller tracks uncertain attachments."""

    def mark_volume_as_detached(self, volume_name: str, node_name: str) -> None:
        try:
            self.delete_volume(volume_name)
        except ValueError as err:
            # A pod got the volume meanwhile. The reconciler tries again when that pod ends.
            klog.v(4).info_s("Volume is still in use", volumeName=volume_name, err=err)

    def add_volume_to_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Do nothing: only the attach/detach controller reports attached volumes."""

    def remove_volume_from_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Do nothing: only the attach/detach controller reports attached volumes."""

    def _is_attachable(self, volume_spec: Spec) -> bool:
        try:
            return self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume_spec) is not None
        except Exception as err:
            # As in Go, a plugin that raises an error counts as not attachable. The next operation on the volume reports
            # the error.
            klog.v(4).info_s(
                "Failed to determine whether the volume is attachable", volumeSpecName=volume_spec.name(), err=err
            )
            return False

    def _add_volume(
        self, volume_name: str, volume_spec: Spec, device_path: str, attachability: VolumeAttachability
    ) -> None:
        try:
            plugin = self._volume_plugin_mgr.find_plugin_by_spec(volume_spec)
            name = volume_name or volumeutil.get_unique_volume_name_from_spec(plugin, volume_spec)
        except ValueError as err:
            quoted = klog.quote(volume_spec.name())
            raise ValueError(f"failed to get Plugin from volumeSpec for volume {quoted} err={err}") from err
        with self._lock:
            known = self._attached_volumes.get(name)
            if known is None:
                self._attached_volumes[name] = _AttachedVolume(
                    name, volume_spec, plugin.get_plugin_name(), attachability, device_path
                )
                return
            known.device_path = device_path
        message = "Volume is already added to attachedVolume list, update device path"
        klog.v(2).info_s(message, volumeName=name, path=device_path)

    def delete_volume(self, volume_name: str) -> None:
        """Record that the node no longer has the volume. Raise ValueError if a pod still has it."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is None:
                return
            if volume.mounted_pods:
                raise ValueError(
                    f"failed to DeleteVolume {klog.quote(volume_name)}, "
                    f"it still has {len(volume.mounted_pods)} mountedPods"
                )
            del self._attached_volumes[volume_name]
            self._found_during_reconstruction.pop(volume_name, None)

    # ---- Reconstruction ----

    def is_volume_reconstructed(self, volume_name: str, pod_name: str) -> bool:
        """Report whether the pod's volume was found on disk and has not been set up since."""
        if self.get_volume_mount_state(volume_name, pod_name) is not VolumeMountState.VOLUME_MOUNT_UNCERTAIN:
            return False
        with self._lock:
            return pod_name in self._found_during_reconstruction.get(volume_name, ())

    def is_volume_device_reconstructed(self, volume_name: str) -> bool:
        with self._lock:
            return volume_name in self._found_during_reconstruction

    def check_and_mark_volume_as_uncertain_via_reconstruction(self, opts: MarkVolumeOpts) -> bool:
        """Add a pod's volume that was found on disk, unless it is already known. Report whether it was added."""
        with self._lock:
            volume = self._attached_volumes.get(opts.volume_name)
            if volume is None or opts.pod_name in volume.mounted_pods:
                return False
            pod = _new_mounted_pod(opts)
            pod.volume_mount_state_for_pod = VolumeMountState.VOLUME_MOUNT_UNCERTAIN
            volume.mounted_pods[opts.pod_name] = pod
            self._found_during_reconstruction.setdefault(opts.volume_name, set()).add(opts.pod_name)
        self._on_pod_change(opts.pod_name)
        return True

    def check_and_mark_device_uncertain_via_reconstruction(self, volume_name: str, device_mount_path: str) -> bool:
        """Mark the device of a reconstructed volume as possibly mounted, unless its state is already known.

        Report whether it was marked. The path of the device itself comes from the node's status later.
        """
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is None or volume.device_mount_state is not DeviceMountState.DEVICE_NOT_MOUNTED:
                return False
            volume.device_mount_state = DeviceMountState.DEVICE_MOUNT_UNCERTAIN
            volume.device_mount_path = device_mount_path
            return True

    def rename_reconstructed_volume(
        self, volume_name: str, new_name: str, attachable: bool, pods_of_old_name: Collection[str]
    ) -> None:
        """Give a reconstructed volume another unique name.

        What is already known under the new name stays. A volume with the old name remains for the pods in
        pods_of_old_name.
        """
        attachability = VolumeAttachability.TRUE if attachable else VolumeAttachability.FALSE
        with self._lock:
            found = self._attached_volumes.pop(volume_name, None)
            reconstructed = self._found_during_reconstruction.pop(volume_name, set())
            if found is None:
                return
            kept = {name: pod for name, pod in found.mounted_pods.items() if name in pods_of_old_name}
            if kept:
                self._attached_volumes[volume_name] = replace(found, mounted_pods=kept)
                self._found_during_reconstruction[volume_name] = reconstructed & kept.keys()
            pods = {name: pod for name, pod in found.mounted_pods.items() if name not in kept}
            renamed = replace(found, volume_name=new_name, plugin_is_attachable=attachability, mounted_pods={})
            known = self._attached_volumes.setdefault(new_name, renamed)
            of_new_name = self._found_during_reconstruction.setdefault(new_name, set())
            of_new_name.update(reconstructed & pods.keys() - known.mounted_pods.keys())
            known.mounted_pods = pods | known.mounted_pods
            if known.device_mount_state is DeviceMountState.DEVICE_NOT_MOUNTED:
                known.device_mount_state, known.device_mount_path = found.device_mount_state, found.device_mount_path

    def update_reconstructed_device_path(self, volume_name: str, device_path: str) -> None:
        """Set the device path that the node's status gives, unless an operation has mounted the device since."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.device_mount_state is DeviceMountState.DEVICE_MOUNT_UNCERTAIN:
                volume.device_path = device_path

    def update_reconstructed_volume_attachability(self, volume_name: str, volume_attachable: bool) -> None:
        """Set whether the volume must be attached, if that is still uncertain."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.plugin_is_attachable is VolumeAttachability.UNCERTAIN:
                volume.plugin_is_attachable = (
                    VolumeAttachability.TRUE if volume_attachable else VolumeAttachability.FALSE
                )

    # ---- Mounting ----

    def mark_volume_as_mounted(self, mark_volume_opts: MarkVolumeOpts) -> None:
        """Record that the pod has the volume. Raise ValueError if the node does not have the volume."""
        self.add_pod_to_volume(mark_volume_opts, mark_volume_opts.volume_mount_state)

    def mark_volume_mount_as_uncertain(self, mark_volume_opts: MarkVolumeOpts) -> None:
        self.add_pod_to_volume(mark_volume_opts, VolumeMountState.VOLUME_MOUNT_UNCERTAIN)

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None:
        self.delete_pod_from_volume(pod_name, volume_name)

    def add_pod_to_volume(self, mark_volume_opts: MarkVolumeOpts, state: VolumeMountState) -> None:
        """Record that the pod has or may have the volume, and that the remount requests covered so far are done.

        The known state of the pod's volume stays, unless the volume was uncertain. Raise ValueError if the node does
        not have the volume.
        """
        opts = mark_volume_opts
        with self._lock:
            volume = self._get_locked(opts.volume_name)
            pod = volume.mounted_pods.get(opts.pod_name)
            if pod is None or pod.volume_mount_state_for_pod is VolumeMountState.VOLUME_MOUNT_UNCERTAIN:
                pod = volume.mounted_pods[opts.pod_name] = _new_mounted_pod(opts)
            pod.remounts_done = pod.remounts_begun
            pod.volume_mount_state_for_pod = state
            if state is VolumeMountState.VOLUME_MOUNTED:
                self._found_during_reconstruction.get(opts.volume_name, set()).discard(opts.pod_name)
            if opts.mounter is not None:
                pod.mounter = opts.mounter
            if volume.selinux_mount_context is None:
                volume.selinux_mount_context = opts.selinux_mount_context
        self._on_pod_change(opts.pod_name)

    def delete_pod_from_volume(self, pod_name: str, volume_name: str) -> None:
        """Record that the pod no longer has the volume. Raise ValueError if the node does not have the volume."""
        with self._lock:
            volume = self._get_locked(volume_name)
            volume.mounted_pods.pop(pod_name, None)
            self._found_during_reconstruction.get(volume_name, set()).discard(pod_name)
        self._on_pod_change(pod_name)

    def mark_remount_required(self, pod_name: str) -> None:
        """Request another set-up of those volumes of the pod whose plugins require remounts."""
        with self._lock:
            specs = {volume.volume_name: pod.volume_spec for volume, pod in self._mounts_of_pod_locked(pod_name)}
        # Call the plugin without the lock, because the plugin may have to wait until it knows its drivers.
        required = {name for name, spec in specs.items() if self._requires_remount(pod_name, name, spec)}
        with self._lock:
            for volume, pod in self._mounts_of_pod_locked(pod_name):
                if volume.volume_name in required:
                    pod.remounts_required += 1

    def mark_remount_begun(self, pod_name: str, volume_name: str) -> None:
        """Record that the operation that starts now covers all remounts requested so far.

        DIVERGES (fault of Go): a remount that is requested while another one is running takes place after it.
        Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go, (*actualStateOfWorld).AddPodToVolume: in the Go
        kubelet the end of the running remount also counts as the end of the one requested meanwhile.
        Why: the running one may have read a secret or config map before it changed; the pod would then keep the old
        files until its next sync.
        Test: actual_state_of_world_test.py:test_remount_that_is_required_while_one_runs_is_not_forgotten
        """
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            pod = volume.mounted_pods.get(pod_name) if volume is not None else None
            if pod is not None:
                pod.remounts_begun = pod.remounts_required

    def _requires_remount(self, pod_name: str, volume_name: str, spec: Spec) -> bool:
        try:
            return self._volume_plugin_mgr.find_plugin_by_spec(spec).requires_remount(spec)
        except Exception as err:
            # An error of one volume must not affect the pod's other volumes.
            klog.error_s(
                err,
                "MarkRemountRequired failed to FindPluginBySpec for volume",
                uniquePodName=pod_name,
                podUID=pod_name,
                volumeName=volume_name,
                volumeSpecName=spec.name(),
            )
            return False

    # ---- Devices ----

    def mark_device_as_mounted(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None:
        """Record that the node has mounted the device. Raise ValueError if the node does not have the volume."""
        self.set_device_mount_state(
            volume_name,
            DeviceMountState.DEVICE_GLOBALLY_MOUNTED,
            device_path,
            device_mount_path,
            selinux_mount_context,
        )

    def mark_device_as_uncertain(
        self, volume_name: str, device_path: str, device_mount_path: str, selinux_mount_context: str
    ) -> None:
        self.set_device_mount_state(
            volume_name,
            DeviceMountState.DEVICE_MOUNT_UNCERTAIN,
            device_path,
            device_mount_path,
            selinux_mount_context,
        )

    def mark_device_as_unmounted(self, volume_name: str) -> None:
        self.set_device_mount_state(volume_name, DeviceMountState.DEVICE_NOT_MOUNTED, "", "", "")

    def set_device_mount_state(
        self,
        volume_name: str,
        device_mount_state: DeviceMountState,
        device_path: str,
        device_mount_path: str,
        selinux_mount_context: str,
    ) -> None:
        """Set the state of the device. An empty device_path or selinux_mount_context leaves the known value.

        Raise ValueError if the node does not have the volume.
        """
        with self._lock:
            volume = self._get_locked(volume_name)
            volume.device_mount_state = device_mount_state
            volume.device_mount_path = device_mount_path
            if device_path:
                volume.device_path = device_path
            if selinux_mount_context:
                volume.selinux_mount_context = selinux_mount_context

    # ---- Sizes ----

    def initialize_claim_size(self, volume_name: str, claim_size: Quantity) -> None:
        """Set the size of the volume, unless it is already known."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.persistent_volume_size.is_zero():
                volume.persistent_volume_size = claim_size

    def get_claim_size(self, volume_name: str) -> Quantity:
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return volume.persistent_volume_size if volume is not None else ZERO

    def mark_volume_as_resized(self, volume_name: str, claim_size: Quantity) -> bool:
        """Set the size of the volume. Report whether the node has the volume."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is None:
                return False
            volume.persistent_volume_size = claim_size
            return True

    def mark_for_in_use_expansion_error(self, volume_name: str) -> None:
        """Disable expansion of the volume for as long as the node has it."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None:
                volume.volume_in_use_error_for_expansion = True

    def mark_volume_expansion_failed_with_final_error(self, volume_name: str) -> None:
        with self._lock:
            self._volumes_with_final_expansion_errors.add(volume_name)

    def remove_volume_from_failed_with_final_errors(self, volume_name: str) -> None:
        with self._lock:
            self._volumes_with_final_expansion_errors.discard(volume_name)

    def check_volume_in_failed_expansion_with_final_errors(self, volume_name: str) -> bool:
        with self._lock:
            return volume_name in self._volumes_with_final_expansion_errors

    def _volume_needs_expansion(self, volume: _AttachedVolume, desired_volume_size: Quantity) -> bool:
        current = volume.persistent_volume_size
        if volume.volume_in_use_error_for_expansion or current.is_zero() or desired_volume_size.cmp(current) <= 0:
            return False
        try:
            plugin = self._volume_plugin_mgr.find_node_expandable_plugin_by_spec(volume.spec)
        except PluginNotFoundError:
            plugin = None
        if plugin is None:
            klog.info_s(
                "PodExistsInVolume failed to find expandable plugin",
                volume=volume.volume_name,
                volumeSpecName=volume.spec.name(),
            )
            return False
        return plugin.requires_fs_resize()

    # ---- Queries ----

    def pod_exists_in_volume(
        self, pod_name: str, volume_name: str, desired_volume_size: Quantity, selinux_label: str
    ) -> PodInVolume:
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is None:
                return PodInVolume(err=VolumeNotAttachedError(volume_name))
            path = volume.device_path
            if volume.selinux_mount_context is not None and volume.selinux_mount_context != selinux_label:
                return PodInVolume(device_path=path, err=SELinuxMountMismatchError(volume_name))
            pod = volume.mounted_pods.get(pod_name)
            if pod is None or pod.volume_mount_state_for_pod is VolumeMountState.VOLUME_MOUNT_UNCERTAIN:
                return PodInVolume(device_path=path)
            if pod.remounts_required != pod.remounts_done:
                return PodInVolume(True, path, RemountRequiredError(volume_name, pod_name))
            if self._volume_needs_expansion(volume, desired_volume_size):
                return PodInVolume(
                    True, path, FsResizeRequiredError(volume_name, pod_name, volume.persistent_volume_size)
                )
            return PodInVolume(True, path)

    def pod_removed_from_volume(self, pod_name: str, volume_name: str) -> bool:
        """Report whether the volume is known not to be mounted for the pod."""
        return self.get_volume_mount_state(volume_name, pod_name) is VolumeMountState.VOLUME_NOT_MOUNTED

    def pod_has_mounted_volumes(self, pod_name: str) -> bool:
        """Report whether any volume is known to be mounted for the pod."""
        return bool(self.get_mounted_volumes_for_pod(pod_name))

    def volume_exists_with_spec_name(self, pod_name: str, plugin_name: str, volume_spec_name: str) -> bool:
        """Report whether the pod has, or may have, a volume of the plugin whose directory has this name.

        DIVERGES (fault of Go): a volume found on disk counts as a known one only if both the plugin and the name match.
        Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go, (*actualStateOfWorld).VolumeExistsWithSpecName:
        the Go kubelet does not compare the plugin.
        Why: a pod may give an inline volume the name of a persistent volume that it also has; after a restart one of
        the two would count as already known, and would never be unmounted.
        Test:
        kubelet/volumemanager/reconciler/reconciler_test.py:test_unknown_volume_is_not_taken_for_another_one_that_has_its_name
        """
        with self._lock:
            volumes = [volume for volume in self._attached_volumes.values() if volume.plugin_name == plugin_name]
            pods = (volume.mounted_pods.get(pod_name) for volume in volumes)
            return any(pod is not None and pod.volume_spec.name() == volume_spec_name for pod in pods)

    def volume_exists(self, volume_name: str) -> bool:
        """Report whether the node has the volume."""
        with self._lock:
            return volume_name in self._attached_volumes

    def is_volume_mounted_elsewhere(self, volume_name: str, pod_name: str) -> bool:
        """Report whether another pod has, or may have, the volume."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return volume is not None and any(
                other != pod_name and pod.volume_mount_state_for_pod is not VolumeMountState.VOLUME_NOT_MOUNTED
                for other, pod in volume.mounted_pods.items()
            )

    def get_device_mount_state(self, volume_name: str) -> DeviceMountState:
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return DeviceMountState.DEVICE_NOT_MOUNTED if volume is None else volume.device_mount_state

    def get_volume_mount_state(self, volume_name: str, pod_name: str) -> VolumeMountState:
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            pod = volume.mounted_pods.get(pod_name) if volume is not None else None
            return VolumeMountState.VOLUME_NOT_MOUNTED if pod is None else pod.volume_mount_state_for_pod

    def get_mounted_volumes(self) -> list[MountedVolume]:
        """List the volumes that are known to be mounted for a pod."""
        with self._lock:
            return [_get_mounted_volume(pod, volume) for volume, pod in self._mounts_locked() if _is_mounted(pod)]

    def get_all_mounted_volumes(self) -> list[MountedVolume]:
        """List the volumes that are, or may be, mounted for a pod."""
        with self._lock:
            return [_get_mounted_volume(pod, volume) for volume, pod in self._mounts_locked() if _may_be_mounted(pod)]

    def get_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        """List the volumes that are known to be mounted for the pod."""
        with self._lock:
            mounts = self._mounts_of_pod_locked(pod_name)
            return [_get_mounted_volume(pod, volume) for volume, pod in mounts if _is_mounted(pod)]

    def get_mounted_volume_for_pod(self, pod_name: str, volume_name: str) -> MountedVolume | None:
        """Return the volume, or None if it is not known to be mounted for the pod."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            pod = volume.mounted_pods.get(pod_name) if volume is not None else None
            if volume is None or pod is None or not _is_mounted(pod):
                return None
            return _get_mounted_volume(pod, volume)

    def get_possibly_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        """List the volumes that are, or may be, mounted for the pod."""
        with self._lock:
            mounts = self._mounts_of_pod_locked(pod_name)
            return [_get_mounted_volume(pod, volume) for volume, pod in mounts if _may_be_mounted(pod)]

    def get_globally_mounted_volumes(self) -> list[AttachedVolume]:
        """List the volumes whose device is known to be mounted on the node."""
        with self._lock:
            return [
                self._new_attached_volume(volume)
                for volume in self._attached_volumes.values()
                if volume.device_mount_state is DeviceMountState.DEVICE_GLOBALLY_MOUNTED
            ]

    def get_attached_volumes(self) -> list[AttachedVolume]:
        with self._lock:
            return [self._new_attached_volume(volume) for volume in self._attached_volumes.values()]

    def get_attachable_volumes(self) -> set[str]:
        """Return the names of the node's volumes that are known to need attachment."""
        with self._lock:
            volumes = self._attached_volumes.values()
            return {v.volume_name for v in volumes if v.plugin_is_attachable is VolumeAttachability.TRUE}

    def get_attached_volume(self, volume_name: str) -> AttachedVolume | None:
        """Return the volume, or None if the node does not have it."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return None if volume is None else self._new_attached_volume(volume)

    def get_unmounted_volumes(self) -> list[AttachedVolume]:
        """List the volumes that no pod has or may have."""
        with self._lock:
            volumes = self._attached_volumes.values()
            return [self._new_attached_volume(volume) for volume in volumes if not volume.mounted_pods]

    # ---- Helpers ----

    def _get_locked(self, volume_name: str) -> _AttachedVolume:
        if volume_name not in self._attached_volumes:
            raise ValueError(
                f"no volume with the name {klog.quote(volume_name)} exists in the list of attached volumes"
            )
        return self._attached_volumes[volume_name]

    def _mounts_locked(self) -> Iterator[tuple[_AttachedVolume, _MountedPod]]:
        for volume in self._attached_volumes.values():
            for pod in volume.mounted_pods.values():
                yield volume, pod

    def _mounts_of_pod_locked(self, pod_name: str) -> Iterator[tuple[_AttachedVolume, _MountedPod]]:
        for volume in self._attached_volumes.values():
            if (pod := volume.mounted_pods.get(pod_name)) is not None:
                yield volume, pod

    def _new_attached_volume(self, volume: _AttachedVolume) -> AttachedVolume:
        return AttachedVolume(
            volume_name=volume.volume_name,
            volume_spec=volume.spec,
            node_name=self._node_name,
            plugin_is_attachable=volume.plugin_is_attachable is VolumeAttachability.TRUE,
            device_path=volume.device_path,
            device_mount_path=volume.device_mount_path,
            plugin_name=volume.plugin_name,
            selinux_mount_context=volume.selinux_mount_context or "",
            device_mount_state=volume.device_mount_state,
        )


def _is_mounted(pod: _MountedPod) -> bool:
    return pod.volume_mount_state_for_pod is VolumeMountState.VOLUME_MOUNTED


def _may_be_mounted(pod: _MountedPod) -> bool:
    return pod.volume_mount_state_for_pod is not VolumeMountState.VOLUME_NOT_MOUNTED


def _new_mounted_pod(opts: MarkVolumeOpts) -> _MountedPod:
    return _MountedPod(
        pod_name=opts.pod_name,
        pod_uid=opts.pod_uid,
        volume_spec=opts.volume_spec,
        mounter=opts.mounter,
        block_volume_mapper=opts.block_volume_mapper,
        volume_gid_value=opts.volume_gid_volume,
        volume_mount_state_for_pod=opts.volume_mount_state,
        selinux_mount_context=opts.selinux_mount_context,
    )


def _get_mounted_volume(pod: _MountedPod, volume: _AttachedVolume) -> MountedVolume:
    return MountedVolume(
        pod_name=pod.pod_name,
        volume_name=volume.volume_name,
        inner_volume_spec_name=pod.volume_spec.name(),
        plugin_name=volume.plugin_name,
        pod_uid=pod.pod_uid,
        volume_spec=pod.volume_spec,
        mounter=pod.mounter,
        block_volume_mapper=pod.block_volume_mapper,
        volume_gid_value=pod.volume_gid_value,
        device_mount_path=volume.device_mount_path,
        selinux_mount_context=volume.selinux_mount_context or "",
    )


if TYPE_CHECKING:
    # The type checker confirms here that the class implements the protocols of the operation executor.
    def _check(state: ActualStateOfWorld) -> None:
        _mounter: operationexecutor.ActualStateOfWorldMounterUpdater = state
        _attacher: operationexecutor.ActualStateOfWorldAttacherUpdater = state
