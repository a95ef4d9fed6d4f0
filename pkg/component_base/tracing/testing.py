"""Provide a collector that receives spans over gRPC in tests, and a provider that records their names.

Go: go.opentelemetry.io/proto/otlp/collector/trace/v1 (TraceServiceServer)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from pkg import golang
from pkg.component_base.tracing.tracing import Attributes, Kind, NoopTracer, NoopTracerProvider, Span, Tracer


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Receive spans at `endpoint`.

    The class is a context manager.
    """

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._requests: list[Any] = []  # _arrived guards this list.
        self._server = grpc.server(futures.ThreadPoolExecutor(2, "collector"))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[Any]:
        """Return the spans received so far."""
        with self._arrived:
            return self._spans_locked()

    def resources(self) -> list[dict[str, str]]:
        """Return the attributes of the resources whose spans were received."""
        with self._arrived:
            return [attributes(each.resource) for request in self._requests for each in request.resource_spans]

    def wait_for(self, wanted: Callable[[list[Any]], object], seconds: float = 30.0) -> list[Any]:
        """Wait until `wanted` is true for the received spans, and return them.

        Raise AssertionError with their names after the time limit.
        """
        with self._arrived:
            found = self._arrived.wait_for(lambda: wanted(self._spans_locked()), seconds)
            spans = self._spans_locked()
        assert found, f"received only these spans: {[span.name for span in spans]}"
        return spans

    def _spans_locked(self) -> list[Any]:
        return [
            span
            for request in self._requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()


class FakeTracerProvider(NoopTracerProvider):
    """Record the names of all spans in `started`."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def tracer(self, scope: str) -> Tracer:
        return _FakeTracer(self.started)


class _FakeTracer(NoopTracer):
    def __init__(self, started: list[str]) -> None:
        self._started = started

    def start(
        self, ctx: golang.Context, name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span:
        self._started.append(name)
        return super().start(ctx, name, attributes, kind)


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span or resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}
