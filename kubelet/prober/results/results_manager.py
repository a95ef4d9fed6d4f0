"""Cache probe results, and report their changes on a channel.

Go: pkg/kubelet/prober/results/results_manager.go
"""

from __future__ import annotations

import enum
import threading
from typing import NamedTuple

from kubelet import container as kubecontainer
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.golang.turn import let_others

# `_UPDATES_BUFFER` is the number of changes that may wait for the sync loop. A probe worker waits while the channel is
# full.
_UPDATES_BUFFER = 20


class Result(enum.IntEnum):
    """Represent the outcome of a probe.

    Python gives every member of an IntEnum a truth value, so compare results instead of testing their truth.
    """

    UNKNOWN = -1
    SUCCESS = 0
    FAILURE = 1

    def __str__(self) -> str:
        return "UNKNOWN" if self is Result.UNKNOWN else self.name.capitalize()

    def to_prometheus_type(self) -> float:
        """Return the value that represents this result in the metrics."""
        return float(self.value)


class Update(NamedTuple):
    """Describe a changed result."""

    container_id: kubecontainer.ContainerID
    result: Result
    pod_uid: types.UID


class Manager:
    """Keep the last result of one kind of probe for each container. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards _cache.
        self._cache: dict[kubecontainer.ContainerID, Result] = {}
        self._updates: golang.Channel[Update] = golang.Channel(_UPDATES_BUFFER)

    def get(self, container_id: kubecontainer.ContainerID) -> Result | None:
        """Return the cached result, or None if the container has none."""
        with self._lock:
            return self._cache.get(container_id)

    def newest(self, update: Update) -> Result:
        """Return the newest result of the container, or the update's result if the container was forgotten.

        DIVERGES (fault of Go): a status follows the newest result of a probe, even while the loop has an older one to
        handle.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).syncLoopIteration: the status follows the result in the update.
        Why: a pod worker reads the newest result. If the sync loop handles an older "not ready" after that, a pod that
        is ready becomes unready for a moment, and its Services stop sending traffic to it.
        Test: kubelet/kubelet_test.py:test_result_of_a_probe_that_comes_late_does_not_undo_a_newer_one
        """
        newest = self.get(update.container_id)
        return update.result if newest is None else newest

    def set(
        self,
        container_id: kubecontainer.ContainerID,
        result: Result,
        pod: v1.Pod,
        ctx: golang.Context | None = None,
    ) -> None:
        """Store a result and, if it differs from the previous one, send an Update.

        The call blocks while the updates channel is full, until `ctx` ends. The update gets the pod's UID; the pod is
        not used otherwise.
        """
        # The send must happen without the lock because the receiver may itself request a result.
        if self._set_internal(container_id, result):
            with let_others(ctx):
                self._updates.send(Update(container_id, result, pod.metadata.uid), ctx)

    def _set_internal(self, container_id: kubecontainer.ContainerID, result: Result) -> bool:
        with self._lock:
            if self._cache.get(container_id) == result:
                return False
            self._cache[container_id] = result
            return True

    def remove(self, container_id: kubecontainer.ContainerID) -> None:
        """Forget the container without sending an update."""
        with self._lock:
            self._cache.pop(container_id, None)

    def updates(self) -> golang.Channel[Update]:
        """Return the only channel of updates, which must have a single reader."""
        return self._updates
