"""Provide helpers for core API objects.

Go: pkg/apis/core/v1/helper
"""

from pkg.apis.core.v1.helper.helpers import (
    huge_page_size_from_medium,
    huge_page_size_from_resource_name,
    huge_page_unit_size_from_byte_size,
    is_attachable_volume_resource_name,
    is_extended_resource_name,
    is_huge_page_medium,
    is_huge_page_resource_name,
    is_native_resource,
    is_overcommit_allowed,
    is_prefixed_native_resource,
    is_service_ip_set,
)

__all__ = [
    "huge_page_size_from_medium",
    "huge_page_size_from_resource_name",
    "huge_page_unit_size_from_byte_size",
    "is_attachable_volume_resource_name",
    "is_extended_resource_name",
    "is_huge_page_medium",
    "is_huge_page_resource_name",
    "is_native_resource",
    "is_overcommit_allowed",
    "is_prefixed_native_resource",
    "is_service_ip_set",
]
