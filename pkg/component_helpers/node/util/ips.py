"""Parse the configured addresses of a node.

Go: k8s.io/component-helpers/node/util/ips.go
"""

from __future__ import annotations

import ipaddress

from pkg.apimachinery.util.net import IPAddress

_DUAL_STACK_CLOUD_PROVIDERS = ("", "external")


def parse_node_ip_argument(node_ip: str, cloud_provider: str) -> tuple[list[IPAddress], list[str]]:
    """Return the addresses in `--node-ip`, and the parts that are not valid addresses.

    There may be one address, or one of each family; raise ValueError for any other combination.
    """
    addresses: list[IPAddress] = []
    invalid = []
    for text in node_ip.split(",") if node_ip else []:
        try:
            addresses.append(ipaddress.ip_address(text.strip()))
        except ValueError:
            invalid.append(text.strip())
    _validate_pair(addresses, cloud_provider)
    return addresses, invalid


def _validate_pair(addresses: list[IPAddress], cloud_provider: str) -> None:
    if len(addresses) < 2:
        return
    if len(addresses) > 2 or addresses[0].version == addresses[1].version:
        raise ValueError("must contain either a single IP or a dual-stack pair of IPs")
    if cloud_provider not in _DUAL_STACK_CLOUD_PROVIDERS:
        raise ValueError("dual-stack not supported in this configuration")
    if any(address.is_unspecified for address in addresses):
        raise ValueError("dual-stack node IP cannot include '0.0.0.0' or '::'")
