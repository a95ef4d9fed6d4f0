"""Manage chains and rules with the commands iptables and ip6tables, of either the legacy or the nft variant.

Go: pkg/util/iptables/iptables.go
"""

from __future__ import annotations

import contextlib
import re
import typing
from collections.abc import Callable, Sequence
from enum import StrEnum

from pkg import golang, klog
from pkg.apimachinery.util import wait
from pkg.util import exec as utilexec


class Protocol(StrEnum):
    """Name the address family of a packet filter."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


class Table(StrEnum):
    NAT = "nat"
    FILTER = "filter"
    MANGLE = "mangle"


class Chain(StrEnum):
    """Name the kernel's own chains."""

    POSTROUTING = "POSTROUTING"
    OUTPUT = "OUTPUT"
    INPUT = "INPUT"


class RulePosition(StrEnum):
    """Choose the position of a new rule in its chain."""

    PREPEND = "-I"
    APPEND = "-A"


# With the flag -w, commands wait for the lock of iptables. The flag exists since the first of these versions; since the
# second one it takes a number of seconds.
WAIT_MIN_VERSION = (1, 4, 20)
WAIT_SECONDS_MIN_VERSION = (1, 4, 22)
_WAIT_SECONDS = "5"
# A command gets this many seconds, including the wait for the lock. Go uses this limit when it checks for a rule.
COMMAND_TIMEOUT = 300.0
# A flush that has begun reaches all tables within _FLUSH_TIMEOUT seconds. The monitor checks for that every
# _FLUSH_POLL_TIME seconds.
_FLUSH_TIMEOUT = 5.0
_FLUSH_POLL_TIME = 0.1
_VERSION = re.compile(rb"v([0-9]{1,9}(?:\.[0-9]{1,9})+)")
# The commands exit with these codes.
_STATUS_NOT_DONE = 1  # This code means that the requested object already exists, or does not exist.
_STATUS_RESOURCE_PROBLEM = 4


class IPTablesError(Exception):
    """Signal that a command failed. `code` is its exit code, or None if it did not end by itself."""

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def of_resources(self) -> bool:
        """Report whether a retry may succeed, because another process holds the lock or memory is short."""
        return self.code == _STATUS_RESOURCE_PROBLEM


class Interface(typing.Protocol):
    """Define the packet filter for one address family. The class is not thread-safe."""

    @property
    def protocol(self) -> Protocol: ...

    def ensure_chain(self, table: Table, chain: str) -> bool:
        """Create the chain if it is missing. Report whether it existed. Raise IPTablesError."""
        ...

    def chain_exists(self, table: Table, chain: str) -> bool:
        """Report whether the chain exists. Raise IPTablesError if that is unknown."""
        ...

    def ensure_rule(self, position: RulePosition, table: Table, chain: str, *args: str) -> bool:
        """Create the rule if it is missing. Report whether it existed. Raise IPTablesError."""
        ...

    def monitor(
        self,
        ctx: golang.Context,
        canary: str,
        tables: Sequence[Table],
        reload: Callable[[], object],
        interval: float,
        clock: golang.TimerSource | None = None,
    ) -> None:
        """Call `reload` each time that another program, such as a firewall, has flushed the tables, until ctx is done.

        This method adds an empty chain, the canary, to each table. It looks for the canary of the first table every
        `interval` seconds, so that table should be a small one. The chains stay when ctx is done, as they do when a Go
        process ends.
        """
        ...


