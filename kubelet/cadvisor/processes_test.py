"""Test the counting of open files and the network statistics."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kubelet.cadvisor import processes
from kubelet.cadvisor.info import v1 as info

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            {}                 {}              files
"""
DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
  eth0:12345678      17    1    2    0     0          0         0      542       7    3    4    0     0       0          0
vethab: 1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
docker0: 1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
"""  # noqa: E501 as the kernel writes it


def test_open_files_and_sockets() -> None:
    stats = info.ProcessStats()
    with socket.socket():
        processes.count_open_files("/proc", [os.getpid()], 0, stats)
    assert stats.fd_count > stats.socket_count >= 1
    assert stats.ulimits == []


@pytest.mark.parametrize(
    ("told", "counted"), [pytest.param(10, 30, id="the kernel tells how many"), pytest.param(0, 23, id="it does not")]
)
def test_only_so_many_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int, counted: int
) -> None:
    monkeypatch.setattr(processes, "MAX_EXAMINED_PROCESSES", 3)
    monkeypatch.setattr(processes, "MAX_EXAMINED_FILES", 15)
    monkeypatch.setattr(processes, "MAX_COUNTED_FILES", 23)
    monkeypatch.setattr(processes, "_number_of_files", lambda directory: told)
    pids = (7, 8, 9, 10)
    for pid in pids:
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        for number in range(10):
            (tmp_path / f"{pid}/fd/{number}").symlink_to(f"socket:[{number}]")
    stats = info.ProcessStats()
    processes.count_open_files(str(tmp_path), pids, 0, stats)
    assert (stats.fd_count, stats.socket_count) == (counted, 15)


def test_only_so_many_interfaces_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_INTERFACES", 2)
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/dev").write_text(DEV + DEV.splitlines()[3].replace("eth0", "eth1") + "\n")
    assert [interface.name for interface in processes.network_stats(str(tmp_path), 7)] == ["eth0"]


def test_process_that_has_ended(tmp_path: Path) -> None:
    stats = info.ProcessStats()
    processes.count_open_files(str(tmp_path), [7], 7, stats)
    assert stats == info.ProcessStats()


@pytest.mark.parametrize(
    ("soft", "hard", "expected"), [("1024", "524288", (1024, 524288)), ("unlimited", "unlimited", (-1, -1))]
)
def test_limits(tmp_path: Path, soft: str, hard: str, expected: tuple[int, int]) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/limits").write_text(LIMITS.format(soft, hard))
    stats = info.ProcessStats()
    processes.count_open_files(str(tmp_path), [], 7, stats)
    assert stats.ulimits == [info.UlimitSpec("max_open_files", *expected)]


def test_interfaces(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/dev").write_text(DEV)
    expected = info.InterfaceStats("eth0", 12345678, 17, 1, 2, 542, 7, 3, 4)
    assert processes.network_stats(str(tmp_path), 7) == [expected]


@pytest.mark.parametrize("name", ["eth\u2003", "eth\x1c", "eth\x85", "eth\udcff"])
def test_interface_with_a_strange_name(tmp_path: Path, name: str) -> None:
    """A name may contain anything but blanks, slashes and colons, because a container with NET_ADMIN chooses it."""
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/dev").write_bytes(os.fsencode(DEV.replace("eth0", name)))
    assert [interface.name for interface in processes.network_stats(str(tmp_path), 7)] == [name]


def test_line_that_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/dev").write_text("a\nb\n eth0: 1 2 3\n")
    with pytest.raises(ValueError, match="invalid interface stats line:  eth0: 1 2 3"):
        processes.network_stats(str(tmp_path), 7)
