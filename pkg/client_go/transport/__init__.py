"""Connect to the API server, with certificates and tokens that can change.

Go: k8s.io/client-go/transport, k8s.io/client-go/util/connrotation

`config.py` describes the TLS settings, `connection.py` opens connections and keeps those that can be reused, `body.py`
reads responses, `tls.py` builds SSL contexts, and `token_source.py` reads tokens from files.
"""

from pkg.client_go.transport.body import read_body
from pkg.client_go.transport.config import TLSConfig
from pkg.client_go.transport.connection import (
    Connection,
    ConnectionLostError,
    ConnectionPool,
    ConnectionTracker,
    TransportError,
)
from pkg.client_go.transport.tls import ClientCertificate, KeyPair, TLSContexts
from pkg.client_go.transport.token_source import CachingTokenSource

__all__ = [
    "CachingTokenSource",
    "ClientCertificate",
    "Connection",
    "ConnectionLostError",
    "ConnectionPool",
    "ConnectionTracker",
    "KeyPair",
    "TLSConfig",
    "TLSContexts",
    "TransportError",
    "read_body",
]
