"""Manage the kernel's packet filter.

Go: pkg/util/iptables
"""

from pkg.util.iptables.iptables import (
    Chain,
    Interface,
    IPTablesError,
    Protocol,
    RulePosition,
    Runner,
    Table,
    new_best_effort,
)

__all__ = [
    "Chain",
    "IPTablesError",
    "Interface",
    "Protocol",
    "RulePosition",
    "Runner",
    "Table",
    "new_best_effort",
]
