"""Test logs that are rotated before or while they are read."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubelet.kuberuntime.logs.log_files import LogFiles


def _lines(*numbers: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in numbers)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log with lines 1 to 8 in three files, the oldest of which is compressed."""
    path = tmp_path / "0.log"
    with gzip.open(f"{path}.20260102-030405.gz", "wb") as f:
        f.write(_lines(1, 2, 3))
    Path(f"{path}.20260102-040506").write_bytes(_lines(4, 5))
    path.write_bytes(_lines(6, 7, 8))
    return path


def _read(path: Path, tail: int | None = None, since: float = 0.0, follow: bool = False, rotated: bool = True) -> bytes:
    with LogFiles(str(path), tail, since, rotated) as files:
        return b"".join(iter(lambda: files.read(follow), b""))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("tail", "first"),
    [(None, 1), (0, 9), (1, 8), (3, 6), (4, 5), (5, 4), (6, 3), (8, 1), (9, 1), (10**18, 1)],
)
def test_tail_goes_back_through_rotated_files(log: Path, tail: int | None, first: int, follow: bool) -> None:
    assert _read(log, tail, follow=follow) == _lines(*range(first, 9))


def test_files_written_before_since_are_left_out(log: Path) -> None:
    os.utime(f"{log}.20260102-030405.gz", (100, 100))
    os.utime(f"{log}.20260102-040506", (200, 200))
    assert _read(log, since=150.0) == _lines(4, 5, 6, 7, 8)
    assert _read(log, since=250.0) == _lines(6, 7, 8)


def test_left_overs_and_files_of_others_are_not_read(log: Path) -> None:
    Path(f"{log}.20260102-040506.gz.tmp").write_bytes(b"half")
    # Both files exist if the kubelet died between compression and removal.
    Path(f"{log}.20260102-030405").write_bytes(_lines(1, 2, 3))
    Path(f"{log}.1").write_bytes(b"somebody else's\n")
    assert _read(log) == _lines(*range(1, 9))


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(_lines(*range(1000)))[:-20]], ids=["none", "cut"])
@pytest.mark.parametrize("tail", [None, 7])
def test_broken_archive_ends_early(log: Path, content: bytes, tail: int | None) -> None:
    Path(f"{log}.20260102-030405.gz").write_bytes(content)
    assert _read(log, tail).endswith(_lines(4, 5, 6, 7, 8))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("tail", "first"), [(None, 6), (0, 9), (1, 8), (3, 6), (4, 6)])
def test_newest_file_alone(log: Path, tail: int | None, first: int, follow: bool) -> None:
    assert _read(log, tail, follow=follow, rotated=False) == _lines(*range(first, 9))


def test_follower_of_the_newest_file_misses_nothing(log: Path) -> None:
    with LogFiles(str(log), 1, 0.0, rotated=False) as files:
        assert files.read(True) == _lines(8)
        with log.open("ab") as f:
            f.write(_lines(9))
        log.rename(f"{log}.20260102-050607")
        log.write_bytes(_lines(10))
        log.rename(f"{log}.20260102-060708")
        log.write_bytes(_lines(11))
        assert b"".join(iter(lambda: files.read(True), b"")) == _lines(9, 10, 11)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("tail", [None, 5])
def test_missing_log(tmp_path: Path, tail: int | None, rotated: bool) -> None:
    with pytest.raises(FileNotFoundError):
        LogFiles(str(tmp_path / "0.log"), tail, 0.0, rotated)


@pytest.mark.parametrize("tail", [None, 2])
def test_log_that_is_just_being_rotated(log: Path, tail: int | None) -> None:
    log.rename(f"{log}.20260102-050607")
    with LogFiles(str(log), tail, 0.0) as files:
        assert b"".join(iter(lambda: files.read(True), b"")).endswith(_lines(7, 8))
        log.write_bytes(_lines(9))
        assert files.read(True) == _lines(9)
        assert files.read(True) == b""


def _rotate(log: Path, stamp: str, *new: int) -> None:
    log.rename(f"{log}.{stamp}")
    log.write_bytes(_lines(*new))


def _compress(log: Path, stamp: str) -> None:
    plain = Path(f"{log}.{stamp}")
    Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def _once(log: Path) -> None:
    _rotate(log, "20260102-050607", 10)


def _twice(log: Path) -> None:
    _rotate(log, "20260102-050607", 10)
    _rotate(log, "20260102-060708", 11)


def _twice_and_compressed(log: Path) -> None:
    _rotate(log, "20260102-050607", 10)
    _compress(log, "20260102-040506")
    _compress(log, "20260102-050607")
    _rotate(log, "20260102-060708", 11)


def _thrice_and_the_oldest_gone(log: Path) -> None:
    _twice_and_compressed(log)
    Path(f"{log}.20260102-030405.gz").unlink()
    _compress(log, "20260102-060708")
    _rotate(log, "20260102-070809", 12)


def _twice_and_the_first_gone(log: Path) -> None:
    _once(log)
    Path(f"{log}.20260102-050607").unlink()
    _rotate(log, "20260102-060708", 11)


