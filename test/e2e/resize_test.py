"""Test changes to the CPU and memory of running pods, by their containers' cgroups.

- in place: test_resize_in_place; with a restart: test_resize_that_restarts
- sidecars and init containers: test_sidecars_and_init_containers_are_resized
- deferred and granted later: test_put_off_resize_is_granted_when_there_is_room; refused: test_resizes_that_can_never_be
- less memory than is in use: test_memory_in_use_is_not_taken_away
- a container that crashes for lack of memory gets more: test_container_that_crashes_finds_the_memory_its_pod_was_given
- pod-level resources: test_resources_of_the_pod_as_a_whole
- directories in memory: test_directory_in_memory_is_as_large_as_the_pod
- a kubelet that is killed during a resize: test_kubelet_ends_in_the_middle_of_it
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace, conditions, container, container_statuses, restarts
from framework.local_cluster import LocalCluster
from framework.pods import Manifest, lines_of, pod, shell, with_evidence
from framework.waiting import wait_for
from kubernetes.client import ApiException, V1Pod, V1ResourceRequirements
from kubernetes.utils import parse_quantity

pytestmark = pytest.mark.local

V2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
MI = 1 << 20
# A container records the contents of these files five times a second: CPU shares, CPU quota, and bytes of memory.
_FILES = (
    ("cpu.weight", "cpu.max", "memory.max")
    if V2
    else (
        "cpu/cpu.shares",
        "cpu/cpu.cfs_quota_us",
        "memory/memory.limit_in_bytes",
    )
)
WATCH = (
    "trap 'exit 0' TERM; echo started >> /evidence/$NAME.starts; while true; do "
    f"(cd /sys/fs/cgroup && echo $(cat {' '.join(_FILES)})) > /evidence/$NAME.new; "
    "mv /evidence/$NAME.new /evidence/$NAME; sleep 0.2 & wait $!; done"
)


def watcher(name: str = "main", requests: Any = None, limits: Any = None, **fields: Any) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return shell(WATCH, name, resources=resources, env=[{"name": "NAME", "value": name}], **fields)


class Cgroups:
    """Read what the containers of one pod see of their cgroups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wait(self, name: str, milli_request: int, milli_limit: int, memory: int, timeout: float = TIMEOUT) -> None:
        """Wait until a container has this CPU, in thousandths, and this memory, in bytes. 0 means no limit."""
        wanted = expected(milli_request, milli_limit, memory)

        def look() -> bool:
            return wanted == seen(self.folder / name)

        wait_for(f"{name} has {wanted}", look, timeout, lambda: lines_of(self.folder / name))

    def starts(self, name: str = "main") -> int:
        return len(lines_of(self.folder / f"{name}.starts"))


