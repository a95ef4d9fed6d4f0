"""Test the cgroups of pods and of QoS classes on an imitated hierarchy of version 1."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from kubelet import cm
from kubelet.cm import pod_container_manager
from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.pod_container_manager import PodContainerManagerImpl
from kubelet.cm.qos_container_manager import QOSContainerManager
from kubelet.cm.testing import FakeCgroupfs
from kubelet.cm.types import CgroupName, cgroup_name
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1

ROOT = cgroup_name((), "kubepods")
DRIVERS = ("cgroupfs", "systemd")


def pod(uid: str, qos: str = "", cpu: str = "100m") -> v1.Pod:
    amounts = {"cpu": resource.parse_quantity(cpu), "memory": resource.parse_quantity("1Gi")}
    container = v1.Container(name="c")
    if qos in ("guaranteed", "burstable"):
        container.resources.requests = dict(amounts)
    if qos == "guaranteed":
        container.resources.limits = dict(amounts)
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid)), spec=v1.PodSpec(containers=[container]))


class World:
    def __init__(self, fake: FakeCgroupfs, driver: str) -> None:
        self.fake = fake
        self.cgroups = new_cgroup_manager(driver, str(fake.root))
        self.active: list[v1.Pod] = []
        self.qos = QOSContainerManager(ROOT, self.cgroups)
        self.cgroups.create(ROOT, cm.ResourceConfig())
        # The periodic update must not run.
        self.ctx, cancel = golang.with_cancel(golang.background())
        cancel()
        self.qos.start(self.ctx, dict, lambda: self.active)
        self.pods = PodContainerManagerImpl(self.qos.get_qos_containers_info(), self.cgroups, 100, True, 100_000)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCgroupfs:
    monkeypatch.setattr(pod_container_manager, "huge_page_sizes", lambda: [2 << 20])
    return FakeCgroupfs(tmp_path, 1, monkeypatch)


@pytest.fixture(params=DRIVERS)
def world(fake: FakeCgroupfs, request: pytest.FixtureRequest) -> World:
    return World(fake, request.param)


@pytest.mark.parametrize(
    ("qos", "driver", "name", "literal"),
    [
        ("guaranteed", "cgroupfs", ("podu-1",), "/kubepods/podu-1"),
        ("guaranteed", "systemd", ("podu-1",), "/kubepods.slice/kubepods-podu_1.slice"),
        ("burstable", "cgroupfs", ("burstable", "podu-1"), "/kubepods/burstable/podu-1"),
        (
            "burstable",
            "systemd",
            ("burstable", "podu-1"),
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
        ),
        ("besteffort", "cgroupfs", ("besteffort", "podu-1"), "/kubepods/besteffort/podu-1"),
        (
            "besteffort",
            "systemd",
            ("besteffort", "podu-1"),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
        ),
    ],
)
def test_pod_container_name(fake: FakeCgroupfs, qos: str, driver: str, name: tuple[str, ...], literal: str) -> None:
    found = World(fake, driver).pods.get_pod_container_name(pod("u-1", qos))
    assert found == (CgroupName((*ROOT, *name)), literal)


def test_pod_cgroup_lives(world: World) -> None:
    made = pod("u-1", "guaranteed")
    assert not world.pods.exists(made)
    world.pods.ensure_exists(made)
    assert world.pods.exists(made)
    name, literal = world.pods.get_pod_container_name(made)
    assert world.fake.read(f"cpu{literal}/cpu.cfs_quota_us") == "10000"
    assert world.fake.read(f"memory{literal}/memory.limit_in_bytes") == str(1 << 30)
    assert world.fake.read(f"pids{literal}/pids.max") == "100"
    assert world.fake.read(f"hugetlb{literal}/hugetlb.2MB.limit_in_bytes") == "0", "it asked for none"
    world.pods.reduce_cpu_limits(name)
    assert world.fake.read(f"cpu{literal}/cpu.shares") == "2"
    world.pods.destroy(name)
    assert not world.pods.exists(made)
    world.pods.destroy(name)


def test_pod_that_is_resized_keeps_its_huge_pages(world: World) -> None:
    made = pod("u-1", "guaranteed")
    resources = made.spec.containers[0].resources
    for amounts in (resources.requests, resources.limits):
        amounts["hugepages-2Mi"] = resource.parse_quantity("4Mi")
    world.pods.ensure_exists(made)
    world.pods.set_pod_cgroup_config(made, cm.ResourceConfig(cpu_shares=7))
    _, literal = world.pods.get_pod_container_name(made)
    assert world.fake.read(f"cpu{literal}/cpu.shares") == "7"
    assert world.fake.read(f"hugetlb{literal}/hugetlb.2MB.limit_in_bytes") == str(4 << 20)


def test_cgroup_that_exists_is_left_alone(world: World) -> None:
    made = pod("u-1", "guaranteed")
    world.pods.ensure_exists(made)
    _, literal = world.pods.get_pod_container_name(made)
    world.fake.write(f"cpu{literal}/cpu.shares", "7")
    world.pods.ensure_exists(made)
    assert world.fake.read(f"cpu{literal}/cpu.shares") == "7"


def test_destroy_kills_what_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        if pid == 11:
            raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    made = pod("u-1")
    world.pods.ensure_exists(made)
    name, literal = world.pods.get_pod_container_name(made)
    world.fake.write(f"memory{literal}/cgroup.procs", "11\n12\n")
    world.pods.destroy(name)
    assert killed == [(11, signal.SIGKILL), (12, signal.SIGKILL)]
    assert not world.pods.exists(made)


def test_destroy_kills_no_process_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another PID namespace is not killed.

    The kernel lists such a process as 0, and kill(0) would kill the kubelet's own process group.
    """
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    made = pod("u-1")
    world.pods.ensure_exists(made)
    name, literal = world.pods.get_pod_container_name(made)
    world.fake.write(f"memory{literal}/cgroup.procs", "0\n12\n")
    with pytest.raises(OSError, match=r'failed to kill all the processes attached to the .*"podu-1".*process 0'):
        world.pods.destroy(name)
    assert killed == [12]


