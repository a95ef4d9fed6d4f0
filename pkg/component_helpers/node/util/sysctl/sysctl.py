"""Reading and writing /proc/sys, and the two ways to write a sysctl's name.

Go: k8s.io/component-helpers/node/util/sysctl/sysctl.go
"""

from __future__ import annotations

_SWAP = str.maketrans("./", "/.")


def normalize_name(name: str) -> str:
    """The dotted form: net/ipv6/conf/br0.7/mtu → net.ipv6.conf.br0/7.mtu."""
    for character in name:
        if character == ".":
            return name
        if character == "/":
            return name.translate(_SWAP)
    return name
