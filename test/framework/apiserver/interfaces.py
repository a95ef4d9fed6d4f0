"""The seams of the API server: who asks, what may decide about a request, and the store as controllers see it.

Everything an implementation needs comes in with the call; none of the calls is made with a lock of the store held,
so an implementation may use the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Object = dict[str, Any]
"""An API object as it is on the wire."""

Objects = list[Object]

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"
CONNECT = "CONNECT"


@dataclass(slots=True, frozen=True)
class UserInfo:
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = UserInfo("system:anonymous", groups=("system:unauthenticated",))
IN_PROCESS = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))
"""The user of what is done through `APIServer.store`."""


@dataclass(slots=True)
class Request:
    """One request. For a path that is no resource, `resource` is empty and `verb` is the method in lower case.

    `verb` is get, list, watch, create, update, patch, delete or deletecollection. Connections (exec, attach,
    portforward, proxy) are create for POST and get for GET, as upstream authorizes them; `log` is get.
    """

    method: str
    path: str
    query: dict[str, list[str]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    peer_certificate: bytes | None = None  # DER; the connection has verified it against the client CA
    user: UserInfo = ANONYMOUS
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""  # the plural: pods
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """A query parameter that is on or off: off is its absence, 0 and any spelling of false.

        Go: k8s.io/apimachinery/pkg/runtime/conversion.go, Convert_Slice_string_To_bool
        """
        return name in self.query and self.parameter(name).lower() not in ("0", "false")

    def required_fields(self) -> dict[str, str]:
        """What the fields that it selects by must be equal to."""
        found = {}
        for term in self.parameter("fieldSelector").split(","):
            name, separator, value = term.partition("=")
            if separator and not name.endswith("!"):
                found[name.strip()] = value.removeprefix("=")
        return found

    @property
    def object_name(self) -> str:
        """The name of the one object that it is about; a list or watch may select it by its field."""
        if self.name or self.verb not in ("list", "watch", "deletecollection"):
            return self.name
        return self.required_fields().get("metadata.name", "")


class Authenticator(Protocol):
    def authenticate(self, request: Request) -> UserInfo | None:
        """Who asks; None if the request carries nothing that says so. Raises ApiError (401) for what is wrong.

        What None means is the server's setting: `anonymous` or 401.
        """


class Authorizer(Protocol):
    def authorize(self, request: Request) -> tuple[bool, str]:
        """Whether the request's user may do it, and why (not)."""


class Admission(Protocol):
    def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
        """The object to store, which may be `new` changed in place; raises ApiError to refuse.

        Called for CREATE (old is None), UPDATE (patch and subresources too: see `request.subresource`), DELETE (new
        is None, once for every object of a collection) and CONNECT (both None), with defaults filled in and before
        validation. `old` must not be changed. May be called more than once for one request, when writes collide.
        """


class Faults(Protocol):
    def before(self, request: Request) -> None:
        """When it is known who asks, and nothing else has been done.

        May wait, raise ApiError (429, 500, …), or raise `Cut` to close the connection.
        """

    def refuse_connection(self) -> bool:
        """Whether to close a connection that has just been accepted."""

    def on_answer(self, request: Request) -> AnswerFault | None:
        """What becomes of the answer, when it is known and the request has been done; None if nothing is wrong."""

    def serve_stale(self, request: Request) -> int | None:
        """A resource version as of which to answer a list or get that allows old data; None for the newest."""

    def wrap_stream(self, request: Request, events: Iterator[bytes]) -> Iterator[bytes]:
        """What a watch sends instead; it may delay, drop, add or end (returning ends it in order, `Cut` without)."""

    def stream_opened(self, request: Request, connection: Stream) -> None:
        """A watch has begun; `connection.cut()` ends it at any time, from any thread."""

    def stream_closed(self, request: Request, connection: Stream) -> None:
        """The watch has ended."""


@dataclass(slots=True, frozen=True)
class Answer:
    """What is sent. A `length` that is not the body's is announced all the same, and the connection is cut."""

    code: int
    body: bytes
    length: int


class AnswerFault(Protocol):
    """A fault of one answer that is no watch."""

    def answer(self, code: int, body: bytes) -> Answer:
        """What to send in place of this code and body; it may wait."""


class Stream(Protocol):
    """A running watch's connection."""

    def cut(self) -> None:
        """Close the connection under it, at once and without the end of the body."""


class Cut(Exception):
    """Raised by faults: close the connection without an answer."""


@dataclass(slots=True, frozen=True)
class WatchEvent:
    """One change. `type` is ADDED, MODIFIED or DELETED; `object` is the receiver's own copy."""

    type: str
    object: Object


class Watch(Protocol):
    """Changes as they come. Iterating ends after `stop`, which any thread may call."""

    def __iter__(self) -> Iterator[WatchEvent]: ...

    def pending(self) -> Iterator[WatchEvent]:
        """Those that have come and were not taken yet, without waiting: a write that has returned is among them."""

    def stop(self) -> None: ...


class Store(Protocol):
    """The objects, for code in the same process: what HTTP clients get, without authentication, authorization, faults.

    Resources are named by their plural alone ("pods", "leases", "certificatesigningrequests"). Objects handed in
    and out are the caller's own. Thread-safe. All raise ApiError as the server would answer.
    """

    def get(self, resource: str, name: str, namespace: str = "") -> Object: ...

    def list(
        self, resource: str, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects: ...

    def create(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """The namespace is the object's own. Subresources: pods/binding, pods/eviction (name from the metadata)."""

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        """Conflicts (409) if the object carries a resourceVersion that is not the newest."""

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "", *, subresource: str = "") -> Object:
        """Applies a strategic merge patch."""

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
        """Conflicts (409) if it has another uid or resourceVersion. Policies: Foreground, Background, Orphan."""

    def watch(
        self,
        resource: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Watch:
        """Without a resource version begins with ADDED for everything that exists."""

    def watch_several(self, resources: Sequence[str]) -> Watch:
        """Changes of several resources, in the order in which they come; begins with ADDED for all that exists."""


class Controller(Protocol):
    """Something that runs beside the server: started after it listens and stopped before it closes."""

    def start(self, server: Server) -> None: ...

    def stop(self) -> None:
        """Returns when its threads have ended."""


class Server(Protocol):
    """The running API server as controllers and identity code see it."""

    @property
    def store(self) -> Store: ...

    @property
    def url(self) -> str: ...


class VirtualResource(Protocol):
    """Answers POSTs to what stores nothing: "tokenreviews", "serviceaccounts/token", "subjectaccessreviews", …

    Given to the server as `virtual={"serviceaccounts/token": handler}`.
    """

    def __call__(self, request: Request, body: Object) -> Object:
        """The object of the answer (201); raises ApiError. `body` has been decoded and has its kind."""


class AllowAll:
    """Everybody is an administrator and may do everything; nothing is changed and nothing fails."""

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
