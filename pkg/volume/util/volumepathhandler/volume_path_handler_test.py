"""Test bind mounts, links and loop devices of block volumes; real ones where the machine supports them."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg import mount_utils
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.mount_utils.testing import FakeMounter
from pkg.util import procfs
from pkg.volume.util.volumepathhandler import DeviceNotFoundError, VolumePathHandler, volume_path_handler
from pkg.volume.util.volumepathhandler.volume_path_handler import clean_backing_file_path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
# `DEVICE` is a device that every machine has.
DEVICE = "/dev/null"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for each in reversed(mount_utils.parse_mount_info(mount_utils.MOUNT_INFO)):
        if each.mount_point.startswith(f"{tmp_path}/"):
            subprocess.run(["umount", each.mount_point], check=True)


@pytest.mark.parametrize(
    ("device", "folder_", "error"),
    [("", "/x", "devicePath is empty"), ("/x", "", "mapPath is empty"), ("/x", "relative", "should be absolute")],
)
def test_what_cannot_be_mapped(device: str, folder_: str, error: str) -> None:
    with pytest.raises(OSError, match=error):
        VolumePathHandler().map_device(device, folder_, "link", bind_mount=False)


def test_link_to_a_device_is_made_anew_and_removed(tmp_path: Path) -> None:
    handler, link = VolumePathHandler(), tmp_path / "map" / "disk"
    for device in ("/dev/old", DEVICE):
        handler.map_device(device, str(link.parent), "disk", bind_mount=False)
        assert os.readlink(link) == device and handler.is_symlink_exist(str(link))
    for _ in range(2):
        handler.unmap_device(str(link.parent), "disk", bind_mount=False)
        assert not handler.is_symlink_exist(str(link))


def test_link_that_cannot_be_looked_at_is_not_taken_for_removed(tmp_path: Path) -> None:
    # As with a disk fault, it is unknown whether a path that is too long exists.
    with pytest.raises(OSError, match="File name too long"):
        VolumePathHandler().unmap_device(str(tmp_path), "a" * 300, bind_mount=False)


@as_root
def test_bind_of_a_device_is_made_once_and_removed(folder: Path) -> None:
    handler, bind = VolumePathHandler(), folder / "map" / "uid"
    for _ in range(2):
        handler.map_device(DEVICE, str(bind.parent), "uid", bind_mount=True)
    assert handler.is_device_bind_mount_exist(str(bind))
    assert handler.get_device_bind_mount_refs(DEVICE, str(bind.parent)) == [str(bind)]
    assert Path("/proc/self/mountinfo").read_text().count(f" {bind} ") == 1
    for _ in range(2):
        handler.unmap_device(str(bind.parent), "uid", bind_mount=True)
        assert not bind.exists()
    handler.remove_map_path(str(bind.parent))
    handler.remove_map_path(str(bind.parent))
    assert not bind.parent.exists()


@as_root
def test_bind_of_a_pod_is_found_by_its_link(folder: Path) -> None:
    handler = VolumePathHandler()
    handler.map_device(DEVICE, str(folder / "plugins/a"), "uid", bind_mount=True)
    handler.map_device("/dev/zero", str(folder / "plugins/b"), "uid", bind_mount=True)
    handler.map_device("/dev/zero", str(folder / "pod"), "disk", bind_mount=False)
    found = handler.find_global_map_path_uuid_from_pod(
        str(folder / "plugins"), str(folder / "pod/disk"), types.UID("uid")
    )
    assert found == str(folder / "plugins/b/uid")
    assert (
        handler.find_global_map_path_uuid_from_pod(str(folder / "plugins"), str(folder / "pod/disk"), types.UID("o"))
        == ""
    )


def test_references_of_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        VolumePathHandler().get_device_bind_mount_refs(DEVICE, str(tmp_path / "none"))


def test_backing_file_with_a_strange_name_hides_no_other_device(tmp_path: Path) -> None:
    file = tmp_path / "a\r b\x1c\udcff "
    file.touch()
    for number, path in enumerate([file, tmp_path / "file"]):
        (tmp_path / f"sys/loop{number}/loop").mkdir(parents=True)
        (tmp_path / f"sys/loop{number}/loop/backing_file").write_bytes(os.fsencode(path) + b"\n")
    (tmp_path / "file").touch()
    handler = VolumePathHandler(sys_block=str(tmp_path / "sys"))
    assert handler.get_loop_device(str(file)) == "/dev/loop0"
    assert handler.get_loop_device(str(tmp_path / "file")) == "/dev/loop1"


def test_loop_device_of_a_path_that_is_too_long_hides_no_other_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop device of a path that is too long hides no other device.

    A container that may create loop devices can create one for a file at any depth.
    """
    for number in range(2):
        (tmp_path / f"sys/loop{number}/loop").mkdir(parents=True)
        (tmp_path / f"sys/loop{number}/loop/backing_file").write_text(f"{tmp_path}/file\n")
    (tmp_path / "file").touch()
    too_long = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    monkeypatch.setattr(procfs, "read", failing_once(procfs.read, too_long, about="loop0"))
    assert VolumePathHandler(sys_block=str(tmp_path / "sys")).get_loop_device(str(tmp_path / "file")) == "/dev/loop1"


