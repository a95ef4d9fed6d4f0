"""Remember why containers could not start, for their statuses.

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

# The limit is enough for a hundred pods with ten failing containers each.
MAX_REASON_CACHE_ENTRIES = 1000
# Messages are truncated to this many characters, because they may quote any text from a pod or an image. A hook's
# message has its output twice, 10 KiB each, and a quoted byte may take four characters.
MAX_MESSAGE_LENGTH = 64 << 10


class ReasonItem(NamedTuple):
    """Describe why the last attempt to start a container failed.

    The object does not keep the exception, which refers to everything that the calls on its way used, such as the pod
    and its secrets, and would keep all of that alive long after the pod.
    """

    reason: str
    message: str
    # The kubelet does not try again before this time; None means that it may try at any time.
    retry_at: datetime | None
    # The absence of this API object kept the container from starting.
    missing: metav1.StatusDetails | None = None


class ReasonCache:
    """Hold the reasons by pod UID and container name. All methods are thread-safe.

    The cache is best effort: it starts empty with each process. It does not remove the entries of deleted pods; instead
    it drops the least recently used entry when there are too many.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards `_cache`.
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
        """Record the results of a pod's sync that concern the start of containers."""
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
        """Return the reason, or None if the last start succeeded or is unknown."""
        with self._lock:
            item = self._cache.get((uid, name))
            if item is not None:
                self._cache.move_to_end((uid, name))
            return item
