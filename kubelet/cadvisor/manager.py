"""Read the statistics of the machine's containers on demand.

DIVERGES (platform): the kubelet reads statistics on demand, and keeps them for a second. A rate refers to the sample of
ten to twenty seconds ago, or to the oldest sample if there is no other.
Go: github.com/google/cadvisor/manager/container.go, (*containerData).housekeeping: cAdvisor reads each container about
every ten seconds, and returns the values of the last read.
Why: Python runs one thread at a time, and that thread would read hundreds of containers that no caller asks for.
Test: manager_test.py:test_figures_are_kept_for_a_second, manager_test.py:test_rates_are_of_ten_to_twenty_seconds

Go: github.com/google/cadvisor/manager (manager.go, container.go)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kubelet.cadvisor import processes
from kubelet.cadvisor.cgroups import Cgroups
from kubelet.cadvisor.containers import Container, Containers, container_id
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2 as infov2
from kubelet.cadvisor.machine import Machine
from pkg import klog
from pkg.apimachinery import clock
from pkg.golang import singleflight

ROOT = "/"
# Statistics may have this age, in seconds, if the caller gives no limit.
_CACHE_AGE = 1.0
# The two samples from which a rate is computed are at least this many seconds apart.
_BASE_INTERVAL = 10.0
_INIT = 1
# A runtime's container names are unique in this namespace.
_NAMESPACE = "containerd"
_DISK_FIGURES = tuple(field.name for field in msgspec.structs.fields(info.DiskIoStats) if field.name != "psi")


@dataclass(slots=True)
class _Samples:
    """Hold the newest statistics of a cgroup and the sample from which its rates are computed."""

    spec: info.ContainerSpec
    newest: info.ContainerStats
    base: info.ContainerStats | None
    # This sample becomes the base when a sample arrives that is at least _BASE_INTERVAL younger.
    next: info.ContainerStats

    def add(self, spec: info.ContainerSpec, stats: info.ContainerStats) -> None:
        self.spec, self.newest = spec, stats
        if self.base is None:
            self.base = self.next
        elif (stats.steady - self.next.steady).total_seconds() >= _BASE_INTERVAL:
            self.base, self.next = self.next, stats

    def last(self, count: int) -> list[info.ContainerStats]:
        """Return the last `count` samples, the newest last, or all if `count` is -1."""
        stats = [self.newest] if self.base is None else [self.base, self.newest]
        return stats if count < 0 else stats[-count:]


class Manager:
    """Return the statistics of cgroups by name. All methods are thread-safe.

    A caller that asks for a cgroup while another thread reads it gets the result of that read. No caller waits for the
    statistics of another cgroup, because reading some cgroups takes long.

    `cgroup_roots` are prefixes of cgroup names that are listed in addition to "/" and those of containers.
    """

    def __init__(
        self,
        cgroups: Cgroups,
        machine: Machine,
        filesystems: FileSystems,
        containers: Containers,
        cgroup_roots: Sequence[str] = (),
        proc: str = "/proc",
        clock_: clock.Clock | None = None,
    ) -> None:
        self._cgroups = cgroups
        self._machine = machine
        self._filesystems = filesystems
        self._containers = containers
        self._cgroup_roots = tuple(cgroup_roots)
        self._proc = proc
        self._clock = clock_ or clock.RealClock()
        self._lock = threading.Lock()  # The lock guards _samples and its items.
        self._samples: dict[str, _Samples] = {}
        self._readers: singleflight.Group[_Samples] = singleflight.Group()

    def get_requested_containers(
        self, name: str, options: infov2.RequestOptions, *, complete: bool = False
    ) -> dict[str, info.ContainerInfo]:
        """Return the containers by cgroup name.

        With `complete`, the newest sample of each container also counts the open files of its processes, and that of
        the machine holds its file systems. Only one page shows these two, and reading them may take most of the time: a
        container may have thousands of open files, and the machine hundreds of file systems on servers. The eviction
        manager asks without them, so that it does not wait.

        Raise LookupError if there is no such cgroup, and OSError or ValueError if its statistics cannot be read.
        """
        if options.recursive:
            names = self._cgroups.names()
            ids = {id for id in map(container_id, names) if id}
            self._containers.forget_others(ids)
            self._containers.learn(ids)
            return self._all_below(name, names, options, complete)
        if id := container_id(name):
            self._containers.learn([id])
        # DIVERGES (fault of Go): a caller can ask for any cgroup, even one that is not listed.
        # Go: github.com/google/cadvisor/manager/manager.go, (*manager).getContainer: an unlisted cgroup is an error.
        # Why: the stats summary would lack the runtime's statistics, unless a setting names its cgroup.
        # Test: manager_test.py:test_cgroup_that_is_not_listed_can_be_asked_for
        if not self._cgroups.exists(name):
            raise LookupError(f'unknown container "{name}"')
        return {name: self._info(name, self._container(name), options, complete)}

    def _all_below(
        self, name: str, names: list[str], options: infov2.RequestOptions, complete: bool
    ) -> dict[str, info.ContainerInfo]:
        """Return the listed cgroups among `names`: the cgroup `name` and its descendants.

        DIVERGES (safer): cgroups that a container has created below its own are not listed.
        Go: github.com/google/cadvisor/container/raw/factory.go, (*rawFactory).CanHandleAndAccept: they are listed, and
        count as another container or pod if their names say so.
        Why: with invented statistics, a tenant could get another tenant's pods evicted.
        Test: manager_test.py:test_cgroups_that_a_container_has_made_are_nobodys
        """
        found: dict[str, info.ContainerInfo] = {}
        prefix = name.rstrip("/") + "/"
        with self._lock:
            for gone in self._samples.keys() - set(names):
                del self._samples[gone]
        # The set holds the containers' cgroups and their descendants; parents come first.
        closed: set[str] = set()
        for each in names:
            container = self._container(each)
            is_within = each.rpartition("/")[0] in closed
            if is_within or container is not None:
                closed.add(each)
            is_listed = each.startswith(prefix) and not is_within and self._is_listed(each, container)
            if not is_listed and each != name:
                continue
            try:
                found[each] = self._info(each, container, options, complete)
            except (OSError, ValueError) as err:
                # The cgroup may have been removed. One unreadable cgroup must not hide the others.
                klog.v(4).info_s("Failed to read a cgroup", name=each, err=err)
        if name not in found:
            raise LookupError(f'unknown container "{name}"')
        return found

    def _is_listed(self, name: str, container: Container | None) -> bool:
        if name.endswith(".mount"):
            return False
        return name.startswith(self._cgroup_roots) or container is not None

    def _container(self, name: str) -> Container | None:
        id = container_id(name)
        return self._containers.get(id) if id else None

    def _info(
        self, name: str, container: Container | None, options: infov2.RequestOptions, complete: bool
    ) -> info.ContainerInfo:
        """Return the container's data, and read its statistics again if they are too old."""
        max_age = _CACHE_AGE if options.max_age is None else options.max_age
        samples = self._fresh(name, max_age) or self._readers.do(name, lambda: self._renew(name, container))
        with self._lock:
            spec, stats = samples.spec, samples.last(options.count)
        if complete:
            stats[-1] = self._completed(name, container, stats[-1])
        return info.ContainerInfo(reference=_reference(name, container), spec=spec, stats=stats)

    def _completed(self, name: str, container: Container | None, stats: info.ContainerStats) -> info.ContainerStats:
        """Return a completed copy of the statistics, which other threads may hold. Raise OSError."""
        counted = msgspec.structs.replace(stats.processes)
        pids = self._cgroups.processes(name)
        processes.count_open_files(self._proc, pids, self._root_pid(name, container, pids), counted)
        # Only the root cgroup has the machine's file systems.
        filesystem = self._filesystems.global_stats() if name == ROOT else []
        return msgspec.structs.replace(stats, processes=counted, filesystem=filesystem)

    def _fresh(self, name: str, max_age: float) -> _Samples | None:
        with self._lock:
            samples = self._samples.get(name)
            if samples is None or (self._clock.steady() - samples.newest.steady).total_seconds() >= max_age:
                return None
            return samples

    def _renew(self, name: str, container: Container | None) -> _Samples:
        spec, stats = self._read(name, container)
        with self._lock:
            samples = self._samples.get(name)
            if samples is None:
                samples = self._samples[name] = _Samples(spec, stats, base=None, next=stats)
            else:
                samples.add(spec, stats)
            return samples

    def _read(self, name: str, container: Container | None) -> tuple[info.ContainerSpec, info.ContainerStats]:
        try:
            spec, stats = self._cgroups.spec(name), self._cgroups.stats(name)
        except LookupError as err:
            # The cgroup exists, but one of its files is incomplete.
            raise ValueError(f"cgroup {name} has an incomplete file: {err}") from err
        stats.timestamp, stats.steady = self._clock.now(), self._clock.steady()
        self._name_devices(stats.disk_io)
        pids = self._cgroups.processes(name)
        stats.processes.process_count = len(pids)
        root_pid = self._root_pid(name, container, pids)
        if name == ROOT:
            self._read_machine(spec)
        elif container is not None:
            spec.labels, spec.image = container.labels, container.image
            spec.has_network = container.is_sandbox
        if spec.has_network and root_pid:
            stats.network.interfaces = self._interfaces(root_pid)
        return spec, stats

    def _root_pid(self, name: str, container: Container | None, pids: list[int]) -> int:
        """Return the container's first process, or 0 if it has none or if the cgroup is not a container."""
        if name == ROOT:
            return _INIT
        return pids[0] if pids and container is not None else 0

    def _read_machine(self, spec: info.ContainerSpec) -> None:
        """Add the machine's own resources to the root cgroup."""
        spec.has_network = self._machine.has_network
        spec.has_memory = True
        # The machine may have more memory than at the start. With the old total, no memory would seem to be available
        # once the pods use the added memory, and the kubelet would evict them.
        spec.memory.limit, spec.memory.swap_limit = self._machine.memory_and_swap()
        spec.has_filesystem = True

    def _interfaces(self, pid: int) -> list[info.InterfaceStats]:
        """Return the network interfaces of a process, or an empty list if the process has ended."""
        try:
            return processes.network_stats(self._proc, pid)
        except (OSError, ValueError) as err:
            klog.v(4).info_s("Unable to get network stats", pid=pid, err=err)
            return []

    def _name_devices(self, stats: info.DiskIoStats) -> None:
        for kind in _DISK_FIGURES:
            for disk in getattr(stats, kind):
                disk.device = self._machine.device_name(disk.major, disk.minor)


def _reference(name: str, container: Container | None) -> info.ContainerReference:
    if container is None:
        return info.ContainerReference(name)
    return info.ContainerReference(name, id=container.id, aliases=[container.id, name], namespace=_NAMESPACE)