@pytest.mark.parametrize("suffix", ["", " (deleted)", " (deleted)\n", "\n"])
def test_backing_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "sys/loop0").mkdir(parents=True)
    (tmp_path / "sys/loop1/loop").mkdir(parents=True)
    (tmp_path / "sys/loop1/loop/backing_file").write_text(f"{tmp_path}/file{suffix}")
    assert clean_backing_file_path(f"/a b{suffix}") == "/a b"
    handler = VolumePathHandler(sys_block=str(tmp_path / "sys"))
    assert handler.get_loop_device(str(tmp_path / "file")) == "/dev/loop1"
    os.symlink("file", tmp_path / "link")
    assert handler.attach_file_device(str(tmp_path / "link")) == "/dev/loop1"
    (tmp_path / "other").write_text("")
    for name in ("other", "none"):
        with pytest.raises(DeviceNotFoundError, match="device not found"):
            handler.get_loop_device(str(tmp_path / name))
        if name == "none":
            handler.detach_file_device(str(tmp_path / name))


def test_loop_device_that_cannot_be_looked_for_is_not_taken_for_detached(tmp_path: Path) -> None:
    """A loop device counts as attached while the kubelet cannot search for it.

    Otherwise the loop device would stay forever, although its volume counts as detached.
    """
    (tmp_path / "file").write_text("")
    (tmp_path / "sys/loop1/loop/backing_file").mkdir(parents=True)  # Reading this directory as a file fails.
    handler = VolumePathHandler(sys_block=str(tmp_path / "sys"))
    with pytest.raises(IsADirectoryError):
        handler.detach_file_device(str(tmp_path / "file"))


def test_losetup_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "losetup"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    (tmp_path / "sys").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(volume_path_handler, "LOSETUP_TIMEOUT", 0.1)
    with pytest.raises(OSError, match=r"losetup -f .* failed: command timed out"):
        VolumePathHandler(sys_block=str(tmp_path / "sys")).attach_file_device(str(tool))


@as_root
def test_loop_device(tmp_path: Path) -> None:
    if subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the machine has no loop devices")
    handler, file = VolumePathHandler(), tmp_path / "disk"
    file.write_bytes(bytes(1 << 20))
    device = handler.attach_file_device(str(file))
    try:
        assert re.fullmatch(r"/dev/loop\d+", device)
        assert handler.attach_file_device(str(file)) == device
    finally:
        handler.detach_file_device(str(file))
    with pytest.raises(DeviceNotFoundError):
        handler.get_loop_device(str(file))


def test_a_directory_with_a_bind_is_not_removed(tmp_path: Path) -> None:
    mounter = FakeMounter()
    (tmp_path / "uid").write_text("x")
    mounter.mount(DEVICE, str(tmp_path / "uid"), "", ["bind"])
    with pytest.raises(OSError, match="is a mount point"):
        VolumePathHandler(mounter).remove_map_path(str(tmp_path))
    assert (tmp_path / "uid").exists()
