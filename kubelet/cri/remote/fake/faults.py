"""What goes wrong in the fake runtime, on purpose."""

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
# Makes another answer of an answer.
Change = Callable[[Any], Any]


@dataclass(slots=True, eq=False)
class Fault:
    """Something that befalls the calls of a method; made by the methods of Faults, taken back by `remove`."""

    method: str
    sandbox: str = ""  # only calls about this sandbox, by its id or its pod's name; empty: all
    delay: float = 0.0
    error: errors.RemoteError | None = None
    times: int | None = None  # befalls so many calls; None: all
    release: golang.Channel[None] | None = None  # a hang: calls wait until this is closed
    match: Match | None = None
    answer: bool = False  # befalls the answer: what the call was for is done
    change: Change | None = None  # of the answer
    hits: int = 0  # calls it has befallen
    waiting: int = field(default=0)  # calls that hang in it now


def latency_flag(text: str) -> tuple[str, float]:
    """The method and seconds of a flag `--latency=METHOD=SECONDS`. Raises argparse.ArgumentTypeError."""
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
    """The methods of both services of the CRI."""
    return [each.name for service in runtimeapi.DESCRIPTOR.services_by_name.values() for each in service.methods]


def _check_method(method: str, methods: Collection[str]) -> None:
    """Raises ValueError that names the methods there are."""
    if method not in (EVERY_METHOD, *methods):
        raise ValueError(f"there is no method {method!r}: it is * or one of {', '.join(methods)}")


class Faults:
    """Delays, errors and hangs of calls. Safe from any thread; a change befalls calls that begin after it.

    Methods are those that are given, of CRI unless they are others, or * for all. Raises ValueError for any other.
    """

    def __init__(self, methods: Collection[str] | None = None) -> None:
        self._methods = cri_methods() if methods is None else methods
        self._lock = threading.Lock()  # guards _faults and the counters in them
        self._faults: list[Fault] = []

    def latency(self, method: str, seconds: float, *, sandbox: str = "") -> Fault:
        """Calls take so much longer."""
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
        """Calls fail: the next `times`, or all until removed. `match` looks at the request."""
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
        """Calls do not return until the fault is removed or the caller gives up. `match` looks at the request.

        With `answer` they do their work and do not say so; otherwise they have not begun.
        """
        return self._add(Fault(method, sandbox, release=golang.Channel(), times=times, match=match, answer=answer))

    def lie(
        self, method: str, change: Change, *, sandbox: str = "", times: int | None = None, match: Match | None = None
    ) -> Fault:
        """Calls do their work and get another answer than the true one. `match` looks at the request."""
        return self._add(Fault(method, sandbox, change=change, times=times, match=match, answer=True))

    def remove(self, fault: Fault) -> None:
        """Take a fault back; calls that hang in it go on. Twice is once."""
        with self._lock:
            if fault not in self._faults:
                return
            self._faults.remove(fault)
        if fault.release is not None:
            fault.release.close()

    def clear(self) -> None:
        """Take all faults back."""
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
        """Let the faults befall one call or, with a response, the answer of a call that has done its work.

        Returns the answer to send. Raises what the faults say, or when ctx is done.
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
