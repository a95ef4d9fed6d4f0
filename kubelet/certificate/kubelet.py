"""Create the managers of the kubelet's client and serving certificates.

Go: pkg/kubelet/certificate/kubelet.go
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import prometheus_client

from kubelet.apis import config as kubeletconfig
from kubelet.certificate.expiry import ExpiryWarning
from pkg import features, golang, klog
from pkg.api.certificates import v1 as certificates
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apiserver.server import dynamiccertificates
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

_RENEW_ERRORS_HELP = "Counter of certificate renewal errors."
_SERVER_RENEW_ERRORS = metrics.new_counter("kubelet_server_expiration_renew_errors", _RENEW_ERRORS_HELP)
_CLIENT_RENEW_ERRORS = metrics.new_counter(
    "kubelet_certificate_manager_client_expiration_renew_errors", _RENEW_ERRORS_HELP
)
_HOUR, _DAY = 3600.0, 86400.0
_SERVER_ROTATION_AGE = metrics.new_histogram(
    "kubelet_certificate_manager_server_rotation_seconds",
    "Histogram of the seconds that the previous certificate lived before it was rotated.",
    buckets=(
        60.0,
        _HOUR,
        4 * _HOUR,
        _DAY,
        7 * _DAY,
        30 * _DAY,
        90 * _DAY,
        180 * _DAY,
        360 * _DAY,
        4 * 360 * _DAY,
    ),
)
_SERVER_TTL = metrics.new_gauge(
    "kubelet_certificate_manager_server_ttl_seconds",
    "Seconds until the serving certificate expires, negative after the expiry, +Inf without a valid certificate.",
)
_CLIENT_TTL = metrics.new_gauge(
    "kubelet_certificate_manager_client_ttl_seconds",
    "Seconds until the client certificate expires, negative after the expiry, +Inf without a valid certificate.",
)

_register_lock = threading.Lock()  # The lock guards _registered.
_registered: set[int] = set()


def _register(*collectors: prometheus_client.metrics.MetricWrapperBase) -> None:
    """Register the metrics once a manager uses them. Several kubelets in a process share them."""
    with _register_lock:
        for collector in collectors:
            if id(collector) not in _registered:
                legacyregistry.must_register(collector)
                _registered.add(id(collector))


def _set_ttl(gauge: prometheus_client.Gauge, manager: certificate.Manager, clock: clock_.Clock) -> None:
    def ttl() -> float:
        cert = manager.current()
        return math.inf if cert is None else float(math.trunc(-clock.since(cert.not_after)))

    gauge.set_function(ttl)
    _register(gauge)


def register_client_ttl(manager: certificate.Manager, clock: clock_.Clock | None = None) -> None:
    """Export the client certificate's remaining lifetime.

    Go: cmd/kubelet/app/server.go, buildKubeletClientConfig
    """
    _set_ttl(_CLIENT_TTL, manager, clock or clock_.RealClock())


def new_get_template_fn(
    node_name: str, get_addresses: Callable[[], Sequence[v1.NodeAddress]]
) -> Callable[[], certutil.CertificateRequest | None]:
    """Return a function that makes the template of a serving certificate from the node's current addresses."""

    def get_template() -> certutil.CertificateRequest | None:
        hostnames, ips = addresses_to_hostnames_and_ips(get_addresses())
        # Names without IP addresses are sufficient only if the feature gate is on.
        dns_only = features.feature_gate.enabled(features.ALLOW_DNS_ONLY_NODE_CSR)
        if not ips and not (dns_only and hostnames):
            return None
        return certutil.CertificateRequest(f"system:node:{node_name}", ("system:nodes",), hostnames, ips)

    return get_template


def new_kubelet_server_certificate_manager(
    kube_client: kubernetes.Interface | None,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    node_name: str,
    get_addresses: Callable[[], Sequence[v1.NodeAddress]],
    cert_directory: str,
    *,
    expiry_warning: ExpiryWarning | None = None,
    clock: clock_.Clock | None = None,
) -> certificate.ManagerImpl:
    """Return a manager for serving certificates from the API server's signer, for the node's addresses.

    Raise OSError or ValueError, with the name of the file, if the stored certificate cannot be used.
    """
    try:
        store = certificate.FileStore(
            "kubelet-server", cert_directory, cert_directory, kube_cfg.tls_cert_file, kube_cfg.tls_private_key_file
        )
    except (OSError, ValueError) as err:
        raise ValueError(f"failed to initialize server certificate store: {err}") from err
    _register(_SERVER_RENEW_ERRORS, _SERVER_ROTATION_AGE)
    config = certificate.Config(
        clientset_fn=None if kube_client is None else lambda _: kube_client,
        get_template=new_get_template_fn(node_name, get_addresses),
        dynamic_template=True,
        signer_name=certificates.KUBELET_SERVING_SIGNER_NAME,
        get_usages=certificate.default_kubelet_serving_get_usages,
        certificate_store=store,
        certificate_rotation=_SERVER_ROTATION_AGE,
        certificate_renew_failure=_SERVER_RENEW_ERRORS,
        observer=expiry_warning,
        clock=clock,
    )
    try:
        manager = certificate.new_manager(config)
    except (OSError, ValueError) as err:
        raise ValueError(f"failed to initialize server certificate manager: {err}") from err
    _set_ttl(_SERVER_TTL, manager, clock or clock_.RealClock())
    return manager


