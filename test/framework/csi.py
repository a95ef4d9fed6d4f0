"""The CSI driver for tests as a process, and what it has mounted."""

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
# A class of volumes that may grow.
GROWING = "growing"


class CSIDriver(DriverProcess):
    """A context manager; what it mounted is unmounted when it ends.

    `state` has its volumes, the log of its calls and its faults. `socket` is where it serves.
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
        """Unmount and detach what it left, for a test that failed."""
        for target in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", target], check=False)
        for device in reversed(self.loop_devices()):
            subprocess.run(["losetup", "--detach", device], check=False)

    def mounts(self) -> list[str]:
        """What is mounted below its kubelet's directory, whoever did it."""
        return [each for each in volumes.mount_points() if Path(each).is_relative_to(self._kubelet_root)]

    def loop_devices(self) -> list[str]:
        """Those of its disks, and after each those that the kubelet has made of it."""
        return [device for disk in self.state.glob("volumes/*/disk") for device in loop_devices(disk)]

    def violations(self, stages: bool = True) -> list[str]:
        return protocol.violations(self.calls(), stages)


def loop_devices(backing: Path) -> list[str]:
    """The loop devices of a file or device, and after each those of its own."""
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
    """A volume that may grow and the claim that has it, both of the same name."""
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
    """Ask for a larger volume."""
    patch = {"spec": {"resources": {"requests": {"storage": "32Mi"}}}}
    cluster.store.patch("persistentvolumeclaims", name, patch, "default")


def has_grown(cluster: Cluster, name: str) -> bool:
    """Whether the claim says so."""
    claim = base.find(cluster.store, "persistentvolumeclaims", name, "default") or {}
    return bool(claim["status"]["capacity"] == {"storage": "32Mi"})
