"""Test the addresses of a node.

Go: pkg/util/node/node_test.go
"""

import pytest

from pkg.api.core import v1
from pkg.util import node as utilnode


def make_node(*addresses: str) -> v1.Node:
    pairs = [address.split(" ") for address in addresses]
    return v1.Node(status=v1.NodeStatus(addresses=[v1.NodeAddress(type=type, address=ip) for type, ip in pairs]))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        pytest.param(["InternalIP 1.2.3.4"], ["1.2.3.4"], id="one"),
        pytest.param(["ExternalIP 1.2.3.4", "InternalIP 4.3.2.1"], ["4.3.2.1"], id="internal before external"),
        pytest.param(["ExternalIP 1.2.3.4"], ["1.2.3.4"], id="external alone"),
        pytest.param(["InternalIP 1.2.3.4", "InternalIP 4.3.2.1"], ["1.2.3.4"], id="first of a family"),
        pytest.param(["InternalIP 1.2.3.4", "InternalIP A:B::C"], ["1.2.3.4", "a:b::c"], id="dual stack"),
        pytest.param(["InternalIP a:b::c", "ExternalIP 1.2.3.4"], ["a:b::c", "1.2.3.4"], id="mixed kinds"),
        pytest.param(["InternalIP host", "InternalIP 1.2.3.4"], ["1.2.3.4"], id="no address at all"),
    ],
)
def test_get_node_host_ips(addresses: list[str], expected: list[str]) -> None:
    assert utilnode.get_node_host_ips(make_node(*addresses)) == expected


def test_node_without_addresses() -> None:
    with pytest.raises(ValueError, match=r"host IP unknown; known addresses: \[Hostname: h\]"):
        utilnode.get_node_host_ips(make_node("Hostname h"))
