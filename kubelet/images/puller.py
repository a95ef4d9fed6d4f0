"""Does the pulls: one after the other, or several at a time.

Go: pkg/kubelet/images/puller.go
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import credentialprovider, golang, klog


@dataclass(frozen=True, slots=True)
class PullResult:
    """What came of a pull; err is None when it succeeded.

    pull_duration is in seconds, without the waiting.
    """

    image_ref: str = ""
    image_size: int = 0
    err: Exception | None = None
    pull_duration: float = 0.0
    credentials_used: credentialprovider.TrackedAuthConfig | None = None


@dataclass(frozen=True, slots=True)
class ImagePullRequest:
    """All that a pull needs."""

    ctx: golang.Context
    spec: kubecontainer.ImageSpec
    credentials: Sequence[credentialprovider.TrackedAuthConfig]
    pod_sandbox_config: runtimeapi.PodSandboxConfig | None


class ImagePuller(Protocol):
    """Go: imagePuller. Thread-safe."""

    def pull_image(self, request: ImagePullRequest) -> PullResult:
        """Blocks until the image was pulled or failed to be, or the request's context is done.

        # DIVERGES: Go hands the result over a channel that the caller at once waits on; here the caller's own
        # thread does the pull, which saves a thread per pull.
        """
        ...


class ParallelImagePuller:
    """At most max_parallel_image_pulls at a time; None or 0 means as many as are asked for."""

    def __init__(self, image_service: kubecontainer.ImageService, max_parallel_image_pulls: int | None) -> None:
        self._image_service = image_service
        limit = max_parallel_image_pulls or 0
        self._tokens: golang.Channel[None] | None = golang.Channel(limit) if limit >= 1 else None

    def pull_image(self, request: ImagePullRequest) -> PullResult:
        if self._tokens is None:
            return _pull(self._image_service, request)
        try:
            self._tokens.send(None, request.ctx)
        except golang.ContextError as err:
            return PullResult(err=err)
        try:
            return _pull(self._image_service, request)
        finally:
            self._tokens.recv()


class SerialImagePuller:
    """One pull at a time, in the order of asking."""

    def __init__(self, image_service: kubecontainer.ImageService) -> None:
        self._image_service = image_service
        # Guards the two below.
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: list[golang.Channel[None]] = []

    def pull_image(self, request: ImagePullRequest) -> PullResult:
        """See ImagePuller.

        DIVERGES: in Go a pod that was deleted meanwhile waits for its turn all the same.
        """
        try:
            self._wait_for_turn(request.ctx)
        except golang.ContextError as err:
            return PullResult(err=err)
        try:
            return _pull(self._image_service, request)
        finally:
            self._pass_turn()

    def _wait_for_turn(self, ctx: golang.Context) -> None:
        turn: golang.Channel[None] = golang.Channel(1)
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            self._waiting.append(turn)
        if golang.select(turn, ctx.done()).index == 0:
            return
        with self._lock:
            waiting = turn in self._waiting
            if waiting:
                self._waiting.remove(turn)
        if not waiting:
            # The turn came at the same time: it goes to the next one.
            self._pass_turn()
        raise ctx.err() or golang.Canceled()

    def _pass_turn(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.pop(0).send(None)
            else:
                self._busy = False


def _pull(image_service: kubecontainer.ImageService, request: ImagePullRequest) -> PullResult:
    start = time.monotonic()
    try:
        image_ref, credentials = image_service.pull_image(
            request.ctx, request.spec, request.credentials, request.pod_sandbox_config
        )
    except Exception as err:  # Whatever went wrong is the pull's result; the caller reports it.
        return PullResult(err=err, pull_duration=time.monotonic() - start)
    size = _image_size(image_service, request) if image_ref else 0
    return PullResult(image_ref, size, None, time.monotonic() - start, credentials)


def _image_size(image_service: kubecontainer.ImageService, request: ImagePullRequest) -> int:
    try:
        return image_service.get_image_size(request.ctx, request.spec)
    except Exception as err:  # The size is only told in an event: the image is there all the same.
        klog.v(4).info_s("Could not get the size of the pulled image", image=request.spec.image, err=err)
        return 0
