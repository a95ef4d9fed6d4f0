"""Provide what the scheduler's parts share.

Go: pkg/scheduler/util/utils.go
"""

from __future__ import annotations

from pkg.apis.core.v1 import helper as v1helper

# This prefix marks a resource that represents a class of devices. Go: resourceapi.ResourceDeviceClassPrefix
_RESOURCE_DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"


def is_dra_extended_resource_name(name: str) -> bool:
    """Report whether a device claim may provide the resource."""
    return v1helper.is_extended_resource_name(name) or name.startswith(_RESOURCE_DEVICE_CLASS_PREFIX)
