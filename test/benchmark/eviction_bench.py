"""Measure a full node whose pods share too little memory while one of them takes all of it.

The figures are the number of evicted pods and the lateness of the sync loop. The benchmark needs root and a containerd.
The pods' cgroup has a limit, so the machine's own memory is not at risk.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from framework.apiserver.cluster import Cluster
from framework.cluster_node import ContainerdNode
from framework.containerd import PAUSE, Containerd
from framework.pod_history import PodHistory, Version
from framework.pods import Manifest, pod, shell
from framework.sync_loop import Ticks
from framework.waiting import wait_for

# These are, in MiB, the memory of all pods, the amount that must stay available, and the amount that the hog takes in
# each step. The last value is the number of steps.
_SHARED, _LEFT, _STEP, _STEPS = 1536, 512, 64, 18
# The sync loop runs without pressure for `_CALM` seconds, for comparison. The measurement continues for `_AFTERWARDS`
# seconds after the hog's eviction.
_CALM, _AFTERWARDS = 15.0, 12.0
_TIMEOUT = 180.0


def pressure(count: int = 110) -> dict[str, float]:
    """Return figures of the eviction of a pod that takes all memory.

    The figures are the seconds until the pod's eviction, the lateness of the loop's ticks, and the evictions and
    restarts of other pods.
    """
    with tempfile.TemporaryDirectory(prefix="bench.") as name, Cluster(Path(name, "cluster")) as cluster:
        history, containerd = PodHistory(cluster.store), Containerd(Path(name))
        node: ContainerdNode | None = None
        try:
            containerd.start()
            containerd.import_images()
            node = ContainerdNode("bench", containerd, cluster, history, _config(count), flags={"v": 2})
            node.join()
            return _press(node, history, [f"pod-{number:03}" for number in range(count)])
        finally:
            if node is not None:
                node.end()
            history.stop()
            containerd.clean()


def _config(count: int) -> dict[str, object]:
    total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0])
    return {
        "kernelMemcgNotification": True,
        "maxPods": count + 1,
        "systemReserved": {"memory": f"{total - _SHARED * 1024}Ki"},
        "evictionHard": {"memory.available": f"{_LEFT}Mi"},
        "evictionPressureTransitionPeriod": "5s",
    }


def _press(node: ContainerdNode, history: PodHistory, names: list[str]) -> dict[str, float]:
    for name in names:
        node.create(pod(name, {"name": "main", "image": PAUSE}))
    node.wait_for_api_running(*names, timeout=_TIMEOUT)
    calm = Ticks(node)
    time.sleep(_CALM)
    calm.look()
    node.create(_hog())
    node.wait_for_api_running("hog")
    begin, pressed = time.monotonic(), Ticks(node)
    wait_for("the eviction of the hog", lambda: _evicted(history.latest("hog")), _TIMEOUT, node.end_of_log)
    evicted = time.monotonic() - begin
    time.sleep(_AFTERWARDS)
    pressed.look()
    others = [history.of(name)[-1] for name in names]
    return {
        "hog runs to evicted": evicted,
        "ticks late, calm": calm.worst_lateness() * 1000,
        "ticks late, under pressure": pressed.worst_lateness() * 1000,
        "others evicted": sum(_evicted(found) for found in others),
        "others restarted": sum(found.restarts() for found in others),
    }


def _hog() -> Manifest:
    take = f"dd if=/dev/zero bs={_STEP}M count=1 2>/dev/null | sleep 100000 &"
    return pod("hog", shell(f"i=0; while [ $i -lt {_STEPS} ]; do {take} i=$((i+1)); sleep 0.2; done; wait"))


def _evicted(found: Version | None) -> bool:
    return found is not None and found.status.get("reason") == "Evicted"
