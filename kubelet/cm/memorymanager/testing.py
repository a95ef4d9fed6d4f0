"""Define machines with NUMA nodes, and guaranteed pods, for tests.

Go: pkg/kubelet/cm/memorymanager/policy_static_test.go
"""

from __future__ import annotations

from kubelet import cadvisor
from kubelet.cm.topologymanager import TopologyHint, bitmask
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1

MB = 2**20
GB = 2**30
PAGES = "hugepages-1Gi"


def machine(*nodes: float, pages: int = 0) -> cadvisor.MachineInfo:
    """Return a machine with a NUMA node for each number of GiB, and `pages` huge pages of 1 GiB on each node."""
    return cadvisor.MachineInfo(
        num_cores=len(nodes),
        memory_capacity=int(sum(nodes) * GB),
        topology=tuple(
            cadvisor.Node(id=id, memory=int(size * GB), huge_pages=(cadvisor.HugePagesInfo(2**20, pages),))
            for id, size in enumerate(nodes)
        ),
    )


def hint_of(*nodes: int, preferred: bool = True) -> TopologyHint:
    return TopologyHint(bitmask.BitMask(*nodes), preferred)


def container(name: str, memory: str, pages: str = "", restart_policy: str | None = None) -> v1.Container:
    amounts = {"cpu": "1", "memory": memory, PAGES: pages}
    quantities = {key: resource.must_parse(text) for key, text in amounts.items() if text}
    requirements = v1.ResourceRequirements(requests=quantities, limits=quantities)
    return v1.Container(name=name, resources=requirements, restart_policy=restart_policy)


def pod(uid: str, *containers: v1.Container, init: tuple[v1.Container, ...] = ()) -> v1.Pod:
    spec = v1.PodSpec(containers=list(containers), init_containers=list(init))
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid), name=uid), spec=spec)
