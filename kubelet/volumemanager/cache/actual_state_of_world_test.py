"""Test the actual state of volumes and their pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubelet.volumemanager.cache import (
    ActualStateOfWorld,
    FsResizeRequiredError,
    PodInVolume,
    RemountRequiredError,
    SELinuxMountMismatchError,
    VolumeNotAttachedError,
)
from kubelet.volumemanager.testing import (
    FAKE_PLUGIN_NAME,
    FakeAttachableVolumePlugin,
    FakeVolume,
    new_persistent_volume_spec,
)
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity, parse_quantity
from pkg.volume import VolumePluginMgr
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.operationexecutor import DeviceMountState, MarkVolumeOpts, VolumeMountState

NAME = "test.io/fake-plugin/pv"
SPEC = new_persistent_volume_spec("pv")
ZERO = Quantity(0)
MOUNTED, UNCERTAIN = VolumeMountState.VOLUME_MOUNTED, VolumeMountState.VOLUME_MOUNT_UNCERTAIN


class World:
    """Hold an actual state, with a plugin and the pods that the state reported."""

    def __init__(self, root: Path) -> None:
        self.plugin = FakeAttachableVolumePlugin()
        plugins = VolumePluginMgr()
        plugins.init_plugins([self.plugin], FakeVolumeHost(str(root)))
        self.told: list[str] = []
        self.state = ActualStateOfWorld("node", plugins, self.told.append)

    def opts(self, pod: str = "a", state: VolumeMountState = MOUNTED, context: str = "") -> MarkVolumeOpts:
        mounter = FakeVolume(self.plugin, "pv", types.UID(pod))
        return MarkVolumeOpts(
            pod, types.UID(pod), NAME, SPEC, mounter=mounter, volume_mount_state=state, selinux_mount_context=context
        )

    def attach(self, name: str = NAME) -> None:
        self.state.mark_volume_as_attached(name, SPEC, "node", "/dev/a")

    def asked(self, pod: str = "a", size: Quantity = ZERO, label: str = "") -> PodInVolume:
        return self.state.pod_exists_in_volume(pod, NAME, size, label)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(("given", "expected"), [("", NAME), ("never-the-plugins-own", "never-the-plugins-own")])
def test_attached_volume_is_there_and_no_pods(world: World, given: str, expected: str) -> None:
    world.attach(given)
    world.attach(given)
    assert world.state.volume_exists(expected)
    (volume,) = world.state.get_unmounted_volumes()
    assert (volume.volume_name, volume.device_path, volume.plugin_is_attachable) == (expected, "/dev/a", True)
    assert world.state.get_globally_mounted_volumes() == [] and not volume.device_may_be_mounted()
    assert world.state.get_attachable_volumes() == {expected}


def test_volume_that_nobody_must_attach(world: World) -> None:
    world.plugin.can_attach_volumes = False
    world.attach()
    assert not world.state.get_attached_volumes()[0].plugin_is_attachable
    assert world.state.get_attachable_volumes() == set()


def test_volume_attached_again_has_the_new_path(world: World) -> None:
    world.attach()
    world.state.mark_volume_as_attached(NAME, SPEC, "node", "/dev/b")
    volume = world.state.get_attached_volume(NAME)
    assert volume is not None and volume.device_path == "/dev/b"


def test_volume_of_unknown_kind_is_refused(world: World) -> None:
    assert SPEC.persistent_volume is not None
    with pytest.raises(ValueError, match='failed to get Plugin from volumeSpec for volume ""'):
        world.state.mark_volume_as_attached("", replace(SPEC, persistent_volume=None), "node", "")


def test_pods_get_a_volume_and_lose_it(world: World) -> None:
    world.attach()
    for pod in ("a", "a", "b"):
        world.state.mark_volume_as_mounted(world.opts(pod))
    assert world.asked("a") == world.asked("b") == PodInVolume(True, "/dev/a")
    assert world.asked("c") == PodInVolume(False, "/dev/a")
    assert world.state.get_unmounted_volumes() == []
    assert world.state.is_volume_mounted_elsewhere(NAME, "a")
    assert world.state.volume_exists_with_spec_name("a", FAKE_PLUGIN_NAME, "pv")
    assert not world.state.volume_exists_with_spec_name("a", "test.io/other", "pv")
    with pytest.raises(ValueError, match="it still has 2 mountedPods"):
        world.state.delete_volume(NAME)
    world.state.mark_volume_as_unmounted("a", NAME)
    assert not world.state.is_volume_mounted_elsewhere(NAME, "b")
    assert not world.state.volume_exists_with_spec_name("a", FAKE_PLUGIN_NAME, "pv")
    world.state.mark_volume_as_detached(NAME, "node")
    assert world.state.volume_exists(NAME), "a pod has the volume"
    world.state.mark_volume_as_unmounted("b", NAME)
    world.state.mark_volume_as_detached(NAME, "node")
    world.state.mark_volume_as_detached(NAME, "node")
    assert not world.state.volume_exists(NAME)
    assert world.told == ["a", "a", "b", "a", "b"]


def test_volume_must_be_attached_before_a_pod_can_have_it(world: World) -> None:
    message = f'no volume with the name "{NAME}" exists in the list of attached volumes'
    with pytest.raises(ValueError, match=message):
        world.state.mark_volume_as_mounted(world.opts())
    with pytest.raises(ValueError, match=message):
        world.state.mark_volume_as_unmounted("a", NAME)
    with pytest.raises(ValueError, match=message):
        world.state.mark_device_as_unmounted(NAME)
    known = world.asked()
    assert not known.is_mounted and not known.device_path and isinstance(known.err, VolumeNotAttachedError)
    assert world.state.pod_removed_from_volume("a", NAME)
    assert world.state.get_volume_mount_state(NAME, "a") is VolumeMountState.VOLUME_NOT_MOUNTED
    assert world.state.get_device_mount_state(NAME) is DeviceMountState.DEVICE_NOT_MOUNTED


@pytest.mark.parametrize("state", [MOUNTED, UNCERTAIN])
def test_uncertain_volume_counts_for_unmounting_only(world: World, state: VolumeMountState) -> None:
    world.attach()
    mark = world.state.mark_volume_as_mounted if state is MOUNTED else world.state.mark_volume_mount_as_uncertain
    mark(world.opts())
    sure = state is MOUNTED
    assert world.asked().is_mounted == sure
    assert world.state.pod_has_mounted_volumes("a") == sure
    assert (world.state.get_mounted_volume_for_pod("a", NAME) is not None) == sure
    assert len(world.state.get_mounted_volumes()) == len(world.state.get_mounted_volumes_for_pod("a")) == int(sure)
    assert len(world.state.get_all_mounted_volumes()) == 1
    assert len(world.state.get_possibly_mounted_volumes_for_pod("a")) == 1
    assert world.state.get_possibly_mounted_volumes_for_pod("b") == []
    assert not world.state.pod_removed_from_volume("a", NAME)
    assert world.state.is_volume_mounted_elsewhere(NAME, "b")


def test_uncertain_volume_that_was_mounted_has_the_new_mounter(world: World) -> None:
    world.attach()
    world.state.mark_volume_mount_as_uncertain(replace(world.opts(), mounter=None, volume_gid_volume="1"))
    opts = replace(world.opts(), volume_gid_volume="2")
    world.state.mark_volume_as_mounted(opts)
    mounted = world.state.get_mounted_volume_for_pod("a", NAME)
    assert mounted is not None and (mounted.mounter, mounted.volume_gid_value) == (opts.mounter, "2")
    world.state.mark_volume_as_mounted(replace(world.opts(), volume_gid_volume="3", mounter=None))
    again = world.state.get_mounted_volume_for_pod("a", NAME)
    assert again == mounted, "a volume that is known to be mounted does not change"


def test_remount_is_required_until_it_is_done(world: World) -> None:
    world.attach()
    world.state.mark_volume_as_mounted(world.opts())
    world.state.mark_remount_required("a")
    assert world.asked() == PodInVolume(True, "/dev/a"), "the plugin requires no remount"
    world.plugin.remount = True
    world.state.mark_remount_required("b")
    assert world.asked().err is None
    world.state.mark_remount_required("a")
    known = world.asked()
    err = known.err
    assert known.is_mounted and isinstance(err, RemountRequiredError)
    assert str(err) == f'volumeName "{NAME}" is mounted to "a" but should be remounted'
    world.state.mark_remount_begun("a", NAME)
    assert isinstance(world.asked().err, RemountRequiredError)
    world.state.mark_volume_as_mounted(world.opts())
    assert world.asked().err is None


def test_remount_that_is_required_while_one_runs_is_not_forgotten(world: World) -> None:
    world.plugin.remount = True
    world.attach()
    world.state.mark_volume_as_mounted(world.opts())
    world.state.mark_remount_required("a")
    world.state.mark_remount_begun("a", NAME)
    world.state.mark_remount_required("a")
    world.state.mark_volume_as_mounted(world.opts())
    assert isinstance(world.asked().err, RemountRequiredError)
    world.state.mark_remount_begun("a", NAME)
    world.state.mark_remount_begun("b", NAME)
    world.state.mark_volume_as_mounted(world.opts())
    assert world.asked().err is None


def test_device_states(world: World) -> None:
    world.attach()
    world.state.mark_device_as_uncertain(NAME, "", "/mnt/pv", "")
    (volume,) = world.state.get_attached_volumes()
    assert volume.device_may_be_mounted() and world.state.get_globally_mounted_volumes() == []
    world.state.mark_device_as_mounted(NAME, "/dev/c", "/mnt/pv", "")
    (volume,) = world.state.get_globally_mounted_volumes()
    assert (volume.device_path, volume.device_mount_path) == ("/dev/c", "/mnt/pv")
    world.state.mark_device_as_unmounted(NAME)
    (volume,) = world.state.get_attached_volumes()
    assert not volume.device_may_be_mounted()
    assert (volume.device_path, volume.device_mount_path) == ("/dev/c", ""), "the volume is still attached"


def test_volume_mounted_with_another_label_must_go_first(world: World) -> None:
    world.attach()
    assert world.asked(label="l").err is None, "the volume is not mounted"
    world.state.mark_volume_as_mounted(world.opts(context="l"))
    assert world.asked(label="l") == PodInVolume(True, "/dev/a")
    known = world.asked(label="m")
    assert not known.is_mounted and isinstance(known.err, SELinuxMountMismatchError)
    assert [v.selinux_mount_context for v in world.state.get_attached_volumes()] == ["l"]
    assert [v.selinux_mount_context for v in world.state.get_all_mounted_volumes()] == ["l"]


def test_label_of_the_device_is_that_of_the_volume(world: World) -> None:
    world.attach()
    world.state.mark_device_as_mounted(NAME, "", "/mnt/pv", "l")
    assert isinstance(world.asked(label="").err, SELinuxMountMismatchError)
    world.state.mark_device_as_unmounted(NAME)
    assert world.asked(label="l").err is None


@pytest.mark.parametrize(
    ("actual", "desired", "in_use_error", "expected"),
    [
        ("5G", "10G", False, True),
        ("5G", "5G", False, False),
        ("10G", "5G", False, False),
        ("0", "5G", False, False),
        ("5G", "0", False, False),
        ("5G", "10G", True, False),
    ],
)
def test_larger_volume_needs_expansion(
    world: World, actual: str, desired: str, in_use_error: bool, expected: bool
) -> None:
    world.attach()
    world.state.mark_volume_as_mounted(world.opts())
    world.state.initialize_claim_size(NAME, parse_quantity(actual))
    if in_use_error:
        world.state.mark_for_in_use_expansion_error(NAME)
    known = world.asked(size=parse_quantity(desired))
    err = known.err
    assert known.is_mounted and isinstance(err, FsResizeRequiredError) == expected
    if isinstance(err, FsResizeRequiredError):
        assert err.current_size == parse_quantity(actual)
        assert world.state.mark_volume_as_resized(NAME, parse_quantity(desired))
        assert world.asked(size=parse_quantity(desired)).err is None


def test_claim_size_is_set_once(world: World) -> None:
    assert world.state.get_claim_size(NAME) == ZERO and not world.state.mark_volume_as_resized(NAME, Quantity(1))
    world.attach()
    world.state.initialize_claim_size(NAME, Quantity(5))
    world.state.initialize_claim_size(NAME, Quantity(7))
    assert world.state.get_claim_size(NAME) == Quantity(5)


def test_final_expansion_errors_are_remembered(world: World) -> None:
    world.state.mark_volume_expansion_failed_with_final_error(NAME)
    assert world.state.check_volume_in_failed_expansion_with_final_errors(NAME)
    world.state.remove_volume_from_failed_with_final_errors(NAME)
    assert not world.state.check_volume_in_failed_expansion_with_final_errors(NAME)


# ---- Reconstruction ----


def reconstruct(world: World) -> None:
    world.state.add_attach_uncertain_reconstructed_volume(NAME, SPEC, "node", "")
    assert world.state.check_and_mark_volume_as_uncertain_via_reconstruction(world.opts(state=UNCERTAIN))


@pytest.mark.parametrize(
    ("then", "pod_expected", "device_expected"),
    [
        ("nothing", True, True),
        ("mounted", False, True),
        ("uncertain", True, True),
        ("unmounted", False, True),
        ("detached", False, False),
    ],
)
def test_reconstructed_until_something_sure_is_known(
    world: World, then: str, pod_expected: bool, device_expected: bool
) -> None:
    reconstruct(world)
    match then:
        case "mounted":
            world.state.mark_volume_as_mounted(world.opts())
        case "uncertain":
            world.state.mark_volume_mount_as_uncertain(world.opts())
        case "unmounted" | "detached":
            world.state.mark_volume_as_unmounted("a", NAME)
    if then == "detached":
        world.state.mark_volume_as_detached(NAME, "node")
    assert world.state.is_volume_reconstructed(NAME, "a") == pod_expected
    assert world.state.is_volume_device_reconstructed(NAME) == device_expected


def test_device_is_reconstructed_although_no_pod_has_it(world: World) -> None:
    """The device of a reconstructed volume counts as reconstructed even if no pod has the volume.

    If a driver fails to stage the volume again, it may still be staged from before.
    """
    world.state.add_attach_uncertain_reconstructed_volume(NAME, SPEC, "node", "")
    world.state.mark_device_as_uncertain(NAME, "", "/mnt/pv", "")
    assert world.state.is_volume_device_reconstructed(NAME)
    world.state.mark_volume_as_detached(NAME, "node")
    assert not world.state.is_volume_device_reconstructed(NAME)


def test_what_is_known_is_not_reconstructed(world: World) -> None:
    assert not world.state.check_and_mark_volume_as_uncertain_via_reconstruction(world.opts())
    assert not world.state.check_and_mark_device_uncertain_via_reconstruction(NAME, "/mnt/pv")
    world.attach()
    world.state.mark_volume_as_mounted(world.opts())
    assert not world.state.check_and_mark_volume_as_uncertain_via_reconstruction(world.opts())
    assert world.state.get_volume_mount_state(NAME, "a") is MOUNTED
    assert world.state.check_and_mark_device_uncertain_via_reconstruction(NAME, "/mnt/pv")
    assert not world.state.check_and_mark_device_uncertain_via_reconstruction(NAME, "/mnt/other")
    (volume,) = world.state.get_attached_volumes()
    assert volume.device_mount_path == "/mnt/pv" and volume.device_may_be_mounted()


@pytest.mark.parametrize("attachable", [True, False])
def test_node_status_tells_path_and_attachability_of_reconstructed_volumes(world: World, attachable: bool) -> None:
    reconstruct(world)
    assert world.state.get_attachable_volumes() == set(), "its attachability is still uncertain"
    world.state.mark_device_as_uncertain(NAME, "", "/mnt/pv", "")
    world.state.update_reconstructed_device_path(NAME, "/dev/new")
    world.state.update_reconstructed_volume_attachability(NAME, attachable)
    world.state.update_reconstructed_volume_attachability(NAME, not attachable)
    (volume,) = world.state.get_attached_volumes()
    assert (volume.device_path, volume.plugin_is_attachable) == ("/dev/new", attachable)


def test_node_status_tells_nothing_of_volumes_that_were_mounted_since(world: World) -> None:
    reconstruct(world)
    world.state.mark_device_as_mounted(NAME, "/dev/a", "/mnt/pv", "")
    world.state.update_reconstructed_device_path(NAME, "/dev/new")
    world.state.update_reconstructed_device_path("other", "/dev/new")
    world.state.update_reconstructed_volume_attachability("other", True)
    (volume,) = world.state.get_attached_volumes()
    assert volume.device_path == "/dev/a"
