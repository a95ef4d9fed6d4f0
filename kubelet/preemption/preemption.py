"""Find the pods whose preemption costs least and frees what a critical pod lacks, and kill them.

Go: pkg/kubelet/preemption/preemption.go
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from kubelet import events, eviction, lifecycle, metrics
from kubelet import types as kubetypes
from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.api.v1 import resource
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.client_go.tools import record

# `LONGEST_WAIT_FOR_VICTIM` is the time, in seconds, that a critical pod waits for a preempted pod, whose own grace
# period may be years.
# DIVERGES (safer): a preempted pod that takes more than an hour to stop counts as gone.
# Go: pkg/kubelet/pod_workers.go, killPodNow: the only limit is one and a half times the pod's grace period.
# Why: any user could delay critical pods with a grace period of years.
# Test: kubelet/pod_workers_test.py:test_kill_pod_now_waits_not_for_ever_for_a_pod_that_has_chosen_how_long,
# kubelet/kubelet_build_test.py:test_pods_that_choose_their_grace_period_are_not_waited_for_without_end
LONGEST_WAIT_FOR_VICTIM = 3600.0
_MESSAGE = "Preempted in order to admit critical pod"
_CONDITION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."


class PreemptionError(Exception):
    """Signal that preempting all allowed pods would not make enough room."""


class CriticalPodAdmissionHandler:
    """Preempt pods for a critical pod that lacks only resources, as a lifecycle.AdmissionFailureHandler.

    It preempts guaranteed pods only if necessary, then burstable pods only if necessary, and in each class as few pods
    as possible.

    DIVERGES (fault of Go): only the critical pod waits for the pods that are preempted for it.
    Go: pkg/kubelet/preemption/preemption.go, (*CriticalPodAdmissionHandler).evictPodsToFreeRequests: the sync loop
    waits, and holds the lock of admissions.
    Why: during the grace periods of these pods, no pod of the node would be started, changed or stopped.
    Test: preemption_test.py:test_handle_admission_failure,
    kubelet/kubelet_admission_test.py:test_nobody_waits_for_the_victims_of_preemption_but_the_pod_that_they_make_room_for
    """

    def __init__(self, kill_pod_func: eviction.KillPodFunc, recorder: record.EventRecorder) -> None:
        self._kill_pod_func = kill_pod_func
        self._recorder = recorder

    def handle_admission_failure(
        self,
        ctx: golang.Context,
        admit_pod: v1.Pod,
        failure_reasons: list[lifecycle.PredicateFailureReason],
        other_pods: list[v1.Pod],
    ) -> list[lifecycle.PredicateFailureReason]:
        """Return the remaining reasons, or a RoomIsToBeMade if pods must end first. Raise PreemptionError."""
        if not kubetypes.is_critical_pod(admit_pod):
            return failure_reasons
        lacking = [r for r in failure_reasons if isinstance(r, lifecycle.InsufficientResourceError)]
        other_reasons = [r for r in failure_reasons if not isinstance(r, lifecycle.InsufficientResourceError)]
        if other_reasons:
            # A lack of resources is no reason to reject a critical pod.
            return other_reasons
        requirements = [AdmissionRequirement(r.resource_name, r.get_insufficient_amount()) for r in lacking]
        insufficient = AdmissionRequirementList(requirements)
        try:
            pods_to_preempt = get_pods_to_preempt(admit_pod, other_pods, insufficient)
        except PreemptionError as err:
            raise PreemptionError(f"preemption: error finding a set of pods to preempt: {err}") from err
        if not pods_to_preempt:
            return []
        message = f"waiting for preempted pods to terminate: {', '.join(map(klog.kobj, pods_to_preempt))}"
        evict = functools.partial(self._evict_pods_to_free_requests, admit_pod, pods_to_preempt, insufficient)
        return [lifecycle.RoomIsToBeMade(message, evict)]

    def _evict_pods_to_free_requests(
        self, admit_pod: v1.Pod, pods_to_preempt: list[v1.Pod], insufficient: AdmissionRequirementList
    ) -> list[v1.Pod]:
        """Preempt the pods, and return them when they have ended or their time is over.

        As in Go, a pod that has not ended in time no longer counts either.
        """
        for pod in pods_to_preempt:
            self._preempt(pod, admit_pod, insufficient)
        return pods_to_preempt

    def _preempt(self, pod: v1.Pod, admit_pod: v1.Pod, insufficient: AdmissionRequirementList) -> None:
        """Preempt one pod. If the kill fails, the pod worker keeps trying."""
        self._recorder.event(pod, v1.EVENT_TYPE_WARNING, events.PREEMPT_CONTAINER, _MESSAGE)
        klog.v(2).info_s(
            "Preempting pod to free up resources",
            pod=klog.kobj(pod),
            podUID=pod.metadata.uid,
            insufficientResources=str(insufficient),
            requestingPod=klog.kobj(admit_pod),
        )
        try:
            self._kill_pod_func(pod, True, None, lambda status: _set_preempted(pod, status))
        except golang.ContextError:
            raise
        except Exception as err:
            # The other pods must be preempted anyway.
            klog.error_s(err, "Failed to evict pod", pod=klog.kobj(pod))
            return
        metrics.PREEMPTIONS.labels(insufficient[0].resource_name if insufficient else "").inc()
        klog.info_s("Pod evicted successfully", pod=klog.kobj(pod))


def _set_preempted(pod: v1.Pod, status: v1.PodStatus) -> None:
    status.phase = v1.POD_FAILED
    status.reason = events.PREEMPT_CONTAINER
    status.message = _MESSAGE
    condition = v1.PodCondition(
        type=v1.DISRUPTION_TARGET,
        observed_generation=podutil.calculate_pod_condition_observed_generation(
            status, pod.metadata.generation, v1.DISRUPTION_TARGET
        ),
        status=v1.CONDITION_TRUE,
        reason=v1.POD_REASON_TERMINATION_BY_KUBELET,
        message=_CONDITION_MESSAGE,
    )
    podutil.update_pod_condition(status, condition)


def get_pods_to_preempt(pod: v1.Pod, pods: list[v1.Pod], requirements: AdmissionRequirementList) -> list[v1.Pod]:
    """Return the pods whose preemption covers the requirements. Raise PreemptionError if there are none."""
    best_effort, burstable, guaranteed = _sort_pods_by_qos(pod, pods)
    unmet = requirements.subtract(*best_effort, *burstable, *guaranteed)
    if unmet:
        raise PreemptionError(f"no set of running pods found to reclaim resources: {unmet}")
    # The result has those pods of each class that must be preempted even if all pods of the lower classes are
    # preempted.
    guaranteed_to_evict = _get_pods_to_preempt_by_distance(guaranteed, requirements.subtract(*best_effort, *burstable))
    burstable_to_evict = _get_pods_to_preempt_by_distance(
        burstable, requirements.subtract(*best_effort, *guaranteed_to_evict)
    )
    best_effort_to_evict = _get_pods_to_preempt_by_distance(
        best_effort, requirements.subtract(*burstable_to_evict, *guaranteed_to_evict)
    )
    return [*best_effort_to_evict, *burstable_to_evict, *guaranteed_to_evict]


def _get_pods_to_preempt_by_distance(pods: list[v1.Pod], requirements: AdmissionRequirementList) -> list[v1.Pod]:
    """Choose the pod that covers most of the remaining requirements until none remain.

    Of equal pods, choose the smallest.
    """
    left = list(pods)
    to_evict = []
    while requirements:
        if not left:
            raise PreemptionError(f"no set of running pods found to reclaim resources: {requirements}")
        best, best_distance = 0, requirements.distance(left[0])
        for i, candidate in enumerate(left[1:], start=1):
            distance = requirements.distance(candidate)
            nearer = distance < best_distance
            if nearer or (distance == best_distance and smaller_resource_request(candidate, left[best])):
                best, best_distance = i, distance
        chosen = left[best]
        requirements = requirements.subtract(chosen)
        to_evict.append(chosen)
        # Go removes the pod in the same way. The order decides which of two equal pods is preempted.
        left[best] = left[-1]
        left.pop()
    return to_evict


@dataclass(frozen=True, slots=True)
class AdmissionRequirement:
    """Describe the amount of a resource to free; CPU is in millicores."""

    resource_name: str
    quantity: int


class AdmissionRequirementList(list[AdmissionRequirement]):
    """Hold all amounts to free. The str() is for messages."""

    def distance(self, pod: v1.Pod) -> float:
        """Return how far the pod's requests are from the requirements: 0 if they cover all, at most 1 per resource."""
        total = 0.0
        for requirement in self:
            remaining = requirement.quantity - resource.get_resource_request(pod, requirement.resource_name)
            if remaining > 0:
                total += (remaining / requirement.quantity) ** 2
        return total

    def subtract(self, *pods: v1.Pod) -> AdmissionRequirementList:
        """Return what would still have to be freed without these pods."""
        remaining = AdmissionRequirementList()
        for requirement in self:
            name = requirement.resource_name
            quantity = requirement.quantity - sum(resource.get_resource_request(pod, name) for pod in pods)
            if quantity > 0:
                remaining.append(AdmissionRequirement(name, quantity))
        return remaining

    def __str__(self) -> str:
        return f"[{''.join(f'(res: {r.resource_name}, q: {r.quantity}), ' for r in self)}]"


def _sort_pods_by_qos(preemptor: v1.Pod, pods: list[v1.Pod]) -> tuple[list[v1.Pod], list[v1.Pod], list[v1.Pod]]:
    """Return the best-effort, burstable and guaranteed pods that the preemptor may preempt."""
    classes: dict[str, list[v1.Pod]] = {
        v1.POD_QOS_BEST_EFFORT: [],
        v1.POD_QOS_BURSTABLE: [],
        v1.POD_QOS_GUARANTEED: [],
    }
    for pod in pods:
        if kubetypes.preemptable(preemptor, pod):
            classes[v1qos.get_pod_qos(pod)].append(pod)
    best_effort, burstable, guaranteed = classes.values()
    return best_effort, burstable, guaranteed


def smaller_resource_request(pod1: v1.Pod, pod2: v1.Pod) -> bool:
    """Report whether pod1 requests less memory, or the same memory and no more CPU."""
    for name in (v1.RESOURCE_MEMORY, v1.RESOURCE_CPU):
        request1, request2 = (resource.get_resource_request(pod, name) for pod in (pod1, pod2))
        if request1 != request2:
            return request1 < request2
    return True
