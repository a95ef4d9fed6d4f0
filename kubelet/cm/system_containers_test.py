"""Test the cgroups for processes outside pods, with files in place of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubelet.cm.cgroup_manager import new_cgroup_manager
from kubelet.cm.system_containers import (
    ensure_process_in_container_with_oom_score,
    ensure_system_cgroups,
    is_process_running_in_host,
    new_kubelet_cgroups,
    new_system_cgroups,
)
from kubelet.cm.testing import FakeCgroupfs
from kubelet.cm.types import CgroupName


class World:
    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "cgroup").mkdir()
        self.fake = FakeCgroupfs(root / "cgroup", version, monkeypatch)
        self.cgroups = new_cgroup_manager("cgroupfs", str(self.fake.root))
        self.proc = root / "proc"
        self.process(1)

    def process(self, pid: int, namespace: str = "pid:[1]", cgroup: str = "/", kernel: bool = False) -> None:
        directory = self.proc / str(pid)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/pid").symlink_to(namespace)
        (directory / "oom_score_adj").write_text("0")
        lines = f"0::{cgroup}\n" if self.fake.version == 2 else f"2:cpu:{cgroup}\n1:memory:{cgroup}\n"
        (directory / "cgroup").write_text(lines)
        if not kernel:
            (directory / "exe").symlink_to("/bin/true")

    def ensure(self, pid: int, name: str | None) -> None:
        ensure_process_in_container_with_oom_score(pid, -999, name, self.cgroups, str(self.fake.root), str(self.proc))

    def members(self, name: str) -> set[str]:
        """Return the members of the cgroup in all hierarchies. The set has one element if all agree."""
        cgroups = CgroupName(tuple(name.strip("/").split("/")))
        return {Path(path, "cgroup.procs").read_text() for path in self.cgroups.paths(cgroups)}


@pytest.fixture(params=[1, 2])
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, request.param, monkeypatch)


def test_process_is_moved_and_spared(world: World) -> None:
    world.process(7, cgroup="/elsewhere")
    world.ensure(7, "/kubelet.slice/own")
    assert world.members("/kubelet.slice/own") == {"7"}
    assert (world.proc / "7/oom_score_adj").read_text() == "-999"


def test_process_that_is_there_stays(world: World) -> None:
    world.process(7, cgroup="/own")
    world.ensure(7, "own")
    assert not (world.fake.root / "own").exists()
    assert (world.proc / "7/oom_score_adj").read_text() == "-999"


def test_process_of_a_container_is_left_alone(world: World) -> None:
    world.process(7, namespace="pid:[2]")
    world.ensure(7, "/own")
    assert (world.proc / "7/oom_score_adj").read_text() == "0"


def test_who_may_not_look_at_the_first_process_knows_the_hosts_namespace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    readlink = os.readlink

    def refuse(path: str) -> str:
        if path.endswith("/1/ns/pid"):
            raise PermissionError(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", refuse)
    world.process(7, namespace="pid:[4026531836]")
    world.process(8, namespace="pid:[4026532000]")
    assert is_process_running_in_host(7, str(world.proc))
    assert not is_process_running_in_host(8, str(world.proc))


def test_a_process_that_may_not_be_spared_is_moved_all_the_same(world: World) -> None:
    world.process(7)
    (world.proc / "7/oom_score_adj").unlink()
    with pytest.raises(OSError, match="failed to apply oom score -999 to PID 7"):
        world.ensure(7, "/own")
    assert world.members("/own") == {"7"}


def test_processes_without_a_cgroup_are_moved_but_not_the_kernels(world: World) -> None:
    for pid, kernel in ((2, True), (3, False), (4, False)):
        world.process(pid, kernel=kernel)
    top = Path(world.cgroups.paths(CgroupName(()))[0], "cgroup.procs")
    top.write_text("1\n2\n3\n4\n")
    moved: list[int] = []

    def attach(name: CgroupName, pid: int) -> None:
        moved.append(pid)
        left = [line for line in top.read_text().split() if line != str(pid)]
        top.write_text("\n".join(left))

    world.cgroups.attach = attach  # type: ignore[method-assign]
    ensure_system_cgroups(CgroupName(("system",)), world.cgroups, str(world.proc))
    assert moved == [3, 4]


def test_processes_that_cannot_be_moved_are_told(world: World) -> None:
    world.process(3)
    Path(world.cgroups.paths(CgroupName(()))[0], "cgroup.procs").write_text("3\n")

    def attach(name: CgroupName, pid: int) -> None:
        raise PermissionError("not yours")

    world.cgroups.attach = attach  # type: ignore[method-assign]
    with pytest.raises(OSError, match='failed to move PID 3 into the system container "/system": not yours'):
        ensure_system_cgroups(CgroupName(("system",)), world.cgroups, str(world.proc))


def test_the_root_is_no_system_container(world: World) -> None:
    with pytest.raises(ValueError, match="system container cannot be root"):
        new_system_cgroups("/", world.cgroups)
    assert new_kubelet_cgroups("/kubelet", -999, world.cgroups).name == "/kubelet"
