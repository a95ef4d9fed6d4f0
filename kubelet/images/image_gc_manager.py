"""Remove unused images when the disk is full or when they have not been used for a long time.

Go: pkg/kubelet/images/image_gc_manager.go
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kubelet import container as kubecontainer
from kubelet import events, metrics
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cri import errors as crierror
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.client_go.tools import record
from pkg.component_base import tracing
from pkg.component_base.cli.flag import duration

IMAGE_GARBAGE_COLLECTED_TOTAL_REASON_AGE = "age"
IMAGE_GARBAGE_COLLECTED_TOTAL_REASON_SPACE = "space"

_INSTRUMENTATION_SCOPE = "k8s.io/kubernetes/pkg/kubelet/images"
_DETECT_PERIOD = 5 * 60.0
_CACHE_PERIOD = 30.0

# A PostImageGCHook is called after a collection with the ids of the remaining images and the time when it began.
PostImageGCHook = Callable[[golang.Context, list[str], datetime], None]


class StatsProvider(Protocol):
    """Define how the manager gets statistics of the file systems."""

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        """Return the statistics of the images' file system and of the containers' writable layers."""
        ...


@dataclass(frozen=True, slots=True)
class ImageGCPolicy:
    """Hold the limits: at high_threshold_percent of the disk, images are removed down to low_threshold_percent.

    Ages are in seconds. An image younger than min_age is never removed to free space, and an image that was unused for
    max_age is always removed, unless max_age is 0.
    """

    high_threshold_percent: int
    low_threshold_percent: int
    min_age: float = 0.0
    max_age: float = 0.0

    def validate(self) -> None:
        """Check the policy. Raise ValueError."""
        for name, value in (
            ("HighThresholdPercent", self.high_threshold_percent),
            ("LowThresholdPercent", self.low_threshold_percent),
        ):
            if not 0 <= value <= 100:
                raise ValueError(f"invalid {name} {value}, must be in range [0-100]")
        if self.low_threshold_percent > self.high_threshold_percent:
            raise ValueError(
                f"LowThresholdPercent {self.low_threshold_percent} can not be higher than"
                f" HighThresholdPercent {self.high_threshold_percent}"
            )


@dataclass(slots=True)
class _ImageRecord:
    id: str
    runtime_handler: str
    first_detected: datetime
    # None means that the image has not been seen in use.
    last_used: datetime | None = None
    size: int = 0
    pinned: bool = False


class ImageGCError(Exception):
    """Signal that not enough could be removed."""


class ImageGCManager:
    """Remove images according to a policy. This class is thread-safe.

    Go: realImageGCManager
    """

    def __init__(
        self,
        runtime: kubecontainer.Runtime,
        stats_provider: StatsProvider,
        post_gc_hooks: Iterable[PostImageGCHook],
        recorder: record.EventRecorder,
        node_ref: v1.ObjectReference,
        policy: ImageGCPolicy,
        clock: clock_.Clock,
        tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
    ) -> None:
        """Create a manager. Raise ValueError if the policy is invalid."""
        policy.validate()
        self._tracer = tracer_provider.tracer(_INSTRUMENTATION_SCOPE)
        self._runtime = runtime
        self._stats_provider = stats_provider
        self._post_gc_hooks = tuple(post_gc_hooks)
        self._recorder = recorder
        self._node_ref = node_ref
        self._policy = policy
        self._clock = clock
        # This counter numbers the detections of images, in the order in which they began.
        self._looks = itertools.count()
        # The lock guards the three fields below.
        self._lock = threading.Lock()
        # The keys of the records are image ids, with the runtime handler if the feature gate is on.
        self._image_records: dict[str, _ImageRecord] = {}
        # The records come from the detection with this number.
        self._last_look = -1
        # The images are sorted by size, largest first. The list is replaced as a whole.
        self._image_cache: list[kubecontainer.Image] = []

    def start(self, ctx: golang.Context) -> None:
        """Detect the use of images, and update the image list for the node's status, until ctx is done."""
        golang.go(wait.until, lambda: self._monitor(ctx), _DETECT_PERIOD, ctx, name="image-gc-monitor")
        golang.go(wait.until, lambda: self._update_cache(ctx), _CACHE_PERIOD, ctx, name="image-cache")

    def _monitor(self, ctx: golang.Context) -> None:
        try:
            self._detect_images(ctx, self._clock.steady())
        except crierror.RemoteError as err:
            klog.info_s("Failed to monitor images", err=err)

    def _update_cache(self, ctx: golang.Context) -> None:
        try:
            images = self._runtime.list_images(ctx)
        except crierror.RemoteError as err:
            klog.info_s("Failed to update image list", err=err)
            return
        images = sorted(images, key=lambda image: image.size, reverse=True)
        with self._lock:
            self._image_cache = images

    def get_image_list(self) -> list[kubecontainer.Image]:
        """Return the images as last listed, largest first. The list is shared, and callers must not change it."""
        with self._lock:
            return self._image_cache

    def _detect_images(self, ctx: golang.Context, detect_time: datetime) -> set[str]:
        """Update the records, and return the keys of the images in use.

        DIVERGES (fault of Go): the result of a slow detection is dropped if a later detection has ended before it.
        Go: pkg/kubelet/images/image_gc_manager.go, (*realImageGCManager).detectImages: the Go kubelet removes the
        record of an image that was pulled after the slow detection had listed the images.
        Why: a garbage collection would then not report the image as remaining, its pull record would be removed, and
        every pod could use the image.
        Test: image_gc_manager_test.py:test_a_look_that_takes_long_undoes_no_later_one
        """
        look = next(self._looks)
        images = self._runtime.list_images(ctx)
        in_use = self._images_in_use(ctx, images)
        now = self._clock.steady()
        with self._lock:
            if look < self._last_look:
                return in_use
            self._last_look = look
            current = {_image_key(image.id, image.spec.runtime_handler): image for image in images}
            for key, image in current.items():
                found = self._image_records.get(key)
                if found is None:
                    found = _ImageRecord(image.id, image.spec.runtime_handler, detect_time)
                    self._image_records[key] = found
                if key in in_use:
                    found.last_used = now
                found.size = image.size
                found.pinned = image.pinned
            for key in self._image_records.keys() - current.keys():
                klog.v(5).info_s("Image ID is no longer present; removing from imageRecords", imageID=key)
                del self._image_records[key]
        return in_use

    def _images_in_use(self, ctx: golang.Context, images: list[kubecontainer.Image]) -> set[str]:
        ids = {image.id for image in images}
        in_use: set[str] = set()
        for pod in self._runtime.get_pods(ctx, True):
            for container in pod.containers:
                in_use.add(_image_key(container.image_id, container.image_runtime_handler))
                in_use |= self._mounted_images(ctx, pod, container) & ids
        return in_use

    def _mounted_images(
        self, ctx: golang.Context, pod: kubecontainer.Pod, container: kubecontainer.Container
    ) -> set[str]:
        """Return the images of the container's image volumes.

        Go: handleImageVolumes
        """
        try:
            status = self._runtime.get_container_status(ctx, pod.id, container.id)
        except crierror.RemoteError as err:
            # DIVERGES (fault of Go): a container that was removed after the listing uses no images.
            # Go: pkg/kubelet/images/image_gc_manager.go, (*realImageGCManager).handleImageVolumes: in the Go kubelet
            # the error ends the whole collection.
            # Why: on a node where containers often start and stop, no image would be removed.
            # Test: image_gc_manager_test.py:test_container_removed_meanwhile_does_not_stop_the_collection
            if crierror.is_not_found(err):
                return set()
            raise
        return {mount.image.image for mount in status.mounts if mount.image is not None}

    def garbage_collect(self, ctx: golang.Context, began_gc: datetime) -> None:
        """Apply the policy. began_gc is the time of the steady clock when the kubelet started to collect garbage.

        Raise ImageGCError, crierror.RemoteError, and the errors of the stats provider.
        """
        with self._tracer.start(ctx, "Images/GarbageCollect") as span:
            self._garbage_collect(span.ctx, began_gc)

    def _garbage_collect(self, ctx: golang.Context, began_gc: datetime) -> None:
        free_time = self._clock.steady()
        images = self._images_in_eviction_order(ctx, free_time)
        images = self._free_old_images(ctx, images, free_time, began_gc)
        stats, _ = self._stats_provider.image_fs_stats(ctx)
        capacity = stats.capacity_bytes or 0
        available = min(stats.available_bytes or 0, capacity)
        if capacity == 0:
            message = "invalid capacity 0 on image filesystem"
            self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, events.INVALID_DISK_CAPACITY, message)
            raise ImageGCError(message)
        usage_percent = 100 - available * 100 // capacity
        if usage_percent >= self._policy.high_threshold_percent:
            self._free_to_low_threshold(ctx, images, free_time, capacity, available, usage_percent)

    def _free_to_low_threshold(
        self,
        ctx: golang.Context,
        images: list[_ImageRecord],
        free_time: datetime,
        capacity: int,
        available: int,
        usage_percent: int,
    ) -> None:
        low = self._policy.low_threshold_percent
        amount_to_free = capacity * (100 - low) // 100 - available
        klog.info_s(
            "Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold",
            usage=usage_percent,
            highThreshold=self._policy.high_threshold_percent,
            amountToFree=amount_to_free,
            lowThreshold=low,
        )
        freed = self._free_space(ctx, amount_to_free, free_time, images)
        self._run_post_gc_hooks(ctx, free_time)
        if freed < amount_to_free:
            message = (
                f"Insufficient free disk space on the node's image filesystem ({usage_percent}% of"
                f" {format_size(capacity)} used). Failed to free sufficient space by deleting unused images"
                f" (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs,"
                " volumes, or other data."
            )
            self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, events.FREE_DISK_SPACE_FAILED, message)
            raise ImageGCError(message)

    def _run_post_gc_hooks(self, ctx: golang.Context, gc_start: datetime) -> None:
        """Call the hooks with all remaining images.

        DIVERGES (fault of Go): the hooks learn of every remaining image.
        Go: pkg/kubelet/images/image_gc_manager.go, (*realImageGCManager).freeSpace: the Go kubelet omits images that
        are in use or pinned, and those that come after the last removed one.
        Why: the hook removes the pull records of images that are not in the list, and then every pod may use these
        images.
        Test: image_gc_manager_test.py:test_delete_unused_images_keeps_used_pinned_and_mounted_ones,
        image_gc_manager_test.py:test_images_behind_the_last_one_removed_are_told_as_left
        """
        with self._lock:
            remaining = [image.id for image in self._image_records.values()]
        for hook in self._post_gc_hooks:
            hook(ctx, remaining, clock_.from_steady(self._clock, gc_start))

    def _free_old_images(
        self,
        ctx: golang.Context,
        images: list[_ImageRecord],
        free_time: datetime,
        began_gc: datetime,
    ) -> list[_ImageRecord]:
        """Remove the images that were unused for max_age, and return the others.

        DIVERGES (fault of Go): the hooks also run after images were removed for their age.
        Go: pkg/kubelet/images/image_gc_manager.go, (*realImageGCManager).GarbageCollect: the Go kubelet runs the hooks
        only after it has freed space.
        Why: the pull records of the removed images would stay and accumulate.
        Test: image_gc_manager_test.py:test_old_image_goes_however_empty_the_disk
        """
        max_age = self._policy.max_age
        # Before the kubelet has observed the images for this time, it cannot know when an image was last used.
        if max_age == 0 or (free_time - began_gc).total_seconds() <= max_age:
            return images
        errors: list[Exception] = []
        remaining: list[_ImageRecord] = []
        for image in images:
            used = image.last_used
            if used is not None and (free_time - used).total_seconds() <= max_age:
                remaining.append(image)
                continue
            try:
                self._free_image(ctx, image, IMAGE_GARBAGE_COLLECTED_TOTAL_REASON_AGE)
            except Exception as err:  # A fault of one image must not prevent the removal of the others.
                errors.append(err)
        if errors:
            age = duration.format_duration(max_age)
            raise ImageGCError(
                f"wanted to free images older than {age}, encountered errors in image deletion: {_join(errors)}"
            )
        if len(remaining) < len(images):
            self._run_post_gc_hooks(ctx, free_time)
        return remaining

    def delete_unused_images(self, ctx: golang.Context) -> None:
        """Remove all images that are unused and old enough. Raise ImageGCError or crierror.RemoteError on failure."""
        klog.info_s("Attempting to delete unused images")
        free_time = self._clock.steady()
        images = self._images_in_eviction_order(ctx, free_time)
        self._free_space(ctx, None, free_time, images)
        self._run_post_gc_hooks(ctx, free_time)

    def _free_space(
        self,
        ctx: golang.Context,
        bytes_to_free: int | None,
        free_time: datetime,
        images: list[_ImageRecord],
    ) -> int:
        """Free space, and return the freed bytes. None frees as much as possible. Raise ImageGCError."""
        errors: list[Exception] = []
        freed = 0
        for image in images:
            if self._too_young(image, free_time):
                continue
            try:
                self._free_image(ctx, image, IMAGE_GARBAGE_COLLECTED_TOTAL_REASON_SPACE)
            except Exception as err:  # A fault of one image must not prevent the removal of the others.
                errors.append(err)
                continue
            freed += image.size
            if bytes_to_free is not None and freed >= bytes_to_free:
                break
        if errors:
            wanted = "all" if bytes_to_free is None else bytes_to_free
            raise ImageGCError(
                f"wanted to free {wanted} bytes, but freed {freed}"
                f" bytes space with errors in image deletion: {_join(errors)}"
            )
        return freed

    def _too_young(self, image: _ImageRecord, free_time: datetime) -> bool:
        if image.last_used is not None and image.last_used >= free_time:
            return True
        # A container may be about to use an image that was just pulled.
        return (free_time - image.first_detected).total_seconds() < self._policy.min_age

    def _free_image(self, ctx: golang.Context, image: _ImageRecord, reason: str) -> None:
        klog.info_s(
            "Removing image to free bytes",
            imageID=image.id,
            size=image.size,
            runtimeHandler=image.runtime_handler,
        )
        spec = kubecontainer.ImageSpec(image=image.id, runtime_handler=image.runtime_handler)
        self._runtime.remove_image(ctx, spec)
        with self._lock:
            self._image_records.pop(_image_key(image.id, image.runtime_handler), None)
        metrics.IMAGE_GARBAGE_COLLECTED_TOTAL.labels(reason).inc()

    def _images_in_eviction_order(self, ctx: golang.Context, free_time: datetime) -> list[_ImageRecord]:
        """Return the images that are neither used nor pinned: never used first, then the longest unused."""
        in_use = self._detect_images(ctx, free_time)
        with self._lock:
            records = [r for key, r in self._image_records.items() if key not in in_use and not r.pinned]
        never = datetime.min.replace(tzinfo=free_time.tzinfo)
        return sorted(records, key=lambda r: (r.last_used or never, r.first_detected))


def _join(errors: list[Exception]) -> str:
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _image_key(image_id: str, runtime_handler: str) -> str:
    if runtime_handler and features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
        return f"{image_id},{runtime_handler}"
    return image_id


def format_size(size_bytes: int) -> str:
    """Return a number of bytes for people: 1.5 GiB."""
    size = float(size_bytes)
    if size < 1024:
        return f"{size_bytes} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
