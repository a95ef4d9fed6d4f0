"""When an operation that failed may be tried again.

Go: pkg/util/goroutinemap/exponentialbackoff/exponential_backoff.go
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pkg import klog

INITIAL_DURATION_BEFORE_RETRY = 0.5
# A little more than two minutes, so that a timeout of this origin can be recognized.
MAX_DURATION_BEFORE_RETRY = 122.0


class ExponentialBackoffError(Exception):
    """The operation failed and must wait."""


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
        until = self.until()
        if until is None or now > until:
            return
        raise ExponentialBackoffError(
            f"Failed to create operation with name {klog.quote(operation_name)}. "
            f"An operation with that name failed at {self.last_error_time}. No retries permitted until "
            f"{until} ({self.duration_before_retry:g}s). "
            f"Last error: {klog.quote(self.last_error)}."
        )

    def update(self, err: Exception, now: datetime) -> None:
        """The operation failed: double the wait."""
        doubled = self.duration_before_retry * 2 or INITIAL_DURATION_BEFORE_RETRY
        self.duration_before_retry = min(doubled, MAX_DURATION_BEFORE_RETRY)
        self.last_error = str(err)
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
