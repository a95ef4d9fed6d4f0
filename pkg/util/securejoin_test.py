"""Tests of joining paths that must not lead out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pkg.util.securejoin import open_in_root, secure_join


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "a/b"),
        ("/a//./b/", "a/b"),
        ("../../etc/passwd", "etc/passwd"),
        ("inside", "dir/file"),
        ("absolute", "etc/passwd"),
        ("up", "etc"),
        ("linked/file", "dir/file"),
        ("dir/file/more", "dir/file/more"),
        ("missing/../a", "a"),
        ("", ""),
    ],
)
def test_links_stay_inside(tmp_path: Path, path: str, expected: str) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/file").touch()
    (tmp_path / "inside").symlink_to("dir/file")
    (tmp_path / "absolute").symlink_to("/etc/passwd")
    (tmp_path / "up").symlink_to("../../../etc")
    (tmp_path / "linked").symlink_to("/dir")
    assert secure_join(str(tmp_path), path).rstrip("/") == str(tmp_path / expected).rstrip("/")


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        secure_join(str(tmp_path), "loop/a")


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
