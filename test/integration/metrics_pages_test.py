"""Test what a running kubelet exposes: pages of metrics, traces, and the resources of its containers."""

from __future__ import annotations

import gzip
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, shell, sleeper
from prometheus_client.parser import text_string_to_metric_families

from kubelet.apis import podresources
from kubelet.apis.podresources.v1 import api_pb2 as podresourcesapi
from pkg.component_base.tracing import testing as tracingtesting

NODE = "node-1"
PAGES = ("/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/metrics/slis")
# promtool exits with 0 if a page is fine, and with 3 if it only dislikes names of metrics. The names are upstream's.
_LINTED = (0, 3)
_UPSTREAM = Path(__file__).parents[2] / "kubelet/metrics/testdata/upstream.tsv"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

# These metrics, with these labels, must change when pods start and end.
MOVED: tuple[tuple[str, dict[str, str]], ...] = (
    ("kubelet_active_pods", {"static": "true"}),
    ("kubelet_cgroup_version", {}),
    ("kubelet_containers_per_pod_count_count", {}),
    ("kubelet_desired_pods", {"static": "true"}),
    ("kubelet_http_requests_total", {"method": "GET", "path": "healthz", "server_type": "readonly"}),
    ("kubelet_http_requests_duration_seconds_count", {"path": "healthz"}),
    ("kubelet_image_manager_ensure_image_requests_total", {}),
    ("kubelet_image_pull_duration_seconds_count", {}),
    ("kubelet_image_volume_mounted_succeed_total", {}),
    ("kubelet_image_volume_requested_total", {}),
    ("kubelet_metrics_provider", {"provider": "cadvisor"}),
    ("kubelet_node_name", {"node": NODE}),
    ("kubelet_orphaned_runtime_pods_total", {}),
    ("kubelet_pleg_last_seen_seconds", {}),
    ("kubelet_pleg_pod_relist_duration_seconds_count", {}),
    ("kubelet_pleg_relist_duration_seconds_count", {}),
    ("kubelet_pleg_relist_interval_seconds_count", {}),
    ("kubelet_pod_start_duration_seconds_count", {}),
    ("kubelet_pod_worker_duration_seconds_count", {"operation_type": "create"}),
    ("kubelet_pod_worker_start_duration_seconds_count", {}),
    ("kubelet_run_podsandbox_duration_seconds_count", {"runtime_handler": ""}),
    ("kubelet_run_podsandbox_errors_total", {"runtime_handler": ""}),
    ("kubelet_running_containers", {"container_state": "running"}),
    ("kubelet_running_pods", {}),
    ("kubelet_runtime_operations_duration_seconds_count", {"operation_type": "run_podsandbox"}),
    ("kubelet_runtime_operations_errors_total", {"operation_type": "start_container"}),
    ("kubelet_runtime_operations_total", {"operation_type": "start_container"}),
    ("kubelet_started_containers_errors_total", {"container_type": "container"}),
    ("kubelet_started_containers_total", {"container_type": "container"}),
    ("kubelet_started_containers_total", {"container_type": "init_container"}),
    ("kubelet_started_pods_errors_total", {}),
    ("kubelet_started_pods_total", {}),
    ("kubelet_started_user_namespaced_pods_errors_total", {}),
    ("kubelet_started_user_namespaced_pods_total", {}),
    ("kubelet_terminated_containers_total", {"container_type": "init_container", "exit_code": "0"}),
    ("kubelet_working_pods", {"lifecycle": "sync", "config": "desired", "static": "true"}),
    ("kubernetes_build_info", {"git_version": "v1.36.2", "major": "1"}),
    ("kubernetes_feature_enabled", {"name": "GracefulNodeShutdown", "stage": "BETA"}),
    ("process_start_time_seconds", {}),
    ("reconstruct_volume_operations_total", {}),
    ("registered_metrics_total", {"stability_level": "ALPHA"}),
    ("storage_operation_duration_seconds_count", {"volume_plugin": "kubernetes.io/empty-dir"}),
    ("volume_operation_total_seconds_count", {"plugin_name": "kubernetes.io/empty-dir"}),
    ("volume_manager_total_volumes", {"state": "actual_state_of_world"}),
)


@pytest.fixture(scope="module")
def collector() -> Iterator[tracingtesting.Collector]:
    with tracingtesting.Collector() as running:
        yield running


