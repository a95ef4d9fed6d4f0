"""Files of the kernel."""

from __future__ import annotations

from pathlib import Path

from pkg.util import procfs


def test_nothing_but_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\nb\x0b\x0c\x1c\x1d\x1e\x85\n\nc\xe2\x80\xa8d\xff")
    assert procfs.lines(tmp_path / "f") == ["a\r", "b\x0b\x0c\x1c\x1d\x1e\udc85", "c\u2028d\udcff"]
    assert procfs.read(str(tmp_path / "f")).endswith("\udcff")


def test_long_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("line\n" * 100_000)
    assert len(procfs.lines(tmp_path / "f")) == 100_000
