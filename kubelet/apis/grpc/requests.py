"""End calls whose request does not arrive. In Go each call has a goroutine, so that a waiting call blocks no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain

# The request of a call must arrive within this time, in seconds, after a thread has begun to wait for it.
# DIVERGES (safer): the kubelet cancels a gRPC call whose request does not arrive within REQUEST_TIMEOUT.
# Go: google.golang.org/grpc/server.go, (*Server).processUnaryRPC: the Go server waits for the request without a limit.
# Why: a client that begins calls and sends nothing would occupy all threads of the server.
# Test: requests_test.py:test_calls_without_a_request_keep_no_thread_from_others
REQUEST_TIMEOUT = 5.0


class RequestTimeouts(grpc.ServerInterceptor):
    """End calls whose request does not arrive in time. This must be the first interceptor of a server.

    A call occupies one of the server's threads before its request has arrived. A client that begins calls and sends
    nothing would occupy the threads. The interceptor does not limit streaming calls.
    """

    def __init__(self, name: str, at_once: int) -> None:
        """Start a thread with this name, which `close` ends. Raise golang.ThreadError.

        `at_once` is the number of requests that are served at the same time.
        """
        self._turns = threading.BoundedSemaphore(at_once)
        self._changed = threading.Condition()  # The condition guards the fields below.
        # The dict holds the waiting calls with their deadlines, the earliest first.
        self._waiting: dict[grpc.ServicerContext, float] = {}
        self._closed = False
        self._thread = golang.go(self._run, name=name)

    def close(self) -> None:
        """Stop the thread, and wait for its end."""
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

        # Only the request of a streaming method can be awaited here.
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
                with contain("Failed to end a call whose request did not arrive"):
                    context.cancel()
                    klog.info_s("Ended a call whose request did not arrive", peer=context.peer())

    def _take_late(self) -> list[grpc.ServicerContext] | None:
        """Wait for calls whose deadline has passed, and return them. Return None after `close`."""
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
