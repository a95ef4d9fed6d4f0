"""Test the end of API pods and static pods, after a deletion or the removal of a manifest.

The tests read the containers' logs. Sidecars run until the main containers have ended, and end in reverse order. A
preStop hook runs before SIGTERM. A process that ignores SIGTERM is killed at the end of the grace period.

Pods with names that end in `killed` are terminating when the kubelet is killed and restarted. API pods then continue to
terminate as before. For a static pod whose manifest is gone, the new kubelet knows neither the order nor the grace
period. So the pod ends at once, as with the Go kubelet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from framework.cluster_client import terminated
from framework.local_cluster import LocalCluster
from framework.pod_ways import SAY, ContainerLog, Pods, teller
from framework.pods import Manifest, pod
from framework.waiting import wait_for

pytestmark = pytest.mark.local

# The process that ignores SIGTERM has this grace period, in seconds.
GRACE = 10
# On a busy machine an action may be late by `LATE` seconds, and the time that a container records may be late by `SLOW`
# seconds.
LATE, SLOW = 15.0, 4.0
STUBBORN = "trap 'say SIGTERM' TERM; say start; while true; do sleep 0.1; say tick; done"


def ending(seconds: int) -> str:
    """Return a script that ends the given number of seconds after SIGTERM."""
    trap = f"trap 'say SIGTERM; sleep {seconds}; say end; exit 0' TERM"
    return f"{trap}; say start; while true; do sleep 1000 & wait $!; done"


def ordered(name: str, seconds: int) -> Manifest:
    """Return a pod with two sidecars and two main containers.

    The main container `slow` has a hook, and ends the given number of seconds after its signal.
    """
    hook = {"preStop": {"exec": {"command": ["sh", "-c", SAY + "say hook > /proc/1/fd/1; sleep 1"]}}}
    sidecars = [teller(ending(1), each, restartPolicy="Always") for each in ("first", "second")]
    slow = teller(ending(seconds), "slow", lifecycle=hook)
    return pod(name, slow, teller(ending(5), "quick"), initContainers=sidecars, grace=60)


def stubborn(name: str) -> Manifest:
    sidecar = teller(ending(0), "first", restartPolicy="Always")
    return pod(name, teller(STUBBORN), initContainers=[sidecar], grace=GRACE)


@dataclass
class Ends:
    """Hold the logs of the containers of API pods or of static pods, by pod and container."""

    pods: Pods
    logs: dict[tuple[str, str], ContainerLog]

    def when(self, name: str, container: str, text: str) -> float:
        """Return the time at which a container first logged the text."""
        found = self.logs[name, container].when(text)
        assert found, f"{name}/{container} never logged {text}: {self.logs[name, container].raw()}"
        return found[0]

    def last(self, name: str, container: str) -> float:
        """Return the time of a container's last log line."""
        return self.logs[name, container].lines()[-1].at


@dataclass
class Stories:
    """Hold the logs of all pods, and the machine's uptime when the kubelet had restarted."""

    by_way: dict[str, Ends]
    restarted: float


@pytest.fixture(scope="module")
def stories(both_ways: dict[str, Pods], local: LocalCluster) -> Stories:
    """Create all pods, and end some of them. Then end the others while the kubelet is killed and restarted."""
    manifests = [ordered("ordered", 5), stubborn("stubborn"), ordered("ordered-killed", 5), stubborn("stubborn-killed")]
    for manifest in manifests:
        for pods in both_ways.values():
            pods.create(manifest)
    ends = {way: Ends(pods, open_logs(pods, manifests)) for way, pods in both_ways.items()}
    for pods in both_ways.values():
        pods.delete("ordered")
        pods.delete("stubborn")
    for pods in both_ways.values():
        pods.wait_deleted("ordered")
        pods.wait_deleted("stubborn")
    restarted = end_with_killed_kubelet(both_ways, ends, local)
    return Stories(ends, restarted)


def open_logs(pods: Pods, manifests: list[Manifest]) -> dict[tuple[str, str], ContainerLog]:
    """Wait until all containers work, and return their logs.

    A pod's logs are removed with the pod, so they must be opened before its end.
    """
    found = {}
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        pods.wait_for_running(name)
        for each in [*manifest["spec"]["initContainers"], *manifest["spec"]["containers"]]:
            log = found[name, each["name"]] = pods.log(name, each["name"])
            pods.wait_for_said(log, "start")
    return found


def end_with_killed_kubelet(both_ways: dict[str, Pods], ends: dict[str, Ends], local: LocalCluster) -> float:
    """Delete the pods, and kill and restart the kubelet once all processes have got their signals.

    Return the time of the restart, in seconds since the machine's boot.
    """
    for pods in both_ways.values():
        pods.delete("ordered-killed")
        pods.delete("stubborn-killed")
    for way, pods in both_ways.items():
        pods.wait_for_said(ends[way].logs["ordered-killed", "slow"], "SIGTERM")
        pods.wait_for_said(ends[way].logs["stubborn-killed", "main"], "SIGTERM")
    local.kubelet.kill()
    local.kubelet.start()
    restarted = time.clock_gettime(time.CLOCK_BOOTTIME)
    for pods in both_ways.values():
        pods.wait_deleted("ordered-killed")
        pods.wait_deleted("stubborn-killed")
    return restarted


