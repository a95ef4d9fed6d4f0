"""Walk and remove directory trees that others control, of any depth, even while they change.

Each step opens a single name relative to an open directory, so no path can become too long, and no link can lead
elsewhere. Only the first HELD_LEVELS directories on the way down stay open, and nothing here is recursive.

Go: os (RemoveAll), path/filepath (WalkDir)
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# At most this many directories stay open, counted from the top of the tree.
HELD_LEVELS = 64
# The names of this many directories on the way down are remembered. The kernel accepts no path to a deeper directory.
NAMED_LEVELS = 2048
# A walk goes down to this depth. While it goes down, another process can move the upper directories below the lower
# ones, and so turn a few thousand directories into an endless tree.
MAX_DEPTH = 100_000
# MAX_PENDING_NAMES limits the names of directories that a removal remembers in total, and MAX_NAMES_AT_ONCE those of
# one directory before the removal reads that directory again. On ext4 a directory keeps its blocks when its entries go,
# so reading a nearly empty directory may take as long as reading everything that was ever in it. A walk remembers up to
# MAX_PENDING_NAMES names from directories deeper than NAMED_LEVELS.
MAX_PENDING_NAMES = 10_000
MAX_NAMES_AT_ONCE = 1_000
# A removal ends after this many entries that it cannot remove.
MAX_FAILURES = 100

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
# Opening a directory that was removed or replaced after its name was read fails with one of these errors.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class MountPointError(OSError):
    """Signal that a directory is a mount point, so its content belongs to another file system."""


@dataclass(frozen=True, slots=True)
class Left:
    """Describe the directory that Directory.leave has left."""

    # `name` is the entry's name in the directory that is open now; it is "" below NAMED_LEVELS.
    name: str
    # `stayed` says whether the entry is still there; it may have been moved meanwhile.
    stayed: bool


class Directory:
    """Track the current directory of a walk, open as `fd`, and the way down to it. The class is not thread-safe."""

    def __init__(self, top: str) -> None:
        """Open the directory `top`, following links. Raise OSError."""
        self._top = top
        # The two fields describe the directories on the way down without `top`: the names of the first NAMED_LEVELS,
        # and the inodes of all.
        self._names: list[str] = []
        self._inodes = array("Q")
        self.fd = os.open(top, _OPEN_DIRECTORY)
        # `_held` holds the directories on the way that stay open, including `top`.
        self._held = [self.fd]
        try:
            self._mount_id = _mount_id(self.fd)
        except BaseException:
            # This failure happens, for example, when no descriptor is left. No other code could close the descriptor.
            os.close(self.fd)
            raise

    @property
    def depth(self) -> int:
        """Return the depth; the top has depth 0."""
        return len(self._inodes)

    def path(self) -> str:
        """Return the whole path, which may be too long for the kernel. It is truncated below NAMED_LEVELS."""
        return os.path.join(self._top, *self._names, *(["..."] if self.depth > len(self._names) else []))

    def short_path(self, name: str = "") -> str:
        """Return the path of the directory, or of its entry `name`, truncated to HELD_LEVELS for use in messages."""
        names = [*self._names[:HELD_LEVELS], *(["..."] if self.depth > HELD_LEVELS else []), *([name] if name else [])]
        return os.path.join(self._top, *names)

    def enter(self, name: str, one_filesystem: bool = True) -> None:
        """Go down into a directory; do not follow links.

        Raise OSError. With `one_filesystem`, raise MountPointError if the directory is a mount point.
        """
        fd = os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)
        try:
            if one_filesystem and _mount_id(fd) != self._mount_id:
                raise MountPointError(f"{self.short_path(name)} is a mount point")
            inode = os.fstat(fd).st_ino
        except BaseException:
            os.close(fd)
            raise
        if self.depth < HELD_LEVELS:
            self._held.append(fd)
        elif not self._is_held():
            os.close(self.fd)
        self.fd = fd
        if self.depth < NAMED_LEVELS:
            self._names.append(name)
        self._inodes.append(inode)

    def lift(self, name: str) -> str:
        """Move a subdirectory of this directory to the first directory that was entered.

        Return its new name. Raise OSError.
        """
        lifted = uuid.uuid4().hex
        os.rename(name, lifted, src_dir_fd=self.fd, dst_dir_fd=self._held[1])
        return lifted

    def leave(self) -> Left:
        """Go back up. If the directory was moved meanwhile, go to the deepest directory that is still open."""
        depth = self.depth - 1
        above = self._held[depth] if depth < len(self._held) else self._open_above()
        if self._is_held():
            self._held.pop()
        os.close(self.fd)
        stayed = above is not None
        if above is None:
            depth = len(self._held) - 1
            above = self._held[depth]
        self.fd = above
        name = self._names[depth] if depth < len(self._names) else ""
        del self._names[depth:], self._inodes[depth:]
        return Left(name, stayed)

    def close(self) -> None:
        """Close all open directories."""
        if not self._is_held():
            os.close(self.fd)
        for fd in self._held:
            os.close(fd)

    def _is_held(self) -> bool:
        return self.depth < len(self._held)

    def _open_above(self) -> int | None:
        """Open the directory from which this one was entered; return None if this one was moved."""
        device = os.fstat(self.fd).st_dev
        try:
            fd = os.open("..", _OPEN_DIRECTORY, dir_fd=self.fd)
        except OSError:
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == (device, self._inodes[-2]):
            return fd
        os.close(fd)
        return None


def _mount_id(fd: int) -> bytes:
    """Return the kernel's mount id, the only property in which bind mounts of one file system differ."""
    lines = Path(f"/proc/self/fdinfo/{fd}").read_bytes().split(b"\n")
    return next(line for line in lines if line.startswith(b"mnt_id:"))


