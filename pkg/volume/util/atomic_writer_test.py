"""Test the atomic writer.

Go: pkg/volume/util/atomic_writer_test.go
"""

from __future__ import annotations

import os
import shutil
from datetime import datetime, tzinfo
from pathlib import Path

import pytest

from pkg import golang, mount_utils
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util import atomic_writer
from pkg.volume.util.atomic_writer import AtomicWriter, FileProjection

Payload = dict[str, FileProjection]


def files(mode: int = 0o644, **contents: str) -> Payload:
    """Return a payload by path; in the names, __ stands for a slash and _ for a dot."""
    return {
        path.replace("__", "/").replace("_", "."): FileProjection(content.encode(), mode)
        for path, content in contents.items()
    }


def payload(*paths: str, content: str = "") -> Payload:
    """Return files whose content is their path followed by `content`."""
    return {path: FileProjection((path + content).encode(), 0o644) for path in paths}


def observed(directory: Path) -> Payload:
    """Return what readers see, without the writer's own names."""
    seen: Payload = {}
    for name in os.listdir(directory):
        if name.startswith(".."):
            continue
        top = directory / os.readlink(directory / name)
        for path in [top, *top.rglob("*")]:
            if not path.is_dir():
                relative = str(path.relative_to(directory / "..data"))
                seen[relative] = FileProjection(path.read_bytes(), path.stat().st_mode & 0o7777)
    return seen


def data_dirs(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith("..2")]


def check(directory: Path, expected: Payload) -> None:
    assert observed(directory) == {os.path.normpath(path): content for path, content in expected.items()}
    assert data_dirs(directory) == [os.readlink(directory / "..data")]
    assert not os.path.lexists(directory / "..data_tmp")


def test_directory_must_exist(tmp_path: Path) -> None:
    AtomicWriter(str(tmp_path), "-test-")
    with pytest.raises(FileNotFoundError):
        AtomicWriter(str(tmp_path / "none"), "-test-")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("i/am/well/behaved.txt", ""),
        ("keepyourheaddownandfollowtherules.txt", ""),
        ("..", "must not contain '..'"),
        ("a" * 4097, "less than or equal to 4096"),
        ("a" * 256, "filenames must be less than or equal to 255"),
        ("ü" * 128, "filenames must be less than or equal to 255"),
        ("/dev/null", "must be relative path: /dev/null"),
        ("..sneaky.txt", "must not start with '..': ..sneaky.txt"),
        ("hello/there/../../../../../../etc/passwd", "must not contain '..'"),
        ("hello/../etc/somethingbad", "must not contain '..'"),
        ("", "must not be empty"),
        ("dir/..fine", ""),
    ],
)
def test_validate_path(path: str, message: str) -> None:
    if not message:
        atomic_writer.validate_path(path)
        return
    with pytest.raises(ValueError, match=message):
        atomic_writer.validate_path(path)


def test_validate_payload_cleans_paths() -> None:
    assert set(atomic_writer.validate_payload(payload("foo////bar", "./baz"))) == {"foo/bar", "baz"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["foo.txt", "bar.txt"], ["foo.txt"], {"bar.txt"}),
        (["foo.txt", "zip/bar.txt"], ["foo.txt"], {"zip/bar.txt", "zip"}),
        (["foo.txt", "zip/zap/bar.txt"], ["foo.txt"], {"zip/zap/bar.txt", "zip", "zip/zap"}),
        (
            ["foo.txt", "zip/1/2/bar.txt", "zap/a/b/bar.txt"],
            ["foo.txt"],
            {"zip", "zip/1", "zip/1/2", "zip/1/2/bar.txt", "zap", "zap/a", "zap/a/b", "zap/a/b/bar.txt"},
        ),
        (
            ["foo.txt", "zap/1/2/3/4/bar.txt", "zap/1/2/c/bar.txt", "zap/1/2/magic.txt"],
            ["foo.txt", "zap/1/2/magic.txt"],
            {"zap/1/2/3", "zap/1/2/3/4", "zap/1/2/3/4/bar.txt", "zap/1/2/c", "zap/1/2/c/bar.txt"},
        ),
    ],
)
def test_paths_to_remove(tmp_path: Path, first: list[str], second: list[str], expected: set[str]) -> None:
    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload(*first))
    assert writer._paths_to_remove(payload(*second), os.readlink(tmp_path / "..data")) == expected


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(payload("foo", "bar"), id="files"),
        pytest.param({"binary.bin": FileProjection(bytes(range(256)), 0o644)}, id="binary"),
        pytest.param(files(0o777, foo="x") | files(0o400, bar="y"), id="modes"),
        pytest.param(payload("foo", ".dotfile", ".dotfile.file"), id="dotfiles"),
        pytest.param(files(0o407, foo="x") | files(0o666, _dotfile="y"), id="modes of dotfiles"),
        pytest.param(payload("foo/bar.txt", "bar/zab.txt"), id="subdirectories"),
        pytest.param(payload("foo//bar.txt", "bar///bar/zab.txt"), id="unclean subdirectories"),
        pytest.param(payload("foo/bar.txt", "foo/blaz/bar.txt", "bar/zib/zab.txt"), id="nested subdirectories"),
        pytest.param(payload("foo.log", ".dotfile", "foo/bar.txt", "1/2/3/4/5/6/7/8/9/10/.lib"), id="all of it"),
        pytest.param({}, id="nothing"),
    ],
)
def test_write_once(tmp_path: Path, contents: Payload) -> None:
    umask = os.umask(0o077)
    try:
        AtomicWriter(str(tmp_path), "-test-").write(contents)
    finally:
        os.umask(umask)
    check(tmp_path, contents)
    assert (tmp_path / "..data").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("bad", ["..bar", "foo/../bar", "/bar", ""])
