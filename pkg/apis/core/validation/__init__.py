"""Validation of pods.

Go: pkg/apis/core/validation
"""

from pkg.apis.core.validation.options import PodValidationOptions
from pkg.apis.core.validation.validation import validate_object_meta, validate_pod_create, validate_pod_spec

__all__ = ["PodValidationOptions", "validate_object_meta", "validate_pod_create", "validate_pod_spec"]
