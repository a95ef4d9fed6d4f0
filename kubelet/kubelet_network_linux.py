"""Chains of the packet filter that the kubelet makes for others, and makes again when somebody has flushed them.

Go: pkg/kubelet/kubelet_network_linux.go
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.util import iptables

# Shows to all who look, by being in the tables of one kind, which kind of iptables this machine uses: legacy or nft.
KUBE_IPTABLES_HINT_CHAIN = "KUBE-IPTABLES-HINT"
# Keeps packets from outside away from addresses of the loopback interface.
KUBE_FIREWALL_CHAIN = "KUBE-FIREWALL"
KUBE_KUBELET_CANARY_CHAIN = "KUBE-KUBELET-CANARY"
# In seconds.
MONITOR_INTERVAL = 60.0
_TABLES = (iptables.Table.MANGLE, iptables.Table.NAT, iptables.Table.FILTER)


class Step(NamedTuple):
    """Something that has to be there, and what is logged when it cannot be made. `make` raises IPTablesError."""

    make: Callable[[iptables.Interface], object]
    failed: str


def _jump_to_firewall(chain: iptables.Chain) -> Step:
    return Step(
        lambda client: client.ensure_rule(
            iptables.RulePosition.PREPEND, iptables.Table.FILTER, chain, "-j", KUBE_FIREWALL_CHAIN
        ),
        f"Failed to ensure that {chain} chain jumps to KUBE-FIREWALL",
    )


_HINT = Step(
    lambda client: client.ensure_chain(iptables.Table.MANGLE, KUBE_IPTABLES_HINT_CHAIN),
    "Failed to ensure that iptables hint chain exists",
)
# kube-proxy lets packets for 127.0.0.1 come in by other interfaces (route_localnet), those of machines nearby among
# them (issue.k8s.io/90259). kube-proxy makes the same rule: if this one differs, a node has both.
_FIREWALL = (
    Step(
        lambda client: client.ensure_chain(iptables.Table.FILTER, KUBE_FIREWALL_CHAIN),
        "Failed to ensure that filter table KUBE-FIREWALL chain exists",
    ),
    _jump_to_firewall(iptables.Chain.OUTPUT),
    _jump_to_firewall(iptables.Chain.INPUT),
    Step(
        lambda client: client.ensure_rule(
            iptables.RulePosition.APPEND,
            iptables.Table.FILTER,
            KUBE_FIREWALL_CHAIN,
            *("-m", "comment", "--comment", "block incoming localnet connections"),
            *("--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8"),
            *("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT"),
            *("-j", "DROP"),
        ),
        "Failed to ensure rule to drop invalid localhost packets in filter table KUBE-FIREWALL chain",
    ),
)


def init_network_util(
    ctx: golang.Context,
    new_clients: Callable[[], Sequence[iptables.Interface]],
    clock: golang.TimerSource | None = None,
) -> None:
    """Make the chains, and have a thread for each family of addresses watch them until ctx is done."""
    clients = new_clients()
    if not clients:
        klog.info_s("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain")
    for client in clients:
        if not sync_iptables_rules(client):
            klog.info_s(
                "Failed to initialize iptables rules; some functionality may be missing.", protocol=client.protocol
            )
            continue
        klog.info_s("Initialized iptables rules.", protocol=client.protocol)
        sync = functools.partial(sync_iptables_rules, client)
        arguments = (ctx, KUBE_KUBELET_CANARY_CHAIN, _TABLES, sync, MONITOR_INTERVAL, clock)
        wait.go(ctx, client.monitor, *arguments, name=f"iptables-{client.protocol}", clock=clock)


def sync_iptables_rules(client: iptables.Interface) -> bool:
    """Make the chains and rules that are not there. False, and logged, if that failed."""
    # IPv6 has no route_localnet.
    firewall = _FIREWALL if client.protocol is iptables.Protocol.IPV4 else ()
    for step in (_HINT, *firewall):
        try:
            step.make(client)
        except iptables.IPTablesError as err:
            klog.error_s(err, step.failed, protocol=client.protocol)
            return False
    return True
