"""Test the forms of HTTP that clients may use."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from framework.apiserver import APIServer

_PATH = b"/api/v1/namespaces/default/configmaps"
_BODY = b'{"metadata":{"name":"m"}}'


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with APIServer() as api, socket.create_connection(("127.0.0.1", api.port), timeout=10) as sock:
        yield sock


def _read_all(sock: socket.socket) -> bytes:
    got = b""
    while data := sock.recv(65536):
        got += data
    return got


def test_requests_that_come_together_are_answered_in_order(sock: socket.socket) -> None:
    sock.sendall(b"GET /healthz HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", _read_all(sock)) == [b"200", b"404"]


def test_a_body_in_chunks(sock: socket.socket) -> None:
    head = b"POST " + _PATH + b" HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (_BODY[:5], _BODY[5:]))
    sock.sendall(head + chunks + b"0\r\n\r\n")
    assert _read_all(sock).startswith(b"HTTP/1.1 201 Created\r\n")


def test_a_client_that_asks_before_it_sends(sock: socket.socket) -> None:
    head = b"POST " + _PATH + b" HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    sock.sendall(head % len(_BODY))
    assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    sock.sendall(_BODY)
    assert _read_all(sock).startswith(b"HTTP/1.1 201 Created\r\n")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    assert _read_all(sock).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_client_that_goes_in_the_middle_of_a_request(sock: socket.socket) -> None:
    sock.sendall(b"POST " + _PATH + b" HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    sock.shutdown(socket.SHUT_WR)
    assert _read_all(sock).startswith(b"HTTP/1.1 400 Bad Request\r\n")
