"""Fake the packet filter of a machine.

Go: pkg/util/iptables/testing
"""

from __future__ import annotations

from collections.abc import Sequence

from pkg.util.exec import CodeExitError
from pkg.util.testing import exit_status


class FakeIPTables:
    """Imitate the commands iptables and ip6tables of version 1.8; a utilexec.Interface.

    `tables` holds the rules of each chain, by command, table and chain. `failing` maps an operation to the error that
    it raises.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], dict[str, list[str]]] = {}
        self.failing: dict[str, CodeExitError] = {}
        self.commands: list[list[str]] = []
        for command in ("iptables", "ip6tables"):
            self.flush(command)

    def flush(self, command: str) -> None:
        """Remove everything except the kernel's own chains."""
        builtin = {"nat": ["POSTROUTING"], "mangle": [], "filter": ["INPUT", "OUTPUT"]}
        for table, chains in builtin.items():
            self.tables[command, table] = {chain: [] for chain in chains}

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        self.commands.append([*command])
        name, *args = command
        if args == ["--version"]:
            return f"{name} v1.8.9 (nf_tables)\n".encode()
        assert args[:2] == ["-w", "5"]
        operation, chain, _, table, *rule = args[2:]
        if operation in self.failing:
            raise self.failing[operation]
        chains, text = self.tables[name, table], " ".join(rule)
        match operation:
            case "-N" if chain in chains:
                raise exit_status(1, f"{name}: Chain already exists.\n")
            case "-N":
                chains[chain] = []
            case _ if chain not in chains:
                raise exit_status(1, f"{name}: No chain/target/match by that name.\n")
            case "-C" if text not in chains[chain]:
                raise exit_status(1, f"{name}: Bad rule (does a matching rule exist in that chain?).\n")
            case "-I":
                chains[chain].insert(0, text)
            case "-A":
                chains[chain].append(text)
        return b""
