"""Test the volume manager: real operations with fake and real plugins on a fake host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.waiting import wait_for

from kubelet.volumemanager import (
    VolumeAttachLimitExceededError,
    VolumeManager,
    VolumesNotReadyError,
    testing,
    volume_manager,
)
from kubelet.volumemanager.populator import APIServerClaims
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import Clock
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.golang.testing import frames_kept_after, out_of_threads
from pkg.volume import VolumePluginMgr
from pkg.volume.emptydir import probe_volume_plugins as empty_dir
from pkg.volume.hostpath import probe_volume_plugins as host_path
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util import types as volumetypes
from pkg.volume.util import volumepathhandler
from pkg.volume.util.operationexecutor import StuckUnmounts

PV = "test.io/fake-plugin/pv"


class Stuck(StuckUnmounts):
    """Record which pods wait."""

    said: list[str]

    @contextlib.contextmanager
    def waiting(self, pod: v1.Pod) -> Iterator[None]:
        self.said.append(f"{pod.metadata.uid} waits")
        yield
        self.said.append(f"{pod.metadata.uid} has waited")


class World:
    """Hold a volume manager on a node with the client's objects, and what the manager reports."""

    def __init__(
        self,
        root: Path,
        plugin: testing.FakeBasicVolumePlugin | None = None,
        client: FakeClientset | None = None,
        clock: Clock | None = None,
    ) -> None:
        (root / "pods").mkdir(exist_ok=True)
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.client = client
        self.clock = clock
        self.host = FakeVolumeHost(str(root), client)
        self.pods = testing.FakePods()
        self.recorder = FakeRecorder(100)
        self.plugin = plugin or testing.FakeBasicVolumePlugin()
        plugins = VolumePluginMgr()
        plugins.init_plugins([*empty_dir(), *host_path(), self.plugin], self.host)
        self.in_use_changes: golang.Channel[None] = golang.Channel(1)
        self.stuck = Stuck(self.recorder, v1.ObjectReference(kind="Node", name="node"), self.pods.get_pod_by_uid)
        self.stuck.said = []
        self.manager = VolumeManager(
            True,
            "node",
            self.pods,
            self.pods,
            client,
            plugins,
            self.host.get_hostutil(),
            str(root / "pods"),
            self.recorder,
            volumepathhandler.VolumePathHandler(self.host.get_mounter()),
            None if client is None else APIServerClaims(self.ctx, client),
            self.stuck,
            on_volumes_in_use_change=lambda: self.in_use_changes.try_send(None),
            clock=clock,
        )

    def start(self) -> None:
        self.thread = golang.go(self.manager.run, self.ctx, self.pods, name="volume-manager-test")

    def stop(self) -> None:
        self.cancel()
        if hasattr(self, "thread"):
            self.thread.join(30)

    def add(self, *volumes: v1.Volume, uid: str = "u", devices: bool = False) -> v1.Pod:
        self.pods.pods[uid] = testing.new_pod(uid, *volumes, devices=devices)
        return self.pods.pods[uid]

    def add_bound(
        self,
        claim: str = "claim",
        volume: str = "pv",
        volume_mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM,
        size: str = "5G",
        gid: str = "",
    ) -> None:
        assert self.client is not None
        pvc = testing.new_claim(claim, volume)
        pv = testing.new_persistent_volume(volume, claim=pvc, volume_mode=volume_mode, size=size)
        if gid:
            pv.metadata.annotations["pv.beta.kubernetes.io/gid"] = gid
        self.client.add(pvc)
        self.client.add(pv)

    def report_in_use(self, attach: bool = True) -> None:
        """Act as the node's status and the attach/detach controller, once there is something to report."""
        assert self.client is not None
        assert self.in_use_changes.recv(30)[1]
        names = self.manager.get_volumes_in_use()
        attached = [v1.AttachedVolume(name=name, device_path=testing.FAKE_DEVICE_PATH) for name in names]
        if attach:
            self.host.volumes_attached = {volume.name: volume.device_path for volume in attached}
            status = v1.NodeStatus(volumes_attached=attached, volumes_in_use=names)
            self.client.add(v1.Node(metadata=metav1.ObjectMeta(name="node"), status=status))
        self.manager.mark_volumes_as_reported_in_use(names)
        self.manager.node_changed()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.stop()


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[World]:
    """Return a world with an API server, and volumes that must be attached."""
    world = new_attached_world(tmp_path)
    yield world
    world.stop()


