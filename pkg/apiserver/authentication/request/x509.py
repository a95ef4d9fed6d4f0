"""Authenticate a request by its client certificate.

Go: k8s.io/apiserver/pkg/authentication/request/x509/x509.go
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import features
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry
from pkg.golang import x509 as golangx509

if TYPE_CHECKING:
    from cryptography import x509

    from pkg.golang import http

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

CLIENT_CERTIFICATE_EXPIRATION_HISTOGRAM = metrics.new_histogram(
    "apiserver_client_certificate_expiration_seconds",
    "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
    buckets=(
        0,
        30 * _MINUTE,
        *(hours * _HOUR for hours in (1, 2, 6, 12)),
        *(days * _DAY for days in (1, 2, 4, 7, 30, 90, 180, 360)),
    ),
)
_register_metrics = legacyregistry.Once(CLIENT_CERTIFICATE_EXPIRATION_HISTOGRAM)

# `MAX_IDENTIFIED_BYTES` is the maximum size, in bytes, of an untrusted certificate whose extensions are decoded.
# Decoding a list of names takes far more memory and time than its size suggests.
MAX_IDENTIFIED_BYTES = 4 << 10

# `_UID_OID` is the attribute of a subject that holds the user's UID.
_UID_OID = "1.3.6.1.4.1.57683.2"


class Authenticator:
    """Authenticate users by the common names of certificates that the current options accept."""

    def __init__(self, verify_options: Callable[[], golangx509.VerifyOptions | None]) -> None:
        _register_metrics()
        self._verify_options = verify_options

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        options = self._verify_options()
        if not request.peer_certificates or options is None:
            return None
        try:
            return _authenticate(request.peer_certificates, options)
        except golangx509.decoding_errors() as err:
            raise authenticator.AuthenticationError(f"malformed client certificate: {err}") from err


def _authenticate(certificates: list[bytes], options: golangx509.VerifyOptions) -> authenticator.Response | None:
    from cryptography import x509

    leaf, *intermediates = [x509.load_der_x509_certificate(der) for der in certificates]
    remaining = leaf.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    CLIENT_CERTIFICATE_EXPIRATION_HISTOGRAM.observe(remaining.total_seconds())
    try:
        options.verify(leaf, intermediates)
    except golangx509.CertificateError as err:
        raise authenticator.AuthenticationError(
            f"verifying certificate {certificate_identifier(leaf)} failed: {err}"
        ) from err
    return common_name_user_conversion(leaf)


def certificate_identifier(cert: x509.Certificate) -> str:
    """Return the text by which the log identifies a certificate.

    DIVERGES (safer): the log shows only the serial number of a certificate with more bytes than MAX_IDENTIFIED_BYTES.
    Go: k8s.io/apiserver/pkg/authentication/request/x509/x509.go, certificateIdentifier: the Go kubelet has no bound.
    Why: a client without credentials could make Python decode long lists of names.
    Test: x509_test.py:test_certificate_identifier_of_a_large_one
    """
    from cryptography import x509

    if len(cert.tbs_certificate_bytes) > MAX_IDENTIFIED_BYTES:
        return f"SN={cert.serial_number}"
    extensions = {extension.oid: extension.value for extension in cert.extensions}
    subject = extensions.get(x509.SubjectKeyIdentifier.oid)
    authority = extensions.get(x509.AuthorityKeyIdentifier.oid)
    subject_id = subject.digest if isinstance(subject, x509.SubjectKeyIdentifier) else b""
    authority_id = authority.key_identifier if isinstance(authority, x509.AuthorityKeyIdentifier) else b""
    return f"SN={cert.serial_number}, SKID={_hex(subject_id)}, AKID={_hex(authority_id or b'')}"


def _hex(data: bytes) -> str:
    return data.hex(":").upper()


def common_name_user_conversion(cert: x509.Certificate) -> authenticator.Response | None:
    """Return the user of a certificate, or None without a common name.

    The user's name is the common name, and the groups are the organizations.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import NameOID

    # The last common name counts, as in Go's pkix.Name.
    names = _attributes(cert, NameOID.COMMON_NAME.dotted_string)
    if not names or not names[-1]:
        return None
    digest = hashlib.sha256(cert.public_bytes(serialization.Encoding.DER)).hexdigest()
    return authenticator.Response(
        userinfo.Info(
            name=names[-1],
            uid=_uid(cert),
            groups=tuple(_attributes(cert, NameOID.ORGANIZATION_NAME.dotted_string)),
            extra={userinfo.CREDENTIAL_ID_KEY: (f"X509SHA256={digest}",)},
        )
    )


def _uid(cert: x509.Certificate) -> str:
    if not features.feature_gate.enabled(features.ALLOW_PARSING_USER_UID_FROM_CERT_AUTH):
        return ""
    uids = _attributes(cert, _UID_OID)
    if len(uids) > 1:
        raise authenticator.AuthenticationError(f"expected 1 UID, but found multiple: {uids}")
    if uids and not uids[0]:
        raise authenticator.AuthenticationError("UID cannot be an empty string")
    return uids[0] if uids else ""


def _attributes(cert: x509.Certificate, oid: str) -> list[str]:
    values = [attribute.value for attribute in cert.subject if attribute.oid.dotted_string == oid]
    if not all(isinstance(value, str) for value in values):
        raise authenticator.AuthenticationError(f"unable to parse {oid} of the subject into a string")
    return [str(value) for value in values]
