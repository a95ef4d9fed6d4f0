"""Get ConfigMaps in one of three ways, which differ in how old a ConfigMap may be.

Go: pkg/kubelet/configmap/configmap_manager.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from kubelet.util import manager as manager_
from pkg import golang
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# A cached ConfigMap is valid for this time, in seconds, unless the node specifies another one.
_DEFAULT_TTL = 60.0

# Errors about missing objects use this name.
_RESOURCE = "configmap"


class Manager(Protocol):
    """Define how the kubelet gets the ConfigMaps of its pods.

    Any thread may call it. ConfigMaps are shared, and callers must never modify one.
    """

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        """Return a ConfigMap to which a registered pod refers.

        Raise LookupError for any other ConfigMap, apierrors.StatusError (not found) if none has this name, and the
        error that prevented the kubelet from reading it.
        """
        ...

    def register_pod(self, pod: v1.Pod) -> None:
        """Prepare the pod's ConfigMaps. The method never waits for the API server, and may be called again."""
        ...

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Forget the ConfigMaps to which no other registered pod refers. Never wait for the API server."""
        ...


class SimpleConfigMapManager:
    """Ask the API server each time. Registration of pods is not needed."""

    def __init__(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> None:
        self._ctx = ctx
        self._kube_client = kube_client

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        return self._kube_client.core_v1.config_maps(namespace).get(self._ctx, name)

    def register_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""


class ConfigMapManager:
    """Provide the ConfigMaps of registered pods. The underlying manager determines how fresh they are."""

    def __init__(self, manager: manager_.Manager[v1.ConfigMap]) -> None:
        self._manager = manager

    def get_config_map(self, namespace: str, name: str) -> v1.ConfigMap:
        return self._manager.get_object(namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        self._manager.register_pod(pod)

    def unregister_pod(self, pod: v1.Pod) -> None:
        self._manager.unregister_pod(pod)


def _get_config_map_names(pod: v1.Pod) -> set[str]:
    return manager_.visited_names(podutil.visit_pod_configmap_names, pod)


def new_caching_config_map_manager(
    ctx: golang.Context, kube_client: kubernetes.Interface, get_ttl: manager_.GetObjectTTLFunc, clock: clock_.Clock
) -> ConfigMapManager:
    """Return a manager that caches ConfigMaps for the time that get_ttl returns.

    When another pod refers to a ConfigMap, the manager reads the ConfigMap again.
    """

    def get_config_map(namespace: str, name: str, options: metav1.GetOptions) -> v1.ConfigMap:
        return kube_client.core_v1.config_maps(namespace).get(ctx, name, options)

    store = manager_.ObjectStore(get_config_map, clock, get_ttl, _DEFAULT_TTL)
    return ConfigMapManager(manager_.CacheBasedManager(store, _get_config_map_names))


def new_watching_config_map_manager(
    ctx: golang.Context,
    kube_client: kubernetes.Interface,
    resync_interval: float,
    clock: clock_.Clock,
    on_appear: Callable[[Collection[types.UID]], None],
) -> ConfigMapManager:
    """Return a manager that watches each ConfigMap until ctx ends.

    When a ConfigMap appears that an earlier request did not find, on_appear gets the UIDs of the pods that refer to it.
    """
    return ConfigMapManager(
        manager_.new_watch_based_manager(
            ctx,
            kube_client.core_v1.config_maps,
            v1.ConfigMap,
            lambda config_map: config_map.immutable is True,
            _RESOURCE,
            resync_interval,
            _get_config_map_names,
            clock,
            on_appear,
        )
    )


if TYPE_CHECKING:

    def _conform(simple: SimpleConfigMapManager, other: ConfigMapManager) -> tuple[Manager, Manager]:
        return simple, other
