"""Reclaim memory, disk space or process IDs when the node runs short: remove garbage first, then evict pods.

Go: pkg/kubelet/eviction
"""

from kubelet.eviction.defaults import DEFAULT_EVICTION_HARD
from kubelet.eviction.eviction_manager import LONGEST_WAIT_FOR_POD, ManagerImpl
from kubelet.eviction.helpers import REASON, ThresholdsError, parse_threshold_config, pod_is_evicted
from kubelet.eviction.preview import BrokenLimit, Preview, SignalPreview, ThresholdState
from kubelet.eviction.types import Config, KillPodFunc, Manager, RankedPod

__all__ = [
    "DEFAULT_EVICTION_HARD",
    "LONGEST_WAIT_FOR_POD",
    "REASON",
    "BrokenLimit",
    "Config",
    "KillPodFunc",
    "Manager",
    "ManagerImpl",
    "Preview",
    "RankedPod",
    "SignalPreview",
    "ThresholdState",
    "ThresholdsError",
    "parse_threshold_config",
    "pod_is_evicted",
]
