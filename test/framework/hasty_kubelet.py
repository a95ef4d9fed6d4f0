"""Run the kubelet with shorter time limits for plugins and shorter pauses between attempts, for tests of failures.

Start it with `python -m framework.hasty_kubelet FLAG...`.
"""

from __future__ import annotations

import functools
import sys

from kubelet_cmd.kubelet.app.server import exit_process, new_kubelet_command

from kubelet import kubelet, kubelet_build, kubelet_node_status
from kubelet.apis.deviceplugin import v1beta1 as deviceplugin
from kubelet.cm.devicemanager import endpoint, manager
from kubelet.cm.dra.plugin import dra_plugin, dra_plugin_manager
from kubelet.pleg import evented
from kubelet.pluginmanager.operationexecutor import operation_generator
from kubelet.status import status_manager
from kubelet.volumemanager.populator import desired_state_of_world_populator as populator
from kubelet.volumemanager.reconciler import reconciler
from pkg.client_go.tools import record
from pkg.component_helpers.apimachinery.lease import controller as lease
from pkg.volume.csi import csi_attacher, csi_block, csi_mounter, csi_plugin, csi_util

# All times are in seconds.
CALL_TIMEOUT = 2.0
PAUSE = 1.0
RELIST_PERIOD = 0.25
HOUSEKEEPING_PERIOD = 0.5


def shorten_pauses() -> None:
    """Shorten the pauses before the kubelet retries what has failed, and the periods of its checks."""
    _set(kubelet_build, "BACK_OFF_PERIOD", PAUSE)
    _set(kubelet_build, "INITIAL_CRASH_LOOP_BACK_OFF", PAUSE)
    _set(kubelet_build, "GENERIC_PLEG_RELIST_PERIOD", RELIST_PERIOD)
    _set(kubelet, "HOUSEKEEPING_PERIOD", HOUSEKEEPING_PERIOD)
    _set(kubelet, "RUNTIME_CHECK_PERIOD", PAUSE)
    _set(kubelet, "RUNTIME_ERROR_BACK_OFF_MAX", PAUSE)
    _set(kubelet, "FAILED_EVENT_RETRY_PERIOD", PAUSE)
    _set(kubelet_node_status, "REGISTRATION_BACK_OFF_MAX", PAUSE)
    _set(evented, "GLOBAL_CACHE_UPDATE_PERIOD", PAUSE)
    _set(lease, "MAX_BACKOFF", PAUSE)
    _set(record, "new_broadcaster", functools.partial(record.new_broadcaster, PAUSE))
    _set(status_manager, "SYNC_PERIOD", PAUSE)
    for module in (populator, reconciler):
        _set(module, "RESYNC_PERIOD", PAUSE)


def shorten_limits() -> None:
    """Shorten the time limits of all calls to plugins, and the pauses before the kubelet repeats them."""
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


def _set(module: object, name: str, value: object) -> None:
    """Set a constant. Raise AttributeError if the module no longer has it."""
    getattr(module, name)
    setattr(module, name, value)


if __name__ == "__main__":
    shorten_pauses()
    shorten_limits()
    exit_process(new_kubelet_command().execute(sys.argv[1:]))
