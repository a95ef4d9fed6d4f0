"""Inspect pods for their validation.

Go: pkg/api/pod
"""

from pkg.api.pod.util import (
    api_object_references,
    get_validation_options_from_pod_spec_and_meta,
    has_api_object_reference,
    visit_pod_configmap_names,
    visit_pod_secret_names,
)

__all__ = [
    "api_object_references",
    "get_validation_options_from_pod_spec_and_meta",
    "has_api_object_reference",
    "visit_pod_configmap_names",
    "visit_pod_secret_names",
]
