"""Compute when a failed operation may be retried.

Go: pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pkg import klog

INITIAL_DURATION_BEFORE_RETRY = 0.5
# The value is slightly above two minutes, so that a timeout of this origin can be recognized.
MAX_DURATION_BEFORE_RETRY = 122.0
# At most this many characters of a failure's text are kept. The text may contain a path of 1 MiB, and is shown
# repeatedly.
# DIVERGES (safer): this kubelet keeps only the first MAX_ERROR_LENGTH characters of a failure's text.
# Go: pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go, (*ExponentialBackoff).Update: the Go kubelet has
# no bound.
# Why: a pod could choose a path that fills the log and keeps the thread that serves all volumes busy.
# Test: goroutinemap_test.py:test_of_a_failure_without_end_the_beginning_is_kept
MAX_ERROR_LENGTH = 10 << 10


class ExponentialBackoffError(Exception):
    """Signal that the operation failed and that its backoff has not ended.

    The text is built only on demand. The loops that manage volumes and plugins meet this error for each waiting
    operation in each iteration, and rarely print it.
    """

    def __init__(self, operation_name: str, backoff: ExponentialBackoff) -> None:
        super().__init__(operation_name)
        self._operation_name = operation_name
        self._backoff = backoff

    def __str__(self) -> str:
        backoff = self._backoff
        return (
            f"Failed to create operation with name {klog.quote(self._operation_name)}. "
            f"An operation with that name failed at {backoff.last_error_time}. No retries permitted until "
            f"{backoff.until()} ({backoff.duration_before_retry:g}s). "
            f"Last error: {klog.quote(backoff.last_error)}."
        )


@dataclass(slots=True)
class ExponentialBackoff:
    """Hold the last failure, and the seconds after it during which no retry is permitted. The class is not thread-safe.

    Only the text of the failure is kept. The error itself refers to everything that the operation used, such as the
    files of a volume, and would keep it in memory as long as the operation fails.
    """

    last_error: str = ""
    last_error_time: datetime | None = None
    duration_before_retry: float = 0.0

    def safe_to_retry(self, operation_name: str, now: datetime) -> None:
        """Raise ExponentialBackoffError if it is too early to retry."""
        if self.must_wait(now):
            raise ExponentialBackoffError(operation_name, replace(self))

    def must_wait(self, now: datetime) -> bool:
        """Report whether it is too early to retry."""
        until = self.until()
        return until is not None and now <= until

    def update(self, err: Exception, now: datetime) -> None:
        """Record a failure, and double the backoff."""
        doubled = self.duration_before_retry * 2 or INITIAL_DURATION_BEFORE_RETRY
        self.duration_before_retry = min(doubled, MAX_DURATION_BEFORE_RETRY)
        self.last_error = str(err)[:MAX_ERROR_LENGTH]
        self.last_error_time = now

    def generate_no_retries_permitted_msg(self, operation_name: str) -> str:
        """Return the message to log after `update`."""
        return (
            f"Operation for {klog.quote(operation_name)} failed. No retries permitted until {self.until()} "
            f"(durationBeforeRetry {self.duration_before_retry:g}s). Error: {self.last_error}"
        )

    def until(self) -> datetime | None:
        """Return the last moment at which no retry is permitted, or None before the first failure."""
        if self.last_error_time is None:
            return None
        return self.last_error_time + timedelta(seconds=self.duration_before_retry)
