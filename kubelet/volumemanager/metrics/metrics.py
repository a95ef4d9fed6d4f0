"""Count volumes by plugin, and the results of reconstruction.

Go: pkg/kubelet/volumemanager/metrics/metrics.go
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry
from pkg.volume import PluginNotFoundError, VolumePluginMgr
from pkg.volume import util as volumeutil

PLUGIN_NAME_NOT_AVAILABLE = "N/A"

RECONSTRUCT_VOLUME_OPERATIONS_TOTAL = metrics.new_counter(
    "reconstruct_volume_operations_total",
    "Number of volumes that the kubelet tried to reconstruct from disk at its start.",
)
RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL = metrics.new_counter(
    "reconstruct_volume_operations_errors_total",
    "Number of volumes that the kubelet failed to reconstruct from disk at its start.",
)
FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL = metrics.new_counter(
    "force_cleaned_failed_volume_operations_total",
    "Number of volumes that could not be reconstructed and that the kubelet unmounted.",
)
FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_ERRORS_TOTAL = metrics.new_counter(
    "force_cleaned_failed_volume_operation_errors_total",
    "Number of volumes that could neither be reconstructed nor unmounted.",
)

_register_lock = threading.Lock()  # This lock guards `_registered`.
_registered = False


def register(
    actual_state_of_world: ActualStateOfWorld,
    desired_state_of_world: DesiredStateOfWorld,
    volume_plugin_mgr: VolumePluginMgr,
) -> None:
    """Register the metrics, on the first call only.

    In a process with several kubelets, the metrics count the volumes of the first one.
    """
    global _registered
    with _register_lock:
        if _registered:
            return
        _registered = True
    legacyregistry.must_register(
        TotalVolumesCollector(actual_state_of_world, desired_state_of_world, volume_plugin_mgr),
        RECONSTRUCT_VOLUME_OPERATIONS_TOTAL,
        RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL,
        FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL,
        FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_ERRORS_TOTAL,
    )


class TotalVolumesCollector(Collector):
    """Count volumes when the metrics are collected."""

    def __init__(
        self,
        actual_state_of_world: ActualStateOfWorld,
        desired_state_of_world: DesiredStateOfWorld,
        volume_plugin_mgr: VolumePluginMgr,
    ) -> None:
        self._actual_state_of_world = actual_state_of_world
        self._desired_state_of_world = desired_state_of_world
        self._volume_plugin_mgr = volume_plugin_mgr

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return [_family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = _family()
        for (state, plugin), count in sorted(self._get_volume_count().items()):
            family.add_metric([plugin, state], count)
        return [family]

    def _get_volume_count(self) -> Counter[tuple[str, str]]:
        """Count the volumes by state and plugin."""
        count: Counter[tuple[str, str]] = Counter()
        for mounted in self._actual_state_of_world.get_mounted_volumes():
            name = volumeutil.get_full_qualified_plugin_name_for_volume(mounted.plugin_name, mounted.volume_spec)
            count["actual_state_of_world", name or PLUGIN_NAME_NOT_AVAILABLE] += 1
        for wanted in self._desired_state_of_world.get_volumes_to_mount():
            try:
                plugin = self._volume_plugin_mgr.find_plugin_by_spec(wanted.volume_spec)
            except PluginNotFoundError:
                name = PLUGIN_NAME_NOT_AVAILABLE
            else:
                name = volumeutil.get_full_qualified_plugin_name_for_volume(
                    plugin.get_plugin_name(), wanted.volume_spec
                )
            count["desired_state_of_world", name] += 1
        return count


def _family() -> GaugeMetricFamily:
    text = metrics.annotated_help("Number of volumes by plugin and by state: desired or mounted.")
    return GaugeMetricFamily("volume_manager_total_volumes", text, labels=["plugin_name", "state"])
