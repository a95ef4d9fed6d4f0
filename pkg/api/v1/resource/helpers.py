"""A container's and a pod's resources, one by one and as the text that the downward API shows.

Go: pkg/api/v1/resource/helpers.go
"""

from __future__ import annotations

from collections.abc import Mapping

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.resource import Quantity
from pkg.component_helpers import resource as resourcehelper

_BINARY = frozenset({v1.RESOURCE_MEMORY, v1.RESOURCE_STORAGE, v1.RESOURCE_EPHEMERAL_STORAGE})
_DEFAULTED_BY_NODE = (v1.RESOURCE_CPU, v1.RESOURCE_MEMORY, v1.RESOURCE_EPHEMERAL_STORAGE)


def get_resource_request_quantity(pod: v1.Pod, resource_name: str) -> Quantity:
    """What the pod requests of a resource; its overhead counts if it requests any."""
    pod_level = features.feature_gate.enabled(features.POD_LEVEL_RESOURCES) and (
        resourcehelper.is_pod_level_resources_set(pod)
    )
    options = resourcehelper.PodResourcesOptions(skip_container_level_resources=pod_level, exclude_overhead=True)
    requested = resourcehelper.pod_requests(pod, options).get(resource_name, Quantity(0))
    if requested.is_zero() or resource_name not in pod.spec.overhead:
        return requested
    return requested.add(pod.spec.overhead[resource_name])


def get_resource_request(pod: v1.Pod, resource_name: str) -> int:
    """The same as a number, CPU in thousandths. Of pods, each pod requests one."""
    if resource_name == v1.RESOURCE_PODS:
        return 1
    quantity = get_resource_request_quantity(pod, resource_name)
    return quantity.milli_value() if resource_name == v1.RESOURCE_CPU else quantity.value()


def extract_resource_value_by_container_name_and_node_allocatable(
    fs: v1.ResourceFieldSelector,
    pod: v1.Pod,
    container_name: str,
    node_allocatable: Mapping[str, Quantity],
) -> str:
    """As extract_container_resource_value, of the container of that name; raises LookupError too.

    Limits that are not set are the node's allocatable.
    """
    # Not a copy of all that the container has: thousands of files may have such a value.
    resources = find_container_in_pod(pod, container_name).resources
    container = v1.Container(resources=v1.deepcopy(resources))
    merge_container_resource_limits(container, node_allocatable)
    return extract_container_resource_value(fs, container)


def extract_container_resource_value(fs: v1.ResourceFieldSelector, container: v1.Container) -> str:
    """The selector's resource in units of its divisor, rounded up; raises ValueError for an unknown one."""
    divisor = fs.divisor if fs.divisor is not None and not fs.divisor.is_zero() else resource.must_parse("1")
    kind, _, name = fs.resource.partition(".")
    lists: dict[str, Mapping[str, Quantity]] = {
        "limits": container.resources.limits,
        "requests": container.resources.requests,
    }
    if kind not in lists or not (name in _DEFAULTED_BY_NODE or is_huge_page_resource_name(name)):
        raise ValueError(f"unsupported container resource : {fs.resource}")
    quantity = lists[kind].get(name, Quantity(0))
    if name == v1.RESOURCE_CPU:
        return str(_ceil(quantity.milli_value(), divisor.milli_value()))
    return str(_ceil(quantity.value(), divisor.value()))


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def find_container_in_pod(pod: v1.Pod, container_name: str) -> v1.Container:
    """A container or init container of the pod; raises LookupError without one of that name."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == container_name:
            return container
    raise LookupError(f"container {container_name} not found")


def merge_container_resource_limits(container: v1.Container, allocatable: Mapping[str, Quantity]) -> None:
    """Set, in place, limits that the container has not to allocatable; never those of huge pages."""
    limits = container.resources.limits
    for name in _DEFAULTED_BY_NODE:
        if name in allocatable and (name not in limits or limits[name].is_zero()):
            limits[name] = allocatable[name]


def is_huge_page_resource_name(name: str) -> bool:
    return name.startswith(v1.RESOURCE_HUGE_PAGES_PREFIX)
