"""Bind sub-paths of volumes into pods without ever leaving the volume.

A container that writes to the volume may at any time replace a directory with a link to anywhere. Therefore this module
resolves the path itself and does not leave that to the kernel. It opens every component without following links. It
resolves a link's target in the same way, and only while the target stays inside the volume. For `..` it returns to the
directory that it opened before. It binds the opened file, never a path.

Go: pkg/volume/util/subpath/subpath_linux.go
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pkg import klog, mount_utils
from pkg.util import filesystem, securejoin

CONTAINER_SUB_PATH_DIRECTORY_NAME = "volume-subpaths"
# `_MAX_LINKS` is the number of links that the kernel follows in one path.
_MAX_LINKS = 40
# `_MAX_DEPTH` limits the depth, because each level keeps a file descriptor open during the walk.
_MAX_DEPTH = 256
_OPEN_COMPONENT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Without this flag mount(8) resolves the source by name, and would bind a link that was put there meanwhile.
_MOUNT_FLAGS = ["--no-canonicalize"]


class NotWithinVolumeError(OSError):
    """Signal that the sub-path leads out of its volume.

    The message reveals nothing about the target, because the kubelet does not access it.
    """


@dataclass(frozen=True, slots=True)
class Subpath:
    """Describe a subPath of one volume mount of one container."""

    # `volume_mount_index` is the position among the container's mounts, which is part of the bind target's name.
    volume_mount_index: int
    # `path` is the full path to bind, which is below volume_path.
    path: str
    volume_name: str
    volume_path: str
    pod_dir: str
    container_name: str


class Interface(Protocol):
    """Define how the kubelet uses sub-paths. Every method is safe from any thread and may raise OSError."""

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        """Create base/sub_path with all missing directories, never outside base."""
        ...

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None] | None]:
        """Bind the sub-path below the pod's directory.

        Return its new path, and a function to call after the container's start, or None.
        """
        ...

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        """Unmount all sub-paths of the volume in the pod."""
        ...


class Subpather:
    """Bind and unmount sub-paths on Linux."""

    def __init__(self, mounter: mount_utils.Interface) -> None:
        self._mounter = mounter

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        do_clean_sub_paths(self._mounter, pod_dir, volume_name)

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        do_safe_make_dir(sub_path, _real_path(base), mode)

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None] | None]:
        return do_bind_sub_path(self._mounter, sub_path), None


@contextlib.contextmanager
def safe_open_sub_path(subpath: Subpath) -> Iterator[int]:
    """Yield a descriptor of the opened sub-path, and close it at the end. Raise NotWithinVolumeError or OSError."""
    if not mount_utils.path_within_base(subpath.path, subpath.volume_path):
        raise NotWithinVolumeError(f'subpath "{subpath.path}" not within volume path "{subpath.volume_path}"')
    relative = os.path.relpath(subpath.path, subpath.volume_path)
    descriptor = do_safe_open(relative, _real_path(subpath.volume_path), None)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _real_path(volume_path: str) -> str:
    """Resolve the links in the path. Raise OSError if the path is too long, as a pod's hostPath may be."""
    filesystem.check_path_length(volume_path)
    return os.path.realpath(volume_path)


@dataclass(frozen=True, slots=True)
class SubpathTarget:
    """Describe the bind target of a sub-path."""

    path: str
    # `is_bound` says whether the sub-path is already bound to this target.
    is_bound: bool


def prepare_subpath_target(mounter: mount_utils.Interface, subpath: Subpath, descriptor: int) -> SubpathTarget:
    """Create the file or directory that the opened sub-path is bound to."""
    target = get_subpath_bind_target(subpath)
    if _is_mounted(mounter, target):
        if check_sub_path_file_equal(descriptor, target):
            klog.v(5).info_s("Skipping bind-mounting subpath: already mounted", path=target)
            return SubpathTarget(target, is_bound=True)
        # The path now leads to another file or directory than at the time of the bind mount.
        mounter.unmount(target)
    filesystem.mkdir_all(os.path.dirname(target), 0o750)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(target, mode=0o750)
    else:
        # DIVERGES (fault of Go): the kubelet can bind a file where a directory was bound before.
        # Go: pkg/volume/util/subpath/subpath_linux.go, prepareSubpathTarget: the old directory stays at the bind
        # target, and no file can be created in its place.
        # Why: a container that replaces a directory of its volume with a file could never start again.
        # Test: attack_test.py:test_file_in_the_place_of_a_directory_is_bound
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.rmdir(target)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640))
    return SubpathTarget(target, is_bound=False)


