"""Test the cgroup readers on recorded machines."""

from __future__ import annotations

import errno
import io
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubelet.cadvisor import cgroups
from kubelet.cadvisor.cgroups import common, files
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.testing import unpack_tree
from pkg import klog
from pkg.apimachinery.util.runtime.testing import raising
from pkg.util import filetree, procfs

UID = "8b6c6f3e-5a3d-4f0a-9d5e-0d3c2b1a4e5f"
POD_V1 = f"/kubepods/burstable/pod{UID}"
APP_V1 = f"{POD_V1}/{'a' * 64}"
POD_V2 = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
APP_V2 = f"{POD_V2}/cri-containerd-{'a' * 64}.scope"
BOX_V2 = f"{POD_V2}/cri-containerd-{'5' * 64}.scope"


@pytest.fixture
def v1(tmp_path: Path) -> cgroups.Cgroups:
    root = unpack_tree("v1.tree", tmp_path)
    return cgroups.new_cgroups(f"{root}/sys/fs/cgroup")


@pytest.fixture
def v2(tmp_path: Path) -> cgroups.Cgroups:
    root = unpack_tree("v2.tree", tmp_path)
    return cgroups.CgroupsV2(f"{root}/sys/fs/cgroup", f"{root}/proc")


def test_version_of_the_machine(tmp_path: Path) -> None:
    for tree, kind in (("v1.tree", cgroups.CgroupsV1), ("v2.tree", cgroups.CgroupsV2)):
        root = unpack_tree(tree, tmp_path / tree)
        assert isinstance(cgroups.new_cgroups(f"{root}/sys/fs/cgroup"), kind)
        assert cgroups.is_psi_enabled(f"{root}/sys/fs/cgroup") == (kind is cgroups.CgroupsV2)
        # The file of a kernel that was booted without PSI is empty.
        (Path(root) / "sys/fs/cgroup/cpu.pressure").write_text("")
        assert not cgroups.is_psi_enabled(f"{root}/sys/fs/cgroup")


