"""Test the limits of pods' cgroups, as the kernel shows them, and what happens to the cgroups.

The tests compute the expected values again from the documentation: shares come from requests, quotas and memory limits
come from limits. A pod gets the sum of its containers, and a QoS class the sum of its pods.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.cgroups import V2, Cgroup, cgroup_of, expected
from framework.containerd import Containerd
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for

MIB = 1 << 20
PIDS = 512
RESERVED_MEMORY = 700 * MIB
RESERVED_CPU = 300
# The cgroup of the node's own daemons has these limits, which are enforced.
KUBE_MEMORY, KUBE_CPU = 400 * MIB, 200


def amounts(cpu: str = "", memory: str = "") -> dict[str, str]:
    return {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}


def sized(name: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a container that sleeps."""
    return sleeper(name, resources={"requests": requests or {}, "limits": limits or {}})


def ends_at_once(name: str, requests: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    return shell("exit 0", name, resources={"requests": requests, "limits": limits})


TWO = [
    sized("one", amounts("100m", "32Mi"), amounts("100m", "32Mi")),
    sized("other", amounts("150m", "64Mi"), amounts("150m", "64Mi")),
]
MIXED = [sized("limited", amounts("100m", "32Mi"), amounts("250m", "128Mi")), sized("open", amounts("50m", "16Mi"))]
BOUND = [sized("one", amounts("10m", "32Mi"), amounts("100m", "64Mi")), sized("two", {}, amounts("20m", "24Mi"))]
INIT = [
    ends_at_once("first", amounts("40m", "48Mi"), amounts("400m", "96Mi")),
    {**sized("side", amounts("10m", "16Mi"), amounts("100m", "32Mi")), "restartPolicy": "Always"},
]
PART = [sized("own", amounts("20m", "16Mi"), amounts("50m", "32Mi")), sized("free")]
PODS: list[Manifest] = [
    pod("guaranteed", *TWO),
    pod("tiny", sized("main", amounts("1m", "8Mi"), amounts("1m", "8Mi"))),
    pod("burstable", *MIXED),
    pod("bound", *BOUND),
    pod("init", sized("main", amounts("20m", "32Mi"), amounts("200m", "64Mi")), initContainers=INIT),
    pod("whole", *PART, resources={"requests": amounts("100m", "64Mi"), "limits": amounts("200m", "128Mi")}),
    pod("whole-guaranteed", sized("free"), resources={"limits": amounts("110m", "64Mi")}),
    pod("besteffort", sized("main")),
]
# Each pod maps to its QoS class's cgroup below that of all pods, the pod's own limits, and those of its containers.
FIGURES = {
    "guaranteed": (
        "",
        expected(250, 250, 96 * MIB, PIDS),
        {"one": expected(100, 100, 32 * MIB), "other": expected(150, 150, 64 * MIB)},
    ),
    # These requests are below the minimum values of shares and quotas.
    "tiny": ("", expected(2, 10, 8 * MIB, PIDS), {"main": expected(2, 10, 8 * MIB)}),
    # One container has no limit, so the pod has none.
    "burstable": (
        "burstable",
        expected(150, None, None, PIDS),
        {"limited": expected(100, 250, 128 * MIB), "open": expected(50)},
    ),
    # Where a container has no request, its limit counts as its request.
    "bound": (
        "burstable",
        expected(30, 120, 88 * MIB, PIDS),
        {"one": expected(10, 100, 64 * MIB), "two": expected(20, 20, 24 * MIB)},
    ),
    # The init container requests more than the later containers together.
    "init": (
        "burstable",
        expected(40, 400, 96 * MIB, PIDS),
        {"main": expected(20, 200, 64 * MIB), "side": expected(10, 100, 32 * MIB)},
    ),
    # A container without limits may use as much as the pod.
    "whole": (
        "burstable",
        expected(100, 200, 128 * MIB, PIDS),
        {"own": expected(20, 50, 32 * MIB), "free": expected(200, 200, 128 * MIB)},
    ),
    "whole-guaranteed": ("", expected(110, 110, 64 * MIB, PIDS), {"free": expected(110, 110, 64 * MIB)}),
    "besteffort": ("besteffort", expected(2, None, None, PIDS), {"main": expected(2)}),
}
BURSTABLE_REQUESTS = 150 + 30 + 40 + 100


@pytest.fixture(scope="module")
def top(containerd: Containerd) -> Cgroup:
    """Return the cgroup in which the kubelet creates its cgroups."""
    return Cgroup(containerd.node_cgroup_root("cgroups"))


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess], top: Cgroup) -> KubeletProcess:
    (top / "kube").make()
    process = new_kubelet(
        "cgroups",
        {
            "podPidsLimit": PIDS,
            "systemReserved": {
                "cpu": f"{RESERVED_CPU - KUBE_CPU}m",
                "memory": str(RESERVED_MEMORY - KUBE_MEMORY),
            },
            "kubeReserved": {"cpu": f"{KUBE_CPU}m", "memory": str(KUBE_MEMORY)},
            "kubeReservedCgroup": f"/{top.path}/kube",
            "enforceNodeAllocatable": ["pods", "kube-reserved"],
            "kubeletCgroups": f"/{top.path}/own",
        },
    )
    for manifest in PODS:
        process.write(manifest)
    process.start()
    process.wait_for_running(*FIGURES)
    return process


