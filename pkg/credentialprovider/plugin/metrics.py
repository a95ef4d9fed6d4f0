"""Define the metrics of credential provider plugins.

Go: pkg/credentialprovider/plugin/metrics.go
"""

from __future__ import annotations

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS = metrics.new_counter(
    "kubelet_credential_provider_plugin_errors_total", "Failed runs of a credential provider plugin.", ["plugin_name"]
)
KUBELET_CREDENTIAL_PROVIDER_PLUGIN_DURATION = metrics.new_histogram(
    "kubelet_credential_provider_plugin_duration",
    "Duration of runs of a credential provider plugin in seconds.",
    ["plugin_name"],
)
KUBELET_CREDENTIAL_PROVIDER_CONFIG_INFO = metrics.new_gauge(
    "kubelet_credential_provider_config_info",
    "Always 1; the label is the hash of the credential provider configuration in use.",
    ["hash"],
)

_register = legacyregistry.Once(
    KUBELET_CREDENTIAL_PROVIDER_PLUGIN_ERRORS,
    KUBELET_CREDENTIAL_PROVIDER_PLUGIN_DURATION,
    KUBELET_CREDENTIAL_PROVIDER_CONFIG_INFO,
)


def register_metrics() -> None:
    """Register the metrics; further calls do nothing."""
    _register()


def record_credential_provider_config_hash(config_hash: str) -> None:
    """Show this hash instead of the previous one."""
    KUBELET_CREDENTIAL_PROVIDER_CONFIG_INFO.clear()
    KUBELET_CREDENTIAL_PROVIDER_CONFIG_INFO.labels(config_hash).set(1)
