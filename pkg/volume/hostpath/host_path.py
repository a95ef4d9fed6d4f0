"""Files and directories of the host, checked for what the pod says they are.

Go: pkg/volume/hostpath/host_path.go
"""

from __future__ import annotations

import os

from pkg.api.core import v1
from pkg.volume import util as volumeutil
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
    """Makes hostPath volumes."""

    _host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self._host = host

    def get_plugin_name(self) -> str:
        return HOST_PATH_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        return _source(spec).path

    def can_support(self, spec: Spec) -> bool:
        if spec.persistent_volume is not None:
            return spec.persistent_volume.spec.host_path is not None
        return spec.volume is not None and spec.volume.host_path is not None

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter:
        source = _source(spec)
        return HostPath(source.path, source.type or v1.HOST_PATH_UNSET, spec.read_only, self._host.get_hostutil())

    def new_unmounter(self, name: str, pod_uid: str) -> Unmounter:
        return HostPath("", v1.HOST_PATH_UNSET, False, self._host.get_hostutil())

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        volume = v1.Volume(name=volume_name, host_path=v1.HostPathVolumeSource(path=volume_name))
        return ReconstructedVolume(Spec(volume))


class HostPath:
    """One hostPath of one pod: Mounter and Unmounter."""

    def __init__(self, path: str, path_type: str, read_only: bool, host_util: hostutil.HostUtils) -> None:
        self._path = path
        self._path_type = path_type
        self._read_only = read_only
        self._host_util = host_util

    def get_path(self) -> str:
        return self._path

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=self._read_only, managed=False, selinux_relabel=False)

    def set_up(self, args: MounterArgs) -> None:
        try:
            volumeutil.validate_path_no_backsteps(self._path)
        except ValueError as err:
            raise ValueError(f"invalid HostPath `{self._path}`: {err}") from err
        if self._path_type != v1.HOST_PATH_UNSET:
            check_type(self._path, self._path_type, self._host_util)

    def tear_down(self) -> None:
        """Nothing to do: the host's files were never mounted by us."""


def check_type(path: str, path_type: str, host_util: hostutil.HostUtils) -> None:
    """See that path is of the type, making it if the type says so. Raises ValueError or OSError."""
    match path_type:
        case v1.HOST_PATH_DIRECTORY_OR_CREATE:
            if not host_util.path_exists(path):
                os.makedirs(path, mode=0o755)
            path_type = v1.HOST_PATH_DIRECTORY
        case v1.HOST_PATH_FILE_OR_CREATE:
            if not host_util.path_exists(path):
                os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644))
            path_type = v1.HOST_PATH_FILE
    if path_type not in _MUST_BE:
        raise ValueError(f"{path_type} is an invalid volume type")
    if not host_util.path_exists(path):
        raise ValueError(f"hostPath type check failed: {path} is not {_MUST_BE[path_type]}")
    if host_util.get_file_type(path) != path_type:
        raise ValueError(f"hostPath type check failed: {path} is not {_MUST_BE[path_type]}")


def _source(spec: Spec) -> v1.HostPathVolumeSource:
    if spec.volume is not None and spec.volume.host_path is not None:
        return spec.volume.host_path
    if spec.persistent_volume is not None and spec.persistent_volume.spec.host_path is not None:
        return spec.persistent_volume.spec.host_path
    raise ValueError("spec does not reference an HostPath volume type")
