"""Define tracing for the code that makes spans, and provide a tracer that makes none.

    with self.tracer.start(ctx, "syncPod", {"k8s.pod.name": name}) as span:
        self.do_it(span.ctx)

The context carries the span to the functions that start spans below it.

Go: go.opentelemetry.io/otel/trace, k8s.io/component-base/tracing/tracing.go

Spans are not logged, because the Go kubelet does not use that part of the package.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from pkg import golang

Attributes = Mapping[str, str | bool | int | float]


class Kind(enum.Enum):
    """List the sides of a call that a span can represent."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


class Span(Protocol):
    """Represent one operation, from its start to the end of the `with` block.

    The span records an exception that leaves the block. Only one thread may use a span, but `ctx` may be passed to
    others.
    """

    ctx: golang.Context

    def set_attributes(self, attributes: Attributes) -> None: ...

    def set_error(self, description: str) -> None:
        """Mark the operation as failed without an exception."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer(Protocol):
    """Define how to start spans.

    All methods are thread-safe.
    """

    def start(
        self, ctx: golang.Context, name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span:
        """Start a span below that of ctx, or the first span of a new trace."""

    def start_linked(self, ctx: golang.Context, name: str, attributes: Attributes, kind: Kind) -> Span:
        """Start the first span of a new trace that only links to the span of ctx."""


class TracerProvider(Protocol):
    """Define how to make tracers, one for each part of the program."""

    enabled: bool

    def tracer(self, scope: str) -> Tracer: ...

    def extract(self, ctx: golang.Context, headers: Mapping[str, str]) -> golang.Context:
        """Return ctx with the span that a request's headers refer to; the header names are in lower case."""

    def inject(self, ctx: golang.Context) -> list[tuple[str, str]]:
        """Return the headers, in lower case, that continue the trace in a call to another program."""

    def shutdown(self, seconds: float) -> None:
        """Send the remaining spans, for at most this many seconds, and shut down."""


class NoopSpan:
    __slots__ = ("ctx",)

    def __init__(self, ctx: golang.Context) -> None:
        self.ctx = ctx

    def set_attributes(self, attributes: Attributes) -> None:
        pass

    def set_error(self, description: str) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class NoopTracer:
    def start(
        self, ctx: golang.Context, name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span:
        return NoopSpan(ctx)

    def start_linked(self, ctx: golang.Context, name: str, attributes: Attributes, kind: Kind) -> Span:
        return NoopSpan(ctx)


class NoopTracerProvider:
    """Make no spans.

    DIVERGES (platform): without a tracing configuration, the kubelet does not propagate the headers of a trace.
    Go: k8s.io/component-base/tracing/utils.go, WrapperFor: calls made on behalf of a request carry its trace headers.
    Why: OpenTelemetry's library takes memory and start-up time, so only a kubelet that uses it loads it.
    Test: tracing_test.py:test_nothing_is_imported_without_a_configuration
    """

    enabled = False

    def tracer(self, scope: str) -> Tracer:
        return NoopTracer()

    def extract(self, ctx: golang.Context, headers: Mapping[str, str]) -> golang.Context:
        return ctx

    def inject(self, ctx: golang.Context) -> list[tuple[str, str]]:
        return []

    def shutdown(self, seconds: float) -> None:
        pass


NOOP_TRACER_PROVIDER: TracerProvider = NoopTracerProvider()
