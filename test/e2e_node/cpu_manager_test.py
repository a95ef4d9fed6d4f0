"""Test exclusive CPUs: where containers run, as the kernel shows it, over restarts and with invalid state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, sleeper

CPUS = frozenset(os.sched_getaffinity(0))
RESERVED = frozenset([min(CPUS)])
# Containers can get these CPUs exclusively.
ASSIGNABLE = CPUS - RESERVED
STATIC = {
    "cpuManagerPolicy": "static",
    "cpuManagerReconcilePeriod": "1s",
    "topologyManagerPolicy": "best-effort",
    "topologyManagerScope": "pod",
    "reservedSystemCPUs": ",".join(map(str, RESERVED)),
}


def exclusive(name: str, number: int = len(ASSIGNABLE)) -> Manifest:
    """Return a guaranteed pod that requests whole CPUs, and so gets them exclusively."""
    amounts = {"cpu": str(number), "memory": "32Mi"}
    return pod(name, sleeper(resources={"requests": amounts, "limits": amounts}))


def parse(text: str) -> frozenset[int]:
    """Parse a list of CPUs in the kernel's format."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


class Node:
    """Hold a kubelet, and read the state of its pods from the kernel and from the kubelet's files."""

    def __init__(self, kubelet: KubeletProcess, cri: CRIClient) -> None:
        self.kubelet = kubelet
        self.cri = cri

    def pids(self, name: str) -> set[int]:
        """Return the PIDs of the first processes of the pod's containers."""
        running = self.cri.running_containers(self.kubelet.full_name(name))
        return {self.cri.container_pid(container.id) for container in running}

    def allowed(self, name: str) -> frozenset[int]:
        """Return the CPUs on which the pod's only container may run."""
        (pid,) = self.pids(name)
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return parse(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))

    def wait_for_allowed(self, name: str, cpus: frozenset[int]) -> None:
        self.kubelet.wait_for_condition(f"{name} runs on {sorted(cpus)}", lambda: self.allowed(name) == cpus)

    @property
    def state_file(self) -> Path:
        return self.kubelet.root_dir / "cpu_manager_state"

    def state(self) -> dict[str, Any]:
        return json.loads(self.state_file.read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def node(new_kubelet: Callable[..., KubeletProcess], cri: CRIClient) -> Node:
    """Return a node with a pod without exclusive CPUs. Each test leaves it in this state."""
    assert len(CPUS) > 1, "these tests need two CPUs: a shared one and an exclusive one"
    kubelet = new_kubelet("cpus", STATIC)
    kubelet.write(pod("shares", sleeper()))
    kubelet.start()
    kubelet.wait_for_running("shares")
    return Node(kubelet, cri)


def test_exclusive_processors_are_nobody_else_s_and_survive_restarts(node: Node) -> None:
    kubelet = node.kubelet
    assert node.allowed("shares") == CPUS

    kubelet.write(exclusive("alone"))
    (alone,) = kubelet.wait_for_running("alone")
    kubelet.write(pod("beside", sleeper()))
    kubelet.wait_for_running("beside")

    assert node.allowed("alone") == ASSIGNABLE
    # The kubelet moves running containers off the exclusive CPUs, and starts new ones elsewhere.
    node.wait_for_allowed("shares", RESERVED)
    assert node.allowed("beside") == RESERVED
    before = {name: node.pids(name) for name in ("alone", "beside", "shares")}
    state = node.state()
    assert state["entries"][alone.uid] == {"main": ",".join(map(str, sorted(ASSIGNABLE)))}

    kubelet.kill()
    kubelet.remove("beside")
    kubelet.start()
    kubelet.wait_for_running("alone", "shares")

    assert node.state()["entries"] == state["entries"]
    assert (node.pids("alone"), node.allowed("alone")) == (before["alone"], ASSIGNABLE)
    kubelet.write(pod("later", sleeper()))
    kubelet.wait_for_running("later")
    assert node.allowed("later") == RESERVED, "the shared CPUs are not those before the restart"

    kubelet.remove("alone")
    kubelet.wait_for("pod alone is gone", lambda pods: "alone" not in pods)
    node.wait_for_allowed("later", CPUS)
    node.wait_for_allowed("shares", CPUS)
    assert "entries" not in node.state()
    kubelet.remove("later")


def test_who_asks_for_more_than_there_are_is_rejected(node: Node) -> None:
    node.kubelet.write(exclusive("all"))
    node.kubelet.wait_for_running("all")

    node.kubelet.write(exclusive("one-too-many", 1))

    rejected = node.kubelet.wait_for_pod("one-too-many", lambda found: found.phase == "Failed")
    # The reason is not OutOfcpu, because the kubelet assigns CPUs before it adds up the requests of all pods.
    assert rejected.status["reason"] == "UnexpectedAdmissionError"
    assert "not enough cpus available to satisfy request: requested=1, available=0" in rejected.status["message"]
    assert node.allowed("all") == ASSIGNABLE
    node.kubelet.remove("one-too-many")
    node.kubelet.remove("all")
    node.kubelet.wait_for("both pods are gone", lambda pods: set(pods) == {"shares"})


def test_state_that_cannot_be_used_is_refused_by_name(node: Node, new_kubelet: Callable[..., KubeletProcess]) -> None:
    node.wait_for_allowed("shares", CPUS)
    good = node.state_file.read_bytes()
    bad = {
        "checkpoint is corrupted": good.replace(b'"checksum":', b'"checksum":1'),
        "truncated": good[:20],
        'configured policy \\"static\\" differs from state checkpoint policy \\"none\\"': (
            b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
        ),
    }
    nodes = [(Node(new_kubelet(f"bad{i}", STATIC), node.cri), *case) for i, case in enumerate(bad.items())]
    for refusing, _, content in nodes:
        refusing.kubelet.root_dir.mkdir()
        refusing.state_file.write_bytes(content)
        refusing.kubelet.spawn()
    # On a node without exclusive CPUs, nothing is lost when the file is replaced.
    careless = Node(new_kubelet("careless"), node.cri)
    careless.kubelet.root_dir.mkdir()
    careless.state_file.write_text("{")
    careless.kubelet.spawn()
    careless.kubelet.wait_for_log("CPU manager started")
    careless.kubelet.stop()
    said = "Could not restore state from checkpoint, continuing without it"
    assert careless.kubelet.logged(said, str(careless.state_file))
    assert careless.state_file.with_suffix(".corrupt").read_text() == "{"
    assert careless.state()["policyName"] == "none"
    for refusing, reason, content in nodes:
        assert refusing.kubelet.wait_for_exit(timeout=60) != 0
        told = f'delete the CPU manager checkpoint file \\"{refusing.state_file}'
        assert refusing.kubelet.logged(reason, told), reason
        assert refusing.state_file.read_bytes() == content, (
            "the kubelet changed a file that only the operator may delete"
        )


def test_strict_reservation_keeps_everybody_off(
    node: Node, new_kubelet: Callable[..., KubeletProcess], cri: CRIClient
) -> None:
    # Each kubelet would treat the pods of the other as orphans.
    node.kubelet.stop()
    options = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    strict = Node(new_kubelet("strict", {**STATIC, **options}), cri)
    strict.kubelet.write(pod("shares", sleeper()))
    strict.kubelet.start()
    strict.kubelet.wait_for_running("shares")
    assert strict.allowed("shares") == ASSIGNABLE
    strict.kubelet.stop()
