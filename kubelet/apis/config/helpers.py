"""List the fields of the configuration that are file paths.

Go: pkg/kubelet/apis/config/helpers.go
"""

from __future__ import annotations

import msgspec

from kubelet.apis.config.types import KubeletConfiguration


def kubelet_configuration_path_refs(kc: KubeletConfiguration) -> list[tuple[msgspec.Struct, str]]:
    """List the fields that hold a path, as (struct, attribute). Add every new path field here."""
    return [
        (kc, "static_pod_path"),
        (kc.authentication.x509, "client_ca_file"),
        (kc, "tls_cert_file"),
        (kc, "tls_private_key_file"),
        (kc, "resolver_config"),
        (kc, "volume_plugin_dir"),
        (kc, "pod_logs_dir"),
    ]
