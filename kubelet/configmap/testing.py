"""Provide ConfigMaps that tests set.

Go: pkg/kubelet/configmap/fake_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet import configmap
from kubelet.util.manager.testing import FakeObjectManager
from pkg.api.core import v1


class FakeConfigMapManager(FakeObjectManager[v1.ConfigMap]):
    """Provide the ConfigMaps that are passed to the constructor."""

    def __init__(self, *config_maps: v1.ConfigMap) -> None:
        super().__init__("configmap", *config_maps)

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        return self.get_object(namespace, name)


if TYPE_CHECKING:
    _: configmap.Manager = FakeConfigMapManager()
