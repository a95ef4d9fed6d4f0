"""Validate the configuration.

Go: pkg/kubelet/apis/config/validation
"""

from kubelet.apis.config.validation.validation import ConfigurationError, validate_kubelet_configuration

__all__ = ["ConfigurationError", "validate_kubelet_configuration"]
