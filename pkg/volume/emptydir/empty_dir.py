"""Directories that live as long as their pod, on disk, in memory or in huge pages.

Go: pkg/volume/emptydir/empty_dir.go
"""

from __future__ import annotations

import contextlib
import os
import shutil

from pkg import klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_helpers import resource
from pkg.volume import util as volumeutil
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.volume import Attributes, Mounter, MounterArgs, Unmounter
from pkg.volume.volume_linux import set_volume_ownership

EMPTY_DIR_PLUGIN_NAME = "kubernetes.io/empty-dir"
PERMISSIONS = 0o777


def probe_volume_plugins() -> list[VolumePlugin]:
    return [EmptyDirPlugin()]


class EmptyDirPlugin:
    """Makes emptyDir volumes."""

    _host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self._host = host

    def get_plugin_name(self) -> str:
        return EMPTY_DIR_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        if not self.can_support(spec):
            raise ValueError("spec does not reference an emptyDir volume type")
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return spec.volume is not None and spec.volume.empty_dir is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        assert spec.volume is not None and spec.volume.empty_dir is not None
        source = spec.volume.empty_dir
        size = None
        if source.medium == v1.STORAGE_MEDIUM_MEMORY:
            size = calculate_empty_dir_memory_size(self._host.get_node_allocatable(), source, pod)
        return EmptyDir(self._host, pod.metadata.uid, spec.name(), source.medium, size, pod)

    def new_unmounter(self, name: str, pod_uid: str) -> Unmounter:
        return EmptyDir(self._host, pod_uid, name, v1.STORAGE_MEDIUM_DEFAULT, None, None)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        volume = v1.Volume(name=volume_name, empty_dir=v1.EmptyDirVolumeSource())
        return ReconstructedVolume(Spec(volume))


def calculate_empty_dir_memory_size(
    node_allocatable: dict[str, Quantity], source: v1.EmptyDirVolumeSource, pod: v1.Pod
) -> Quantity | None:
    """The least of what the node, the pod's limit and the volume's own limit allow; None when nothing bounds it."""
    limits = resource.pod_limits(pod, resource.PodResourcesOptions())
    bounds = (node_allocatable.get(v1.RESOURCE_MEMORY), limits.get(v1.RESOURCE_MEMORY), source.size_limit)
    return min((bound for bound in bounds if bound is not None and not bound.is_zero()), default=None)


class EmptyDir:
    """One emptyDir of one pod: Mounter and Unmounter."""

    def __init__(
        self,
        host: VolumeHost,
        pod_uid: str,
        volume_name: str,
        medium: str,
        size_limit: Quantity | None,
        pod: v1.Pod | None,
    ) -> None:
        self._host = host
        self._pod_uid = pod_uid
        self._volume_name = volume_name
        self._medium = medium
        self._size_limit = size_limit
        self._pod = pod
        self._mounter = host.get_mounter()

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=False, managed=True, selinux_relabel=True)

    def get_path(self) -> str:
        return self._host.get_pod_volume_dir(self._pod_uid, EMPTY_DIR_PLUGIN_NAME.replace("/", "~"), self._volume_name)

    def _meta_dir(self) -> str:
        plugin_dir = self._host.get_pod_plugin_dir(self._pod_uid, EMPTY_DIR_PLUGIN_NAME.replace("/", "~"))
        return os.path.join(plugin_dir, self._volume_name)

    def set_up(self, args: MounterArgs) -> None:
        path = self.get_path()
        if volumeutil.is_ready(self._meta_dir()) and self._is_in_place(path):
            return
        if self._medium == v1.STORAGE_MEDIUM_DEFAULT:
            _make_dir(path)
        elif self._medium == v1.STORAGE_MEDIUM_MEMORY:
            self._set_up_tmpfs(path)
        elif v1helper.is_huge_page_medium(self._medium):
            self._set_up_hugepages(path)
        else:
            raise ValueError(f'unknown storage medium "{self._medium}"')
        set_volume_ownership(self, path, args)
        volumeutil.set_ready(self._meta_dir())

    def _is_in_place(self, path: str) -> bool:
        if self._medium == v1.STORAGE_MEDIUM_DEFAULT:
            return os.path.isdir(path)
        return self._medium == v1.STORAGE_MEDIUM_MEMORY and self._mounted_type(path) == "tmpfs"

    def _mounted_type(self, path: str) -> str:
        """The type of the filesystem mounted at path; "" when none is."""
        types = [point.type for point in self._mounter.list() if point.path == path]
        return types[-1] if types else ""

    def _set_up_tmpfs(self, path: str) -> None:
        _make_dir(path)
        if self._mounted_type(path) == "tmpfs":
            return
        options = [] if self._size_limit is None else [f"size={self._size_limit.value()}"]
        klog.v(3).info_s("Mounting tmpfs for volume", podUID=self._pod_uid, volumeName=self._volume_name)
        self._mounter.mount("tmpfs", path, "tmpfs", options)

    def _set_up_hugepages(self, path: str) -> None:
        _make_dir(path)
        if self._mounted_type(path) == "hugetlbfs":
            return
        size = self._huge_page_size()
        self._mounter.mount("nodev", path, "hugetlbfs", [f"pagesize={size}"])

    def _huge_page_size(self) -> str:
        """The page size of the medium, or the only one the pod asks for. Raises ValueError when it asks for none."""
        if self._medium.startswith(v1.STORAGE_MEDIUM_HUGE_PAGES_PREFIX):
            return self._medium.removeprefix(v1.STORAGE_MEDIUM_HUGE_PAGES_PREFIX)
        requested = resource.pod_limits(self._pod, resource.PodResourcesOptions()) if self._pod is not None else {}
        sizes = [name for name in requested if v1helper.is_huge_page_resource_name(name)]
        if len(sizes) != 1:
            raise ValueError("medium HugePages can only be used if the pod requests pages of exactly one size")
        return sizes[0].removeprefix(v1.RESOURCE_HUGE_PAGES_PREFIX)

    def tear_down(self) -> None:
        path = self.get_path()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._meta_dir())
        if not mount_utils.path_exists(path):
            klog.warning_s("Unmount skipped because path does not exist", path=path)
            return
        if self._mounted_type(path) in ("tmpfs", "hugetlbfs"):
            self._mounter.unmount(path)
            os.rmdir(path)
            return
        # Under a name that nothing looks for it may go slowly without being taken for a volume.
        doomed = os.path.join(os.path.dirname(path), f"wrapped_{self._volume_name}.deleting~")
        os.rename(path, doomed)
        shutil.rmtree(doomed)


def _make_dir(path: str) -> None:
    """Make the directory and let everybody write to it, whatever the umask says."""
    os.makedirs(path, mode=0o750, exist_ok=True)
    os.chmod(path, PERMISSIONS)
