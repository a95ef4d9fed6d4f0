"""Export pod metrics of the container runtime, in place of those read from cgroups.

Go: pkg/kubelet/metrics/collectors/cri_metrics.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.component_base import metrics

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi
    from prometheus_client.metrics_core import Metric

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
# The keys are the runtime's numbers for the metric types.
_TYPES = {0: metrics.COUNTER, 1: metrics.GAUGE}


class CRIMetricsCollector:
    """Collect the runtime's metrics for prometheus_client.

    The collector asks the runtime once which metrics it has, and at each scrape for their values. If the first call
    fails, there are no metrics.
    """

    def __init__(
        self,
        ctx: golang.Context,
        list_pod_sandbox_metrics_fn: Callable[[golang.Context], Sequence[runtimeapi.PodSandboxMetrics]],
        list_metric_descriptors_fn: Callable[[golang.Context], Sequence[runtimeapi.MetricDescriptor]],
    ) -> None:
        self._list_pod_sandbox_metrics_fn = list_pod_sandbox_metrics_fn
        self._descriptors: dict[str, runtimeapi.MetricDescriptor] = {}
        try:
            self._descriptors = {desc.name: desc for desc in list_metric_descriptors_fn(ctx) if _can_be_exposed(desc)}
        except crierror.RemoteError as err:
            klog.error_s(err, "Error reading MetricDescriptors")

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics are only known at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            pods = self._list_pod_sandbox_metrics_fn(golang.background())
        except crierror.RemoteError as err:
            klog.error_s(err, "Failed to get pod metrics")
            return
        families: dict[str, Metric] = {}
        for pod in pods:
            for metric in pod.metrics:
                self._add(families, metric)
            for container in pod.container_metrics:
                for metric in container.metrics:
                    self._add(families, metric)
        yield from families.values()

    def _add(self, families: dict[str, Metric], metric: runtimeapi.Metric) -> None:
        """Add a sample. Skip metrics without a descriptor, with the wrong number of labels, or of an unknown type."""
        desc = self._descriptors.get(metric.name)
        if desc is None:
            klog.v(5).info_s("Descriptor not present in pre-populated list of descriptors", name=metric.name)
            return
        type = _TYPES.get(metric.metric_type)
        if type is None or len(desc.label_keys) != len(metric.label_values):
            klog.error_s(None, "Error getting CRI prometheus metric", descriptor=desc.name)
            return
        made = families.get(metric.name)
        if made is None:
            made = families[metric.name] = metrics.new_family(
                metric.name, metrics.annotated_help(desc.help, metrics.INTERNAL), type
            )
        labels = dict(zip(desc.label_keys, metric.label_values, strict=True))
        # A timestamp of 0 means that the value was measured for this response.
        timestamp = metric.timestamp / 1e9 if metric.timestamp else None
        made.add_sample(metric.name, labels, metric.value.value, timestamp)


def _can_be_exposed(desc: runtimeapi.MetricDescriptor) -> bool:
    """Report whether the names are valid in the text format.

    A single invalid name would make the whole page unreadable.
    """
    labels = desc.label_keys
    names_fit = _METRIC_NAME.fullmatch(desc.name) and all(_LABEL_NAME.fullmatch(label) for label in labels)
    if names_fit and len(set(labels)) == len(labels):
        return True
    klog.error_s(None, "Invalid CRI metric descriptor", name=desc.name, labels=list(labels))
    return False
