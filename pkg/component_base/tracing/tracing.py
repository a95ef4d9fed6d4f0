"""What the code that makes spans sees of tracing, and the spans of a process that has none.

    with self.tracer.start(ctx, "syncPod", {"k8s.pod.name": name}) as span:
        self.do_it(span.ctx)

The context carries the span to where others are started below it.

Go: go.opentelemetry.io/otel/trace, k8s.io/component-base/tracing/tracing.go

Spans are not written to the log besides: Go's kubelet does not use that part of the package.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from pkg import golang

Attributes = Mapping[str, str | bool | int | float]


class Kind(enum.Enum):
    """Which side of a call a span is."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"


class Span(Protocol):
    """One piece of work, from its start to the end of the `with` block. An exception that leaves the block is noted.

    Used by one thread; `ctx` may be handed on.
    """

    ctx: golang.Context

    def set_attributes(self, attributes: Attributes) -> None: ...

    def set_error(self, description: str) -> None:
        """The work failed, without an exception."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer(Protocol):
    """Starts spans. Safe from any thread."""

    def start(
        self, ctx: golang.Context, name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL
    ) -> Span:
        """A span below that of ctx, or the first of a new trace."""

    def start_linked(self, ctx: golang.Context, name: str, attributes: Attributes, kind: Kind) -> Span:
        """The first span of a new trace, which only refers to that of ctx."""


class TracerProvider(Protocol):
    """Makes tracers, one for each part of the program."""

    enabled: bool

    def tracer(self, scope: str) -> Tracer: ...

    def extract(self, ctx: golang.Context, headers: Mapping[str, str]) -> golang.Context:
        """ctx with the span that a request's headers speak of; their names are in lower case."""

    def inject(self, ctx: golang.Context) -> list[tuple[str, str]]:
        """The headers, in lower case, by which whom we call continues the trace."""

    def shutdown(self, seconds: float) -> None:
        """Send what there is, for that long at the most, and end."""


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
    """Makes no spans.

    DIVERGES (platform): without a configuration of tracing, the headers of a trace end here.
    Go: k8s.io/component-base/tracing/utils.go, WrapperFor: calls that are made for a request have its headers.
    Why: OpenTelemetry's library is loaded only for a kubelet that uses it, as it takes memory and time at the start.
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
