"""Serve nfs volumes, which are directories of NFS servers.

A server may stop responding at any time. Only the volume's own operation may wait for it. Therefore new_mounter and
new_unmounter do not access the mount.

Go: pkg/volume/nfs/nfs.go
"""

from __future__ import annotations

import ipaddress
import os
from typing import cast

from pkg import klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.util import filesystem
from pkg.volume import metrics_statfs
from pkg.volume import util as volumeutil
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.util import fs
from pkg.volume.volume import Attributes, Metrics, Mounter, MounterArgs, Unmounter

NFS_PLUGIN_NAME = "kubernetes.io/nfs"
# `UNMOUNT_TIMEOUT` is the time, in seconds, that an unmount waits for a server before it is forced.
UNMOUNT_TIMEOUT = 60.0
# `_HELPERS` holds the paths where mount(8) looks for its helper.
_HELPERS = tuple(f"{directory}/mount.nfs" for directory in ("/sbin", "/usr/sbin", "/sbin/fs.d", "/sbin/fs"))


def probe_volume_plugins() -> list[VolumePlugin]:
    return [NFSPlugin()]


class NFSPlugin:
    """Serve nfs volumes."""

    def __init__(self) -> None:
        self.host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return NFS_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        source = get_volume_source(spec)
        return f"{source.server}/{source.path}"

    def can_support(self, spec: Spec) -> bool:
        if spec.persistent_volume is not None and spec.persistent_volume.spec.nfs is not None:
            return True
        return spec.volume is not None and spec.volume.nfs is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def supports_mount_option(self) -> bool:
        return True

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        source = get_volume_source(spec)
        remote = f"{get_server_from_source(source)}:{source.path}"
        options = volumeutil.mount_option_from_spec(spec)
        return NFSMounter(self, spec.name(), pod.metadata.uid, remote, _is_read_only(spec), options)

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter:
        return NFSUnmounter(self, name, pod_uid)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        volume = v1.Volume(name=volume_name, nfs=v1.NFSVolumeSource(path=volume_name))
        return ReconstructedVolume(Spec(volume))


class NFS:
    """Represent an nfs volume of one pod."""

    def __init__(self, plugin: NFSPlugin, volume_name: str, pod_uid: types.UID) -> None:
        self._plugin = plugin
        self._volume_name = volume_name
        self._pod_uid = pod_uid

    def get_path(self) -> str:
        name = NFS_PLUGIN_NAME.replace("/", "~")
        return self._plugin.host.get_pod_volume_dir(self._pod_uid, name, self._volume_name)

    def get_metrics(self) -> Metrics:
        return metrics_statfs.MetricsStatFS(self.get_path(), fs.info_of_server).get_metrics()


class NFSMounter(NFS):
    """Mount the server's directory."""

    def __init__(
        self,
        plugin: NFSPlugin,
        volume_name: str,
        pod_uid: types.UID,
        source: str,
        read_only: bool,
        mount_options: list[str],
    ) -> None:
        super().__init__(plugin, volume_name, pod_uid)
        self._source = source
        self._read_only = read_only
        self._mount_options = mount_options

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=self._read_only, managed=False, selinux_relabel=False)

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """Mount the server's directory. Raise OSError. The call may block forever."""
        mounter = self._plugin.host.get_mounter()
        if _is_mounted(mounter, directory):
            klog.v(4).info_s("NFS volume is mounted already", path=directory)
            return
        filesystem.mkdir_all(directory, 0o750)
        options = volumeutil.join_mount_options(self._mount_options, ["ro"] if self._read_only else [])
        try:
            mounter.mount_sensitive_without_systemd(self._source, directory, "nfs", options, [])
        except OSError as err:
            mount_utils.clean_after_failed_mount(directory, mounter)
            if not _has_mount_helper():
                # DIVERGES (safer): an error names the package that the node lacks if mount.nfs is missing.
                # Go: pkg/volume/nfs/nfs.go, (*nfsMounter).SetUpAt: the error is that of mount(8), which mentions bad
                # options and superblocks.
                # Why: the author of the volume would look for a mistake in it.
                # Test: nfs_test.py:test_node_without_the_tools_says_so
                raise OSError(
                    "this node cannot mount nfs volumes: mount.nfs is not installed (it comes with the package "
                    f"nfs-common or nfs-utils): {err}"
                ) from err
            raise


class NFSUnmounter(NFS):
    """Unmount the server's directory, by force if the server does not respond."""

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        mounter = self._plugin.host.get_mounter()
        if hasattr(mounter, "unmount_with_force"):
            forceful = cast("mount_utils.MounterForceUnmounter", mounter)
            mount_utils.cleanup_mount_with_force(directory, forceful, True, UNMOUNT_TIMEOUT)
        else:
            mount_utils.cleanup_mount_point(directory, mounter, True)


def _is_mounted(mounter: mount_utils.Interface, directory: str) -> bool:
    try:
        return mounter.is_mount_point(directory)
    except FileNotFoundError:
        return False


def _has_mount_helper() -> bool:
    return any(os.path.exists(helper) for helper in _HELPERS)


def get_volume_source(spec: Spec) -> v1.NFSVolumeSource:
    """Return the nfs source. Raise ValueError for another volume."""
    if spec.volume is not None and spec.volume.nfs is not None:
        return spec.volume.nfs
    if spec.persistent_volume is not None and spec.persistent_volume.spec.nfs is not None:
        return spec.persistent_volume.spec.nfs
    raise ValueError("Spec does not reference a NFS volume type")


def _is_read_only(spec: Spec) -> bool:
    """Report whether the volume is read-only. For a persistent volume, the pod's spec decides."""
    if spec.volume is not None and spec.volume.nfs is not None:
        return spec.volume.nfs.read_only
    return spec.read_only


def get_server_from_source(source: v1.NFSVolumeSource) -> str:
    """Return the server in the form that mount(8) requires, with an IPv6 address in brackets."""
    try:
        address = ipaddress.ip_address(source.server)
    except ValueError:
        return source.server
    return f"[{source.server}]" if address.version == 6 else source.server
