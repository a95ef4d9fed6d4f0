"""Test the topology of recorded machines.

Go: github.com/google/cadvisor/utils/sysinfo/sysinfo_test.go
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubelet import cadvisor
from kubelet.cadvisor import sysinfo
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.testing import build_machine
from pkg.apimachinery.util.runtime.testing import raising


@dataclass(frozen=True)
class Expected:
    """Describe the expected values of a machine.

    The values are the machine's counts; the nodes' numbers, memory in MiB and distances; the threads of the first and
    the last core; the caches of the first core and of the first node; and, by node, the numbers of the caches that some
    cores share.
    """

    cpus: int
    cores: int
    sockets: int
    nodes: list[int]
    memory: list[int]
    distances: list[tuple[int, ...]]
    first_core: tuple[int, ...]
    last_core: tuple[int, ...]
    core_caches: list[tuple[int, str, int]]
    node_caches: list[int]
    uncore_caches: list[list[int]]


_MACHINES = {
    "intel_hybrid": Expected(
        cpus=20,
        cores=14,
        sockets=1,
        nodes=[0],
        memory=[31728],
        distances=[(10,)],
        first_core=(0, 1),
        last_core=(19,),
        core_caches=[(1, "Data", 48), (1, "Instruction", 32), (2, "Unified", 1280)],
        # The cores differ in their number of threads, so no cache counts as the node's.
        node_caches=[],
        uncore_caches=[[0]],
    ),
    "intel_two_sockets_four_nodes": Expected(
        cpus=80,
        cores=40,
        sockets=2,
        nodes=[0, 1, 2, 3],
        memory=[379387, 381019, 381019, 381018],
        distances=[(10, 21, 11, 21), (21, 10, 21, 11), (11, 21, 10, 21), (21, 11, 21, 10)],
        first_core=(0, 40),
        last_core=(39, 79),
        core_caches=[(1, "Data", 32), (1, "Instruction", 32), (2, "Unified", 1024)],
        node_caches=[],
        uncore_caches=[[0], [1], [0], [1]],
    ),
    "intel_offline_node": Expected(
        cpus=8,
        cores=17,
        sockets=2,
        nodes=[1],
        memory=[65536],
        distances=[(21, 10)],
        first_core=(5,),
        last_core=(19,),
        core_caches=[(1, "Data", 32), (1, "Instruction", 32), (2, "Unified", 256)],
        node_caches=[1],
        uncore_caches=[[]],
    ),
    "amd_two_sockets_eight_nodes": Expected(
        cpus=96,
        cores=48,
        sockets=2,
        nodes=list(range(8)),
        memory=[0] * 8,
        distances=[()] * 8,
        first_core=(0, 48),
        last_core=(47, 95),
        core_caches=[(1, "Data", 32), (1, "Instruction", 64), (2, "Unified", 512)],
        node_caches=[],
        uncore_caches=[[2 * node, 2 * node + 1] for node in range(8)],
    ),
    "arm_two_sockets_four_nodes": Expected(
        cpus=128,
        cores=128,
        sockets=2,
        nodes=[0, 1, 2, 3],
        memory=[128645, 129021, 129021, 127990],
        distances=[(10, 16, 32, 33), (16, 10, 25, 32), (32, 25, 10, 16), (33, 32, 16, 10)],
        first_core=(0,),
        last_core=(127,),
        # This machine's caches have no ids.
        core_caches=[],
        node_caches=[],
        uncore_caches=[[]] * 4,
    ),
    "arm_small_and_big": Expected(
        cpus=8,
        cores=8,
        sockets=3,
        # The nodes are the sockets, because the machine has no NUMA.
        nodes=[0, 1, 2],
        memory=[0, 0, 0],
        distances=[(), (), ()],
        first_core=(0,),
        last_core=(7,),
        core_caches=[],
        node_caches=[],
        uncore_caches=[[]] * 3,
    ),
    "power_memory_of_gpus": Expected(
        cpus=32,
        cores=8,
        sockets=2,
        nodes=[0, 8, *range(250, 256)],
        memory=[126796, 130812, *[15360] * 6],
        distances=[
            (10, 40, *[80] * 6),
            (40, 10, *[80] * 6),
            *[(80, 80, *[80] * at, 10, *[80] * (5 - at)) for at in range(6)],
        ],
        first_core=(0, 1, 2, 3),
        last_core=(100, 101, 102, 103),
        core_caches=[],
        node_caches=[],
        uncore_caches=[[]] * 8,
    ),
}


@pytest.fixture
def machine_root() -> Iterator[Path]:
    """Provide a directory in memory, because a machine has thousands of files."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.mark.parametrize("name", _MACHINES)