def test_destroy_kills_the_other_processes_when_one_may_not_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []

    def kill(pid: int, number: int) -> None:
        killed.append(pid)
        if pid == 11:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill)
    made = pod("u-1")
    world.pods.ensure_exists(made)
    name, literal = world.pods.get_pod_container_name(made)
    world.fake.write(f"memory{literal}/cgroup.procs", "11\n12\n")
    with pytest.raises(OSError, match="Operation not permitted"):
        world.pods.destroy(name)
    assert killed == [11, 12]


def test_is_pod_cgroup(world: World) -> None:
    for qos in ("guaranteed", "burstable", ""):
        _, literal = world.pods.get_pod_container_name(pod("1234-5", qos))
        assert world.pods.is_pod_cgroup(literal) == "1234-5"
        assert world.pods.is_pod_cgroup(f"{literal}/id") is None
    for other in ("/", "/system.slice", "/kubepods/burstable", "/kubepods.slice", "/elsewhere/pod1234"):
        assert world.pods.is_pod_cgroup(other) is None


def test_all_pods_from_cgroups(world: World) -> None:
    assert world.pods.get_all_pods_from_cgroups() == {}
    uids = {"guaranteed": "6c1a4e95-6bb6", "burstable": "0123abc", "besteffort": "my-own-pod-uid"}
    for qos, uid in uids.items():
        world.pods.ensure_exists(pod(uid, qos))
    info = world.qos.get_qos_containers_info()
    for stranger in ("other", "pod"):
        world.cgroups.create(cgroup_name(info.burstable, stranger), cm.ResourceConfig())
    assert world.pods.get_all_pods_from_cgroups() == {
        uid: world.pods.get_pod_container_name(pod(uid, qos))[0] for qos, uid in uids.items()
    }


def test_pod_that_is_left_in_one_hierarchy_is_found(world: World) -> None:
    made = pod("u-1")
    world.pods.ensure_exists(made)
    name, literal = world.pods.get_pod_container_name(made)
    for controller in ("cpu", "memory", "pids", "cpuset"):
        os.rmdir(str(world.fake.root / controller) + literal)
    assert world.pods.get_all_pods_from_cgroups() == {"u-1": name}


def test_shares_of_the_classes(world: World) -> None:
    info = world.qos.get_qos_containers_info()

    def shares(name: CgroupName) -> str:
        return world.fake.read(f"cpu{world.cgroups.name(name)}/cpu.shares")

    assert (shares(info.burstable), shares(info.best_effort)) == ("2", "2")
    world.active = [pod("1", "burstable"), pod("2", "burstable", "1500m"), pod("3", "guaranteed"), pod("4")]
    world.qos.update_cgroups()
    assert (shares(info.burstable), shares(info.best_effort)) == ("1638", "2")
    assert shares(info.guaranteed) == "1024", "the pods as a whole are not limited"
    world.active = []
    world.qos.update_cgroups()
    assert shares(info.burstable) == "2"


def test_start_mends_what_an_earlier_kubelet_left(world: World) -> None:
    info = world.qos.get_qos_containers_info()
    where = {name: f"cpu{world.cgroups.name(name)}/cpu.shares" for name in (info.burstable, info.best_effort)}
    for path in where.values():
        world.fake.write(path, "1024")
    world.qos.start(world.ctx, dict, list)
    assert world.fake.read(where[info.best_effort]) == "2"
    assert world.fake.read(where[info.burstable]) == "1024", "its pods still run, though none is known yet"


def test_without_cgroups_all_pods_stand_at_the_root() -> None:
    noop = cm.PodContainerManagerNoop(cgroup_name((), "a", "b"))
    assert noop.get_pod_container_name(pod("u")) == (("a", "b"), "/a/b")
    assert noop.exists(pod("u"))
    assert noop.get_all_pods_from_cgroups() == {}
    assert cm.PodContainerManagerNoop(CgroupName(())).get_pod_container_name(pod("u"))[1] == ""
