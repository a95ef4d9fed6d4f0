"""Set the group of the files of volumes to the pod's fsGroup.

Go: pkg/volume/volume_linux.go
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import events
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.util import filesystem
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import Mounter

if TYPE_CHECKING:
    from pkg.client_go.tools import record

RW_MASK = 0o660
RO_MASK = 0o440
EXEC_MASK = 0o110

# `FIRST_EVENT_REPORT_DURATION` is the time, in seconds, until the first event that the change takes long, and
# `PROGRESS_REPORT_DURATION` the time between two further events.
FIRST_EVENT_REPORT_DURATION = 30.0
PROGRESS_REPORT_DURATION = 60.0
_POLICY_URL = (
    "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
    "#configure-volume-permission-and-ownership-change-policy-for-pods"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Describe an entry of a volume. Its open descriptor ensures that every change applies to this very file."""

    path: str
    # `name` is the entry's name in the directory of dir_fd. For the root, dir_fd is None and `name` is the whole path.
    name: str
    dir_fd: int | None
    fd: int


class VolumeOwnership:
    """Set the group of a volume and everything in it."""

    def __init__(
        self,
        mounter: Mounter,
        directory: str,
        fs_group: int | None,
        fs_group_change_policy: str | None,
        complete_func: Callable[[volumetypes.CompleteFuncParam], None] | None,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self._mounter = mounter
        self._dir = directory
        self._fs_group = fs_group
        self._fs_group_change_policy = fs_group_change_policy
        self._completion_callback = complete_func
        self._clock = clock or clocklib.RealClock()
        self._pod: v1.Pod | None = None
        self._recorder: record.EventRecorder | None = None
        self._file_counter = 0
        # `_next_report` is the time of the next event, on the monotonic clock.
        self._next_report = 0.0
        self._reported = False

    def add_progress_notifier(self, pod: v1.Pod, recorder: record.EventRecorder) -> VolumeOwnership:
        """Emit events for the pod if the change takes long."""
        self._pod, self._recorder = pod, recorder
        return self

    def change_permissions(self) -> None:
        """Set the group of all files, with read permission and, unless the volume is read-only, write permission.

        New files inherit the group. With the policy OnRootMismatch, a volume whose root already matches is left alone.
        Errors of a single file are logged. Raise OSError if a directory cannot be read.
        """
        if self._fs_group is None:
            return
        if skip_permission_change(self._mounter, self._dir, self._fs_group, self._fs_group_change_policy):
            klog.v(3).info_s("Skipping permission and ownership change for volume", path=self._dir)
            return
        self._next_report = self._clock.monotonic() + FIRST_EVENT_REPORT_DURATION
        try:
            self._change_permissions_recursively(self._fs_group)
        except OSError as err:
            self._complete(err)
            raise
        self._complete(None)

    def _complete(self, err: Exception | None) -> None:
        if self._completion_callback is not None:
            self._completion_callback(volumetypes.CompleteFuncParam(err, False))

    def _change_permissions_recursively(self, fs_group: int) -> None:
        read_only = self._mounter.get_attributes().read_only
        for entry in walk_deep(self._dir):
            self._file_counter += 1
            change_file_permission(entry, fs_group, read_only)
            self._monitor_progress()

    def _monitor_progress(self) -> None:
        """Report progress if it is time. In Go a goroutine reports; here the thread that changes the files does."""
        now = self._clock.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + PROGRESS_REPORT_DURATION
        if not self._reported:
            self._reported = True
            klog.warning_s(
                f"Setting volume ownership for {self._dir} and fsGroup set. If the volume has a lot of files then "
                "setting volume ownership could be slow, see https://github.com/kubernetes/kubernetes/issues/69699"
            )
            self._report(f" is taking longer than expected, consider using OnRootMismatch - {_POLICY_URL}")
        else:
            klog.warning_s(f"Setting volume ownership for {self._dir}, processed {self._file_counter} files.")
            self._report(f", processed {self._file_counter} files.")

    def _report(self, what: str) -> None:
        if self._pod is None or self._recorder is None:
            return
        directory = get_dirname_to_report(self._dir, self._pod.metadata.uid)
        message = f"Setting volume ownership for {directory}{what}"
        self._recorder.event(self._pod, v1.EVENT_TYPE_WARNING, events.VOLUME_PERMISSION_CHANGE_IN_PROGRESS, message)


def get_dirname_to_report(directory: str, pod_uid: types.UID) -> str:
    """Return the part of the path from the pod's UID on, or the whole path if it does not contain the UID."""
    index = directory.find(pod_uid)
    return directory if index == -1 else directory[index:]


def change_file_permission(entry: Entry, fs_group: int, read_only: bool) -> None:
    """Set the group of a file, directory or link. Errors are logged."""
    mode = os.fstat(entry.fd).st_mode
    try:
        os.chown(entry.name, -1, fs_group, dir_fd=entry.dir_fd, follow_symlinks=False)
    except OSError as err:
        klog.error_s(err, "Lchown failed", path=entry.path)
    if stat.S_ISLNK(mode):
        return
    mask = RO_MASK if read_only else RW_MASK
    if stat.S_ISDIR(mode):
        mask |= stat.S_ISGID | EXEC_MASK
    try:
        os.chmod(f"/proc/self/fd/{entry.fd}", stat.S_IMODE(mode) | mask)
    except OSError as err:
        klog.error_s(err, "chmod failed", path=entry.path)


def skip_permission_change(mounter: Mounter, directory: str, fs_group: int, fs_group_change_policy: str | None) -> bool:
    """Report whether the policy allows skipping the volume, because its root already matches."""
    if fs_group_change_policy != v1.FS_GROUP_CHANGE_ON_ROOT_MISMATCH:
        klog.v(4).info_s("Perform recursive ownership change for directory", path=directory)
        return False
    return not requires_permission_change(directory, fs_group, mounter.get_attributes().read_only)


def requires_permission_change(root_dir: str, fs_group: int, read_only: bool) -> bool:
    """Report whether the root's group or mode differs from what change_permissions would set.

    Return True when in doubt.
    """
    try:
        info = os.stat(root_dir)
    except OSError as err:
        klog.error_s(
            err,
            "Performing recursive ownership change on rootDir because reading permissions of root volume failed",
            path=root_dir,
        )
        return True
    if info.st_gid != fs_group:
        klog.v(4).info_s("Expected group ownership of volume did not match with Gid", path=root_dir, GID=info.st_gid)
        return True
    if not stat.S_ISDIR(info.st_mode):
        return True
    wanted = (RO_MASK if read_only else RW_MASK) | EXEC_MASK | stat.S_ISGID
    if info.st_mode & wanted != wanted:
        klog.v(4).info_s("Performing recursive ownership change on rootDir because of mismatching mode", path=root_dir)
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Level:
    """Hold an entry that the walk has reached, and its entries that are still to be visited."""

    entry: Entry
    entries: Iterator[os.DirEntry[str]]
    # Closing this stack closes the descriptors.
    opened: contextlib.ExitStack


def walk_deep(root: str) -> Iterator[Entry]:
    """Yield root and everything below it, a directory after its content. Links are not followed. Raise OSError.

    DIVERGES (safer): the kubelet does not follow a link that a container puts in the place of a file during the walk.
    Go: pkg/volume/volume_linux.go, changeFilePermission: the Go kubelet uses the file's path again after it has
    examined the file, and follows the new link.
    Why: a pod could make the kubelet change the mode and the group of files of the node.
    Test: volume_linux_test.py:test_link_put_in_the_place_of_a_file_is_not_followed

    DIVERGES (fault of Go): the kubelet skips a file that is removed during the walk.
    Go: pkg/volume/volume_linux.go, walk: the volume fails.
    Why: a container of another pod may remove a file of the volume at any time.
    Test: volume_linux_test.py:test_walk_leaves_out_what_is_gone_meanwhile

    DIVERGES (safer): the kubelet skips a file whose path exceeds the system's limit, and reads the names of the files
    in a directory a few at a time.
    Go: pkg/volume/volume_linux.go, walk: such a path makes the volume fail, and the Go kubelet keeps all names of a
    directory in memory at the same time.
    Why: a pod may create directories of any depth, and millions of files.
    Test: volume_linux_test.py:test_walk_leaves_out_what_has_too_long_a_path,
    volume_linux_test.py:test_walk_does_not_remember_the_names_of_files
    """
    stack: list[_Level] = []
    told = False
    try:
        stack.append(_open(root, root, None))
        while stack:
            level = stack[-1]
            found = next(level.entries, None)
            if found is None:
                yield level.entry
                stack.pop().opened.close()
                continue
            path = f"{level.entry.path}/{found.name}"
            # Each level of the walk keeps its own path and two descriptors, so the depth must have a limit.
            if len(os.fsencode(path)) > filesystem.MAX_PATH_LENGTH:
                if not told:
                    klog.error_s(None, "Skipping files whose paths in the volume are too long", path=path)
                told = True
                continue
            with contextlib.suppress(FileNotFoundError):
                stack.append(_open(path, found.name, level.entry.fd))
    finally:
        for level in stack:
            level.opened.close()


def _open(path: str, name: str, dir_fd: int | None) -> _Level:
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, fd)
        entries: Iterator[os.DirEntry[str]] = iter(())
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            entries = opened.enter_context(os.scandir(f"/proc/self/fd/{fd}"))
        return _Level(Entry(path, name, dir_fd, fd), entries, opened.pop_all())
