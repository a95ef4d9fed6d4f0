"""For volumes whose size does not change.

Go: pkg/volume/metrics_cached.go
"""

from __future__ import annotations

import threading

from pkg.volume.volume import Metrics, MetricsProvider


class CachedMetrics:
    """Asks another provider until it answers, and then never again."""

    def __init__(self, provider: MetricsProvider) -> None:
        self._provider = provider
        # Held while the provider is asked; guards the answer.
        self._lock = threading.Lock()
        self._metrics: Metrics | None = None

    def get_metrics(self) -> Metrics:
        """Raises what the provider raises; that is not remembered."""
        with self._lock:
            if self._metrics is None:
                self._metrics = self._provider.get_metrics()
            return self._metrics
