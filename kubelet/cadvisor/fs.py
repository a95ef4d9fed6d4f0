"""Read the statistics of the machine's file systems and of their disks.

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
# These devices of /proc/diskstats can carry file systems.
_PARTITION = re.compile(r"(?:s|v|xv)d[a-z]+\d*|dm-\d+")
_BTRFS = "btrfs"
# The names of network file system types begin with this text: nfs, nfs3, nfs4.
_NFS = "nfs"
# All NFS servers together get this time, in seconds, in one pass. After a pass that took this long, the kubelet asks no
# server until the same time has passed again.
LOOK_TIMEOUT = 10.0
# When a server has not answered, or has used much of the time, the kubelet asks it again only after this many seconds.
SILENCE = 60.0
_SLOW = 1.0


@dataclass(frozen=True, slots=True)
class Mount:
    """Represent a line of /proc/self/mountinfo."""

    source: str
    mountpoint: str
    type: str
    major: int
    minor: int


class FileSystems:
    """Read the file systems that were mounted at the first call. All methods are thread-safe."""

    def __init__(self, proc: str = "/proc", clock: clocklib.Clock | None = None) -> None:
        self._proc = proc
        self._servers = _Servers(clock or clocklib.RealClock())

    @cached_property
    def partitions(self) -> dict[str, Mount]:
        """Return the mounts by device, which is a path or, for a tmpfs, the mount point.

        All tmpfs mounts have the same source. Raise OSError if the mounts cannot be read; the next call then tries
        again.
        """
        found: dict[str, Mount] = {}
        for mount in map(_with_disk, self._mounts()):
            if mount.type in _TYPES or mount.type.startswith(("ext", _NFS)):
                # Keep the first mount of a device: the others are bind mounts of it.
                found.setdefault(_device_of(mount), mount)
            if mount.mountpoint == "/":
                found[mount.source] = mount
        return found

    def device_name(self, major: int, minor: int) -> str:
        """Return the device's path, or "" if it has no file system. Raise OSError."""
        for device, mount in self.partitions.items():
            if (mount.major, mount.minor) == (major, minor):
                return device
        return ""

    def global_stats(self) -> list[info.FsStats]:
        """Return the statistics of all file systems, with those of their disks. Raise OSError."""
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
        """Return the usage of file systems by mount point, without those that are unmounted or do not answer."""
        local: list[Mount] = []
        served: list[Mount] = []
        for mount in self.partitions.values():
            (served if mount.type.startswith(_NFS) else local).append(mount)
        rooms = volumefs.infos([mount.mountpoint for mount in local])
        servers = _Look(self._servers)
        for mount in served:
            try:
                rooms[mount.mountpoint] = servers.room(mount)
            except OSError as err:  # The file system is no longer mounted, or its server does not answer.
                klog.v(4).info_s("Unable to get the usage of a file system", path=mount.mountpoint, err=err)
        return rooms

    def dir_info(self, path: str) -> infov2.FsInfo:
        """Return the current state of the file system that holds a path. Raise OSError."""
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
        """Return the device of a directory on btrfs, or "" if the directory is not on btrfs.

        Each btrfs subvolume has a device number that no list of mounts shows.
        """
        path = os.path.realpath(path)
        above = [mount for mount in self._mounts() if os.path.commonpath([path, mount.mountpoint]) == mount.mountpoint]
        # Of two mounts at one place, the later one hides the earlier.
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
        """Return the eleven counters of each partition by major and minor number."""
        found: dict[tuple[int, int], list[int]] = {}
        for line in procfs.split_lines(files.read_or_empty(self._proc, "diskstats")):
            major, minor, name, *figures = line.split()
            if _PARTITION.fullmatch(name):
                found[int(major), int(minor)] = [int(figure) for figure in figures[:11]]
        return found


def _with_disk(mount: Mount) -> Mount:
    """Replace the virtual device numbers of a btrfs mount by those of its disk.

    Go: getBtrfsMajorMinorIds
    """
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
    """Record which NFS servers may be asked for the usage of their file systems. All methods are thread-safe.

    DIVERGES (safer): a child process asks a server; a server that does not answer within three seconds is not asked
    again for SILENCE. All servers together get LOOK_TIMEOUT.
    Go: github.com/google/cadvisor/fs/vfs/stats.go, GetVfsStats: each pass waits two seconds for each mount of a dead
    server, and leaves a thread behind that waits for the server.
    Why: the threads keep the mounts busy, and their number grows while the server is away. The page /metrics/cadvisor
    waits for the pass too.
    Test: fs_test.py:test_server_that_does_not_answer_is_left_for_a_while,
    fs_test.py:test_servers_that_are_slow_are_waited_for_no_longer_than_they_have
    """

    def __init__(self, clock: clocklib.Clock) -> None:
        self.clock = clock
        # The kubelet asks no server before this monotonic time, in seconds.
        self.next_look = 0.0
        # The values are the monotonic times, in seconds, before which the kubelet does not ask a slow or silent server.
        self.next_try: dict[str, float] = {}


class _Look:
    """Run one pass over all file systems, which asks each server once for each file system. Not thread-safe."""

    def __init__(self, servers: _Servers) -> None:
        self._servers = servers
        # The values are the seconds that each server has used for its answers.
        self._taken: defaultdict[str, float] = defaultdict(float)
        # The keys are device numbers, which all mounts of one file system share.
        self._answers: dict[tuple[int, int], volumefs.FsInfo] = {}

    def room(self, mount: Mount) -> volumefs.FsInfo:
        """Return the usage of a mount. Raise OSError, for example TimeoutError."""
        device = mount.major, mount.minor
        if (known := self._answers.get(device)) is not None:
            return known
        servers, server = self._servers, mount.source.partition(":/")[0]
        began = servers.clock.monotonic()
        if began < max(servers.next_look, servers.next_try.get(server, 0.0)):
            raise TimeoutError(f"{server} has not answered recently, or other servers took too long")
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
        """End the pass: start the pause for all servers, and a longer one for the slow servers."""
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
