"""Test secret volumes.

Go: pkg/volume/secret/secret_test.go
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
from pkg.volume import MounterArgs, Spec
from pkg.volume.secret import secret
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.atomic_writer import FileProjection
from pkg.volume.util.file_volume import Payload

BOTH = v1.Secret(data={"foo": b"foo", "raw": b"\x00\xff"})


def item(key: str, path: str, mode: int | None = None) -> v1.KeyToPath:
    return v1.KeyToPath(key=key, path=path, mode=mode)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param(
            [], {"foo": FileProjection(b"foo", 0o644), "raw": FileProjection(b"\x00\xff", 0o644)}, id="all of it"
        ),
        pytest.param([item("foo", "path/to/foo")], {"path/to/foo": FileProjection(b"foo", 0o644)}, id="an item"),
        pytest.param(
            [item("foo", "1/2/3", 0o400), item("raw", "r")],
            {"1/2/3": FileProjection(b"foo", 0o400), "r": FileProjection(b"\x00\xff", 0o644)},
            id="mode of an item",
        ),
    ],
)
def test_make_payload(items: list[v1.KeyToPath], expected: Payload) -> None:
    assert secret.make_payload(items, BOTH, 0o644, False) == expected


def test_key_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"^references non-existent secret key: zab$"):
        secret.make_payload([item("zab", "path")], BOTH, 0o644, False)
    assert secret.make_payload([item("zab", "path")], BOTH, 0o644, True) == {}


def test_mode_must_be_given() -> None:
    with pytest.raises(ValueError, match="no defaultMode used"):
        secret.make_payload([], BOTH, None, False)


class World:
    """Hold a secret, and a pod with a volume of it."""

    def __init__(self, root: Path, *objects: v1.Secret, **source: object) -> None:
        self.client = FakeClientset(*objects)
        self.host = FakeVolumeHost(str(root), self.client)
        self.plugin = secret.SecretPlugin()
        self.plugin.init(self.host)
        arguments = {"secret_name": "settings", "default_mode": 0o644} | source
        self.spec = Spec(v1.Volume(name="v", secret=v1.SecretVolumeSource(**arguments)))  # type: ignore[arg-type]
        self.pod = v1.Pod(metadata=metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u")))
        self.path = root / "pods/u/volumes/kubernetes.io~secret/v"

    def set_up(self, **args: object) -> None:
        self.plugin.new_mounter(self.spec, self.pod).set_up(MounterArgs(**args))  # type: ignore[arg-type]

    def contents(self) -> dict[str, bytes]:
        return {name: (self.path / name).read_bytes() for name in os.listdir(self.path) if not name.startswith("..")}


def settings(**data: bytes) -> v1.Secret:
    return v1.Secret(metadata=metav1.ObjectMeta(namespace="ns", name="settings"), data=data)


def test_plugin(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.plugin.get_plugin_name() == "kubernetes.io/secret"
    assert world.plugin.get_volume_name(world.spec) == "settings"
    assert world.plugin.can_support(world.spec) and not world.plugin.can_support(Spec())
    with pytest.raises(ValueError, match="does not reference a Secret"):
        world.plugin.get_volume_name(Spec(v1.Volume()))
    assert world.plugin.can_support(world.plugin.construct_volume_spec("v", "").spec)


def test_set_up_and_tear_down_in_memory(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a=b"1"))
    world.set_up(fs_group=os.getgid())
    assert world.contents() == {"a": b"1"}
    (point,) = world.host.mounter.list()
    assert (point.type, point.path) == ("tmpfs", str(world.path))
    world.set_up(is_remount=True)
    assert len(world.host.mounter.list()) == 1
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert world.host.mounter.list() == [] and not world.path.exists()


def test_set_up_after_a_reboot(tmp_path: Path) -> None:
    """A volume whose ready file exists, but which is not mounted, is set up."""
    world = World(tmp_path, settings(a=b"1"))
    ready = tmp_path / "pods/u/plugins/kubernetes.io~empty-dir/wrapped_v/ready"
    ready.parent.mkdir(parents=True)
    ready.touch()
    world.set_up()
    assert world.contents() == {"a": b"1"} and len(world.host.mounter.list()) == 1


def test_missing_secret(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(apierrors.StatusError, match='secrets "settings" not found'):
        world.set_up()
    assert world.host.mounter.list() == []


def test_optional_secret(tmp_path: Path) -> None:
    world = World(tmp_path, optional=True)
    world.set_up()
    assert world.contents() == {}
    world.client.core_v1.secrets("ns").create(golang.background(), settings(a=b"1"))
    world.set_up(is_remount=True)
    assert world.contents() == {"a": b"1"}


def test_optional_key(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a=b"1"), optional=True, items=[item("a", "x"), item("b", "y")])
    world.set_up()
    assert world.contents() == {"x": b"1"}


def test_bad_path_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, settings(a=b"1"), items=[item("a", "/etc/passwd")])
    with pytest.raises(ValueError, match=r"^invalid path: must be relative path: /etc/passwd$"):
        world.set_up()
    assert world.host.mounter.list() == [] and not world.path.exists()


def test_standalone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.host.kube_client = None
    with pytest.raises(ValueError, match="not supported due to running kubelet in standalone mode"):
        world.set_up()
