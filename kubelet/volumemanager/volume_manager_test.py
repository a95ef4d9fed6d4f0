"""Tests of the volume manager: real plugins on a made-up host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubelet.volumemanager import VolumeManager, volume_manager
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.volume import VolumePluginMgr
from pkg.volume.emptydir import probe_volume_plugins as empty_dir
from pkg.volume.hostpath import probe_volume_plugins as host_path
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util import volumepathhandler


class Pods:
    """Pod manager, pod state provider and sources in one."""

    def __init__(self) -> None:
        self.pods: dict[str, v1.Pod] = {}
        self.terminating: set[str] = set()
        self.removed: set[str] = set()
        self.ready = True

    def get_pods(self) -> list[v1.Pod]:
        return list(self.pods.values())

    def get_pod_by_uid(self, uid: str) -> v1.Pod | None:
        return self.pods.get(uid)

    def should_pod_containers_be_terminating(self, uid: str) -> bool:
        return uid in self.terminating

    def should_pod_runtime_be_removed(self, uid: str) -> bool:
        return uid in self.removed

    def add_source(self, source: str) -> None: ...

    def all_ready(self) -> bool:
        return self.ready


class World:
    """A running volume manager and what it sees."""

    def __init__(self, root: Path) -> None:
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.host = FakeVolumeHost(str(root))
        self.pods = Pods()
        self.recorder = FakeRecorder(100)
        plugins = VolumePluginMgr()
        plugins.init_plugins([*empty_dir(), *host_path()], self.host)
        self.manager = VolumeManager(
            True,
            "node",
            self.pods,
            self.pods,
            None,
            plugins,
            self.host.get_hostutil(),
            str(root / "pods"),
            self.recorder,
            volumepathhandler.VolumePathHandler(self.host.get_mounter()),
            None,
        )

    def start(self) -> None:
        self.thread = golang.go(self.manager.run, self.ctx, self.pods, name="volume-manager-test")

    def add(self, *volumes: v1.Volume, uid: str = "u") -> v1.Pod:
        mounts = [v1.VolumeMount(name=volume.name, mount_path=f"/{volume.name}") for volume in volumes]
        pod = v1.Pod(
            metadata=metav1.ObjectMeta(name="p", namespace="default", uid=uid),
            spec=v1.PodSpec(containers=[v1.Container(name="c", volume_mounts=mounts)], volumes=list(volumes)),
        )
        self.pods.pods[uid] = pod
        return pod


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.cancel()
    if hasattr(world, "thread"):
        world.thread.join(5)


EMPTY = v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource())


def eventually(condition: Callable[[], bool]) -> None:
    ctx, cancel = golang.with_timeout(golang.background(), 5)
    while not condition():
        assert not ctx.wait(0.01), "condition did not come true within 5 s"
    cancel()


def test_pod_waits_until_its_volumes_are_there(world: World) -> None:
    world.start()
    pod = world.add(EMPTY, v1.Volume(name="h", host_path=v1.HostPathVolumeSource(path="/etc")))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    mounted = world.manager.get_mounted_volumes_for_pod("u")
    assert sorted(mounted) == ["e", "h"]
    assert mounted["h"].mounter is not None and mounted["h"].mounter.get_path() == "/etc"
    assert mounted["e"].mounter is not None and os.path.isdir(mounted["e"].mounter.get_path())


def test_pod_without_volumes_does_not_wait(world: World) -> None:
    world.manager.wait_for_attach_and_mount(world.ctx, world.add())


def test_unused_volume_is_not_set_up(world: World) -> None:
    world.start()
    pod = world.add(EMPTY)
    pod.spec.volumes.append(v1.Volume(name="unused", host_path=v1.HostPathVolumeSource(path="/no")))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert list(world.manager.get_mounted_volumes_for_pod("u")) == ["e"]


def test_volume_of_unknown_kind_ends_the_wait_with_its_name(world: World) -> None:
    world.start()
    pod = world.add(EMPTY, v1.Volume(name="x", nfs=v1.NFSVolumeSource(server="s", path="/")))
    message = r"unmounted volumes=\[.*x\].*failed to process volumes=\[x\]: .*no volume plugin matched"
    with pytest.raises(RuntimeError, match=message):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)


def test_failed_mount_is_an_event_and_the_wait_names_the_volume(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_manager, "POD_ATTACH_AND_MOUNT_TIMEOUT", 0.2)
    world.start()
    source = v1.HostPathVolumeSource(path="/not/there", type="Directory")
    pod = world.add(v1.Volume(name="h", host_path=source))
    with pytest.raises(TimeoutError, match=r"unmounted volumes=\[h\], unattached volumes=\[\], failed to process"):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)
    event, _ = world.recorder.events.recv(timeout=5)
    assert 'FailedMount MountVolume.SetUp failed for volume "h"' in str(event)
    assert "/not/there is not a directory" in str(event)


def test_cancelled_wait_ends(world: World) -> None:
    pod = world.add(EMPTY)
    world.cancel()
    with pytest.raises(golang.Canceled):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)


def test_volumes_go_when_the_pod_has_ended(world: World) -> None:
    world.start()
    pod = world.add(EMPTY)
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert world.manager.has_possibly_mounted_volumes_for_pod("u")
    path = world.host.get_pod_volume_dir("u", "kubernetes.io~empty-dir", "e")
    world.pods.terminating.add("u")
    world.pods.removed.add("u")
    world.manager.wait_for_unmount(world.ctx, pod)
    assert not os.path.exists(path) and not world.manager.has_possibly_mounted_volumes_for_pod("u")


def test_waiting_for_several_pods_to_unmount(world: World) -> None:
    world.start()
    pod, other = world.add(EMPTY), v1.Pod(metadata=metav1.ObjectMeta(name="o", namespace="ns", uid="o"))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    ended, end = golang.with_cancel(golang.background())
    end()
    with pytest.raises(ExceptionGroup) as caught:
        world.manager.wait_for_all_pods_unmount(ended, [other, pod])
    assert [type(err) for err in caught.value.exceptions] == [golang.Canceled], "the other pod has no volume"
    world.pods.terminating.add("u")
    world.pods.removed.add("u")
    world.manager.wait_for_all_pods_unmount(world.ctx, [other, pod])
    assert not world.manager.has_possibly_mounted_volumes_for_pod("u")


def test_volumes_found_on_disk_are_kept_until_sources_are_ready(world: World) -> None:
    path = Path(world.host.get_pod_volume_dir("gone", "kubernetes.io~empty-dir", "e"))
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    world.pods.ready = False
    world.pods.removed.add("gone")
    world.start()
    eventually(lambda: world.manager.has_possibly_mounted_volumes_for_pod("gone"))
    assert path.exists()
    world.pods.ready = True
    world.manager.sources_changed()
    eventually(lambda: not path.exists())


def test_volume_found_on_disk_is_taken_over_by_its_pod(world: World) -> None:
    path = Path(world.host.get_pod_volume_dir("u", "kubernetes.io~empty-dir", "e"))
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    pod = world.add(EMPTY)
    world.start()
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert (path / "file").read_text() == "x"
