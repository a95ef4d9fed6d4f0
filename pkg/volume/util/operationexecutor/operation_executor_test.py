"""Test which operations on volumes conflict, and how messages name the volumes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.util.nestedpendingoperations import AlreadyExistsError
from pkg.volume.util.operationexecutor import (
    AttachedVolume,
    MountedVolume,
    OperationExecutor,
    VolumeToAttach,
    VolumeToMount,
)
from pkg.volume.util.operationexecutor.testing import FakeActualStateOfWorld, FakePlugin

WAIT = 30.0


class Generator:
    """Generate operations of every kind that run until the test releases them."""

    def __init__(self) -> None:
        self.release: golang.Channel[None] = golang.Channel()
        self.started: golang.Channel[str] = golang.Channel(20)

    def __getattr__(self, name: str) -> Callable[..., volumetypes.GeneratedOperations]:
        kind = name.removeprefix("generate_").removesuffix("_func")

        def run() -> volumetypes.OperationContext:
            self.started.send(kind)
            self.release.recv()
            return volumetypes.OperationContext()

        return lambda *arguments: volumetypes.GeneratedOperations(kind, run)


class World:
    def __init__(self) -> None:
        self.generator = Generator()
        self.ended: golang.Channel[None] = golang.Channel(20)
        generator: Any = self.generator
        self.executor = OperationExecutor(generator, lambda: self.ended.send(None))
        self.state = FakeActualStateOfWorld()
        self.running = 0

    def start(self, operation: Callable[[OperationExecutor], None]) -> str:
        """Return the kind of the operation that runs now, or "" if another one conflicts with it."""
        try:
            operation(self.executor)
        except AlreadyExistsError:
            return ""
        self.running += 1
        return self.generator.started.recv(WAIT)[0] or ""

    def close(self) -> None:
        self.generator.release.close()
        for _ in range(self.running):
            assert self.ended.recv(WAIT)[1]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def spec(mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM, *access_modes: str) -> Spec:
    pv_spec = v1.PersistentVolumeSpec(volume_mode=mode, access_modes=list(access_modes))
    return Spec(persistent_volume=v1.PersistentVolume(metadata=metav1.ObjectMeta(name="pv"), spec=pv_spec))


def to_mount(pod: str, shared: bool, mode: str) -> VolumeToMount:
    obj = v1.Pod(metadata=metav1.ObjectMeta(name=pod, uid=types.UID(pod)))
    return VolumeToMount("volume", pod, spec(mode), obj, plugin_is_attachable=shared)


@pytest.mark.parametrize(
    ("mode", "kind"), [(v1.PERSISTENT_VOLUME_FILESYSTEM, "mount_volume"), (v1.PERSISTENT_VOLUME_BLOCK, "map_volume")]
)
@pytest.mark.parametrize("shared", [True, False])
def test_pods_that_share_a_device_mount_it_one_after_the_other(
    world: World, shared: bool, mode: str, kind: str
) -> None:
    def mount(pod: str) -> str:
        volume = to_mount(pod, shared, mode)
        return world.start(lambda e: e.mount_volume(1.0, volume, world.state, False))

    started = [mount("a"), mount("b"), mount("b")]
    assert started == ([kind, "", ""] if shared else [kind, kind, ""])


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(v1.PERSISTENT_VOLUME_FILESYSTEM, "unmount_volume"), (v1.PERSISTENT_VOLUME_BLOCK, "unmap_volume")],
)
def test_pods_give_a_volume_back_at_the_same_time(world: World, mode: str, kind: str) -> None:
    def unmount(pod: str) -> str:
        volume = MountedVolume(pod, "volume", "pv", "plugin", types.UID(pod), spec(mode))
        return world.start(lambda e: e.unmount_volume(volume, world.state, "/pods"))

    assert [unmount("a"), unmount("b"), unmount("a")] == [kind, kind, ""]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [(v1.PERSISTENT_VOLUME_FILESYSTEM, "unmount_device"), (v1.PERSISTENT_VOLUME_BLOCK, "unmap_device")],
)
def test_device_is_taken_down_once(world: World, mode: str, kind: str) -> None:
    device = AttachedVolume("volume", spec(mode), "node")
    host_util: Any = None
    started = [world.start(lambda e: e.unmount_device(device, world.state, host_util)) for _ in range(2)]
    assert started == [kind, ""]
    assert world.executor.is_operation_pending("volume", "any", "")
    assert not world.executor.is_operation_safe_to_retry("volume", "any", "", "mount_volume")


@pytest.mark.parametrize(
    ("access_mode", "started"),
    [
        (v1.READ_WRITE_ONCE, ["attach_volume", "", "", ""]),
        (v1.READ_WRITE_MANY, ["attach_volume", "attach_volume", "", ""]),
    ],
)
def test_volume_for_one_node_is_attached_to_one_at_a_time(world: World, access_mode: str, started: list[str]) -> None:
    volume = spec(v1.PERSISTENT_VOLUME_FILESYSTEM, access_mode)
    attached = AttachedVolume("volume", volume, "a")

    def attach(node: str) -> str:
        return world.start(lambda e: e.attach_volume(VolumeToAttach("volume", volume, node), world.state))

    results = [
        attach("a"),
        attach("b"),
        world.start(lambda e: e.detach_volume(attached, False, world.state)),
        attach("a"),
    ]
    assert results == started


def test_what_is_of_no_volume_waits_for_nothing(world: World) -> None:
    started = [world.start(lambda e: e.verify_volumes_are_attached({"node": []}, world.state)) for _ in range(2)]
    assert started == ["volumes_are_attached"] * 2


def test_one_of_each_of_the_others_at_a_time(world: World) -> None:
    volume = to_mount("a", True, v1.PERSISTENT_VOLUME_FILESYSTEM)
    started = [
        world.start(lambda e: e.verify_controller_attached_volume(volume, "node", world.state)),
        world.start(lambda e: e.expand_in_use_volume(volume, world.state, Quantity(0))),
    ]
    assert started == ["verify_controller_attached_volume", ""]


def test_reconstruction(world: World) -> None:
    plugin = FakePlugin()
    reconstruct = world.executor.reconstruct_volume_operation
    for mode in (v1.PERSISTENT_VOLUME_FILESYSTEM, v1.PERSISTENT_VOLUME_BLOCK):
        assert reconstruct(mode, plugin, plugin, types.UID("u"), "u", "v", "/path").spec.name() == "v"
    with pytest.raises(ValueError, match='could not find block volume plugin for volume "v"'):
        reconstruct(v1.PERSISTENT_VOLUME_BLOCK, plugin, None, types.UID("u"), "u", "v", "/path")


def test_messages() -> None:
    volumes = [
        to_mount("p", False, v1.PERSISTENT_VOLUME_FILESYSTEM),
        AttachedVolume("volume", spec(), "node"),
        VolumeToAttach("volume", spec(), "node"),
        MountedVolume("p", "volume", "pv", "plugin", types.UID("p"), spec()),
    ]
    assert [tuple(map(str, volume.generate_error("Failed", ValueError("x")))) for volume in volumes] == [
        ('Failed for volume "pv" : x', 'Failed for volume "pv" (UniqueName: "volume") pod "p" (UID: "p") : x'),
        ('Failed for volume "pv" : x', 'Failed for volume "pv" (UniqueName: "volume") on node "node" : x'),
        ('Failed for volume "pv" : x', 'Failed for volume "pv" (UniqueName: "volume") from node "node" : x'),
        ('Failed for volume "volume" : x', 'Failed for volume "volume" (UniqueName: "volume") pod "p" (UID: "p") : x'),
    ]


@pytest.mark.parametrize(
    ("err", "expected"),
    [
        (OSError("mount failed"), "mount failed"),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/Path"), "/Path: no such file or directory"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left on device"),
        (OSError(errno.EIO, "statfs /Path: Input/output error"), "statfs /Path: Input/output error"),
    ],
)
def test_errors_of_the_system_are_told_without_their_numbers(err: OSError, expected: str) -> None:
    volume = to_mount("p", False, v1.PERSISTENT_VOLUME_FILESYSTEM)
    assert str(volume.generate_error("Failed", err)[0]) == f'Failed for volume "pv" : {expected}'
