"""Measure volumes whose size does not change.

Go: pkg/volume/metrics_cached.go
"""

from __future__ import annotations

import threading

from pkg.volume.volume import Metrics, MetricsProvider


class CachedMetrics:
    """Ask another provider until it succeeds, and then keep the result."""

    def __init__(self, provider: MetricsProvider) -> None:
        self._provider = provider
        # A thread holds this lock while it asks the provider. The lock guards the result.
        self._lock = threading.Lock()
        self._metrics: Metrics | None = None

    def get_metrics(self) -> Metrics:
        """Return the result. Raise any error of the provider; errors are not kept."""
        with self._lock:
            if self._metrics is None:
                self._metrics = self._provider.get_metrics()
            return self._metrics
