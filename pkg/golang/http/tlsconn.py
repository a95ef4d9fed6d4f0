"""Run a connection over TLS.

Go: crypto/tls/conn.go

This module uses pyOpenSSL instead of the standard library's ssl, because only pyOpenSSL can request a client
certificate without verifying it in the handshake. A client with a wrong certificate gets a 401, as from Go, and not a
connection that breaks for no visible reason.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any

from OpenSSL import SSL, crypto

from pkg.golang.http.conn import WaitingConn
from pkg.golang.http.costlycerts import refuse_costly_certificates

# One TLS record carries at most this many bytes: a call never reads more, so its buffer need not be larger.
_RECORD = 1 << 14
_HTTP_REQUEST = "http request"
# This constant limits the peer's chain, from its own certificate to an authority. OpenSSL accepts 100 KiB of
# certificates, and needs megabytes of memory for them.
MAX_PEER_CERTIFICATES = 20
# This is OpenSSL's SSL_MODE_ENABLE_PARTIAL_WRITE. pyOpenSSL has no name for it but sets it. Streams are fast only
# without it, because one call then writes all of its data and not just one record.
MODE_PARTIAL_WRITE = 1
# Python's own ssl also sets these flags, whose names in OpenSSL begin with X509_CHECK_FLAG_.
_NO_PARTIAL_WILDCARDS, _NEVER_THE_SUBJECT = 0x4, 0x20


class TLSError(OSError):
    """Signal that the peer broke the protocol, or that the handshake failed."""


class PlainHTTPError(TLSError):
    """Signal that the peer speaks HTTP without TLS."""


def _do_nothing() -> None:
    pass


class TLSConn(WaitingConn):
    """Run one side of a TLS connection: the server's, or with `host` the client's of the server with that name."""

    def __init__(self, context: SSL.Context, sock: socket.socket, host: str = "") -> None:
        super().__init__(sock)
        self._tls = SSL.Connection(context, sock)
        # Otherwise OpenSSL would keep reading within one call, without a time limit, while the peer sends records
        # without data. pyOpenSSL has no function for this.
        lib: Any = SSL._lib  # type: ignore[attr-defined]
        lib.SSL_clear_mode(self._tls._ssl, lib.SSL_MODE_AUTO_RETRY)
        if host:
            self._tls.set_connect_state()
            _expect(self._tls, host)
        else:
            self._tls.set_accept_state()

    def handshake(self, before_wait: Callable[[], None] = _do_nothing) -> None:
        """Do the handshake; call `before_wait` before each wait for the peer.

        Raise TLSError, PlainHTTPError or TimeoutError, or what `before_wait` raises.
        """
        while True:
            try:
                self._tls.do_handshake()
                return
            except SSL.WantReadError:
                before_wait()
                self._wait(select.POLLIN)
            except SSL.WantWriteError:
                self._wait(select.POLLOUT)
            except SSL.SysCallError as err:
                raise TLSError("EOF in the handshake") from err
            except SSL.Error as err:
                reason = reason_of(err) + _verify_error(self._tls)
                raise (PlainHTTPError if reason == _HTTP_REQUEST else TLSError)(reason) from err

    def peer_certificates(self) -> list[bytes]:
        """Return the peer's certificates in DER, its own first. They are neither verified nor decoded.

        Raise TLSError if there are more than MAX_PEER_CERTIFICATES.
        """
        leaf = self._tls.get_peer_certificate()
        if leaf is None:
            return []
        chain = self._tls.get_peer_cert_chain() or []
        found = dict.fromkeys(crypto.dump_certificate(crypto.FILETYPE_ASN1, each) for each in (leaf, *chain))
        if len(found) > MAX_PEER_CERTIFICATES:
            raise TLSError(f"client sent {len(found)} certificates, more than {MAX_PEER_CERTIFICATES}")
        return list(found)

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self._tls.recv(min(n, _RECORD))
            except SSL.WantReadError:
                self._wait_if_blocking(select.POLLIN)
            except SSL.WantWriteError:
                self._wait_if_blocking(select.POLLOUT)
            except SSL.ZeroReturnError:
                return b""
            except SSL.SysCallError as err:
                raise ConnectionResetError("connection ended without a close_notify") from err
            except SSL.Error as err:
                raise TLSError(reason_of(err)) from err

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self._send(data)
            except SSL.WantReadError:
                self._wait_if_blocking(select.POLLIN)
            except SSL.WantWriteError:
                self._wait_if_blocking(select.POLLOUT)

    def sendall(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._send(view) :]
            except SSL.WantReadError:
                self._wait(select.POLLIN)
            except SSL.WantWriteError:
                self._wait(select.POLLOUT)

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._tls.send(data)
        except (SSL.WantReadError, SSL.WantWriteError):
            raise
        except (SSL.SysCallError, SSL.ZeroReturnError) as err:
            raise BrokenPipeError("connection has ended") from err
        except SSL.Error as err:
            raise TLSError(reason_of(err)) from err

    def shutdown_write(self) -> None:
        """Send TLS's close_notify. TCP stays open, because the peer may still send alerts."""
        while True:
            try:
                self._tls.shutdown()
                return
            except SSL.WantReadError:
                return
            except SSL.WantWriteError:
                self._wait_if_blocking(select.POLLOUT)
            except SSL.Error as err:
                raise TLSError(reason_of(err)) from err

    def pending(self) -> bytes:
        count = self._tls.pending()
        return self._tls.recv(count) if count else b""

    def close(self) -> None:
        # The close_notify is sent only if that needs no waiting.
        with contextlib.suppress(SSL.Error):
            self._tls.shutdown()
        self.sock.close()


def client_context() -> SSL.Context:
    """Return a context for clients that trust only the machine's authorities, like Python's default context."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.clear_mode(MODE_PARTIAL_WRITE)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_verify(SSL.VERIFY_PEER)
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        context.load_verify_locations(paths.cafile, paths.capath)
    refuse_costly_certificates(context)
    return context


def _expect(tls: SSL.Connection, host: str) -> None:
    """Make the handshake check the server's certificate against the host's name or address."""
    # OpenSSL can do the check, but pyOpenSSL has no function for it.
    lib: Any = SSL._lib  # type: ignore[attr-defined]
    expected = lib.SSL_get0_param(tls._ssl)
    try:
        address = ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        name = host.encode("idna")
        tls.set_tlsext_host_name(name)
        lib.X509_VERIFY_PARAM_set_hostflags(expected, _NO_PARTIAL_WILDCARDS | _NEVER_THE_SUBJECT)
        is_set = lib.X509_VERIFY_PARAM_set1_host(expected, name, len(name))
    else:
        is_set = lib.X509_VERIFY_PARAM_set1_ip(expected, address, len(address))
    if not is_set:
        # Without the check, any server with a valid certificate would be accepted.
        raise TLSError(f"certificates cannot be checked for the name {host!r}")


def _verify_error(tls: SSL.Connection) -> str:
    """Return what was wrong with the peer's certificate, or "" if nothing was."""
    lib: Any = SSL._lib  # type: ignore[attr-defined]
    result = lib.SSL_get_verify_result(tls._ssl)
    if not result:
        return ""
    text: bytes = SSL._ffi.string(lib.X509_verify_cert_error_string(result))  # type: ignore[attr-defined]
    return f": {text.decode()}"


def reason_of(err: SSL.Error) -> str:
    """Return OpenSSL's error text; OpenSSL reports errors as a list of (library, function, reason)."""
    reasons = [each[2] for each in err.args[0]] if err.args and isinstance(err.args[0], list) else []
    return ", ".join(reasons) or str(err) or type(err).__name__
