"""Test nodes under pressure: what the kubelet reclaims, which pods it evicts, and what it reports until the end.

Three nodes come under pressure at the same time, because the eviction manager checks only every ten seconds:

- `memory`: its pods share little memory, and one takes it all.
- `disk`: images, containers and volumes share a small file system. First the kubelet can reclaim space, later not.
- `apart`: images and containers have one file system, volumes and logs another. The machine's memory and processes, and
  the bytes and inodes of the file systems, run short at once, each because of another pod.

A pod that must be evicted works in two steps. It starts, and when the kubelet has measured its usage, it continues
until a resource is short. So the test determines which pod has the largest usage. No node takes more of the machine
than a few hundred MiB, except `apart`, which takes up to three tenths of the available memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.apiserver.cluster import Cluster
from framework.apiserver.interfaces import Object
from framework.cluster_node import ContainerdNode
from framework.containerd import BUSYBOX, PAUSE, ROOT, WEB, Containerd, new_run_dir
from framework.cri import CRIClient
from framework.disks import mount_small_disk
from framework.images import import_filler
from framework.node_history import NodeHistory
from framework.pod_history import PodHistory, Version, assert_never_unready
from framework.pods import Manifest, pod, shell
from framework.processes import logs_folder

from pkg import golang

MIB = 1 << 20
# A condition stays for this many seconds after the node has recovered. It stays longer where a test needs the time.
TRANSITION, LONG_TRANSITION = 5, 20
# Within this many seconds the eviction manager notices a shortage, acts, and notices its end.
TIMEOUT = 240.0
# After a request to stop, threads get this many seconds to end.
_GRACE = 30.0
FILLER = "registry.k8s.io/e2e-test-images/filler:1.0"
# The pods of `memory` share this many MiB, and this much of it must stay available.
SHARED, LEFT = 512, 150
# Each pod of `apart` maps to the signal and the resource that it exhausts.
APART = {
    "takes-memory": ("memory.available", "memory"),
    "forks": ("pid.available", "pids"),
    "fills-volume": ("nodefs.available", "ephemeral-storage"),
    "many-files": ("nodefs.inodesFree", "inodes"),
    "fills-layer": ("imagefs.available", "ephemeral-storage"),
}
# Each condition maps to its reasons with and without pressure, and to its taint.
CONDITIONS = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "KubeletHasSufficientMemory", "memory-pressure"),
    "DiskPressure": ("KubeletHasDiskPressure", "KubeletHasNoDiskPressure", "disk-pressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "KubeletHasSufficientPID", "pid-pressure"),
}
# These are paths of a pod's figures in the summary.
MEMORY = ("memory", "workingSetBytes")
VOLUME = ("volume", 0, "usedBytes")
Config = dict[str, object]
Stats = dict[str, Any]


# --- Pods -------------------------------------------------------------------------------------------


def takes_memory(mebibytes: int) -> str:
    """Return a command that takes this much memory at once and keeps it.

    dd has read the data and cannot write it, because no process reads from its pipe.
    """
    return f"{{ dd if=/dev/zero bs={mebibytes}M count=1 2>/dev/null | sleep 100000 & }}"


def repeated(step: str, count: int, pause: str) -> str:
    return f"i=0; while [ $i -lt {count} ]; do {step}; i=$((i+1)); sleep {pause}; done"


def forks(count: int) -> str:
    return f"n=0; while [ $n -lt {count} ]; do (read x < /fifo) & n=$((n+1)); done"


def makes_files(first: int, count: int) -> str:
    return f"i={first}; while [ $i -lt {first + count} ]; do : > /v/$i; i=$((i+1)); done"


def writes(mebibytes: int, path: str) -> str:
    return f"dd if=/dev/zero of={path} bs=1M count={mebibytes}"


def in_steps(first: str, then: str) -> str:
    return f"{first}; until [ -e /go ]; do sleep 0.1; done; {then}; while true; do sleep 0.5; done"


def made(name: str, script: str, memory: str = "", disk: str = "", limit: str = "", **spec: Any) -> Manifest:
    """Return a pod with an empty directory at /v and these requests."""
    requests = {name: value for name, value in (("memory", memory), ("ephemeral-storage", disk)) if value}
    resources = {"requests": requests, "limits": {"memory": limit} if limit else {}}
    main = shell(script, volumeMounts=[{"name": "v", "mountPath": "/v"}], resources=resources)
    return pod(name, main, volumes=[{"name": "v", "emptyDir": {}}], **spec)


def pauses(name: str) -> Manifest:
    """Return a pod that uses the sandbox image. A runtime that does not pin this image might let it appear unused."""
    return pod(name, {"name": "main", "image": PAUSE})


# --- Nodes ------------------------------------------------------------------------------------------


@dataclass
class Pressed:
    """Hold a node, its runtime, and the pods that must stay."""

    node: ContainerdNode
    containerd: Containerd
    cri: CRIClient
    past: NodeHistory
    stay: list[Manifest] = field(default_factory=list)

    def make(self, *stay: Manifest) -> None:
        self.stay += stay
        for manifest in stay:
            self.node.create(manifest)

    def summary(self) -> Stats:
        found: Stats = json.loads(self.node.get("/stats/summary"))
        return found

    def wait_until_measured(self, name: str, least: int, *figure: str | int) -> None:
        """Wait until a figure of a pod in the kubelet's summary, found at this path, has reached the minimum."""

        def look() -> bool:
            found = [each for each in self.summary()["pods"] if each["podRef"]["name"] == name]
            return bool(found) and at(found[0], figure) >= least

        self.node.wait_for_condition(f"{figure} of {name} at least {least}", look, TIMEOUT)

    def let_go(self, name: str) -> None:
        """Let a pod begin its second step."""
        (container,) = self.cri.running_containers(name)
        assert self.cri.exec(container.id, "touch", "/go").exit_code == 0

    def wait_until_evicted(self, name: str) -> Version:
        def evicted(found: Version) -> bool:
            return (found.phase, found.status.get("reason")) == ("Failed", "Evicted")

        return self.node.wait_for_api_pod(name, "evicted", evicted, TIMEOUT)

    def pressures(self, kind: str) -> list[Object]:
        """List the states of a condition since the node was ready. There is no pressure at first."""
        return self.past.conditions(self.node.node, kind)

    def wait_for_pressure(self, kind: str, times: int) -> list[Object]:
        """Wait until a condition has become true and false again this many times, and its taint is gone."""
        taint = f"node.kubernetes.io/{CONDITIONS[kind][2]}"

        def look() -> list[Object]:
            found = self.pressures(kind)
            left = {each["key"] for each in self.past.of(self.node.node)[-1]["spec"].get("taints") or []}
            return found if len(found) > 2 * times and len(found) % 2 and taint not in left else []

        found = self.node.wait_for_condition(f"{kind} of {self.node.node} over {times} times", look, TIMEOUT)
        assert taint in self.past.taints(self.node.node)
        return found

    def evictions(self) -> dict[str, int]:
        """Return the number of evicted pods for each signal."""
        lines = re.findall(r'^kubelet_evictions\{.*eviction_signal="(.*?)".*\} (\d+)', self.node.get("/metrics"), re.M)
        return {signal: int(count) for signal, count in lines if int(count)}

    def images(self) -> set[str]:
        found = self.cri.images.ListImages(runtimeapi.ListImagesRequest(), timeout=10).images
        return {tag for image in found for tag in image.repo_tags}

    def assert_others_stayed(self) -> None:
        """Check that the pods that must stay were never disturbed."""
        assert self.stay
        for manifest in self.stay:
            versions = self.node.history.of(manifest["metadata"]["name"])
            assert versions[-1].ready and versions[-1].restarts() == 0, versions[-1].summary()
            assert_never_unready(versions)
            assert not self.node.events(versions[-1].name, "Evicted")


