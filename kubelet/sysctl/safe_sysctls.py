"""List the sysctls that are namespaced and cannot disturb other pods.

Go: pkg/kubelet/sysctl/safe_sysctls.go
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable

from pkg import klog

# The value is the first kernel version in which the sysctl is namespaced; "" stands for all supported versions.
_SAFE_SYSCTLS: dict[str, str] = {
    "kernel.shm_rmid_forced": "",
    "net.ipv4.ip_local_port_range": "",
    "net.ipv4.tcp_syncookies": "",
    "net.ipv4.ping_group_range": "",
    "net.ipv4.ip_unprivileged_port_start": "",
    "net.ipv4.ip_local_reserved_ports": "3.16",
    "net.ipv4.tcp_keepalive_time": "4.5",
    "net.ipv4.tcp_fin_timeout": "4.6",
    "net.ipv4.tcp_keepalive_intvl": "4.5",
    "net.ipv4.tcp_keepalive_probes": "4.5",
    "net.ipv4.tcp_rmem": "4.15",
    "net.ipv4.tcp_wmem": "4.15",
}


def safe_sysctl_allowlist(get_version: Callable[[], str] = platform.release) -> list[str]:
    """List the safe sysctls that are namespaced in this kernel."""
    kernel = _parse(get_version())
    if kernel is None:
        klog.error_s(None, "failed to get kernel version, unable to determine which sysctls are available")
    allowed: list[str] = []
    for name, needed in _SAFE_SYSCTLS.items():
        minimum = _parse(needed)
        if minimum is None or (kernel is not None and kernel >= minimum):
            allowed.append(name)
            continue
        klog.info_s(
            "kernel version is too old, dropping the sysctl from safe sysctl list",
            kernelVersion=get_version(),
            sysctl=name,
        )
    return allowed


def _parse(version: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None
