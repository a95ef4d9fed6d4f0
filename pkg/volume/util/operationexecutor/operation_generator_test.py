"""Test what operations on volumes do, and what they record and report when a step fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.golang.testing import frames_kept_after
from pkg.volume.plugins import NodeResizeOptions, Spec, VolumePluginMgr
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util import types as volumetypes
from pkg.volume.util.operationexecutor import (
    AttachedVolume,
    DeviceMountState,
    MountedVolume,
    MountPreConditionFailed,
    OperationGenerator,
    VolumeMountState,
    VolumeToAttach,
    VolumeToMount,
)
from pkg.volume.util.operationexecutor.node_expander import NodeExpander, NodeResizeOperationOpts
from pkg.volume.util.operationexecutor.testing import NAME, FakeActualStateOfWorld, FakePlugin
from pkg.volume.util.volumepathhandler.testing import FakeBlockVolumePathHandler
from pkg.volume.volume import DeviceMounterArgs

PENDING = v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_PENDING
IN_PROGRESS = v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_IN_PROGRESS
INFEASIBLE = v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_INFEASIBLE


class HostUtils:
    """Simulate devices that may be open."""

    def __init__(self) -> None:
        self.opened = False

    def path_is_device(self, path: str) -> bool:
        return path == "/dev/fake"

    def device_opened(self, path: str) -> bool:
        return self.opened

    def eval_host_symlinks(self, path: str) -> str:
        return path


class World:
    """Hold a generator and everything that its operations use."""

    def __init__(self, root: Path) -> None:
        self.host = FakeVolumeHost(str(root))
        self.hostutil = HostUtils()
        self.host.hostutil = self.hostutil  # type: ignore[assignment]
        self.plugin = FakePlugin()
        self.plugins = VolumePluginMgr()
        self.plugins.init_plugins([self.plugin], self.host)
        self.recorder = FakeRecorder(20)
        self.client = FakeClientset()
        self.blocks = FakeBlockVolumePathHandler(linked=True)
        self.state = FakeActualStateOfWorld()
        self.generator = OperationGenerator(self.client, self.plugins, self.recorder, self.blocks)

    def mount(self, volume: VolumeToMount) -> volumetypes.OperationContext:
        return self.generator.generate_mount_volume_func(1.0, volume, self.state, False).run()

    def map(self, volume: VolumeToMount) -> volumetypes.OperationContext:
        return self.generator.generate_map_volume_func(1.0, volume, self.state).run()

    def verify(self, volume: VolumeToMount) -> volumetypes.OperationContext:
        return self.generator.generate_verify_controller_attached_volume_func(volume, "node", self.state).run()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


POD = v1.Pod(metadata=metav1.ObjectMeta(name="p", namespace="ns", uid=types.UID("u")))


def pv(size: str = "1G", **spec: object) -> v1.PersistentVolume:
    fields = {"access_modes": [v1.READ_WRITE_ONCE], "volume_mode": v1.PERSISTENT_VOLUME_FILESYSTEM, **spec}
    return v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="pv"),
        spec=v1.PersistentVolumeSpec(
            capacity={v1.RESOURCE_STORAGE: resource.parse_quantity(size)},
            claim_ref=v1.ObjectReference(namespace="ns", name="claim"),
            **fields,  # type: ignore[arg-type]
        ),
    )


def pvc(spec: str, status: str, allocated: str = "", resize_status: str = "") -> v1.PersistentVolumeClaim:
    storage = v1.RESOURCE_STORAGE
    return v1.PersistentVolumeClaim(
        metadata=metav1.ObjectMeta(name="claim", namespace="ns", uid=types.UID("claim")),
        spec=v1.PersistentVolumeClaimSpec(
            access_modes=[v1.READ_WRITE_ONCE],
            resources=v1.VolumeResourceRequirements(requests={storage: resource.parse_quantity(spec)}),
        ),
        status=v1.PersistentVolumeClaimStatus(
            capacity={storage: resource.parse_quantity(status)},
            allocated_resources={storage: resource.parse_quantity(allocated)} if allocated else {},
            allocated_resource_statuses={storage: resize_status} if resize_status else {},
        ),
    )


def wanted(volume: v1.PersistentVolume | None = None, **fields: object) -> VolumeToMount:
    spec = Spec(persistent_volume=volume) if volume is not None else Spec(volume=v1.Volume(name="pv"))
    return VolumeToMount("fake/plugin/pv", "u", spec, POD, ["data"], **fields)  # type: ignore[arg-type]


MOUNTED = MountedVolume("u", "fake/plugin/pv", "pv", NAME, types.UID("u"), Spec(volume=v1.Volume(name="pv")))
ATTACHED = AttachedVolume(
    "fake/plugin/pv", Spec(volume=v1.Volume(name="pv")), "node", device_path="/dev/fake", plugin_name=NAME
)


def test_mounting_waits_mounts_the_device_and_then_the_volume(world: World) -> None:
    assert world.mount(wanted()) == volumetypes.OperationContext()
    assert world.plugin.calls == ["new_mounter", "wait_for_attach", "mount_device", "set_up"]
    assert world.state.calls == ["mark_device_as_mounted /dev/fake", "mark_volume_as_mounted"]
    assert world.recorder.drain() == []


def test_device_that_is_mounted_is_not_mounted_again(world: World) -> None:
    world.state.device_state = DeviceMountState.DEVICE_GLOBALLY_MOUNTED
    world.mount(wanted())
    assert "mount_device" not in world.plugin.calls and "set_up" in world.plugin.calls


def test_volume_without_device_is_only_set_up(world: World) -> None:
    world.plugin.attachable = world.plugin.device_mountable = False
    world.mount(wanted())
    assert world.plugin.calls == ["new_mounter", "set_up"]


@pytest.mark.parametrize("step", ["new_mounter", "wait_for_attach", "mount_device", "set_up"])
def test_failed_step_of_mounting_is_an_event_of_the_pod(world: World, step: str) -> None:
    prefixes = {
        "new_mounter": "MountVolume.NewMounter initialization",
        "wait_for_attach": "MountVolume.WaitForAttach",
        "mount_device": "MountVolume.MountDevice",
        "set_up": "MountVolume.SetUp",
    }
    world.plugin.errors[step] = OSError("broken")
    context = world.mount(wanted())
    message = f'{prefixes[step]} failed for volume "pv" '
    assert str(context.event_err) == message + ": broken"
    assert str(context.detailed_err) == message + '(UniqueName: "fake/plugin/pv") pod "p" (UID: "u") : broken'
    assert world.recorder.drain() == [f"Warning FailedMount {message}: broken"]
    assert "mark_volume_as_mounted" not in world.state.calls


@pytest.mark.parametrize("step", ["new_mounter", "wait_for_attach", "mount_device", "set_up"])
def test_failed_step_leaves_nothing_for_the_garbage_collector(world: World, step: str) -> None:
    """A failed step leaves no reference cycle, which would keep all files of the volume in memory."""
    world.plugin.errors[step] = OSError("broken")

    def mount() -> None:
        context = world.mount(wanted())
        # The plugin's reference to the error would hide a cycle.
        world.plugin.errors.clear()
        assert str(context.event_err).endswith("broken")

    assert frames_kept_after(mount) == []


FINAL, UNCERTAIN, TRANSIENT = (
    OSError("x"),
    volumetypes.UncertainProgressError("x"),
    volumetypes.TransientOperationFailure("x"),
)


@pytest.mark.parametrize(
    ("before", "err", "reconstructed", "after"),
    [
        (VolumeMountState.VOLUME_NOT_MOUNTED, FINAL, False, VolumeMountState.VOLUME_NOT_MOUNTED),
        (VolumeMountState.VOLUME_NOT_MOUNTED, UNCERTAIN, False, VolumeMountState.VOLUME_MOUNT_UNCERTAIN),
        (VolumeMountState.VOLUME_NOT_MOUNTED, TRANSIENT, False, VolumeMountState.VOLUME_NOT_MOUNTED),
        (VolumeMountState.VOLUME_MOUNT_UNCERTAIN, FINAL, False, VolumeMountState.VOLUME_NOT_MOUNTED),
        (VolumeMountState.VOLUME_MOUNT_UNCERTAIN, FINAL, True, VolumeMountState.VOLUME_MOUNT_UNCERTAIN),
        (VolumeMountState.VOLUME_MOUNT_UNCERTAIN, TRANSIENT, False, VolumeMountState.VOLUME_MOUNT_UNCERTAIN),
        (VolumeMountState.VOLUME_MOUNTED, FINAL, False, VolumeMountState.VOLUME_MOUNTED),
        (VolumeMountState.VOLUME_MOUNTED, UNCERTAIN, False, VolumeMountState.VOLUME_MOUNTED),
    ],
)
def test_state_of_a_volume_after_a_failure(
    world: World, before: VolumeMountState, err: Exception, reconstructed: bool, after: VolumeMountState
) -> None:
    world.state.volume_state, world.state.reconstructed = before, reconstructed
    world.plugin.errors["set_up"] = err
    world.mount(wanted())
    assert world.state.volume_state is after


@pytest.mark.parametrize("step", ["set_up", "map_pod_device"])
def test_volume_that_is_found_on_disk_while_its_set_up_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A volume that reconstruction finds while its set-up fails counts as not mounted.

    The set-up began with a new volume, and has removed what it had created.
    """

    def fail(*args: object) -> None:
        world.state.volume_state, world.state.reconstructed = VolumeMountState.VOLUME_MOUNT_UNCERTAIN, True
        raise FINAL

    monkeypatch.setattr(world.plugin, step, fail)
    (world.mount if step == "set_up" else world.map)(wanted())
    assert world.state.volume_state is VolumeMountState.VOLUME_NOT_MOUNTED


