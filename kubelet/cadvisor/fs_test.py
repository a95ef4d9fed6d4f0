"""Test the statistics of file systems and disks."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from kubelet.cadvisor import fs
from kubelet.cadvisor.fs import FileSystems, Mount
from pkg import golang, mount_utils
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import raising
from pkg.golang.testing import out_of_threads
from pkg.volume.util import fs as volumefs

MOUNTS = """\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs rw,mode=755
25 22 253:16 / /var/lib/my\\040data rw shared:2 - xfs /dev/vdb rw
26 22 253:16 /a /mnt/bound rw shared:2 - xfs /dev/vdb rw
27 22 0:50 / /run/rootfs rw - overlay overlay rw,lowerdir=/a
28 22 0:51 / /net rw - nfs4 server:/share rw
29 22 0:52 / /run/lock rw - tmpfs tmpfs rw
"""
DISKS = """\
   7       0 loop0 1 2 3 4 5 6 7 8 9 10 11
 253       0 vda 101 102 103 104 105 106 107 108 109 110 111 0 0 0 0 12 13
 253      16 vdb 0 0 0 0 0 0 0 0 0 0 0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    (tmp_path / "diskstats").write_text(DISKS)
    return tmp_path


def test_partitions(proc: Path) -> None:
    assert FileSystems(str(proc)).partitions == {
        "/dev/vda": Mount("/dev/vda", "/", "ext4", 253, 0),
        "/sys/fs/cgroup": Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, 22),
        "/dev/vdb": Mount("/dev/vdb", "/var/lib/my data", "xfs", 253, 16),
        "overlay_0-50": Mount("overlay", "/run/rootfs", "overlay", 0, 50),
        "server:/share": Mount("server:/share", "/net", "nfs4", 0, 51),
        "/run/lock": Mount("tmpfs", "/run/lock", "tmpfs", 0, 52),
    }


