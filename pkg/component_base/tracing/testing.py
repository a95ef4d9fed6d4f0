"""A collector for tests, which takes spans over gRPC and shows them, and a provider that notes their names.

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
    """A context manager, within which `endpoint` takes spans."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._requests: list[Any] = []  # guarded by _arrived
        self._server = grpc.server(futures.ThreadPoolExecutor(2, "collector"))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[Any]:
        """What came so far."""
        with self._arrived:
            return self._spans_locked()

    def resources(self) -> list[dict[str, str]]:
        """Whose spans came."""
        with self._arrived:
            return [attributes(each.resource) for request in self._requests for each in request.resource_spans]

    def wait_for(self, wanted: Callable[[list[Any]], object], seconds: float = 30.0) -> list[Any]:
        """All spans, once they are what is wanted. Raises AssertionError with their names if they never are."""
        with self._arrived:
            found = self._arrived.wait_for(lambda: wanted(self._spans_locked()), seconds)
            spans = self._spans_locked()
        assert found, f"only these spans came: {[span.name for span in spans]}"
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
    """`started` has the names of all spans."""

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
    """The attributes of a span or resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}
