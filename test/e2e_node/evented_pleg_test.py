"""Test a kubelet that learns of changes from the runtime's events, if the runtime supports them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, sleeper

EVENTED = {"featureGates": {"EventedPLEG": True}}
# While events arrive, the kubelet relists only every 300 s. This limit is shorter.
TOLD = 120


def test_dead_container_is_restarted_before_any_relist_could_see_it(
    new_kubelet: Callable[..., KubeletProcess], cri: CRIClient
) -> None:
    """A dead container restarts soon.

    With events the kubelet notices the end of a container at once. Without events the kubelet falls back to a relist
    every second.
    """
    kubelet = new_kubelet("evented", EVENTED)
    kubelet.write(pod("killed", sleeper()))
    kubelet.start()
    first = kubelet.wait_for_pod("killed", lambda found: found.running, timeout=TOLD)

    os.kill(cri.container_pid(first.container_id()), signal.SIGKILL)

    second = kubelet.wait_for_pod("killed", lambda found: found.running and found.restarts() == 1, timeout=TOLD)
    assert second.state(which="lastState")["exitCode"] == 128 + signal.SIGKILL
    kubelet.remove("killed")
    kubelet.wait_for("the pod is gone from /pods", lambda pods: not pods, timeout=TOLD)

    log = kubelet.log.read_text()
    if cri.has_events():
        assert "Received Container Stopped Event" in log
        assert "Fall back to Generic PLEG" not in log
        assert kubelet.metric("kubelet_pleg_relist_duration_seconds_count") == 1
    else:
        assert "Received Container" not in log
        assert "Fall back to Generic PLEG" in log
        assert kubelet.metric("kubelet_pleg_relist_duration_seconds_count") > 5
