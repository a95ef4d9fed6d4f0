"""Log the progress of long image pulls.

The runtime responds only when a pull has ended. Until then the log can only show how long the pull has taken, and how
the images' file system fills.

Go: none
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from kubelet import container as kubecontainer
from kubelet.images.image_gc_manager import format_size
from pkg import golang, klog
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery.util.runtime import contain
from pkg.component_base.cli.flag import duration

# This is the time between two log lines about the same pull, in seconds.
REPORT_PERIOD = 15.0


@dataclass(frozen=True, eq=False, slots=True)
class _Pull:
    image: str
    pod: str
    # `started` is a time of the monotonic clock.
    started: float


class PullProgress:
    """Log the pulls that take long.

    This class is thread-safe, and its thread lives only while an image is being pulled.
    """

    def __init__(self, image_service: kubecontainer.ImageService, clock: clockpkg.Clock | None = None) -> None:
        self._image_service = image_service
        self._clock = clock or clockpkg.RealClock()
        # The lock guards the two fields below.
        self._lock = threading.Lock()
        self._pulls: list[_Pull] = []
        # This channel is closed when the last concurrent pull has ended, and the thread ends with it.
        self._idle: golang.Channel[None] = golang.Channel()

    @contextlib.contextmanager
    def watch(self, image: str, pod: str) -> Iterator[None]:
        """Watch the `with` block as a pull."""
        pull = _Pull(image, pod, self._clock.monotonic())
        with self._lock:
            if not self._pulls:
                self._start_locked()
            self._pulls.append(pull)
        try:
            yield
        finally:
            with self._lock:
                self._pulls.remove(pull)
                if not self._pulls:
                    self._idle.close()

    def _start_locked(self) -> None:
        self._idle = golang.Channel()
        try:
            golang.go(self._run, self._idle, name="image-pull-progress")
        except golang.ThreadError as err:
            # The image is pulled anyway.
            klog.error_s(err, "Failed to start the reports about long image pulls")

    def _run(self, idle: golang.Channel[None]) -> None:
        used: int | None = None
        while not golang.select(idle, self._clock.after(REPORT_PERIOD)).took(idle):
            with contain("Failed to report long image pulls"):
                used = self.report(used)

    def report(self, used_before: int | None) -> int | None:
        """Log one line for each long pull, and return the used bytes of the file system, if known."""
        now = self._clock.monotonic()
        with self._lock:
            pulls = [pull for pull in self._pulls if now - pull.started >= REPORT_PERIOD]
        if not pulls:
            return used_before
        used = self._used_bytes()
        growth = "unknown" if used is None or used_before is None else format_size(max(0, used - used_before))
        for pull in pulls:
            klog.info_s(
                "Image pull takes long",
                image=pull.image,
                pod=pull.pod,
                elapsed=duration.format_duration(round(now - pull.started)),
                imageFsUsed="unknown" if used is None else format_size(used),
                imageFsGrowth=growth,
            )
        return used

    def _used_bytes(self) -> int | None:
        ctx, cancel = golang.with_timeout(golang.background(), REPORT_PERIOD)
        try:
            info = self._image_service.image_fs_info(ctx)
        except Exception as err:  # An error only means that one value in a log line is missing.
            klog.v(4).info_s("Could not get the usage of the image filesystem", err=err)
            return None
        finally:
            cancel()
        return sum(fs.used_bytes.value for fs in info.image_filesystems)
