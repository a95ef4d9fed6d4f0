"""Create, read, change, delete and watch the objects of one resource.

Go: k8s.io/client-go/gentype/type.go
"""

from __future__ import annotations

import builtins
import contextlib
import copy
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import msgspec

from pkg import golang, klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.api.policy import v1 as policyv1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go import rest
from pkg.client_go.kubernetes.resources import Resource

T = TypeVar("T")
S = TypeVar("S")


@dataclass(slots=True)
class ResourceList(Generic[T]):
    """Hold one page of objects, and the token for the next page."""

    metadata: metav1.ListMeta = field(default_factory=metav1.ListMeta)
    items: builtins.list[T] = field(default_factory=builtins.list)
    undecodable: builtins.list[watch.Undecodable] = field(default_factory=builtins.list)
    """These objects exist, but are missing in `items` because they could not be decoded."""


class _RawList(msgspec.Struct):
    kind: str = ""
    metadata: metav1.ListMeta = msgspec.field(default_factory=metav1.ListMeta)
    # Go's servers send null for a list without objects.
    items: builtins.list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


class _Kind(msgspec.Struct):
    kind: str = ""


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class ResourceClient(Generic[T]):
    """Access one resource of the API server.

    All methods are thread-safe. Every method raises apierrors.StatusError for an error of the API server, OSError if
    the server cannot be reached, and ctx.err() once ctx is done. Namespace "" is for list and watch over all
    namespaces.
    """

    def __init__(self, rest_client: rest.RESTClient, resource: Resource[T], namespace: str = "") -> None:
        self._rest = rest_client
        self._resource = resource
        self._namespace = namespace

    # If True, lists and watches also send their time limit as the separate parameter `timeout`.
    _limits_time = True

    def without_time_limits(self) -> Self:
        """Return the same client, but its lists and watches send their time limit only as an option.

        In Go, callers of the bare REST client do so, whereas typed clients send the limit in both places.
        """
        other = copy.copy(self)
        other._limits_time = False
        return other

    def create(self, ctx: golang.Context, obj: T, options: metav1.CreateOptions | None = None) -> T:
        return self._write(ctx, "POST", self._path(), obj, options, "")

    def update(self, ctx: golang.Context, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        """Replace the object; raise a conflict if its resource version is not the current one."""
        name = _name_of(obj)
        return self._write(ctx, "PUT", self._path(name), obj, options, name)

    def update_status(self, ctx: golang.Context, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        """Replace only the object's status; raise a conflict as update does."""
        name = _name_of(obj)
        return self._write(ctx, "PUT", self._path(name, "status"), obj, options, name)

    def get(self, ctx: golang.Context, name: str, options: metav1.GetOptions | None = None) -> T:
        path = self._path(_required(name))
        return self._decode(self._request(ctx, "GET", path, name=name, params=_params(options)), name)

    def list(self, ctx: golang.Context, options: metav1.ListOptions | None = None) -> ResourceList[T]:
        """Return the objects.

        An object that cannot be decoded is logged and added to `undecodable`. Raise codec.DecodeError if the response
        is not a list of the resource.
        """
        timeout = self._timeout_of(options)
        params = _with_timeout(_params(options), timeout)
        data = self._request(ctx, "GET", self._path(), params=params, timeout=timeout)
        raw = self._decode_list(data)
        page: ResourceList[T] = ResourceList(raw.metadata)
        for item in raw.items or ():
            obj = _decode_item(self._resource, item)
            if isinstance(obj, watch.Undecodable):
                page.undecodable.append(obj)
            else:
                page.items.append(obj)
        return page

    def watch(self, ctx: golang.Context, options: metav1.ListOptions | None = None) -> watch.Interface[T]:
        """Start a watch, which ends with ctx, when it is stopped, or when the server ends it.

        An object that cannot be decoded is logged, and arrives as a watch.Undecodable. Raise golang.ThreadError if no
        thread can start.
        """
        options = msgspec.structs.replace(options or metav1.ListOptions(), watch=True)
        params = _with_timeout(_params(options), self._timeout_of(options))
        stream = self._rest.stream(
            ctx, "GET", self._path(), params=params, resource=self._resource.qualified_name, watch=True
        )
        decoder = _WatchDecoder(stream, self._resource)
        try:
            return watch.StreamWatcher(decoder, _Reporter(), name=f"watch-{self._resource.name}")
        except golang.ThreadError:
            stream.close()
            raise

    def patch(
        self,
        ctx: golang.Context,
        name: str,
        patch_type: types.PatchType,
        data: bytes,
        options: metav1.PatchOptions | None = None,
        *subresources: str,
    ) -> T:
        path = self._path(_required(name), *subresources)
        answer = self._request(
            ctx, "PATCH", path, name=name, params=_params(options), body=data, content_type=str(patch_type.value)
        )
        return self._decode(answer, name)

    def delete(self, ctx: golang.Context, name: str, options: metav1.DeleteOptions | None = None) -> None:
        body = codec.encode_json(_delete_options(options))
        self._request(ctx, "DELETE", self._path(_required(name)), name=name, body=body)

    def delete_collection(
        self,
        ctx: golang.Context,
        options: metav1.DeleteOptions | None = None,
        list_options: metav1.ListOptions | None = None,
    ) -> None:
        """Delete all objects that list_options selects."""
        timeout = self._timeout_of(list_options)
        params = _with_timeout(_params(list_options), timeout)
        body = codec.encode_json(_delete_options(options))
        self._request(ctx, "DELETE", self._path(), params=params, body=body, timeout=timeout)

    # The following methods serve single resources. Go: k8s.io/client-go/kubernetes/typed/*/*_expansion.go and methods
    # of single resources.

    def create_token(
        self, ctx: golang.Context, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        """Return a token for the service account."""
        return self._create_subresource(ctx, name, "token", request, authenticationv1.TokenRequest)

    def evict(self, ctx: golang.Context, eviction: policyv1.Eviction) -> None:
        """Delete the pod if its disruption budgets allow it."""
        eviction = _with_type(eviction, "policy/v1", "Eviction")
        self._create_subresource(ctx, eviction.metadata.name, "eviction", eviction, None)

    def bind(self, ctx: golang.Context, binding: v1.Binding) -> None:
        """Assign the pod to a node."""
        binding = _with_type(binding, "v1", "Binding")
        self._create_subresource(ctx, binding.metadata.name, "binding", binding, None)

    def update_approval(self, ctx: golang.Context, name: str, obj: T, options: metav1.UpdateOptions | None = None) -> T:
        """Approve or deny the certificate signing request with its conditions."""
        return self._write(ctx, "PUT", self._path(_required(name), "approval"), obj, options, name)

    def _create_subresource(
        self, ctx: golang.Context, name: str, subresource: str, obj: object, type_: type[S] | None
    ) -> S:
        body = codec.encode_json(obj)
        data = self._request(ctx, "POST", self._path(_required(name), subresource), name=name, body=body)
        return codec.decode_json(data, type_) if type_ is not None else None  # type: ignore[return-value]

    def _write(self, ctx: golang.Context, verb: str, path: str, obj: T, options: object, name: str) -> T:
        body = codec.encode_json(_with_type(obj, self._resource.api_version, self._resource.kind))
        answer = self._request(ctx, verb, path, name=name, params=_params(options), body=body)
        metadata: metav1.ObjectMeta = obj.metadata  # type: ignore[attr-defined]
        return self._decode(answer, metadata.name, generated=bool(metadata.generate_name))

    def _request(
        self,
        ctx: golang.Context,
        verb: str,
        path: str,
        *,
        name: str = "",
        params: dict[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> bytes:
        return self._rest.request(
            ctx,
            verb,
            path,
            params=params,
            body=body,
            content_type=content_type,
            timeout=timeout,
            resource=self._resource.qualified_name,
            name=name,
        )

    def _timeout_of(self, options: metav1.ListOptions | None) -> float | None:
        if not self._limits_time or options is None or not options.timeout_seconds:
            return None
        return float(options.timeout_seconds)

    def _path(self, name: str = "", *subresources: str) -> str:
        if name and self._resource.namespaced and not self._namespace:
            raise ValueError("an empty namespace may not be set when a resource name is provided")
        return self._resource.path(self._namespace, name, *subresources)

    def _decode(self, data: bytes, name: str, generated: bool = False) -> T:
        """Return the object, and require this name.

        With an empty name, the object must be nameless or have a name that the server generated. Raise
        watch.UndecodableError, and apierrors.StatusError for an error in place of the object.

        DIVERGES (safer): a response that holds another object than the requested one is an error.
        Go: k8s.io/client-go/rest/request.go, Result.Into: the Go kubelet accepts any object, even an empty one.
        Why: the kubelet would conclude that the node has no UID, or that a pod has no containers.
        Test: typed_test.py:test_answer_that_is_not_the_object
        """
        partial = None
        try:
            obj = _decode_json(data, self._resource.type)
            fault = _fault_of(obj, self._resource.kind, name, generated)
        except codec.DecodeError as err:
            _raise_refusal(data)
            fault, partial = str(err), _partial(self._resource, data)
            if partial is not None and _fault_of(partial, "", name, generated):
                partial = None
        else:
            if not fault:
                return _without_type(obj)
            _raise_refusal(data)
        raise watch.UndecodableError(fault, partial)

    def _decode_list(self, data: bytes) -> _RawList:
        """Return the list; raise codec.DecodeError, and apierrors.StatusError for an error in place of the list.

        DIVERGES (safer): a response that is not a list, or has no items, is an error.
        Go: k8s.io/client-go/rest/request.go, Result.Into: the Go kubelet treats it as an empty list.
        Why: an empty list of pods would terminate all pods of the node.
        Test: typed_test.py:test_answer_that_is_no_list
        """
        raw = _decode_json(data, _RawList)
        if raw.kind not in ("", f"{self._resource.kind}List") or raw.items is msgspec.UNSET:
            _raise_refusal(data)
            raise codec.DecodeError(f"the response is not a list of {self._resource.qualified_name}: kind {raw.kind!r}")
        return raw


class _WatchDecoder(Generic[T]):
    """Decode events from lines of JSON.

    Go: k8s.io/client-go/rest/watch/decoder.go
    """

    def __init__(self, stream: rest.Stream, resource: Resource[T]) -> None:
        self._stream = stream
        self._resource = resource

    def decode(self) -> watch.Event[T] | None:
        line = self._stream.readline()
        if line is None:
            return None
        event = _decode_json(line, _RawEvent)
        match event.type:
            case watch.ERROR:
                status = codec.decode_json(bytes(event.object), metav1.Status)
                return watch.Event(watch.ERROR, status)  # type: ignore[arg-type]
            case watch.BOOKMARK:
                return watch.Event(event.type, _decode_item(self._resource, event.object, named=False))  # type: ignore[arg-type]
            case watch.ADDED | watch.MODIFIED | watch.DELETED:
                return watch.Event(event.type, _decode_item(self._resource, event.object))  # type: ignore[arg-type]
            case unknown:
                raise ValueError(f"got invalid watch event type: {unknown}")

    def close(self) -> None:
        self._stream.close()


class _Reporter:
    def as_object(self, err: Exception) -> metav1.Status:
        status = apierrors.new_generic_server_response(500, "GET", "", "", str(err), 0).status
        assert status.details is not None
        status.details.causes.append(metav1.StatusCause(reason="ClientWatchDecoding", message=str(err)))
        return status


def _params(options: object) -> dict[str, Any]:
    """Return the query parameters for the options that are set."""
    return {} if options is None else dict(codec.to_builtins(options))


def _with_timeout(params: dict[str, Any], timeout: float | None) -> dict[str, Any]:
    if timeout is not None:
        params["timeout"] = rest.go_duration(timeout)
    return params


def _required(name: str) -> str:
    if not name:
        raise ValueError("resource name may not be empty")
    return name


def _name_of(obj: Any) -> str:
    return _required(obj.metadata.name)


def _delete_options(options: metav1.DeleteOptions | None) -> metav1.DeleteOptions:
    return _with_type(options or metav1.DeleteOptions(), "v1", "DeleteOptions")


def _with_type(obj: T, api_version: str, kind: str) -> T:
    """Return the object with its API version and kind, which items of a list lack."""
    if getattr(obj, "kind", kind) == kind and getattr(obj, "api_version", api_version) == api_version:
        return obj
    return msgspec.structs.replace(obj, api_version=api_version, kind=kind)  # type: ignore[type-var]


def _without_type(obj: T) -> T:
    """Remove the API version and kind, so that an object from a list equals the same one from a watch.

    Go's typed clients do the same.
    """
    obj.api_version = obj.kind = ""  # type: ignore[attr-defined]
    return obj


def _decode_json(data: bytes, type_: type[S]) -> S:
    """Decode JSON as codec.decode_json does, but tolerate more in untyped fields.

    Go does not decode such fields, so they may hold data that is nested too deeply to be decoded, or invalid UTF-8.
    """
    try:
        return codec.decode_json(data, type_)
    except codec.DecodeError:
        if (readable := _readable(data)) is data:
            raise
        return codec.decode_json(readable, type_)


def _readable(data: bytes) -> bytes:
    return codec.with_valid_text(codec.without_depths(data))


def _decode_item(resource: Resource[T], item: msgspec.Raw, named: bool = True) -> T | watch.Undecodable:
    try:
        obj = _decode_json(bytes(item), resource.type)
        if fault := _fault_of(obj, resource.kind, "", named):
            raise codec.DecodeError(fault)
        return _without_type(obj)
    except codec.DecodeError as err:
        which = _identity(resource, bytes(item))
        klog.error_s(err, "Failed to decode an object, skipping it", kind=resource.kind, object=which.key)
        return which


def _fault_of(obj: Any, kind: str, name: str, named: bool) -> str:
    """Return why the object does not have this kind and name, or "" if it does.

    With an empty name, any name is accepted, and `named` says whether the object must have one.
    """
    found: str = obj.metadata.name
    if kind and obj.kind not in ("", kind):
        return f"the response is of kind {obj.kind}, not {kind}"
    if (name and found != name) or (named and not found):
        return f"the response is an object named {found!r}, not {name!r}"
    return ""


def _raise_refusal(data: bytes) -> None:
    """Raise apierrors.StatusError for an error that the server sent with a success code.

    Go: k8s.io/client-go/rest/request.go, Result.Into
    """
    with contextlib.suppress(codec.DecodeError):
        if codec.decode_json(data, _Kind).kind != "Status":
            return
        status = codec.decode_json(data, metav1.Status)
        if status.status != "Success":
            raise apierrors.from_status(status)


def _identity(resource: Resource[Any], item: bytes) -> watch.Undecodable:
    """Identify an object that cannot be decoded in full."""
    partial = _partial(resource, item)
    if partial is None:
        return watch.Undecodable("", "", "")
    metadata: metav1.ObjectMeta = partial.metadata
    return watch.Undecodable(metadata.namespace, metadata.name, metadata.resource_version, partial)


def _partial(resource: Resource[T], item: bytes) -> T | None:
    """Return the decodable part of an invalid object, or None if nothing can be decoded."""
    try:
        return _without_type(codec.salvage(_readable(item), resource.type))
    except codec.DecodeError:
        return None