@pytest.mark.parametrize(
    ("before", "err", "reconstructed", "after"),
    [
        (DeviceMountState.DEVICE_NOT_MOUNTED, FINAL, False, DeviceMountState.DEVICE_NOT_MOUNTED),
        (DeviceMountState.DEVICE_NOT_MOUNTED, UNCERTAIN, False, DeviceMountState.DEVICE_MOUNT_UNCERTAIN),
        (DeviceMountState.DEVICE_MOUNT_UNCERTAIN, FINAL, False, DeviceMountState.DEVICE_NOT_MOUNTED),
        (DeviceMountState.DEVICE_MOUNT_UNCERTAIN, FINAL, True, DeviceMountState.DEVICE_MOUNT_UNCERTAIN),
        (DeviceMountState.DEVICE_MOUNT_UNCERTAIN, UNCERTAIN, False, DeviceMountState.DEVICE_MOUNT_UNCERTAIN),
    ],
)
@pytest.mark.parametrize("step", ["mount_device", "set_up_device"])
def test_state_of_a_device_after_a_failure(
    world: World, step: str, before: DeviceMountState, err: Exception, reconstructed: bool, after: DeviceMountState
) -> None:
    world.state.device_state, world.state.reconstructed = before, reconstructed
    world.plugin.errors[step] = err
    (world.mount if step == "mount_device" else world.map)(wanted())
    assert world.state.device_state is after