def expected(milli_request: int, milli_limit: int, memory: int) -> tuple[int, int, int]:
    shares = max(milli_request * 1024 // 1000, 2)
    weight = 1 + (shares - 2) * 9999 // 262142
    return weight if V2 else shares, milli_limit * 100 or -1, memory or -1


def seen(path: Path) -> tuple[int, int, int] | None:
    words = " ".join(lines_of(path)).split()
    if V2 and len(words) == 4:
        del words[2]
    if len(words) != 3:
        return None
    shares, quota, memory = (-1 if word == "max" else int(word) for word in words)
    # In version 1 the largest number means "no limit".
    return shares, quota, -1 if memory > 1 << 60 else memory


def amounts(quantities: dict[str, str] | None) -> dict[str, Decimal]:
    """Return quantities of resources as numbers, because there are several ways to write the same quantity."""
    return {name: parse_quantity(quantity) for name, quantity in (quantities or {}).items()}


def alike(one: V1ResourceRequirements, other: V1ResourceRequirements) -> bool:
    same = amounts(one.requests) == amounts(other.requests)
    return same and amounts(one.limits) == amounts(other.limits)


class Resizer:
    """Create pods that record their cgroups, and resize these pods."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        self._folder = folder

    def create(self, manifest: Manifest) -> Cgroups:
        folder = self._folder / manifest["metadata"]["name"]
        self.namespace.create(with_evidence(manifest, folder))
        return Cgroups(folder)

    def resize(self, name: str, container_name: str = "main", kind: str = "containers", **resources: Any) -> V1Pod:
        patch = {"spec": {kind: [{"name": container_name, "resources": resources}]}}
        return self.namespace.core.patch_namespaced_pod_resize(name, self.namespace.name, patch)

    def wait_resized(self, name: str) -> V1Pod:
        """Wait until all resources that the pod requests are in effect."""

        def done(found: V1Pod) -> bool:
            wanted = {
                each.name: each.resources for each in [*found.spec.containers, *(found.spec.init_containers or [])]
            }
            running = [each for each in container_statuses(found) if each.state.running is not None]
            same = all(each.resources is not None and alike(each.resources, wanted[each.name]) for each in running)
            pending = {"PodResizePending", "PodResizeInProgress"} & set(conditions(found))
            return same and not pending and found.status.observed_generation == found.metadata.generation

        return self.namespace.wait_for(name, "resized", done)


@pytest.fixture(scope="module")
def resizer(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Resizer:
    return Resizer(namespace, tmp_path_factory.mktemp("resize"))


@pytest.fixture
def cpus(local: LocalCluster, namespace: Namespace) -> int:
    """Return the node's allocatable CPU, in thousandths of a CPU."""
    return int(parse_quantity(namespace.core.read_node(namespace.node).status.allocatable["cpu"]) * 1000)


def test_resize_in_place(resizer: Resizer) -> None:
    requests, limits = {"cpu": "100m", "memory": "20Mi"}, {"cpu": "200m", "memory": "40Mi"}
    cgroups = resizer.create(pod("in-place", watcher(requests=requests, limits=limits)))
    (before,) = resizer.namespace.wait_for_running("in-place")
    cgroups.wait("main", 100, 200, 40 * MI)

    resizer.resize("in-place", requests={"cpu": "300m", "memory": "30Mi"}, limits={"cpu": "400m", "memory": "80Mi"})
    cgroups.wait("main", 300, 400, 80 * MI)
    after = resizer.wait_resized("in-place")
    resizer.resize("in-place", requests={"cpu": "50m"}, limits={"cpu": "60m", "memory": "50Mi"})
    cgroups.wait("main", 50, 60, 50 * MI)
    last = resizer.wait_resized("in-place")

    assert cgroups.starts() == 1
    for found in (after, last):
        assert restarts(found) == 0
        assert found.status.qos_class == "Burstable"
        status, first = container(found), container(before)
        assert status is not None and first is not None and status.container_id == first.container_id
        assert amounts(status.allocated_resources) == amounts(found.spec.containers[0].resources.requests)
    for reason in ("ResizeStarted", "ResizeCompleted"):
        event = resizer.namespace.wait_for_event(
            "in-place", reason, r'Pod resize \w+: \{"containers":.*"generation":2\}'
        )
        assert event.type == "Normal"


def test_resize_that_restarts(resizer: Resizer) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    amounts = {"cpu": "100m", "memory": "20Mi"}
    cgroups = resizer.create(pod("restarts", watcher(requests=amounts, limits=amounts, resizePolicy=policy)))
    resizer.namespace.wait_for_running("restarts")
    cgroups.wait("main", 100, 100, 20 * MI)

    more = {"cpu": "200m", "memory": "20Mi"}
    resizer.resize("restarts", requests=more, limits=more)
    cgroups.wait("main", 200, 200, 20 * MI)
    assert restarts(resizer.wait_resized("restarts")) == 0
    more = {"cpu": "200m", "memory": "40Mi"}
    resizer.resize("restarts", requests=more, limits=more)
    cgroups.wait("main", 200, 200, 40 * MI)

    found = resizer.wait_resized("restarts")
    assert restarts(found) == 1
    assert cgroups.starts() == 2
    assert found.status.qos_class == "Guaranteed"
    resizer.namespace.wait_for_event("restarts", "Killing", "Container main resize requires restart")


def test_sidecars_and_init_containers_are_resized(resizer: Resizer) -> None:
    sidecar = watcher("sidecar", {"cpu": "50m"}, restartPolicy="Always")
    init = watcher("init", {"cpu": "50m"})
    manifest = pod("inits", watcher(requests={"cpu": "50m"}), initContainers=[sidecar, init])
    cgroups = resizer.create(manifest)
    cgroups.wait("sidecar", 50, 0, 0)
    cgroups.wait("init", 50, 0, 0)

    resizer.resize("inits", "sidecar", "initContainers", requests={"cpu": "80m"})
    cgroups.wait("sidecar", 80, 0, 0)
    resizer.resize("inits", "init", "initContainers", requests={"cpu": "90m"})
    cgroups.wait("init", 90, 0, 0)

    resizer.wait_resized("inits")
    assert [cgroups.starts(name) for name in ("sidecar", "init", "main")] == [1, 1, 0]


def test_put_off_resize_is_granted_when_there_is_room(resizer: Resizer, cpus: int) -> None:
    resizer.create(pod("big", watcher(requests={"cpu": f"{cpus // 2}m"})))
    cgroups = resizer.create(pod("waits", watcher(requests={"cpu": "20m"})))
    resizer.namespace.wait_for_running("big", "waits")
    cgroups.wait("main", 20, 0, 0)

    wanted = cpus // 2 + 10
    resizer.resize("waits", requests={"cpu": f"{wanted}m"})
    found = resizer.namespace.wait_for("waits", "deferred", lambda found: "PodResizePending" in conditions(found))
    (pending,) = (each for each in found.status.conditions if each.type == "PodResizePending")
    assert (pending.status, pending.reason, pending.observed_generation) == ("True", "Deferred", 2)
    message = rf"Node didn't have enough resource: cpu, requested: {wanted}, used: \d+, capacity: {cpus}"
    assert re.fullmatch(message, pending.message)
    event = resizer.namespace.wait_for_event("waits", "ResizeDeferred", "Pod resize OutOfcpu: .*")
    assert event.type == "Warning"
    cgroups.wait("main", 20, 0, 0)

    resizer.namespace.core.delete_namespaced_pod("big", resizer.namespace.name)
    cgroups.wait("main", wanted, 0, 0)
    resizer.wait_resized("waits")
    resizer.resize("waits", requests={"cpu": "20m"})
    resizer.wait_resized("waits")
    assert cgroups.starts() == 1


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"requests": {"cpu": "1000"}}, "node didn't have enough allocatable resources: cpu, requested: 1000000"),
        ({"limits": {"cpu": "20m"}, "requests": {"cpu": "20m"}}, None),
        ({"requests": {"cpu": "20m", "ephemeral-storage": "1Mi"}}, "only cpu and memory resources are mutable"),
        ({"requests": {"cpu": None}}, "Pod QOS Class may not change as a result of resizing"),
    ],
    ids=["too big", "possible", "something else", "another class"],
)
def test_resizes_that_can_never_be(resizer: Resizer, resources: Any, message: str | None, request: Any) -> None:
    name = f"never-{request.node.callspec.id.replace(' ', '-')}"
    resizer.create(pod(name, watcher(requests={"cpu": "20m"})))
    if message is None:
        resizer.resize(name, **resources)
        return
    with pytest.raises(ApiException, match=message):
        resizer.resize(name, **resources)


