"""Unmounts that fail because somebody still uses the mount: told once, and tried again as soon as that one ends.

DIVERGES (safer): an event of the pod names the processes and mounts that keep its volume from being unmounted, and the
unmount is tried again as soon as such a process ends.
Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).GenerateUnmountVolumeFunc: the
unmount is tried again after ever longer pauses, and the log says only that the target is busy.
Why: whoever operates the node can end what is in the way.
Test: stuck_unmounts_test.py:test_holder_is_named_once_and_its_end_is_a_reason_to_try_again,
stuck_unmounts_test.py:test_mount_on_the_mount_is_named
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kubelet import events as kevents
from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime import contain
from pkg.util import mountholders, removeall
from pkg.volume.util import types as volumetypes
from pkg.volume.util.operationexecutor.operation_executor import AttachedVolume, MountedVolume, VolumeLogger

if TYPE_CHECKING:
    from pkg.client_go.tools import record

# How many of a volume's holders are watched, each by a descriptor. The volume is free when the last has ended, so that
# the end of any one of them tells little when there are more.
MAX_WATCHED_HOLDERS = 32
# How many holders a message names.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Failure:
    """An unmount that failed."""

    volume_name: str
    volume: VolumeLogger
    # Empty for a device, which is no pod's.
    pod_uid: types.UID
    # Where mounts of the volume are, or below.
    paths: tuple[str, ...]
    err: Exception


class StuckUnmounts:
    """Finds out who holds what could not be unmounted. Safe from any thread.

    A holder is watched by a thread that ends with it, or when the volume is unmounted, or with close.
    """

    def __init__(
        self,
        recorder: record.EventRecorder,
        node_ref: v1.ObjectReference,
        find_pod: Callable[[types.UID], v1.Pod | None],
        proc: str = mountholders.PROC,
    ) -> None:
        """find_pod gives the pod of a uid; what concerns no pod, or one that is gone, is told of the node."""
        self._recorder = recorder
        self._node_ref = node_ref
        self._find_pod = find_pod
        self._proc = proc
        self._lock = threading.Lock()  # guards the rest
        # By volume and pod.
        self._failures: dict[tuple[str, str], _Failure] = {}
        # Those that nobody has looked into since they failed last.
        self._fresh: set[tuple[str, str]] = set()
        # What was told last, so that it is not told again.
        self._told: dict[tuple[str, str], frozenset[int]] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}
        # Pods whose workers wait until all is unmounted, by uid; others may not know them any more.
        self._waiting: dict[types.UID, v1.Pod] = {}
        self._closed = False

    def watch_volume(
        self, operations: volumetypes.GeneratedOperations, volume: MountedVolume, pods_dir: str
    ) -> volumetypes.GeneratedOperations:
        """The operations, and their outcome noted."""
        # mountinfo knows no links.
        pod_dir = os.path.join(os.path.realpath(pods_dir), volume.pod_uid)
        name = volume.inner_volume_spec_name
        paths = (
            os.path.join(pod_dir, "volumes", volume.plugin_name.replace("/", "~"), name),
            os.path.join(pod_dir, "volume-subpaths", name),
        )
        return self._watch(operations, volume.volume_name, volume, volume.pod_uid, paths)

    def watch_device(
        self, operations: volumetypes.GeneratedOperations, device: AttachedVolume
    ) -> volumetypes.GeneratedOperations:
        """The operations, and their outcome noted."""
        parent, name = os.path.split(device.device_mount_path)
        paths = (os.path.join(os.path.realpath(parent), name),) if name else ()
        return self._watch(operations, device.volume_name, device, types.UID(""), paths)

    @contextlib.contextmanager
    def waiting(self, pod: v1.Pod) -> Iterator[None]:
        """In its block somebody waits until the pod's volumes are unmounted."""
        uid = pod.metadata.uid
        with self._lock:
            self._waiting[uid] = pod
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(uid, None)

    def investigate(self, retry: Callable[[str], None]) -> None:
        """Look into what failed since the last call. retry is called with the volume's name when its holder ends."""
        with self._lock:
            fresh, self._fresh = self._fresh, set()
            failures = [(key, self._failures[key]) for key in fresh]
        for key, failure in failures:
            message = "Could not find out who holds a volume"
            with contain(message, golang.background(), volumeName=failure.volume_name):
                self._investigate(key, failure, retry)

    def close(self) -> None:
        """End all watches."""
        with self._lock:
            self._closed = True
            watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.stop()

    def _watch(
        self,
        operations: volumetypes.GeneratedOperations,
        volume_name: str,
        volume: VolumeLogger,
        pod_uid: types.UID,
        paths: tuple[str, ...],
    ) -> volumetypes.GeneratedOperations:
        complete = operations.complete_func

        def complete_func(param: volumetypes.CompleteFuncParam) -> None:
            if complete is not None:
                complete(param)
            if param.err is None:
                self._forget((volume_name, pod_uid))
            else:
                self._remember((volume_name, pod_uid), _Failure(volume_name, volume, pod_uid, paths, param.err))

        return replace(operations, complete_func=complete_func)

    def _remember(self, key: tuple[str, str], failure: _Failure) -> None:
        with self._lock:
            self._failures[key] = failure
            self._fresh.add(key)

    def _forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            self._failures.pop(key, None)
            self._fresh.discard(key)
            self._told.pop(key, None)
            watch = self._watches.pop(key, None)
        if watch is not None:
            watch.stop()

    def _investigate(self, key: tuple[str, str], failure: _Failure, retry: Callable[[str], None]) -> None:
        mounts = mountholders.mounts_at_or_below(failure.paths, os.path.join(self._proc, "self", "mountinfo"))
        if not mounts:
            return  # it failed for another reason
        holders = mountholders.find_holders(mounts, self._proc)
        if holders:
            self._tell(key, failure, f"{mounts[0].mount_point} is held by {_named(holders)}", holders)
        elif (nested := _nested(mounts)) is not None:
            self._tell(key, failure, f"{nested.mount_point} is mounted below it", holders)
        elif isinstance(failure.err.__cause__, removeall.MountedError):
            self._tell(key, failure, str(failure.err.__cause__), holders)
        if not holders:
            return
        # We ourselves do not end, but what we do there does; the next regular attempt will tell.
        others = [holder.pid for holder in holders if holder.pid != os.getpid()]
        watch = _Watch(others[:MAX_WATCHED_HOLDERS], lambda: retry(failure.volume_name))
        with self._lock:
            # When another attempt has failed meanwhile, the next call may come only after a rest: watch until then.
            if self._closed or key not in self._failures:
                return  # unmounted meanwhile
            old = self._watches.get(key)
            self._watches[key] = watch
        if old is not None:
            old.stop()
        try:
            watch.start()
        except Exception:
            # The next regular attempt to unmount looks again.
            with self._lock:
                if self._watches.get(key) is watch:
                    del self._watches[key]
            raise

    def _tell(self, key: tuple[str, str], failure: _Failure, why: str, holders: Sequence[mountholders.Holder]) -> None:
        pids = frozenset(holder.pid for holder in holders)
        with self._lock:
            if self._told.get(key) == pids:
                return
            self._told[key] = pids
            pod = self._waiting.get(failure.pod_uid)
        simple, detailed = failure.volume.generate_msg("Unmount failed", f": {why}")
        if pod is None and failure.pod_uid:
            pod = self._find_pod(failure.pod_uid)
        self._recorder.event(pod or self._node_ref, v1.EVENT_TYPE_WARNING, kevents.FAILED_UNMOUNT_VOLUME, simple)
        klog.warning_s(detailed, err=str(failure.err))


