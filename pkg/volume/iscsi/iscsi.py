"""Serve iscsi volumes, which are disks of iSCSI targets.

Go: pkg/volume/iscsi/iscsi.go
"""

from __future__ import annotations

import os

from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime import contain
from pkg.util import exec as utilexec
from pkg.util import keymutex
from pkg.volume import metrics_block, metrics_nil, metrics_statfs
from pkg.volume import util as volumeutil
from pkg.volume.iscsi import attacher, disk_manager, iscsi_util
from pkg.volume.iscsi.iscsi_disk import (
    ESCAPED_PLUGIN_NAME,
    ISCSI_PLUGIN_NAME,
    ISCSIDisk,
    create_iscsi_disk,
    create_secret_map,
    get_source,
    is_read_only,
)
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.util import device_util, volumepathhandler
from pkg.volume.volume import (
    Attacher,
    Attributes,
    BlockVolumeMapper,
    BlockVolumeUnmapper,
    Detacher,
    DeviceMounter,
    DeviceUnmounter,
    Metrics,
    Mounter,
    MounterArgs,
    Unmounter,
)


def probe_volume_plugins() -> list[VolumePlugin]:
    return [ISCSIPlugin()]


class ISCSIPlugin:
    """Serve iscsi volumes."""

    def __init__(
        self, executor: utilexec.Interface | None = None, devices: device_util.DeviceUtil | None = None
    ) -> None:
        self.host: VolumeHost
        self.exec = executor or utilexec.Executor()
        self.devices = devices or device_util.DeviceHandler()
        self.manager: disk_manager.DiskManager = iscsi_util.ISCSIUtil(self)
        # `target_locks` holds the locks by target, because iscsiadm must not log in and out at the same time.
        self.target_locks = keymutex.KeyMutex()
        # `mount_locks` holds the locks by disk directory, because volumes with different names may be the same disk. A
        # thread takes such a lock before the target's.
        self.mount_locks = keymutex.KeyMutex()

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return ISCSI_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        source = get_source(spec)
        return f"{source.target_portal}:{source.iqn}:{source.lun}"

    def can_support(self, spec: Spec) -> bool:
        if spec.volume is not None and spec.volume.iscsi is not None:
            return True
        return spec.persistent_volume is not None and spec.persistent_volume.spec.iscsi is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def supports_mount_option(self) -> bool:
        return True

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return True

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        disk = create_iscsi_disk(spec, pod.metadata.uid, self, create_secret_map(spec, self, pod.metadata.namespace))
        return ISCSIDiskMounter(disk, is_read_only(spec), volumeutil.mount_option_from_spec(spec))

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter:
        return ISCSIDiskUnmounter(ISCSIDisk(self, name, pod_uid))

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> BlockVolumeMapper:
        secret = create_secret_map(spec, self, pod.metadata.namespace)
        return ISCSIDiskMapper(create_iscsi_disk(spec, pod.metadata.uid, self, secret))

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> BlockVolumeUnmapper:
        return ISCSIDiskUnmapper(ISCSIDisk(self, name, pod_uid))

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        refs = volumeutil.get_reliable_mount_refs(self.host.get_mounter(), volume_path)
        plugin_dir = self.host.get_plugin_dir(ISCSI_PLUGIN_NAME)
        global_path = next((path for path in refs if plugin_dir in path), "")
        if not global_path:
            raise ValueError("couldn't fetch globalPDPath. failed to obtain volume spec")
        source = _source_of_directory(global_path)
        context = self.host.get_hostutil().get_selinux_mount_context(volume_path)
        return ReconstructedVolume(Spec(v1.Volume(name=volume_name, iscsi=source)), context)

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec:
        handler = volumepathhandler.VolumePathHandler()
        plugin_dir = self.host.get_volume_device_plugin_dir(ISCSI_PLUGIN_NAME)
        found = handler.find_global_map_path_uuid_from_pod(plugin_dir, volume_path, pod_uid)
        return get_volume_spec_from_global_map_path(volume_name, os.path.dirname(found))

    def list_staged_volumes(self) -> list[Spec]:
        """List all disks that have a directory on the node.

        DIVERGES (fault of Go): after a restart, the kubelet unmounts and detaches a disk that no pod has.
        Go: pkg/kubelet/volumemanager/reconciler/reconstruct_common.go, getVolumesFromPodDir: the Go kubelet finds only
        volumes that have a directory in a pod's directory.
        Why: a kubelet that is killed after the last such directory is gone would leave the disk mounted forever, while
        another node may get it.
        Test: iscsi_test.py:test_disks_are_found_that_no_directory_of_a_pod_tells_of
        """
        specs = []
        for path in iscsi_util.disks_in(self.host.get_plugin_dir(ISCSI_PLUGIN_NAME)):
            with contain("Failed to identify a mounted disk", golang.background(), path=path):
                specs.append(Spec(v1.Volume(name=os.path.basename(path), iscsi=_source_of_directory(path))))
        for path in iscsi_util.disks_in(self.host.get_volume_device_plugin_dir(ISCSI_PLUGIN_NAME)):
            with contain("Failed to identify a mapped disk", golang.background(), path=path):
                specs.append(get_volume_spec_from_global_map_path(os.path.basename(path), path))
        return specs

    def list_published_devices(self) -> list[tuple[str, str]]:
        """Return nothing, because the pods' directories show all devices."""
        return []

    def is_staged_by_another_name(self, spec: Spec, staged: Spec) -> bool:
        """Report whether both volumes have the same directory, whose name always contains the portal's port.

        The method compares names only. A pod's volume whose names are invalid does not stop the search for others.
        """
        try:
            return self._global_paths(staged)[0] in self._global_paths(spec)
        except ValueError as err:
            klog.v(4).info_s("Volume has no directory", volumeSpecName=spec.name(), err=err)
            return False

    def _global_paths(self, spec: Spec) -> list[str]:
        disk = create_iscsi_disk(spec, types.UID(""), self, {})
        if volumeutil.get_volume_mode(spec) == v1.PERSISTENT_VOLUME_BLOCK:
            return [self.manager.make_global_vdpd_name(disk)]
        return iscsi_util.dirs_of_disk(self.host.get_plugin_dir(ISCSI_PLUGIN_NAME), disk)

    def new_attacher(self) -> Attacher:
        return attacher.ISCSIAttacher(self)

    def new_detacher(self) -> Detacher:
        return attacher.ISCSIDetacher(self)

    def new_device_mounter(self) -> DeviceMounter:
        return attacher.ISCSIAttacher(self)

    def new_device_unmounter(self) -> DeviceUnmounter:
        return attacher.ISCSIDetacher(self)

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        return False

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        return self.host.get_mounter().get_mount_refs(device_mount_path)

    def can_attach(self, spec: Spec) -> bool:
        return True

    def can_device_mount(self, spec: Spec) -> bool:
        return True


