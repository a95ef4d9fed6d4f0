"""Test the change of ownership.

Go: pkg/volume/volume_linux_test.go
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.util import filesystem
from pkg.util.testing import deep_tree, open_files
from pkg.volume import VolumeOwnership, volume_linux
from pkg.volume.testing import FakeVolumeMounter
from pkg.volume.util import types as volumetypes

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
# The path of the test's own directory must not contain this UID.
POD_UID = types.UID("0d1fca8b-6c5a-4f1e-9d0b-3c7a51c2e0f4")
TOLD = f"Warning VolumePermissionChangeInProgress Setting volume ownership for {POD_UID}/volumes/fake"
ALWAYS, MISMATCH = v1.FS_GROUP_CHANGE_ALWAYS, v1.FS_GROUP_CHANGE_ON_ROOT_MISMATCH


def change(path: Path, group: int | None, policy: str | None = None, read_only: bool = False) -> None:
    VolumeOwnership(FakeVolumeMounter(read_only), str(path), group, policy, None).change_permissions()


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


@pytest.mark.parametrize(
    ("policy", "group_fits", "root_mode", "skipped"),
    [
        pytest.param(None, False, 0o2770, False, id="no policy"),
        pytest.param(ALWAYS, False, 0o2770, False, id="always"),
        pytest.param(ALWAYS, True, 0o2770, False, id="always, although all fits"),
        pytest.param(None, True, 0o2770, False, id="no policy, although all fits"),
        pytest.param(MISMATCH, False, 0o2770, False, id="another group"),
        pytest.param(MISMATCH, True, 0o2750, False, id="group may not write"),
        pytest.param(MISMATCH, True, 0o0770, False, id="new files are not the group's"),
        pytest.param(MISMATCH, True, 0o2770, True, id="all fits"),
        pytest.param(MISMATCH, True, 0o2777, True, id="more is allowed than need be"),
    ],
)
def test_skip_permission_change(
    tmp_path: Path, policy: str | None, group_fits: bool, root_mode: int, skipped: bool
) -> None:
    tmp_path.chmod(root_mode)
    group = tmp_path.stat().st_gid + (0 if group_fits else 3000)
    assert volume_linux.skip_permission_change(FakeVolumeMounter(), str(tmp_path), group, policy) is skipped


def test_root_that_is_no_directory_or_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    group = tmp_path.stat().st_gid
    assert volume_linux.requires_permission_change(str(tmp_path / "file"), group, False)
    assert volume_linux.requires_permission_change(str(tmp_path / "none"), group, False)


@pytest.mark.parametrize(
    ("policy", "root_mode", "changed"),
    [(ALWAYS, 0o2770, True), (MISMATCH, 0o2770, False), (MISMATCH, 0o770, True)],
    ids=["always", "root fits", "root does not fit"],
)
def test_change_permissions_of_what_is_inside(tmp_path: Path, policy: str, root_mode: int, changed: bool) -> None:
    tmp_path.chmod(root_mode)
    (tmp_path / "inside").mkdir(mode=0o600)
    change(tmp_path, tmp_path.stat().st_gid, policy)
    assert mode(tmp_path / "inside") & 0o777 == (0o770 if changed else 0o600)


def make_tree(root: Path) -> dict[str, Path]:
    (root / "dir").mkdir(mode=0o700)
    (root / "dir/file").touch(mode=0o600)
    (root / "program").touch(mode=0o755)
    (root / "link").symlink_to("dir/file")
    (root / "dangling").symlink_to("none")
    return {name: root / name for name in ("dir", "dir/file", "program", "link", "dangling")}


@ROOT_ONLY
@pytest.mark.parametrize(
    ("read_only", "modes"), [(False, (0o2770, 0o660, 0o775)), (True, (0o2750, 0o640, 0o755))], ids=["writable", "ro"]
)
def test_everything_becomes_the_groups(tmp_path: Path, read_only: bool, modes: tuple[int, int, int]) -> None:
    tree = make_tree(tmp_path)
    change(tmp_path, 3000, read_only=read_only)
    assert {path.lstat().st_gid for path in (tmp_path, *tree.values())} == {3000}
    assert {path.lstat().st_uid for path in (tmp_path, *tree.values())} == {0}
    assert (mode(tree["dir"]), mode(tree["dir/file"]), mode(tree["program"])) == modes


@ROOT_ONLY
def test_no_group_changes_nothing(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    change(tmp_path, None)
    assert {path.lstat().st_gid for path in tree.values()} == {0}


@ROOT_ONLY
def test_links_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir(mode=0o700)
    (outside / "shadow").touch(mode=0o600)
    inside.mkdir()
    (inside / "directory").symlink_to(outside)
    (inside / "file").symlink_to(outside / "shadow")
    change(inside, 3000)
    assert (mode(outside), mode(outside / "shadow")) == (0o700, 0o600)
    assert outside.stat().st_gid == (outside / "shadow").stat().st_gid == 0


@ROOT_ONLY
def test_link_put_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """A link that replaces a file is not followed.

    A container may create such a link during the walk.
    """
    outside, inside = tmp_path / "shadow", tmp_path / "inside"
    outside.touch(mode=0o600)
    inside.mkdir()
    (inside / "file").touch(mode=0o600)
    for entry in volume_linux.walk_deep(str(inside)):
        if entry.name == "file":
            (inside / "file").unlink()
            (inside / "file").symlink_to(outside)
        volume_linux.change_file_permission(entry, 3000, False)
    assert mode(outside) == 0o600 and outside.stat().st_gid == 0


def test_walk_tells_directories_last(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").touch()
    paths = [os.path.relpath(entry.path, tmp_path) for entry in volume_linux.walk_deep(str(tmp_path))]
    assert paths == ["a/b/c", "a/b", "a", "."]


def test_walk_of_a_deep_tree(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=directory)
        below = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    assert sum(1 for _ in volume_linux.walk_deep(str(tmp_path))) == 1201
    # These paths are longer than any system call accepts, so the test must remove the tree itself.
    for entry in volume_linux.walk_deep(str(tmp_path)):
        if entry.dir_fd is not None:
            os.rmdir(entry.name, dir_fd=entry.dir_fd)


def test_walk_leaves_out_what_is_gone_meanwhile(tmp_path: Path) -> None:
    """The walk leaves out a file that has disappeared.

    A container of another pod may use the volume too, and remove the file.
    """
    for name in ("a", "b"):
        (tmp_path / name).touch()
    walk = volume_linux.walk_deep(str(tmp_path))
    first = next(walk)
    (tmp_path / ("b" if first.name == "a" else "a")).unlink()
    assert [entry.path for entry in walk] == [str(tmp_path)]


def test_walk_leaves_out_what_has_too_long_a_path(tmp_path: Path) -> None:
    """The walk leaves out an entry whose path is too long.

    Otherwise the paths of a pod's nested directories would fill the memory.

    The walk must not fail either: with a local volume, no pod of the claim would ever start again.
    """
    (tmp_path / "a").touch()
    (tmp_path / "z").touch()
    with deep_tree(str(tmp_path / "t"), 100, "d" * 250):
        found = [os.path.relpath(entry.path, tmp_path) for entry in volume_linux.walk_deep(str(tmp_path))]
    below = "/" + "d" * 250
    fitting = (filesystem.MAX_PATH_LENGTH - len(f"{tmp_path}/t")) // len(below)
    assert sorted(found) == [".", "a", *(f"t{below * depth}" for depth in range(fitting + 1)), "z"]


def test_walk_does_not_remember_the_names_of_files(tmp_path: Path) -> None:
    """The walk does not remember the names of files, because a pod may create any number of them."""
    for number in range(20_000):
        os.mknod(tmp_path / f"{number:0200d}")
    tracemalloc.start()
    try:
        assert sum(1 for _ in volume_linux.walk_deep(str(tmp_path))) == 20_001
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_walk_leaves_nothing_open(tmp_path: Path) -> None:
    make_tree(tmp_path)
    next(walk := volume_linux.walk_deep(str(tmp_path)))
    assert open_in_tree(tmp_path)
    walk.close()  # type: ignore[attr-defined]
    list(volume_linux.walk_deep(str(tmp_path)))
    assert open_in_tree(tmp_path) == []


def open_in_tree(path: Path) -> list[str]:
    """List the descriptors that this process has open in the tree; other parts of the process open their own files."""
    return [name for _, name in open_files() if name.startswith(str(path))]


def test_missing_directory_is_an_error_that_counts(tmp_path: Path) -> None:
    told: list[volumetypes.CompleteFuncParam] = []
    ownership = VolumeOwnership(FakeVolumeMounter(), str(tmp_path / "none"), 1, None, told.append)
    with pytest.raises(FileNotFoundError):
        ownership.change_permissions()
    assert isinstance(told[0].err, FileNotFoundError)
    VolumeOwnership(FakeVolumeMounter(), str(tmp_path), os.getgid(), None, told.append).change_permissions()
    assert told[1].err is None


@pytest.mark.parametrize(
    ("seconds_per_file", "with_pod", "expected"),
    [
        pytest.param(5.0, True, [], id="quick"),
        pytest.param(35.0, False, [], id="slow, and nobody to tell"),
        pytest.param(
            35.0,
            True,
            [
                f"{TOLD} is taking longer than expected, consider using OnRootMismatch - "
                "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
                "#configure-volume-permission-and-ownership-change-policy-for-pods",
                f"{TOLD}, processed 3 files.",
                f"{TOLD}, processed 5 files.",
            ],
            id="slow",
        ),
    ],
)
def test_progress(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds_per_file: float,
    with_pod: bool,
    expected: list[str],
) -> None:
    clock, recorder, path = FakeClock(), FakeRecorder(10), tmp_path / POD_UID / "volumes/fake"
    path.mkdir(parents=True)
    for name in "abcd":
        (path / name).touch()
    real: Callable[[volume_linux.Entry, int, bool], None] = volume_linux.change_file_permission

    def slow(entry: volume_linux.Entry, group: int, read_only: bool) -> None:
        clock.step(seconds_per_file)
        real(entry, group, read_only)

    monkeypatch.setattr(volume_linux, "change_file_permission", slow)
    ownership = VolumeOwnership(FakeVolumeMounter(), str(path), os.getgid(), ALWAYS, None, clock)
    if with_pod:
        ownership.add_progress_notifier(v1.Pod(metadata=metav1.ObjectMeta(uid=POD_UID)), recorder)
    ownership.change_permissions()
    assert recorder.drain() == expected
