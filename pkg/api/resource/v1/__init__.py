"""Define resource.k8s.io/v1: resource claims, and the resource slices of drivers.

Go: k8s.io/api/resource/v1
"""

from pkg.api.resource.v1 import types as _types
from pkg.api.resource.v1.constants import RESOURCE_SLICE_SELECTOR_DRIVER, RESOURCE_SLICE_SELECTOR_NODE_NAME
from pkg.api.resource.v1.types import *  # noqa: F403

__all__ = [*_types.__all__, "RESOURCE_SLICE_SELECTOR_DRIVER", "RESOURCE_SLICE_SELECTOR_NODE_NAME"]
