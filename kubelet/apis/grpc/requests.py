"""Calls whose request does not come. In Go each call has a goroutine, and one that waits is in nobody's way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain

# Seconds in which the request of a call has to come, once a thread waits for it.
# DIVERGES (safer): a gRPC call to the kubelet whose request does not come within REQUEST_TIMEOUT is cancelled.
# Go: google.golang.org/grpc/server.go, (*Server).processUnaryRPC: has no bound.
# Why: a client that begins calls and sends nothing would take all threads of the server.
# Test: requests_test.py:test_calls_without_a_request_keep_no_thread_from_others
REQUEST_TIMEOUT = 5.0


class RequestTimeouts(grpc.ServerInterceptor):
    """Ends the calls whose request does not come in time; to be the first interceptor of a server.

    A call has one of the server's threads before its request has come. A client that begins calls and says no more
    would keep the threads from all others. Calls with streams are left alone.
    """

    def __init__(self, name: str, at_once: int) -> None:
        """Starts a thread of this name, which `close` ends. Raises golang.ThreadError.

        `at_once`: requests that are served at the same time, of however many have come.
        """
        self._turns = threading.BoundedSemaphore(at_once)
        self._changed = threading.Condition()  # guards the fields below
        # Those that wait, with the end of their time, the earliest first.
        self._waiting: dict[grpc.ServicerContext, float] = {}
        self._closed = False
        self._thread = golang.go(self._run, name=name)

    def close(self) -> None:
        """Returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler

        def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            with self._timed(context):
                request = next(requests, None)
            if request is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "call requires exactly one request message")
            with self._turns:
                return handler.unary_unary(request, context)

        # Only a streamed request can be waited for here.
        return grpc.stream_unary_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)

    @contextmanager
    def _timed(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self._changed:
            self._waiting[context] = time.monotonic() + REQUEST_TIMEOUT
            if len(self._waiting) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._waiting.pop(context, None)

    def _run(self) -> None:
        while (late := self._take_late()) is not None:
            for context in late:
                with contain("Failed to end a call whose request did not come"):
                    context.cancel()
                    klog.info_s("Ended a call whose request did not come", peer=context.peer())

    def _take_late(self) -> list[grpc.ServicerContext] | None:
        """Wait for calls whose time is over; None when there are to be no more."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                if late := [context for context, until in self._waiting.items() if until <= now]:
                    for context in late:
                        del self._waiting[context]
                    return late
                earliest = next(iter(self._waiting.values()), None)
                self._changed.wait(None if earliest is None else earliest - now)
            return None
