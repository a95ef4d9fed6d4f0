"""Decide whether pods can be resized at all.

Go: pkg/kubelet/allocation/features_linux.go
"""

from __future__ import annotations

from typing import NamedTuple

from pkg import features
from pkg.api.core import v1


class Permission(NamedTuple):
    """Hold whether a resize is allowed; if not, also a message for the pod and a label for the metric."""

    allowed: bool
    message: str = ""
    reason: str = ""


def is_in_place_pod_vertical_scaling_allowed(pod: v1.Pod) -> Permission:
    """Report whether the resources of the pod's containers may change while they run."""
    if not features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
        return Permission(False, "InPlacePodVerticalScaling is disabled", "feature_gate_off")
    return Permission(True)


def is_in_place_pod_level_resources_vertical_scaling_allowed(pod: v1.Pod) -> Permission:
    """Report whether the pod-level resources may change while the pod runs."""
    if not features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
        return Permission(False, "InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off")
    return Permission(True)
