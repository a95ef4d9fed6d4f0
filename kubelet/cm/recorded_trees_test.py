"""Test that this kubelet can use the cgroups of a Go kubelet on another machine, and would write the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubelet.cadvisor.testing import unpack_tree
from kubelet.cm.cgroup_manager import CgroupManager, new_cgroup_manager
from kubelet.cm.cgroup_v2_manager import cpu_shares_to_weight, cpu_weight_to_cpu_shares
from kubelet.cm.helpers import milli_cpu_to_quota, milli_cpu_to_shares, resource_config_for_pod
from kubelet.cm.pod_container_manager import PodContainerManagerImpl
from kubelet.cm.testing import FakeSystemd
from kubelet.cm.types import CgroupName, QOSContainersInfo, cgroup_name
from pkg.api.core import v1
from pkg.apimachinery.runtime import codec

TESTDATA = Path(__file__).with_name("testdata")
KUBEPODS = CgroupName(("kubepods",))
QOS = QOSContainersInfo(KUBEPODS, cgroup_name(KUBEPODS, "burstable"), cgroup_name(KUBEPODS, "besteffort"))
PERIOD = 100_000


def read_pods() -> dict[str, v1.Pod]:
    """Return the recorded pods by name."""
    items = json.loads((TESTDATA / "v2_systemd_pods.json").read_text())
    return {each["metadata"]["name"]: codec.convert(each, v1.Pod) for each in items}


PODS = read_pods()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    unpack_tree(str(TESTDATA / "v2_systemd.tree"), tmp_path)
    return tmp_path / "sys/fs/cgroup"


@pytest.fixture
def systemd() -> FakeSystemd:
    return FakeSystemd()


@pytest.fixture
def manager(root: Path, systemd: FakeSystemd) -> CgroupManager:
    return new_cgroup_manager("systemd", str(root), systemd=systemd)


@pytest.fixture
def pods(manager: CgroupManager) -> PodContainerManagerImpl:
    return PodContainerManagerImpl(QOS, manager, 512, True, PERIOD)


def files_of(directory: Path) -> dict[str, str]:
    """Return the files that a kubelet writes, with their content."""
    names = ("cpu.weight", "cpu.max", "memory.max", "pids.max")
    return {name: (directory / name).read_text().strip() for name in names if (directory / name).exists()}


def test_hierarchy_is_whole(manager: CgroupManager) -> None:
    assert manager.version() == 2
    for name in (KUBEPODS, QOS.burstable, QOS.best_effort):
        manager.validate(name)


def test_controller_that_is_not_passed_on_is_named(root: Path, manager: CgroupManager) -> None:
    (root / "kubepods.slice/cgroup.controllers").write_text("cpuset cpu io pids hugetlb\n")
    assert not manager.exists(KUBEPODS)
    with pytest.raises(ValueError, match="missing controllers: memory"):
        manager.validate(KUBEPODS)


def test_pods_are_found_by_their_slices(pods: PodContainerManagerImpl) -> None:
    assert set(pods.get_all_pods_from_cgroups()) == {pod.metadata.uid for pod in PODS.values()}


@pytest.mark.parametrize("name", PODS)
def test_pod_has_its_cgroup(pods: PodContainerManagerImpl, manager: CgroupManager, root: Path, name: str) -> None:
    pod = PODS[name]
    cgroup, path = pods.get_pod_container_name(pod)
    assert pods.exists(pod)
    assert pods.is_pod_cgroup(path) == pod.metadata.uid
    # The processes are in the scopes below, which the runtime created.
    inside = {int(line) for file in (root / path[1:]).rglob("cgroup.procs") for line in file.read_text().split()}
    assert inside
    assert set(manager.pids(cgroup)) == inside


@pytest.mark.parametrize("name", PODS)
def test_limits_read_as_they_were_asked_for(pods: PodContainerManagerImpl, name: str) -> None:
    pod = PODS[name]
    wanted = resource_config_for_pod(pod, True, PERIOD)
    cpu = pods.get_pod_cgroup_config(pod, v1.RESOURCE_CPU)
    memory = pods.get_pod_cgroup_config(pod, v1.RESOURCE_MEMORY)
    assert cpu is not None and cpu.cpu_shares is not None and wanted.cpu_shares is not None
    assert cpu_shares_to_weight(cpu.cpu_shares) == cpu_shares_to_weight(wanted.cpu_shares)
    assert (cpu.cpu_quota, cpu.cpu_period) == (wanted.cpu_quota or -1, PERIOD)
    assert memory is not None and memory.memory == (wanted.memory or -1)


@pytest.mark.parametrize("name", PODS)
def test_setting_the_limits_again_changes_nothing(
    pods: PodContainerManagerImpl, systemd: FakeSystemd, root: Path, name: str
) -> None:
    pod = PODS[name]
    _, path = pods.get_pod_container_name(pod)
    before = files_of(root / path[1:])
    systemd.slices[path.rpartition("/")[2]] = {}
    config = resource_config_for_pod(pod, True, PERIOD)
    config.pids_limit = 512
    pods.set_pod_cgroup_config(pod, config)
    assert files_of(root / path[1:]) == before


def test_systemd_is_asked_for_what_a_go_kubelet_asked(systemd: FakeSystemd, manager: CgroupManager) -> None:
    """The kubelet sends systemd the same properties of the pods' slices as the Go kubelet."""
    recorded: dict[str, dict[str, Any]] = json.loads((TESTDATA / "v2_systemd_calls.json").read_text())
    maker = PodContainerManagerImpl(QOS, manager, 512, True, PERIOD)
    for pod in PODS.values():
        config = resource_config_for_pod(pod, True, PERIOD)
        config.pids_limit = 512
        manager.create(maker.get_pod_container_name(pod)[0], config)
    assert systemd.slices == recorded


@pytest.mark.parametrize(
    ("milli_cpu", "weight"),
    [
        # The node has four cores, half a core reserved, pods of one and two cores, and besteffort pods.
        (3500, 137),
        (2000, 79),
        (1000, 39),
        (0, 1),
        # The node has two shared cores and leaves 940m to pods.
        (940, 37),
    ],
)
def test_weights_seen_on_public_nodes(milli_cpu: int, weight: int) -> None:
    shares = milli_cpu_to_shares(milli_cpu)
    assert cpu_shares_to_weight(shares) == weight
    assert cpu_shares_to_weight(cpu_weight_to_cpu_shares(weight)) == weight


def test_quota_seen_on_a_public_node() -> None:
    assert milli_cpu_to_quota(2000, PERIOD) == 200_000