def test_measuring_that_there_is_not_is_logged_with_the_reason(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not cgroups.is_psi_enabled(str(tmp_path))
    assert log.getvalue() == ""
    monkeypatch.setattr(klog._Settings, "verbosity", 4)
    assert not cgroups.is_psi_enabled(str(tmp_path))
    assert f'"PSI not available" dir="{tmp_path}" file="cpu.pressure" err=' in log.getvalue()
    assert "No such file" in log.getvalue()


# The following tests are about version 1.


def test_v1_container(v1: cgroups.Cgroups) -> None:
    stats = v1.stats(APP_V1)
    assert stats.cpu.usage == info.CpuUsage(total=394536499, user=80_000_000, system=300_000_000)
    assert stats.cpu.cfs == info.CpuCFS(periods=41)
    memory = stats.memory
    assert (memory.usage, memory.max_usage, memory.failcnt) == (9293824, 10543104, 0)
    assert (memory.cache, memory.rss, memory.swap, memory.mapped_file) == (8388608, 114688, 0, 0)
    assert memory.working_set == 9293824 - memory.total_inactive_file
    assert memory.total_inactive_file == 8388608
    assert memory.kernel_usage == 630784
    assert (stats.processes.threads_current, stats.processes.threads_max) == (2, 0), "0 is without a limit"
    assert stats.disk_io == info.DiskIoStats(), "nothing has reached the disk"
    assert stats.oom_events == 0


def test_v1_limits(v1: cgroups.Cgroups) -> None:
    spec = v1.spec(APP_V1)
    assert spec.cpu == info.CpuSpec(limit=102, quota=20000, period=100000)
    assert spec.memory.limit == 64 << 20
    assert spec.memory.reservation == 9223372036854771712
    assert spec.processes.limit == cgroups.UNLIMITED
    assert (spec.has_cpu, spec.has_memory, spec.has_processes, spec.has_disk_io) == (True, True, True, True)
    assert v1.spec(POD_V1).cpu.quota == 0, "-1 is none"


def test_v1_machine(v1: cgroups.Cgroups) -> None:
    stats, spec = v1.stats("/"), v1.spec("/")
    assert stats.cpu.usage.total > 0
    assert stats.memory.usage > 0
    assert not spec.has_processes, "the root counts no tasks"
    assert v1.processes("/") == [1]


def test_v1_names(v1: cgroups.Cgroups) -> None:
    names = v1.names()
    assert names[0] == "/"
    assert names.index("/kubepods") < names.index(POD_V1) < names.index(APP_V1)
    assert len(names) == len(set(names)) == 6, "each once, though it is in several hierarchies"
    assert v1.processes(APP_V1) == [25353, 25756]


def test_v1_cgroup_that_is_gone(v1: cgroups.Cgroups) -> None:
    assert not v1.exists("/kubepods/gone")
    assert v1.processes("/kubepods/gone") == []
    assert not v1.spec("/kubepods/gone").has_cpu
    with pytest.raises(FileNotFoundError, match="cgroup /kubepods/gone does not exist"):
        v1.stats("/kubepods/gone")


def test_v1_cgroup_of_one_controller_alone(v1: cgroups.Cgroups, tmp_path: Path) -> None:
    alone = tmp_path / "sys/fs/cgroup/pids/user.slice"
    alone.mkdir()
    (alone / "pids.current").write_text("7\n")
    (alone / "pids.max").write_text("100\n")
    stats, spec = v1.stats("/user.slice"), v1.spec("/user.slice")
    assert (stats.processes.threads_current, stats.processes.threads_max) == (7, 100)
    assert (spec.has_processes, spec.has_cpu, spec.has_memory) == (True, False, False)
    assert "/user.slice" in v1.names()


def test_v1_without_hierarchy(v1: cgroups.Cgroups, tmp_path: Path) -> None:
    memory = tmp_path / "sys/fs/cgroup/memory" / APP_V1[1:]
    (memory / "memory.use_hierarchy").write_text("0\n")
    text = (memory / "memory.stat").read_text()
    (memory / "memory.stat").write_text(text.replace("\nrss 114688", "\nrss 4096"))
    assert v1.stats(APP_V1).memory.rss == 4096


def test_v1_kills(v1: cgroups.Cgroups, tmp_path: Path) -> None:
    control = tmp_path / "sys/fs/cgroup/memory" / APP_V1[1:] / "memory.oom_control"
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert v1.stats(APP_V1).oom_events == 3


THROTTLE = {
    "throttle.io_service_bytes": "253:0 Read 4096\n253:0 Write 8192\n253:0 Total 12288\nTotal 12288\n",
    "throttle.io_serviced": "253:0 Read 1\n253:0 Write 2\n253:0 Total 3\nTotal 3\n",
}
RECURSIVE = {f"{name}_recursive": text for name, text in THROTTLE.items()}
CFQ = {
    "sectors_recursive": "8:0 24\n",
    "io_service_time_recursive": "8:0 Read 5000\n8:0 Total 5000\nTotal 5000\n",
    "io_wait_time_recursive": "8:0 Read 6000\nTotal 6000\n",
    "io_merged_recursive": "8:0 Read 0\nTotal 0\n",
    "io_queued_recursive": "8:0 Read 1\n8:0 Total 1\nTotal 1\n",
    "time_recursive": "8:0 77\n",
    "io_serviced_recursive": "8:0 Read 3\nTotal 3\n",
    "io_service_bytes_recursive": "8:0 Read 12288\n8:16 Read 512\nTotal 12800\n",
}


def disk(major: int, minor: int, **stats: int) -> info.PerDiskStats:
    return info.PerDiskStats(major=major, minor=minor, stats=stats)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        pytest.param(
            THROTTLE,
            info.DiskIoStats(
                io_service_bytes=[disk(253, 0, Read=4096, Write=8192, Total=12288)],
                io_serviced=[disk(253, 0, Read=1, Write=2, Total=3)],
            ),
            id="of old kernels",
        ),
        pytest.param(
            THROTTLE | {name: text.replace("4096", "5120") for name, text in RECURSIVE.items()},
            info.DiskIoStats(
                io_service_bytes=[disk(253, 0, Read=5120, Write=8192, Total=12288)],
                io_serviced=[disk(253, 0, Read=1, Write=2, Total=3)],
            ),
            id="of all below it rather than its own",
        ),
        pytest.param(
            THROTTLE | CFQ,
            info.DiskIoStats(
                io_service_bytes=[disk(8, 0, Read=12288), disk(8, 16, Read=512)],
                io_serviced=[disk(8, 0, Read=3)],
                io_queued=[disk(8, 0, Read=1, Total=1)],
                sectors=[disk(8, 0, Count=24)],
                io_service_time=[disk(8, 0, Read=5000, Total=5000)],
                io_wait_time=[disk(8, 0, Read=6000)],
                io_merged=[disk(8, 0, Read=0)],
                io_time=[disk(8, 0, Count=77)],
            ),
            id="of the scheduler that counts most",
        ),
        pytest.param({"throttle.io_service_bytes": "Total 0\n"}, info.DiskIoStats(), id="none"),
    ],
)
def test_v1_disks(v1: cgroups.Cgroups, tmp_path: Path, contents: dict[str, str], expected: info.DiskIoStats) -> None:
    directory = tmp_path / "sys/fs/cgroup/blkio" / APP_V1[1:]
    for name, text in contents.items():
        (directory / f"blkio.{name}").write_text(text)
    assert v1.stats(APP_V1).disk_io == expected


