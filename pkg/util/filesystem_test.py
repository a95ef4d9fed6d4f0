"""Test creating directories."""

from __future__ import annotations

import ast
import os
import stat
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkg.util import filesystem, filetree

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def test_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, target in {"link": "file", "dangling": "nowhere", "loop": "loop"}.items():
        (tmp_path / name).symlink_to(target)
    names = ("file", "link", "dangling", "loop", "none", "file/x")
    assert [name for name in names if filesystem.exists(tmp_path / name)] == ["file", "link"]
    with pytest.raises(OSError, match="File name too long"):
        filesystem.exists(tmp_path / ("x" * 256))


def test_each_directory_that_was_missing_has_the_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    filesystem.mkdir_all(tmp_path / "a/b/c", 0o750)
    filesystem.mkdir_all(str(tmp_path / "a/b/c/"), 0o700)
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in (".", "a", "a/b", "a/b/c")]
    assert modes == [0o700, 0o750, 0o750, 0o750]


def test_many_directories_in_each_other(tmp_path: Path) -> None:
    path = os.path.join(tmp_path, *["d"] * 1900)
    try:
        filesystem.mkdir_all(path, 0o750)
        assert os.path.isdir(path)
    finally:
        # pytest would remove the tree recursively, and fail at the start of a later run.
        filetree.remove_all(str(tmp_path / "d"))


def test_path_that_is_too_long_takes_no_memory(tmp_path: Path) -> None:
    """A path that is too long is refused before it takes memory.

    A pod may use a path of a megabyte, as a hostPath or a mount path. Keeping each parent's path would take hundreds of
    gigabytes.
    """
    path = f"{tmp_path}/{'d/' * 10_000}"
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="File name too long"):
            filesystem.mkdir_all(path, 0o750)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000 and os.listdir(tmp_path) == []
    finally:
        tracemalloc.stop()
        filetree.remove_all(str(tmp_path / "d"))


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for path in ("file", "file/below", "link"):
        with pytest.raises(OSError):
            filesystem.mkdir_all(tmp_path / path, 0o750)


def test_another_thread_makes_the_directory_after_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def look_and_be_overtaken(path: str, **options: Any) -> os.stat_result:
        try:
            return real(path, **options)
        except FileNotFoundError:
            os.mkdir(path)
            raise

    monkeypatch.setattr(os, "stat", look_and_be_overtaken)
    filesystem.mkdir_all(tmp_path / "a", 0o750)
    assert real(tmp_path / "a")


def test_nobody_relies_on_a_mode_that_only_the_last_directory_would_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for folder in ("kubelet", "pkg", "cmd")
        for path in (ROOT / folder).rglob("*.py")
        if "makedirs(" in (text := path.read_text()) or "parents=True" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _gives_mode_to_last(call)
    ]
    assert found == [], "use filesystem.mkdir_all"


def _gives_mode_to_last(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    keywords = {keyword.arg for keyword in call.keywords}
    if name == "makedirs":
        return "mode" in keywords or len(call.args) > 1
    return name == "mkdir" and "parents" in keywords and ("mode" in keywords or bool(call.args))


def test_names_in_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    assert filesystem.names_in(tmp_path) == ["a", "b"]
    assert filesystem.names_in(tmp_path / "missing") == filesystem.names_in(tmp_path / "a") == []
    with pytest.raises(OSError, match="too long"):
        filesystem.names_in(tmp_path / ("n" * 300))
