"""Reading and writing /proc/sys, and the two ways to write a sysctl's name.

Go: k8s.io/component-helpers/node/util/sysctl/sysctl.go
"""

from __future__ import annotations

_SWAP = str.maketrans("./", "/.")


def normalize_name(name: str) -> str:
    """The dotted form: net/ipv4/conf/eno2.100/rp_filter → net.ipv4.conf.eno2/100.rp_filter."""
    for character in name:
        if character == ".":
            return name
        if character == "/":
            return name.translate(_SWAP)
    return name
