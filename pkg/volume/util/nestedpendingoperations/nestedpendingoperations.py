"""Run operations on volumes, each on a thread of its own, and remember which ones run and which have failed.

Go: pkg/volume/util/nestedpendingoperations/nestedpendingoperations.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util.runtime import contain
from pkg.util.goroutinemap import exponentialbackoff
from pkg.volume.util import types as volumetypes

EMPTY_UNIQUE_POD_NAME = ""
EMPTY_UNIQUE_VOLUME_NAME = ""
EMPTY_NODE_NAME = ""


class OperationKey(NamedTuple):
    """Name what an operation works on. An empty pod or node stands for all pods or nodes."""

    volume_name: str
    pod_name: str
    node_name: str

    def __str__(self) -> str:
        return f"{{volumeName:{self.volume_name} podName:{self.pod_name} nodeName:{self.node_name}}}"

    def matches(self, other: OperationKey) -> bool:
        """Report whether two operations on the same volume must not run at the same time."""
        return _match(self.pod_name, other.pod_name) and _match(self.node_name, other.node_name)


class AlreadyExistsError(Exception):
    """Signal that a conflicting operation is running."""

    def __init__(self, key: OperationKey) -> None:
        super().__init__(
            f"Failed to create operation with name {key}. An operation with that name is already executing."
        )


class EndedAbruptlyError(Exception):
    """Signal that an operation has neither succeeded nor failed, because its thread had to end."""


@dataclass(slots=True)
class _Operation:
    key: OperationKey
    operation_name: str
    pending: bool = True
    exp_backoff: exponentialbackoff.ExponentialBackoff = field(default_factory=exponentialbackoff.ExponentialBackoff)


class NestedPendingOperations:
    """Run operations that do not conflict. Every method is safe from any thread.

    Operations without a volume never conflict. Two operations on the same volume conflict unless they are for different
    pods or different nodes. With exponential_back_off_on_error, an operation that has failed must wait before it may
    run again.
    """

    def __init__(
        self,
        exponential_back_off_on_error: bool,
        on_complete: Callable[[], None] | None = None,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create an empty set of operations. Each operation's thread calls on_complete at its end."""
        self._back_off_on_error = exponential_back_off_on_error
        self._on_complete = on_complete
        self._clock = clock or clocklib.RealClock()
        # This condition guards `_operations`, and is notified when an operation completes.
        self._changed = threading.Condition()
        # `_operations` holds operations by volume, because only those on the same volume can conflict.
        self._operations: dict[str, list[_Operation]] = {}

    def run(
        self, volume_name: str, pod_name: str, node_name: str, generated_operations: volumetypes.GeneratedOperations
    ) -> None:
        """Start the operation.

        Raise AlreadyExistsError if a conflicting operation is running, and ExponentialBackoffError if the same
        operation failed a short time ago. The backoff does not delay another kind of operation. Raise
        golang.ThreadError if no thread can be started; the operation has then failed.
        """
        key = OperationKey(volume_name, pod_name, node_name)
        with self._changed:
            previous = self._find(key)
            if previous is None:
                self._operations.setdefault(volume_name, []).append(
                    _Operation(key, generated_operations.operation_name)
                )
            else:
                self._take_over_locked(previous, key, generated_operations.operation_name)
        try:
            golang.go(self._execute, key, generated_operations, name=f"volume-{generated_operations.operation_name}")
        except Exception as err:  # Without this handler, nothing would ever end the operation.
            self._operation_complete(key, err)
            raise

    def is_operation_safe_to_retry(self, volume_name: str, pod_name: str, node_name: str, operation_name: str) -> bool:
        """Report whether run would start the operation now."""
        key = OperationKey(volume_name, pod_name, node_name)
        with self._changed:
            previous = self._find(key)
            if previous is None:
                return True
            if previous.pending:
                return False
            return previous.operation_name != operation_name or not previous.exp_backoff.must_wait(self._clock.steady())

    def is_operation_pending(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Report whether a conflicting operation is running."""
        with self._changed:
            previous = self._find(OperationKey(volume_name, pod_name, node_name))
            return previous is not None and previous.pending

    def has_operation_failed(self, volume_name: str, pod_name: str, node_name: str) -> bool:
        """Report whether the last operation with exactly these names has failed and is still remembered."""
        key = OperationKey(volume_name, pod_name, node_name)
        with self._changed:
            return any(op.key == key and not op.pending for op in self._operations.get(volume_name, []))

    def next_retry(self) -> float | None:
        """Return the time, in seconds, until the first failed operation may be retried, or None if there is none."""
        with self._changed:
            now = self._clock.steady()
            self._forget_abandoned_locked(now)
            ends = [end for operations in self._operations.values() for op in operations if (end := _end(op))]
        return min(((end - now).total_seconds() for end in ends if end >= now), default=None)

    def forget_failures(self, volume_name: str) -> None:
        """End the backoff of failed operations on the volume, so that they may be retried at once."""
        with self._changed:
            for operation in self._operations.get(volume_name, []):
                operation.exp_backoff = exponentialbackoff.ExponentialBackoff()

    def wait(self) -> None:
        """Wait until no operation is left, neither a running nor a failed one. This method is for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not self._operations)

    def wait_for_completion(self) -> None:
        """Wait until no operation is running. This method is for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not any(op.pending for ops in self._operations.values() for op in ops))

    def _take_over_locked(self, previous: _Operation, key: OperationKey, operation_name: str) -> None:
        if previous.pending:
            raise AlreadyExistsError(key)
        now = self._clock.steady()
        if previous.operation_name == operation_name:
            previous.exp_backoff.safe_to_retry(str(key), now)
        elif previous.exp_backoff.must_wait(now):
            previous.operation_name = operation_name
            previous.exp_backoff = exponentialbackoff.ExponentialBackoff()
        previous.pending = True
        previous.key = key

    def _forget_abandoned_locked(self, now: datetime) -> None:
        """Forget failed operations that have not been retried for long, because nothing needs them any more.

        DIVERGES (fault of Go): the kubelet forgets a failed operation about two minutes after its backoff has ended.
        Go: pkg/volume/util/nestedpendingoperations/nestedpendingoperations.go,
        (*nestedPendingOperations).operationComplete: the Go kubelet remembers it until an operation on the same volume
        succeeds.
        Why: the volumes of pods that no longer exist would occupy memory for as long as the kubelet runs.
        Test: nestedpendingoperations_test.py:test_failure_of_what_nobody_wants_any_more_is_forgotten
        """
        last = now - timedelta(seconds=exponentialbackoff.MAX_DURATION_BEFORE_RETRY)
        for volume_name, operations in list(self._operations.items()):
            kept = [operation for operation in operations if (end := _end(operation)) is None or end >= last]
            if kept:
                self._operations[volume_name] = kept
            else:
                del self._operations[volume_name]

    def _execute(self, key: OperationKey, generated_operations: volumetypes.GeneratedOperations) -> None:
        err: Exception | None = EndedAbruptlyError("operation ended abruptly")
        try:
            err = generated_operations.run().detailed_err
        finally:
            self._operation_complete(key, err)
            if self._on_complete is not None:
                with contain("Failed to report the end of a volume operation", golang.background(), key=str(key)):
                    self._on_complete()

    def _find(self, key: OperationKey) -> _Operation | None:
        """Return the operation that conflicts with the key.

        Prefer a running one, then the one with exactly this key.
        """
        if key.volume_name == EMPTY_UNIQUE_VOLUME_NAME:
            return None
        found: _Operation | None = None
        for operation in self._operations.get(key.volume_name, []):
            if not key.matches(operation.key):
                continue
            if operation.pending:
                return operation
            if found is None or operation.key == key:
                found = operation
        return found

    def _operation_complete(self, key: OperationKey, err: Exception | None) -> None:
        with self._changed:
            operations = self._operations.get(key.volume_name, [])
            # Several operations without a volume may have the same key. Those that are running are interchangeable.
            operation = next(op for op in operations if op.key == key and op.pending)
            if err is None or not self._back_off_on_error:
                operations.remove(operation)
                if not operations:
                    del self._operations[key.volume_name]
                if err is not None:
                    klog.error_s(None, f"operation {key} failed with: {err}")
            else:
                operation.exp_backoff.update(err, self._clock.steady())
                operation.pending = False
                klog.error_s(None, operation.exp_backoff.generate_no_retries_permitted_msg(str(key)))
            self._changed.notify_all()


def _match(name: str, other: str) -> bool:
    return not name or not other or name == other


def _end(operation: _Operation) -> datetime | None:
    """Return the end of a failed operation's backoff, or None if the operation is running."""
    return None if operation.pending else operation.exp_backoff.until()
