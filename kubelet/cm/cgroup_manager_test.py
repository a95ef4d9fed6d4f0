"""Test the cgroup managers on imitated hierarchies, and one of them on the machine's own."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from pathlib import Path

import pytest

from kubelet import metrics, util
from kubelet.cm import cgroup_common, cgroup_v1_manager, cgroup_v2_manager
from kubelet.cm.cgroup_common import to_systemd
from kubelet.cm.cgroup_manager import CgroupManager, new_cgroup_manager
from kubelet.cm.cgroup_v2_manager import cpu_shares_to_weight
from kubelet.cm.testing import FakeCgroupfs
from kubelet.cm.types import CgroupName, ResourceConfig, cgroup_name
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.golang.testing import frames_kept_after, out_of_files

ROOT = CgroupName(())
POD = cgroup_name(ROOT, "kubepods", "burstable", "pod-6c1a4e95")
DRIVERS = ("cgroupfs", "systemd")
POD_PATHS = {
    "cgroupfs": "kubepods/burstable/pod-6c1a4e95",
    "systemd": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_6c1a4e95.slice",
}


@pytest.mark.parametrize("component", ["a_b", "a/b", "_", "/"])
def test_name_with_a_character_that_drivers_need_is_refused(component: str) -> None:
    with pytest.raises(ValueError, match="invalid character in component"):
        cgroup_name(ROOT, "kubepods", component)


@pytest.mark.parametrize(
    ("name", "systemd"),
    [
        ((), "/"),
        (("system",), "/system.slice"),
        (("system", "Burstable"), "/system.slice/system-Burstable.slice"),
        (("Burstable", "pod-123"), "/Burstable.slice/Burstable-pod_123.slice"),
        (("test", "a", "b"), "/test.slice/test-a.slice/test-a-b.slice"),
        (
            ("BestEffort", "pod-6c1a4e95-6bb6-11e6-bc26-28d2444e470d"),
            "/BestEffort.slice/BestEffort-pod_6c1a4e95_6bb6_11e6_bc26_28d2444e470d.slice",
        ),
    ],
)
def test_names_of_drivers(name: tuple[str, ...], systemd: str, tmp_path: Path) -> None:
    made = cgroup_name(ROOT, *name)
    assert to_systemd(made) == systemd
    assert new_cgroup_manager("systemd", str(tmp_path)).name(made) == systemd
    assert new_cgroup_manager("cgroupfs", str(tmp_path)).name(made) == "/" + "/".join(name)


@pytest.mark.parametrize(
    ("shares", "weight"), [(0, 1), (2, 1), (28, 1), (29, 2), (1024, 39), (102400, 3906), (262144, 10000)]
)
def test_cpu_shares_to_weight(shares: int, weight: int) -> None:
    assert cpu_shares_to_weight(shares) == weight


def test_operations_are_timed(tmp_path: Path) -> None:
    def timed() -> list[float]:
        samples = [sample for family in metrics.CGROUP_MANAGER_DURATION.collect() for sample in family.samples]
        counts = {s.labels["operation_type"]: s.value for s in samples if s.name.endswith("_count")}
        return [counts.get(operation, 0) for operation in ("create", "update", "destroy")]

    before = timed()
    manager = new_cgroup_manager("cgroupfs", str(tmp_path))
    manager.create(POD, ResourceConfig())
    manager.update(POD, ResourceConfig())
    manager.destroy(POD)
    assert [after - count for after, count in zip(timed(), before, strict=True)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("size", "name"), [(2 << 20, "2MB"), (1 << 30, "1GB"), (64 << 10, "64KB"), (512, "512B"), (3 << 29, "1536MB")]
)
def test_page_size_name(size: int, name: str) -> None:
    assert cgroup_common.page_size_name(size) == name


def test_huge_page_sizes(tmp_path: Path) -> None:
    for name in ("hugepages-1048576kB", "hugepages-2048kB", "other"):
        (tmp_path / name).mkdir()
    assert cgroup_common.huge_page_sizes(str(tmp_path)) == [2 << 20, 1 << 30]
    assert cgroup_common.huge_page_sizes(str(tmp_path / "missing")) == []


@pytest.fixture
def v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCgroupfs:
    return FakeCgroupfs(tmp_path, 1, monkeypatch)


@pytest.fixture
def v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCgroupfs:
    return FakeCgroupfs(tmp_path, 2, monkeypatch)


def manager_of(fake: FakeCgroupfs, driver: str = "cgroupfs") -> CgroupManager:
    return new_cgroup_manager(driver, str(fake.root))


FULL = ResourceConfig(
    memory=1 << 20,
    cpu_shares=512,
    cpu_quota=20000,
    cpu_period=50000,
    pids_limit=100,
    huge_page_limit={2 << 20: 4 << 20, 1 << 30: 0},
)


@pytest.mark.parametrize("driver", DRIVERS)
def test_v1_create(v1: FakeCgroupfs, driver: str) -> None:
    manager = manager_of(v1, driver)
    assert not manager.exists(POD)
    manager.create(POD, FULL)
    assert manager.exists(POD)
    where = POD_PATHS[driver]
    assert {
        file: v1.read(f"{file.split('.')[0]}/{where}/{file}")
        for file in (
            "cpu.shares",
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
            "memory.limit_in_bytes",
            "pids.max",
            "hugetlb.2MB.limit_in_bytes",
            "hugetlb.2MB.rsvd.limit_in_bytes",
            "hugetlb.1GB.limit_in_bytes",
            "cpuset.cpus",
            "cpuset.mems",
        )
    } == {
        "cpu.shares": "512",
        "cpu.cfs_period_us": "50000",
        "cpu.cfs_quota_us": "20000",
        "memory.limit_in_bytes": str(1 << 20),
        "pids.max": "100",
        "hugetlb.2MB.limit_in_bytes": str(4 << 20),
        "hugetlb.2MB.rsvd.limit_in_bytes": str(4 << 20),
        "hugetlb.1GB.limit_in_bytes": "0",
        "cpuset.cpus": "0-1",
        "cpuset.mems": "0",
    }


def test_v1_cpuset_that_was_set_stays(v1: FakeCgroupfs) -> None:
    manager = manager_of(v1)
    manager.create(cgroup_name(ROOT, "kubepods"), ResourceConfig())
    v1.write("cpuset/kubepods/cpuset.cpus", "1")
    manager.create(POD, ResourceConfig())
    assert v1.read(f"cpuset/{POD_PATHS['cgroupfs']}/cpuset.cpus") == "1"


def test_v1_what_is_none_is_left_alone(v1: FakeCgroupfs) -> None:
    manager = manager_of(v1)
    manager.create(POD, FULL)
    manager.update(POD, ResourceConfig(cpu_shares=2, memory=0))
    where = POD_PATHS["cgroupfs"]
    assert v1.read(f"cpu/{where}/cpu.shares") == "2"
    assert v1.read(f"cpu/{where}/cpu.cfs_quota_us") == "20000"
    assert v1.read(f"memory/{where}/memory.limit_in_bytes") == str(1 << 20)


@pytest.mark.parametrize(("controller", "exists"), [("cpu", False), ("memory", False), ("devices", True)])
def test_v1_cgroup_must_be_in_the_hierarchies_that_limit_it(v1: FakeCgroupfs, controller: str, exists: bool) -> None:
    manager = manager_of(v1)
    manager.create(POD, ResourceConfig())
    os.rmdir(v1.root / controller / POD_PATHS["cgroupfs"])
    assert manager.exists(POD) == exists


def test_v1_controllers_that_share_a_hierarchy(v1: FakeCgroupfs) -> None:
    os.rmdir(v1.root / "cpuacct")
    (v1.root / "cpuacct").symlink_to("cpu")
    manager = manager_of(v1)
    manager.create(POD, FULL)
    assert manager.exists(POD)
    assert v1.read(f"cpuacct/{POD_PATHS['cgroupfs']}/cpu.shares") == "512"
    manager.destroy(POD)
    assert not manager.exists(POD)


@pytest.mark.parametrize("driver", DRIVERS)
def test_v2_create(v2: FakeCgroupfs, driver: str) -> None:
    manager = manager_of(v2, driver)
    assert not manager.exists(POD)
    manager.create(POD, FULL)
    assert manager.exists(POD)
    where = POD_PATHS[driver]
    files = ("cpu.weight", "cpu.max", "memory.max", "pids.max", "cgroup.controllers")
    assert {file: v2.read(f"{where}/{file}") for file in files} == {
        "cpu.weight": "20",
        "cpu.max": "20000 50000",
        "memory.max": str(1 << 20),
        "pids.max": "100",
        "cgroup.controllers": "cpu memory pids",
    }
    assert v2.read(f"{os.path.dirname(where)}/cgroup.subtree_control") == "+cpu +memory +pids"
    assert v2.read(f"{where}/cgroup.subtree_control") == "", "the runtime enables them for the containers below"


@pytest.mark.parametrize(
    ("config", "file", "text"),
    [
        (ResourceConfig(cpu_quota=-1, cpu_period=100000), "cpu.max", "max 100000"),
        (ResourceConfig(cpu_quota=5000), "cpu.max", "5000"),
        (ResourceConfig(memory=-1), "memory.max", "max"),
        (ResourceConfig(memory=0), "memory.max", str(1 << 20)),
        (ResourceConfig(pids_limit=-1), "pids.max", "max"),
        (ResourceConfig(pids_limit=0), "pids.max", "1"),
        (ResourceConfig(cpu_shares=2), "cpu.weight", "1"),
    ],
)
def test_v2_update(v2: FakeCgroupfs, config: ResourceConfig, file: str, text: str) -> None:
    manager = manager_of(v2)
    manager.create(POD, FULL)
    manager.update(POD, config)
    assert v2.read(f"{POD_PATHS['cgroupfs']}/{file}") == text


LIMITS = ResourceConfig(
    memory=1 << 20,
    cpu_shares=512,
    cpu_quota=20000,
    cpu_period=50000,
    cpuset="0",
    pids_limit=100,
    huge_page_limit={2 << 20: 0},
)
WRITTEN = {
    1: (
        *("cpuset.cpus", "memory.limit_in_bytes", "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "pids.max"),
        *("hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.rsvd.limit_in_bytes"),
    ),
    2: ("pids.max", "memory.max", "cpu.weight", "cpu.max", "cpuset.cpus", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"),
}


@pytest.mark.parametrize(
    ("version", "refused"), [(version, file) for version, files in WRITTEN.items() for file in ("", *files)]
)
def test_limits_are_set_in_the_order_of_go_and_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, refused: str
) -> None:
    """Limits are written in Go's order, and all of them even if the kernel refuses one."""
    fake = FakeCgroupfs(tmp_path, version, monkeypatch)
    manager = manager_of(fake)
    manager.create(POD, ResourceConfig())
    written: list[str] = []

    def write(directory: str, file: str, text: str) -> None:
        written.append(file)
        if file == refused:
            raise OSError(errno.EIO, "refused", file)

    module = cgroup_v1_manager if version == 1 else cgroup_v2_manager
    monkeypatch.setattr(module, "write_setting", write)
    with pytest.raises(OSError, match="refused") if refused else contextlib.nullcontext():
        manager.update(POD, LIMITS)
    # A quota has no meaning without its period.
    left_out = {"cpu.cfs_quota_us"} if refused == "cpu.cfs_period_us" else set()
    assert written == [file for file in WRITTEN[version] if file not in left_out]