@pytest.fixture(autouse=True, scope="module")
def _no_leaked_threads() -> Iterator[None]:
    """Check for leaked threads only after the file.

    This fixture replaces the fixture that checks after each test, because the API server lives as long as the file's
    tests.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _GRACE
    for thread in set(threading.enumerate()) - before:
        if isinstance(thread, golang.Thread) or not thread.daemon:
            thread.join(max(deadline - time.monotonic(), 0.0))
            assert not thread.is_alive(), f"thread {thread.name} still runs"


class Fleet:
    """Run the nodes of one cluster. At the end, stop and remove everything."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._cluster = Cluster(folder)
        self.nodes: dict[str, Pressed] = {}

    def __enter__(self) -> Fleet:
        self._stack.enter_context(self._cluster)
        self._history = PodHistory(self._cluster.store)
        self._stack.callback(self._history.stop)
        self._past = NodeHistory(self._cluster.store)
        self._stack.callback(self._past.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def new_runtime(self, image_disk: int = 0) -> Containerd:
        """Return a containerd with the test images. With `image_disk`, they are on a file system of that many MiB."""
        if os.geteuid() != 0:
            pytest.fail("the node tests run as root")
        containerd = Containerd(new_run_dir())
        # The clean-up includes what is mounted in its directory.
        self._stack.callback(containerd.clean)
        if image_disk:
            mount_small_disk(containerd.run_dir / "images.disk", image_disk, containerd.run_dir / "root")
        containerd.start()
        containerd.import_images()
        return containerd

    def add(self, name: str, containerd: Containerd, config: Config, root_dir: Path | None = None) -> None:
        """Start a kubelet. The method does not wait until the node is ready."""
        cri = containerd.client()
        self._stack.callback(cri.close)
        quick = {
            "nodeStatusUpdateFrequency": "1s",
            "evictionPressureTransitionPeriod": f"{TRANSITION}s",
            "volumeStatsAggPeriod": "1s",
            # The kubelet does not remove images that are younger than this.
            "imageMinimumGCAge": "1s",
        }
        node = ContainerdNode(name, containerd, self._cluster, self._history, {**quick, **config}, root_dir)
        self._stack.callback(node.end)
        node.spawn()
        self.nodes[name] = Pressed(node, containerd, cri, self._past)


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pressed]]:
    """Yield the nodes with their pods before anything is short. Keep the kubelets' logs if a test fails."""
    failed_before = request.session.testsfailed
    begun = False

    def keep_logs() -> None:
        if begun and request.session.testsfailed == failed_before:
            return
        folder = logs_folder("e2e_node")
        folder.mkdir(parents=True, exist_ok=True)
        for name, pressed in fleet.nodes.items():
            shutil.copy(pressed.node.log, folder)
            print(f"log of kubelet {name}: {folder / pressed.node.log.name}")

    with Fleet(tmp_path_factory.mktemp("cluster")) as fleet, ExitStack() as stack:
        stack.callback(keep_logs)
        add_memory(fleet)
        add_disk(fleet)
        fleet.nodes["memory"].node.wait_until_ready()
        add_apart(fleet, fleet.nodes["memory"].summary()["node"])
        for name, start in (("memory", start_memory), ("disk", start_disk), ("apart", start_apart)):
            fleet.nodes[name].node.wait_until_ready()
            start(fleet.nodes[name])
        wait_until_begun(fleet.nodes)
        begun = True
        yield fleet.nodes


