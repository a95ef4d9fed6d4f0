"""Test what the cluster shows of devices: the node's capacity, refused and waiting pods, and the devices' health."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.apiserver.cluster import Cluster
from framework.cluster_node import RealKubelet, real_node
from framework.device_plugin import DevicePlugin
from framework.pod_history import PodHistory, Version
from framework.pods import Manifest, pod, sleeper

RESOURCE = "example.com/device"


OFTEN = {"nodeStatusUpdateFrequency": "500ms"}


@pytest.fixture(scope="module")
def node(cluster: Cluster, history: PodHistory) -> Iterator[RealKubelet]:
    """Yield a node whose pods wait for device plugins."""
    # The path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="devices-") as folder:
        flags = {"await-device-plugins": True}
        with real_node(Path(folder), "device-node", cluster, history, OFTEN, flags) as node:
            node.join()
            yield node


@pytest.fixture(scope="module")
def plugin(node: RealKubelet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevicePlugin]:
    """Yield a running plugin with two healthy devices. Each test leaves it in this state."""
    plugin = DevicePlugin(tmp_path_factory.mktemp("plugin"), RESOURCE, node.root_dir)
    plugin.offer(a=True, b=True)
    with plugin:
        wait_for_amounts(node, "2", "2")
        yield plugin


def wait_for_amounts(node: RealKubelet, capacity: str, allocatable: str) -> None:
    def look() -> bool:
        status = (node.api_object() or {})["status"]
        return (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)) == (capacity, allocatable)

    node.wait_for_condition(f"{allocatable} devices of {capacity}", look)


def user(name: str, count: int = 1) -> Manifest:
    return pod(name, sleeper(resources={"limits": {RESOURCE: count}, "requests": {RESOURCE: count}}))


def refused(node: RealKubelet, name: str) -> Version:
    return node.wait_for_api_pod(name, "is refused", lambda found: found.json["status"].get("phase") == "Failed")


def test_amounts_of_the_node(node: RealKubelet, plugin: DevicePlugin) -> None:
    plugin.offer(a=True, b=False, c=True)
    wait_for_amounts(node, "3", "2")
    plugin.kill()
    wait_for_amounts(node, "3", "0")
    plugin.offer(a=True, b=True)
    plugin.start()
    wait_for_amounts(node, "2", "2")


def test_refused_and_shown_with_its_devices(node: RealKubelet, plugin: DevicePlugin) -> None:
    node.create(user("owner"))
    node.wait_for_api_running("owner")
    node.create(user("late", 2))
    status = refused(node, "late").json["status"]
    fault = f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
    assert (status["reason"], fault in status["message"]) == ("UnexpectedAdmissionError", True)
    node.delete("late")

    plugin.offer(a=False, b=True)
    unhealthy = [{"name": RESOURCE, "resources": [{"resourceID": "a", "health": "Unhealthy"}]}]
    node.wait_for_api_pod(
        "owner",
        "has an unhealthy device",
        lambda found: found.statuses["main"].get("allocatedResourcesStatus") == unhealthy,
    )
    plugin.offer(a=True, b=True)
    node.delete("owner", 0)
    node.wait_until_gone("owner")


def test_cdi_devices(node: RealKubelet, tmp_path: Path) -> None:
    """A container gets the CDI names of its devices from a plugin that the kubelet finds by itself."""
    resource = "example.com/named"
    plugin = DevicePlugin(tmp_path, resource, node.root_dir, probed=True, cdi_kind="example.com/device")
    plugin.offer(x=True)
    with plugin:
        node.wait_for_condition("a device", lambda: resource in (node.api_object() or {})["status"]["allocatable"])
        limits = {"limits": {resource: 1}, "requests": {resource: 1}}
        node.create(pod("named", sleeper(resources=limits)))
        node.wait_for_api_running("named")
        config = node.calls("named", "CreateContainer")[-1].request.config
        assert [device.name for device in config.CDI_devices] == ["example.com/device=x"]
        assert [(env.key, env.value) for env in config.envs if env.key == "DEVICES"] == [("DEVICES", "x")]
        node.delete("named", 0)
        node.wait_until_gone("named")


def test_nobody_waits_for_a_plugin_unless_that_is_wanted(cluster: Cluster, history: PodHistory) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="devices-") as folder,
        real_node(Path(folder), "hasty-node", cluster, history, OFTEN) as node,
    ):
        node.join()
        plugin = DevicePlugin(Path(folder), RESOURCE, node.root_dir)
        plugin.offer(a=True)
        with plugin:
            wait_for_amounts(node, "1", "1")
        wait_for_amounts(node, "1", "0")
        node.create(user("hasty"))
        status = refused(node, "hasty").json["status"]
        fault = f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
        assert (status["reason"], fault in status["message"]) == ("UnexpectedAdmissionError", True)
        node.delete("hasty", 0)
        node.wait_until_gone("hasty")


def test_pods_wait_for_a_plugin(node: RealKubelet, plugin: DevicePlugin) -> None:
    """Two pods wait for a plugin without blocking each other, even over a restart of the kubelet.

    A third pod is deleted while it waits.
    """
    plugin.kill()
    wait_for_amounts(node, "2", "0")
    for name in ("first", "second", "third"):
        node.create(user(name))
    node.wait_for_condition(
        "events give the reason",
        lambda: all(node.events(name, "WaitingForResources") for name in ("first", "second", "third")),
    )
    (event,) = node.events("first", "WaitingForResources")
    assert (event["type"], event["message"]) == (
        "Warning",
        f"waits for the device plugin of {RESOURCE}, for 5 minutes at most",
    )
    node.delete("third", 0)
    node.wait_until_gone("third")
    node.kill()
    node.start()
    plugin.start()
    running = node.wait_for_api_running("first", "second")
    assert [each.statuses["main"]["restartCount"] for each in running] == [0, 0]
    for name in ("first", "second"):
        node.delete(name, 0)
        node.wait_until_gone(name)
