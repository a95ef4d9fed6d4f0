"""Get Secrets in one of three ways, which differ in how old a Secret may be.

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

# A cached Secret is valid for this time, in seconds, unless the node specifies another one.
_DEFAULT_TTL = 60.0

# Errors about missing objects use this name.
_RESOURCE = "secret"


class Manager(Protocol):
    """Define how the kubelet gets the Secrets of its pods.

    Any thread may call it. Secrets are shared, and callers must never modify one.
    """

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        """Return a Secret to which a registered pod refers.

        Raise LookupError for any other Secret, apierrors.StatusError (not found) if none has this name, and the error
        that prevented the kubelet from reading it.
        """
        ...

    def register_pod(self, pod: v1.Pod) -> None:
        """Prepare the pod's Secrets. The method never waits for the API server, and may be called again."""
        ...

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Forget the Secrets to which no other registered pod refers. Never wait for the API server."""
        ...


class SimpleSecretManager:
    """Ask the API server each time. Registration of pods is not needed."""

    def __init__(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> None:
        self._ctx = ctx
        self._kube_client = kube_client

    def get_secret(self, namespace: str, name: str) -> v1.Secret:
        return self._kube_client.core_v1.secrets(namespace).get(self._ctx, name)

    def register_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""

    def unregister_pod(self, pod: v1.Pod) -> None:
        """Do nothing."""


class SecretManager:
    """Provide the Secrets of registered pods. The underlying manager determines how fresh they are."""

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
    """Return a manager that caches Secrets for the time that get_ttl returns.

    When another pod refers to a Secret, the manager reads the Secret again.
    """

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
    """Return a manager that watches each Secret until ctx ends.

    When a Secret appears that an earlier request did not find, on_appear gets the UIDs of the pods that refer to it.
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
