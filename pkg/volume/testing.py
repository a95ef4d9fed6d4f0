"""A host for plugins under test.

Go: pkg/volume/testing/volume_host.go
"""

from __future__ import annotations

import os

from pkg.apimachinery.api.resource import Quantity
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util.hostutil.testing import FakeHostUtil
from pkg.volume.util.subpath.testing import FakeSubpather


class FakeVolumeHost:
    """Keeps pods' directories below root, and mounts nothing."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.mounter = FakeMounter()
        self.hostutil = FakeHostUtil()
        self.subpather = FakeSubpather()
        self.node_allocatable: dict[str, Quantity] = {}

    def get_pod_volume_dir(self, pod_uid: str, plugin_name: str, volume_name: str) -> str:
        return os.path.join(self.root, "pods", pod_uid, "volumes", plugin_name, volume_name)

    def get_pod_plugin_dir(self, pod_uid: str, plugin_name: str) -> str:
        return os.path.join(self.root, "pods", pod_uid, "plugins", plugin_name)

    def get_mounter(self) -> FakeMounter:
        return self.mounter

    def get_hostutil(self) -> FakeHostUtil:
        return self.hostutil

    def get_subpather(self) -> FakeSubpather:
        return self.subpather

    def get_node_allocatable(self) -> dict[str, Quantity]:
        return self.node_allocatable
