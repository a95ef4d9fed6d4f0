"""Test the packet filter.

Go: pkg/util/iptables/iptables_test.go, monitor_test.go
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.waiting import wait_for

from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.util import iptables
from pkg.util.iptables.testing import FakeIPTables
from pkg.util.testing import FakeExec, exit_status

_TABLES = (iptables.Table.MANGLE, iptables.Table.NAT)


def test_chains_and_rules_are_made_once() -> None:
    machine = FakeIPTables()
    client = iptables.Runner(iptables.Protocol.IPV6, machine)
    assert not client.chain_exists(iptables.Table.NAT, "KUBE-X")
    assert not client.ensure_chain(iptables.Table.NAT, "KUBE-X")
    assert client.ensure_chain(iptables.Table.NAT, "KUBE-X")
    assert client.chain_exists(iptables.Table.NAT, "KUBE-X")
    for position, target in ((iptables.RulePosition.APPEND, "A"), (iptables.RulePosition.PREPEND, "B")):
        assert not client.ensure_rule(position, iptables.Table.NAT, "KUBE-X", "-j", target)
        assert client.ensure_rule(position, iptables.Table.NAT, "KUBE-X", "-j", target)
    assert machine.tables["ip6tables", "nat"]["KUBE-X"] == ["-j B", "-j A"]
    assert "KUBE-X" not in machine.tables["iptables", "nat"]


@pytest.mark.parametrize(
    ("answer", "flag"),
    [
        (b"iptables v1.8.9 (nf_tables)\n", ["-w", "5"]),
        (b"iptables v1.4.22", ["-w", "5"]),
        (b"iptables v1.4.21", ["-w"]),
        (b"iptables v1.4.19.1", []),
        (b"what?", []),
    ],
)
def test_wait_flag(answer: bytes, flag: list[str]) -> None:
    machine = FakeExec(lambda command: answer)
    assert not iptables.Runner(iptables.Protocol.IPV4, machine).ensure_chain(iptables.Table.NAT, "X")
    assert machine.commands[-1] == ["iptables", *flag, "-N", "X", "-t", "nat"]


def test_what_fails_is_named() -> None:
    machine = FakeIPTables()
    client = iptables.Runner(iptables.Protocol.IPV4, machine)
    machine.failing = {"-N": exit_status(3, "you must be root"), "-S": exit_status(4, "no lock")}
    with pytest.raises(iptables.IPTablesError, match='error creating chain "X": exit status 3: you must be root'):
        client.ensure_chain(iptables.Table.NAT, "X")
    with pytest.raises(iptables.IPTablesError) as caught:
        client.chain_exists(iptables.Table.NAT, "X")
    assert caught.value.of_resources
    machine.failing = {"-C": exit_status(2, "bad argument")}
    with pytest.raises(iptables.IPTablesError, match="error checking rule: exit status 2: bad argument"):
        client.ensure_rule(iptables.RulePosition.APPEND, iptables.Table.NAT, "X", "-j", "Y")


def test_families_that_the_machine_has() -> None:
    def only_ipv4(command: list[str]) -> bytes:
        if command[0] == "ip6tables":
            raise FileNotFoundError(2, '"ip6tables": executable file not found in $PATH')
        return b"v1.8.9"

    assert [client.protocol for client in iptables.new_best_effort(FakeExec(only_ipv4))] == ["IPv4"]
    assert [client.protocol for client in iptables.new_best_effort(FakeIPTables())] == ["IPv4", "IPv6"]


class Watched:
    """Run a monitor of one fake machine in a thread with a fake clock."""

    def __init__(self) -> None:
        self.machine, self.clock = FakeIPTables(), FakeClock()
        self.reloads = golang.Channel[None]()
        client = iptables.Runner(iptables.Protocol.IPV4, self.machine)
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        arguments = (self.ctx, "CANARY", _TABLES, lambda: self.reloads.send(None), 60.0, self.clock)
        self.thread = golang.go(client.monitor, *arguments, name="test-monitor")

    def has_canaries(self) -> bool:
        return all("CANARY" in self.machine.tables["iptables", table] for table in _TABLES)

    def wait_a_minute(self) -> None:
        """Advance the clock, and wait until the monitor has checked the chains and waits again."""
        self.clock.wait_for_waiters()
        asked = len(self.machine.commands)
        self.clock.step(60)
        wait_for("the chains are looked at", lambda: len(self.machine.commands) > asked and self.clock.has_waiters())

    def stop(self) -> None:
        self.cancel()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.stop()


def test_a_flush_is_noticed(watched: Watched) -> None:
    for _ in range(2):
        watched.wait_a_minute()
        assert watched.has_canaries()
        watched.machine.flush("iptables")
        watched.clock.step(60)
        watched.reloads.recv()
    wait_for("the canaries are there", watched.has_canaries)


def test_a_chain_of_which_nothing_can_be_told_is_not_flushed(watched: Watched) -> None:
    watched.wait_a_minute()
    watched.machine.flush("iptables")
    watched.machine.failing = {"-S": exit_status(4, "no lock")}
    watched.wait_a_minute()
    watched.machine.failing = {}
    watched.clock.step(60)
    watched.reloads.recv()


def test_canaries_that_cannot_be_placed_are_tried_again(watched: Watched) -> None:
    watched.machine.failing = {"-N": exit_status(4, "no lock")}
    watched.machine.flush("iptables")
    watched.clock.step(60)
    watched.reloads.recv()
    watched.wait_a_minute()
    assert not watched.has_canaries()
    watched.machine.failing = {}
    watched.wait_a_minute()
    assert watched.has_canaries()


def test_canaries_stay_when_the_monitor_ends(watched: Watched) -> None:
    wait_for("the canaries are there", watched.has_canaries)
    watched.stop()
    assert watched.has_canaries()
