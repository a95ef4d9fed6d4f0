"""Run nodes that belong to a test cluster: the API server sends them pods and receives the pods' statuses."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from csi_driver.volumes import mount_points

from framework.apiserver.cluster import Cluster
from framework.apiserver.interfaces import Object
from framework.containerd import ROOT, Containerd
from framework.hollow_kubelet import HollowKubelet
from framework.kubelet_process import KubeletProcess
from framework.pod_history import PodHistory, Version
from framework.pods import Manifest, summaries

T = TypeVar("T")


class ClusterMember(KubeletProcess):
    """Run a kubelet that belongs to a cluster. `history` records every state of the cluster's pods.

    A method of KubeletProcess gets the name of a pod from its manifest. Here it gets the pod's name in the cluster. The
    name of a mirror pod is the name in the manifest with `-NODE` appended.
    """

    cluster: Cluster
    history: PodHistory

    def join(self) -> None:
        """Start the kubelet and wait until the API server reports the node as ready."""
        self.spawn()
        self.wait_until_ready()

    def api_object(self) -> Object | None:
        """Return the API server's node object, or None if there is none."""
        nodes = self.cluster.store.list("nodes")
        return next((each for each in nodes if each["metadata"]["name"] == self.node), None)

    def ready(self) -> bool:
        conditions = ((self.api_object() or {}).get("status") or {}).get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def wait_until_ready(self, timeout: float = 120) -> None:
        self.wait_for_condition(f"node {self.node} is ready", self.ready, timeout)

    def create(self, manifest: Manifest) -> Version:
        """Create a pod in the namespace "default".

        The pod is on this node unless the manifest names another. None in place of the name means no node.
        """
        metadata = {"namespace": "default", **manifest["metadata"]}
        spec = {"nodeName": self.node, "automountServiceAccountToken": False, **manifest["spec"]}
        if spec["nodeName"] is None:
            del spec["nodeName"]
        made = self.cluster.store.create("pods", {**manifest, "metadata": metadata, "spec": spec})
        return Version(made, "ADDED")

    def patch(self, name: str, patch: Object, subresource: str = "") -> Object:
        return self.cluster.store.patch("pods", name, patch, "default", subresource=subresource)

    def delete(self, name: str, grace: int | None = None) -> None:
        self.cluster.store.delete("pods", name, "default", grace_period_seconds=grace)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Hide the changes of pods from the kubelet in a `with` block.

        At the end of the block the kubelet has to list all pods, and so it sees the changes as a single one.
        """
        faults = self.cluster.faults
        with faults.hang(verb=("watch", "list"), resource="pods", user=f"system:node:{self.node}") as hang:
            faults.cut_watches(resource="pods", user=f"system:node:{self.node}")
            self.wait_for_condition("the kubelet wants to watch again", lambda: hang.hits)
            yield
            self.cluster.server.compact()

    def wait_for_api_pod(
        self, name: str, what: str, condition: Callable[[Version], object], timeout: float = 120
    ) -> Version:
        """Wait until the pod exists and meets the condition."""

        def look() -> Version | None:
            found = self.history.latest(name)
            return found if found is not None and condition(found) else None

        found = self.wait_for_condition(f"pod {name} {what}", look, timeout)
        assert found is not None
        return found

    def wait_for_api_running(self, *names: str, timeout: float = 120) -> list[Version]:
        """Wait until the API server reports all these pods as running and ready."""

        def look() -> list[Version]:
            found = [each for name in names if (each := self.history.latest(name)) and each.running and each.ready]
            return found if len(found) == len(names) else []

        return self.wait_for_condition(f"{', '.join(names)} running", look, timeout)

    def wait_until_gone(self, name: str, uid: str = "", timeout: float = 120) -> Version:
        """Wait until the API server no longer has the pod, and return the pod's last state."""

        def look() -> Version | None:
            found = self.history.of(name, uid)
            return found[-1] if found and found[-1].type == "DELETED" else None

        found = self.wait_for_condition(f"pod {name} is gone", look, timeout)
        assert found is not None
        return found

    def events(self, name: str, reason: str = "") -> list[Object]:
        """Return the API server's events about a pod, or about all pods if the name is empty."""
        return [
            each
            for each in self.cluster.store.list("events")
            if name in ("", each["involvedObject"].get("name")) and reason in ("", each["reason"])
        ]

    def wait_for_api_event(self, name: str, reason: str, *texts: str, timeout: float = 120) -> Object:
        """Wait for an event about a pod whose message contains all these texts."""

        def look() -> Object | None:
            found = (each for each in self.events(name, reason) if all(text in each["message"] for text in texts))
            return next(found, None)

        found = self.wait_for_condition(f"event {reason} {texts} about pod {name}", look, timeout)
        assert found is not None
        return found

    # The following methods replace those that expect a static pod's manifest.

    def full_name(self, name: str) -> str:
        return name

    def _describe(self) -> str:
        return f"{summaries(self.history.present())}\n--- end of {self.log.name}\n{self.end_of_log()}"


