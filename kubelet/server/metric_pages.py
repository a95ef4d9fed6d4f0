"""Serve the metrics of the machine and its containers: /metrics/cadvisor and /metrics/resource.

Go: pkg/kubelet/server/server.go (InstallAuthNotRequiredHandlers, prometheusHostAdapter, containerPrometheusLabelsFunc)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kubelet import cadvisor, types
from kubelet.cadvisor import metrics as cadvisormetrics
from kubelet.metrics.collectors import cri_metrics, resource_metrics
from kubelet.server import metrics as servermetrics
from pkg import features, golang
from pkg.api.core import v1
from pkg.component_base import metrics
from pkg.component_base.metrics.http import handler_for

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.server import stats
    from pkg.golang import http

CADVISOR_METRICS_PATH = "/metrics/cadvisor"
RESOURCE_METRICS_PATH = "/metrics/resource"


class Host(cadvisormetrics.InfoProvider, cadvisormetrics.MachineInfoProvider, Protocol):
    """Define what the pages need from the kubelet. The server's threads call it."""

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None: ...

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]: ...

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]: ...


def metric_handlers(host: Host, summary_provider: stats.SummaryProvider) -> dict[str, http.Handler]:
    """Return the handlers by path."""
    machine_and_containers = metrics.KubeRegistry()
    machine_and_containers.must_register(cadvisormetrics.PrometheusMachineCollector(host))
    if features.feature_gate.enabled(features.POD_AND_CONTAINER_STATS_FROM_CRI):
        machine_and_containers.must_register(
            cri_metrics.CRIMetricsCollector(
                golang.background(), host.list_pod_sandbox_metrics, host.list_metric_descriptors
            )
        )
        servermetrics.set_metrics_provider(servermetrics.MetricsProviderType.CRI)
    else:
        include_pressure = features.feature_gate.enabled(features.KUBELET_PSI) and cadvisor.is_psi_enabled()
        machine_and_containers.must_register(
            cadvisormetrics.PrometheusCollector(
                host, container_prometheus_labels_func(host.get_pod_by_cgroupfs), include_pressure
            )
        )
        servermetrics.set_metrics_provider(servermetrics.MetricsProviderType.CADVISOR)
    resources = metrics.KubeRegistry()
    resources.must_register(resource_metrics.ResourceMetricsCollector(summary_provider))
    return {
        CADVISOR_METRICS_PATH: handler_for(machine_and_containers),
        RESOURCE_METRICS_PATH: handler_for(resources),
    }


def container_prometheus_labels_func(
    pod_by_cgroupfs: Callable[[str], v1.Pod | None],
) -> Callable[[cadvisorapi.ContainerInfo], dict[str, str]]:
    """Return a function for the labels of a cgroup. All cgroups have the same labels; some are empty."""

    def labels(container: cadvisorapi.ContainerInfo) -> dict[str, str]:
        reference, spec = container.reference, container.spec
        pod_name = spec.labels.get(types.KUBERNETES_POD_NAME_LABEL, "")
        namespace = spec.labels.get(types.KUBERNETES_POD_NAMESPACE_LABEL, "")
        if not pod_name and not namespace and (pod := pod_by_cgroupfs(reference.name)) is not None:
            # This is the cgroup of a whole pod, which also contains what only its sandbox uses.
            pod_name, namespace = pod.metadata.name, pod.metadata.namespace
        return {
            "container": spec.labels.get(types.KUBERNETES_CONTAINER_NAME_LABEL, ""),
            "id": reference.name,
            "image": spec.image,
            "name": reference.aliases[0] if reference.aliases else "",
            "namespace": namespace,
            "pod": pod_name,
        }

    return labels
