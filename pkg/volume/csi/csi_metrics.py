"""Measure the usage of CSI volumes and the duration of driver calls.

Go: pkg/volume/csi/csi_metrics.go
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import grpc

from pkg import golang
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume import metrics_errors
from pkg.volume.csi import csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.util import metrics as volumeutil
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import Metrics

if TYPE_CHECKING:
    from pkg.volume.csi import csi_client

T = TypeVar("T")


class MetricsCSI:
    """Ask the driver for the usage of a volume that it has published at target_path."""

    def __init__(self, volume_id: str, target_path: str, csi_client_getter: csi_client.CSIClientGetter) -> None:
        self._volume_id = volume_id
        self._target_path = target_path
        self._csi_client_getter = csi_client_getter

    def get_metrics(self) -> Metrics:
        """Return the usage of the volume. The call takes as long as the driver needs, at most two minutes.

        Raise MetricsError if the driver does not support this, types.TransientOperationFailure if the driver is not
        registered, StatusError for an error of the driver, and ValueError for a response without usage.
        """
        # The module is loaded when the first volume is measured.
        from kubelet.server import metrics as servermetrics

        ctx, cancel = golang.with_timeout(golang.background(), csi_util.CSI_TIMEOUT)
        with servermetrics.collect_volume_stat_cal_duration(self._csi_client_getter.driver_name):
            try:
                return self._ask(ctx)
            finally:
                cancel()

    def _ask(self, ctx: golang.Context) -> Metrics:
        current_time = metav1.now()
        try:
            client = self._csi_client_getter.get()
        except csierrors.UnknownDriverError as err:
            raise volumetypes.TransientOperationFailure(str(err)) from err
        if not client.node_supports_volume_stats(ctx):
            raise metrics_errors.new_not_supported_error_with_driver_name(self._csi_client_getter.driver_name)
        metrics = client.node_get_volume_stats(ctx, self._volume_id, self._target_path)
        return dataclasses.replace(metrics, time=current_time)


class MetricsManager:
    """Measure the calls of one driver."""

    def __init__(self, driver_name: str) -> None:
        self._driver_name = driver_name

    def record_metrics_interceptor(self, ctx: golang.Context, method: str, invoke: Callable[[], T]) -> T:
        """Make the call, and record its duration under its method, for example /csi.v1.Node/NodePublishVolume."""
        start = time.monotonic()
        failure: Exception | None = None
        try:
            return invoke()
        except grpc.RpcError as err:
            failure = err
            raise
        finally:
            duration = time.monotonic() - start
            migrated = str(csi_util.is_migrated(ctx)).lower()
            volumeutil.record_csi_operation_latency_metrics(self._driver_name, method, failure, duration, migrated)
            # The error's traceback refers to this frame, and this frame to the error. Without this line the cycle would
            # keep the request in memory until the garbage collector runs.
            failure = None
