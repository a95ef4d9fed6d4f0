"""Test removing trees."""

from pathlib import Path

import pytest

from pkg.mount_utils.testing import FakeMounter
from pkg.util import removeall
from pkg.util.testing import tree


def test_whole_tree_goes_and_links_are_not_followed(tmp_path: Path) -> None:
    target = tree(tmp_path)
    removeall.remove_all_one_filesystem(FakeMounter(), str(target))
    assert not target.exists() and (tmp_path / "outside/kept").exists()


def test_mount_point_stays_and_is_named(tmp_path: Path) -> None:
    target = tree(tmp_path)
    mounter = FakeMounter()
    mounter.mount("tmpfs", str(target / "a/b"), "tmpfs", [])
    with pytest.raises(OSError, match="a/b is a mount point"):
        removeall.remove_all_one_filesystem(mounter, str(target))
    assert (target / "a/b").exists()


def test_only_empty_directories_go(tmp_path: Path) -> None:
    target = tree(tmp_path)
    with pytest.raises(OSError):
        removeall.remove_dirs_one_filesystem(FakeMounter(), str(target))
    assert (target / "a/file").exists()
    (tmp_path / "empty/x/y").mkdir(parents=True)
    removeall.remove_dirs_one_filesystem(FakeMounter(), str(tmp_path / "empty"))
    assert not (tmp_path / "empty").exists()


def test_nothing_there_is_no_fault(tmp_path: Path) -> None:
    removeall.remove_all_one_filesystem(FakeMounter(), str(tmp_path / "missing"))


@pytest.mark.parametrize("mounted", ["t", "t/a/b"])
def test_nothing_goes_while_something_is_mounted(tmp_path: Path, mounted: str) -> None:
    target = tree(tmp_path)
    mounter = FakeMounter()
    mounter.mount("server:/share", str(tmp_path / mounted), "nfs", [])
    with pytest.raises(removeall.MountedError, match=f"cannot delete directory {target}: {tmp_path / mounted} is a"):
        removeall.remove_all_one_filesystem(mounter, str(target))
    assert (target / "a/file").exists() and (target / "link").is_symlink()


def test_a_mount_beside_it_is_of_no_concern(tmp_path: Path) -> None:
    target = tree(tmp_path)
    mounter = FakeMounter()
    mounter.mount("server:/share", str(tmp_path / "t-more"), "nfs", [])
    removeall.remove_all_one_filesystem(mounter, str(target))
    assert not target.exists()
