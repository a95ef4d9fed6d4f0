"""TLS to servers that nobody trusts: those of containers, asked by probes and hooks.

Go: crypto/tls (conn.go, handshake_client.go)

pyOpenSSL instead of the standard library's ssl: only with it can be refused what would keep OpenSSL busy for half a
minute. It is loaded with the first https URL.
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

# All that comes of one connection with TLS, a head and a body several times over. Records are taken one by one, and
# _RECEIVE_COST bytes more are counted for each part of one that is, and each time that some of what it holds is taken.
# Records that hold no data, new keys for example, would else keep a processor busy as long as the probe lasts, and cost
# their server hardly anything. _HELLO_RECORD_COST bytes more are counted for each until the server has said hello.
# DIVERGES (safer): a probe or hook by TLS fails when its server sends more than MAX_TLS_BYTES.
# Go: crypto/tls/conn.go, (*Conn).retryReadRecord: counts records instead, and takes 16 in a row that hold no data.
# Why: OpenSSL does not tell of such records, and would read them as long as they come.
# Test: httpclient_test.py:test_server_that_sends_tickets_without_end_is_not_read_on
MAX_TLS_BYTES = 1 << 20
_RECEIVE_COST = 256
_HELLO_RECORD_COST = 4 * 1024
# How much is sent at a time, and how each record of TLS begins.
_SEND_SIZE = 17 * 1024
_RECORD_HEADER_SIZE = 5
_RECORD_TYPES = range(20, 25)
_HANDSHAKE = 22
# How a server's hello begins when it wants the client's again, and that it wants a key of a group of finite fields.
_WANTS_FINITE_FIELD = re.compile(
    b"\2...\3\3" + re.escape(hashlib.sha256(b"HelloRetryRequest").digest()) + b".*\0\x33\0\2\1", re.DOTALL
)

T = TypeVar("T")


@functools.cache
def _unverified(protocols: tuple[str, ...] = ()) -> SSL.Context:
    """One for all requests: making it takes longer than a probe. Containers sign their certificates themselves."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_verify(SSL.VERIFY_NONE)
    # What is to be sent is written to memory, which takes all of it.
    context.clear_mode(MODE_PARTIAL_WRITE)
    # There is no DHE, as in Go: the server would choose the numbers to compute with, and those of 10,000 bits take more
    # than a second.
    context.set_cipher_list(b"DEFAULT:!kDHE:@SECLEVEL=1")
    # Nor does a server have all that computed again and again, for as long as a probe lasts.
    context.set_options(SSL.OP_NO_RENEGOTIATION)
    refuse_costly_certificates(context)
    if protocols:
        context.set_alpn_protos([protocol.encode() for protocol in protocols])
    return context


class TLSConnection(dialer.Connection):
    """A dialer.Connection over TLS.

    OpenSSL reads on within one call for as long as there is something, and the server may send what holds no data, such
    as tickets for later sessions, without a pause. Here it gets no more at a time than a record has.
    """

    def __init__(self, ctx: golang.Context, sock: socket.socket, host: str, protocols: tuple[str, ...] = ()) -> None:
        super().__init__(ctx, sock)
        self._tls = SSL.Connection(_unverified(protocols), None)
        self._tls.set_connect_state()
        if not _is_address(host):
            self._tls.set_tlsext_host_name(host.encode("idna"))
        # What has come of the server's hello; None once all of it has.
        self._hello: bytes | None = b""
        self._room = MAX_TLS_BYTES

    def protocol(self) -> str:
        """The one of the protocols that the server has chosen, after the handshake; "" for none."""
        self._until_done(self._tls.do_handshake)
        return self._tls.get_alpn_proto_negotiated().decode()

    def send(self, data: bytes) -> None:
        """The same, after the handshake."""
        self._until_done(self._tls.do_handshake)
        self._until_done(lambda: self._tls.send(data))

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._until_done(lambda: self._tls.recv(len(buffer)))
        except EOFError:
            return 0  # Many servers do not say that it is the end.
        # It is of one record, of which a server may send thousands at once, each with a byte.
        self._count(0)
        buffer[: len(data)] = data
        return len(data)

    def _until_done(self, operation: Callable[[], T]) -> T:
        """Go on with the operation until it wants nothing more from the server."""
        while True:
            try:
                result = operation()
            except SSL.WantReadError:
                self._exchange()
            except (SSL.ZeroReturnError, SSL.SysCallError):
                raise EOFError("EOF") from None
            except SSL.Error as err:
                # An alert that tells the server why.
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
        """Less than a record at the end, and the head alone of what is none."""
        record, size = b"", _RECORD_HEADER_SIZE
        while len(record) < size and (data := self._receive(size - len(record))):
            record += data
            if len(record) == _RECORD_HEADER_SIZE and record[0] in _RECORD_TYPES:
                size += int.from_bytes(record[-2:])
        return record

    def _look_for_hello(self, hello: bytes, record: bytes) -> None:
        """Raises ValueError if the record has the server's hello, and that is not to be answered.

        TLS 1.3 has Diffie-Hellman's exchange with numbers of 8,000 bits too, of which Go wants none. OpenSSL offers it,
        and pyOpenSSL cannot tell it not to.
        """
        self._room -= _HELLO_RECORD_COST
        if record and record[0] == _HANDSHAKE:
            # Requests of a hello, four bytes of zero each, may come before it: OpenSSL takes no notice of them.
            hello = (hello + record[_RECORD_HEADER_SIZE:]).lstrip(b"\0")
            is_whole = len(hello) >= 4 and len(hello) >= 4 + int.from_bytes(hello[1:4])
            self._hello = None if is_whole else hello
            if _WANTS_FINITE_FIELD.match(hello):
                raise ValueError("tls: server selected unsupported group")

    def _receive(self, size: int) -> bytes:
        """Raises ValueError beyond MAX_TLS_BYTES."""
        with self._limited():
            data = self._sock.recv(size)
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        """Raises ValueError beyond MAX_TLS_BYTES."""
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