def test_memory_in_use_is_not_taken_away(resizer: Resizer) -> None:
    script = "head -c 30000000 /dev/zero > /dev/shm/much; " + WATCH
    resources = {"requests": {"memory": "40Mi"}, "limits": {"memory": "60Mi"}}
    main = shell(script, resources=resources, env=[{"name": "NAME", "value": "main"}])
    cgroups = resizer.create(pod("hungry", main))
    resizer.namespace.wait_for_running("hungry")
    cgroups.wait("main", 0, 0, 60 * MI)

    resizer.resize("hungry", requests={"memory": "10Mi"}, limits={"memory": "20Mi"})

    def failed(found: V1Pod) -> bool:
        progress = conditions(found).get("PodResizeInProgress")
        return progress is not None and progress.reason == "Error"

    found = resizer.namespace.wait_for("hungry", "an error", failed)
    message = conditions(found)["PodResizeInProgress"].message
    assert re.fullmatch(
        r"cannot decrease memory limits: .*memory limit \(20971520\) below current usage \(\d+\).*", message
    )
    resizer.namespace.wait_for_event("hungry", "ResizeError", "Pod resize error: .*cannot decrease memory limits.*")
    cgroups.wait("main", 0, 0, 60 * MI)
    resizer.resize("hungry", requests={"memory": "40Mi"}, limits={"memory": "80Mi"})
    cgroups.wait("main", 0, 0, 80 * MI)
    resizer.wait_resized("hungry")
    assert cgroups.starts() == 1


