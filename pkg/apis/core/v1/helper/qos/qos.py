"""Determine the quality-of-service class of a pod.

Go: pkg/apis/core/v1/helper/qos/qos.go
"""

from __future__ import annotations

from collections.abc import Mapping

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity

_SUPPORTED_QOS_COMPUTE_RESOURCES = (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY)


def get_pod_qos(pod: v1.Pod) -> str:
    """Return the class in the pod's status, or else the computed one."""
    return pod.status.qos_class or compute_pod_qos(pod)


def compute_pod_qos(pod: v1.Pod) -> str:
    """Return the QoS class that follows from the pod's requests and limits.

    A pod is Guaranteed if all limits of CPU and memory are set and equal the requests, BestEffort if nothing is set,
    and Burstable otherwise. Ephemeral containers cannot have resources. If pod-level resources are set, only they
    count.
    """
    if features.feature_gate.enabled(features.POD_LEVEL_RESOURCES) and pod.spec.resources is not None:
        parts = [pod.spec.resources]
        # If the pod-level resources have no limits, the comparison with the requests below decides.
        judged = [part for part in parts if part.limits]
    else:
        parts = judged = [c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)]
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    for part in parts:
        _process_resource_list(requests, part.requests)
        _process_resource_list(limits, part.limits)
    if not requests and not limits:
        return v1.POD_QOS_BEST_EFFORT
    all_limited = all(_has_all_qos_resources(part.limits) for part in judged)
    if all_limited and len(requests) == len(limits) and _match(requests, limits):
        return v1.POD_QOS_GUARANTEED
    return v1.POD_QOS_BURSTABLE


def _process_resource_list(target: dict[str, Quantity], new: Mapping[str, Quantity]) -> None:
    """Add the relevant amounts that are above zero."""
    for name in _SUPPORTED_QOS_COMPUTE_RESOURCES:
        quantity = new.get(name)
        if quantity is not None and quantity.sign() > 0:
            target[name] = target[name].add(quantity) if name in target else quantity


def _has_all_qos_resources(resources: Mapping[str, Quantity]) -> bool:
    return all(name in resources and resources[name].sign() > 0 for name in _SUPPORTED_QOS_COMPUTE_RESOURCES)


def _match(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> bool:
    return all(name in limits and limits[name].cmp(quantity) == 0 for name, quantity in requests.items())