def addresses_to_hostnames_and_ips(
    addresses: Sequence[v1.NodeAddress],
) -> tuple[tuple[str, ...], tuple[certutil.IPAddress, ...]]:
    """Return the names and IP addresses that a certificate must cover, sorted and without duplicates."""
    dns_names: set[str] = set()
    ips: set[certutil.IPAddress] = set()
    for address in addresses:
        if not address.address:
            continue
        ip = _parse_ip(address.address)
        match address.type:
            case v1.NODE_HOST_NAME | v1.NODE_EXTERNAL_IP | v1.NODE_INTERNAL_IP if ip is not None:
                ips.add(ip)
            case v1.NODE_HOST_NAME | v1.NODE_EXTERNAL_DNS | v1.NODE_INTERNAL_DNS:
                dns_names.add(address.address)
    return tuple(sorted(dns_names)), tuple(sorted(ips, key=str))


def _parse_ip(text: str) -> certutil.IPAddress | None:
    """Return the address in the form that a certificate has, or None for a zoned address.

    IPv4 addresses that are mapped into IPv6 become IPv4 addresses.
    """
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else getattr(ip, "ipv4_mapped", None) or ip


def new_kubelet_client_certificate_manager(
    cert_directory: str,
    node_name: str,
    bootstrap_cert_data: bytes,
    bootstrap_key_data: bytes,
    cert_file: str,
    key_file: str,
    clientset_fn: certificate.ClientsetFunc | None,
    *,
    expiry_warning: ExpiryWarning | None = None,
    clock: clock_.Clock | None = None,
) -> certificate.ManagerImpl:
    """Return a manager for client certificates, with which the node authenticates to the API server.

    The bootstrap data may be a more powerful certificate, such as kubeadm provides on control planes; the manager
    replaces it immediately. Raise OSError or ValueError, with the name of the file, if the stored certificate cannot be
    used.
    """
    try:
        store = certificate.FileStore("kubelet-client", cert_directory, cert_directory, cert_file, key_file)
    except (OSError, ValueError) as err:
        raise ValueError(f"failed to initialize client certificate store: {err}") from err
    _register(_CLIENT_RENEW_ERRORS)
    template = certutil.CertificateRequest(f"system:node:{node_name}", ("system:nodes",))
    config = certificate.Config(
        clientset_fn=clientset_fn,
        get_template=lambda: template,
        signer_name=certificates.KUBE_API_SERVER_CLIENT_KUBELET_SIGNER_NAME,
        get_usages=certificate.default_kubelet_client_get_usages,
        bootstrap_certificate_pem=bootstrap_cert_data,
        bootstrap_key_pem=bootstrap_key_data,
        certificate_store=store,
        certificate_renew_failure=_CLIENT_RENEW_ERRORS,
        observer=expiry_warning,
        clock=clock,
    )
    try:
        return certificate.new_manager(config)
    except (OSError, ValueError) as err:
        raise ValueError(f"failed to initialize client certificate manager: {err}") from err


class KubeletServerCertificateDynamicFileManager:
    """Provide the serving certificate from two files, and reload it when they change. No certificates are requested."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        """Load the files. Raise OSError or ValueError, with their names, if they do not contain a pair."""
        try:
            self._content = dynamiccertificates.DynamicCertKeyPairContent(
                "kubelet-server-cert-files", cert_file, key_file
            )
        except (OSError, ValueError) as err:
            message = f"unable to set up dynamic certificate manager for kubelet server cert files: {err}"
            raise ValueError(message) from err
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._cert_file, self._key_file = cert_file, key_file
        self._enqueue()
        self._content.add_listener(self._enqueue)

    def _enqueue(self) -> None:
        """Log that a pair was loaded. Users get the pair itself from the content."""
        klog.v(4).info_s(
            "loaded certificate and key pair in kubelet server certificate manager",
            certFile=self._cert_file,
            keyFile=self._key_file,
        )

    def current(self) -> certificate.Certificate | None:
        """Return the last valid pair, even if it has expired since."""
        return self._content.current_cert_key_content()

    def start(self) -> None:
        """Watch the files in a thread until `stop`."""
        klog.v(4).info_s("Watching the files of the serving certificate", name=self._content.name)
        golang.go(self._content.run, self._ctx, name="certificate-files")

    def stop(self) -> None:
        self._cancel()

    def server_healthy(self) -> bool:
        """Return True, because this manager uses no server."""
        return True


if TYPE_CHECKING:

    def _is_manager(impl: KubeletServerCertificateDynamicFileManager) -> certificate.Manager:
        return impl
