"""Threads that remove the directories of orphaned pods, so that the sync loop need not wait for a disk.

Go: pkg/kubelet/kubelet_volumes.go (cleanupOrphanedPodDirs), which does all of it on the sync loop's goroutine
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubelet import metrics
from pkg import golang, klog
from pkg.apimachinery import clock, types
from pkg.apimachinery.util.runtime import contain

# Seconds for which the directory of a pod that is gone may stay before that is worth an event.
ORPHAN_PATIENCE = 20.0
# How many directories are removed at the same time; the others wait.
MAX_REMOVALS = 8
# Seconds for which one step of a pod waits until the directory of an earlier pod with the same uid is gone.
REMOVAL_TIMEOUT = 30.0


@dataclass(slots=True)
class _Stuck:
    """A directory that could not be removed: since when, by the monotonic clock, and whether that has been told."""

    since: float
    told: bool = False


class OrphanRemoval:
    """Has what housekeeping hands over removed, by one thread at most for each pod. Thread-safe.

    DIVERGES (safer): threads remove the directories of orphaned pods, and the sync loop does not wait for them.
    Go: pkg/kubelet/kubelet_volumes.go, (*Kubelet).cleanupOrphanedPodDirs: the sync loop removes them.
    Why: no pod would start while a slow disk removes many files.
    Test: orphan_removal_test.py:test_housekeeping_does_not_wait_for_the_disk
    """

    def __init__(
        self, clock: clock.Clock, remove: Callable[[types.UID], list[Exception]], tell: Callable[[types.UID, str], None]
    ) -> None:
        """remove(uid) looks whether the pod is an orphan still, and returns why its directory stays.

        tell(uid, reason) is called once for a directory that has stayed for ORPHAN_PATIENCE.
        """
        self._clock = clock
        self._remove = remove
        self._tell = tell
        self._lock = threading.Lock()  # guards the four below
        # Those that are to be looked at, the first handed over first.
        self._waiting: dict[types.UID, None] = {}
        # Those that a thread is at, with what is closed when it is through.
        self._removing: dict[types.UID, golang.Channel[None]] = {}
        self._stuck: dict[types.UID, _Stuck] = {}
        self._threads = 0

    def hand_over(self, ctx: golang.Context, uids: Iterable[types.UID]) -> None:
        """Have the directories of these pods removed, and of no other: what is not under way is forgotten.

        Raises golang.ThreadError; then call it again later.
        """
        orphaned = dict.fromkeys(uids)
        with self._lock:
            # A directory that fails slowly must not always come before those behind it.
            in_turn = [*(uid for uid in self._waiting if uid in orphaned), *orphaned]
            self._waiting = dict.fromkeys(uid for uid in in_turn if uid not in self._removing)
            self._stuck = {uid: stuck for uid, stuck in self._stuck.items() if uid in orphaned}
            self._count_stuck_locked()
            wanted = min(MAX_REMOVALS, self._threads + len(self._waiting))
            while self._threads < wanted:
                golang.go(self._work, ctx, name="orphaned-pod-directories")
                self._threads += 1

    def wait(self, ctx: golang.Context, uid: types.UID) -> None:
        """Wait until nothing of the pod is being removed; a pod that is wanted has nothing removed from then on.

        Raises TimeoutError after REMOVAL_TIMEOUT, and golang.ContextError when ctx ends first.
        """
        with self._lock:
            self._waiting.pop(uid, None)
            ended = self._removing.get(uid)
        if ended is None:
            return
        if not golang.select(ended, ctx.done(), timeout=REMOVAL_TIMEOUT).took(ended):
            raise ctx.err() or TimeoutError(f"the directory of an earlier pod with the uid {uid!r} is being removed")

    def _work(self, ctx: golang.Context) -> None:
        """Remove what waits, until nothing does or ctx ends."""
        while (uid := self._take(ctx)) is not None:
            err = self._try_to_remove(uid)
            if self._end(uid, stays=err is not None):
                with contain("Could not look into the directory of an orphaned pod", golang.background(), podUID=uid):
                    self._tell(uid, str(err))

    def _take(self, ctx: golang.Context) -> types.UID | None:
        """The pod to be looked at next; None ends the thread."""
        with self._lock:
            if ctx.err() is not None or not self._waiting:
                self._threads -= 1
                return None
            uid = next(iter(self._waiting))
            del self._waiting[uid]
            # Before anybody looks whether the pod is wanted: its worker sees this, or we see the pod.
            self._removing[uid] = golang.Channel(0)
            return uid

    def _try_to_remove(self, uid: types.UID) -> Exception | None:
        """Why the directory stays; None if it is gone."""
        try:
            errors = self._remove(uid)
        except Exception as err:  # whatever it is, the directories of other pods go
            klog.error_s(err, "Failed to clean up an orphaned pod", podUID=uid, stacktrace=klog.stacktrace(err))
            return err
        return errors[0] if errors else None

    def _end(self, uid: types.UID, stays: bool) -> bool:
        """Note that the thread is through with the pod. Returns whether its directory is worth an event."""
        with self._lock:
            self._removing.pop(uid).close()
            is_due = stays and self._note_stuck_locked(uid)
            if not stays:
                self._stuck.pop(uid, None)
            self._count_stuck_locked()
            return is_due

    def _note_stuck_locked(self, uid: types.UID) -> bool:
        """Not at once is it worth an event: a pod that has just gone still has its volumes taken down."""
        now = self._clock.monotonic()
        stuck = self._stuck.setdefault(uid, _Stuck(now))
        if stuck.told or now - stuck.since < ORPHAN_PATIENCE:
            return False
        stuck.told = True
        return True

    def _count_stuck_locked(self) -> None:
        metrics.ORPHAN_POD_CLEANED_VOLUMES_ERRORS.set(len(self._stuck))
