"""Test the device manager's topology hints.

Go: pkg/kubelet/cm/devicemanager/topology_hints_test.go
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager.testing import World, container, device, pod
from kubelet.cm.devicemanager.topology_hints import generate_device_topology_hints, get_numa_node_ids
from kubelet.cm.topologymanager import Hints, TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask
from pkg.api.core import v1

_R, _R2 = "example.com/a", "example.com/b"

# A hint consists of its nodes, and whether it is preferred.
_Hints = list[tuple[tuple[int, ...], bool]] | None
_ONE_EACH: _Hints = [((0,), True), ((1,), True), ((0, 1), False)]


def _two_each(resource: str = _R) -> dict[str, list[pluginapi.Device]]:
    return {resource: [device(f"Dev{number}", (number + 1) % 2) for number in (1, 2, 3, 4)]}


def _readable(hints: Hints) -> dict[str, _Hints]:
    return {name: each if each is None else [_nodes(hint) for hint in each] for name, each in hints.items()}


def _nodes(hint: TopologyHint) -> tuple[tuple[int, ...], bool]:
    assert hint.numa_node_affinity is not None
    return tuple(hint.numa_node_affinity.get_bits()), hint.preferred


# The columns are the container's limits, all devices, the devices of the pod's containers, and the hints.
_CASES: dict[str, tuple[dict[str, int], dict[str, list[pluginapi.Device]], dict[str, list[str]], dict[str, _Hints]]] = {
    "no alignment": ({_R: 1}, {_R: [device("Dev1"), device("Dev2")]}, {}, {_R: None}),
    "only one with alignment": ({_R: 1}, {_R: [device("Dev1"), device("Dev2", 1)]}, {}, {_R: [((1,), True)]}),
    "one device per socket": ({_R: 1}, {_R: [device("Dev1", 0), device("Dev2", 1)]}, {}, {_R: _ONE_EACH}),
    "2 of one per socket": ({_R: 2}, {_R: [device("Dev1", 0), device("Dev2", 1)]}, {}, {_R: [((0, 1), True)]}),
    "2 of two per socket": ({_R: 2}, _two_each(), {}, {_R: _ONE_EACH}),
    "2, but no socket has them": ({_R: 2}, _two_each(), {"other": ["Dev1", "Dev2"]}, {_R: [((0, 1), False)]}),
    "two resources": (
        {_R: 2, _R2: 1},
        _two_each() | {_R2: [device("Dev1", 0)]},
        {},
        {_R: _ONE_EACH, _R2: [((0,), True)]},
    ),
    "more than available": ({_R: 6}, _two_each(), {}, {_R: []}),
    "all allocated": (
        {_R: 2},
        {_R: [device("Dev1", 0), device("Dev2", 0)]},
        {"c": ["Dev1", "Dev2"]},
        {_R: [((0,), True)]},
    ),
    "less allocated than requested": ({_R: 4}, _two_each(), {"c": ["Dev1", "Dev2"]}, {_R: []}),
    "more allocated than requested": ({_R: 2}, _two_each(), {"c": ["Dev1", "Dev2", "Dev3", "Dev4"]}, {_R: []}),
    "another's resource": ({"example.org/x": 2}, _two_each(), {}, {}),
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_get_topology_hints(
    case: tuple[dict[str, int], dict[str, list[pluginapi.Device]], dict[str, list[str]], dict[str, _Hints]],
    tmp_path: Path,
) -> None:
    limits, devices, allocated, expected = case
    world = World(tmp_path)
    for resource, each in devices.items():
        world.connect(resource, *each)
    _give(world, allocated)
    asking = pod(limits=limits)
    world.active_pods = [asking]
    assert _readable(world.manager.get_topology_hints(asking, asking.spec.containers[0])) == expected


def _give(world: World, allocated: dict[str, list[str]]) -> None:
    """Allocate these devices to containers of the pod."""
    for name, ids in allocated.items():
        every = world.manager._all_devices[_R]
        world.tell(_R, *(every[id] for id in ids))
        world.allocate(pod(containers=[container(name, {_R: len(ids)})]))
        world.tell(_R, *every.values())


# The columns are the init containers, the containers, the number of devices on each node, and the hints.
_POD_CASES: dict[str, tuple[list[v1.Container], list[v1.Container], int, _Hints]] = {
    "one device per socket": ([], [container("a", {_R: 1}), container("b", {_R: 1})], 1, [((0, 1), True)]),
    "two per socket": ([], [container("a", {_R: 1}), container("b", {_R: 1})], 2, _ONE_EACH),
    "init containers give back theirs": ([container("i", {_R: 2})], [container("a", {_R: 1})], 2, _ONE_EACH),
    "sidecars do not": ([container("s", {_R: 1}, "Always")], [container("a", {_R: 2})], 2, [((0, 1), True)]),
    "more than available": ([], [container("a", {_R: 3}), container("b", {_R: 3})], 2, []),
}


@pytest.mark.parametrize("case", _POD_CASES.values(), ids=_POD_CASES)
def test_get_pod_topology_hints(
    case: tuple[list[v1.Container], list[v1.Container], int, _Hints], tmp_path: Path
) -> None:
    init_containers, containers, per_node, expected = case
    world = World(tmp_path)
    world.connect(_R, *(device(f"Dev{number}", number % 2) for number in range(2 * per_node)))
    asking = pod(containers=containers, init_containers=init_containers)
    world.active_pods = [asking]
    assert _readable(world.manager.get_pod_topology_hints(asking)) == {_R: expected}


def test_hints_are_the_same_again_for_what_the_pod_has(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.connect(_R, *_two_each()[_R])
    asking = pod(containers=[container("a", {_R: 1}), container("b", {_R: 1})])
    world.prefer_nodes(TopologyHint(BitMask(1), True))
    world.allocate(asking)
    assert _readable(world.manager.get_pod_topology_hints(asking)) == {_R: [((1,), True), ((0, 1), False)]}


def _hints(
    devices: list[pluginapi.Device], available: str, reusable: str, request: int, nodes: int
) -> list[tuple[tuple[int, ...], bool]]:
    by_id = {each.ID: each for each in devices}
    hints = generate_device_topology_hints(by_id, available.split(), reusable.split(), request, range(nodes))
    return [_nodes(hint) for hint in hints]


# The columns are all devices, the available ones, the reusable ones, the request, the machine's nodes, and the hints.
_NODES = {
    "one node of two": ([device("a", 0)], "a", "", 1, 2, [((0,), True)]),
    "two of very many": ([device("a", 0), device("b", 1)], "a b", "", 1, 34, _ONE_EACH),
    "reusable": ([device("a", 0)], "", "a", 1, 4, [((0,), True)]),
    "reusable and available": ([device("a", 0), device("b", 1)], "b", "a", 2, 4, [((0, 1), True)]),
    "two nodes of one device": ([device("a", 0, 1)], "a", "", 1, 2, _ONE_EACH),
    "device that is gone": ([device("a", 0)], "a b", "c", 1, 2, [((0,), True)]),
}


@pytest.mark.parametrize("case", _NODES.values(), ids=_NODES)
def test_only_nodes_with_devices_count(
    case: tuple[list[pluginapi.Device], str, str, int, int, list[tuple[tuple[int, ...], bool]]],
) -> None:
    *question, expected = case
    assert _hints(*question) == expected  # type: ignore[arg-type]


def test_nodes_that_the_machine_has_not(log: io.StringIO) -> None:
    assert _hints([device("a", 0), device("b", 7)], "a b", "", 1, 2) == [((0,), True)]
    assert "unknownNodes=[7]" in log.getvalue()


_TWO_HUNDRED = [device(f"Dev{number}", number // 100) for number in range(200)]
_THREE_AND_MORE = [device(f"Dev{number}", int(number >= 3)) for number in range(100)]
# The columns are the request, all devices, the container's preferred nodes, the plugin's preference, devices that must
# be in the result, and the number of devices from each node.
_ALIGNED: dict[str, tuple[int, list[pluginapi.Device], tuple[int, ...], str, str, dict[int, int]]] = {
    "no alignment": (1, [device("Dev1"), device("Dev2")], (0, 1), "", "", {}),
    "partial": (1, [device("Dev1"), device("Dev2", 1)], (1,), "", "Dev2", {1: 1}),
    "2 on node 0": (2, _two_each()[_R], (0,), "", "Dev1 Dev3", {0: 2}),
    "2 on node 1": (2, _two_each()[_R], (1,), "", "Dev2 Dev4", {1: 2}),
    "3 of 2 on node 0": (3, _two_each()[_R], (0,), "", "Dev1 Dev3", {0: 2, 1: 1}),
    "several nodes": (4, [device(f"D{n}", n % 4) for n in range(8)], (1, 3), "", "", {1: 2, 3: 2}),
    "preferred": (5, _TWO_HUNDRED, (0,), "Dev0 Dev19 Dev83 Dev42 Dev77", "Dev0 Dev19 Dev83 Dev42 Dev77", {0: 5}),
    "preferred on another": (5, _TWO_HUNDRED, (0,), "Dev0 Dev19 Dev83 Dev150 Dev186", "Dev0 Dev19 Dev83", {0: 5}),
    "preferred are not there": (5, _TWO_HUNDRED, (1,), "Dev100 Dev119 bogus0 bogus1", "Dev100 Dev119", {1: 5}),
    "preferred beyond": (5, _THREE_AND_MORE, (0,), "Dev0 Dev1 Dev2 Dev42 Dev83", "Dev42 Dev83", {0: 3, 1: 2}),
    "too many preferred": (1, _TWO_HUNDRED, (0,), "Dev0 Dev19 Dev83", "", {0: 1}),
}


@pytest.mark.parametrize("case", _ALIGNED.values(), ids=_ALIGNED)
def test_topology_aligned_allocation(
    case: tuple[int, list[pluginapi.Device], tuple[int, ...], str, str, dict[int, int]], tmp_path: Path
) -> None:
    request, devices, nodes, preferred, included, expected = case
    world = World(tmp_path, 4)
    options = pluginapi.DevicePluginOptions(get_preferred_allocation_available=bool(preferred))
    plugin = world.connect(_R, *devices, options=options)
    plugin.preferred = preferred.split()
    world.prefer_nodes(TopologyHint(BitMask(*nodes), True))
    asking = pod(limits={_R: request})
    world.allocate(asking)
    given = world.devices(asking)[_R]
    assert len(given) == request and given >= set(included.split())
    found = [get_numa_node_ids(each)[0] for each in devices if each.ID in given and each.topology.nodes]
    assert {node: found.count(node) for node in found} == expected


def test_get_preferred_allocation_parameters(tmp_path: Path) -> None:
    world = World(tmp_path)
    options = pluginapi.DevicePluginOptions(get_preferred_allocation_available=True)
    plugin = world.connect(_R, *(device(f"Dev{number}", number // 4) for number in range(8)), options=options)
    world.prefer_nodes(TopologyHint(BitMask(0), True))
    world.allocate(pod("one", {_R: 1}))
    plugin.preferred = ["Dev2", "Dev6"]
    world.allocate(pod("two", containers=[container("c", {_R: 6})], init_containers=[container("i", {_R: 2})]))
    assert plugin.calls == [
        # Only devices of node 0 are available.
        "prefer 1 of Dev0 Dev1 Dev2 Dev3 with",
        "allocate Dev0",
        "prefer 2 of Dev1 Dev2 Dev3 with",
        "allocate Dev1 Dev2",
        # The devices of the init container, and all devices of node 0, are included.
        "prefer 6 of Dev1 Dev2 Dev3 Dev4 Dev5 Dev6 Dev7 with Dev1 Dev2 Dev3",
        "allocate Dev1 Dev2 Dev3 Dev4 Dev5 Dev6",
    ]
