"""Simulate an API server in memory, with watches and a record of all calls.

Go: k8s.io/client-go/kubernetes/fake, k8s.io/client-go/testing (actions.go, fake.go, fixture.go)

There is no validation, defaulting, authorization or graceful deletion; tests that need these use the test API server.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.api.policy import v1 as policyv1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.watch import Interface as Watch
from pkg.apimachinery.watch.testing import FakeWatcher
from pkg.client_go.kubernetes import resources
from pkg.client_go.kubernetes.clientset import APIResource, APIResourceList, Interface, VersionInfo
from pkg.client_go.kubernetes.typed import ResourceClient, ResourceList

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Action:
    """Record one call.

    Go: k8s.io/client-go/testing/actions.go
    """

    verb: str
    """The verb is create, update, get, list, watch, patch, delete or delete-collection."""
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    object: Any = None
    """`object` is the object that was created or updated."""
    patch_type: types.PatchType | None = None
    patch: bytes = b""
    options: Any = None

    def matches(self, verb: str, resource: str) -> bool:
        name, _, subresource = resource.partition("/")
        return (
            verb in ("*", self.verb)
            and name in ("*", self.resource)
            and (not subresource or subresource in ("*", self.subresource))
        )


# A reaction returns whether it handles the call, and the result of the call, which is raised if it is an exception.
Reaction = Callable[[Action], tuple[bool, Any]]


@dataclass(frozen=True, slots=True)
class _Change:
    resource: str
    kind: str
    obj: Any
    old: Any

    def is_newer_than(self, version: str) -> bool:
        return int(self.obj.metadata.resource_version) > int(version)


@dataclass(slots=True)
class _Watch:
    resource: str
    namespace: str
    options: metav1.ListOptions
    watcher: FakeWatcher[Any]

    def see(self, change: _Change) -> None:
        if change.resource != self.resource or self.namespace not in ("", change.obj.metadata.namespace):
            return
        was_selected = change.old is not None and _selected(change.old, self.options)
        sent = _event_for(change.kind, _selected(change.obj, self.options), was_selected)
        if sent:
            self.watcher.action(sent, codec.deepcopy(change.obj))


@dataclass(slots=True)
class _State:
    """Hold the state that all clients of one clientset share; `lock` guards all fields."""

    # The lock is reentrant because reactors may call the client again.
    lock: threading.RLock = field(default_factory=threading.RLock)
    objects: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    reactors: list[tuple[str, str, Reaction]] = field(default_factory=list)
    watches: list[_Watch] = field(default_factory=list)
    # `changes` holds all changes so far. A watch from an older version first receives the changes since then.
    changes: list[_Change] = field(default_factory=list)
    versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    version: int = 0

    def stamp_locked(self, obj: Any) -> None:
        self.version = next(self.versions)
        obj.metadata.resource_version = str(self.version)


class FakeClientset(Interface):
    """Serve copies of objects in memory.

    All methods are thread-safe.
    """

    def __init__(self, *objects: Any) -> None:
        self._state = _State()

        def factory(resource: resources.Resource[Any], namespace: str) -> ResourceClient[Any]:
            return FakeResourceClient(self._state, resource, namespace)

        super().__init__(factory, self)
        self.fake_server_version = VersionInfo(major="1", minor="36", git_version="v1.36.2")
        self.unserved_versions: set[str] = set()
        for obj in objects:
            self.add(obj)

    def add(self, obj: Any) -> None:
        """Add or replace an object without recording a call; watches receive the change."""
        resource = _resource_of(obj)
        FakeResourceClient(self._state, resource, obj.metadata.namespace).put(obj)

    def remove(self, obj: Any) -> None:
        """Remove an object without recording a call; watches receive the deletion."""
        resource = _resource_of(obj)
        FakeResourceClient(self._state, resource, obj.metadata.namespace).take(obj.metadata.name)

    def actions(self, verb: str = "*", resource: str = "*") -> list[Action]:
        """Return the calls so far, or only those with this verb and resource ("pods", "pods/status")."""
        with self._state.lock:
            return [action for action in self._state.actions if action.matches(verb, resource)]

    def clear_actions(self) -> None:
        with self._state.lock:
            self._state.actions.clear()

    def prepend_reactor(self, verb: str, resource: str, reaction: Reaction) -> None:
        """Call this reaction before all others, for calls with this verb and resource; "*" matches any."""
        with self._state.lock:
            self._state.reactors.insert(0, (verb, resource, reaction))

    def server_version(self, ctx: golang.Context | None = None) -> VersionInfo:
        return self.fake_server_version

    def server_resources_for_group_version(
        self, group_version: str, ctx: golang.Context | None = None
    ) -> APIResourceList:
        """Return the resources for which there are clients; versions in unserved_versions are not found."""
        served = [
            APIResource(name=resource.name, namespaced=resource.namespaced, kind=resource.kind)
            for resource in resources.ALL
            if f"{resource.group}/{resource.version}".lstrip("/") == group_version
        ]
        if not served or group_version in self.unserved_versions:
            raise apierrors.new_not_found("", group_version)
        return APIResourceList(group_version=group_version, resources=served)

    def stop_watches(self) -> None:
        """End all watches, as if the server shut down."""
        with self._state.lock:
            watches, self._state.watches = self._state.watches, []
        for one in watches:
            one.watcher.stop()

    def is_watch_list_semantics_unsupported(self) -> bool:
        return True

    def close(self) -> None:
        self.stop_watches()


class FakeResourceClient(ResourceClient[T]):
    def __init__(self, state: _State, resource: resources.Resource[T], namespace: str = "") -> None:
        self._state = state
        self._resource = resource
        self._namespace = namespace

    def is_watch_list_semantics_unsupported(self) -> bool:
        return True

    def create(self, ctx: golang.Context, obj: T, options: metav1.CreateOptions | None = None) -> T:
        return self._call(ctx, self._action("create", obj=obj, options=options), lambda: self._create(obj))

    def update(self, ctx: golang.Context, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        action = self._action("update", name=_meta(obj).name, obj=obj, options=options)
        return self._call(ctx, action, lambda: self._update(obj, status=False))

    def update_status(self, ctx: golang.Context, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        action = self._action("update", "status", name=_meta(obj).name, obj=obj, options=options)
        return self._call(ctx, action, lambda: self._update(obj, status=True))

    def update_approval(self, ctx: golang.Context, name: str, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        action = self._action("update", "approval", name=name, obj=obj, options=options)
        return self._call(ctx, action, lambda: self._update(obj, status=True))

    def get(self, ctx: golang.Context, name: str, options: metav1.GetOptions | None = None) -> T:
        return self._call(ctx, self._action("get", name=name, options=options), lambda: self._get(name))

    def list(self, ctx: golang.Context, options: metav1.ListOptions | None = None) -> ResourceList[T]:
        options = options or metav1.ListOptions()
        return self._call(ctx, self._action("list", options=options), lambda: self._list(options))

    def watch(self, ctx: golang.Context, options: metav1.ListOptions | None = None) -> Watch[T]:
        """Watch changes from now on, preceded by the existing objects if send_initial_events is set."""
        options = options or metav1.ListOptions()
        return self._call(ctx, self._action("watch", options=options), lambda: self._watch(ctx, options))

    def patch(
        self,
        ctx: golang.Context,
        name: str,
        patch_type: types.PatchType,
        data: bytes,
        options: metav1.PatchOptions | None = None,
        *subresources: str,
    ) -> T:
        subresource = "/".join(subresources)
        action = Action(
            "patch", self._resource.name, subresource, self._namespace, name, None, patch_type, data, options
        )
        return self._call(ctx, action, lambda: self._patch(name, patch_type, data, subresource))

    def delete(self, ctx: golang.Context, name: str, options: metav1.DeleteOptions | None = None) -> None:
        self._call(ctx, self._action("delete", name=name, options=options), lambda: self._delete(name, options))

    def delete_collection(
        self,
        ctx: golang.Context,
        options: metav1.DeleteOptions | None = None,
        list_options: metav1.ListOptions | None = None,
    ) -> None:
        def delete_all() -> None:
            for obj in self._list(list_options or metav1.ListOptions()).items:
                FakeResourceClient(self._state, self._resource, _meta(obj).namespace)._delete(_meta(obj).name, None)

        self._call(ctx, self._action("delete-collection", options=list_options), delete_all)

    def create_token(
        self, ctx: golang.Context, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        """Return the request itself; a reactor can add a token."""
        return self._call(ctx, self._action("create", "token", name=name, obj=request), lambda: codec.deepcopy(request))

    def evict(self, ctx: golang.Context, eviction: policyv1.Eviction) -> None:
        name = eviction.metadata.name
        self._call(ctx, self._action("create", "eviction", name=name, obj=eviction), lambda: self._delete(name, None))

    def bind(self, ctx: golang.Context, binding: v1.Binding) -> None:
        def assign() -> None:
            pod: Any = self._get(binding.metadata.name)
            pod.spec.node_name = binding.target.name
            self.put(pod)

        self._call(ctx, self._action("create", "binding", name=binding.metadata.name, obj=binding), assign)

    def put(self, obj: T) -> T:
        """Store the object, and replace an existing one."""
        with self._state.lock:
            stored = _without_type(codec.deepcopy(obj))
            self._state.stamp_locked(stored)
            key = self._key(_meta(stored).name, _meta(stored).namespace)
            kind = watch.MODIFIED if key in self._state.objects else watch.ADDED
            old = self._state.objects.get(key)
            self._state.objects[key] = stored
            self._tell_locked(kind, stored, old)
            return codec.deepcopy(stored)

    def take(self, name: str) -> None:
        """Remove the object; raise apierrors.StatusError (not found) if it does not exist."""
        with self._state.lock:
            obj = self._stored_locked(name)
            del self._state.objects[self._key(name, _meta(obj).namespace)]
            last = codec.deepcopy(obj)
            self._state.stamp_locked(last)
            self._tell_locked(watch.DELETED, last, obj)

    def _call(self, ctx: golang.Context, action: Action, default: Callable[[], S]) -> S:
        ctx.raise_if_done()
        with self._state.lock:
            self._state.actions.append(action)
            reactors = list(self._state.reactors)
        for verb, resource, reaction in reactors:
            if not action.matches(verb, resource):
                continue
            handled, answer = reaction(action)
            if handled:
                if isinstance(answer, BaseException):
                    raise answer
                return answer  # type: ignore[no-any-return]  # the reactor knows what the call returns
        return default()

    def _action(self, verb: str, subresource: str = "", name: str = "", obj: Any = None, options: Any = None) -> Action:
        copied = codec.deepcopy(obj) if obj is not None else None
        return Action(verb, self._resource.name, subresource, self._namespace, name, copied, options=options)

    def _create(self, obj: T) -> T:
        with self._state.lock:
            new = codec.deepcopy(obj)
            meta = _meta(new)
            if self._resource.namespaced:
                meta.namespace = meta.namespace or self._namespace
            if not meta.name and meta.generate_name:
                meta.name = f"{meta.generate_name}{next(self._state.versions):05x}"
            meta.uid = types.UID(meta.uid or str(uuid.uuid4()))
            meta.creation_timestamp = meta.creation_timestamp or metav1.now()
            if self._key(meta.name, meta.namespace) in self._state.objects:
                raise apierrors.new_already_exists(self._resource.qualified_name, meta.name)
            return self.put(new)

    def _update(self, obj: T, status: bool) -> T:
        with self._state.lock:
            old = self._stored_locked(_meta(obj).name)
            self._check_version(old, _meta(obj).resource_version)
            new = codec.deepcopy(obj)
            if hasattr(new, "status") and hasattr(new, "spec"):
                source, target = (new, codec.deepcopy(old)) if status else (codec.deepcopy(old), new)
                target.status = source.status  # type: ignore[attr-defined]
                new = target
            _meta(new).uid = _meta(old).uid
            _meta(new).namespace = _meta(old).namespace
            return self.put(new)

    def _patch(self, name: str, patch_type: types.PatchType, data: bytes, subresource: str) -> T:
        with self._state.lock:
            old = self._stored_locked(name)
            patched = codec.convert(self._patched(codec.to_builtins(old), patch_type, data), self._resource.type)
            meta = _meta(patched)
            if meta.uid != _meta(old).uid:
                raise apierrors.new_conflict(
                    self._resource.qualified_name, name, f"the UID in the precondition ({meta.uid}) does not match"
                )
            self._check_version(old, meta.resource_version)
            if subresource == "status":
                # The metadata is patched too, because the kubelet sends labels and annotations of its node this way.
                target: Any = codec.deepcopy(old)
                target.status, target.metadata = patched.status, meta  # type: ignore[attr-defined]
                patched = target
            elif not subresource and hasattr(patched, "status") and hasattr(patched, "spec"):
                patched.status = codec.deepcopy(old).status  # type: ignore[attr-defined]
            return self.put(patched)

    def _patched(self, obj: dict[str, Any], patch_type: types.PatchType, data: bytes) -> Any:
        match patch_type:
            case types.PatchType.STRATEGIC_MERGE:
                from pkg.apimachinery.util import strategicpatch

                return strategicpatch.strategic_merge_map_patch(obj, msgspec.json.decode(data), self._resource.type)
            case types.PatchType.MERGE:
                from pkg.apimachinery.util import jsonmergepatch

                return jsonmergepatch.merge_map_patch(obj, msgspec.json.decode(data))
            case types.PatchType.JSON:
                import jsonpatch

                return jsonpatch.apply_patch(obj, msgspec.json.decode(data))
        raise ValueError(f"patches of type {patch_type} are not supported by the fake client")

    def _get(self, name: str) -> T:
        with self._state.lock:
            return codec.deepcopy(self._stored_locked(name))

    def _list(self, options: metav1.ListOptions) -> ResourceList[T]:
        with self._state.lock:
            items = [
                codec.deepcopy(obj)
                for (resource, namespace, _), obj in self._state.objects.items()
                if resource == self._resource.name and self._namespace in ("", namespace) and _selected(obj, options)
            ]
            return ResourceList(metav1.ListMeta(resource_version=str(self._state.version)), items)

    def _watch(self, ctx: golang.Context, options: metav1.ListOptions) -> Watch[T]:
        watcher: FakeWatcher[T] = FakeWatcher()
        one = _Watch(self._resource.name, self._namespace, options, watcher)
        with self._state.lock:
            if options.send_initial_events:
                for obj in self._list(options).items:
                    watcher.add(obj)
                type_: Any = self._resource.type
                end = type_(
                    metadata=metav1.ObjectMeta(
                        resource_version=str(self._state.version),
                        annotations={metav1.INITIAL_EVENTS_ANNOTATION_KEY: "true"},
                    )
                )
                watcher.bookmark(end)
            elif options.resource_version.isdigit():
                for change in self._state.changes:
                    if change.is_newer_than(options.resource_version):
                        one.see(change)
            self._state.watches.append(one)
        golang.after_func(ctx, watcher.stop)
        return watcher

    def _delete(self, name: str, options: metav1.DeleteOptions | None) -> None:
        with self._state.lock:
            obj = self._stored_locked(name)
            wanted = options.preconditions if options is not None else None
            if wanted is not None and wanted.uid is not None and wanted.uid != _meta(obj).uid:
                text = f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({_meta(obj).uid})"
                raise apierrors.new_conflict(self._resource.qualified_name, name, text)
            self.take(name)

    def _check_version(self, old: T, version: str) -> None:
        if version and version != _meta(old).resource_version:
            text = "the object has been modified; please apply your changes to the latest version and try again"
            raise apierrors.new_conflict(self._resource.qualified_name, _meta(old).name, text)

    def _key(self, name: str, namespace: str) -> tuple[str, str, str]:
        return self._resource.name, namespace if self._resource.namespaced else "", name

    def _stored_locked(self, name: str) -> T:
        obj = self._state.objects.get(self._key(name, self._namespace))
        if obj is None:
            raise apierrors.new_not_found(self._resource.qualified_name, name)
        return obj  # type: ignore[no-any-return]

    def _tell_locked(self, kind: str, obj: T, old: T | None) -> None:
        change = _Change(self._resource.name, kind, obj, old)
        self._state.changes.append(change)
        self._state.watches = [one for one in self._state.watches if not one.watcher.stopped]
        for one in self._state.watches:
            one.see(change)


def _event_for(kind: str, selected: bool, was_selected: bool) -> str:
    """Return the type of the event that a watch with a selector receives for a change, or "" for none."""
    if kind == watch.DELETED:
        return watch.DELETED if was_selected else ""
    if selected:
        return watch.MODIFIED if was_selected else watch.ADDED
    return watch.DELETED if was_selected else ""


def _resource_of(obj: Any) -> resources.Resource[Any]:
    for resource in resources.ALL:
        if type(obj) is resource.type:
            return resource
    raise ValueError(f"no resource is known for a {type(obj).__name__}")


def _meta(obj: Any) -> metav1.ObjectMeta:
    return obj.metadata  # type: ignore[no-any-return]


def _without_type(obj: T) -> T:
    obj.api_version = obj.kind = ""  # type: ignore[attr-defined]
    return obj


def _selected(obj: Any, options: metav1.ListOptions) -> bool:
    """Report whether the field and label selectors match the object.

    Supported terms are =, ==, != and bare label names.
    """
    fields = all(_term(term, lambda key: _field(obj, key)) for term in _terms(options.field_selector))
    return fields and all(_term(term, obj.metadata.labels.get) for term in _terms(options.label_selector))


def _terms(selector: str) -> list[str]:
    return [term for term in selector.split(",") if term]


def _term(term: str, value_of: Callable[[str], str | None]) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return (value_of(key.strip()) or "") != value
    if "=" in term:
        key, _, value = term.partition("=")
        return (value_of(key.strip()) or "") == value.lstrip("=")
    return value_of(term.strip()) is not None


def _field(obj: Any, path: str) -> str:
    """Return a field as text, given its JSON path such as spec.nodeName."""
    value: Any = obj
    for part in path.split("."):
        name = next((f.name for f in msgspec.structs.fields(value) if f.encode_name == part), None)
        value = getattr(value, name) if name is not None else None
        if not isinstance(value, msgspec.Struct):
            break
    return "" if value is None else str(value)
