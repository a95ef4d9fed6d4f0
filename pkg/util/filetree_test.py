"""Test walking and removing trees that others control."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from pkg.golang.testing import frames_kept_after
from pkg.util import filetree, testing
from pkg.util.testing import tree

# This depth is far more than Python's recursion limit, the default number of descriptors, and the elements of a path.
DEEP = 20_000
ROOT = Path(__file__).resolve().parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def quick_dir(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory in memory if possible, because a deep tree takes long on a disk."""
    memory = "/dev/shm"
    directory = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield directory
    directory.rmdir()


@pytest.fixture
def deep(quick_dir: Path) -> Iterator[Path]:
    with testing.deep_tree(str(quick_dir / "deep"), DEEP):
        yield quick_dir / "deep"


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def names(top: Path) -> list[str]:
    return sorted(os.path.relpath(os.path.join(d.path(), e.name), top) for d, e in filetree.walk(str(top)))


def limit_names(monkeypatch: pytest.MonkeyPatch, in_all: int, at_once: int) -> None:
    monkeypatch.setattr(filetree, "MAX_PENDING_NAMES", in_all)
    monkeypatch.setattr(filetree, "MAX_NAMES_AT_ONCE", at_once)


def test_all_below_is_walked_and_links_are_not_followed(tmp_path: Path) -> None:
    assert names(tree(tmp_path)) == ["a", "a/b", "a/file", "link"]


def test_top_may_be_a_link(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "here").symlink_to("t")
    assert names(tmp_path / "here") == ["a", "a/b", "a/file", "link"]


def test_a_directory_that_was_taken_for_a_link_is_not_entered(tmp_path: Path) -> None:
    top = tree(tmp_path)
    found = []
    for _, entry in filetree.walk(str(top)):
        found.append(entry.name)
        if entry.name == "a":
            assert entry.is_dir(follow_symlinks=False)
            (top / "a").rename(tmp_path / "away")
            (top / "a").symlink_to("../outside")
    assert "kept" not in found


def test_fault_of_the_top_is_raised_or_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(filetree.walk(str(tmp_path / "missing")))
    told: list[OSError] = []
    assert list(filetree.walk(str(tmp_path / "missing"), on_error=told.append)) == []
    assert [err.errno for err in told] == [errno.ENOENT]


@pytest.mark.parametrize("step", ["walk", "remove_all"])
def test_fault_leaves_nothing_for_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(fd: int) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "t/a").mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", fail)
    call = {"walk": lambda path: list(filetree.walk(path)), "remove_all": filetree.remove_all}[step]
    with pytest.raises(OSError, match="Input/output error"):
        call(str(tmp_path / "t"))
    assert frames_kept_after(lambda: call(str(tmp_path / "t"))) == []


def test_deep_tree_is_walked_with_few_descriptors(deep: Path) -> None:
    before, most, count = open_descriptors(), 0, 0
    for directory, entry in filetree.walk(str(deep)):
        count += 1
        if directory.depth % 1000 == 0:
            most = max(most, open_descriptors())
            assert entry.is_dir(follow_symlinks=False) != (entry.name == "last")
    assert count == DEEP + 1
    assert most - before < filetree.HELD_LEVELS + 10
    assert open_descriptors() == before