# The following tests are about version 2.


def test_v2_container(v2: cgroups.Cgroups) -> None:
    stats = v2.stats(APP_V2)
    assert stats.cpu.usage == info.CpuUsage(total=394536000, user=280000000, system=114536000)
    assert stats.cpu.cfs == info.CpuCFS(
        periods=41, throttled_periods=7, throttled_time=350_000_000, bursts_periods=2, burst_time=1_500_000
    )
    memory = stats.memory
    assert (memory.usage, memory.max_usage, memory.swap) == (9293824, 10543104, 4194304)
    assert (memory.cache, memory.rss, memory.mapped_file) == (8388608, 114688, 4096)
    assert memory.working_set == 9293824 - 8388608
    assert memory.container_data == memory.hierarchical_data == info.MemoryStatsMemoryData(2411, 3)
    assert (stats.processes.threads_current, stats.processes.threads_max) == (2, 0), "0 is without a limit"
    assert stats.oom_events == 2
    disk_io = stats.disk_io
    assert disk_io.io_service_bytes == [disk(253, 0, Read=4096, Write=8388608), disk(253, 16, Read=0, Write=512)]
    assert disk_io.io_serviced == [disk(253, 0, Read=1, Write=16), disk(253, 16, Read=0, Write=1)]
    costs = (disk_io.io_cost_usage, disk_io.io_cost_wait, disk_io.io_cost_indebt, disk_io.io_cost_indelay)
    assert costs == tuple([disk(253, 0, Count=count)] for count in (1500, 20, 3, 4))


def test_v2_pressure(v2: cgroups.Cgroups) -> None:
    stats = v2.stats(APP_V2)
    assert stats.cpu.psi == info.PSIStats(
        full=info.PSIData(total=125000, avg10=1.25, avg60=0.5, avg300=0.1),
        some=info.PSIData(total=250000, avg10=1.5, avg60=0.75, avg300=0.2),
    )
    assert stats.memory.psi == info.PSIStats()
    assert stats.disk_io.psi.some.total == 4000
    assert v2.stats(POD_V2).cpu.psi == info.PSIStats(), "the kernel does not tell"


