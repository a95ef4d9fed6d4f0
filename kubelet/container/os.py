"""Define the calls to the operating system that tests replace.

Go: pkg/kubelet/container/os.go
"""

from __future__ import annotations

import glob
import os
import socket
from typing import IO, Protocol

from pkg import mount_utils
from pkg.util import filesystem, regularfile, removeall


class OSInterface(Protocol):
    """Define the system calls. All raise OSError, or FileNotFoundError if a required path does not exist."""

    def mkdir_all(self, path: str, perm: int) -> None:
        """Create the directory and its parents. An existing directory is not an error."""
        ...

    def symlink(self, oldname: str, newname: str) -> None: ...

    def stat(self, path: str) -> os.stat_result: ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        ...

    def remove_all(self, path: str) -> None:
        """Remove the path and everything below it, or nothing while something is mounted there.

        A missing path is not an error.
        """
        ...

    def create(self, path: str) -> IO[bytes]:
        """Create or truncate a file, and open it for reading and writing."""
        ...

    def chmod(self, path: str, perm: int) -> None: ...

    def hostname(self) -> str: ...

    def chtimes(self, path: str, atime: float, mtime: float) -> None:
        """Set the times, in seconds since 1970."""
        ...

    def pipe(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return the reading end and the writing end."""
        ...

    def read_dir(self, dirname: str) -> list[os.DirEntry[str]]:
        """Return the entries, sorted by name."""
        ...

    def glob(self, pattern: str) -> list[str]: ...

    def open(self, name: str) -> IO[bytes]:
        """Open a regular file for reading; any other kind of file is an error."""
        ...

    def open_file(self, name: str, flag: int, perm: int) -> IO[bytes]:
        """Open a file with the flags of os.open."""
        ...

    def rename(self, oldpath: str, newpath: str) -> None: ...


class RealOS:
    """Call the operating system."""

    def __init__(self) -> None:
        self._mounter = mount_utils.Mounter()

    def mkdir_all(self, path: str, perm: int) -> None:
        filesystem.mkdir_all(path, perm)

    def symlink(self, oldname: str, newname: str) -> None:
        os.symlink(oldname, newname)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def remove(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def remove_all(self, path: str) -> None:
        # DIVERGES (safer): a directory with a mount point below it is not removed.
        # Go: pkg/kubelet/container/os.go, RealOS.RemoveAll: the Go kubelet also removes the files of the mounted file
        # system.
        # Why: a privileged container can mount a file system below the log directory of a terminated pod.
        # Test: runtime_test.py:test_a_folder_is_not_removed_while_something_is_mounted_in_it
        removeall.remove_all_one_filesystem(self._mounter, path)

    def create(self, path: str) -> IO[bytes]:
        return self.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)

    def chmod(self, path: str, perm: int) -> None:
        os.chmod(path, perm)

    def hostname(self) -> str:
        return socket.gethostname()

    def chtimes(self, path: str, atime: float, mtime: float) -> None:
        os.utime(path, (atime, mtime))

    def pipe(self) -> tuple[IO[bytes], IO[bytes]]:
        reader, writer = os.pipe()
        return os.fdopen(reader, "rb"), os.fdopen(writer, "wb")

    def read_dir(self, dirname: str) -> list[os.DirEntry[str]]:
        with os.scandir(dirname) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def glob(self, pattern: str) -> list[str]:
        return sorted(glob.glob(pattern))

    def open(self, name: str) -> IO[bytes]:
        return os.fdopen(regularfile.open_regular(name), "rb")

    def open_file(self, name: str, flag: int, perm: int) -> IO[bytes]:
        mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}[flag & os.O_ACCMODE]
        file: IO[bytes] = os.fdopen(os.open(name, flag | os.O_CLOEXEC, perm), mode)
        return file

    def rename(self, oldpath: str, newpath: str) -> None:
        os.replace(oldpath, newpath)
