"""Test configMap volumes.

Go: pkg/volume/configmap/configmap_test.go
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.mount_utils.testing import FakeMounter
from pkg.volume import MounterArgs, Spec
from pkg.volume.configmap import configmap
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.atomic_writer import FileProjection
from pkg.volume.util.file_volume import Payload

BOTH = v1.ConfigMap(data={"foo": "foo", "bar": "bar"})


def item(key: str, path: str, mode: int | None = None) -> v1.KeyToPath:
    return v1.KeyToPath(key=key, path=path, mode=mode)


def file(content: str, mode: int = 0o644) -> FileProjection:
    return FileProjection(content.encode(), mode)


@pytest.mark.parametrize(
    ("config_map", "items", "expected"),
    [
        pytest.param(BOTH, [], {"foo": file("foo"), "bar": file("bar")}, id="all"),
        pytest.param(
            v1.ConfigMap(binary_data={"foo": b"foo", "raw": b"\x00\xff"}),
            [],
            {"foo": file("foo"), "raw": FileProjection(b"\x00\xff", 0o644)},
            id="binary data",
        ),
        pytest.param(
            v1.ConfigMap(data={"bar": "bär"}, binary_data={"foo": b"foo"}),
            [],
            {"foo": file("foo"), "bar": file("bär")},
            id="mixed data",
        ),
        pytest.param(BOTH, [item("foo", "path/to/foo.txt")], {"path/to/foo.txt": file("foo")}, id="an item"),
        pytest.param(
            v1.ConfigMap(binary_data={"raw": b"raw"}),
            [item("raw", "1/2/3")],
            {"1/2/3": file("raw")},
            id="a binary item",
        ),
        pytest.param(
            BOTH,
            [item("foo", "path/foo", 0o400), item("bar", "bar.bin")],
            {"path/foo": file("foo", 0o400), "bar.bin": file("bar")},
            id="mode of an item",
        ),
        pytest.param(BOTH, [item("foo", "a"), item("foo", "b")], {"a": file("foo"), "b": file("foo")}, id="key twice"),
        pytest.param(v1.ConfigMap(), [], {}, id="nothing"),
    ],
)
def test_make_payload(config_map: v1.ConfigMap, items: list[v1.KeyToPath], expected: Payload) -> None:
    assert configmap.make_payload(items, config_map, 0o644, False) == expected


def test_key_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"^configmap references non-existent config key: zab$"):
        configmap.make_payload([item("zab", "path")], BOTH, 0o644, False)
    assert configmap.make_payload([item("zab", "path")], BOTH, 0o644, True) == {}


def test_mode_must_be_given() -> None:
    with pytest.raises(ValueError, match="no defaultMode used"):
        configmap.make_payload([], BOTH, None, False)


class World:
    """Hold a config map, and a pod with a volume of it."""

    def __init__(self, root: Path, *objects: v1.ConfigMap, **source: object) -> None:
        self.client = FakeClientset(*objects)
        self.host = FakeVolumeHost(str(root), self.client)
        self.plugin = configmap.ConfigMapPlugin()
        self.plugin.init(self.host)
        arguments = {"name": "settings", "default_mode": 0o644} | source
        volume = v1.Volume(name="v", config_map=v1.ConfigMapVolumeSource(**arguments))  # type: ignore[arg-type]
        self.spec = Spec(volume)
        self.pod = v1.Pod(metadata=metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u")))
        self.path = root / "pods/u/volumes/kubernetes.io~configmap/v"
        self.ready = root / "pods/u/plugins/kubernetes.io~empty-dir/wrapped_v/ready"

    def set_up(self, **args: object) -> None:
        self.plugin.new_mounter(self.spec, self.pod).set_up(MounterArgs(**args))  # type: ignore[arg-type]

    def update(self, **data: str) -> None:
        config_map = v1.ConfigMap(metadata=metav1.ObjectMeta(namespace="ns", name="settings"), data=data)
        self.client.core_v1.config_maps("ns").update(golang.background(), config_map)

    def contents(self) -> dict[str, str]:
        return {name: (self.path / name).read_text() for name in os.listdir(self.path) if not name.startswith("..")}


def settings(**data: str) -> v1.ConfigMap:
    return v1.ConfigMap(metadata=metav1.ObjectMeta(namespace="ns", name="settings"), data=data)


def test_plugin(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.plugin.get_plugin_name() == "kubernetes.io/configmap"
    assert world.plugin.get_volume_name(world.spec) == "v/settings"
    assert world.plugin.can_support(world.spec) and not world.plugin.can_support(Spec())
    assert world.plugin.requires_remount(world.spec)
    with pytest.raises(ValueError, match="does not reference a ConfigMap"):
        world.plugin.get_volume_name(Spec(v1.Volume()))
    spec = world.plugin.construct_volume_spec("v", "").spec
    assert world.plugin.can_support(spec) and spec.name() == "v"


def test_set_up_and_tear_down(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a="1", b="2"))
    world.set_up(fs_group=os.getgid())
    assert world.contents() == {"a": "1", "b": "2"} and world.ready.exists()
    mounter = world.plugin.new_mounter(world.spec, world.pod)
    assert mounter.get_path() == str(world.path)
    assert mounter.get_attributes().read_only and mounter.get_attributes().managed
    assert isinstance(world.host.mounter, FakeMounter) and world.host.mounter.calls == []
    used = mounter.get_metrics().used
    assert used is not None and used.value() > 0
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not world.path.exists() and not world.ready.parent.exists()


def test_update_reaches_the_volume(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a="1", b="2"))
    world.set_up()
    world.update(a="3", c="4")
    world.set_up(is_remount=True)
    assert world.contents() == {"a": "3", "c": "4"}


def test_set_up_after_a_reboot(tmp_path: Path) -> None:
    """A volume whose ready file exists, but not its directory, is set up."""
    world = World(tmp_path, settings(a="1"))
    world.ready.parent.mkdir(parents=True)
    world.ready.touch()
    world.set_up()
    assert world.contents() == {"a": "1"}


def test_missing_config_map(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(apierrors.StatusError, match='configmaps "settings" not found'):
        world.set_up()
    assert not world.path.exists()


def test_optional_config_map(tmp_path: Path) -> None:
    world = World(tmp_path, optional=True)
    world.set_up()
    assert world.contents() == {} and (world.path / "..data").is_dir()
    world.client.core_v1.config_maps("ns").create(golang.background(), settings(a="1"))
    world.set_up(is_remount=True)
    assert world.contents() == {"a": "1"}


def test_optional_key(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a="1"), optional=True, items=[item("a", "x"), item("b", "y")])
    world.set_up()
    assert world.contents() == {"x": "1"}


def test_failure_at_first_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a="1"), items=[item("a", "../escaped")])
    with pytest.raises(ValueError, match=r"^invalid path: must not contain '\.\.': \.\./escaped$"):
        world.set_up()
    assert not world.path.exists() and not world.ready.exists() and not (world.path.parent / "escaped").exists()


@pytest.mark.parametrize("args", [{"is_remount": True}, {"reconstructed_volume": True}], ids=["update", "restart"])
def test_failed_update_leaves_what_the_pod_has(tmp_path: Path, args: dict[str, bool]) -> None:
    """A failed update leaves the files that the pod has.

    Containers may be running with the volume, even if this kubelet sets it up for the first time.
    """
    world = World(tmp_path, settings(a="1"))
    world.set_up()
    world.update(**{"..bad": "2"})
    with pytest.raises(ValueError, match="must not start with"):
        world.set_up(**args)
    assert world.contents() == {"a": "1"}


def test_mount_points_of_other_volumes(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a="1"))
    mounts = [v1.VolumeMount(name="v", mount_path="/etc/v"), v1.VolumeMount(name="w", mount_path="/etc/v/in/w")]
    world.pod.spec.containers = [v1.Container(name="c", volume_mounts=mounts)]
    world.set_up()
    assert (world.path / "in/w").is_dir()