def test_walk_of_directories_that_are_moved_below_each_other_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk ends although the uppermost directory is moved below the lowest again and again."""
    monkeypatch.setattr(filetree, "NAMED_LEVELS", filetree.HELD_LEVELS + 4)
    monkeypatch.setattr(filetree, "MAX_DEPTH", 5 * filetree.HELD_LEVELS)
    chain = [str(number) for number in range(4)]
    (tmp_path / "t" / Path(*chain)).mkdir(parents=True)
    (tmp_path / "t/other").mkdir()
    faults: list[OSError] = []
    seen = deepest = 0
    for directory, entry in filetree.walk(str(tmp_path / "t"), on_error=faults.append):
        seen += 1
        deepest = max(deepest, directory.depth)
        assert len(directory.path()) < len(str(tmp_path)) + 3 * filetree.NAMED_LEVELS
        assert deepest <= filetree.MAX_DEPTH
        if entry.name == chain[2]:
            (tmp_path / "t" / chain[0] / chain[1]).rename(tmp_path / "t" / chain[1])
            (tmp_path / "t" / chain[0]).rename(tmp_path / "t" / Path(*chain[1:], chain[0]))
            chain.append(chain.pop(0))
    assert deepest == filetree.MAX_DEPTH
    assert seen == filetree.MAX_DEPTH + 2
    assert [fault.errno for fault in faults] == [errno.ENAMETOOLONG]
    filetree.remove_all(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_walk_remembers_only_so_many_names_far_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filetree, "NAMED_LEVELS", 2)
    monkeypatch.setattr(filetree, "MAX_PENDING_NAMES", 4)
    for number in range(10):
        (tmp_path / f"t/{number}").mkdir(parents=True)
    for number in range(4):
        (tmp_path / f"t/a/b/{number}/c").mkdir(parents=True)
        (tmp_path / f"t/a/b/{number}/file").touch()
    assert len(names(tmp_path / "t")) == 10 + 2 + 4 * 3
    (tmp_path / "t/a/b/5").mkdir()
    with pytest.raises(OSError, match="too deep"):
        names(tmp_path / "t")


def test_tree_that_is_deeper_than_names_are_remembered_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filetree, "NAMED_LEVELS", 3)
    limit_names(monkeypatch, in_all=4, at_once=2)
    enter, depths = filetree.Directory.enter, set[int]()

    def note(directory: filetree.Directory, name: str, one_filesystem: bool = True) -> None:
        enter(directory, name, one_filesystem)
        depths.add(directory.depth)

    monkeypatch.setattr(filetree.Directory, "enter", note)
    for number in range(10):
        (tmp_path / f"t/a/b/{number}/c/d/e/f/g/h").mkdir(parents=True)
        (tmp_path / f"t/a/b/{number}/c/d/e/f/g/h/file").touch()
    filetree.remove_all(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()
    assert max(depths) == 3


def test_walk_that_is_given_up_closes_its_descriptors(deep: Path) -> None:
    before = open_descriptors()
    walk = filetree.walk(str(deep))
    for _ in range(DEEP // 2):
        next(walk)
    assert open_descriptors() > before
    walk.close()  # type: ignore[attr-defined]
    assert open_descriptors() == before


def test_walk_goes_on_above_a_directory_that_is_moved_away(tmp_path: Path) -> None:
    """A walk continues in the tree when a deep directory is moved out of it.

    From a moved directory, ".." leads to its new parent, which is not part of the tree.
    """
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/not").touch()
    found = []
    with testing.deep_tree(str(tmp_path / "t"), 2 * filetree.HELD_LEVELS):
        (tmp_path / "t/z").mkdir()
        (tmp_path / "t/z/seen").touch()
        for directory, entry in filetree.walk(str(tmp_path / "t")):
            found.append(entry.name)
            if entry.name == "last":
                Path(directory.path()).rename(tmp_path / "elsewhere/moved")
    assert "seen" in found and "last" in found
    assert "not" not in found


@needs_root
def test_mounts_below_are_not_entered_unless_told(tmp_path: Path) -> None:
    top = tree(tmp_path)
    subprocess.run(["mount", "--bind", tmp_path / "outside", top / "a/b"], check=True)
    try:
        assert names(top) == ["a", "a/b", "a/file", "link"]
        everything = {entry.name for _, entry in filetree.walk(str(top), one_filesystem=False)}
        assert everything == {"a", "b", "file", "link", "kept"}
        unseen = {entry.name for _, entry in filetree.walk(str(top), mounts=frozenset([str(top / "a/b")]))}
        assert unseen == {"a", "file", "link"}
    finally:
        subprocess.run(["umount", top / "a/b"], check=True)


def test_whole_tree_goes_and_links_are_not_followed(tmp_path: Path) -> None:
    target = tree(tmp_path)
    filetree.remove_all(str(target))
    assert not target.exists() and (tmp_path / "outside/kept").exists()
    filetree.remove_all(str(target))
    filetree.remove_all(str(target / "no/such"))


def test_a_single_entry_goes(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("outside")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name in ("file", "link", "fifo", "directory"):
        filetree.remove_all(str(tmp_path / name))
        assert not os.path.lexists(tmp_path / name)
    assert (tmp_path / "outside/kept").exists()


def test_deep_tree_goes_with_few_descriptors(deep: Path) -> None:
    limits = f'ulimit -n {filetree.HELD_LEVELS + 40}; exec "$@"'
    program = "import sys; from pkg.util import filetree; filetree.remove_all(sys.argv[1])"
    subprocess.run(["bash", "-c", limits, "bash", sys.executable, "-c", program, deep], check=True)
    assert not deep.exists()


def test_memory_for_a_wide_and_deep_tree_stays_bounded(deep: Path) -> None:
    for number in range(5000):
        (deep / f"wide/{number}/below").mkdir(parents=True)
    program = (
        "import resource, sys\n"
        "from pkg.util import filetree\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(1 for _ in filetree.walk(sys.argv[1]))\n"
        "filetree.remove_all(sys.argv[1])\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, deep], check=True, capture_output=True)
    count, kib = map(int, done.stdout.split())
    assert count == DEEP + 1 + 1 + 10_000
    assert kib < 16 * 1024
    assert not deep.exists()


def test_more_directories_than_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_names(monkeypatch, in_all=5, at_once=2)
    for path in product("abc", repeat=6):
        (tmp_path / "t" / Path(*path)).mkdir(parents=True)
    scandir, remembered = os.scandir, list[int]()
    with contextlib.closing(filetree.Directory(str(tmp_path))) as directory:
        removal = filetree._Removal(directory, os.unlink)

        def count_names(fd: int) -> object:
            remembered.append(sum(map(len, removal._pending._names.values())))
            return scandir(fd)

        monkeypatch.setattr(os, "scandir", count_names)
        removal.run("t")
    assert not (tmp_path / "t").exists()
    # The sum includes the names found in the directory that is being read.
    assert max(remembered) + filetree.MAX_NAMES_AT_ONCE == filetree.MAX_PENDING_NAMES


def test_names_beside_a_directory_do_not_have_it_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal reads a directory only once for each group of names that it remembers.

    Some file systems take ever longer to find the remaining entries of a directory that was large.
    """
    limit_names(monkeypatch, in_all=20, at_once=10)
    for path in product(map(str, range(25)), map(str, range(30)), "x"):
        (tmp_path / "t" / Path(*path)).mkdir(parents=True)
    scandir, reads = os.scandir, Counter[str]()

    def count_reads(fd: int) -> object:
        reads[os.readlink(f"/proc/self/fd/{fd}")] += 1
        return scandir(fd)

    monkeypatch.setattr(os, "scandir", count_reads)
    filetree.remove_all(str(tmp_path / "t"))
    monkeypatch.undo()
    assert not (tmp_path / "t").exists()
    # Each ten names take one read, and one more read finds none.
    assert {reads[f"{tmp_path}/t/{number}"] for number in range(25)} == {4}