def test_cgroup_is_not_missing_when_no_file_can_be_opened(v2: FakeCgroupfs) -> None:
    """A cgroup does not count as missing merely because no file can be opened.

    Otherwise its containers would be restarted in a new cgroup.
    """
    manager = manager_of(v2)
    manager.create(POD, ResourceConfig())
    assert manager.exists(POD)
    with out_of_files(), pytest.raises(OSError, match="Too many open files"):
        manager.exists(POD)


@pytest.mark.parametrize(
    ("version", "step"),
    [(1, "_inherit_cpuset"), (1, "write_setting"), (2, "_enable_controllers"), (2, "write_setting")],
)
def test_cgroup_that_is_half_made_is_made_anew(
    version: int, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partly created cgroup is created again. Otherwise its pod would run without limits."""
    fake = FakeCgroupfs(tmp_path, version, monkeypatch)
    manager, module = manager_of(fake), cgroup_v1_manager if version == 1 else cgroup_v2_manager
    manager.create(CgroupName(POD[:-1]), ResourceConfig())
    real, lacking = getattr(module, step), OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr(module, step, failing_once(real, lacking, "burstable"))
    with pytest.raises(OSError, match="Too many open files"):
        manager.create(POD, FULL)
    assert not manager.exists(POD)
    manager.create(POD, FULL)
    (limit,) = {path / "pids.max" for path in map(Path, manager.paths(POD)) if (path / "pids.max").exists()}
    assert limit.read_text() == "100"


def test_controllers_are_not_left_out_when_no_file_can_be_opened(
    v2: FakeCgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controllers are not left out merely because no file can be opened.

    Otherwise the pod would run without limits, and its next sync would kill its containers.
    """
    manager = manager_of(v2)
    manager.create(CgroupName(POD[:-1]), ResourceConfig())
    real = Path.write_text

    def write_text(path: Path, text: str) -> int:
        if text.startswith("+"):
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return real(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", write_text)
        with pytest.raises(OSError, match="Too many open files"):
            manager.create(POD, FULL)
    assert not manager.exists(POD)
    manager.create(POD, FULL)
    assert v2.read(f"{POD_PATHS['cgroupfs']}/pids.max") == "100"


def test_lack_of_files_counts_more_than_a_refusal() -> None:
    def fail(code: int) -> None:
        raise OSError(code, os.strerror(code))

    def set_all() -> None:
        with cgroup_common.Settings() as setter:
            for code in (errno.EINVAL, errno.EMFILE, errno.EBUSY):
                setter.attempt(fail, code)

    with pytest.raises(OSError, match="Too many open files"):
        set_all()
    assert frames_kept_after(set_all) == []


def test_v2_cgroup_without_a_controller_counts_as_missing(v2: FakeCgroupfs) -> None:
    manager = manager_of(v2)
    manager.create(POD, ResourceConfig())
    v2.write(f"{POD_PATHS['cgroupfs']}/cgroup.controllers", "cpu pids")
    assert not manager.exists(POD)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", DRIVERS)
class TestBothVersions:
    @pytest.fixture
    def fake(self, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCgroupfs:
        return FakeCgroupfs(tmp_path, version, monkeypatch)

    def paths(self, fake: FakeCgroupfs, driver: str) -> list[str]:
        prefixes = ["cpu", "memory"] if fake.version == 1 else [""]
        return [os.path.join(prefix, POD_PATHS[driver]) for prefix in prefixes]

    def test_destroy(self, fake: FakeCgroupfs, driver: str) -> None:
        manager = manager_of(fake, driver)
        before = fake.directories()
        manager.create(POD, FULL)
        for path in self.paths(fake, driver):
            os.makedirs(fake.root / path / "container/below")
        for depth in range(len(POD), 0, -1):
            manager.destroy(CgroupName(POD[:depth]))
        assert fake.directories() == before
        manager.destroy(POD)

    def test_destroy_waits_for_dying_processes(
        self, fake: FakeCgroupfs, driver: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delays: list[float] = []
        monkeypatch.setattr(time, "sleep", delays.append)
        manager = manager_of(fake, driver)
        manager.create(POD, FULL)
        first, *others = [str(fake.root / path) for path in self.paths(fake, driver)]
        fake.busy[first] = 3
        manager.destroy(POD)
        assert delays == [0.01, 0.02, 0.04]
        manager.create(POD, FULL)
        fake.busy[first] = 100
        with pytest.raises(OSError, match="busy"):
            manager.destroy(POD)
        assert not any(os.path.exists(path) for path in others), "the other hierarchies are cleared all the same"

    def test_what_is_gone_cannot_be_limited(self, fake: FakeCgroupfs, driver: str) -> None:
        manager = manager_of(fake, driver)
        manager.create(POD, FULL)
        manager.destroy(POD)
        for config in (ResourceConfig(cpu_shares=2), ResourceConfig(memory=1), ResourceConfig(cpu_quota=5000)):
            with pytest.raises(FileNotFoundError):
                manager.update(POD, config)

    def test_pids(self, fake: FakeCgroupfs, driver: str) -> None:
        manager = manager_of(fake, driver)
        assert manager.pids(POD) == []
        manager.create(POD, FULL)
        assert manager.pids(POD) == []
        for n, path in enumerate(self.paths(fake, driver)):
            os.makedirs(fake.root / path / "container")
            fake.write(f"{path}/cgroup.procs", "12\n")
            fake.write(f"{path}/container/cgroup.procs", f"3\n{100 + n}\n")
        assert manager.pids(POD) == [3, 12, 100, 101][: 4 if fake.version == 1 else 3]

    def test_children(self, fake: FakeCgroupfs, driver: str) -> None:
        manager = manager_of(fake, driver)
        burstable = CgroupName(POD[:-1])
        assert manager.children(burstable) == []
        manager.create(POD, FULL)
        other = cgroup_name(burstable, "podffff")
        manager.create(other, ResourceConfig())
        assert manager.children(burstable) == [POD, other]
        assert manager.children(CgroupName(POD[:1])) == [burstable]
        assert manager.children(POD) == []


def test_on_the_cgroups_of_this_machine() -> None:
    """The manager works on this machine's cgroups, in a cgroup of the test. This test needs root."""
    problem = _missing_on_this_machine()
    assert problem is None, problem
    manager = new_cgroup_manager("cgroupfs")
    top = cgroup_name(ROOT, f"kubelet-test-{os.getpid()}")
    pod = cgroup_name(top, "podabc")
    try:
        manager.create(pod, ResourceConfig(cpu_shares=512, memory=64 << 20, pids_limit=50))
        assert manager.exists(pod)
        assert manager.children(top) == [pod]
        process = subprocess.Popen(["sleep", "100"])
        try:
            for path in manager.paths(pod):
                Path(path, "cgroup.procs").write_text(str(process.pid))
            assert manager.pids(top) == [process.pid]
        finally:
            process.kill()
            # The process deliberately stays a zombie, which no longer keeps its cgroup busy.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        manager.destroy(pod)
        assert not manager.exists(pod)
        process.wait()
    finally:
        manager.destroy(top)
    assert not manager.exists(top)


def _missing_on_this_machine() -> str | None:
    root = util.CGROUP_ROOT
    if os.geteuid() != 0:
        return "this test needs root"
    if not util.is_cgroup2_unified_mode() and not os.path.isdir(os.path.join(root, "cpu")):
        return f"this test needs cgroups, and {root} has neither cgroup.controllers nor the hierarchy cpu"
    return None


def test_cpu_weight_to_cpu_shares() -> None:
    for shares in (2, 29, 1024, 102400, 262144):
        back = cgroup_v2_manager.cpu_weight_to_cpu_shares(cpu_shares_to_weight(shares))
        assert cpu_shares_to_weight(back) == cpu_shares_to_weight(shares)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", DRIVERS)
def test_config_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, driver: str) -> None:
    fake = FakeCgroupfs(tmp_path, version, monkeypatch)
    manager = new_cgroup_manager(driver, str(tmp_path))
    manager.create(POD, ResourceConfig())
    unlimited = manager.get_cgroup_config(POD, "memory").memory
    assert unlimited == (-1 if version == 2 else 9223372036854771712)
    assert manager.get_cgroup_config(POD, "cpu").cpu_quota == -1

    manager.update(POD, ResourceConfig(memory=1 << 20, cpu_shares=1024, cpu_quota=50_000, cpu_period=100_000))
    assert manager.get_cgroup_config(POD, "memory") == ResourceConfig(memory=1 << 20)
    cpu = manager.get_cgroup_config(POD, "cpu")
    assert (cpu.cpu_quota, cpu.cpu_period) == (50_000, 100_000)
    assert cpu.cpu_shares is not None and cpu_shares_to_weight(cpu.cpu_shares) == 39
    with pytest.raises(ValueError, match="unsupported resource pids"):
        manager.get_cgroup_config(POD, "pids")
    gone = cgroup_name(ROOT, "gone")
    for name in ("cpu", "memory"):
        with pytest.raises(FileNotFoundError):
            manager.get_cgroup_config(gone, name)
    below = (
        f"memory/{POD_PATHS[driver]}/memory.usage_in_bytes" if version == 1 else f"{POD_PATHS[driver]}/memory.current"
    )
    fake.write(below, "4096\n")
    assert manager.memory_usage(POD) == 4096
    if version == 2:
        fake.write(f"{POD_PATHS[driver]}/cpu.max", "nonsense")
        with pytest.raises(ValueError, match=r"failed to correctly parse content of cpu\.max"):
            manager.get_cgroup_config(POD, "cpu")
