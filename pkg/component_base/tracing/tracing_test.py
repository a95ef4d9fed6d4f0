"""Test tracing.

Go: k8s.io/component-base/tracing/tracing_test.go
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.client_go import rest
from pkg.client_go.rest import testing as resttesting
from pkg.component_base import tracing
from pkg.component_base.tracing import otel, testing
from pkg.golang import http
from pkg.golang.http import testing as httptesting

CTX = golang.background()
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Config:
    endpoint: str | None = None
    sampling_rate_per_million: int | None = None


@pytest.fixture
def collector() -> Iterator[testing.Collector]:
    with testing.Collector() as running:
        yield running


def provider(collector: testing.Collector, rate: int | None = 1_000_000) -> tracing.TracerProvider:
    return tracing.new_provider(Config(collector.endpoint, rate), {"service.name": "kubelet", "host.name": "h"})


def sent(collector: testing.Collector, of: tracing.TracerProvider) -> dict[str, Any]:
    """Return the spans by name, after all of them were sent."""
    of.shutdown(10)
    return {span.name: span for span in collector.spans()}


def test_spans_reach_the_collector_with_their_parents(collector: testing.Collector) -> None:
    made = provider(collector)
    tracer = made.tracer("scope")
    with tracer.start(CTX, "parent", {"a": "b", "n": 3}) as parent:
        with tracer.start(parent.ctx, "child", kind=tracing.Kind.CLIENT) as child:
            child.set_attributes({"late": True})
        with tracer.start(parent.ctx, "failed") as failed:
            failed.set_error("no")
    spans = sent(collector, made)
    assert testing.attributes(spans["parent"]) == {"a": "b", "n": 3}
    assert testing.attributes(spans["child"]) == {"late": True}
    assert spans["parent"].parent_span_id == b""
    for name in ("child", "failed"):
        assert spans[name].parent_span_id == spans["parent"].span_id
        assert spans[name].trace_id == spans["parent"].trace_id
    assert (spans["failed"].status.code, spans["failed"].status.message) == (2, "no")
    assert collector.resources() == [{"service.name": "kubelet", "host.name": "h"}]


def test_exception_is_noted_and_goes_on(collector: testing.Collector) -> None:
    made = provider(collector)
    with pytest.raises(RuntimeError, match="broken"), made.tracer("scope").start(CTX, "work"):
        raise RuntimeError("broken")
    span = sent(collector, made)["work"]
    assert (span.status.code, span.status.message) == (2, "broken")
    assert [event.name for event in span.events] == ["exception"]


def test_long_error_is_cut(collector: testing.Collector) -> None:
    """A long error is cut, because thousands of spans may wait for the collector."""
    made = provider(collector)
    with made.tracer("scope").start(CTX, "work") as span:
        span.set_error("x" * 100_000)
    assert sent(collector, made)["work"].status.message == "x" * otel.MAX_ATTRIBUTE_LENGTH


def test_blanks_in_headers(collector: testing.Collector) -> None:
    """The library receives no blanks of a header except those that separate words."""
    made = provider(collector)
    blanks = " \t" * 10_000
    headers = {
        "traceparent": f"{blanks}00-{TRACE}-{PARENT}-01{blanks}",
        "tracestate": f"a=1{blanks},b=2",
        "baggage": f"c=3{blanks},{blanks}d=4",
    }
    carried = dict(made.inject(made.extract(CTX, headers)))
    made.shutdown(10)
    assert carried == {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1,b=2", "baggage": "c=3,d=4"}


@pytest.mark.parametrize(
    ("rate", "parent", "kept"),
    [
        pytest.param(None, "", False, id="no rate, new trace"),
        pytest.param(0, "", False, id="rate 0, new trace"),
        pytest.param(1_000_000, "", True, id="all"),
        pytest.param(0, "01", True, id="rate 0, trace that others keep"),
        pytest.param(1_000_000, "00", False, id="all, trace that others do not keep"),
    ],
)
def test_sampling(collector: testing.Collector, rate: int | None, parent: str, kept: bool) -> None:
    made = provider(collector, rate)
    ctx = made.extract(CTX, {"traceparent": f"00-{TRACE}-{PARENT}-{parent}"}) if parent else CTX
    with made.tracer("scope").start(ctx, "work"):
        pass
    assert ("work" in sent(collector, made)) == kept


def test_headers_carry_the_trace(collector: testing.Collector) -> None:
    made = provider(collector)
    with made.tracer("scope").start(CTX, "work") as span:
        headers = dict(made.inject(span.ctx))
    span_ = sent(collector, made)["work"]
    assert headers["traceparent"].startswith(f"00-{span_.trace_id.hex()}-{span_.span_id.hex()}-")


def mux(made: tracing.TracerProvider, public: bool, status: int = 200) -> http.ServeMux:
    def answer(w: http.ResponseWriter, r: http.Request) -> None:
        with made.tracer("scope").start(r.ctx, "inner"):
            w.write_header(status)

    served = http.ServeMux()
    served.handle("/logs/{namespace}/{pod}", answer)
    served.filter(tracing.with_tracing(made, "kubelet", public_endpoint=public))
    return served


def test_a_request_with_long_headers_makes_a_short_span(collector: testing.Collector) -> None:
    made = provider(collector)
    headers = {"Host": "h" * 100_000 + ":" + "9" * 5000, "User-Agent": "u" * 100_000}
    httptesting.record(mux(made, public=True), "GET", "/logs/ns/a", headers=headers)
    found = testing.attributes(sent(collector, made)["/logs/{namespace}/{pod}"])
    assert found["user_agent.original"] == "u" * otel.MAX_ATTRIBUTE_LENGTH
    assert found["server.address"] == "h" * otel.MAX_ATTRIBUTE_LENGTH
    assert "server.port" not in found


@pytest.mark.parametrize("public", [False, True])
def test_requests(collector: testing.Collector, public: bool) -> None:
    made = provider(collector)
    headers = {"Traceparent": f"00-{TRACE}-{PARENT}-01", "Host": "node:10250", "User-Agent": "me"}
    httptesting.record(mux(made, public), "GET", "/logs/ns/a?follow=true", headers=headers)
    spans = sent(collector, made)
    span = spans["/logs/{namespace}/{pod}"]
    found = testing.attributes(span)
    assert (
        found.items()
        >= {
            "http.request.method": "GET",
            "http.route": "/logs/{namespace}/{pod}",
            "url.path": "/logs/ns/a",
            "server.address": "node",
            "server.port": 10250,
            "user_agent.original": "me",
            "http.response.status_code": 200,
        }.items()
    )
    assert span.kind == span.SPAN_KIND_SERVER
    assert spans["inner"].parent_span_id == span.span_id
    if public:
        assert span.trace_id.hex() != TRACE
        assert [link.trace_id.hex() for link in span.links] == [TRACE]
    else:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)


@pytest.mark.parametrize(("status", "code"), [(404, 0), (500, 2)])
def test_status_of_a_request(collector: testing.Collector, status: int, code: int) -> None:
    made = provider(collector)
    httptesting.record(mux(made, False, status), "GET", "/logs/ns/a")
    span = sent(collector, made)["/logs/{namespace}/{pod}"]
    assert span.status.code == code
    assert testing.attributes(span)["http.response.status_code"] == status


def test_requests_of_the_api_server(collector: testing.Collector) -> None:
    made = provider(collector)

    def answer(request: resttesting.Request) -> None:
        request.answer(404, b"{}")

    with resttesting.serve(answer) as server:
        client = rest.RESTClient(rest.Config(host=server.url, tracer_provider=made))
        with made.tracer("scope").start(CTX, "sync") as sync, pytest.raises(apierrors.StatusError):
            client.request(sync.ctx, "GET", "/api/v1/nodes/a")
        client.close_idle_connections()
    spans = sent(collector, made)
    span = spans["HTTP GET"]
    assert span.parent_span_id == spans["sync"].span_id
    assert testing.attributes(span) == {
        "http.request.method": "GET",
        "url.full": f"{server.url}/api/v1/nodes/a",
        "server.address": "127.0.0.1",
        "http.response.status_code": 404,
    }
    assert span.span_id.hex() in server.requests[0].headers["traceparent"]


def test_end_does_not_wait_for_a_collector_that_is_not_there() -> None:
    made = tracing.new_provider(Config("127.0.0.1:1", 1_000_000), {})
    with made.tracer("scope").start(CTX, "work"):
        pass
    started = golang.go(made.shutdown, 0.1, name="shutdown")
    started.join(30)
    assert not started.is_alive()


def test_nothing_is_imported_without_a_configuration() -> None:
    program = """
import sys
from pkg import golang
from pkg.component_base import tracing
from kubelet import kubelet_build
from kubelet.cri import remote
provider = tracing.new_provider(None, {})
assert provider is tracing.NOOP_TRACER_PROVIDER
with provider.tracer("scope").start(golang.background(), "work", {"a": "b"}) as span:
    span.set_attributes({"c": "d"})
    span.set_error("e")
assert span.ctx is golang.background()
assert provider.inject(span.ctx) == []
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
