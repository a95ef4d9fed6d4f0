"""Test that pods do not notice when the kubelet stops, is killed, restarts, or is started twice."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., HollowKubelet]) -> HollowKubelet:
    """Return a kubelet with a pod of two containers. Each test leaves it in this state."""
    kubelet = new_kubelet("restart")
    kubelet.write(pod("stays", sleeper("one"), sleeper("two")))
    kubelet.start()
    kubelet.wait_for_running("stays")
    return kubelet


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_kubelet_and_leaves_containers(kubelet: HollowKubelet, number: signal.Signals) -> None:
    """A signal ends the kubelet, but not its containers, even while the runtime does not respond.

    No hanging call to the runtime may delay the kubelet's end.
    """
    before = kubelet.container_ids("stays")
    assert len(before) == 2
    hang = kubelet.runtime.faults.hang("*")
    kubelet.wait_for_call_in(hang)

    kubelet.signal(number)

    assert kubelet.wait_for_exit(timeout=30) == 0
    kubelet.runtime.faults.remove(hang)
    assert kubelet.container_ids("stays") == before
    kubelet.start()
    kubelet.wait_for_running("stays")
    assert kubelet.container_ids("stays") == before


def test_killed_kubelet_takes_over_and_reconciles(kubelet: HollowKubelet) -> None:
    kubelet.write(pod("removed-meanwhile", sleeper()))
    kubelet.write(pod("edited-meanwhile", sleeper()))
    kubelet.write(pod("ended-meanwhile", sleeper()))
    removed, edited, ended = kubelet.wait_for_running("removed-meanwhile", "edited-meanwhile", "ended-meanwhile")
    (stays,) = kubelet.wait_for_running("stays")
    before = kubelet.container_ids("stays")

    kubelet.kill()
    kubelet.remove("removed-meanwhile")
    kubelet.write(pod("added-meanwhile", sleeper()))
    kubelet.write(pod("edited-meanwhile", sleeper("renamed")))
    kubelet.runtime.end_container(ended.container_id(), 5)
    kubelet.start()

    kubelet.wait_for_running("added-meanwhile", "stays")
    kubelet.wait_for_condition(
        "the removed pod's container has ended", lambda: not kubelet.container_ids("removed-meanwhile")
    )
    # The runtime records a call only after it has responded.
    (stopped,) = kubelet.wait_for_condition(
        "a recorded stop", lambda: kubelet.calls("removed-meanwhile", "StopContainer")
    )
    assert stopped.request.timeout == 2
    restarted = kubelet.wait_for_pod("ended-meanwhile", lambda found: found.running and found.restarts() == 1)
    assert restarted.state(which="lastState")["exitCode"] == 5
    new = kubelet.wait_for_pod("edited-meanwhile", lambda found: found.running and found.uid != edited.uid)
    assert kubelet.container_ids("edited-meanwhile") == [new.container_id("renamed")]
    kubelet.wait_for_condition(
        "the old directories are gone", lambda: not {removed.uid, edited.uid} & kubelet.pod_directories()
    )
    after = kubelet.pods()
    assert set(after) == {"stays", "added-meanwhile", "edited-meanwhile", "ended-meanwhile"}
    assert after["stays"].uid == stays.uid
    assert [after["stays"].restarts(name) for name in ("one", "two")] == [0, 0]
    assert kubelet.container_ids("stays") == before


def test_kubelet_killed_at_work_finishes_it(kubelet: HollowKubelet) -> None:
    """A kubelet that is killed while pods start and terminate finishes this work later, and does nothing twice."""
    kubelet.write(pod("terminating", sleeper(), grace=9))
    kubelet.wait_for_running("terminating")
    hang = kubelet.hang("StopContainer", "terminating")
    kubelet.remove("terminating")
    kubelet.wait_for_call_in(hang)
    names = [f"starting-{number}" for number in range(20)]
    kubelet.write_all(*(pod(name, sleeper()) for name in names))
    kubelet.wait_for_condition(
        "some containers have started", lambda: sum(bool(kubelet.container_ids(name)) for name in names) >= 3
    )

    kubelet.kill()
    kubelet.runtime.faults.remove(hang)
    started = {name: kubelet.container_ids(name) for name in names}
    kubelet.start()

    kubelet.wait_for_running(*names)
    for name in names:
        (container,) = kubelet.container_ids(name)
        assert started[name] in ([], [container])
        ready = [each for each in kubelet.runtime.sandboxes if each.ready]
        assert [each.config.metadata.name for each in ready].count(kubelet.full_name(name)) == 1
    kubelet.wait_for_condition("the pod terminated", lambda: not kubelet.container_ids("terminating"))
    for name in names:
        kubelet.remove(name)
    kubelet.wait_for("the pods are gone", lambda pods: not set(pods) & {*names, "terminating"})


def test_second_kubelet_refuses_and_names_the_first(
    kubelet: HollowKubelet, new_kubelet: Callable[..., HollowKubelet]
) -> None:
    before = kubelet.container_ids("stays")
    second = new_kubelet("second", root_dir=kubelet.root_dir)
    second.write(pod("never-started", sleeper()))

    second.spawn()

    assert second.wait_for_exit(timeout=30) == 1
    (line,) = second.logged("Error: ")
    assert re.search(rf"in use by process {kubelet.pid}\b", line)
    assert not second.runtime.sandboxes
    kubelet.wait_for_running("stays")
    assert kubelet.container_ids("stays") == before