def test_mounts_that_cannot_be_read_are_read_again(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystems = FileSystems(str(proc))
    with monkeypatch.context() as patch:
        patch.setattr(mount_utils, "parse_mount_info", raising(OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(OSError, match="Too many open files"):
            filesystems.dir_info("/")
    assert filesystems.device_name(253, 16) == "/dev/vdb"


def test_root_of_another_kind_is_in(proc: Path) -> None:
    (proc / "self/mountinfo").write_text("22 1 0:7 / / rw - 9p host rw\n")
    assert list(FileSystems(str(proc)).partitions) == ["host"]


def test_device_names(proc: Path) -> None:
    filesystems = FileSystems(str(proc))
    assert (filesystems.device_name(253, 16), filesystems.device_name(9, 9)) == ("/dev/vdb", "")


def test_all_file_systems(proc: Path) -> None:
    (proc / "self/mountinfo").write_text(
        "22 1 253:0 / / rw - ext4 /dev/vda rw\n23 1 253:1 / /not/there rw - ext4 /dev/vdc rw\n"
    )
    [root] = FileSystems(str(proc)).global_stats()
    room = os.statvfs("/")
    assert (root.device, root.type) == ("/dev/vda", "vfs")
    assert (root.limit, root.inodes) == (room.f_blocks * room.f_frsize, room.f_files)
    assert root.usage + root.available <= root.limit
    assert (root.reads_completed, root.reads_merged, root.sectors_read, root.read_time) == (101, 102, 103, 104)
    assert (root.writes_completed, root.writes_merged, root.sectors_written) == (105, 106, 107)
    assert (root.write_time, root.io_in_progress, root.io_time, root.weighted_io_time) == (108, 109, 110, 111)


def test_file_system_of_a_directory(proc: Path) -> None:
    found = FileSystems(str(proc)).dir_info(str(proc))
    room = os.statvfs(proc)
    assert (found.capacity, found.inodes) == (room.f_blocks * room.f_frsize, room.f_files)
    assert 0 <= found.available <= found.capacity
    with pytest.raises(FileNotFoundError):
        FileSystems(str(proc)).dir_info(str(proc / "none"))


def test_btrfs_has_the_numbers_of_its_disk(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A btrfs mount gets its disk's device numbers.

    The kernel invents a device number for the mount, and one for each subvolume.
    """
    mounts = f"22 1 253:0 / / rw - ext4 /dev/vda rw\n23 22 0:40 /sub {proc} rw - btrfs /dev/vdb rw\n"
    (proc / "self/mountinfo").write_text(mounts)
    disk = os.stat_result((stat.S_IFBLK | 0o660, *[0] * 9, *[0] * 6, 512, 0, os.makedev(253, 16)))
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: disk if path == "/dev/vdb" else real(path, **more))
    filesystems = FileSystems(str(proc))
    assert filesystems.partitions["/dev/vdb"] == Mount("/dev/vdb", str(proc), "btrfs", 253, 16)
    (proc / "below").mkdir()
    found = filesystems.dir_info(str(proc / "below"))
    assert (found.device, found.mountpoint) == ("/dev/vdb", str(proc))
    assert FileSystems(str(proc)).dir_info("/proc").device == ""


def test_btrfs_without_its_disk(proc: Path) -> None:
    (proc / "self/mountinfo").write_text("23 1 0:40 / / rw - btrfs /dev/gone rw\n")
    assert FileSystems(str(proc)).partitions == {"/dev/gone": Mount("/dev/gone", "/", "btrfs", 0, 40)}


def test_this_machine() -> None:
    """The list of file systems contains that of the root directory."""
    found = FileSystems().dir_info("/")
    assert found.device in {fs.device for fs in FileSystems().global_stats()}
    assert found.mountpoint == "/"


def test_file_systems_for_which_there_is_no_thread_are_left_out() -> None:
    """File systems for which no thread is free are left out.

    Otherwise the node would have no statistics, and the kubelet would never evict a pod that uses up all threads.
    """
    filesystems = FileSystems()
    with out_of_threads() as refused:
        local = [device for device, mount in filesystems.partitions.items() if not mount.type.startswith("nfs")]
        assert not {each.device for each in filesystems.global_stats()}.intersection(local)
    assert refused == ["file-systems"]
    assert filesystems.global_stats()


def test_one_thread_asks_all_file_systems(proc: Path) -> None:
    """One thread reads all file systems.

    With a thread for each mount, each start and end of a thread waited for busy threads, and reading a thousand mounts
    took a minute.
    """
    for number in range(50):
        (proc / f"m{number}").mkdir()
    mounts = "".join(f"{number} 1 0:{number} / {proc}/m{number} rw - tmpfs tmpfs rw\n" for number in range(50))
    (proc / "self/mountinfo").write_text(mounts)
    filesystems = FileSystems(str(proc))
    started: list[str] = []
    start = golang.Thread.start

    def note(thread: golang.Thread) -> None:
        started.append(thread.name)
        start(thread)

    with mock.patch.object(golang.Thread, "start", note):
        assert [each.device for each in filesystems.global_stats()] == list(filesystems.partitions)
    assert len(filesystems.partitions) == 50 and started == ["file-systems"]


def test_server_that_does_not_answer_is_left_for_a_while(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (proc / "self/mountinfo").write_text(
        "23 1 0:50 / /net/a rw - nfs4 dead:/a rw\n24 1 0:51 / /net/b rw - nfs4 dead:/b rw\n"
        "25 1 0:52 / /net/c rw - nfs server:/c rw\n"
    )
    asked: list[str] = []
    dead = {"/net/a", "/net/b"}

    def info_of_server(path: str) -> volumefs.FsInfo:
        asked.append(path)
        if path in dead:
            raise TimeoutError(f"{path}: the server did not answer")
        return volumefs.FsInfo(available=1, capacity=4, usage=2, inodes=9, inodes_free=8, inodes_used=1)

    monkeypatch.setattr(volumefs, "info_of_server", info_of_server)
    clock = FakeClock()
    filesystems = FileSystems(str(proc), clock)
    for _ in range(2):
        [stats] = filesystems.global_stats()
        assert (stats.device, stats.limit, stats.usage, stats.available) == ("server:/c", 4, 2, 1)
        assert (stats.inodes, stats.inodes_free) == (9, 8)
    assert asked == ["/net/a", "/net/c", "/net/c"]
    clock.step(fs.SILENCE)
    dead.clear()
    assert [each.device for each in filesystems.global_stats()] == ["dead:/a", "dead:/b", "server:/c"]


def test_servers_that_are_slow_are_waited_for_no_longer_than_they_have(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system with several mounts is asked once, and several names for one server do not extend its time."""
    mounts = "".join(
        f"2 1 0:{10 + export} / /net/{export}/{path} rw - nfs4 name-{export}:/{path} rw\n"
        for export in range(9)
        for path in range(3)
    )
    (proc / "self/mountinfo").write_text(f"{mounts}3 1 0:52 / /net/quick rw - nfs quick:/c rw\n")
    clock = FakeClock()
    asked: list[str] = []

    def info_of_server(path: str) -> volumefs.FsInfo:
        asked.append(path)
        clock.step(0 if path == "/net/quick" else 2.5)
        return volumefs.FsInfo(available=1, capacity=4, usage=2, inodes=9, inodes_free=8, inodes_used=1)

    def look() -> list[str]:
        asked.clear()
        found = filesystems.global_stats()
        assert len(found) == sum(1 if path == "/net/quick" else 3 for path in asked)
        return list(asked)

    monkeypatch.setattr(volumefs, "info_of_server", info_of_server)
    filesystems = FileSystems(str(proc), clock)
    assert look() == [f"/net/{export}/0" for export in range(4)]
    assert look() == []
    clock.step(fs.LOOK_TIMEOUT)
    assert look() == [f"/net/{export}/0" for export in range(4, 8)]
    clock.step(fs.LOOK_TIMEOUT)
    assert look() == ["/net/8/0", "/net/quick"]
