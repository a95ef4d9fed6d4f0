"""The machine's file systems, and what the disks below them do.

Go: github.com/google/cadvisor/fs
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from kubelet.cadvisor.cgroups import files
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2 as infov2
from pkg import klog, mount_utils
from pkg.apimachinery import clock as clocklib
from pkg.util import procfs
from pkg.volume.util import fs as volumefs

_TYPES = frozenset(
    {
        *("xfs", "squashfs", "f2fs", "jfs", "reiserfs", "hfs", "hfsplus", "btrfs", "zfs", "tmpfs", "overlay"),
        *("ntfs", "vfat", "fat", "msdos", "exfat", "udf", "iso9660"),
    }
)
# Devices of /proc/diskstats that file systems are on.
_PARTITION = re.compile(r"(?:s|v|xv)d[a-z]+\d*|dm-\d+")
_BTRFS = "btrfs"
# Those of other machines: nfs, nfs3, nfs4.
_NFS = "nfs"
# Seconds that all servers together have for their answers in one look, and for which none is asked after a look that
# took as long.
LOOK_TIMEOUT = 10.0
# Seconds for which a server that has not answered is not asked again; nor one that has had so much of that time.
SILENCE = 60.0
_SLOW = 1.0


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo."""

    source: str
    mountpoint: str
    type: str
    major: int
    minor: int


class FileSystems:
    """Those that were mounted when somebody asked first. Safe from any thread."""

    def __init__(self, proc: str = "/proc", clock: clocklib.Clock | None = None) -> None:
        self._proc = proc
        self._servers = _Servers(clock or clocklib.RealClock())

    @cached_property
    def partitions(self) -> dict[str, Mount]:
        """By device: a path for most; the mount point of a tmpfs, for all of them have the same source.

        Raises OSError when the list of mounts cannot be read; who asks next reads it again.
        """
        found: dict[str, Mount] = {}
        for mount in map(_with_disk, self._mounts()):
            if mount.type in _TYPES or mount.type.startswith(("ext", _NFS)):
                # The first one counts: the others are binds of it.
                found.setdefault(_device_of(mount), mount)
            if mount.mountpoint == "/":
                found[mount.source] = mount
        return found

    def device_name(self, major: int, minor: int) -> str:
        """ "" when no file system is on it. Raises OSError."""
        for device, mount in self.partitions.items():
            if (mount.major, mount.minor) == (major, minor):
                return device
        return ""

    def global_stats(self) -> list[info.FsStats]:
        """All file systems, with what their disks did so far. Raises OSError."""
        disks = self._disk_stats()
        found: list[info.FsStats] = []
        rooms = self._rooms()
        for device, mount in self.partitions.items():
            room = rooms.get(mount.mountpoint)
            if room is None:
                continue
            stats = info.FsStats(
                device=device,
                type="vfs",
                limit=room.capacity,
                usage=room.usage,
                available=room.available,
                has_inodes=True,
                inodes=room.inodes,
                inodes_free=room.inodes_free,
            )
            _add_disk(stats, disks.get((mount.major, mount.minor)))
            found.append(stats)
        return found

    def _rooms(self) -> dict[str, volumefs.FsInfo]:
        """How full file systems are, by their mount points; of one that was unmounted, or does not answer, nothing."""
        local: list[Mount] = []
        served: list[Mount] = []
        for mount in self.partitions.values():
            (served if mount.type.startswith(_NFS) else local).append(mount)
        rooms = volumefs.infos([mount.mountpoint for mount in local])
        servers = _Look(self._servers)
        for mount in served:
            try:
                rooms[mount.mountpoint] = servers.room(mount)
            except OSError as err:  # Unmounted since, or the server is away.
                klog.v(4).info_s("Unable to tell how full a file system is", path=mount.mountpoint, err=err)
        return rooms

    def dir_info(self, path: str) -> infov2.FsInfo:
        """The file system that a path is on, as it is now. Raises OSError."""
        number = os.stat(path).st_dev
        room = os.statvfs(path)
        device = self.device_name(os.major(number), os.minor(number)) or self._device_of_subvolume(path)
        return infov2.FsInfo(
            timestamp=datetime.now(UTC),
            device=device,
            mountpoint=self.partitions[device].mountpoint if device else "",
            capacity=room.f_blocks * room.f_frsize,
            available=room.f_bavail * room.f_frsize,
            usage=(room.f_blocks - room.f_bfree) * room.f_frsize,
            inodes=room.f_files,
            inodes_free=room.f_ffree,
        )

    def _device_of_subvolume(self, path: str) -> str:
        """The device of a directory on btrfs, where each subvolume has a number that no list of mounts shows.

        "" when the directory is on no btrfs.
        """
        path = os.path.realpath(path)
        above = [mount for mount in self._mounts() if os.path.commonpath([path, mount.mountpoint]) == mount.mountpoint]
        # Of two mounts at one place the later one covers the earlier.
        nearest = max(enumerate(above), key=lambda pair: (len(pair[1].mountpoint), pair[0]), default=None)
        if nearest is None or nearest[1].type != _BTRFS:
            return ""
        device = _device_of(nearest[1])
        return device if device in self.partitions else ""

    def _mounts(self) -> Iterator[Mount]:
        try:
            infos = mount_utils.parse_mount_info(f"{self._proc}/self/mountinfo")
        except FileNotFoundError:
            return
        for mount in infos:
            yield Mount(mount.source, mount.mount_point, mount.fs_type, mount.major, mount.minor)

    def _disk_stats(self) -> dict[tuple[int, int], list[int]]:
        """The eleven figures of each partition, by major and minor number."""
        found: dict[tuple[int, int], list[int]] = {}
        for line in procfs.split_lines(files.read_or_empty(self._proc, "diskstats")):
            major, minor, name, *figures = line.split()
            if _PARTITION.fullmatch(name):
                found[int(major), int(minor)] = [int(figure) for figure in figures[:11]]
        return found


