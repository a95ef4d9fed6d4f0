"""Find the addresses of a node.

Go: pkg/util/node/node.go
"""

from __future__ import annotations

import contextlib
from ipaddress import ip_address

from pkg.api.core import v1


def get_node_host_ips(node: v1.Node) -> list[str]:
    """Return the node's first address, and its first address of the other IP family if there is one.

    Internal addresses come before external ones. Raise ValueError if the node has no address.
    """
    ips = []
    for wanted in (v1.NODE_INTERNAL_IP, v1.NODE_EXTERNAL_IP):
        for address in node.status.addresses:
            if address.type == wanted:
                with contextlib.suppress(ValueError):
                    ips.append(ip_address(address.address))
    if not ips:
        known = [f"{address.type}: {address.address}" for address in node.status.addresses]
        raise ValueError(f"host IP unknown; known addresses: [{', '.join(known)}]")
    others = [ip for ip in ips if ip.version != ips[0].version]
    return [str(ip) for ip in (ips[0], *others[:1])]
