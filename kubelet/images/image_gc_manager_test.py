"""Test the garbage collection of images.

Go: pkg/kubelet/images/image_gc_manager_test.go
"""

from __future__ import annotations

import threading
from datetime import datetime

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_for

from kubelet import container as kubecontainer
from kubelet import images, metrics
from kubelet.apis.stats.v1alpha1 import FsStats
from kubelet.container import testing as containertest
from kubelet.cri import errors as crierror
from kubelet.images.image_gc_manager import ImageGCError, format_size
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.metrics import testing as metricstesting
from pkg.component_base.tracing import testing as tracingtesting

_CTX = golang.background()


class _Runtime(containertest.FakeRuntime):
    """Refuse to remove the images in `stuck`. `mounted` maps container names to image volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: set[str] = set()
        self.gone: set[str] = set()
        self.mounted: dict[str, str] = {}

    def remove_image(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> None:
        if image.image in self.stuck:
            raise crierror.RemoteError(grpc.StatusCode.UNKNOWN, f"{image.image} is stuck")
        super().remove_image(ctx, image)

    def get_container_status(
        self, ctx: golang.Context, pod_uid: str, id: kubecontainer.ContainerID
    ) -> kubecontainer.Status:
        status = kubecontainer.Status()
        if id.id in self.gone:
            raise crierror.RemoteError(grpc.StatusCode.NOT_FOUND, "gone")
        if id.id in self.mounted:
            spec = runtimeapi.ImageSpec(image=self.mounted[id.id])
            status.mounts = [kubecontainer.Mount(image=spec)]
        return status


class _Stats:
    def __init__(self) -> None:
        self.image_fs = FsStats(capacity_bytes=1000, available_bytes=1000)

    def image_fs_stats(self, ctx: golang.Context) -> tuple[FsStats, FsStats]:
        return self.image_fs, self.image_fs


class _World:
    def __init__(self, high: int = 90, low: int = 80, min_age: float = 0, max_age: float = 0) -> None:
        self.clock = testingclock.FakeClock()
        self.began = self.clock.now()
        self.runtime = _Runtime()
        self.tracer_provider = tracingtesting.FakeTracerProvider()
        self.stats = _Stats()
        self.recorder = FakeRecorder(10)
        self.hooks: list[tuple[list[str], datetime]] = []
        self.manager = images.ImageGCManager(
            self.runtime,
            self.stats,
            [lambda ctx, remaining, start: self.hooks.append((remaining, start))],
            self.recorder,
            v1.ObjectReference(name="node"),
            images.ImageGCPolicy(high, low, min_age, max_age),
            self.clock,
            self.tracer_provider,
        )

    def set_images(self, *ids: int, pinned: int = -1) -> None:
        self.runtime.image_list = [kubecontainer.Image(id=f"image-{i}", size=1024, pinned=i == pinned) for i in ids]

    def use(self, *ids: int) -> None:
        """Create containers of these images."""
        containers = [
            kubecontainer.Container(id=kubecontainer.ContainerID("fake", f"c{i}"), image_id=f"image-{i}") for i in ids
        ]
        pod = kubecontainer.Pod(id=types.UID("uid"), containers=containers)
        self.runtime.all_pod_list = [containertest.FakePod(pod)]

    def left(self) -> list[str]:
        return [image.id for image in self.runtime.image_list]

    def fill(self, available: int, capacity: int = 10240) -> None:
        self.stats.image_fs = FsStats(capacity_bytes=capacity, available_bytes=available)

    def see(self) -> None:
        """Let the manager detect the current use, and let a second pass."""
        self.manager._detect_images(_CTX, self.clock.now())
        self.clock.step(1)

    def collect(self) -> None:
        self.manager.garbage_collect(_CTX, self.began)


def test_a_look_that_takes_long_undoes_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a slow detection is dropped: an image that seems gone would lose its pull record."""
    world = _World()
    world.set_images(0)
    has_listed, goes_on = threading.Event(), threading.Event()
    get_pods, remove_image = world.runtime.get_pods, world.runtime.remove_image

    def take_long(ctx: golang.Context, all: bool) -> list[kubecontainer.Pod]:
        if threading.current_thread().name == "look":
            has_listed.set()
            goes_on.wait(30)
        return get_pods(ctx, all)

    def remove_after_the_look(ctx: golang.Context, image: kubecontainer.ImageSpec) -> None:
        goes_on.set()
        look.join(30)
        remove_image(ctx, image)

    monkeypatch.setattr(world.runtime, "get_pods", take_long)
    monkeypatch.setattr(world.runtime, "remove_image", remove_after_the_look)
    look = golang.go(world.see, name="look")
    assert has_listed.wait(30)
    world.set_images(0, 1)
    world.use(1)
    world.manager.delete_unused_images(_CTX)
    assert [remaining for remaining, _ in world.hooks] == [["image-1"]]


@pytest.mark.parametrize(("high", "low"), [(101, 80), (-1, 80), (90, 101), (90, -1), (80, 90)])
def test_policy_that_makes_no_sense(high: int, low: int) -> None:
    with pytest.raises(ValueError, match="ThresholdPercent"):
        images.ImageGCPolicy(high, low).validate()


def test_delete_unused_images_keeps_used_pinned_and_mounted_ones() -> None:
    world = _World()
    world.set_images(0, 1, 2, 3, pinned=3)
    world.use(0)
    world.runtime.mounted["c0"] = "image-2"
    world.manager.delete_unused_images(_CTX)
    assert world.left() == ["image-0", "image-2", "image-3"]
    # The records of images in use must stay, because without them every pod could use the images.
    assert world.hooks == [(["image-0", "image-2", "image-3"], world.clock.now())]