@pytest.fixture(scope="module")
def nodes(begun: dict[str, Pressed]) -> dict[str, Pressed]:
    """Make the pods cause shortages, and return the nodes."""
    begun["memory"].let_go("hog")
    begun["disk"].let_go("writes")
    for name in APART:
        begun["apart"].let_go(name)
    return begun


def add_memory(fleet: Fleet) -> None:
    total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0])
    config: Config = {
        "systemReserved": {"memory": f"{total - SHARED * 1024}Ki"},
        "evictionHard": {"memory.available": f"{LEFT}Mi"},
        "evictionPressureTransitionPeriod": f"{LONG_TRANSITION}s",
        "kernelMemcgNotification": True,
    }
    fleet.add("memory", fleet.new_runtime(), config)


def start_memory(memory: Pressed) -> None:
    idle = "while true; do sleep 0.5; done"
    memory.node.cluster.store.create("priorityclasses", {"metadata": {"name": "important"}, "value": 1000})
    memory.make(
        made("careful", f"{takes_memory(64)}; {idle}", memory="96Mi"),
        # This pod uses more than the hog, whose priority is lower.
        made("important", f"{takes_memory(150)}; {idle}", priorityClassName="important"),
        made("above-request", f"{takes_memory(32)}; {idle}", memory="8Mi"),
    )
    grow = repeated(takes_memory(16), 10, "0.3")
    memory.node.create(made("hog", in_steps(takes_memory(64), grow)))


