"""Admit pods by the properties of the node: resources, ports, name, labels, taints and operating system.

Go: pkg/kubelet/lifecycle/predicate.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from kubelet import types as kubetypes
from kubelet.lifecycle.interfaces import ACCIDENTS, PodAdmitAttributes, PodAdmitResult
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apis.core.v1 import helper as v1helper
from pkg.component_helpers.scheduling import corev1
from pkg.scheduler import admission_check, framework
from pkg.scheduler.framework.plugins import nodeaffinity, tainttoleration

# These are the reasons for rejecting a pod, as its status shows them.
# The pod's label kubernetes.io/os differs from that of the node.
POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH = "PodOSSelectorNodeLabelDoesNotMatch"
# The pod's spec names another operating system.
POD_OS_NOT_SUPPORTED = "PodOSNotSupported"
# The kubelet does not know its own node object.
INVALID_NODE_INFO = "InvalidNodeInfo"
# The runtime cannot restrict a container to the pod's own groups.
SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED = "SupplementalGroupsPolicyNotSupported"
# An unexpected error occurred during admission.
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
# A filter returned a reason of an unknown kind.
UNEXPECTED_PREDICATE_FAILURE_TYPE = "UnexpectedPredicateFailureType"
# The name of the missing resource follows this prefix.
INSUFFICIENT_RESOURCE_PREFIX = "OutOf"

_LABEL_OS_STABLE = "kubernetes.io/os"
# This kubelet runs only on Linux.
_OS = "linux"

GetNodeAnyWayFunc = Callable[[golang.Context, bool], v1.Node]
# A PluginResourceUpdateFunc adds the resources of device plugins to those of the node, and raises if this fails.
PluginResourceUpdateFunc = Callable[[framework.NodeInfo, PodAdmitAttributes], None]


class PredicateFailureReason(Protocol):
    """Define a reason why a pod does not fit. Its str() is the message for users."""

    def get_reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class InsufficientResourceError:
    """Describe a lack of a resource. As in Go, this is a value that is never raised."""

    resource_name: str
    requested: int
    used: int
    capacity: int

    def __str__(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource_name}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}"
        )

    def get_reason(self) -> str:
        return f"Insufficient {self.resource_name}"

    def get_insufficient_amount(self) -> int:
        """Return the amount that would have to be freed."""
        return self.requested - (self.capacity - self.used)


@dataclass(frozen=True, slots=True)
class PredicateFailureError:
    """Describe the rejection of a pod by a filter."""

    predicate_name: str
    predicate_desc: str

    def __str__(self) -> str:
        return f"Predicate {self.predicate_name} failed: {self.predicate_desc}"

    def get_reason(self) -> str:
        return self.predicate_desc


@dataclass(frozen=True, slots=True)
class RoomIsToBeMade:
    """Report that the pod fits once other pods have ended. Go has no such reason because it waits for their end."""

    message: str
    # See PodAdmitResult.make_room.
    make_room: Callable[[], list[v1.Pod]]

    def __str__(self) -> str:
        return self.message

    def get_reason(self) -> str:
        return "RoomIsToBeMade"


class AdmissionFailureHandler(Protocol):
    """Define how to make room for a pod that does not fit, as preemption does for critical pods."""

    def handle_admission_failure(
        self,
        ctx: golang.Context,
        admit_pod: v1.Pod,
        failure_reasons: list[PredicateFailureReason],
        other_pods: list[v1.Pod],
    ) -> list[PredicateFailureReason]:
        """Return the remaining reasons, or none if the pod fits after all.

        other_pods are the pods whose resources count.
        """
        ...


class AdmissionFailureHandlerStub:
    """Make no room.

    Go: pkg/kubelet/lifecycle/admission_failure_handler_stub.go.
    """

    def handle_admission_failure(
        self,
        ctx: golang.Context,
        admit_pod: v1.Pod,
        failure_reasons: list[PredicateFailureReason],
        other_pods: list[v1.Pod],
    ) -> list[PredicateFailureReason]:
        return failure_reasons


class PredicateAdmitHandler:
    """Admit pods by the properties of the node, as a lifecycle.PodAdmitHandler."""

    def __init__(
        self,
        get_node_any_way_func: GetNodeAnyWayFunc,
        admission_failure_handler: AdmissionFailureHandler,
        plugin_resource_update_func: PluginResourceUpdateFunc,
    ) -> None:
        """Set up the handler.

        get_node_any_way_func(ctx, use_cache) returns this node, or raises if the node is unknown.
        """
        self._get_node_any_way_func = get_node_any_way_func
        self._admission_failure_handler = admission_failure_handler
        self._plugin_resource_update_func = plugin_resource_update_func

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        """Admit the pod, or reject it for the first reason found."""
        ctx = golang.background()
        try:
            node = self._get_node_any_way_func(ctx, True)
        except ACCIDENTS:
            raise
        except Exception as err:
            # The kubelet rejects this pod; it may know the node when the next pod arrives.
            klog.error_s(err, "Cannot get Node info")
            return _rejected(INVALID_NODE_INFO, "Kubelet cannot get node info.")
        # Reasons that no preemption can remove come first.
        rejected = _reject_by_node_properties(attrs.pod, node)
        if rejected is not None:
            return rejected
        node_info = framework.NodeInfo(*attrs.other_pods)
        node_info.set_node(node)
        try:
            self._plugin_resource_update_func(node_info, attrs)
        except ACCIDENTS:
            raise
        except Exception as err:
            # The kubelet rejects this pod; the update may succeed for the next one.
            message = f"Update plugin resources failed due to {err}, which is unexpected."
            klog.info_s("Failed to admit pod", pod=klog.kobj(attrs.pod), message=message)
            return _rejected(UNEXPECTED_ADMISSION_ERROR, message)
        return self._admit_to(ctx, attrs, node_info)

    def _admit_to(
        self, ctx: golang.Context, attrs: PodAdmitAttributes, node_info: framework.NodeInfo
    ) -> PodAdmitResult:
        pod = attrs.pod
        reasons = self.general_filter(ctx, remove_missing_extended_resources(pod, node_info), node_info)
        if not reasons:
            return PodAdmitResult(admit=True)
        try:
            reasons = self._admission_failure_handler.handle_admission_failure(ctx, pod, reasons, attrs.other_pods)
        except (golang.ContextError, *ACCIDENTS):
            # The kubelet is stopping, or lacks memory, stack or threads, so it decides nothing.
            raise
        except Exception as err:
            # There is no room, and the attempt to make room failed, so the pod does not fit.
            klog.info_s(
                "Failed to admit pod, unexpected error while attempting to recover from admission failure",
                pod=klog.kobj(pod),
                err=err,
            )
            return _rejected(
                UNEXPECTED_ADMISSION_ERROR,
                f"Unexpected error while attempting to recover from admission failure: {err}",
            )
        # Users see only one reason.
        return _result_for(pod, reasons[0]) if reasons else PodAdmitResult(admit=True)

    def general_filter(
        self, ctx: golang.Context, pod: v1.Pod, node_info: framework.NodeInfo
    ) -> list[PredicateFailureReason]:
        """Return all reasons why the pod does not fit."""
        reasons = _general_filter(pod, node_info)
        if not reasons or any(reason.get_reason() != nodeaffinity.ERR_REASON_POD for reason in reasons):
            return reasons
        # Only the labels do not match, and the cached labels may be outdated.
        try:
            node_info.set_node(self._get_node_any_way_func(ctx, False))
        except ACCIDENTS:
            raise
        except Exception as err:
            # Without a response the kubelet must use the cached labels.
            klog.error_s(err, "Failed to synchronously fetch node info")
            return reasons
        return _general_filter(pod, node_info)


def _reject_by_node_properties(pod: v1.Pod, node: v1.Node) -> PodAdmitResult | None:
    if reject_pod_admission_based_on_os_selector(pod, node):
        return _rejected(
            POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if reject_pod_admission_based_on_os_field(pod):
        return _rejected(POD_OS_NOT_SUPPORTED, "Failed to admit pod as the OS field doesn't match node OS")
    if reject_pod_admission_based_on_supplemental_groups_policy(pod, node):
        message = f"SupplementalGroupsPolicy={v1.SUPPLEMENTAL_GROUPS_POLICY_STRICT} is not supported in this node"
        klog.info_s("Failed to admit pod", pod=klog.kobj(pod), message=message)
        return _rejected(SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED, message)
    return None


def _rejected(reason: str, message: str) -> PodAdmitResult:
    return PodAdmitResult(admit=False, reason=reason, message=message)


def _result_for(pod: v1.Pod, failure: PredicateFailureReason) -> PodAdmitResult:
    match failure:
        case PredicateFailureError():
            reason = failure.predicate_name
        case InsufficientResourceError():
            reason = f"{INSUFFICIENT_RESOURCE_PREFIX}{failure.resource_name}"
        case RoomIsToBeMade():
            return PodAdmitResult(False, failure.get_reason(), str(failure), wait=True, make_room=failure.make_room)
        case _:
            message = f"GeneralPredicates failed due to {failure}, which is unexpected."
            klog.info_s("Failed to admit pod", pod=klog.kobj(pod), err=message)
            return _rejected(UNEXPECTED_PREDICATE_FAILURE_TYPE, message)
    klog.v(2).info_s("Predicate failed on Pod", pod=klog.kobj(pod), err=str(failure))
    return _rejected(reason, str(failure))


def reject_pod_admission_based_on_os_selector(pod: v1.Pod, node: v1.Node) -> bool:
    """Report whether the pod's label names an operating system that the node does not run.

    The node's own label does not matter. Go writes the right label into the given node object first.
    """
    return pod.metadata.labels.get(_LABEL_OS_STABLE, _OS) != _OS


def reject_pod_admission_based_on_os_field(pod: v1.Pod) -> bool:
    """Report whether the pod's spec names another operating system."""
    return pod.spec.os is not None and pod.spec.os.name != _OS


