"""Test single passes of the reconciler, with real operations on fake volumes."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for

from kubelet.volumemanager import testing
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from kubelet.volumemanager.metrics import metrics as volumemetrics
from kubelet.volumemanager.reconciler import Reconciler, reconciler, reconciler_common
from kubelet.volumemanager.reconciler.reconstruct_common import PodVolume, get_volumes_from_pod_dir
from pkg import golang, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang.testing import out_of_threads
from pkg.volume import ReconstructedVolume, Spec, VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util import nestedpendingoperations
from pkg.volume.util.operationexecutor import (
    DeviceMountState,
    MarkVolumeOpts,
    OperationExecutor,
    OperationGenerator,
    VolumeMountState,
    VolumeToMount,
)
from pkg.volume.util.volumepathhandler.testing import FakeBlockVolumePathHandler

PV = "test.io/fake-plugin/pv"
DEVICE = testing.FAKE_DEVICE_PATH


class World:
    """Hold a reconciler whose passes the test runs. The test adds pods' volumes to the desired state directly."""

    def __init__(self, root: Path, controller_attaches: bool = True) -> None:
        self.root = root
        (root / "pods").mkdir()
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.plugin = testing.FakeAttachableVolumePlugin()
        self.client = FakeClientset(v1.Node(metadata=metav1.ObjectMeta(name="node")), testing.new_claim("claim", "pv"))
        self.host = FakeVolumeHost(str(root), self.client)
        plugins = VolumePluginMgr()
        plugins.init_plugins([self.plugin], self.host)
        self.desired = DesiredStateOfWorld(plugins, volumeutil.Translator())
        self.actual = ActualStateOfWorld("node", plugins)
        self.ended: golang.Channel[None] = golang.Channel(100)
        self.blocks = FakeBlockVolumePathHandler()
        self.recorder = FakeRecorder(100)
        self.executor = OperationExecutor(
            OperationGenerator(self.client, plugins, self.recorder, self.blocks), lambda: self.ended.send(None)
        )
        self.populated = True
        self.reconciler = Reconciler(
            self.client,
            controller_attaches,
            10.0,
            "node",
            self.desired,
            self.actual,
            lambda: self.populated,
            self.executor,
            self.host.get_hostutil(),
            plugins,
            str(root / "pods"),
        )
        self.reconciler.reconstruct_volumes()

    def want(self, uid: str = "u", spec: Spec | None = None, pod: v1.Pod | None = None) -> str:
        spec = spec or claimed("pv")
        pod = pod or testing.new_pod(uid, testing.new_claim_volume("v", "claim"))
        return self.desired.add_pod_to_volume(uid, pod, spec, "v", "", [])

    def report(self) -> None:
        """Make the node's status list all desired volumes as in use and attached."""
        names = [volume.volume_name for volume in self.desired.get_volumes_to_mount()]
        attached = [v1.AttachedVolume(name=name, device_path=DEVICE) for name in names]
        self.host.volumes_attached = {volume.name: volume.device_path for volume in attached}
        self.client.add(
            v1.Node(metadata=metav1.ObjectMeta(name="node"), status=v1.NodeStatus(volumes_attached=attached))
        )
        self.desired.mark_volumes_reported_in_use(names)

    def rounds(self, operations: int = 0) -> None:
        """Run a pass, and another one each time an operation has ended. The last pass must start no operation."""
        self.reconciler.reconcile()
        for _ in range(operations):
            assert self.ended.recv(30)[1], f"an operation did not end: {self.plugin.calls}"
            self.reconciler.reconcile()
        assert not self.executor.is_operation_pending(PV, "", "")

    def names(self) -> list[str]:
        return [call[0] for call in self.plugin.calls]


def claimed(name: str, volume_mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM) -> Spec:
    """Return a volume that is bound to a claim."""
    claim = testing.new_claim("claim", name)
    return Spec(persistent_volume=testing.new_persistent_volume(name, claim=claim, volume_mode=volume_mode))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.cancel()


def test_nothing_is_done_for_nobody(world: World) -> None:
    world.rounds()
    assert world.plugin.calls == [] and world.reconciler.states_has_been_synced()


def test_volume_is_not_looked_for_before_it_is_reported_in_use(world: World) -> None:
    world.want()
    world.rounds()
    assert world.plugin.calls == [] and not world.actual.volume_exists(PV)


def test_volume_that_is_not_attached_yet_is_not_backed_off_for(world: World) -> None:
    world.want()
    world.desired.mark_volumes_reported_in_use([PV])
    world.reconciler.reconcile()
    world.report()
    world.rounds(2)
    assert world.names() == ["wait_for_attach", "mount_device", "set_up"]


def test_volume_of_a_controller_is_mounted_and_unmounted(world: World) -> None:
    world.want()
    world.report()
    world.rounds(2)
    assert world.plugin.calls == [
        ("wait_for_attach", "pv", DEVICE),
        ("mount_device", "pv", DEVICE),
        ("set_up", "pv", "u"),
    ]
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(2)
    assert world.plugin.calls[3:] == [("tear_down", "pv", "u"), ("unmount_device", "pv")]
    assert not world.actual.volume_exists(PV), "the controller detaches the volume"


def test_volume_whose_unmount_ends_just_now_is_not_unmounted_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.want()
    world.report()
    world.rounds(2)
    world.desired.delete_pod_from_volume("u", PV)

    def ends(*key: str) -> bool:
        world.actual.mark_volume_as_unmounted("u", PV)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(world.executor, "is_operation_pending", ends)
        world.reconciler.unmount_volumes()
    world.executor._pending_operations.wait_for_completion()
    assert "tear_down" not in world.names()


def test_device_is_not_unmounted_under_a_pod_whose_mount_ends_just_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.want()
    world.report()
    gate = world.plugin.gates["set_up"] = golang.Channel[None]()
    world.reconciler.reconcile()
    assert world.ended.recv(30)[1]
    world.reconciler.reconcile()
    world.plugin.wait_for_call("set_up", "pv", "u")
    world.desired.delete_pod_from_volume("u", name)
    is_pending = world.executor.is_operation_pending

    def is_operation_pending(volume_name: str, pod_name: str, node_name: str) -> bool:
        if is_pending(name, "", ""):
            gate.close()
            assert world.ended.recv(30)[1]
        return is_pending(volume_name, pod_name, node_name)

    with monkeypatch.context() as patch:
        patch.setattr(world.executor, "is_operation_pending", is_operation_pending)
        world.reconciler.unmount_detach_devices()
    world.executor._pending_operations.wait_for_completion()
    assert "unmount_device" not in world.names()
    world.rounds(2)
    assert world.names()[-2:] == ["tear_down", "unmount_device"]


