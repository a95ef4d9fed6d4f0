"""Test resource claims: a driver prepares them before a pod's containers are created, and unprepares them afterwards.

The kubelet is the real one, on the hollow runtime, which runs nothing. The driver is a separate program.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from csi_driver import faults
from framework import dra
from framework.apiserver.cluster import Cluster
from framework.cluster_node import RealKubelet, real_node
from framework.dra import PREPARE, UNPREPARE, DRADriver, allocate, bind, put_claim
from framework.pod_history import PodHistory
from framework.pods import pod, sleeper

NODE = "dra-node"
DRIVER, OLD = "gpu.example.com", "old.example.com"
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def node(cluster: Cluster, history: PodHistory) -> Iterator[RealKubelet]:
    with tempfile.TemporaryDirectory(prefix="dra-") as name, real_node(Path(name), NODE, cluster, history) as node:
        node.join()
        yield node


@pytest.fixture(scope="module")
def driver(node: RealKubelet) -> Iterator[DRADriver]:
    with new_driver(node, DRIVER) as driver:
        driver.let(PREPARE, faults.FAIL, volume="fails", message="no power")
        driver.let(UNPREPARE, faults.FAIL, volume="fails", message="still in use")
        start(node, "fails", DRIVER)
        yield driver


def new_driver(node: RealKubelet, name: str, **options: object) -> DRADriver:
    return DRADriver(node.root_dir.parent, name, node.root_dir, options={"pool": NODE, **options})


def start(node: RealKubelet, name: str, *drivers: str) -> str:
    """Create a pod with a claim of its own, which has the pod's name, and return the claim's UID."""
    return dra.start(node, pod(name, sleeper()), *drivers)


def put_pod(node: RealKubelet, name: str, **claims: str) -> None:
    dra.put_pod(node, pod(name, sleeper()), **claims)


def devices_of(node: RealKubelet, name: str) -> list[str]:
    """List the CDI devices in the last request to create a container of the pod."""
    config = node.calls(name, "CreateContainer")[-1].request.config
    return [device.name for device in config.CDI_devices]


def end(node: RealKubelet, *names: str) -> None:
    for name in names:
        node.delete(name)
    for name in names:
        node.wait_until_gone(name, timeout=TIMEOUT)


def asked(driver: DRADriver, method: str, name: str) -> int:
    """Return how many calls of the method have succeeded for the claim."""
    return sum(name in names for names in driver.asked(method))


def test_claim_is_prepared_and_given_back(node: RealKubelet, driver: DRADriver) -> None:
    driver.give("plain", {"device": "gpu-1"}, {"device": "gpu-2", "requests": ["device"]})
    uid = start(node, "plain", DRIVER)
    node.wait_for_api_running("plain")
    ids = [f"{DRIVER}/claim={uid}-gpu-1", f"{DRIVER}/claim={uid}-gpu-2"]
    assert devices_of(node, "plain") == ids
    assert set(ids) <= set(driver.prepared())
    request = {"claims": [{"namespace": "default", "uid": uid, "name": "plain"}]}
    # The driver also gets repeated calls for the pod whose preparation fails.
    assert request in [call.request for call in driver.calls(PREPARE)]
    node.wait_for_condition("the driver's registration", lambda: driver.calls("NotifyRegistrationStatus"), TIMEOUT)
    end(node, "plain")
    assert (asked(driver, PREPARE, "plain"), asked(driver, UNPREPARE, "plain")) == (1, 1)
    assert not set(ids) & set(driver.prepared())


def test_two_pods_share_a_claim(node: RealKubelet, driver: DRADriver) -> None:
    """Two pods share a claim of two drivers, one of which knows only the older version of the service."""
    with new_driver(node, OLD, services="v1beta1.DRAPlugin") as old:
        old.wait_for_call("NotifyRegistrationStatus", timeout=TIMEOUT)
        put_claim(node, "shared", DRIVER, OLD)
        for name in ("first", "second"):
            put_pod(node, name, ours="shared")
        allocate(node, "shared", ["first", "second"], DRIVER, OLD)
        for name in ("first", "second"):
            bind(node, name)
            node.wait_for_api_running(name)
        assert len(devices_of(node, "first")) == 2
        assert devices_of(node, "first") == devices_of(node, "second")
        end(node, "first")
        for each in (driver, old):
            assert (asked(each, PREPARE, "shared"), asked(each, UNPREPARE, "shared")) == (1, 0)
        end(node, "second")
        for each in (driver, old):
            assert (asked(each, PREPARE, "shared"), asked(each, UNPREPARE, "shared")) == (1, 1)


def test_claim_that_the_pod_may_not_use(node: RealKubelet, driver: DRADriver) -> None:
    """A pod that may not use a claim ends normally, and the claim's owner keeps its devices."""
    start(node, "owner", DRIVER)
    put_pod(node, "thief", mine="owner")
    bind(node, "thief")
    node.wait_for_api_event("thief", "FailedPrepareDynamicResources", "is not allowed to use ResourceClaim owner")
    node.wait_for_api_running("owner")
    end(node, "thief")
    assert asked(driver, UNPREPARE, "owner") == 0
    end(node, "owner")
    assert asked(driver, UNPREPARE, "owner") == 1


