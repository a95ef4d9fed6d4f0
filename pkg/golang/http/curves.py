"""Certificates that OpenSSL is not to take apart: those whose keys are on curves of their own.

This file has no Go counterpart: crypto/x509 knows curves by their names alone, and refuses other certificates.

A certificate may have the numbers of its curve in it. OpenSSL computes with them as soon as it reads the certificate,
before anybody can look at it: a point of which one coordinate is told takes a square root, and that of numbers which
somebody has chosen for it a tenth of a second. The message that certificates come in has room for two hundred of them.
"""

from __future__ import annotations

from typing import Any

from OpenSSL import SSL

# pyOpenSSL has no functions for this, but the library below it has.
_ffi: Any = SSL._ffi  # type: ignore[attr-defined]
_lib: Any = SSL._lib  # type: ignore[attr-defined]

# What RFC 5480 calls prime-field and characteristic-two-field, the two kinds of curves by their numbers, in DER.
_PRIME_FIELD = bytes.fromhex("2a8648ce3d0101")
_BINARY_FIELD = bytes.fromhex("2a8648ce3d0102")
# Of TLS: what a record is of, the messages with certificates, and the bytes before what a message says.
_HANDSHAKE = 22
_CERTIFICATE, _COMPRESSED_CERTIFICATE = 11, 25
_HEADER_SIZE = 4


def refuse_own_curves(context: SSL.Context) -> None:
    """Have each handshake fail in which the other side shows such a certificate. Go: x509.parsePublicKey

    To be called before the context has any connection.
    """
    _lib.SSL_CTX_set_msg_callback(context._context, _look)


def _spoil_own_curves(written: int, _: int, kind: int, message: Any, size: int, *__: object) -> None:
    """Called by OpenSSL with each message before it is taken apart.

    OpenSSL asks for no answer. So the message is made one that nobody can read: a list is longer than the message.
    """
    if written or kind != _HANDSHAKE or size <= _HEADER_SIZE:
        return
    start = _ffi.cast("unsigned char *", message)
    if start[0] not in (_CERTIFICATE, _COMPRESSED_CERTIFICATE):
        return
    data = _ffi.buffer(start, size)[:]
    # What is compressed nobody was asked to send.
    if start[0] == _COMPRESSED_CERTIFICATE or _PRIME_FIELD in data or _BINARY_FIELD in data:
        _ffi.memmove(start + _HEADER_SIZE, b"\xff" * (size - _HEADER_SIZE), size - _HEADER_SIZE)


# OpenSSL calls it as long as there is a context.
_look = _ffi.callback("void(int, int, int, void *, size_t, SSL *, void *)", _spoil_own_curves)
