"""Test the device manager.

Go: pkg/kubelet/cm/devicemanager/manager_test.go
"""

from __future__ import annotations

import errno
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubelet import lifecycle
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm import admission
from kubelet.cm.containermap import ContainerMap
from kubelet.cm.devicemanager import AllocationError, DevicesAwaitedError, manager
from kubelet.cm.devicemanager.endpoint import EndpointStoppedError
from kubelet.cm.devicemanager.manager import CheckpointWriteError
from kubelet.cm.devicemanager.plugin.v1beta1 import RegistrationError
from kubelet.cm.devicemanager.testing import FakeDevicePlugin, World, container, device, pod, response
from kubelet.cm.devicemanager.types import ENDPOINT_STOP_GRACE_PERIOD, KUBELET_DEVICE_MANAGER_CHECKPOINT
from kubelet.cm.topologymanager import TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.util import store
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.util.runtime.testing import failing_once, raising
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.golang.testing import out_of_threads
from pkg.scheduler import framework
from pkg.util import grpcstatus

_R, _R2 = "domain1.com/resource1", "domain2.com/resource2"
_AFTER_GRACE = ENDPOINT_STOP_GRACE_PERIOD + 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _devices(*ids: str) -> list[pluginapi.Device]:
    return [device(id) for id in ids]


# ---- Capacity ----


def test_capacity_and_allocatable(world: World) -> None:
    world.connect(_R, device("1"), device("2"), device("3", healthy=False))
    assert world.capacity() == ({_R: 3}, {_R: 2}, [])
    world.tell(_R, device("1"), device("2"))
    assert world.capacity() == ({_R: 2}, {_R: 2}, [])
    world.tell(_R, device("1"), device("2", healthy=False), device("3", healthy=False))
    assert world.capacity() == ({_R: 3}, {_R: 1}, [])
    world.tell(_R, device("2", healthy=False), device("3", healthy=False))
    assert world.capacity() == ({_R: 2}, {_R: 0}, [])
    world.connect(_R2, device("1"))
    assert world.capacity() == ({_R: 2, _R2: 1}, {_R: 0, _R2: 1}, [])


def test_devices_that_are_garbage(world: World, log: io.StringIO) -> None:
    odd = pluginapi.Device(ID="3", health="Splendid")
    far = device("4", -1, 64, 1 << 60)
    world.connect(_R, device("1"), device("1"), device(""), odd, far)
    assert world.capacity() == ({_R: 3}, {_R: 2}, [])
    assert 'err="device has no ID"' in log.getvalue()
    world.prefer_nodes(TopologyHint(BitMask(0), True))
    asking = pod(limits={_R: 2})
    assert world.manager.get_pod_topology_hints(asking) == {_R: []}
    world.allocate(asking)
    assert world.devices(asking) == {_R: {"1", "4"}}


def test_plugin_that_does_not_say_what_it_can_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: pluginapi.Empty, timeout: float) -> pluginapi.DevicePluginOptions:
        raise grpcstatus.StatusError(grpc.StatusCode.UNKNOWN, "no idea")

    plugin = FakeDevicePlugin(_R)
    monkeypatch.setattr(plugin, "GetDevicePluginOptions", fail)
    why = "failed to get device plugin options: rpc error: code = Unknown desc = no idea"
    with pytest.raises(RegistrationError, match=why):
        world.manager.plugin_connected(_R, plugin)
    assert world.manager.get_capacity() == ({}, {}, [])


