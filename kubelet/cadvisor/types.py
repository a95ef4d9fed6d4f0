"""What the kubelet asks about the machine and its control groups.

Go: pkg/kubelet/cadvisor/types.go
"""

from __future__ import annotations

from typing import Protocol

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from pkg import golang


class Interface(Protocol):
    """Where facts of the machine and figures of its containers come from; safe from any thread.

    What is returned may be shared: look, do not change.
    """

    def start(self) -> None:
        """Prepares for being asked. Raises OSError when the machine cannot be read."""
        ...

    def container_info_v2(
        self, name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapiv2.ContainerInfo]:
        """The container of this cgroup name ("/" is the machine), by name; with all below it when asked recursively.

        Raises LookupError when there is no such container, OSError or ValueError when it cannot be read.
        """
        ...

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        """The same, as it is collected, with what processes have open: what the metrics page shows.

        Raises as container_info_v2 does.
        """
        ...

    def machine_info(self) -> cadvisorapi.MachineInfo:
        """Raises OSError when /proc cannot be read."""
        ...

    def version_info(self) -> cadvisorapi.VersionInfo:
        """Raises OSError when the kernel does not tell its version."""
        ...

    def images_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        """The file system of images. Raises ValueError when the runtime is one that must be asked by CRI instead."""
        ...

    def root_fs_info(self) -> cadvisorapiv2.FsInfo:
        """The file system of the kubelet's root directory. Raises OSError."""
        ...

    def container_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        """The file system of containers' writable layers. Raises ValueError as images_fs_info does."""
        ...

    def get_dir_fs_info(self, path: str) -> cadvisorapiv2.FsInfo:
        """The file system that a path is on. Raises OSError."""
        ...
