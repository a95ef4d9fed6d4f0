"""Test many pods at once."""

from __future__ import annotations

from collections.abc import Callable

from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, sleeper
from framework.waiting import wait_for

PODS = 30
# The garbage collector, which removes the sandboxes and logs of pods that are gone, runs once a minute.
COLLECTED = 240


def test_thirty_pods_come_and_go_without_a_trace(new_kubelet: Callable[..., KubeletProcess], cri: CRIClient) -> None:
    kubelet = new_kubelet("density")
    kubelet.start()
    names = [f"many-{number}" for number in range(PODS)]

    for name in names:
        kubelet.write(pod(name, sleeper()))
    running = kubelet.wait_for_running(*names, timeout=300)

    assert [each.restarts() for each in running] == [0] * PODS
    assert len({each.status["podIP"] for each in running}) == PODS
    assert len(kubelet.pod_directories()) == PODS

    for name in names:
        kubelet.remove(name)

    kubelet.wait_for("no pod is left", lambda pods: not pods)
    suffix = f"-{kubelet.node}"

    def left_in_runtime() -> list[str]:
        sandboxes = [each.metadata.name for each in cri.sandboxes()]
        containers = [each.labels.get("io.kubernetes.pod.name", "") for each in cri.containers()]
        return [name for name in sandboxes + containers if name.endswith(suffix)]

    wait_for("no pod directory is left", lambda: not kubelet.pod_directories(), 180, kubelet.pod_directories)
    wait_for(
        "no sandbox or container is left in the runtime", lambda: not left_in_runtime(), COLLECTED, left_in_runtime
    )
    wait_for("no logs are left", lambda: not kubelet.pod_logs(), COLLECTED, kubelet.pod_logs)