def test_entry_that_the_file_system_has_left_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal finds entries that the file system skipped, as some do when others are removed during a read."""
    (tmp_path / "t/a").mkdir(parents=True)
    for number in range(5):
        (tmp_path / f"t/a/{number}").touch()
    rmdir, failed = os.rmdir, list[str]()

    def rmdir_of_fuller_directory(name: str, *, dir_fd: int) -> None:
        # At this point the entries of the directory that was just read are removed.
        if not failed and name == "a" and not os.listdir(f"/proc/self/fd/{dir_fd}/a"):
            failed.append(name)
            (tmp_path / "t/a/late").touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_of_fuller_directory)
    filetree.remove_all(str(tmp_path / "t"))
    assert failed and not (tmp_path / "t").exists()


def test_directory_that_cannot_be_read_is_one_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / f"t/{name}").mkdir(parents=True)
        (tmp_path / f"t/{name}/file").touch()
    scandir, reads = os.scandir, list[str]()

    def fail(fd: int) -> object:
        reads.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        if reads[-1] == "a":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(fd)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OSError, match="Input/output error"):
        filetree.remove_all(str(tmp_path / "t"))
    monkeypatch.undo()
    assert sorted(reads) == ["a", "b", "t"] and names(tmp_path / "t") == ["a", "a/file"]


def test_what_cannot_be_removed_does_not_keep_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink

    def fail(name: str, *, dir_fd: int) -> None:
        if name == "kept":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)
        unlink(name, dir_fd=dir_fd)

    for directory in ("t/a/b", "t/c"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("t/a/b/kept", "t/a/b/gone", "t/c/gone"):
        (tmp_path / file).touch()
    monkeypatch.setattr(os, "unlink", fail)
    limit_names(monkeypatch, in_all=1, at_once=1)
    with pytest.raises(PermissionError, match="t/a/b/kept"):
        filetree.remove_all(str(tmp_path / "t"))
    monkeypatch.undo()
    assert names(tmp_path / "t") == ["a", "a/b", "a/b/kept"]


def test_removal_ends_after_too_many_faults(tmp_path: Path) -> None:
    for number in range(filetree.MAX_FAILURES + 50):
        (tmp_path / f"t/{number}").mkdir(parents=True)
        (tmp_path / f"t/{number}/file").touch()
    with pytest.raises(NotADirectoryError):
        filetree.remove_dirs(str(tmp_path / "t"))
    assert len(names(tmp_path / "t")) == 2 * (filetree.MAX_FAILURES + 50)


def test_only_directories_go(tmp_path: Path) -> None:
    target = tree(tmp_path)
    (target / "empty/x/y").mkdir(parents=True)
    with pytest.raises(NotADirectoryError):
        filetree.remove_dirs(str(target))
    assert names(target) == ["a", "a/file", "link"]


def test_directory_that_is_moved_meanwhile_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal removes nothing outside the tree when a deep directory is moved out of it.

    From a moved directory, ".." leads to its new parent.
    """
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").touch()
    unlink = os.unlink

    def move(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        os.rename(os.readlink(f"/proc/self/fd/{dir_fd}"), tmp_path / "elsewhere/moved")

    with testing.deep_tree(str(tmp_path / "t"), 2 * filetree.HELD_LEVELS):
        monkeypatch.setattr(os, "unlink", move)
        with pytest.raises(OSError, match="moved"):
            filetree.remove_all(str(tmp_path / "t"))
        assert sorted(os.listdir(tmp_path / "elsewhere")) == ["kept", "moved"]
        monkeypatch.undo()
        filetree.remove_all(str(tmp_path / "t"))
        assert not (tmp_path / "t").exists()


@needs_root
def test_what_is_mounted_below_stays_whole(tmp_path: Path) -> None:
    """A removal does not enter a mount below the path.

    A bind mount of the same file system differs from a directory only in its mount id.
    """
    top = tree(tmp_path)
    subprocess.run(["mount", "--bind", tmp_path / "outside", top / "a/b"], check=True)
    try:
        with pytest.raises(OSError, match="a/b"):
            filetree.remove_all(str(top))
        assert names(top) == ["a", "a/b"] and (tmp_path / "outside/kept").exists()
    finally:
        subprocess.run(["umount", top / "a/b"], check=True)


def test_nobody_goes_through_a_tree_by_recursion_or_by_paths() -> None:
    calls = re.compile(r"shutil\.rmtree\(|os\.f?walk\(|os\.removedirs\(|\.rglob\(")
    found = [
        f"{path.relative_to(ROOT)}: {call[0]}"
        for folder in ("kubelet", "pkg", "cmd")
        for path in (ROOT / folder).rglob("*.py")
        if not path.name.endswith("_test.py") and path.name != "testing.py"
        for call in calls.finditer(path.read_text())
    ]
    assert found == [], "use filetree"


def test_directory_without_its_mount_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(filetree, "_mount_id", fail)
    before = testing.open_files()
    with pytest.raises(OSError, match="Too many open files"):
        filetree.remove_all(str(tmp_path / "a"))
    assert not [name for _, name in testing.open_files() - before if name == str(tmp_path)]
