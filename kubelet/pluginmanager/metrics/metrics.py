"""Count the plugins of the desired and of the actual state.

Go: pkg/kubelet/pluginmanager/metrics/metrics.go
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubelet.pluginmanager import cache
from pkg.component_base import metrics
from pkg.component_base.metrics import legacyregistry

_PLUGIN_MANAGER_TOTAL_PLUGINS = "plugin_manager_total_plugins"

_register_lock = threading.Lock()
_registered: TotalPluginsCollector | None = None


class TotalPluginsCollector(Collector):
    """Count the plugins at each scrape."""

    def __init__(self, asw: cache.ActualStateOfWorld, dsw: cache.DesiredStateOfWorld) -> None:
        self.asw = asw
        self.dsw = dsw

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric without values."""
        labels = ["socket_path", "state"]
        text = metrics.annotated_help("Plugins by socket and by state, which is desired or actual.")
        return [GaugeMetricFamily(_PLUGIN_MANAGER_TOTAL_PLUGINS, text, labels=labels)]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric with a value for each socket and state."""
        [family] = self.describe()
        for (state, socket_path), count in self.get_plugin_count().items():
            family.add_metric([socket_path, state], count)
        return [family]

    def get_plugin_count(self) -> Counter[tuple[str, str]]:
        """Count the plugins by state and socket."""
        counter = Counter(("actual_state_of_world", _text(plugin)) for plugin in self.asw.get_registered_plugins())
        counter.update(("desired_state_of_world", _text(plugin)) for plugin in self.dsw.get_plugins_to_register())
        return counter


def _text(plugin: cache.PluginInfo) -> str:
    """Return the path of the plugin's socket as valid text.

    One invalid name would hide all metrics of the kubelet.
    """
    return os.fsencode(plugin.socket_path).decode(errors="replace")


def register(asw: cache.ActualStateOfWorld, dsw: cache.DesiredStateOfWorld) -> None:
    """Export the plugins of these states; with two kubelets in a process, the later call wins."""
    global _registered
    with _register_lock:
        if _registered is None:
            _registered = TotalPluginsCollector(asw, dsw)
            legacyregistry.must_register(_registered)
        else:
            _registered.asw, _registered.dsw = asw, dsw
