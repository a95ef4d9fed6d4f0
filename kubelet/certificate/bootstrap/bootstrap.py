"""Request a client certificate with a bootstrap token, and write the kubeconfig that names it.

Go: pkg/kubelet/certificate/bootstrap/bootstrap.go
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.certificates import v1 as certificatesv1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.util import wait
from pkg.client_go import kubernetes, rest
from pkg.client_go.tools import clientcmd
from pkg.client_go.tools.clientcmd import api as clientcmdapi
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import certificate, keyutil
from pkg.client_go.util.certificate import csr

if TYPE_CHECKING:
    from cryptography import x509

_TMP_PRIVATE_KEY_FILE = "kubelet-client.key.tmp"
_PAIR_NAME_PREFIX = "kubelet-client"

# All times are in seconds. The kubelet waits for the API server until the deadline; each request has the timeout.
_SERVER_DEADLINE = 60.0
_SERVER_TIMEOUT = 1.0
_SERVER_PERIOD = 2.0
# The kubelet waits this long for the approval of its request.
_CERTIFICATE_DEADLINE = 3600.0


def load_client_config(kubeconfig_path: str, bootstrap_path: str, cert_dir: str) -> tuple[rest.Config, rest.Config]:
    """Return the configuration with which to request certificates, and the one with which to do everything else.

    Both are the kubeconfig if its certificate is valid or if bootstrap_path is empty. Otherwise the first one is the
    bootstrap kubeconfig, and the kubeconfig is written again so that it names the certificate in cert_dir, which may
    not exist yet. Raise OSError or ValueError, with the name of the file.
    """
    if not bootstrap_path:
        client_config = _load_rest_client_config(kubeconfig_path, "kubeconfig")
        klog.v(2).info_s("No bootstrapping requested, will use kubeconfig")
        return client_config, rest.copy_config(client_config)
    store = _file_store(cert_dir)
    if _is_client_config_still_valid(kubeconfig_path):
        client_config = _load_rest_client_config(kubeconfig_path, "kubeconfig")
        klog.v(2).info_s("Current kubeconfig file contents are still valid, no bootstrap necessary")
        return client_config, rest.copy_config(client_config)
    bootstrap_client_config = _load_rest_client_config(bootstrap_path, "bootstrap kubeconfig")
    client_config = rest.anonymous_client_config(bootstrap_client_config)
    pem_path = store.current_path()
    client_config.tls_client_config.key_file = pem_path
    client_config.tls_client_config.cert_file = pem_path
    _write_kubeconfig_from_bootstrapping(client_config, kubeconfig_path, pem_path)
    klog.v(2).info_s(
        "Use the bootstrap credentials to request a cert, and set kubeconfig to point to the certificate dir"
    )
    return bootstrap_client_config, client_config


def load_client_cert(
    ctx: golang.Context, kubeconfig_path: str, bootstrap_path: str, cert_dir: str, node_name: str
) -> None:
    """Make sure that the kubeconfig has a valid client certificate, and request one if it has none.

    Wait up to an hour for the approval. Until the certificate is stored, its key stays in a file of its own, so that a
    later run continues with the same request. Raise OSError, ValueError, apierrors.StatusError or
    csr.CertificateSigningRequestError; after an error only the key has been written.
    """
    if _is_client_config_still_valid(kubeconfig_path):
        klog.v(2).info_s("Kubeconfig exists and is valid, skipping bootstrap", path=kubeconfig_path)
        return
    klog.v(2).info_s("Using bootstrap kubeconfig to generate TLS client cert, key and kubeconfig file")
    bootstrap_client_config = _load_rest_client_config(bootstrap_path, "bootstrap kubeconfig")
    store = _file_store(cert_dir)
    private_key_path = Path(cert_dir, _TMP_PRIVATE_KEY_FILE)
    key_data = _current_key(store)
    if key_data is None:
        klog.v(2).info_s(
            "No valid private key and/or certificate found, reusing existing private key or creating a new one"
        )
        key_data = keyutil.load_or_generate_key_file(str(private_key_path))
    try:
        wait_for_server(ctx, bootstrap_client_config, _SERVER_DEADLINE)
    except TimeoutError as err:
        # The API server may accept the request even if it denies us /healthz.
        klog.info_s("Error waiting for apiserver to come up", err=err)
    with contextlib.closing(kubernetes.new_for_config(bootstrap_client_config)) as bootstrap_client:
        cert_data = request_node_certificate(ctx, bootstrap_client, key_data, node_name)
    store.update(cert_data, key_data)
    # The key file is removed only now that the pair is on disk.
    try:
        private_key_path.unlink(missing_ok=True)
    except OSError as err:
        klog.v(2).info_s("Failed cleaning up private key file", path=str(private_key_path), err=err)
    _write_kubeconfig_from_bootstrapping(bootstrap_client_config, kubeconfig_path, store.current_path())


def _file_store(cert_dir: str) -> certificate.FileStore:
    try:
        return certificate.FileStore(_PAIR_NAME_PREFIX, cert_dir, cert_dir, "", "")
    except (OSError, ValueError) as err:
        raise ValueError(f"unable to build bootstrap cert store: {err}") from err


def _current_key(store: certificate.FileStore) -> bytes | None:
    """Return the key of the stored certificate, which may have expired, or None if there is no usable key."""
    try:
        return keyutil.marshal_private_key_to_pem(store.current().private_key)
    except (certificate.NoCertKeyError, OSError, ValueError):
        return None


def _write_kubeconfig_from_bootstrapping(
    bootstrap_client_config: rest.Config, kubeconfig_path: str, pem_path: str
) -> None:
    """Write a kubeconfig for the same cluster, with the certificate in pem_path."""
    tls = bootstrap_client_config.tls_client_config
    cluster = clientcmdapi.Cluster(
        server=bootstrap_client_config.host,
        insecure_skip_tls_verify=tls.insecure,
        certificate_authority=tls.ca_file,
        certificate_authority_data=b"" if tls.ca_file else tls.ca_data,
        # DIVERGES (fault of Go): the kubeconfig that a bootstrap writes contains the proxy and the TLS server name of
        # the bootstrap kubeconfig.
        # Go: pkg/kubelet/certificate/bootstrap/bootstrap.go, writeKubeconfigFromBootstrapping: the Go kubelet omits
        # both.
        # Why: the kubelet could no longer reach an API server that needs these settings after the bootstrap.
        # Test: bootstrap_test.py:test_load_client_cert
        tls_server_name=tls.server_name,
        proxy_url=bootstrap_client_config.proxy_url,
    )
    config = clientcmdapi.Config(
        clusters={"default-cluster": cluster},
        auth_infos={"default-auth": clientcmdapi.AuthInfo(client_certificate=pem_path, client_key=pem_path)},
        contexts={
            "default-context": clientcmdapi.Context(
                cluster="default-cluster", auth_info="default-auth", namespace="default"
            )
        },
        current_context="default-context",
    )
    clientcmd.write_to_file(config, kubeconfig_path)


def _load_rest_client_config(kubeconfig: str, what: str) -> rest.Config:
    try:
        return clientcmd.build_config_from_flags("", kubeconfig)
    except (OSError, ValueError) as err:
        raise ValueError(f"unable to load {what}: {err}") from err


def _is_client_config_still_valid(kubeconfig_path: str) -> bool:
    """Report whether the kubeconfig exists with a client certificate that has not expired. Log the reason if not.

    Raise OSError if the kubeconfig exists but cannot be read.
    """
    if not Path(kubeconfig_path).exists():
        return False
    try:
        config = clientcmd.build_config_from_flags("", kubeconfig_path)
    except (OSError, ValueError) as err:
        klog.error_s(err, "Unable to read existing bootstrap client config", path=kubeconfig_path)
        return False
    try:
        certs = _client_certificates(config)
    except (OSError, ValueError) as err:
        klog.error_s(err, "Unable to load TLS certificates from existing bootstrap client config", path=kubeconfig_path)
        return False
    now = datetime.datetime.now(datetime.UTC)
    for cert in certs:
        if now > cert.not_valid_after_utc:
            ended = cert.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
            message = "Part of the existing bootstrap client certificate is expired"
            klog.error_s(None, message, path=kubeconfig_path, expired=ended)
            return False
    return True


def _client_certificates(config: rest.Config) -> Sequence[x509.Certificate]:
    tls = config.tls_client_config
    if tls.cert_data or not tls.cert_file:
        return certutil.parse_certs_pem(tls.cert_data)
    # The certificate is loaded together with its key, because it is useless without the key.
    return certificate.load_x509_key_pair(tls.cert_file, tls.key_file).chain


def wait_for_server(ctx: golang.Context, config: rest.Config, deadline: float) -> None:
    """Wait until /healthz succeeds. Raise TimeoutError after `deadline` seconds, and Canceled if ctx ends."""
    client = rest.RESTClient(dataclasses.replace(config, timeout=_SERVER_TIMEOUT))
    healthz_ctx, cancel = golang.with_timeout(ctx, deadline)
    connected = False

    def connect() -> None:
        nonlocal connected
        try:
            client.request(healthz_ctx, "GET", "/healthz")
        except (apierrors.StatusError, OSError) as err:
            klog.info_s("Failed to connect to apiserver", err=err)
            return
        connected = True
        cancel()

    try:
        wait.jitter_until(connect, _SERVER_PERIOD, 0.2, True, healthz_ctx)
    finally:
        cancel()
        client.close_idle_connections()
    ctx.raise_if_done()
    if not connected:
        raise TimeoutError("timed out waiting to connect to apiserver")


def request_node_certificate(
    ctx: golang.Context, client: kubernetes.Interface, private_key_data: bytes, node_name: str
) -> bytes:
    """Return the node's certificate for the key, both in PEM, from an existing request for the key or from a new one.

    Raise ValueError if the data is not a key, and the errors of csr.request_certificate and wait_for_certificate.
    """
    try:
        private_key = keyutil.parse_private_key_pem(private_key_data)
    except ValueError as err:
        raise ValueError(f"invalid private key for certificate request: {err}") from err
    common_name, organization = f"system:node:{node_name}", ("system:nodes",)
    csr_data = certutil.make_csr(private_key, common_name, organization)
    # Key encipherment comes last here. The order matters because it is part of the request's name.
    usages = [certificatesv1.USAGE_DIGITAL_SIGNATURE, certificatesv1.USAGE_CLIENT_AUTH]
    if certificatesv1.USAGE_KEY_ENCIPHERMENT in certificate.default_kubelet_client_get_usages(private_key):
        usages.append(certificatesv1.USAGE_KEY_ENCIPHERMENT)
    name = digested_name(private_key, common_name, organization, usages)
    req_name, req_uid = csr.request_certificate(
        ctx,
        client,
        csr_data,
        name,
        certificatesv1.KUBE_API_SERVER_CLIENT_KUBELET_SIGNER_NAME,
        None,
        usages,
        private_key,
    )
    ctx, cancel = golang.with_timeout(ctx, _CERTIFICATE_DEADLINE)
    try:
        klog.v(2).info_s("Waiting for client certificate to be issued", csr=req_name)
        return csr.wait_for_certificate(ctx, client, req_name, req_uid)
    finally:
        cancel()


def digested_name(
    private_key: keyutil.PrivateKey, common_name: str, organization: Sequence[str], usages: Sequence[str]
) -> str:
    """Return the name of the request, which is the same as in the Go kubelet."""
    return csr.digested_name("node-csr-", private_key, (common_name, *organization, *usages))