def reject_pod_admission_based_on_supplemental_groups_policy(pod: v1.Pod, node: v1.Node) -> bool:
    """Report whether the pod requires the strict groups policy, and the node does not support it."""
    context = pod.spec.security_context
    if context is None or context.supplemental_groups_policy != v1.SUPPLEMENTAL_GROUPS_POLICY_STRICT:
        return False
    return node.status.features is None or not node.status.features.supplemental_groups_policy


def remove_missing_extended_resources(pod: v1.Pod, node_info: framework.NodeInfo) -> v1.Pod:
    """Return a copy of the pod without requests for extended resources that the node does not know.

    Such resources may belong to the cluster instead of a node, or come from resource claims. Therefore the kubelet
    admits a static pod that requests a device which the node lacks, although it should not.
    """
    pod = v1.deepcopy(pod)
    for container in [*pod.spec.containers, *pod.spec.init_containers]:
        container.resources.requests = {
            name: quantity
            for name, quantity in container.resources.requests.items()
            if not _is_backed_by_claim(pod, name, container.name)
            and (not v1helper.is_extended_resource_name(name) or name in node_info.allocatable.scalar_resources)
        }
    return pod


def _is_backed_by_claim(pod: v1.Pod, resource_name: str, container_name: str) -> bool:
    claim_status = pod.status.extended_resource_claim_status
    if claim_status is None or not features.feature_gate.enabled(features.DRA_EXTENDED_RESOURCE):
        return False
    return any(
        mapping.resource_name == resource_name and mapping.container_name == container_name
        for mapping in claim_status.request_mappings
    )


