"""What a node says of itself. So far its address alone.

Go: pkg/kubelet/nodestatus/setters.go
"""

from __future__ import annotations

import contextlib
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

# Nobody has these addresses. A datagram socket that is connected to one sends nothing, and tells which of the
# machine's own addresses would be the sender.
_NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def node_address(node_name: str) -> str:
    """The node's address: what its name is or stands for, else the one that its default route starts from.

    May ask the name service. Raises ValueError when there is none.
    """
    with contextlib.suppress(ValueError):
        return str(ip_address(node_name))
    for address in _looked_up(node_name) or _of_default_route():
        return str(address)
    raise ValueError(f"can't get ip address of node {node_name}")


def _looked_up(name: str) -> list[IPv4Address | IPv6Address]:
    """Usable addresses of the name, those of version 4 first."""
    try:
        found = {ip_address(info[4][0]) for info in socket.getaddrinfo(name, None)}
    except OSError:
        return []
    return sorted(filter(_is_usable, found), key=lambda address: (address.version, address.packed))


def _of_default_route() -> list[IPv4Address | IPv6Address]:
    addresses = []
    for family, nowhere in _NOWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((nowhere, 9))
            addresses.append(ip_address(probe.getsockname()[0]))
    return list(filter(_is_usable, addresses))


def _is_usable(address: IPv4Address | IPv6Address) -> bool:
    """Whether others can reach a node by it.  Go: validateNodeIP"""
    return not (address.is_loopback or address.is_multicast or address.is_link_local or address.is_unspecified)
