"""Tests of machine facts."""

import os
from pathlib import Path

from kubelet import cadvisor


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
