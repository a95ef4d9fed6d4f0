"""Identify volumes from the pods' directories.

Go: pkg/kubelet/volumemanager/reconciler/reconstruct_common.go
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from kubelet import kubeletconfig
from kubelet.volumemanager import metrics
from kubelet.volumemanager.reconciler.reconciler_common import EXPECTED_ERRORS, ReconcilerCommon
from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.util import filesystem, procfs
from pkg.volume import BlockVolumePlugin, DeviceMountableVolumePlugin, ReconstructedVolume, Spec, VolumePlugin
from pkg.volume import util as volumeutil
from pkg.volume.plugins import RememberingVolumePlugin
from pkg.volume.util.operationexecutor import MountedVolume
from pkg.volume.volume import BlockVolumeMapper, DeviceMounter, Mounter


@dataclass(frozen=True, slots=True)
class PodVolume:
    """Describe a volume directory of a pod, or a link to a block device, that was found on disk."""

    pod_name: str
    # `volume_spec_name` is the name of the directory: the name of the persistent volume, or the volume's name in the
    # pod's spec.
    volume_spec_name: str
    volume_path: str
    plugin_name: str
    volume_mode: str

    def is_there(self) -> bool:
        """Report whether the directory or link exists, or may exist. Only the parent directory is read."""
        try:
            return os.path.basename(self.volume_path) in filesystem.names_in(os.path.dirname(self.volume_path))
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class ReconstructedPodVolume:
    """Describe a volume that was identified from a pod's directory."""

    volume_name: str
    pod_name: str
    volume_spec: Spec
    mounter: Mounter | None
    device_mounter: DeviceMounter | None
    block_volume_mapper: BlockVolumeMapper | None
    selinux_mount_context: str
    volume_gid_value: str = ""
    # The reconciler learns the path later, from the node's status.
    device_path: str = ""


@dataclass(slots=True)
class GlobalVolumeInfo:
    """Describe a volume and all pods in whose directories it was found."""

    volume_name: str
    volume_spec: Spec
    device_path: str
    mounter: Mounter | None
    device_mounter: DeviceMounter | None
    block_volume_mapper: BlockVolumeMapper | None
    pod_volumes: dict[str, ReconstructedPodVolume] = field(default_factory=dict)

    @classmethod
    def from_reconstructed_volume(cls, volume: ReconstructedPodVolume) -> GlobalVolumeInfo:
        return cls(
            volume.volume_name,
            volume.volume_spec,
            volume.device_path,
            volume.mounter,
            volume.device_mounter,
            volume.block_volume_mapper,
        )

    def add_pod_volume(self, volume: ReconstructedPodVolume) -> None:
        self.pod_volumes[volume.pod_name] = volume

    def has_device(self) -> bool:
        """Report whether the node itself mounts or maps the volume, apart from what its pods have."""
        return self.device_mounter is not None or self.block_volume_mapper is not None


