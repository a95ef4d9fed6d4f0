"""Set defaults of the core API group, and read its options from queries.

Go: pkg/apis/core/v1
"""

from pkg.apis.core.v1.conversion import convert_url_values_to_pod_log_options
from pkg.apis.core.v1.defaults import set_defaults_pod, set_defaults_pod_spec, set_object_defaults_pod

__all__ = [
    "convert_url_values_to_pod_log_options",
    "set_defaults_pod",
    "set_defaults_pod_spec",
    "set_object_defaults_pod",
]
