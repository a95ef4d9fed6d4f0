"""Test which mounted hierarchies are found, with recordings of real machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.cadvisor.testing import unpack_tree
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.pod_container_manager import PodContainerManagerImpl
from kubelet.cm.subsystems import CgroupSubsystems, get_cgroup_subsystems, validate_system_requirements
from kubelet.cm.types import CgroupName, QOSContainersInfo
from pkg.apimachinery import types

MOUNTS = Path(__file__).parent / "testdata/mounts"
ROOT = "/sys/fs/cgroup"


def recorded(machine: str) -> CgroupSubsystems:
    return get_cgroup_subsystems(ROOT, str(MOUNTS / f"{machine}.txt"))


def test_machine_with_both_versions() -> None:
    found = recorded("ubuntu_hybrid")
    for controller in ("cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "systemd"):
        assert found.mount_points[controller] == f"{ROOT}/{controller}"
    together = f"{ROOT}/cpu,cpuacct"
    assert (found.mount_points["cpu"], found.mount_points["cpuacct"]) == (together, together)
    assert found.read_only == set(), "that on which they are mounted does not count"
    paths = new_cgroup_manager("cgroupfs", "/nonexistent", found).paths(CgroupName(("kubepods",)))
    assert f"{together}/kubepods" in paths and len(paths) == len(set(paths)), "no hierarchy twice"
    for left_by_runtimes in ("unified", "perf_event", "rdma", "net_cls,net_prio"):
        assert f"{ROOT}/{left_by_runtimes}/kubepods" in paths


def test_hierarchy_that_limits_nothing_may_be_read_only(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    text = (MOUNTS / "ubuntu_hybrid.txt").read_text()
    for name in ("unified", "perf_event"):
        text = text.replace(f"{ROOT}/{name} rw,", f"{ROOT}/{name} ro,")
    mounts.write_text(text)
    found = get_cgroup_subsystems(ROOT, str(mounts))
    assert found.read_only == {f"{ROOT}/unified", f"{ROOT}/perf_event"}
    paths = new_cgroup_manager("cgroupfs", "/nonexistent", found).paths(CgroupName(("kubepods",)))
    assert f"{ROOT}/rdma/kubepods" in paths
    assert not {f"{ROOT}/unified/kubepods", f"{ROOT}/perf_event/kubepods"} & set(paths)


def test_machine_with_version_2_alone() -> None:
    found = recorded("fedora_unified")
    assert found.mount_points == {} and found.read_only == set()


def test_container_cannot_be_a_node(tmp_path: Path) -> None:
    found = recorded("docker_container")
    assert len(found.read_only) == 12
    with pytest.raises(ValueError) as caught:
        validate_system_requirements(found, str(tmp_path))
    assert f"mounted read-only: [{ROOT}/cpu,cpuacct {ROOT}/cpuset {ROOT}/hugetlb {ROOT}/memory {ROOT}/pids]" in str(
        caught.value
    )


def test_of_several_mounts_the_shortest_path_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    again = "60 35 0:43 / /sys/fs/cgroup/other/memory rw - cgroup cgroup rw,memory\n"
    elsewhere = "61 35 0:43 / /mnt/memory rw - cgroup cgroup rw,memory\n"
    mounts.write_text(again + elsewhere + (MOUNTS / "ubuntu_hybrid.txt").read_text())
    assert get_cgroup_subsystems(ROOT, str(mounts)).mount_points["memory"] == f"{ROOT}/memory"


def test_pods_of_a_machine_with_version_2_and_systemd(tmp_path: Path) -> None:
    root = Path(unpack_tree("v2.tree", tmp_path)) / "sys/fs/cgroup"
    cgroups = new_cgroup_manager("systemd", str(root))
    top = CgroupName(("kubepods",))
    qos = QOSContainersInfo(top, CgroupName((*top, "burstable")), CgroupName((*top, "besteffort")))
    pods = PodContainerManagerImpl(qos, cgroups, -1, True, 100_000)
    uid = "8b6c6f3e-5a3d-4f0a-9d5e-0d3c2b1a4e5f"
    found = pods.get_all_pods_from_cgroups()
    assert found[types.UID(uid)] == ("kubepods", "burstable", f"pod{uid}")
    slices = "/kubepods.slice/kubepods-burstable.slice"
    assert pods.is_pod_cgroup(f"{slices}/kubepods-burstable-pod{uid.replace('-', '_')}.slice") == uid
    assert pods.is_pod_cgroup(slices) is None
    cpu = cgroups.get_cgroup_config(found[types.UID(uid)], "cpu")
    assert cpu.cpu_shares is not None and cpu.cpu_period == 100_000
    assert cgroups.memory_usage(found[types.UID(uid)]) > 0
