"""Test how requests get their connections, for names with slow look-ups and with several addresses."""

from __future__ import annotations

import socket
import urllib.parse

import pytest

from pkg import golang
from pkg.client_go import rest, transport
from pkg.client_go.rest import testing
from pkg.golang.net.testing import Resolver, silent, stream_address

WAIT = 30.0


def test_request_whose_look_up_hangs_ends_in_its_time(names: Resolver) -> None:
    client = rest.RESTClient(rest.Config(host="http://slow.example"))
    with pytest.raises(TimeoutError, match=r"dial tcp: lookup slow\.example: i/o timeout"):
        client.request(golang.background(), "GET", "/", timeout=0.2)
    ctx, cancel = golang.with_cancel(golang.background())
    thread = golang.go(cancel, name="cancel")
    with pytest.raises(golang.Canceled):
        client.request(ctx, "GET", "/")
    thread.join(WAIT)
    assert names.answered == []
    names.go_on.set()


def test_request_reaches_the_second_address(names: Resolver) -> None:
    with testing.serve(lambda request: request.answer()) as server, socket.socket() as refusing:
        refusing.bind(("127.0.0.2", 0))
        port = int(server.url.rpartition(":")[2])
        alive = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))
        names.addresses["several.example"] = [stream_address(refusing), alive]
        client = rest.RESTClient(rest.Config(host=f"http://several.example:{port}"))
        assert client.request(golang.background(), "GET", "/") == b"{}"
        client.close_idle_connections()


def test_cancel_ends_the_connecting(names: Resolver) -> None:
    with silent("127.0.0.2") as dead:
        names.addresses["dead.example"] = [dead]
        client = rest.RESTClient(rest.Config(host="http://dead.example"))
        ctx, cancel = golang.with_cancel(golang.background())
        timer = golang.go(lambda: (golang.background().wait(0.2), cancel()), name="cancel")
        with pytest.raises(golang.Canceled):
            client.request(ctx, "GET", "/")
        timer.join(WAIT)


@pytest.mark.parametrize(("proxy", "port"), [("http://proxy", 80), ("http://proxy:3128", 3128)])
def test_port_of_a_proxy_is_not_that_of_the_server(proxy: str, port: int) -> None:
    server = urllib.parse.urlsplit("http://api:6443")
    connection = transport.Connection(server, None, proxy=urllib.parse.urlsplit(proxy))
    assert (connection.host, connection.port) == ("proxy", port)
