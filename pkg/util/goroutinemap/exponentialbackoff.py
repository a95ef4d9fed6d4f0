"""When an operation that failed may be tried again.

Go: pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pkg import klog

INITIAL_DURATION_BEFORE_RETRY = 0.5
# A little more than two minutes, so that a timeout of this origin can be recognized.
MAX_DURATION_BEFORE_RETRY = 122.0
# Characters of a failure's text that are kept. It may have a path of a mebibyte in it, and is shown again and again.
# DIVERGES (safer): of a failure's text the beginning is kept.
# Go: pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go, (*ExponentialBackoff).Update: has no bound.
# Why: a pod could fill the log, and keep the thread that serves all volumes busy, with a path of its own.
# Test: goroutinemap_test.py:test_of_a_failure_without_end_the_beginning_is_kept
MAX_ERROR_LENGTH = 10 << 10


class ExponentialBackoffError(Exception):
    """The operation failed and must wait.

    The text is made when somebody asks: what takes care of all volumes, or plugins, meets the error for each one that
    waits, in each of its rounds, and hardly ever tells.
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
    """The last failure, and how many seconds after it no retry is permitted. Not thread-safe.

    Of the failure it has the text alone. The error has all that the operation worked with, such as the files of a
    volume, and would keep it as long as the operation fails.
    """

    last_error: str = ""
    last_error_time: datetime | None = None
    duration_before_retry: float = 0.0

    def safe_to_retry(self, operation_name: str, now: datetime) -> None:
        """Raises ExponentialBackoffError if it is too early."""
        if self.must_wait(now):
            raise ExponentialBackoffError(operation_name, replace(self))

    def must_wait(self, now: datetime) -> bool:
        """Whether it is too early."""
        until = self.until()
        return until is not None and now <= until

    def update(self, err: Exception, now: datetime) -> None:
        """The operation failed: double the wait."""
        doubled = self.duration_before_retry * 2 or INITIAL_DURATION_BEFORE_RETRY
        self.duration_before_retry = min(doubled, MAX_DURATION_BEFORE_RETRY)
        self.last_error = str(err)[:MAX_ERROR_LENGTH]
        self.last_error_time = now

    def generate_no_retries_permitted_msg(self, operation_name: str) -> str:
        """What to log after update."""
        return (
            f"Operation for {klog.quote(operation_name)} failed. No retries permitted until {self.until()} "
            f"(durationBeforeRetry {self.duration_before_retry:g}s). Error: {self.last_error}"
        )

    def until(self) -> datetime | None:
        """The last moment at which a retry is not permitted, None before the first failure."""
        if self.last_error_time is None:
            return None
        return self.last_error_time + timedelta(seconds=self.duration_before_retry)