def _is_mounted(mounter: mount_utils.Interface, target: str) -> bool:
    try:
        return mounter.is_mount_point(target)
    except FileNotFoundError:
        return False


def check_sub_path_file_equal(descriptor: int, bind_mount_target: str) -> bool:
    """Report whether the opened file is the one that is bound to the target.

    DIVERGES (safer): the kubelet binds a sub-path again if what was bound before no longer exists.
    Go: pkg/volume/util/subpath/subpath_linux.go, checkSubPathFileEqual: the sub-path fails for as long as the pod
    lives.
    Why: the server may have removed a directory, or a FUSE daemon may have ended and mounted the volume again.
    Test: subpath_test.py:test_what_is_bound_and_gone_is_bound_anew
    """
    try:
        bound = os.lstat(bind_mount_target)
    except OSError as err:
        if isinstance(err, FileNotFoundError) or mount_utils.is_corrupted_mnt(err):
            return False
        raise
    return os.path.samestat(os.fstat(descriptor), bound)


def get_subpath_bind_target(subpath: Subpath) -> str:
    return os.path.join(
        subpath.pod_dir,
        CONTAINER_SUB_PATH_DIRECTORY_NAME,
        subpath.volume_name,
        subpath.container_name,
        str(subpath.volume_mount_index),
    )


def do_bind_sub_path(mounter: mount_utils.Interface, subpath: Subpath) -> str:
    """Bind the sub-path, unless it is already bound. Return the target. Raise OSError."""
    with safe_open_sub_path(subpath) as descriptor:
        prepared = prepare_subpath_target(mounter, subpath, descriptor)
        target = prepared.path
        if prepared.is_bound:
            return target
        source = f"/proc/{os.getpid()}/fd/{descriptor}"
        klog.v(5).info_s("Bind mounting", source=source, target=target)
        try:
            mounter.mount_sensitive_without_systemd_with_mount_flags(source, target, "", ["bind"], [], _MOUNT_FLAGS)
        except OSError as err:
            _clean_after_failure(mounter, subpath, target)
            raise OSError(f"error mounting {subpath.path}: {err}") from err
    klog.v(3).info_s("Bound SubPath", path=subpath.path, target=target)
    return target


def _clean_after_failure(mounter: mount_utils.Interface, subpath: Subpath, target: str) -> None:
    klog.v(4).info_s("doBindSubPath() failed, cleaning up subpath", path=target)
    try:
        clean_sub_path(mounter, subpath)
    except OSError as err:
        klog.error_s(err, "Failed to clean subpath", path=target)


def do_clean_sub_paths(mounter: mount_utils.Interface, pod_dir: str, volume_name: str) -> None:
    """Unmount and remove all sub-paths of a volume without accessing any of them. Raise OSError."""
    top = os.path.join(pod_dir, CONTAINER_SUB_PATH_DIRECTORY_NAME, volume_name)
    klog.v(4).info_s("Cleaning up subpath mounts", path=top)
    try:
        container_dirs = _list(top)
    except FileNotFoundError:
        return
    for container_dir in container_dirs:
        if not container_dir.is_dir(follow_symlinks=False):
            klog.v(4).info_s("Container file is not a directory", path=container_dir.path)
            continue
        for entry in _list(container_dir.path):
            do_clean_sub_path(mounter, entry)
        os.rmdir(container_dir.path)
    os.rmdir(top)
    try:
        os.rmdir(os.path.dirname(top))
    except OSError as err:
        # Other volumes of the pod still have sub-paths.
        if err.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def _list(path: str) -> list[os.DirEntry[str]]:
    """List the entries of a directory. Only the directory itself is read."""
    with os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def do_clean_sub_path(mounter: mount_utils.Interface, entry: os.DirEntry[str]) -> None:
    """Unmount and remove one sub-path. Raise OSError."""
    if entry.is_symlink():
        # The kubelet created no links here, and must not unmount the target of one.
        os.unlink(entry.path)
        return
    try:
        mount_utils.cleanup_mount_point(entry.path, mounter, True)
    except OSError as err:
        raise OSError(f"error cleaning subpath mount {entry.path}: {err}") from err
    klog.v(4).info_s("Successfully cleaned subpath directory", path=entry.path)


def clean_sub_path(mounter: mount_utils.Interface, subpath: Subpath) -> None:
    """Unmount one sub-path, and remove the directories that are empty afterwards. Raise OSError."""
    target = get_subpath_bind_target(subpath)
    mount_utils.cleanup_mount_point(target, mounter, True)
    remove_empty_dirs(subpath.pod_dir, os.path.dirname(target))