def _with_disk(mount: Mount) -> Mount:
    """The mount with its disk's numbers in place of those that btrfs makes up. Go: getBtrfsMajorMinorIds"""
    if mount.type != _BTRFS or mount.major != 0 or not mount.source.startswith("/dev/"):
        return mount
    try:
        status = os.stat(mount.source)
    except OSError as err:
        klog.v(4).info_s("Cannot find the disk of a file system", source=mount.source, err=err)
        return mount
    if not stat.S_ISBLK(status.st_mode):
        return mount
    return replace(mount, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))


def _device_of(mount: Mount) -> str:
    match mount.type:
        case "tmpfs":
            return mount.mountpoint
        case "overlay":
            return f"{mount.source}_{mount.major}-{mount.minor}"
        case _:
            return mount.source


class _Servers:
    """Knows which other machines are asked how full their file systems are. Thread-safe.

    DIVERGES (safer): a process asks a server, and after three seconds without an answer the server is left for
    SILENCE. All servers together have LOOK_TIMEOUT.
    Go: github.com/google/cadvisor/fs/vfs/stats.go, GetVfsStats: each look at each mount of a dead server takes two
    seconds, and leaves a thread behind that waits for the server.
    Why: the threads keep the mounts in use, and their number grows for as long as the server is away. The page
    /metrics/cadvisor waits for the look too.
    Test: fs_test.py:test_server_that_does_not_answer_is_left_for_a_while,
    fs_test.py:test_servers_that_are_slow_are_waited_for_no_longer_than_they_have
    """

    def __init__(self, clock: clocklib.Clock) -> None:
        self.clock = clock
        # When any server may be asked again, and when one may that has not answered or took too long.
        self.next_look = 0.0
        self.next_try: dict[str, float] = {}


class _Look:
    """One look at all file systems, in which each server is asked once for each of its own. For one thread."""

    def __init__(self, servers: _Servers) -> None:
        self._servers = servers
        # Seconds that each server has had for its answers.
        self._taken: defaultdict[str, float] = defaultdict(float)
        # By the numbers of the device: all mounts from one file system of a server have the same.
        self._answers: dict[tuple[int, int], volumefs.FsInfo] = {}

    def room(self, mount: Mount) -> volumefs.FsInfo:
        """Raises OSError, TimeoutError among them."""
        device = mount.major, mount.minor
        if (known := self._answers.get(device)) is not None:
            return known
        servers, server = self._servers, mount.source.partition(":/")[0]
        began = servers.clock.monotonic()
        if began < max(servers.next_look, servers.next_try.get(server, 0.0)):
            raise TimeoutError(f"{server} has not answered lately, or others took too long")
        try:
            answer = self._answers[device] = volumefs.info_of_server(mount.mountpoint)
        except TimeoutError:
            servers.next_try[server] = servers.clock.monotonic() + SILENCE
            raise
        finally:
            self._taken[server] += servers.clock.monotonic() - began
            if sum(self._taken.values()) >= LOOK_TIMEOUT:
                self._end()
        return answer

    def _end(self) -> None:
        """The time is over: the next look, after a pause, is for other servers."""
        now = self._servers.clock.monotonic()
        self._servers.next_look = now + LOOK_TIMEOUT
        slow = (server for server, seconds in self._taken.items() if seconds >= _SLOW)
        self._servers.next_try.update(dict.fromkeys(slow, now + SILENCE))


def _add_disk(stats: info.FsStats, figures: list[int] | None) -> None:
    if figures is None:
        return
    stats.reads_completed, stats.reads_merged, stats.sectors_read, stats.read_time = figures[:4]
    stats.writes_completed, stats.writes_merged, stats.sectors_written, stats.write_time = figures[4:8]
    stats.io_in_progress, stats.io_time, stats.weighted_io_time = figures[8:11]
