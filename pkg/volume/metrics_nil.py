"""For volumes that have no metrics.

Go: pkg/volume/metrics_nil.go
"""

from __future__ import annotations

from pkg.volume import metrics_errors
from pkg.volume.volume import Metrics


class MetricsNil:
    """Has none."""

    def supports_metrics(self) -> bool:
        return False

    def get_metrics(self) -> Metrics:
        """Always raises MetricsError."""
        raise metrics_errors.new_not_supported_error()
