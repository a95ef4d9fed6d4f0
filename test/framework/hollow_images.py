"""The images that a hollow node can pull: all, but those that a test lets fail."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import grpc

from kubelet.cri.remote import fake


class UnusedFaultError(ValueError):
    """A fault has struck nothing: its name is misspelt, or the test does not do what it is meant to."""


class HollowImages:
    """Images are named as in a pod: without a tag, `latest` is meant. Safe from any thread."""

    def __init__(self, runtime: fake.FakeRuntime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()  # guards _faults
        self._faults: list[ImageFault] = []

    def fail(self, name: str, message: str = "") -> ImageFault:
        """Let pulls of an image fail, until the fault's end() or the end of its `with` block.

        The end, or the node's, raises UnusedFaultError if nobody pulled the image meanwhile.
        """
        fault = ImageFault(self._runtime, fake.canonical_name(name), message or fake.not_found(name).message)
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, seconds: float) -> None:
        """Let each pull take so many seconds from now on."""
        self._runtime.images.pull_delay = seconds

    def end_all(self) -> None:
        """Raises UnusedFaultError."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.end()


class ImageFault:
    """Pulls of an image that fail. A context manager."""

    def __init__(self, runtime: fake.FakeRuntime, name: str, message: str) -> None:
        self.name = name
        self._runtime = runtime
        self._pulled: dict[str, None] = {}  # in order
        self._ended = False
        self._fault = runtime.faults.fail("PullImage", message, code=grpc.StatusCode.NOT_FOUND, match=self._matches)

    @property
    def hits(self) -> int:
        """How many pulls have failed by it."""
        return self._fault.hits

    def end(self) -> None:
        """Let the image be pulled again. Twice is once. Raises UnusedFaultError."""
        if self._ended:
            return
        self._ended = True
        self._runtime.faults.remove(self._fault)
        if not self.hits:
            there = [tag for image in self._runtime.images.all() for tag in image.repo_tags]
            raise UnusedFaultError(
                f"nobody pulled image {self.name}; pulled were: {', '.join(self._pulled) or 'none'}; "
                f"the node has: {', '.join(there) or 'none'}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        except UnusedFaultError:
            if error is None:
                raise

    def _matches(self, request: Any) -> bool:
        name = fake.canonical_name(request.image.image)
        self._pulled[name] = None
        return name == self.name
