"""Test the machine facts."""

import errno
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor
from kubelet.cadvisor import machine, processes
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cadvisor.testing import unpack_tree
from pkg import golang


def test_machine_info_from_files(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\nMemFree:  1 kB\nSwapTotal:      1024 kB\n")
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("the-boot\n")
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB"
    pages.mkdir(parents=True)
    (pages / "nr_hugepages").write_text("3\n")
    info = cadvisor.Cadvisor(str(tmp_path)).machine_info()
    assert (info.memory_capacity, info.swap_capacity, info.boot_id) == (16384 * 1024, 1024 * 1024, "the-boot")
    assert info.machine_id == ""
    assert info.huge_pages == (cadvisor.HugePagesInfo(2048, 3),)


@pytest.mark.parametrize(("tree", "available"), [("v1.tree", False), ("v2.tree", True)])
def test_machine_that_does_not_measure_pressure_is_told_of(
    tmp_path: Path, log: io.StringIO, tree: str, available: bool
) -> None:
    cadvisor.Cadvisor(unpack_tree(tree, tmp_path))
    assert ('"PSI support not available"' in log.getvalue()) is not available


@pytest.mark.parametrize(
    "failing", ["sys/devices/system/node", "sys/devices/system/cpu", "etc/machine-id", "proc/cpuinfo"]
)
def test_machine_that_could_not_be_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A failed read is repeated. Otherwise the node would stay without NUMA nodes or without its id."""
    root = unpack_tree("v2.tree", tmp_path)
    made = machine.Machine(f"{root}/", FileSystems(f"{root}/proc"))
    with monkeypatch.context() as patch:
        for module, name in ((os, "open"), (os, "listdir"), (os, "scandir")):
            patch.setattr(module, name, _out_of_descriptors(getattr(module, name), failing))
        with pytest.raises(OSError, match="Too many open files"):
            _ = made.machine_info
    assert made.machine_info.num_cores > 0


def _out_of_descriptors(function: Callable[..., Any], failing: str) -> Callable[..., Any]:
    def opening(path: Any, *args: Any, **kwargs: Any) -> Any:
        if failing in os.fspath(path):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return function(path, *args, **kwargs)

    return opening


def test_capacity_in_the_words_of_the_api() -> None:
    pages = (cadvisor.HugePagesInfo(2048, 4), cadvisor.HugePagesInfo(2**20, 0))
    info = cadvisor.MachineInfo(num_cores=2, memory_capacity=3 * 2**30, huge_pages=pages)
    capacity = {name: str(quantity) for name, quantity in cadvisor.capacity_from_machine_info(info).items()}
    assert capacity == {"cpu": "2", "memory": "3Gi", "hugepages-2Mi": "8Mi", "hugepages-1Gi": "0"}


def test_versions_from_files(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.18.44\n")
    assert cadvisor.Cadvisor(str(tmp_path)).version_info() == cadvisor.VersionInfo("6.18.44", "Linux")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    found = cadvisor.Cadvisor(str(tmp_path)).version_info()
    assert found.container_os_version == "Debian GNU/Linux 12 (bookworm)"


def test_system_uuid_of_a_machine_without_one(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\n")
    (tmp_path / "etc/machine-id").write_text("abc\n")
    assert cadvisor.Cadvisor(str(tmp_path)).machine_info().system_uuid == "abc"


def test_root_fs(tmp_path: Path) -> None:
    info = cadvisor.Cadvisor(root_path=str(tmp_path)).root_fs_info()
    assert info.capacity == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    quantity = cadvisor.ephemeral_storage_capacity_from_fs_info(cadvisor.FsInfo(2048))["ephemeral-storage"]
    assert str(quantity) == "2Ki"


def test_cores_sockets_and_disks(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\n")
    cpus = [f"processor\t: {n}\nphysical id\t: {n // 4}\ncore id\t\t: {n % 2}\n" for n in range(8)]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(cpus))
    for name, dev, size in (("vda", "253:0", 2048), ("loop0", "7:0", 8), ("nvme0c0n1", "259:1", 8)):
        (tmp_path / "sys/block" / name).mkdir(parents=True)
        (tmp_path / "sys/block" / name / "dev").write_text(f"{dev}\n")
        (tmp_path / "sys/block" / name / "size").write_text(f"{size}\n")
    (tmp_path / "sys/block/nvme0c0n1/hidden").write_text("1\n")
    found = machine.Machine(str(tmp_path), FileSystems(f"{tmp_path}/proc"))
    assert (found.machine_info.num_physical_cores, found.machine_info.num_sockets) == (2, 2)
    assert found.disks == {(253, 0): cadvisorapi.DiskInfo("vda", 253, 0, 2048 * 512)}
    assert found.device_name(253, 0) == "/dev/vda"
    assert found.device_name(7, 0) == ""


def test_cores_where_cpuinfo_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\n")
    for cpu in range(4):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{cpu // 2}\n")
        (topology / "physical_package_id").write_text("0\n")
    info = cadvisor.Cadvisor(str(tmp_path)).machine_info()
    assert (info.num_physical_cores, info.num_sockets) == (2, 1)


def test_memory_modules(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16384 kB\n")
    modules = {"mc0/dimm0": ("Registered-DDR4", "16384"), "mc0/dimm1": ("Registered-DDR4", "16384")}
    modules |= {"mc1/dimm0": ("Unbuffered-DDR4", "8192"), "mc1/dimm1": ("Unbuffered-DDR4", "broken")}
    for name, (kind, mebibytes) in modules.items():
        directory = tmp_path / "sys/devices/system/edac/mc" / name
        directory.mkdir(parents=True)
        (directory / "dimm_mem_type").write_text(f"{kind}\n")
        (directory / "size").write_text(f"{mebibytes}\n")
    assert cadvisor.Cadvisor(str(tmp_path)).machine_info().memory_by_type == {
        "Registered-DDR4": cadvisorapi.MemoryInfo(32 << 30, 2),
        "Unbuffered-DDR4": cadvisorapi.MemoryInfo(8 << 30, 1),
    }


def test_figures_in_both_ways(tmp_path: Path) -> None:
    root = unpack_tree("v2.tree", tmp_path)
    found = cadvisor.Cadvisor(root, cgroup_roots=["/kubepods.slice"])
    options = cadvisor.RequestOptions(count=2, recursive=True)
    v1 = found.get_requested_containers_info("/kubepods.slice", options)
    v2 = found.container_info_v2("/kubepods.slice", options)
    assert v1.keys() == v2.keys()
    app = next(name for name in v1 if name.endswith(f"{'a' * 64}.scope"))
    stats = v2[app].stats[-1]
    assert stats.memory is v1[app].stats[-1].memory
    assert stats.cpu is not None
    assert (stats.cpu_inst, stats.network, stats.filesystem) == (None, None, None)
    assert v2[app].spec.memory.limit == 64 << 20


def test_open_files_are_counted_only_for_who_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open files are counted only for the page that shows them.

    A container may have thousands, and the eviction manager waits for the statistics of all containers.
    """
    counts: list[int] = []

    def count(proc: str, pids: Sequence[int], root_pid: int, stats: cadvisorapi.ProcessStats) -> None:
        counts.append(len(pids))
        stats.fd_count = 17

    monkeypatch.setattr(processes, "count_open_files", count)
    found = cadvisor.Cadvisor(unpack_tree("v2.tree", tmp_path), cgroup_roots=["/kubepods.slice"])
    options = cadvisor.RequestOptions(count=2, recursive=True)
    for _ in range(2):
        for other in found.container_info_v2("/kubepods.slice", options).values():
            shown = other.stats[-1].processes
            assert shown is not None
            assert shown.fd_count == 0
        assert counts == []
        page = found.get_requested_containers_info("/kubepods.slice", options)
        assert len(counts) == len(page)
        assert sum(counts) == sum(info.stats[-1].processes.process_count for info in page.values()) > 0
        assert all(info.stats[-1].processes.fd_count == 17 for info in page.values())
        counts.clear()


def test_file_systems_are_asked_only_for_who_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the page that shows network file systems asks their servers.

    A node may have hundreds of such file systems, a child process asks for each, and the eviction manager reads the
    machine first.
    """
    asked: list[str] = []

    def ask(filesystems: FileSystems) -> list[cadvisorapi.FsStats]:
        asked.append("all")
        return [cadvisorapi.FsStats(device="server:/vol")]

    monkeypatch.setattr(FileSystems, "global_stats", ask)
    root = unpack_tree("v2.tree", tmp_path)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    found = cadvisor.Cadvisor(root, cgroup_roots=["/kubepods.slice"])
    for recursive in (False, True):
        options = cadvisor.RequestOptions(max_age=0.0, recursive=recursive)
        assert "/" in found.container_info_v2("/", options)
        assert asked == []
        page = found.get_requested_containers_info("/", options)
        assert asked == ["all"]
        shown = {name: [each.device for each in info.stats[-1].filesystem] for name, info in page.items()}
        assert {name: devices for name, devices in shown.items() if devices} == {"/": ["server:/vol"]}
        asked.clear()


def test_file_systems_of_the_runtime_are_its_own_affair(tmp_path: Path) -> None:
    found = cadvisor.Cadvisor(str(tmp_path))
    for ask in (found.images_fs_info, found.container_fs_info):
        with pytest.raises(ValueError, match=r"no .*fs label for configured runtime"):
            ask(golang.background())
