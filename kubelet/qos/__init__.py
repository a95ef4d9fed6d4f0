"""How the kernel's OOM killer is told which containers to spare: the OOM score from requests and QoS class.

Go: pkg/kubelet/qos
"""

from kubelet.qos.policy import (
    KUBELET_OOM_SCORE_ADJ,
    get_container_oom_score_adjust,
)

__all__ = ["KUBELET_OOM_SCORE_ADJ", "get_container_oom_score_adjust"]
