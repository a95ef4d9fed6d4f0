"""Where secrets come from, in three ways that differ in how old they may be.

Go: pkg/kubelet/secret/secret_manager.go
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

# Seconds that a secret is good for if the node does not say otherwise.
_DEFAULT_TTL = 60.0

# As errors name what is not found.
_RESOURCE = "secret"


class Manager(Protocol):
    """Secrets of the pods on this node. Safe from any thread; secrets are shared: never modify one."""

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        """A secret that a registered pod refers to.

        Raises LookupError for any other, apierrors.StatusError (not found) where there is none of that name, and
        what kept it from being read.
        """
        ...

    def register_pod(self, pod: v1.Pod) -> None:
        """Have the pod's secrets at hand. Never waits for the API server; may be called again."""
        ...

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Forget the secrets that no other registered pod refers to. Never waits for the API server."""
        ...


class SimpleSecretManager:
    """Asks the API server each time, and has no need to know the pods."""

    def __init__(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> None:
        self._ctx = ctx
        self._kube_client = kube_client

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self._kube_client.core_v1.secrets(namespace).get(self._ctx, name)

    def register_pod(self, pod: v1.Pod) -> None:
        """Nothing to do."""

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Nothing to do."""


class SecretManager:
    """Has the secrets of registered pods; how fresh they are is the store's matter."""

    def __init__(self, manager: manager_.Manager[v1.Secret]) -> None:
        self._manager = manager

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self._manager.get_object(namespace, name)

    def register_pod(self, pod: v1.Pod) -> None:
        self._manager.register_pod(pod)

    def unregister_pod(self, pod: v1.Pod) -> None:
        self._manager.unregister_pod(pod)


def _get_secret_names(pod: v1.Pod) -> set[str]:
    return manager_.visited_names(podutil.visit_pod_secret_names, pod)


def new_caching_secret_manager(
    ctx: golang.Context, kube_client: kubernetes.Interface, get_ttl: manager_.GetObjectTTLFunc, clock: clock_.Clock
) -> SecretManager:
    """Secrets as they were at most so many seconds ago as get_ttl says; anew whenever another pod refers to one."""

    def get_secret(namespace: str, name: str, options: metav1.GetOptions) -> v1.Secret:
        return kube_client.core_v1.secrets(namespace).get(ctx, name, options)

    store = manager_.ObjectStore(get_secret, clock, get_ttl, _DEFAULT_TTL)
    return SecretManager(manager_.CacheBasedManager(store, _get_secret_names))


def new_watching_secret_manager(
    ctx: golang.Context,
    kube_client: kubernetes.Interface,
    resync_interval: float,
    clock: clock_.Clock,
    on_appear: Callable[[Collection[types.UID]], None],
) -> SecretManager:
    """Secrets as a watch of each brings them, until ctx ends.

    on_appear gets the uids of the pods that refer to one that was asked for in vain, when there is one.
    """
    return SecretManager(
        manager_.new_watch_based_manager(
            ctx,
            kube_client.core_v1.secrets,
            v1.Secret,
            lambda secret: secret.immutable is True,
            _RESOURCE,
            resync_interval,
            _get_secret_names,
            clock,
            on_appear,
        )
    )


if TYPE_CHECKING:

    def _conform(simple: SimpleSecretManager, other: SecretManager) -> tuple[Manager, Manager]:
        return simple, other
