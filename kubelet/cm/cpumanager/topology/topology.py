"""Describe the location of each CPU of the machine.

A CPU, or processor, is what the kernel schedules on: a hardware thread. A core has one or several of them.

Go: pkg/kubelet/cm/cpumanager/topology/topology.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm.cpumanager.topology.alignment import Alignment
from pkg import klog
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet


class CPUInfo(NamedTuple):
    """Hold the IDs of the units to which a CPU belongs. Each ID is unique on the machine."""

    numa_node_id: int = 0
    socket_id: int = 0
    core_id: int = 0
    uncore_cache_id: int = 0


class CPUDetails(dict[int, CPUInfo]):
    """Map CPUs to their location. As in Go, sets of nodes, sockets, cores and caches are CPUSets too."""

    def keep_only(self, cpus: CPUSet) -> CPUDetails:
        return CPUDetails({cpu: info for cpu, info in self.items() if cpu in cpus})

    def uncore_caches(self) -> CPUSet:
        return CPUSet(info.uncore_cache_id for info in self.values())

    def uncore_in_numa_nodes(self, *ids: int) -> CPUSet:
        return CPUSet(info.uncore_cache_id for info in self.values() if info.numa_node_id in ids)

    def cores_needed_in_uncore_cache(self, num_cores_needed: int, *ids: int) -> CPUSet:
        """Return up to num_cores_needed of the caches' cores, lowest IDs first."""
        cores = CPUSet(info.core_id for info in self.values() if info.uncore_cache_id in ids)
        return CPUSet(cores.list()[:num_cores_needed])

    def cpus_in_uncore_caches(self, *ids: int) -> CPUSet:
        return CPUSet(cpu for cpu, info in self.items() if info.uncore_cache_id in ids)

    def numa_nodes(self) -> CPUSet:
        return CPUSet(info.numa_node_id for info in self.values())

    def numa_nodes_in_sockets(self, *ids: int) -> CPUSet:
        return CPUSet(info.numa_node_id for info in self.values() if info.socket_id in ids)

    def sockets(self) -> CPUSet:
        return CPUSet(info.socket_id for info in self.values())

    def cpus_in_sockets(self, *ids: int) -> CPUSet:
        return CPUSet(cpu for cpu, info in self.items() if info.socket_id in ids)

    def sockets_in_numa_nodes(self, *ids: int) -> CPUSet:
        return CPUSet(info.socket_id for info in self.values() if info.numa_node_id in ids)

    def cores(self) -> CPUSet:
        return CPUSet(info.core_id for info in self.values())

    def cores_in_numa_nodes(self, *ids: int) -> CPUSet:
        return CPUSet(info.core_id for info in self.values() if info.numa_node_id in ids)

    def cores_in_sockets(self, *ids: int) -> CPUSet:
        return CPUSet(info.core_id for info in self.values() if info.socket_id in ids)

    def cpus(self) -> CPUSet:
        return CPUSet(self)

    def cpus_in_numa_nodes(self, *ids: int) -> CPUSet:
        return CPUSet(cpu for cpu, info in self.items() if info.numa_node_id in ids)

    def cpus_in_cores(self, *ids: int) -> CPUSet:
        return CPUSet(cpu for cpu, info in self.items() if info.core_id in ids)


# A CPUsIn function returns the CPUs of the given nodes, sockets, cores or caches.
CPUsIn = Callable[..., CPUSet]


@dataclass(frozen=True, slots=True)
class CPUTopology:
    """Hold the machine's CPUs, and the numbers of cores, caches, sockets and NUMA nodes."""

    num_cpus: int = 0
    num_cores: int = 0
    num_uncore_cache: int = 0
    num_sockets: int = 0
    num_numa_nodes: int = 0
    cpu_details: CPUDetails = field(default_factory=CPUDetails)

    def cpus_per_core(self) -> int:
        """Return the number of CPUs of a core; if cores differ, the mean, rounded down."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    def cpus_per_socket(self) -> int:
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    def cpus_per_uncore(self) -> int:
        return self.num_cpus // self.num_uncore_cache if self.num_uncore_cache else 0

    def cpu_core_id(self, cpu: int) -> int:
        """Return the CPU's core. Raise ValueError for an unknown CPU."""
        return self._info(cpu).core_id

    def cpu_numa_node_id(self, cpu: int) -> int:
        """Return the CPU's NUMA node. Raise ValueError for an unknown CPU."""
        return self._info(cpu).numa_node_id

    def _info(self, cpu: int) -> CPUInfo:
        if cpu not in self.cpu_details:
            raise ValueError(f"unknown CPU ID: {cpu}")
        return self.cpu_details[cpu]

    def check_alignment(self, cpus: CPUSet) -> Alignment:
        """Report what these CPUs share."""
        if len(cpus) <= 1:
            return Alignment(uncore_cache=True)
        infos = [self.cpu_details.get(cpu) for cpu in cpus]
        caches = {None if info is None else info.uncore_cache_id for info in infos}
        return Alignment(uncore_cache=len(caches) == 1 and None not in caches)


def discover(machine_info: cadvisorapi.MachineInfo) -> CPUTopology:
    """Return the machine's topology. Raise ValueError if too little is known about the machine."""
    if not machine_info.num_cores:
        raise ValueError("could not detect number of cpus")
    details = CPUDetails()
    for node in machine_info.topology:
        for core in node.cores:
            info = CPUInfo(node.id, core.socket_id, _unique_core_id(core), _get_uncore_cache_id(core))
            details.update(dict.fromkeys(core.threads, info))
    return CPUTopology(
        num_cpus=machine_info.num_cores,
        num_cores=sum(len(node.cores) for node in machine_info.topology),
        num_uncore_cache=len(details.uncore_caches()),
        num_sockets=machine_info.num_sockets,
        num_numa_nodes=len(details.numa_nodes()),
        cpu_details=details,
    )


def _unique_core_id(core: cadvisorapi.Core) -> int:
    """Return the core's lowest CPU as an ID, because the core's own ID is unique only in its socket."""
    if not core.threads or len(cpuset.new(*core.threads)) != len(core.threads):
        reason = "cpus provided are not unique" if core.threads else "no cpus provided"
        klog.info_s(
            "Could not get unique coreID for socket", socket=core.socket_id, core=core.id, threads=list(core.threads)
        )
        raise ValueError(reason)
    return min(core.threads)


def _get_uncore_cache_id(core: cadvisorapi.Core) -> int:
    """Return the cache's ID, or the socket's if the machine reports no cache."""
    return core.uncore_caches[0].id if core.uncore_caches else core.socket_id
