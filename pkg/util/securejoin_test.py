"""Test opening paths that must not lead out of a directory."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from pkg.util.securejoin import open_in_root, open_joined
from pkg.util.testing import open_files


def make_links(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/file").touch()
    (tmp_path / "inside").symlink_to("dir/file")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../../../etc")
    (tmp_path / "linked").symlink_to("/dir")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *(("../../etc/passwd", "etc/passwd"), ("inside", "dir/file"), ("absolute", "etc/passwd"), ("up", "etc")),
        *(("linked/file", "dir/file"), ("/dir//./file", "dir/file"), ("linked/../inside", "dir/file"), ("", ".")),
    ],
)
def test_what_a_path_leads_to_is_opened(tmp_path: Path, path: str, expected: str) -> None:
    make_links(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").touch()
    before = open_files()
    handle = open_joined(str(tmp_path), path)
    assert os.path.samestat(os.fstat(handle), os.stat(tmp_path / expected))
    os.close(handle)
    assert open_files() <= before


@pytest.mark.parametrize(
    ("path", "error"),
    [
        *(("missing/a", errno.ENOENT), ("dir/file/more", errno.ENOTDIR), ("loop/a", errno.ELOOP)),
        *(("absolute", errno.ENOENT), ("d/" * 300, errno.ENAMETOOLONG)),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, path: str, error: int) -> None:
    make_links(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / ("d/" * 300)).mkdir(parents=True)
    before = open_files()
    with pytest.raises(OSError) as raised:
        open_joined(str(tmp_path), path)
    assert raised.value.errno == error
    assert open_files() <= before


@pytest.mark.parametrize("swap_at", [1, 2, 3, 4])
def test_directory_that_becomes_a_link_leads_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap_at: int
) -> None:
    """A directory that becomes a link before any of the system calls does not lead out of the root."""
    open_file = os.open
    calls = 0

    def swap(name: str, *args: int, **kwargs: int) -> int:
        nonlocal calls
        calls += 1
        if calls == swap_at:
            (tmp_path / "root/a").rename(tmp_path / "root/b")
            (tmp_path / "root/a").symlink_to("../outside")
        return open_file(name, *args, **kwargs)

    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("out")
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/a/f").write_text("in")
    monkeypatch.setattr(os, "open", swap)
    try:
        handle = open_joined(str(tmp_path / "root"), "a/f")
    except FileNotFoundError:
        return
    finally:
        monkeypatch.undo()
    assert Path(f"/proc/self/fd/{handle}").read_text() == "in"
    os.close(handle)


def test_long_links_are_followed(tmp_path: Path) -> None:
    """The largest number and length of links, which a container can create in a volume, are followed."""
    targets = [*(f"link{number}" for number in range(1, 255)), "last"]
    (tmp_path / "last").mkdir()
    for number, target in enumerate(targets):
        (tmp_path / f"link{number}").symlink_to(target + "/." * ((4095 - len(target)) // 2))
    handle = open_joined(str(tmp_path), "link0")
    assert os.path.samestat(os.fstat(handle), os.stat(tmp_path / "last"))
    os.close(handle)


def test_open_in_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "f").write_text("in")
    (tmp_path / "f").write_text("out")
    (root / "link").symlink_to(root / "a" / "f")
    (root / "out").symlink_to("../f")
    for path in ("a/f", "/a/f", "link", "a/../a/f"):
        with os.fdopen(open_in_root(str(root), path)) as f:
            assert f.read() == "in"
    os.close(open_in_root(str(root), "."))
    for path in ("out", "../f", "..", "a/../../f", "/../f"):
        with pytest.raises(PermissionError):
            open_in_root(str(root), path)
    with pytest.raises(FileNotFoundError):
        open_in_root(str(root), "missing")
    with pytest.raises(OSError, match="Invalid argument"):
        open_in_root(str(root), "a\0b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_link_leads_to_no_file_of_another_mount_namespace(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    script = f"mount -t tmpfs none {root} && echo other > {root}/file && echo ready && exec cat"
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        (root / "link").symlink_to(f"/proc/{process.pid}/root{root}/file")
        assert (root / "link").read_text() == "other\n"
        with pytest.raises(FileNotFoundError):
            open_in_root(str(root), "link")
        (root / "file").write_text("ours")
        with os.fdopen(open_in_root(str(root), "link")) as f:
            assert f.read() == "ours"
        process.communicate(timeout=30)


def test_a_link_leads_to_nothing_that_has_no_path(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/{os.getpid()}/fd/{reader}")
    with pytest.raises(PermissionError):
        open_in_root(str(tmp_path), "link")
    os.close(reader)
    os.close(writer)