def test_v2_limits(v2: cgroups.Cgroups) -> None:
    spec = v2.spec(APP_V2)
    assert spec.cpu == info.CpuSpec(limit=80, quota=20000, period=100000)
    assert spec.memory == info.MemorySpec(limit=64 << 20, reservation=32 << 20, swap_limit=16 << 20)
    assert spec.processes.limit == cgroups.UNLIMITED
    box = v2.spec(BOX_V2)
    assert box.cpu == info.CpuSpec(limit=2, quota=0, period=100000)
    assert box.memory == info.MemorySpec(limit=cgroups.UNLIMITED, swap_limit=cgroups.UNLIMITED)
    assert v2.spec(POD_V2).processes.limit == 1024


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_memory_whose_limit_cannot_be_read_is_not_taken_for_full(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    def read(path: str) -> str:
        if path.endswith(("memory.max", "memory.limit_in_bytes")):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return procfs.read(path)

    reading: cgroups.Cgroups = request.getfixturevalue(version)
    monkeypatch.setattr(files, "procfs", SimpleNamespace(read=read, split_lines=procfs.split_lines))
    with pytest.raises(OSError, match="Too many open files"):
        reading.spec(APP_V1 if version == "v1" else APP_V2)


@pytest.mark.parametrize("fault", [errno.EMFILE, errno.EIO, errno.ENODEV], ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("/", "cpu.stat"),
        ("/", "memory.stat"),
        (APP_V2, "memory.stat"),
        (APP_V2, "memory.swap.current"),
        (APP_V2, "io.stat"),
        (APP_V2, "cgroup.procs"),
    ],
)
def test_v2_what_cannot_be_read_is_not_nothing(
    v2: cgroups.Cgroups, monkeypatch: pytest.MonkeyPatch, name: str, file: str, fault: int
) -> None:
    def read(path: str) -> str:
        if path.endswith(file):
            raise OSError(fault, os.strerror(fault), path)
        return procfs.read(path)

    monkeypatch.setattr(files, "procfs", SimpleNamespace(read=read, split_lines=procfs.split_lines))
    with pytest.raises(OSError, match=os.strerror(fault)):
        (v2.processes if file == "cgroup.procs" else v2.stats)(name)


