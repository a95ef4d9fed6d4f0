"""Set up tracing.

Go: k8s.io/component-base/tracing/utils.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pkg.component_base.tracing.tracing import NOOP_TRACER_PROVIDER, Attributes, Kind, TracerProvider

if TYPE_CHECKING:
    from pkg.golang.http import Handler, Request, ResponseWriter

_SCOPE = "k8s.io/component-base/tracing"
_MAX_PORT_DIGITS = 5


class TracingConfiguration(Protocol):
    """Define where spans are sent, and how many of them.

    Go: k8s.io/component-base/tracing/api/v1/types.go
    """

    endpoint: str | None
    sampling_rate_per_million: int | None


def new_provider(config: TracingConfiguration | None, resource: Attributes) -> TracerProvider:
    """Return a provider that sends spans as configured, or makes none without a configuration.

    `resource` identifies the source of all spans. The caller must call `shutdown`.
    """
    if config is None:
        return NOOP_TRACER_PROVIDER
    from pkg.component_base.tracing import otel

    exporter = otel.new_exporter(config.endpoint)
    return otel.OTelTracerProvider(exporter, config.sampling_rate_per_million or 0, resource)


def with_tracing(
    provider: TracerProvider, service: str, *, public_endpoint: bool = False
) -> Callable[[Handler], Handler]:
    """Return a filter for a ServeMux that makes a span for each request, named after the path's pattern.

    The span continues the caller's trace. At a public endpoint, which anybody may call, the span only links to that
    trace.

    Go: otelrestful.OTelFilter
    """
    tracer = provider.tracer(_SCOPE)

    def wrap(handler: Handler) -> Handler:
        def serve(w: ResponseWriter, r: Request) -> None:
            ctx = provider.extract(r.ctx, {name.lower(): value for name, value in r.headers.items()})
            start = tracer.start_linked if public_endpoint else tracer.start
            with start(ctx, r.pattern, _request_attributes(service, r), Kind.SERVER) as span:
                r.ctx = span.ctx
                handler(w, r)
                status = w.status or 200
                span.set_attributes({"http.response.status_code": status})
                if status >= 500:
                    span.set_error("")

        return serve

    return wrap if provider.enabled else lambda handler: handler


def _request_attributes(service: str, r: Request) -> dict[str, str | bool | int | float]:
    host, _, port = r.headers.get("Host", service).rpartition(":")
    attributes: dict[str, str | bool | int | float] = {
        "http.request.method": r.method,
        "http.route": r.pattern,
        "network.protocol.version": "1.1",
        "server.address": host or port,
        "url.path": r.path,
        "url.scheme": "https" if r.tls else "http",
    }
    if host and port.isdecimal() and len(port) <= _MAX_PORT_DIGITS:
        attributes["server.port"] = int(port)
    if r.remote_addr is not None:
        attributes["network.peer.address"], attributes["network.peer.port"] = r.remote_addr
    if agent := r.headers.get("User-Agent"):
        attributes["user_agent.original"] = agent
    return attributes
