"""Cache of probe results and the channel that announces their changes.

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

# Room for changes that the sync loop has not picked up yet. A probe worker that finds it full waits.
_UPDATES_BUFFER = 20


class Result(enum.IntEnum):
    """Outcome of a probe. Python gives every member of an IntEnum a truth value: compare, do not test."""

    UNKNOWN = -1
    SUCCESS = 0
    FAILURE = 1

    def __str__(self) -> str:
        return "UNKNOWN" if self is Result.UNKNOWN else self.name.capitalize()

    def to_prometheus_type(self) -> float:
        """The value under which the metrics show this result."""
        return float(self.value)


class Update(NamedTuple):
    """One changed result."""

    container_id: kubecontainer.ContainerID
    result: Result
    pod_uid: types.UID


class Manager:
    """Keeps the last result of one kind of probe for each container. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _cache
        self._cache: dict[kubecontainer.ContainerID, Result] = {}
        self._updates: golang.Channel[Update] = golang.Channel(_UPDATES_BUFFER)

    def get(self, container_id: kubecontainer.ContainerID) -> Result | None:
        """The cached result, or None if the container has none."""
        with self._lock:
            return self._cache.get(container_id)

    def newest(self, update: Update) -> Result:
        """What the container's probe has come to, which may be more than the update knows; that, if it is forgotten.

        DIVERGES (fault of Go): a status follows the newest result of a probe, also when the loop still has an older one
        to take.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).syncLoopIteration: it follows the result that was sent.
        Why: a pod's worker reads the newest result; if the first "not ready" is taken after that, a pod that has become
        ready is unready for a moment, and its Services take it out.
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
        """Stores a result and, if it differs from the one before, sends an Update.

        Blocks while the updates channel is full; `ctx` ends such a wait. The pod only lends its uid to the
        update.
        """
        # The send must not happen under the lock: the receiver may itself ask for a result.
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
        """Forgets the container. Sends no update."""
        with self._lock:
            self._cache.pop(container_id, None)

    def updates(self) -> golang.Channel[Update]:
        """The channel of changes. There is one, so it has one reader."""
        return self._updates
