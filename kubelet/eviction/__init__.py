"""When a node is short of something, and what is to be kept free. So far the thresholds alone.

Go: pkg/kubelet/eviction
"""

from kubelet.eviction.helpers import parse_threshold_statements

__all__ = ["parse_threshold_statements"]