def test_file_that_the_kernel_does_not_offer(v2: cgroups.Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the kernel does not support count as empty.

    Examples are the pressure of a kernel without PSI, and the processes of a cgroup that holds only threads.
    """

    def read(path: str) -> str:
        if path.endswith((".pressure", "cgroup.procs")):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported", path)
        return procfs.read(path)

    monkeypatch.setattr(files, "procfs", SimpleNamespace(read=read, split_lines=procfs.split_lines))
    assert v2.stats(APP_V2).cpu.psi == info.PSIStats()
    assert v2.processes(APP_V2) == []


def test_cgroups_that_cannot_be_listed_are_not_gone(v2: cgroups.Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", raising(OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(OSError, match="Too many open files"):
        v2.names()


def test_cgroups_too_deep_for_any_path_keep_no_others_from_being_listed(v2: cgroups.Cgroups, tmp_path: Path) -> None:
    name = "n" * 255
    deepest = os.open(tmp_path / "sys/fs/cgroup" / APP_V2[1:], os.O_RDONLY)
    for _ in range(17):
        os.mkdir(name, dir_fd=deepest)
        above, deepest = deepest, os.open(name, os.O_RDONLY, dir_fd=deepest)
        os.close(above)
    os.close(deepest)
    names = v2.names()
    assert BOX_V2 in names and f"{APP_V2}/{name}" in names
    # pytest cannot remove a directory with such a long path.
    filetree.remove_all(str(tmp_path / "sys/fs/cgroup" / APP_V2[1:] / name))


def test_v2_machine(v2: cgroups.Cgroups) -> None:
    stats, spec = v2.stats("/"), v2.spec("/")
    assert stats.memory.usage == 1073741824 + 4294967296, "what has no counter is added up"
    assert stats.memory.swap == 1048576 * 1024
    assert stats.processes.threads_current == 1
    assert stats.disk_io.io_service_bytes == [disk(253, 0, Read=1871872000, Write=9126805504)]
    assert (spec.has_memory, spec.cpu.quota, spec.cpu.period) == (False, 0, 0)


def test_v2_root_of_a_container(v2: cgroups.Cgroups, tmp_path: Path) -> None:
    """The root cgroup that a container sees has its own memory statistics."""
    (tmp_path / "sys/fs/cgroup/memory.current").write_text("4096\n")
    (tmp_path / "sys/fs/cgroup/memory.swap.current").write_text("8192\n")
    memory = v2.stats("/").memory
    assert (memory.usage, memory.swap) == (4096, 8192)


def test_v2_root_of_old_kernels(v2: cgroups.Cgroups, tmp_path: Path) -> None:
    for name in ("cpu.stat", "memory.stat"):
        (tmp_path / "sys/fs/cgroup" / name).unlink()
    stats = v2.stats("/")
    assert (stats.cpu.usage, stats.memory.usage) == (info.CpuUsage(), 0)


def test_v2_without_controllers(v2: cgroups.Cgroups, tmp_path: Path) -> None:
    alone = tmp_path / "sys/fs/cgroup/init.scope"
    alone.mkdir()
    (alone / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\nsystem_usec 2\n")
    (alone / "cgroup.procs").write_text("1\n2\n")
    stats = v2.stats("/init.scope")
    assert stats.cpu.usage.total == 5000
    assert stats.memory == info.MemoryStats()
    assert stats.processes.threads_current == 2, "processes, where nobody counts tasks"


def test_v2_cgroup_that_is_gone(v2: cgroups.Cgroups) -> None:
    assert not v2.exists("/gone")
    assert not v2.spec("/gone").has_cpu
    with pytest.raises(FileNotFoundError):
        v2.stats("/gone")


def test_v2_names(v2: cgroups.Cgroups) -> None:
    names = v2.names()
    assert names[0] == "/"
    assert {POD_V2, APP_V2, BOX_V2} < set(names)
    assert v2.processes(APP_V2) == [25353, 25756]


# The following tests are about both versions.


def test_creation_time(v2: cgroups.Cgroups, tmp_path: Path) -> None:
    directory = tmp_path / "sys/fs/cgroup" / APP_V2[1:]
    made = int(time.time()) - 5
    os.utime(directory / "cgroup.events", (made, made))
    assert v2.spec(APP_V2).creation_time == datetime.fromtimestamp(made, UTC), "not when a child was made"
    os.utime(directory / "cgroup.events", (1, 1))
    assert v2.spec(APP_V2).creation_time == common.boot_time(), "nothing is older than the machine's start"
    assert v2.spec("/gone").creation_time.timestamp() == 0


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("seconds", [2**63 - 1, 253402300800], ids=["latest", "year-10000"])
def test_time_to_come_that_a_container_has_set(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, version: str, seconds: int
) -> None:
    """A creation time in the future is ignored.

    The test replaces `os.stat`, because its file system may refuse such times.
    """
    here: cgroups.Cgroups = request.getfixturevalue(version)
    name = APP_V1 if version == "v1" else APP_V2
    status = SimpleNamespace(st_mtime=float(seconds))
    monkeypatch.setattr(files, "os", SimpleNamespace(stat=lambda path: status))
    spec = here.spec(name)
    assert spec.creation_time.timestamp() == 0, "nobody knows"
    assert spec.memory.limit == 64 << 20, "the rest is told"


def test_time_before_all_others_that_a_container_has_set(v2: cgroups.Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    status = SimpleNamespace(st_mtime=float(-(2**63)))
    monkeypatch.setattr(files, "os", SimpleNamespace(stat=lambda path: status))
    assert v2.spec(APP_V2).creation_time == common.boot_time()


@pytest.mark.parametrize(
    ("text", "number"), [("12\n", 12), ("max\n", cgroups.UNLIMITED), ("-1", 0)], ids=["number", "max", "none"]
)
def test_numbers(text: str, number: int) -> None:
    assert files.parse_number(text) == number


def test_big_files_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("1234567\n" * 20_000)
    assert len(files.read(str(tmp_path), "big")) == 160_000
    assert files.read_or_empty(str(tmp_path), "none") == ""
    assert files.number_or_zero(str(tmp_path), "none") == 0


def test_this_machine() -> None:
    """The cgroups of the machine that runs the test can be read."""
    here = cgroups.new_cgroups()
    assert here.stats("/").cpu.usage.total > 0
    assert "/" in here.names()
