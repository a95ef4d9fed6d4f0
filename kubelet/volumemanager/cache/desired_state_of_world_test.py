"""Test the desired state of volumes and their pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kubelet.volumemanager.cache import DesiredStateOfWorld
from kubelet.volumemanager.cache import desired_state_of_wold_selinux_metrics as selinux_metrics
from kubelet.volumemanager.testing import (
    FakeAttachableVolumePlugin,
    FakeBasicVolumePlugin,
    FakeDeviceMountableVolumePlugin,
    new_persistent_volume,
    new_pod,
)
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity, parse_quantity
from pkg.apimachinery.clock.testing import FakeClock
from pkg.component_base.metrics import testing as metricstesting
from pkg.volume import Spec, VolumePluginMgr, emptydir
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.testing import FakeSELinuxLabelTranslator

LABEL = "system_u:object_r:container_file_t:s0:c1,c2"
OPTIONS = v1.SELinuxOptions(level="s0:c1,c2")


class World:
    def __init__(self, root: Path, plugin: FakeBasicVolumePlugin, selinux: bool = False) -> None:
        self.plugin = plugin
        plugins = VolumePluginMgr()
        plugins.init_plugins([plugin, *emptydir.probe_volume_plugins()], FakeVolumeHost(str(root)))
        self.told: list[str] = []
        self.clock = FakeClock()
        self.state = DesiredStateOfWorld(plugins, FakeSELinuxLabelTranslator(selinux), self.told.append, self.clock)

    def add(
        self,
        pod: str,
        spec: Spec,
        outer_name: str = "vol",
        contexts: tuple[v1.SELinuxOptions, ...] = (),
        policy: str | None = None,
    ) -> str:
        new = new_pod(pod)
        new.spec.security_context = v1.PodSecurityContext(se_linux_change_policy=policy)
        return self.state.add_pod_to_volume(pod, new, spec, outer_name, "", list(contexts))


def disk(name: str, *access_modes: str) -> Spec:
    volume = new_persistent_volume(name)
    volume.spec.access_modes = list(access_modes)
    return Spec(persistent_volume=volume)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, FakeAttachableVolumePlugin())


def test_pod_wants_a_volume(world: World) -> None:
    name = world.add("a", disk("pv"))
    world.add("a", disk("pv"))
    assert name == "test.io/fake-plugin/pv" and world.state.volume_exists(name, "")
    assert world.state.pod_exists_in_volume("a", name, "") and not world.state.pod_exists_in_volume("b", name, "")
    assert world.state.volume_exists_with_spec_name("a", "pv")
    assert not world.state.volume_exists_with_spec_name("b", "pv")
    (volume,) = world.state.get_volumes_to_mount()
    assert (volume.volume_name, volume.pod_name, volume.outer_volume_spec_names) == (name, "a", ["vol"])
    assert volume.plugin_is_attachable and volume.plugin_is_device_mountable and not volume.reported_in_use
    assert volume.desired_persistent_volume_size == parse_quantity("5G")
    assert world.state.get_attachable_volumes() == {name} and world.state.get_pods() == {"a"}


def test_volume_goes_with_its_last_pod(world: World) -> None:
    name = world.add("a", disk("pv"))
    world.add("b", disk("pv"))
    world.state.delete_pod_from_volume("a", name)
    world.state.delete_pod_from_volume("a", "other")
    assert world.state.volume_exists(name, "") and world.state.get_pods() == {"b"}
    world.state.delete_pod_from_volume("b", name)
    assert not world.state.volume_exists(name, "") and world.state.get_volumes_to_mount() == []


@pytest.mark.parametrize(
    ("plugin", "shared"),
    [
        (FakeBasicVolumePlugin(), False),
        (FakeDeviceMountableVolumePlugin(), True),
        (FakeAttachableVolumePlugin(), True),
    ],
)
def test_pods_share_what_the_node_has_once(tmp_path: Path, plugin: FakeBasicVolumePlugin, shared: bool) -> None:
    world = World(tmp_path, plugin)
    names = {world.add("a", disk("pv")), world.add("b", disk("pv"))}
    assert names == ({"test.io/fake-plugin/pv"} if shared else {"test.io/fake-plugin/a-pv", "test.io/fake-plugin/b-pv"})


def test_claim_under_two_names_is_one_volume(world: World) -> None:
    name = world.add("a", disk("pv"), "one")
    world.add("a", disk("pv"), "two")
    world.add("a", disk("other"), "three")
    (first, _) = world.state.get_volumes_to_mount()
    assert first.outer_volume_spec_names == ["one", "two"]
    names = world.state.get_volume_names_for_pod("a")
    assert names == {"one": name, "two": name, "three": "test.io/fake-plugin/other"}
    assert world.state.get_volume_names_for_pod("b") == {}


@pytest.mark.parametrize("remount", [True, False])
def test_request_is_a_new_one_for_volumes_that_are_set_up_again(world: World, remount: bool) -> None:
    """The request time follows the monotonic clock, because the time of day may be set before the mount ends."""
    world.clock.shift(3600)
    world.plugin.remount = remount
    world.add("a", disk("pv"))
    first = world.clock.steady()
    world.clock.step(5)
    world.add("a", disk("pv"))
    (volume,) = world.state.get_volumes_to_mount()
    assert volume.mount_request_time == (world.clock.steady() if remount else first)


def test_reported_in_use_is_what_was_reported_last(world: World) -> None:
    one, two = world.add("a", disk("one")), world.add("a", disk("two"))

    def reported() -> set[str]:
        return {volume.volume_name for volume in world.state.get_volumes_to_mount() if volume.reported_in_use}

    assert world.state.mark_volumes_reported_in_use([one, "unknown"]) and reported() == {one}
    assert not world.state.mark_volumes_reported_in_use([one])
    assert world.state.mark_volumes_reported_in_use([two]) and reported() == {two}
    world.state.delete_pod_from_volume("a", two)
    world.add("a", disk("two"))
    assert reported() == set()


def test_attachability_and_size_change(world: World) -> None:
    name = world.add("a", disk("pv"))
    world.state.mark_volume_attachability(name, False)
    world.state.mark_volume_attachability("other", False)
    world.state.update_persistent_volume_size(name, parse_quantity("9G"))
    world.state.update_persistent_volume_size("other", parse_quantity("9G"))
    (volume,) = world.state.get_volumes_to_mount()
    assert not volume.plugin_is_attachable and volume.desired_persistent_volume_size == parse_quantity("9G")
    assert world.state.get_attachable_volumes() == set()


def test_errors_are_kept_once_and_not_without_bounds(world: World) -> None:
    for text in ["b", "a", "b", *map(str, range(100))]:
        world.state.add_error_to_pod("p", ValueError(text))
    assert world.state.get_pods_with_errors() == ["p"] and set(world.told) == {"p"}
    errors = [str(err) for err in world.state.pop_pod_errors("p")]
    assert errors == sorted(errors) and {"a", "b"} < set(errors) and len(errors) == 10
    assert world.state.pop_pod_errors("p") == [] == world.state.get_pods_with_errors()
    name = world.add("p", disk("pv"))
    world.state.add_error_to_pod("p", ValueError("x"))
    world.state.delete_pod_from_volume("p", name)
    assert world.state.pop_pod_errors("p") == [], "the pod's errors are forgotten with its volume"


def test_volume_without_a_plugin_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match='failed to get Plugin from volumeSpec for volume "v" err=no volume plugin'):
        world.add("a", Spec(v1.Volume(name="v", nfs=v1.NFSVolumeSource(server="s", path="/"))))


@pytest.mark.parametrize(
    ("pod_limit", "own_limit", "medium", "expected"),
    [
        (None, None, "", 0),
        ("1Gi", None, "", 1 << 30),
        (None, "2Gi", "", 2 << 30),
        ("1Gi", "2Gi", "", 1 << 30),
        ("3Gi", "2Gi", "", 2 << 30),
        ("3Gi", "0", "", 3 << 30),
        ("1Gi", "2Gi", "Memory", None),
    ],
)
def test_size_limit_is_the_lower_one(
    world: World, pod_limit: str | None, own_limit: str | None, medium: str, expected: int | None
) -> None:
    limit = None if own_limit is None else parse_quantity(own_limit)
    volume = v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource(medium=medium, size_limit=limit))
    pod = new_pod("a", volume)
    if pod_limit is not None:
        limits = {v1.RESOURCE_EPHEMERAL_STORAGE: parse_quantity(pod_limit)}
        pod.spec.containers[0].resources = v1.ResourceRequirements(limits=limits)
    world.state.add_pod_to_volume("a", pod, Spec(volume), "e", "", [])
    (wanted,) = world.state.get_volumes_to_mount()
    assert wanted.desired_size_limit == (None if expected is None else Quantity(expected))


@pytest.mark.parametrize(
    ("plugin_supports", "mode", "options", "policy", "expected"),
    [
        (True, v1.READ_WRITE_ONCE_POD, (OPTIONS,), None, LABEL),
        (True, v1.READ_WRITE_ONCE_POD, (OPTIONS, OPTIONS), None, LABEL),
        (True, v1.READ_WRITE_ONCE_POD, (), None, ""),
        (False, v1.READ_WRITE_ONCE_POD, (OPTIONS,), None, ""),
        (True, v1.READ_WRITE_MANY, (OPTIONS,), None, ""),
        (True, v1.READ_WRITE_ONCE_POD, (OPTIONS,), "Recursive", ""),
        (True, v1.READ_WRITE_ONCE_POD, (OPTIONS,), "MountOption", LABEL),
    ],
)
def test_selinux_label_of_one_pod(
    tmp_path: Path,
    plugin_supports: bool,
    mode: str,
    options: tuple[v1.SELinuxOptions, ...],
    policy: str | None,
    expected: str,
) -> None:
    world = World(tmp_path, FakeDeviceMountableVolumePlugin(), selinux=True)
    world.plugin.supports_selinux = plugin_supports
    labelled = plugin_supports and options and policy != "Recursive"
    with metricstesting.moves(selinux_metrics.SELINUX_VOLUMES_ADMITTED, int(bool(labelled))):
        name = world.add("a", disk("pv", mode), contexts=options, policy=policy)
    (volume,) = world.state.get_volumes_to_mount()
    assert volume.selinux_label == expected
    assert world.state.volume_exists(name, expected) and not world.state.volume_exists(name, "other")
    assert world.state.pod_exists_in_volume("a", name, expected)
    assert not world.state.pod_exists_in_volume("a", name, "other")


OTHER = v1.SELinuxOptions(level="s0:c3,c4")


@pytest.mark.parametrize(
    ("mode", "first", "second", "gauge", "error"),
    [
        (v1.READ_WRITE_ONCE_POD, (OPTIONS,), (OPTIONS,), None, None),
        (v1.READ_WRITE_ONCE_POD, (OPTIONS,), (OTHER,), "VOLUME_CONTEXT_MISMATCH_ERRORS", "conflicting SELinux labels"),
        (v1.READ_WRITE_MANY, (OPTIONS,), (OTHER,), "VOLUME_CONTEXT_MISMATCH_WARNINGS", None),
        (v1.READ_WRITE_ONCE_POD, (), (OPTIONS, OTHER), "POD_CONTEXT_MISMATCH_ERRORS", "multiple SELinux labels"),
        (v1.READ_WRITE_MANY, (), (OPTIONS, OTHER), "POD_CONTEXT_MISMATCH_WARNINGS", None),
        (v1.READ_WRITE_ONCE_POD, (), (v1.SELinuxOptions(level="bad"),), "CONTAINER_CONTEXT_ERRORS", "no such level"),
        (v1.READ_WRITE_MANY, (), (v1.SELinuxOptions(level="bad"),), "CONTAINER_CONTEXT_WARNINGS", None),
    ],
)
def test_selinux_labels_that_differ(
    tmp_path: Path,
    mode: str,
    first: tuple[v1.SELinuxOptions, ...],
    second: tuple[v1.SELinuxOptions, ...],
    gauge: str | None,
    error: str | None,
) -> None:
    world = World(tmp_path, FakeDeviceMountableVolumePlugin(), selinux=True)
    world.plugin.supports_selinux = True
    world.add("a", disk("pv", mode), contexts=first)
    before = counts()
    if error is None:
        world.add("b", disk("pv", mode), contexts=second)
    else:
        with pytest.raises(Exception, match=error):
            world.add("b", disk("pv", mode), contexts=second)
    assert {name for name, count in counts().items() if count != before[name]} == ({gauge} if gauge else set())


def counts() -> dict[str, float]:
    names = [name for name in vars(selinux_metrics) if name.startswith("SELINUX_") and "ADMITTED" not in name]
    return {
        name.removeprefix("SELINUX_"): sum(
            sample.value for metric in getattr(selinux_metrics, name).collect() for sample in metric.samples
        )
        for name in names
    }


def test_replacing_a_pods_volume_keeps_the_spec_up_to_date(world: World) -> None:
    world.add("a", disk("pv"))
    world.add("a", replace(disk("pv"), read_only=True))
    (volume,) = world.state.get_volumes_to_mount()
    assert volume.volume_spec.read_only
