"""Test the iptables chains of the kubelet.

Go: none
"""

from __future__ import annotations

import pytest

from kubelet.kubelet_network_linux import init_network_util, sync_iptables_rules
from pkg import golang
from pkg.util import iptables
from pkg.util.iptables.testing import FakeIPTables
from pkg.util.testing import exit_status


def test_chains_and_rules() -> None:
    machine = FakeIPTables()
    for _ in range(2):
        assert all(sync_iptables_rules(client) for client in iptables.new_best_effort(machine))
    assert machine.tables == {
        ("iptables", "nat"): {"POSTROUTING": []},
        ("iptables", "mangle"): {"KUBE-IPTABLES-HINT": []},
        ("iptables", "filter"): {
            "INPUT": ["-j KUBE-FIREWALL"],
            "OUTPUT": ["-j KUBE-FIREWALL"],
            "KUBE-FIREWALL": [
                "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8"
                " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
            ],
        },
        ("ip6tables", "nat"): {"POSTROUTING": []},
        ("ip6tables", "mangle"): {"KUBE-IPTABLES-HINT": []},
        ("ip6tables", "filter"): {"INPUT": [], "OUTPUT": []},
    }


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("-N", "Failed to ensure that iptables hint chain exists"),
        ("-C", "Failed to ensure that OUTPUT chain jumps to KUBE-FIREWALL"),
        ("-A", "Failed to ensure rule to drop invalid localhost packets in filter table KUBE-FIREWALL chain"),
    ],
)
def test_what_cannot_be_made_is_logged(operation: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    machine = FakeIPTables()
    machine.failing = {operation: exit_status(4, "no lock")}
    ctx, cancel = golang.with_cancel(golang.background())
    init_network_util(ctx, lambda: iptables.new_best_effort(machine))
    cancel()
    logged = capfd.readouterr().err
    assert message in logged
    assert 'Failed to initialize iptables rules; some functionality may be missing." protocol="IPv4"' in logged
    assert ('Initialized iptables rules." protocol="IPv6"' in logged) == (operation != "-N")


def test_a_machine_without_packet_filter(capfd: pytest.CaptureFixture[str]) -> None:
    init_network_util(golang.background(), list)
    assert "No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain" in capfd.readouterr().err
