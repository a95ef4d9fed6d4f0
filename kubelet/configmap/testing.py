"""Config maps that tests put in.

Go: pkg/kubelet/configmap/fake_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet import configmap
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors


class FakeManager:
    """Has the config maps that it was made with, and says for which pods it was asked to have some at hand."""

    def __init__(self, *config_maps: v1.ConfigMap) -> None:
        self.config_maps = {(one.metadata.namespace, one.metadata.name): one for one in config_maps}
        self.registered: list[v1.Pod] = []
        # Namespace and name of each that was asked for.
        self.reads: list[tuple[str, str]] = []
        # What get_config_map raises, if anything.
        self.err: Exception | None = None

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        self.reads.append((namespace, name))
        if self.err is not None:
            raise self.err
        found = self.config_maps.get((namespace, name))
        if found is None:
            raise apierrors.new_not_found("configmap", name)
        return found

    def register_pod(self, pod: v1.Pod) -> None:
        self.registered.append(pod)

    def unregister_pod(self, pod: v1.Pod) -> None:
        self.registered = [one for one in self.registered if one.metadata.uid != pod.metadata.uid]


if TYPE_CHECKING:
    _MANAGER: configmap.Manager = FakeManager()
