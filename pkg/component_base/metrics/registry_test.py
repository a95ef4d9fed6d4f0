"""Test registries and their pages.

Go: k8s.io/component-base/metrics/registry_test.go, http_test.go, options_test.go
"""

from __future__ import annotations

import gzip
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from pkg.component_base import metrics
from pkg.component_base.metrics import http, legacyregistry, processstarttime, registry, version
from pkg.component_base.metrics.prometheus import slis
from pkg.golang import testing as golangtesting
from pkg.golang.http import testing as httptesting


@pytest.mark.parametrize(
    ("level", "current", "deprecated", "hidden"),
    [
        (metrics.ALPHA, "1.36", "1.36", True),
        (metrics.ALPHA, "1.36", "1.37", False),
        (metrics.INTERNAL, "1.36", "1.36", True),
        (metrics.BETA, "1.36", "1.36", False),
        (metrics.BETA, "1.37", "1.36", True),
        (metrics.STABLE, "1.38", "1.36", False),
        (metrics.STABLE, "1.39", "1.36", True),
        (metrics.STABLE, "2.0", "1.36", True),
        (metrics.ALPHA, "1.36", "2.0", False),
    ],
)
def test_should_hide(level: metrics.StabilityLevel, current: str, deprecated: str, hidden: bool) -> None:
    assert registry.should_hide(level, current, deprecated) == hidden


@pytest.fixture
def nothing_shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_show_hidden", False)
    yield


@pytest.mark.usefixtures("nothing_shown")
def test_deprecated_metrics_hide_until_they_are_asked_for() -> None:
    page = metrics.KubeRegistry("v1.36.2")
    page.must_register(
        metrics.new_gauge("old", "Old.", deprecated_version="1.35"),
        metrics.new_gauge("ageing", "Ageing.", level=metrics.STABLE, deprecated_version="1.35"),
        metrics.new_gauge("new", "New."),
    )
    shown = page.expose().decode()
    assert "# HELP ageing [STABLE] (Deprecated since 1.35) Ageing." in shown
    assert "# HELP new [ALPHA] New." in shown
    assert "old" not in shown
    metrics.set_show_hidden()
    assert "# HELP old [ALPHA] (Deprecated since 1.35) Old." in page.expose().decode()


def test_registered_metrics_are_counted() -> None:
    def count() -> float:
        samples = [s for family in registry._REGISTERED_METRICS_TOTAL.collect() for s in family.samples]
        return sum(s.value for s in samples if s.labels == {"stability_level": "BETA", "deprecated_version": ""})

    before = count()
    metrics.KubeRegistry().must_register(metrics.new_gauge("counted", "Counted.", level=metrics.BETA))
    assert count() == before + 1


def test_same_name_twice_is_refused() -> None:
    page = metrics.KubeRegistry()
    gauge = metrics.new_gauge("twice", "Twice.")
    page.must_register(gauge)
    with pytest.raises(ValueError, match="twice"):
        page.must_register(metrics.new_gauge("twice", "Twice."))
    page.unregister(gauge)
    assert page.expose() == b""


@pytest.mark.parametrize(
    ("accept", "compressed"),
    [
        ([], False),
        (["identity"], False),
        (["zstd, br"], False),
        (["gzip"], True),
        (["deflate, gzip;q=0.5"], True),
        (["deflate", "GZIP"], True),
        (["gzip; q=0"], False),
        (["*"], True),
    ],
)
def test_page_is_compressed_for_whoever_accepts_it(accept: list[str], compressed: bool) -> None:
    page = metrics.KubeRegistry()
    page.must_register(metrics.new_counter("c", "C."))
    headers = {"Accept-Encoding": ", ".join(accept)} if accept else {}
    answer = httptesting.record(http.handler_for(page), "GET", "/metrics", headers=headers)
    assert answer.status == 200
    assert answer.headers.get("Content-Type") == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
    assert int(answer.headers.get("Process-Start-Time-Unix")) > 0
    assert answer.headers.get("Content-Encoding") == ("gzip" if compressed else "")
    body = gzip.decompress(answer.body) if compressed else answer.body
    assert body == b"# HELP c [ALPHA] C.\n# TYPE c counter\nc 0\n"


