"""A runtime that hangs, that comes late, and that goes away and comes again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., HollowKubelet]) -> HollowKubelet:
    """A kubelet with one pod; each test leaves it so."""
    kubelet = new_kubelet("outage")
    kubelet.start()
    kubelet.write(pod("stays", sleeper()))
    kubelet.wait_for_running("stays")
    return kubelet


@pytest.mark.parametrize("method", ["PodSandboxStatus", "ContainerStatus"])
def test_one_hanging_sandbox_stalls_its_own_pod_alone(kubelet: HollowKubelet, method: str) -> None:
    (stays,) = kubelet.wait_for_running("stays")
    name = f"stuck-{method.lower()}"
    hang = kubelet.hang(method, name)

    kubelet.write(pod(name, sleeper()))
    kubelet.wait_for_call_in(hang)
    other = f"beside-{method.lower()}"
    kubelet.write(pod(other, sleeper()))
    (beside,) = kubelet.wait_for_running(other)
    kubelet.runtime.end_container(beside.container_id(), 1)
    kubelet.wait_for_pod(other, lambda found: found.running and found.restarts() == 1)
    kubelet.remove(other)
    kubelet.wait_for("the removed pod gone", lambda pods: other not in pods)
    kubelet.wait_for_condition("its directory gone", lambda: beside.uid not in kubelet.pod_directories())

    stuck = kubelet.pods()[name]
    assert stuck.phase == "Pending"
    (sandbox,) = (each.id for each in kubelet.runtime.sandboxes if each.config.metadata.uid == stuck.uid)
    kubelet.wait_for_log(
        "Inspecting the pod takes long", "GetPodStatus of pod", stuck.uid, sandbox, "has not returned since"
    )
    assert hang.waiting
    assert kubelet.get("/healthz", kubelet.healthz_port) == "ok"
    kubelet.runtime.faults.remove(hang)
    kubelet.wait_for_running(name)
    assert kubelet.pods()["stays"].json["status"] == stays.json["status"]
    kubelet.remove(name)
    kubelet.wait_for("the pod gone", lambda pods: set(pods) == {"stays"})


def test_runtime_that_dies_and_comes_again(kubelet: HollowKubelet) -> None:
    (stays,) = kubelet.wait_for_running("stays")
    kubelet.write(pod("goes", sleeper()))
    (goes,) = kubelet.wait_for_running("goes")
    started = len(kubelet.runtime.recorder.calls(["StartContainer"]))

    kubelet.server.stop()
    kubelet.wait_for_log("GenericPLEG: Unable to retrieve pods", "is the container runtime running?")
    kubelet.wait_for_log("Container runtime sanity check failed", "outage.sock")
    kubelet.write(pod("comes", sleeper()))
    kubelet.remove("goes")
    kubelet.wait_for("the new pod seen", lambda pods: "comes" in pods)
    kubelet.wait_for_log("Pod has been deleted and must be killed", goes.name)
    assert kubelet.pods()["stays"].running
    kubelet.server.start()

    kubelet.wait_for_running("stays", "comes")
    kubelet.wait_for_condition("the removed pod's container ended", lambda: not kubelet.container_ids("goes"))
    kubelet.wait_for_condition("its directory gone", lambda: goes.uid not in kubelet.pod_directories())
    found = kubelet.pods()["stays"]
    assert (found.container_id(), found.restarts()) == (stays.container_id(), 0)
    assert kubelet.container_ids("stays") == [stays.container_id()]
    assert len(kubelet.runtime.recorder.calls(["StartContainer"])) == started + 1


def test_runtime_that_is_not_ready(kubelet: HollowKubelet) -> None:
    """The runtime answers and says that it is not ready: the node says so, and picks up where it was."""
    kubelet.runtime.runtime_ready = False
    kubelet.wait_for_log("Skipping pod synchronization", "container runtime not ready", "FakeNotReady")
    kubelet.write(pod("waits", sleeper()))
    kubelet.wait_for_log("Reading config file", "waits.json")
    kubelet.wait_for_log("Skipping pod synchronization", "FakeNotReady", count=3)
    assert not kubelet.calls("waits", "RunPodSandbox")
    kubelet.runtime.runtime_ready = True

    kubelet.wait_for_running("stays", "waits")


def test_runtime_that_comes_late_and_lists_late(new_kubelet: Callable[..., HollowKubelet]) -> None:
    kubelet = new_kubelet("late", runtime_up=False)
    kubelet.write(pod("early", sleeper()))
    kubelet.spawn()
    kubelet.wait_for_log(
        "Node is not ready, waiting for the container runtime",
        "late.sock: no such socket, is the container runtime running?",
    )
    hang = kubelet.runtime.faults.hang("ListPodSandbox")
    kubelet.server.start()

    (line,) = kubelet.wait_for_log(
        "Skipping pod synchronization", "PLEG is not healthy", "GetPods of all sandboxes and containers"
    )[:1]
    assert "has not returned since 20" in line
    assert not kubelet.runtime.sandboxes
    kubelet.runtime.faults.remove(hang)
    kubelet.wait_for_running("early")
