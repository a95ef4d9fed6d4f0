"""Check pods for features that may be off on this node.

Go: pkg/kubelet/lifecycle/features_linux.go
"""

from __future__ import annotations

from kubelet.lifecycle.interfaces import PodAdmitResult
from pkg import features
from pkg.api.core import v1
from pkg.component_helpers import resource as resourcehelper

# The pod has pod-level resources, but their feature gate is off.
POD_LEVEL_RESOURCES_NOT_ADMITTED_REASON = "PodLevelResourcesNotSupported"


def is_pod_level_resources_supported(pod: v1.Pod) -> PodAdmitResult:
    """Reject a pod whose pod-level resources would be ignored."""
    if resourcehelper.is_pod_level_resources_set(pod) and not features.feature_gate.enabled(
        features.POD_LEVEL_RESOURCES
    ):
        return PodAdmitResult(
            admit=False,
            reason=POD_LEVEL_RESOURCES_NOT_ADMITTED_REASON,
            message="PodLevelResources feature gate is disabled",
        )
    return PodAdmitResult(admit=True)
