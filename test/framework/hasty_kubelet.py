"""The kubelet as a program, with less patience for plugins and between two attempts, for tests of what goes wrong."""

from __future__ import annotations

import sys

from kubelet_cmd.kubelet.app.server import exit_process, new_kubelet_command

from kubelet import kubelet_build
from kubelet.apis.deviceplugin import v1beta1 as deviceplugin
from kubelet.cm.devicemanager import endpoint, manager
from kubelet.cm.dra.plugin import dra_plugin, dra_plugin_manager
from kubelet.pluginmanager.operationexecutor import operation_generator
from pkg.volume.csi import csi_attacher, csi_block, csi_mounter, csi_plugin, csi_util

# Seconds.
CALL_TIMEOUT = 2.0
PAUSE = 1.0
RELIST_PERIOD = 0.25


def hurry() -> None:
    """Shorten the time limits of all calls of plugins, the pauses before they are made again, and those of the PLEG."""
    for module in (csi_attacher, csi_block, csi_mounter, csi_plugin, csi_util):
        _set(module, "CSI_TIMEOUT", CALL_TIMEOUT)
    _set(dra_plugin, "DEFAULT_CLIENT_CALL_TIMEOUT", CALL_TIMEOUT)
    _set(endpoint, "PREFERRED_ALLOCATION_TIMEOUT", CALL_TIMEOUT)
    _set(endpoint, "ALLOCATE_TIMEOUT", CALL_TIMEOUT)
    _set(deviceplugin, "KUBELET_PRE_START_CONTAINER_RPC_TIMEOUT", CALL_TIMEOUT)
    _set(manager, "_OPTIONS_TIMEOUT", CALL_TIMEOUT)
    _set(operation_generator, "DIAL_TIMEOUT_DURATION", CALL_TIMEOUT)
    _set(operation_generator, "NOTIFY_TIMEOUT_DURATION", CALL_TIMEOUT)
    _set(dra_plugin_manager, "HEALTH_STREAM_RETRY_PERIOD", PAUSE)
    _set(kubelet_build, "BACK_OFF_PERIOD", PAUSE)
    _set(kubelet_build, "GENERIC_PLEG_RELIST_PERIOD", RELIST_PERIOD)


def _set(module: object, name: str, value: float) -> None:
    """Raises AttributeError when the constant is no longer there."""
    getattr(module, name)
    setattr(module, name, value)


if __name__ == "__main__":
    hurry()
    exit_process(new_kubelet_command().execute(sys.argv[1:]))
