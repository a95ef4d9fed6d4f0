"""Connect to the API server: load and renew the credentials, and create the clients that share them.

Go: cmd/kubelet/app/server.go (buildKubeletClientConfig, InitializeTLS, makeEventRecorder and what they call)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubelet.apis import config as kubeletconfig
from pkg import golang, klog
from pkg.api.core import v1
from pkg.component_base import tracing

from . import options

if TYPE_CHECKING:
    from kubelet import certificate as kubeletcertificate
    from kubelet import server as kubeletserver
    from pkg.client_go import kubernetes, rest
    from pkg.client_go.tools import record
    from pkg.client_go.util import certificate

COMPONENT_KUBELET = "kubelet"

# Events are also logged from this verbosity on.
_EVENT_LOG_LEVEL = 3

# A kubelet without a valid client certificate exits after this time, in seconds. Without a certificate it cannot
# request a new one, and the program that restarts the kubelet can provide new credentials.
_EXIT_AFTER = 300.0


@dataclass(frozen=True, slots=True)
class Clients:
    """Hold the clients of one API server. The rate limits of the other clients never delay heartbeats."""

    kube_client: kubernetes.Interface
    event_client: kubernetes.Interface
    heartbeat_client: kubernetes.Interface
    # This function closes all connections, because they may be dead. It is called after repeated heartbeat failures.
    on_heartbeat_failure: Callable[[], None]
    # Once this object has a recorder, it warns of a client certificate that is about to expire and can still be
    # renewed. None means that the kubelet does not renew its certificate.
    expiry_warning: kubeletcertificate.ExpiryWarning | None


def build_clients(
    ctx: golang.Context,
    server: options.KubeletServer,
    node_name: str,
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
) -> Clients:
    """Return clients that renew their credentials until ctx ends.

    Raise ValueError or OSError, with the name of the file and the field, if the credentials cannot be used.
    """
    from pkg.client_go import kubernetes, rest
    from pkg.component_base.metrics.prometheus import restclient

    restclient.register()
    kc = server.kubelet_configuration
    config, on_heartbeat_failure, expiry_warning = build_kubelet_client_config(ctx, server, node_name)
    config.tracer_provider = tracer_provider
    event_config = rest.copy_config(config)
    # For events a QPS of 0 means no limit, but for the client it means the default, so 0 becomes -1.
    event_config.qps, event_config.burst = float(kc.event_record_qps or -1), kc.event_burst
    heartbeat_config = rest.copy_config(config)
    heartbeat_config.qps = -1.0
    heartbeat_config.timeout = min(kc.node_status_update_frequency, float(kc.node_lease_duration_seconds))
    kube_client, event_client, heartbeat_client = (
        kubernetes.new_for_config(of) for of in (config, event_config, heartbeat_config)
    )
    return Clients(kube_client, event_client, heartbeat_client, on_heartbeat_failure, expiry_warning)


def build_kubelet_client_config(
    ctx: golang.Context, server: options.KubeletServer, node_name: str
) -> tuple[rest.Config, Callable[[], None], kubeletcertificate.ExpiryWarning | None]:
    """Return the client configuration, the function to call after repeated heartbeat failures, and the expiry warning.

    If the configuration says so, the client certificate is renewed. With a bootstrap kubeconfig and no valid
    kubeconfig, the kubelet requests a certificate: in the background if it renews certificates, otherwise in this call,
    which then waits until the request is approved. Raise the same errors as build_clients.
    """
    from kubelet import certificate as kubeletcertificate
    from kubelet.certificate import bootstrap
    from pkg.client_go.tools import clientcmd

    flags, kc = server.kubelet_flags, server.kubelet_configuration
    if not kc.rotate_certificates:
        if flags.bootstrap_kubeconfig:
            _bootstrap_in_foreground(ctx, flags, node_name)
        try:
            config = clientcmd.build_config_from_flags("", flags.kube_config)
        except (ValueError, OSError) as err:
            raise ValueError(f"invalid kubeconfig: {err}") from err
        _override_client_config(kc, config)
        return config, kubeletcertificate.update_transport(ctx, config, None, 0), None
    klog.info_s("Client rotation is on, will bootstrap in background")
    cert_config, client_config = bootstrap.load_client_config(
        flags.kube_config, flags.bootstrap_kubeconfig, flags.cert_directory
    )
    _override_client_config(kc, client_config)
    node_ref = v1.ObjectReference(api_version="v1", kind="Node", name=node_name)
    expiry_warning = kubeletcertificate.ExpiryWarning("client", node_ref)
    manager = _client_certificate_manager(cert_config, client_config, flags.cert_directory, node_name, expiry_warning)
    kubeletcertificate.register_client_ttl(manager)
    config, on_heartbeat_failure = _rotating_config(ctx, client_config, manager)
    return config, on_heartbeat_failure, expiry_warning


def _bootstrap_in_foreground(ctx: golang.Context, flags: options.KubeletFlags, node_name: str) -> None:
    from kubelet.certificate import bootstrap
    from pkg.apimachinery.api import errors as apierrors
    from pkg.client_go.util.certificate import csr

    try:
        bootstrap.load_client_cert(ctx, flags.kube_config, flags.bootstrap_kubeconfig, flags.cert_directory, node_name)
    except (apierrors.StatusError, csr.CertificateSigningRequestError) as err:
        raise ValueError(f"failed to get a client certificate: {err}") from err


def _rotating_config(
    ctx: golang.Context, client_config: rest.Config, manager: certificate.Manager
) -> tuple[rest.Config, Callable[[], None]]:
    """Return the configuration with the manager's certificate, and the function that closes its connections.

    This function starts the manager, which runs until ctx ends.
    """
    from kubelet import certificate as kubeletcertificate
    from pkg.client_go import rest

    config = rest.anonymous_client_config(client_config)
    on_heartbeat_failure = kubeletcertificate.update_transport(ctx, config, manager, _EXIT_AFTER)
    klog.v(2).info_s("Starting client certificate rotation")
    manager.start()
    golang.after_func(ctx, manager.stop)
    return config, on_heartbeat_failure


def _client_certificate_manager(
    cert_config: rest.Config,
    client_config: rest.Config,
    cert_directory: str,
    node_name: str,
    expiry_warning: kubeletcertificate.ExpiryWarning,
) -> certificate.Manager:
    from kubelet import certificate as kubeletcertificate
    from pkg.client_go import kubernetes

    bootstrap_client = kubernetes.new_for_config(cert_config)

    @functools.cache
    def own_client() -> kubernetes.Interface:
        # The client is created only when the first certificate exists, because a client reads its files when it is
        # created.
        return kubernetes.new_for_config(client_config)

    def clientset(current: certificate.Certificate | None) -> kubernetes.Interface:
        # Without a valid certificate the manager requests one with the bootstrap credentials.
        return bootstrap_client if current is None else own_client()

    tls = client_config.tls_client_config
    return kubeletcertificate.new_kubelet_client_certificate_manager(
        cert_directory,
        node_name,
        tls.cert_data,
        tls.key_data,
        tls.cert_file,
        tls.key_file,
        clientset,
        expiry_warning=expiry_warning,
    )


def _override_client_config(kc: kubeletconfig.KubeletConfiguration, config: rest.Config) -> None:
    """Apply the rate limits of the kubelet's configuration, which override those of the kubeconfig."""
    config.qps, config.burst = float(kc.kube_api_qps), kc.kube_api_burst


