"""Refuse certificates before OpenSSL parses them: those with costly keys, and chains with too many.

This file has no Go counterpart. crypto/x509 supports four named curves and only points with both coordinates, and
refuses other certificates.

OpenSSL computes with the key of a certificate as soon as it reads the certificate, before any code can inspect it. The
certificate may contain the parameters of its curve. A compressed point, which has only one coordinate, requires a
square root; with parameters that an attacker has chosen, this takes a tenth of a second. On a named curve such as P-224
it still takes half a millisecond. A certificate message has room for two hundred certificates of the first kind, and
for nine hundred of the second.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from OpenSSL import SSL

# pyOpenSSL does not offer these functions, but the library below it does.
_ffi: Any = SSL._ffi  # type: ignore[attr-defined]
_lib: Any = SSL._lib  # type: ignore[attr-defined]

# The values are in DER. _ON_CURVE is the start of an elliptic-curve key. _TAKEN holds the accepted continuations: the
# name of the curve and an uncompressed point. 1.2.156.10197.1.301 (SM2) is OpenSSL's other name for such keys and for a
# curve.
_ON_CURVE = bytes.fromhex("2a8648ce3d0201")
_TAKEN = {
    "P-224": bytes.fromhex("06052b81040021 033a0004"),
    "P-256": bytes.fromhex("06082a8648ce3d030107 03420004"),
    "P-384": bytes.fromhex("06052b81040022 03620004"),
    "P-521": bytes.fromhex("06052b81040023 0381860004"),
}
_OTHER_NAME = bytes.fromhex("2a811ccf5501822d")
_COSTLY_KEY = re.compile(
    re.escape(_ON_CURVE) + b"(?!" + b"|".join(map(re.escape, _TAKEN.values())) + b")|" + re.escape(_OTHER_NAME)
)
# These are constants of TLS: the type of a handshake record, the types of messages with certificates, and the size of a
# message's header.
_HANDSHAKE = 22
_CERTIFICATE, _COMPRESSED_CERTIFICATE = 11, 25
_HEADER_SIZE = 4
# The first is the size of a length field. The second is the size of the length of a certificate's extensions, which
# exist since TLS 1.3.
_LENGTH_SIZE, _EXTENSIONS_LENGTH_SIZE = 3, 2


def refuse_costly_certificates(context: SSL.Context, most: int | None = None) -> None:
    """Make handshakes fail if the peer sends a certificate with a costly key, or more than `most` certificates.

    Call this before the context has any connection. Go: crypto/x509/parser.go, parsePublicKey
    """
    _lib.SSL_CTX_set_msg_callback(context._context, _callback(most))


@functools.cache
def _callback(most: int | None) -> Any:
    """Return the C callback. It is never freed, because OpenSSL may call it as long as a context exists."""
    signature = "void(int, int, int, void *, size_t, SSL *, void *)"
    return _ffi.callback(signature, functools.partial(_spoil_costly, most))


def _spoil_costly(most: int | None, written: int, version: int, kind: int, message: Any, size: int, *_: object) -> None:
    """Corrupt a costly certificate message. OpenSSL calls this function with each message before it parses the message.

    OpenSSL expects no return value. So this function overwrites the message with a list length that exceeds the
    message.
    """
    if written or kind != _HANDSHAKE or size <= _HEADER_SIZE:
        return
    start = _ffi.cast("unsigned char *", message)
    if start[0] not in (_CERTIFICATE, _COMPRESSED_CERTIFICATE):
        return
    data = _ffi.buffer(start, size)[:]
    if _is_costly(data, version == SSL.TLS1_3_VERSION, most):
        _ffi.memmove(start + _HEADER_SIZE, b"\xff" * (size - _HEADER_SIZE), size - _HEADER_SIZE)


def _is_costly(message: bytes, is_tls13: bool, most: int | None) -> bool:
    # This side never asks its peer to compress certificates.
    if message[0] == _COMPRESSED_CERTIFICATE or _COSTLY_KEY.search(message):
        return True
    return most is not None and _has_more_than(most, message, is_tls13)


def _has_more_than(most: int, message: bytes, is_tls13: bool) -> bool:
    """Report whether the list holds more than `most` certificates.

    OpenSSL parses a malformed list as far as this function does.
    """
    at = _HEADER_SIZE + (1 + message[_HEADER_SIZE] if is_tls13 else 0) + _LENGTH_SIZE
    for _ in range(most + 1):
        if at >= len(message):
            return False
        at += _LENGTH_SIZE + int.from_bytes(message[at : at + _LENGTH_SIZE])
        if is_tls13:
            at += _EXTENSIONS_LENGTH_SIZE + int.from_bytes(message[at : at + _EXTENSIONS_LENGTH_SIZE])
    return True