def walk(
    top: str,
    *,
    one_filesystem: bool = True,
    mounts: frozenset[str] = frozenset(),
    on_error: Callable[[OSError], None] | None = None,
    on_move: Callable[[], None] | None = None,
) -> Iterator[tuple[Directory, os.DirEntry[str]]]:
    """Yield all entries below the directory `top`, each with its directory. Links below `top` are not followed.

    Directory and entry are valid until the next step. A directory comes before its content; otherwise the order is the
    file system's. Entries that vanish during the walk are left out. Entries at the paths in `mounts` are left out too,
    so that no file server is contacted. With `one_filesystem`, no mount below `top` is entered.

    An error goes to `on_error`; without `on_error` it is raised as OSError. As in Go, the names of the directories
    beside the way down are kept in memory. Below NAMED_LEVELS, more than MAX_PENDING_NAMES of them are an error, and so
    are directories below MAX_DEPTH. `on_move` is called before a directory is entered or left, because between two
    entries there may be a million empty directories.
    """
    pending = _Pending(counted_from=NAMED_LEVELS)
    try:
        directory = Directory(top)
    except OSError as err:
        _tell(err, on_error)
        return
    with contextlib.closing(directory):
        yield from _entries(directory, pending, mounts, on_error)
        while (name := pending.take(directory.depth)) is not None or directory.depth:
            if on_move is not None:
                on_move()
            if name is None:
                left = directory.depth
                directory.leave()
                pending.forget(range(directory.depth + 1, left + 1))
                continue
            try:
                directory.enter(name, one_filesystem)
            except MountPointError:
                continue
            except OSError as err:
                if err.errno not in _GONE:
                    _tell(_with_path(err, directory, name), on_error)
                continue
            yield from _entries(directory, pending, mounts, on_error)


class _Pending:
    """Hold names of directories that are yet to be entered, by the depth of their parent directory.

    `count` is the number of names in directories at depth `counted_from` or deeper.
    """

    def __init__(self, counted_from: int = 0) -> None:
        self._names: dict[int, list[str]] = {}
        self._counted_from = counted_from
        self.count = 0

    def add(self, depth: int, names: Iterable[str]) -> None:
        for name in names:
            self._names.setdefault(depth, []).append(name)
            self.count += depth >= self._counted_from

    def take(self, depth: int) -> str | None:
        names = self._names.get(depth)
        if names is None:
            return None
        name = names.pop()
        if not names:
            del self._names[depth]
        self.count -= depth >= self._counted_from
        return name

    def forget(self, depths: Iterable[int]) -> None:
        for depth in depths:
            names = self._names.pop(depth, ())
            self.count -= len(names) if depth >= self._counted_from else 0

    def uppermost(self) -> int:
        """Return the smallest depth that has a name. Raise ValueError if there is no name."""
        return min(self._names)

    def __contains__(self, depth: int) -> bool:
        return depth in self._names


