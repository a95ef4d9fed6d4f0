"""Test the number of tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.stats import pidlimit


def proc(path: Path, pid_max: str | None, threads_max: str | None, loadavg: str) -> str:
    (path / "sys/kernel").mkdir(parents=True)
    for name, text in (("pid_max", pid_max), ("threads-max", threads_max)):
        if text is not None:
            (path / "sys/kernel" / name).write_text(text)
    (path / "loadavg").write_text(loadavg)
    return str(path)


LOAD = "1.36 3.49 4.53 2/3518 3715089\n"


@pytest.mark.parametrize(
    ("pid_max", "threads_max", "limit"),
    [("4194304\n", "63000\n", 63000), ("100\n", "200\n", 100), (None, "7\n", 7), ("7\n", "x\n", 7), (None, None, None)],
)
def test_stats(tmp_path: Path, pid_max: str | None, threads_max: str | None, limit: int | None) -> None:
    stats = pidlimit.stats(proc(tmp_path, pid_max, threads_max, LOAD))
    assert (stats.max_pid, stats.num_of_running_processes) == (limit, 3518)
    assert stats.time is not None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1 2 3\n", "not enough fields"),
        ("1 2 3 4 5\n", "error parsing fourth field"),
        ("1 2 3 4/x 5\n", "invalid literal"),
    ],
)
def test_running_task_count_of_nonsense(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        pidlimit.stats(proc(tmp_path, None, None, text))


def test_this_machine() -> None:
    stats = pidlimit.stats()
    assert stats.max_pid is not None and stats.num_of_running_processes is not None
    assert 0 < stats.num_of_running_processes < stats.max_pid
