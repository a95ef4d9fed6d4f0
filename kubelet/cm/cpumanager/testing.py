"""Define machines and pods for tests of the CPU manager.

Go: pkg/kubelet/cm/cpumanager/policy_test.go, cpu_manager_test.go
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

from kubelet.cm.cpumanager.topology import CPUDetails, CPUInfo, CPUTopology
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.utils import cpuset

_TOPOLOGIES = Path(__file__).with_name("testdata") / "topologies.json"


def topology(name: str) -> CPUTopology:
    """Return a machine from testdata/topologies.json, which lists the CPUs of each node, socket, core and cache."""
    return _topologies()[name]


@functools.cache
def _topologies() -> dict[str, CPUTopology]:
    return {name: _topology(machine) for name, machine in json.loads(_TOPOLOGIES.read_text()).items()}


def _topology(machine: dict[str, dict[str, str]]) -> CPUTopology:
    numa, socket, core, uncore = (
        {cpu: int(number) for number, cpus in machine.pop(kind).items() for cpu in cpuset.parse(cpus)}
        for kind in ("numa", "socket", "core", "uncore")
    )
    details = {cpu: CPUInfo(numa[cpu], socket[cpu], core[cpu], uncore[cpu]) for cpu in sorted(numa)}
    return CPUTopology(**machine, cpu_details=CPUDetails(details))  # type: ignore[arg-type]


def pod(*cpus: str, uid: str = "pod", init: Sequence[str] = (), pod_level: str = "") -> v1.Pod:
    """Return a pod whose containers c0, c1, … have these CPU requests and limits ("1/2" is a request and a limit).

    Init containers are i0, i1, …; an asterisk marks a sidecar.
    """
    made = v1.Pod(metadata=metav1.ObjectMeta(name=uid, namespace="ns", uid=types.UID(uid)))
    made.spec.containers = [_container(f"c{i}", amount) for i, amount in enumerate(cpus)]
    for i, amount in enumerate(init):
        made.spec.init_containers.append(_container(f"i{i}", amount.rstrip("*")))
        if amount.endswith("*"):
            made.spec.init_containers[i].restart_policy = v1.CONTAINER_RESTART_POLICY_ALWAYS
    if pod_level:
        made.spec.resources = _resources(pod_level)
    return made


def _container(name: str, cpu: str) -> v1.Container:
    return v1.Container(name=name, resources=_resources(cpu))


def _resources(cpu: str) -> v1.ResourceRequirements:
    request, _, limit = cpu.partition("/")

    def amounts(of_cpu: str) -> dict[str, resource.Quantity]:
        return {"cpu": resource.parse_quantity(of_cpu), "memory": resource.parse_quantity("1G")}

    return v1.ResourceRequirements(requests=amounts(request), limits=amounts(limit or request))
