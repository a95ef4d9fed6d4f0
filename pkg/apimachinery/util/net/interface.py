"""Find the address at which other machines reach this one.

Go: k8s.io/apimachinery/pkg/util/net/interface.go
"""

from __future__ import annotations

import contextlib
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

IPAddress = IPv4Address | IPv6Address

# These addresses are reserved for documentation. Connecting a datagram socket to one sends nothing, and reveals which
# of the machine's own addresses would be the source.
_NOWHERE = {4: (socket.AF_INET, "192.0.2.1"), 6: (socket.AF_INET6, "2001:db8::1")}


def resolve_bind_address(bind_address: IPAddress | None) -> IPAddress:
    """Return bind_address, or the source address of the default route if bind_address is None, "any" or loopback.

    IPv4 is preferred, unless bind_address is IPv6. Raise ValueError if there is no default route.

    DIVERGES (platform): the kubelet asks the kernel for the source address of the default route.
    Go: k8s.io/apimachinery/pkg/util/net/interface.go, chooseHostInterface: the Go kubelet takes the first suitable
    address of the interface that the default route names.
    Why: Python's standard library cannot list the addresses of an interface. The results differ only if the route names
    another source address.
    Test: interface_test.py:test_address_of_the_default_route
    """
    if bind_address is not None and not (bind_address.is_unspecified or bind_address.is_loopback):
        return bind_address
    preferred = bind_address.version if bind_address is not None else 4
    for version in (preferred, 10 - preferred):
        address = _of_default_route(version)
        if address is not None:
            return address
    raise ValueError("no default routes found on the host")


def _of_default_route(version: int) -> IPAddress | None:
    family, nowhere = _NOWHERE[version]
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((nowhere, 9))
        address = ip_address(probe.getsockname()[0])
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            return address
    return None