@pytest.mark.parametrize(
    ("rotate", "last"),
    [
        (_once, 10),
        (_twice, 11),
        (_twice_and_compressed, 11),
        (_thrice_and_the_oldest_gone, 12),
        (_twice_and_the_first_gone, 11),
    ],
)
@pytest.mark.parametrize("tail", [None, 0, 2, 4, 100])
def test_slow_follower_misses_nothing(log: Path, tail: int | None, rotate: Callable[[Path], None], last: int) -> None:
    with LogFiles(str(log), tail, 0.0) as files:
        while files.read(True):
            pass
        # The runtime appends to the file after the follower has reached its end.
        with log.open("ab") as f:
            f.write(_lines(9))
        rotate(log)
        assert b"".join(iter(lambda: files.read(True), b"")) == _lines(*range(9, last + 1))
        assert files.read(True) == b""


@pytest.mark.parametrize("ended", [False, True])
def test_file_is_followed_until_nobody_writes_to_it(log: Path, ended: bool) -> None:
    """The old file is read until the runtime, which has already created the new one, has closed it."""
    with LogFiles(str(log), 1, 0.0) as files, log.open("ab", buffering=0) as old:
        assert files.read(True) == _lines(8)
        _rotate(log, "20260102-050607", 10)
        assert files.read(True) == b""
        old.write(_lines(9))
        assert files.read(True) == _lines(9)
        assert files.read(True) == b""
        if not ended:
            old.close()
        assert files.read(True, ended=ended) == _lines(10)


def test_file_that_a_slow_follower_comes_to_late_is_followed_too(log: Path) -> None:
    with LogFiles(str(log), None, 0.0) as files, log.open("ab", buffering=0) as old:
        assert files.read(True) == _lines(1, 2, 3)
        _rotate(log, "20260102-050607", 10)
        old.write(b"line ")
        assert files.read(True) + files.read(True) == _lines(4, 5, 6, 7, 8)
        assert files.read(True) == b""
        old.write(b"9\n")
        assert files.read(True) == _lines(9)
        assert files.read(True) == b""
        old.close()
        assert files.read(True) == _lines(10)


def test_rotated_before_the_first_line_is_read(log: Path) -> None:
    with LogFiles(str(log), None, 0.0) as files:
        _twice(log)
        assert b"".join(iter(lambda: files.read(False), b"")) == _lines(1, 2, 3, 4, 5, 6, 7, 8, 10, 11)


def test_unfinished_line_is_read_again_by_a_follower(log: Path) -> None:
    with log.open("ab") as f:
        f.write(b"line")
    assert _read(log).endswith(b"line 8\nline")
    with LogFiles(str(log), 1, 0.0) as files:
        assert files.read(True) == _lines(8)
        assert files.read(True) == b""
        with log.open("ab") as f:
            f.write(b" 9\n")
        assert files.read(True) == _lines(9)


def test_log_that_is_cut_short_is_read_from_its_new_beginning(log: Path) -> None:
    with LogFiles(str(log), 0, 0.0) as files:
        assert files.read(True) == b""
        log.write_bytes(_lines(9))
        assert files.read(True) == _lines(9)


def test_lines_longer_than_a_block(log: Path) -> None:
    log.write_bytes(b"x" * 600_000 + b"\n" + _lines(9))
    assert _read(log, 2) == log.read_bytes()
    assert _read(log, 1) == _lines(9)


class _Story:
    """Imitate what a runtime and log rotation do to a log that readers follow or read later."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "0.log"
        self.log.write_bytes(b"")
        self.written = 0
        self.rotations = 0

    def write(self, lines: int) -> None:
        with self.log.open("ab") as f:
            for _ in range(lines):
                f.write(b"line %d\n" % self.written)
                self.written += 1

    def rotate(self) -> None:
        self.compress()
        self.rotations += 1
        self.log.rename(f"{self.log}.20260102-{self.rotations:06}")
        self.log.write_bytes(b"")

    def rotate_late(self) -> None:
        """Rotate the log while the runtime still writes to the renamed file."""
        self.compress()
        self.rotations += 1
        moved = Path(f"{self.log}.20260102-{self.rotations:06}")
        self.log.rename(moved)
        with moved.open("ab") as f:
            f.write(b"line %d\n" % self.written)
        self.written += 1
        self.log.write_bytes(b"")

    def compress(self) -> None:
        for n in range(1, self.rotations + 1):
            if Path(f"{self.log}.20260102-{n:06}").exists():
                _compress(self.log, f"20260102-{n:06}")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 30), st.sampled_from(["rotate", "rotate_late", "compress", "read"])), max_size=25
    ),
    st.one_of(st.none(), st.integers(0, 40)),
    st.integers(0, 10),
)
def test_whatever_happens_to_a_log_no_line_is_lost(steps: list[int | str], tail: int | None, joins_at: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = _Story(Path(directory))
        files = None
        read, first = b"", 0
        for number, step in enumerate([*steps, "read"]):
            if files is None and (number == joins_at or number == len(steps)):
                first = 0 if tail is None else max(story.written - tail, 0)
                files = LogFiles(str(story.log), tail, 0.0)
            if isinstance(step, int):
                story.write(step)
            elif step != "read":
                getattr(story, step)()
            elif files is not None:
                read += b"".join(iter(lambda: files.read(True), b""))  # noqa: B023
        assert files is not None
        files.__exit__(None, None, None)
        assert read == _lines(*range(first, story.written))
        assert _read(story.log) == _lines(*range(story.written))
        assert _read(story.log, 7) == _lines(*range(max(story.written - 7, 0), story.written))
