"""Test plugins that register with a kubelet without a cluster."""

from __future__ import annotations

from collections.abc import Callable

from framework.kubelet_process import KubeletProcess
from framework.waiting import wait_for

from kubelet.pluginmanager.testing import ExamplePlugin


def test_plugin_is_told_what_became_of_it(new_kubelet: Callable[..., KubeletProcess]) -> None:
    """The kubelet refuses a plugin of an unknown type, before and after a restart.

    The plugin gets the error, and the metrics still show that the plugin's socket exists.
    """
    kubelet = new_kubelet("plugins")
    kubelet.start()
    registry = kubelet.root_dir / "plugins_registry"
    wait_for("the directory of plugin sockets", registry.is_dir, timeout=60, describe=kubelet.end_of_log)
    plugin = ExamplePlugin("example.com/gpu", registry / "gpu-reg.sock", "FutureKindOfPlugin")
    plugin.serve()
    try:
        message = "RegisterPlugin error -- no handler registered for plugin type: FutureKindOfPlugin at socket"
        for restarted in (False, True):
            if restarted:
                kubelet.kill()
                while plugin.statuses.try_recv()[2]:
                    pass
                kubelet.start()
            status = plugin.expect_status()
            assert (status.plugin_registered, status.error) == (False, f"{message} {plugin.socket_path}")
        labels = f'socket_path="{plugin.socket_path}",state="desired_state_of_world"'
        assert f"plugin_manager_total_plugins{{{labels}}} 1" in kubelet.get("/metrics")
    finally:
        plugin.stop()
    wait_for(
        "the kubelet has forgotten the plugin",
        lambda: "plugin_manager_total_plugins{" not in kubelet.get("/metrics"),
        timeout=60,
        describe=kubelet.end_of_log,
    )
