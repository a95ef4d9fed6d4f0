"""Write a set of files so that readers see either all of the old files or all of the new ones.

The files are in a directory whose name contains the time. The link ..data points to that directory, and each name at
the top of the volume is a link that goes through ..data:

    volume/..2026_11_21_13_00_00.k3x9/user/labels     the content
    volume/..data -> ..2026_11_21_13_00_00.k3x9
    volume/user   -> ..data/user

To change the set, the writer fills another such directory and replaces ..data in one step. Readers may watch ..data.

Go: pkg/volume/util/atomic_writer.go, atomic_writer_linux.go
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pkg import klog, mount_utils
from pkg.util import filesystem, filetree, regularfile, removeall

MAX_FILE_NAME_LENGTH = 255
MAX_PATH_LENGTH = 4096
DATA_DIR_NAME = "..data"
NEW_DATA_DIR_NAME = "..data_tmp"
_TIMESTAMP_MODE = 0o755
# The pattern accepts any year, because the clock of a machine without a battery starts in 1970.
_TIMESTAMP_DIR_NAME = re.compile(r"\.\.[0-9]{4}_[^/]*")


@dataclass(frozen=True, slots=True)
class FileProjection:
    """Describe a file that the writer creates."""

    data: bytes
    mode: int
    # `fs_user` is the user that owns the file, or None for the user that the kubelet runs as.
    fs_user: int | None = None


class AtomicWriter:
    """Write to one directory, which must exist. Names in it that begin with ".." belong to the writer.

    Calls must not overlap.
    """

    def __init__(self, target_dir: str, log_context: str, mounter: mount_utils.Interface | None = None) -> None:
        """Create a writer. Raise OSError if the directory does not exist."""
        os.stat(target_dir)
        self._mounter = mounter or mount_utils.Mounter()
        self._target_dir = target_dir
        self._log_context = log_context

    def write(self, payload: Mapping[str, FileProjection], set_perms: Callable[[str], None] | None = None) -> None:
        """Make the directory hold exactly these files, given by path.

        Before readers see the files, the writer calls set_perms, which may change their permissions, with the name of
        the directory that has them. Raise ValueError for a path that leads out of the directory, OSError, and any error
        of set_perms; readers then still see the old files.
        """
        try:
            clean_payload = validate_payload(payload)
        except ValueError as err:
            klog.error_s(err, f"{self._log_context}: invalid payload")
            raise
        old = self._old_timestamp_dir()
        to_remove = self._paths_to_remove(clean_payload, old) if old else set()
        written = not old or bool(to_remove) or should_write_payload(clean_payload, self._path(old))
        if written:
            self._publish(clean_payload, set_perms)
        else:
            klog.v(4).info_s(f"{self._log_context}: write not required for data directory {old}")
        # Do this even if nothing was written, because the last call may have been interrupted before this step
        # (kubernetes issue 121472).
        self._create_user_visible_files(clean_payload)
        self._remove_user_visible_paths(clean_payload)
        if written:
            self._remove_old_dirs()

    def _path(self, *names: str) -> str:
        return os.path.join(self._target_dir, *names)

    def _old_timestamp_dir(self) -> str:
        """Return the name of the directory that readers see, or "" if there is none.

        DIVERGES (safer): the writer replaces a link `..data` that points out of the volume, and removes nothing where
        it points.
        Go: pkg/volume/util/atomic_writer.go, (*AtomicWriter).Write: the Go kubelet removes the directory that the link
        points to when the files change.
        Why: a container that may write to its volume could make the kubelet remove directories of the node.
        Test: atomic_writer_test.py:test_data_link_that_leads_elsewhere_is_not_followed
        """
        try:
            old = os.readlink(self._path(DATA_DIR_NAME))
        except FileNotFoundError:
            return ""
        if not _is_timestamp_dir_name(old):
            klog.warning_s(
                f"{self._log_context}: data directory link points out of the volume, replacing it", target=old
            )
            return ""
        return old

    def _publish(self, payload: Mapping[str, FileProjection], set_perms: Callable[[str], None] | None) -> None:
        """Write the files to a new directory, and make ..data point to it.

        DIVERGES (fault of Go): the writer removes files that it could not publish, and replaces a link `..data_tmp`
        that a killed kubelet has left.
        Go: pkg/volume/util/atomic_writer.go, (*AtomicWriter).Write: files that could not all be written stay, and every
        update fails while such a link exists.
        Why: each attempt to write to a full disk would fill it further, and a pod would never see a new secret again.
        Test: atomic_writer_test.py:test_failure_leaves_the_old_files_and_nothing_else,
        atomic_writer_test.py:test_full_volume_names_the_file_and_keeps_the_old_ones,
        atomic_writer_test.py:test_write_after_a_kill_in_the_middle
        """
        directory = self._new_timestamp_dir()
        new_data_dir = self._path(NEW_DATA_DIR_NAME)
        try:
            _write_payload_to_dir(payload, directory)
            klog.v(4).info_s(f"{self._log_context}: performed write of new data to ts data directory: {directory}")
            if set_perms is not None:
                set_perms(os.path.basename(directory))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new_data_dir)
            os.symlink(os.path.basename(directory), new_data_dir)
            os.rename(new_data_dir, self._path(DATA_DIR_NAME))
        except BaseException:
            with contextlib.suppress(OSError):
                self._remove_dir(directory)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new_data_dir)
            raise

    def _paths_to_remove(self, payload: Mapping[str, FileProjection], old: str) -> set[str]:
        """Return the paths, relative to the volume, that readers see now and that the new set lacks."""
        old_dir = self._path(old)
        paths: set[str] = set()
        for directory, entry in filetree.walk(old_dir, on_error=_raise_unless_gone):
            paths.add(os.path.relpath(os.path.join(directory.path(), entry.name), old_dir))
        for path in payload:
            while path:
                paths.discard(path)
                path = os.path.dirname(path)
        return paths

    def _new_timestamp_dir(self) -> str:
        prefix = datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
        directory = tempfile.mkdtemp(prefix=prefix, dir=self._target_dir)
        # Set the mode regardless of the umask. Everyone may list the directory; the files have modes of their own.
        os.chmod(directory, _TIMESTAMP_MODE)
        return directory

    def _create_user_visible_files(self, payload: Mapping[str, FileProjection]) -> None:
        """Create the links to ..data that do not exist yet."""
        for path, projection in payload.items():
            name = path.partition("/")[0]
            visible = self._path(name)
            try:
                os.readlink(visible)
            except FileNotFoundError:
                os.symlink(os.path.join(DATA_DIR_NAME, name), visible)
                if projection.fs_user is not None:
                    os.lchown(visible, projection.fs_user, -1)
            except OSError as err:
                # The name is the mount point of another volume, which hides our file.
                if err.errno != errno.EINVAL:
                    raise

    def _remove_user_visible_paths(self, payload: Mapping[str, FileProjection]) -> None:
        """Remove the links to ..data whose targets no longer exist.

        DIVERGES (fault of Go): the writer removes all links without a target, including those that a killed kubelet has
        left.
        Go: pkg/volume/util/atomic_writer.go, (*AtomicWriter).removeUserVisiblePaths: the Go kubelet removes only the
        names that this update takes out of the old set.
        Why: a kubelet that is killed between the two steps leaves dead links for as long as the pod lives.
        Test: atomic_writer_test.py:test_write_after_a_kill_in_the_middle
        """
        names = {path.partition("/")[0] for path in payload}
        for entry in list(os.scandir(self._target_dir)):
            if entry.name in names or not entry.is_symlink():
                continue
            if os.readlink(entry.path) == os.path.join(DATA_DIR_NAME, entry.name):
                os.unlink(entry.path)

    def _remove_old_dirs(self) -> None:
        """Remove every data directory except the one that readers see. A killed kubelet may have left one."""
        current = os.readlink(self._path(DATA_DIR_NAME))
        for entry in list(os.scandir(self._target_dir)):
            is_ours = _is_timestamp_dir_name(entry.name) and entry.is_dir(follow_symlinks=False)
            if is_ours and entry.name != current:
                self._remove_dir(entry.path)

    def _remove_dir(self, path: str) -> None:
        """Remove a data directory. Raise OSError if something is mounted in it.

        DIVERGES (safer): the kubelet does not remove what a container has mounted in the directory; the directory
        stays, and the update fails.
        Go: pkg/volume/util/atomic_writer.go, (*AtomicWriter).Write: the Go kubelet removes the contents of the mount
        with the directory.
        Why: a container with bidirectional mount propagation may have mounted files of another machine there.
        Test: atomic_writer_test.py:test_old_files_stay_while_something_is_mounted_among_them
        """
        removeall.remove_all_one_filesystem(self._mounter, path)


def validate_payload(payload: Mapping[str, FileProjection]) -> dict[str, FileProjection]:
    """Return the payload with normalized paths. Raise ValueError if a path is not allowed."""
    for path in payload:
        validate_path(path)
    return {posixpath.normpath(path): projection for path, projection in payload.items()}


def validate_path(target_path: str) -> None:
    """Raise ValueError for a path that may lead out of the volume or conflict with the writer's own names."""
    if not target_path:
        raise ValueError('invalid path: must not be empty: ""')
    if target_path.startswith("/"):
        raise ValueError(f"invalid path: must be relative path: {target_path}")
    if len(os.fsencode(target_path)) > MAX_PATH_LENGTH:
        raise ValueError(f"invalid path: must be less than or equal to {MAX_PATH_LENGTH} characters")
    items = target_path.split("/")
    for item in items:
        if item == "..":
            raise ValueError(f"invalid path: must not contain '..': {target_path}")
        if len(os.fsencode(item)) > MAX_FILE_NAME_LENGTH:
            raise ValueError(f"invalid path: filenames must be less than or equal to {MAX_FILE_NAME_LENGTH} characters")
    if items[0].startswith(".."):
        raise ValueError(f"invalid path: must not start with '..': {target_path}")


