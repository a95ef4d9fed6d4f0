"""Report that a volume has no metrics.

Go: pkg/volume/metrics_nil.go
"""

from __future__ import annotations

from pkg.volume import metrics_errors
from pkg.volume.volume import Metrics


class MetricsNil:
    """Represent the metrics of a volume that has none."""

    def supports_metrics(self) -> bool:
        return False

    def get_metrics(self) -> Metrics:
        """Raise MetricsError."""
        raise metrics_errors.new_not_supported_error()
