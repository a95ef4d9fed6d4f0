"""Start operations, and track which ones run and which ones failed.

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
    """Signal that an operation of that name is already running."""

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
    """Run named operations in threads. All methods are thread-safe.

    With `exponential_back_off_on_error`, a failed operation must wait before it runs again. `on_complete` is called
    after each operation, on the operation's thread, when the next operation of that name may already start.
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
        # The condition guards _operations, and is notified when an operation completes.
        self._changed = threading.Condition()
        self._operations: dict[str, _Operation] = {}

    def run(self, operation_name: str, operation_func: Callable[[], object]) -> None:
        """Start the operation in its own thread.

        Raise AlreadyExistsError while an operation of that name runs, and ExponentialBackoffError if it failed
        recently. Raise golang.ThreadError if no thread can be started; this counts as a failure of the operation.
        """
        with self._changed:
            operation = self._operations.setdefault(operation_name, _Operation(pending=False))
            if operation.pending:
                raise AlreadyExistsError(operation_name)
            operation.exp_backoff.safe_to_retry(operation_name, self._clock.steady())
            operation.pending = True
        try:
            golang.go(self._execute, operation_name, operation_func, name=f"operation-{operation_name}")
        except Exception as err:  # Without this, the operation would stay pending permanently.
            self._operation_complete(operation_name, err)
            raise

    def is_operation_pending(self, operation_name: str) -> bool:
        """Report whether an operation of that name is running."""
        with self._changed:
            operation = self._operations.get(operation_name)
            return operation is not None and operation.pending

    def forget_failure(self, operation_name: str) -> None:
        """Forget the operation's failure, so that the operation may start again at once.

        DIVERGES (fault of Go): this kubelet forgets the failures of objects that no longer exist.
        Go: pkg/util/goroutinemap/goroutinemap.go, (*goRoutineMap).operationComplete: in the Go kubelet, a failed
        operation stays in the map until it succeeds.
        Why: the entry of a name that is never used again would stay forever, and a name that is used again would wait
        for the backoff of its predecessor.
        Test: goroutinemap_test.py:test_failure_that_is_forgotten_delays_nothing
        """
        with self._changed:
            operation = self._operations.get(operation_name)
            if operation is not None and not operation.pending:
                del self._operations[operation_name]
                self._changed.notify_all()

    def wait(self) -> None:
        """Block until no operation is left, neither running nor failed. This method is for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not self._operations)

    def wait_for_completion(self) -> None:
        """Block until no operation is running. This method is for tests."""
        with self._changed:
            self._changed.wait_for(lambda: not any(op.pending for op in self._operations.values()))

    def _execute(self, operation_name: str, operation_func: Callable[[], object]) -> None:
        try:
            operation_func()
        except Exception as err:  # As in Go, a crash counts as a failure of the operation.
            self._operation_complete(operation_name, err)
        else:
            self._operation_complete(operation_name, None)
        if self._on_complete is not None:
            with contain("Failed to report the end of an operation", golang.background(), operation=operation_name):
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
            if err is not None:  # As in Go, the failure is logged before the operation can start again.
                klog.error_s(err, message)
            self._changed.notify_all()
