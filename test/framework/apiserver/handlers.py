"""Handle requests: find the resource of a path, and handle each verb.

Go: k8s.io/apiserver/pkg/endpoints/handlers, pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

import base64
import binascii
import random
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from pkg import klog
from pkg.apimachinery.util.validation import field
from pkg.golang.http import HangUps

from . import discovery, errors, events, evictions, fields, patch, protobuf, proxy
from .connections import Connection, Responder
from .interfaces import (
    ANONYMOUS,
    CONNECT,
    Admission,
    Authenticator,
    Authorizer,
    Cut,
    Faults,
    Object,
    Request,
    VirtualResource,
)
from .registry import Filter, Registry, without_nulls
from .resources import AGGREGATED, BY_PATH, BY_PLURAL, Resource
from .storage import CompactedError, Entry
from .tables import EventsV1, Form, PartialMetadata, Table
from .watch import Lines, error_line, open_watch

_JSON = "application/json"
_READABLE = (_JSON, "application/yaml")
_encode = msgspec.json.encode
_JOBS_LEAVE_PODS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Foreground to wait for them to be removed"
)
_CONNECTIONS = ("exec", "attach", "portforward", "proxy", "log")
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "get"}
_WATCH_TIMEOUT = (1800.0, 3600.0)
# The response to a deletion is the last object for these kinds, and a status for the others.
_RETURN_DELETED = frozenset(
    (
        "csidrivers",
        "csinodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourceclaims",
        "resourcequotas",
        "resourceslices",
        "serviceaccounts",
        "services",
        "storageclasses",
        "volumeattachments",
    )
)


class Settings(Protocol):
    """Define the server's settings that the handlers need."""

    authenticator: Authenticator
    authorizer: Authorizer
    admission: Admission
    faults: Faults
    virtual: Mapping[str, VirtualResource]
    aggregated: Mapping[str, Callable[[Request, Resource], Object]]
    anonymous: bool
    keep_unknown_fields: bool
    bookmark_interval: float
    kubelet_ssl_context: ssl.SSLContext | None
    audit: Callable[[Request, int], None] | None