def should_write_payload(payload: Mapping[str, FileProjection], old_dir: str) -> bool:
    """Report whether a file differs from the payload. Raise OSError if it cannot be read."""
    return any(should_write_file(os.path.join(old_dir, path), projection.data) for path, projection in payload.items())


def should_write_file(path: str, content: bytes) -> bool:
    """Report whether the file's content differs. Raise OSError if it cannot be read."""
    try:
        fd = regularfile.open_regular(path)
    except (FileNotFoundError, NotADirectoryError, regularfile.NotRegularFileError):
        return True
    with os.fdopen(fd, "rb") as file:
        # One more byte shows whether the file is longer than the content.
        return file.read(len(content) + 1) != content


def _write_payload_to_dir(payload: Mapping[str, FileProjection], directory: str) -> None:
    for path, projection in payload.items():
        full_path = os.path.join(directory, path)
        try:
            _write_file(full_path, projection)
        except OSError as err:
            raise OSError(f"write {full_path}: {(err.strerror or str(err)).lower()}") from err


def _write_file(full_path: str, projection: FileProjection) -> None:
    filesystem.mkdir_all(os.path.dirname(full_path), 0o777)
    fd = os.open(full_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(projection.data)
        # The mode is not passed to open, because the umask would change it.
        os.fchmod(fd, stat.S_IMODE(projection.mode))
        if projection.fs_user is not None:
            os.fchown(fd, projection.fs_user, -1)


def _is_timestamp_dir_name(name: str) -> bool:
    """Report whether the writer may have created the directory, and so may remove it."""
    return _TIMESTAMP_DIR_NAME.fullmatch(name) is not None


def _raise_unless_gone(err: OSError) -> None:
    if not isinstance(err, FileNotFoundError):
        try:
            raise err
        finally:
            # The error's traceback refers to this frame, and this frame to the error. Without `del` the cycle would
            # keep all files in memory until the garbage collector runs.
            del err
