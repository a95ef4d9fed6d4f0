"""Classify resource names, and read tolerations and annotations.

Go: pkg/apis/core/helper/helpers.go
"""

from __future__ import annotations

from collections.abc import Mapping

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import validation
from pkg.golang import strconv

_HUGE_PAGES_PREFIX = "hugepages-"
_REQUESTS_PREFIX = "requests."
_NATIVE_DOMAIN = "kubernetes.io/"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_STANDARD_CONTAINER_RESOURCES = frozenset(("cpu", "memory", "ephemeral-storage"))
_INTEGER_RESOURCES = frozenset(
    (
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    )
)  # fmt: skip
_STANDARD_RESOURCES = (
    _STANDARD_CONTAINER_RESOURCES
    | _INTEGER_RESOURCES
    | {
        "requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage",
        "limits.cpu", "limits.memory", "limits.ephemeral-storage", "storage",
    }
)  # fmt: skip
_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))


def is_huge_page_resource_name(name: str) -> bool:
    return name.startswith(_HUGE_PAGES_PREFIX)


def is_huge_page_resource_value_divisible(name: str, quantity: resource.Quantity) -> bool:
    """Report whether the amount is a multiple of the page size in the resource's name."""
    try:
        page_size = huge_page_size_from_resource_name(name)
    except ValueError:
        return False
    if page_size.sign() <= 0 or page_size.milli_value() % 1000:
        return False
    return quantity.value() % page_size.value() == 0


def is_quota_huge_page_resource_name(name: str) -> bool:
    return name.startswith((_HUGE_PAGES_PREFIX, _REQUESTS_PREFIX + _HUGE_PAGES_PREFIX))


def huge_page_size_from_resource_name(name: str) -> resource.Quantity:
    """Return the page size in a name such as "hugepages-2Mi"; raise ValueError for another name."""
    if not is_huge_page_resource_name(name):
        raise ValueError(f"resource name: {name} is an invalid hugepage name")
    return resource.parse_quantity(name.removeprefix(_HUGE_PAGES_PREFIX))


def is_standard_container_resource_name(name: str) -> bool:
    return name in _STANDARD_CONTAINER_RESOURCES or is_huge_page_resource_name(name)


def is_extended_resource_name(name: str) -> bool:
    """Report whether the resource belongs to another domain than Kubernetes' own, such as a device plugin's."""
    if is_native_resource(name) or name.startswith(_REQUESTS_PREFIX):
        return False
    # A quota names the resource with this prefix, so the prefixed name must be valid.
    return not validation.is_qualified_name(_REQUESTS_PREFIX + name)


def is_native_resource(name: str) -> bool:
    return "/" not in name or _NATIVE_DOMAIN in name


def is_overcommit_allowed(name: str) -> bool:
    """Report whether a container's limit may exceed its request."""
    return is_native_resource(name) and not is_huge_page_resource_name(name)


def is_standard_resource_name(name: str) -> bool:
    return name in _STANDARD_RESOURCES or is_quota_huge_page_resource_name(name)


def is_integer_resource_name(name: str) -> bool:
    return name in _INTEGER_RESOURCES or is_extended_resource_name(name)


def is_standard_finalizer_name(name: str) -> bool:
    return name in _STANDARD_FINALIZERS


def add_or_update_toleration_in_pod(pod: v1.Pod, toleration: v1.Toleration) -> bool:
    """Add the toleration to the pod, or replace one with the same key, effect, operator and value.

    Report whether the pod changed.
    """
    tolerations: list[v1.Toleration] = []
    updated = False
    for known in pod.spec.tolerations:
        if not _matches(toleration, known):
            tolerations.append(known)
            continue
        if toleration == known:
            return False
        tolerations.append(toleration)
        updated = True
    if not updated:
        tolerations.append(toleration)
    pod.spec.tolerations = tolerations
    return True


def _matches(a: v1.Toleration, b: v1.Toleration) -> bool:
    return (a.key, a.effect, a.operator, a.value) == (b.key, b.effect, b.operator, b.value)


def get_deletion_cost_from_pod_annotations(annotations: Mapping[str, str]) -> int:
    """Return the pod's deletion cost, 0 without the annotation.

    Raise ValueError for anything except a 32-bit number.
    """
    value = annotations.get(POD_DELETION_COST)
    if value is None:
        return 0
    # A plus sign and leading zeros are invalid.
    cost = strconv.parse_int(value, bits=32)
    if str(cost) != value:
        raise strconv.NumError("ParseInt", value, "invalid syntax")
    return cost
