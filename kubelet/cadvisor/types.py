"""Define what the kubelet needs to know about the machine and its cgroups.

Go: pkg/kubelet/cadvisor/types.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from pkg import golang


class Interface(Protocol):
    """Define what the kubelet needs from a source of machine facts and container statistics.

    All methods are thread-safe.
    The returned objects may be shared: callers must not change them.
    """

    def start(self) -> None:
        """Prepare for requests. Raise OSError if the machine cannot be read."""
        ...

    def container_info_v2(
        self, name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapiv2.ContainerInfo]:
        """Return the container with this cgroup name, and its descendants if the request is recursive.

        "/" is the machine. The keys are cgroup names. Raise LookupError if there is no such container, and OSError or
        ValueError if it cannot be read.
        """
        ...

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        """Return the containers in the form in which they are collected, with the open files of their processes.

        The metrics page shows these values. Raise the same exceptions as container_info_v2.
        """
        ...

    def machine_info(self) -> cadvisorapi.MachineInfo:
        """Describe the machine. Raise OSError if /proc cannot be read."""
        ...

    def version_info(self) -> cadvisorapi.VersionInfo:
        """Return the versions. Raise OSError if the kernel's version cannot be read."""
        ...

    def images_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        """Return the image file system. Raise ValueError if the runtime must be asked through the CRI instead."""
        ...

    def root_fs_info(self) -> cadvisorapiv2.FsInfo:
        """Return the file system of the kubelet's root directory. Raise OSError."""
        ...

    def container_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        """Return the file system of the containers' writable layers. Raise ValueError as images_fs_info does."""
        ...

    def get_dir_fs_info(self, path: str) -> cadvisorapiv2.FsInfo:
        """Return the file system that holds a path. Raise OSError."""
        ...
