"""Test the assignment of cgroups to containers."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cadvisor import containers
from kubelet.cri import errors as crierror
from kubelet.cri.testing import FakeContainer, FakeImageService, FakeRuntimeService
from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock

APP, BOX, OTHER = "a" * 64, "5" * 64, "0" * 64


class Runtime(FakeRuntimeService):
    """Report verbose status for its sandboxes."""

    info = '{"image": "registry.k8s.io/pause:3.10"}'

    def __init__(self) -> None:
        super().__init__()
        # The status calls of these sandboxes time out.
        self.slow: set[str] = set()

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        assert verbose
        remaining = ctx.remaining()
        assert remaining is not None
        assert remaining <= containers.IMAGES_TIMEOUT
        self._record("PodSandboxStatus", pod_sandbox_id, verbose)
        if pod_sandbox_id in self.slow:
            raise crierror.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
        return runtimeapi.PodSandboxStatusResponse(info={"info": self.info})


class Images(FakeImageService):
    """Check that the call has the short timeout of the metrics."""

    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        remaining = ctx.remaining()
        assert remaining is not None
        assert remaining <= containers.IMAGES_TIMEOUT
        return super().list_images(ctx, filter)


class Fixture:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runtime = Runtime()
        self.images = Images()
        self.images.images = {"busybox": runtimeapi.Image(id="sha256:b", repo_tags=["docker.io/library/busybox:1"])}
        self.add_container(APP)
        self.runtime.set_fake_sandboxes([runtimeapi.PodSandboxStatus(id=BOX, labels={"io.kubernetes.pod.name": "web"})])
        self.containers = containers.RuntimeContainers(self.runtime, self.images, self.clock)

    def add_container(self, id: str, image_ref: str = "sha256:b") -> None:
        status = runtimeapi.ContainerStatus(id=id, labels={"io.kubernetes.container.name": "app"}, image_ref=image_ref)
        self.runtime.set_fake_containers([FakeContainer(status, BOX)])


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"/kubepods/burstable/pod1/{APP}", APP),
        (f"/kubepods.slice/kubepods-pod1.slice/cri-containerd-{APP}.scope", APP),
        (f"/kubepods.slice/kubepods-pod1.slice/crio-{APP}.scope", APP),
        (f"/kubepods.slice/kubepods-pod1.slice/crio-conmon-{APP}.scope", ""),
        (f"/system.slice/run-containerd-{APP}-rootfs.mount", ""),
        ("/kubepods/burstable/pod8b6c6f3e-5a3d-4f0a-9d5e-0d3c2b1a4e5f", ""),
        (f"/k8s.io/{APP}/inner", ""),
        ("/", ""),
    ],
)
def test_container_id(name: str, expected: str) -> None:
    assert containers.container_id(name) == expected


def test_containers_and_sandboxes(fixture: Fixture) -> None:
    fixture.containers.learn([APP, BOX])
    labels = {"io.kubernetes.container.name": "app"}
    expected = containers.Container(APP, labels, "docker.io/library/busybox:1", is_sandbox=False)
    assert fixture.containers.get(APP) == expected
    box = containers.Container(BOX, {"io.kubernetes.pod.name": "web"}, "registry.k8s.io/pause:3.10", is_sandbox=True)
    assert fixture.containers.get(BOX) == box
    assert fixture.containers.get(OTHER) is None


def test_runtime_is_asked_once(fixture: Fixture) -> None:
    fixture.containers.learn([APP, BOX])
    calls = fixture.runtime.called()
    fixture.containers.learn([APP, BOX])
    assert fixture.runtime.called() == calls == ["ListContainers", "ListPodSandbox", "PodSandboxStatus"]


def test_unknown_id_is_asked_for_again_later(fixture: Fixture) -> None:
    fixture.containers.learn([OTHER])
    fixture.clock.step(9)
    fixture.containers.learn([OTHER])
    assert fixture.runtime.called().count("ListContainers") == 1
    fixture.add_container(OTHER)
    fixture.clock.step(1)
    fixture.containers.learn([OTHER])
    assert fixture.containers.get(OTHER) is not None


def test_what_is_gone_is_forgotten(fixture: Fixture) -> None:
    fixture.containers.learn([APP, BOX])
    fixture.containers.learn([BOX])
    assert fixture.containers.get(APP) is not None, "nobody said that it is gone"
    fixture.containers.forget_others([BOX])
    assert fixture.containers.get(APP) is not None, "it may be younger than that list"
    fixture.containers.forget_others([BOX])
    assert fixture.containers.get(APP) is None
    assert fixture.containers.get(BOX) is not None


def test_runtime_that_does_not_answer(fixture: Fixture) -> None:
    fixture.runtime.inject_error("ListContainers", crierror.RemoteError(grpc.StatusCode.UNAVAILABLE, "gone"))
    fixture.containers.learn([APP])
    assert fixture.containers.get(APP) is None
    fixture.containers.learn([APP])
    assert fixture.containers.get(APP) is not None, "no failure is remembered"


@pytest.mark.parametrize("info", ["{}", "no JSON"])
def test_sandbox_without_image(fixture: Fixture, info: str) -> None:
    fixture.runtime.info = info
    fixture.containers.learn([BOX])
    box = fixture.containers.get(BOX)
    assert box is not None
    assert box.image == ""


def test_no_more_images_are_asked_for_once_a_call_has_taken_too_long(fixture: Fixture) -> None:
    boxes = [f"{number:064x}" for number in range(1, 4)]
    fixture.runtime.set_fake_sandboxes([runtimeapi.PodSandboxStatus(id=box) for box in boxes])
    fixture.runtime.slow = {*boxes}
    for asked in (1, 2):
        fixture.containers.learn(boxes)
        assert fixture.runtime.called().count("PodSandboxStatus") == asked
        assert all(fixture.containers.get(box) for box in boxes), "whose they are was told"
        fixture.containers.learn(boxes)
        assert fixture.runtime.called().count("PodSandboxStatus") == asked, "not again at once"
        fixture.clock.step(10)
    fixture.runtime.slow = set()
    for _ in range(2):
        fixture.containers.learn(boxes)
        fixture.clock.step(10)
    assert fixture.runtime.called().count("PodSandboxStatus") == 3
    images = [container.image for container in map(fixture.containers.get, boxes) if container is not None]
    assert sorted(images) == ["", "", "registry.k8s.io/pause:3.10"], "each of the slow ones had its chance"


def test_slow_sandbox_behind_others_has_another_chance(fixture: Fixture) -> None:
    slow = "1" * 64
    fixture.runtime.set_fake_sandboxes([runtimeapi.PodSandboxStatus(id=box) for box in (BOX, slow)])
    fixture.runtime.slow = {slow}
    for _ in range(2):
        fixture.containers.learn([BOX, slow])
        fixture.clock.step(10)
        fixture.runtime.slow = set()
    for box in (BOX, slow):
        found = fixture.containers.get(box)
        assert found is not None
        assert found.image == "registry.k8s.io/pause:3.10"


def test_containers_are_known_without_their_images(fixture: Fixture) -> None:
    fixture.images.inject_error("ListImages", crierror.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "late"))
    fixture.add_container(APP, image_ref="sha256:b")
    for expected, lists in (("", 1), ("", 1), ("docker.io/library/busybox:1", 2), ("docker.io/library/busybox:1", 2)):
        fixture.containers.learn([APP])
        app = fixture.containers.get(APP)
        assert app is not None
        assert (app.labels, app.image) == ({"io.kubernetes.container.name": "app"}, expected)
        assert fixture.images.called().count("ListImages") == lists
        fixture.clock.step(5)


def test_image_that_is_gone(fixture: Fixture) -> None:
    fixture.images.images = {}
    fixture.containers.learn([APP])
    app = fixture.containers.get(APP)
    assert app is not None
    assert app.image == "", "as the container names it"