class ISCSIDiskMounter:
    """Bind the disk's mount into the pod."""

    def __init__(self, disk: ISCSIDisk, read_only: bool, mount_options: list[str]) -> None:
        self.disk = disk
        self.read_only = read_only
        self.mount_options = mount_options
        self._mounted_with_selinux_context = False

    def get_path(self) -> str:
        return self.disk.get_path()

    def get_metrics(self) -> Metrics:
        return metrics_statfs.MetricsStatFS(self.get_path()).get_metrics()

    def get_attributes(self) -> Attributes:
        return Attributes(
            read_only=self.read_only,
            managed=not self.read_only,
            selinux_relabel=not self._mounted_with_selinux_context,
        )

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """Bind the disk's mount to the directory. Raise OSError."""
        plugin = self.disk.plugin
        disk_manager.disk_set_up(plugin.manager, self, directory, plugin.host.get_mounter(), args)
        self._mounted_with_selinux_context = args.selinux_label != ""


class ISCSIDiskUnmounter:
    """Unmount the disk from the pod's directory."""

    def __init__(self, disk: ISCSIDisk) -> None:
        self._disk = disk

    def get_path(self) -> str:
        return self._disk.get_path()

    def get_metrics(self) -> Metrics:
        return metrics_statfs.MetricsStatFS(self.get_path()).get_metrics()

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        mount_utils.cleanup_mount_point(directory, self._disk.plugin.host.get_mounter(), False)


class ISCSIBlockVolume:
    """Represent a disk that a pod uses as a block device."""

    def __init__(self, disk: ISCSIDisk) -> None:
        self._disk = disk

    def get_global_map_path(self, spec: Spec) -> str:
        plugin = self._disk.plugin
        return plugin.manager.make_global_vdpd_name(create_iscsi_disk(spec, types.UID(""), plugin, {}))

    def get_pod_device_map_path(self) -> tuple[str, str]:
        host = self._disk.plugin.host
        return host.get_pod_volume_device_dir(self._disk.pod_uid, ESCAPED_PLUGIN_NAME), self._disk.volume_name


class ISCSIDiskMapper(ISCSIBlockVolume):
    """Map a disk. The kubelet itself maps the device of the attachment."""

    def supports_metrics(self) -> bool:
        return True

    def get_metrics(self) -> Metrics:
        directory = self._disk.plugin.manager.make_global_vdpd_name(self._disk)
        return metrics_block.MetricsBlock(os.path.join(directory, self._disk.pod_uid)).get_metrics()


class ISCSIDiskUnmapper(ISCSIBlockVolume, metrics_nil.MetricsNil):
    """Unmap a disk, and log out of the target with its last disk."""

    def tear_down_device(self, map_path: str, device_path: str) -> None:
        attacher.detach(map_path, self._disk.plugin.manager.detach_block_iscsi_disk)

    def unmap_pod_device(self) -> None:
        """Do nothing, because only the links in the volume's directory were created."""


def create_persistent_volume_from_iscsi_pv_source(
    volume_name: str, source: v1.ISCSIPersistentVolumeSource
) -> v1.PersistentVolume:
    spec = v1.PersistentVolumeSpec(iscsi=source, volume_mode=v1.PERSISTENT_VOLUME_BLOCK)
    return v1.PersistentVolume(metadata=metav1.ObjectMeta(name=volume_name), spec=spec)


def _source_of_directory(path: str) -> v1.ISCSIVolumeSource:
    """Return what the name of a disk's directory says about the disk. Raise ValueError."""
    portal, iqn, lun = iscsi_util.parse_device_dir(path)
    iface = iscsi_util.extract_iface(path) or ""
    return v1.ISCSIVolumeSource(target_portal=portal, iqn=iqn, lun=int(lun), iscsi_interface=iface)


def get_volume_spec_from_global_map_path(volume_name: str, global_map_path: str) -> Spec:
    """Return what the name of a map directory says about its volume. Raise ValueError."""
    portal, iqn, lun = iscsi_util.parse_device_dir(global_map_path)
    iface = iscsi_util.extract_iface(global_map_path)
    if iface is None:
        raise ValueError(f"failed to retrieve iface from globalMapPath: {global_map_path}")
    source = v1.ISCSIPersistentVolumeSource(target_portal=portal, iqn=iqn, lun=int(lun), iscsi_interface=iface)
    return Spec(persistent_volume=create_persistent_volume_from_iscsi_pv_source(volume_name, source))
