"""Test many pods at once: their start, a kill of their kubelet, a pod that takes all memory, and their deletion."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from framework.cluster_client import Namespace, is_running, is_true, restarts
from framework.containerd import PAUSE
from framework.local_cluster import LocalCluster
from framework.pods import pod, shell
from framework.recorder import Recorder
from kubernetes.client import CoreV1Api

COUNT = 30
NAMES = [f"burst-{number:02}" for number in range(COUNT)]
TIMEOUT = 300.0


def test_pods_that_come_all_at_once_all_run(namespace: Namespace) -> None:
    for name in NAMES:
        namespace.create(pod(name, {"name": "main", "image": PAUSE}))

    found = namespace.wait_for_running(*NAMES, timeout=TIMEOUT)

    assert len({each.status.pod_ip for each in found}) == COUNT
    assert [restarts(each) for each in found] == [0] * COUNT


@pytest.mark.local
def test_killed_kubelet_comes_again_and_no_pod_takes_notice(
    core: CoreV1Api, local: LocalCluster, namespace: Namespace
) -> None:
    before = {each.metadata.name: each for each in namespace.wait_for_running(*NAMES, timeout=TIMEOUT)}
    nodes = Recorder(core.list_node)
    seen = {name: len(namespace.history(name)) for name in NAMES}

    local.kubelet.signal(signal.SIGKILL)
    local.kubelet.wait_for_exit(60)
    namespace.create(pod("meanwhile", {"name": "main", "image": PAUSE}))
    core.delete_namespaced_pod(NAMES[0], namespace.name)
    local.kubelet.start()

    # A pod that starts and a pod that is deleted show that the kubelet works again.
    namespace.wait_for_running("meanwhile")
    namespace.wait_deleted(NAMES[0])
    heartbeat = nodes.wait_for(
        "a heartbeat after the start", lambda: len(nodes.history(namespace.node)) >= 3, 120, local.kubelet.end_of_log
    )
    assert heartbeat
    nodes.stop()
    assert all(is_true(each.object, "Ready") for each in nodes.history(namespace.node))
    for name in NAMES[1:]:
        for each in namespace.history(name)[seen[name] :]:
            assert each.type != "DELETED", name
            assert is_true(each.object, "Ready"), f"{name} was reported as not ready"
            assert restarts(each.object) == 0, name
            assert each.object.status.container_statuses == before[name].status.container_statuses, name
    still = {each.id for each in local.cri.running_containers()}
    kept = [each for name in NAMES[1:] for each in before[name].status.container_statuses]
    assert {each.container_id.rpartition("/")[2] for each in kept} <= still


@pytest.mark.local
def test_one_that_takes_all_memory_goes_and_no_other(local: LocalCluster, namespace: Namespace) -> None:
    """The kubelet evicts the pod that takes all memory, and no other pod.

    For this test all pods together have a GiB of memory, of which a quarter must stay available.
    """
    namespace.wait_for_running(*NAMES[1:], timeout=TIMEOUT)
    seen = {name: len(namespace.history(name)) for name in NAMES[1:]}
    total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0])
    short = {
        "systemReserved": {"memory": f"{total - 1024 * 1024}Ki"},
        "evictionHard": {"memory.available": "256Mi"},
        "evictionPressureTransitionPeriod": "1s",
        "kernelMemcgNotification": True,
    }
    take = "dd if=/dev/zero bs=64M count=1 2>/dev/null | sleep 100000 &"
    script = f"i=0; while [ $i -lt 13 ]; do {take} i=$((i+1)); sleep 0.2; done; wait"
    with local.kubelet.configured(short):
        namespace.create(pod("hog", shell(script)))
        namespace.wait_for("hog", "evicted", lambda found: found.status.reason == "Evicted", TIMEOUT)
    for name in NAMES[1:]:
        for each in namespace.history(name)[seen[name] :]:
            assert is_running(each.object), f"{name} was reported as not ready"
            assert restarts(each.object) == 0, name
        assert not [each for each in namespace.events_of(name) if each.reason == "Evicted"]


def test_pods_that_are_deleted_all_at_once_all_go(core: CoreV1Api, namespace: Namespace) -> None:
    names = [each.metadata.name for each in namespace.pods.all()]
    assert len(names) >= COUNT
    for name in names:
        core.delete_namespaced_pod(name, namespace.name)

    for name in names:
        namespace.wait_deleted(name, TIMEOUT)
