"""Certificates that OpenSSL is not to take apart: those with keys that take it long, and too many.

This file has no Go counterpart: crypto/x509 knows four curves, by their names alone, and points of which both
coordinates are told. It refuses other certificates.

OpenSSL computes with the key of a certificate as soon as it reads the certificate, before anybody can look at it. The
certificate may have the numbers of its curve in it: a point of which one coordinate is told takes a square root, and
that of numbers which somebody has chosen for it a tenth of a second. On a curve with a name, P-224 for one, it still
takes half a millisecond. The message that certificates come in has room for two hundred of the one kind, and nine
hundred of the other.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from OpenSSL import SSL

# pyOpenSSL has no functions for this, but the library below it has.
_ffi: Any = SSL._ffi  # type: ignore[attr-defined]
_lib: Any = SSL._lib  # type: ignore[attr-defined]

# In DER. What a key on a curve begins with, and all that may follow: the name of the curve, and a point of which both
# coordinates are told. 1.2.156.10197.1.301 is OpenSSL's other name of such keys, and that of a curve.
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
# Of TLS: what a record is of, the messages with certificates, and the bytes before what a message says.
_HANDSHAKE = 22
_CERTIFICATE, _COMPRESSED_CERTIFICATE = 11, 25
_HEADER_SIZE = 4
# The bytes of a length, and of that of what is said of a certificate, since TLS 1.3.
_LENGTH_SIZE, _EXTENSIONS_LENGTH_SIZE = 3, 2


def refuse_costly_certificates(context: SSL.Context, most: int | None = None) -> None:
    """Have each handshake fail in which the other side shows a certificate with such a key, or more than most.

    To be called before the context has any connection. Go: crypto/x509/parser.go, parsePublicKey
    """
    _lib.SSL_CTX_set_msg_callback(context._context, _callback(most))


@functools.cache
def _callback(most: int | None) -> Any:
    """It is kept for ever: OpenSSL calls it as long as there is a context."""
    signature = "void(int, int, int, void *, size_t, SSL *, void *)"
    return _ffi.callback(signature, functools.partial(_spoil_costly, most))


def _spoil_costly(most: int | None, written: int, version: int, kind: int, message: Any, size: int, *_: object) -> None:
    """Called by OpenSSL with each message before it is taken apart.

    OpenSSL asks for no answer. So the message is made one that nobody can read: a list is longer than the message.
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
    # What is compressed nobody was asked to send.
    if message[0] == _COMPRESSED_CERTIFICATE or _COSTLY_KEY.search(message):
        return True
    return most is not None and _has_more_than(most, message, is_tls13)


def _has_more_than(most: int, message: bytes, is_tls13: bool) -> bool:
    """Whether the list of certificates has more. Of one that makes no sense OpenSSL takes as much apart as this."""
    at = _HEADER_SIZE + (1 + message[_HEADER_SIZE] if is_tls13 else 0) + _LENGTH_SIZE
    for _ in range(most + 1):
        if at >= len(message):
            return False
        at += _LENGTH_SIZE + int.from_bytes(message[at : at + _LENGTH_SIZE])
        if is_tls13:
            at += _EXTENSIONS_LENGTH_SIZE + int.from_bytes(message[at : at + _EXTENSIONS_LENGTH_SIZE])
    return True
