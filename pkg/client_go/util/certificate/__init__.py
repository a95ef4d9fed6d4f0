"""Store certificates, and renew them before they expire.

Go: k8s.io/client-go/util/certificate
"""

from pkg.client_go.util.certificate.certificate_manager import (
    CERTIFICATE_WAIT_TIMEOUT,
    ClientsetFunc,
    Config,
    Counter,
    Histogram,
    Manager,
    ManagerImpl,
    Observer,
    Store,
    default_kubelet_client_get_usages,
    default_kubelet_serving_get_usages,
    new_manager,
)
from pkg.client_go.util.certificate.certificate_store import FileStore, NoCertKeyError
from pkg.client_go.util.certificate.tls import Certificate, load_x509_key_pair, x509_key_pair

__all__ = [
    "CERTIFICATE_WAIT_TIMEOUT",
    "Certificate",
    "ClientsetFunc",
    "Config",
    "Counter",
    "FileStore",
    "Histogram",
    "Manager",
    "ManagerImpl",
    "NoCertKeyError",
    "Observer",
    "Store",
    "default_kubelet_client_get_usages",
    "default_kubelet_serving_get_usages",
    "load_x509_key_pair",
    "new_manager",
    "x509_key_pair",
]
