"""Starts operations and remembers which run and which failed.

Go: pkg/util/goroutinemap/goroutinemap.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pkg import golang, klog
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util.runtime import contain
from pkg.util.goroutinemap import exponentialbackoff


class AlreadyExistsError(Exception):
    """An operation of that name is running."""

    def __init__(self, operation_name: str) -> None:
        super().__init__(
            f"Failed to create operation with name {klog.quote(operation_name)}. "
            "An operation with that name is already executing."
        )


@dataclass(slots=True)
class _Operation:
    pending: bool
    exp_backoff: exponentialbackoff.ExponentialBackoff = field(default_factory=exponentialbackoff.ExponentialBackoff)


class GoRoutineMap:
    """Safe from any thread. With `exponential_back_off_on_error` what failed must wait to run again.

    on_complete is called after each operation, when another of its name may run, on the operation's thread.
    """

    def __init__(
        self,
        exponential_back_off_on_error: bool,
        clock: clock_.Clock | None = None,
        on_complete: Callable[[], object] | None = None,
    ) -> None:
        self._back_off_on_error = exponential_back_off_on_error
        self._on_complete = on_complete
        self._clock = clock or clock_.RealClock()
        self._changed = threading.Condition()  # guards _operations, notified when one completes
        self._operations: dict[str, _Operation] = {}

    def run(self, operation_name: str, operation_func: Callable[[], object]) -> None:
        """Start the operation in a thread of its own.

        Raises AlreadyExistsError while one of that name runs, ExponentialBackoffError if it failed lately, and
        golang.ThreadError when there is no thread for it; then it has failed.
        """
        with self._changed:
            operation = self._operations.setdefault(operation_name, _Operation(pending=False))
            if operation.pending:
                raise AlreadyExistsError(operation_name)
            operation.exp_backoff.safe_to_retry(operation_name, self._clock.steady())
            operation.pending = True
        try:
            golang.go(self._execute, operation_name, operation_func, name=f"operation-{operation_name}")
        except Exception as err:  # whatever it is, nothing would ever end the operation
            self._operation_complete(operation_name, err)
            raise

    def is_operation_pending(self, operation_name: str) -> bool:
        """Whether it is running."""
        with self._changed:
            operation = self._operations.get(operation_name)
            return operation is not None and operation.pending

    def forget_failure(self, operation_name: str) -> None:
        """What failed may be started again at once.

        DIVERGES (fault of Go): the failure of something that is gone is forgotten.
        Go: pkg/util/goroutinemap/goroutinemap.go, (*goRoutineMap).operationComplete: whatever has failed stays in the
        map until it succeeds.
        Why: each name that never comes back would stay for ever, and one that does come back would wait for its
        predecessor's pause.
        Test: goroutinemap_test.py:test_failure_that_is_forgotten_delays_nothing
        """
        with self._changed:
            operation = self._operations.get(operation_name)
            if operation is not None and not operation.pending:
                del self._operations[operation_name]
                self._changed.notify_all()

    def wait(self) -> None:
        """Block until no operation is left, neither running nor failed; for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not self._operations)

    def wait_for_completion(self) -> None:
        """Block until none is running; for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not any(op.pending for op in self._operations.values()))

    def _execute(self, operation_name: str, operation_func: Callable[[], object]) -> None:
        try:
            operation_func()
        except Exception as err:  # as in Go a crash counts as the operation's failure
            self._operation_complete(operation_name, err)
        else:
            self._operation_complete(operation_name, None)
        if self._on_complete is not None:
            with contain("Failed to tell of the end of an operation", golang.background(), operation=operation_name):
                self._on_complete()

    def _operation_complete(self, operation_name: str, err: Exception | None) -> None:
        with self._changed:
            if err is None or not self._back_off_on_error:
                del self._operations[operation_name]
                message = f"operation for {klog.quote(operation_name)} failed"
            else:
                operation = self._operations[operation_name]
                operation.exp_backoff.update(err, self._clock.steady())
                operation.pending = False
                message = operation.exp_backoff.generate_no_retries_permitted_msg(operation_name)
            if err is not None:  # logged before anybody may start it again, as in Go
                klog.error_s(err, message)
            self._changed.notify_all()