class Runner:
    """Manage the packet filter with commands."""

    def __init__(self, protocol: Protocol, executor: utilexec.Interface | None = None) -> None:
        """Ask the command for its version. If the command is missing, all other methods fail."""
        self._protocol = protocol
        self._command = "ip6tables" if protocol is Protocol.IPV6 else "iptables"
        self._executor = executor or utilexec.Executor()
        self._wait_flag = self._find_wait_flag()

    @property
    def protocol(self) -> Protocol:
        return self._protocol

    def is_present(self) -> bool:
        """Report whether the command exists and the kernel has the tables."""
        return self._exists(Table.NAT, Chain.POSTROUTING)

    def ensure_chain(self, table: Table, chain: str) -> bool:
        try:
            self._run("-N", chain, "-t", table)
        except IPTablesError as err:
            if err.code == _STATUS_NOT_DONE:
                return True
            raise IPTablesError(f'error creating chain "{chain}": {err}', err.code) from err
        return False

    def chain_exists(self, table: Table, chain: str) -> bool:
        try:
            self._run("-S", chain, "-t", table)
        except IPTablesError as err:
            if err.of_resources:
                raise IPTablesError(f'error listing chain "{chain}" in table "{table}": {err}', err.code) from err
            return False
        return True

    def ensure_rule(self, position: RulePosition, table: Table, chain: str, *args: str) -> bool:
        if self._rule_exists(table, chain, *args):
            return True
        try:
            self._run(position, chain, "-t", table, *args)
        except IPTablesError as err:
            raise IPTablesError(f"error appending rule: {err}", err.code) from err
        return False

    def _rule_exists(self, table: Table, chain: str, *args: str) -> bool:
        try:
            self._run("-C", chain, "-t", table, *args)
        except IPTablesError as err:
            if err.code == _STATUS_NOT_DONE:
                return False
            raise IPTablesError(f"error checking rule: {err}", err.code) from err
        return True

    def monitor(
        self,
        ctx: golang.Context,
        canary: str,
        tables: Sequence[Table],
        reload: Callable[[], object],
        interval: float,
        clock: golang.TimerSource | None = None,
    ) -> None:
        def is_placed() -> bool:
            return self._place(canary, tables)

        def is_flushed() -> bool:
            return self._is_flushed(ctx, canary, tables)

        with contextlib.suppress(golang.ContextError):
            while True:
                wait.poll_until_context_cancel(ctx, interval, True, is_placed, clock)
                wait.poll_until_context_cancel(ctx, interval, False, is_flushed, clock)
                klog.v(2).info_s("Reloading after iptables flush", protocol=self._protocol)
                reload()

    def _place(self, canary: str, tables: Sequence[Table]) -> bool:
        for table in tables:
            try:
                self.ensure_chain(table, canary)
            except IPTablesError as err:
                klog.error_s(err, "Could not set up iptables canary", table=table, chain=canary)
                return False
        return True

    def _is_flushed(self, ctx: golang.Context, canary: str, tables: Sequence[Table]) -> bool:
        first, *others = tables
        try:
            if self.chain_exists(first, canary):
                return False
        except IPTablesError as err:
            klog.error_s(err, "Could not check for iptables canary", table=first, chain=canary)
            return False
        klog.v(2).info_s("IPTables canary deleted", table=first, chain=canary)

        def is_over() -> bool:
            return not any(self._exists(each, canary) for each in others)

        # The flush must reach all tables first, because it would remove rules that are added earlier.
        try:
            wait.poll_until_context_timeout(ctx, _FLUSH_POLL_TIME, _FLUSH_TIMEOUT, True, is_over)
        except golang.DeadlineExceeded:
            klog.info_s("Inconsistent iptables state detected")
        return True

    def _exists(self, table: Table, chain: str) -> bool:
        """Report whether the chain exists; a chain whose state is unknown counts as existing."""
        try:
            return self.chain_exists(table, chain)
        except IPTablesError:
            return True

    def _find_wait_flag(self) -> list[str]:
        try:
            match = _VERSION.search(self._executor.run([self._command, "--version"], COMMAND_TIMEOUT))
        except Exception as err:
            # Each later command will fail in the same way and report the error.
            klog.v(4).info_s("Could not determine the version", command=self._command, err=err)
            return []
        version = tuple(map(int, match[1].split(b"."))) if match else (0,)
        if version >= WAIT_SECONDS_MIN_VERSION:
            return ["-w", _WAIT_SECONDS]
        return ["-w"] if version >= WAIT_MIN_VERSION else []

    def _run(self, operation: str, *args: str) -> None:
        """Run the command. Raise IPTablesError."""
        command = [self._command, *self._wait_flag, operation, *args]
        klog.v(5).info_s("Running", command=self._command, arguments=command[1:])
        try:
            self._executor.run(command, COMMAND_TIMEOUT)
        except utilexec.CodeExitError as err:
            raise IPTablesError(f"{err}: {err.output.decode(errors='replace')}", err.code) from err
        except Exception as err:
            # The command could not be run, or took too long. The kubelet must continue without the rule.
            raise IPTablesError(str(err), None) from err


def new_best_effort(executor: utilexec.Interface | None = None) -> list[Interface]:
    """Return one object for each address family that the command and the kernel support. The list may be empty."""
    runners = [Runner(protocol, executor) for protocol in Protocol]
    return [runner for runner in runners if runner.is_present()]
