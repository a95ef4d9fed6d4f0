"""Let the kernel report when a cgroup's memory usage crosses a threshold.

Go: pkg/kubelet/eviction/threshold_notifier_linux.go
"""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kubelet.eviction.types import CgroupNotifier
from kubelet.util import is_cgroup2_unified_mode
from pkg import golang, klog


def new_cgroup_notifier(path: str, attribute: str, threshold: int) -> CgroupNotifier:
    """Return a notifier that reports when the value of the cgroup's file crosses the threshold, up or down.

    Cgroups v2 have no such events. On these nodes the notifier reports that processes wait for memory, or nothing if
    the kernel does not measure this either. Raise OSError.

    DIVERGES (preference: kernelMemcgNotification): with cgroups v2, processes that wait for memory wake the manager.
    Go: pkg/kubelet/eviction/threshold_notifier_linux.go, NewCgroupNotifier: in the Go kubelet the setting has no effect
    with cgroups v2.
    Why: an administrator who enables the setting wants a shortage of memory detected before the next check, up to ten
    seconds later.
    Test: memory_threshold_notifier_test.py:test_a_cgroup_of_version_2_tells_of_waiting
    """
    if not is_cgroup2_unified_mode():
        return LinuxCgroupNotifier(path, attribute, threshold)
    try:
        return PressureNotifier(path)
    except FileNotFoundError:
        return DisabledThresholdNotifier()


class LinuxCgroupNotifier:
    """Receive the kernel's events through an eventfd.

    A blocking read waits for events, and `stop` wakes the reader. The Go kubelet polls.
    """

    def __init__(self, path: str, attribute: str, threshold: int) -> None:
        """Register for the events. Raise OSError."""
        self._lock = threading.Lock()  # The lock guards _stopped, and prevents a write to the closed descriptor.
        self._stopped = False
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            self._register(path, attribute, threshold)
        except OSError:
            os.close(self._eventfd)
            raise

    def _register(self, path: str, attribute: str, threshold: int) -> None:
        cgroup = Path(path)
        with (cgroup / attribute).open("rb") as watched, (cgroup / "cgroup.event_control").open("wb", 0) as control:
            control.write(f"{self._eventfd} {watched.fileno()} {threshold}".encode())

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        forget = golang.after_func(ctx, self.stop)
        try:
            while not self._wait():
                event_ch.try_send(None)
        except OSError as err:
            klog.info_s("Eviction manager: error reading memcg events", err=err)
        finally:
            forget()
            with self._lock:
                self._stopped = True
                os.close(self._eventfd)

    def _wait(self) -> bool:
        """Wait for the next event or for `stop`. Report whether the notifier has been stopped."""
        os.eventfd_read(self._eventfd)
        with self._lock:
            return self._stopped

    def stop(self) -> None:
        with self._lock:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._eventfd, 1)


class PressureNotifier:
    """Let the kernel report when processes of a cgroup have recently waited for memory a tenth of the time.

    Processes wait when all memory that is easy to reclaim, which the working set excludes, has been reclaimed.
    """

    # The trigger is a waiting time within a window, both in microseconds. Windows of multiples of 2 s need no
    # privilege.
    TRIGGER = b"some 200000 2000000\0"

    def __init__(self, path: str) -> None:
        """Register the trigger. Raise OSError."""
        self._file = os.open(os.path.join(path, "memory.pressure"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(self._file, self.TRIGGER)
            self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        except OSError:
            os.close(self._file)
            raise
        self._lock = threading.Lock()  # The lock guards _stopped, and prevents a write to the closed descriptor.
        self._stopped = False

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        forget = golang.after_func(ctx, self.stop)
        poll = select.poll()
        poll.register(self._file, select.POLLPRI)
        poll.register(self._stop, select.POLLIN)
        try:
            while (ready := dict(poll.poll())) and self._stop not in ready:
                if ready[self._file] & select.POLLERR:
                    return  # The cgroup no longer exists.
                event_ch.try_send(None)
        finally:
            forget()
            with self._lock:
                self._stopped = True
                os.close(self._stop)
            os.close(self._file)

    def stop(self) -> None:
        with self._lock:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._stop, 1)


class DisabledThresholdNotifier:
    """Do nothing."""

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        pass

    def stop(self) -> None:
        pass


if TYPE_CHECKING:

    def _check(
        linux: LinuxCgroupNotifier, pressure: PressureNotifier, disabled: DisabledThresholdNotifier
    ) -> tuple[CgroupNotifier, ...]:
        return linux, pressure, disabled
