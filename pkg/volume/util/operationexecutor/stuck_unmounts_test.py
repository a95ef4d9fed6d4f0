"""Test unmounts that processes block, with real mounts and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failures
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.golang.testing import out_of_threads
from pkg.util import mountholders, removeall
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.util.operationexecutor import AttachedVolume, MountedVolume, StuckUnmounts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

WAIT = 30.0
SPEC = Spec(volume=v1.Volume(name="data"))
POD = v1.Pod(metadata=metav1.ObjectMeta(name="p", namespace="ns", uid=types.UID("u")))


class World:
    """Hold a mounted volume of a pod, and a process that may hold it."""

    def __init__(self, root: Path) -> None:
        self.pods = root / "pods"
        self.path = self.pods / "u/volumes/kubernetes.io~empty-dir/data"
        self.path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.path], check=True)
        self.recorder = FakeRecorder(10)
        node_ref = v1.ObjectReference(api_version="v1", kind="Node", name="node")
        self.pod: v1.Pod | None = POD
        self.stuck = StuckUnmounts(self.recorder, node_ref, lambda uid: self.pod)
        self.retried: golang.Channel[str] = golang.Channel(10)
        self.volume = MountedVolume("u", "plugin/u-data", "data", "kubernetes.io/empty-dir", types.UID("u"), SPEC)
        self.holders: list[subprocess.Popen[str]] = []

    def hold(self) -> subprocess.Popen[str]:
        program = "import sys; print(flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", program]
        holder = subprocess.Popen(command, cwd=self.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None and holder.stdout.readline() == "\n"
        self.holders.append(holder)
        return holder

    def unmount(self, err: Exception | None, volume: MountedVolume | AttachedVolume | None = None) -> None:
        """Simulate an unmount with this result, and investigate it."""
        self.attempt(err, volume)
        self.stuck.investigate(lambda name: self.retried.send(name))

    def attempt(self, err: Exception | None, volume: MountedVolume | AttachedVolume | None = None) -> None:
        context = volumetypes.OperationContext(detailed_err=err)
        operations = volumetypes.GeneratedOperations("volume_unmount", lambda: context)
        volume = volume or self.volume
        if isinstance(volume, MountedVolume):
            operations = self.stuck.watch_volume(operations, volume, str(self.pods))
        else:
            operations = self.stuck.watch_device(operations, volume)
        operations.run()

    def close(self) -> None:
        self.stuck.close()
        for holder in self.holders:
            holder.communicate(timeout=WAIT)
        subprocess.run(["umount", self.path], check=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_holder_is_named_once_and_its_end_is_a_reason_to_try_again(world: World) -> None:
    holder = world.hold()
    for _ in range(3):
        world.unmount(OSError("target is busy"))
    (event,) = world.recorder.drain()
    assert event.startswith('Warning FailedUnmount Unmount failed for volume "plugin/u-data" : ')
    assert f"{world.path} is held by python" in event and f"(pid {holder.pid}, current directory {world.path})" in event
    assert not world.retried.try_recv()[2], "the holder has not ended yet"
    holder.communicate(timeout=WAIT)
    assert world.retried.recv(WAIT) == ("plugin/u-data", True)
    world.unmount(None)


def test_holder_is_watched_though_another_attempt_fails_while_it_is_looked_for(world: World) -> None:
    """A holder is watched although another attempt fails during the search for holders.

    The next investigation may come only after a long pause.
    """
    holder = world.hold()
    tell = world.recorder.event

    def fail_again(obj: object, *rest: str) -> None:
        world.attempt(OSError("target is busy"))
        tell(obj, *rest)

    world.recorder.event = fail_again  # type: ignore[method-assign]
    world.unmount(OSError("target is busy"))
    holder.communicate(timeout=WAIT)
    assert world.retried.recv(WAIT) == ("plugin/u-data", True)


def test_another_holder_is_told_too(world: World) -> None:
    first = world.hold()
    world.unmount(OSError("target is busy"))
    second = world.hold()
    first.communicate(timeout=WAIT)
    assert world.retried.recv(WAIT)[1]
    world.unmount(OSError("target is busy"))
    events = world.recorder.drain()
    assert len(events) == 2 and f"(pid {second.pid}," in events[1] and f"(pid {first.pid}," not in events[1]


def test_after_success_nobody_is_watched(world: World) -> None:
    holder = world.hold()
    world.unmount(OSError("target is busy"))
    world.unmount(None)
    holder.communicate(timeout=WAIT)
    assert not world.retried.try_recv()[2]


def test_failure_that_nobody_is_to_blame_for(world: World) -> None:
    world.unmount(OSError("no such plugin"))
    assert world.recorder.drain() == []


def test_mount_on_the_mount_is_named(world: World) -> None:
    below = world.path / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", below], check=True)
    try:
        world.unmount(OSError("target is busy"))
        world.unmount(OSError("target is busy"))
    finally:
        subprocess.run(["umount", below], check=True)
    (event,) = world.recorder.drain()
    assert event == (f'Warning FailedUnmount Unmount failed for volume "plugin/u-data" : {below} is mounted below it')


def test_mount_that_keeps_the_directory_from_being_removed_is_named(world: World) -> None:
    err = RuntimeError("UnmountVolume.TearDown failed")
    err.__cause__ = removeall.MountedError(f"cannot delete directory v: {world.path} is a mount point")
    for _ in range(2):
        world.unmount(err)
    (event,) = world.recorder.drain()
    assert event.endswith(f'"plugin/u-data" : cannot delete directory v: {world.path} is a mount point')


@pytest.mark.parametrize("err", [RecursionError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), MemoryError()])
def test_holder_that_cannot_be_found_out_keeps_no_other_from_being(
    world: World, err: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = world.hold()
    find = mountholders.find_holders
    errs = [err]

    def fail_once(*args: Any) -> list[mountholders.Holder]:
        if errs:
            raise errs.pop()
        return find(*args)

    monkeypatch.setattr(mountholders, "find_holders", fail_once)
    world.unmount(OSError("target is busy"))
    assert world.recorder.drain() == []
    world.unmount(OSError("target is busy"))
    assert f"(pid {holder.pid}," in world.recorder.drain()[0]


def test_holder_is_watched_once_there_is_a_thread_for_it(world: World) -> None:
    holder = world.hold()
    with out_of_threads("stuck-unmount") as refused:
        world.unmount(OSError("target is busy"))
    assert refused == ["stuck-unmount"]
    world.unmount(OSError("target is busy"))
    holder.communicate(timeout=WAIT)
    assert world.retried.recv(WAIT) == ("plugin/u-data", True)


@failures
def test_holder_that_cannot_be_watched_ends_nothing(
    world: World, err: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = world.hold()
    failed = threading.Event()

    def pidfd_open(pid: int) -> int:
        failed.set()
        raise err.with_traceback(None)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", pidfd_open)
        world.unmount(OSError("target is busy"))
        assert failed.wait(WAIT)
    world.unmount(OSError("target is busy"))
    holder.communicate(timeout=WAIT)
    assert world.retried.recv(WAIT) == ("plugin/u-data", True)


def test_pod_that_only_its_worker_knows_is_told(world: World) -> None:
    told: list[object] = []
    world.recorder.event = lambda obj, *rest: told.append(obj)  # type: ignore[method-assign]
    world.pod = None
    world.hold()
    with world.stuck.waiting(POD):
        world.unmount(OSError("target is busy"))
    assert told == [POD]


def test_device_is_told_of_the_node(world: World) -> None:
    device = AttachedVolume("plugin/disk", SPEC, "node", device_mount_path=str(world.path))
    holder = world.hold()
    world.unmount(OSError("target is busy"), device)
    (event,) = world.recorder.drain()
    assert 'Unmount failed for volume "data"' in event and f"(pid {holder.pid}," in event
