"""Serve local volumes, which are directories and devices of the node.

The plugin binds a directory into each pod. It formats a device if necessary, and mounts the device once on the node.

Go: pkg/volume/local/local.go
"""

from __future__ import annotations

import os

from kubelet import events
from pkg import klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.util import exec as utilexec
from pkg.util import filesystem, keymutex, procfs
from pkg.volume import metrics_block, metrics_nil, metrics_statfs, validation
from pkg.volume import util as volumeutil
from pkg.volume.plugins import NodeResizeOptions, ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.util import hostutil
from pkg.volume.volume import (
    Attributes,
    BlockVolumeMapper,
    BlockVolumeUnmapper,
    DeviceMounterArgs,
    DeviceUnmounter,
    Metrics,
    Mounter,
    MounterArgs,
    Unmounter,
)
from pkg.volume.volume import DeviceMounter as VolumeDeviceMounter
from pkg.volume.volume_linux import VolumeOwnership

LOCAL_VOLUME_PLUGIN_NAME = "kubernetes.io/local-volume"
DEFAULT_FS_TYPE = "ext4"
_ESCAPED_NAME = LOCAL_VOLUME_PLUGIN_NAME.replace("/", "~")
_NEITHER = "only directory and block device are supported"


def probe_volume_plugins() -> list[VolumePlugin]:
    return [LocalVolumePlugin()]


class LocalVolumePlugin:
    """Serve local volumes."""

    def __init__(self) -> None:
        self.host: VolumeHost
        # `volume_locks` holds the locks by path, so that of two pods only one is the first to use a volume.
        self.volume_locks = keymutex.KeyMutex()

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return LOCAL_VOLUME_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return spec.persistent_volume is not None and spec.persistent_volume.spec.local is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def supports_mount_option(self) -> bool:
        return True

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        """Return a mounter. Raise ValueError or OSError."""
        return LocalVolumeMounter(self, spec, pod, self.get_global_local_path(spec), spec.read_only)

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter:
        return LocalVolumeUnmounter(self, name, pod_uid)

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> BlockVolumeMapper:
        source = get_volume_source(spec)
        return LocalVolumeMapper(self, spec.name(), pod.metadata.uid, source.path)

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> BlockVolumeUnmapper:
        return LocalVolumeUnmapper(self, name, pod_uid)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        """Return the volume, with the path of its device. The path of a directory cannot be determined and is empty."""
        mounter = self.host.get_mounter()
        base = self.generate_block_device_base_global_path()
        path = ""
        for ref in mounter.get_mount_refs(volume_path):
            if mount_utils.path_within_base(ref, base):
                path, _ = mount_utils.get_device_name_from_mount(mounter, ref)
                klog.v(4).info_s("local: reconstructing volume", volumeName=volume_name, device=path)
                break
        return ReconstructedVolume(Spec(persistent_volume=_pv(volume_name, path, v1.PERSISTENT_VOLUME_FILESYSTEM)))

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec:
        # The path is needed to map the device, but not to unmap it.
        return Spec(persistent_volume=_pv(volume_name, "", v1.PERSISTENT_VOLUME_BLOCK))

    def generate_block_device_base_global_path(self) -> str:
        """Return the directory below which devices are mounted."""
        plugin_dir = self.host.get_plugin_dir(LOCAL_VOLUME_PLUGIN_NAME)
        return os.path.join(plugin_dir, volumeutil.MOUNTS_IN_GLOBAL_PD_PATH)

    def get_global_local_path(self, spec: Spec) -> str:
        """Return the path to bind into pods: the directory itself, or the device's mount point.

        Raise ValueError or OSError.
        """
        path = _local_path(spec)
        match self.host.get_hostutil().get_file_type(path):
            case hostutil.FileType.DIRECTORY:
                return path
            case hostutil.FileType.BLOCK_DEVICE:
                return os.path.join(self.generate_block_device_base_global_path(), spec.name())
        raise ValueError(_NEITHER)

    def can_device_mount(self, spec: Spec) -> bool:
        return True

    def new_device_mounter(self) -> VolumeDeviceMounter:
        return DeviceMounter(self, utilexec.Executor())

    def new_device_unmounter(self) -> DeviceUnmounter:
        return DeviceMounter(self, utilexec.Executor())

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        return self.host.get_mounter().get_mount_refs(device_mount_path)

    def requires_fs_resize(self) -> bool:
        return True

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        """Expand a device's file system to the size of the device. A directory needs no expansion."""
        spec = resize_options.volume_spec
        if not volumeutil.check_volume_mode_filesystem(spec):
            return True
        path = _local_path(spec)
        match self.host.get_hostutil().get_file_type(path):
            case hostutil.FileType.BLOCK_DEVICE:
                volumeutil.generic_resize_fs(path, resize_options.device_mount_path)
                return True
            case hostutil.FileType.DIRECTORY:
                klog.info_s("Expansion of directory based local volumes is NO-OP", localVolumePath=path)
                return True
        raise ValueError(_NEITHER)


