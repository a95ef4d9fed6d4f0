"""Send HTTP requests to the API server: credentials, rate limits, retries and errors.

Go: k8s.io/client-go/rest
"""

from pkg.client_go.rest.client import RESTClient, Stream
from pkg.client_go.rest.config import (
    DEFAULT_BURST,
    DEFAULT_QPS,
    Config,
    ImpersonationConfig,
    anonymous_client_config,
    copy_config,
    default_kubernetes_user_agent,
)
from pkg.client_go.rest.request import RequestTimeoutError, go_duration, is_valid_path_segment_name
from pkg.client_go.transport import ClientCertificate, ConnectionTracker, KeyPair, TransportError
from pkg.client_go.transport import TLSConfig as TLSClientConfig

__all__ = [
    "DEFAULT_BURST",
    "DEFAULT_QPS",
    "ClientCertificate",
    "Config",
    "ConnectionTracker",
    "ImpersonationConfig",
    "KeyPair",
    "RESTClient",
    "RequestTimeoutError",
    "Stream",
    "TLSClientConfig",
    "TransportError",
    "anonymous_client_config",
    "copy_config",
    "default_kubernetes_user_agent",
    "go_duration",
    "is_valid_path_segment_name",
]
