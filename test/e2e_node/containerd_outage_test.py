"""Test a runtime that is away for a while and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable

from framework.containerd import Containerd
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, sleeper
from framework.waiting import wait_for

OUTAGE = 20.0


def test_no_pod_is_lost(new_kubelet: Callable[..., KubeletProcess], containerd: Containerd, cri: CRIClient) -> None:
    """Containers keep running while the runtime is away.

    Afterwards the kubelet starts new pods and ends removed ones.
    """
    kubelet = new_kubelet("outage")
    stay = [f"stays-{number}" for number in range(3)]
    for name in [*stay, "removed-meanwhile"]:
        kubelet.write(pod(name, sleeper()))
    kubelet.start()
    kubelet.wait_for_running(*stay, "removed-meanwhile")
    before = {name: cri.running_containers(kubelet.full_name(name))[0].id for name in stay}

    containerd.stop()
    back = time.monotonic() + OUTAGE
    kubelet.write(pod("added-meanwhile", sleeper()))
    kubelet.remove("removed-meanwhile")
    kubelet.wait_for(
        "the end of the outage, with all pods known",
        lambda pods: {*stay, "added-meanwhile"} <= set(pods) and time.monotonic() >= back,
        timeout=OUTAGE + 60,
    )
    containerd.start()

    kubelet.wait_for_running(*stay, "added-meanwhile")
    wait_for(
        "the end of the removed pod's container",
        lambda: not cri.running_containers(kubelet.full_name("removed-meanwhile")),
        timeout=180,
        describe=kubelet.end_of_log,
    )
    after = kubelet.pods()
    assert {name: after[name].container_id() for name in stay} == before
    assert [after[name].restarts() for name in stay] == [0, 0, 0]
