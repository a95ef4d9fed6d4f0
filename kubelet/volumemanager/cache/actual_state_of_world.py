"""Which volumes this node has, and which pods have them.

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
    """Whether somebody must attach the volume to the node."""

    TRUE = "True"
    FALSE = "False"
    # Found on disk, and nobody has been asked yet.
    UNCERTAIN = "Uncertain"


class VolumeNotAttachedError(Exception):
    """The node does not have the volume."""

    def __init__(self, volume_name: str) -> None:
        super().__init__(f"volumeName {klog.quote(volume_name)} does not exist in the list of attached volumes")


class RemountRequiredError(Exception):
    """The pod has the volume, and its content must be brought up to date."""

    def __init__(self, volume_name: str, pod_name: str) -> None:
        super().__init__(
            f"volumeName {klog.quote(volume_name)} is mounted to {klog.quote(pod_name)} but should be remounted"
        )


class FsResizeRequiredError(Exception):
    """The pod has the volume, and its file system must be made larger."""

    def __init__(self, volume_name: str, pod_name: str, current_size: Quantity) -> None:
        super().__init__(
            f"volumeName {klog.quote(volume_name)} mounted to {klog.quote(pod_name)} needs to resize file system"
        )
        self.current_size = current_size


class SELinuxMountMismatchError(Exception):
    """Another pod has the volume, mounted with another SELinux label."""

    def __init__(self, volume_name: str) -> None:
        super().__init__(
            f"waiting for unmount of volume {klog.quote(volume_name)}, because it is already mounted to a different "
            "pod with a different SELinux label"
        )


@dataclass(frozen=True, slots=True)
class AttachedVolume(operationexecutor.AttachedVolume):
    """A volume that this node has, and how far its device has come."""

    device_mount_state: DeviceMountState = DeviceMountState.DEVICE_NOT_MOUNTED

    def device_may_be_mounted(self) -> bool:
        return self.device_mount_state is not DeviceMountState.DEVICE_NOT_MOUNTED


@dataclass(frozen=True, slots=True)
class PodInVolume:
    """What a pod has of a volume."""

    # Whether the pod surely has it.
    is_mounted: bool = False
    # The device's, "" if it is not known.
    device_path: str = ""
    # What must be done about it, if anything: one of the errors above.
    err: Exception | None = None


@dataclass(slots=True)
class _MountedPod:
    """A pod that has, or may have, a volume."""

    pod_name: str
    pod_uid: types.UID
    # What the pod has as a spec: two pods may have the same volume by different ones.
    volume_spec: Spec
    mounter: Mounter | None
    block_volume_mapper: BlockVolumeMapper | None
    volume_gid_value: str
    volume_mount_state_for_pod: VolumeMountState
    selinux_mount_context: str
    # How often it was to be set up again, how many of these requests an operation has begun to meet, and has met.
    remounts_required: int = 0
    remounts_begun: int = 0
    remounts_done: int = 0


@dataclass(slots=True)
class _AttachedVolume:
    """A volume that this node has. One that nobody must attach is in this state as soon as a pod wants it."""

    volume_name: str
    # Its name is that of the volume's directories.
    spec: Spec
    plugin_name: str
    plugin_is_attachable: VolumeAttachability
    device_path: str
    mounted_pods: dict[str, _MountedPod] = field(default_factory=dict)
    device_mount_state: DeviceMountState = DeviceMountState.DEVICE_NOT_MOUNTED
    device_mount_path: str = ""
    # The driver said that it does not expand volumes that are in use.
    volume_in_use_error_for_expansion: bool = False
    # As it was at the pod's start, or after the last expansion.
    persistent_volume_size: Quantity = ZERO
    # None while it is not mounted, "" when it is mounted without -o context=.
    selinux_mount_context: str | None = None


class ActualStateOfWorld:
    """Volumes and their pods. Safe from any thread; what is handed out are copies.

    Operations write it, the reconciler compares it with what is desired. A pod counts as having a volume from the
    moment when somebody begins to set it up ("uncertain") until it is surely taken away.
    """

    def __init__(
        self,
        node_name: str,
        volume_plugin_mgr: VolumePluginMgr,
        on_pod_change: Callable[[str], None] | None = None,
    ) -> None:
        """on_pod_change is told, from any thread, the name of a pod that has come to have or to lose a volume."""
        self._node_name = node_name
        self._volume_plugin_mgr = volume_plugin_mgr
        self._on_pod_change = on_pod_change or (lambda pod_name: None)
        self._lock = threading.Lock()  # guards all below
        self._attached_volumes: dict[str, _AttachedVolume] = {}
        # Pods by volume that were found on disk after a restart and have not been set up since.
        self._found_during_reconstruction: dict[str, set[str]] = {}
        self._volumes_with_final_expansion_errors: set[str] = set()

    # ---- Attaching ----

    def mark_volume_as_attached(self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str) -> None:
        """The node has the volume; one known already gets the new path. Raises ValueError when no plugin fits."""
        attachability = VolumeAttachability.FALSE
        if self._is_attachable(volume_spec):
            attachability = VolumeAttachability.TRUE
        self._add_volume(volume_name, volume_spec, device_path, attachability)

    def add_attach_uncertain_reconstructed_volume(
        self, volume_name: str, volume_spec: Spec, node_name: str, device_path: str
    ) -> None:
        """The volume was found on disk, and perhaps somebody has attached it. Raises ValueError as above."""
        self._add_volume(volume_name, volume_spec, device_path, VolumeAttachability.UNCERTAIN)
        with self._lock:
            # Also if no pod has it: it may be staged all the same.
            self._found_during_reconstruction.setdefault(volume_name, set())

    def mark_volume_as_uncertain(self, volume_name: str, volume_spec: Spec, node_name: str) -> None:
        """Nothing: only who attaches volumes for other nodes must remember that."""

    def mark_volume_as_detached(self, volume_name: str, node_name: str) -> None:
        try:
            self.delete_volume(volume_name)
        except ValueError as err:
            # A pod got it meanwhile: it is looked at again when that pod ends.
            klog.v(4).info_s("Volume is still in use", volumeName=volume_name, err=err)

    def add_volume_to_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Nothing: only who attaches volumes for other nodes reports them."""

    def remove_volume_from_report_as_attached(self, volume_name: str, node_name: str) -> None:
        """Nothing, as above."""

    def _is_attachable(self, volume_spec: Spec) -> bool:
        try:
            return self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume_spec) is not None
        except Exception as err:
            # As in Go whoever cannot tell counts as not attachable: the operation that asked will say why.
            klog.v(4).info_s("Cannot tell whether volume is attachable", volumeSpecName=volume_spec.name(), err=err)
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
        """The node no longer has the volume. Raises ValueError while a pod has it."""
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
        """Whether all that is known of the pod's volume is that it was found on disk."""
        if self.get_volume_mount_state(volume_name, pod_name) is not VolumeMountState.VOLUME_MOUNT_UNCERTAIN:
            return False
        with self._lock:
            return pod_name in self._found_during_reconstruction.get(volume_name, ())

    def is_volume_device_reconstructed(self, volume_name: str) -> bool:
        with self._lock:
            return volume_name in self._found_during_reconstruction

    def check_and_mark_volume_as_uncertain_via_reconstruction(self, opts: MarkVolumeOpts) -> bool:
        """Add a pod's volume that was found on disk. Whether it was not known better already."""
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
        """As above, for the device of a volume that the node has; its own path the node's status tells."""
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
        """The volume that was found on disk is the one with the new name, of which what is known already stays.

        For the pods of the old name there is one with that, too.
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
        """Where the node's status says the device is; who has mounted it since knows better."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.device_mount_state is DeviceMountState.DEVICE_MOUNT_UNCERTAIN:
                volume.device_path = device_path

    def update_reconstructed_volume_attachability(self, volume_name: str, volume_attachable: bool) -> None:
        """Whether the node's status names the volume; for those of which nobody has found out since."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.plugin_is_attachable is VolumeAttachability.UNCERTAIN:
                volume.plugin_is_attachable = (
                    VolumeAttachability.TRUE if volume_attachable else VolumeAttachability.FALSE
                )

    # ---- Mounting ----

    def mark_volume_as_mounted(self, mark_volume_opts: MarkVolumeOpts) -> None:
        """Raises ValueError when the node does not have the volume."""
        self.add_pod_to_volume(mark_volume_opts, mark_volume_opts.volume_mount_state)

    def mark_volume_mount_as_uncertain(self, mark_volume_opts: MarkVolumeOpts) -> None:
        self.add_pod_to_volume(mark_volume_opts, VolumeMountState.VOLUME_MOUNT_UNCERTAIN)

    def mark_volume_as_unmounted(self, pod_name: str, volume_name: str) -> None:
        self.delete_pod_from_volume(pod_name, volume_name)

    def add_pod_to_volume(self, mark_volume_opts: MarkVolumeOpts, state: VolumeMountState) -> None:
        """The pod has the volume, or may have it; no remount is due any more that an operation has begun.

        What is known of the pod's volume stays, unless it was uncertain. Raises ValueError when the node does not
        have the volume.
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
        """The pod no longer has the volume. Raises ValueError when the node does not have it."""
        with self._lock:
            volume = self._get_locked(volume_name)
            volume.mounted_pods.pop(pod_name, None)
            self._found_during_reconstruction.get(volume_name, set()).discard(pod_name)
        self._on_pod_change(pod_name)

    def mark_remount_required(self, pod_name: str) -> None:
        """Ask for another set-up of those volumes of the pod whose plugins want that."""
        with self._lock:
            specs = {volume.volume_name: pod.volume_spec for volume, pod in self._mounts_of_pod_locked(pod_name)}
        # Without the lock, for a plugin may have to wait until it knows its drivers.
        required = {name for name, spec in specs.items() if self._requires_remount(pod_name, name, spec)}
        with self._lock:
            for volume, pod in self._mounts_of_pod_locked(pod_name):
                if volume.volume_name in required:
                    pod.remounts_required += 1

    def mark_remount_begun(self, pod_name: str, volume_name: str) -> None:
        """What was asked so far is met when the operation ends that begins now.

        DIVERGES (fault of Go): a set-up that is asked for while another one runs follows it.
        Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go, (*actualStateOfWorld).AddPodToVolume: the end of
        the one that runs also counts as the one asked for meanwhile.
        Why: the one that runs may have read a secret or config map before it changed; the pod then keeps the old files
        until its next sync.
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
            # Other volumes of the pod must not suffer for this one.
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
        """Raises ValueError when the node does not have the volume."""
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
        """An empty device_path or context leaves what is known. Raises ValueError as above."""
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
        """How large the volume is, unless that is known."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is not None and volume.persistent_volume_size.is_zero():
                volume.persistent_volume_size = claim_size

    def get_claim_size(self, volume_name: str) -> Quantity:
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return volume.persistent_volume_size if volume is not None else ZERO

    def mark_volume_as_resized(self, volume_name: str, claim_size: Quantity) -> bool:
        """Whether the node has the volume."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            if volume is None:
                return False
            volume.persistent_volume_size = claim_size
            return True

    def mark_for_in_use_expansion_error(self, volume_name: str) -> None:
        """Do not try to expand the volume again while it is here."""
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

    # ---- Questions ----

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
        """Whether the pod surely does not have the volume."""
        return self.get_volume_mount_state(volume_name, pod_name) is VolumeMountState.VOLUME_NOT_MOUNTED

    def pod_has_mounted_volumes(self, pod_name: str) -> bool:
        """Whether the pod surely has a volume."""
        return bool(self.get_mounted_volumes_for_pod(pod_name))

    def volume_exists_with_spec_name(self, pod_name: str, plugin_name: str, volume_spec_name: str) -> bool:
        """Whether the pod has, or may have, a volume of the plugin whose directory has this name.

        DIVERGES (fault of Go): a volume found on disk is the same as a known one if both the plugin and the name match.
        Go: pkg/kubelet/volumemanager/cache/actual_state_of_world.go, (*actualStateOfWorld).VolumeExistsWithSpecName:
        the plugin is not compared.
        Why: a pod may give an inline volume the name of the persistent volume that it also has; after a restart one of
        the two counts as known already, and is never unmounted.
        Test:
        kubelet/volumemanager/reconciler/reconciler_test.py:test_unknown_volume_is_not_taken_for_another_one_that_has_its_name
        """
        with self._lock:
            volumes = [volume for volume in self._attached_volumes.values() if volume.plugin_name == plugin_name]
            pods = (volume.mounted_pods.get(pod_name) for volume in volumes)
            return any(pod is not None and pod.volume_spec.name() == volume_spec_name for pod in pods)

    def volume_exists(self, volume_name: str) -> bool:
        """Whether the node has the volume."""
        with self._lock:
            return volume_name in self._attached_volumes

    def is_volume_mounted_elsewhere(self, volume_name: str, pod_name: str) -> bool:
        """Whether another pod has, or may have, the volume."""
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
        """What pods surely have."""
        with self._lock:
            return [_get_mounted_volume(pod, volume) for volume, pod in self._mounts_locked() if _is_mounted(pod)]

    def get_all_mounted_volumes(self) -> list[MountedVolume]:
        """What pods have or may have."""
        with self._lock:
            return [_get_mounted_volume(pod, volume) for volume, pod in self._mounts_locked() if _may_be_mounted(pod)]

    def get_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        """What the pod surely has."""
        with self._lock:
            mounts = self._mounts_of_pod_locked(pod_name)
            return [_get_mounted_volume(pod, volume) for volume, pod in mounts if _is_mounted(pod)]

    def get_mounted_volume_for_pod(self, pod_name: str, volume_name: str) -> MountedVolume | None:
        """None if the pod does not surely have the volume."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            pod = volume.mounted_pods.get(pod_name) if volume is not None else None
            if volume is None or pod is None or not _is_mounted(pod):
                return None
            return _get_mounted_volume(pod, volume)

    def get_possibly_mounted_volumes_for_pod(self, pod_name: str) -> list[MountedVolume]:
        """What the pod has or may have."""
        with self._lock:
            mounts = self._mounts_of_pod_locked(pod_name)
            return [_get_mounted_volume(pod, volume) for volume, pod in mounts if _may_be_mounted(pod)]

    def get_globally_mounted_volumes(self) -> list[AttachedVolume]:
        """Volumes whose device the node has surely mounted."""
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
        """Names of the volumes that the node has and that must surely be attached."""
        with self._lock:
            volumes = self._attached_volumes.values()
            return {v.volume_name for v in volumes if v.plugin_is_attachable is VolumeAttachability.TRUE}

    def get_attached_volume(self, volume_name: str) -> AttachedVolume | None:
        """None if the node does not have it."""
        with self._lock:
            volume = self._attached_volumes.get(volume_name)
            return None if volume is None else self._new_attached_volume(volume)

    def get_unmounted_volumes(self) -> list[AttachedVolume]:
        """Volumes that no pod has, nor may have."""
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
    # Whether it is what operations expect.
    def _check(state: ActualStateOfWorld) -> None:
        _mounter: operationexecutor.ActualStateOfWorldMounterUpdater = state
        _attacher: operationexecutor.ActualStateOfWorldAttacherUpdater = state