class Handlers:
    """Handle requests. The threads of all connections call this."""

    def __init__(self, settings: Settings, registry: Registry, hang_ups: HangUps) -> None:
        self._settings = settings
        self._registry = registry
        self._storage = registry.storage
        self._hang_ups = hang_ups

    def __call__(self, request: Request, responder: Responder) -> None:
        """Handle one request. If a fault cuts the connection, close it without a response."""
        try:
            self._answer(request, responder)
        except Cut:
            responder.keep_alive = False
        except OSError as err:
            klog.v(4).info_s("Client closed the connection", path=request.path, err=str(err))
            responder.keep_alive = False
        if self._settings.audit is not None:
            self._settings.audit(request, responder.code)

    def _answer(self, request: Request, responder: Responder) -> None:
        try:
            resource, fault = _try_resolve(request)
            self._authenticate(request)
            self._settings.faults.before(request)
            responder.fault = self._settings.faults.on_answer(request)
            self._authorize(request)
            if fault is not None:
                raise fault
            if self._describe(request, responder):
                return
            if resource is None:
                responder.send(404, b"404 page not found\n", "text/plain; charset=utf-8")
                return
            self._serve(request, resource, responder)
        except errors.ApiError as err:
            _send_error(responder, err)
        except (Cut, OSError):
            raise
        except Exception as err:
            # An error of the server must not look like a lost connection to the client.
            klog.error_s(err, "Request failed", path=request.path, stacktrace=klog.stacktrace(err))
            _send_error(responder, errors.internal_error(f"{type(err).__name__}: {err}"))

    def _authenticate(self, request: Request) -> None:
        user = self._settings.authenticator.authenticate(request)
        if user is None:
            if not self._settings.anonymous:
                raise errors.unauthorized()
            user = ANONYMOUS
        request.user = user

    def _authorize(self, request: Request) -> None:
        allowed, reason = self._settings.authorizer.authorize(request)
        if not allowed:
            raise _refusal(request, reason)

    def _describe(self, request: Request, responder: Responder) -> bool:
        """Respond to a request for the server's health or description, and report whether the request was one."""
        if request.resource:
            return False
        if request.path.split("/")[1] in ("healthz", "livez", "readyz"):
            responder.send(200, b"ok", "text/plain; charset=utf-8")
            return True
        found = discovery.document(request.path, request.headers.get("accept", ""), request.headers.get("host", ""))
        if found is not None:
            responder.send(200, found[1], found[0])
        return found is not None

    def _serve(self, request: Request, resource: Resource, responder: Responder) -> None:
        virtual = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
        if virtual in self._settings.virtual:
            self._serve_virtual(request, resource, responder, self._settings.virtual[virtual])
            return
        self._check_verb(request, resource)
        if resource.verbs == ("create",) and resource.plural != "bindings":
            raise errors.no_such_path()  # No handler serves this resource.
        if resource.group in AGGREGATED:
            self._serve_aggregated(request, resource, responder)
            return
        if request.subresource in _CONNECTIONS:
            self._connect(request, resource, responder)
            return
        match request.verb:
            case "get":
                self._get(request, resource, responder)
            case "list":
                self._list(request, resource, responder)
            case "watch":
                self._watch(request, resource, responder)
            case "create":
                self._create(request, resource, responder)
            case "update" | "patch":
                self._update(request, resource, responder)
            case "delete":
                self._delete(request, resource, responder)
            case _:
                self._delete_collection(request, resource, responder)

    def _check_verb(self, request: Request, resource: Resource) -> None:
        if request.subresource:
            subresource = resource.subresources.get(request.subresource)
            if subresource is None:
                raise errors.no_such_path()
            verbs = subresource.verbs
        else:
            verbs = resource.verbs
            wants_name = request.verb in ("get", "update", "patch", "delete")
            if wants_name != bool(request.name) and request.verb not in ("watch", "list"):
                verbs = ()
        if request.verb not in verbs:
            raise errors.ApiError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
            )

    def _serve_aggregated(self, request: Request, resource: Resource, responder: Responder) -> None:
        """Respond on behalf of another server. Raise ApiError if there is none."""
        form_of(request, resource)
        answer = self._settings.aggregated.get(resource.group)
        if answer is None:
            raise errors.service_unavailable("service unavailable")
        responder.send(200, _encode(answer(request, resource)))

    def _get(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        version = _parse_version(request.parameter("resourceVersion"))
        takes_old_data = request.parameter("resourceVersion") == "0"
        stale = self._settings.faults.serve_stale(request) if takes_old_data else None
        if version:
            self._check_not_ahead(version)
        entry: Entry | None
        if stale is not None:
            entry = next((e for e in self._as_of(resource, request.namespace, stale) if e.key[1] == request.name), None)
            if entry is None:
                raise errors.not_found(resource.plural, resource.group, request.name)
        else:
            entry = self._registry.get(resource, request.namespace, request.name)
        responder.send(200, form.encode(entry))

    def _as_of(self, resource: Resource, namespace: str, version: int) -> list[Entry]:
        """Return the entries as of a version, or of the oldest version that is still known if that is newer."""
        try:
            return self._storage.entries(resource.plural, namespace, version=version)[0]
        except CompactedError as err:
            return self._storage.entries(resource.plural, namespace, version=err.oldest)[0]

    def _check_not_ahead(self, version: int) -> None:
        if version > self._storage.version:
            raise errors.too_large_resource_version(self._storage.version, version)

    def _selection(self, request: Request, resource: Resource) -> Filter | None:
        labels, fields = request.parameter("labelSelector"), request.parameter("fieldSelector")
        return self._registry.selection(resource, labels, fields)

    def _list(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        selected = self._selection(request, resource)
        page = self._page(request, resource)
        entries = page.entries
        if selected is not None:
            entries = [entry for entry in entries if selected(entry)]
        meta: Object = {"resourceVersion": str(page.version)}
        if page.limit and len(entries) > page.limit:
            if selected is None:
                meta["remainingItemCount"] = len(entries) - page.limit
            entries = entries[: page.limit]
            meta["continue"] = _continue_token(page.version, entries[-1])
        responder.send(200, form.encode_list(entries, meta))

    def _page(self, request: Request, resource: Resource) -> _Page:
        """Return the objects that a list's parameters select, before the selectors and the limit apply."""
        limit = _parse_int(request, "limit")
        if token := request.parameter("continue"):
            return self._continued(request, resource, token, limit)
        text = request.parameter("resourceVersion")
        match_ = request.parameter("resourceVersionMatch")
        version = _parse_version(text)
        if match_ and not text:
            detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise _bad_options(field.forbidden(field.Path("resourceVersionMatch"), detail))
        if match_ not in ("", "Exact", "NotOlderThan"):
            supported = ["Exact", "NotOlderThan", ""]
            raise _bad_options(field.not_supported(field.Path("resourceVersionMatch"), match_, supported))
        if match_ == "Exact" and not version:
            detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            raise _bad_options(field.forbidden(field.Path("resourceVersionMatch"), detail))
        if text == "0":
            # The client accepts old data, and in this case the limit does not apply.
            stale = self._settings.faults.serve_stale(request)
            if stale is not None:
                return _Page(self._as_of(resource, request.namespace, stale), stale, 0)
            return _Page(*self._storage.entries(resource.plural, request.namespace), 0)
        if version:
            self._check_not_ahead(version)
        exact = version if match_ == "Exact" or (version and limit and not match_) else None
        try:
            return _Page(*self._storage.entries(resource.plural, request.namespace, version=exact), limit)
        except CompactedError as err:
            raise errors.expired("The resourceVersion for the provided list is too old.") from err

    def _continued(self, request: Request, resource: Resource, token: str, limit: int) -> _Page:
        version, start = _parse_continue(token)
        try:
            entries, version = self._storage.entries(resource.plural, request.namespace, version=version)
        except CompactedError as err:
            error = errors.expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results. Continuing with the provided token results in an inconsistent list - "
                "objects that were created, modified, or deleted between the time the first chunk was returned and "
                "now may show up in the list."
            )
            error.list_continue = _encode_continue(-1, start)
            raise error from err
        return _Page([entry for entry in entries if _key_text(entry) > start], version, limit)

    def _watch(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        selected = self._selection(request, resource)
        text = request.parameter("resourceVersion")
        version = _parse_version(text)
        initial = self._initial_events(request, text)
        if initial and version:
            self._check_not_ahead(version)
        since = version if version and not initial else None
        exact_name = request.name or _exact_name(request)
        watcher = open_watch(self._storage, resource, since, request.namespace, exact_name)
        content_type = _JSON + (";stream=watch" if "stream=watch" in request.headers.get("accept", "") else "")
        if isinstance(watcher, errors.ApiError):
            responder.start_stream(content_type)
            responder.chunk(error_line(watcher))
            responder.end()
            return
        bookmarks = request.flag("allowWatchBookmarks")
        asked = request.flag("sendInitialEvents")
        lines = Lines(
            watcher,
            resource,
            form,
            selected,
            timeout=_parse_int(request, "timeoutSeconds") or random.uniform(*_WATCH_TIMEOUT),
            bookmarks=bookmarks,
            bookmark_interval=self._settings.bookmark_interval,
            initial_events=initial,
            mark_initial_events_end=asked and bookmarks,
        )
        stream = _Stream(responder.connection, watcher.stop)
        try:
            responder.start_stream(content_type)
            self._hang_ups.add(responder.connection.sock.fileno(), watcher.stop)
            self._settings.faults.stream_opened(request, stream)
            for line in self._settings.faults.wrap_stream(request, iter(lines)):
                responder.chunk(line)
            if stream.was_cut:
                raise Cut
            responder.end()
        finally:
            watcher.stop()
            self._hang_ups.remove(responder.connection.sock.fileno())
            self._settings.faults.stream_closed(request, stream)

    def _initial_events(self, request: Request, version: str) -> bool:
        """Report whether a watch begins with the existing objects."""
        wanted = request.parameter("sendInitialEvents")
        match_ = request.parameter("resourceVersionMatch")
        path = field.Path("resourceVersionMatch")
        if not wanted:
            if match_:
                detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
                raise _bad_options(field.forbidden(path, detail))
            return version in ("", "0")
        if match_ != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise _bad_options(field.forbidden(path, detail))
        return request.flag("sendInitialEvents")

    def _body(self, request: Request, resource: Resource, responder: Responder) -> Object:
        obj = self._checked_body(request, resource.group_version, resource.kind, responder)
        if resource.group == "events.k8s.io":
            obj = events.from_events_v1(obj)
        return obj

    def _checked_body(self, request: Request, group_version: str, kind: str, responder: Responder) -> Object:
        """Return the object in a request without the fields that its kind does not have.

        Report unknown and duplicate fields to the client in the way that the client has chosen. Raise ApiError 400 or
        415.
        """
        directive = fields.directive_of(request)
        version = group_version.rpartition("/")[2]
        obj, faults = decode_body(request, kind, version, directive)
        if not self._settings.keep_unknown_fields:
            faults += fields.prune(group_version, kind, obj)
        if faults and directive is fields.Directive.STRICT:
            raise _not_of_kind(kind, version, fields.decoding_error(faults))
        if directive is fields.Directive.WARN:
            for fault in faults:
                responder.warn(fault)
        return obj

    def _create(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        if request.subresource or resource.plural == "bindings":
            self._create_subresource(request, resource, responder)
            return
        stored = BY_PLURAL[resource.plural]
        entry = self._registry.create(request, stored, self._body(request, resource, responder))
        responder.send(201, form.encode(entry))

    def _create_subresource(self, request: Request, resource: Resource, responder: Responder) -> None:
        kind, version = ("Eviction", "policy/v1") if request.subresource == "eviction" else ("Binding", "v1")
        body = self._checked_body(request, version, kind, responder)
        name = request.name or (body.get("metadata") or {}).get("name", "")
        if request.subresource == "eviction":
            evictions.evict(self._registry, request, name, body)
        elif request.subresource == "binding" or resource.plural == "bindings":
            self._registry.bind(request, name, body)
        else:
            raise errors.no_such_path()
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        responder.send(201, _encode(status))

    def _update(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        stored = BY_PLURAL[resource.plural]
        uid = ""
        if request.verb == "patch":
            keep = self._settings.keep_unknown_fields
            change = patch.change_of(stored, request, responder.warn, keep_unknown_fields=keep)
        else:
            body = self._body(request, resource, responder)
            uid = (body.get("metadata") or {}).get("uid") or ""
            name = (body.get("metadata") or {}).get("name")
            if name != request.name:
                if not name:
                    text = f"the name of the object ({request.name} based on URL) was undeterminable"
                    raise errors.bad_request(f"{text}: name must be provided")
                raise errors.bad_request(
                    f"the name of the object ({name}) does not match the name on the URL ({request.name})"
                )

            def change(_: Object) -> Object:
                obj: Object = msgspec.json.decode(_encode(body))
                return obj

        entry, created = self._registry.update(request, stored, request.name, change, uid=uid)
        responder.send(201 if created else 200, form.encode(entry))

    def _delete(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        stored = BY_PLURAL[resource.plural]
        options = _delete_options(request)
        if resource.plural == "jobs" and not options.keys() & {"propagationPolicy", "orphanDependents"}:
            responder.warn(_JOBS_LEAVE_PODS)
        entry, gone = self._registry.delete(request, stored, request.name, options)
        if not gone or resource.plural in _RETURN_DELETED:
            responder.send(200, form.encode(entry))
            return
        details = {"name": request.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = entry.object["metadata"]["uid"]
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        responder.send(200, _encode({**status, "details": {k: v for k, v in details.items() if v}}))

    def _delete_collection(self, request: Request, resource: Resource, responder: Responder) -> None:
        form = form_of(request, resource)
        selected = self._selection(request, resource)
        entries, version = self._storage.entries(resource.plural, request.namespace)
        if selected is not None:
            entries = [entry for entry in entries if selected(entry)]
        stored = BY_PLURAL[resource.plural]
        deleted = self._registry.delete_collection(request, stored, entries, _delete_options(request))
        responder.send(200, form.encode_list(deleted, {"resourceVersion": str(version)}))

    def _serve_virtual(
        self, request: Request, resource: Resource, responder: Responder, virtual: VirtualResource
    ) -> None:
        if request.verb != "create":
            raise errors.method_not_supported(resource.plural, resource.group, request.verb)
        subresource = resource.subresources.get(request.subresource)
        kind = subresource.kind if subresource is not None and subresource.kind else resource.kind
        version = subresource.version if subresource is not None and subresource.version else resource.version
        group = subresource.group if subresource is not None and subresource.version else resource.group
        group_version = f"{group}/{version}" if group else version
        body = self._checked_body(request, group_version, kind, responder)
        body.setdefault("kind", kind)
        body.setdefault("apiVersion", group_version)
        responder.send(201, _encode(virtual(request, body)))

    def _connect(self, request: Request, resource: Resource, responder: Responder) -> None:
        """Connect the client to the node's kubelet."""
        subresource = request.subresource
        self._settings.admission.admit(request, CONNECT, None, None)
        context = self._settings.kubelet_ssl_context
        if resource.plural == "nodes":
            node = self._registry.get(resource, "", request.name.partition(":")[0])
            target = _proxy_target(request)
            proxy.forward(request, responder, proxy.kubelet_address(node.object), target, context)
            return
        pod = self._registry.get(resource, request.namespace, request.name).object
        if subresource == "proxy":
            ip = (pod.get("status") or {}).get("podIP")
            if not ip:
                raise errors.bad_request("address not allowed")
            port = (pod["spec"]["containers"][0].get("ports") or [{"containerPort": 80}])[0]["containerPort"]
            proxy.forward(request, responder, (ip, port), _proxy_target(request), None)
            return
        target = proxy.kubelet_path(request, pod)
        name = pod["spec"].get("nodeName")
        if not name:
            if subresource == "log":
                responder.send(200, b"", "text/plain")
                return
            raise errors.bad_request(f"pod {request.name} does not have a host assigned")
        host = self._storage.get("nodes", ("", name))
        if host is None:
            raise errors.not_found("pods", "", name)  # The message is upstream's.
        proxy.forward(request, responder, proxy.kubelet_address(host.object), target, context)


class _Page:
    """Hold the result of a list before the selectors and the limit apply."""

    def __init__(self, entries: list[Entry], version: int, limit: int) -> None:
        self.entries = entries
        self.version = version
        self.limit = limit


class _Stream:
    """Represent a running watch for the faults."""

    def __init__(self, connection: Connection, stop: Callable[[], None]) -> None:
        self._connection = connection
        self._stop = stop
        self.was_cut = False

    def cut(self) -> None:
        self.was_cut = True
        self._connection.cut()
        self._stop()


def resolve(request: Request) -> Resource | None:
    """Return the resource of a path and set the request's fields. Raise ApiError 404 for an unknown resource."""
    parts = [part for part in request.path.split("/") if part]
    request.verb = request.method.lower()
    if len(parts) >= 3 and parts[0] == "api":
        request.version, parts = parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        request.group, request.version, parts = parts[1], parts[2], parts[3:]
    else:
        return None
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        request.namespace, parts = parts[1], parts[2:]
    elif parts[0] == "namespaces" and len(parts) > 1:
        request.namespace = parts[1]
    legacy_watch = parts[0] == "watch" and len(parts) > 1
    if legacy_watch:
        parts = parts[1:]
    request.resource = parts[0]
    request.name = parts[1] if len(parts) > 1 else ""
    request.subresource = parts[2] if len(parts) > 2 else ""
    resource = BY_PATH.get((request.group, request.version, request.resource))
    if resource is None or (len(parts) > 3 and request.subresource != "proxy"):
        if any(key[:2] == (request.group, request.version) for key in BY_PATH):
            request.verb = _verb(request, legacy_watch)
            raise errors.no_such_path()
        request.resource = ""
        return None
    if not resource.namespaced and resource.plural != "namespaces":
        request.namespace = ""
    request.dry_run = request.parameter("dryRun") == "All"
    request.verb = _verb(request, legacy_watch)
    return resource


def _try_resolve(request: Request) -> tuple[Resource | None, errors.ApiError | None]:
    """Return the resource, or the error, which only an authorized client may see."""
    try:
        return resolve(request), None
    except errors.ApiError as err:
        return None, err


def _verb(request: Request, legacy_watch: bool) -> str:
    verb = _VERBS.get(request.method, request.method.lower())
    if verb == "get" and not request.subresource:
        watching = legacy_watch or request.flag("watch")
        if watching:
            return "watch"
        return "get" if request.name else "list"
    if verb == "delete" and not request.name:
        return "deletecollection"
    return verb


def form_of(request: Request, resource: Resource) -> Form:
    """Return the first available form of those that a client accepts. Raise ApiError 406 if there is none."""
    accept = request.headers.get("accept") or _JSON
    for choice in accept.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        if media not in (_JSON, "*/*", "application/*"):
            continue
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        kind = wanted.get("as", "")
        if kind and (wanted.get("g"), wanted.get("v")) != ("meta.k8s.io", "v1"):
            continue
        match kind:
            case "Table":
                return Table(resource, request.parameter("includeObject"))
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return PartialMetadata(resource)
            case "":
                return EventsV1(resource) if resource.group == "events.k8s.io" else Form(resource)
    raise errors.not_acceptable((_JSON,))


def decode_body(
    request: Request, kind: str, version: str, directive: fields.Directive = fields.Directive.IGNORE
) -> tuple[Object, list[str]]:
    """Return the object in a request, and a strict decoder's errors of its text.

    Raise ApiError 400 for an invalid body, and 415 for an unsupported form or kind. The function does not check the
    object's kind.
    """
    faults: list[str] = []
    try:
        match request.content_type:
            case "" | "application/json":
                obj = fields.decode_json(request.body, directive)
            case "application/yaml":
                obj, faults = fields.decode_yaml(request.body)
            case protobuf.CONTENT_TYPE:
                obj = protobuf.decode(request.body)
            case _:
                raise errors.unsupported_media_type(_READABLE)
    except protobuf.UnknownKindError as err:
        raise errors.unsupported_media_type(_READABLE) from err
    except ValueError as err:
        raise _not_of_kind(kind, version, str(err)) from err
    if not isinstance(obj, dict):
        raise _not_of_kind(kind, version, "not an object")
    return obj, faults


def _not_of_kind(kind: str, version: str, why: str) -> errors.ApiError:
    return errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def _send_error(responder: Responder, err: errors.ApiError) -> None:
    responder.headers.update(err.headers)
    responder.send(err.code, _encode(err.status))


def _refusal(request: Request, reason: str) -> errors.ApiError:
    """Return error 403 with upstream's message."""
    user = request.user.name
    if not request.resource:
        text = f'User "{user}" cannot {request.verb} path "{request.path}"'
        return errors.forbidden("", "", "", text + _because(reason))
    what = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
    text = f'User "{user}" cannot {request.verb} resource "{what}" in API group "{request.group}"'
    if request.namespace:
        text += f' in the namespace "{request.namespace}"'
    else:
        text += " at the cluster scope"
    return errors.forbidden(request.resource, request.group, request.object_name, text + _because(reason))


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _parse_version(text: str) -> int:
    if not text:
        return 0
    if not text.isdigit():
        detail = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise errors.bad_request(f"invalid resource version: {detail}")
    return int(text)


def _parse_int(request: Request, name: str) -> int:
    text = request.parameter(name)
    try:
        return int(text or 0)
    except ValueError as err:
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise errors.bad_request(message) from err


def _bad_options(err: field.Error) -> errors.ApiError:
    return errors.invalid("ListOptions", "meta.k8s.io", "", [err])


def _exact_name(request: Request) -> str:
    """Return the name if a field selector requires one, so that the handler can skip other objects cheaply.

    Else return "".
    """
    for term in request.parameter("fieldSelector").split(","):
        name, _, value = term.partition("=")
        if name == "metadata.name" and "\\" not in value:
            return value.removeprefix("=")
    return ""


def _key_text(entry: Entry) -> str:
    return "/".join(part for part in entry.key if part)


def _continue_token(version: int, last: Entry) -> str:
    return _encode_continue(version, _key_text(last))


def _encode_continue(version: int, start: str) -> str:
    token = _encode({"v": "meta.k8s.io/v1", "rv": version, "start": start + "\0"})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _parse_continue(token: str) -> tuple[int | None, str]:
    """Return the version to continue at (None means the newest) and the key to continue after."""
    try:
        data: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = int(data["rv"]), str(data["start"])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as err:
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {err}") from err
    return (None if version < 0 else version), start.removesuffix("\0")


def _delete_options(request: Request) -> Object:
    options: Object = {}
    if request.body.strip():
        options = without_nulls(decode_body(request, "DeleteOptions", "v1")[0])
    if request.parameter("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = _parse_int(request, "gracePeriodSeconds")
    if policy := request.parameter("propagationPolicy"):
        options["propagationPolicy"] = policy
    if "orphanDependents" in request.query:
        options["orphanDependents"] = request.flag("orphanDependents")
    if options.get("dryRun") == ["All"]:
        request.dry_run = True
    return options


def _proxy_target(request: Request) -> str:
    """Return the path after .../proxy, with its query."""
    _, _, rest = request.path.partition(f"/{request.name}/proxy")
    query = urlencode(request.query, doseq=True)
    return quote(rest or "/") + (f"?{query}" if query else "")
