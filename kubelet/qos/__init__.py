"""Compute which containers the kernel's OOM killer spares: the OOM score from the memory request and the QoS class.

Go: pkg/kubelet/qos
"""

from kubelet.qos.policy import (
    KUBELET_OOM_SCORE_ADJ,
    get_container_oom_score_adjust,
)

__all__ = ["KUBELET_OOM_SCORE_ADJ", "get_container_oom_score_adjust"]
