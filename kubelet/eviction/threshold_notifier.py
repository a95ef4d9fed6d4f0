"""Has the kernel tell when a cgroup's memory crosses a threshold.

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
    """Tells whenever the figure in that file of the cgroup crosses the threshold, either way. Raises OSError.

    Cgroups of version 2 cannot say that: with them it tells that processes have to wait for memory, or nothing where
    the kernel does not know that either.

    DIVERGES (preference: kernelMemcgNotification): with cgroups of version 2, a wait for memory wakes the kubelet.
    Go: pkg/kubelet/eviction/threshold_notifier_linux.go, NewCgroupNotifier: nothing does, whatever the setting is.
    Why: who turns the setting on wants a lack of memory seen before the next look, up to ten seconds later.
    Test: memory_threshold_notifier_test.py:test_a_cgroup_of_version_2_tells_of_waiting
    """
    if not is_cgroup2_unified_mode():
        return LinuxCgroupNotifier(path, attribute, threshold)
    try:
        return PressureNotifier(path)
    except FileNotFoundError:
        return DisabledThresholdNotifier()


class LinuxCgroupNotifier:
    """Asks for events over a descriptor that counts them. It is read, and stop wakes the reader; Go's polls."""

    def __init__(self, path: str, attribute: str, threshold: int) -> None:
        """Raises OSError."""
        self._lock = threading.Lock()  # guards _stopped, and that the descriptor is not closed while it is written to
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
        """Whether it has been stopped; returns when it has, or at the next event."""
        os.eventfd_read(self._eventfd)
        with self._lock:
            return self._stopped

    def stop(self) -> None:
        with self._lock:
            if not self._stopped:
                self._stopped = True
                os.eventfd_write(self._eventfd, 1)


class PressureNotifier:
    """Has the kernel tell when processes of a cgroup have lately waited a tenth of the time for memory.

    That is when what can be reclaimed at once has been, which is what the working set leaves out.
    """

    # Microseconds of waiting in so many. Windows of whole multiples of 2 s take no privilege.
    TRIGGER = b"some 200000 2000000\0"

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._file = os.open(os.path.join(path, "memory.pressure"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(self._file, self.TRIGGER)
            self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        except OSError:
            os.close(self._file)
            raise
        self._lock = threading.Lock()  # guards _stopped, and that the descriptor is not closed while it is written to
        self._stopped = False

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        forget = golang.after_func(ctx, self.stop)
        poll = select.poll()
        poll.register(self._file, select.POLLPRI)
        poll.register(self._stop, select.POLLIN)
        try:
            while (ready := dict(poll.poll())) and self._stop not in ready:
                if ready[self._file] & select.POLLERR:
                    return  # the cgroup has gone
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
    """Never tells anything."""

    def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
        pass

    def stop(self) -> None:
        pass


if TYPE_CHECKING:

    def _check(
        linux: LinuxCgroupNotifier, pressure: PressureNotifier, disabled: DisabledThresholdNotifier
    ) -> tuple[CgroupNotifier, ...]:
        return linux, pressure, disabled
