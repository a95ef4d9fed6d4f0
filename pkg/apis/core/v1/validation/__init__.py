"""Validation of what comes in the form of the API's first version.

Go: pkg/apis/core/v1/validation
"""

from pkg.apis.core.v1.validation.validation import validate_pod_log_options

__all__ = ["validate_pod_log_options"]
