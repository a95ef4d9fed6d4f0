"""Test plugins of all kinds together: the kubelet finds their sockets, even after a kill, and drops missing plugins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from framework.apiserver.cluster import Cluster
from framework.apiserver.controllers import base
from framework.cluster_node import RealKubelet, real_node
from framework.csi import CSIDriver
from framework.device_plugin import DevicePlugin
from framework.dra import DRADriver
from framework.pod_history import PodHistory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

NODE = "plugins"
CSI, DRA, RESOURCE = "plugins.csi", "plugins.dra", "example.com/plugin"
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def node(cluster: Cluster, history: PodHistory) -> Iterator[RealKubelet]:
    config = {"nodeStatusUpdateFrequency": "1s"}
    with (
        tempfile.TemporaryDirectory(prefix="plug-") as name,
        real_node(Path(name), NODE, cluster, history, config) as node,
    ):
        node.join()
        yield node


def told(driver: CSIDriver | DRADriver) -> list[str]:
    """List the results of the driver's registrations: an error, or an empty string for success."""
    return [call.request.get("error", "") for call in driver.calls("NotifyRegistrationStatus")]


def csi_drivers(node: RealKubelet) -> list[str]:
    found = base.find(node.cluster.store, "csinodes", NODE)
    return [each["name"] for each in ((found or {}).get("spec") or {}).get("drivers") or []]


def devices(node: RealKubelet, which: str) -> str:
    """Return the number of devices in the node's capacity or allocatable resources.

    The number is the API's string, which is empty if the resources list no devices.
    """
    status = (node.api_object() or {}).get("status") or {}
    return str((status.get(which) or {}).get(RESOURCE, ""))


def plugins(node: RealKubelet) -> set[str]:
    """Return the socket names of the registered plugins."""
    lines = (line for line in node.get("/metrics").splitlines() if line.startswith("plugin_manager_total_plugins{"))
    return {line.split('"')[1].rpartition("/")[2] for line in lines if 'state="actual_state_of_world"' in line}


def wait_for_plugins(node: RealKubelet, want: set[str]) -> None:
    node.wait_for_condition(f"the plugins {sorted(want)}", lambda: plugins(node) == want, TIMEOUT)


def wait_until_told(node: RealKubelet, driver: CSIDriver | DRADriver, times: int) -> None:
    node.wait_for_condition(f"{times} registrations of {driver.name}", lambda: len(told(driver)) >= times, TIMEOUT)
    assert told(driver)[-1] == ""


def wait_for_all(node: RealKubelet, csi: CSIDriver, dra: DRADriver, times: int) -> None:
    wait_until_told(node, csi, times)
    wait_until_told(node, dra, times)
    node.wait_for_condition("the CSI driver in the CSINode", lambda: csi_drivers(node) == [CSI], TIMEOUT)
    node.wait_for_condition("the plugin's devices", lambda: devices(node, "allocatable") == "2", TIMEOUT)


def test_plugins_of_all_kinds(node: RealKubelet) -> None:
    folder, root = node.root_dir.parent, node.root_dir
    csi, dra = CSIDriver(folder, CSI, root, NODE), DRADriver(folder, DRA, root)
    device = DevicePlugin(folder, RESOURCE, root, probed=True)
    device.offer(one=True, two=True)
    names = {f"{CSI}-reg.sock", f"{DRA}-reg.sock", device.socket.name}
    with ExitStack() as stack:
        for plugin in (csi, dra, device):
            stack.enter_context(plugin)
        wait_for_all(node, csi, dra, 1)
        wait_for_plugins(node, names)

        node.kill()
        node.join()
        wait_for_all(node, csi, dra, 2)
        wait_for_plugins(node, names)

        # Each plugin stops without affecting the others.
        dra.stop()
        wait_for_plugins(node, names - {f"{DRA}-reg.sock"})
        csi.stop()
        wait_for_plugins(node, {device.socket.name})
        # The plugin manager forgets a plugin before it informs the handler.
        node.wait_for_condition("no CSI driver in the CSINode", lambda: csi_drivers(node) == [], TIMEOUT)
        device.kill()
        device.socket.unlink()
        node.wait_for_condition("no device is healthy", lambda: devices(node, "allocatable") == "0", TIMEOUT)
        assert devices(node, "capacity") == "2"
        wait_for_plugins(node, set())

        for plugin in (csi, dra, device):
            plugin.start()
        wait_for_all(node, csi, dra, 3)


def test_driver_without_a_service_that_is_known(node: RealKubelet) -> None:
    """The kubelet reports the error to a driver that supports no known service, and does not use the driver."""
    options = {"services": "v1alpha4.Node,1.0.0"}
    with DRADriver(node.root_dir.parent, "old.dra", node.root_dir, options=options) as driver:
        node.wait_for_condition("the result of the registration", lambda: told(driver), TIMEOUT)
        assert told(driver)[0] == (
            "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of DRA driver "
            f'plugin old.dra at endpoint {driver.socket}: none of services supported by the plugin (["v1alpha4.Node" '
            '"1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
        )
