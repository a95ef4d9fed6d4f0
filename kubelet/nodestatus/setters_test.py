"""Tests of the node's address.

Go: pkg/kubelet/nodestatus/setters_test.go
"""

import socket
from typing import Any

import pytest

from kubelet import nodestatus

ROUTE = "10.9.9.9"


class FakeRoute:
    """A datagram socket of a machine whose default route starts from ROUTE."""

    def __init__(self, family: int, kind: int) -> None:
        if family != socket.AF_INET:
            raise OSError("no such family")

    def __enter__(self) -> "FakeRoute":
        return self

    def __exit__(self, *args: object) -> None: ...

    def connect(self, address: tuple[str, int]) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return ROUTE, 1


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        pytest.param("10.1.2.3", None, "10.1.2.3", id="the name is an address"),
        pytest.param("node", ["10.1.2.3"], "10.1.2.3", id="the name stands for one"),
        pytest.param("node", ["fd00::1", "10.1.2.3"], "10.1.2.3", id="version 4 goes first"),
        pytest.param("node", ["fd00::1"], "fd00::1", id="version 6 alone"),
        pytest.param("node", ["127.0.1.1"], ROUTE, id="a loopback address does not count"),
        pytest.param("node", None, ROUTE, id="nobody knows the name"),
    ],
)
def test_node_address(monkeypatch: pytest.MonkeyPatch, name: str, found: list[str] | None, expected: str) -> None:
    def look_up(host: str, port: object) -> list[Any]:
        if found is None:
            raise socket.gaierror("unknown")
        return [(0, 0, 0, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "socket", FakeRoute)
    assert nodestatus.node_address(name) == expected


def test_machine_without_any_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(ValueError, match="can't get ip address of node node"):
        nodestatus.node_address("node")
