"""Test the iptables chains that a kubelet creates, in network namespaces of the tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from framework.kubelet_process import KubeletProcess
from framework.processes import worker
from framework.waiting import wait_for

from kubelet.kubelet_network_linux import MONITOR_INTERVAL, init_network_util
from pkg import golang
from pkg.apimachinery.clock.testing import FakeClock
from pkg.util import exec as utilexec
from pkg.util import iptables

TIMEOUT = 60.0
# The Go kubelet 1.36.2 creates these rules, in the format of `iptables -S`.
_CANARY = "-N KUBE-KUBELET-CANARY"
_RULES = {
    ("iptables", "mangle"): ["-N KUBE-IPTABLES-HINT", _CANARY],
    ("iptables", "nat"): [_CANARY],
    ("iptables", "filter"): [
        "-N KUBE-FIREWALL",
        _CANARY,
        "-A INPUT -j KUBE-FIREWALL",
        "-A OUTPUT -j KUBE-FIREWALL",
        '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"'
        " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    ],
    ("ip6tables", "mangle"): ["-N KUBE-IPTABLES-HINT", _CANARY],
    ("ip6tables", "nat"): [_CANARY],
    ("ip6tables", "filter"): [_CANARY],
}
_NOTHING: dict[tuple[str, str], list[str]] = {table: [] for table in _RULES}


class Namespace:
    """Run the commands of one kind of iptables in a network namespace. Implement utilexec.Interface."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"iptables-{kind}-{worker() or 'alone'}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in the namespace.

        `ip netns exec` would hide the cgroups.
        """
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        return utilexec.Executor().run(self.enter([f"{command[0]}-{self.kind}", *command[1:]]), timeout)

    def rules(self) -> dict[tuple[str, str], list[str]]:
        """Return the rules, without the policies of the kernel's own chains."""
        return {
            (command, table): [
                line for line in self.run([command, "-S", "-t", table]).decode().splitlines() if line[:3] != "-P "
            ]
            for command, table in _RULES
        }

    def flush(self) -> None:
        for command, table in _RULES:
            self.run([command, "-F", "-t", table])
            self.run([command, "-X", "-t", table])

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], check=True)


@pytest.fixture(params=["legacy", "nft"])
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    namespace = Namespace(request.param)
    yield namespace
    namespace.remove()


def test_chains_are_made_and_made_again(namespace: Namespace) -> None:
    """The kubelet creates its chains, and creates them again within a minute after they were flushed.

    The test's clock decides when the minute is over.
    """
    clock = FakeClock()
    ctx, cancel = golang.with_cancel(golang.background())
    init_network_util(ctx, lambda: iptables.new_best_effort(namespace), clock)
    wait_for("the chains are there", lambda: namespace.rules() == _RULES, TIMEOUT, namespace.rules)
    for _ in range(2):
        wait_for("both families are watched", lambda: clock.waiters() == 2, TIMEOUT)
        namespace.flush()
        assert namespace.rules() == _NOTHING
        clock.step(MONITOR_INTERVAL)
        wait_for("the chains are there again", lambda: namespace.rules() == _RULES, TIMEOUT, namespace.rules)
    cancel()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_kubelet_makes_them_if_they_are_wanted(
    namespace: Namespace, wanted: bool, new_kubelet: Callable[..., KubeletProcess], tmp_path: Path
) -> None:
    for command in ("iptables", "ip6tables"):
        found = shutil.which(f"{command}-{namespace.kind}")
        assert found is not None
        (tmp_path / command).symlink_to(found)
    kubelet = new_kubelet(f"iptables-{namespace.kind}-{wanted}".lower(), {"makeIPTablesUtilChains": wanted})
    kubelet.within = namespace.enter([])
    kubelet.environment["PATH"] = f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"
    kubelet.spawn()
    wait_for("the kubelet has started", lambda: "Starting kubelet main sync loop" in kubelet.log.read_text(), TIMEOUT)
    if wanted:
        wait_for("the chains are there", lambda: namespace.rules() == _RULES, TIMEOUT, namespace.rules)
    kubelet.stop()
    assert namespace.rules() == (_RULES if wanted else _NOTHING)