def test_more_plugins_than_there_can_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of plugins is limited, because one may register under another name each time."""
    monkeypatch.setattr(manager, "MAX_PLUGINS", 1)
    world.connect(_R, device("1"))
    world.connect(_R, device("2"))
    world.disconnect(_R)
    with pytest.raises(RegistrationError, match="there are plugins of 1 resources, which is the maximum"):
        world.connect(_R2, device("1"))
    world.clock.step(_AFTER_GRACE)
    assert world.capacity() == ({}, {}, [_R])
    world.connect(_R2, device("1"))
    assert world.capacity() == ({_R2: 1}, {_R2: 1}, [])


def test_devices_of_a_resource_that_is_gone(world: World) -> None:
    """The devices of a resource that is gone stay known as long as a pod has some."""
    for name in (_R, _R2):
        world.connect(name, device("1"))
    world.allocate(pod(limits={_R: 1}))
    for name in (_R, _R2):
        world.disconnect(name)
    world.clock.step(_AFTER_GRACE)
    world.capacity()
    assert list(world.manager._all_devices) == [_R]


def test_plugin_that_goes_for_good(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    world.connect(_R2, device("1"))
    world.disconnect(_R)
    assert world.capacity() == ({_R: 2, _R2: 1}, {_R: 0, _R2: 1}, [])
    world.clock.step(_AFTER_GRACE)
    assert world.capacity() == ({_R2: 1}, {_R2: 1}, [_R])
    assert world.capacity() == ({_R2: 1}, {_R2: 1}, [])


def test_plugin_that_comes_back(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    world.disconnect(_R)
    world.clock.step(ENDPOINT_STOP_GRACE_PERIOD - 1)
    world.connect(_R, *_devices("1", "2", "3"))
    world.clock.step(_AFTER_GRACE)
    assert world.capacity() == ({_R: 3}, {_R: 3}, [])


def test_allocatable_devices(world: World) -> None:
    world.connect(_R, device("1"), device("2", healthy=False))
    world.connect(_R2, device("1"))
    assert {name: set(each) for name, each in world.manager.get_allocatable_devices().items()} == {
        _R: {"1"},
        _R2: {"1"},
    }
    world.tell(_R, device("1"), device("2"))
    assert set(world.manager.get_allocatable_devices()[_R]) == {"1", "2"}


def test_node_has_what_pods_have(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 2})
    world.allocate(asking)
    world.disconnect(_R)
    info = framework.NodeInfo()
    info.allocatable.scalar_resources = {_R: 0, _R2: 7}
    world.manager.update_plugin_resources(info, lifecycle.PodAdmitAttributes(pod("another")))
    assert info.allocatable.scalar_resources == {_R: 0, _R2: 7}
    world.manager.update_plugin_resources(info, lifecycle.PodAdmitAttributes(asking))
    assert info.allocatable.scalar_resources == {_R: 2, _R2: 7}


# ---- Allocation ----


def test_allocation(world: World) -> None:
    first = world.connect(_R, *_devices("dev1", "dev2"))
    first.allocate = lambda ids: response({"/dev/a": "/dev/a"}, {"/lib": "/usr/lib"}, {"KEY": ",".join(ids)})
    world.connect(_R2, *_devices("dev3", "dev4"))
    one, two, three = pod("one", {_R: 2, _R2: 1, "cpu": 2}), pod("two", {_R: 1}), pod("three", {_R2: 1})
    world.allocate(one)
    assert world.devices(one) == {_R: {"dev1", "dev2"}, _R2: {"dev3"}}
    options = world.manager.get_device_run_container_options(golang.background(), one, one.spec.containers[0])
    assert options is not None
    assert [each.path_on_host for each in options.devices] == ["/dev/a"]
    assert [each.host_path for each in options.mounts] == ["/usr/lib"]
    assert {each.name: each.value for each in options.envs} == {"KEY": "dev1,dev2", "RESOURCE2": "dev3"}
    with pytest.raises(AllocationError) as refused:
        world.allocate(two)
    assert str(refused.value) == f"requested number of devices unavailable for {_R}. Requested: 1, Available: 0"
    world.allocate(three)
    assert world.devices(three) == {_R2: {"dev4"}}


def test_pod_that_is_admitted_while_others_are_looked_for_that_have_ended(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    new = pod("new", {_R: 1})

    def active_pods() -> list[v1.Pod]:
        before = list(world.active_pods)
        world.manager._active_pods = lambda: world.active_pods
        world.allocate(new)
        return before

    world.allocate(pod("old", {_R: 1}))
    world.manager._active_pods = active_pods
    world.manager.update_allocated_devices()
    assert world.devices(new) == {_R: {"2"}}


def test_devices_of_pods_that_have_ended(world: World) -> None:
    world.connect(_R, device("1"))
    one, two = pod("one", {_R: 1}), pod("two", {_R: 1})
    world.allocate(one)
    world.active_pods = []
    world.sources.ready = False
    with pytest.raises(AllocationError, match="unavailable"):
        world.allocate(two)
    world.sources.ready = True
    world.allocate(two)
    assert (world.devices(one), world.devices(two)) == ({}, {_R: {"1"}})
    assert world.manager.get_device_run_container_options(golang.background(), one, one.spec.containers[0]) is None


def test_devices_of_a_pod_that_is_ending(world: World) -> None:
    """A terminating pod keeps its devices, because its containers still use them."""
    world.connect(_R, device("1"))
    ending, new = pod("ending", {_R: 1}), pod("new", {_R: 1})
    world.allocate(ending)
    world.active_pods = []
    world.ending.add(ending.metadata.uid)
    with pytest.raises(AllocationError, match="unavailable"):
        world.allocate(new)
    assert world.manager.pods() == {ending.metadata.uid}
    world.ending.clear()
    world.allocate(new)
    assert (world.devices(ending), world.devices(new)) == ({}, {_R: {"1"}})


def test_init_containers_hand_on_their_devices(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    world.connect(_R2, *_devices("3", "4"))
    asking = pod(
        init_containers=[container("i1", {_R: 1}), container("i2", {_R: 2})],
        containers=[container("c1", {_R: 1, _R2: 1}), container("c2", {_R: 1, _R2: 1})],
    )
    world.allocate(asking)
    given = {name: world.devices(asking, name)[_R] for name in ("i1", "i2", "c1", "c2")}
    assert given["i1"] < given["i2"]
    assert given["c1"] | given["c2"] == given["i2"] and not given["c1"] & given["c2"]


def test_containers_without_devices_are_not_looked_for(world: World) -> None:
    """The manager does not search for containers without devices.

    A pod may have thousands of them, and the sync loop waits for its admission.
    """

    class Unread(list[v1.Container]):
        def __iter__(self) -> Iterator[v1.Container]:
            raise AssertionError("nobody need look")

    many = pod(containers=[container("c")])
    many.spec.init_containers = Unread([container("i")])
    world.manager.allocate(many, many.spec.init_containers[0])
    world.manager.allocate(many, many.spec.containers[0])


def test_sidecars_keep_their_devices(world: World) -> None:
    world.connect(_R, *_devices("1", "2", "3", "4", "5", "6"))
    asking = pod(
        init_containers=[
            container("i", {_R: 3}),
            container("s1", {_R: 1}, "Always"),
            container("s2", {_R: 2}, "Always"),
        ],
        containers=[container("c1", {_R: 1}), container("c2", {_R: 2})],
    )
    world.allocate(asking)
    given = {name: world.devices(asking, name)[_R] for name in ("i", "s1", "s2", "c1", "c2")}
    assert given["s1"] | given["s2"] == given["i"]
    assert sorted(id for name in ("s1", "s2", "c1", "c2") for id in given[name]) == ["1", "2", "3", "4", "5", "6"]


def test_devices_are_given_once(world: World) -> None:
    plugin = world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    world.allocate(asking)
    assert plugin.calls == ["allocate 1"]
    with pytest.raises(AllocationError) as changed:
        world.allocate(pod(limits={_R: 2}))
    assert str(changed.value) == f'pod "pod" container "c" changed request for resource "{_R}" from 1 to 2'


def test_plugin_that_refuses(world: World) -> None:
    plugin = world.connect(_R, device("1"))
    plugin.err = ValueError("not today")
    with pytest.raises(ValueError, match="not today"):
        world.allocate(pod("one", {_R: 1}))
    plugin.err = None
    world.allocate(pod("two", {_R: 1}))
    assert plugin.calls == ["allocate 1", "allocate 1"]


def test_plugin_that_answers_nothing(world: World) -> None:
    world.connect(_R, device("1")).answer = pluginapi.AllocateResponse()
    with pytest.raises(AllocationError, match=f"no containers return in allocation response of device plugin {_R}"):
        world.allocate(pod(limits={_R: 1}))


def test_plugin_that_takes_its_time(world: World) -> None:
    """While a slow plugin allocates, other pods are admitted, but do not get its devices."""
    plugin = world.connect(_R, *_devices("1", "2"))
    plugin.hangs = True
    slow, other = pod("slow", {_R: 1}), pod("other", {_R: 1})
    for _ in range(2):
        with pytest.raises(DevicesAwaitedError) as waiting:
            world.allocate(slow)
        assert str(waiting.value) == f"waits for the device plugin of {_R} to allocate devices"
    plugin.hangs = False
    world.allocate(other)
    assert plugin.calls == ["allocate 1", "allocate 2"]
    with pytest.raises(AllocationError, match="Requested: 1, Available: 0"):
        world.allocate(pod("third", {_R: 1}))
    plugin.futures[0].answer()
    assert ("slow",) in _told(world)
    world.allocate(slow)
    assert (world.devices(slow), world.devices(other)) == ({_R: {"1"}}, {_R: {"2"}})


def test_plugin_that_takes_its_time_to_say_what_it_prefers(world: World) -> None:
    """The preference of a slow plugin counts only for devices that are still available when it responds."""
    options = pluginapi.DevicePluginOptions(get_preferred_allocation_available=True)
    plugin = world.connect(_R, *_devices("1", "2", "3"), options=options)
    plugin.hangs, plugin.preferred = True, ["2", "3"]
    slow = pod("slow", {_R: 2})
    for _ in range(2):
        with pytest.raises(DevicesAwaitedError) as waiting:
            world.allocate(slow)
        assert str(waiting.value) == f"waits for the device plugin of {_R} to say which devices it prefers"
    plugin.hangs, plugin.preferred = False, ["2"]
    world.allocate(pod("other", {_R: 1}))
    plugin.futures[0].answer()
    assert ("slow",) in _told(world)
    world.allocate(slow)
    assert plugin.calls == [
        "prefer 2 of 1 2 3 with",
        "prefer 1 of 1 2 3 with",
        "allocate 2",
        "allocate 1 3",
    ]


def test_plugin_that_does_not_say_what_it_prefers(world: World) -> None:
    options = pluginapi.DevicePluginOptions(get_preferred_allocation_available=True)
    plugin = world.connect(_R, *_devices("1", "2"), options=options)
    plugin.err = ValueError("no idea")
    for _ in range(2):
        with pytest.raises(AllocationError, match="GetPreferredAllocation rpc failed with err: no idea"):
            world.allocate(pod(limits={_R: 1}))
    assert plugin.calls == ["prefer 1 of 1 2 with"] * 2


def test_many_wait_for_a_plugin_that_hangs(world: World) -> None:
    """Of the pods that wait for a hanging plugin, only the first one delays the others."""
    plugin = world.connect(_R, *_devices("1", "2", "3"))
    plugin.hangs = True
    for name in ("one", "two", "three"):
        with pytest.raises(DevicesAwaitedError):
            world.allocate(pod(name, {_R: 1}))
    assert [future.patience for future in plugin.futures] == [[1.0], [0.0], [0.0]]


def test_plugin_that_refuses_late(world: World) -> None:
    plugin = world.connect(_R, device("1"))
    plugin.hangs, plugin.err = True, ValueError("not today")
    with pytest.raises(DevicesAwaitedError):
        world.allocate(pod("one", {_R: 1}))
    plugin.futures[0].answer()
    with pytest.raises(ValueError, match="not today"):
        world.allocate(pod("one", {_R: 1}))
    plugin.hangs, plugin.err = False, None
    world.allocate(pod("two", {_R: 1}))


def test_pod_that_ends_while_its_plugin_takes_its_time(world: World) -> None:
    plugin = world.connect(_R, device("1"))
    plugin.hangs = True
    with pytest.raises(DevicesAwaitedError):
        world.allocate(pod("one", {_R: 1}))
    world.active_pods, plugin.hangs = [], False
    world.allocate(pod("two", {_R: 1}))
    assert plugin.calls == ["allocate 1", "allocate 1"]


def test_no_healthy_devices(world: World) -> None:
    world.connect(_R, device("1", healthy=False))
    with pytest.raises(AllocationError) as refused:
        world.allocate(pod(limits={_R: 1}))
    assert str(refused.value) == f"no healthy devices present; cannot allocate unhealthy devices {_R}"


def test_device_that_is_not_healthy_any_more(world: World) -> None:
    world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    world.tell(_R, device("1", healthy=False), device("2"))
    with pytest.raises(AllocationError) as refused:
        world.allocate(asking)
    assert str(refused.value) == (
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {_R}"
    )


def test_resource_that_is_gone(world: World) -> None:
    world.connect(_R, device("1"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    world.disconnect(_R)
    world.clock.step(_AFTER_GRACE)
    world.capacity()
    with pytest.raises(AllocationError, match=f"cannot allocate unregistered device {_R}"):
        world.allocate(asking)


def test_resource_of_nobody(world: World) -> None:
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    assert world.devices(asking) == {}


@pytest.mark.parametrize("enabled", [True, False])
def test_extended_resource_of_a_claim(enabled: bool, world: World) -> None:
    world.connect(_R, device("1", healthy=False))
    asking = pod(limits={_R: 1})
    mapping = v1.ContainerExtendedResourceRequest(container_name="c", resource_name=_R)
    asking.status.extended_resource_claim_status = v1.PodExtendedResourceClaimStatus(request_mappings=[mapping])
    with featuregatetesting.set_feature_gate_during_test(
        features.feature_gate, features.DRA_EXTENDED_RESOURCE, enabled
    ):
        if enabled:
            world.allocate(asking)
        else:
            with pytest.raises(AllocationError):
                world.allocate(asking)


def test_filter_by_affinity(world: World) -> None:
    world.connect(_R, device("1", 1), device("2", 1, 2), device("3", 2), device("4", 2), device("none"))
    world.prefer_nodes(TopologyHint(BitMask(2), True))
    split = world.manager._filter_by_affinity("", "", _R, {"1", "2"})
    assert split == ({"2"}, {"1"}, set())
    split = world.manager._filter_by_affinity("", "", _R, {"1", "2", "3", "4", "none"})
    assert split == ({"2", "3", "4"}, {"1"}, {"none"})


# ---- The start of a container ----


def test_pre_start_container(world: World) -> None:
    plugin = world.connect(_R, device("1"), options=pluginapi.DevicePluginOptions(pre_start_required=True))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    world.manager.get_device_run_container_options(golang.background(), asking, asking.spec.containers[0])
    assert plugin.calls == ["allocate 1", "pre start 1"]
    plugin.err = RuntimeError("broken")
    with pytest.raises(AllocationError, match="device plugin PreStartContainer rpc failed with err: broken"):
        world.manager.get_device_run_container_options(golang.background(), asking, asking.spec.containers[0])


def test_plugin_that_registers_between_admission_and_start(world: World) -> None:
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    world.connect(_R, device("1"))
    options = world.manager.get_device_run_container_options(golang.background(), asking, asking.spec.containers[0])
    assert options is not None and world.devices(asking) == {_R: {"1"}}
    world.active_pods = []
    gone = pod("gone", {_R: 1})
    assert world.manager.get_device_run_container_options(golang.background(), gone, gone.spec.containers[0]) is None


def test_hints_for_a_pod_that_waits(world: World) -> None:
    """A pod that waits for a plugin, or for its allocation, is not rejected because no nodes have devices."""
    plugin = world.connect(_R, device("1", 0))
    world.disconnect(_R)
    asking = pod(limits={_R: 1})
    world.active_pods.append(asking)

    def hints() -> list[object]:
        found = world.manager.get_topology_hints(asking, asking.spec.containers[0])
        return [found, world.manager.get_pod_topology_hints(asking)]

    with pytest.raises(DevicesAwaitedError):
        world.manager.get_topology_hints(asking, asking.spec.containers[0])
    with pytest.raises(DevicesAwaitedError):
        world.manager.get_pod_topology_hints(asking)
    plugin = world.connect(_R, device("1", 0))
    assert _told(world) == [("pod",)]
    on_node_0 = {_R: [TopologyHint(BitMask(0), True)]}
    assert hints() == [on_node_0, on_node_0]
    plugin.hangs = True
    with pytest.raises(DevicesAwaitedError):
        world.allocate(asking)
    assert hints() == [on_node_0, on_node_0]
    world.clock.step(1000)
    world.disconnect(_R)
    world.clock.step(1000)
    other = pod("other", {_R: 1})
    assert world.manager.get_topology_hints(other, other.spec.containers[0]) == {_R: []}


def test_init_container_for_which_a_plugin_takes_its_time(world: World) -> None:
    """An init container's devices stay reserved for its pod while a slow plugin allocates them again.

    Other pods are admitted meanwhile.
    """
    plugin = world.connect(_R, device("1"))
    plugin.hangs = True
    asking = pod("asking", containers=[container("c", {_R: 1})], init_containers=[container("i", {_R: 1})])
    for number in range(2):
        with pytest.raises(DevicesAwaitedError):
            world.allocate(asking)
        with pytest.raises(AllocationError, match="Requested: 1, Available: 0"):
            world.allocate(pod("other", {_R: 1}))
        plugin.futures[number].answer()
    world.allocate(asking)
    assert (world.devices(asking, "i"), world.devices(asking)) == ({_R: {"1"}}, {_R: {"1"}})
    assert plugin.calls == ["allocate 1", "allocate 1"]


# ---- Restarts ----


def test_init_container_of_a_pod_that_runs(world: World, ctx: golang.Context) -> None:
    """An init container of a running pod has ended, and no longer needs its devices."""
    asking = pod(containers=[container("c")], init_containers=[container("i", {_R: 1})])
    world.connect(_R, device("1"))
    world.allocate(asking)
    _restarted(world, ctx, running=True)
    world.allocate(asking)
    assert world.devices(asking, "i") == {_R: {"1"}}
    _restarted(world, ctx, running=False)
    with pytest.raises(DevicesAwaitedError):
        world.allocate(asking)


class _CountingMap(ContainerMap):
    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_after_a_restart_no_container_is_looked_for_among_all(world: World, ctx: golang.Context) -> None:
    """The manager finds each container without a search, because a pod may have thousands."""
    asking = pod(
        containers=[container(name) for name in "abc"], init_containers=[container(name, {_R: 1}) for name in "xyz"]
    )
    world.connect(_R, device("1"))
    world.allocate(asking)
    containers = _CountingMap()
    containers.add("pod", "c", "running")
    world.sources.ready = False
    world.start(ctx, containers, {"running"})
    looks = containers.looks
    world.allocate(asking)
    assert containers.looks == looks


def test_containers_without_devices_are_asked_nothing_about_those_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.connect(_R, device("1"))
    world.allocate(pod("has", {_R: 1}))
    asking = pod("asking", {"cpu": 1, "memory": 1})
    monkeypatch.setattr(world.manager._pod_devices, "devices", raising(AssertionError()))
    monkeypatch.setattr(world.manager, "_active_pods", raising(AssertionError()))
    assert world.manager.get_topology_hints(asking, asking.spec.containers[0]) == {}
    world.manager.allocate(asking, asking.spec.containers[0])


def test_pod_that_waits_for_one_of_two_resources(world: World, ctx: golang.Context) -> None:
    """A pod that waits for one of two resources keeps the other one, even if the kubelet restarts meanwhile."""
    here, missing = world.connect(_R, *_devices("1", "2")), "example.com/missing"
    world.connect(missing, device("a"))
    world.disconnect(missing)
    asking = pod("asking", {_R: 1, missing: 1})
    with pytest.raises(DevicesAwaitedError, match=missing):
        world.allocate(asking)
    world.start(ctx)
    world.connect(_R, *_devices("1", "2"))
    other = pod("other", {_R: 1})
    world.allocate(other)
    world.connect(missing, device("a"))
    world.allocate(asking)
    assert (world.devices(asking), world.devices(other)) == ({_R: {"1"}, missing: {"a"}}, {_R: {"2"}})
    assert here.calls == ["allocate 1"]


def test_pod_that_waits_until_the_resource_is_gone(world: World) -> None:
    """A pod that waits for a resource that is then gone does not start without it, and is synced at once."""
    world.connect(_R, device("1"))
    world.disconnect(_R)
    asking = pod(limits={_R: 1})
    with pytest.raises(DevicesAwaitedError):
        world.allocate(asking)
    world.clock.step(ENDPOINT_STOP_GRACE_PERIOD + 1)
    assert world.capacity() == ({}, {}, [_R])
    assert _told(world) == [("pod",)]
    with pytest.raises(AllocationError, match=f"cannot allocate unregistered device {_R}"):
        world.allocate(asking)
    # No pod waits any longer, so the resource counts as unknown.
    world.active_pods = []
    world.manager.update_allocated_devices()
    world.allocate(pod("other", {_R: 1}))


def _restarted(world: World, ctx: golang.Context, running: bool, pod_uid: str = "pod") -> None:
    containers = ContainerMap()
    containers.add(pod_uid, "c", "old")
    containers.add(pod_uid, "c", "new")
    world.sources.ready = False
    world.start(ctx, containers, {"new"} if running else set())


def test_restart_of_the_kubelet(world: World, ctx: golang.Context) -> None:
    """After a restart of the kubelet a running container has its devices, although the plugin has not returned."""
    world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    _restarted(world, ctx, running=True)
    assert world.capacity() == ({_R: 0}, {_R: 0}, [])
    world.allocate(asking)
    assert world.devices(asking) == {_R: {"1"}}
    options = world.manager.get_device_run_container_options(golang.background(), asking, asking.spec.containers[0])
    assert options is not None and [each.name for each in options.envs] == ["RESOURCE1"]


def test_restart_of_the_node(world: World, ctx: golang.Context) -> None:
    """After a restart of the node a pod waits until its plugin has listed its devices."""
    world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    _restarted(world, ctx, running=False)
    with pytest.raises(DevicesAwaitedError) as waiting:
        world.allocate(asking)
    result = admission.get_pod_admit_result(waiting.value)
    assert (result.admit, result.wait) == (False, True)
    assert result.message == f"waits for the device plugin of {_R}, for 5 minutes at most"
    plugin = world.connect(_R, *_devices("1", "2"))
    update, _ = world.manager.updates().recv(30)
    assert update is not None and update.pod_uids == ("pod",)
    world.allocate(asking)
    # The pod has the same device as before.
    assert (plugin.calls, world.devices(asking)) == ([], {_R: {"1"}})


def test_plugins_are_awaited_only_if_that_is_wanted(world: World, ctx: golang.Context) -> None:
    """Without await_plugins a pod fails right after a restart, and when its plugin is gone."""
    world.await_plugins = False
    world.connect(_R, device("1", 0))
    _restarted(world, ctx, running=False)
    asking = pod(limits={_R: 1})
    with pytest.raises(AllocationError, match="no healthy devices present; cannot allocate unhealthy devices"):
        world.allocate(asking)
    world.connect(_R, device("1", 0))
    world.disconnect(_R)
    assert world.manager.get_topology_hints(asking, asking.spec.containers[0]) == {_R: []}
    with pytest.raises(AllocationError, match="no healthy devices present; cannot allocate unhealthy devices"):
        world.allocate(asking)


def test_plugin_that_does_not_come_back(world: World, ctx: golang.Context) -> None:
    world.connect(_R, device("1"))
    _restarted(world, ctx, running=False)
    world.clock.step(ENDPOINT_STOP_GRACE_PERIOD - 1)
    with pytest.raises(DevicesAwaitedError):
        world.allocate(pod(limits={_R: 1}))
    world.clock.step(2)
    with pytest.raises(AllocationError) as refused:
        world.allocate(pod(limits={_R: 1}))
    assert admission.get_pod_admit_result(refused.value) == lifecycle.PodAdmitResult(
        False,
        "UnexpectedAdmissionError",
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
        f"{_R}, which is unexpected",
    )


def test_plugin_that_is_restarted(world: World) -> None:
    world.connect(_R, device("1"))
    world.disconnect(_R)
    asking = pod(limits={_R: 1})
    with pytest.raises(DevicesAwaitedError):
        world.allocate(asking)
    world.connect(_R, device("1", healthy=False))
    # The plugin is back, but has no healthy devices.
    with pytest.raises(AllocationError, match="no healthy devices present"):
        world.allocate(asking)


def test_plugin_that_ends_when_another_has_come(world: World) -> None:
    old = world.connect(_R, device("1"))
    world.connect(_R, device("2"))
    world.manager.plugin_disconnected(_R, old)
    assert world.capacity() == ({_R: 1}, {_R: 1}, [])
    world.clock.step(ENDPOINT_STOP_GRACE_PERIOD + 1)
    assert world.capacity() == ({_R: 1}, {_R: 1}, [])
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    assert world.devices(asking) == {_R: {"2"}}


def test_plugin_that_is_gone_is_not_asked(world: World) -> None:
    plugin = world.connect(_R, *_devices("1", "2"), options=pluginapi.DevicePluginOptions(pre_start_required=True))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    endpoint = world.manager._endpoints[_R].e
    world.disconnect(_R)
    with pytest.raises(EndpointStoppedError, match=f"endpoint {_R} has been stopped"):
        endpoint.allocate(["2"])
    with pytest.raises(AllocationError, match="rpc failed with err: endpoint"):
        world.manager.get_device_run_container_options(golang.background(), asking, asking.spec.containers[0])
    assert plugin.calls == ["allocate 1"]


@pytest.mark.parametrize("damage", ["truncated", "changed", "of another version"])
def test_checkpoint_that_cannot_be_read(damage: str, world: World, ctx: golang.Context, log: io.StringIO) -> None:
    world.connect(_R, *_devices("1", "2"))
    world.allocate(pod(limits={_R: 1}))
    file = world.directory / "device-plugins" / KUBELET_DEVICE_MANAGER_CHECKPOINT
    text = file.read_text()
    match damage:
        case "truncated":
            file.write_text(text[: len(text) // 2])
        case "changed":
            file.write_text(text.replace('"1"', '"2"'))
        case _:
            file.write_text('{"version": "v9", "data": []}')
    world.start(ctx)
    assert world.capacity() == ({}, {}, [])
    assert f'path="{file}"' in log.getvalue()
    world.connect(_R, *_devices("1", "2"))
    assert world.capacity() == ({_R: 2}, {_R: 2}, [])


def test_pod_waits_while_the_checkpoint_cannot_be_written(world: World, ctx: golang.Context) -> None:
    world.connect(_R, *_devices("1", "2"))
    file = world.directory / "device-plugins" / KUBELET_DEVICE_MANAGER_CHECKPOINT
    file.unlink()
    file.mkdir()
    asking = pod(limits={_R: 1})
    why = 'failed to write checkpoint file "kubelet_internal_checkpoint"'
    for _ in range(2):
        with pytest.raises(CheckpointWriteError, match=why) as raised:
            world.allocate(asking)
        assert admission.get_pod_admit_result(raised.value).wait
    world.allocate(pod("without"))
    file.rmdir()
    world.allocate(asking)
    given = world.devices(asking)
    world.start(ctx)
    assert world.devices(asking) == given


def test_nothing_is_given_before_the_checkpoint_can_be_looked_at(
    world: World, ctx: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet allocates no devices before it can read the checkpoint.

    Otherwise other pods would get devices of running containers.
    """
    world.connect(_R, *_devices("1", "2"))
    asking = pod(limits={_R: 1})
    world.allocate(asking)
    given = world.devices(asking)
    err = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr(store.FileStore, "read", failing_once(store.FileStore.read, err))
    with pytest.raises(OSError, match="Too many open files"):
        world.start(ctx)
    world.start(ctx)
    assert world.devices(asking) == given