def of_sandboxes(spans: list[Any]) -> set[str]:
    """Return the pods whose syncs created sandboxes.

    The span of a sync arrives only when the sync has ended, after the spans of its calls.
    """
    syncs = {(span.trace_id, span.span_id): span for span in spans if span.name == "syncPod"}
    made = [span for span in spans if span.name == "runtime.v1.RuntimeService/RunPodSandbox"]
    found = [syncs.get((span.trace_id, span.parent_span_id)) for span in made]
    return {tracingtesting.attributes(sync)["k8s.pod.name"] for sync in found if sync is not None}


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory: pytest.TempPathFactory, collector: tracingtesting.Collector) -> Iterator[HollowKubelet]:
    """Yield a kubelet, started twice, whose pods run, fail, are probed, or are gone. The kubelet traces everything."""
    config = {"tracing": {"endpoint": collector.endpoint, "samplingRatePerMillion": 1_000_000}}
    node = HollowKubelet(tmp_path_factory.mktemp("metrics"), NODE, config)
    node.environment["OTEL_BSP_SCHEDULE_DELAY"] = "100"
    volume, mount = {"name": "empty", "emptyDir": {}}, {"name": "empty", "mountPath": "/empty"}
    image = {"name": "image", "image": {"reference": "files"}}
    probe = {"periodSeconds": 1, "tcpSocket": {"port": 1}}
    node.write_all(
        pod("runs", sleeper(volumeMounts=[mount]), volumes=[volume]),
        pod("left", sleeper()),
    )
    node.runtime.faults.fail("StartContainer", "no", sandbox=f"broken-{NODE}")
    node.runtime.faults.fail("RunPodSandbox", "no", sandbox=f"homeless-{NODE}")
    node.runtime.faults.fail("RunPodSandbox", "no", sandbox=f"private-{NODE}", times=1)
    node.server.start()
    try:
        node.start()
        node.wait_for_running("runs", "left")
        # The kill loses every span that the kubelet has not sent by then.
        collector.wait_for(lambda spans: of_sandboxes(spans) == {f"runs-{NODE}", f"left-{NODE}"})
        # The next kubelet finds a pod that is no longer wanted, and volumes that it must reconstruct.
        node.kill()
        (node.manifests / "left.json").unlink()
        node.write_all(
            pod("goes", sleeper(), initContainers=[shell("true", "init")]),
            pod("probed", sleeper(readinessProbe=probe)),
            pod("broken", sleeper()),
            pod("homeless", sleeper()),
            pod("private", sleeper(), hostUsers=False),
            pod("image", sleeper(volumeMounts=[{"name": "image", "mountPath": "/image"}]), volumes=[image]),
        )
        node.start()
        node.wait_for_running("runs", "goes", "private", "image")
        (node.manifests / "goes.json").unlink()
        node.wait_for("the removed pod is gone", lambda pods: "goes" not in pods)
        node.get("/healthz")
        yield node
    finally:
        node.end()


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_promtool_reads_every_page(kubelet: HollowKubelet) -> None:
    """Every page is readable by promtool, which complains only about names that upstream has too."""
    upstream = {line.split("\t")[0] for line in _UPSTREAM.read_text().splitlines()}
    for page in PAGES:
        text = kubelet.get(page)
        assert samples(text), page
        check = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert check.returncode in _LINTED, f"{page}: {check.stderr}"
        complaints = [line for line in (check.stdout + check.stderr).splitlines() if line.strip()]
        named = {line.split()[0] for line in complaints}
        # The list of upstream's metrics comes from a machine without visible file systems and load.
        assert {name for name in named if not name.startswith(("container_fs_", "container_cpu_load_"))} <= upstream, (
            page
        )


def test_metrics_move(kubelet: HollowKubelet) -> None:
    def still() -> list[tuple[str, dict[str, str]]]:
        moved = [(name, set(labels)) for (name, labels), value in samples(kubelet.get("/metrics")).items() if value > 0]
        return [
            (name, labels)
            for name, labels in MOVED
            if not any(key == name and set(labels.items()) <= of for key, of in moved)
        ]

    try:
        kubelet.wait_for_condition("all metrics have moved", lambda: not still())
    finally:
        assert still() == []


def test_probes_have_a_page_of_their_own(kubelet: HollowKubelet) -> None:
    wanted = {("probe_type", "Readiness"), ("result", "failed"), ("container", "main"), ("pod", f"probed-{NODE}")}

    def counted() -> bool:
        found = samples(kubelet.get("/metrics/probes"))
        return any(name == "prober_probe_total" and wanted <= labels for name, labels in found)

    kubelet.wait_for_condition("the failed probe is counted", counted)
    assert "prober_probe_total" not in kubelet.get("/metrics")


def test_health_checks_are_counted(kubelet: HollowKubelet) -> None:
    found = samples(kubelet.get("/metrics/slis"))
    for check in ("ping", "log", "syncloop"):
        labels = {("name", check), ("type", "healthz")}
        assert found["kubernetes_healthcheck", frozenset(labels)] == 1
        assert found["kubernetes_healthchecks_total", frozenset(labels | {("status", "success")})] >= 1


def test_pages_are_compressed_on_demand(kubelet: HollowKubelet) -> None:
    url = f"http://127.0.0.1:{kubelet.read_only_port}/metrics"
    accepting = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(accepting, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        text = gzip.decompress(answer.read()).decode()
    assert re.search(r"^kubelet_running_pods \d", text, re.MULTILINE)
    other = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(other, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] is None
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_syncs_are_traced_down_to_the_runtime(kubelet: HollowKubelet, collector: tracingtesting.Collector) -> None:
    pods = {f"{name}-{NODE}" for name in ("runs", "left", "probed", "goes", "broken", "homeless", "private", "image")}
    wanted = {"syncTerminatingPod", "syncTerminatedPod", "/healthz"}
    collector.wait_for(lambda spans: of_sandboxes(spans) == pods and wanted <= {span.name for span in spans})
    assert collector.resources()[0] == {"service.name": "kubelet", "host.name": NODE}


def test_agents_are_told_what_containers_were_given(kubelet: HollowKubelet) -> None:
    endpoint = f"unix://{kubelet.root_dir}/pod-resources/kubelet.sock"
    client, channel = podresources.get_v1_client(endpoint, 10, 1 << 20)
    with channel:
        listed = client.List(podresourcesapi.ListPodResourcesRequest()).pod_resources
        assert {f"runs-{NODE}", f"probed-{NODE}"} <= {each.name for each in listed}
        assert f"goes-{NODE}" not in {each.name for each in listed}
        request = podresourcesapi.GetPodResourcesRequest(pod_name=f"runs-{NODE}", pod_namespace="default")
        assert [each.name for each in client.Get(request).pod_resources.containers] == ["main"]
        request = podresourcesapi.GetPodResourcesRequest(pod_name="none", pod_namespace="default")
        with pytest.raises(grpc.RpcError, match="pod none in namespace default not found"):
            client.Get(request)
