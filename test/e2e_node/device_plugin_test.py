"""Test devices of a real plugin: containers get them, and keep them over restarts of the plugin, kubelet and node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from framework.cri import CRIClient
from framework.device_plugin import DevicePlugin
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, Pod, pod, sleeper

from kubelet.apis.podresources import client
from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi

RESOURCE = "example.com/device"
# The kubelet must receive the response to a call within this many seconds.
TIMEOUT = 60
_REFUSED = "Pod was rejected: Allocate failed due to {}, which is unexpected"


@pytest.fixture(scope="module")
def plugin(kubelet: KubeletProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevicePlugin]:
    """Yield a running plugin with two healthy devices. Each test leaves it in this state."""
    plugin = DevicePlugin(tmp_path_factory.mktemp("plugin"), RESOURCE, kubelet.root_dir)
    plugin.offer(**{"dev-0": True, "dev-1": True})
    with plugin:
        kubelet.wait_for_condition("two allocatable devices", lambda: allocatable(kubelet) == {"dev-0", "dev-1"})
        yield plugin


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("devices", flags={"await-device-plugins": True})
    process.start()
    return process


@pytest.fixture(scope="module")
def user(kubelet: KubeletProcess, plugin: DevicePlugin) -> str:
    """Return the name of a running pod that has one device. Each test leaves the pod running."""
    kubelet.write(user_of("user", 1))
    kubelet.wait_for_running("user")
    return "user"


def user_of(name: str, count: int) -> Manifest:
    return pod(name, sleeper(resources={"limits": {RESOURCE: count}}))


def podresources(kubelet: KubeletProcess) -> podresourcesapi.ListPodResourcesResponse:
    stub, channel = client.get_v1_client(f"unix://{kubelet.root_dir}/pod-resources/kubelet.sock", TIMEOUT, 1 << 20)
    with channel:
        return stub.List(podresourcesapi.ListPodResourcesRequest(), timeout=TIMEOUT)


def allocatable(kubelet: KubeletProcess) -> set[str]:
    """Return the IDs of the devices that the kubelet considers healthy."""
    stub, channel = client.get_v1_client(f"unix://{kubelet.root_dir}/pod-resources/kubelet.sock", TIMEOUT, 1 << 20)
    with channel:
        found = stub.GetAllocatableResources(podresourcesapi.AllocatableResourcesRequest(), timeout=TIMEOUT)
    return {id for each in found.devices if each.resource_name == RESOURCE for id in each.device_ids}


def given(kubelet: KubeletProcess, name: str) -> list[str]:
    """List the IDs of a pod's devices."""
    for each in podresources(kubelet).pod_resources:
        if each.name == kubelet.full_name(name):
            return [id for device in each.containers[0].devices for id in device.device_ids]
    return []


def output(cri: CRIClient, pod: Pod, *command: str) -> str:
    done = cri.exec(pod.container_id(), *command)
    assert done.exit_code == 0, done.stderr
    return done.stdout.decode().strip()


def is_waiting(pod: Pod) -> bool:
    return pod.phase == "Pending" and not pod.container_id()


def test_container_has_its_device(kubelet: KubeletProcess, plugin: DevicePlugin, user: str, cri: CRIClient) -> None:
    (found,) = kubelet.wait_for_running(user)
    zero = os.stat("/dev/zero").st_rdev
    assert output(cri, found, "stat", "-c", "%t:%T %F", "/dev/dev-0") == (
        f"{os.major(zero):x}:{os.minor(zero):x} character special file"
    )
    assert output(cri, found, "head", "-c", "1", "/dev/dev-0") == "\0"
    assert output(cri, found, "sh", "-c", "echo $DEVICES; cat /opt/device/version") == "dev-0\n7"
    assert cri.exec(found.container_id(), "touch", "/opt/device/new").exit_code != 0
    assert given(kubelet, user) == ["dev-0"]
    assert (plugin.calls("Allocate"), plugin.calls("PreStartContainer")) == (["dev-0"], ["dev-0"])


