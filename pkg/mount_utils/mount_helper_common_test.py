"""Test removing mounts and their directories."""

import errno
from pathlib import Path

import pytest

from pkg import mount_utils
from pkg.mount_utils import mount_helper_common
from pkg.mount_utils.testing import FakeMounter


@pytest.fixture(params=[False, True], ids=["asks first", "trusts umount"])
def mounter(request: pytest.FixtureRequest) -> FakeMounter:
    return FakeMounter(skip_mount_point_check=request.param)


@pytest.mark.parametrize("extensive", [False, True])
def test_mount_and_directory_go(tmp_path: Path, mounter: FakeMounter, extensive: bool) -> None:
    path = tmp_path / "mount"
    path.mkdir()
    mounter.mount("tmpfs", str(path), "tmpfs", [])
    mount_utils.cleanup_mount_point(str(path), mounter, extensive)
    assert mounter.list() == [] and not path.exists()
    mount_utils.cleanup_mount_point(str(path), mounter, extensive)


def test_plain_directory_and_file_go(tmp_path: Path, mounter: FakeMounter) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    for name in ("dir", "file"):
        mount_utils.cleanup_mount_with_force(str(tmp_path / name), mounter, True, 1.0)
    assert not any(tmp_path.iterdir())


def test_full_directory_stays(tmp_path: Path, mounter: FakeMounter) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/file").touch()
    with pytest.raises(OSError, match="not empty"):
        mount_utils.cleanup_mount_point(str(tmp_path / "dir"), mounter, True)


def test_mount_that_stays_is_told(tmp_path: Path) -> None:
    mounter = FakeMounter()
    mounter.mount("tmpfs", str(tmp_path), "tmpfs", [])
    mounter.mount("tmpfs", str(tmp_path), "tmpfs", [])
    mounter.errors[str(tmp_path)] = OSError("target is busy")
    with pytest.raises(OSError, match="busy"):
        mount_utils.cleanup_mount_point(str(tmp_path), mounter, True)


def test_check_that_fails_is_told(tmp_path: Path) -> None:
    mounter = FakeMounter()
    mounter.mount_check_errors[str(tmp_path)] = OSError(errno.EINVAL, "cannot tell")
    with pytest.raises(OSError, match="cannot tell"):
        mount_utils.cleanup_mount_point(str(tmp_path), mounter, True)
    assert tmp_path.exists()


def test_half_made_mount_is_undone(tmp_path: Path) -> None:
    mounter = FakeMounter()
    (tmp_path / "mount").mkdir()
    mounter.mount("tmpfs", str(tmp_path / "mount"), "tmpfs", [])
    mount_utils.clean_after_failed_mount(str(tmp_path / "mount"), mounter)
    assert mounter.list() == [] and not (tmp_path / "mount").exists()
    mount_utils.clean_after_failed_mount(str(tmp_path / "mount"), mounter)


def test_half_made_mount_that_stays_keeps_its_directory(tmp_path: Path) -> None:
    mounter = FakeMounter()
    mounter.mount("tmpfs", str(tmp_path), "tmpfs", [])
    mounter.errors[str(tmp_path)] = OSError("target is busy")
    mount_utils.clean_after_failed_mount(str(tmp_path), mounter)
    assert tmp_path.exists() and len(mounter.list()) == 1


def test_what_is_mounted_is_not_looked_at_through_a_link_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up does not access a mount, even if the kubelet's directory is a link.

    The server of the mount may not respond.
    """
    (tmp_path / "real/mount").mkdir(parents=True)
    (tmp_path / "root").symlink_to("real")
    mounter = FakeMounter(skip_mount_point_check=True)
    mounter.mount("server:/", str(tmp_path / "real/mount"), "nfs", [])
    looked: list[str] = []
    monkeypatch.setattr(mount_helper_common, "path_exists", looked.append)
    mount_utils.cleanup_mount_point(str(tmp_path / "root/mount"), mounter, True)
    assert looked == [] and mounter.list() == []