def _entries(
    directory: Directory,
    pending: _Pending,
    mounts: frozenset[str],
    on_error: Callable[[OSError], None] | None,
) -> Iterator[tuple[Directory, os.DirEntry[str]]]:
    """Yield the entries of one directory, and add the names of its subdirectories to `pending`."""
    prefix = directory.path() if mounts else ""
    try:
        with os.scandir(directory.fd) as entries:
            for entry in entries:
                if mounts and os.path.join(prefix, entry.name) in mounts:
                    continue
                yield directory, entry
                if entry.is_dir(follow_symlinks=False):
                    _check_depth(directory.depth, pending)
                    pending.add(directory.depth, [entry.name])
    except OSError as err:
        _tell(_with_path(err, directory), on_error)


def _check_depth(depth: int, pending: _Pending) -> None:
    """Raise OSError if a walk may not go down from a directory of this depth."""
    if depth >= NAMED_LEVELS and (depth >= MAX_DEPTH or pending.count >= MAX_PENDING_NAMES):
        raise OSError(errno.ENAMETOOLONG, "the directory tree is too deep")


def _tell(err: OSError, on_error: Callable[[OSError], None] | None) -> None:
    if on_error is not None:
        on_error(err)
        return
    try:
        raise err
    finally:
        # The error refers to this frame. If the frame also refers to the error, both stay in memory, together with the
        # frames of all callers, until the garbage collector runs.
        del err


def _with_path(err: OSError, directory: Directory, name: str = "") -> OSError:
    """Return the same error with a path instead of a name."""
    return OSError(err.errno, err.strerror, directory.short_path(name)) if err.errno is not None else err


def remove_all(path: str) -> None:
    """Remove `path` and everything below it as far as possible, then raise the first error as OSError.

    A missing path is not an error. Links are removed, not followed.

    DIVERGES (safer): this kubelet never enters a mount at or below the path, and reports it as an error.
    Go: os/removeall_at.go, removeAllFrom: the Go kubelet empties the mount, and then fails to remove the mount point.
    Why: the data of a volume whose unmount has failed would be lost.
    Test: filetree_test.py:test_what_is_mounted_below_stays_whole
    """
    _remove(path, os.unlink)


def remove_dirs(path: str) -> None:
    """Remove directories like remove_all; keep everything else, and report it as an error.

    Go: os/removeall_at.go
    """
    _remove(path, _refuse)


def _refuse(name: str, *, dir_fd: int) -> None:
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)


def _remove(path: str, unlink: Callable[..., None]) -> None:
    above, name = os.path.split(os.path.abspath(path))
    try:
        directory = Directory(above)
    except (FileNotFoundError, NotADirectoryError):
        return
    with contextlib.closing(directory):
        _Removal(directory, unlink).run(name)