@pytest.mark.parametrize("run", [World.mount, World.map])
def test_volume_for_one_pod_only(
    world: World, run: Callable[[World, VolumeToMount], volumetypes.OperationContext]
) -> None:
    world.state.mounted_elsewhere = True
    context = run(world, wanted(pv(access_modes=[v1.READ_WRITE_ONCE_POD])))
    assert "uses the ReadWriteOncePod access mode and is already in use by another pod" in str(context.event_err)
    world.client.add(pvc("1G", "1G"))
    assert run(world, wanted(pv(access_modes=[v1.READ_WRITE_ONCE_POD, v1.READ_ONLY_MANY]))).event_err is None


def test_volume_of_another_node(world: World) -> None:
    requirement = v1.NodeSelectorRequirement(key="zone", operator="In", values=["elsewhere"])
    terms = [v1.NodeSelectorTerm(match_expressions=[requirement])]
    affinity = v1.VolumeNodeAffinity(required=v1.NodeSelector(node_selector_terms=terms))
    context = world.mount(wanted(pv(node_affinity=affinity)))
    assert str(context.event_err) == (
        'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms'
    )


def test_mount_options_that_the_plugin_does_not_know(world: World) -> None:
    world.plugin.mount_options = False
    context = world.mount(wanted(pv(mount_options=["noatime"])))
    assert "mount options are not supported for this volume type" in str(context.event_err)


