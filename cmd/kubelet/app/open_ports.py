"""Warn about ports that give everybody full access.

Go has no counterpart.
"""

from __future__ import annotations

import ipaddress

from kubelet.apis import config as kubeletconfig
from pkg import klog


def warn_of_open_ports(kc: kubeletconfig.KubeletConfiguration) -> None:
    """Log a warning that names the settings, if anybody on another machine may run commands or read pods.

    DIVERGES (safer): the kubelet logs a warning at start if anybody on another machine may run commands or read pods.
    Go: cmd/kubelet/app/server.go, NewKubeletCommand: the Go kubelet logs no warning.
    Why: without a configuration file the legacy defaults apply, which let anybody run commands in all containers.
    Test: test/programs/kubelet_test.py:test_who_starts_a_kubelet_that_is_open_to_everybody_is_told
    """
    if settings := settings_of_open_ports(kc):
        klog.warning_s(
            "THE KUBELET IS OPEN TO EVERYBODY WHO CAN REACH THIS MACHINE; set these fields in a file for --config",
            settings=", ".join(settings),
        )


def settings_of_open_ports(kc: kubeletconfig.KubeletConfiguration) -> list[str]:
    """Return the settings that open ports to everybody on other machines, or an empty list."""
    if _is_loopback(kc.address):
        return []
    settings = []
    mode, always = kc.authorization.mode, kubeletconfig.KUBELET_AUTHORIZATION_MODE_ALWAYS_ALLOW
    if kc.enable_server and kc.authentication.anonymous.enabled and mode == always:
        settings += [f"port={kc.port}", "authentication.anonymous.enabled=true", f"authorization.mode={mode}"]
    if kc.read_only_port > 0:
        settings.append(f"readOnlyPort={kc.read_only_port}")
    return [f"address={kc.address}", *settings] if settings else []


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        # Validation reports a malformed address.
        return False
