"""Run the server, and define the store for code in the same process.

Go: k8s.io/apiserver/pkg/server
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pkg.golang.http import HangUps

from . import evictions, fields
from . import patch as patching
from .authorization import AccessReviews
from .connections import Listener
from .errors import ApiError
from .handlers import Handlers
from .interfaces import (
    IN_PROCESS,
    Admission,
    AllowAll,
    Authenticator,
    Authorizer,
    Controller,
    Faults,
    NoFaults,
    Object,
    Objects,
    Request,
    VirtualResource,
    Watch,
)
from .registry import Registry
from .resources import BY_PLURAL, Resource
from .storage import Storage
from .watch import LocalWatch, open_watch


class APIServer:
    """Run a Kubernetes API server that keeps its objects in memory, within a `with` block.

    The docstring of the package has an example.

    By default everybody has all permissions, and deleted pods and namespaces stay, because no node and no controller
    removes them. The arguments add authentication and controllers (`cluster` combines all of them):

    - `host`, `port`: the address to listen on. Port 0 selects a free one.
    - `ssl_context`: serve HTTPS with it. `authenticator` gets client certificates that the connection has verified.
    - `kubelet_ssl_context`: the TLS context for connections to kubelets (logs, exec). The default trusts every kubelet.
    - `authenticator`, `authorizer`, `admission`, `faults`: see interfaces. They may be set until the server starts, so
      that they can use `store`.
    - `anonymous`: accept requests without credentials as those of system:anonymous.
    - `keep_unknown_fields`: keep fields that a kind does not have, like a server of a newer release whose kinds have
      them. It may be set at any time.
    - `virtual`: handlers for resources that store nothing, by name: {"serviceaccounts/token": …, "tokenreviews": …}.
    - `aggregated`: handlers for groups that are not stored here, by name: {"metrics.k8s.io": …}.
    - `controllers`: the server starts them after it listens, and stops them in reverse order before it closes.
    - `history`: the number of changes of each resource that a watch can go back.
    - `bookmark_interval`: the time, in seconds, between the bookmarks of a watch that allows them.
    - `audit`: the connection's thread calls this after each request, with the request and the code of the response.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        kubelet_ssl_context: ssl.SSLContext | None = None,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
        admission: Admission | None = None,
        faults: Faults | None = None,
        anonymous: bool = True,
        keep_unknown_fields: bool = False,
        virtual: Mapping[str, VirtualResource] | None = None,
        aggregated: Mapping[str, Callable[[Request, Resource], Object]] | None = None,
        controllers: Sequence[Controller] = (),
        history: int = 2000,
        bookmark_interval: float = 60.0,
        audit: Callable[[Request, int], None] | None = None,
    ) -> None:
        allow_all = AllowAll()
        self.host = host
        self.port = port
        self.ssl_context = ssl_context
        self.kubelet_ssl_context: ssl.SSLContext | None = kubelet_ssl_context or _trusting_context()
        self.authenticator: Authenticator = authenticator or allow_all
        self.authorizer: Authorizer = authorizer or allow_all
        self.admission: Admission = admission or allow_all
        self.faults: Faults = faults or NoFaults()
        self.anonymous = anonymous
        self.keep_unknown_fields = keep_unknown_fields
        reviews = AccessReviews(_Current(self))
        self.virtual: Mapping[str, VirtualResource] = dict.fromkeys(_ACCESS_REVIEWS, reviews) | dict(virtual or {})
        self.aggregated: Mapping[str, Callable[[Request, Resource], Object]] = dict(aggregated or {})
        self.controllers: list[Controller] = list(controllers)
        self.bookmark_interval = bookmark_interval
        self.audit = audit
        self._storage = Storage(history)
        self._registry = Registry(self._storage, lambda: self.admission)
        self._store = LocalStore(self._registry, lambda: self.keep_unknown_fields)
        self._listener: Listener | None = None
        self._hang_ups: HangUps | None = None

    @property
    def store(self) -> LocalStore:
        """Return the objects for code in this process. They are available before the server starts, too."""
        return self._store

    @property
    def url(self) -> str:
        """Return the URL of the started server."""
        return f"{'https' if self.ssl_context is not None else 'http'}://{self.host}:{self.port}"

    def start(self) -> None:
        """Listen. Raise OSError if the port is in use. After a stop, the server can start again on the same port."""
        self._hang_ups = HangUps("apiserver-hangups")
        handlers = Handlers(self, self._registry, self._hang_ups)
        try:
            self._listener = Listener(
                self.host,
                self.port,
                handlers,
                ssl_context=self.ssl_context,
                refuse=lambda: self.faults.refuse_connection(),
            )
        except OSError:
            self._hang_ups.close()
            raise
        self.port = self._listener.port
        for controller in self.controllers:
            controller.start(self)

    def stop(self) -> None:
        """End all connections and threads. The objects stay."""
        if self._listener is None or self._hang_ups is None:
            return
        for controller in reversed(self.controllers):
            controller.stop()
        self._storage.stop_watches()
        self._listener.close()
        self._hang_ups.close()
        self._listener = self._hang_ups = None

    def compact(self) -> None:
        """Forget the history: a watch or list that continues from an older resource version gets error 410."""
        self._storage.compact()

    def save(self, path: Path) -> None:
        """Write all objects to a file that only the owner may read, because some objects are secrets."""
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(self._storage.dump()))

    def load(self, path: Path) -> None:
        """Replace all objects with those that `save` wrote. The server must not have started."""
        self._storage.load(msgspec.json.decode(path.read_bytes()))

    def cut_connections(self) -> None:
        """Close all connections of clients at once, whatever their state."""
        if self._listener is not None:
            self._listener.cut_connections()

    def kubeconfig(
        self, path: str | Path | None = None, *, user: Mapping[str, Any] | None = None, ca_file: str = ""
    ) -> str:
        """Return a kubeconfig for this server, and write it to `path` if that is given.

        `user` is the user's entry: {"token": …} or {"client-certificate": …, "client-key": …}.
        """
        cluster: Object = {"server": self.url}
        if ca_file:
            cluster["certificate-authority"] = ca_file
        elif self.ssl_context is not None:
            cluster["insecure-skip-tls-verify"] = True
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": dict(user or {})}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        text = msgspec.json.format(msgspec.json.encode(config)).decode()  # JSON is YAML.
        if path is not None:
            Path(path).touch(mode=0o600)
            Path(path).write_text(text)
        return text

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_ACCESS_REVIEWS = ("subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews")


