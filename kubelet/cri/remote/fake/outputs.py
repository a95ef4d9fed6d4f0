"""Write the output of fake containers to their logs and to attached clients."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import datetime
from typing import IO

from kubelet.cri.remote.fake import files
from kubelet.cri.remote.fake.sandboxes import Container
from pkg import golang


class Outputs:
    """Distribute the output of containers. All methods are thread-safe."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()  # The lock guards _followers, and is held while they receive output.
        # The keys are container ids, the values the attached clients' streams by name.
        self._followers: dict[str, list[dict[str, IO[bytes]]]] = {}

    def say(self, container: Container, text: str, stream: str = "stdout") -> None:
        """Write these lines to the `stdout` or `stderr` of a container."""
        with self._lock:
            files.append_log(container, self._now(), text, stream)
            for follower in self._followers.get(container.id, ()):
                with contextlib.suppress(OSError):  # The client has closed its connection.
                    follower[stream].write("".join(f"{line}\n" for line in files.lines_of(text)).encode())

    def follow(self, container: Container, stdout: IO[bytes], stderr: IO[bytes], gone: golang.Channel[None]) -> None:
        """Write the further output of a container until it exits or `gone` is closed."""
        follower = {"stdout": stdout, "stderr": stderr}
        with self._lock:
            self._followers.setdefault(container.id, []).append(follower)
        golang.select(container.exited, gone)
        with self._lock:
            left = [each for each in self._followers.pop(container.id) if each is not follower]
            if left:
                self._followers[container.id] = left
