"""Pull images, one at a time or several in parallel.

Go: pkg/kubelet/images/puller.go
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import activity
from kubelet import container as kubecontainer
from kubelet.activity import Activity
from kubelet.images.progress import PullProgress
from pkg import credentialprovider, golang, klog


@dataclass(frozen=True, slots=True)
class PullResult:
    """Hold the result of a pull. `err`, whose stack frames are removed, is None after a success.

    pull_duration is in seconds, without the time in the queue.
    """

    image_ref: str = ""
    image_size: int = 0
    err: Exception | None = None
    pull_duration: float = 0.0
    credentials_used: credentialprovider.TrackedAuthConfig | None = None


@dataclass(frozen=True, slots=True)
class ImagePullRequest:
    """Hold the arguments of a pull. The pod, as namespace/name, is for the log. `first` skips the queue."""

    ctx: golang.Context
    spec: kubecontainer.ImageSpec
    credentials: Sequence[credentialprovider.TrackedAuthConfig]
    pod_sandbox_config: runtimeapi.PodSandboxConfig | None
    pod: str = ""
    first: bool = False


class ImagePuller(Protocol):
    """Define how images are pulled. Implementations are thread-safe.

    Go: imagePuller
    """

    def pull_image(self, request: ImagePullRequest) -> PullResult:
        """Block until the pull has succeeded or failed, or the request's context is done.

        Go sends the result over a channel on which the caller waits immediately. Here the caller's own thread pulls.
        """
        ...


class ParallelImagePuller:
    """Pull at most max_parallel_image_pulls images at a time. None or 0 means no limit."""

    def __init__(self, image_service: kubecontainer.ImageService, max_parallel_image_pulls: int | None) -> None:
        self._image_service = image_service
        self._progress = PullProgress(image_service)
        limit = max_parallel_image_pulls or 0
        self._turns = _Turns(limit) if limit >= 1 else None

    def pull_image(self, request: ImagePullRequest) -> PullResult:
        """Pull an image as ImagePuller describes."""
        if self._turns is None:
            return self._pull(request)
        try:
            with activity.doing(request.ctx, Activity.WAITS_FOR_PULL):
                self._turns.take(request)
        except golang.ContextError as err:
            return PullResult(err=golang.without_frames(err))
        try:
            return self._pull(request)
        finally:
            self._turns.pass_on()

    def _pull(self, request: ImagePullRequest) -> PullResult:
        start = time.monotonic()
        with self._progress.watch(request.spec.image, request.pod):
            try:
                image_ref, credentials = self._image_service.pull_image(
                    request.ctx, request.spec, request.credentials, request.pod_sandbox_config
                )
            except Exception as err:  # Any error is the result of the pull, and the caller reports it.
                return PullResult(err=golang.without_frames(err), pull_duration=time.monotonic() - start)
        size = _image_size(self._image_service, request) if image_ref else 0
        return PullResult(image_ref, size, None, time.monotonic() - start, credentials)


class SerialImagePuller(ParallelImagePuller):
    """Pull one image at a time."""

    def __init__(self, image_service: kubecontainer.ImageService) -> None:
        super().__init__(image_service, 1)


@dataclass(order=True, slots=True)
class _Waiter:
    """Represent a waiting pull. Pulls with `first` sort before others; otherwise the order of the requests decides."""

    not_first: bool
    number: int
    turn: golang.Channel[None] = field(default_factory=lambda: golang.Channel(1), compare=False)


class _Turns:
    """Limit the number of concurrent pulls. This class is thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The lock guards the three fields below.
        self._lock = threading.Lock()
        self._busy = 0
        self._asked = 0
        self._waiting: list[_Waiter] = []

    def take(self, request: ImagePullRequest) -> None:
        """Wait for a turn. Raise golang.ContextError if the request's context ends first."""
        with self._lock:
            if self._busy < self._limit:
                self._busy += 1
                return
            self._asked += 1
            waiter = _Waiter(not request.first, self._asked)
            ahead = bisect.bisect(self._waiting, waiter)
            self._waiting.insert(ahead, waiter)
        try:
            klog.info_s(
                "Image pull waits for its turn",
                image=request.spec.image,
                pod=request.pod,
                waitingAhead=ahead,
                maxParallelImagePulls=self._limit,
            )
            if golang.select(waiter.turn, request.ctx.done()).took(request.ctx.done()):
                raise request.ctx.err() or golang.Canceled()
        except BaseException:
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            waiting = waiter in self._waiting
            if waiting:
                self._waiting.remove(waiter)
        if not waiting:
            # The turn arrived at the same time, so it goes to the next waiter.
            self.pass_on()

    def pass_on(self) -> None:
        """Give the turn to the first waiter."""
        with self._lock:
            if self._waiting:
                self._waiting.pop(0).turn.send(None)
            else:
                self._busy -= 1


def _image_size(image_service: kubecontainer.ImageService, request: ImagePullRequest) -> int:
    try:
        return image_service.get_image_size(request.ctx, request.spec)
    except Exception as err:  # Only an event shows the size, and the image is present anyway.
        klog.v(4).info_s("Could not get the size of the pulled image", image=request.spec.image, err=err)
        return 0
