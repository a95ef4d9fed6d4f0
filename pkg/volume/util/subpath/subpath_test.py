"""Test sub-paths."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pkg.apimachinery.util.runtime.testing import raising
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util import subpath
from pkg.volume.util.subpath import subpath as module


def make(tmp_path: Path, relative: str) -> subpath.Subpath:
    volume = tmp_path / "volume"
    return subpath.Subpath(2, str(volume / relative), "vol", str(volume), str(tmp_path / "pod"), "c")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume/a/b").mkdir(parents=True)
    (tmp_path / "pod").mkdir()
    return tmp_path / "volume"


@pytest.mark.parametrize("sub_path", ["a", "a/b", "a/b/c/d", "new/with/../others", "", "."])
def test_directories_are_made_inside_the_base(volume: Path, sub_path: str) -> None:
    subpath.Subpather(FakeMounter()).safe_make_dir(sub_path, str(volume), 0o750)
    assert (volume / sub_path).is_dir()


@pytest.mark.parametrize("mode", [0o750, 0o777, 0o2775, 0o1777, 0o4700])
def test_new_directories_have_the_mode_asked_for(volume: Path, mode: int) -> None:
    old = os.umask(0o077)
    try:
        subpath.Subpather(FakeMounter()).safe_make_dir("n/m", str(volume), mode)
    finally:
        os.umask(old)
    assert [(volume / name).stat().st_mode & 0o7777 for name in ("n", "n/m")] == [mode, mode]


def test_existing_directories_keep_their_mode(volume: Path) -> None:
    (volume / "a").chmod(0o711)
    subpath.Subpather(FakeMounter()).safe_make_dir("a/b", str(volume), 0o777)
    assert (volume / "a").stat().st_mode & 0o7777 == 0o711


def test_base_may_be_a_link_and_links_inside_are_followed(tmp_path: Path, volume: Path) -> None:
    (tmp_path / "base").symlink_to("volume")
    (volume / "inside").symlink_to("a/b/..")
    (volume / "whole").symlink_to(volume / "a")
    subpather = subpath.Subpather(FakeMounter())
    subpather.safe_make_dir("inside/x", str(tmp_path / "base"), 0o750)
    subpather.safe_make_dir("whole/y", str(tmp_path / "base"), 0o750)
    assert (volume / "a/x").is_dir() and (volume / "a/y").is_dir()


@pytest.mark.parametrize("base", ["alias", "volume"])
def test_link_may_name_the_volume_as_the_node_does(tmp_path: Path, volume: Path, base: str) -> None:
    """A link to /var/run/volume/a in a volume with the path /run/volume stays in the volume."""
    (tmp_path / "alias").symlink_to("volume")
    (volume / "current").symlink_to(tmp_path / "alias/a")
    mounter, root = FakeMounter(), tmp_path / base
    subpather = subpath.Subpather(mounter)
    subpather.safe_make_dir("current/new", str(root), 0o750)
    assert (volume / "a/new").is_dir()
    made = subpath.Subpath(0, str(root / "current/new"), "vol", str(root), str(tmp_path / "pod"), "c")
    target, _ = subpather.prepare_safe_subpath(made)
    assert mounter.calls == [("mount", target)]


def test_file_in_the_way_is_told(volume: Path) -> None:
    (volume / "file").touch()
    for sub_path in ("file", "file/below"):
        with pytest.raises(NotADirectoryError):
            subpath.Subpather(FakeMounter()).safe_make_dir(sub_path, str(volume), 0o750)


def test_what_a_dangling_link_lacks_is_not_made(volume: Path) -> None:
    (volume / "dangling").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        subpath.Subpather(FakeMounter()).safe_make_dir("dangling/x", str(volume), 0o750)
    assert not (volume / "nowhere").exists()


def test_opened_directory_is_bound(tmp_path: Path, volume: Path) -> None:
    mounter = FakeMounter()
    target, cleanup = subpath.Subpather(mounter).prepare_safe_subpath(make(tmp_path, "a"))
    assert cleanup is None
    assert target == str(tmp_path / "pod/volume-subpaths/vol/c/2") and Path(target).is_dir()
    ((source, bound, fstype, options),) = mounter.mounts
    assert source.startswith(f"/proc/{os.getpid()}/fd/") and (bound, fstype, options) == (target, "", ["bind"])


@pytest.mark.parametrize("kind", ["file", "fifo", "socket"])
def test_anything_else_is_bound_to_a_file(tmp_path: Path, volume: Path, kind: str) -> None:
    match kind:
        case "file":
            (volume / "f").write_text("x")
        case "fifo":
            os.mkfifo(volume / "f")
        case "socket":
            os.mknod(volume / "f", 0o140600)
    target, _ = subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "f"))
    assert Path(target).is_file()


def test_files_of_the_atomic_writer_are_found_through_its_links(tmp_path: Path, volume: Path) -> None:
    (volume / "..2024").mkdir()
    (volume / "..2024/key").write_text("x")
    (volume / "..data").symlink_to("..2024")
    (volume / "key").symlink_to("..data/key")
    target, _ = subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "key"))
    assert Path(target).is_file()


def test_missing_sub_path_is_told(tmp_path: Path, volume: Path) -> None:
    with pytest.raises(FileNotFoundError):
        subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "a/missing"))
    assert not any((tmp_path / "pod").iterdir())


@pytest.mark.parametrize("call", ["fstat", "readlink"])
def test_nothing_is_kept_open_of_what_goes_as_it_is_opened(
    tmp_path: Path, volume: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor stays open of a file that disappears while it is opened.

    A server may report an error only after the open. A descriptor that stays open keeps the volume mounted.
    """
    (volume / "link").symlink_to("a")
    fault = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Stale file handle"):
        patch.setattr(os, call, raising(fault))
        subpath.Subpather(FakeMounter()).prepare_safe_subpath(make(tmp_path, "link"))
    assert os.listdir("/proc/self/fd") == before