def test_pod_whose_mount_always_fails_does_not_keep_others_from_the_volume(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = world.plugin.called

    def fail_for_bad(*call: str) -> None:
        called(*call)
        if call == ("set_up", "pv", "bad"):
            raise ValueError("bad may not have it")

    monkeypatch.setattr(world.plugin, "called", fail_for_bad)

    def try_until_called(uid: str) -> None:
        """Reconcile after each backoff until the volume is set up for the pod; the order of the pods is random."""
        for _ in range(50):
            world.executor.forget_failures(name)
            world.reconciler.reconcile()
            world.executor._pending_operations.wait_for_completion()
            if ("set_up", "pv", uid) in world.plugin.calls:
                break

    name = world.want("bad")
    world.report()
    try_until_called("bad")
    world.want("good")
    try_until_called("good")
    assert world.actual.get_volume_mount_state(name, "good") is VolumeMountState.VOLUME_MOUNTED


def test_kubelet_without_a_controller_attaches_and_detaches(tmp_path: Path) -> None:
    world = World(tmp_path, controller_attaches=False)
    world.want()
    world.rounds(2)
    assert world.names() == ["attach", "wait_for_attach", "mount_device", "set_up"]
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(3)
    assert world.names()[4:] == ["tear_down", "unmount_device", "detach"]
    assert not world.actual.volume_exists(PV)


def test_volume_that_nobody_attaches_needs_no_report(world: World) -> None:
    world.plugin.can_attach_volumes = False
    world.want()
    world.rounds(2)
    assert world.names() == ["mount_device", "set_up"]


def test_inline_volume_is_mounted_in_the_first_round(world: World) -> None:
    world.plugin.can_attach_volumes = world.plugin.can_device_mount_volumes = False
    volume = v1.Volume(name="v", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    world.want(spec=Spec(volume), pod=testing.new_pod("u", volume))
    world.rounds(1)
    assert world.plugin.calls == [("set_up", "v", "u")]


def test_nothing_is_unmounted_before_all_pods_are_known(world: World) -> None:
    world.want()
    world.report()
    world.rounds(2)
    world.desired.delete_pod_from_volume("u", PV)
    world.populated = False
    world.rounds()
    assert "tear_down" not in world.names()


def test_block_volume_is_mapped_and_unmapped(world: World) -> None:
    spec = claimed("pv", v1.PERSISTENT_VOLUME_BLOCK)
    world.want(spec=spec, pod=testing.new_pod("u", testing.new_claim_volume("v", "claim"), devices=True))
    world.report()
    world.rounds(2)
    assert world.names() == ["wait_for_attach", "set_up_device", "map_pod_device"]
    assert world.actual.get_mounted_volumes()[0].block_volume_mapper is not None
    assert len(world.blocks.mapped) == 2, "the device is mapped for the node and for the pod"
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(2)
    assert world.names()[3:] == ["unmap_pod_device", "tear_down_device"]
    assert world.blocks.mapped == set() and not world.actual.volume_exists(PV)


def test_one_volume_that_cannot_be_begun_does_not_keep_others(world: World, log: io.StringIO) -> None:
    world.plugin.can_attach_volumes = False
    world.want("a", claimed("bad"))
    world.want("b")

    def fail(volume: object, *args: object) -> None:
        if "bad" in str(getattr(volume, "volume_name", "")):
            raise RuntimeError("no such plugin")
        verify(volume, *args)  # type: ignore[arg-type]

    verify = world.executor.verify_controller_attached_volume
    world.executor.verify_controller_attached_volume = fail  # type: ignore[assignment, method-assign]
    world.rounds(2)
    assert ("set_up", "pv", "b") in world.plugin.calls
    assert "operationExecutor.VerifyControllerAttachedVolume failed (controllerAttachDetachEnabled true)" in (
        log.getvalue()
    )


def test_failed_operation_is_not_begun_again_too_early(world: World) -> None:
    world.plugin.can_attach_volumes = False
    world.plugin.errors["set_up"] = [ValueError("bad")]
    world.want()
    world.rounds(2)
    world.rounds()
    assert world.names().count("set_up") == 1
    retry = world.executor.next_retry()
    assert retry is not None and 0 < retry <= 0.5


def enlarge(world: World, claim: v1.PersistentVolumeClaim) -> None:
    """Mount a volume, then enlarge its persistent volume and replace its claim."""
    world.want()
    world.report()
    world.rounds(2)
    world.client.add(claim)
    world.desired.update_persistent_volume_size(PV, parse_quantity("10G"))


def claim_for_more(allocated: str, status: str = "", capacity: str = "5G") -> v1.PersistentVolumeClaim:
    claim = testing.new_claim("claim", "pv", size=capacity)
    claim.status.allocated_resources[v1.RESOURCE_STORAGE] = parse_quantity(allocated)
    if status:
        claim.status.allocated_resource_statuses[v1.RESOURCE_STORAGE] = status
    return claim


def test_infeasible_expansion_is_not_looked_into_all_the_time(world: World) -> None:
    enlarge(world, claim_for_more("10G", v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_INFEASIBLE))
    asked = len(world.client.actions("get", "persistentvolumeclaims"))
    world.rounds(1)
    world.rounds()
    assert len(world.client.actions("get", "persistentvolumeclaims")) == asked + 1
    retry = world.executor.next_retry()
    assert retry is not None and "node_expand" not in world.names()
    # The claim's owner now requests less.
    world.client.add(claim_for_more("8G", v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_PENDING))
    world.executor.forget_failures(PV)
    world.rounds(1)
    assert str(world.plugin.resized[0].new_size) == "8G"


def test_volume_that_was_rounded_up_is_not_looked_into_all_the_time(world: World) -> None:
    enlarge(world, claim_for_more("9500M", v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_PENDING))
    world.rounds(1)
    assert str(world.plugin.resized[0].new_size) == "9500M"
    assert world.actual.get_claim_size(PV) == parse_quantity("9500M") and world.executor.next_retry() is not None
    # The claim's owner now requests the size of the persistent volume.
    world.client.add(claim_for_more("10G", v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_PENDING))
    world.executor.forget_failures(PV)
    world.rounds(1)
    assert world.actual.get_claim_size(PV) == parse_quantity("10G") and world.executor.next_retry() is None


def test_volume_that_is_mounted_read_only_is_not_expanded(world: World) -> None:
    spec = claimed("pv")
    world.want(spec=Spec(persistent_volume=spec.persistent_volume, read_only=True))
    world.report()
    world.rounds(2)
    world.desired.update_persistent_volume_size(PV, parse_quantity("10G"))
    world.rounds()
    assert world.names() == ["wait_for_attach", "mount_device", "set_up"]
    # Another pod may write to the volume.
    world.want("w")
    world.rounds(2)
    assert str(world.plugin.resized[0].new_size) == "10G"


# ---- Reconstruction ----


def left_behind(world: World, uid: str = "u", name: str = "pv", kind: str = "volumes") -> Path:
    path = world.root / "pods" / uid / kind / "test.io~fake-plugin" / name
    path.mkdir(parents=True)
    (path / "mount").touch()
    return path


def test_directories_of_pods_are_read_by_name_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = world.root / "pods"
    paths = [left_behind(world), left_behind(world, "b", kind="volumeDevices")]
    (pods / "file").write_text("x")
    (pods / "empty").mkdir()
    (pods / "b" / "volumes").mkdir()
    (pods / "b" / "volumes" / "file").write_text("x")

    def stat(path: object, *args: object, **options: object) -> os.stat_result:
        raise AssertionError(f"{path} is touched")

    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "statvfs"):
            patch.setattr(os, name, stat)
        volumes, errors = get_volumes_from_pod_dir(str(pods))
    assert not errors and volumes == [
        PodVolume("b", "pv", str(paths[1]), testing.FAKE_PLUGIN_NAME, v1.PERSISTENT_VOLUME_BLOCK),
        PodVolume("u", "pv", str(paths[0]), testing.FAKE_PLUGIN_NAME, v1.PERSISTENT_VOLUME_FILESYSTEM),
    ]
    with pytest.raises(FileNotFoundError):
        get_volumes_from_pod_dir(str(world.root / "nothing"))


def unreadable(monkeypatch: pytest.MonkeyPatch, *paths: Path, code: int = errno.EIO) -> None:
    """Make each read of these directories fail, as a disk fault does."""

    def listdir(path: str) -> list[str]:
        if Path(path) in paths:
            raise OSError(code, os.strerror(code), path)
        return original(path)

    original = os.listdir
    monkeypatch.setattr(os, "listdir", listdir)


def test_it_is_told_when_what_is_on_disk_was_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.reconciler._has_reconstructed = False
    with monkeypatch.context() as patch:
        patch.setattr(world.reconciler, "_update_states", raising(RuntimeError("bad")))
        assert not world.reconciler._try_to_reconstruct(world.ctx) and not world.reconciler.has_reconstructed()
    assert world.reconciler._try_to_reconstruct(world.ctx) and world.reconciler.has_reconstructed()


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("what", ["all pods", "a pod", "staged volumes"])
def test_nobody_relies_on_a_look_that_there_was_no_descriptor_for(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, code: int
) -> None:
    """A permanent read error must not keep pods from terminating, or the node's status from listing new volumes."""
    left_behind(world, kind="volumeDevices")
    world.reconciler._has_reconstructed = False
    error = raising(OSError(code, os.strerror(code)))
    with monkeypatch.context() as patch:
        match what:
            case "all pods":
                patch.setattr(os, "scandir", error)
            case "a pod":
                unreadable(patch, world.root / "pods/u/volumeDevices", code=code)
            case _:
                patch.setattr(world.plugin, "list_published_devices", list, raising=False)
                patch.setattr(world.plugin, "list_staged_volumes", error, raising=False)
        assert not world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.reconciler._update_last_sync_time()
    known = code == errno.EIO
    assert (world.reconciler.has_reconstructed(), world.reconciler.states_has_been_synced()) == (known, known)
    assert world.reconciler._ready_to_unmount() == known
    assert world.reconciler.reconstruct_volumes() and world.reconciler.has_reconstructed()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.reconciler._update_last_sync_time()
    assert world.reconciler.states_has_been_synced() and world.actual.is_volume_reconstructed(PV, "u")


def test_staged_volume_is_left_while_it_is_not_known_which_pods_have_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A staged volume stays while a pod that no source has any more still runs containers with it."""
    left_behind(world)
    monkeypatch.setattr(world.reconciler, "_pod_may_run_unwanted", lambda pod_name: True)
    staged = [testing.new_persistent_volume_spec("pv")]
    monkeypatch.setattr(world.plugin, "list_staged_volumes", lambda: staged, raising=False)
    monkeypatch.setattr(world.plugin, "list_published_devices", list, raising=False)
    world.reconciler._has_reconstructed = False
    with monkeypatch.context() as patch:
        unreadable(patch, world.root / "pods/u/volumes", code=errno.EMFILE)
        assert not world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds()
    assert world.reconciler.reconstruct_volumes() and world.actual.is_volume_reconstructed(PV, "u")
    world.rounds()
    assert world.plugin.calls == []


@pytest.mark.parametrize("why", ["it does not tell", "it cannot be read"])
def test_staged_volume_is_freed_after_the_pod_whose_directory_is_of_no_use(
    world: World, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    left_behind(world)
    staged = [testing.new_persistent_volume_spec("pv")]
    monkeypatch.setattr(world.plugin, "list_staged_volumes", lambda: staged, raising=False)
    monkeypatch.setattr(world.plugin, "list_published_devices", list, raising=False)
    monkeypatch.setattr(world.reconciler, "_pod_may_run_unwanted", lambda pod_name: True)
    with monkeypatch.context() as patch:
        if why == "it cannot be read":
            unreadable(patch, world.root / "pods/u/volumes")
        else:
            world.plugin.reconstructible = False
        world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds()
    assert world.plugin.calls == []
    monkeypatch.setattr(world.reconciler, "_pod_may_run_unwanted", lambda pod_name: False)
    assert world.reconciler.reconstruct_volumes()
    world.rounds(2)
    assert world.names() == ["tear_down", "unmount_device"]


def give_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconstruct a pod directory that can neither be identified nor unmounted."""
    world.plugin.reconstructible = False
    monkeypatch.setattr(world.plugin, "construct_block_volume_spec", raising(ValueError("no volume data")))
    world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    with monkeypatch.context() as patch:
        patch.setattr(world.executor, "unmount_volume", raising(ValueError("no volume data")))
        world.rounds()


@pytest.mark.parametrize("kind", ["volumes", "volumeDevices"])
def test_staged_volume_of_another_name_is_left_while_a_pod_may_have_it(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = left_behind(world, kind=kind)
    remember(world, monkeypatch, staged=[testing.new_persistent_volume_spec("handle")])
    mounted = {str(path / "mount")} if kind == "volumes" else set()
    monkeypatch.setattr(mount_utils, "mount_points", lambda filename: frozenset(mounted))
    give_up(world, monkeypatch)
    world.rounds()
    assert world.plugin.calls == []
    if kind == "volumes":
        with monkeypatch.context() as patch:
            patch.setattr(mount_utils, "mount_points", raising(OSError("no list of mounts")))
            world.rounds()
        assert world.plugin.calls == []
        mounted.clear()
    else:
        os.rename(path, world.root / "gone")
    world.rounds(1)
    assert world.names() == ["unmount_device"]


def test_directory_without_a_mount_keeps_no_later_pods_volume_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may stay forever, and must not keep a later pod's volume from being attached to another node."""
    path = left_behind(world)
    give_up(world, monkeypatch)
    world.want("later")
    world.report()
    world.rounds(2)
    world.plugin.calls.clear()
    world.desired.delete_pod_from_volume("later", PV)
    world.rounds(2)
    assert world.names() == ["tear_down", "unmount_device"] and path.exists()


def test_list_of_mounts_is_read_once_for_all_volumes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is read once, because a node has thousands of mounts and all volumes wait for the end of the pass."""
    paths = [left_behind(world, uid) for uid in ("a", "b", "c")]
    remember(world, monkeypatch, staged=[testing.new_persistent_volume_spec(name) for name in ("x", "y", "z")])
    mounted = {str(paths[-1])}
    reads: list[str] = []

    def mount_points(filename: str) -> frozenset[str]:
        reads.append(filename)
        return frozenset(mounted)

    monkeypatch.setattr(mount_utils, "mount_points", mount_points)
    give_up(world, monkeypatch)
    assert len(reads) == 1
    world.rounds()
    assert len(reads) == 2 and world.plugin.calls == []
    mounted.clear()
    world.rounds(3)
    assert len(reads) == 3, "nothing may be mounted there by now"
    assert Counter(world.names()) == {"unmount_device": 3}


def test_staged_volume_is_told_of_when_there_are_descriptors_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = [testing.new_persistent_volume_spec("pv")]
    monkeypatch.setattr(world.plugin, "list_staged_volumes", lambda: staged, raising=False)
    monkeypatch.setattr(world.plugin, "list_published_devices", list, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(world.plugin, "new_device_mounter", raising(OSError(errno.EMFILE, "none")))
        assert not world.reconciler.reconstruct_volumes()
    assert world.reconciler.reconstruct_volumes() and world.actual.volume_exists(PV)


def test_directory_that_could_not_be_read_is_read_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {uid: left_behind(world, uid) for uid in "abcd"}
    with monkeypatch.context() as patch:
        unreadable(patch, paths["a"].parent.parent, paths["b"].parent)
        assert not world.reconciler.reconstruct_volumes()
    assert [uid for uid in paths if world.actual.is_volume_reconstructed(PV, uid)] == ["c", "d"]
    world.want("c")
    world.report()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2)
    assert [call for call in world.plugin.calls if call[0] == "tear_down"] == [("tear_down", "pv", "d")]
    (before,) = world.actual.get_attached_volumes()
    assert before.device_mount_state is DeviceMountState.DEVICE_GLOBALLY_MOUNTED
    assert world.reconciler.reconstruct_volumes()
    assert world.actual.get_attached_volumes() == [before]
    world.rounds(2)
    assert {call for call in world.plugin.calls if call[0] == "tear_down"} == {
        ("tear_down", "pv", uid) for uid in "abd"
    }


@pytest.mark.parametrize("failed", [True, False])
def test_volume_that_is_being_set_up_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    """Reconstruction skips the volume, because a failed set-up removes the data that an unmount would need."""
    name = world.want()
    world.report()
    gate = world.plugin.gates["set_up"] = golang.Channel[None]()
    world.plugin.errors["set_up"] = [ValueError("bad")] if failed else []
    world.reconciler.reconcile()
    assert world.ended.recv(30)[1]
    world.reconciler.reconcile()
    world.plugin.wait_for_call("set_up", "pv", "u")
    made, left = left_behind(world), left_behind(world, "other")
    spec = world.plugin.construct_volume_spec("pv", str(made))

    read: list[str] = []

    def construct(volume_name: str, volume_path: str) -> ReconstructedVolume:
        read.append(volume_path)
        return spec

    monkeypatch.setattr(world.plugin, "construct_volume_spec", construct)
    assert not world.reconciler.reconstruct_volumes(), "the directory must be read again after the set-up"
    assert read == [str(left)] and world.actual.is_volume_reconstructed(name, "other")
    gate.close()
    assert world.ended.recv(30)[1]
    if failed:
        shutil.rmtree(made)
    assert world.reconciler.reconstruct_volumes()
    state = VolumeMountState.VOLUME_NOT_MOUNTED if failed else VolumeMountState.VOLUME_MOUNTED
    assert world.actual.get_volume_mount_state(name, "u") is state
    assert not world.actual.is_volume_reconstructed(name, "u")


@pytest.mark.parametrize("other", [False, True])
def test_untold_volume_is_not_cleaned_up_while_it_is_set_up(
    world: World, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    """The clean-up must not remove files that an unmount needs after the set-up has succeeded.

    If another pod has the volume too, the directory of that pod may have given the volume another name.
    """
    told = testing.new_persistent_volume_spec("pv")
    assert told.persistent_volume is not None
    told.persistent_volume.metadata.name = "handle"

    def construct(volume_name: str, volume_path: str) -> ReconstructedVolume:
        if volume_name == "pv":
            raise ValueError("the directory does not identify the volume")
        return ReconstructedVolume(told)

    monkeypatch.setattr(world.plugin, "construct_volume_spec", construct)
    path = left_behind(world)
    if other:
        left_behind(world, "b", "handle")
    assert world.reconciler.reconstruct_volumes()
    name = world.want()
    world.report()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.populated = False
    gate = world.plugin.gates["set_up"] = golang.Channel[None]()
    world.reconciler.reconcile()
    if not other:
        assert world.ended.recv(30)[1]
        world.reconciler.reconcile()
    world.plugin.wait_for_call("set_up", "pv", "u")
    world.populated = True
    world.desired.delete_pod_from_volume("u", name)
    world.reconciler.reconcile()
    assert not world.executor.is_operation_pending(str(path), "u", "")
    gate.close()
    world.rounds(4 if other else 3)
    torn_down = Counter(call for call in world.plugin.calls if call[0] == "tear_down")
    assert torn_down[("tear_down", "pv", "u")] == 1 and not world.actual.volume_exists(name)


def begin_to_mount_untold(world: World) -> tuple[Path, golang.Channel[None]]:
    """Start a mount of an unidentified volume, and remove the pod. Return the volume's path and the mount's gate."""
    world.plugin.reconstructible = False
    path = left_behind(world)
    assert world.reconciler.reconstruct_volumes()
    name = world.want()
    world.report()
    gate = world.plugin.gates["set_up"] = golang.Channel[None]()
    world.reconciler.reconcile()
    assert world.ended.recv(30)[1]
    world.reconciler.mount_or_attach_volumes()
    world.plugin.wait_for_call("set_up", "pv", "u")
    world.desired.delete_pod_from_volume("u", name)
    return path, gate


def test_untold_volume_is_not_cleaned_up_when_its_mount_ends_just_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up skips a volume whose mount has just ended.

    The volume is known by then, and the clean-up would remove files that its unmount needs.
    """
    path, gate = begin_to_mount_untold(world)
    is_known = world.actual.volume_exists_with_spec_name

    def end_after_look(pod_name: str, plugin_name: str, volume_spec_name: str) -> bool:
        known = is_known(pod_name, plugin_name, volume_spec_name)
        gate.close()
        assert world.ended.recv(30)[1]
        return known

    with monkeypatch.context() as patch:
        patch.setattr(world.actual, "volume_exists_with_spec_name", end_after_look)
        world.reconciler._clean_orphan_volumes()
    assert not world.executor.is_operation_pending(str(path), "u", "")
    world.executor._pending_operations.wait_for_completion()
    assert "tear_down" not in world.names()


def test_untold_volume_that_is_known_meanwhile_is_unmounted_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume is unmounted once, even if its unmount ends just before the clean-up examines it."""
    _, gate = begin_to_mount_untold(world)
    gate.close()
    wait = world.executor._pending_operations.wait_for_completion
    wait()
    with monkeypatch.context() as patch:
        patch.setattr(world.reconciler, "mount_or_attach_volumes", wait)
        world.reconciler.reconcile()
    wait()
    assert world.names().count("tear_down") == 1


def test_reconstruction_that_failed_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "RESYNC_PERIOD", 0.01)
    left_behind(world)
    tried: golang.Channel[None] = golang.Channel(100)
    with monkeypatch.context() as patch:
        unreadable(patch, world.root / "pods/u/volumes")
        patch.setattr(world.plugin, "list_staged_volumes", lambda: tried.try_send(None) and [], raising=False)
        patch.setattr(world.plugin, "list_published_devices", list, raising=False)
        thread = golang.go(world.reconciler.run, world.ctx, name="reconciler-test")
        assert tried.recv(30)[1] and tried.recv(30)[1]
    assert world.ended.recv(30)[1] and world.ended.recv(30)[1]
    world.cancel()
    thread.join()
    assert world.names() == ["tear_down", "unmount_device"]


def test_reconstructed_volume_is_uncertain_until_the_node_has_told(world: World) -> None:
    left_behind(world)
    with (
        metricstesting.moves(volumemetrics.RECONSTRUCT_VOLUME_OPERATIONS_TOTAL),
        metricstesting.moves(volumemetrics.RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL, 0),
    ):
        world.reconciler.reconstruct_volumes()
    assert world.actual.is_volume_reconstructed(PV, "u")
    (volume,) = world.actual.get_attached_volumes()
    assert volume.device_may_be_mounted() and not volume.plugin_is_attachable and not volume.device_path
    world.rounds()
    assert world.plugin.calls == [] and not world.reconciler.states_has_been_synced()
    attached = [v1.AttachedVolume(name=PV, device_path="/dev/new")]
    status = v1.NodeStatus(volumes_attached=attached)
    world.client.add(v1.Node(metadata=metav1.ObjectMeta(name="node"), status=status))
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    (volume,) = world.actual.get_attached_volumes()
    assert volume.plugin_is_attachable and volume.device_path == "/dev/new"
    world.rounds(2)
    assert world.names() == ["tear_down", "unmount_device"] and world.reconciler.states_has_been_synced()


@pytest.mark.parametrize("begun", [True, False])
def test_volume_whose_directory_tells_another_name_is_left_to_its_pod(
    world: World, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    monkeypatch.setattr(world.reconciler, "_pod_has_begun", lambda pod_name: begun)
    spec = testing.new_persistent_volume_spec("pv")
    assert spec.persistent_volume is not None and spec.persistent_volume.spec.photon_persistent_disk is not None
    spec.persistent_volume.spec.photon_persistent_disk.pd_id = "pv:3260"
    monkeypatch.setattr(world.plugin, "construct_volume_spec", lambda name, path: ReconstructedVolume(spec))
    path, _ = left_behind(world), left_behind(world, "gone")
    world.reconciler.reconstruct_volumes()
    world.want()
    world.report()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(1 + begun)
    assert path.exists() and [call for call in world.plugin.calls if call[0] == "tear_down"] == [
        ("tear_down", "pv", "gone")
    ]
    assert "unmount_device" not in world.names() and world.actual.pod_has_mounted_volumes("u") == begun
    (volume,) = world.actual.get_attached_volumes()
    assert volume.volume_name == PV and volume.plugin_is_attachable and volume.device_may_be_mounted()
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(2)
    assert world.names()[-2:] == ["tear_down", "unmount_device"] and world.actual.get_attached_volumes() == []


def test_volume_that_two_pods_want_by_two_names_is_left_to_both(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = claimed("pv")
    assert spec.persistent_volume is not None and spec.persistent_volume.spec.photon_persistent_disk is not None
    spec.persistent_volume.spec.photon_persistent_disk.pd_id = "pv:3260"
    monkeypatch.setattr(world.plugin, "construct_volume_spec", lambda name, path: ReconstructedVolume(spec))
    left_behind(world)
    left_behind(world, "other")
    world.reconciler.reconstruct_volumes()
    names = {world.want("u"), world.want("other", spec)}
    world.report()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2)
    world.rounds()
    assert "tear_down" not in world.names() and len(names) == 2
    assert all(world.actual.pod_has_mounted_volumes(name) for name in ("u", "other"))
    assert {volume.volume_name for volume in world.actual.get_attached_volumes()} == names


def test_reconstructed_block_volume_is_unmapped(world: World) -> None:
    left_behind(world, kind="volumeDevices")
    world.reconciler.reconstruct_volumes()
    (mounted,) = world.actual.get_all_mounted_volumes()
    assert mounted.block_volume_mapper is not None
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2)
    assert world.names() == ["unmap_pod_device", "tear_down_device"]


def test_staged_volume_that_no_directory_tells_of_is_unstaged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(world, monkeypatch, staged=[claimed("pv")])
    world.reconciler.reconstruct_volumes()
    (volume,) = world.actual.get_attached_volumes()
    assert volume.device_may_be_mounted() and world.actual.get_all_mounted_volumes() == []
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(1)
    assert world.names() == ["unmount_device"]


def test_staged_volume_that_is_wanted_by_another_name_is_unstaged_when_it_is_unwanted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(world, monkeypatch, staged=[claimed("pv"), claimed("of-nobody")])
    monkeypatch.setattr(
        world.plugin,
        "is_staged_by_another_name",
        lambda spec, staged: (spec.name(), staged.name()) == ("other", "pv"),
        raising=False,
    )
    world.reconciler.reconstruct_volumes()
    name = world.want(spec=claimed("other"))
    world.report()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2)
    assert [call[1] for call in world.plugin.calls if call[0] == "unmount_device"] == ["of-nobody"]
    assert [volume.volume_name for volume in world.actual.get_attached_volumes()] == [name]
    world.desired.delete_pod_from_volume("u", name)
    world.plugin.calls.clear()
    world.rounds(2)
    assert world.names() == ["tear_down", "unmount_device"]


def test_published_device_that_no_link_tells_of_is_unmapped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(world, monkeypatch, published=[("u", "pv")])
    world.reconciler.reconstruct_volumes()
    assert [each.pod_name for each in world.actual.get_all_mounted_volumes()] == ["u"]
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2)
    assert world.names() == ["unmap_pod_device", "tear_down_device"]


def test_plugin_that_cannot_remember_keeps_nothing_from_being_found(
    world: World, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    def fail() -> list[Spec]:
        raise OSError("broken disk")

    remember(world, monkeypatch)
    monkeypatch.setattr(world.plugin, "list_staged_volumes", fail)
    monkeypatch.setattr(world.plugin, "list_published_devices", fail)
    left_behind(world)
    world.reconciler.reconstruct_volumes()
    assert world.actual.is_volume_reconstructed(PV, "u")
    assert log.getvalue().count('err="broken disk"') == 2


def remember(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    staged: Sequence[Spec] = (),
    published: Sequence[tuple[str, str]] = (),
) -> None:
    """Make the plugin return records of these volumes."""
    monkeypatch.setattr(world.plugin, "list_staged_volumes", lambda: list(staged), raising=False)
    monkeypatch.setattr(world.plugin, "list_published_devices", lambda: list(published), raising=False)
    monkeypatch.setattr(world.plugin, "is_staged_by_another_name", lambda spec, staged: False, raising=False)


def test_what_is_known_already_is_not_reconstructed(world: World) -> None:
    left_behind(world)
    spec = testing.new_persistent_volume_spec("pv")
    world.actual.mark_volume_as_attached(PV, spec, "node", DEVICE)
    opts = MarkVolumeOpts("u", types.UID("u"), PV, spec, volume_mount_state=VolumeMountState.VOLUME_MOUNTED)
    world.actual.mark_volume_as_mounted(opts)
    world.reconciler.reconstruct_volumes()
    assert not world.actual.is_volume_reconstructed(PV, "u") and world.actual.pod_has_mounted_volumes("u")


@pytest.mark.parametrize("wanted", [False, True])
def test_volume_that_cannot_be_reconstructed_goes_unless_it_is_wanted(world: World, wanted: bool) -> None:
    world.plugin.reconstructible = False
    path = left_behind(world)
    if wanted:
        world.want()
    with metricstesting.moves(volumemetrics.RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL):
        world.reconciler.reconstruct_volumes()
    assert world.actual.get_attached_volumes() == []
    world.populated = False
    world.rounds()
    assert path.exists()
    world.populated = True
    with metricstesting.moves(volumemetrics.FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL, int(not wanted)):
        world.rounds(0 if wanted else 1)
    assert path.exists() == wanted and world.names() == ([] if wanted else ["tear_down"])
    world.rounds()
    assert world.names().count("tear_down") == int(not wanted), "the volume is torn down once"


def test_volume_that_cannot_be_reconstructed_goes_with_a_pod_that_never_mounts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pod was terminating when the kubelet started, so it never mounts.
    monkeypatch.setattr(world.reconciler, "_pod_has_begun", lambda pod_name: False)
    world.plugin.reconstructible = False
    path = left_behind(world)
    world.want()
    world.reconciler.reconstruct_volumes()
    world.rounds()
    assert world.plugin.calls == [] and path.exists()
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(1)
    assert world.names() == ["tear_down"] and not path.exists()


@pytest.mark.parametrize("empty", [True, False])
def test_staged_volume_waits_only_for_directories_that_may_be_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    """A staged volume waits only for directories that may belong to it.

    A pod may wait for its own volume for days, for example because a secret is missing.
    """
    monkeypatch.setattr(world.reconciler, "_pod_has_begun", lambda pod_name: False)
    remember(world, monkeypatch, staged=[claimed("staged")])
    world.plugin.reconstructible = False
    path = left_behind(world)
    if empty:
        (path / "mount").unlink()
    world.want()
    world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(1 if empty else 0)
    assert world.plugin.calls == ([("unmount_device", "staged")] if empty else []) and path.exists() != empty


def test_empty_directory_of_a_plugin_that_stages_nothing_stays(world: World) -> None:
    """A container may write to an empty directory, for example to an emptyDir, so it must stay."""
    world.plugin.reconstructible = False
    path = left_behind(world)
    (path / "mount").unlink()
    world.want()
    world.reconciler.reconstruct_volumes()
    assert path.exists()


def test_volume_that_cannot_be_reconstructed_is_left_to_its_pod_once_it_is_mounted(world: World) -> None:
    world.plugin.reconstructible = False
    left_behind(world)
    world.want()
    world.report()
    world.reconciler.reconstruct_volumes()
    world.plugin.reconstructible = True
    world.rounds(2)
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(2)
    assert world.names()[-2:] == ["tear_down", "unmount_device"] and world.names().count("tear_down") == 1


def test_volume_that_cannot_be_reconstructed_is_unmounted_again_after_a_failure(world: World) -> None:
    world.plugin.reconstructible = False
    world.plugin.errors["tear_down"] = [OSError("busy")]
    path = left_behind(world)
    world.reconciler.reconstruct_volumes()
    world.rounds(1)
    world.rounds()
    assert world.names() == ["tear_down"] and path.exists(), "the directory is not removed at once"
    world.executor.forget_failures(str(path))
    world.rounds(1)
    world.rounds()
    assert world.names() == ["tear_down"] * 2 and not path.exists()


def test_unknown_volumes_of_one_name_are_all_unmounted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.plugin.reconstructible = False
    monkeypatch.setattr(world.plugin, "construct_block_volume_spec", raising(ValueError("cannot be told")))
    world.plugin.errors["tear_down"] = [OSError("busy")]
    path = left_behind(world)
    left_behind(world, kind="volumeDevices")
    world.reconciler.reconstruct_volumes()
    world.rounds(2)
    world.executor.forget_failures(str(path))
    world.rounds(1)
    world.rounds()
    assert world.names() == ["tear_down"] * 3


def test_unknown_volume_is_not_taken_for_another_one_that_has_its_name(world: World) -> None:
    """A volume on disk does not count as known because the pod has another volume with its name.

    An inline volume may have the same name as the pod's persistent volume.
    """
    world.plugin.reconstructible = False
    path = left_behind(world)
    spec = testing.new_persistent_volume_spec("pv")
    world.actual.mark_volume_as_attached(PV, spec, "node", DEVICE)
    world.actual._attached_volumes[PV].plugin_name = "test.io/other"
    world.actual.mark_volume_mount_as_uncertain(MarkVolumeOpts("u", types.UID("u"), PV, spec))
    world.reconciler.reconstruct_volumes()
    world.reconciler._clean_orphan_volumes()
    assert world.ended.recv(30)[1] and not path.exists()


@pytest.mark.parametrize("method", ["construct_volume_spec", "new_unmounter"])
def test_volume_that_there_is_no_descriptor_for_is_not_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*args: object) -> None:
        try:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        except OSError as err:
            raise OSError("cannot read the volume's data") from err

    path = left_behind(world)
    world.plugin.reconstructible = method == "construct_volume_spec"
    with monkeypatch.context() as patch:
        patch.setattr(world.plugin, method, fail)
        assert world.reconciler.reconstruct_volumes() == (method == "new_unmounter")
        world.rounds()
        world.rounds()
    assert world.plugin.calls == []
    world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.rounds(2 if world.plugin.reconstructible else 1)
    assert "tear_down" in world.names() and not path.exists()


def test_volume_that_cannot_be_reconstructed_is_unmounted_although_its_failure_was_forgotten(world: World) -> None:
    clock = testingclock.FakeClock()
    world.executor._pending_operations = nestedpendingoperations.NestedPendingOperations(
        True, lambda: world.ended.send(None), clock
    )
    world.plugin.reconstructible = False
    world.plugin.errors["tear_down"] = [OSError("busy")]
    path = left_behind(world)
    world.reconciler.reconstruct_volumes()
    world.rounds(1)
    # The pod is back and terminates before it gets the volume, and its termination takes long.
    world.want()
    world.rounds()
    clock.step(600.0)
    assert world.executor.next_retry() is None
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(1)
    world.rounds()
    assert world.names() == ["tear_down"] * 2 and not path.exists()


def test_reconstructed_volume_whose_set_up_fails_is_unmounted_with_its_pod(world: World) -> None:
    left_behind(world)
    world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    world.plugin.errors["set_up"] = [ValueError("bad")]
    world.want()
    world.report()
    world.rounds(1)
    assert "set_up" in world.names() and not world.actual.pod_has_mounted_volumes("u")
    assert world.actual.get_possibly_mounted_volumes_for_pod("u"), "an old mount may still exist"
    world.desired.delete_pod_from_volume("u", PV)
    world.rounds(2)
    assert world.names()[-2:] == ["tear_down", "unmount_device"]


def test_node_status_is_asked_again_until_it_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubelet.volumemanager.reconciler import reconstruct

    monkeypatch.setattr(reconstruct, "NODE_STATUS_RETRY_PERIOD", 0.01)
    left_behind(world)
    answers = [ConnectionError("away"), ConnectionError("away")]
    world.client.prepend_reactor("get", "nodes", lambda action: (bool(answers), answers.pop() if answers else None))
    world.reconciler.reconstruct_volumes()
    world.reconciler.update_reconstructed_from_node_status(world.ctx)
    assert len(world.client.actions("get", "nodes")) == 3
    world.rounds(2)
    assert world.reconciler.states_has_been_synced()


UNEXPECTED = [
    RecursionError("maximum recursion depth exceeded"),
    MemoryError("no memory"),
    UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"),
    golang.ThreadError("can't start new thread"),
    golang.DeadlineExceeded(),
]


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
@pytest.mark.parametrize("asks", ["desired", "executor"])
def test_what_is_wrong_with_one_volume_is_told_its_pod_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception, asks: str
) -> None:
    world.plugin.can_attach_volumes = False
    bad = world.want("a", claimed("bad"))
    world.want("b")
    errs = [err]
    if asks == "desired":
        ask = world.actual.pod_exists_in_volume

        def fail_once(pod_name: str, volume_name: str, *args: Any) -> Any:
            if volume_name == bad and errs:
                raise errs.pop()
            return ask(pod_name, volume_name, *args)

        monkeypatch.setattr(world.actual, "pod_exists_in_volume", fail_once)
    else:
        verify = world.executor.verify_controller_attached_volume

        def fail_once_to_verify(volume: VolumeToMount, *args: Any) -> None:
            if volume.volume_name == bad and errs:
                raise errs.pop()
            verify(volume, *args)

        monkeypatch.setattr(world.executor, "verify_controller_attached_volume", fail_once_to_verify)
    world.reconciler.reconcile()
    assert [str(told) for told in world.desired.pop_pod_errors("a")] == [str(err)]
    world.rounds(4)
    assert {("set_up", "pv", "b"), ("set_up", "bad", "a")} <= set(world.plugin.calls), "the operation is retried"


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
def test_volume_that_cannot_be_taken_from_one_pod_is_taken_from_others(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    world.plugin.can_attach_volumes = world.plugin.can_device_mount_volumes = False
    disk = v1.Volume(name="d", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id="pd"))
    for uid in ("a", "b"):
        world.want(uid, Spec(disk), testing.new_pod(uid, disk))
    world.rounds(2)
    for volume in world.desired.get_volumes_to_mount():
        world.desired.delete_pod_from_volume(volume.pod_name, volume.volume_name)
    ask, errs = world.desired.pod_exists_in_volume, [err]

    def fail_once(pod_name: str, *args: Any) -> bool:
        if pod_name == "a" and errs:
            raise errs.pop()
        return ask(pod_name, *args)

    monkeypatch.setattr(world.desired, "pod_exists_in_volume", fail_once)
    world.rounds(2)
    assert {("tear_down", "d", "a"), ("tear_down", "d", "b")} <= set(world.plugin.calls)


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
def test_volume_whose_plugin_fails_keeps_no_other_from_being_found(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    left_behind(world, "a")
    left_behind(world, "b")
    new_mounter = world.plugin.new_mounter

    def fail(spec: Spec, pod: v1.Pod) -> testing.FakeVolume:
        if pod.metadata.uid == "a":
            raise err
        return new_mounter(spec, pod)

    monkeypatch.setattr(world.plugin, "new_mounter", fail)
    world.reconciler.reconstruct_volumes()
    assert world.actual.is_volume_reconstructed(PV, "b")


def test_left_volume_is_unmounted_once_there_is_a_thread_for_it(world: World) -> None:
    world.plugin.reconstructible = False
    path = left_behind(world)
    world.reconciler.reconstruct_volumes()
    with out_of_threads("volume-volume_unmount") as refused:
        world.reconciler.reconcile()
    assert refused and world.plugin.calls == []
    world.executor.forget_failures(str(path))
    world.reconciler.reconcile()
    assert world.ended.recv(30)[1]
    assert world.plugin.calls == [("tear_down", "pv", "u")]


def test_node_status_is_asked_once_there_is_a_thread_for_it(world: World) -> None:
    left_behind(world)
    with out_of_threads("volume-reconstruction") as refused:
        thread = golang.go(world.reconciler.run, world.ctx, name="reconciler-test")
        wait_for("a thread is refused", lambda: bool(refused))
    world.reconciler.wake()
    wait_for("the node's status is known", world.reconciler.states_has_been_synced)
    world.cancel()
    thread.join(30)


@pytest.mark.parametrize("err", UNEXPECTED, ids=lambda err: type(err).__name__)
@pytest.mark.parametrize("step", ["reconstruct_volumes", "reconcile", "_on_reconciled"])
def test_the_loop_survives(world: World, monkeypatch: pytest.MonkeyPatch, err: Exception, step: str) -> None:
    rounds, works = golang.Channel[None](10), getattr(world.reconciler, step)

    def fail() -> None:
        rounds.send(None)
        monkeypatch.setattr(world.reconciler, step, works)
        raise err

    monkeypatch.setattr(world.reconciler, step, fail)
    thread = golang.go(world.reconciler.run, world.ctx, name="reconciler-test")
    assert rounds.recv(30)[1]
    world.reconciler.wake()
    wait_for("the node's status is known", world.reconciler.states_has_been_synced)
    world.cancel()
    thread.join(30)


def test_pod_with_very_many_volumes_has_few_operations_at_one_time(world: World) -> None:
    """Each operation takes a thread, so one pod may have only a few; other pods do not wait for them."""
    world.plugin.can_attach_volumes = world.plugin.can_device_mount_volumes = False
    limit = reconciler_common.MAX_OPERATIONS_PER_POD
    disks = [
        v1.Volume(name=f"d{i}", photon_persistent_disk=v1.PhotonPersistentDiskVolumeSource(pd_id=f"pd{i}"))
        for i in range(limit + 10)
    ]
    greedy, other = testing.new_pod("greedy", *disks), testing.new_pod("other", disks[0])
    for disk in disks:
        world.desired.add_pod_to_volume("greedy", greedy, Spec(disk), disk.name, "", [])
    world.desired.add_pod_to_volume("other", other, Spec(disks[0]), disks[0].name, "", [])
    for step in ("set_up", "tear_down"):
        world.plugin.calls.clear()
        gate = world.plugin.gates[step] = golang.Channel[None]()
        world.reconciler.reconcile()
        wait_for("as many operations run as may run at the same time", lambda: len(world.plugin.calls) >= limit + 1)
        world.reconciler.reconcile()
        pods = Counter(call[2] for call in world.plugin.calls)
        assert pods == {"greedy": limit, "other": 1}
        gate.close()
        for _ in range(len(disks) + 1):
            assert world.ended.recv(30)[1]
            world.reconciler.reconcile()
        assert Counter(call[0] for call in world.plugin.calls) == {step: len(disks) + 1}
        for volume in world.desired.get_volumes_to_mount():
            world.desired.delete_pod_from_volume(volume.pod_name, volume.volume_name)
