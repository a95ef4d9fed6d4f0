"""Run the tests' CSI driver as a process, and inspect what it has mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from csi_driver import protocol, volumes

from framework.apiserver.cluster import Cluster
from framework.apiserver.controllers import base
from framework.driver_process import DriverProcess

STAGE, PUBLISH, UNPUBLISH, UNSTAGE, EXPAND = (
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "NodeExpandVolume",
)
# GROWING is a storage class that allows volume expansion.
GROWING = "growing"


class CSIDriver(DriverProcess):
    """Run the CSI driver within a `with` block, and unmount its volumes at the end.

    `state` is the directory of its volumes, its call log and its faults. `socket` is the socket that it serves on.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        kubelet_root: Path,
        node_id: str = "test-node",
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.socket = kubelet_root / "plugins" / name / "csi.sock"
        self._kubelet_root = kubelet_root
        flags = {"socket": self.socket, "node-id": node_id, **(options or {})}
        super().__init__(folder, name, kubelet_root, "csi_driver", flags)

    def clean(self) -> None:
        """Unmount and detach what a failed test has left."""
        for target in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", target], check=False)
        for device in reversed(self.loop_devices()):
            subprocess.run(["losetup", "--detach", device], check=False)

    def mounts(self) -> list[str]:
        """Return all mount points below the kubelet's directory, including those that the driver did not mount."""
        return [each for each in volumes.mount_points() if Path(each).is_relative_to(self._kubelet_root)]

    def loop_devices(self) -> list[str]:
        """Return the loop devices of the driver's disks, each followed by those that the kubelet has created on it."""
        return [device for disk in self.state.glob("volumes/*/disk") for device in loop_devices(disk)]

    def violations(self, stages: bool = True) -> list[str]:
        return protocol.violations(self.calls(), stages)


def loop_devices(backing: Path) -> list[str]:
    """Return the loop devices of a file or device, each followed by the loop devices on it."""
    done = subprocess.run(
        ["losetup", "--associated", str(backing), "--output", "NAME", "--noheadings"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for device in done.stdout.split() for each in (device, *loop_devices(Path(device)))]


def put_growing_class(cluster: Cluster, driver: str) -> None:
    growing = {"metadata": {"name": GROWING}, "provisioner": driver, "allowVolumeExpansion": True}
    cluster.store.create("storageclasses", growing)


def put_claimed(cluster: Cluster, driver: str, name: str, block: bool = False) -> None:
    """Create an expandable volume and its claim, both with the same name."""
    mode = "Block" if block else "Filesystem"
    shape = {"volumeMode": mode, "accessModes": ["ReadWriteOnce"], "storageClassName": GROWING}
    volume = {
        "metadata": {"name": name},
        "spec": {
            **shape,
            "capacity": {"storage": "16Mi"},
            "claimRef": {"namespace": "default", "name": name},
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": driver, "volumeHandle": name},
        },
    }
    claim = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**shape, "resources": {"requests": {"storage": "16Mi"}}, "volumeName": name},
    }
    cluster.store.create("persistentvolumes", volume)
    cluster.store.create("persistentvolumeclaims", claim)


def grow(cluster: Cluster, name: str) -> None:
    """Request a larger volume."""
    patch = {"spec": {"resources": {"requests": {"storage": "32Mi"}}}}
    cluster.store.patch("persistentvolumeclaims", name, patch, "default")


def has_grown(cluster: Cluster, name: str) -> bool:
    """Report whether the claim's status has the larger size."""
    claim = base.find(cluster.store, "persistentvolumeclaims", name, "default") or {}
    return bool(claim["status"]["capacity"] == {"storage": "32Mi"})