def test_driver_that_is_not_there(node: RealKubelet) -> None:
    start(node, "waits", "late.example.com")
    reason = "prepare dynamic resources: DRA driver late.example.com is not registered"
    node.wait_for_api_event("waits", "FailedPrepareDynamicResources", reason)
    with new_driver(node, "late.example.com") as late:
        node.wait_for_api_running("waits")
        late.stop()
        node.delete("waits")
        # No other pod may get the device until the driver has unprepared the claim. So the deletion must wait for the
        # driver.
        node.wait_for_condition("the pod's containers are gone", lambda: node.calls("waits", "StopPodSandbox"), TIMEOUT)
        late.start()
        node.wait_until_gone("waits", timeout=TIMEOUT)
        assert asked(late, UNPREPARE, "waits") == 1


def test_health_of_devices_is_in_the_status(node: RealKubelet, driver: DRADriver) -> None:
    driver.give("healthy", {"device": "gpu-9"})
    uid = start(node, "healthy", DRIVER)
    node.wait_for_api_running("healthy")

    def shown(health: str, message: str | None) -> None:
        resource = {"resourceID": f"{DRIVER}/claim={uid}-gpu-9", "health": health}
        if message is not None:
            resource["message"] = message
        expected = [{"name": "claim:mine", "resources": [resource]}]
        node.wait_for_api_pod(
            "healthy", health, lambda seen: seen.container().get("allocatedResourcesStatus") == expected
        )

    driver.tell_health(gpu_9=("UNHEALTHY", "hot"))
    shown("Unhealthy", "hot")
    driver.tell_health(gpu_9=("HEALTHY", ""))
    shown("Healthy", None)
    end(node, "healthy")


def test_driver_that_fails_is_asked_again(node: RealKubelet, driver: DRADriver) -> None:
    text = "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for "
    node.wait_for_api_event("fails", "FailedPrepareDynamicResources", f"{text}ResourceClaim fails: no power")
    node.wait_for_api_running("fails")
    end(node, "fails")
    assert (asked(driver, PREPARE, "fails"), asked(driver, UNPREPARE, "fails")) == (2, 2)


def test_kubelet_and_driver_start_again(node: RealKubelet, driver: DRADriver) -> None:
    """After a restart, a new container has its pod's devices.

    The devices of a pod that was deleted meanwhile are released.
    """
    uid = start(node, "stays", DRIVER)
    start(node, "goes", DRIVER)
    node.wait_for_api_running("stays", "goes")
    node.kill()
    driver.kill()
    store = node.cluster.store
    store.delete("pods", "goes", "default", grace_period_seconds=0)
    for name, owner in (("mine", NODE), ("of-another", "another")):
        spec = {"nodeName": owner, "driver": DRIVER, "pool": {"name": owner, "generation": 1, "resourceSliceCount": 1}}
        store.create("resourceslices", {"metadata": {"name": name}, "spec": spec})
    _try_with_half_a_checkpoint(node)
    driver.start()
    node.join()
    node.runtime.end_container(node.container_ids("stays")[0], 1)
    node.wait_for_condition("a new container", lambda: len(node.calls("stays", "CreateContainer")) == 2, TIMEOUT)
    assert devices_of(node, "stays") == [f"{DRIVER}/claim={uid}-of-stays"]
    node.wait_for_condition("the deleted pod's devices are released", lambda: asked(driver, UNPREPARE, "goes"), TIMEOUT)
    assert asked(driver, UNPREPARE, "stays") == 0
    # The kubelet deletes its node's resource slices, because it does not know which drivers will come back.
    node.wait_for_condition(
        "the node's resource slices are gone",
        lambda: [each["metadata"]["name"] for each in store.list("resourceslices")] == ["of-another"],
        TIMEOUT,
    )
    end(node, "stays")
    assert asked(driver, UNPREPARE, "stays") == 1


def _try_with_half_a_checkpoint(node: RealKubelet) -> None:
    """Check that the kubelet does not start with a truncated checkpoint.

    Without the checkpoint the kubelet could not release the devices of the claims in it.
    """
    checkpoint = node.root_dir / "dra_manager_state"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: len(content) // 2])
    node.spawn()
    assert node.wait_for_exit(TIMEOUT) != 0
    said = node.end_of_log()
    assert f"cannot read {checkpoint}: failed to get checkpoint dra_manager_state" in said
    assert "please drain the node and remove the DRA state file" in said
    checkpoint.write_bytes(content)
