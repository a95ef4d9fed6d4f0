"""Tests of the container manager of a Linux node, and of the one that does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor, cm, config
from kubelet.cm import container_manager_linux
from kubelet.cm.cgroup_manager import CgroupManager, new_cgroup_manager
from kubelet.cm.testing import FakeCgroupfs
from kubelet.cri.testing import FakeRuntimeService
from kubelet.status.testing import FakePodStatusProvider
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import record

POD = v1.Pod(metadata=metav1.ObjectMeta(uid="u"), spec=v1.PodSpec(containers=[v1.Container(name="c")]))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCgroupfs:
    def make(driver: str) -> CgroupManager:
        return new_cgroup_manager(driver, str(tmp_path))

    monkeypatch.setattr(container_manager_linux, "new_cgroup_manager", make)
    return FakeCgroupfs(tmp_path, 1, monkeypatch)


def manager_with(**config: Any) -> cm.ContainerManagerImpl:
    return cm.ContainerManagerImpl(None, cadvisor.Cadvisor(), cm.NodeConfig(**config), record.FakeRecorder(10), None)


def start(manager: cm.ContainerManager) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    sources, status, runtime = config.SourcesImpl(lambda seen: True), FakePodStatusProvider(), FakeRuntimeService()
    try:
        manager.start(ctx, v1.Node(), list, lambda ctx: v1.Node(), sources, status, runtime, True)
    finally:
        cancel()


def test_start_lays_out_the_cgroups(fake: FakeCgroupfs) -> None:
    manager = manager_with(cgroup_root="/a/b")
    start(manager)
    found = [path for path in fake.directories() if path.startswith("cpu/")]
    below = ("", "/burstable", "/besteffort")
    assert set(found) >= {f"cpu/a/b/kubepods{name}" for name in below}
    assert manager.get_pod_cgroup_root() == "/a/b/kubepods"
    start(manager)


def test_pod_cgroups_follow_the_configuration(fake: FakeCgroupfs) -> None:
    manager = manager_with(cgroup_driver="systemd", pod_pids_limit=33, cpu_cfs_quota_period=0.05)
    start(manager)
    pods = manager.new_pod_container_manager()
    pods.ensure_exists(POD)
    _, literal = pods.get_pod_container_name(POD)
    assert literal == "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice"
    assert fake.read(f"pids{literal}/pids.max") == "33"
    guaranteed = v1.deepcopy(POD)
    amounts = {"cpu": resource.parse_quantity("1"), "memory": resource.parse_quantity("1Mi")}
    guaranteed.spec.containers[0].resources = v1.ResourceRequirements(requests=amounts, limits=amounts)
    pods.ensure_exists(guaranteed)
    _, literal = pods.get_pod_container_name(guaranteed)
    assert fake.read(f"cpu{literal}/cpu.cfs_period_us") == "50000"
    assert fake.read(f"cpu{literal}/cpu.cfs_quota_us") == "50000"


def test_without_cgroups_per_qos_nothing_is_made(fake: FakeCgroupfs) -> None:
    manager = manager_with(cgroups_per_qos=False, cgroup_root="/")
    before = fake.directories()
    start(manager)
    manager.update_qos_cgroups()
    assert fake.directories() == before
    assert isinstance(manager.new_pod_container_manager(), cm.PodContainerManagerNoop)


def test_reservations_are_added_up(fake: FakeCgroupfs) -> None:
    manager = manager_with(
        kube_reserved={"cpu": resource.parse_quantity("100m")},
        system_reserved={"cpu": resource.parse_quantity("200m"), "memory": resource.parse_quantity("1Gi")},
    )
    found = manager.get_node_allocatable_reservation()
    assert {name: str(quantity) for name, quantity in found.items()} == {"cpu": "300m", "memory": "1Gi"}


def test_resources_are_the_callers_own(fake: FakeCgroupfs) -> None:
    for manager in (manager_with(), cm.ContainerManagerStub()):
        ctx, container = golang.background(), v1.Container()
        first = manager.get_resources(ctx, POD, container)
        assert first is not manager.get_resources(ctx, POD, container)


def test_stub() -> None:
    stub: cm.ContainerManager = cm.ContainerManagerStub()
    start(stub)
    assert not stub.get_node_config().cgroups_per_qos
    assert stub.new_pod_container_manager().get_pod_container_name(POD) == ((), "")
    assert stub.get_node_allocatable_reservation() == {}
    assert stub.updates().try_recv()[2] is False
