"""Test the metric of plugins."""

from __future__ import annotations

from kubelet.pluginmanager import cache, metrics
from pkg.component_base.metrics import legacyregistry


def test_metric_collection() -> None:
    asw, dsw = cache.ActualStateOfWorld(), cache.DesiredStateOfWorld()
    dsw.add_or_update_plugin("fake/path/plugin.sock")
    asw.add_plugin(cache.PluginInfo("fake/path/plugin.sock"))
    metrics.register(cache.ActualStateOfWorld(), cache.DesiredStateOfWorld())
    metrics.register(asw, dsw)
    shown = [line for line in legacyregistry.expose().decode().splitlines() if "plugin_manager_total_plugins{" in line]
    assert sorted(shown) == [
        'plugin_manager_total_plugins{socket_path="fake/path/plugin.sock",state="actual_state_of_world"} 1',
        'plugin_manager_total_plugins{socket_path="fake/path/plugin.sock",state="desired_state_of_world"} 1',
    ]