def _pv(name: str, path: str, mode: str) -> v1.PersistentVolume:
    spec = v1.PersistentVolumeSpec(local=v1.LocalVolumeSource(path=path), volume_mode=mode)
    return v1.PersistentVolume(metadata=metav1.ObjectMeta(name=name), spec=spec)


def _local_path(spec: Spec) -> str:
    source = get_volume_source(spec)
    if not source.path:
        raise ValueError("local volume source is nil or local path is not set")
    return source.path


def get_volume_source(spec: Spec) -> v1.LocalVolumeSource:
    """Return the local source. Raise ValueError for another volume."""
    if spec.persistent_volume is not None and spec.persistent_volume.spec.local is not None:
        return spec.persistent_volume.spec.local
    raise ValueError("Spec does not reference a Local volume type")


class DeviceMounter:
    """Mount devices on the node, and unmount them."""

    def __init__(self, plugin: LocalVolumePlugin, executor: utilexec.Interface) -> None:
        self._plugin = plugin
        self._mounter = plugin.host.get_mounter()
        self._exec = executor

    def get_device_mount_path(self, spec: Spec) -> str:
        return self._plugin.get_global_local_path(spec)

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        """Mount the volume if it is a device. Raise ValueError or OSError."""
        path = _local_path(spec)
        match self._plugin.host.get_hostutil().get_file_type(path):
            case hostutil.FileType.BLOCK_DEVICE:
                self.mount_local_block_device(spec, path, device_mount_path)
            case hostutil.FileType.DIRECTORY:
                pass
            case _:
                raise ValueError(_NEITHER)

    def mount_local_block_device(self, spec: Spec, device_path: str, device_mount_path: str) -> None:
        klog.v(4).info_s("local: mounting device", device=device_path, path=device_mount_path)
        try:
            if not self._mounter.is_likely_not_mount_point(device_mount_path):
                return
        except FileNotFoundError:
            filesystem.mkdir_all(device_mount_path, 0o750)
        source = get_volume_source(spec)
        fstype = DEFAULT_FS_TYPE if source.fs_type is None else source.fs_type
        options = volumeutil.mount_option_from_spec(spec, *(["ro"] if spec.read_only else []))
        try:
            safe = mount_utils.SafeFormatAndMount(self._mounter, self._exec)
            safe.format_and_mount(device_path, device_mount_path, fstype, options)
        except OSError as err:
            try:
                os.rmdir(device_mount_path)
            except OSError as remove_err:
                klog.warning_s("local: failed to remove directory", path=device_mount_path, err=remove_err)
            message = (
                f"local: failed to mount device {device_path} at {device_mount_path} (fstype: {fstype}), error {err}"
            )
            # The error's cause shows whether the device has the wrong file system.
            raise OSError(message) from err
        klog.v(3).info_s("local: successfully mounted device", device=device_path, path=device_mount_path)

    def unmount_device(self, device_mount_path: str) -> None:
        # Only devices are mounted on the node; directories are not.
        if mount_utils.path_within_base(device_mount_path, self._plugin.generate_block_device_base_global_path()):
            mount_utils.cleanup_mount_point(device_mount_path, self._mounter, False)


class LocalVolume:
    """Represent a local volume of one pod."""

    def __init__(self, plugin: LocalVolumePlugin, volume_name: str, pod_uid: types.UID) -> None:
        self._plugin = plugin
        self._volume_name = volume_name
        self._pod_uid = pod_uid

    def get_path(self) -> str:
        return self._plugin.host.get_pod_volume_dir(self._pod_uid, _ESCAPED_NAME, self._volume_name)

    def get_global_map_path(self, spec: Spec) -> str:
        return os.path.join(self._plugin.host.get_volume_device_plugin_dir(_ESCAPED_NAME), self._volume_name)

    def get_pod_device_map_path(self) -> tuple[str, str]:
        return self._plugin.host.get_pod_volume_device_dir(self._pod_uid, _ESCAPED_NAME), self._volume_name