def test_recorded_machine(name: str, machine_root: Path) -> None:
    root = build_machine(name, machine_root)
    nodes, cpus = sysinfo.get_nodes_info(root)
    cores = [core for node in nodes for core in node.cores]
    found = Expected(
        cpus=cpus,
        cores=sysinfo.unique_cpu_properties(root, "core_id"),
        sockets=sysinfo.unique_cpu_properties(root, "physical_package_id"),
        nodes=[node.id for node in nodes],
        memory=[node.memory >> 20 for node in nodes],
        distances=[node.distances for node in nodes],
        first_core=cores[0].threads,
        last_core=cores[-1].threads,
        core_caches=[(cache.level, cache.type, cache.size >> 10) for cache in cores[0].caches],
        node_caches=[cache.id for cache in nodes[0].caches],
        uncore_caches=[sorted({c.id for core in node.cores for c in core.uncore_caches}) for node in nodes],
    )
    assert found == _MACHINES[name]
    assert sum(len(core.threads) for core in cores) == cpus


def test_testdata_is_tested() -> None:
    recorded = {path.stem for path in (Path(__file__).parent / "testdata/machines").glob("*.txt")}
    assert recorded == set(_MACHINES)


def test_huge_pages_that_cannot_be_listed_are_not_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sysinfo.get_huge_pages_info(tmp_path / "none") == ()
    monkeypatch.setattr(Path, "iterdir", raising(OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(OSError, match="Too many open files"):
        sysinfo.get_huge_pages_info(tmp_path)


def test_huge_pages_of_nodes(machine_root: Path) -> None:
    root = build_machine("power_memory_of_gpus", machine_root)
    pages = root / "sys/devices/system/node/node8/hugepages"
    (pages / "hugepages-2048kB/nr_hugepages").write_text("512\n")
    (pages / "no-pages").mkdir()
    nodes, _ = sysinfo.get_nodes_info(root)
    assert nodes[1].huge_pages == (info.HugePagesInfo(2**20, 0), info.HugePagesInfo(2048, 512))


def _cpu(name: str) -> str:
    return f"sys/devices/system/cpu/{name}"


@pytest.mark.parametrize(
    ("changes", "threads"),
    [
        pytest.param({_cpu("online"): "0-1,4,19"}, [(0, 1), (4,), (19,)], id="offline"),
        pytest.param(
            {
                _cpu("cpu0/topology/core_id"): None,
                _cpu("cpu3/topology/physical_package_id"): None,
                _cpu("online"): "0-5",
            },
            [(1,), (2,), (4, 5)],
            id="going offline",
        ),
        pytest.param({_cpu("online"): None, _cpu("cpu1/topology/core_id"): "4"}, [(0,), (1, 2, 3)], id="no hotplug"),
    ],
)
def test_processors_that_are_there(
    machine_root: Path, changes: dict[str, str | None], threads: list[tuple[int]]
) -> None:
    root = build_machine("intel_hybrid", machine_root)
    _change(root, changes)
    nodes, cpus = sysinfo.get_nodes_info(root)
    assert [core.threads for core in nodes[0].cores][: len(threads)] == threads
    assert cpus == sum(len(core.threads) for core in nodes[0].cores)


@pytest.mark.parametrize("changes", [{"id": None}, {"size": "many"}, {"shared_cpu_map": "xyz"}, {"level": ""}])
def test_cores_after_one_without_caches_have_none(machine_root: Path, changes: dict[str, str | None]) -> None:
    root = build_machine("intel_hybrid", machine_root)
    _change(root, {_cpu(f"cpu2/cache/index1/{name}"): text for name, text in changes.items()})
    nodes, _ = sysinfo.get_nodes_info(root)
    assert [len(core.caches) for core in nodes[0].cores] == [3, *[0] * 13]
    assert [len(core.uncore_caches) for core in nodes[0].cores] == [1, *[0] * 13]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({_cpu("cpu3/topology/core_id"): "x"}, r"cpu3/topology/core_id: invalid literal"),
        ({_cpu("online"): "0-x"}, "invalid literal"),
        ({"sys/devices/system/node/node0/meminfo": "nothing"}, r"node0/meminfo has no MemTotal: 'nothing"),
        ({"sys/devices/system/node/node0/distance": "near"}, "invalid literal .*near"),
        ({"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "x"}, "nr_hugepages: invalid"),
    ],
)
def test_files_that_make_no_sense(machine_root: Path, changes: dict[str, str | None], fault: str) -> None:
    """The node starts with as many CPUs as this process may use; callers that need the topology fail."""
    root = build_machine("intel_hybrid", machine_root)
    _change(root, changes)
    with pytest.raises(ValueError, match=fault):
        sysinfo.get_nodes_info(root)
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    machine = cadvisor.Cadvisor(str(root)).machine_info()
    assert (machine.topology, machine.num_cores) == ((), len(os.sched_getaffinity(0)))


def test_no_processor(machine_root: Path) -> None:
    with pytest.raises(LookupError, match="no CPU is available"):
        sysinfo.get_nodes_info(machine_root)


def test_machine_info(machine_root: Path) -> None:
    root = build_machine("power_memory_of_gpus", machine_root)
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 1024 kB\n")
    machine = cadvisor.Cadvisor(str(root)).machine_info()
    assert (machine.num_cores, machine.num_physical_cores, machine.num_sockets) == (32, 8, 2)
    assert len(machine.topology) == 8


def _change(root: Path, changes: dict[str, str | None]) -> None:
    for path, text in changes.items():
        if text is None:
            (root / path).unlink()
        else:
            (root / path).write_text(f"{text}\n")
