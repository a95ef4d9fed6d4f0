"""Test reading files of the kernel."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

from pkg.util import procfs

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_but_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\nb\x0b\x0c\x1c\x1d\x1e\x85\n\nc\xe2\x80\xa8d\xff")
    assert procfs.lines(tmp_path / "f") == ["a\r", "b\x0b\x0c\x1c\x1d\x1e\udc85", "c\u2028d\udcff"]
    assert procfs.read(str(tmp_path / "f")).endswith("\udcff")


def test_long_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("line\n" * 100_000)
    assert len(procfs.lines(tmp_path / "f")) == 100_000


def test_accident_is_seen_behind_other_errors() -> None:
    def raised(*errs: Exception) -> Exception:
        """Return the last error, caused by the one before it, and so on."""
        for cause, err in itertools.pairwise(errs):
            err.__cause__ = cause
        return errs[-1]

    lacking, broken = OSError(errno.ENFILE, "Too many open files in system"), OSError(errno.EIO, "Input/output error")
    for err in (lacking, raised(lacking, OSError("cannot read")), raised(MemoryError(), ValueError(), RuntimeError())):
        assert procfs.is_accident(err)
    for err in (broken, raised(broken, RuntimeError()), ValueError()):
        assert not procfs.is_accident(err)


def test_nobody_splits_lines_at_more_than_newlines() -> None:
    """No module uses splitlines on text that others control.

    Text of the kubelet itself, and files that only their owner writes, are safe to split with splitlines.
    """
    allowed = {"pkg/apimachinery/util/yaml/decoder.py", "pkg/component_base/cli/flag/flag_set.py"}
    found = {
        str(path.relative_to(ROOT))
        for folder in ("kubelet", "pkg", "cmd")
        for path in (ROOT / folder).rglob("*.py")
        if not path.name.endswith("_test.py") and path.name != "testing.py" and ".splitlines(" in path.read_text()
    }
    assert found == allowed, "use procfs.lines or procfs.split_lines"
