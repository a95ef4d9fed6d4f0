"""Sub-paths of volumes.

A container that writes to the volume may put a link to anywhere in the place of a directory at any time. So the path
is walked here and not by the kernel: every component is opened without following links, a link's target is walked in
the same way and only as far as it stays inside, `..` goes back to the directory that was opened before. What gets
bound is what was opened, never a path.

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
# As many links as the kernel follows in one path.
_MAX_LINKS = 40
# Each level keeps a descriptor open while the walk goes on.
_MAX_DEPTH = 256
_OPEN_COMPONENT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Without it mount(8) looks the source up by its name, and who swaps a link in meanwhile gets that bound.
_MOUNT_FLAGS = ["--no-canonicalize"]


class NotWithinVolumeError(OSError):
    """The sub-path leads out of its volume. Says nothing of what is there: nobody has looked."""


@dataclass(frozen=True, slots=True)
class Subpath:
    """One subPath of one mount of one container."""

    # Position among the container's mounts: part of the bind target's name.
    volume_mount_index: int
    # Full path that is to be bound, below volume_path.
    path: str
    volume_name: str
    volume_path: str
    pod_dir: str
    container_name: str


class Interface(Protocol):
    """Sub-paths of volumes. All methods raise OSError, and are safe from any thread."""

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        """Make base/sub_path with all directories it lacks, never outside of base."""
        ...

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None] | None]:
        """Bind the sub-path below the pod's directory; its new path, and what to call after the container's start."""
        ...

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        """Unbind all sub-paths of the volume in the pod."""
        ...


class Subpather:
    """The real one, for Linux."""

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
    """The opened sub-path. Raises NotWithinVolumeError, OSError."""
    if not mount_utils.path_within_base(subpath.path, subpath.volume_path):
        raise NotWithinVolumeError(f'subpath "{subpath.path}" not within volume path "{subpath.volume_path}"')
    relative = os.path.relpath(subpath.path, subpath.volume_path)
    descriptor = do_safe_open(relative, _real_path(subpath.volume_path), None)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _real_path(volume_path: str) -> str:
    """Without links. Raises OSError for a path that is too long, as a pod's hostPath may be."""
    filesystem.check_path_length(volume_path)
    return os.path.realpath(volume_path)


@dataclass(frozen=True, slots=True)
class SubpathTarget:
    """Where a sub-path is to be bound."""

    path: str
    # Whether it is bound there already.
    is_bound: bool


def prepare_subpath_target(mounter: mount_utils.Interface, subpath: Subpath, descriptor: int) -> SubpathTarget:
    """Makes a file or directory where the opened sub-path is to be bound."""
    target = get_subpath_bind_target(subpath)
    if _is_mounted(mounter, target):
        if check_sub_path_file_equal(descriptor, target):
            klog.v(5).info_s("Skipping bind-mounting subpath: already mounted", path=target)
            return SubpathTarget(target, is_bound=True)
        # What stands at the path is another file or directory than when it was bound.
        mounter.unmount(target)
    filesystem.mkdir_all(os.path.dirname(target), 0o750)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(target, mode=0o750)
    else:
        # DIVERGES (fault of Go): a file can be bound where a directory was bound before.
        # Go: pkg/volume/util/subpath/subpath_linux.go, prepareSubpathTarget: the old directory stays at the bind
        # target, and no file can be made in its place.
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
    """Whether the same is bound to the target as was opened.

    DIVERGES (safer): a sub-path is bound anew if what was bound before is gone.
    Go: pkg/volume/util/subpath/subpath_linux.go, checkSubPathFileEqual: the sub-path fails for as long as the pod
    lives.
    Why: a directory may have been removed on its server, or a FUSE daemon may have ended and mounted the volume again.
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
    """Bind the sub-path, unless it is bound already; where. Raises OSError."""
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
    """Unbind and remove all sub-paths of a volume, never looking into one. Raises OSError."""
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
        # Other volumes of the pod have theirs still.
        if err.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def _list(path: str) -> list[os.DirEntry[str]]:
    """The entries of a directory, of which nothing is asked but what the directory itself says of them."""
    with os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def do_clean_sub_path(mounter: mount_utils.Interface, entry: os.DirEntry[str]) -> None:
    """Unbind and remove one sub-path. Raises OSError."""
    if entry.is_symlink():
        # None that was made here: where it leads to is not to be unmounted.
        os.unlink(entry.path)
        return
    try:
        mount_utils.cleanup_mount_point(entry.path, mounter, True)
    except OSError as err:
        raise OSError(f"error cleaning subpath mount {entry.path}: {err}") from err
    klog.v(4).info_s("Successfully cleaned subpath directory", path=entry.path)


def clean_sub_path(mounter: mount_utils.Interface, subpath: Subpath) -> None:
    """Unbind one sub-path, and remove the directories that then are empty. Raises OSError."""
    target = get_subpath_bind_target(subpath)
    mount_utils.cleanup_mount_point(target, mounter, True)
    remove_empty_dirs(subpath.pod_dir, os.path.dirname(target))


def remove_empty_dirs(base_dir: str, end_dir: str) -> None:
    """Remove end_dir and the directories above it, up to base_dir, as far as they are empty. Raises OSError."""
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
    """Make the directory below base, which has no links in it, and those on the way. Raises OSError."""
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
    """Open a path below base without ever leaving it; the caller closes the descriptor.

    Directories that the path lacks are made, unless mode is None; what a link leads to must be there.
    Raises NotWithinVolumeError, OSError.
    """
    walk = _Walk(base)
    try:
        walk.go(relative, mode)
        return os.dup(walk.current())
    finally:
        walk.close()


class _Walk:
    """The opened directories from base to where the walk is."""

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
        # Opening it as O_PATH would not wake an automounter.
        with contextlib.suppress(OSError):
            os.close(os.open(component, _OPEN_DIRECTORY, dir_fd=directory))
        try:
            opened = os.open(component, _OPEN_COMPONENT, dir_fd=directory)
        except FileNotFoundError:
            if mode is None:
                raise
            opened = _make(component, directory, mode)
        # From here on it is closed with the walk, also when a server says only now that it is gone. Kept open, it would
        # keep the volume from ever being unmounted.
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
        # DIVERGES (safer): a link that leaves the volume by ".." is refused, though it comes back into the volume.
        # Go: pkg/volume/util/subpath/subpath_linux.go, doBindSubPath: it is followed.
        # Why: by what is bound and what is refused, its author would learn which directories the node has.
        # Test: attack_test.py:test_link_out_of_the_volume_is_never_bound
        self.go(target, None)


def _name_without_links(path: str) -> str:
    """The volume may have other names on the node, as what is in /run has in /var/run. Raises NotWithinVolumeError."""
    try:
        return securejoin.name_of_target(path)
    except OSError as err:
        # Whatever it is: nobody is to learn what is there.
        raise NotWithinVolumeError("the path leads out of the volume") from err


def _make(component: str, directory: int, mode: int) -> int:
    """Make and open a directory, with just this mode whatever the process's own mask is."""
    try:
        os.mkdir(component, mode=mode, dir_fd=directory)
    except FileExistsError:
        # Somebody else was quicker; maybe with something else than a directory.
        return os.open(component, _OPEN_COMPONENT, dir_fd=directory)
    opened = os.open(component, _OPEN_DIRECTORY, dir_fd=directory)
    try:
        os.fchmod(opened, mode)
    except OSError:
        os.close(opened)
        raise
    return opened
