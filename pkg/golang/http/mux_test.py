"""Test how the mux finds the handler for a path."""

from __future__ import annotations

import pytest

from pkg.golang import http
from pkg.golang.http.testing import record


def _named(name: str) -> http.Handler:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.write(f"{name} {r.path_values}".encode())

    return handler


@pytest.fixture
def mux() -> http.ServeMux:
    mux = http.ServeMux()
    mux.handle("/pods", _named("pods"), ["GET"])
    mux.handle("/metrics", _named("metrics"))
    mux.handle("/metrics/cadvisor", _named("cadvisor"))
    mux.handle("/exec/{ns}/{pod}/{c}", _named("exec"), ["GET", "POST"])
    mux.handle("/exec/{ns}/{pod}/{uid}/{c}", _named("exec-uid"), ["GET", "POST"])
    mux.handle("/exec/{ns}/{pod}/{c}", _named("exec-put"), ["PUT"])
    mux.handle("/exec", _named("all-else"))
    mux.handle("/exec/", _named("all-else"))
    mux.handle("/sub/{$}", _named("sub"), ["GET"])
    mux.handle("/logs/", _named("logs-dir"), ["GET"])
    mux.handle("/files/{path...}", _named("files"), ["GET"])
    mux.handle("/debug/pprof/", _named("pprof"))
    mux.handle("/debug/pprof/special", _named("special"))
    return mux


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/pods", 200, "pods {}"),
        ("GET", "/pods/", 200, "pods {}"),
        ("GET", "/pods/x", 404, "404 page not found\n"),
        ("GET", "/podsx", 404, "404 page not found\n"),
        ("POST", "/pods", 405, "405: Method Not Allowed"),
        ("GET", "/metrics", 200, "metrics {}"),
        ("GET", "/metrics/", 404, "404 page not found\n"),
        ("GET", "/metrics/cadvisor", 200, "cadvisor {}"),
        ("GET", "/metrics/cadvisor/", 404, "404 page not found\n"),
        ("GET", "/metrics/none", 404, "404 page not found\n"),
        ("GET", "/sub/", 200, "sub {}"),
        ("POST", "/sub/", 405, "405: Method Not Allowed"),
        ("GET", "/sub/x", 404, "404 page not found\n"),
        ("POST", "/exec/a/b/c?x=1", 200, "exec {'ns': 'a', 'pod': 'b', 'c': 'c'}"),
        ("PUT", "/exec/a/b/c", 200, "exec-put {'ns': 'a', 'pod': 'b', 'c': 'c'}"),
        ("GET", "/exec/a/b/u/c", 200, "exec-uid {'ns': 'a', 'pod': 'b', 'uid': 'u', 'c': 'c'}"),
        ("GET", "/exec/a/b", 200, "all-else {}"),
        ("GET", "/exec", 200, "all-else {}"),
        ("GET", "/exec/", 200, "all-else {}"),
        ("GET", "/exec/a/b/c/", 200, "exec {'ns': 'a', 'pod': 'b', 'c': 'c'}"),
        ("DELETE", "/exec/a/b/c", 405, "405: Method Not Allowed"),
        ("GET", "/logs/", 200, "logs-dir {}"),
        ("GET", "/logs/a/b.log", 200, "logs-dir {}"),
        ("GET", "/files/a/b%20c.log", 200, "files {'path': 'a/b c.log'}"),
        ("GET", "/files/", 200, "files {'path': ''}"),
        ("GET", "/debug/pprof/heap", 200, "pprof {}"),
        ("GET", "/debug/pprof/special", 200, "special {}"),
        ("GET", "/", 404, "404 page not found\n"),
        ("GET", "/%zz", 400, "400 Bad Request\n"),
        ("GET", "/a%00b", 400, "400 Bad Request\n"),
        ("GET", "pods", 400, "400 Bad Request\n"),
        ("GET", "http://node:10250/pods?x", 200, "pods {}"),
    ],
)
def test_routes(mux: http.ServeMux, method: str, target: str, status: int, body: str) -> None:
    answer = record(mux, method, target)
    assert (answer.status, answer.text) == (status, body)


def test_wrong_method_names_those_that_are_right(mux: http.ServeMux) -> None:
    assert record(mux, "DELETE", "/exec/a/b/c").headers.get("allow") == "GET, POST, PUT"


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/pods//", "/pods/"),
        ("//pods", "/pods"),
        ("/logs/../exec/a/b/c?command=ls", "/exec/a/b/c?command=ls"),
        ("/logs/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"),
        ("/a%0d%0ab/../c%0d%0a", "/c%0D%0A"),
        ("/logs", "/logs/"),
        ("/files?x=%20", "/files/?x=%20"),
        ("/debug/pprof", "/debug/pprof/"),
        ("/sub", "/sub/"),
    ],
)
def test_unclean_paths_are_redirected(mux: http.ServeMux, target: str, location: str) -> None:
    answer = record(mux, "GET", target)
    assert (answer.status, answer.headers.get("Location")) == (307, location)
    assert answer.headers.get("Content-Type") == "text/html; charset=utf-8"
    assert answer.text == f'<a href="{location}">Temporary Redirect</a>.\n\n'


def test_only_readers_are_told_of_a_redirect_in_html(mux: http.ServeMux) -> None:
    answer = record(mux, "POST", "/sub?a&b")
    assert (answer.status, answer.headers.get("Location"), answer.text) == (307, "/sub/?a&b", "")
    assert "&amp;" in record(mux, "GET", "/sub?a&b").text


def test_filters_see_all_of_registered_paths_and_redirects(mux: http.ServeMux) -> None:
    seen: list[str] = []

    def filter_named(name: str) -> http.Filter:
        def around(handler: http.Handler) -> http.Handler:
            def handle(w: http.ResponseWriter, r: http.Request) -> None:
                seen.append(f"{name} {r.method} {r.pattern}")
                handler(w, r)

            return handle

        return around

    mux.filter(filter_named("outer"))
    mux.filter(filter_named("inner"))
    record(mux, "POST", "/pods")
    record(mux, "GET", "/none")
    record(mux, "GET", "//pods")
    assert seen == ["outer POST /pods", "inner POST /pods", "outer GET ", "inner GET "]


def test_registered_paths(mux: http.ServeMux) -> None:
    assert mux.registered_paths()[:3] == ["/debug/pprof/", "/debug/pprof/special", "/exec"]


@pytest.mark.parametrize("pattern", ["pods", "/{name}"])
def test_patterns_that_match_nothing(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        http.ServeMux().handle(pattern, _named("x"))
