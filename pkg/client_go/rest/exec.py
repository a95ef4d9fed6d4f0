"""Get credentials from the program that a configuration names.

Go: k8s.io/client-go/rest/exec.go, transport.go
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkg.client_go.rest.config import Config

if TYPE_CHECKING:
    from pkg.client_go.plugin.pkg.client.auth.exec import Authenticator


def get_authenticator(config: Config) -> Authenticator | None:
    """Return an authenticator that runs the configured program.

    Return None if no program is configured or if other credentials take precedence. Raise ValueError or OSError if the
    program's configuration, or the cluster information for the program, cannot be used.
    """
    tls = config.tls_client_config
    others = (config.bearer_token, config.bearer_token_file, config.username, tls.cert_data, tls.cert_file)
    if config.exec_provider is None or any(others):
        return None
    # The import is lazy because few kubelets use exec plugins.
    from pkg.client_go.plugin.pkg.client.auth.exec import Authenticator

    return Authenticator(config.exec_provider, config_to_exec_cluster(config))


def config_to_exec_cluster(config: Config) -> dict[str, Any]:
    """Return the cluster information for programs that ask for it.

    Raise OSError when the CA file cannot be read.
    """
    tls = config.tls_client_config
    ca_data = tls.ca_data or (Path(tls.ca_file).read_bytes() if tls.ca_file else b"")
    cluster = {
        "server": config.host,
        "tls-server-name": tls.server_name,
        "insecure-skip-tls-verify": tls.insecure,
        "certificate-authority-data": base64.b64encode(ca_data).decode(),
        "proxy-url": config.proxy_url,
        "disable-compression": config.disable_compression,
    }
    return {key: value for key, value in cluster.items() if value} | {"config": None}
