"""Test the evented PLEG: the runtime's events replace relisting, and relisting replaces events that do not arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper

_EVENTED: Mapping[str, object] = {"featureGates": {"EventedPLEG": True}}


def _relists(kubelet: HollowKubelet) -> float:
    return kubelet.metric("kubelet_pleg_relist_duration_seconds_count")


def test_events_stand_in_for_relisting(new_kubelet: Callable[..., HollowKubelet]) -> None:
    kubelet = new_kubelet("evented", _EVENTED)
    kubelet.start()
    kubelet.wait_for_condition("the stream of events", lambda: kubelet.runtime.subscribers == 1)
    kubelet.write(pod("dies", sleeper()))
    (first,) = kubelet.wait_for_running("dies")
    relists = _relists(kubelet)

    kubelet.runtime.end_container(first.container_id(), 3)

    second = kubelet.wait_for_pod("dies", lambda found: found.running and found.restarts() == 1)
    assert second.state(which="lastState")["exitCode"] == 3
    assert second.state(which="lastState")["containerID"] == first.container()["containerID"]
    kubelet.remove("dies")
    kubelet.wait_for("the pod is gone", lambda pods: not pods)
    kubelet.wait_for_condition("the pod's directory is gone", lambda: not kubelet.pod_directories())
    assert kubelet.logged("Received Container Stopped Event", first.container_id())
    assert _relists(kubelet) == relists


def test_without_events_it_relists(new_kubelet: Callable[..., HollowKubelet]) -> None:
    kubelet = new_kubelet("fallen-back", _EVENTED)
    kubelet.runtime.events_enabled = False
    kubelet.start()
    kubelet.wait_for_log("Fall back to Generic PLEG relisting since Evented PLEG is not working")
    kubelet.write(pod("dies", sleeper()))
    (first,) = kubelet.wait_for_running("dies")

    kubelet.runtime.end_container(first.container_id(), 3)

    kubelet.wait_for_pod("dies", lambda found: found.running and found.restarts() == 1)


def test_broken_stream_leaves_relisting(new_kubelet: Callable[..., HollowKubelet]) -> None:
    kubelet = new_kubelet("broken-stream", _EVENTED)
    kubelet.start()
    kubelet.write(pod("dies", sleeper()))
    (first,) = kubelet.wait_for_running("dies")

    kubelet.server.stop()
    kubelet.runtime.end_container(first.container_id(), 3)
    kubelet.wait_for_log("Fall back to Generic PLEG relisting since Evented PLEG is not working")
    kubelet.server.start()

    second = kubelet.wait_for_pod("dies", lambda found: found.running and found.restarts() == 1)
    assert second.uid == first.uid
