"""Compute the requests and limits of pods.

Go: k8s.io/component-helpers/resource
"""

from pkg.component_helpers.resource.helpers import (
    CONTAINERS,
    INIT_CONTAINERS,
    ContainerType,
    PodResourcesOptions,
    ResourceList,
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_limits_set,
    is_pod_level_requests_set,
    is_pod_level_resources_set,
    is_pod_resize_infeasible,
    is_supported_pod_level_resource,
    pod_limits,
    pod_requests,
    supported_pod_level_resources,
)

__all__ = [
    "CONTAINERS",
    "INIT_CONTAINERS",
    "ContainerType",
    "PodResourcesOptions",
    "ResourceList",
    "aggregate_container_limits",
    "aggregate_container_requests",
    "is_pod_level_limits_set",
    "is_pod_level_requests_set",
    "is_pod_level_resources_set",
    "is_pod_resize_infeasible",
    "is_supported_pod_level_resource",
    "pod_limits",
    "pod_requests",
    "supported_pod_level_resources",
]
