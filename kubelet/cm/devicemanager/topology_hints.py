"""Compute the NUMA nodes on which a container's devices could be.

Go: pkg/kubelet/cm/devicemanager/topology_hints.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.topologymanager import TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask, iterate_bit_masks
from pkg import klog


def device_has_topology_alignment(devices: Mapping[str, pluginapi.Device]) -> bool:
    """Report whether any of the resource's devices is near particular NUMA nodes."""
    return any(device.topology.nodes for device in devices.values())


def get_numa_node_ids(device: pluginapi.Device) -> list[int]:
    return [node.ID for node in device.topology.nodes]


def generate_device_topology_hints(
    devices: Mapping[str, pluginapi.Device],
    available: Collection[str],
    reusable: Collection[str],
    request: int,
    numa_nodes: Sequence[int],
) -> list[TopologyHint]:
    """Return the sets of nodes that offer enough devices and include all the reusable ones.

    `devices` are all devices of the resource; IDs of other devices are ignored.
    """
    nodes = {id: tuple(get_numa_node_ids(device)) for id, device in devices.items()}
    # Thousands of devices share a few combinations of nodes, so the masks are tested on the combinations.
    places = Counter(nodes.values())
    available_places = Counter(nodes[id] for id in available if id in nodes)
    reusable_places = Counter(nodes[id] for id in reusable if nodes.get(id))
    candidates = _device_numa_nodes(places, numa_nodes) or list(numa_nodes)
    min_affinity_size = len(candidates)
    masks = []
    for mask in iterate_bit_masks(candidates):
        # A mask is preferred if no smaller mask would offer enough devices, counting also those in use.
        if mask.count() < min_affinity_size and _count(mask, places) >= request:
            min_affinity_size = mask.count()
        if not all(mask.any_set(place) for place in reusable_places):
            continue
        if reusable_places.total() + _count(mask, available_places) >= request:
            masks.append(mask)
    return [TopologyHint(mask, mask.count() == min_affinity_size) for mask in masks]


def _count(mask: BitMask, places: Counter[tuple[int, ...]]) -> int:
    """Return the number of devices that are near any of the mask's nodes."""
    return sum(count for place, count in places.items() if mask.any_set(place))


def _device_numa_nodes(places: Iterable[tuple[int, ...]], known: Sequence[int]) -> list[int]:
    """Return the known nodes that have devices, in ascending order. Other nodes would only add masks."""
    found = {node for place in places for node in place}
    if unknown := found.difference(known):
        klog.info_s(
            "Ignoring NUMA node IDs reported by device plugin that are unknown to cadvisor",
            unknownNodes=sorted(unknown),
            knownNodes=list(known),
        )
    return sorted(found.intersection(known))