@pytest.fixture(params=["api", "static"])
def ends(request: pytest.FixtureRequest, stories: Stories) -> Ends:
    return stories.by_way[request.param]


def test_main_containers_are_told_at_the_same_time(ends: Ends) -> None:
    """The main containers get their signals at the same time.

    A container with a preStop hook gets its signal after the hook.
    """
    assert ends.when("ordered", "quick", "SIGTERM") < ends.when("ordered", "slow", "end")
    assert ends.when("ordered", "slow", "hook") < ends.when("ordered", "quick", "end")


def test_hook_runs_before_the_process_is_told(ends: Ends) -> None:
    hook, told = ends.when("ordered", "slow", "hook"), ends.when("ordered", "slow", "SIGTERM")
    assert 1 <= told - hook < 1 + LATE


def test_sidecars_end_in_reverse_order_after_the_main_containers(ends: Ends) -> None:
    mains = max(ends.when("ordered", name, "end") for name in ("slow", "quick"))
    second, first = ends.when("ordered", "second", "SIGTERM"), ends.when("ordered", "first", "SIGTERM")
    assert mains <= second < mains + LATE
    assert ends.when("ordered", "second", "end") <= first < ends.when("ordered", "second", "end") + LATE
    assert ends.when("ordered", "first", "end") >= first + 1


def test_process_that_does_not_end_is_killed_after_its_grace(ends: Ends) -> None:
    told, alive = ends.when("stubborn", "main", "SIGTERM"), ends.last("stubborn", "main")
    assert GRACE - SLOW <= alive - told < GRACE + LATE


def test_sidecar_of_it_is_told_when_the_grace_is_over(ends: Ends) -> None:
    """A sidecar gets its signal at the end of the grace period, and may still end by itself.

    The kubelet does not wait until the main container is dead.
    """
    alive, told = ends.last("stubborn", "main"), ends.when("stubborn", "first", "SIGTERM")
    assert told - ends.when("stubborn", "main", "SIGTERM") >= GRACE - SLOW
    assert told < alive + LATE
    assert ends.when("stubborn", "first", "end") >= told


def test_exit_codes_tell_who_was_killed(stories: Stories) -> None:
    """Exit codes show which container was killed.

    The test covers only the API pod: a mirror pod would still show the state from before.
    """
    last = stories.by_way["api"].pods.wait_deleted("stubborn").object
    codes = {name: state.exit_code for name in ("main", "first") if (state := terminated(last, name)) is not None}
    assert codes == {"main": 137, "first": 0}


# --- Ends while the kubelet is killed ---------------------------------------------------------------


def test_order_is_kept_over_a_restart_of_the_kubelet(stories: Stories) -> None:
    ends = stories.by_way["api"]
    assert ends.when("ordered-killed", "slow", "hook") <= ends.when("ordered-killed", "slow", "SIGTERM") - 1
    slow = ends.when("ordered-killed", "slow", "end")
    second, first = ends.when("ordered-killed", "second", "SIGTERM"), ends.when("ordered-killed", "first", "SIGTERM")
    assert slow <= second
    assert ends.when("ordered-killed", "second", "end") <= first
    assert ends.when("ordered-killed", "first", "end") >= first + 1
    assert slow - ends.when("ordered-killed", "slow", "SIGTERM") >= 5


def test_grace_is_kept_over_a_restart_of_the_kubelet(stories: Stories) -> None:
    """The process gets its whole grace period again, because the new kubelet does not know how much has passed."""
    ends = stories.by_way["api"]
    told, alive = ends.when("stubborn-killed", "main", "SIGTERM"), ends.last("stubborn-killed", "main")
    assert alive - told >= GRACE - SLOW
    assert alive < stories.restarted + GRACE + LATE
    assert told + GRACE - SLOW <= ends.when("stubborn-killed", "first", "SIGTERM") < alive + LATE


def test_static_pod_without_manifest_ends_with_the_next_kubelet(stories: Stories, local: LocalCluster) -> None:
    """A static pod without a manifest ends at the next kubelet's first housekeeping, which may wait for all pods."""
    ends = stories.by_way["static"]
    assert ends.last("stubborn-killed", "main") < stories.restarted + GRACE + LATE
    names = [ends.pods.full_name(name) for name in ("ordered-killed", "stubborn-killed")]
    wait_for(
        "the containers of the static pods have ended", lambda: not any(map(local.cri.running_containers, names)), 60
    )