@pytest.mark.parametrize("before", [VolumeMountState.VOLUME_NOT_MOUNTED, VolumeMountState.VOLUME_MOUNT_UNCERTAIN])
def test_set_up_that_fails_and_leaves_a_mount_leaves_the_volume_uncertain(
    world: World, before: VolumeMountState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set-up that fails and leaves a mount leaves the volume uncertain.

    Otherwise nothing would ever unmount the volume, and the pod would stay until the kubelet restarts.
    """
    path = world.host.get_pod_volume_dir(types.UID("u"), "fake~plugin", "v")
    monkeypatch.setattr(world.plugin, "get_path", lambda: path)
    world.host.mounter.mount("tmpfs", path, "tmpfs", [])
    world.state.volume_state = before
    world.plugin.errors["set_up"] = OSError("no space left on device")
    assert world.mount(wanted()).detailed_err is not None
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN


def test_path_that_is_too_long_for_a_mount_is_not_resolved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is too long for a mount is not resolved.

    Resolving a hostPath of a megabyte would take minutes.
    """
    monkeypatch.setattr(world.plugin, "get_path", lambda: "/x" * 500_000)
    monkeypatch.setattr(os.path, "realpath", raising(AssertionError("it is resolved")))
    world.plugin.errors["set_up"] = OSError("no such directory")
    assert "no such directory" in str(world.mount(wanted()).detailed_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_NOT_MOUNTED


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("plugins/fake/plugin/mounts/v", DeviceMountState.DEVICE_MOUNT_UNCERTAIN),
        # Whatever is mounted in the directory of a local volume belongs to the node.
        ("disks/v", DeviceMountState.DEVICE_NOT_MOUNTED),
    ],
)
@pytest.mark.parametrize("before", [DeviceMountState.DEVICE_NOT_MOUNTED, DeviceMountState.DEVICE_MOUNT_UNCERTAIN])
def test_failed_mount_of_a_device_that_leaves_a_mount_leaves_the_device_uncertain(
    world: World, before: DeviceMountState, path: str, after: DeviceMountState, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{world.host.root}/{path}"
    monkeypatch.setattr(world.plugin, "get_device_mount_path", lambda spec: path)
    world.host.mounter.mount("/dev/fake", path, "ext4", [])
    world.state.device_state = before
    world.plugin.errors["mount_device"] = OSError("cannot write /etc/mtab")
    assert world.mount(wanted()).detailed_err is not None
    assert world.state.device_state is after


@pytest.mark.parametrize("reconstructed", [False, True])
@pytest.mark.parametrize("before", [DeviceMountState.DEVICE_NOT_MOUNTED, DeviceMountState.DEVICE_MOUNT_UNCERTAIN])
def test_plugin_is_told_of_a_device_that_was_found_after_a_restart(
    world: World, before: DeviceMountState, reconstructed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def mount_device(spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        told.append(args.reconstructed_volume)

    monkeypatch.setattr(world.plugin, "mount_device", mount_device)
    world.state.device_state, world.state.reconstructed = before, reconstructed
    world.mount(wanted())
    assert told == [reconstructed and before is DeviceMountState.DEVICE_MOUNT_UNCERTAIN]


def test_unmounting(world: World) -> None:
    assert world.generator.generate_unmount_volume_func(MOUNTED, world.state, "/pods").run().detailed_err is None
    assert world.plugin.calls == ["tear_down"] and world.state.calls == ["mark_volume_as_unmounted"]


def test_unmount_that_fails_leaves_the_volume_uncertain(world: World) -> None:
    world.plugin.errors["tear_down"] = OSError("busy")
    context = world.generator.generate_unmount_volume_func(MOUNTED, world.state, "/pods").run()
    assert 'UnmountVolume.TearDown failed for volume "fake/plugin/pv"' in str(context.detailed_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN
    assert world.recorder.drain() == []


@pytest.mark.parametrize(
    ("refs", "opened", "err", "after", "message"),
    [
        ([], False, None, DeviceMountState.DEVICE_NOT_MOUNTED, ""),
        (["/elsewhere"], False, None, DeviceMountState.DEVICE_GLOBALLY_MOUNTED, "still mounted by other references"),
        (["/host/plugins/global"], False, None, DeviceMountState.DEVICE_NOT_MOUNTED, ""),
        ([], True, None, DeviceMountState.DEVICE_MOUNT_UNCERTAIN, "the device is in use when"),
        ([], False, OSError("busy"), DeviceMountState.DEVICE_MOUNT_UNCERTAIN, "UnmountDevice failed"),
    ],
)
def test_unmounting_a_device(
    world: World, refs: list[str], opened: bool, err: Exception | None, after: DeviceMountState, message: str
) -> None:
    world.state.device_state = DeviceMountState.DEVICE_GLOBALLY_MOUNTED
    world.plugin.mount_refs, world.hostutil.opened = refs, opened
    if err is not None:
        world.plugin.errors["unmount_device"] = err
    operations = world.generator.generate_unmount_device_func(ATTACHED, world.state, world.hostutil)  # type: ignore[arg-type]
    context = operations.run()
    assert world.state.device_state is after
    assert message in str(context.detailed_err or "") and bool(message) == (context.detailed_err is not None)


@pytest.mark.parametrize(
    ("code", "after"),
    [
        (errno.ENOENT, DeviceMountState.DEVICE_NOT_MOUNTED),
        (errno.ESTALE, DeviceMountState.DEVICE_NOT_MOUNTED),
        (errno.ENOTCONN, DeviceMountState.DEVICE_NOT_MOUNTED),
        (errno.EMFILE, DeviceMountState.DEVICE_GLOBALLY_MOUNTED),
    ],
)
def test_device_is_unmounted_though_what_tells_its_path_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, code: int, after: DeviceMountState
) -> None:
    monkeypatch.setattr(world.plugin, "get_device_mount_path", raising(OSError(code, os.strerror(code))))
    world.state.device_state = DeviceMountState.DEVICE_GLOBALLY_MOUNTED
    operations = world.generator.generate_unmount_device_func(ATTACHED, world.state, world.hostutil)  # type: ignore[arg-type]
    operations.run()
    assert world.state.device_state is after


def test_device_of_which_nobody_can_tell_whether_it_is_in_use_is_mounted_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> bool:
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))

    world.state.device_state = DeviceMountState.DEVICE_GLOBALLY_MOUNTED
    monkeypatch.setattr(world.hostutil, "device_opened", fail)
    operations = world.generator.generate_unmount_device_func(ATTACHED, world.state, world.hostutil)  # type: ignore[arg-type]
    context = operations.run()
    assert "DeviceOpened failed" in str(context.detailed_err) and context.event_err is None
    assert world.state.device_state is DeviceMountState.DEVICE_MOUNT_UNCERTAIN


def test_mapping_and_unmapping_a_block_volume(world: World) -> None:
    assert world.map(wanted()) == volumetypes.OperationContext()
    assert world.plugin.calls == ["wait_for_attach", "set_up_device", "map_pod_device"]
    assert world.blocks.calls == [
        "map /dev/mapped /plugins/map/u True",
        "map /dev/mapped /pods/volumeDevices/disk False",
        "attach /plugins/map/u",
    ]
    marks = ["mark_device_as_mounted /dev/fake", "mark_device_as_mounted /dev/mapped", "mark_volume_as_mounted"]
    assert world.state.calls == marks
    assert [event.split()[1] for event in world.recorder.drain()] == ["SuccessfulMountVolume"] * 2
    world.blocks.calls, world.plugin.calls = [], []
    assert world.generator.generate_unmap_volume_func(MOUNTED, world.state).run().detailed_err is None
    assert world.blocks.calls == [
        "detach /plugins/map/u",
        "unmap /pods/volumeDevices/disk False",
        "unmap /plugins/map/u True",
    ]
    assert world.plugin.calls == ["unmap_pod_device"]
    assert world.state.calls[-2:] == ["mark_volume_mount_as_uncertain", "mark_volume_as_unmounted"]


def test_mapper_is_made_by_the_operation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Spec] = []

    def fail(spec: Spec, pod: v1.Pod) -> None:
        asked.append(spec)
        raise ValueError("couldn't get secret")

    monkeypatch.setattr(world.plugin, "new_block_volume_mapper", fail)
    operations = world.generator.generate_map_volume_func(1.0, wanted(), world.state)
    assert asked == [], "the thread that starts operations serves all pods, and must not wait for the API server"
    context = operations.run()
    assert "MapVolume.NewBlockVolumeMapper initialization failed" in str(context.event_err)
    assert [event.split()[1] for event in world.recorder.drain()] == ["FailedMapVolume"] and len(asked) == 1


