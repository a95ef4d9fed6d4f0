"""Test the admission by sysctls.

Go: pkg/kubelet/sysctl/allowlist_test.go, safe_sysctls_test.go, util_test.go
"""

from __future__ import annotations

import dataclasses

import pytest

from kubelet import lifecycle, sysctl
from pkg.api.core import v1
from pkg.component_helpers.node.util import sysctl as utilsysctl

_PATTERNS = [*sysctl.safe_sysctl_allowlist(lambda: "5.15.0-91-generic"), "kernel.msg*", "kernel.sem", "net.core.*"]


@pytest.mark.parametrize(
    "name",
    [
        "kernel.shm_rmid_forced",
        "kernel/shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "kernel.msgmax",
        "kernel.sem",
        "net.core.somaxconn",
        "net/core/somaxconn",
    ],
)
def test_allowed(name: str) -> None:
    sysctl.Allowlist(_PATTERNS).validate_sysctl(name, False, False)


@pytest.mark.parametrize(
    ("name", "host_net", "host_ipc", "fault"),
    [
        ("kernel.shmmax", False, False, '"kernel.shmmax" not allowlisted'),
        ("net.ipv4.tcp_max", False, False, "not allowlisted"),
        ("", False, False, "not allowlisted"),
        ("kernel.sem", False, True, '"kernel.sem" not allowed with host IPC enabled'),
        ("kernel.msgmax", False, True, "not allowed with host IPC enabled"),
        ("net.core.somaxconn", True, False, "not allowed with host Net enabled"),
    ],
)
def test_forbidden(name: str, host_net: bool, host_ipc: bool, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        sysctl.Allowlist(_PATTERNS).validate_sysctl(name, host_net, host_ipc)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("kernel.shm*x", "must have at most 253 characters"),
        ("*foo", "must have at most"),
        ("foo", "not known to be namespaced"),
        ("vm.swappiness", "not known to be namespaced"),
        ("net." + "a" * 250, "must have at most"),
    ],
)
def test_bad_patterns(pattern: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        sysctl.Allowlist([pattern])


def test_admit() -> None:
    allowlist = sysctl.Allowlist(_PATTERNS)
    pod = v1.Pod(spec=v1.PodSpec(containers=[]))
    assert allowlist.admit(lifecycle.PodAdmitAttributes(pod)).admit
    pod.spec.security_context = v1.PodSecurityContext(sysctls=[v1.Sysctl(name="vm.swappiness", value="1")])
    result = allowlist.admit(lifecycle.PodAdmitAttributes(pod))
    assert (result.admit, result.reason) == (False, "SysctlForbidden")
    assert result.message == 'forbidden sysctl: "vm.swappiness" not allowlisted'


@pytest.mark.parametrize(
    ("kernel", "present", "absent"),
    [
        ("3.10.0", "net.ipv4.tcp_syncookies", "net.ipv4.ip_local_reserved_ports"),
        ("4.4.0", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time"),
        ("4.6", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_rmem"),
        ("6.1.0-13-amd64", "net.ipv4.tcp_wmem", "vm.swappiness"),
        ("odd", "kernel.shm_rmid_forced", "net.ipv4.tcp_wmem"),
    ],
)
def test_safe_sysctls_by_kernel(kernel: str, present: str, absent: str) -> None:
    names = sysctl.safe_sysctl_allowlist(lambda: kernel)
    assert present in names
    assert absent not in names


def test_names_get_dots() -> None:
    context = v1.PodSecurityContext(
        sysctls=[
            v1.Sysctl(name="kernel/shm_rmid_forced", value="1"),
            v1.Sysctl(name="net.ipv4.conf.eno2/100.rp_filter", value="1"),
        ]
    )
    assert list(sysctl.convert_pod_sysctls_variable_to_dots_separator(context)) == [
        "kernel.shm_rmid_forced",
        "net.ipv4.conf.eno2/100.rp_filter",
    ]
    assert sysctl.convert_pod_sysctls_variable_to_dots_separator(None) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ""),
        ("kernel.shm", "kernel.shm"),
        ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
        ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
    ],
)
def test_normalize_name(name: str, expected: str) -> None:
    assert utilsysctl.normalize_name(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel.sem", ("IPC", "kernel.sem", False)),
        ("kernel.shm*", ("IPC", "kernel.shm", True)),
        ("net/ipv6/neigh/*", ("Net", "net.ipv6.neigh.", True)),
        ("fs.mqueue.msg_max", ("IPC", "fs.mqueue.msg_max", False)),
        ("vm.max", ("", "vm.max", False)),
        ("network.x", ("", "network.x", False)),
    ],
)
def test_get_namespace(name: str, expected: tuple[str, str, bool]) -> None:
    assert dataclasses.astuple(utilsysctl.get_namespace(name)) == expected
