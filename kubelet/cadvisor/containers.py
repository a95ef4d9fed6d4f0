"""Find the container or sandbox to which a cgroup belongs, with its labels and its image.

Go: github.com/google/cadvisor/container/containerd (handler.go, factory.go)
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

from kubelet.cri import apis as internalapi
from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.apimachinery import clock

_ID = re.compile(r"[a-z0-9]{64}")
# The kubelet asks the runtime again for an unknown id after this time, in seconds, because the runtime may register a
# container late.
_RETRY_AFTER = 10.0
# The timeout, in seconds, applies to the call that lists all images, and to all calls together that get the images of
# new sandboxes, one call for each sandbox. Only the metrics pages show these images, but the eviction manager waits for
# the responses too.
IMAGES_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Container:
    """Describe what the runtime knows about a container or a sandbox. The sandbox owns its pod's network."""

    id: str
    labels: dict[str, str]
    image: str
    is_sandbox: bool


class Containers(Protocol):
    """Define what the manager needs from an index of the runtime's containers by id. All methods are thread-safe."""

    def learn(self, ids: Collection[str]) -> None:
        """Load these containers, so that `get` finds those that the runtime knows."""
        ...

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget all containers except these, which are the ones that have a cgroup."""
        ...

    def get(self, id: str) -> Container | None: ...


def container_id(name: str) -> str:
    """Return the container id in a cgroup's name, or "" if the cgroup is not a container's.

    CRI-O's monitor processes are not containers.
    """
    base = name.rpartition("/")[2]
    if base.endswith(".mount") or base.startswith("crio-conmon-"):
        return ""
    match = _ID.search(base)
    return match[0] if match else ""


class NoContainers:
    """Serve callers that have no runtime."""

    def learn(self, ids: Collection[str]) -> None:
        """Do nothing, because there is no runtime."""

    def forget_others(self, ids: Collection[str]) -> None:
        """Do nothing, because no container is known."""

    def get(self, id: str) -> Container | None:
        return None


class RuntimeContainers:
    """Ask the runtime through the CRI, and only for ids whose data is incomplete, because an id's data never changes.

    DIVERGES (fault of Go): the kubelet asks the runtime that runs the pods, at its configured address.
    Go: github.com/google/cadvisor/container/containerd/factory.go, Register: cAdvisor asks containerd through
    containerd's own API, at the default address.
    Why: the container metrics would have no labels if the runtime listens at another address.
    Test: containers_test.py:test_containers_and_sandboxes
    """

    def __init__(
        self,
        runtime_service: internalapi.RuntimeService,
        image_service: internalapi.ImageManagerService,
        clock_: clock.Clock | None = None,
    ) -> None:
        self._runtime_service = runtime_service
        self._image_service = image_service
        self._clock = clock_ or clock.RealClock()
        self._lock = threading.Lock()  # The lock guards the following fields.
        self._known: dict[str, Container] = {}
        # The values are the monotonic times, in seconds, of the last request for each id that is unknown or lacks its
        # image.
        self._incomplete: dict[str, float] = {}
        # These ids had no cgroup for the first time in the last call of `forget_others`.
        self._missing: set[str] = set()

    def get(self, id: str) -> Container | None:
        with self._lock:
            return self._known.get(id)

    def learn(self, ids: Collection[str]) -> None:
        """Load these containers. Two threads that ask for the same id at once may both ask the runtime."""
        now = self._clock.monotonic()
        with self._lock:
            missing = {id for id in ids if self._is_due_locked(id, now)}
        if not missing:
            return
        try:
            found, unnamed = self._ask(golang.background(), missing)
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to list the containers of cgroups")
            return
        # The pause before the next attempt begins now, because the call may have taken longer than the pause.
        now = self._clock.monotonic()
        with self._lock:
            self._known.update(found)
            for id in missing:
                self._incomplete.pop(id, None)
            self._incomplete.update(dict.fromkeys((missing - found.keys()) | unnamed, now))

    def _is_due_locked(self, id: str, now: float) -> bool:
        """Report whether the runtime must be asked for this id."""
        asked = self._incomplete.get(id)
        return id not in self._known if asked is None else now - asked >= _RETRY_AFTER

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget the ids that are missing in this call and were missing in the last one.

        An id that is missing for the first time may be newer than the caller's list, because another thread has just
        loaded it.
        """
        with self._lock:
            missing = (self._known.keys() | self._incomplete.keys()) - set(ids)
            for id in missing & self._missing:
                self._known.pop(id, None)
                self._incomplete.pop(id, None)
            self._missing = missing - self._missing

    def _ask(self, ctx: golang.Context, ids: set[str]) -> tuple[dict[str, Container], set[str]]:
        """Return the runtime's data for these ids, and the ids whose images are still unknown.

        Raise crierror.RemoteError.
        """
        found: dict[str, Container] = {}
        unnamed: set[str] = set()
        listed = self._runtime_service.list_containers(ctx, None)
        containers = [container for container in listed if container.id in ids]
        if containers:
            images = self._images(ctx)
            for container in containers:
                image = (images or {}).get(container.image_ref, container.image.image)
                found[container.id] = Container(container.id, dict(container.labels), image, is_sandbox=False)
            if images is None:
                unnamed.update(found)
        if ids - found.keys():
            sandboxes = [sandbox for sandbox in self._runtime_service.list_pod_sandbox(ctx, None) if sandbox.id in ids]
            told = self._sandbox_images(ctx, [sandbox.id for sandbox in sandboxes])
            for sandbox in sandboxes:
                image = told.get(sandbox.id, "")
                found[sandbox.id] = Container(sandbox.id, dict(sandbox.labels), image, is_sandbox=True)
            unnamed.update({sandbox.id for sandbox in sandboxes} - told.keys())
        return found, unnamed

    def _images(self, ctx: golang.Context) -> dict[str, str] | None:
        """Return the name of each image by its id, or None if the call fails."""
        limited, cancel = golang.with_timeout(ctx, IMAGES_TIMEOUT)
        try:
            images = self._image_service.list_images(limited, None)
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to list the images of containers")
            return None
        finally:
            cancel()
        return {image.id: next(iter([*image.repo_tags, *image.repo_digests]), image.id) for image in images}

    def _sandbox_images(self, ctx: golang.Context, ids: Sequence[str]) -> dict[str, str]:
        """Return the images of sandboxes by sandbox id, without those that were not reached before the timeout.

        A call that reaches the timeout ends the loop. If it was the first call, it had the whole time, and the sandbox
        gets an empty image. Otherwise a sandbox whose call hangs would be asked for each time, and no other sandbox
        would be reached.
        """
        images: dict[str, str] = {}
        limited, cancel = golang.with_timeout(ctx, IMAGES_TIMEOUT)
        try:
            for id in ids:
                image = self._sandbox_image(limited, id)
                if image is not None:
                    images[id] = image
                elif not images:
                    images[id] = ""
                if image is None or limited.err() is not None:
                    break
        finally:
            cancel()
        return images

    def _sandbox_image(self, ctx: golang.Context, id: str) -> str | None:
        """Return the image of the sandbox's pause process.

        Return "" if the runtime does not report the image, and None if the call times out.
        """
        try:
            status = self._runtime_service.pod_sandbox_status(ctx, id, True)
            told = json.loads(status.info.get("info", "{}"))
        except (crierror.RemoteError, ValueError, RecursionError) as err:
            klog.v(4).info_s("Failed to get the image of a sandbox", podSandboxID=id, err=err)
            is_slow = isinstance(err, crierror.RemoteError) and err.code is grpc.StatusCode.DEADLINE_EXCEEDED
            return None if is_slow else ""
        return str(told.get("image", "")) if isinstance(told, dict) else ""
