"""Validate pods and the objects to which they refer.

Go: pkg/apis/core/validation
"""

from pkg.apis.core.validation.config_maps import validate_config_map, validate_secret
from pkg.apis.core.validation.options import PodValidationOptions
from pkg.apis.core.validation.persistent_volumes import validate_persistent_volume, validate_persistent_volume_claim
from pkg.apis.core.validation.validation import validate_object_meta, validate_pod_create, validate_pod_spec

__all__ = [
    "PodValidationOptions",
    "validate_config_map",
    "validate_object_meta",
    "validate_persistent_volume",
    "validate_persistent_volume_claim",
    "validate_pod_create",
    "validate_pod_spec",
    "validate_secret",
]
