"""Classify resource names, and read tolerations and annotations, for defaults and validation.

Go: pkg/apis/core/helper
"""

from pkg.apis.core.helper.helpers import (
    POD_DELETION_COST,
    add_or_update_toleration_in_pod,
    get_deletion_cost_from_pod_annotations,
    huge_page_size_from_resource_name,
    is_extended_resource_name,
    is_huge_page_resource_name,
    is_huge_page_resource_value_divisible,
    is_integer_resource_name,
    is_native_resource,
    is_overcommit_allowed,
    is_quota_huge_page_resource_name,
    is_standard_container_resource_name,
    is_standard_finalizer_name,
    is_standard_resource_name,
)

__all__ = [
    "POD_DELETION_COST",
    "add_or_update_toleration_in_pod",
    "get_deletion_cost_from_pod_annotations",
    "huge_page_size_from_resource_name",
    "is_extended_resource_name",
    "is_huge_page_resource_name",
    "is_huge_page_resource_value_divisible",
    "is_integer_resource_name",
    "is_native_resource",
    "is_overcommit_allowed",
    "is_quota_huge_page_resource_name",
    "is_standard_container_resource_name",
    "is_standard_finalizer_name",
    "is_standard_resource_name",
]
