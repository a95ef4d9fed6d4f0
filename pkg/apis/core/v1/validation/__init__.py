"""Validate objects in the form of API version v1.

Go: pkg/apis/core/v1/validation
"""

from pkg.apis.core.v1.validation.validation import validate_pod_log_options

__all__ = ["validate_pod_log_options"]