def add_disk(fleet: Fleet) -> None:
    containerd = fleet.new_runtime(image_disk=192)
    import_filler(containerd, FILLER, 16)
    root = containerd.run_dir / "root"
    config: Config = {
        "evictionHard": {"nodefs.available": f"{free(root)[0] - 40}Mi"},
        "evictionMinimumReclaim": {"nodefs.available": "8Mi"},
        "podLogsDir": str(root / "pod-logs"),
    }
    fleet.add("disk", containerd, config, root / "kubelet")


def start_disk(disk: Pressed) -> None:
    # The file stays in the layer of the dead container.
    disk.node.create(made("done", writes(24, "/file"), restartPolicy="Never"))
    disk.make(
        made("writes", in_steps("true", writes(32, "/v/file"))),
        pauses("pauses-on-disk"),
    )


def add_apart(fleet: Fleet, machine: Stats) -> None:
    """Add the node `apart`. Its thresholds depend on the machine's present state and leave room for other programs."""
    containerd = fleet.new_runtime(image_disk=192)
    root = containerd.run_dir / "nodefs"
    mount_small_disk(containerd.run_dir / "node.disk", 64, root, inodes=8192)
    images = free(containerd.run_dir / "root")[0]
    size, inodes = free(root)
    available = machine["memory"]["availableBytes"] // MIB
    processes = machine["rlimit"]["maxpid"] - machine["rlimit"]["curproc"]
    config: Config = {
        "evictionHard": {
            "nodefs.available": f"{size - 30}Mi",
            "nodefs.inodesFree": str(inodes - 2500),
            "imagefs.available": f"{images - 60}Mi",
            "pid.available": str(processes - 1500),
        },
        "evictionSoft": {"memory.available": f"{available * 9 // 10}Mi"},
        "evictionSoftGracePeriod": {"memory.available": "2s"},
        "evictionMaxPodGracePeriod": 20,
        "podLogsDir": str(root / "pod-logs"),
    }
    fleet.add("apart", containerd, config, root / "kubelet")