def _general_filter(pod: v1.Pod, node_info: framework.NodeInfo) -> list[PredicateFailureReason]:
    reasons: list[PredicateFailureReason] = []
    for result in admission_check(pod, node_info):
        lacking = result.insufficient_resource
        if lacking is None:
            reasons.append(PredicateFailureError(result.name, result.reason))
        else:
            reasons.append(
                InsufficientResourceError(lacking.resource_name, lacking.requested, lacking.used, lacking.capacity)
            )
    taints = [] if node_info.node is None else node_info.node.spec.taints
    if not kubetypes.is_static_pod(pod) and _has_untolerated_taint(taints, pod.spec.tolerations):
        reasons.append(PredicateFailureError(tainttoleration.NAME, tainttoleration.ERR_REASON_NOT_MATCH))
    return reasons


def _has_untolerated_taint(taints: Iterable[v1.Taint], tolerations: Iterable[v1.Toleration]) -> bool:
    """Report whether a NoExecute taint is untolerated. The scheduler handles all other effects."""
    comparison = features.feature_gate.enabled(features.TAINT_TOLERATION_COMPARISON_OPERATORS)
    untolerated = corev1.find_matching_untolerated_taint(
        taints, tolerations, lambda taint: taint.effect == v1.TAINT_EFFECT_NO_EXECUTE, comparison
    )
    return untolerated is not None
