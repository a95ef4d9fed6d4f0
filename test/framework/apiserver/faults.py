"""Faults to switch on: an API server that is slow, that refuses, that errs, that drops connections, that lags.

    with faults.slow(2.0, verb="patch", resource="pods", subresource="status") as fault:
        ...
    assert fault.hits

A fault is on from the call that makes it until its end(), or until the end of the `with` block. What it is for is
said by the names of a request's properties; a tuple of values means any of them, and what is not named may be
anything. `times` lets it hit only so often. Everything here may be used from any thread.
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
# In lower case, as the server has it.
CALLER_HEADER = "x-caller"


class Filter(TypedDict, total=False):
    """Which requests a fault is for; times is how many of them it hits."""

    verb: Wanted
    resource: Wanted
    subresource: Wanted
    namespace: Wanted
    name: Wanted
    user: Wanted
    # The part of the kubelet that asks, where it says so: see framework.impatient_kubelet.
    caller: Wanted
    times: int


class Fault:
    """One fault. hits counts the requests, or the watches, that it struck."""

    def __init__(self, faults: Faults, kind: str, selected: Filter) -> None:
        self.kind = kind
        self.hits = 0
        self._faults = faults
        self._selected = selected
        # Set when the fault is over: what waits because of it then goes on.
        self.ended = threading.Event()

    def end(self) -> None:
        """Switch it off; does nothing a second time."""
        self._faults.remove(self)
        self.ended.set()

    def matches(self, request: Request) -> bool:
        """Whether it is for this request."""
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
    """Answers when it ends: what was asked for has long been done."""

    def answer(self, code: int, body: bytes) -> Answer:
        self.ended.wait()
        return Answer(code, body, len(body))

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        self.ended.wait()
        yield from events


class _Lie(Fault):
    """Answers something else. Of a watch each event is something else."""

    tell: Callable[[bytes], bytes]

    def answer(self, code: int, body: bytes) -> Answer:
        told = self.tell(body)
        return Answer(200, told, len(told))

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        for event in events:
            yield self.tell(event) + b"\n"


class _CutAnswer(Fault):
    """Sends half of the answer. Of a watch it sends half of the first event."""

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
    """The faults of one server. version is asked for the newest resource version."""

    def __init__(self, version: Callable[[], int] = lambda: 0) -> None:
        self.version = version
        # Guards all that follows, and the counts of the faults.
        self._lock = threading.Lock()
        self._active: list[Fault] = []
        self._streams: dict[int, tuple[Request, Stream]] = {}

    # To switch on.

    def slow(self, seconds: float, **selected: Unpack[Filter]) -> Fault:
        """Let requests wait for so long before anything is done about them."""
        fault = _Slow(self, "slow", selected)
        fault.seconds = seconds
        return self._add(fault)

    def hang(self, **selected: Unpack[Filter]) -> Fault:
        """Let requests wait until the fault ends; then they are done."""
        return self.slow(threading.TIMEOUT_MAX, **selected)

    def status(self, code: int, retry_after: int | None = None, message: str = "", **selected: Unpack[Filter]) -> Fault:
        """Answer with an error of this code; retry_after, in seconds, becomes the header of this name."""
        fault = _Status(self, f"status {code}", selected)
        fault.error = _error(code, retry_after, message)
        return self._add(fault)

    def refuse(self) -> Fault:
        """Take no connections, and cut those that are open as soon as they are used."""
        fault = self._add(Fault(self, "refuse", {}))
        self._cut_streams(fault)
        return fault

    def cut_connections(self, **selected: Unpack[Filter]) -> Fault:
        """Close the connection of a request instead of answering, and those of running watches at once."""
        fault = self._add(Fault(self, "cut", selected))
        self._cut_streams(fault)
        return fault

    def cut_watches(self, every: float | None = None, **selected: Unpack[Filter]) -> Fault:
        """Cut running watches: now, and again every so many seconds until the fault ends, if that is said."""
        fault = _CutWatches(self, "cut watches", selected)
        self._cut_streams(fault)
        if every is not None:
            fault.thread = golang.go(self._keep_cutting, fault, every, name="faults-cut-watches")
        return fault

    def late(self, **selected: Unpack[Filter]) -> Fault:
        """Do what requests ask for, and answer only when the fault ends."""
        return self._add(_Late(self, "answer", selected))

    def lie(self, tell: Callable[[bytes], bytes], **selected: Unpack[Filter]) -> Fault:
        """Do what requests ask for, and answer 200 with what `tell` makes of the answer; of a watch, of each event."""
        fault = _Lie(self, "answer", selected)
        fault.tell = tell
        return self._add(fault)

    def cut_answers(self, **selected: Unpack[Filter]) -> Fault:
        """Do what requests ask for, and cut the connection in the middle of the answer."""
        return self._add(_CutAnswer(self, "answer", selected))

    def stale_lists(self, version: int | None = None, **selected: Unpack[Filter]) -> Fault:
        """Answer lists and gets that take old data as of this version; by default as of now."""
        fault = _Stale(self, "stale", selected)
        fault.version = self.version() if version is None else version
        return self._add(fault)

    def end_all(self) -> None:
        with self._lock:
            active = list(self._active)
        for fault in active:
            fault.end()

    def remove(self, fault: Fault) -> None:
        """Called by a fault that ends."""
        with self._lock:
            if fault in self._active:
                self._active.remove(fault)

    @property
    def watches(self) -> list[Request]:
        """The requests of the watches that are running."""
        with self._lock:
            return [request for request, _ in self._streams.values()]

    # What the server asks.

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

    # Within.

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._active.append(fault)
        return fault

    def _hit(self, request: Request, *kinds: str) -> list[Fault]:
        """The faults of these kinds that strike this request; counted."""
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
    """An error of its own for every request: a traceback belongs to one thread."""
    return errors.ApiError(error.code, error.reason, error.message, error.details, headers=error.headers)


# --- What was asked --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has been answered; a watch, when it has ended. ended is the time in seconds after 1970."""

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
    """All calls in the order of their ends. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def __call__(self, request: Request, code: int) -> None:
        """Called by the server when it has answered; code is 0 if the connection was cut."""
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
        """The calls with these properties: calls(verb="patch", resource="pods", code=200)."""
        with self._lock:
            found = list(self._calls)
        return [call for call in found if all(getattr(call, key) == value for key, value in selected.items())]

    def count_by_verb(self, **selected: str | int) -> dict[str, int]:
        """How many calls there were, by verb and resource: {"patch pods/status": 3}."""
        counts: dict[str, int] = {}
        for call in self.calls(**selected):
            resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
            key = f"{call.verb} {resource or call.path}"
            counts[key] = counts.get(key, 0) + 1
        return counts

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()
