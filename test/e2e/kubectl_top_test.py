"""Test `kubectl top`, and the metrics pages that it and Prometheus read: the usage of nodes, pods and containers."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from framework import kubectl as kubectls
from framework.cluster_client import Namespace, is_true
from framework.containerd import BUSYBOX
from framework.local_cluster import Environment
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

pytestmark = pytest.mark.kubectl

# A new pod has usage figures after at most this many seconds. A cluster's own metrics server scrapes periodically and
# needs two scrapes; the local cluster's scrapes on demand.
MEASURED_WITHIN = 180

# A busy container gets more than this many thousandths of a CPU even on a busy machine; an idle one uses fewer.
SOME = 30
# One container keeps this many mebibytes in memory.
KEPT = 24
BUSY = "trap exit TERM; while :; do :; done"
IDLE = f"trap exit TERM; dd if=/dev/zero of=/keep/x bs=1M count={KEPT}; touch /keep/done; sleep 1000 & wait"
# promtool exits with 0 if a page is fine, and with 3 if it only dislikes names of metrics. The names are upstream's.
_READABLE = (0, 3)


class Kubectl:
    """Run kubectl in the tests' namespace."""

    def __init__(self, environment: Environment, namespace: Namespace) -> None:
        self._kubectl = kubectls.Kubectl(kubectls.newest(), environment.kubeconfig, namespace.name)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of kubectl. Raise AssertionError with kubectl's messages if it fails."""
        done = self._kubectl.run(*arguments, stdin=stdin.encode())
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout.decode()}{done.stderr.decode()}"
        return done.stdout.decode()


@pytest.fixture(scope="module")
def kubectl(environment: Environment, namespace: Namespace) -> Kubectl:
    return Kubectl(environment, namespace)


@pytest.fixture(scope="module", autouse=True)
def pods(namespace: Namespace) -> None:
    """Create a pod that is busy up to its limit, and one that keeps data in memory."""
    limits = {"limits": {"cpu": "300m", "memory": "64Mi"}}
    keep = {"name": "keep", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}}
    containers: list[dict[str, Any]] = [
        {"name": "busy", "image": BUSYBOX, "command": ["sh", "-c", BUSY], "resources": limits},
        {
            "name": "idle",
            "image": BUSYBOX,
            "command": ["sh", "-c", IDLE],
            "volumeMounts": [{"name": "keep", "mountPath": "/keep"}],
            # A readiness probe would keep the container busy, so this is a startup probe.
            "startupProbe": {
                "exec": {"command": ["test", "-e", "/keep/done"]},
                "periodSeconds": 1,
                "timeoutSeconds": 10,
                "failureThreshold": 100,
            },
        },
    ]
    for name, container in zip(("works", "keeps"), containers, strict=True):
        namespace.create(
            {
                "metadata": {"name": name, "labels": {"app": name}},
                "spec": {"containers": [container], "volumes": [keep], "terminationGracePeriodSeconds": 1},
            }
        )
    namespace.wait_for_running("works")
    namespace.wait_for("keeps", "has written its data", lambda pod: is_true(pod, "Ready"))


def rows(table: str) -> dict[str, list[str]]:
    """Map the first column of each row, without the header, to the row's other columns."""
    return {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:]}


def millicores(text: str) -> int:
    assert text.endswith("m"), text
    return int(text[:-1])


def mebibytes(text: str) -> int:
    assert text.endswith("Mi"), text
    return int(text[:-2])


def top(kubectl: Kubectl, *arguments: str) -> str:
    """Return the table of kubectl once it lists both pods, because new containers may not have been measured yet."""

    def look() -> str:
        table = kubectl("top", *arguments)
        return table if {"works", "keeps"} <= rows(table).keys() else ""

    return wait_for("the usage of both pods", look, MEASURED_WITHIN)


@pytest.fixture(scope="module")
def metrics_server(environment: Environment, kubectl: Kubectl) -> None:
    """Skip the test if the cluster has no metrics server. The local cluster has a metrics server."""
    if environment.local is None and "metrics.k8s.io/" not in kubectl("api-versions"):
        pytest.skip("the cluster has no metrics server")


