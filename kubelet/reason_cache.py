"""Remembers why a container could not be started, for its status.

Go: pkg/kubelet/reason_cache.go
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime
from typing import NamedTuple

from kubelet import container as kubecontainer
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1

# Enough for a hundred pods with ten failing containers each.
MAX_REASON_CACHE_ENTRIES = 1000
# Characters of a message that are kept. One may quote as much of a pod or an image as somebody wrote there. That of a
# hook has its output twice, 10 KiB each, and a byte that is quoted may take four characters.
MAX_MESSAGE_LENGTH = 64 << 10


class ReasonItem(NamedTuple):
    """Why the last attempt to start a container failed.

    Not the error itself: it holds all that the calls worked with through which it came, such as the pod and its
    secrets, and would do so long after the pod.
    """

    reason: str
    message: str
    # Nothing is tried before this time; None if any time is right.
    retry_at: datetime | None
    # The object for want of which the container could not be started.
    missing: metav1.StatusDetails | None = None


class ReasonCache:
    """The reasons by pod uid and container name. Thread-safe.

    Best effort: it starts empty with each process, and instead of clearing up after pods it drops what was
    used longest ago once there are too many entries.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _cache
        self._cache: OrderedDict[tuple[types.UID, str], ReasonItem] = OrderedDict()

    def add(self, uid: types.UID, name: str, reason: Exception, message: str) -> None:
        retry_at = kubecontainer.min_backoff_expiration(reason)
        missing = apierrors.what_is_not_found(reason)
        item = ReasonItem(str(reason), message[:MAX_MESSAGE_LENGTH], retry_at, missing)
        with self._lock:
            self._cache[uid, name] = item
            self._cache.move_to_end((uid, name))
            if len(self._cache) > MAX_REASON_CACHE_ENTRIES:
                self._cache.popitem(last=False)

    def update(self, uid: types.UID, result: kubecontainer.PodSyncResult) -> None:
        """Takes over what a pod's sync says about starting containers."""
        for r in result.sync_results:
            if r.action != kubecontainer.START_CONTAINER:
                continue
            if r.error is not None:
                self.add(uid, str(r.target), r.error, r.message)
            else:
                self.remove(uid, str(r.target))

    def remove(self, uid: types.UID, name: str) -> None:
        with self._lock:
            self._cache.pop((uid, name), None)

    def get(self, uid: types.UID, name: str) -> ReasonItem | None:
        """The reason, or None if the last start worked or is not known."""
        with self._lock:
            item = self._cache.get((uid, name))
            if item is not None:
                self._cache.move_to_end((uid, name))
            return item