def test_volume_whose_path_is_too_long_is_not_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume's path that is too long is not resolved.

    Resolving a hostPath of a megabyte would take minutes.
    """
    monkeypatch.setattr(os.path, "realpath", raising(AssertionError("it is resolved")))
    path, subpather = "/x" * 500_000, subpath.Subpather(FakeMounter())
    with pytest.raises(OSError, match="File name too long"):
        subpather.safe_make_dir("a", path, 0o750)
    with pytest.raises(OSError, match="File name too long"):
        subpather.prepare_safe_subpath(subpath.Subpath(0, f"{path}/a", "v", path, str(tmp_path), "c"))


def test_failed_bind_leaves_nothing(tmp_path: Path, volume: Path) -> None:
    mounter = FakeMounter()
    (tmp_path / "pod/other").mkdir()
    mounter.errors[str(tmp_path / "pod/volume-subpaths/vol/c/2")] = OSError("no")
    with pytest.raises(OSError, match=r"error mounting .*/a: no"):
        subpath.Subpather(mounter).prepare_safe_subpath(make(tmp_path, "a"))
    assert os.listdir(tmp_path / "pod") == ["other"]


@pytest.mark.parametrize("fault", [errno.ESTALE, errno.ENOTCONN, errno.ENOENT])
def test_what_is_bound_and_gone_is_bound_anew(
    tmp_path: Path, volume: Path, fault: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounter = FakeMounter()
    target, _ = subpath.Subpather(mounter).prepare_safe_subpath(make(tmp_path, "a"))
    lstat = os.lstat

    def fail(path: str, **options: Any) -> os.stat_result:
        if path == target:
            raise OSError(fault, os.strerror(fault), path)
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", fail)
    subpath.Subpather(mounter).prepare_safe_subpath(make(tmp_path, "a"))
    assert mounter.calls == [("mount", target), ("unmount", target), ("mount", target)]


def test_clean_unbinds_and_removes(tmp_path: Path, volume: Path) -> None:
    mounter = FakeMounter()
    subpather = subpath.Subpather(mounter)
    target, _ = subpather.prepare_safe_subpath(make(tmp_path, "a"))
    subpather.clean_subpaths(str(tmp_path / "pod"), "vol")
    assert ("unmount", target) in mounter.calls and not any((tmp_path / "pod").iterdir())
    subpather.clean_subpaths(str(tmp_path / "pod"), "vol")


def test_clean_leaves_other_volumes(tmp_path: Path, volume: Path) -> None:
    other = tmp_path / "pod/volume-subpaths/other/c"
    other.mkdir(parents=True)
    subpather = subpath.Subpather(FakeMounter())
    subpather.prepare_safe_subpath(make(tmp_path, "a"))
    subpather.clean_subpaths(str(tmp_path / "pod"), "vol")
    assert other.is_dir() and not (other.parent.parent / "vol").exists()


def test_remove_empty_dirs_stops_at_what_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "base/a/b/c").mkdir(parents=True)
    (tmp_path / "base/a/file").touch()
    module.remove_empty_dirs(str(tmp_path / "base"), str(tmp_path / "base/a/b/c/gone"))
    assert os.listdir(tmp_path / "base/a") == ["file"]
    with pytest.raises(OSError, match="is not within baseDir"):
        module.remove_empty_dirs(str(tmp_path / "base"), str(tmp_path))