class ReconstructCommonMethods(ReconcilerCommon):
    """Provide the steps of reconstruction."""

    def _update_last_sync_time(self) -> None:
        """Mark the states as synced once the disk has been read and all device paths are known.

        DIVERGES (safer): volumes on disk do not count as known while they cannot be read for lack of file descriptors
        or memory.
        Go: pkg/kubelet/volumemanager/reconciler/reconciler.go, (*reconciler).reconcile: in the Go kubelet they count as
        known, however many of them could be read.
        Why: the node's status would leave mounted volumes out of volumesInUse, and the controller would detach them.
        Test: reconciler_test.py:test_nobody_relies_on_a_look_that_there_was_no_descriptor_for
        """
        with self._lock:
            if self._has_reconstructed and not self._volumes_need_update_from_node_status:
                self._states_have_been_synced = True

    def states_has_been_synced(self) -> bool:
        """Report whether the actual state is complete; until then the node's status must not report volumes in use."""
        with self._lock:
            return self._states_have_been_synced

    def _note_unread(self, err: Exception) -> None:
        self._all_could_be_read = False
        self._met_accident = self._met_accident or procfs.is_accident(err)

    def _cleanup_mounts(self, volume: PodVolume) -> bool:
        """Start to unmount an unidentified volume. Report whether a failure may be retried later."""
        mounted = MountedVolume(
            pod_name=volume.pod_name,
            # The volume's unique name is unknown; the path serves as one, because no other volume has it.
            volume_name=volume.volume_path,
            inner_volume_spec_name=volume.volume_spec_name,
            plugin_name=volume.plugin_name,
            pod_uid=types.UID(volume.pod_name),
            volume_spec=Spec(),
        )
        try:
            self._operation_executor.unmount_volume(mounted, self._actual_state_of_world, self._kubelet_pods_dir)
        except EXPECTED_ERRORS:
            return True  # An earlier attempt failed a short time ago.
        except Exception as err:
            # Whatever is wrong with this volume, the other volumes are not affected.
            if isinstance(err, golang.ThreadError) or procfs.is_accident(err):
                klog.error_s(err, "Failed to clean up mounts, will try again in the next pass", podName=volume.pod_name)
                return True
            # The clean-up of orphaned pods deals with the directory, and reports what keeps it from being removed.
            metrics.FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL.inc()
            metrics.FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_ERRORS_TOTAL.inc()
            message = "volumeHandler.UnmountVolumeHandler for UnmountVolume failed"
            klog.error_s(err, str(mounted.generate_error_detailed(message, err)))
            self._volumes_given_up.add(volume)
            return False
        self._volumes_being_cleaned_up.add(volume)
        metrics.FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL.inc()
        klog.v(2).info_s(
            "Reconciler sync states: could not find volume information in desired state, clean up the mount points",
            podName=volume.pod_name,
            volumeSpecName=volume.volume_spec_name,
        )
        return True

    def _get_published_devices(self, known: list[PodVolume]) -> list[PodVolume]:
        """List the block volumes that plugins have on record as published, but that no pod directory shows."""
        found = {(volume.pod_name, volume.volume_spec_name) for volume in known}
        volumes: list[PodVolume] = []
        for plugin in self._volume_plugin_mgr.find_remembering_plugins():
            name = plugin.get_plugin_name()
            try:
                devices = plugin.list_published_devices()
            except Exception as err:
                # A plugin may raise any error; see _get_staged_volumes.
                klog.error_s(err, "Cannot get published devices from disk", pluginName=name)
                self._note_unread(err)
                continue
            for pod_name, spec_name in devices:
                directory = kubeletconfig.DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME
                path = os.path.join(self._kubelet_pods_dir, pod_name, directory, name.replace("/", "~"), spec_name)
                if (pod_name, spec_name) not in found:
                    volumes.append(PodVolume(pod_name, spec_name, path, name, v1.PERSISTENT_VOLUME_BLOCK))
        return volumes

    def _get_staged_volumes(self) -> list[GlobalVolumeInfo]:
        """List the volumes that plugins have on record as staged on the node, whether or not a pod has them."""
        volumes: list[GlobalVolumeInfo] = []
        for plugin in self._volume_plugin_mgr.find_remembering_plugins():
            name = plugin.get_plugin_name()
            try:
                staged = plugin.list_staged_volumes()
            except Exception as err:
                # A plugin may raise any error; the volumes in the pods' directories must be found anyway.
                klog.error_s(err, "Cannot get staged volumes from disk", pluginName=name)
                self._note_unread(err)
                continue
            for spec in staged:
                try:
                    volumes.append(self._staged_volume(plugin, spec))
                except Exception as err:
                    # A plugin may raise any error. A volume that can never be identified must not keep others from
                    # being unstaged.
                    klog.error_s(err, "Failed to reconstruct a staged volume", pluginName=name)
                    if procfs.is_accident(err):
                        self._note_unread(err)
        return volumes

    def _staged_volume(self, plugin: RememberingVolumePlugin, spec: Spec) -> GlobalVolumeInfo:
        name = volumeutil.get_unique_volume_name_from_spec(plugin, spec)
        if volumeutil.get_volume_mode(spec) == v1.PERSISTENT_VOLUME_BLOCK:
            mapper_plugin = self._volume_plugin_mgr.find_mapper_plugin_by_spec(spec)
            assert mapper_plugin is not None, "a plugin that lists staged block volumes has a mapper"
            return GlobalVolumeInfo(name, spec, "", None, None, mapper_plugin.new_block_volume_mapper(spec, v1.Pod()))
        device_plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_spec(spec)
        device_mounter = device_plugin.new_device_mounter() if device_plugin is not None else None
        return GlobalVolumeInfo(name, spec, "", None, device_mounter, None)

    def _reconstruct_volume(self, volume: PodVolume) -> ReconstructedPodVolume:
        """Identify the volume. Raise ValueError, or whatever error the plugin raises."""
        metrics.RECONSTRUCT_VOLUME_OPERATIONS_TOTAL.inc()
        try:
            return self._reconstruct(volume)
        except Exception:
            metrics.RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL.inc()
            raise

    def _reconstruct(self, volume: PodVolume) -> ReconstructedPodVolume:
        plugin = self._volume_plugin_mgr.find_plugin_by_name(volume.plugin_name)
        mapper_plugin = self._volume_plugin_mgr.find_mapper_plugin_by_name(volume.plugin_name)
        reconstructed = self._operation_executor.reconstruct_volume_operation(
            volume.volume_mode,
            plugin,
            mapper_plugin,
            types.UID(volume.pod_name),
            volume.pod_name,
            volume.volume_spec_name,
            volume.volume_path,
        )
        spec = reconstructed.spec
        # Find the plugin by the spec, not by its name: a plugin may stage some of its volumes and not others. Check
        # last whether the volume must be attached, because that check needs the API server for persistent CSI volumes,
        # which are always device-mountable.
        device_plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_spec(spec)
        shared = device_plugin is not None or self._volume_plugin_mgr.find_attachable_plugin_by_spec(spec) is not None
        if shared:
            name = volumeutil.get_unique_volume_name_from_spec(plugin, spec)
        else:
            name = volumeutil.get_unique_volume_name_from_spec_with_pod(volume.pod_name, plugin, spec)
        if volume.volume_mode == v1.PERSISTENT_VOLUME_BLOCK:
            return _with_mapper(volume, name, reconstructed, mapper_plugin)
        return _with_mounters(volume, name, reconstructed, plugin, device_plugin)


