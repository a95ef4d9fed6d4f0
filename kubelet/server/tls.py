"""Configure the server's TLS and its certificate.

Go: pkg/kubelet/server/server.go (TLSOptions), pkg/kubelet/kubelet.go (NewMainKubelet), crypto/tls
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg.component_base.cli.flag import ciphersuites_flag

if TYPE_CHECKING:
    from OpenSSL import SSL

    from pkg.apiserver.server.dynamiccertificates import CAContentProvider
    from pkg.client_go.util import certificate

_VERSIONS = {"VersionTLS10": "TLS1_VERSION", "VersionTLS11": "TLS1_1_VERSION", "VersionTLS12": "TLS1_2_VERSION"}
_DEFAULT_VERSION = "VersionTLS12"
_TLS13 = "VersionTLS13"
# The keys are the numbers of the curves in the protocol, and the values are OpenSSL's names.
CURVES = {
    23: "P-256",
    24: "P-384",
    25: "P-521",
    29: "X25519",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}
# Go offers these cipher suites below TLS 1.3 by default.
DEFAULT_CIPHER_SUITES = tuple(
    f"TLS_ECDHE_{key}_WITH_{cipher}"
    for cipher in (
        "AES_128_GCM_SHA256",
        "AES_256_GCM_SHA384",
        "CHACHA20_POLY1305_SHA256",
        "AES_128_CBC_SHA",
        "AES_256_CBC_SHA",
    )
    for key in ("ECDSA", "RSA")
)
# This is OpenSSL's security level. Its default level 2 rejects certificates with RSA keys below 2048 bits, but Go
# accepts RSA keys from 1024 bits on. Neither level 1 nor level 2 allows TLS versions before 1.2.
_SECURITY_LEVEL = 1
_SECURITY_LEVEL_OF_OLD_VERSIONS = 0
_SESSION_ID = b"kubelet"
# At most this many connections share one context, and with it OpenSSL's copy of the private key. OpenSSL 3.6 keeps 1.7
# KiB in an RSA key for each thread that ever signed with it, and each connection here has its own thread.
MAX_CONNECTIONS_OF_CONTEXT = 1000


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """Hold the TLS settings of the configuration."""

    min_version: str = ""
    cipher_suites: Sequence[str] = ()
    curve_preferences: Sequence[int] = ()
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""


class NoServingCertificateError(ConnectionError):
    """Signal that there is no certificate yet: the kubelet has requested one, but it is not signed yet."""

    def __init__(self) -> None:
        super().__init__("no serving certificate available for the kubelet")


class TLSConfig:
    """Provide the TLS context of new connections.

    The context is replaced when the certificate or the clients' authority changes, and from time to time, so that the
    memory that OpenSSL keeps with it is freed. This class is thread-safe.
    """

    def __init__(
        self,
        options: TLSOptions,
        get_certificate: Callable[[], certificate.Certificate | None],
        client_ca: CAContentProvider,
    ) -> None:
        self._options = options
        self._get_certificate = get_certificate
        self._client_ca = client_ca
        self._lock = threading.Lock()
        # The lock guards the fields below: the inputs of `_current`, the context itself, and the number of connections
        # for which it may still be used.
        self._made_from: tuple[certificate.Certificate, bytes] | None = None
        self._current: SSL.Context | None = None
        self._left = 0

    def context(self) -> SSL.Context:
        """Return the context for the next connection.

        Raise NoServingCertificateError, and ValueError if the authority's certificate is invalid.
        """
        pair = self._get_certificate()
        if pair is None:
            raise NoServingCertificateError
        ca_bundle = self._client_ca.current_ca_bundle_content()
        with self._lock:
            if self._current is None or self._left == 0 or self._made_from != (pair, ca_bundle):
                self._current = new_context(self._options, pair, ca_bundle)
                self._made_from, self._left = (pair, ca_bundle), MAX_CONNECTIONS_OF_CONTEXT
            self._left -= 1
            return self._current


def new_context(options: TLSOptions, pair: certificate.Certificate, ca_bundle: bytes) -> SSL.Context:
    """Return a new context. Raise ValueError if the authority's certificate is invalid."""
    # The import is here so that only a kubelet with a TLS server loads OpenSSL.
    from OpenSSL import SSL

    from pkg.golang.http.costlycerts import refuse_costly_certificates
    from pkg.golang.http.tlsconn import MAX_PEER_CERTIFICATES, MODE_PARTIAL_WRITE

    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.clear_mode(MODE_PARTIAL_WRITE)
    # Most connections are idle most of the time, and this mode frees the buffers of idle connections.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    # A resumed session would not contain the client's certificates.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(_SESSION_ID)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION)
    _limit_protocol(context, options)
    context.use_certificate(pair.leaf)
    for intermediate in pair.chain[1:]:
        context.add_extra_chain_cert(intermediate)
    # The type is wider than the keys that a server can have, which x509_key_pair has checked.
    context.use_privatekey(pair.private_key)  # type: ignore[arg-type, unused-ignore]
    if options.client_ca_file:
        _request_client_certificate(context, ca_bundle)
    refuse_costly_certificates(context, MAX_PEER_CERTIFICATES)
    return context