def new_attached_world(root: Path, clock: Clock | None = None) -> World:
    node = v1.Node(metadata=metav1.ObjectMeta(name="node"))
    return World(root, testing.FakeAttachableVolumePlugin(), FakeClientset(node), clock)


@pytest.fixture
def timeless(tmp_path: Path) -> Iterator[World]:
    """Return a world where no backoff ever ends, and no timeout unless the test advances the clock."""
    world = World(tmp_path, clock=FakeClock())
    yield world
    world.stop()


EMPTY = v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource())
CLAIM = testing.new_claim_volume("v", "claim")


def wait_in_vain(
    wait: Callable[[golang.Context, v1.Pod], None], world: World, pod: v1.Pod, until: Callable[[], bool]
) -> Exception:
    """Return the error of a wait that times out once the condition holds."""
    raised: golang.Channel[Exception] = golang.Channel(1)

    def wait_and_tell() -> None:
        try:
            wait(world.ctx, pod)
        except Exception as err:
            raised.send(err)

    assert isinstance(world.clock, FakeClock)
    # The timer of an earlier wait may still run.
    world.clock.step(volume_manager.POD_ATTACH_AND_MOUNT_TIMEOUT)
    assert not world.clock.has_waiters()
    thread = golang.go(wait_and_tell, name="wait-test")
    wait_for("the condition that ends the wait", until)
    world.clock.wait_for_waiters()
    world.clock.step(volume_manager.POD_ATTACH_AND_MOUNT_TIMEOUT)
    thread.join(30)
    err, ok, _ = raised.try_recv()
    assert ok and err is not None, "the wait has succeeded"
    return err


def in_background(wait: Callable[[golang.Context, v1.Pod], None], world: World, pod: v1.Pod) -> golang.Thread:
    """Wait on a thread that ends with the world."""

    def wait_or_end() -> None:
        with contextlib.suppress(golang.Canceled):
            wait(world.ctx, pod)

    return golang.go(wait_or_end, name="wait-test")


# ---- Volumes of one pod ----


def test_pod_waits_until_its_volumes_are_there(world: World) -> None:
    world.start()
    pod = world.add(EMPTY, v1.Volume(name="h", host_path=v1.HostPathVolumeSource(path="/etc")))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    mounted = world.manager.get_mounted_volumes_for_pod("u")
    assert sorted(mounted) == ["e", "h"]
    assert mounted["h"].mounter is not None and mounted["h"].mounter.get_path() == "/etc"
    assert mounted["e"].mounter is not None and os.path.isdir(mounted["e"].mounter.get_path())


def test_nothing_is_mounted_before_the_pods_worker_needs_it(world: World) -> None:
    disk = v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    first, second = world.add(disk, uid="first"), world.add(disk, uid="second")
    world.start()
    world.manager.wait_for_attach_and_mount(world.ctx, second)
    assert world.plugin.calls == [("set_up", "d", "second")], "the volumes are mounted in the order of the pods"
    world.manager.wait_for_attach_and_mount(world.ctx, first)
    assert ("set_up", "d", "first") in world.plugin.calls


def test_pod_without_volumes_does_not_wait(world: World) -> None:
    world.manager.wait_for_attach_and_mount(world.ctx, world.add())


def test_missing_volumes_are_those_that_are_not_there_yet(world: World) -> None:
    pod = world.add(EMPTY)
    assert world.manager.get_missing_volumes_for_pod(pod) == ["e"]
    world.start()
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert world.manager.get_missing_volumes_for_pod(pod) == []


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
    with pytest.raises(VolumesNotReadyError, match=message):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)


def test_failed_mount_is_an_event_and_the_wait_names_the_volume(timeless: World) -> None:
    world = timeless
    world.start()
    source = v1.HostPathVolumeSource(path="/not/there", type="Directory")
    pod = world.add(v1.Volume(name="h", host_path=source))
    wait = world.manager.wait_for_attach_and_mount
    err = wait_in_vain(wait, world, pod, until=lambda: len(world.recorder.events) > 0)
    assert isinstance(err, TimeoutError) and str(err) == (
        "unmounted volumes=[h], unattached volumes=[], failed to process volumes=[]: context deadline exceeded"
    )
    event, _ = world.recorder.events.recv(timeout=30)
    assert 'FailedMount MountVolume.SetUp failed for volume "h"' in str(event)
    assert "/not/there is not a directory" in str(event)