def test_node_that_was_made_anew(world: World, ctx: golang.Context) -> None:
    assert world.manager.should_reset_extended_resource_capacity()
    world.start(ctx)
    assert world.manager.should_reset_extended_resource_capacity()
    assert not world.start(ctx).should_reset_extended_resource_capacity()


def test_start_after_one_that_failed_later_on(
    world: World, ctx: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager starts again although the server of a failed start takes long to stop."""
    failed, cancel = golang.with_cancel(ctx)
    manager = world.start(failed)
    stopper = next(thread for thread in threading.enumerate() if thread.name == "device-plugin-server")
    disconnect_all, join, goes_on = manager._server.disconnect_all, stopper.join, threading.Event()

    def disconnect_slowly() -> None:
        assert goes_on.wait(30)
        disconnect_all()

    def wait(timeout: float) -> None:
        goes_on.set()
        join(timeout)

    monkeypatch.setattr(manager._server, "disconnect_all", disconnect_slowly)
    monkeypatch.setattr(stopper, "join", wait)
    cancel()
    manager.start(ctx, list, lambda uid: False, world.sources, ContainerMap(), set())
    goes_on.set()
    join(30)
    with socket.socket(socket.AF_UNIX) as registering:
        registering.connect(manager._server.socket_path)


def test_sockets_of_an_earlier_kubelet(world: World) -> None:
    directory = world.directory / "device-plugins"
    (directory / "file").write_text("")
    (directory / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / "plugin.sock"))
    world.manager.cleanup_plugin_directory(str(directory))
    assert sorted(path.name for path in directory.iterdir()) == ["directory", "file"]


# ---- Health ----


def test_no_server_goes_on_that_nobody_stops(world: World, ctx: golang.Context) -> None:
    with out_of_threads("device-plugin-server"), pytest.raises(golang.ThreadError):
        world.start(ctx)
    assert not list(world.directory.rglob("*.sock"))


def test_update_allocated_resources_status(world: World) -> None:
    world.connect(_R, *_devices("dev2", "dev1"))
    world.connect(_R2, device("dev1"))
    asking = pod(limits={_R: 2, _R2: 1})
    world.allocate(asking)
    world.tell(_R, device("dev1"), device("dev2", healthy=False))
    old = v1.ResourceStatus(name="claim:x/y")
    status = v1.PodStatus(
        container_statuses=[
            v1.ContainerStatus(name="c", allocated_resources_status=[old, v1.ResourceStatus(name=_R)]),
            v1.ContainerStatus(name="other"),
        ]
    )
    world.manager.update_allocated_resources_status(asking, status)
    assert [
        (each.name, [(health.resource_id, health.health) for health in each.resources])
        for each in status.container_statuses[0].allocated_resources_status
    ] == [
        ("claim:x/y", []),
        (_R, [("dev1", "Healthy"), ("dev2", "Unhealthy")]),
        (_R2, [("dev1", "Healthy")]),
    ]
    assert status.container_statuses[1].allocated_resources_status == []


def _told(world: World) -> list[tuple[str, ...]]:
    told = []
    while (received := world.manager.updates().try_recv())[2]:
        assert received[0] is not None
        told.append(received[0].pod_uids)
    return told


def test_pods_are_named_whose_devices_change(world: World) -> None:
    world.connect(_R, *_devices("1", "2", "3"))
    world.connect(_R2, device("1"))
    one, two, other = pod("one", {_R: 1}), pod("two", {_R: 1}), pod("other", {_R2: 1})
    for each in (one, two, other):
        world.allocate(each)
    world.tell(_R, *_devices("1", "2", "3"))
    world.tell(_R, device("1"), device("2"), device("3", healthy=False))
    assert _told(world) == []
    world.tell(_R, device("1", healthy=False), device("2"))
    assert _told(world) == [("one",)]
    # The disappearance of devices does not count as a change of health, but their return does.
    world.tell(_R)
    assert _told(world) == []
    world.tell(_R, *_devices("1", "2"))
    assert _told(world) == [("one", "two")]


def test_nobody_listens_to_news(world: World, log: io.StringIO) -> None:
    world.connect(_R, device("1"))
    world.allocate(pod(limits={_R: 1}))
    for number in range(102):
        world.tell(_R, device("1", healthy=bool(number % 2)))
    assert len(_told(world)) == 100
    assert log.getvalue().count("device update channel is full") == 2


def test_no_news_without_the_gate(world: World) -> None:
    world.connect(_R, device("1"))
    world.allocate(pod(limits={_R: 1}))
    with featuregatetesting.set_feature_gate_during_test(features.feature_gate, features.RESOURCE_HEALTH_STATUS, False):
        world.tell(_R, device("1", healthy=False))
    assert _told(world) == []