class _Removal:
    """Remove one entry of a directory with everything in it."""

    def __init__(self, directory: Directory, unlink: Callable[..., None]) -> None:
        self._directory = directory
        self._unlink = unlink
        # Each of the three is keyed by the depth of a directory. They hold the names of subdirectories that are yet to
        # be entered, the names of entries that cannot be removed, and the directories that have more entries than could
        # be remembered.
        self._pending = _Pending()
        self._stuck: dict[int, set[str]] = {}
        self._cut: set[int] = set()
        self._first_fault: OSError | None = None
        self._faults = 0
        # `_rereads` counts the directories that turned out not to be empty after all.
        self._rereads = 0

    def run(self, name: str) -> None:
        """Remove the entry. Raise the first error, an OSError."""
        if not self._remove_entry(name, is_dir=True):
            self._enter(name)
        while self._directory.depth and self._faults < MAX_FAILURES:
            found = self._next()
            if found is None:
                self._leave()
            else:
                self._enter(found)
        if self._first_fault is not None:
            try:
                raise self._first_fault
            finally:
                # As in _tell, the frame must not refer to the error.
                self._first_fault = None

    def _enter(self, name: str) -> None:
        try:
            if self._directory.depth >= NAMED_LEVELS:
                self._lift(name)
                return
            self._directory.enter(name)
        except FileNotFoundError:
            return
        except OSError as err:
            self._fail(name, err)
            return
        self._scan()

    def _lift(self, name: str) -> None:
        """Move a directory that is too deep to the top, so that it is removed later. Raise OSError."""
        lifted = self._directory.lift(name)
        if self._pending.count < MAX_PENDING_NAMES:
            self._pending.add(1, [lifted])
        else:
            self._cut.add(1)

    def _leave(self) -> None:
        depth = self._directory.depth
        is_stuck = depth in self._stuck
        entry = self._directory.leave()
        name = entry.name
        left = range(self._directory.depth + 1, depth + 1)
        self._pending.forget(left)
        for each in left:
            self._stuck.pop(each, None)
            self._cut.discard(each)
        if not entry.stayed:
            self._fail(name, OSError(errno.EBUSY, "a directory below was moved while it was being removed"))
        else:
            try:
                os.rmdir(name, dir_fd=self._directory.fd)
            except FileNotFoundError:
                pass
            except OSError as err:
                if err.errno in _NOT_EMPTY and not is_stuck and self._rereads < MAX_FAILURES:
                    # Some file systems skip entries when others are removed meanwhile.
                    self._rereads += 1
                    self._enter(name)
                else:
                    self._fail(name, err)

    def _next(self) -> str | None:
        """Return the name of a directory to enter, or None when everything removable here is removed."""
        depth = self._directory.depth
        if depth not in self._pending and depth in self._cut:
            self._scan()
        return self._pending.take(depth)

    def _scan(self) -> None:
        """Remove files and empty subdirectories of the directory, and remember its other subdirectories as pending."""
        depth = self._directory.depth
        names: list[str] = []
        self._make_room()
        self._cut.discard(depth)
        try:
            with os.scandir(self._directory.fd) as entries:
                for entry in entries:
                    if entry.name in self._stuck.get(depth, ()):
                        continue
                    if self._remove_entry(entry.name, entry.is_dir(follow_symlinks=False)):
                        continue
                    names.append(entry.name)
                    if len(names) == MAX_NAMES_AT_ONCE:
                        self._cut.add(depth)
                        break
        except OSError as err:
            # The content stays, so the directory is not read again.
            self._stuck.setdefault(depth, set())
            self._note(_with_path(err, self._directory))
        self._pending.add(depth, names)

    def _make_room(self) -> None:
        """Forget names, those nearest to the top first, until there is room for the names of one more directory.

        The directory of forgotten names is read again once everything below it is done. Before a directory loses names
        a second time, nearly MAX_PENDING_NAMES names must have been found below it. If a directory got only the room
        that other directories leave, it might be read again for each of its names.
        """
        while self._pending.count > MAX_PENDING_NAMES - MAX_NAMES_AT_ONCE:
            depth = self._pending.uppermost()
            self._pending.forget([depth])
            self._cut.add(depth)

    def _remove_entry(self, name: str, is_dir: bool) -> bool:
        """Remove a file or an empty directory, or record the failure.

        Return False for a directory that is not empty.
        """
        remove = os.rmdir if is_dir else self._unlink
        try:
            remove(name, dir_fd=self._directory.fd)
        except FileNotFoundError:
            pass
        except OSError as err:
            if is_dir and err.errno in _NOT_EMPTY:
                return False
            if is_dir and err.errno == errno.ENOTDIR:
                return self._remove_entry(name, is_dir=False)
            self._fail(name, err)
        return True

    def _fail(self, name: str, err: OSError) -> None:
        self._stuck.setdefault(self._directory.depth, set()).add(name)
        self._note(err if isinstance(err, MountPointError) else _with_path(err, self._directory, name))

    def _note(self, err: OSError) -> None:
        # A directory stays because of its content, which is already recorded.
        if err.errno in _NOT_EMPTY and self._first_fault is not None:
            return
        self._first_fault = self._first_fault or err
        self._faults += 1