class ClusterNode(ClusterMember, HollowKubelet):
    """Run a hollow kubelet that belongs to a cluster."""

    def __init__(
        self,
        folder: Path,
        node: str,
        cluster: Cluster,
        history: PodHistory,
        config: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
    ) -> None:
        self.cluster = cluster
        self.history = history
        joined: dict[str, object] = {}
        if "kubeconfig" not in (flags or {}) and "bootstrap-kubeconfig" not in (flags or {}):
            joined["kubeconfig"] = cluster.node_kubeconfig(node)
        super().__init__(folder, node, config, {**joined, **(flags or {})}, root_dir)


class ContainerdNode(ClusterMember):
    """Run a kubelet that belongs to a cluster and runs its pods with containerd."""

    def __init__(
        self,
        node: str,
        containerd: Containerd,
        cluster: Cluster,
        history: PodHistory,
        config: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        self.cluster = cluster
        self.history = history
        own = {
            "cgroupRoot": containerd.cgroup_root,
            "podLogsDir": str(containerd.run_dir / f"{node}-logs"),
            "makeIPTablesUtilChains": False,
        }
        joined = {"kubeconfig": cluster.node_kubeconfig(node), **(flags or {})}
        super().__init__(containerd.run_dir, node, containerd.endpoint, {**own, **(config or {})}, joined, root_dir)

    def end(self) -> None:
        """Kill the process if it runs. What its pods leave in the runtime disappears with the runtime."""
        if self.alive:
            self.kill()


class RealKubelet(ClusterNode):
    """Run a real kubelet, which mounts volumes and sees mounts but leaves the machine's cgroups and firewall alone."""

    program = "cmd.kubelet"

    def __init__(
        self,
        folder: Path,
        node: str,
        cluster: Cluster,
        history: PodHistory,
        config: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        quiet = {
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(folder / "logs"),
        }
        super().__init__(folder, node, cluster, history, {**quiet, **(config or {})}, flags)

    def volumes(self, field: str) -> list[str]:
        """Return the names of the volumes in a field of the node's status."""
        found = ((self.api_object() or {}).get("status") or {}).get(field) or []
        return [each["name"] if isinstance(each, dict) else each for each in found]


class HastyKubelet(RealKubelet):
    """Run a kubelet that waits a shorter time for plugins than a normal one."""

    program = "framework.hasty_kubelet"

    def __init__(
        self,
        folder: Path,
        node: str,
        cluster: Cluster,
        history: PodHistory,
        config: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(folder, node, cluster, history, config)
        self.environment["PYTHONPATH"] = str(ROOT / "test")


@contextmanager
def real_node(
    folder: Path,
    name: str,
    cluster: Cluster,
    history: PodHistory,
    config: Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Iterator[RealKubelet]:
    """Yield a node whose kubelet the caller starts; at the end kill the kubelet and unmount what it has mounted."""
    with running(RealKubelet(folder, name, cluster, history, config, flags)) as node:
        yield node


Node = TypeVar("Node", bound=RealKubelet)


@contextmanager
def running(node: Node) -> Iterator[Node]:
    """Serve the runtime of a node, and at the end kill its kubelet and unmount what it has mounted."""
    node.server.start()
    try:
        yield node
    finally:
        node.end()
        for place in reversed(mount_points()):
            if Path(place).is_relative_to(node.root_dir):
                subprocess.run(["umount", "--lazy", place], check=False)


def condition(kind: str, status: str, **fields: Any) -> dict[str, Any]:
    """Return a condition as a program other than the kubelet may write it."""
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-02T03:04:05Z", **fields}
