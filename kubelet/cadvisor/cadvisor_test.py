"""Tests of machine facts."""

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
    assert info.huge_pages == {2048 * 1024: 3}


def test_capacity_in_the_words_of_the_api() -> None:
    info = cadvisor.MachineInfo(num_cores=2, memory_capacity=3 * 2**30, huge_pages={2 * 2**20: 4, 2**30: 0})
    capacity = {name: str(quantity) for name, quantity in cadvisor.capacity_from_machine_info(info).items()}
    assert capacity == {"cpu": "2", "memory": "3Gi", "hugepages-2Mi": "8Mi", "hugepages-1Gi": "0"}
