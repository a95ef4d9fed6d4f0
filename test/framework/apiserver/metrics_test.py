"""Test the usage of nodes and pods that the metrics server reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.apiserver.client import Client
from framework.apiserver.interfaces import Object
from framework.apiserver.metrics import GROUP, MetricsServer
from pkg.apimachinery.clock.testing import FakeClock

NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


class Kubelets:
    """Respond as kubelets: the node uses 0.2 cores and a container 0.1, since the clock's start."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.start = self.clock.now().timestamp()
        self.scrapes = 0
        self.err: Exception | None = None
        # These are the start time of the container and the existing containers.
        self.started = self.start - 100
        self.containers = ["main"]
        self.broken = ""

    def scrape(self, node: Object) -> str:
        self.scrapes += 1
        if self.err is not None:
            raise self.err
        if self.broken:
            return self.broken
        now = self.clock.now().timestamp()
        moment = int(now * 1000)
        lines = [
            f"node_cpu_usage_seconds_total {(now - self.start) * 0.2} {moment}",
            f"node_memory_working_set_bytes 1.048576e+06 {moment}",
            f'pod_cpu_usage_seconds_total{{namespace="default",pod="web"}} 7 {moment}',
        ]
        for name in self.containers:
            labels = f'{{container="{name}",namespace="default",pod="web"}}'
            lines.append(f"container_cpu_usage_seconds_total{labels} {(now - self.started) * 0.1} {moment}")
            lines.append(f"container_memory_working_set_bytes{labels} 4096 {moment}")
            lines.append(f"container_start_time_seconds{labels} {self.started}")
        return "\n".join(f"{line}" for line in lines) + "\n"


@pytest.fixture
def kubelets() -> Kubelets:
    return Kubelets()


@pytest.fixture
def client(kubelets: Kubelets) -> Iterator[Client]:
    server = APIServer(
        aggregated={GROUP: MetricsServer(lambda: server.store, kubelets.scrape, kubelets.clock)},
    )
    with server:
        server.store.create("nodes", {"metadata": {"name": "n", "labels": {"zone": "a"}}})
        pod = {
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]},
        }
        server.store.create("pods", pod)
        server.store.patch("pods", "web", {"status": {"phase": "Running"}}, "default", subresource="status")
        with Client(server.port) as client:
            yield client


def get(client: Client, path: str) -> Any:
    code, answer = client.call("GET", path)
    assert code == 200, answer
    return answer


def test_nodes(client: Client, kubelets: Kubelets) -> None:
    """The first request waits a second for its second sample, and the next requests use these samples."""
    answer = get(client, NODES)
    assert (answer["kind"], answer["apiVersion"]) == ("NodeMetricsList", "metrics.k8s.io/v1beta1")
    (node,) = answer["items"]
    assert node["usage"] == {"cpu": "200000000n", "memory": "1024Ki"}
    assert (node["metadata"]["name"], node["metadata"]["labels"]) == ("n", {"zone": "a"})
    assert node["window"] == "1.000s"
    assert get(client, f"{NODES}/n")["usage"] == node["usage"]
    assert kubelets.scrapes == 2, "a sample that is less than a second old is reused"


def test_pods(client: Client, kubelets: Kubelets) -> None:
    (pod,) = get(client, PODS)["items"]
    assert pod["containers"] == [{"name": "main", "usage": {"cpu": "100000000n", "memory": "4Ki"}}]
    assert pod["metadata"]["namespace"] == "default"
    assert get(client, f"{PODS}/web")["kind"] == "PodMetrics"
    assert get(client, f"{PODS}?labelSelector=app%3Dother")["items"] == []
    assert len(get(client, "/apis/metrics.k8s.io/v1beta1/pods")["items"]) == 1


def test_later_answers_are_of_the_time_since(client: Client, kubelets: Kubelets) -> None:
    get(client, NODES)
    kubelets.clock.step(30)
    (node,) = get(client, NODES)["items"]
    assert node["window"] == "30.000s"
    assert kubelets.scrapes == 3


def test_container_that_started_again(client: Client, kubelets: Kubelets) -> None:
    get(client, PODS)
    kubelets.clock.step(10)
    kubelets.started = kubelets.clock.now().timestamp() - 2
    (pod,) = get(client, PODS)["items"]
    assert pod["window"] == "2.000s"
    assert pod["containers"][0]["usage"]["cpu"] == "100000000n"


def test_pod_of_which_not_all_is_known(client: Client, kubelets: Kubelets) -> None:
    kubelets.containers = ["another"]
    assert get(client, PODS)["items"] == []
    code, answer = client.call("GET", f"{PODS}/web")
    assert (code, answer["message"]) == (404, 'pods.metrics.k8s.io "web" not found')


@pytest.mark.parametrize("err", [OSError("connection refused"), ValueError("answers 403")])
def test_kubelet_that_does_not_answer(client: Client, kubelets: Kubelets, err: Exception) -> None:
    kubelets.err = err
    assert get(client, NODES)["items"] == []
    kubelets.err = None
    assert len(get(client, NODES)["items"]) == 1


def test_page_that_makes_no_sense(client: Client, kubelets: Kubelets) -> None:
    kubelets.broken = "<html>"
    assert get(client, NODES)["items"] == []


def test_writes_are_refused(client: Client) -> None:
    assert client.call("DELETE", f"{PODS}/web")[0] == 405
    assert client.call("GET", f"{NODES}?watch=1")[0] == 405


def test_without_metrics_server() -> None:
    with APIServer() as server, Client(server.port) as client:
        assert client.call("GET", NODES)[0] == 503
        assert GROUP in {group["name"] for group in get(client, "/apis")["groups"]}
