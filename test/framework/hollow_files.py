"""Hold the files of hollow containers in memory, as paths with contents, for `kubectl cp` and `cat`."""

from __future__ import annotations

import io
import posixpath
import tarfile
import threading
from collections.abc import Sequence

from kubelet.cri.remote import fake

COMMANDS = ("tar", "test", "cat")
_NO_SUCH_FILE = "No such file or directory"


class HollowFiles:
    """Hold the files of all containers of a node. The files survive restarts of the containers.

    All methods are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _files.
        self._files: dict[tuple[str, str], dict[str, bytes]] = {}  # The key is the pod's UID and the container's name.

    def write(self, pod_uid: str, container: str, path: str, content: bytes) -> None:
        with self._lock:
            self._files.setdefault((pod_uid, container), {})[_absolute(path)] = content

    def read(self, pod_uid: str, container: str, path: str) -> bytes:
        """Return a file's content. Raise FileNotFoundError that names the existing files."""
        files = self._of(pod_uid, container)
        if _absolute(path) not in files:
            raise FileNotFoundError(f"container {container} has no file {path}; it has {', '.join(files) or 'none'}")
        return files[_absolute(path)]

    def _of(self, pod_uid: str, container: str) -> dict[str, bytes]:
        with self._lock:
            return dict(self._files.get((pod_uid, container), {}))

    def play(self, process: fake.Process) -> int:
        """Run one of COMMANDS, in the forms in which `kubectl cp` and people write them."""
        match process.command:
            case ["cat", *paths]:
                return self._cat(process, paths)
            case ["test", "-d", path]:
                return 0 if self._below(process, path) else 1
            case ["tar", *words] if "-xmf" in words:
                directory = words[words.index("-C") + 1] if "-C" in words else "/"
                return self._extract(process, directory)
            case ["tar", "cf", "-", path]:
                return self._pack(process, path)
        process.stderr.write(f"no container runs here, and {' '.join(process.command)!r} is not simulated\n".encode())
        return 127

    def _cat(self, process: fake.Process, paths: Sequence[str]) -> int:
        code = 0
        for path in paths:
            try:
                process.stdout.write(self.read(process.pod_uid, process.container, path))
            except FileNotFoundError:
                process.stderr.write(f"cat: {path}: {_NO_SUCH_FILE}\n".encode())
                code = 1
        return code

    def _extract(self, process: fake.Process, directory: str) -> int:
        with tarfile.open(fileobj=process.stdin, mode="r|") as archive:
            for member in archive:
                if (file := archive.extractfile(member)) is not None:
                    path = posixpath.join(directory, member.name)
                    self.write(process.pod_uid, process.container, path, file.read())
        return 0

    def _pack(self, process: fake.Process, path: str) -> int:
        files = self._below(process, path)
        wanted = _absolute(path)
        if wanted in (all_files := self._of(process.pod_uid, process.container)):
            files = {wanted: all_files[wanted]}
        if not files:
            process.stderr.write(f"tar: {path}: Cannot stat: {_NO_SUCH_FILE}\n".encode())
            return 2
        with tarfile.open(fileobj=process.stdout, mode="w|") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name.removeprefix("/"))
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
        return 0

    def _below(self, process: fake.Process, path: str) -> dict[str, bytes]:
        """Return the files in a directory."""
        directory = _absolute(path).rstrip("/") + "/"
        files = self._of(process.pod_uid, process.container)
        return {name: content for name, content in files.items() if name.startswith(directory)}


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))
