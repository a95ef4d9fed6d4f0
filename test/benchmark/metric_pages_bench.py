"""Measure the cost of the metrics pages of a full node's containers."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from kubelet.cadvisor import cgroups, manager
from kubelet.cadvisor import metrics as cadvisormetrics
from kubelet.cadvisor.containers import Container
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2
from kubelet.cadvisor.machine import Machine
from kubelet.cadvisor.testing import FakeContainers, unpack_tree
from kubelet.server.metric_pages import container_prometheus_labels_func
from pkg.component_base import metrics

PODS = 110
_ROUNDS = 5
_POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice"


class _Node:
    """Copy the pod of a recorded machine many times. Each pod has two containers and a sandbox."""

    def __init__(self, root: Path) -> None:
        unpack_tree("v2.tree", root)
        cgroup_root = root / "sys/fs/cgroup"
        recorded = cgroup_root / _POD.format("8b6c6f3e_5a3d_4f0a_9d5e_0d3c2b1a4e5f")
        app, box = (recorded / f"cri-containerd-{digit * 64}.scope" for digit in "a5")
        known: dict[str, Container] = {}
        for number in range(PODS):
            pod = cgroup_root / _POD.format(number)
            for role, source in enumerate((app, app, box)):
                id = f"{number:063d}{role}"
                shutil.copytree(source, pod / f"cri-containerd-{id}.scope")
                known[id] = Container(id, {"io.kubernetes.pod.name": f"p{number}"}, "image", source is box)
            for file in recorded.iterdir():
                if file.is_file():
                    shutil.copy(file, pod)
        filesystems = FileSystems(f"{root}/proc")
        self._manager = manager.Manager(
            cgroups.CgroupsV2(str(cgroup_root), f"{root}/proc"),
            Machine(str(root), filesystems),
            filesystems,
            FakeContainers(known),
            ["/kubepods.slice"],
            f"{root}/proc",
        )

    def get_requested_containers_info(
        self, container_name: str, options: v2.RequestOptions
    ) -> dict[str, info.ContainerInfo]:
        """Return the figures, read from the files again at each call."""
        anew = v2.RequestOptions(count=options.count, recursive=options.recursive, max_age=0)
        return self._manager.get_requested_containers(container_name, anew)

    def get_version_info(self) -> info.VersionInfo:
        return info.VersionInfo()


def cadvisor_page() -> dict[str, float]:
    """Return the CPU milliseconds of a page and of the reading of its figures, and the page's size in MB.

    Each time is the best of several.
    """
    with tempfile.TemporaryDirectory(prefix="bench.", dir="/dev/shm") as directory:
        node = _Node(Path(directory))
        registry = metrics.KubeRegistry()
        labels = container_prometheus_labels_func(lambda _: None)
        registry.must_register(cadvisormetrics.PrometheusCollector(node, labels, include_pressure=True))
        reading, whole = [], []
        for _ in range(_ROUNDS):
            begun = time.process_time()
            node.get_requested_containers_info("/", v2.RequestOptions(recursive=True))
            read = time.process_time()
            page = registry.expose()
            reading.append(read - begun)
            whole.append(time.process_time() - read)
        return {"page": min(whole) * 1e3, "reading": min(reading) * 1e3, "size": len(page) / 1e6}
