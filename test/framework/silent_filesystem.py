"""Serve a file system that stops responding on request, like a network file system whose server has failed.

It is an empty directory, served over /dev/fuse from this process. When the process ends, so do the requests of all
processes that wait for it. Nothing in this process may access the file system while it is silent.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import stat
import struct
import subprocess
import threading

from pkg import golang

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_HEADER = struct.Struct("<IIQQIIII")
_OUT_HEADER = struct.Struct("<IiQ")
_UNIQUE = struct.Struct("<Q")
_MAX_WRITE = 128 * 1024


class Opcode(enum.IntEnum):
    """Define the kernel's requests."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    STATFS = 17
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    BATCH_FORGET = 42


_WITHOUT_ANSWER = (Opcode.FORGET, Opcode.BATCH_FORGET)


class SilentFilesystem:
    """Serve one mount. It responds until go_silent is called."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if _LIBC.mount(b"server:/export", target.encode(), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
        self._silent = threading.Event()
        # The event is set once a process waits for a response that will not come.
        self.somebody_waits = threading.Event()
        self._thread = golang.go(self._serve, name="silent-filesystem")

    def go_silent(self) -> None:
        self._silent.set()

    def close(self) -> None:
        """Unmount the file system, unless that has been done, and end all requests that wait."""
        subprocess.run(["umount", "--force", "--lazy", "--no-canonicalize", self._target], capture_output=True)
        self._thread.join(30)
        os.close(self._fd)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, _MAX_WRITE + 4096)
            except OSError:
                # The file system has been unmounted or closed.
                return
            _, opcode, unique, *_ = _IN_HEADER.unpack_from(request)
            if opcode in _WITHOUT_ANSWER:
                continue
            if opcode == Opcode.INTERRUPT:
                # A process that is killed stops waiting, as with NFS.
                (unique,) = _UNIQUE.unpack_from(request, _IN_HEADER.size)
                self._reply(unique, errno.EINTR, b"")
            elif self._silent.is_set():
                self.somebody_waits.set()
            else:
                self._reply(unique, *_answer(opcode))

    def _reply(self, unique: int, error: int, body: bytes) -> None:
        # The request may already have a response, or its process may no longer wait.
        with contextlib.suppress(OSError):
            os.write(self._fd, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -error, unique) + body)


def _answer(opcode: int) -> tuple[int, bytes]:
    match opcode:
        case Opcode.INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, _MAX_WRITE, 0, 16, 12, _MAX_WRITE, 1, 32, 0, 0)
        case Opcode.GETATTR:
            mode, links = stat.S_IFDIR | 0o755, 2
            attributes = struct.pack("<QQQQQQIIIIIIIIII", 1, 0, 0, 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0)
            # The validity is zero, so that each access asks again.
            return 0, struct.pack("<QII", 0, 0, 0) + attributes
        case Opcode.STATFS:
            return 0, struct.pack("<QQQQQIII28x", 1000, 500, 500, 100, 50, 4096, 255, 4096)
        case Opcode.OPENDIR:
            return 0, struct.pack("<QII", 1, 0, 0)
        case Opcode.READDIR | Opcode.RELEASEDIR | Opcode.ACCESS:
            return 0, b""
        case Opcode.LOOKUP:
            return errno.ENOENT, b""
    return errno.ENOSYS, b""
