"""Simulate faults of an API server: delays, refusals, errors, dropped connections, stale data.

    with faults.slow(2.0, verb="patch", resource="pods", subresource="status") as fault:
        ...
    assert fault.hits

A fault is active from the call that creates it until its end(), or until the end of the `with` block. The keyword
arguments are properties of a request and select the requests that the fault hits. A tuple of values means any of them,
and a property that is not named may have any value. `times` limits the number of hits. Everything here is thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypedDict, Unpack

from pkg import golang

from . import errors
from .interfaces import Answer, AnswerFault, Cut, Request, Stream

Wanted = str | tuple[str, ...]
# The server stores the names of headers in lower case.
CALLER_HEADER = "x-caller"


class Filter(TypedDict, total=False):
    """Select the requests that a fault hits, and limit their number."""

    verb: Wanted
    resource: Wanted
    subresource: Wanted
    namespace: Wanted
    name: Wanted
    user: Wanted
    # The value is the file of the kubelet that sends the request, if it names itself: see framework.impatient_kubelet.
    caller: Wanted
    times: int


class Fault:
    """Represent one fault. `hits` counts the requests or watches that it has hit."""

    def __init__(self, faults: Faults, kind: str, selected: Filter) -> None:
        self.kind = kind
        self.hits = 0
        self._faults = faults
        self._selected = selected
        # The event is set when the fault ends. Requests that wait because of the fault then continue.
        self.ended = threading.Event()

    def end(self) -> None:
        """End the fault. A second call does nothing."""
        self._faults.remove(self)
        self.ended.set()

    def matches(self, request: Request) -> bool:
        """Report whether the fault hits this request."""
        values = {
            "user": request.user.name,
            "caller": request.headers.get(CALLER_HEADER, ""),
            "name": request.object_name,
        }
        for key, wanted in self._selected.items():
            if key == "times":
                continue
            value = values[key] if key in values else getattr(request, key)
            if value != wanted if isinstance(wanted, str) else value not in wanted:  # type: ignore[operator]
                return False
        return True

    def used_up(self) -> bool:
        return "times" in self._selected and self.hits >= self._selected["times"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class _Slow(Fault):
    seconds = 0.0


class _Status(Fault):
    error: errors.ApiError


class _Stale(Fault):
    version = 0


class _Late(Fault):
    """Send the response only when the fault ends, although the server has done the work before."""

    def answer(self, code: int, body: bytes) -> Answer:
        self.ended.wait()
        return Answer(code, body, len(body))

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        self.ended.wait()
        yield from events


class _Lie(Fault):
    """Replace the response, or each event of a watch."""

    tell: Callable[[bytes], bytes]

    def answer(self, code: int, body: bytes) -> Answer:
        told = self.tell(body)
        return Answer(200, told, len(told))

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        for event in events:
            yield self.tell(event) + b"\n"


class _CutAnswer(Fault):
    """Send half of the response, or half of the first event of a watch."""

    def answer(self, code: int, body: bytes) -> Answer:
        return Answer(code, body[: len(body) // 2], len(body))

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        for event in events:
            yield event[: len(event) // 2]
            raise Cut


class _CutWatches(Fault):
    thread: golang.Thread | None = None

    def end(self) -> None:
        super().end()
        if self.thread is not None:
            self.thread.join()


class Faults:
    """Hold the faults of one server. `version` returns the newest resource version."""

    def __init__(self, version: Callable[[], int] = lambda: 0) -> None:
        self.version = version
        # The lock guards all fields below, and the counts of the faults.
        self._lock = threading.Lock()
        self._active: list[Fault] = []
        self._streams: dict[int, tuple[Request, Stream]] = {}

    def slow(self, seconds: float, **selected: Unpack[Filter]) -> Fault:
        """Delay requests by this many seconds before the server handles them."""
        fault = _Slow(self, "slow", selected)
        fault.seconds = seconds
        return self._add(fault)

    def hang(self, **selected: Unpack[Filter]) -> Fault:
        """Delay requests until the fault ends; the server then handles them."""
        return self.slow(threading.TIMEOUT_MAX, **selected)

    def status(self, code: int, retry_after: int | None = None, message: str = "", **selected: Unpack[Filter]) -> Fault:
        """Respond with an error of this code. `retry_after`, in seconds, becomes the Retry-After header."""
        fault = _Status(self, f"status {code}", selected)
        fault.error = _error(code, retry_after, message)
        return self._add(fault)

    def refuse(self) -> Fault:
        """Refuse new connections, and cut open ones as soon as a client uses them."""
        fault = self._add(Fault(self, "refuse", {}))
        self._cut_streams(fault)
        return fault

    def cut_connections(self, **selected: Unpack[Filter]) -> Fault:
        """Close the connection of a request instead of answering it, and cut running watches at once."""
        fault = self._add(Fault(self, "cut", selected))
        self._cut_streams(fault)
        return fault

    def cut_watches(self, every: float | None = None, **selected: Unpack[Filter]) -> Fault:
        """Cut running watches now, and with `every` repeatedly after that many seconds until the fault ends."""
        fault = _CutWatches(self, "cut watches", selected)
        self._cut_streams(fault)
        if every is not None:
            fault.thread = golang.go(self._keep_cutting, fault, every, name="faults-cut-watches")
        return fault

    def late(self, **selected: Unpack[Filter]) -> Fault:
        """Handle requests, but answer them only when the fault ends."""
        return self._add(_Late(self, "answer", selected))

    def lie(self, tell: Callable[[bytes], bytes], **selected: Unpack[Filter]) -> Fault:
        """Handle requests, but respond with code 200 and the result of `tell`.

        `tell` gets the true response, or each event of a watch.
        """
        fault = _Lie(self, "answer", selected)
        fault.tell = tell
        return self._add(fault)

    def cut_answers(self, **selected: Unpack[Filter]) -> Fault:
        """Handle requests, but cut the connection in the middle of the response."""
        return self._add(_CutAnswer(self, "answer", selected))

    def stale_lists(self, version: int | None = None, **selected: Unpack[Filter]) -> Fault:
        """Return the objects of this version, by default the present one, for lists and gets that accept old data."""
        fault = _Stale(self, "stale", selected)
        fault.version = self.version() if version is None else version
        return self._add(fault)

    def end_all(self) -> None:
        with self._lock:
            active = list(self._active)
        for fault in active:
            fault.end()

    def remove(self, fault: Fault) -> None:
        """Remove a fault that ends. The fault calls this."""
        with self._lock:
            if fault in self._active:
                self._active.remove(fault)

    @property
    def watches(self) -> list[Request]:
        """Return the requests of the running watches."""
        with self._lock:
            return [request for request, _ in self._streams.values()]

    # The server calls the following methods.

    def before(self, request: Request) -> None:
        for fault in self._hit(request, "slow"):
            assert isinstance(fault, _Slow)
            fault.ended.wait(fault.seconds)
        if self._hit(request, "refuse", "cut"):
            raise Cut
        for fault in self._hit(request, "status"):
            assert isinstance(fault, _Status)
            raise _copy(fault.error)

    def refuse_connection(self) -> bool:
        with self._lock:
            found = [fault for fault in self._active if fault.kind == "refuse"]
            for fault in found:
                fault.hits += 1
        return bool(found)

    def serve_stale(self, request: Request) -> int | None:
        for fault in self._hit(request, "stale"):
            assert isinstance(fault, _Stale)
            return fault.version
        return None

    def on_answer(self, request: Request) -> AnswerFault | None:
        return self._answer_fault(request) if request.verb != "watch" else None

    def wrap_stream(self, request: Request, events: Iterator[bytes]) -> Iterator[bytes]:
        fault = self._answer_fault(request)
        return fault.stream(events) if fault is not None else events

    def _answer_fault(self, request: Request) -> _Late | _Lie | _CutAnswer | None:
        for fault in self._hit(request, "answer"):
            assert isinstance(fault, _Late | _Lie | _CutAnswer)
            return fault
        return None

    def stream_opened(self, request: Request, connection: Stream) -> None:
        with self._lock:
            self._streams[id(connection)] = (request, connection)

    def stream_closed(self, request: Request, connection: Stream) -> None:
        with self._lock:
            self._streams.pop(id(connection), None)

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._active.append(fault)
        return fault

    def _hit(self, request: Request, *kinds: str) -> list[Fault]:
        """Return the faults of these kinds that hit this request, and count the hits."""
        with self._lock:
            found = [
                fault
                for fault in self._active
                if fault.kind.partition(" ")[0] in kinds and not fault.used_up() and fault.matches(request)
            ]
            for fault in found:
                fault.hits += 1
        return found

    def _cut_streams(self, fault: Fault) -> None:
        with self._lock:
            found = [stream for request, stream in self._streams.values() if fault.matches(request)]
            fault.hits += len(found)
        for stream in found:
            stream.cut()

    def _keep_cutting(self, fault: Fault, every: float) -> None:
        while not fault.ended.wait(every):
            self._cut_streams(fault)


def _error(code: int, retry_after: int | None, message: str) -> errors.ApiError:
    match code:
        case 401:
            error = errors.unauthorized()
        case 429:
            error = errors.too_many_requests(message or "Too many requests, please try again later.", 0)
        case 500:
            error = errors.internal_error(message or "a fault of the test")
        case 503:
            error = errors.service_unavailable(message or "the server is currently unable to handle the request")
        case 504:
            error = errors.ApiError(504, "Timeout", message or "Timeout: request did not complete within the time")
        case _:
            error = errors.ApiError(code, "", message or f"a fault of the test: {code}")
    if retry_after is not None:
        error.details = {**(error.details or {}), "retryAfterSeconds": retry_after}
        error.headers = {"Retry-After": str(retry_after)}
    return error


def _copy(error: errors.ApiError) -> errors.ApiError:
    """Copy the error for each request, because a traceback belongs to one thread."""
    return errors.ApiError(error.code, error.reason, error.message, error.details, headers=error.headers)


@dataclass(frozen=True, slots=True)
class Call:
    """Describe a finished request or a watch that has ended. `ended` is the time in seconds since 1970."""

    method: str
    path: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    caller: str
    code: int
    ended: float


class RequestLog:
    """Record all calls in the order in which they end. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def __call__(self, request: Request, code: int) -> None:
        """Record a request. The server calls this after its response; the code is 0 if the connection was cut."""
        call = Call(
            request.method,
            request.path,
            request.verb,
            request.resource,
            request.subresource,
            request.namespace,
            request.name,
            request.user.name,
            request.headers.get("user-agent", ""),
            request.headers.get(CALLER_HEADER, ""),
            code,
            time.time(),
        )
        with self._lock:
            self._calls.append(call)

    def calls(self, **selected: str | int) -> list[Call]:
        """Return the calls that have these properties.

        An example: calls(verb="patch", resource="pods", code=200).
        """
        with self._lock:
            found = list(self._calls)
        return [call for call in found if all(getattr(call, key) == value for key, value in selected.items())]

    def count_by_verb(self, **selected: str | int) -> dict[str, int]:
        """Return the number of calls by verb and resource: {"patch pods/status": 3}."""
        counts: dict[str, int] = {}
        for call in self.calls(**selected):
            resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
            key = f"{call.verb} {resource or call.path}"
            counts[key] = counts.get(key, 0) + 1
        return counts

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()
