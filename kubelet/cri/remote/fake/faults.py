"""Inject faults into the fake runtime."""

from __future__ import annotations

import argparse
import math
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import errors
from pkg import golang

EVERY_METHOD = "*"

Match = Callable[[Any], bool]
# A Change replaces a response by another one.
Change = Callable[[Any], Any]


@dataclass(slots=True, eq=False)
class Fault:
    """Describe a fault of a method's calls. The methods of Faults create it, and `remove` ends it."""

    method: str
    sandbox: str = ""  # The fault affects only calls about this sandbox, by its id or its pod's name; "" means all.
    delay: float = 0.0
    error: errors.RemoteError | None = None
    times: int | None = None  # The fault affects this number of calls; None means all.
    release: golang.Channel[None] | None = None  # If set, calls hang until this channel is closed.
    match: Match | None = None
    answer: bool = False  # If set, the fault affects the response, after the call's work is done.
    change: Change | None = None  # If set, this function changes the response.
    hits: int = 0  # `hits` counts the affected calls.
    waiting: int = field(default=0)  # `waiting` counts the calls that hang now.


def latency_flag(text: str) -> tuple[str, float]:
    """Parse the method and the seconds of `--latency=METHOD=SECONDS`. Raise argparse.ArgumentTypeError."""
    method, _, seconds = text.partition("=")
    try:
        _check_method(method, cri_methods())
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from err
    try:
        delay = float(seconds)
    except ValueError:
        delay = -1.0
    if not 0 <= delay < math.inf:
        raise argparse.ArgumentTypeError(f"expected METHOD=SECONDS, got {text!r}")
    return method, delay


def cri_methods() -> list[str]:
    """List the methods of both CRI services."""
    return [each.name for service in runtimeapi.DESCRIPTOR.services_by_name.values() for each in service.methods]


def _check_method(method: str, methods: Collection[str]) -> None:
    """Raise ValueError, which lists the known methods, if the method is unknown."""
    if method not in (EVERY_METHOD, *methods):
        raise ValueError(f"unknown method {method!r}: expected * or one of {', '.join(methods)}")


class Faults:
    """Inject delays, errors and hangs into calls.

    All methods are thread-safe; a change affects calls that begin after it.
    The known methods are the given ones, by default those of the CRI, and * for all. Raise ValueError for any other
    method.
    """

    def __init__(self, methods: Collection[str] | None = None) -> None:
        self._methods = cri_methods() if methods is None else methods
        self._lock = threading.Lock()  # The lock guards _faults and their counters.
        self._faults: list[Fault] = []

    def latency(self, method: str, seconds: float, *, sandbox: str = "") -> Fault:
        """Delay calls by this time."""
        return self._add(Fault(method, sandbox, delay=seconds))

    def fail(
        self,
        method: str,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        times: int | None = None,
        sandbox: str = "",
        match: Match | None = None,
    ) -> Fault:
        """Make calls fail: the next `times`, or all until the fault is removed. `match` checks the request."""
        error = errors.RemoteError(code, message)
        return self._add(Fault(method, sandbox, error=error, times=times, match=match))

    def hang(
        self,
        method: str,
        *,
        sandbox: str = "",
        times: int | None = None,
        match: Match | None = None,
        answer: bool = False,
    ) -> Fault:
        """Make calls hang until the fault is removed or the caller gives up. `match` checks the request.

        With `answer`, a call hangs after its work; otherwise it hangs before.
        """
        return self._add(Fault(method, sandbox, release=golang.Channel(), times=times, match=match, answer=answer))

    def lie(
        self, method: str, change: Change, *, sandbox: str = "", times: int | None = None, match: Match | None = None
    ) -> Fault:
        """Make calls do their work but return a changed response. `match` checks the request."""
        return self._add(Fault(method, sandbox, change=change, times=times, match=match, answer=True))

    def remove(self, fault: Fault) -> None:
        """Remove a fault; calls that hang in it continue. A second call does nothing."""
        with self._lock:
            if fault not in self._faults:
                return
            self._faults.remove(fault)
        if fault.release is not None:
            fault.release.close()

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            faults = list(self._faults)
        for fault in faults:
            self.remove(fault)

    def apply(
        self,
        ctx: golang.Context,
        method: str,
        request: Any,
        sandbox_names: Callable[[], tuple[str, ...]],
        sleep: Callable[[golang.Context, float], None],
        response: Any = None,
    ) -> Any:
        """Apply the faults to a call or, with a response, to the response of a finished call.

        Return the response to send. Raise the error of a fault, or an error if ctx is done.
        """
        if not self._faults:
            return response
        for fault in self._hit(method, request, sandbox_names, response is not None):
            if fault.delay:
                sleep(ctx, fault.delay)
            if fault.release is not None:
                self._hang(ctx, fault)
            if fault.error is not None:
                raise fault.error
            if fault.change is not None:
                response = fault.change(response)
        return response

    def _hit(
        self, method: str, request: Any, sandbox_names: Callable[[], tuple[str, ...]], answer: bool
    ) -> list[Fault]:
        with self._lock:
            candidates = [f for f in self._faults if f.method in (method, EVERY_METHOD) and f.answer == answer]
        names = sandbox_names() if any(f.sandbox for f in candidates) else ()
        found = []
        for fault in candidates:
            if fault.sandbox and fault.sandbox not in names:
                continue
            if fault.match is not None and not fault.match(request):
                continue
            with self._lock:
                if fault.times is None or fault.hits < fault.times:
                    fault.hits += 1
                    found.append(fault)
        return found

    def _hang(self, ctx: golang.Context, fault: Fault) -> None:
        with self._lock:
            fault.waiting += 1
        golang.select(ctx.done(), fault.release)
        with self._lock:
            fault.waiting -= 1

    def _add(self, fault: Fault) -> Fault:
        _check_method(fault.method, self._methods)
        with self._lock:
            self._faults.append(fault)
        return fault
