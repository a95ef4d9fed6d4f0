"""Connect over TLS to untrusted servers: those of containers, for probes and hooks.

Go: crypto/tls (conn.go, handshake_client.go)

This module uses pyOpenSSL instead of the standard library's ssl, because only pyOpenSSL lets it refuse input that would
keep OpenSSL busy for half a minute. OpenSSL is loaded with the first https URL.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import ipaddress
import re
import socket
from collections.abc import Callable
from typing import TypeVar

from OpenSSL import SSL

from pkg import golang
from pkg.golang.http.costlycerts import refuse_costly_certificates
from pkg.golang.http.tlsconn import MODE_PARTIAL_WRITE, TLSError, reason_of
from pkg.probe import dialer

# At most this many bytes are received on one TLS connection, enough for several heads and bodies. Records are read one
# by one. Each part of a record that is received, and each read of a record's content, counts _RECEIVE_COST bytes more.
# Otherwise records without data, such as key updates, would keep a processor busy as long as the probe lasts, at hardly
# any cost for their server. Until the server's hello is complete, each record counts _HELLO_RECORD_COST bytes more.
# DIVERGES (safer): in this kubelet, a probe or hook over TLS fails when its server sends more than MAX_TLS_BYTES.
# Go: crypto/tls/conn.go, (*Conn).retryReadRecord: the Go kubelet counts records instead, and accepts 16 in a row
# without data.
# Why: OpenSSL does not report such records, and would read them as long as they arrive.
# Test: httpclient_test.py:test_server_that_sends_tickets_without_end_is_not_read_on
MAX_TLS_BYTES = 1 << 20
_RECEIVE_COST = 256
_HELLO_RECORD_COST = 4 * 1024
# _SEND_SIZE bytes are sent at a time. The other constants describe the header of a TLS record.
_SEND_SIZE = 17 * 1024
_RECORD_HEADER_SIZE = 5
_RECORD_TYPES = range(20, 25)
_HANDSHAKE = 22
# The pattern matches a server's hello that requests a second client hello with a key of a finite-field group.
_WANTS_FINITE_FIELD = re.compile(
    b"\2...\3\3" + re.escape(hashlib.sha256(b"HelloRetryRequest").digest()) + b".*\0\x33\0\2\1", re.DOTALL
)

T = TypeVar("T")


@functools.cache
def _unverified(protocols: tuple[str, ...] = ()) -> SSL.Context:
    """Return the context that all requests share, because creating one takes longer than a probe.

    It does not verify certificates, because containers sign theirs themselves.
    """
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_verify(SSL.VERIFY_NONE)
    # The data to send goes to a memory buffer, which always accepts all of it.
    context.clear_mode(MODE_PARTIAL_WRITE)
    # DHE is off, as in Go: the server would choose the numbers to compute with, and those of 10,000 bits take more than
    # a second.
    context.set_cipher_list(b"DEFAULT:!kDHE:@SECLEVEL=1")
    # Without renegotiation, a server cannot make the client repeat the handshake's computation as long as a probe
    # lasts.
    context.set_options(SSL.OP_NO_RENEGOTIATION)
    refuse_costly_certificates(context)
    if protocols:
        context.set_alpn_protos([protocol.encode() for protocol in protocols])
    return context


class TLSConnection(dialer.Connection):
    """Represent a dialer.Connection over TLS.

    Within one call, OpenSSL reads as long as data is available, and the server may send records without content, such
    as session tickets, continuously. So this class passes OpenSSL only one record at a time.
    """

    def __init__(self, ctx: golang.Context, sock: socket.socket, host: str, protocols: tuple[str, ...] = ()) -> None:
        super().__init__(ctx, sock)
        self._tls = SSL.Connection(_unverified(protocols), None)
        self._tls.set_connect_state()
        if not _is_address(host):
            self._tls.set_tlsext_host_name(host.encode("idna"))
        # `_hello` is the received part of the server's hello, or None once the hello is complete.
        self._hello: bytes | None = b""
        self._room = MAX_TLS_BYTES

    def protocol(self) -> str:
        """Do the handshake, and return the protocol that the server has chosen, or ""."""
        self._until_done(self._tls.do_handshake)
        return self._tls.get_alpn_proto_negotiated().decode()

    def send(self, data: bytes) -> None:
        """Do the handshake if necessary, and send all of the data."""
        self._until_done(self._tls.do_handshake)
        self._until_done(lambda: self._tls.send(data))

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._until_done(lambda: self._tls.recv(len(buffer)))
        except EOFError:
            return 0  # Many servers close the connection without a close_notify.
        # The data comes from one record. A server may send thousands of records at once, each with one byte.
        self._count(0)
        buffer[: len(data)] = data
        return len(data)

    def _until_done(self, operation: Callable[[], T]) -> T:
        """Repeat the operation until it needs nothing more from the server."""
        while True:
            try:
                result = operation()
            except SSL.WantReadError:
                self._exchange()
            except (SSL.ZeroReturnError, SSL.SysCallError):
                raise EOFError("EOF") from None
            except SSL.Error as err:
                # This call sends an alert that tells the server the reason.
                with contextlib.suppress(OSError):
                    self._send_what_waits()
                raise TLSError(f"tls: {reason_of(err)}") from None
            else:
                self._send_what_waits()
                return result

    def _exchange(self) -> None:
        self._send_what_waits()
        record = self._receive_record()
        if self._hello is not None:
            self._look_for_hello(self._hello, record)
        if record:
            self._tls.bio_write(record)
        else:
            self._tls.bio_shutdown()

    def _receive_record(self) -> bytes:
        """Return the next record; less than a record at the end, and only the header if the data is not TLS."""
        record, size = b"", _RECORD_HEADER_SIZE
        while len(record) < size and (data := self._receive(size - len(record))):
            record += data
            if len(record) == _RECORD_HEADER_SIZE and record[0] in _RECORD_TYPES:
                size += int.from_bytes(record[-2:])
        return record

    def _look_for_hello(self, hello: bytes, record: bytes) -> None:
        """Raise ValueError if the record completes a server hello to which the client must not respond.

        TLS 1.3 also has a Diffie-Hellman exchange with numbers of 8,000 bits, which Go does not support. OpenSSL offers
        it, and pyOpenSSL cannot switch it off.
        """
        self._room -= _HELLO_RECORD_COST
        if record and record[0] == _HANDSHAKE:
            # Hello requests, of four zero bytes each, may come before the hello. OpenSSL ignores them.
            hello = (hello + record[_RECORD_HEADER_SIZE:]).lstrip(b"\0")
            is_whole = len(hello) >= 4 and len(hello) >= 4 + int.from_bytes(hello[1:4])
            self._hello = None if is_whole else hello
            if _WANTS_FINITE_FIELD.match(hello):
                raise ValueError("tls: server selected unsupported group")

    def _receive(self, size: int) -> bytes:
        """Receive at most `size` bytes. Raise ValueError beyond MAX_TLS_BYTES."""
        with self._limited():
            data = self._sock.recv(size)
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        """Count received bytes. Raise ValueError beyond MAX_TLS_BYTES."""
        self._room -= size + _RECEIVE_COST
        if self._room < 0:
            raise ValueError(f"tls: received more than {MAX_TLS_BYTES} bytes")

    def _send_what_waits(self) -> None:
        with contextlib.suppress(SSL.WantReadError):
            while data := self._tls.bio_read(_SEND_SIZE):
                super().send(data)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
