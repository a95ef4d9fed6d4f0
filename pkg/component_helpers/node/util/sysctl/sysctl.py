"""Reading and writing /proc/sys, and the two ways to write a sysctl's name.

Go: k8s.io/component-helpers/node/util/sysctl/sysctl.go
"""

from __future__ import annotations

from pathlib import Path

_SYSCTL_BASE = Path("/proc/sys")
_SWAP = str.maketrans("./", "/.")


def get_sysctl(sysctl: str) -> int:
    """Value of e.g. "vm/overcommit_memory". Raises OSError, or ValueError when it is not a number."""
    return int((_SYSCTL_BASE / sysctl).read_text())


def set_sysctl(sysctl: str, new_value: int) -> None:
    """Raises OSError."""
    (_SYSCTL_BASE / sysctl).write_text(str(new_value))


def normalize_name(name: str) -> str:
    """The dotted form: net/ipv4/conf/eno2.100/rp_filter → net.ipv4.conf.eno2/100.rp_filter."""
    for character in name:
        if character == ".":
            return name
        if character == "/":
            return name.translate(_SWAP)
    return name
