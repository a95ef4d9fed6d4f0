"""Serve all images to a hollow node, except those whose pulls a test makes fail."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

import grpc

from kubelet.cri.remote import fake


class UnusedFaultError(ValueError):
    """Signal that a fault had no effect: its name is misspelt, or the test does not do what it should."""


class HollowImages:
    """Make pulls of images fail.

    The name of an image is that in a pod: without a tag, it means `latest`. All methods are thread-safe.
    """

    def __init__(self, runtime: fake.FakeRuntime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()  # The lock guards _faults.
        self._faults: list[ImageFault] = []

    def fail(self, name: str, message: str = "") -> ImageFault:
        """Make pulls of an image fail until the fault's end() or the end of its `with` block.

        The end of the fault or of the node raises UnusedFaultError if no kubelet has pulled the image.
        """
        fault = ImageFault(self._runtime, fake.canonical_name(name), message or fake.not_found(name).message)
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, seconds: float) -> None:
        """Make each pull take this number of seconds from now on."""
        self._runtime.images.pull_delay = seconds

    def end_all(self) -> None:
        """End all faults. Raise UnusedFaultError if one of them had no effect."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.end()


class ImageFault:
    """Make pulls of an image fail within a `with` block."""

    def __init__(self, runtime: fake.FakeRuntime, name: str, message: str) -> None:
        self.name = name
        self._runtime = runtime
        self._pulled: dict[str, None] = {}  # The keys are the pulled images in the order of their pulls.
        self._ended = False
        self._fault = runtime.faults.fail("PullImage", message, code=grpc.StatusCode.NOT_FOUND, match=self._matches)

    @property
    def hits(self) -> int:
        """Return the number of pulls that the fault has failed."""
        return self._fault.hits

    def end(self) -> None:
        """End the fault; a second call does nothing. Raise UnusedFaultError if it had no effect."""
        if self._ended:
            return
        self._ended = True
        self._runtime.faults.remove(self._fault)
        if not self.hits:
            there = [tag for image in self._runtime.images.all() for tag in image.repo_tags]
            raise UnusedFaultError(
                f"image {self.name} was not pulled; pulled images: {', '.join(self._pulled) or 'none'}; "
                f"images on the node: {', '.join(there) or 'none'}"
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