class _Slow:
    """Represent a collector that passes a gate for each page."""

    def __init__(self) -> None:
        self.gate = golangtesting.Gate()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        self.gate.pass_through()
        return []


@pytest.mark.parametrize("accept", ["gzip", "identity"])
def test_who_asks_while_a_page_is_made_shares_the_next_one(accept: str) -> None:
    page, slow = metrics.KubeRegistry(), _Slow()
    page.must_register(slow)
    handler, headers = http.handler_for(page), {"Accept-Encoding": accept}
    answers = golangtesting.ask_as_crowd(
        slow.gate, lambda ctx: httptesting.record(handler, "GET", "/metrics", headers=headers, ctx=ctx)
    )
    assert [answer.status for answer in answers] == [200] * 4
    assert slow.gate.rounds == 2


def test_head_has_no_body() -> None:
    answer = httptesting.record(legacyregistry.handler(), "HEAD", "/metrics")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers.get("Content-Length")) > 0


def test_delete_resets_what_has_labels() -> None:
    page = metrics.KubeRegistry()
    labelled, plain = metrics.new_counter("labelled", "L.", ["a"]), metrics.new_counter("plain", "P.")
    page.must_register(labelled, plain)
    labelled.labels("x").inc()
    plain.inc()
    handler = http.handler_with_reset(page)
    assert b'labelled{a="x"} 1' in httptesting.record(handler, "GET", "/metrics/slis").body
    assert httptesting.record(handler, "DELETE", "/metrics/slis").body == b"metrics reset\n"
    body = httptesting.record(handler, "GET", "/metrics/slis").body
    assert b"labelled" not in body and b"plain 1" in body


def test_health_checks_are_shown() -> None:
    # No other test of this process uses this check.
    slis.observe_healthcheck("shown", "healthz", slis.ERROR)
    slis.observe_healthcheck("shown", "healthz", slis.SUCCESS)
    body = httptesting.record(slis.handler_with_reset(), "GET", "/metrics/slis").body.decode()
    assert 'kubernetes_healthcheck{name="shown",type="healthz"} 1\n' in body
    for status in ("success", "error"):
        assert f'kubernetes_healthchecks_total{{name="shown",status="{status}",type="healthz"}} 1\n' in body
    assert "# HELP process_start_time_seconds [ALPHA]" in body


def test_process_start_time(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/stat").write_text(f"42 (a) b) R {' '.join(str(i) for i in range(4, 60))}\n")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1700000000\n")
    ticks = 22
    started = processstarttime.process_start_time(tmp_path)
    assert 1700000000 < started <= 1700000000 + ticks


def test_build_info_is_of_python() -> None:
    page = metrics.KubeRegistry()
    version.register_build_info(page)
    [info] = [line for line in page.expose().decode().splitlines() if not line.startswith("#")]
    assert f'go_version="python{platform.python_version()}"' in info
    assert 'git_commit=""' in info and 'build_date=""' in info


def test_pages_of_the_process() -> None:
    body = legacyregistry.expose().decode()
    for name in (
        "kubernetes_build_info",
        "process_cpu_seconds_total",
        "process_network_receive_bytes_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_max_bytes",
        "registered_metrics_total",
        "hidden_metrics_total",
    ):
        assert f"\n# TYPE {name} " in f"\n{body}"


def test_scraper_that_asks_for_protobuf_gets_text() -> None:
    page = metrics.KubeRegistry()
    page.must_register(metrics.new_counter("c", "C."))
    accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
    answer = httptesting.record(http.handler_for(page), "GET", "/metrics", headers={"Accept": accept})
    assert answer.headers.get("Content-Type").startswith("text/plain; version=0.0.4;")
    assert b"# TYPE c counter" in answer.body
