"""Give the kubelet facts about the machine and statistics of its containers.

Go: pkg/kubelet/cadvisor/cadvisor_linux.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubelet.cadvisor import cgroups
from kubelet.cadvisor.containers import Containers, NoContainers
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cadvisor.machine import Machine
from kubelet.cadvisor.manager import Manager
from pkg import features, golang, klog

if TYPE_CHECKING:
    from kubelet.cadvisor.types import Interface


class Cadvisor:
    """Read facts and statistics of the machine whose file system is at `root`. All methods are thread-safe.

    Tests set `root` to a directory of their own. `root_path` is the kubelet's root directory. `containers` finds the
    container to which a cgroup belongs. Cgroups whose names begin with one of `cgroup_roots` are listed in addition to
    those of containers.
    """

    def __init__(
        self,
        root: str = "/",
        root_path: str = "/",
        cgroup_roots: Sequence[str] = (),
        containers: Containers | None = None,
    ) -> None:
        self._root_path = root_path
        root = root.rstrip("/")
        cgroup_root = f"{root}{cgroups.CGROUP_ROOT}"
        if features.feature_gate.enabled(features.KUBELET_PSI) and not cgroups.is_psi_enabled(cgroup_root):
            klog.info_s("PSI support not available")
        self._filesystems = FileSystems(f"{root}/proc")
        self._machine = Machine(f"{root}/", self._filesystems)
        self._manager = Manager(
            cgroups.new_cgroups(cgroup_root),
            self._machine,
            self._filesystems,
            containers or NoContainers(),
            cgroup_roots,
            proc=f"{root}/proc",
        )

    def start(self) -> None:
        """Do nothing, because the files are read only when a caller asks."""

    def container_info_v2(
        self, name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapiv2.ContainerInfo]:
        found = self._manager.get_requested_containers(name, options)
        return {key: _to_v2(info) for key, info in found.items()}

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        return self._manager.get_requested_containers(container_name, options, complete=True)

    def machine_info(self) -> cadvisorapi.MachineInfo:
        return self._machine.machine_info

    def version_info(self) -> cadvisorapi.VersionInfo:
        return self._machine.version_info

    # Every runtime reports its image file systems through the CRI. The Go kubelet asks cAdvisor for those of CRI-O.
    def images_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        raise ValueError("no imagefs label for configured runtime")

    def root_fs_info(self) -> cadvisorapiv2.FsInfo:
        return self.get_dir_fs_info(self._root_path)

    def container_fs_info(self, ctx: golang.Context) -> cadvisorapiv2.FsInfo:
        raise ValueError("no containerfs label for configured runtime")

    def get_dir_fs_info(self, path: str) -> cadvisorapiv2.FsInfo:
        # DIVERGES (fault of Go): the kubelet can read the statistics of a file system from its start.
        # Go: github.com/google/cadvisor/manager/manager.go, (*manager).GetDirFsInfo: the call fails, or returns a
        # capacity of 0, until cAdvisor has read the node's file systems for the first time.
        # Why: at most starts, the first image garbage collection runs before that, and sends the warning event
        # InvalidDiskCapacity although the disk has no fault.
        # Test: fs_test.py:test_file_system_of_a_directory
        return self._filesystems.dir_info(path)


def _to_v2(info: cadvisorapi.ContainerInfo) -> cadvisorapiv2.ContainerInfo:
    reference = info.reference
    return cadvisorapiv2.ContainerInfo(
        spec=cadvisorapiv2.container_spec_from_v1(info.spec, reference.aliases, reference.namespace),
        stats=cadvisorapiv2.container_stats_from_v1(reference.name, info.spec, info.stats),
    )


if TYPE_CHECKING:
    _: Interface = Cadvisor()
