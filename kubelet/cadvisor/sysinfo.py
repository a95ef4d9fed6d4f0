"""Read the topology of processors, caches and memory: NUMA nodes, cores, threads.

Go: github.com/google/cadvisor/utils/sysinfo, github.com/google/cadvisor/utils/sysfs
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubelet.cadvisor.cgroups import files
from kubelet.cadvisor.info import v1 as info
from pkg import klog
from pkg.util import procfs

CPUS = "sys/devices/system/cpu"
_NODES = "sys/devices/system/node"
_HUGE_PAGES = re.compile(r"hugepages-(\d+)kB")
_MEMORY = re.compile(r"MemTotal:\s*(\d+) kB")
_LEVEL_OF_CORES = 2


@dataclass(frozen=True, slots=True)
class _CacheInfo:
    """Hold a cache of a processor and the number of processors that share it."""

    cache: info.Cache
    cpus: int


@dataclass(slots=True)
class _Core:
    """Collect the threads of a core."""

    id: int
    socket_id: int
    threads: list[int]


def get_nodes_info(root: Path) -> tuple[tuple[info.Node, ...], int]:
    """Return the machine's NUMA nodes, ordered by number, and the number of processors that are online.

    A machine without NUMA gets a node without memory for each socket. Raise OSError or ValueError for files that cannot
    be read or parsed, and LookupError if there is no processor.
    """
    directories = _numbered(root / _NODES, "node")
    if not directories:
        klog.v(4).info_s("Nodes topology is not available, providing CPU topology")
        return _cpu_topology(root)
    online = _online_cpus(root)
    nodes = tuple(_numa_node(root, id, directory, online) for id, directory in directories)
    return nodes, sum(len(core.threads) for node in nodes for core in node.cores)


def get_huge_pages_info(directory: Path) -> tuple[info.HugePagesInfo, ...]:
    """Return the huge pages, ordered by directory name. The result is empty if the kernel has no huge pages.

    Raise OSError or ValueError if a number cannot be read.
    """
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return ()
    found = (match for match in map(_HUGE_PAGES.fullmatch, names) if match)
    return tuple(
        info.HugePagesInfo(int(match[1]), _number(directory / match.string / "nr_hugepages")) for match in found
    )


def unique_cpu_properties(root: Path, name: str) -> int:
    """Count the distinct values of a property of the online processors, for each socket separately.

    The count is 0 if the values are unknown. Raise OSError if the processors cannot be listed.
    """
    try:
        online = _online_cpus(root)
    except ValueError as err:
        klog.error_s(err, "Cannot read which CPUs are online", property=name)
        return 0
    return len(
        {
            (
                _number_or_zero(directory / "topology" / name),
                _number_or_zero(directory / "topology/physical_package_id"),
            )
            for cpu, directory in _numbered(root / CPUS, "cpu")
            if _is_online(cpu, online)
        }
    )


def _numa_node(root: Path, id: int, directory: Path, online: frozenset[int] | None) -> info.Node:
    cpus = _numbered(directory, "cpu")
    if not cpus:
        klog.warning_s("Found node without any CPU", nodeDir=directory)
    cores, caches = _with_caches(root, _cores(cpus, online))
    return info.Node(
        id=id,
        memory=_node_memory(directory),
        huge_pages=get_huge_pages_info(directory / "hugepages"),
        cores=cores,
        caches=caches,
        distances=_distances(directory),
    )


def _cpu_topology(root: Path) -> tuple[tuple[info.Node, ...], int]:
    """Return a node for each socket, for a kernel without NUMA."""
    cpus = _numbered(root / CPUS, "cpu")
    if not cpus:
        raise LookupError(f"no CPU is available, cpusPath: {root / CPUS}")
    by_socket: dict[int, list[tuple[int, Path]]] = {}
    for cpu, directory in cpus:
        socket = _topology_number(directory, "physical_package_id")
        if socket is not None:
            by_socket.setdefault(socket, []).append((cpu, directory))
    if not by_socket:
        klog.warning_s("Cannot read any physical package id for any CPU")
    online = _online_cpus(root)
    nodes: list[info.Node] = []
    for socket, members in sorted(by_socket.items()):
        cores, caches = _with_caches(root, _cores(members, online))
        nodes.append(info.Node(id=socket, cores=cores, caches=caches))
    return tuple(nodes), len(cpus)


def _cores(cpus: list[tuple[int, Path]], online: frozenset[int] | None) -> list[_Core]:
    """Return the physical cores of these processors, ordered by their first threads."""
    found: dict[tuple[int, int], _Core] = {}
    for cpu, directory in cpus:
        if not _is_online(cpu, online):
            continue
        core = _topology_number(directory, "core_id")
        socket = _topology_number(directory, "physical_package_id")
        if core is not None and socket is not None:
            found.setdefault((core, socket), _Core(core, socket, [])).threads.append(cpu)
    return list(found.values())


def _with_caches(root: Path, cores: list[_Core]) -> tuple[tuple[info.Core, ...], tuple[info.Cache, ...]]:
    """Return the cores, with their own caches and those that only some cores of the node share, and the node's caches.

    After the first core whose caches cannot be read, no further core has any, because the kernels of some virtual
    machines report none.
    """
    node_caches: dict[info.Cache, None] = {}
    done: list[info.Core] = []
    readable = True
    for core in cores:
        own: list[info.Cache] = []
        uncore: dict[info.Cache, None] = {}
        try:
            for seen in _caches(root, core.threads[0]) if readable else ():
                # Compute the number of the node's threads as if each core had as many as this one, as cAdvisor does.
                if seen.cache.level > _LEVEL_OF_CORES:
                    of_node = seen.cpus == len(cores) * len(core.threads)
                    (node_caches if of_node else uncore)[seen.cache] = None
                elif seen.cpus == len(core.threads):
                    own.append(seen.cache)
        except (OSError, ValueError) as err:
            if procfs.is_accident(err):
                raise
            klog.v(1).info_s("Found node without cache information", cpu=core.threads[0], err=err)
            readable, own, uncore = False, [], {}
        done.append(info.Core(core.id, tuple(core.threads), tuple(own), tuple(uncore), core.socket_id))
    return tuple(done), tuple(node_caches)


def _caches(root: Path, cpu: int) -> Iterator[_CacheInfo]:
    """Yield the caches after reading all of them, because a part of them would be misleading."""
    directory = root / CPUS / f"cpu{cpu}" / "cache"
    names = sorted(entry.name for entry in directory.iterdir() if entry.name.startswith("index"))
    yield from [_cache(f"{directory}/{name}") for name in names]


def _cache(directory: str) -> _CacheInfo:
    masks = files.read(directory, "shared_cpu_map").split(",")
    cache = info.Cache(
        id=int(files.read(directory, "id")),
        size=int(files.read(directory, "size").strip().removesuffix("K")) * 1024,
        type=files.read(directory, "type").strip(),
        level=int(files.read(directory, "level")),
    )
    return _CacheInfo(cache, sum(int(mask, 16).bit_count() for mask in masks))


def _node_memory(directory: Path) -> int:
    """Return the node's memory in bytes, or 0 if the kernel does not report it."""
    text = files.read_or_empty(str(directory), "meminfo")
    if not text:
        klog.warning_s("Found node without memory information", nodeDir=directory)
        return 0
    match = _MEMORY.search(text)
    if match is None:
        raise ValueError(f"{directory}/meminfo has no MemTotal: {text!r}")
    return int(match[1]) * 1024


