"""Test the pod resources API.

Go: pkg/kubelet/apis/podresources/server_v1_test.go, server_v1alpha1_test.go, client_test.go, pkg/kubelet/apis/grpc
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.waiting import wait_for

from kubelet import metrics
from kubelet.apis import grpc as apisgrpc
from kubelet.apis import podresources
from kubelet.apis.grpc import requests
from kubelet.apis.grpc.testing import silent_calls
from kubelet.apis.podresources import server as podresources_server
from kubelet.apis.podresources.v1 import api_pb2 as v1api
from kubelet.apis.podresources.v1 import api_pb2_grpc as v1grpc
from kubelet.apis.podresources.v1alpha1 import api_pb2 as v1alpha1api
from kubelet.apis.podresources.v1alpha1 import api_pb2_grpc as v1alpha1grpc
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.featuregate import testing as featuretesting

NUMA = v1api.TopologyInfo(nodes=[v1api.NUMANode(ID=1)])
DEVICES = [v1api.ContainerDevices(resource_name="resource", device_ids=["dev0", "dev1"], topology=NUMA)]
CPUS = [12, 23, 30]
MEMORY = [
    v1api.ContainerMemory(memory_type="memory", size=1 << 30, topology=NUMA),
    v1api.ContainerMemory(memory_type="hugepages-1Gi", size=1 << 30, topology=NUMA),
]
CLAIMS = [
    v1api.DynamicResource(
        claim_name="claim",
        claim_namespace="default",
        claim_resources=[
            v1api.ClaimResource(
                cdi_devices=[v1api.CDIDevice(name="dra-dev0")],
                driver_name="dra.example.com",
                pool_name="pool",
                device_name="gpu-1",
                share_id="share",
            )
        ],
    )
]


@dataclass
class Node(podresources.NothingAssigned):
    """Implement all providers."""

    pods: list[v1.Pod] = field(default_factory=list)
    active: list[v1.Pod] = field(default_factory=list)
    updates: int = 0
    given: str = "c"
    err: Exception | None = None

    def get_active_pods(self) -> list[v1.Pod]:
        return self.active

    def get_pods(self) -> list[v1.Pod]:
        return self.pods

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        return next((p for p in self.active if (p.metadata.namespace, p.metadata.name) == (namespace, name)), None)

    def update_allocated_devices(self) -> None:
        if self.err is not None:
            raise self.err
        self.updates += 1

    def get_devices(self, pod_uid: str, container_name: str) -> list[v1api.ContainerDevices]:
        assert pod_uid == "uid"
        return DEVICES if container_name == self.given else []

    def get_allocatable_devices(self) -> list[v1api.ContainerDevices]:
        return DEVICES

    def get_cpus(self, pod_uid: str, container_name: str) -> list[int]:
        return CPUS if container_name == self.given else []

    def get_allocatable_cpus(self) -> list[int]:
        return CPUS

    def get_memory(self, pod_uid: str, container_name: str) -> list[v1api.ContainerMemory]:
        return MEMORY if container_name == self.given else []

    def get_allocatable_memory(self) -> list[v1api.ContainerMemory]:
        return MEMORY

    def get_dynamic_resources(self, pod: v1.Pod, container: v1.Container) -> list[v1api.DynamicResource]:
        return CLAIMS if container.name == self.given else []

    def providers(self) -> podresources.PodResourcesProviders:
        return podresources.PodResourcesProviders(self, self, self, self, self)


def pod(name: str = "pod") -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID("uid")),
        spec=v1.PodSpec(
            init_containers=[
                v1.Container(name="init"),
                v1.Container(name="sidecar", restart_policy=v1.CONTAINER_RESTART_POLICY_ALWAYS),
            ],
            containers=[v1.Container(name="c")],
        ),
    )


@dataclass
class Running:
    node: Node
    endpoint: str
    v1: v1grpc.PodResourcesListerStub
    v1alpha1: v1alpha1grpc.PodResourcesListerStub


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Provide a server with clients. It ends with the test, and leaves no socket."""
    node = Node([pod(), pod("ended")], [pod()])
    endpoint = f"unix://{tmp_path}/kubelet.sock"
    ctx, cancel = golang.with_cancel(golang.background())
    serve = podresources_server.listen_and_serve_pod_resources
    thread = golang.go(serve, ctx, endpoint, node.providers(), name="server")
    wait_for("the socket", (tmp_path / "kubelet.sock").exists)
    stub, channel = podresources.get_v1_client(endpoint, 30, 1 << 20)
    alpha_stub, alpha_channel = podresources.get_v1alpha1_client(endpoint, 30, 1 << 20)
    yield Running(node, endpoint, stub, alpha_stub)
    channel.close()
    alpha_channel.close()
    cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def count(metric: str, version: str = "v1") -> float:
    metrics.register()
    found = metrics.get_gather().get_sample_value(
        f"kubelet_pod_resources_endpoint_{metric}", {"server_api_version": version}
    )
    return found or 0.0


def containers(sidecar_has: bool = False) -> list[v1api.ContainerResources]:
    has: dict[str, Any] = {"devices": DEVICES, "cpu_ids": CPUS, "memory": MEMORY, "dynamic_resources": CLAIMS}
    return [
        v1api.ContainerResources(name="sidecar", **(has if sidecar_has else {})),
        v1api.ContainerResources(name="c", **({} if sidecar_has else has)),
    ]


@pytest.mark.parametrize("given", ["sidecar", "c"])
def test_list(running: Running, given: str) -> None:
    running.node.given = given
    before = count("requests_total"), count("requests_list")
    answer = running.v1.List(v1api.ListPodResourcesRequest())
    wanted = v1api.PodResources(name="pod", namespace="ns", containers=containers(given == "sidecar"))
    assert answer == v1api.ListPodResourcesResponse(pod_resources=[wanted])
    assert running.node.updates == 1
    assert (count("requests_total"), count("requests_list")) == (before[0] + 1, before[1] + 1)