def containers_cgroup(kubelet: KubeletProcess, cri: CRIClient, name: str, container: str) -> Cgroup:
    kind = "initContainerStatuses" if container == "side" else "containerStatuses"
    status = kubelet.pods()[name].container(container, kind)
    return cgroup_of(cri.container_pid(status["containerID"].rpartition("/")[2]))


def pods_cgroup(kubelet: KubeletProcess, cri: CRIClient, name: str) -> Cgroup:
    return containers_cgroup(kubelet, cri, name, next(iter(FIGURES[name][2]))).parent


@pytest.mark.parametrize("name", FIGURES)
def test_limits_of_a_pod_and_its_containers(kubelet: KubeletProcess, cri: CRIClient, top: Cgroup, name: str) -> None:
    qos, of_pod, of_containers = FIGURES[name]
    # A static pod's cgroup is named after the UID from the manifest, not after the UID of the mirror pod.
    found = kubelet.pods()[name].json["metadata"]
    uid = found["annotations"].get("kubernetes.io/config.hash", found["uid"])
    cgroup = pods_cgroup(kubelet, cri, name)

    assert cgroup.path == f"{top.path}/kubepods/{qos}/pod{uid}".replace("//", "/")
    problems = cgroup.problems(of_pod)
    for container, figures in of_containers.items():
        own = containers_cgroup(kubelet, cri, name, container)
        assert own.parent.path == cgroup.path
        problems += own.problems(figures)
    assert problems == []


def test_limits_of_the_classes(kubelet: KubeletProcess, top: Cgroup) -> None:
    pods = top / "kubepods"

    def looks_right() -> bool:
        return (pods / "burstable").problems(expected(BURSTABLE_REQUESTS)) == []

    # The kubelet updates the classes once a minute, and whenever a pod starts or ends.
    wait_for("the burstable pods together have their shares", looks_right, 90)
    assert (pods / "besteffort").problems(expected(2)) == []