def _distances(directory: Path) -> tuple[int, ...]:
    text = files.read_or_empty(str(directory), "distance")
    if not text:
        klog.warning_s("Found node without distance information", nodeDir=directory)
    return tuple(int(distance) for distance in text.split())


def _numbered(directory: Path, kind: str) -> list[tuple[int, Path]]:
    """List entries such as cpu0 and cpu1 by number; the list is empty if the directory is missing. Raise OSError."""
    pattern = re.compile(rf"{kind}(\d+)")
    try:
        names = [entry.name for entry in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(match[1]), directory / match.string) for match in map(pattern.fullmatch, names) if match)


def _online_cpus(root: Path) -> frozenset[int] | None:
    """Return the online processors, or None if the kernel cannot take any offline. Raise OSError or ValueError."""
    text = files.read_or_empty(str(root / CPUS), "online").strip()
    if not text:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _is_online(cpu: int, online: frozenset[int] | None) -> bool:
    return online is None or cpu in online


def _topology_number(cpu: Path, name: str) -> int | None:
    """Return a number, or None if the file is missing, as for a processor that goes offline.

    Raise OSError or ValueError if the file cannot be read or parsed.
    """
    try:
        return _number(cpu / "topology" / name)
    except FileNotFoundError as err:
        klog.warning_s("Cannot read the topology of a CPU", cpu=cpu.name, file=name, err=err)
        return None


def _number(path: Path) -> int:
    try:
        return int(files.read(str(path.parent), path.name))
    except ValueError as err:
        raise ValueError(f"{path}: {err}") from None


def _number_or_zero(path: Path) -> int:
    try:
        return _number(path)
    except (OSError, ValueError) as err:
        if procfs.is_accident(err):
            raise
        return 0
