"""Validate the metadata that every API object has, such as its name.

Go: k8s.io/apimachinery/pkg/api/validation
"""

from pkg.apimachinery.api.validation.generic import (
    IS_NEGATIVE_ERROR_MSG,
    ValidateNameFunc,
    name_is_dns_label,
    name_is_dns_subdomain,
    validate_namespace_name,
    validate_nonnegative_field,
)
from pkg.apimachinery.api.validation.objectmeta import (
    TOTAL_ANNOTATION_SIZE_LIMIT_B,
    validate_annotations,
    validate_annotations_size,
    validate_finalizers,
    validate_object_meta,
    validate_owner_references,
)

__all__ = [
    "IS_NEGATIVE_ERROR_MSG",
    "TOTAL_ANNOTATION_SIZE_LIMIT_B",
    "ValidateNameFunc",
    "name_is_dns_label",
    "name_is_dns_subdomain",
    "validate_annotations",
    "validate_annotations_size",
    "validate_finalizers",
    "validate_namespace_name",
    "validate_nonnegative_field",
    "validate_object_meta",
    "validate_owner_references",
]