def test_pods_together_get_what_is_not_reserved(kubelet: KubeletProcess, top: Cgroup) -> None:
    pods = top / "kubepods"
    cores = len([line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")])
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    memory = int(total.split()[1]) * 1024 - RESERVED_MEMORY
    maxima = [int(Path("/proc/sys/kernel", file).read_text()) for file in ("pid_max", "threads-max")]

    assert pods.problems(expected(cores * 1000 - RESERVED_CPU, None, memory, min(maxima))) == []
    assert (top / "kube").problems(expected(KUBE_CPU, None, KUBE_MEMORY)) == []


def test_kubelet_moves_to_a_cgroup_of_its_own(kubelet: KubeletProcess, top: Cgroup) -> None:
    wait_for("the kubelet has moved to its cgroup", lambda: cgroup_of(kubelet.pid).path == f"{top.path}/own", 60)
    assert Path(f"/proc/{kubelet.pid}/oom_score_adj").read_text() in ("-999\n", "0\n"), (
        "the kubelet has lowered its score wrongly"
    )


def test_scores_for_when_memory_runs_out(kubelet: KubeletProcess, cri: CRIClient, containerd: Containerd) -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    # A process without the privilege to lower its score keeps at least the runtime's score.
    least = score(int((containerd.run_dir / "containerd.pid").read_text().split()[0]))
    wanted = {
        ("guaranteed", "one"): -997,
        ("whole-guaranteed", "free"): -997,
        ("besteffort", "main"): 1000,
        ("burstable", "limited"): min(max(1000 - 1000 * 32 * MIB // total, 3), 999),
        ("burstable", "open"): min(max(1000 - 1000 * 16 * MIB // total, 3), 999),
    }
    found = {}
    for name, container in wanted:
        found[name, container] = score(cri.container_pid(kubelet.pods()[name].container_id(container)))
    assert found == {key: max(value, least) for key, value in wanted.items()}


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_processes_beyond_the_limit_are_refused(kubelet: KubeletProcess, cri: CRIClient) -> None:
    """A pod cannot have more processes than its limit, which the kernel enforces."""
    script = f"for i in $(seq {2 * PIDS}); do sleep 10 >/dev/null 2>&1 & done"

    answer = cri.exec(kubelet.pods()["besteffort"].container_id(), "sh", "-c", script)

    assert answer.exit_code != 0
    assert b"fork" in answer.stderr


def test_cgroups_stay_over_a_restart_and_left_over_ones_go(
    kubelet: KubeletProcess, cri: CRIClient, top: Cgroup
) -> None:
    before = {name: pods_cgroup(kubelet, cri, name) for name in FIGURES}
    identities = {name: cgroup.identity() for name, cgroup in before.items()}
    ids = {name: pod.container_id(next(iter(FIGURES[name][2]))) for name, pod in kubelet.pods().items()}
    kubelet.kill()
    # One leftover cgroup belongs to a pod whose manifest was removed meanwhile. The other belongs to an unknown pod,
    # and a process still runs in it.
    kubelet.remove("tiny")
    left = top / "kubepods/burstable/pod0e8a3d4c-6c1f-4f0a-9d36-8f2d9f1a2b3c"
    left.make()
    process = subprocess.Popen(["sleep", "1000"])
    inherit_cpuset(left)
    (left.directory("memory") / "cgroup.procs").write_text(str(process.pid))
    try:
        kubelet.start()
        wait_for("the process in the leftover cgroup was killed", lambda: process.poll() is not None, 60)
        assert process.returncode == -signal.SIGKILL
        wait_for("the leftover cgroup is gone", lambda: not left.exists(), 60)
        taken_away = before.pop("tiny")
        wait_for("the removed pod's cgroup is gone", lambda: not taken_away.exists(), 60)
    finally:
        process.kill()
        process.wait()

    kubelet.wait_for_running(*before)
    for name, cgroup in before.items():
        assert cgroup.identity() == identities[name], f"the cgroup of {name} was created again"
        assert cgroup.problems(FIGURES[name][1]) == []
        assert kubelet.pods()[name].container_id(next(iter(FIGURES[name][2]))) == ids[name], f"{name} was restarted"


def inherit_cpuset(cgroup: Cgroup) -> None:
    """Give a version 1 cpuset its CPUs and memory nodes.

    Without them the cpuset accepts no process. Version 2 needs nothing.
    """
    if not V2:
        for file in ("cpuset.cpus", "cpuset.mems"):
            (cgroup.directory("cpuset") / file).write_text(cgroup.parent.read(file))


def test_shares_of_the_class_follow_the_pods(kubelet: KubeletProcess, cri: CRIClient, top: Cgroup) -> None:
    """The shares of a QoS class shrink when one of its pods ends. This test comes last, because it removes a pod."""
    cgroup = pods_cgroup(kubelet, cri, "whole")
    kubelet.remove("whole")

    wait_for("the pod's cgroup is gone", lambda: not cgroup.exists(), 60)
    less = expected(BURSTABLE_REQUESTS - 100)
    wait_for("the QoS class has fewer shares", lambda: (top / "kubepods/burstable").problems(less) == [], 90)
