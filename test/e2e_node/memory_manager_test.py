"""Test exclusive memory of containers, and containers that exceed their memory limit, as the kernel shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, shell, sleeper

from kubelet.cadvisor.oomparser import OomInstance, OomParser
from pkg import golang

MIB = 1 << 20
NUMA_NODES = sorted(int(path.name[4:]) for path in Path("/sys/devices/system/node").glob("node[0-9]*"))
# On the first NUMA node, `KUBE` MiB are reserved for the kubelet, and `EVICTION` MiB must stay available.
KUBE, EVICTION = 156, 100
STATIC: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"memory": f"{KUBE}Mi"},
    "evictionHard": {"memory.available": f"{EVICTION}Mi"},
    "reservedMemory": [{"numaNode": NUMA_NODES[0], "limits": {"memory": f"{KUBE + EVICTION}Mi"}}],
    "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
}


def guaranteed(name: str, *sizes: int) -> Manifest:
    """Return a guaranteed pod whose containers c0, c1 and so on have these amounts of memory, in MiB."""
    amounts = [{"cpu": "10m", "memory": f"{size}Mi"} for size in sizes]
    return pod(name, *(sleeper(f"c{at}", resources={"limits": amount}) for at, amount in enumerate(amounts)))


class Node:
    """Hold a kubelet, and read the state of its pods from the kernel and from the kubelet's files."""

    def __init__(self, kubelet: KubeletProcess, cri: CRIClient) -> None:
        self.kubelet = kubelet
        self.cri = cri

    def allowed(self, name: str) -> set[str]:
        """Return the NUMA nodes from which a pod's containers may take memory, as the kernel lists them."""
        running = self.cri.running_containers(self.kubelet.full_name(name))
        texts = [Path(f"/proc/{self.cri.container_pid(container.id)}/status").read_text() for container in running]
        return {line.split()[1] for text in texts for line in text.splitlines() if line.startswith("Mems_allowed_list")}

    @property
    def state_file(self) -> Path:
        return self.kubelet.root_dir / "memory_manager_state"

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.state_file.read_text()))

    def sizes(self, uid: str) -> dict[str, int]:
        """Return the MiB of the first NUMA node that each container of a pod has, according to the checkpoint."""
        entries = self.state().get("entries", {}).get(uid, {})
        return {name: sum(block["size"] for block in blocks) // MIB for name, blocks in entries.items()}

    def reserved(self) -> int:
        """Return the MiB of all NUMA nodes that containers have, according to the checkpoint."""
        nodes = self.state()["machineState"].values()
        return sum(int(node["memoryMap"]["memory"]["reserved"]) for node in nodes) // MIB


@pytest.fixture(scope="module")
def node(new_kubelet: Callable[..., KubeletProcess], cri: CRIClient) -> Node:
    kubelet = new_kubelet("memory", STATIC)
    # The last test needs the kernel's log of the first pod, so that pod starts early.
    kubelet.write(pod("hog", shell("exec tail /dev/zero", resources={"limits": {"memory": "16Mi"}})))
    kubelet.write(guaranteed("two", 32, 64))
    kubelet.write(pod("shares", sleeper(resources={"requests": {"memory": "16Mi"}})))
    kubelet.start()
    kubelet.wait_for_running("two", "shares")
    return Node(kubelet, cri)


def test_memory_is_given_and_kept_over_a_restart(node: Node) -> None:
    kubelet = node.kubelet
    (two,) = kubelet.wait_for_running("two")
    ids = [two.container_id(name) for name in ("c0", "c1")]
    assert node.sizes(two.uid) == {"c0": 32, "c1": 64}
    assert list(node.state()["entries"]) == [two.uid], "a pod that is not guaranteed has exclusive memory"
    blocks = [block for each in node.state()["entries"][two.uid].values() for block in each]
    assert node.allowed("two") == {",".join(map(str, block["numaAffinity"])) for block in blocks}
    assert node.reserved() == 96
    table = node.state()["machineState"][str(NUMA_NODES[0])]["memoryMap"]["memory"]
    assert table["systemReserved"] == (KUBE + EVICTION) * MIB

    kubelet.kill()
    before = node.state_file.read_bytes()
    kubelet.start()
    (two,) = kubelet.wait_for_running("two")

    assert [two.container_id(name) for name in ("c0", "c1")] == ids
    assert node.state_file.read_bytes() == before
    kubelet.remove("two")
    # The terminating containers keep their memory until they have ended.
    kubelet.wait_for_log("Pod terminated all containers successfully", two.uid)
    kubelet.write(guaranteed("next", 48))
    (later,) = kubelet.wait_for_running("next")
    assert node.sizes(later.uid) == {"c0": 48}
    assert node.reserved() == 48, "the memory of the removed pod is not free"


def test_kernel_tells_who_was_killed(node: Node) -> None:
    """The kubelet reports a container that the kernel killed, and no other container suffers.

    One of several tries is enough, because containerd up to 2.2 sometimes misses the kernel's OOM event and reports
    Error.
    """
    dead = node.kubelet.wait_for_pod("hog", lambda found: found.state(which="lastState").get("reason") == "OOMKilled")

    state = dead.state(which="lastState")
    assert state["exitCode"] == 137
    seen = _oom_of(state["containerID"].rpartition("/")[2])
    assert (seen.process_name, seen.constraint) == ("tail", "CONSTRAINT_MEMCG")
    assert seen.victim_container_name != "/"
    assert not node.kubelet.logged("SystemOOM"), "the kubelet reported an OOM of the whole machine"
    (shares,) = node.kubelet.wait_for_running("shares")
    assert shares.restarts() == 0
    node.kubelet.remove("hog")


def _oom_of(container_id: str) -> OomInstance:
    """Return the OOM event of a container from the kernel's log."""
    ctx, cancel = golang.with_cancel(golang.background())
    found: golang.Channel[OomInstance] = golang.Channel(1)

    def read() -> None:
        for instance in OomParser().stream_ooms(ctx):
            if container_id in instance.container_name:
                found.send(instance, ctx)
                return

    thread = golang.go(read, name="kernel-log")
    instance, ok = found.recv(60)
    cancel()
    thread.join(10)
    assert ok and instance is not None, f"the kernel's log does not mention {container_id}"
    return instance


def test_what_does_not_fit_the_machine_is_refused_by_name(node: Node) -> None:
    """The kubelet refuses a checkpoint that does not fit the machine, and names the file.

    state_checkpoint_test.py covers files that are truncated or belong to another policy.
    """
    kubelet = node.kubelet
    kubelet.stop()
    good = node.state_file.read_bytes()
    other_machine = json.loads(good)
    other_machine["machineState"][str(NUMA_NODES[0])]["memoryMap"]["memory"]["total"] += 1
    delete = f'delete the memory manager checkpoint file \\"{node.state_file}'
    bad = {
        ("checkpoint is corrupted", delete): good.replace(b'"checksum":', b'"checksum":1'),
        ("the expected machine state is different from the real one",): json.dumps(
            other_machine | {"checksum": 0}
        ).encode(),
    }
    for reasons, content in bad.items():
        node.state_file.write_bytes(content)
        kubelet.spawn()
        assert kubelet.wait_for_exit(timeout=60) != 0
        assert kubelet.logged(*reasons), reasons
    node.state_file.write_bytes(good)
    kubelet.start()
    kubelet.wait_for_running("next")