def test_bad_path_writes_nothing(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ValueError, match="invalid path"):
        AtomicWriter(str(tmp_path), "-test-").write(payload("foo", bad))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("sets", "written"),
    [
        pytest.param([payload("foo", "bar"), payload("foo", "bar", content="2")], True, id="update"),
        pytest.param([payload("foo", "bar"), payload("foo", "bar")], False, id="no update"),
        pytest.param([payload("foo/bar", "bar/zab"), payload("foo/bar", "bar/zab")], False, id="no update below"),
        pytest.param([payload("foo/a"), payload("foo/a", "blu/two/2/3/zip.txt")], True, id="add"),
        pytest.param([payload("foo/a", "bar/b"), payload("foo/a", "bar/b", "bar/2/3/c")], True, id="add below"),
        pytest.param([payload("foo/a", "bar/1/2/b"), payload("foo/a")], True, id="delete"),
        pytest.param([payload("bar/1/2/a", "bar/1/2/3/4/b"), payload("bar/1/2/a")], True, id="delete below"),
        pytest.param([payload("foo/a", "bar"), {}], True, id="delete all"),
        pytest.param([payload("foo/a"), payload("bar/b")], True, id="add and delete"),
        pytest.param([payload("foo"), payload("foo/a"), payload("foo")], True, id="file, directory, file"),
        pytest.param([payload("a", content=str(i)) for i in range(5)], True, id="many"),
    ],
)
def test_updates(tmp_path: Path, sets: list[Payload], written: bool) -> None:
    writer = AtomicWriter(str(tmp_path), "-test-")
    for contents in sets:
        before = data_dirs(tmp_path)
        writer.write(contents)
        check(tmp_path, contents)
    assert (data_dirs(tmp_path) != before) is written


@pytest.mark.parametrize(
    ("paths", "links"),
    [
        (["foo", "bar"], {"foo": "..data/foo", "bar": "..data/bar"}),
        (["foo/bar/txt", "bar/txt"], {"foo": "..data/foo", "bar": "..data/bar"}),
        (["./bar", "foo///bar"], {"foo": "..data/foo", "bar": "..data/bar"}),
    ],
)
def test_visible_files_are_links(tmp_path: Path, paths: list[str], links: dict[str, str]) -> None:
    AtomicWriter(str(tmp_path), "-test-").write(payload(*paths))
    assert {name: os.readlink(tmp_path / name) for name in os.listdir(tmp_path) if not name.startswith("..")} == links


def test_permissions_are_set_before_anybody_sees_the_files(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []
    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload("foo/bar"), lambda name: seen.append((name, os.path.lexists(tmp_path / "..data"))))
    assert seen == [(os.readlink(tmp_path / "..data"), False)]
    writer.write(payload("foo/bar"), lambda name: seen.append((name, True)))
    assert len(seen) == 1


def test_failure_leaves_the_old_files_and_nothing_else(tmp_path: Path) -> None:
    def fail(name: str) -> None:
        raise OSError("error in setPerms")

    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload("foo"))
    with pytest.raises(OSError, match="error in setPerms"):
        writer.write(payload("bar"), fail)
    check(tmp_path, payload("foo"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_owner(tmp_path: Path) -> None:
    AtomicWriter(str(tmp_path), "-test-").write(
        {"dir/token": FileProjection(b"x", 0o600, 1234), "other": FileProjection(b"x", 0o600)}
    )
    assert (tmp_path / "dir/token").stat().st_uid == 1234
    assert (tmp_path / "dir").lstat().st_uid == 1234
    assert (tmp_path / "other").stat().st_uid == 0


def test_write_after_a_kill_before_the_links(tmp_path: Path) -> None:
    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload("foo", "bar"))
    (tmp_path / "foo").unlink()
    writer.write(payload("foo", "bar"))
    check(tmp_path, payload("foo", "bar"))


def test_write_after_a_kill_in_the_middle(tmp_path: Path) -> None:
    """A write succeeds after a kubelet was killed in the middle of one.

    The killed kubelet may leave a link that was not renamed, a whole old set, and links without a target.
    """
    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload("foo"))
    (tmp_path / "..2001_01_01_00_00_00.x").mkdir()
    (tmp_path / "..2001_01_01_00_00_00.x" / "file").write_text("x")
    (tmp_path / "..data_tmp").symlink_to("..2001_01_01_00_00_00.x")
    (tmp_path / "gone").symlink_to("..data/gone")
    writer.write(payload("bar"))
    check(tmp_path, payload("bar"))