def initialize_tls(
    flags: options.KubeletFlags, kc: kubeletconfig.KubeletConfiguration, host_name: str
) -> kubeletserver.TLSOptions:
    """Return the TLS options of the server.

    The certificate comes from the configuration or from the API server, or it is self-signed. Write the names of the
    files into kc. Raise OSError or ValueError, with the name of the file, if a file cannot be used.
    """
    from kubelet import server as kubeletserver

    if not (kc.server_tls_bootstrap or kc.tls_cert_file or kc.tls_private_key_file):
        _use_self_signed_certificate(flags, kc, host_name)
    return kubeletserver.new_tls_options(
        kc.tls_min_version,
        kc.tls_cipher_suites,
        kc.tls_curve_preferences,
        kc.tls_cert_file,
        kc.tls_private_key_file,
        kc.authentication.x509.client_ca_file,
    )


def _use_self_signed_certificate(
    flags: options.KubeletFlags, kc: kubeletconfig.KubeletConfiguration, host_name: str
) -> None:
    from pkg.client_go.util import cert as certutil
    from pkg.client_go.util import keyutil

    directory = Path(flags.cert_directory)
    kc.tls_cert_file, kc.tls_private_key_file = str(directory / "kubelet.crt"), str(directory / "kubelet.key")
    if certutil.can_read_cert_and_key(kc.tls_cert_file, kc.tls_private_key_file):
        return
    cert_pem, key_pem = certutil.generate_self_signed_cert_key(host_name)
    keyutil.write_key(kc.tls_private_key_file, key_pem)
    try:
        certutil.write_cert(kc.tls_cert_file, cert_pem)
    except OSError:
        # DIVERGES (fault of Go): when the self-signed certificate cannot be written, the kubelet removes its key.
        # Go: cmd/kubelet/app/server.go, InitializeTLS: the Go kubelet leaves the file that it could write.
        # Why: a single file of the pair, for example after a full disk, prevents every later kubelet from starting.
        # Test: test/programs/clients_test.py:test_full_disk_leaves_no_half_of_a_certificate_of_its_own
        Path(kc.tls_private_key_file).unlink()
        raise
    klog.v(4).info_s("Using self-signed cert", TLSCertFile=kc.tls_cert_file, TLSPrivateKeyFile=kc.tls_private_key_file)


def new_event_recorder(ctx: golang.Context, event_client: kubernetes.Interface, node_name: str) -> record.EventRecorder:
    """Return a recorder that logs events, and sends them to the API server until ctx ends."""
    from pkg.client_go.tools import record

    broadcaster = record.new_broadcaster(ctx=ctx)
    broadcaster.start_structured_logging(_EVENT_LOG_LEVEL)
    klog.v(4).info_s("Sending events to api server")
    broadcaster.start_recording_to_sink(record.EventSinkImpl(event_client.core_v1.events))
    return broadcaster.new_recorder(v1.EventSource(component=COMPONENT_KUBELET, host=node_name))