@pytest.mark.usefixtures("metrics_server")
def test_nodes(kubectl: Kubectl, namespace: Namespace) -> None:
    top(kubectl, "pods")
    cores, share, memory, memory_share = rows(kubectl("top", "nodes"))[namespace.node]
    assert millicores(cores) > SOME, "the node uses less than the busy pod alone"
    assert mebibytes(memory) > KEPT
    assert share.endswith("%")
    assert memory_share.endswith("%")


@pytest.mark.usefixtures("metrics_server")
def test_pods(kubectl: Kubectl) -> None:
    table = top(kubectl, "pods", "--sort-by=cpu")
    found = rows(table)
    assert list(found) == ["works", "keeps"], "the busier pod is not first"
    assert SOME < millicores(found["works"][0]) < 400, "the busy pod does not use about its limit of 300m"
    assert millicores(found["keeps"][0]) < SOME
    assert KEPT <= mebibytes(found["keeps"][1]) < 2 * KEPT
    assert mebibytes(found["works"][1]) < KEPT


@pytest.mark.usefixtures("metrics_server")
def test_containers(kubectl: Kubectl) -> None:
    top(kubectl, "pods")
    name, cores, memory = rows(kubectl("top", "pod", "works", "--containers"))["works"]
    assert name == "busy"
    assert millicores(cores) > SOME
    assert mebibytes(memory) >= 0
    assert set(rows(kubectl("top", "pods", "-l", "app=keeps"))) == {"keeps"}


@pytest.mark.usefixtures("metrics_server")
def test_pod_that_is_not_there(kubectl: Kubectl) -> None:
    with pytest.raises(AssertionError, match=r'pods.metrics.k8s.io "none" not found'):
        kubectl("top", "pod", "none")


def page(kubectl: Kubectl, namespace: Namespace, path: str) -> str:
    return kubectl("get", "--raw", f"/api/v1/nodes/{namespace.node}/proxy{path}")


def samples(text: str) -> list[Sample]:
    """Return all samples of a page. Fail if a sample occurs twice, because Prometheus rejects such a page."""
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    times = Counter((sample.name, frozenset(sample.labels.items())) for sample in found)
    assert [key for key, count in times.items() if count > 1] == []
    return found


def measured(kubectl: Kubectl, namespace: Namespace, path: str) -> list[Sample]:
    """Return a page's samples once it has figures of both pods. A kubelet may measure only periodically."""

    def look() -> list[Sample]:
        found = samples(page(kubectl, namespace, path))
        here, memory = {"namespace": namespace.name}, "container_memory_working_set_bytes"
        idle = labelled(found, memory, container="idle", **here)
        busy = labelled(found, "container_cpu_usage_seconds_total", container="busy", **here)
        # Not every page has figures of whole pods and of throttling.
        idle_pod = labelled(found, memory, container="", name="", pod="keeps", **here)
        pods = labelled(found, "pod_cpu_usage_seconds_total", **here)
        throttled = labelled(found, "container_cpu_cfs_throttled_periods_total", container="busy", **here)
        kept = all(s.value > KEPT << 20 for s in [*idle, *idle_pod])
        worked = all(s.value for s in [*busy, *pods, *throttled])
        return found if idle and busy and kept and worked else []

    return wait_for(f"figures of both pods on {path}", look, MEASURED_WITHIN)


def labelled(found: list[Sample], metric: str, /, **labels: str) -> list[Sample]:
    return [s for s in found if s.name == metric and labels.items() <= s.labels.items()]


def one(found: list[Sample], metric: str, /, **labels: str) -> Sample:
    (sample,) = labelled(found, metric, **labels)
    return sample


