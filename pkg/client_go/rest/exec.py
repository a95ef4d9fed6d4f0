"""Credentials from the program that a configuration names.

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
    """Who runs the configuration's program; None if there is none, or if other credentials in it win.

    Raises ValueError or OSError if the program's configuration, or what the program is to be told, cannot be used.
    """
    tls = config.tls_client_config
    others = (config.bearer_token, config.bearer_token_file, config.username, tls.cert_data, tls.cert_file)
    if config.exec_provider is None or any(others):
        return None
    from pkg.client_go.plugin.pkg.client.auth.exec import Authenticator  # rarely needed

    return Authenticator(config.exec_provider, config_to_exec_cluster(config))


def config_to_exec_cluster(config: Config) -> dict[str, Any]:
    """What a program that asks for it is told of the cluster. Raises OSError when the file of the CA cannot be read."""
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