def test_mapping_that_fails_after_the_driver_did_its_part_leaves_the_volume_uncertain(world: World) -> None:
    world.state.errors["mark_device_as_mounted /dev/mapped"] = ValueError("unknown volume")
    context = world.map(wanted())
    assert "MapVolume.MarkDeviceAsMounted failed" in str(context.event_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN


def test_mapping_that_failed_is_not_forgotten_when_the_driver_refuses_the_next(world: World) -> None:
    """A failed mapping is not forgotten when the driver rejects the next one.

    Nothing else would make the driver unpublish the device.
    """
    world.state.errors["mark_device_as_mounted /dev/mapped"] = ValueError("unknown volume")
    world.map(wanted())
    world.plugin.errors["map_pod_device"] = FINAL
    context = world.map(wanted())
    assert "MapVolume.MapPodDevice failed" in str(context.event_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN


@pytest.mark.parametrize(("err", "after"), [(FINAL, "NOT_MOUNTED"), (UNCERTAIN, "MOUNT_UNCERTAIN")])
@pytest.mark.parametrize("block", [True, False])
def test_device_that_may_be_attached_by_its_plugin_is_uncertain(
    world: World, block: bool, err: Exception, after: str
) -> None:
    world.plugin.errors["wait_for_attach"] = err
    context = (world.map if block else world.mount)(wanted())
    assert context.event_err is not None and world.state.device_state is DeviceMountState[f"DEVICE_{after}"]


def test_mapping_without_a_driver_that_fails_half_way_leaves_the_volume_uncertain(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> str:
        raise OSError("no free loop device")

    monkeypatch.delattr(FakePlugin, "set_up_device")
    monkeypatch.setattr(world.blocks, "attach_file_device", fail)
    context = world.map(wanted())
    assert "no free loop device" in str(context.event_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN


@pytest.mark.parametrize(("reconstructed", "told"), [(True, [True]), (False, [False])])
def test_driver_is_told_of_a_block_volume_that_was_found_after_a_restart(
    world: World, monkeypatch: pytest.MonkeyPatch, reconstructed: bool, told: list[bool]
) -> None:
    found: list[bool] = []

    def set_up_device(reconstructed_volume: bool = False) -> str:
        found.append(reconstructed_volume)
        return "/plugins/staging"

    monkeypatch.setattr(world.plugin, "set_up_device", set_up_device)
    world.state.device_state = DeviceMountState.DEVICE_MOUNT_UNCERTAIN
    world.state.reconstructed = reconstructed
    assert world.map(wanted()).detailed_err is None and found == told


@pytest.mark.parametrize(
    ("refs", "opened", "message"),
    [([], False, ""), (["/plugins/map/other"], False, "still referenced from other Pods"), ([], True, "is in use")],
)
def test_unmapping_a_device(world: World, refs: list[str], opened: bool, message: str) -> None:
    world.blocks.refs, world.hostutil.opened = refs, opened
    operations = world.generator.generate_unmap_device_func(ATTACHED, world.state, world.hostutil)  # type: ignore[arg-type]
    context = operations.run()
    assert message in str(context.detailed_err or "")
    assert ("tear_down_device" in world.plugin.calls) == (not refs)
    assert (world.state.calls[-1:] == ["mark_device_as_unmounted"]) == (not message)


def test_volume_that_need_not_be_attached_counts_as_attached(world: World) -> None:
    world.client.add(pvc("2G", "2G"))
    assert world.verify(wanted(pv())).detailed_err is None
    assert world.state.attached == {"fake/plugin/pv": ""}
    assert str(world.state.claim_sizes["fake/plugin/pv"]) == "2G"


def test_server_is_asked_while_the_node_is_not_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> dict[str, str]:
        raise LookupError('node "node" not found')

    monkeypatch.setattr(world.host, "get_attached_volumes_from_node_status", unknown)
    attached = v1.AttachedVolume(name="fake/plugin/pv", device_path="/dev/x")
    status = v1.NodeStatus(volumes_attached=[attached])
    world.client.add(v1.Node(metadata=metav1.ObjectMeta(name="node"), status=status))
    assert world.verify(wanted(plugin_is_attachable=True, reported_in_use=True)).detailed_err is None
    assert world.state.attached == {"pv": "/dev/x"}


def test_volume_that_is_to_be_attached(world: World) -> None:
    volume = wanted(plugin_is_attachable=True)
    with pytest.raises(MountPreConditionFailed, match="is not yet in node's status"):
        world.verify(volume)
    world.host.volumes_attached = {"fake/plugin/pv": ""}
    context = world.verify(volume)
    assert "has not been added to the list of VolumesInUse" in str(context.detailed_err)
    volume = wanted(plugin_is_attachable=True, reported_in_use=True)
    node = v1.Node(metadata=metav1.ObjectMeta(name="node"))
    world.client.add(node)
    assert "Volume not attached according to node status" in str(world.verify(volume).detailed_err)
    node.status.volumes_attached = [v1.AttachedVolume(name="fake/plugin/pv", device_path="/dev/x")]
    world.client.add(node)
    assert world.verify(volume).detailed_err is None
    assert world.state.attached == {"pv": "/dev/x"}


def test_attaching_and_detaching(world: World) -> None:
    spec = Spec(volume=v1.Volume(name="pv"))
    to_attach = VolumeToAttach("fake/plugin/pv", spec, "node", [POD])
    assert world.generator.generate_attach_volume_func(to_attach, world.state).run().detailed_err is None
    assert world.state.attached == {"fake/plugin/pv": "/dev/fake"}
    assert world.recorder.drain()[0].startswith(
        "Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume"
    )
    world.client.add(
        v1.Node(metadata=metav1.ObjectMeta(name="node"), status=v1.NodeStatus(volumes_in_use=["fake/plugin/pv"]))
    )
    operations = world.generator.generate_detach_volume_func(ATTACHED, True, world.state)
    assert "volume is still in use by node" in str(operations.run().detailed_err)
    assert "detach" not in world.plugin.calls and world.state.calls[-1] == "mark_volume_as_uncertain"
    world.client.add(v1.Node(metadata=metav1.ObjectMeta(name="node")))
    assert world.generator.generate_detach_volume_func(ATTACHED, True, world.state).run().detailed_err is None
    assert world.state.calls[-1] == "mark_volume_as_detached fake/plugin/pv"


def test_volumes_that_are_attached_no_more(world: World) -> None:
    world.plugin.attached = {"pv": False}
    world.generator.generate_volumes_are_attached_func([ATTACHED], "node", world.state).run()
    assert world.state.calls == ["mark_volume_as_detached fake/plugin/pv"]


def test_volume_is_expanded_while_it_is_mounted(world: World) -> None:
    world.client.add(pvc("2G", "1G"))
    assert world.mount(wanted(pv("2G"))).detailed_err is None
    assert "node_expand 2G" in world.plugin.calls
    claim = world.client.core_v1.persistent_volume_claims("ns").get(golang.background(), "claim")
    assert str(claim.status.capacity[v1.RESOURCE_STORAGE]) == "2G"
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNTED


def test_inline_volume_of_a_csi_driver_has_no_claim_and_is_not_expanded(world: World) -> None:
    spec = Spec(persistent_volume=pv("2G"), migrated=True, inline_volume_spec_for_csi_migration=True)
    context = world.mount(replace(wanted(), volume_spec=spec))
    assert context.detailed_err is None and context.migrated
    assert "node_expand 2G" not in world.plugin.calls


def test_pod_does_not_get_a_volume_that_could_not_be_expanded(world: World) -> None:
    world.client.add(pvc("2G", "1G"))
    world.plugin.errors["node_expand 2G"] = OSError("full")
    assert "Setup failed while expanding volume" in str(world.mount(wanted(pv("2G"))).event_err)
    assert world.state.volume_state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN


@pytest.mark.parametrize(
    ("current", "status", "known", "message"),
    [("0", "1G", True, "size of the volume is not set"), ("1G", "1G", False, "unable to mark"), ("1G", "1G", True, "")],
)
def test_volume_is_expanded_in_use(world: World, current: str, status: str, known: bool, message: str) -> None:
    world.client.add(pvc("2G", status, "2G", PENDING))
    world.state.known = known
    volume = wanted(pv("2G"), desired_persistent_volume_size=resource.parse_quantity("2G"))
    size = resource.parse_quantity(current)
    context = world.generator.generate_expand_in_use_volume_func(volume, world.state, size).run()
    assert message in str(context.event_err or "") and bool(message) == (context.event_err is not None)
    assert ("mark_volume_as_resized 2G" in world.state.calls) == (current != "0")


@pytest.mark.parametrize(
    ("claim", "shared", "not_required", "err", "status", "size", "called", "done", "final"),
    [
        (pvc("2G", "1G", "", INFEASIBLE), False, False, None, INFEASIBLE, "1G", False, False, False),
        (pvc("2G", "1G", "2G", PENDING), False, False, None, "", "2G", True, True, False),
        (
            pvc("2G", "1G", "2G", PENDING),
            False,
            False,
            volumetypes.InfeasibleError("x"),
            INFEASIBLE,
            "1G",
            True,
            False,
            True,
        ),
        (pvc("2G", "1G", "2G", PENDING), False, False, OSError("x"), IN_PROGRESS, "1G", True, False, True),
        (pvc("2G", "2G", "2G"), False, False, None, "", "2G", False, True, False),
        (pvc("2G", "2G", "2G"), True, False, None, "", "2G", True, True, False),
        (
            pvc("2G", "2G", "2G"),
            True,
            False,
            volumetypes.OperationNotSupportedError("x"),
            "",
            "2G",
            False,
            True,
            False,
        ),
        (pvc("2G", "2G", "2G"), True, True, None, "", "2G", False, True, False),
    ],
)
def test_node_expander(
    world: World,
    claim: v1.PersistentVolumeClaim,
    shared: bool,
    not_required: bool,
    err: Exception | None,
    status: str,
    size: str,
    called: bool,
    done: bool,
    final: bool,
) -> None:
    claim = v1.deepcopy(claim)
    if shared:
        claim.spec.access_modes.append(v1.READ_WRITE_MANY)
    if not_required:
        claim.metadata.annotations[volumetypes.NODE_EXPANSION_NOT_REQUIRED] = "true"
    world.client.add(claim)
    volume, persistent = wanted(pv("2G")), pv("2G")
    old, new = claim.status.capacity[v1.RESOURCE_STORAGE], resource.parse_quantity("2G")
    options = NodeResizeOptions(volume.volume_spec, "", "", "", new, old)
    if err is not None:
        world.plugin.errors["node_expand 2G"] = err
    operation = NodeResizeOperationOpts(volume, claim, persistent, options, world.plugin, world.state)
    expander = NodeExpander(operation, world.client, world.recorder)
    if isinstance(err, OSError | volumetypes.InfeasibleError):
        with pytest.raises(type(err)):
            expander.expand_on_plugin()
        assert not done
    else:
        assert expander.expand_on_plugin().done == done
    stored = world.client.core_v1.persistent_volume_claims("ns").get(golang.background(), "claim")
    assert stored.status.allocated_resource_statuses.get(v1.RESOURCE_STORAGE, "") == status
    assert str(stored.status.capacity[v1.RESOURCE_STORAGE]) == size
    assert expander.test_status.resize_called_on_plugin == called
    assert expander.test_status.assume_resize_finished
    assert (volume.volume_name in world.state.final_errors) == final
    assert bool(stored.status.conditions) == final
