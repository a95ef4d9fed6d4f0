"""Read the resources of pods and containers.

Go: pkg/api/v1/resource
"""

from pkg.api.v1.resource.helpers import (
    extract_container_resource_value,
    extract_resource_value_by_container_name_and_node_allocatable,
    find_container_in_pod,
    get_resource_request,
    get_resource_request_quantity,
    is_huge_page_resource_name,
    merge_container_resource_limits,
)

__all__ = [
    "extract_container_resource_value",
    "extract_resource_value_by_container_name_and_node_allocatable",
    "find_container_in_pod",
    "get_resource_request",
    "get_resource_request_quantity",
    "is_huge_page_resource_name",
    "merge_container_resource_limits",
]
