"""Make spans with OpenTelemetry, and send them to a collector.

Only this module imports OpenTelemetry, and only a process with tracing imports this module.

Go: k8s.io/component-base/tracing/utils.go, go.opentelemetry.io/otel/sdk/trace
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context as OTelContext
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pkg import golang
from pkg.component_base.tracing.tracing import Attributes, Kind, Span, Tracer

# `MAX_ATTRIBUTE_LENGTH` is the maximum length of an attribute in characters. A client may send a mebibyte as its name,
# and thousands of spans may wait for the collector.
MAX_ATTRIBUTE_LENGTH = 4096
_CONTEXT_KEY = object()
_KINDS = {
    Kind.INTERNAL: trace.SpanKind.INTERNAL,
    Kind.SERVER: trace.SpanKind.SERVER,
    Kind.CLIENT: trace.SpanKind.CLIENT,
}
_PROPAGATORS = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def new_exporter(endpoint: str | None) -> OTLPSpanExporter:
    """Return an exporter that sends spans without TLS, as upstream does, by default to localhost:4317."""
    return OTLPSpanExporter(endpoint=endpoint, insecure=True)


class OTelTracerProvider:
    """Keep the configured share of new traces, and all traces that a caller started and keeps.

    The rate is the number of traces to keep out of a million.
    """

    enabled = True

    def __init__(self, exporter: sdk.export.SpanExporter, sampling_rate_per_million: int, resource: Attributes) -> None:
        sampler: sampling.Sampler = sampling.ALWAYS_OFF
        if sampling_rate_per_million > 0:
            sampler = sampling.TraceIdRatioBased(sampling_rate_per_million / 1_000_000)
        self._provider = sdk.TracerProvider(
            sampler=sampling.ParentBased(sampler),
            resource=Resource(dict(resource)),
            shutdown_on_exit=False,
            span_limits=sdk.SpanLimits(max_attribute_length=MAX_ATTRIBUTE_LENGTH),
        )
        self._exporter = exporter
        self._provider.add_span_processor(BatchSpanProcessor(exporter))

    def tracer(self, scope: str) -> Tracer:
        return _Tracer(self._provider.get_tracer(scope))

    def extract(self, ctx: golang.Context, headers: Mapping[str, str]) -> golang.Context:
        # For a run of blanks the library takes quadratic time, during which no other thread runs.
        carrier = {name: " ".join(headers[name].split()) for name in _PROPAGATORS.fields if name in headers}
        return golang.with_value(ctx, _CONTEXT_KEY, _PROPAGATORS.extract(carrier, _context(ctx)))

    def inject(self, ctx: golang.Context) -> list[tuple[str, str]]:
        carrier: dict[str, str] = {}
        _PROPAGATORS.inject(carrier, _context(ctx))
        return list(carrier.items())

    def shutdown(self, seconds: float) -> None:
        ending = golang.go(self._provider.shutdown, name="tracing-shutdown")
        ending.join(seconds)
        if ending.is_alive():
            self._exporter.shutdown()  # This call ends the wait for the collector.
            ending.join()


class _Tracer:
    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def start(
        self, ctx: golang.Context, name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span:
        span = self._tracer.start_span(name, _context(ctx), _KINDS[kind], attributes)
        return _Span(ctx, span)

    def start_linked(self, ctx: golang.Context, name: str, attributes: Attributes, kind: Kind) -> Span:
        remote = trace.get_current_span(_context(ctx)).get_span_context()
        links = [trace.Link(remote)] if remote.is_valid and remote.is_remote else []
        return _Span(ctx, self._tracer.start_span(name, OTelContext(), _KINDS[kind], attributes, links))


class _Span:
    __slots__ = ("_span", "ctx")

    def __init__(self, ctx: golang.Context, span: trace.Span) -> None:
        self._span = span
        self.ctx = golang.with_value(ctx, _CONTEXT_KEY, trace.set_span_in_context(span, _context(ctx)))

    def set_attributes(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def set_error(self, description: str) -> None:
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, description[:MAX_ATTRIBUTE_LENGTH]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self.set_error(str(error))
        self._span.end()


def _context(ctx: golang.Context) -> OTelContext:
    """Return OpenTelemetry's context, which its library would otherwise store for each thread."""
    found = ctx.value(_CONTEXT_KEY)
    return found if found is not None else OTelContext()