class Epoch(datetime):
    """Return the time of a clock that has just been switched on."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Epoch:
        return cls.fromtimestamp(0, tz)


def test_machine_that_does_not_know_the_year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer recognizes its directories in 1970 too; otherwise each write would add a copy of all files."""
    monkeypatch.setattr(atomic_writer, "datetime", Epoch)
    writer = AtomicWriter(str(tmp_path), "-test-")
    writer.write(payload("foo"))
    first = os.readlink(tmp_path / "..data")
    writer.write(payload("foo"))
    assert sorted(os.listdir(tmp_path)) == [first, "..data", "foo"]
    writer.write(payload("bar"))
    second = os.readlink(tmp_path / "..data")
    assert sorted(os.listdir(tmp_path)) == [second, "..data", "bar"] and second != first


def test_data_link_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    """A link ..data that leads elsewhere is not followed.

    In CVE-2017-1002102, a container that may write to its volume makes the kubelet remove files of the node.
    """
    target, volume = tmp_path / "etc", tmp_path / "volume"
    target.mkdir()
    (target / "passwd").write_text("root")
    volume.mkdir()
    writer = AtomicWriter(str(volume), "-test-")
    for link in (str(target), "../etc", ".", "..", "..2/../../etc"):
        writer.write(payload("foo"))
        (volume / "..data").unlink()
        (volume / "..data").symlink_to(link)
        writer.write(payload("foo", "bar"))
        assert (target / "passwd").read_text() == "root"
        check(volume, payload("foo", "bar"))


def test_data_dir_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    target, volume = tmp_path / "etc", tmp_path / "volume"
    target.mkdir()
    (target / "passwd").write_text("root")
    volume.mkdir()
    writer = AtomicWriter(str(volume), "-test-")
    writer.write(payload("foo"))
    old = os.readlink(volume / "..data")
    shutil.rmtree(volume / old)
    (volume / old).symlink_to("../etc")
    writer.write(payload("bar"))
    assert (target / "passwd").read_text() == "root"
    assert observed(volume) == payload("bar")


def test_other_volumes_mount_point_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nested").mkdir()
    AtomicWriter(str(tmp_path), "-test-").write(payload("foo", "nested"))
    assert (tmp_path / "nested").is_dir() and not (tmp_path / "nested").is_symlink()


def test_old_files_stay_while_something_is_mounted_among_them(tmp_path: Path) -> None:
    mounter = FakeMounter()
    writer = AtomicWriter(str(tmp_path), "-test-", mounter)
    writer.write(payload("foo"))
    old = tmp_path / os.readlink(tmp_path / "..data")
    mounter.mount("server:/share", str(old), "nfs", [])
    with pytest.raises(OSError, match=f"{old} is a mount point"):
        writer.write(payload("bar"))
    assert (old / "foo").exists() and observed(tmp_path) == payload("bar")
    mounter.unmount(str(old))
    writer.write(payload("baz"))
    check(tmp_path, payload("baz"))


def test_reader_never_sees_a_mixed_set(tmp_path: Path) -> None:
    names = [f"file{i}" for i in range(5)]
    writer = AtomicWriter(str(tmp_path), "-test-")

    def write(generation: int) -> None:
        writer.write({name: FileProjection(str(generation).encode(), 0o644) for name in names})

    def update(ctx: golang.Context) -> None:
        for generation in range(1, 300):
            write(generation)

    write(0)
    thread = golang.go(update, golang.background(), name="writer")
    seen = set()
    while thread.is_alive():
        try:
            directory = os.open(tmp_path / "..data", os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            contents = {Path(f"/proc/self/fd/{directory}/{name}").read_bytes() for name in names}
        except FileNotFoundError:
            continue
        finally:
            os.close(directory)
        assert len(contents) == 1
        seen |= contents
    thread.join()
    assert len(seen) > 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_full_volume_names_the_file_and_keeps_the_old_ones(tmp_path: Path) -> None:
    mounter = mount_utils.Mounter()
    mounter.mount("tmpfs", str(tmp_path), "tmpfs", ["size=64k"])
    try:
        writer = AtomicWriter(str(tmp_path), "-test-")
        writer.write(payload("small"))
        with pytest.raises(OSError, match=rf"^write {tmp_path}/\.\.2.*/large: no space left on device$"):
            writer.write({"large": FileProjection(b"x" * (1 << 17), 0o644)})
        check(tmp_path, payload("small"))
        # The failed write has left room for a smaller one.
        writer.write(payload("small", content="!" * 20_000))
        check(tmp_path, payload("small", content="!" * 20_000))
    finally:
        mounter.unmount(str(tmp_path))