def test_list_with_pods_that_have_ended() -> None:
    node = Node([pod(), pod("ended")], [pod()])
    with featuretesting.set_feature_gate_during_test(
        features.feature_gate, features.KUBELET_POD_RESOURCES_LIST_USE_ACTIVE_PODS, False
    ):
        server = podresources.V1PodResourcesServer(node.providers())
    answer = server.List(v1api.ListPodResourcesRequest(), None)  # type: ignore[arg-type]
    assert [each.name for each in answer.pod_resources] == ["pod", "ended"]


def test_get(running: Running) -> None:
    before = count("requests_get"), count("errors_get")
    answer = running.v1.Get(v1api.GetPodResourcesRequest(pod_name="pod", pod_namespace="ns"))
    assert answer.pod_resources == v1api.PodResources(name="pod", namespace="ns", containers=containers())
    assert (count("requests_get"), count("errors_get")) == (before[0] + 1, before[1])


@pytest.mark.parametrize(("namespace", "name"), [("ns", "ended"), ("other", "pod"), ("", "")])
def test_get_of_a_pod_that_is_not_there(running: Running, namespace: str, name: str) -> None:
    before = count("errors_get")
    with pytest.raises(grpc.RpcError) as failure:
        running.v1.Get(v1api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace))
    assert failure.value.code() is grpc.StatusCode.UNKNOWN
    assert failure.value.details() == f"pod {name} in namespace {namespace} not found"
    assert count("errors_get") == before + 1


def test_get_allocatable_resources(running: Running) -> None:
    before = count("requests_get_allocatable")
    answer = running.v1.GetAllocatableResources(v1api.AllocatableResourcesRequest())
    assert answer == v1api.AllocatableResourcesResponse(devices=DEVICES, cpu_ids=CPUS, memory=MEMORY)
    assert count("requests_get_allocatable") == before + 1


def test_failures_are_counted(running: Running) -> None:
    running.node.err = RuntimeError("broken")
    before = count("errors_list")
    with pytest.raises(grpc.RpcError, match="broken"):
        running.v1.List(v1api.ListPodResourcesRequest())
    assert count("errors_list") == before + 1


def test_first_version(running: Running) -> None:
    before = count("requests_total", "v1alpha1")
    answer = running.v1alpha1.List(v1alpha1api.ListPodResourcesRequest())
    assert [each.name for each in answer.pod_resources] == ["pod", "ended"]
    devices = v1alpha1api.ContainerDevices(resource_name="resource", device_ids=["dev0", "dev1"])
    assert list(answer.pod_resources[0].containers) == [v1alpha1api.ContainerResources(name="c", devices=[devices])]
    assert count("requests_total", "v1alpha1") == before + 1


def test_node_that_assigns_nothing() -> None:
    nothing = podresources.NothingAssigned()
    providers = podresources.PodResourcesProviders(Node(active=[pod()]), nothing, nothing, nothing, nothing)
    server = podresources.V1PodResourcesServer(providers)
    answer = server.List(v1api.ListPodResourcesRequest(), None)  # type: ignore[arg-type]
    assert [each.name for each in answer.pod_resources[0].containers] == ["sidecar", "c"]
    assert answer.pod_resources[0].containers[1] == v1api.ContainerResources(name="c")
    request = v1api.AllocatableResourcesRequest()
    allocatable = server.GetAllocatableResources(request, None)  # type: ignore[arg-type]
    assert allocatable == v1api.AllocatableResourcesResponse()


def test_socket_is_the_owner_s_alone(running: Running) -> None:
    mode = os.stat(running.endpoint.removeprefix("unix://")).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_left_over_socket_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").write_text("left over")
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    endpoint = f"unix://{tmp_path}/kubelet.sock"
    podresources_server.listen_and_serve_pod_resources(ctx, endpoint, Node().providers())
    assert list(tmp_path.iterdir()) == []


def test_socket_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    endpoint = f"unix://{tmp_path}/file/kubelet.sock"
    with pytest.raises(OSError, match="file"):
        podresources_server.listen_and_serve_pod_resources(golang.background(), endpoint, Node().providers())


def test_client_of_a_socket_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="error dialing socket"):
        podresources.get_v1_client(f"unix://{tmp_path}/none.sock", 0.1, 1 << 20)


def test_too_many_requests_are_refused(running: Running) -> None:
    request = v1api.AllocatableResourcesRequest()
    codes = set()
    calls = [running.v1.GetAllocatableResources.future(request) for _ in range(200)]
    for call in calls:
        codes.add(call.code())
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert next(call.details() for call in calls if call.code() is not grpc.StatusCode.OK) == "rejected by rate limit"


def test_calls_without_a_request_keep_no_thread_from_others(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT", 0.01)
    with silent_calls(running.endpoint, "/v1.PodResourcesLister/List", 3) as calls:
        assert [call.code() for call in calls] == [grpc.StatusCode.CANCELLED] * 3
        assert running.v1.List(v1api.ListPodResourcesRequest(), timeout=30).pod_resources


def test_limiter_decides() -> None:
    class Limiter:
        allows = True

        def try_accept(self) -> bool:
            return self.allows

    limiter = Limiter()
    interceptor = apisgrpc.LimiterUnaryServerInterceptor(limiter)
    assert interceptor.intercept_service(lambda details: ("served", details), "d") == ("served", "d")
    limiter.allows = False
    assert interceptor.intercept_service(lambda details: ("served", details), "d") is interceptor._refusal