class LocalVolumeMounter(LocalVolume):
    """Bind the directory, or the device's mount, into the pod."""

    def __init__(self, plugin: LocalVolumePlugin, spec: Spec, pod: v1.Pod, global_path: str, read_only: bool) -> None:
        super().__init__(plugin, spec.name(), pod.metadata.uid)
        self._pod = pod
        self._global_path = global_path
        self._read_only = read_only
        self._mount_options = volumeutil.mount_option_from_spec(spec)

    def get_metrics(self) -> Metrics:
        return metrics_statfs.MetricsStatFS(self.get_path()).get_metrics()

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=self._read_only, managed=not self._read_only, selinux_relabel=True)

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """Bind the volume into the pod's directory. Raise ValueError or OSError."""
        with self._plugin.volume_locks.locked(self._global_path):
            self._set_up_locked(directory, args)

    def _set_up_locked(self, directory: str, args: MounterArgs) -> None:
        if not self._global_path:
            raise ValueError(f'LocalVolume volume "{self._volume_name}" path is empty')
        try:
            validation.validate_path_no_backsteps(self._global_path)
        except ValueError as err:
            raise ValueError(f"invalid path: {self._global_path} {err}") from err
        mounter = self._plugin.host.get_mounter()
        if _is_mounted(mounter, directory):
            return
        refs = self._other_pods(mounter, args.fs_group)
        filesystem.mkdir_all(directory, 0o750)
        options = volumeutil.join_mount_options(["bind"] + (["ro"] if self._read_only else []), self._mount_options)
        source = volumeutil.make_absolute_path(self._global_path)
        try:
            mounter.mount_sensitive_without_systemd(source, directory, "", options, [])
        except OSError as err:
            klog.error_s(err, "Mount of volume failed", path=directory)
            mount_utils.clean_after_failed_mount(directory, mounter)
            raise
        if not self._read_only and not refs:
            try:
                self._change_ownership(directory, args)
            except Exception as err:
                # The next attempt treats a mounted volume as complete. Otherwise a fault of the disk would keep the pod
                # from starting.
                # DIVERGES (safer): if the kubelet cannot change the group of a volume for lack of file descriptors or
                # memory, it unmounts the volume and sets it up again.
                # Go: pkg/volume/local/local.go, (*localVolumeMounter).SetUpAt: the volume stays mounted, and the next
                # attempt treats it as complete.
                # Why: the pod would get a volume that its group may not write to.
                # Test: local_test.py:test_change_of_ownership_that_fails_is_done_again
                if procfs.is_accident(err):
                    mount_utils.clean_after_failed_mount(directory, mounter)
                raise

    def _other_pods(self, mounter: mount_utils.Interface, fs_group: int | None) -> list[str]:
        """List the other mounts of the volume; with a group, only those of pods. Emit an event if the group differs."""
        refs = mounter.get_mount_refs(self._global_path)
        if fs_group is None:
            return refs
        refs = self.filter_pod_mounts(refs)
        if refs:
            _, group = self._plugin.host.get_hostutil().get_owner(self._global_path)
            if group != fs_group:
                self._plugin.host.get_event_recorder().eventf(
                    self._pod,
                    v1.EVENT_TYPE_WARNING,
                    events.WARN_ALREADY_MOUNTED_VOLUME,
                    "The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
                    fs_group,
                    self._volume_name,
                    group,
                )
        return refs

    def _change_ownership(self, directory: str, args: MounterArgs) -> None:
        """Change the volume's group to the pod's group. Only the first pod that uses the volume changes the group."""
        complete = volumeutil.fs_group_complete_hook(self._plugin, None)
        ownership = VolumeOwnership(self, directory, args.fs_group, args.fs_group_change_policy, complete)
        if args.recorder is not None:
            ownership.add_progress_notifier(self._pod, args.recorder)
        ownership.change_permissions()

    def filter_pod_mounts(self, refs: list[str]) -> list[str]:
        pods_dir = self._plugin.host.get_pods_dir() + "/"
        return [ref for ref in refs if ref.startswith(pods_dir)]


def _is_mounted(mounter: mount_utils.Interface, directory: str) -> bool:
    try:
        return mounter.is_mount_point(directory)
    except FileNotFoundError:
        return False


class LocalVolumeUnmounter(LocalVolume, metrics_nil.MetricsNil):
    """Unmount the volume from the pod's directory."""

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        klog.v(4).info_s("Unmounting volume", volumeName=self._volume_name, path=directory)
        mount_utils.cleanup_mount_point(directory, self._plugin.host.get_mounter(), True)


class LocalVolumeMapper(LocalVolume):
    """Map the device into the pod."""

    def __init__(self, plugin: LocalVolumePlugin, volume_name: str, pod_uid: types.UID, path: str) -> None:
        super().__init__(plugin, volume_name, pod_uid)
        self._global_path = path

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        return ""

    def map_pod_device(self) -> str:
        path = volumeutil.make_absolute_path(self._global_path)
        klog.v(4).info_s("MapPodDevice returning path", path=path)
        return path

    def get_staging_path(self) -> str:
        return ""

    def supports_metrics(self) -> bool:
        return True

    def get_metrics(self) -> Metrics:
        map_path = os.path.join(self._plugin.host.get_volume_device_plugin_dir(_ESCAPED_NAME), self._volume_name)
        return metrics_block.MetricsBlock(os.path.join(map_path, self._pod_uid)).get_metrics()


class LocalVolumeUnmapper(LocalVolume, metrics_nil.MetricsNil):
    """Unmap the device. The plugin itself has nothing to undo."""
