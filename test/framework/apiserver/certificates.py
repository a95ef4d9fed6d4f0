"""Run a cluster's certificate authority: issue certificates, write kubeconfig files, and sign requests.

All keys are elliptic-curve keys. They take a hundredth of a millisecond to create, and RSA keys a tenth of a second.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import json
import os
import ssl
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SIGNER_CLIENT = "kubernetes.io/kube-apiserver-client"
SIGNER_KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SIGNER_KUBELET_SERVING = "kubernetes.io/kubelet-serving"

_BACKDATE = datetime.timedelta(minutes=5)
# A certificate is valid from _BACKDATE before its signing. It expires earlier by the same time, unless its lifetime is
# below this value.
_SHORT = datetime.timedelta(hours=8)
_YEAR = datetime.timedelta(days=365)
_USER_PREFIX = "system:node:"
_NODES = "system:nodes"

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
}
_EXTENDED_KEY_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
}

SigningKey = ec.EllipticCurvePrivateKey


class RequestError(Exception):
    """Signal that a signer refuses a certificate signing request. The message is that of upstream's signer."""


@dataclass(frozen=True)
class KeyPair:
    """Hold a certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.crt and NAME.key and return their paths. Only the owner may read the key."""
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


def write_private(path: Path, data: bytes) -> None:
    """Write a file in one step. Other users can never read it."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    unfinished.rename(path)


class CertificateAuthority:
    """Sign certificates with one key. All methods are thread-safe, because the object never changes."""

    def __init__(self, certificate: x509.Certificate, key: SigningKey) -> None:
        self.certificate = certificate
        self.key = key

    @classmethod
    def create(cls, name: str = "kubernetes", lifetime: datetime.timedelta = 10 * _YEAR) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = _now()
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(now + lifetime)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage({"digital_signature", "key_encipherment", "key_cert_sign"}), critical=True)
            .add_extension(key_id, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load_or_create(cls, directory: Path, name: str = "kubernetes") -> CertificateAuthority:
        """Load the authority from NAME-ca.crt and NAME-ca.key in a directory, or create it if they do not exist."""
        certificate, key = directory / f"{name}-ca.crt", directory / f"{name}-ca.key"
        if certificate.exists() and key.exists():
            return cls(x509.load_pem_x509_certificate(certificate.read_bytes()), load_signing_key(key.read_bytes()))
        authority = cls.create(name)
        KeyPair(authority.pem, private_key_pem(authority.key)).write(directory, f"{name}-ca")
        return authority

    @property
    def pem(self) -> bytes:
        """Return the authority's certificate, with which clients verify the certificates that it signed."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def server_pair(
        self, names: Iterable[str] = ("localhost", "127.0.0.1"), lifetime: datetime.timedelta = _YEAR
    ) -> KeyPair:
        """Return a certificate for a server with these host names and IP addresses."""
        found = list(names)
        alternative = x509.SubjectAlternativeName([_general_name(each) for each in found])
        return self._pair(found[0], [], ["server auth"], _now() + lifetime, alternative)

    def client_pair(
        self,
        user: str,
        groups: Sequence[str] = (),
        lifetime: datetime.timedelta = _YEAR,
    ) -> KeyPair:
        """Return a client certificate of a user who is a member of these groups.

        With a negative lifetime the certificate has already expired.
        """
        return self._pair(user, groups, ["client auth"], _now() + lifetime, None)

    def node_pair(self, node: str, lifetime: datetime.timedelta = _YEAR) -> KeyPair:
        """Return a client certificate of a node."""
        return self.client_pair(f"{_USER_PREFIX}{node}", [_NODES], lifetime)

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Sequence[str], lifetime: datetime.timedelta
    ) -> bytes:
        """Sign a request as the signers of kube-controller-manager do, and return the certificate in PEM."""
        end = lifetime if lifetime < _SHORT else lifetime - _BACKDATE
        alternative = _extension(request.extensions, x509.SubjectAlternativeName)
        return self._issue(request.subject, request.public_key(), usages, _now() + end, alternative)

    def _pair(
        self,
        name: str,
        organizations: Sequence[str],
        usages: Sequence[str],
        end: datetime.datetime,
        alternative: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = ["digital signature", "key encipherment", *usages]
        return KeyPair(self._issue(subject, key.public_key(), usages, end, alternative), private_key_pem(key))

    def _issue(
        self,
        subject: x509.Name,
        public_key: object,
        usages: Sequence[str],
        end: datetime.datetime,
        alternative: x509.SubjectAlternativeName | None,
    ) -> bytes:
        assert isinstance(public_key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey)
        # The certificate must begin before its end, even if it has already expired.
        start = min(_now(), end) - _BACKDATE
        bits = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
        extended = [_EXTENDED_KEY_USAGES[usage] for usage in usages if usage in _EXTENDED_KEY_USAGES]
        ca_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            x509.CertificateBuilder(self.certificate.subject, subject, public_key, x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(min(end, self.certificate.not_valid_after_utc))
            .add_extension(_key_usage(bits), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(ca_id, critical=False)
        )
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        if alternative is not None:
            builder = builder.add_extension(alternative, critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def parse_request(pem: bytes) -> x509.CertificateSigningRequest:
    """Parse the request of a CSR object. Raise RequestError if it is not valid."""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        raise RequestError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
    except ValueError as err:
        raise RequestError(str(err)) from err
    if not request.is_signature_valid:
        raise RequestError("unable to verify certificate request signature")
    return request


def decode_request(encoded: str) -> x509.CertificateSigningRequest:
    """Decode the base64 of a CSR object and parse the request. Raise RequestError if it is not valid."""
    try:
        return parse_request(base64.b64decode(encoded, validate=True))
    except binascii.Error as err:
        raise RequestError(f"the request is not base64: {err}") from err


def common_name(subject: x509.Name) -> str:
    found = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[-1].value) if found else ""


def organizations(subject: x509.Name) -> list[str]:
    return [str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def check_request(request: x509.CertificateSigningRequest, signer: str, usages: Collection[str]) -> None:
    """Raise RequestError if a signer of kubernetes.io refuses this request."""
    match signer:
        case "kubernetes.io/kube-apiserver-client-kubelet":
            _check_kubelet_client(request, usages)
        case "kubernetes.io/kubelet-serving":
            _check_kubelet_serving(request, usages)
        case "kubernetes.io/kube-apiserver-client":
            _check_client_usages(usages)
        case _:
            raise RequestError(f'unrecognized signerName: "{signer}"')


def _check_kubelet_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    names = _alternative_names(request)
    if organizations(request.subject) != [_NODES]:
        raise RequestError("subject organization is not system:nodes")
    for kind, word in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if any(isinstance(name, kind) for name in names):
            raise RequestError(f"{word} subjectAltNames are not allowed")
    if not common_name(request.subject).startswith(_USER_PREFIX):
        raise RequestError("subject common name does not begin with system:node:")
    _check_usages(usages, "client auth")


def _check_kubelet_serving(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    names = _alternative_names(request)
    if organizations(request.subject) != [_NODES]:
        raise RequestError("subject organization is not system:nodes")
    if not any(isinstance(name, x509.DNSName | x509.IPAddress) for name in names):
        raise RequestError("DNS or IP subjectAltName is required")
    for kind, word in ((x509.RFC822Name, "Email"), (x509.UniformResourceIdentifier, "URI")):
        if any(isinstance(name, kind) for name in names):
            raise RequestError(f"{word} subjectAltNames are not allowed")
    _check_usages(usages, "server auth")
    if not common_name(request.subject).startswith(_USER_PREFIX):
        raise RequestError("subject common name does not begin with system:node:")


def _check_usages(usages: Collection[str], purpose: str) -> None:
    """Check the usages. Key encipherment is optional, because only RSA keys need it."""
    if set(usages) - {"key encipherment"} != {"digital signature", purpose}:
        wanted = " ".join(sorted({"digital signature", "key encipherment", purpose}))
        raise RequestError(f"usages did not match [{wanted}]")


def _check_client_usages(usages: Collection[str]) -> None:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            raise RequestError(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise RequestError("missing required usage for client certificate: client auth")


def _alternative_names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    found = _extension(request.extensions, x509.SubjectAlternativeName)
    return list(found) if found is not None else []


def _extension(
    extensions: x509.Extensions, kind: type[x509.SubjectAlternativeName]
) -> x509.SubjectAlternativeName | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def make_request(user: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Return a certificate request and its key, both in PEM.

    The request is for a client with this user name, or for a server with these names.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    )
    if names:
        alternative = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternative, critical=False)
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return request, private_key_pem(key)


def kubeconfig(server: str, authority: bytes, user: str, pair: KeyPair | None = None, token: str = "") -> bytes:
    """Return a kubeconfig for one user with a certificate, a token, or neither. It is JSON, which is also YAML."""
    credentials: dict[str, str] = {}
    if pair is not None:
        credentials["client-certificate-data"] = _base64(pair.certificate)
        credentials["client-key-data"] = _base64(pair.key)
    if token:
        credentials["token"] = token
    cluster = {"server": server, "certificate-authority-data": _base64(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": cluster}],
        "contexts": [{"name": "default", "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": "default",
        "users": [{"name": user, "user": credentials}],
    }
    return json.dumps(config, indent=2).encode() + b"\n"


# This is OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which the ssl module has no name.
_NO_CHECK_TIME = 0x200000


def server_context(certificate: Path, key: Path, client_authority: Path) -> ssl.SSLContext:
    """Return a TLS context for a server. Clients may have a certificate of this authority or none.

    The context accepts an expired client certificate, so that the client gets 401 and not a TLS alert. The server must
    check the expiry.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client_authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    return context


def client_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context for a client with a certificate that trusts every server, as API servers trust kubelets."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


def load_signing_key(pem: bytes) -> SigningKey:
    """Load a private key that private_key_pem wrote."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"the key is not an elliptic-curve key: it is a {type(key).__name__}")
    return key


def private_key_pem(key: SigningKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(bits: Collection[str]) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature="digital_signature" in bits,
        content_commitment="content_commitment" in bits,
        key_encipherment="key_encipherment" in bits,
        data_encipherment="data_encipherment" in bits,
        key_agreement="key_agreement" in bits,
        key_cert_sign="key_cert_sign" in bits,
        crl_sign="crl_sign" in bits,
        encipher_only=False,
        decipher_only=False,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