def test_more_than_there_is(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    kubelet.write(user_of("greedy", 2))
    refused = kubelet.wait_for_pod("greedy", lambda found: found.phase == "Failed")
    fault = f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
    assert (refused.status["reason"], refused.status["message"]) == (
        "UnexpectedAdmissionError",
        _REFUSED.format(fault),
    )
    kubelet.remove("greedy")


def test_plugin_that_refuses(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    (plugin.state / "fail").touch()
    kubelet.write(user_of("unlucky", 1))
    refused = kubelet.wait_for_pod("unlucky", lambda found: found.phase == "Failed")
    assert "no allocation today" in refused.status["message"]
    (plugin.state / "fail").unlink()
    kubelet.remove("unlucky")


def test_plugin_that_takes_its_time(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    """A slow plugin delays its own pod, but no other."""
    (plugin.state / "hang").touch()
    kubelet.write(user_of("slow", 1))
    kubelet.wait_for_log(f"waits for the device plugin of {RESOURCE} to allocate devices")
    kubelet.write(pod("quick", sleeper()))
    kubelet.wait_for_running("quick")
    assert is_waiting(kubelet.pods()["slow"])
    (plugin.state / "hang").unlink()
    kubelet.wait_for_running("slow")
    assert plugin.calls("Allocate")[-1] == "dev-1"
    for name in ("slow", "quick"):
        kubelet.remove(name)
    kubelet.wait_for("the pods are gone", lambda pods: set(pods) == {user})


def test_health(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    def health(found: Pod) -> dict[str, str]:
        statuses = found.container().get("allocatedResourcesStatus") or []
        return {each["resourceID"]: each["health"] for status in statuses for each in status["resources"]}

    kubelet.wait_for_pod(user, lambda found: health(found) == {"dev-0": "Healthy"})
    plugin.offer(**{"dev-0": False, "dev-1": True})
    found = kubelet.wait_for_pod(user, lambda found: health(found) == {"dev-0": "Unhealthy"})
    assert found.running
    assert allocatable(kubelet) == {"dev-1"}
    plugin.offer(**{"dev-0": True, "dev-1": True})
    kubelet.wait_for_pod(user, lambda found: health(found) == {"dev-0": "Healthy"})


def test_plugin_goes_and_comes_back(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    (before,) = kubelet.wait_for_running(user)
    plugin.kill()
    kubelet.wait_for_condition("no allocatable devices", lambda: not allocatable(kubelet))
    kubelet.write(user_of("patient", 1))
    kubelet.wait_for_pod("patient", is_waiting)
    kubelet.wait_for_log(f"waits for the device plugin of {RESOURCE}")
    plugin.start()
    kubelet.wait_for_running("patient")
    assert (given(kubelet, user), given(kubelet, "patient")) == (["dev-0"], ["dev-1"])
    (after,) = kubelet.wait_for_running(user)
    assert after.container_id() == before.container_id()
    kubelet.remove("patient")
    kubelet.wait_for("the pod is gone", lambda pods: "patient" not in pods)


@pytest.mark.parametrize("plugin_runs", [True, False])
def test_kubelet_is_restarted(plugin_runs: bool, kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    """A running pod keeps running over a restart of the kubelet, with or without its plugin."""
    (before,) = kubelet.wait_for_running(user)
    kubelet.kill()
    if not plugin_runs:
        plugin.kill()
    kubelet.start()
    (after,) = kubelet.wait_for_running(user)
    assert after.container_id() == before.container_id()
    kubelet.wait_for_condition("the pod's device", lambda: given(kubelet, user) == ["dev-0"])
    if not plugin_runs:
        plugin.start()
    kubelet.wait_for_condition("two allocatable devices", lambda: allocatable(kubelet) == {"dev-0", "dev-1"})


def test_node_is_restarted(kubelet: KubeletProcess, plugin: DevicePlugin, user: str, cri: CRIClient) -> None:
    """After a restart of the node, a pod waits for its plugin and gets its device.

    No container runs, and the kubelet starts before the plugin.
    """
    (before,) = kubelet.wait_for_running(user)
    kubelet.kill()
    plugin.kill()
    for sandbox in cri.sandboxes(kubelet.full_name(user)):
        cri.remove_sandbox(sandbox.id)
    kubelet.start()
    kubelet.wait_for_pod(user, is_waiting)
    waits = f"waits for the device plugin of {RESOURCE}"
    kubelet.wait_for_condition("an explanation of the wait", lambda: waits in str(kubelet.explained(user)))
    assert not cri.running_containers(kubelet.full_name(user))
    plugin.start()
    (after,) = kubelet.wait_for_running(user)
    assert (after.uid, output(cri, after, "sh", "-c", "echo $DEVICES")) == (before.uid, "dev-0")


def test_checkpoint_that_is_damaged(kubelet: KubeletProcess, plugin: DevicePlugin, user: str) -> None:
    checkpoint = kubelet.root_dir / "device-plugins/kubelet_internal_checkpoint"
    kubelet.kill()
    checkpoint.write_text(checkpoint.read_text()[:-20])
    kubelet.start()
    kubelet.wait_for_condition("two allocatable devices", lambda: allocatable(kubelet) == {"dev-0", "dev-1"})
    assert kubelet.logged("Continue after failing to read checkpoint file", str(checkpoint))
    kubelet.wait_for_running(user)
