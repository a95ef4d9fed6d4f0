"""Test nfs volumes."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg import golang, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.mount_utils.testing import FakeMounter
from pkg.volume import MounterArgs, Spec
from pkg.volume.nfs import nfs
from pkg.volume.testing import FakeVolumeHost

POD = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("poduid")))


@pytest.fixture
def host(tmp_path: Path) -> FakeVolumeHost:
    return FakeVolumeHost(str(tmp_path))


@pytest.fixture
def plugin(host: FakeVolumeHost) -> nfs.NFSPlugin:
    plugin = nfs.NFSPlugin()
    plugin.init(host)
    return plugin


def volume(server: str = "localhost", read_only: bool = False) -> Spec:
    return Spec(v1.Volume(name="vol1", nfs=v1.NFSVolumeSource(server=server, path="/somepath", read_only=read_only)))


def persistent(read_only: bool = False) -> Spec:
    spec = v1.PersistentVolumeSpec(
        nfs=v1.NFSVolumeSource(server="localhost", path="/tmp"), mount_options=["hard", "ro"]
    )
    pv = v1.PersistentVolume(metadata=metav1.ObjectMeta(name="pvA"), spec=spec)
    return Spec(persistent_volume=pv, read_only=read_only)


def test_which_volumes_are_its_own(plugin: nfs.NFSPlugin) -> None:
    assert plugin.get_plugin_name() == "kubernetes.io/nfs"
    assert plugin.can_support(volume()) and plugin.can_support(persistent())
    other = Spec(v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource()))
    assert not plugin.can_support(other) and not plugin.can_support(Spec())
    assert plugin.get_volume_name(volume()) == "localhost//somepath"
    with pytest.raises(ValueError, match="does not reference a NFS"):
        plugin.get_volume_name(other)


@pytest.mark.parametrize(
    ("spec", "source", "options", "read_only"),
    [
        (volume(), "localhost:/somepath", [], False),
        (volume("192.168.0.1", read_only=True), "192.168.0.1:/somepath", ["ro"], True),
        (volume("fd00::1"), "[fd00::1]:/somepath", [], False),
        (persistent(), "localhost:/tmp", ["hard", "ro"], False),
        (persistent(read_only=True), "localhost:/tmp", ["hard", "ro"], True),
    ],
)
def test_mount_and_unmount(
    host: FakeVolumeHost, plugin: nfs.NFSPlugin, spec: Spec, source: str, options: list[str], read_only: bool
) -> None:
    mounter = plugin.new_mounter(spec, POD)
    path = f"{host.root}/pods/poduid/volumes/kubernetes.io~nfs/{spec.name()}"
    assert mounter.get_path() == path and mounter.get_attributes().read_only is read_only
    mounter.set_up(MounterArgs())
    mounter.set_up(MounterArgs())
    assert host.mounter.mounts == [(source, path, "nfs", options)]
    plugin.new_unmounter(spec.name(), types.UID("poduid")).tear_down()
    assert host.mounter.list() == [] and not os.path.exists(path)


def test_node_without_the_tools_says_so(
    host: FakeVolumeHost, plugin: nfs.NFSPlugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounter = plugin.new_mounter(volume(), POD)
    host.mounter.errors[mounter.get_path()] = OSError("mount failed: bad option")
    monkeypatch.setattr(nfs, "_HELPERS", (str(tmp_path / "mount.nfs"),))
    with pytest.raises(OSError, match=r"mount\.nfs is not installed .*: mount failed: bad option"):
        mounter.set_up(MounterArgs())
    assert not os.path.exists(mounter.get_path())
    (tmp_path / "mount.nfs").touch()
    with pytest.raises(OSError, match=r"^mount failed: bad option$"):
        mounter.set_up(MounterArgs())


def test_reconstructed_volume_has_its_name(plugin: nfs.NFSPlugin) -> None:
    spec = plugin.construct_volume_spec("vol1", "/x").spec
    assert spec.name() == "vol1" and plugin.can_support(spec)


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Run a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_server_that_never_answers_holds_up_its_own_volume_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_server: socket.socket
) -> None:
    """A server that never responds delays only its own volume.

    The test's mount(8) connects to the server and waits, as mount.nfs does.
    """
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/mount"
    port = silent_server.getsockname()[1]
    fake.write_text(f"#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\nread -u 3 answer\necho refused\nexit 32\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    host = FakeVolumeHost(str(tmp_path))
    mounter: mount_utils.Interface = mount_utils.Mounter()
    monkeypatch.setattr(host, "mounter", mounter)
    plugin = nfs.NFSPlugin()
    plugin.init(host)
    raised: list[BaseException] = []
    ended = threading.Event()

    def set_up() -> None:
        try:
            plugin.new_mounter(volume("127.0.0.1"), POD).set_up(MounterArgs())
        except OSError as err:
            raised.append(err)
        finally:
            ended.set()

    thread = golang.go(set_up, name="set-up")
    connection, _ = silent_server.accept()
    # While the mount waits, another volume of the same plugin can be created and mounted.
    path = plugin.new_mounter(volume("127.0.0.1"), POD).get_path()
    assert not ended.is_set() and mounter.is_likely_not_mount_point(path)
    monkeypatch.setattr(host, "mounter", FakeMounter())
    plugin.new_mounter(persistent(), POD).set_up(MounterArgs())
    connection.close()
    thread.join(30)
    assert ended.is_set() and "exit status 32" in str(raised[0])
