"""Keep the fake runtime's images."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import errors
from pkg import golang

_SIZE = 4_000_000


class FakeImages:
    """Keep images by name. Every image can be pulled unless `pull_errors` names it. All methods are thread-safe."""

    def __init__(
        self, now: Callable[[], int], sleep: Callable[[golang.Context, float], None], present: Iterable[str]
    ) -> None:
        self.pull_delay = 0.0  # Each pull takes this time, in seconds.
        self.pull_errors: dict[str, errors.RemoteError] = {}  # Pulling an image raises the error under its name.
        self.mountpoint = "/"
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()  # The lock guards _images.
        self._images: dict[str, runtimeapi.Image] = {}  # The keys are image ids.
        for name in present:
            self.add(name)

    def add(self, name: str, *, image_id: str = "", size: int = _SIZE, uid: int | None = None) -> str:
        """Add an image as if it had been pulled, and return its id. `uid` is the image's user."""
        image_id = image_id or image_id_of(name)
        with self._lock:
            image = self._images.setdefault(image_id, runtimeapi.Image(id=image_id, size=size))
            names = image.repo_digests if "@" in name else image.repo_tags
            if canonical_name(name) not in names and not name.startswith("sha256:"):
                names.append(canonical_name(name))
            if uid is not None:
                image.uid.value = uid
        return image_id

    def all(self) -> list[runtimeapi.Image]:
        """Return all images; callers must not change them."""
        with self._lock:
            return list(self._images.values())

    def find(self, name: str) -> runtimeapi.Image | None:
        """Find the image with this name, digest or id."""
        with self._lock:
            return self._find_locked(name)

    def _find_locked(self, name: str) -> runtimeapi.Image | None:
        if name in self._images:
            return self._images[name]
        wanted = canonical_name(name)
        for image in self._images.values():
            if wanted in image.repo_tags or wanted in image.repo_digests:
                return image
        return None

    def name_of(self, image_id: str) -> str:
        """Return the first tag of an image, which its containers report as their image, or "" if it has none."""
        with self._lock:
            image = self._images.get(image_id)
            return image.repo_tags[0] if image is not None and image.repo_tags else ""

    def list_images(self, ctx: golang.Context, request: Any) -> runtimeapi.ListImagesResponse:
        name = request.filter.image.image
        with self._lock:
            found = [self._find_locked(name)] if name else list(self._images.values())
            return runtimeapi.ListImagesResponse(images=[image for image in found if image is not None])

    def image_status(self, ctx: golang.Context, request: Any) -> runtimeapi.ImageStatusResponse:
        with self._lock:
            return runtimeapi.ImageStatusResponse(image=self._find_locked(request.image.image))

    def pull_image(self, ctx: golang.Context, request: Any) -> runtimeapi.PullImageResponse:
        self._sleep(ctx, self.pull_delay)
        name = request.image.image
        if name in self.pull_errors:
            raise self.pull_errors[name]
        return runtimeapi.PullImageResponse(image_ref=self.add(name))

    def remove_image(self, ctx: golang.Context, request: Any) -> runtimeapi.RemoveImageResponse:
        with self._lock:
            image = self._find_locked(request.image.image)
            if image is not None:
                del self._images[image.id]
        return runtimeapi.RemoveImageResponse()

    def image_fs_info(self, ctx: golang.Context, request: Any) -> runtimeapi.ImageFsInfoResponse:
        with self._lock:
            used = sum(image.size for image in self._images.values())
        usage = runtimeapi.FilesystemUsage(
            timestamp=self._now(),
            fs_id=runtimeapi.FilesystemIdentifier(mountpoint=self.mountpoint),
            used_bytes=runtimeapi.UInt64Value(value=used),
            inodes_used=runtimeapi.UInt64Value(value=len(self._images)),
        )
        return runtimeapi.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def image_id_of(name: str) -> str:
    """Return the id of an image with this name, which is the same in every run."""
    return "sha256:" + hashlib.sha256(canonical_name(name).encode()).hexdigest()


def not_found(name: str) -> errors.RemoteError:
    """Return the error of pulling an image that no registry has."""
    return errors.RemoteError(
        grpc.StatusCode.NOT_FOUND,
        f'failed to pull and unpack image "{name}": failed to resolve image: {name}: not found',
    )


def canonical_name(name: str) -> str:
    """Add the default tag to a name without a tag."""
    last = name.rsplit("/", 1)[-1]
    return name if ":" in last or "@" in last else f"{name}:latest"