def remove_empty_dirs(base_dir: str, end_dir: str) -> None:
    """Remove end_dir and the directories above it, up to base_dir, as long as they are empty. Raise OSError."""
    if not mount_utils.path_within_base(end_dir, base_dir):
        raise OSError(f'endDir "{end_dir}" is not within baseDir "{base_dir}"')
    current = end_dir
    while current != base_dir:
        try:
            os.rmdir(current)
        except FileNotFoundError:
            pass
        except OSError as err:
            if err.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return
            raise
        current = os.path.dirname(current)


def do_safe_make_dir(sub_path: str, base: str, mode: int) -> None:
    """Create the directory below base, and its parents. base must have no links in it. Raise OSError."""
    klog.v(4).info_s("Creating directory within base", path=sub_path, base=base)
    if not mount_utils.path_within_base(os.path.join(base, sub_path), base):
        raise NotWithinVolumeError(f"path {os.path.join(base, sub_path)} is outside of allowed base {base}")
    descriptor = do_safe_open(sub_path, base, mode)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.path.join(base, sub_path))
    finally:
        os.close(descriptor)


def do_safe_open(relative: str, base: str, mode: int | None) -> int:
    """Open a path below base without ever leaving base. The caller closes the descriptor.

    Missing directories are created, unless mode is None. The target of a link must exist. Raise NotWithinVolumeError or
    OSError.
    """
    walk = _Walk(base)
    try:
        walk.go(relative, mode)
        return os.dup(walk.current())
    finally:
        walk.close()


class _Walk:
    """Hold the opened directories from base to the current position of the walk."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._opened = [os.open(base, _OPEN_COMPONENT)]
        self._links = 0

    def current(self) -> int:
        return self._opened[-1]

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def go(self, path: str, mode: int | None) -> None:
        for component in path.split("/"):
            match component:
                case "" | ".":
                    pass
                case "..":
                    self._back()
                case _:
                    self._into(component, mode)

    def _back(self) -> None:
        if len(self._opened) == 1:
            raise NotWithinVolumeError("the path leads out of the volume")
        os.close(self._opened.pop())

    def _into(self, component: str, mode: int | None) -> None:
        directory = self.current()
        if len(self._opened) > _MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        # Opening the directory with O_PATH would not trigger an automount.
        with contextlib.suppress(OSError):
            os.close(os.open(component, _OPEN_DIRECTORY, dir_fd=directory))
        try:
            opened = os.open(component, _OPEN_COMPONENT, dir_fd=directory)
        except FileNotFoundError:
            if mode is None:
                raise
            opened = _make(component, directory, mode)
        # From here on the walk closes the descriptor, even if a server reports only now that the file is gone. A
        # descriptor that stayed open would keep the volume from ever being unmounted.
        self._opened.append(opened)
        if stat.S_ISLNK(os.fstat(opened).st_mode):
            target = os.readlink("", dir_fd=opened)
            os.close(self._opened.pop())
            self._follow(target)

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            if not mount_utils.path_within_base(target, self._base):
                target = _name_without_links(target)
            if not mount_utils.path_within_base(target, self._base):
                raise NotWithinVolumeError("the path leads out of the volume")
            while len(self._opened) > 1:
                self._back()
            target = os.path.relpath(target, self._base)
        # DIVERGES (safer): the kubelet rejects a link that leaves the volume by "..", even if it leads back into the
        # volume.
        # Go: pkg/volume/util/subpath/subpath_linux.go, doBindSubPath: the Go kubelet follows the link.
        # Why: from what is bound and what is rejected, the link's author would learn which directories the node has.
        # Test: attack_test.py:test_link_out_of_the_volume_is_never_bound
        self.go(target, None)


def _name_without_links(path: str) -> str:
    """Return the path's target without links. Raise NotWithinVolumeError.

    The volume may have several names on the node, as a file in /run also has one in /var/run.
    """
    try:
        return securejoin.name_of_target(path)
    except OSError as err:
        # Hide the error, so that nobody learns what exists outside the volume.
        raise NotWithinVolumeError("the path leads out of the volume") from err


def _make(component: str, directory: int, mode: int) -> int:
    """Create and open a directory with exactly this mode, whatever the process's umask is."""
    try:
        os.mkdir(component, mode=mode, dir_fd=directory)
    except FileExistsError:
        # Another process was faster, and may have created something other than a directory.
        return os.open(component, _OPEN_COMPONENT, dir_fd=directory)
    opened = os.open(component, _OPEN_DIRECTORY, dir_fd=directory)
    try:
        os.fchmod(opened, mode)
    except OSError:
        os.close(opened)
        raise
    return opened
