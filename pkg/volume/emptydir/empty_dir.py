"""Serve emptyDir volumes, which live as long as their pod, on disk, in memory or in huge pages.

This plugin uses no file system quotas (fsquota).

Go: pkg/volume/emptydir/empty_dir.go, empty_dir_linux.go
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Protocol

from kubelet.cm import resource_config_for_pod
from kubelet.util import swap
from pkg import features, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_helpers import resource as resourcehelper
from pkg.util import filesystem, removeall
from pkg.volume import util as volumeutil
from pkg.volume.metrics_du import MetricsDu
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.util import metrics
from pkg.volume.volume import Attributes, Metrics, MounterArgs
from pkg.volume.volume_linux import VolumeOwnership

EMPTY_DIR_PLUGIN_NAME = "kubernetes.io/empty-dir"
_DIR_NAME = EMPTY_DIR_PLUGIN_NAME.replace("/", "~")
PERMISSIONS = 0o777
HUGE_PAGES_PAGE_SIZE_MOUNT_OPTION = "pagesize"
# `_CPU_PERIOD` is in microseconds. Only the cgroup's CPU settings depend on it.
_CPU_PERIOD = 100_000
# The kernel reports kilobytes, whatever unit the mount option had.
_TMPFS_SIZE = re.compile(r"size=(\d+)(k?)")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def probe_volume_plugins() -> list[VolumePlugin]:
    return [EmptyDirPlugin()]


class EmptyDirPlugin:
    """Serve emptyDir volumes."""

    host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return EMPTY_DIR_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        if not self.can_support(spec):
            raise ValueError("spec does not reference an emptyDir volume type")
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return spec.volume is not None and spec.volume.empty_dir is not None

    def requires_remount(self, spec: Spec) -> bool:
        """Report whether the size of the volume depends on the pod's resources.

        DIVERGES (fault of Go): the kubelet changes the size of a volume in memory when it resizes the volume's pod.
        Go: pkg/volume/emptydir/empty_dir.go, (*emptyDirPlugin).RequiresRemount: the volume keeps its first size, which
        follows from the pod's memory limit at that time.
        Why: a pod whose limit is raised could not use the memory for files, and a pod whose limit is lowered could fill
        its volume until it is killed.
        Test: empty_dir_test.py:test_memory_follows_its_limit
        """
        source = spec.volume.empty_dir if spec.volume is not None else None
        return source is not None and source.medium == v1.STORAGE_MEDIUM_MEMORY

    def supports_mount_option(self) -> bool:
        return False

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> EmptyDir:
        """Return a mounter. Raise any error that keeps the node from being read."""
        return self._new_mounter_internal(spec, pod, RealMountDetector(self.host.get_mounter()))

    def _new_mounter_internal(self, spec: Spec, pod: v1.Pod, mount_detector: MountDetector) -> EmptyDir:
        assert spec.volume is not None and spec.volume.empty_dir is not None
        source, size = spec.volume.empty_dir, None
        if source.medium == v1.STORAGE_MEDIUM_MEMORY:
            memory = self.host.get_node_allocatable().get(v1.RESOURCE_MEMORY)
            allocated = self.host.get_allocated_pod(pod)
            size = calculate_empty_dir_memory_size(memory or resource.new_quantity(0), spec, allocated)
        return EmptyDir(self, pod, spec.name(), source.medium, size, mount_detector)

    def new_unmounter(self, name: str, pod_uid: types.UID) -> EmptyDir:
        return self._new_unmounter_internal(name, pod_uid, RealMountDetector(self.host.get_mounter()))

    def _new_unmounter_internal(self, name: str, pod_uid: types.UID, mount_detector: MountDetector) -> EmptyDir:
        pod = v1.Pod()
        pod.metadata.uid = pod_uid
        # The tear-down determines the actual medium.
        return EmptyDir(self, pod, name, v1.STORAGE_MEDIUM_DEFAULT, None, mount_detector)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        volume = v1.Volume(name=volume_name, empty_dir=v1.EmptyDirVolumeSource())
        return ReconstructedVolume(Spec(volume))


def calculate_empty_dir_memory_size(node_allocatable_memory: Quantity, spec: Spec, pod: v1.Pod) -> Quantity:
    """Return the lowest limit of all pods together, of this pod and of the volume. A limit of zero does not count."""
    assert spec.volume is not None and spec.volume.empty_dir is not None
    size_limit = node_allocatable_memory
    of_pod = resource_config_for_pod(pod, False, _CPU_PERIOD).memory
    pod_limit = resource.new_quantity(of_pod, resource.Format.BINARY_SI) if of_pod is not None else None
    for limit in (pod_limit, spec.volume.empty_dir.size_limit):
        if limit is not None and limit.sign() > 0 and limit.cmp(size_limit) <= 0:
            size_limit = limit
    return size_limit


@dataclass(frozen=True, slots=True)
class MountMedium:
    """Describe what is mounted at a path."""

    medium: str
    is_mount_point: bool = False
    # `page_size` is the page size of huge pages, or None if it was not requested.
    page_size: Quantity | None = None
    # `size` is the size of a mount in memory, in bytes, or None if its options do not give one.
    size: int | None = None


class MountDetector(Protocol):
    """Define how the medium of a directory is determined."""

    def get_mount_medium(self, path: str, requested_medium: str) -> MountMedium:
        """Return the medium. Raise OSError, or ValueError if the page size is requested and unknown."""
        ...


class RealMountDetector:
    """Determine the medium from the mount table. Go asks the file system, which may be slow to respond."""

    def __init__(self, mounter: mount_utils.Interface) -> None:
        self._mounter = mounter

    def get_mount_medium(self, path: str, requested_medium: str) -> MountMedium:
        klog.v(5).info_s("Determining mount medium", path=path)
        real = os.path.realpath(path)
        points = [point for point in self._mounter.list() if point.path == real]
        # The last mount covers the others.
        match points[-1].type if points else "":
            case "":
                return MountMedium(v1.STORAGE_MEDIUM_DEFAULT)
            case "tmpfs":
                return MountMedium(v1.STORAGE_MEDIUM_MEMORY, True, size=get_tmpfs_size(points[-1]))
            case "hugetlbfs":
                asked = requested_medium != v1.STORAGE_MEDIUM_HUGE_PAGES
                size = get_page_size(points[-1]) if asked else None
                return MountMedium(v1.STORAGE_MEDIUM_HUGE_PAGES, True, size)
            case _:
                return MountMedium(v1.STORAGE_MEDIUM_DEFAULT, True)


def get_page_size(point: mount_utils.MountPoint) -> Quantity:
    """Return the page size of a mount of huge pages. Raise ValueError if its options do not give one."""
    for option in point.options:
        name, _, value = option.strip().partition("=")
        if name != HUGE_PAGES_PAGE_SIZE_MOUNT_OPTION:
            continue
        # The kernel writes 2M where the name of a medium has 2Mi.
        try:
            return resource.parse_quantity(value if value.endswith("i") else f"{value}i")
        except ValueError as err:
            raise ValueError(f"error getting page size from '{option}' mount option: {err}") from err
    raise ValueError(f"no pagesize option specified for {point.path} mount")


def get_tmpfs_size(point: mount_utils.MountPoint) -> int | None:
    """Return the size limit of a mount in memory, in bytes, or None if its options do not give one."""
    for option in point.options:
        if found := _TMPFS_SIZE.fullmatch(option):
            return int(found[1]) * (1024 if found[2] else 1)
    return None


class EmptyDir:
    """Set up and tear down an emptyDir of one pod."""

    def __init__(
        self,
        plugin: EmptyDirPlugin,
        pod: v1.Pod,
        volume_name: str,
        medium: str,
        size_limit: Quantity | None,
        mount_detector: MountDetector,
    ) -> None:
        self._plugin = plugin
        self._pod = pod
        self._volume_name = volume_name
        self._medium = medium
        self._size_limit = size_limit
        self._mount_detector = mount_detector
        self._mounter = plugin.host.get_mounter()

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=False, managed=True, selinux_relabel=True)

    def get_path(self) -> str:
        return self._plugin.host.get_pod_volume_dir(self._pod.metadata.uid, _DIR_NAME, self._volume_name)

    def get_metrics(self) -> Metrics:
        return MetricsDu(self.get_path()).get_metrics()

    def _get_meta_dir(self) -> str:
        plugin_dir = self._plugin.host.get_pod_plugin_dir(self._pod.metadata.uid, _DIR_NAME)
        return os.path.join(plugin_dir, self._volume_name)

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        if self._is_set_up(directory):
            return
        if self._medium == v1.STORAGE_MEDIUM_DEFAULT:
            _set_up_dir(directory)
        elif self._medium == v1.STORAGE_MEDIUM_MEMORY:
            self._set_up_tmpfs(directory)
        elif v1helper.is_huge_page_medium(self._medium):
            self._set_up_hugepages(directory)
        else:
            raise ValueError(f'unknown storage medium "{self._medium}"')
        # DIVERGES (fault of Go): the set-up of an emptyDir fails, and is retried, if the kubelet cannot change the
        # volume's group to the pod's group.
        # Go: pkg/volume/emptydir/empty_dir.go, (*emptyDir).SetUpAt: the Go kubelet ignores such a failure.
        # Why: the pod would get a volume that its group may not write to.
        # Test: empty_dir_test.py:test_volume_that_cannot_be_given_to_the_group_is_set_up_again
        complete = metrics.fs_group_complete_hook(self._plugin, None)
        VolumeOwnership(self, directory, args.fs_group, None, complete).change_permissions()
        volumeutil.set_ready(self._get_meta_dir())

    def _is_set_up(self, directory: str) -> bool:
        """Report whether the volume is completely set up and still exists. Resize a volume in memory."""
        ready_dir = self._get_meta_dir()
        if not volumeutil.is_ready(ready_dir):
            return False
        if self._medium == v1.STORAGE_MEDIUM_MEMORY:
            # A tmpfs responds at once, while the mount table of a busy node is long.
            if os.path.ismount(directory):
                stats = os.statvfs(directory)
                self._resize_tmpfs(directory, stats.f_blocks * stats.f_frsize)
                return True
        elif self._medium == v1.STORAGE_MEDIUM_DEFAULT:
            if os.path.isdir(directory):
                return True
            klog.warning_s(
                "volume ready file dir exist, but volume dir does not. Remove ready dir",
                readyDir=ready_dir,
                path=directory,
            )
            with contextlib.suppress(OSError):
                removeall.remove_all_one_filesystem(self._mounter, ready_dir)
        return False

    def _set_up_tmpfs(self, directory: str) -> None:
        _set_up_dir(directory)
        found = self._mount_detector.get_mount_medium(directory, self._medium)
        if found.is_mount_point and found.medium == v1.STORAGE_MEDIUM_MEMORY:
            self._resize_tmpfs(directory, found.size)
            return
        plugin_dir = self._plugin.host.get_plugin_dir(EMPTY_DIR_PLUGIN_NAME)
        options = self.generate_tmpfs_mount_options(swap.is_tmpfs_noswap_option_supported(self._mounter, plugin_dir))
        klog.v(3).info_s("Mounting tmpfs for volume", podUID=self._pod.metadata.uid, volumeName=self._volume_name)
        self._mounter.mount_sensitive_without_systemd("tmpfs", directory, "tmpfs", options, [])

    def _resize_tmpfs(self, directory: str, size: int | None) -> None:
        """Resize the volume to the pod's limits. The volume keeps its size if its content does not fit."""
        wanted = self._size_limit.value() if self._size_limit is not None else 0
        if wanted <= 0 or size is None or _pages(wanted) == _pages(size):
            return
        options = ["remount", f"size={wanted}"]
        try:
            self._mounter.mount_sensitive_without_systemd("tmpfs", directory, "tmpfs", options, [])
        except OSError as err:
            klog.error_s(err, "Could not resize tmpfs of volume", podUID=self._pod.metadata.uid, path=directory)

    def generate_tmpfs_mount_options(self, noswap_supported: bool) -> list[str]:
        """Return the mount options. Without a size, the kernel limits the volume to half of the memory."""
        sized = self._size_limit is not None and self._size_limit.value() > 0
        options = [f"size={self._size_limit.value()}"] if sized and self._size_limit is not None else []
        return [*options, swap.TMPFS_NOSWAP_OPTION] if noswap_supported else options

    def _set_up_hugepages(self, directory: str) -> None:
        _set_up_dir(directory)
        uid = self._pod.metadata.uid
        found = self._mount_detector.get_mount_medium(directory, self._medium)
        if found.is_mount_point and v1helper.is_huge_page_medium(found.medium):
            self._check_page_size(directory, found.page_size)
            return
        option = get_page_size_mount_option(self._medium, self._pod)
        klog.v(3).info_s("Mounting hugepages for volume", podUID=uid, volumeName=self._volume_name)
        self._mounter.mount_sensitive_without_systemd("nodev", directory, "hugetlbfs", [option], [])

    def _check_page_size(self, directory: str, mounted: Quantity | None) -> None:
        """Raise ValueError if the page size of the mount differs from that of the medium."""
        if self._medium == v1.STORAGE_MEDIUM_HUGE_PAGES:
            return
        uid = self._pod.metadata.uid
        if mounted is None:
            raise ValueError(f"pod {uid}: mounted dir {directory} pagesize is not determined")
        wanted = v1helper.huge_page_size_from_medium(self._medium)
        if wanted.cmp(mounted) != 0:
            raise ValueError(
                f"pod {uid}: mounted dir {directory} pagesize '{mounted}' and requested medium size '{wanted}' differ"
            )

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        ready_dir = self._get_meta_dir()
        try:
            removeall.remove_all_one_filesystem(self._mounter, ready_dir)
        except OSError as err:
            raise OSError(f"failed to remove ready dir [{ready_dir}]: {err}") from err
        if not mount_utils.path_exists(directory):
            klog.warning_s("Warning: Unmount skipped because path does not exist", path=directory)
            return
        found = self._mount_detector.get_mount_medium(directory, v1.STORAGE_MEDIUM_HUGE_PAGES)
        if found.is_mount_point and found.medium in (v1.STORAGE_MEDIUM_MEMORY, v1.STORAGE_MEDIUM_HUGE_PAGES):
            self._mounter.unmount(directory)
        # A mount of a container may become visible only after the volume's own mount is gone.
        # DIVERGES (safer): the kubelet removes nothing of an emptyDir while something is mounted on it or below it.
        # Go: pkg/volume/emptydir/empty_dir.go, (*emptyDir).teardownDefault: the Go kubelet also removes what is in such
        # a mount.
        # Why: a container with bidirectional mount propagation may have left files of another machine mounted there.
        # Test: empty_dir_test.py:test_what_is_mounted_below_is_left_alone,
        # empty_dir_test.py:test_what_is_mounted_on_it_is_left_alone
        removeall.remove_all_one_filesystem(self._mounter, directory)