def test_page_of_containers(kubectl: Kubectl, namespace: Namespace) -> None:
    """The cAdvisor page has the figures that dashboards use, for containers, whole pods, and their network."""
    found = measured(kubectl, namespace, "/metrics/cadvisor")
    pod = {"namespace": namespace.name, "pod": "works"}
    busy = one(found, "container_cpu_usage_seconds_total", container="busy", **pod)
    assert busy.value > 0
    assert busy.timestamp is not None
    assert busy.labels["cpu"] == "total"
    assert busy.labels["image"].endswith(BUSYBOX.rpartition("/")[2])
    assert busy.labels["id"].endswith(busy.labels["name"])
    assert one(found, "container_spec_cpu_quota", container="busy", **pod).value == 30000
    assert one(found, "container_spec_memory_limit_bytes", container="busy", **pod).value == 64 << 20
    assert one(found, "container_cpu_cfs_throttled_periods_total", container="busy", **pod).value > 0
    assert one(found, "container_processes", container="busy", **pod).value == 1
    keeps = {"namespace": namespace.name, "pod": "keeps"}
    memory = {s.labels["container"]: s.value for s in labelled(found, "container_memory_working_set_bytes", **keeps)}
    assert memory["idle"] > KEPT << 20
    whole = one(found, "container_memory_working_set_bytes", container="", name="", **keeps)
    assert whole.value > KEPT << 20
    # The page counts a pod's network once, for its sandbox, so that a sum over the pod's containers is right.
    received = one(found, "container_network_receive_packets_total", interface="eth0", **pod)
    assert received.labels["container"] == ""
    assert "pause" in received.labels["image"]
    machine = one(found, "container_memory_working_set_bytes", id="/")
    assert machine.value < one(found, "machine_memory_bytes").value
    assert one(found, "container_fs_limit_bytes", id="/", device=root_device(found)).value > 0
    assert one(found, "container_scrape_error").value == 0


def root_device(found: list[Sample]) -> str:
    """Return the device with the largest file system. On the machines of these tests that is the root file system."""
    limits = labelled(found, "container_fs_limit_bytes", id="/")
    return max(limits, key=lambda sample: sample.value).labels["device"]


def test_page_for_metrics_server(kubectl: Kubectl, namespace: Namespace) -> None:
    found = measured(kubectl, namespace, "/metrics/resource")
    pod = {"namespace": namespace.name, "pod": "works"}
    assert one(found, "container_cpu_usage_seconds_total", container="busy", **pod).value > 0
    assert one(found, "container_memory_working_set_bytes", container="busy", **pod).timestamp is not None
    assert one(found, "container_start_time_seconds", container="busy", **pod).value > 1.7e9
    whole = one(found, "pod_cpu_usage_seconds_total", **pod).value
    assert one(found, "node_cpu_usage_seconds_total").value > whole > 0
    assert one(found, "pod_memory_working_set_bytes", **pod).value > 0
    assert one(found, "resource_scrape_error").value == 0


@pytest.fixture(scope="module")
def reader_token(kubectl: Kubectl, namespace: Namespace) -> Iterator[str]:
    """Yield the token of a service account that may read nodes' metrics, as metrics-server's account may."""
    role = f"{namespace.name}-metrics"
    kubectl("create", "serviceaccount", "reader")
    api = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]
    binding = {
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace.name}],
    }
    for kind, content in (("ClusterRole", {"rules": rules}), ("ClusterRoleBinding", binding)):
        manifest = {"apiVersion": f"{api}/v1", "kind": kind, "metadata": {"name": role}, **content}
        kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield kubectl("create", "token", "reader").strip()
    finally:
        kubectl("delete", f"clusterrole/{role}", f"clusterrolebinding/{role}")


@pytest.mark.local
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/metrics/resource", 200),
        ("/metrics/cadvisor", 200),
        ("/metrics", 200),
        ("/stats/summary", 403),
        ("/pods", 403),
        ("/run/default/works/busy", 403),
    ],
)
def test_metrics_server_asks_the_node_itself(
    core: CoreV1Api, environment: Environment, reader_token: str, path: str, code: int
) -> None:
    """A metrics server reads the kubelet's pages with its own token.

    The kubelet asks the API server to verify the token.
    """
    node = core.read_node(environment.node)
    address = next(address.address for address in node.status.addresses if address.type == "InternalIP")
    port = node.status.daemon_endpoints.kubelet_endpoint.port
    assert ask(address, port, path, {"Authorization": f"Bearer {reader_token}"}) == code
    assert ask(address, port, path, {"Authorization": "Bearer made-up"}) == 401


def ask(address: str, port: int, path: str, headers: dict[str, str]) -> int:
    # The kubelet serves with a self-signed certificate, which metrics-server accepts with --kubelet-insecure-tls.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, port, timeout=30, context=context)
    try:
        connection.request("GET" if not path.startswith("/run/") else "POST", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.local
@pytest.mark.parametrize("path", ["/metrics/cadvisor", "/metrics/resource"])
def test_promtool_reads_the_page(kubectl: Kubectl, namespace: Namespace, path: str) -> None:
    text = page(kubectl, namespace, path)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in _READABLE, done.stderr
