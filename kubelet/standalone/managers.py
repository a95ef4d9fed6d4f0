"""Provide Secrets and ConfigMaps from the manifest directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet.standalone.objects import ObjectStore
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet import configmap, secret


class SecretManager:
    """Provide the current state of every Secret. Registration of pods is not needed."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self._objects.get(v1.Secret, namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""


class ConfigMapManager:
    """Provide the current state of every ConfigMap. Registration of pods is not needed."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        return self._objects.get(v1.ConfigMap, namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""


if TYPE_CHECKING:

    def _conform(secrets: SecretManager, config_maps: ConfigMapManager) -> tuple[secret.Manager, configmap.Manager]:
        return secrets, config_maps