def get_page_size_mount_option(medium: str, pod: v1.Pod) -> str:
    """Return the mount option for the medium's page size, or else for the one that the pod requests. Raise ValueError.

    The function reads the requests, because the limits of huge pages equal them.
    """
    of_medium = None
    if medium != v1.STORAGE_MEDIUM_HUGE_PAGES:
        of_medium = v1helper.huge_page_size_from_medium(medium)
    found: Quantity | None = None
    for requests in _requests(pod):
        for name in filter(v1helper.is_huge_page_resource_name, requests):
            size = v1helper.huge_page_size_from_resource_name(name)
            if of_medium is not None and size.cmp(of_medium) != 0:
                continue
            if found is not None and found.cmp(size) != 0:
                raise ValueError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
            found = size
    if found is None:
        raise ValueError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    return f"{HUGE_PAGES_PAGE_SIZE_MOUNT_OPTION}={found}"


def _requests(pod: v1.Pod) -> list[dict[str, Quantity]]:
    """Return the requests of the pod and all its containers. Init containers may use huge pages too."""
    requests = [container.resources.requests for container in (*pod.spec.containers, *pod.spec.init_containers)]
    if features.feature_gate.enabled(features.POD_LEVEL_RESOURCES) and resourcehelper.is_pod_level_resources_set(pod):
        assert pod.spec.resources is not None
        requests.append(pod.spec.resources.requests)
    return requests


def _pages(size: int) -> int:
    return -(-size // _PAGE_SIZE)


def _set_up_dir(directory: str) -> None:
    """Create the directory and make it writable for everyone, whatever the umask is."""
    filesystem.mkdir_all(directory, PERMISSIONS)
    if os.lstat(directory).st_mode & 0o777 != PERMISSIONS:
        os.chmod(directory, PERMISSIONS)
