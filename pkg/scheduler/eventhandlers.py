"""Apply those of the scheduler's filters that a node also applies at admission.

Go: pkg/scheduler/eventhandlers.go (AdmissionCheck)
"""

from __future__ import annotations

from dataclasses import dataclass

from pkg.api.core import v1
from pkg.component_helpers.scheduling.corev1 import nodeaffinity as corev1nodeaffinity
from pkg.scheduler import framework
from pkg.scheduler.framework.plugins import nodeaffinity, nodename, nodeports, noderesources


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """Describe one reason why a pod does not fit: a missing resource, or a filter's name and message."""

    name: str = ""
    reason: str = ""
    insufficient_resource: noderesources.InsufficientResource | None = None


def admission_check(pod: v1.Pod, node_info: framework.NodeInfo) -> list[AdmissionResult]:
    """Return every reason why the pod does not fit the node, or an empty list if it fits."""
    results = [AdmissionResult(insufficient_resource=lacking) for lacking in noderesources.fits(pod, node_info)]
    if not corev1nodeaffinity.get_required_node_affinity(pod).match(node_info.node):
        results.append(AdmissionResult(nodeaffinity.NAME, nodeaffinity.ERR_REASON_POD))
    if not nodename.fits(pod, node_info):
        results.append(AdmissionResult(nodename.NAME, nodename.ERR_REASON))
    if not nodeports.fits(pod, node_info):
        results.append(AdmissionResult(nodeports.NAME, nodeports.ERR_REASON))
    return results
