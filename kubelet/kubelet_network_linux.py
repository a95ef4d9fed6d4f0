"""Create the iptables chains that other programs rely on, and recreate them after a flush.

Go: pkg/kubelet/kubelet_network_linux.go
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.util import iptables

# This chain shows other programs which variant of iptables the machine uses, legacy or nft: the chain exists in the
# tables of that variant.
KUBE_IPTABLES_HINT_CHAIN = "KUBE-IPTABLES-HINT"
# This chain keeps packets from outside away from addresses of the loopback interface.
KUBE_FIREWALL_CHAIN = "KUBE-FIREWALL"
KUBE_KUBELET_CANARY_CHAIN = "KUBE-KUBELET-CANARY"
# The chains are checked at this interval, in seconds.
MONITOR_INTERVAL = 60.0
_TABLES = (iptables.Table.MANGLE, iptables.Table.NAT, iptables.Table.FILTER)


class Step(NamedTuple):
    """Describe a chain or a rule that must exist, and the log line for a failure. `make` raises IPTablesError."""

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
# kube-proxy lets packets for 127.0.0.1 arrive on other interfaces (route_localnet), which includes packets of machines
# nearby (issue.k8s.io/90259). kube-proxy creates the same rule: if this rule differed, a node would have both.
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
    """Create the chains, and start a thread for each address family that monitors them until ctx is done."""
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
    """Create missing chains and rules. Return False, after logging the error, if that failed."""
    # IPv6 has no route_localnet.
    firewall = _FIREWALL if client.protocol is iptables.Protocol.IPV4 else ()
    for step in (_HINT, *firewall):
        try:
            step.make(client)
        except iptables.IPTablesError as err:
            klog.error_s(err, step.failed, protocol=client.protocol)
            return False
    return True
