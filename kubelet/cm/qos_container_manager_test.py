"""Test the settings of the QoS classes' cgroups apart from CPU shares."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kubelet.cm import qos_container_manager
from kubelet.cm.cgroup_manager import CgroupManager, new_cgroup_manager
from kubelet.cm.helpers import TIERED_RESERVATION
from kubelet.cm.qos_container_manager import QOSContainerManager
from kubelet.cm.testing import FakeCgroupfs
from kubelet.cm.types import CgroupName, ResourceConfig, cgroup_name
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

ROOT = cgroup_name((), "kubepods")
GI = 1 << 30


def pod(name: str, memory: str, guaranteed: bool) -> v1.Pod:
    amounts = {"cpu": resource.parse_quantity("100m"), "memory": resource.parse_quantity(memory)}
    requirements = v1.ResourceRequirements(requests=amounts, limits=amounts if guaranteed else {})
    container = v1.Container(name="c", resources=requirements)
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(name)), spec=v1.PodSpec(containers=[container]))


PODS = [
    pod("g1", "128Mi", True),
    pod("g2", "256Mi", True),
    pod("b1", "1Gi", False),
    pod("b2", "64Mi", False),
    v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="c")])),
]


class World:
    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch, **settings: object) -> None:
        monkeypatch.setattr(qos_container_manager, "huge_page_sizes", lambda: [2 << 20])
        self.fake = FakeCgroupfs(root, version, monkeypatch)
        self.cgroups: CgroupManager = new_cgroup_manager("cgroupfs", str(root))
        self.cgroups.create(ROOT, ResourceConfig())
        self.manager = QOSContainerManager(ROOT, self.cgroups, **settings)  # type: ignore[arg-type]
        # The periodic update must not run.
        self.ctx, cancel = golang.with_cancel(golang.background())
        cancel()

    def start(self, pods: list[v1.Pod], memory: int = 4 * GI) -> None:
        self.manager.start(self.ctx, lambda: {"memory": resource.new_quantity(memory)}, lambda: pods)

    def read(self, controller: str, path: str, file: str) -> str:
        prefix = f"{controller}/" if self.fake.version == 1 else ""
        return self.fake.read(f"{prefix}kubepods/{path}/{file}")


def test_the_root_must_be_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCgroupfs(tmp_path, 1, monkeypatch)
    manager = QOSContainerManager(ROOT, new_cgroup_manager("cgroupfs", str(tmp_path)))
    with pytest.raises(ValueError, match=r"error validating root container \['kubepods'\] : cgroup .* has some m"):
        manager.start(golang.background(), dict, list)


def test_classes_do_not_limit_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, 1, monkeypatch)
    world.start(PODS)
    for path in (".", "burstable", "besteffort"):
        for kind in ("", ".rsvd"):
            assert world.read("hugetlb", path, f"hugetlb.2MB{kind}.limit_in_bytes") == str(1 << 62)


@pytest.mark.parametrize(
    ("gate", "percent", "burstable", "best_effort"),
    [
        (True, 0, 4 * GI, 4 * GI),
        (True, 100, 4 * GI - (384 << 20), 4 * GI - (384 << 20) - (1088 << 20)),
        (True, 50, 4 * GI - (192 << 20), 4 * GI - (192 << 20) - (544 << 20)),
        (False, 100, 9223372036854771712, 9223372036854771712),
    ],
)
def test_memory_that_higher_classes_asked_for_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: bool, percent: int, burstable: int, best_effort: int
) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.QOS_RESERVED, gate):
        world = World(tmp_path, 1, monkeypatch, qos_reserved={"memory": percent})
        world.start(PODS)
        assert int(world.read("memory", "burstable", "memory.limit_in_bytes")) == burstable
        assert int(world.read("memory", "besteffort", "memory.limit_in_bytes")) == best_effort


def test_class_that_uses_more_than_its_limit_is_held_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.QOS_RESERVED, True):
        world = World(tmp_path, 1, monkeypatch, qos_reserved={"memory": 100})
        world.start([])
        for path, usage in ((".", 4 * GI), ("burstable", GI), ("besteffort", 3 * GI)):
            world.fake.write(f"memory/kubepods/{path}/memory.usage_in_bytes", str(usage))
        real, refused = world.cgroups.update, []

        def update(name: CgroupName, config: ResourceConfig) -> None:
            """Refuse a limit below the usage, as the kernel does."""
            if name[-1] == "besteffort" and config.memory is not None and config.memory < 3 * GI:
                refused.append(config.memory)
                raise OSError(errno.EBUSY, "busy")
            real(name, config)

        monkeypatch.setattr(world.cgroups, "update", update)
        world.manager._active_pods = lambda: PODS
        world.manager.update_cgroups()
        assert refused, "the first try was in vain"
        assert world.read("memory", "besteffort", "memory.limit_in_bytes") == str(3 * GI)


@pytest.mark.parametrize(
    ("policy", "minimum", "low"), [(TIERED_RESERVATION, (384 + 1088) << 20, 1088 << 20), ("None", 0, 0)]
)
def test_memory_that_pods_asked_for_is_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, minimum: int, low: int
) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.MEMORY_QOS, True):
        world = World(tmp_path, 2, monkeypatch, memory_reservation_policy=policy)
        world.start(PODS)
        assert world.read("memory", ".", "memory.min") == str(minimum)
        assert world.read("memory", "burstable", "memory.low") == str(low)
