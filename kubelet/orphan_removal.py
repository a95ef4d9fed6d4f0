"""Remove the directories of orphaned pods in threads, so that the sync loop need not wait for a disk.

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

# If an orphaned pod's directory has stayed for this time, in seconds, the kubelet records an event.
ORPHAN_PATIENCE = 20.0
# At most this many directories are removed at the same time; the others wait.
MAX_REMOVALS = 8
# In each sync, a pod waits at most this long, in seconds, until the directory of an earlier pod with the same UID is
# gone.
REMOVAL_TIMEOUT = 30.0


@dataclass(slots=True)
class _Stuck:
    """Describe a directory that could not be removed.

    `since` is from the monotonic clock. `told` means that an event has been recorded.
    """

    since: float
    told: bool = False


class OrphanRemoval:
    """Remove the directories that housekeeping hands over, with at most one thread for each pod.

    All methods are thread-safe.
    DIVERGES (safer): threads remove the directories of orphaned pods, and the sync loop does not wait for them.
    Go: pkg/kubelet/kubelet_volumes.go, (*Kubelet).cleanupOrphanedPodDirs: the sync loop removes them.
    Why: no pod would start while a slow disk removes many files.
    Test: orphan_removal_test.py:test_housekeeping_does_not_wait_for_the_disk
    """

    def __init__(
        self, clock: clock.Clock, remove: Callable[[types.UID], list[Exception]], tell: Callable[[types.UID, str], None]
    ) -> None:
        """Create the object; its threads start later.

        remove(uid) checks whether the pod is still an orphan, and returns the reasons why its directory stays.
        tell(uid, reason) is called once for a directory that has stayed for ORPHAN_PATIENCE.
        """
        self._clock = clock
        self._remove = remove
        self._tell = tell
        self._lock = threading.Lock()  # The lock guards the four fields below.
        # These pods wait for a thread; the one that was handed over first comes first.
        self._waiting: dict[types.UID, None] = {}
        # A thread is removing these pods' directories. It closes the pod's channel when it has finished.
        self._removing: dict[types.UID, golang.Channel[None]] = {}
        self._stuck: dict[types.UID, _Stuck] = {}
        self._threads = 0

    def hand_over(self, ctx: golang.Context, uids: Iterable[types.UID]) -> None:
        """Have the directories of exactly these pods removed.

        Forget pods of earlier calls unless a thread works on them. Raise golang.ThreadError if a thread cannot start;
        the caller then calls this method again later.
        """
        orphaned = dict.fromkeys(uids)
        with self._lock:
            # Pods that already wait stay in front, so that a directory that fails slowly does not always come before
            # them.
            in_turn = [*(uid for uid in self._waiting if uid in orphaned), *orphaned]
            self._waiting = dict.fromkeys(uid for uid in in_turn if uid not in self._removing)
            self._stuck = {uid: stuck for uid, stuck in self._stuck.items() if uid in orphaned}
            self._count_stuck_locked()
            wanted = min(MAX_REMOVALS, self._threads + len(self._waiting))
            while self._threads < wanted:
                golang.go(self._work, ctx, name="orphaned-pod-directories")
                self._threads += 1

    def wait(self, ctx: golang.Context, uid: types.UID) -> None:
        """Wait until nothing of the pod is being removed. Nothing of a desired pod is removed from then on.

        Raise TimeoutError after REMOVAL_TIMEOUT, and golang.ContextError if ctx ends first.
        """
        with self._lock:
            self._waiting.pop(uid, None)
            ended = self._removing.get(uid)
        if ended is None:
            return
        if not golang.select(ended, ctx.done(), timeout=REMOVAL_TIMEOUT).took(ended):
            raise ctx.err() or TimeoutError(f"the directory of an earlier pod with the UID {uid!r} is being removed")

    def _work(self, ctx: golang.Context) -> None:
        """Remove the waiting directories, until none waits or ctx ends."""
        while (uid := self._take(ctx)) is not None:
            err = self._try_to_remove(uid)
            if self._end(uid, stays=err is not None):
                with contain("Failed to inspect the directory of an orphaned pod", golang.background(), podUID=uid):
                    self._tell(uid, str(err))

    def _take(self, ctx: golang.Context) -> types.UID | None:
        """Return the next pod; None ends the thread."""
        with self._lock:
            if ctx.err() is not None or not self._waiting:
                self._threads -= 1
                return None
            uid = next(iter(self._waiting))
            del self._waiting[uid]
            # Set this before `remove` checks whether the pod is an orphan: then either the pod's worker sees the
            # removal, or the check sees the pod.
            self._removing[uid] = golang.Channel(0)
            return uid

    def _try_to_remove(self, uid: types.UID) -> Exception | None:
        """Return the reason why the directory stays, or None if it is gone."""
        try:
            errors = self._remove(uid)
        except Exception as err:  # After any error, the directories of other pods must still be removed.
            klog.error_s(err, "Failed to clean up an orphaned pod", podUID=uid, stacktrace=klog.stacktrace(err))
            return err
        return errors[0] if errors else None

    def _end(self, uid: types.UID, stays: bool) -> bool:
        """Record that the thread has finished with the pod. Return whether to record an event about its directory."""
        with self._lock:
            self._removing.pop(uid).close()
            is_due = stays and self._note_stuck_locked(uid)
            if not stays:
                self._stuck.pop(uid, None)
            self._count_stuck_locked()
            return is_due

    def _note_stuck_locked(self, uid: types.UID) -> bool:
        """Record that the directory stays. Return whether it has stayed for long enough, for the first time.

        The volumes of a pod that has just terminated are still being unmounted, so a short delay is normal.
        """
        now = self._clock.monotonic()
        stuck = self._stuck.setdefault(uid, _Stuck(now))
        if stuck.told or now - stuck.since < ORPHAN_PATIENCE:
            return False
        stuck.told = True
        return True

    def _count_stuck_locked(self) -> None:
        metrics.ORPHAN_POD_CLEANED_VOLUMES_ERRORS.set(len(self._stuck))
