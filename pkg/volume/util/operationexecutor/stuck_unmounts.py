"""Report processes that keep volumes from being unmounted, and retry the unmount when such a process ends.

DIVERGES (safer): an event of the pod names the processes and mounts that keep its volume from being unmounted, and the
kubelet retries the unmount as soon as such a process ends.
Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).GenerateUnmountVolumeFunc: the Go
kubelet retries the unmount with a growing backoff, and its log says only that the target is busy.
Why: the operator of the node can end the process that is in the way.
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

# `MAX_WATCHED_HOLDERS` is the number of a volume's holders to watch, each with a file descriptor. The volume is free
# only when the last holder has ended, so with more holders the end of one of them means little.
MAX_WATCHED_HOLDERS = 32
# `_NAMED` is the number of holders that a message names.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Failure:
    """Describe an unmount that failed."""

    volume_name: str
    volume: VolumeLogger
    # `pod_uid` is empty for a device, which belongs to no pod.
    pod_uid: types.UID
    # `paths` holds the paths at or below which the volume's mounts are.
    paths: tuple[str, ...]
    err: Exception


class StuckUnmounts:
    """Find the processes that hold a volume that could not be unmounted. Every method is safe from any thread.

    A thread watches the holders. It ends with the first of them, when the volume is unmounted, or on close.
    """

    def __init__(
        self,
        recorder: record.EventRecorder,
        node_ref: v1.ObjectReference,
        find_pod: Callable[[types.UID], v1.Pod | None],
        proc: str = mountholders.PROC,
    ) -> None:
        """Create an instance; find_pod returns the pod with a UID, or None.

        An event about a device, or about a pod that no longer exists, goes to the node.
        """
        self._recorder = recorder
        self._node_ref = node_ref
        self._find_pod = find_pod
        self._proc = proc
        self._lock = threading.Lock()  # This lock guards the fields below.
        # `_failures` holds failed unmounts by volume and pod.
        self._failures: dict[tuple[str, str], _Failure] = {}
        # `_fresh` holds the failures that have not been investigated yet.
        self._fresh: set[tuple[str, str]] = set()
        # `_told` holds the holders of the last event, so that the event is not repeated.
        self._told: dict[tuple[str, str], frozenset[int]] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}
        # `_waiting` holds the pods whose workers wait for their unmounts, by UID. The pod manager may no longer know
        # these pods.
        self._waiting: dict[types.UID, v1.Pod] = {}
        self._closed = False

    def watch_volume(
        self, operations: volumetypes.GeneratedOperations, volume: MountedVolume, pods_dir: str
    ) -> volumetypes.GeneratedOperations:
        """Return the operations, extended so that their result is recorded here."""
        # The paths in mountinfo have no symbolic links.
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
        """Return the operations, extended so that their result is recorded here."""
        parent, name = os.path.split(device.device_mount_path)
        paths = (os.path.join(os.path.realpath(parent), name),) if name else ()
        return self._watch(operations, device.volume_name, device, types.UID(""), paths)

    @contextlib.contextmanager
    def waiting(self, pod: v1.Pod) -> Iterator[None]:
        """Register the pod while the block waits for its volumes to be unmounted."""
        uid = pod.metadata.uid
        with self._lock:
            self._waiting[uid] = pod
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(uid, None)

    def investigate(self, retry: Callable[[str], None]) -> None:
        """Investigate the failures since the last call. When a holder ends, retry is called with the volume's name."""
        with self._lock:
            fresh, self._fresh = self._fresh, set()
            failures = [(key, self._failures[key]) for key in fresh]
        for key, failure in failures:
            message = "Failed to find the processes that hold a volume"
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
            return  # The unmount failed for another reason.
        holders = mountholders.find_holders(mounts, self._proc)
        if holders:
            self._tell(key, failure, f"{mounts[0].mount_point} is held by {_named(holders)}", holders)
        elif (nested := _nested(mounts)) is not None:
            self._tell(key, failure, f"{nested.mount_point} is mounted below it", holders)
        elif isinstance(failure.err.__cause__, removeall.MountedError):
            self._tell(key, failure, str(failure.err.__cause__), holders)
        if not holders:
            return
        # The kubelet itself may be a holder. It does not end, but what it does there does, and the next regular attempt
        # will show it.
        others = [holder.pid for holder in holders if holder.pid != os.getpid()]
        watch = _Watch(others[:MAX_WATCHED_HOLDERS], lambda: retry(failure.volume_name))
        with self._lock:
            # If another attempt has failed meanwhile, the next call may come only after a pause, so keep watching until
            # then.
            if self._closed or key not in self._failures:
                return  # The volume was unmounted meanwhile.
            old = self._watches.get(key)
            self._watches[key] = watch
        if old is not None:
            old.stop()
        try:
            watch.start()
        except Exception:
            # The next regular attempt to unmount leads to another investigation.
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
    """Return the first mount whose parent is another one of these mounts, which keeps that parent busy."""
    ids = {info.id for info in mounts}
    return next((info for info in mounts if info.parent_id in ids), None)


class _Watch:
    """Wait, on a thread of its own, until the first of several processes ends."""

    def __init__(self, pids: Sequence[int], on_end: Callable[[], None]) -> None:
        self._pids = pids
        self._on_end = on_end
        self._lock = threading.Lock()  # This lock guards `_stop` and `_stopped`.
        # `_stop` is an event file descriptor that wakes the thread, or None while there is no thread.
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
        """End the wait, before or after it has started. on_end is not called any more, unless its call has begun."""
        with self._lock:
            self._stopped = True
            if self._stop is not None:
                os.eventfd_write(self._stop, 1)

    def _run(self, stop: int) -> None:
        with contain("Failed to retry an unmount", golang.background()):
            if self._wait(stop):
                self._on_end()

    def _wait(self, stop: int) -> bool:
        """Wait. Report whether a process has ended; False means that the wait was stopped."""
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
        """Open a descriptor of each process. Report whether one of the processes has already ended."""
        for pid in self._pids:
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                return True
            except OSError as err:
                klog.error_s(err, "Could not watch a process that holds a volume", pid=pid)
        return False
