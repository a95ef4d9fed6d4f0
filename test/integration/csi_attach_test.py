"""Test volumes of a CSI driver that a controller attaches first, and the usage that the driver reports.

The tests check the order of the programs' steps, and when the node reports a volume as in use. The driver's usage
figures must appear in the summary and in the metrics.

The kubelet is the real one, on the hollow runtime, which runs nothing. The driver is a separate program.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from csi_driver import faults
from framework.apiserver.cluster import Cluster
from framework.apiserver.interfaces import Object
from framework.cluster_node import RealKubelet, real_node
from framework.csi import CSIDriver
from framework.pod_history import PodHistory
from framework.pods import pod, sleeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

NODE = "csi-attach"
DRIVER = "attach.csi"
STAGE, PUBLISH, UNSTAGE = "NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume"
TIMEOUT = 60.0
IN_USE = f"kubernetes.io/csi/{DRIVER}^"


@pytest.fixture(scope="module")
def node(cluster: Cluster, history: PodHistory) -> Iterator[RealKubelet]:
    config = {"volumeStatsAggPeriod": "1s"}
    with (
        tempfile.TemporaryDirectory(prefix="csi-") as name,
        real_node(Path(name), NODE, cluster, history, config) as node,
    ):
        node.join()
        yield node


@pytest.fixture(scope="module")
def driver(node: RealKubelet) -> Iterator[CSIDriver]:
    options = {"capabilities": "stage,stats"}
    with CSIDriver(node.root_dir.parent, DRIVER, node.root_dir, NODE, options) as driver:
        driver.wait_for_call("NotifyRegistrationStatus", timeout=TIMEOUT)
        yield driver


class Attacher:
    """Attach only the volumes that a test allows; the others wait."""

    def __init__(self, cluster: Cluster) -> None:
        self._controller = cluster.attach_detach
        self._allowed: set[str] = set()
        self._controller.attach = self._attach

    def _attach(self, attachment: Object) -> dict[str, str] | None:
        volume = attachment["spec"]["source"]["persistentVolumeName"]
        return {"disk": "7"} if volume in self._allowed else None

    def allow(self, volume: str) -> None:
        self._allowed.add(volume)
        self._controller.try_again()


@pytest.fixture(scope="module")
def attacher(cluster: Cluster) -> Attacher:
    return Attacher(cluster)


def create(node: RealKubelet, name: str) -> None:
    """Create a pod with a claim that is bound to a volume. All three have the same name."""
    modes = {"accessModes": ["ReadWriteOnce"]}
    spec: dict[str, Any] = {
        **modes,
        "capacity": {"storage": "16Mi"},
        "claimRef": {"namespace": "default", "name": name},
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    claim = {**modes, "resources": {"requests": {"storage": "16Mi"}}, "volumeName": name}
    node.cluster.store.create("persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    metadata = {"name": name, "namespace": "default"}
    node.cluster.store.create("persistentvolumeclaims", {"metadata": metadata, "spec": claim})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    node.create(pod(name, sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}]), volumes=volumes))


def attachments(node: RealKubelet, volume: str) -> list[Object]:
    found = node.cluster.store.list("volumeattachments")
    return [each for each in found if each["spec"]["source"]["persistentVolumeName"] == volume]


def test_pod_waits_until_its_volume_is_attached(node: RealKubelet, driver: CSIDriver, attacher: Attacher) -> None:
    """A pod waits until its volume is attached.

    The node reports the volume as in use before the volume is attached, and the kubelet calls the driver only
    afterwards.
    """
    create(node, "waits")
    node.wait_for_condition("a volume attachment", lambda: attachments(node, "waits"), TIMEOUT)
    node.wait_for_condition("the volume is in use", lambda: f"{IN_USE}waits" in node.volumes("volumesInUse"), TIMEOUT)
    assert driver.calls(STAGE, PUBLISH, volume="waits") == []
    assert f"{IN_USE}waits" not in node.volumes("volumesAttached")

    attacher.allow("waits")

    node.wait_for_api_running("waits", timeout=TIMEOUT)
    assert f"{IN_USE}waits" in node.volumes("volumesAttached")
    for method in (STAGE, PUBLISH):
        assert driver.calls(method, volume="waits")[0].request["publish_context"] == {"disk": "7"}


def test_volume_is_detached_when_the_node_no_longer_uses_it(
    node: RealKubelet, driver: CSIDriver, attacher: Attacher
) -> None:
    attacher.allow("goes")
    create(node, "goes")
    node.wait_for_api_running("goes", timeout=TIMEOUT)
    node.wait_for_condition("the volume is in use", lambda: f"{IN_USE}goes" in node.volumes("volumesInUse"), TIMEOUT)
    driver.let(UNSTAGE, faults.WAIT, volume="goes")

    node.delete("goes")

    driver.wait_for_waiting(UNSTAGE, "goes", TIMEOUT)
    node.wait_until_gone("goes", timeout=TIMEOUT)
    assert f"{IN_USE}goes" in node.volumes("volumesInUse") and attachments(node, "goes")
    driver.go_on(UNSTAGE, "goes")
    node.wait_for_condition(
        "the volume is no longer in use", lambda: f"{IN_USE}goes" not in node.volumes("volumesInUse"), TIMEOUT
    )
    node.wait_for_condition("the volume is detached", lambda: not attachments(node, "goes"), TIMEOUT)


def test_driver_tells_how_full_a_volume_is(node: RealKubelet, driver: CSIDriver, attacher: Attacher) -> None:
    attacher.allow("measured")
    create(node, "measured")
    [version] = node.wait_for_api_running("measured", timeout=TIMEOUT)
    directory = node.root_dir / "pods" / version.uid / "volumes/kubernetes.io~csi/measured/mount"
    (directory / "file").write_bytes(bytes(1000))
    size = 1 << 24
    full = {"capacityBytes": size, "usedBytes": 1000, "availableBytes": size - 1000}
    inodes = {"inodes": 1000, "inodesUsed": 1, "inodesFree": 999}

    def look() -> dict[str, Any]:
        """Return the summary's entry for the volume, once the driver has counted the written file."""
        pods = json.loads(node.get("/stats/summary"))["pods"]
        volumes = [each for pod in pods if pod["podRef"]["name"] == "measured" for each in pod.get("volume", [])]
        return next((each for each in volumes if each["usedBytes"] == 1000), {})

    found = node.wait_for_condition("the volume in the summary", look, TIMEOUT)
    del found["time"]
    claim = {"name": "measured", "namespace": "default"}
    assert found == {"name": "data", "pvcRef": claim, **full, **inodes}
    labels = '{namespace="default",persistentvolumeclaim="measured"}'
    shown = [line.split() for line in node.get("/metrics").splitlines() if labels in line]
    assert {name.removeprefix("kubelet_").removesuffix(labels): float(value) for name, value in shown} == {
        "volume_stats_capacity_bytes": size,
        "volume_stats_used_bytes": 1000,
        "volume_stats_available_bytes": size - 1000,
        "volume_stats_inodes": 1000,
        "volume_stats_inodes_used": 1,
        "volume_stats_inodes_free": 999,
    }
