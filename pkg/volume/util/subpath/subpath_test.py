"""Tests of sub-paths."""

from pathlib import Path

import pytest

from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util import subpath


def make(tmp_path: Path, relative: str) -> subpath.Subpath:
    volume = tmp_path / "volume"
    return subpath.Subpath(2, str(volume / relative), "vol", str(volume), str(tmp_path / "pod"), "c")


def test_directories_are_made_inside_the_base(tmp_path: Path) -> None:
    subpath.Subpather(FakeMounter()).safe_make_dir("a/b", str(tmp_path), 0o750)
    assert (tmp_path / "a/b").is_dir() and (tmp_path / "a").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("sub_path", ["link/x", "../x", "a/../../x"])
def test_directories_outside_the_base_are_refused(tmp_path: Path, sub_path: str) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(tmp_path)
    with pytest.raises(OSError):
        subpath.Subpather(FakeMounter()).safe_make_dir(sub_path, str(base), 0o750)
    assert not (tmp_path / "x").exists()


def test_opened_directory_is_bound(tmp_path: Path) -> None:
    (tmp_path / "volume/a").mkdir(parents=True)
    mounter = FakeMounter()
    target, _ = subpath.Subpather(mounter).prepare_safe_subpath(make(tmp_path, "a"))
    assert target == str(tmp_path / "pod/volume-subpaths/vol/c/2") and Path(target).is_dir()
    (point,) = mounter.list()
    assert point.path == target and point.device.startswith("/proc/") and point.options == ("bind",)


def test_file_is_bound_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/f").write_text("x")
    target, _ = subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "f"))
    assert Path(target).is_file()


def test_link_out_of_the_volume_is_refused(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/out").symlink_to("/etc")
    with pytest.raises(OSError, match="not within volume path"):
        subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "out"))


def test_clean_unbinds_and_removes(tmp_path: Path) -> None:
    (tmp_path / "volume/a").mkdir(parents=True)
    mounter = FakeMounter()
    subpather = subpath.Subpather(mounter)
    target, _ = subpather.prepare_safe_subpath(make(tmp_path, "a"))
    subpather.clean_subpaths(str(tmp_path / "pod"), "vol")
    assert ("unmount", target) in mounter.calls and not (tmp_path / "pod/volume-subpaths/vol").exists()
