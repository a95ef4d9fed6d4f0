"""Test the record of containers' devices.

Go: pkg/kubelet/cm/devicemanager/pod_devices_test.go
"""

from __future__ import annotations

import io

import pytest

from kubelet import container as kubecontainer
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager.checkpoint import DevicesPerNUMA
from kubelet.cm.devicemanager.pod_devices import PodDevices, ResourceDeviceInstances
from kubelet.cm.devicemanager.testing import device, response
from kubelet.cm.devicemanager.types import DeviceRunContainerOptions

_RESOURCE, _OTHER = "domain1.com/resource1", "domain2.com/resource2"


def test_device_of_two_nodes() -> None:
    devices = PodDevices()
    devices.insert("pod1", "con1", _RESOURCE, DevicesPerNUMA({0: ["dev1"], 1: ["dev1"], -1: ["dev2"]}), response())
    found = devices.get_container_devices("pod1", "con1")[_RESOURCE]
    assert [node.ID for node in found["dev1"].topology.nodes] == [0, 1]
    assert not found["dev2"].HasField("topology")
    assert devices.container_devices("pod1", "con1", _RESOURCE) == {"dev1", "dev2"}


def test_filter() -> None:
    known = ResourceDeviceInstances(
        {name: {f"{name}{number}": device(f"{name}{number}") for number in (1, 2, 3)} for name in ("foo", "bar", "baz")}
    )
    assert known.filter({}) == {}
    some = known.filter({"foo": {"foo1", "foo2", "foo4"}, "bar": {"bar1"}, "qux": {"qux1"}})
    assert {name: sorted(ids) for name, ids in some.items()} == {"foo": ["foo1", "foo2"], "bar": ["bar1"]}
    assert known.filter({name: known[name].keys() for name in known}) == known


def _options(*responses: pluginapi.ContainerAllocateResponse) -> DeviceRunContainerOptions:
    devices = PodDevices()
    for number, each in enumerate(responses):
        devices.insert("pod", "container", f"example{number}.com/resource", DevicesPerNUMA(), each)
    options = devices.device_run_container_options("pod", "container")
    assert options is not None
    return options


def test_no_options() -> None:
    assert _options(response()) == DeviceRunContainerOptions()
    assert PodDevices().device_run_container_options("pod", "container") is None


@pytest.mark.parametrize(
    ("responses", "names"),
    [
        ([("v1.com/c=1", "v2.com/c=2")], ["v1.com/c=1", "v2.com/c=2"]),
        ([("v1.com/c=1",), ("v3.com/c=3", "v4.com/c=4")], ["v1.com/c=1", "v3.com/c=3", "v4.com/c=4"]),
        ([("v1.com/c=1", "v2.com/c=2"), ("v2.com/c=2", "v3.com/c=3")], ["v1.com/c=1", "v2.com/c=2", "v3.com/c=3"]),
    ],
    ids=["one resource", "multiple resources", "duplicates are skipped"],
)
def test_cdi_devices(responses: list[tuple[str, ...]], names: list[str]) -> None:
    options = _options(*(response(cdi_devices=each) for each in responses))
    assert [each.name for each in options.cdi_devices] == names


def test_where_plugins_disagree_the_first_one_counts(log: io.StringIO) -> None:
    options = _options(
        response({"/dev/a": "/dev/1"}, {"/lib": "/usr/lib1"}, {"E": "1"}, {"A": "1"}),
        response({"/dev/a": "/dev/2", "/dev/b": "/dev/3"}, {"/lib": "/usr/lib2"}, {"E": "2", "F": "2"}, {"A": "2"}),
    )
    assert options == DeviceRunContainerOptions(
        envs=[kubecontainer.EnvVar("E", "1"), kubecontainer.EnvVar("F", "2")],
        devices=[
            kubecontainer.DeviceInfo("/dev/1", "/dev/a", "mrw"),
            kubecontainer.DeviceInfo("/dev/3", "/dev/b", "mrw"),
        ],
        mounts=[kubecontainer.Mount(name="/lib", container_path="/lib", host_path="/usr/lib1", read_only=True)],
        annotations=[kubecontainer.Annotation("A", "1")],
    )
    assert log.getvalue().count("conflicting") == 4


def test_whose_a_device_is() -> None:
    devices = PodDevices()
    devices.insert("pod1", "con1", _RESOURCE, DevicesPerNUMA({0: ["dev1"]}), response())
    devices.insert("pod2", "con1", _OTHER, DevicesPerNUMA({0: ["dev1"]}), response())
    assert devices.get_pods_for_devices(_RESOURCE, {"dev1", "dev3"}) == {"pod1"}
    assert devices.get_pods_for_devices(_OTHER, {"dev1"}) == {"pod2"}
    assert devices.get_pods_for_devices(_RESOURCE, {"dev2"}) == set()


def test_resources_of_which_somebody_has_devices() -> None:
    devices = PodDevices()
    for pod_uid, resource in (("one", _RESOURCE), ("two", _RESOURCE), ("two", _OTHER)):
        devices.insert(pod_uid, "c", resource, DevicesPerNUMA({0: [pod_uid]}), response())
    assert devices.has_resource(_RESOURCE) and devices.has_resource(_OTHER)
    devices.delete(["two"])
    assert devices.has_resource(_RESOURCE) and not devices.has_resource(_OTHER)
    devices.delete(["one"])
    assert not devices.has_resource(_RESOURCE)


def test_there_and_back() -> None:
    devices, again = PodDevices(), PodDevices()
    devices.insert("pod", "con", _RESOURCE, DevicesPerNUMA({0: ["a"], 1: ["b"]}), response(envs={"x": "y"}))
    data = devices.to_checkpoint_data()
    again.from_checkpoint_data([data[0].__class__("pod", "bad", _RESOURCE, {0: ["c"]}, b"\xff\xff"), *data])
    assert again.devices() == {_RESOURCE: {"a", "b"}}
    assert again.device_run_container_options("pod", "con") == devices.device_run_container_options("pod", "con")
