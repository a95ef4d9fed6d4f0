"""Whose a cgroup is: the container or sandbox of the runtime, with its labels and its image.

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
# Seconds until an id that the runtime does not know is asked for again: it may have been just about to learn it.
_RETRY_AFTER = 10.0
# Seconds for which the kubelet waits, each time, for the list of all images, and as many for the images of all new
# sandboxes, which take a call each. Pages of metrics only show these images, but the eviction manager waits for the
# answers too.
IMAGES_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Container:
    """What the runtime knows of a container, or of a sandbox: that has the network of its pod."""

    id: str
    labels: dict[str, str]
    image: str
    is_sandbox: bool


class Containers(Protocol):
    """The containers of the runtime by id. Safe from any thread."""

    def learn(self, ids: Collection[str]) -> None:
        """Make sure that get knows these, if the runtime does."""
        ...

    def forget_others(self, ids: Collection[str]) -> None:
        """All but these had no cgroup just now."""
        ...

    def get(self, id: str) -> Container | None: ...


def container_id(name: str) -> str:
    """The id in a cgroup's name; "" when it is no container's. CRI-O's monitors are none either."""
    base = name.rpartition("/")[2]
    if base.endswith(".mount") or base.startswith("crio-conmon-"):
        return ""
    match = _ID.search(base)
    return match[0] if match else ""


class NoContainers:
    """For whoever has no runtime to ask."""

    def learn(self, ids: Collection[str]) -> None:
        """There is nobody to learn from."""

    def forget_others(self, ids: Collection[str]) -> None:
        """Nobody is known."""

    def get(self, id: str) -> Container | None:
        return None


class RuntimeContainers:
    """Asks by CRI, and only when there is an id that is not known in full yet: what belongs to an id never changes.

    DIVERGES (fault of Go): the runtime that runs the pods is asked, whichever it is, and wherever it listens.
    Go: github.com/google/cadvisor/container/containerd/factory.go, Register: asks containerd by its own interface, at
    the address where it usually listens.
    Why: the metrics of containers of a runtime that listens elsewhere would have no labels.
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
        self._lock = threading.Lock()  # guards the following
        self._known: dict[str, Container] = {}
        # When an id was asked for that is not known, or whose image was not told, in monotonic seconds.
        self._incomplete: dict[str, float] = {}
        # Those that were missing for the first time when it was last told which ones there are.
        self._missing: set[str] = set()

    def get(self, id: str) -> Container | None:
        with self._lock:
            return self._known.get(id)

    def learn(self, ids: Collection[str]) -> None:
        """Two who ask at once for the same may both ask the runtime."""
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
        # The pause begins now: the runtime may have taken as long as that.
        now = self._clock.monotonic()
        with self._lock:
            self._known.update(found)
            for id in missing:
                self._incomplete.pop(id, None)
            self._incomplete.update(dict.fromkeys((missing - found.keys()) | unnamed, now))

    def _is_due_locked(self, id: str, now: float) -> bool:
        """Whether to ask for it."""
        asked = self._incomplete.get(id)
        return id not in self._known if asked is None else now - asked >= _RETRY_AFTER

    def forget_others(self, ids: Collection[str]) -> None:
        """What is missing for the first time may be younger than the caller's list: another has just learned of it."""
        with self._lock:
            missing = (self._known.keys() | self._incomplete.keys()) - set(ids)
            for id in missing & self._missing:
                self._known.pop(id, None)
                self._incomplete.pop(id, None)
            self._missing = missing - self._missing

    def _ask(self, ctx: golang.Context, ids: set[str]) -> tuple[dict[str, Container], set[str]]:
        """What the runtime knows of these, and those of them whose images it has not told, or not in time.

        Raises crierror.RemoteError.
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
        """What each image is called, by the id that containers name it with; None if the runtime does not tell."""
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
        """The images of sandboxes by their ids, without those for which there was no time.

        A call that takes too long ends the round. If it was the first one, the image is given up, for it had all the
        time there is: otherwise one sandbox that hangs would be asked for again and again, and no other ever.
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
        """The image of the process that keeps a sandbox; "" from a runtime that does not tell, None if it is slow."""
        try:
            status = self._runtime_service.pod_sandbox_status(ctx, id, True)
            told = json.loads(status.info.get("info", "{}"))
        except (crierror.RemoteError, ValueError, RecursionError) as err:
            klog.v(4).info_s("Failed to get the image of a sandbox", podSandboxID=id, err=err)
            is_slow = isinstance(err, crierror.RemoteError) and err.code is grpc.StatusCode.DEADLINE_EXCEEDED
            return None if is_slow else ""
        return str(told.get("image", "")) if isinstance(told, dict) else ""