def start_apart(apart: Pressed) -> None:
    apart.make(
        made("quiet", f"{writes(1, '/v/file')}; {writes(1, '/file')}; sleep 100000", memory="16Mi", disk="8Mi"),
        pauses("pauses-apart"),
    )
    tenth = apart_tenth(apart)
    grow = repeated(takes_memory(tenth // 8), 16, "0.3")
    # The container's exit code shows that it ended by itself in its grace period.
    polite = f"trap 'exit 3' TERM; {in_steps(takes_memory(64), grow)}"
    scripts = {
        "takes-memory": polite,
        "forks": f"mkfifo /fifo; {in_steps(forks(800), repeated(forks(100), 25, '0.1'))}",
        "fills-volume": in_steps(writes(20, "/v/one"), writes(20, "/v/two")),
        "many-files": in_steps(makes_files(0, 2000), makes_files(2000, 1500)),
        "fills-layer": in_steps(writes(40, "/one"), writes(40, "/two")),
    }
    for name, script in scripts.items():
        limit = f"{64 + 3 * tenth}Mi" if name == "takes-memory" else ""
        # Processes use memory, too. With this large request, `forks` is not the pod that exceeds its memory request the
        # most.
        memory = {"takes-memory": "1Mi", "forks": "1Gi"}.get(name, "")
        apart.node.create(made(name, script, memory=memory, limit=limit, grace=30))


def apart_tenth(apart: Pressed) -> int:
    """Return, in MiB, how much the pods may take until memory is short."""
    return int(apart.summary()["node"]["memory"]["availableBytes"]) // MIB // 10


def wait_until_begun(nodes: dict[str, Pressed]) -> None:
    """Wait until the pods that stay run, and the kubelet's figures show the first steps of the other pods."""
    for each in nodes.values():
        each.node.wait_for_api_running(*(manifest["metadata"]["name"] for manifest in each.stay))
    nodes["disk"].node.wait_for_api_pod("done", "done", lambda found: found.phase == "Succeeded")
    nodes["memory"].wait_until_measured("hog", 64 * MIB, *MEMORY)
    nodes["memory"].wait_until_measured("important", 150 * MIB, *MEMORY)
    nodes["apart"].wait_until_measured("takes-memory", 64 * MIB, *MEMORY)
    nodes["apart"].wait_until_measured("forks", 800, "process_stats", "process_count")
    nodes["apart"].wait_until_measured("fills-volume", 20 * MIB, *VOLUME)
    nodes["apart"].wait_until_measured("many-files", 2000, "volume", 0, "inodesUsed")
    nodes["apart"].wait_until_measured("fills-layer", 40 * MIB, "containers", 0, "rootfs", "usedBytes")
    for name in APART:
        nodes["apart"].wait_until_measured(name, 1, *VOLUME)


def at(figures: Any, path: Sequence[str | int]) -> int:
    """Return the figure at a path, or 0 if there is none."""
    for step in path:
        try:
            figures = figures[step]
        except (KeyError, IndexError):
            return 0
    return int(figures)


def free(place: Path) -> tuple[int, int]:
    """Return the free MiB and inodes of a file system."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize // MIB, found.f_favail


# --- Memory of the pods -----------------------------------------------------------------------------


def test_explain_who_would_go(begun: dict[str, Pressed]) -> None:
    """While nothing is short, `kubelet explain evictions` says which pods would be evicted first."""
    kubelet = begun["memory"].node
    command = [sys.executable, "-m", "cmd.kubelet", "explain", "evictions", f"--root-dir={kubelet.root_dir}"]

    def run(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout

    found = json.loads(run("-o", "json"))
    assert found["sentence"] == "No resource is short on this node, and no pod would be evicted."
    signals = {each["signal"]: each for each in found["signals"]}
    shared = signals["allocatableMemory.available"]
    assert (shared["state"], shared["goes_first"]) == ("fine", "default/hog")
    assert [each["quantity"] for each in shared["thresholds"]] == [f"{LEFT}Mi"]
    order = ["hog", "above-request", "important", "careful"]
    assert [each["pod"] for each in shared["ranking"]] == [f"default/{name}" for name in order]
    assert [each["exceeds_request"] for each in shared["ranking"]] == [True, True, True, False]
    assert re.search(r"    1\. default/hog +over its request, priority 0, usage [\d.]+[KM]i, request 0\n", run())


def test_memory_hog_goes(nodes: dict[str, Pressed]) -> None:
    memory = nodes["memory"]

    evicted = memory.wait_until_evicted("hog")

    assert re.match(
        rf"The node was low on resource: memory\. Threshold quantity: {LEFT}Mi, available: \d+[KM]i\. "
        r"Container main was using \d+[KM]i, request is 0, has larger consumption of memory\. $",
        evicted.status["message"],
    )
    target = evicted.conditions["DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    assert target["message"] == evicted.status["message"]
    event = memory.node.wait_for_api_event("hog", "Evicted", evicted.status["message"])
    annotations = event["metadata"]["annotations"]
    assert annotations["offending_containers"] == "main" and annotations["starved_resource"] == "memory"
    assert re.fullmatch(r"\d+[KM]i", annotations["offending_containers_usage"])
    memory.node.wait_for_api_event("memory", "EvictionThresholdMet", "Attempting to reclaim memory")


def test_who_is_admitted_while_memory_is_short(nodes: dict[str, Pressed]) -> None:
    """Under memory pressure the kubelet refuses only pods without requests, because their usage cannot be predicted."""
    memory = nodes["memory"]
    memory.node.wait_for_condition("pressure", lambda: len(memory.pressures("MemoryPressure")) == 2, TIMEOUT)
    tolerated = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
    memory.node.create(made("asks-for-nothing", "sleep 100000"))
    memory.make(made("asks", "sleep 100000", memory="8Mi"), made("tolerates", "sleep 100000", tolerations=[tolerated]))

    refused = memory.wait_until_evicted("asks-for-nothing")

    assert refused.status["message"].removeprefix("Pod was rejected: ") == "The node had condition: [MemoryPressure]. "
    memory.node.wait_for_api_running("asks", "tolerates")


def test_memory_pressure_ends(nodes: dict[str, Pressed]) -> None:
    ends(nodes["memory"], "MemoryPressure", LONG_TRANSITION)
    nodes["memory"].assert_others_stayed()
    assert nodes["memory"].evictions() == {"allocatableMemory.available": 1}


def ends(pressed: Pressed, kind: str, transition: int = TRANSITION, times: int = 1) -> None:
    """Check that a condition became true and ended, for the given number of times, and not too early."""
    reason, other_reason, _ = CONDITIONS[kind]
    *_, began, ended = pressed.wait_for_pressure(kind, times)
    assert (began["status"], began["reason"], ended["reason"]) == ("True", reason, other_reason)
    # Both times are whole seconds.
    assert seconds(ended) - seconds(began) > transition - 1


def seconds(condition: Object) -> float:
    return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()


# --- One file system --------------------------------------------------------------------------------


def test_disk_is_cleared_before_anybody_goes(nodes: dict[str, Pressed]) -> None:
    disk = nodes["disk"]
    ended = disk.node.wait_for_log("able to reduce resource pressure without evicting pods")
    assert len(ended) == 1
    names = {each.labels["io.kubernetes.pod.name"] for each in disk.cri.containers()}
    assert names == {"writes", "pauses-on-disk"}, "dead containers are left, perhaps those of pods that still exist"
    assert disk.images() == {BUSYBOX, PAUSE}, "unused images are left"
    first, second = (disk.node.logged(f"Attempting to delete unused {what}") for what in ("containers", "images"))
    log = disk.node.log.read_text()
    assert log.index(first[0]) < log.index(second[0])
    ends(disk, "DiskPressure")
    assert disk.evictions() == {}
    disk.assert_others_stayed()


def test_disk_hog_goes_when_nothing_is_left_to_clear(nodes: dict[str, Pressed]) -> None:
    disk = nodes["disk"]
    disk.wait_for_pressure("DiskPressure", 1)
    disk.node.create(made("disk-hog", in_steps(writes(40, "/v/one"), writes(24, "/v/two"))))
    disk.wait_until_measured("disk-hog", 40 * MIB, *VOLUME)

    disk.let_go("disk-hog")

    evicted = disk.wait_until_evicted("disk-hog")
    assert evicted.status["message"].startswith("The node was low on resource: ephemeral-storage. Threshold quantity: ")
    ends(disk, "DiskPressure", times=2)
    assert disk.evictions() == {"nodefs.available": 1}
    disk.assert_others_stayed()


# --- Everything at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", APART)
def test_who_has_taken_what_is_short_goes(nodes: dict[str, Pressed], name: str) -> None:
    apart = nodes["apart"]
    _, resource = APART[name]

    evicted = apart.wait_until_evicted(name)

    assert evicted.status["message"].startswith(f"The node was low on resource: {resource}. Threshold quantity: ")
    event = apart.node.wait_for_api_event(name, "Evicted", evicted.status["message"])
    assert event["metadata"]["annotations"]["starved_resource"] == resource


def test_soft_threshold_leaves_time_to_end(nodes: dict[str, Pressed]) -> None:
    apart = nodes["apart"]
    apart.wait_until_evicted("takes-memory")

    polite = apart.node.wait_for_api_pod("takes-memory", "ended", lambda found: found.state()["is"] == "terminated")
    assert polite.state()["exitCode"] == 3


@pytest.mark.parametrize("kind", CONDITIONS)
def test_pressure_ends(nodes: dict[str, Pressed], kind: str) -> None:
    ends(nodes["apart"], kind)


def test_nobody_else_goes(nodes: dict[str, Pressed]) -> None:
    apart = nodes["apart"]
    for name in APART:
        apart.wait_until_evicted(name)
    # Container layers are on the file system of images, so the signal for them is named imagefs or containerfs.
    found = {signal.replace("containerfs", "imagefs"): count for signal, count in apart.evictions().items()}
    assert found == {signal: 1 for signal, _ in APART.values()}
    apart.assert_others_stayed()
    assert WEB not in apart.images(), "an unused image is left on the file system of images"
