"""Everything that it takes to talk to an API server.

Go: k8s.io/client-go/rest/config.go
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pkg.client_go.transport import TLSConfig as TLSClientConfig
from pkg.component_base import tracing, version

if TYPE_CHECKING:
    from pkg.client_go import transport
    from pkg.client_go.tools.clientcmd import api as clientcmdapi
    from pkg.client_go.util import flowcontrol

DEFAULT_QPS = 5.0
DEFAULT_BURST = 10


@dataclass(slots=True)
class ImpersonationConfig:
    """Whom to act as."""

    user_name: str = ""
    uid: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Config:
    """How to reach an API server and as whom. Not to be changed once a client has been made of it."""

    host: str = ""
    """URL of the server, or host:port."""
    api_path: str = ""
    bearer_token: str = field(default="", repr=False)
    bearer_token_file: str = ""
    """Read again every minute; wins over bearer_token once it could be read."""
    username: str = ""
    password: str = field(default="", repr=False)
    impersonate: ImpersonationConfig = field(default_factory=ImpersonationConfig)
    tls_client_config: TLSClientConfig = field(default_factory=TLSClientConfig)
    user_agent: str = ""
    qps: float = 0.0
    """Requests a second on average: 0 means 5, a negative number no limit."""
    burst: int = 0
    """Requests at once: 0 means 10."""
    rate_limiter: flowcontrol.RateLimiter | None = None
    """Used instead of one made of qps and burst."""
    timeout: float = 0.0
    """Seconds that a request may take in all, watches aside; 0 for no limit."""
    proxy_url: str = ""
    disable_compression: bool = False
    exec_provider: clientcmdapi.ExecConfig | None = None
    get_cert: Callable[[], transport.ClientCertificate | None] | None = None
    """Asked before each request; another certificate than before is used by connections opened from then on."""
    connections: transport.ConnectionTracker | None = None
    """Knows all connections of clients made of this config and its copies, and can close them."""
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER
    warning_handler: Callable[[int, str, str], None] | None = None
    """Gets code, agent and text of each warning that the server sends; None logs each text once."""


def copy_config(config: Config) -> Config:
    """A copy that can be changed without changing the original; limiter and tracker are shared."""
    return dataclasses.replace(
        config,
        tls_client_config=dataclasses.replace(config.tls_client_config),
        impersonate=dataclasses.replace(config.impersonate),
    )


def anonymous_client_config(config: Config) -> Config:
    """A copy that knows the server and no credentials."""
    tls = config.tls_client_config
    return Config(
        host=config.host,
        api_path=config.api_path,
        tls_client_config=TLSClientConfig(
            insecure=tls.insecure, server_name=tls.server_name, ca_file=tls.ca_file, ca_data=tls.ca_data
        ),
        user_agent=config.user_agent,
        qps=config.qps,
        burst=config.burst,
        rate_limiter=config.rate_limiter,
        timeout=config.timeout,
        proxy_url=config.proxy_url,
        disable_compression=config.disable_compression,
        warning_handler=config.warning_handler,
    )


def default_kubernetes_user_agent() -> str:
    """As Go's clients call themselves: program/version (system/machine) kubernetes/commit."""
    info = version.get()
    program = os.path.basename(sys.argv[0] or "unknown").removesuffix(".py")
    if program in ("__main__", "-c", "-m"):
        program = "kubelet"
    return f"{program}/{info.git_version} ({info.platform}) kubernetes/py-{info.version}"