class _Current:
    """Call the authorizer that the server has at that moment."""

    def __init__(self, server: APIServer) -> None:
        self._server = server

    def authorize(self, request: Request) -> tuple[bool, str]:
        return self._server.authorizer.authorize(request)


def _trusting_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class LocalStore:
    """Implement `interfaces.Store` on the registry, with an administrator's permissions and without HTTP."""

    def __init__(self, registry: Registry, keep_unknown_fields: Callable[[], bool]) -> None:
        self._registry = registry
        self._keep_unknown_fields = keep_unknown_fields

    @property
    def resource_version(self) -> str:
        """Return the newest resource version."""
        return str(self._registry.storage.version)

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        return self._registry.get(_resource(resource), namespace, name).copy()

    def list(
        self, resource: str, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        selected = self._registry.selection(_resource(resource), label_selector, field_selector)
        entries, _ = self._registry.storage.entries(resource, namespace)
        return [entry.copy() for entry in entries if selected is None or selected(entry)]

    def create(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        meta = obj.get("metadata") or {}
        namespace, name = meta.get("namespace", ""), meta.get("name", "")
        request = _request("create", _resource(resource), namespace, name, subresource)
        obj = _copy(obj)
        match subresource:
            case "binding":
                self._registry.bind(request, name, obj)
                return obj
            case "eviction":
                evictions.evict(self._registry, request, name, obj)
                return obj
        request.name = ""
        known = _resource(resource)
        self._prune(known, obj)
        return self._registry.create(request, known, obj).copy()

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        meta = obj["metadata"]
        known = _resource(resource)
        request = _request("update", known, meta.get("namespace", ""), meta["name"], subresource)
        new = _copy(obj)
        self._prune(known, new)
        entry, _ = self._registry.update(request, known, meta["name"], lambda _: _copy(new), uid=meta.get("uid", ""))
        return entry.copy()

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "", *, subresource: str = "") -> Object:
        known = _resource(resource)
        request = _request("patch", known, namespace, name, subresource)

        def change(obj: Object) -> Object:
            merged = patching.strategic(known, obj, _copy(patch))
            self._prune(known, merged)
            return merged

        return self._registry.update(request, known, name, change)[0].copy()

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
    ) -> Object:
        options: Object = {"preconditions": {"uid": uid, "resourceVersion": resource_version}}
        if propagation_policy:
            options["propagationPolicy"] = propagation_policy
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        request = _request("delete", _resource(resource), namespace, name, "")
        return self._registry.delete(request, _resource(resource), name, options)[0].copy()

    def watch(
        self,
        resource: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Watch:
        """Watch a resource. Raise ApiError 410 if the version has been forgotten."""
        selected = self._registry.selection(_resource(resource), label_selector, field_selector)
        since = int(resource_version) if resource_version else None
        watcher = open_watch(self._registry.storage, _resource(resource), since, namespace, "")
        if isinstance(watcher, ApiError):
            raise watcher
        return LocalWatch(watcher, selected)

    def watch_several(self, resources: Sequence[str]) -> Watch:
        known = [_resource(resource).plural for resource in resources]
        return LocalWatch(self._registry.storage.watch_several(known), None)

    def _prune(self, resource: Resource, obj: Object) -> None:
        if not self._keep_unknown_fields():
            fields.prune(resource.group_version, resource.kind, obj)


_TEMPLATE = Request("", "", user=IN_PROCESS)


def _resource(plural: str) -> Resource:
    try:
        return BY_PLURAL[plural]
    except KeyError:
        raise ValueError(f"no resource is named {plural!r}") from None


def _request(verb: str, resource: Resource, namespace: str, name: str, subresource: str) -> Request:
    return replace(
        _TEMPLATE,
        verb=verb,
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=subresource,
        namespace=namespace if resource.namespaced else "",
        name=name,
    )


def _copy(obj: Object) -> Object:
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied
