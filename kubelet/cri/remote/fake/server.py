"""Serve the fake runtime on a unix socket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf import message_factory

from kubelet.cri import errors
from kubelet.cri.remote import util, utils
from kubelet.cri.remote.fake.runtime import FakeRuntime
from pkg import golang

# A waiting call (a hang, a pull, a slow stop of a container) occupies a thread. Threads start on demand, so a high
# limit costs nothing.
_MAX_WORKERS = 256


class FakeServer:
    """Serve both CRI services with gRPC.

    `stop` followed by `start` is a restart, which keeps sandboxes and containers. As a context manager, the server runs
    within the block.
    """

    def __init__(self, endpoint: str, runtime: FakeRuntime | None = None) -> None:
        self.endpoint = endpoint
        self.runtime = runtime or FakeRuntime()
        self._path = Path(util.get_address(endpoint))
        self._server: Any = None
        self._workers: futures.ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Start to listen and to serve calls. Raise OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._workers = futures.ThreadPoolExecutor(_MAX_WORKERS, thread_name_prefix="fake-cri")
        options = [("grpc.max_receive_message_length", utils.MAX_MSG_SIZE)]
        self._server = grpc.server(self._workers, options=options)
        for service in ("RuntimeService", "ImageService"):
            self._server.add_generic_rpc_handlers((self._handlers(service),))
        try:
            self._server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as err:
            raise OSError(f"listen on {self._path}: {err}") from err
        self._server.start()

    def stop(self) -> None:
        """End all calls and remove the socket, as if the runtime were killed; sandboxes and containers stay."""
        if self._server is None or self._workers is None:
            return
        self._server.stop(grace=None).wait()
        self._workers.shutdown(wait=True)
        self._server = self._workers = None
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> FakeServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.runtime.close()

    def _handlers(self, service: str) -> Any:
        handlers = {}
        for method in runtimeapi.DESCRIPTOR.services_by_name[service].methods:
            streams = method.name == "GetContainerEvents"
            make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
            handlers[method.name] = make(
                self._stream(method.name) if streams else self._unary(method.name),
                request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
                response_serializer=message_factory.GetMessageClass(method.output_type).SerializeToString,
            )
        return grpc.method_handlers_generic_handler(f"runtime.v1.{service}", handlers)

    def _unary(self, method: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        def answer(request: Any, call: grpc.ServicerContext) -> Any:
            ctx, cancel = golang.with_cancel(golang.background())
            if not call.add_callback(cancel):
                cancel()
            try:
                return self.runtime.invoke(ctx, method, request)
            except errors.RemoteError as err:
                return call.abort(err.code, err.message)

        return answer

    def _stream(self, method: str) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def answer(request: Any, call: grpc.ServicerContext) -> Iterator[Any]:
            ctx, cancel = golang.with_cancel(golang.background())
            stack = contextlib.ExitStack()
            stack.callback(cancel)
            try:
                events = stack.enter_context(self.runtime.stream(ctx, method, request))
            except errors.RemoteError as err:
                call.abort(err.code, err.message)
            if not call.add_callback(stack.close):
                stack.close()
            return events

        return answer
