"""Check whether names, numbers and addresses have the form that the API requires.

Go: k8s.io/apimachinery/pkg/util/validation, k8s.io/apimachinery/pkg/api/validate/content

Each `is_…` function returns the errors, worded to follow the field's name; an empty list means valid.
"""

from pkg.apimachinery.util.validation.ip import is_valid_ip_for_legacy_field
from pkg.apimachinery.util.validation.validation import (
    DNS1123_LABEL_MAX_LENGTH,
    DNS1123_SUBDOMAIN_MAX_LENGTH,
    LABEL_VALUE_MAX_LENGTH,
    MAX_MATCHED_LENGTH,
    empty_error,
    inclusive_range_error,
    is_config_map_key,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_dns1123_subdomain_with_underscore,
    is_http_header_name,
    is_in_range,
    is_qualified_name,
    is_relaxed_env_var_name,
    is_valid_group_id,
    is_valid_label_value,
    is_valid_port_name,
    is_valid_port_num,
    is_valid_user_id,
    max_len_error,
    regex_error,
)

__all__ = [
    "DNS1123_LABEL_MAX_LENGTH",
    "DNS1123_SUBDOMAIN_MAX_LENGTH",
    "LABEL_VALUE_MAX_LENGTH",
    "MAX_MATCHED_LENGTH",
    "empty_error",
    "inclusive_range_error",
    "is_config_map_key",
    "is_dns1123_label",
    "is_dns1123_subdomain",
    "is_dns1123_subdomain_with_underscore",
    "is_http_header_name",
    "is_in_range",
    "is_qualified_name",
    "is_relaxed_env_var_name",
    "is_valid_group_id",
    "is_valid_ip_for_legacy_field",
    "is_valid_label_value",
    "is_valid_port_name",
    "is_valid_port_num",
    "is_valid_user_id",
    "max_len_error",
    "regex_error",
]