def _limit_protocol(context: SSL.Context, options: TLSOptions) -> None:
    from OpenSSL import SSL

    suites = openssl_cipher_list(options.cipher_suites or DEFAULT_CIPHER_SUITES)
    version, level = options.min_version or _DEFAULT_VERSION, _SECURITY_LEVEL
    if version == _TLS13 or not suites:
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        # The list has no meaning for TLS 1.3, but the security level is part of a list.
        suites = "DEFAULT"
    else:
        context.set_min_proto_version(getattr(SSL, _VERSIONS[version]))
        if version != _DEFAULT_VERSION:
            level = _SECURITY_LEVEL_OF_OLD_VERSIONS
    context.set_cipher_list(f"{suites}:@SECLEVEL={level}".encode())
    if options.curve_preferences:
        curves = ":".join(CURVES[curve] for curve in options.curve_preferences)
        # The function of pyOpenSSL accepts only one curve.
        SSL._lib.SSL_CTX_set1_curves_list(context._context, curves.encode())  # type: ignore[attr-defined]


def _request_client_certificate(context: SSL.Context, ca_bundle: bytes) -> None:
    """Request a client certificate, and accept any. The authentication of the request verifies it later."""
    from OpenSSL import SSL

    from pkg.client_go.util import cert as certutil

    context.set_verify(SSL.VERIFY_PEER, lambda *_: True)
    # OpenSSL verifies the certificates anyway. For a chain it would check each signature, with keys as large as the
    # client likes, so the depth is limited.
    context.set_verify_depth(0)
    if ca_bundle:
        # Advertise the acceptable CAs so that a client can choose a certificate.
        for authority in certutil.parse_certs_pem(ca_bundle):
            context.add_client_ca(authority)


def openssl_cipher_list(names: Sequence[str]) -> str:
    """Return OpenSSL's list of those suites that do not belong to TLS 1.3, whose suites are always all enabled."""
    return ":".join(openssl_cipher_name(name) for name in names if "_WITH_" in name)


def openssl_cipher_name(name: str) -> str:
    """Return OpenSSL's name of a suite: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    for of_tls, of_openssl in (
        ("3DES_EDE_CBC", "DES-CBC3"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305"),
        ("RC4_128", "RC4"),
        ("AES_128_CBC", "AES128"),
        ("AES_256_CBC", "AES256"),
        ("AES_128", "AES128"),
        ("AES_256", "AES256"),
    ):
        cipher = cipher.replace(of_tls, of_openssl)
    full = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return full.replace("_", "-")


def check_curve_preferences(curves: Sequence[int]) -> None:
    """Raise ValueError if a curve is unknown or listed twice.

    Go: k8s.io/component-base/cli/flag/curves_flag.go
    """
    for index, curve in enumerate(curves):
        if not 0 < curve <= 0xFFFF:
            raise ValueError(f"curve preference {curve} is out of range (must be 1-65535)")
        if curve in curves[:index]:
            raise ValueError(f"duplicate curve preference {curve}")
        if curve not in CURVES:
            raise ValueError(f"curve preference {curve} is not supported")


def new_tls_options(
    min_version: str,
    cipher_suites: Sequence[str],
    curve_preferences: Sequence[int],
    cert_file: str,
    key_file: str,
    client_ca_file: str,
) -> TLSOptions:
    """Return the TLS options. Warn about values that are unsafe or have no effect.

    Raise ValueError with the name of what does not exist.
    """
    from pkg import klog

    ciphersuites_flag.check_tls_version(min_version)
    ciphersuites_flag.check_tls_cipher_suites(cipher_suites)
    check_curve_preferences(curve_preferences)
    for name in cipher_suites:
        if name in ciphersuites_flag.INSECURE_TLS_CIPHERS:
            klog.info_s("Use of insecure cipher detected.", cipher=name)
    if min_version == _TLS13 and cipher_suites:
        klog.info_s("Warning: TLS 1.3 cipher suites are not configurable, ignoring --tls-cipher-suites")
    return TLSOptions(min_version, cipher_suites, curve_preferences, cert_file, key_file, client_ca_file)
