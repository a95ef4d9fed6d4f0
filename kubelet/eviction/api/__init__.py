"""Define the terms of eviction: signals and thresholds.

Go: pkg/kubelet/eviction/api
"""

from kubelet.eviction.api.types import Signal, Threshold, ThresholdValue, get_threshold_quantity

__all__ = ["Signal", "Threshold", "ThresholdValue", "get_threshold_quantity"]