def test_directory_in_memory_is_as_large_as_the_pod(resizer: Resizer, local: LocalCluster) -> None:
    limits = {"memory": "40Mi"}
    mount = {"name": "v", "mountPath": "/v"}
    directory = pod("directory", watcher(limits=limits, volumeMounts=[mount]))
    directory["spec"]["volumes"] = [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    cgroups = resizer.create(directory)
    (found,) = resizer.namespace.wait_for_running("directory")
    cgroups.wait("main", 0, 0, 40 * MI)
    path = local.kubelet.root_dir / "pods" / found.metadata.uid / "volumes/kubernetes.io~empty-dir/v"
    assert has_room(path, 40 * MI)
    for memory in (80 * MI, 60 * MI):
        resizer.resize("directory", limits={"memory": str(memory)})
        wait_for(f"room for {memory}", functools.partial(has_room, path, memory), TIMEOUT)
        cgroups.wait("main", 0, 0, memory)
    resizer.wait_resized("directory")
    assert cgroups.starts() == 1


def has_room(path: Path, size: int) -> bool:
    """Report whether the file system has exactly this size."""
    info = os.statvfs(path)
    return info.f_blocks * info.f_frsize == size


def test_container_that_crashes_finds_the_memory_its_pod_was_given(resizer: Resizer, local: LocalCluster) -> None:
    """A container that ran out of memory starts again with the memory that its pod got during the back-off."""
    script = "head -c 60000000 /dev/zero > /dev/shm/much; " + WATCH
    resources = {"requests": {"memory": "20Mi"}, "limits": {"memory": "40Mi"}}
    main = shell(script, resources=resources, env=[{"name": "NAME", "value": "main"}])
    cgroups = resizer.create(pod("starved", main))

    def waits(found: V1Pod) -> bool:
        status = container(found)
        return status is not None and status.state.waiting is not None and restarts(found) > 0

    before = resizer.namespace.wait_for("starved", "waiting after its restart", waits)
    resizer.resize("starved", requests={"memory": "100Mi"}, limits={"memory": "120Mi"})
    cgroups.wait("main", 0, 0, 120 * MI)
    assert pod_cgroup(local, before.metadata.uid)[2] == 120 * MI
    assert cgroups.starts() == 1
    resizer.wait_resized("starved")


def test_resources_of_the_pod_as_a_whole(resizer: Resizer, local: LocalCluster) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "40Mi"}, "limits": {"cpu": "200m", "memory": "60Mi"}}
    own = watcher("own", {"cpu": "20m"}, {"cpu": "100m", "memory": "30Mi"})
    cgroups = resizer.create(pod("whole", watcher(), own, resources=resources))
    (before,) = resizer.namespace.wait_for_running("whole")
    # A missing request is as large as the limit, even if it is the pod's limit.
    cgroups.wait("main", 200, 200, 60 * MI)
    cgroups.wait("own", 20, 100, 30 * MI)
    uid = before.metadata.uid
    assert pod_cgroup(local, uid) == expected(100, 200, 60 * MI)
    assert before.status.qos_class == "Burstable"
    assert amounts(before.status.allocated_resources) == amounts(before.spec.resources.requests)

    wider = {"requests": {"cpu": "150m"}, "limits": {"cpu": "300m", "memory": "90Mi"}}
    resizer.namespace.core.patch_namespaced_pod_resize("whole", resizer.namespace.name, {"spec": {"resources": wider}})
    wait_for(
        "the pod's cgroup has the larger limit", lambda: pod_cgroup(local, uid) == expected(150, 300, 90 * MI), TIMEOUT
    )

    def shown(found: V1Pod) -> bool:
        return found.status.resources is not None and alike(found.status.resources, found.spec.resources)

    found = resizer.namespace.wait_for("whole", "shown", shown)
    assert found.status.allocated_resources["cpu"] == "150m"
    assert [cgroups.starts(name) for name in ("main", "own")] == [1, 1]
    cgroups.wait("own", 20, 100, 30 * MI)


def pod_cgroup(local: LocalCluster, uid: str) -> tuple[int, int, int]:
    """Return the values of the cgroup of a burstable pod."""
    below = f"{local.containerd.cgroup_root}/kubepods/burstable/pod{uid}".lstrip("/")
    root = Path("/sys/fs/cgroup")
    paths = (
        [root / below / file for file in _FILES]
        if V2
        else [root / file.split("/")[0] / below / file.split("/")[1] for file in _FILES]
    )
    shares, quota, memory = (path.read_text().split()[0] for path in paths)
    numbers = [-1 if word == "max" else int(word) for word in (shares, quota, memory)]
    return numbers[0], numbers[1], -1 if numbers[2] > 1 << 60 else numbers[2]


@pytest.fixture
def restarted(local: LocalCluster) -> Iterator[LocalCluster]:
    yield local
    if local.kubelet._process is None or local.kubelet._process.poll() is not None:
        local.kubelet.start()


def test_kubelet_ends_in_the_middle_of_it(resizer: Resizer, restarted: LocalCluster) -> None:
    kubelet = restarted.kubelet
    cgroups = resizer.create(pod("survives", watcher(requests={"cpu": "50m"})))
    (before,) = resizer.namespace.wait_for_running("survives")
    cgroups.wait("main", 50, 0, 0)
    resizer.resize("survives", requests={"cpu": "80m"})
    cgroups.wait("main", 80, 0, 0)
    kubelet.kill()
    resizer.resize("survives", requests={"cpu": "120m"})
    kubelet.start()
    cgroups.wait("main", 120, 0, 0)
    after = resizer.wait_resized("survives")
    assert restarts(after) == 0 and cgroups.starts() == 1
    status, first = container(after), container(before)
    assert status is not None and first is not None and status.container_id == first.container_id
    for file in ("allocated_pods_state", "actuated_pods_state"):
        text = (kubelet.root_dir / file).read_text()
        assert before.metadata.uid in text and '\\"cpu\\":\\"120m\\"' in text
