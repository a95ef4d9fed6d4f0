"""Test that a kubelet inside the test's process holds no objects of its pods after they are gone."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.hollow_node import HollowNode
from framework.pods import pod, shell, sleeper
from framework.waiting import wait_for

from kubelet import container as kubecontainer
from kubelet import pod_workers
from pkg import golang
from pkg.api.core import v1

PODS = 20
# A pod that the kubelet forgot to drop would hold an object of each of these types.
_KINDS = (v1.Pod, v1.PodStatus, v1.Container, kubecontainer.Pod, kubecontainer.PodStatus, pod_workers.PodSyncStatus)


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    path = tmp_path / "manifests"
    path.mkdir()
    return path


@pytest.fixture
def node(manifests: Path) -> Iterator[HollowNode]:
    with HollowNode(None, "embedded", config={"staticPodPath": str(manifests)}) as node:
        yield node


def _alive() -> Counter[str]:
    """Count the live objects of the types that belong to pods."""
    gc.collect()
    return Counter(kind.__name__ for each in gc.get_objects() for kind in _KINDS if type(each) is kind)


def test_pods_that_are_gone_leave_nothing_in_memory(node: HollowNode, manifests: Path) -> None:
    kubelet = node.kubelet
    assert kubelet is not None
    before = _alive()  # Other tests in this process may have left objects, which may disappear at any time.
    for number in range(PODS):
        unfinished = manifests / f".{number}.json"
        unfinished.write_text(json.dumps(pod(f"pod-{number}", sleeper(), shell("exit 1", "fails"))))
        unfinished.rename(manifests / f"{number}.json")
    started = node.runtime.recorder.counts
    wait_for("the failing containers restarted", lambda: started.get("StartContainer", 0) >= 3 * PODS, timeout=60)
    assert _alive()["Pod"] >= PODS

    for path in manifests.iterdir():
        path.unlink()

    wait_for("no pod is left", lambda: not kubelet.pod_manager.get_pods(), timeout=60)
    wait_for("no pod worker is left", lambda: not kubelet.pod_workers.pod_sync_statuses, timeout=60)
    wait_for("no pod directory is left", lambda: not list(Path(kubelet.get_pods_dir()).iterdir()), timeout=60)
    kubelet.container_gc.garbage_collect(golang.background())
    assert not node.runtime.sandboxes
    # Threads that wait for their next pod still hold the last one.
    wait_for(
        "no objects but those of the last pod", lambda: max((_alive() - before).values(), default=0) <= 2, 30, _alive
    )
