"""Test that pods do not notice when the kubelet stops, is killed, restarts, or is started twice."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, sleeper
from framework.waiting import wait_for


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    """Return a running kubelet with a pod of two containers. Each test leaves it in this state."""
    process = new_kubelet("restart")
    process.write(pod("stays", sleeper("one"), sleeper("two")))
    process.start()
    process.wait_for_running("stays")
    return process


def identities(cri: CRIClient, kubelet: KubeletProcess, name: str) -> set[tuple[str, int]]:
    """Return the IDs of a pod's containers with the PIDs of their processes."""
    running = cri.running_containers(kubelet.full_name(name))
    return {(container.id, cri.container_pid(container.id)) for container in running}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_kubelet_and_leaves_containers(
    kubelet: KubeletProcess, cri: CRIClient, number: signal.Signals
) -> None:
    """A signal ends the kubelet within two seconds, but not the containers.

    On a busy machine the kubelet may take longer, but never as long as a pod's grace period.
    """
    before = identities(cri, kubelet, "stays")
    assert len(before) == 2

    kubelet.signal(number)

    assert kubelet.wait_for_exit(timeout=20) == 0
    assert identities(cri, kubelet, "stays") == before
    kubelet.start()
    kubelet.wait_for_running("stays")
    assert identities(cri, kubelet, "stays") == before


def test_killed_kubelet_takes_over_and_reconciles(kubelet: KubeletProcess, cri: CRIClient) -> None:
    kubelet.write(pod("removed-meanwhile", sleeper()))
    (removed,) = kubelet.wait_for_running("removed-meanwhile")
    (stays,) = kubelet.wait_for_running("stays")
    before = identities(cri, kubelet, "stays")

    kubelet.kill()
    kubelet.remove("removed-meanwhile")
    kubelet.write(pod("added-meanwhile", sleeper()))
    kubelet.start()

    kubelet.wait_for_running("added-meanwhile", "stays")
    wait_for(
        "the removed pod's container has ended",
        lambda: not cri.running_containers(removed.name),
        timeout=180,
        describe=kubelet.end_of_log,
    )
    wait_for("the removed pod's directory is gone", lambda: removed.uid not in kubelet.pod_directories(), timeout=180)
    after = kubelet.pods()
    assert set(after) == {"stays", "added-meanwhile"}
    assert after["stays"].uid == stays.uid
    assert [after["stays"].restarts(name) for name in ("one", "two")] == [0, 0]
    assert identities(cri, kubelet, "stays") == before


def test_second_kubelet_refuses_and_names_the_first(
    kubelet: KubeletProcess, new_kubelet: Callable[..., KubeletProcess], cri: CRIClient
) -> None:
    before = identities(cri, kubelet, "stays")
    second = new_kubelet("second", root_dir=kubelet.root_dir)
    second.write(pod("never-started", sleeper()))

    second.spawn()

    assert second.wait_for_exit(timeout=60) != 0
    assert re.search(rf"\b{kubelet.pid}\b", second.end_of_log())
    assert not cri.sandboxes(second.full_name("never-started"))
    kubelet.wait_for_running("stays")
    assert identities(cri, kubelet, "stays") == before