def _with_mapper(
    volume: PodVolume, name: str, reconstructed: ReconstructedVolume, plugin: BlockVolumePlugin | None
) -> ReconstructedPodVolume:
    assert plugin is not None, "reconstruction of a block volume fails without a mapper plugin"
    mapper = plugin.new_block_volume_mapper(reconstructed.spec, _pod_of(volume))
    return ReconstructedPodVolume(
        name, volume.pod_name, reconstructed.spec, None, None, mapper, reconstructed.selinux_mount_context
    )


def _with_mounters(
    volume: PodVolume,
    name: str,
    reconstructed: ReconstructedVolume,
    plugin: VolumePlugin,
    device_plugin: DeviceMountableVolumePlugin | None,
) -> ReconstructedPodVolume:
    mounter = plugin.new_mounter(reconstructed.spec, _pod_of(volume))
    device_mounter = device_plugin.new_device_mounter() if device_plugin is not None else None
    return ReconstructedPodVolume(
        name,
        volume.pod_name,
        reconstructed.spec,
        mounter,
        device_mounter,
        None,
        reconstructed.selinux_mount_context,
    )


def _pod_of(volume: PodVolume) -> v1.Pod:
    """Return a pod object that has only the UID, which is all that is known about the pod."""
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(volume.pod_name)))


def get_device_mount_path(info: GlobalVolumeInfo) -> str:
    """Return the path of the volume's global mount or map on the node. Raise ValueError if the volume has none."""
    if info.block_volume_mapper is not None:
        return info.block_volume_mapper.get_global_map_path(info.volume_spec)
    if info.device_mounter is not None:
        return info.device_mounter.get_device_mount_path(info.volume_spec)
    raise ValueError("blockVolumeMapper or deviceMounter required")


def get_volumes_from_pod_dir(pod_dir: str) -> tuple[list[PodVolume], list[OSError]]:
    """List the volumes found below the pods' directory, and the errors that kept others from being found.

    The search reads names only, because a mount may hang. Raise OSError if the directory itself cannot be read.
    """
    volumes: list[PodVolume] = []
    errors: list[OSError] = []
    with os.scandir(pod_dir) as entries:
        pod_names = sorted(entry.name for entry in entries if _may_be_directory(entry))
    for pod_name in pod_names:
        for mode, directory in (
            (v1.PERSISTENT_VOLUME_FILESYSTEM, kubeletconfig.DEFAULT_KUBELET_VOLUMES_DIR_NAME),
            (v1.PERSISTENT_VOLUME_BLOCK, kubeletconfig.DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME),
        ):
            try:
                for volume in _get_volumes(pod_name, mode, os.path.join(pod_dir, pod_name, directory)):
                    klog.v(4).info_s("Get volume from pod directory", path=pod_dir, volume=volume)
                    volumes.append(volume)
            except OSError as err:
                klog.error_s(err, "Could not read the volumes of a pod", podName=pod_name)
                errors.append(err)
    return volumes, errors


def get_volumes_in_use(volumes: Collection[PodVolume]) -> set[PodVolume]:
    """Return the volumes that have a mount in their directory, or whose link exists; all of them when in doubt.

    The search touches no mount. The existence of a directory proves nothing: files in it may keep it from ever being
    removed.
    """
    if not volumes:
        return set()
    try:
        mount_points = mount_utils.mount_points(mount_utils.MOUNT_INFO)
    except OSError:
        return set(volumes)

    def is_in_use(volume: PodVolume) -> bool:
        if volume.volume_mode == v1.PERSISTENT_VOLUME_BLOCK:
            return volume.is_there()
        path = mount_utils.without_links_above(volume.volume_path)
        return any(point == path or point.startswith(path + "/") for point in mount_points)

    return set(filter(is_in_use, volumes))


def _may_be_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return True  # Reading the directory will raise the error again.


def _get_volumes(pod_name: str, volume_mode: str, directory: str) -> Iterator[PodVolume]:
    """Yield the volumes below the directory. Raise OSError at the end if a part of it could not be read."""
    failure: OSError | None = None
    for plugin_name in filesystem.names_in(directory):
        plugin_path = os.path.join(directory, plugin_name)
        try:
            volume_names = filesystem.names_in(plugin_path)
        except OSError as err:
            failure = err
            continue
        for name in volume_names:
            yield PodVolume(pod_name, name, os.path.join(plugin_path, name), plugin_name.replace("~", "/"), volume_mode)
    if failure is not None:
        raise failure