def test_failed_mount_is_tried_again_without_anybody_asking(world: World) -> None:
    world.plugin.errors["set_up"] = [ValueError("bad"), ValueError("bad")]
    world.start()
    pod = world.add(v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert world.plugin.calls == [("set_up", "d", "u")] * 3


def test_failures_that_are_forgotten_are_tried_again_at_once(timeless: World) -> None:
    world = timeless
    world.plugin.errors["set_up"] = [ValueError("bad")]
    world.start()
    pod = world.add(v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")))
    waiting = in_background(world.manager.wait_for_attach_and_mount, world, pod)
    world.plugin.wait_for_call("set_up", "d", "u")

    def mounted() -> bool:
        # The failure may be recorded only now.
        world.manager.forget_failures("u")
        return not waiting.is_alive()

    wait_for("the volume is mounted", mounted)
    assert world.plugin.calls == [("set_up", "d", "u")] * 2


def test_cancelled_wait_ends(world: World) -> None:
    pod = world.add(EMPTY)
    world.cancel()
    with pytest.raises(golang.Canceled):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert frames_kept_after(lambda: world.manager.wait_for_attach_and_mount(world.ctx, pod)) == []


def test_volumes_go_when_the_pod_has_ended(world: World) -> None:
    world.start()
    pod = world.add(EMPTY)
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert world.manager.has_possibly_mounted_volumes_for_pod("u")
    path = world.host.get_pod_volume_dir(types.UID("u"), "kubernetes.io~empty-dir", "e")
    world.pods.removed.add("u")
    world.manager.wait_for_unmount(world.ctx, pod)
    assert not os.path.exists(path) and not world.manager.has_possibly_mounted_volumes_for_pod("u")


def test_who_waits_for_an_unmount_may_be_told_who_is_in_its_way(world: World) -> None:
    world.start()
    pod = world.add(EMPTY)
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert world.stuck.said == []
    world.pods.removed.add("u")
    world.manager.wait_for_unmount(world.ctx, pod)
    assert world.stuck.said == ["u waits", "u has waited"]


def test_waiting_for_several_pods_to_unmount(world: World) -> None:
    world.start()
    pod, other = world.add(EMPTY), v1.Pod(metadata=metav1.ObjectMeta(name="o", namespace="ns", uid=types.UID("o")))
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    ended, end = golang.with_cancel(golang.background())
    end()
    with pytest.raises(ExceptionGroup) as caught:
        world.manager.wait_for_all_pods_unmount(ended, [other, pod])
    assert [type(err) for err in caught.value.exceptions] == [golang.Canceled], "the other pod has no volume"
    world.pods.removed.add("u")
    world.manager.wait_for_all_pods_unmount(world.ctx, [other, pod])
    assert not world.manager.has_possibly_mounted_volumes_for_pod("u")


def test_pods_are_waited_for_without_threads_of_their_own(world: World) -> None:
    world.start()
    pods = [world.add(EMPTY, uid=uid) for uid in ("a", "b")]
    for pod in pods:
        world.manager.wait_for_attach_and_mount(world.ctx, pod)
    world.pods.removed |= {"a", "b"}
    with out_of_threads("volume-unmount-") as refused:
        world.manager.wait_for_all_pods_unmount(world.ctx, pods)
    assert refused == ["volume-unmount-a", "volume-unmount-b"]
    assert not any(world.manager.has_possibly_mounted_volumes_for_pod(uid) for uid in ("a", "b"))


def test_pod_whose_mount_has_no_thread_is_told_and_gets_its_volume_later(world: World) -> None:
    world.start()
    pod = world.add(EMPTY)
    with out_of_threads("volume-volume_mount"), pytest.raises(VolumesNotReadyError, match="can't start new thread"):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert "e" in world.manager.get_mounted_volumes_for_pod("u")


def test_wait_for_unmount_names_what_is_mounted(timeless: World) -> None:
    world = timeless
    world.start()
    pod = world.add(EMPTY)
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    err = wait_in_vain(world.manager.wait_for_unmount, world, pod, until=lambda: world.stuck.said == ["u waits"])
    assert isinstance(err, TimeoutError)
    assert str(err) == "mounted volumes=[kubernetes.io/empty-dir/u-e]: context deadline exceeded"


def test_slow_mount_holds_up_nothing_else(world: World) -> None:
    gate: golang.Channel[None] = golang.Channel()
    world.plugin.gates["set_up"] = gate
    world.start()
    slow = world.add(
        v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")), uid="slow"
    )
    waiting = in_background(world.manager.wait_for_attach_and_mount, world, slow)
    world.plugin.wait_for_call("set_up", "d", "slow")
    other = world.add(EMPTY, uid="other")
    world.manager.wait_for_attach_and_mount(world.ctx, other)
    world.pods.removed.add("other")
    world.manager.wait_for_unmount(world.ctx, other)
    gate.close()
    waiting.join(30)
    assert "d" in world.manager.get_mounted_volumes_for_pod("slow")


def test_pod_that_ends_while_its_volume_comes_up_loses_it(world: World) -> None:
    gate: golang.Channel[None] = golang.Channel()
    world.plugin.gates["set_up"] = gate
    world.start()
    pod = world.add(v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")))
    waiting = in_background(world.manager.wait_for_attach_and_mount, world, pod)
    world.plugin.wait_for_call("set_up", "d", "u")
    world.pods.removed.add("u")
    world.manager.sources_changed()
    gate.close()
    world.plugin.wait_for_call("tear_down", "d", "u")
    wait_for("the pod's volume is unmounted", lambda: not world.manager.has_possibly_mounted_volumes_for_pod("u"))
    world.cancel()
    waiting.join(30)


@pytest.mark.parametrize("final", [False, True])
def test_uncertain_mount_is_unmounted_and_a_failed_one_is_not(world: World, final: bool) -> None:
    err = ValueError("bad") if final else volumetypes.UncertainProgressError("maybe")
    world.plugin.errors["set_up"] = [err] * 100
    world.start()
    pod = world.add(v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")))
    waiting = in_background(world.manager.wait_for_attach_and_mount, world, pod)
    world.plugin.wait_for_call("set_up", "d", "u")
    wait_for("the mount has ended", lambda: world.manager.has_possibly_mounted_volumes_for_pod("u") != final)
    assert world.manager.get_mounted_volumes_for_pod("u") == {}
    world.pods.removed.add("u")
    world.pods.pods.clear()
    world.manager.wait_for_unmount(world.ctx, pod)
    assert (("tear_down", "d", "u") in world.plugin.calls) != final
    world.cancel()
    waiting.join(30)


def test_volume_that_changes_is_set_up_again_at_each_sync(world: World) -> None:
    world.plugin.remount = True
    world.start()
    pod = world.add(v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd")))
    for times in range(1, 4):
        world.manager.wait_for_attach_and_mount(world.ctx, pod)
        world.plugin.wait_for_call("set_up", "d", "u", times=times)
    assert world.plugin.calls.count(("set_up", "d", "u")) == 3


# ---- Claims and attached volumes ----


def test_claimed_volume_is_attached_and_mounted_once_it_is_reported_in_use(attached: World) -> None:
    attached.add_bound(gid="777")
    attached.start()
    pod = attached.add(CLAIM)
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    mounted = attached.manager.get_mounted_volumes_for_pod("u")
    assert mounted["v"].inner_volume_spec_name == "pv" and attached.manager.volume_is_attached(PV)
    device = testing.FAKE_DEVICE_PATH
    assert attached.plugin.calls == [
        ("wait_for_attach", "pv", device),
        ("mount_device", "pv", device),
        ("set_up", "pv", "u"),
    ]
    assert attached.manager.get_volumes_in_use() == [PV]
    assert attached.manager.get_extra_supplemental_groups_for_pod(pod) == [777]
    pod.spec.security_context = v1.PodSecurityContext(supplemental_groups=[777])
    assert attached.manager.get_extra_supplemental_groups_for_pod(pod) == []
    attached.pods.removed.add("u")
    attached.manager.wait_for_unmount(attached.ctx, pod)
    attached.plugin.wait_for_call("unmount_device", "pv")
    wait_for("no volume is in use", lambda: attached.manager.get_volumes_in_use() == [])
    assert attached.plugin.calls[3:] == [("tear_down", "pv", "u"), ("unmount_device", "pv")]
    assert attached.in_use_changes.recv(30)[1], "only then may the volume be detached"


@pytest.mark.parametrize("begun", [False, True], ids=["before its worker needed it", "while its mount failed"])
def test_volume_of_a_pod_that_ended_is_no_longer_in_use_though_the_pod_object_exists(
    attached: World, begun: bool
) -> None:
    """A volume of a terminated pod is no longer in use, even while the pod object exists.

    Otherwise a volume that only one node may have could not be attached for the pod's replacement.
    """
    attached.add_bound()
    attached.plugin.errors["mount_device"] = [OSError("bad file system")] * 100
    attached.start()
    pod = attached.add(CLAIM)
    waiting = None
    if begun:
        waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    else:
        attached.manager.sources_changed()
    attached.report_in_use()
    wait_for("the volume is attached", lambda: attached.manager.volume_is_attached(PV))
    if begun:
        attached.plugin.wait_for_call("mount_device", "pv", testing.FAKE_DEVICE_PATH)
    attached.pods.removed.add("u")
    attached.manager.wait_for_unmount(attached.ctx, pod)
    wait_for("no volume is in use", lambda: attached.manager.get_volumes_in_use() == [])
    assert not [call for call in attached.plugin.calls if call[0] == "set_up"]
    attached.cancel()
    if waiting is not None:
        waiting.join(30)


@pytest.mark.parametrize("exhausted", [False, True])
def test_volume_that_is_not_attached_is_named(tmp_path: Path, exhausted: bool) -> None:
    attached = new_attached_world(tmp_path, FakeClock())
    assert isinstance(attached.plugin, testing.FakeAttachableVolumePlugin)
    attached.plugin.exhausted = exhausted
    attached.add_bound()
    attached.start()
    pod = attached.add(CLAIM, EMPTY)
    manager = attached.manager

    def all_but_the_claim() -> bool:
        return manager.get_volumes_in_use() == [PV] and manager.get_missing_volumes_for_pod(pod) == ["v"]

    err = wait_in_vain(manager.wait_for_attach_and_mount, attached, pod, until=all_but_the_claim)
    assert isinstance(err, VolumeAttachLimitExceededError if exhausted else TimeoutError)
    message = "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline"
    assert message in str(err)
    assert str(err).startswith("Node has reached its volume attachment limit") == exhausted
    assert attached.plugin.calls == []
    attached.stop()


def test_claim_that_is_not_there_is_what_is_not_found(attached: World) -> None:
    attached.start()
    with pytest.raises(VolumesNotReadyError) as raised:
        attached.manager.wait_for_attach_and_mount(attached.ctx, attached.add(CLAIM))
    missing = apierrors.what_is_not_found(raised.value)
    assert missing is not None and (missing.kind, missing.name) == ("persistentvolumeclaims", "claim")


def test_claim_that_is_not_bound_is_named_at_once(attached: World) -> None:
    assert attached.client is not None
    attached.client.add(testing.new_claim("claim", "pv", phase=v1.CLAIM_PENDING))
    attached.start()
    pod = attached.add(CLAIM)
    message = (
        r"unmounted volumes=\[v\], unattached volumes=\[\], failed to process volumes=\[v\]: "
        "error processing PVC default/claim: PVC is not bound"
    )
    with pytest.raises(VolumesNotReadyError, match=message):
        attached.manager.wait_for_attach_and_mount(attached.ctx, pod)
    attached.add_bound()
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    assert "v" in attached.manager.get_mounted_volumes_for_pod("u"), "the earlier error is forgotten"


def test_two_pods_share_the_device(attached: World) -> None:
    attached.add_bound()
    attached.start()
    pods = [attached.add(CLAIM, uid=uid) for uid in ("a", "b")]
    waiting = [in_background(attached.manager.wait_for_attach_and_mount, attached, pod) for pod in pods]
    attached.report_in_use()
    for thread in waiting:
        thread.join(30)
    assert attached.plugin.calls.count(("mount_device", "pv", testing.FAKE_DEVICE_PATH)) == 1
    attached.pods.removed.add("a")
    attached.manager.wait_for_unmount(attached.ctx, pods[0])
    assert ("unmount_device", "pv") not in attached.plugin.calls
    assert "v" in attached.manager.get_mounted_volumes_for_pod("b")
    assert attached.manager.get_volumes_in_use() == [PV]
    attached.pods.removed.add("b")
    attached.manager.wait_for_unmount(attached.ctx, pods[1])
    attached.plugin.wait_for_call("unmount_device", "pv")


def test_claim_under_two_names_is_mounted_once(attached: World) -> None:
    attached.add_bound()
    attached.start()
    pod = attached.add(CLAIM, testing.new_claim_volume("w", "claim"))
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    assert sorted(attached.manager.get_mounted_volumes_for_pod("u")) == ["v", "w"]
    assert attached.plugin.calls.count(("set_up", "pv", "u")) == 1


def test_uncertain_device_is_unmounted_before_the_volume_is_given_up(attached: World) -> None:
    attached.plugin.errors["mount_device"] = [volumetypes.UncertainProgressError("maybe")] * 100
    attached.add_bound()
    attached.start()
    pod = attached.add(CLAIM)
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    attached.plugin.wait_for_call("mount_device", "pv", testing.FAKE_DEVICE_PATH)
    attached.pods.removed.add("u")
    attached.pods.pods.clear()
    attached.manager.sources_changed()
    attached.plugin.wait_for_call("unmount_device", "pv")
    wait_for("the volume is detached", lambda: not attached.manager.volume_is_attached(PV))
    attached.cancel()
    waiting.join(30)


def test_larger_volume_is_expanded_while_in_use(attached: World) -> None:
    attached.add_bound()
    attached.start()
    pod = attached.add(CLAIM)
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    attached.add_bound(size="10G")
    attached.manager.wait_for_attach_and_mount(attached.ctx, pod)
    attached.plugin.wait_for_call("node_expand", "pv")
    wait_for("the volume is expanded", lambda: bool(attached.plugin.resized))
    assert attached.plugin.resized[0].new_size == parse_quantity("10G")
    assert attached.plugin.resized[0].old_size == parse_quantity("5G")


# ---- After a restart ----


def test_volumes_found_on_disk_are_kept_until_sources_are_ready(world: World) -> None:
    path = Path(world.host.get_pod_volume_dir(types.UID("gone"), "kubernetes.io~empty-dir", "e"))
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    world.pods.ready = False
    world.pods.removed.add("gone")
    world.start()
    wait_for("the node's status is known", world.manager.reconciler_states_have_been_synced)
    assert path.exists() and world.manager.has_possibly_mounted_volumes_for_pod("gone")
    world.pods.ready = True
    world.manager.sources_changed()
    wait_for("the volume is unmounted", lambda: not path.exists())


def test_volume_found_on_disk_is_taken_over_by_its_pod(world: World) -> None:
    path = Path(world.host.get_pod_volume_dir(types.UID("u"), "kubernetes.io~empty-dir", "e"))
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    pod = world.add(EMPTY)
    world.start()
    world.manager.wait_for_attach_and_mount(world.ctx, pod)
    assert (path / "file").read_text() == "x"


def test_volume_that_cannot_be_told_from_its_directory_is_unmounted(world: World) -> None:
    world.plugin.reconstructible = False
    path = Path(world.host.get_pod_volume_dir(types.UID("gone"), "test.io~fake-plugin", "pv"))
    path.mkdir(parents=True)
    world.pods.removed.add("gone")
    world.start()
    world.plugin.wait_for_call("tear_down", "pv", "gone")
    wait_for("the volume is unmounted", lambda: not path.exists())


@pytest.mark.parametrize("reconstructible", [True, False])
def test_volume_of_an_unwanted_pod_stays_until_the_pod_has_ended(world: World, reconstructible: bool) -> None:
    world.plugin.reconstructible = reconstructible
    runs, gone = (
        Path(world.host.get_pod_volume_dir(types.UID(uid), "test.io~fake-plugin", "pv")) for uid in ("runs", "gone")
    )
    for path in (runs, gone):
        path.mkdir(parents=True)
        (path / "mount").touch()
    world.pods.removed.add("gone")
    world.start()
    wait_for("the volume is unmounted", lambda: not gone.exists())
    assert runs.exists() and world.plugin.calls == [("tear_down", "pv", "gone")]
    world.pods.removed.add("runs")
    world.manager.orphan_ended()
    wait_for("the volume is unmounted", lambda: not runs.exists())


def left_behind(world: World, uid: str = "gone") -> tuple[Path, Path]:
    """Create what a killed kubelet leaves: the pod's directory and the device's."""
    path = Path(world.host.get_pod_volume_dir(types.UID(uid), "test.io~fake-plugin", "pv"))
    path.mkdir(parents=True)
    device = Path(world.host.get_plugin_dir(testing.FAKE_PLUGIN_NAME), "mounts", "pv")
    device.mkdir(parents=True, exist_ok=True)
    return path, device


def test_device_of_a_pod_that_went_meanwhile_is_unmounted_too(attached: World) -> None:
    path, device = left_behind(attached)
    assert attached.client is not None
    volume = v1.AttachedVolume(name=PV, device_path="/dev/new")
    attached.client.add(
        v1.Node(metadata=metav1.ObjectMeta(name="node"), status=v1.NodeStatus(volumes_attached=[volume]))
    )
    attached.pods.removed.add("gone")
    attached.start()
    wait_for("volume and device are unmounted", lambda: not path.exists() and not device.exists())
    assert attached.plugin.calls == [("tear_down", "pv", "gone"), ("unmount_device", "pv")]
    wait_for("no volume is in use", lambda: attached.manager.get_volumes_in_use() == [])


def test_nothing_is_unmounted_before_the_node_has_told_where_devices_are(attached: World) -> None:
    path, device = left_behind(attached)
    assert attached.client is not None
    attached.client.remove(v1.Node(metadata=metav1.ObjectMeta(name="node")))
    attached.pods.removed.add("gone")
    attached.start()
    other = attached.add(EMPTY, uid="other")
    attached.manager.wait_for_attach_and_mount(attached.ctx, other)
    attached.pods.removed.add("other")
    assert path.exists() and device.exists() and not attached.manager.reconciler_states_have_been_synced()
    attached.client.add(v1.Node(metadata=metav1.ObjectMeta(name="node")))
    attached.manager.wait_for_unmount(attached.ctx, other)
    wait_for("volume and device are unmounted", lambda: not path.exists() and not device.exists())
    wait_for("the node's status is known", attached.manager.reconciler_states_have_been_synced)


def test_device_found_on_disk_serves_the_pod_that_has_it_still(attached: World) -> None:
    path, device = left_behind(attached, "u")
    attached.add_bound()
    pod = attached.add(CLAIM)
    attached.start()
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    assert "v" in attached.manager.get_mounted_volumes_for_pod("u") and path.exists() and device.exists()
    assert not [call for call in attached.plugin.calls if call[0] in ("tear_down", "unmount_device")]


def test_pod_keeps_what_it_has_while_its_claim_cannot_be_read(attached: World) -> None:
    path, device = left_behind(attached, "u")
    gone, _ = left_behind(attached, "gone")
    attached.pods.removed.add("gone")
    assert attached.client is not None

    away = True
    attached.client.prepend_reactor("get", "persistentvolumeclaims", lambda action: (away, OSError("went away")))
    attached.add_bound()
    pod = attached.add(CLAIM)
    attached.start()
    wait_for("the volume is unmounted", lambda: not gone.exists())
    with pytest.raises(VolumesNotReadyError, match="went away"):
        attached.manager.wait_for_attach_and_mount(attached.ctx, pod)
    assert attached.manager.has_possibly_mounted_volumes_for_pod("u")
    away = False
    waiting = in_background(attached.manager.wait_for_attach_and_mount, attached, pod)
    attached.report_in_use()
    waiting.join(30)
    assert "v" in attached.manager.get_mounted_volumes_for_pod("u") and path.exists() and device.exists()
    assert ("tear_down", "pv", "u") not in attached.plugin.calls
    attached.pods.removed.add("u")
    attached.manager.wait_for_unmount(attached.ctx, pod)
    assert not path.exists()


def test_device_that_pods_share_goes_after_all_of_them(attached: World) -> None:
    paths = [left_behind(attached, uid)[0] for uid in ("a", "b")]
    attached.pods.removed |= {"a", "b"}
    attached.start()
    attached.plugin.wait_for_call("unmount_device", "pv")
    assert sorted(attached.plugin.calls[:2]) == [("tear_down", "pv", "a"), ("tear_down", "pv", "b")]
    assert attached.plugin.calls[2:] == [("unmount_device", "pv")] and not any(path.exists() for path in paths)


@pytest.mark.parametrize(("value", "gid"), [("7", 7), ("", None), ("7_7", None), (" 7", None), (str(2**63), None)])
def test_group_of_a_volume_is_a_number_as_in_go(value: str, gid: int | None) -> None:
    assert volume_manager._get_extra_supplemental_gid(value, v1.Pod()) == gid