def _named(holders: Sequence[mountholders.Holder]) -> str:
    named = ", ".join(str(holder) for holder in holders[:_NAMED])
    return named + (f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else "")


def _nested(mounts: Sequence[mount_utils.MountInfo]) -> mount_utils.MountInfo | None:
    """The first that is on another one of them, which is busy because of it."""
    ids = {info.id for info in mounts}
    return next((info for info in mounts if info.parent_id in ids), None)


class _Watch:
    """Waits for the first of some processes to end, on a thread of its own."""

    def __init__(self, pids: Sequence[int], on_end: Callable[[], None]) -> None:
        self._pids = pids
        self._on_end = on_end
        self._lock = threading.Lock()  # guards _stop and _stopped
        # Wakes the thread; None while there is none.
        self._stop: int | None = None
        self._stopped = False

    def start(self) -> None:
        with self._lock:
            if self._stopped:
                return
            stop = self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            golang.go(self._run, stop, name="stuck-unmount")
        except golang.ThreadError:
            with self._lock:
                self._stop = None
            os.close(stop)
            raise

    def stop(self) -> None:
        """End the wait, before or after it began; on_end is not called any more, unless it just is."""
        with self._lock:
            self._stopped = True
            if self._stop is not None:
                os.eventfd_write(self._stop, 1)

    def _run(self, stop: int) -> None:
        with contain("Failed to have a volume unmounted again", golang.background()):
            if self._wait(stop):
                self._on_end()

    def _wait(self, stop: int) -> bool:
        """Whether a process has ended; if not, the wait has."""
        descriptors: list[int] = []
        try:
            ended = self._open(descriptors)
            poller = select.poll()
            for descriptor in (stop, *descriptors):
                poller.register(descriptor, select.POLLIN)
            if not ended:
                poller.poll()
        finally:
            with self._lock:
                self._stop = None
            for descriptor in (stop, *descriptors):
                os.close(descriptor)
        return not self._stopped

    def _open(self, descriptors: list[int]) -> bool:
        """Add descriptors of the processes; whether one has ended already."""
        for pid in self._pids:
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                return True
            except OSError as err:
                klog.error_s(err, "Could not watch a process that holds a volume", pid=pid)
        return False
