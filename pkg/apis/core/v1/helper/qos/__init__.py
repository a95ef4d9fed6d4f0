"""Determine quality-of-service classes.

Go: pkg/apis/core/v1/helper/qos
"""

from pkg.apis.core.v1.helper.qos.qos import (
    compute_pod_qos,
    get_pod_qos,
)

__all__ = [
    "compute_pod_qos",
    "get_pod_qos",
]
