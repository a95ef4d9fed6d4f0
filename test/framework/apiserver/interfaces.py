"""Define the API server's interfaces: users, the parts that decide about a request, and the store for controllers.

Each call has everything that an implementation needs as an argument. The server holds no lock of the store during a
call, so an implementation may use the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Object = dict[str, Any]
"""This is an API object as it is on the wire."""

Objects = list[Object]

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"


@dataclass(slots=True, frozen=True)
class UserInfo:
    """Describe the user who sends a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = UserInfo("system:anonymous", groups=("system:unauthenticated",))
IN_PROCESS = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))
"""Requests through `APIServer.store` have this user."""


@dataclass(slots=True)
class Request:
    """Describe one request.

    If the path is not that of a resource, `resource` is empty and `verb` is the lower-case method.

    `verb` is get, list, watch, create, update, patch, delete or deletecollection. For connections (exec, attach,
    portforward, proxy) POST is create and GET is get, as upstream authorizes them; `log` is get.
    """

    method: str
    path: str
    query: dict[str, list[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # The names are in lower case.
    body: bytes = b""
    # This is DER. The connection has verified the certificate against the client CA.
    peer_certificate: bytes | None = None
    user: UserInfo = ANONYMOUS
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""  # The name is a plural, such as pods.
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def parameter(self, name: str, default: str = "") -> str:
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """Return the value of a boolean query parameter. It is false if it is absent, 0, or any spelling of false.

        Go: k8s.io/apimachinery/pkg/runtime/conversion.go, Convert_Slice_string_To_bool
        """
        return name in self.query and self.parameter(name).lower() not in ("0", "false")

    def required_fields(self) -> dict[str, str]:
        """Return the values that the field selector requires, by the names of the fields."""
        found = {}
        for term in self.parameter("fieldSelector").split(","):
            name, separator, value = term.partition("=")
            if separator and not name.endswith("!"):
                found[name.strip()] = value.removeprefix("=")
        return found

    @property
    def object_name(self) -> str:
        """Return the name of the only object that the request is about. A list or watch may select it by a field."""
        if self.name or self.verb not in ("list", "watch", "deletecollection"):
            return self.name
        return self.required_fields().get("metadata.name", "")


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> UserInfo | None:
        """Return the request's user, or None if it has no credentials. Raise ApiError (401) if they are wrong.

        The server's setting `anonymous` decides whether None means the anonymous user or error 401.
        """


class Authorizer(Protocol):
    def authorize(self, request: Request) -> tuple[bool, str]:
        """Report whether the request's user may make the request, and why or why not."""


class Admission(Protocol):
    def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
        """Return the object to store, which may be `new` itself after changes. Raise ApiError to refuse the request.

        The server calls this for CREATE (`old` is None), UPDATE (also for patches and subresources: see
        `request.subresource`), DELETE (`new` is None; once for each object of a collection) and CONNECT (both are
        None). It does so after the defaulting and before the validation. The implementation must not change `old`. The
        server may call it several times for one request when writes collide.
        """


class Faults(Protocol):
    def before(self, request: Request) -> None:
        """Act on a request after its authentication and before anything else.

        The implementation may wait, raise ApiError (429, 500, …), or raise `Cut` to close the connection.
        """

    def refuse_connection(self) -> bool:
        """Report whether to close a connection that the server has just accepted."""

    def on_answer(self, request: Request) -> AnswerFault | None:
        """Return the fault for the response to a request, or None.

        The request has already been handled, and the response is known.
        """

    def serve_stale(self, request: Request) -> int | None:
        """Return the resource version for a list or get that accepts old data. None means the newest version."""

    def wrap_stream(self, request: Request, events: Iterator[bytes]) -> Iterator[bytes]:
        """Return the lines that a watch sends. The implementation may delay, drop or add lines, or end the watch.

        Returning ends the watch properly, and raising `Cut` ends it without the end of the body.
        """

    def stream_opened(self, request: Request, connection: Stream) -> None:
        """Record the start of a watch. `connection.cut()` ends it at any time, from any thread."""

    def stream_closed(self, request: Request, connection: Stream) -> None:
        """Record the end of a watch."""


@dataclass(slots=True, frozen=True)
class Answer:
    """Describe the bytes to send.

    The server announces `length` even if the body has another length, and then cuts the connection.
    """

    code: int
    body: bytes
    length: int


class AnswerFault(Protocol):
    """Define a fault of one response that is not a watch."""

    def answer(self, code: int, body: bytes) -> Answer:
        """Return the response to send in place of this code and body. The implementation may wait."""


class Stream(Protocol):
    """Define the connection of a running watch."""

    def cut(self) -> None:
        """Close the connection at once and without the end of the body."""


class Cut(Exception):
    """Signal that the server must close the connection without a response. Faults raise this."""


@dataclass(slots=True, frozen=True)
class WatchEvent:
    """Describe one change. `type` is ADDED, MODIFIED or DELETED; `object` is the receiver's own copy."""

    type: str
    object: Object


class Watch(Protocol):
    """Define a stream of changes. The iteration ends after `stop`, which any thread may call."""

    def __iter__(self) -> Iterator[WatchEvent]: ...

    def pending(self) -> Iterator[WatchEvent]:
        """Yield the changes that have arrived and that the caller has not received yet, without waiting.

        Every finished write is among them.
        """

    def stop(self) -> None: ...


class Store(Protocol):
    """Define access to the objects for code in the same process, without authentication, authorization and faults.

    A resource's name is its plural ("pods", "leases", "certificatesigningrequests"). Objects that are passed in and
    returned belong to the caller. All methods are thread-safe. All methods raise ApiError with the server's response.
    """

    def get(self, resource: str, name: str, namespace: str = "") -> Object: ...

    def list(
        self, resource: str, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects: ...

    def create(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Create an object in the namespace that it names.

        With the subresources pods/binding and pods/eviction, the metadata names the pod.
        """

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object. Raise ApiError 409 if its resourceVersion is set and not the newest."""

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "", *, subresource: str = "") -> Object:
        """Apply a strategic merge patch."""

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
        """Delete an object. Raise ApiError 409 if it has another UID or resourceVersion.

        The propagation policies are Foreground, Background and Orphan.
        """

    def watch(
        self,
        resource: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Watch:
        """Watch a resource. Without a resource version, the watch begins with ADDED for all existing objects."""

    def watch_several(self, resources: Sequence[str]) -> Watch:
        """Watch several resources. Changes arrive in the order of the writes, after ADDED for all existing objects."""


class Controller(Protocol):
    """Define a part that runs with the server: it starts after the server listens and stops before it closes."""

    def start(self, server: Server) -> None: ...

    def stop(self) -> None:
        """Stop, and return when all threads have ended."""


class Server(Protocol):
    """Define what controllers and authentication need from the running API server."""

    @property
    def store(self) -> Store: ...

    @property
    def url(self) -> str: ...


class VirtualResource(Protocol):
    """Handle POSTs to resources that store nothing, such as "tokenreviews" and "serviceaccounts/token".

    The server gets the handlers as `virtual={"serviceaccounts/token": handler}`.
    """

    def __call__(self, request: Request, body: Object) -> Object:
        """Return the object of the response (201), or raise ApiError.

        `body` has been decoded and has the resource's kind.
        """


class AllowAll:
    """Treat everybody as an administrator with all permissions, and admit all writes unchanged."""

    def authenticate(self, request: Request) -> UserInfo | None:
        return UserInfo("admin", groups=("system:masters", "system:authenticated"))

    def authorize(self, request: Request) -> tuple[bool, str]:
        return True, ""

    def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
        return new


class NoFaults:
    def before(self, request: Request) -> None:
        pass

    def refuse_connection(self) -> bool:
        return False

    def on_answer(self, request: Request) -> AnswerFault | None:
        return None

    def serve_stale(self, request: Request) -> int | None:
        return None

    def wrap_stream(self, request: Request, events: Iterator[bytes]) -> Iterator[bytes]:
        return events

    def stream_opened(self, request: Request, connection: Stream) -> None:
        pass

    def stream_closed(self, request: Request, connection: Stream) -> None:
        pass
