"""Test a runtime that is missing, and one that hangs and then is not ready.

pods_test.py tests a runtime that dies and comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper


def test_runtime_that_is_not_there(new_kubelet: Callable[..., HollowKubelet]) -> None:
    """Without a runtime the kubelet exits, so that the service manager restarts it."""
    kubelet = new_kubelet("missing", runtime_up=False)
    kubelet.spawn()
    assert kubelet.wait_for_exit(60) == 1
    assert kubelet.logged(
        "validate CRI v1 runtime API for endpoint", "no such socket, is the container runtime running?"
    )


def test_runtime_that_is_not_ready(new_kubelet: Callable[..., HollowKubelet]) -> None:
    """While the runtime is not ready, the log says at each stage what is missing and since when. Then the pods run."""
    kubelet = new_kubelet("late")
    kubelet.write(pod("early", sleeper()))
    hang = kubelet.runtime.faults.hang("ListPodSandbox")
    kubelet.runtime.runtime_ready = False
    kubelet.spawn()

    (line, *_) = kubelet.wait_for_log(
        "Skipping pod synchronization", "PLEG is not healthy", "GetPods of all sandboxes and containers"
    )
    assert "has not returned since 20" in line
    kubelet.runtime.faults.remove(hang)
    kubelet.wait_for_log("Skipping pod synchronization", "container runtime not ready", "FakeNotReady")
    assert not kubelet.runtime.sandboxes
    kubelet.runtime.runtime_ready = True

    kubelet.wait_for_running("early")
