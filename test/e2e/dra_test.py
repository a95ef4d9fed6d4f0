"""Test device claims that a driver prepares: what containers get, and what the PodResources API shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from framework.cluster_client import Namespace
from framework.dra import PREPARE, UNPREPARE, DRADriver, allocated, claim, with_claims
from framework.local_cluster import Environment, LocalCluster
from framework.pods import Manifest, pod, sleeper
from framework.volumes import looker, once, told
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, ResourceV1Api

from kubelet.apis.podresources import get_v1_client
from kubelet.apis.podresources.v1 import api_pb2 as podresources

pytestmark = pytest.mark.local

DRIVER = "gpu.e2e.example"
TIMEOUT = 120.0


@pytest.fixture(scope="module")
def driver(local: LocalCluster, environment: Environment) -> Iterator[DRADriver]:
    root = local.kubelet.root_dir
    with DRADriver(local.folder, DRIVER, root, local.folder / "cdi", {"pool": environment.node}) as driver:
        driver.wait_for_call("NotifyRegistrationStatus", timeout=TIMEOUT)
        yield driver


def describes_devices(namespace: Namespace) -> bool:
    """Report whether the runtime supports CDI. containerd before 1.7 ignores CDI devices silently."""
    node = namespace.core.read_node(namespace.node)
    found = re.match(r"containerd://v?(\d+)\.(\d+)", node.status.node_info.container_runtime_version)
    return found is None or (int(found[1]), int(found[2])) >= (1, 7)


def start(namespace: Namespace, manifest: Manifest) -> str:
    """Create a pod, bind it once the claim of its name is allocated, and return the claim's UID."""
    name = manifest["metadata"]["name"]
    claims = ResourceV1Api(namespace.api)
    made = claims.create_namespaced_resource_claim(namespace.name, claim(name, [DRIVER]))
    bound = with_claims({**manifest, "spec": {**manifest["spec"], "schedulerName": "nobody"}}, mine=name)
    uid = namespace.create(bound, node="").metadata.uid
    status = allocated([DRIVER], [(name, uid)], namespace.node)
    claims.patch_namespaced_resource_claim_status(name, namespace.name, {"status": status})
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": namespace.node}}
    # The client expects a binding as the response, but the server sends a status.
    namespace.core.create_namespaced_pod_binding(name, namespace.name, binding, _preload_content=False)
    return str(made.metadata.uid)


def asked(driver: DRADriver, method: str, name: str) -> int:
    return sum(name in names for names in driver.asked(method))


def test_container_has_its_devices(namespace: Namespace, driver: DRADriver) -> None:
    driver.give("looks", {"device": "gpu-1"}, {"device": "gpu-2"})
    script = "env | grep DEVICE_ | sort; cat /devices/*/name || true"
    uid = start(namespace, once("looks", looker(script)))
    seen = told(namespace, "looks")
    if describes_devices(namespace):
        lines = ["DEVICE_GPU_1=looks", "DEVICE_GPU_2=looks", f"gpu-1 of {DRIVER}", f"gpu-2 of {DRIVER}"]
        assert seen.splitlines() == lines
    else:
        assert "DEVICE_GPU" not in seen
    request = driver.calls(PREPARE)[-1].request
    assert request == {"claims": [{"namespace": namespace.name, "uid": uid, "name": "looks"}]}
    # Once a pod's containers have ended, the pod no longer uses the devices.
    wait_for(
        "the kubelet has unprepared the claim", lambda: asked(driver, UNPREPARE, "looks"), TIMEOUT, driver.describe
    )
    assert not [each for each in driver.prepared() if uid in each]


def test_pod_resources_api_has_claims(
    core: CoreV1Api, local: LocalCluster, namespace: Namespace, driver: DRADriver
) -> None:
    driver.give("listed", {"device": "gpu-7"})
    uid = start(namespace, pod("listed", sleeper()))
    namespace.wait_for_running("listed")
    client, channel = get_v1_client(f"unix://{local.kubelet.root_dir}/pod-resources/kubelet.sock", 60, 1 << 20)
    with channel:
        listed = client.List(podresources.ListPodResourcesRequest()).pod_resources
    (found,) = (each for each in listed if (each.namespace, each.name) == (namespace.name, "listed"))
    device: dict[str, Any] = {"driver_name": DRIVER, "pool_name": namespace.node, "device_name": "gpu-7"}
    cdi = [podresources.CDIDevice(name=f"{DRIVER}/claim={uid}-gpu-7")]
    resource = podresources.DynamicResource(
        claim_name="listed",
        claim_namespace=namespace.name,
        claim_resources=[podresources.ClaimResource(cdi_devices=cdi, **device)],
    )
    assert list(found.containers[0].dynamic_resources) == [resource]
    core.delete_namespaced_pod("listed", namespace.name)
    namespace.wait_deleted("listed")
    assert asked(driver, UNPREPARE, "listed") == 1