def test_container_removed_meanwhile_does_not_stop_the_collection() -> None:
    world = _World()
    world.set_images(0, 1)
    world.use(0)
    world.runtime.gone = {"c0"}
    world.manager.delete_unused_images(_CTX)
    assert world.left() == ["image-0"]


def test_below_high_threshold_nothing_goes() -> None:
    world = _World()
    world.set_images(0)
    world.fill(available=10240 * 40 // 100)
    world.collect()
    assert world.left() == ["image-0"]
    assert world.tracer_provider.started == ["Images/GarbageCollect"]


def test_above_high_threshold_enough_goes() -> None:
    world = _World()
    world.set_images(0, 1, 2)
    # Of the disk, 5% is free and 20% must be, so two images have to be removed.
    world.fill(available=10240 * 5 // 100)
    with metricstesting.moves(metrics.IMAGE_GARBAGE_COLLECTED_TOTAL, 2, reason="space"):
        world.collect()
    assert len(world.left()) == 1


def test_images_behind_the_last_one_removed_are_told_as_left() -> None:
    world = _World(high=90, low=85)
    world.set_images(0, 1, 2)
    world.fill(available=1024)
    world.collect()
    assert world.left() == ["image-1", "image-2"]
    assert [remaining for remaining, _ in world.hooks] == [["image-1", "image-2"]]


def test_longest_unused_goes_first() -> None:
    world = _World()
    world.set_images(0, 1, 2)
    for used in ((0, 1), (1,), ()):
        world.use(*used)
        world.see()
    world.fill(available=10240 * 12 // 100 - 1)
    world.manager._policy = images.ImageGCPolicy(85, 85)
    world.collect()
    assert world.left() == ["image-0", "image-1"], "never seen in use"
    world.fill(available=10240 * 12 // 100 - 1)
    world.collect()
    assert world.left() == ["image-1"]


def test_not_enough_to_remove_is_told() -> None:
    world = _World()
    world.set_images(0)
    world.fill(available=0)
    with pytest.raises(ImageGCError, match=r"Failed to free sufficient space by deleting unused images"):
        world.collect()
    (event,) = world.recorder.drain()
    assert event.startswith(
        "Warning FreeDiskSpaceFailed Insufficient free disk space on the node's image filesystem"
        " (100% of 10.0 KiB used). Failed to free sufficient space by deleting unused images (freed 1024 bytes)."
    )


def test_capacity_of_0_is_told() -> None:
    world = _World()
    world.fill(0, 0)
    with pytest.raises(ImageGCError, match="invalid capacity 0 on image filesystem"):
        world.collect()
    assert world.recorder.drain() == ["Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"]


def test_young_image_stays() -> None:
    world = _World(min_age=60)
    world.set_images(0)
    world.see()
    world.manager.delete_unused_images(_CTX)
    assert world.left() == ["image-0"]
    world.clock.step(60)
    world.manager.delete_unused_images(_CTX)
    assert world.left() == []


def test_clock_that_is_set_back_keeps_no_image() -> None:
    world = _World(max_age=60, min_age=30)
    world.set_images(0)
    world.see()
    world.clock.shift(-3600)
    world.clock.step(61)
    world.collect()
    assert world.left() == []
    assert world.hooks == [([], world.clock.now())], "pull records are kept by the time of day"


def test_old_image_goes_however_empty_the_disk() -> None:
    world = _World(max_age=60)
    world.set_images(0, 1)
    world.use(0, 1)
    world.see()
    world.use(1)
    world.clock.step(58)
    world.collect()
    assert world.left() == ["image-0", "image-1"], "the kubelet has not watched for long enough"
    world.clock.step(3)
    with metricstesting.moves(metrics.IMAGE_GARBAGE_COLLECTED_TOTAL, 1, reason="age"):
        world.collect()
    assert world.left() == ["image-1"]
    assert world.hooks == [(["image-1"], world.clock.now())]
    world.collect()
    assert len(world.hooks) == 1, "nothing was removed"


def test_image_that_cannot_be_removed_is_told_and_others_go() -> None:
    world = _World()
    world.set_images(0, 1)
    world.runtime.stuck = {"image-0"}
    with pytest.raises(ImageGCError, match="image-0 is stuck"):
        world.manager.delete_unused_images(_CTX)
    assert world.left() == ["image-0"]


def test_image_list_is_kept_biggest_first() -> None:
    world = _World()
    world.runtime.image_list = [kubecontainer.Image(id=str(size), size=size) for size in (2, 9, 5)]
    assert world.manager.get_image_list() == []
    ctx, cancel = golang.with_cancel(_CTX)
    world.manager.start(ctx)
    listed = wait_for("the images are listed", world.manager.get_image_list)
    cancel()
    assert [image.id for image in listed] == ["9", "5", "2"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(512, "512 B"), (1024, "1.0 KiB"), (1536 * 1024, "1.5 MiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_format_size(size: int, text: str) -> None:
    assert format_size(size) == text


@failures
def test_image_whose_removal_breaks_leaves_the_others(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    world = _World()
    world.set_images(0, 1, 2)
    monkeypatch.setattr(world.runtime, "remove_image", failing_once(world.runtime.remove_image, err, "image-1"))
    with pytest.raises(ImageGCError):
        world.manager.delete_unused_images(_CTX)
    assert world.left() == ["image-1"]
