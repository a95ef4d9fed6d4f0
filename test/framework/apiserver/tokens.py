"""Sign and verify the tokens of service accounts, which are JSON web tokens.

The signature is ES256 with a key that only this server has. The authenticator, which knows the stored objects, checks
the references in the claims.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from . import certificates

ISSUER = "https://kubernetes.default.svc.cluster.local"

Claims = dict[str, Any]
Clock = Callable[[], float]

_HALF = 32  # This is the size, in bytes, of each of the two numbers in a P-256 signature.


class TokenError(Exception):
    """Signal that a token is not accepted. The message is the reason."""


class TokenSigner:
    """Sign and verify tokens. All methods are thread-safe, because the object never changes.

    `now` returns the seconds since 1970, like time.time.
    """

    def __init__(
        self, key: certificates.SigningKey | None = None, issuer: str = ISSUER, now: Clock = time.time
    ) -> None:
        self.issuer = issuer
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._now = now
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._key_id = _encode(hashlib.sha256(public).digest())

    @classmethod
    def load_or_create(cls, directory: Path) -> TokenSigner:
        """Load the signer's key from sa.key in a directory, or create it if it does not exist."""
        path = directory / "sa.key"
        if path.exists():
            return cls(certificates.load_signing_key(path.read_bytes()))
        key = ec.generate_private_key(ec.SECP256R1())
        directory.mkdir(parents=True, exist_ok=True)
        certificates.write_private(path, certificates.private_key_pem(key))
        return cls(key)

    def sign(self, claims: Claims) -> str:
        header = {"alg": "ES256", "kid": self._key_id}
        text = f"{_encode_json(header)}.{_encode_json(claims)}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_encode(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

    def issued(self, token: str) -> bool:
        """Report whether a token claims this issuer. The claim may be false."""
        try:
            return bool(_decode_json(token.split(".")[1]).get("iss") == self.issuer)
        except (IndexError, ValueError, AttributeError):
            return False

    def verify(self, token: str, audiences: Collection[str]) -> Claims:
        """Return the claims of a token that is valid now for one of these audiences. Raise TokenError if it is not."""
        claims = self._verify_signature(token)
        now = self._now()
        if now >= claims.get("exp", 0):
            raise TokenError("service account token has expired")
        if now < claims.get("nbf", 0) - 1:
            raise TokenError("service account token is not valid yet")
        if not set(claims.get("aud", [])) & set(audiences):
            wanted, got = sorted(audiences), claims.get("aud", [])
            raise TokenError(f"token audiences {_quoted(got)} is invalid for the target audiences {_quoted(wanted)}")
        return claims

    def _verify_signature(self, token: str) -> Claims:
        parts = token.split(".")
        try:
            header, claims = _decode_json(parts[0]), _decode_json(parts[1])
            signature = _decode(parts[2])
        except (IndexError, ValueError) as err:
            raise TokenError("the token is not a JSON web token") from err
        if len(parts) != 3 or len(signature) != 2 * _HALF or header.get("alg") != "ES256":
            raise TokenError("the token does not have a signature of this server's kind")
        r, s = (int.from_bytes(each, "big") for each in (signature[:_HALF], signature[_HALF:]))
        text = f"{parts[0]}.{parts[1]}".encode()
        try:
            self._key.public_key().verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as err:
            raise TokenError("invalid signature, no keys found") from err
        return claims


def claims_for(
    issuer: str,
    account: Mapping[str, Any],
    audiences: Sequence[str],
    seconds: int,
    bound: Mapping[str, Mapping[str, Any]],
    now: float,
) -> Claims:
    """Return the claims of a token for a service account.

    `bound` has the objects that the token is bound to, by the names of their claims: pod, node, secret.
    """
    metadata = account["metadata"]
    private: dict[str, Any] = {
        "namespace": metadata["namespace"],
        "serviceaccount": _reference(account),
        **{claim: _reference(each) for claim, each in bound.items()},
    }
    return {
        "aud": list(audiences),
        "exp": int(now) + seconds,
        "iat": int(now),
        "iss": issuer,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": private,
        "nbf": int(now),
        "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
    }


def _reference(item: Mapping[str, Any]) -> dict[str, str]:
    return {"name": item["metadata"]["name"], "uid": item["metadata"].get("uid", "")}


def _quoted(names: Sequence[str]) -> str:
    return f"[{' '.join(json.dumps(name) for name in names)}]"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encode_json(value: Mapping[str, Any]) -> str:
    return _encode(json.dumps(value, separators=(",", ":")).encode())


def _decode_json(text: str) -> dict[str, Any]:
    """Decode a JSON object. Raise ValueError if the text is not a JSON object."""
    value = json.loads(_decode(text))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
