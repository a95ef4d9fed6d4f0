"""Describe everything that a client needs to talk to an API server.

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
    """Describe the user to impersonate."""

    user_name: str = ""
    uid: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Config:
    """Describe how to reach an API server and which credentials to use.

    The config must not change once a client uses it.
    """

    host: str = ""
    """`host` is the URL of the server, or host:port."""
    api_path: str = ""
    bearer_token: str = field(default="", repr=False)
    bearer_token_file: str = ""
    """The client reads this file again every minute. Once the file has been read, its token replaces bearer_token."""
    username: str = ""
    password: str = field(default="", repr=False)
    impersonate: ImpersonationConfig = field(default_factory=ImpersonationConfig)
    tls_client_config: TLSClientConfig = field(default_factory=TLSClientConfig)
    user_agent: str = ""
    qps: float = 0.0
    """`qps` is the average number of requests per second: 0 means 5, and a negative number means no limit."""
    burst: int = 0
    """`burst` is the number of requests that may be sent at once: 0 means 10."""
    rate_limiter: flowcontrol.RateLimiter | None = None
    """This limiter is used instead of one with qps and burst."""
    timeout: float = 0.0
    """`timeout` is the time, in seconds, that a request other than a watch may take; 0 means no limit."""
    proxy_url: str = ""
    disable_compression: bool = False
    exec_provider: clientcmdapi.ExecConfig | None = None
    get_cert: Callable[[], transport.ClientCertificate | None] | None = None
    """The client calls this function before each request. New connections use the returned certificate."""
    connections: transport.ConnectionTracker | None = None
    """The tracker knows all connections of clients with this config and its copies, and can close them."""
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER
    warning_handler: Callable[[int, str, str], None] | None = None
    """The handler receives code, agent and text of each warning that the server sends. None logs each text once."""


def copy_config(config: Config) -> Config:
    """Return a copy that can be changed without changing the original.

    Both share the rate limiter and the connection tracker.
    """
    return dataclasses.replace(
        config,
        tls_client_config=dataclasses.replace(config.tls_client_config),
        impersonate=dataclasses.replace(config.impersonate),
    )


def anonymous_client_config(config: Config) -> Config:
    """Return a copy that knows the server but has no credentials."""
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
    """Return the user agent in the form of Go's clients: program/version (system/machine) kubernetes/commit."""
    info = version.get()
    program = os.path.basename(sys.argv[0] or "unknown").removesuffix(".py")
    if program in ("__main__", "-c", "-m"):
        program = "kubelet"
    return f"{program}/{info.git_version} ({info.platform}) kubernetes/py-{info.version}"
