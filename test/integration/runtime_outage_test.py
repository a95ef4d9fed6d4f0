"""A runtime that comes late, hangs and then is not ready; that one dies and comes again is in pods_test.py."""

from __future__ import annotations

from collections.abc import Callable

from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper


def test_runtime_that_comes_late(new_kubelet: Callable[..., HollowKubelet]) -> None:
    """At each stage the log says what is missing, and since when; when nothing is, the pods run."""
    kubelet = new_kubelet("late", runtime_up=False)
    kubelet.write(pod("early", sleeper()))
    kubelet.spawn()
    kubelet.wait_for_log(
        "Node is not ready, waiting for the container runtime",
        "late.sock: no such socket, is the container runtime running?",
    )
    hang = kubelet.runtime.faults.hang("ListPodSandbox")
    kubelet.runtime.runtime_ready = False
    kubelet.server.start()

    (line, *_) = kubelet.wait_for_log(
        "Skipping pod synchronization", "PLEG is not healthy", "GetPods of all sandboxes and containers"
    )
    assert "has not returned since 20" in line
    kubelet.runtime.faults.remove(hang)
    kubelet.wait_for_log("Skipping pod synchronization", "container runtime not ready", "FakeNotReady")
    assert not kubelet.runtime.sandboxes
    kubelet.runtime.runtime_ready = True

    kubelet.wait_for_running("early")
