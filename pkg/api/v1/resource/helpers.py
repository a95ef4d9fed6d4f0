"""Read single resources of containers and pods, also as text for the downward API.

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
    """Return the pod's request for a resource, including the overhead unless the request is zero."""
    pod_level = features.feature_gate.enabled(features.POD_LEVEL_RESOURCES) and (
        resourcehelper.is_pod_level_resources_set(pod)
    )
    options = resourcehelper.PodResourcesOptions(skip_container_level_resources=pod_level, exclude_overhead=True)
    requested = resourcehelper.pod_requests(pod, options).get(resource_name, Quantity(0))
    if requested.is_zero() or resource_name not in pod.spec.overhead:
        return requested
    return requested.add(pod.spec.overhead[resource_name])


def get_resource_request(pod: v1.Pod, resource_name: str) -> int:
    """Return the pod's request as a number, with CPU in thousandths; the request for `pods` is 1."""
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
    """Return a resource of the container with this name as text.

    Limits that are not set default to the node's allocatable resources. Raise LookupError if the container does not
    exist, and ValueError for an unknown resource.
    """
    # Only the resources are copied, not the whole container, because thousands of files may need such a value.
    resources = find_container_in_pod(pod, container_name).resources
    container = v1.Container(resources=v1.deepcopy(resources))
    merge_container_resource_limits(container, node_allocatable)
    return extract_container_resource_value(fs, container)


def extract_container_resource_value(fs: v1.ResourceFieldSelector, container: v1.Container) -> str:
    """Return the selected resource in units of its divisor, rounded up; raise ValueError for an unknown one."""
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
    """Return a container or init container of the pod; raise LookupError if the name does not exist."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == container_name:
            return container
    raise LookupError(f"container {container_name} not found")


def merge_container_resource_limits(container: v1.Container, allocatable: Mapping[str, Quantity]) -> None:
    """Set missing limits, except those of huge pages, to the allocatable amounts, in place."""
    limits = container.resources.limits
    for name in _DEFAULTED_BY_NODE:
        if name in allocatable and (name not in limits or limits[name].is_zero()):
            limits[name] = allocatable[name]


def is_huge_page_resource_name(name: str) -> bool:
    return name.startswith(v1.RESOURCE_HUGE_PAGES_PREFIX)
