"""Test hostPath volumes."""

import socket
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.volume import MounterArgs, Spec
from pkg.volume.hostpath import host_path
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.hostutil import FileType


def set_up(path: str, path_type: str | None, host: FakeVolumeHost) -> None:
    plugin = host_path.HostPathPlugin()
    plugin.init(host)
    spec = Spec(v1.Volume(name="v", host_path=v1.HostPathVolumeSource(path=path, type=path_type)))
    plugin.new_mounter(spec, v1.Pod()).set_up(MounterArgs())


@pytest.fixture
def host(tmp_path: Path) -> FakeVolumeHost:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    host = FakeVolumeHost(str(tmp_path))
    host.hostutil.types = {
        "/fake/block": FileType.BLOCK_DEVICE,
        "/fake/char": FileType.CHARACTER_DEVICE,
    }
    return host


@pytest.mark.parametrize(
    ("path", "path_type"),
    [
        ("missing", None),
        ("missing", ""),
        ("dir", "Directory"),
        ("dir", "DirectoryOrCreate"),
        ("file", "File"),
        ("file", "FileOrCreate"),
        ("/fake/block", "BlockDevice"),
        ("/fake/char", "CharDevice"),
    ],
)
def test_type_fits(host: FakeVolumeHost, path: str, path_type: str | None) -> None:
    set_up(path if path.startswith("/") else f"{host.root}/{path}", path_type, host)


@pytest.mark.parametrize(
    ("path", "path_type", "message"),
    [
        ("missing", "Directory", "is not a directory"),
        ("file", "Directory", "is not a directory"),
        ("file", "DirectoryOrCreate", "is not a directory"),
        ("missing", "File", "is not a file"),
        ("dir", "FileOrCreate", "is not a file"),
        ("file", "Socket", "is not a socket file"),
        ("file", "BlockDevice", "is not a block device"),
        ("/fake/block", "CharDevice", "is not a character device"),
        ("dir", "Nonsense", "Nonsense is an invalid volume type"),
        ("dir/../file", "File", "must not contain '..'"),
    ],
)
def test_type_does_not_fit(host: FakeVolumeHost, path: str, path_type: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        set_up(path if path.startswith("/") else f"{host.root}/{path}", path_type, host)


def test_socket(host: FakeVolumeHost) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{host.root}/s")
        set_up(f"{host.root}/s", "Socket", host)


def test_missing_ones_are_made(host: FakeVolumeHost) -> None:
    set_up(f"{host.root}/new/dir", "DirectoryOrCreate", host)
    set_up(f"{host.root}/new/dir/file", "FileOrCreate", host)
    assert Path(host.root, "new/dir/file").is_file()
    assert Path(host.root, "new/dir").stat().st_mode & 0o777 == 0o755


def test_link_to_nothing_does_not_count(host: FakeVolumeHost) -> None:
    Path(host.root, "dangling").symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"hostPath type check failed: {host.root}/dangling is not a directory"):
        set_up(f"{host.root}/dangling", "Directory", host)


def test_what_was_made_is_no_directory_when_a_socket_stands_there(host: FakeVolumeHost) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{host.root}/s")
        with pytest.raises(ValueError, match=f"hostPath type check failed: {host.root}/s is not a directory"):
            set_up(f"{host.root}/s", "DirectoryOrCreate", host)


def test_persistent_volumes_are_host_paths_too(host: FakeVolumeHost) -> None:
    plugin = host_path.HostPathPlugin()
    plugin.init(host)
    pv = v1.PersistentVolume(spec=v1.PersistentVolumeSpec(host_path=v1.HostPathVolumeSource(path="/data")))
    spec = Spec(persistent_volume=pv, read_only=True)
    assert plugin.can_support(spec) and plugin.get_volume_name(spec) == "/data"
    mounter = plugin.new_mounter(spec, v1.Pod())
    assert mounter.get_path() == "/data" and mounter.get_attributes().read_only
    other = Spec(v1.Volume(name="e", empty_dir=v1.EmptyDirVolumeSource()))
    assert not plugin.can_support(other)
    with pytest.raises(ValueError, match="does not reference an HostPath"):
        plugin.get_volume_name(other)


def test_nothing_is_mounted_elsewhere_or_unmounted(host: FakeVolumeHost) -> None:
    plugin = host_path.HostPathPlugin()
    plugin.init(host)
    spec = plugin.construct_volume_spec("v", f"{host.root}/x").spec
    assert spec.name() == "v"
    with pytest.raises(ValueError, match="does not make sense"):
        plugin.new_mounter(spec, v1.Pod()).set_up_at(host.root, MounterArgs())
    plugin.new_unmounter("v", types.UID("uid")).tear_down()
    with pytest.raises(ValueError, match="does not make sense"):
        plugin.new_unmounter("v", types.UID("uid")).tear_down_at(host.root)
    assert Path(host.root, "file").exists() and host.mounter.calls == []
