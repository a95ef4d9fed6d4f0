"""Serve hostPath volumes, and check that the path has the type that the pod requires.

Go: pkg/volume/hostpath/host_path.go
"""

from __future__ import annotations

import os

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.util import filesystem
from pkg.volume import validation
from pkg.volume.metrics_nil import MetricsNil
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.util import hostutil
from pkg.volume.volume import Attributes, Mounter, MounterArgs, Unmounter

HOST_PATH_PLUGIN_NAME = "kubernetes.io/host-path"

_MUST_BE = {
    v1.HOST_PATH_DIRECTORY: "a directory",
    v1.HOST_PATH_FILE: "a file",
    v1.HOST_PATH_SOCKET: "a socket file",
    v1.HOST_PATH_CHAR_DEV: "a character device",
    v1.HOST_PATH_BLOCK_DEV: "a block device",
}


def probe_volume_plugins() -> list[VolumePlugin]:
    return [HostPathPlugin()]


class HostPathPlugin:
    """Serve hostPath volumes."""

    _host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self._host = host

    def get_plugin_name(self) -> str:
        return HOST_PATH_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        source = get_volume_source(spec)
        return source.path

    def can_support(self, spec: Spec) -> bool:
        if spec.persistent_volume is not None:
            return spec.persistent_volume.spec.host_path is not None
        return spec.volume is not None and spec.volume.host_path is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def supports_mount_option(self) -> bool:
        return False

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        source = get_volume_source(spec)
        path_type = source.type if source.type is not None else v1.HOST_PATH_UNSET
        return HostPathMounter(source.path, path_type, spec.read_only, self._host.get_hostutil())

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter:
        return HostPathUnmounter("")

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        volume = v1.Volume(name=volume_name, host_path=v1.HostPathVolumeSource(path=volume_name))
        return ReconstructedVolume(Spec(volume))


class HostPath(MetricsNil):
    """Represent a hostPath of one pod. It has no metrics, because they would be those of the host."""

    def __init__(self, path: str) -> None:
        self._path = path

    def get_path(self) -> str:
        return self._path


class HostPathMounter(HostPath):
    """Check that the path on the host has the type that the pod requires."""

    def __init__(self, path: str, path_type: str, read_only: bool, host_util: hostutil.HostUtils) -> None:
        super().__init__(path)
        self._path_type = path_type
        self._read_only = read_only
        self._host_util = host_util

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=self._read_only, managed=False, selinux_relabel=False)

    def set_up(self, args: MounterArgs) -> None:
        try:
            validation.validate_path_no_backsteps(self._path)
        except ValueError as err:
            raise ValueError(f"invalid HostPath `{self._path}`: {err}") from err
        if self._path_type != v1.HOST_PATH_UNSET:
            check_type(self._path, self._path_type, self._host_util)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        raise ValueError("SetUpAt() does not make sense for host paths")


class HostPathUnmounter(HostPath):
    """Do nothing, because the kubelet has not mounted the host's files."""

    def tear_down(self) -> None:
        pass

    def tear_down_at(self, directory: str) -> None:
        raise ValueError("TearDownAt() does not make sense for host paths")


def get_volume_source(spec: Spec) -> v1.HostPathVolumeSource:
    """Return the hostPath source. Raise ValueError for another volume."""
    if spec.volume is not None and spec.volume.host_path is not None:
        return spec.volume.host_path
    if spec.persistent_volume is not None and spec.persistent_volume.spec.host_path is not None:
        return spec.persistent_volume.spec.host_path
    raise ValueError("spec does not reference an HostPath volume type")


class FileTypeChecker:
    """Determine the type of a file. A file that cannot be examined counts as missing."""

    def __init__(self, path: str, host_util: hostutil.HostUtils) -> None:
        self._path = path
        self._host_util = host_util

    def get_path(self) -> str:
        return self._path

    def exists(self) -> bool:
        try:
            return self._host_util.path_exists(self._path)
        except OSError:
            return False

    def is_type(self, path_type: str) -> bool:
        try:
            return self._host_util.get_file_type(self._path) == path_type
        except OSError:
            return False

    def make_dir(self) -> None:
        filesystem.mkdir_all(self._path, 0o755)

    def make_file(self) -> None:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644))


def check_type(path: str, path_type: str, host_util: hostutil.HostUtils) -> None:
    """Check that path has the type, and create it if the type requires that. Raise ValueError or OSError."""
    check_type_internal(FileTypeChecker(path, host_util), path_type)


def check_type_internal(checker: FileTypeChecker, path_type: str) -> None:
    match path_type:
        case v1.HOST_PATH_DIRECTORY_OR_CREATE:
            if not checker.exists():
                checker.make_dir()
                return
            path_type = v1.HOST_PATH_DIRECTORY
        case v1.HOST_PATH_FILE_OR_CREATE:
            if not checker.exists():
                checker.make_file()
                return
            path_type = v1.HOST_PATH_FILE
    if path_type not in _MUST_BE:
        raise ValueError(f"{path_type} is an invalid volume type")
    if not checker.is_type(path_type):
        raise ValueError(f"hostPath type check failed: {checker.get_path()} is not {_MUST_BE[path_type]}")
