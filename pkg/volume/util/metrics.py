"""Measure how long operations on volumes take.

Go: pkg/volume/util/metrics.go
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry
from pkg.volume.util import types as volumetypes

if TYPE_CHECKING:
    from pkg.volume.plugins import Spec, VolumePlugin

_STATUS_SUCCESS = "success"
_STATUS_FAIL_UNKNOWN = "fail-unknown"
# `MAX_PLUGIN_NAMES` is the number of plugins, each counted with its driver, that get metrics of their own.
MAX_PLUGIN_NAMES = 1_000
_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)

STORAGE_OPERATION_METRIC = metrics.new_histogram(
    "storage_operation_duration_seconds",
    "How long operations on volumes take, by plugin, operation and outcome.",
    ["volume_plugin", "operation_name", "status", "migrated"],
    _BUCKETS,
)
STORAGE_OPERATION_END_TO_END_LATENCY_METRIC = metrics.new_histogram(
    "volume_operation_total_seconds",
    "How long volumes take from the mount request to the end of the mount, by plugin and operation.",
    ["plugin_name", "operation_name"],
    _BUCKETS,
)
CSI_OPERATIONS_LATENCY_METRIC = metrics.new_histogram(
    "csi_operations_seconds",
    "How long calls of CSI drivers take, by driver, method and gRPC status.",
    ["driver_name", "method_name", "grpc_status_code", "migrated"],
    _BUCKETS,
)

legacyregistry.must_register(
    STORAGE_OPERATION_METRIC, STORAGE_OPERATION_END_TO_END_LATENCY_METRIC, CSI_OPERATIONS_LATENCY_METRIC
)


_names_lock = threading.Lock()  # This lock guards `_plugin_names`.
_plugin_names: set[str] = set()


def _bounded_name(plugin: str) -> str:
    """Return the plugin's name for a metric; leave out the driver if there are already too many names.

    DIVERGES (safer): beyond a limit, operations of all further drivers are counted together.
    Go: pkg/volume/util/metrics.go, OperationCompleteHook: the Go kubelet sets no limit.
    Why: a pod may name any driver in its volume, and each name creates a metric that is kept forever.
    Test: metrics_test.py:test_operations_are_counted_by_so_many_drivers_and_no_more
    """
    with _names_lock:
        if len(_plugin_names) < MAX_PLUGIN_NAMES:
            _plugin_names.add(plugin)
        return plugin if plugin in _plugin_names else plugin.partition(":")[0]


def operation_complete_hook(plugin: str, operation_name: str) -> Callable[[volumetypes.CompleteFuncParam], None]:
    """Return the function to call at the end of an operation that starts now."""
    start = time.monotonic()

    def complete(param: volumetypes.CompleteFuncParam) -> None:
        status = _STATUS_SUCCESS if param.err is None else _STATUS_FAIL_UNKNOWN
        labels = (_bounded_name(plugin), operation_name, status, str(param.migrated).lower())
        STORAGE_OPERATION_METRIC.labels(*labels).observe(time.monotonic() - start)

    return complete


def fs_group_complete_hook(plugin: VolumePlugin, spec: Spec | None) -> Callable[[volumetypes.CompleteFuncParam], None]:
    """Return the function to call when the files of a volume belong to the pod's group."""
    name = get_full_qualified_plugin_name_for_volume(plugin.get_plugin_name(), spec)
    return operation_complete_hook(name, "volume_apply_access_control")


def get_full_qualified_plugin_name_for_volume(plugin_name: str, spec: Spec | None) -> str:
    """Return the plugin's name; for a CSI volume append the driver's name."""
    if spec is not None and spec.volume is not None and spec.volume.csi is not None:
        return f"{plugin_name}:{spec.volume.csi.driver}"
    if spec is not None and spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None:
        return f"{plugin_name}:{spec.persistent_volume.spec.csi.driver}"
    return plugin_name


def record_operation_latency_metric(plugin: str, operation_name: str, seconds_taken: float) -> None:
    """Observe the duration of an operation since its request."""
    STORAGE_OPERATION_END_TO_END_LATENCY_METRIC.labels(_bounded_name(plugin), operation_name).observe(seconds_taken)


def record_csi_operation_latency_metrics(
    driver_name: str, operation_name: str, operation_err: Exception | None, operation_duration: float, migrated: str
) -> None:
    """Observe the duration of a call of a CSI driver."""
    labels = (driver_name, operation_name, get_error_code(operation_err), migrated)
    CSI_OPERATIONS_LATENCY_METRIC.labels(*labels).observe(operation_duration)


def get_error_code(err: Exception | None) -> str:
    """Return the name of the error's gRPC status."""
    if err is None:
        return "OK"
    if not isinstance(err, grpc.RpcError):
        return "unknown-non-grpc"
    code: grpc.StatusCode = err.code()
    return code.name.title().replace("_", "") if code is not grpc.StatusCode.CANCELLED else "Canceled"
