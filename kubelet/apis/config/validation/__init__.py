"""Validation of the configuration.

Go: pkg/kubelet/apis/config/validation
"""

from kubelet.apis.config.validation.validation import ConfigurationError, validate_kubelet_configuration
from kubelet.apis.config.validation.validation_os import is_cgroup2_unified_mode

__all__ = ["ConfigurationError", "is_cgroup2_unified_mode", "validate_kubelet_configuration"]
