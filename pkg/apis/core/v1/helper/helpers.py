"""Classify resource names, access modes and tolerations.

Go: pkg/apis/core/v1/helper/helpers.go
"""

from __future__ import annotations

import re

from pkg.api.core import v1
from pkg.apimachinery.api import resource

_QUALIFIED_NAME = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_extended_resource_name(name: str) -> bool:
    """Report whether the resource is neither Kubernetes' own nor a name of the quota system."""
    if is_native_resource(name) or name.startswith(v1.DEFAULT_RESOURCE_REQUESTS_PREFIX):
        return False
    prefix, _, rest = (v1.DEFAULT_RESOURCE_REQUESTS_PREFIX + name).rpartition("/")
    return len(rest) <= 63 and len(prefix) <= 253 and bool(_QUALIFIED_NAME.fullmatch(f"{prefix}/{rest}"))


def is_prefixed_native_resource(name: str) -> bool:
    return v1.RESOURCE_DEFAULT_NAMESPACE_PREFIX in name


def is_native_resource(name: str) -> bool:
    """Report whether the resource is Kubernetes' own, as are all names without a prefix."""
    return "/" not in name or is_prefixed_native_resource(name)


def is_huge_page_resource_name(name: str) -> bool:
    return name.startswith(v1.RESOURCE_HUGE_PAGES_PREFIX)


def huge_page_size_from_resource_name(name: str) -> resource.Quantity:
    """Return the page size; raise ValueError if the name is not a name of huge pages."""
    if not is_huge_page_resource_name(name):
        raise ValueError(f"resource name: {name} is an invalid hugepage name")
    return resource.parse_quantity(name.removeprefix(v1.RESOURCE_HUGE_PAGES_PREFIX))


def huge_page_unit_size_from_byte_size(size: int) -> str:
    """Return the size in the kernel's form, such as "2MB"; raise ValueError if it has no such form."""
    units = ("B", "KB", "MB", "GB", "TB", "PB")
    index = 0
    while size % 1024 == 0 and index < len(units) - 1:
        size //= 1024
        index += 1
    if size > 1024 and index < len(units) - 1:
        raise ValueError(f"size: {size}{units[index]} must be guaranteed to divisible into the largest units")
    return f"{size}{units[index]}"


def huge_page_size_from_medium(medium: str) -> resource.Quantity:
    """Return the page size; raise ValueError if the medium is not huge pages of one size."""
    if not is_huge_page_medium(medium):
        raise ValueError(f"medium: {medium} is not a hugepage medium")
    if medium == v1.STORAGE_MEDIUM_HUGE_PAGES:
        raise ValueError(f"medium: {medium} doesn't have size information")
    return resource.parse_quantity(medium.removeprefix(v1.STORAGE_MEDIUM_HUGE_PAGES_PREFIX))


def is_huge_page_medium(medium: str) -> bool:
    return medium == v1.STORAGE_MEDIUM_HUGE_PAGES or medium.startswith(v1.STORAGE_MEDIUM_HUGE_PAGES_PREFIX)


def is_overcommit_allowed(name: str) -> bool:
    """Report whether limits of this resource may exceed its requests."""
    return is_native_resource(name) and not is_huge_page_resource_name(name)


def is_attachable_volume_resource_name(name: str) -> bool:
    return name.startswith(v1.RESOURCE_ATTACHABLE_VOLUMES_PREFIX)


def is_service_ip_set(service: v1.Service) -> bool:
    """Report whether the service has its own IP address."""
    return service.spec.cluster_ip not in ("", v1.CLUSTER_IP_NONE)
