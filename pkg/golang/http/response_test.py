"""Test headers, bodies and responses without sockets."""

from __future__ import annotations

import pytest

from pkg import golang
from pkg.golang import http
from pkg.golang.http.testing import record, request


def test_headers() -> None:
    headers = http.Headers([("Content-Type", "a"), ("X-One", "1"), ("x-one", "2")])
    assert headers.get("content-type") == "a"
    assert headers.get("none", "default") == "default"
    assert headers.get_all("X-ONE") == ["1", "2"]
    headers.set("X-One", "3")
    headers.delete("content-type")
    assert "Content-Type" not in headers
    assert list(headers.items()) == [("X-One", "3")]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["Upgrade"], True),
        (["keep-alive, upgrade"], True),
        (["close", "UPGRADE"], True),
        (["upgraded"], False),
        ([], False),
    ],
)
def test_tokens(values: list[str], found: bool) -> None:
    assert http.Headers(("Connection", value) for value in values).has_token("connection", "upgrade") is found


def test_body_in_parts() -> None:
    parts = iter([b"abc", b"defg"])
    body = http.Body(lambda: next(parts, b""), 100)
    assert [body.read(2), body.read(3), body.read(), body.read()] == [b"ab", b"cde", b"fg", b""]


def test_body_too_large() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        r.body.read()

    answer = record(handler, "POST", "/", body=b"x" * ((1 << 20) + 1))
    assert (answer.status, answer.text) == (413, "http: request body too large\n")


class _Stuck:
    """Represent a client that reads nothing, and record the data that is kept for it."""

    def __init__(self) -> None:
        self.kept: list[bytes | memoryview] = []

    def start(self, status: int, headers: http.Headers, first: bytes) -> None:
        self.kept.append(first)

    def data(self, data: memoryview) -> None:
        self.kept.append(data)

    def end(self) -> None:
        raise AssertionError("nothing was taken")

    def let_client_pause(self) -> None:
        pass

    def hijack(self) -> tuple[http.Conn, bytes]:
        raise AssertionError("not asked for")


def test_large_body_is_not_copied_for_a_client_that_takes_nothing() -> None:
    body = b"0123456789" * 100_000
    stuck = _Stuck()
    http.ResponseWriter(stuck).write(body)
    assert b"".join(stuck.kept) == body
    copied = [each for each in stuck.kept if not (isinstance(each, memoryview) and each.obj is body)]
    assert sum(map(len, copied)) < 100_000
    assert max(map(len, stuck.kept)) < 100_000


def test_query() -> None:
    r = request("GET", "/x?a=1&a=2&b&c=%20%2f+y")
    assert (r.param("a"), r.param("b"), r.param("c"), r.param("d", "-")) == ("1", "", " / y", "-")
    assert (r.query["a"], r.raw_query) == (["1", "2"], "a=1&a=2&b&c=%20%2f+y")


def _answering(*parts: bytes, status: int = 200, flush: bool = False, **headers: str) -> http.Handler:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        for name, value in headers.items():
            w.headers.set(name.replace("_", "-"), value)
        w.write_header(status)
        for part in parts:
            w.write(part)
            if flush:
                w.flush()

    return handler


@pytest.mark.parametrize(
    ("method", "handler", "status", "headers", "parts"),
    [
        ("GET", _answering(b"a", b"b"), 200, {"Content-Length": "2", "Content-Type": "text/plain"}, [b"ab"]),
        ("GET", _answering(b"\x00"), 200, {"Content-Type": "application/octet-stream"}, [b"\x00"]),
        ("GET", _answering(b"<html>"), 200, {"Content-Type": "text/plain"}, [b"<html>"]),
        ("GET", _answering(b"{}", Content_Type="application/json"), 200, {"Content-Type": "application/json"}, [b"{}"]),
        ("GET", _answering(b"a", b"b", flush=True), 200, {"Content-Length": ""}, [b"a", b"b"]),
        ("GET", _answering(b"a" * 4096, b"b"), 200, {"Content-Length": ""}, [b"a" * 4096, b"b"]),
        ("HEAD", _answering(b"abc"), 200, {"Content-Length": "3"}, []),
        ("GET", _answering(status=204), 204, {"Content-Length": ""}, []),
        ("GET", _answering(), 200, {"Content-Length": "0"}, []),
    ],
)
def test_responses(
    method: str, handler: http.Handler, status: int, headers: dict[str, str], parts: list[bytes]
) -> None:
    answer = record(handler, method, "/")
    assert (answer.status, answer.parts) == (status, parts)
    for name, value in headers.items():
        assert answer.headers.get(name).startswith(value)
        assert value or name not in answer.headers


def test_first_status_counts() -> None:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.write_header(404)
        w.write_header(200)

    assert record(handler, "GET", "/").status == 404


def _raising(err: Exception, before: bytes = b"", flush: bool = False) -> http.Handler:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        w.headers.set("X-Secret", "1")
        if before:
            w.write(before)
        if flush:
            w.flush()
        raise err

    return handler


@pytest.mark.parametrize(
    ("handler", "status", "body", "cut_short"),
    [
        (_raising(http.HTTPError(404, "no such pod")), 404, "no such pod\n", False),
        (_raising(RuntimeError("password is 1234")), 500, "Internal Server Error\n", False),
        (_raising(RuntimeError("x"), before=b"half"), 500, "Internal Server Error\n", False),
        (_raising(RuntimeError("x"), before=b"half", flush=True), 200, "half", True),
        (_raising(http.ClientGone()), 0, "", True),
        (_raising(golang.Canceled()), 0, "", True),
    ],
)
def test_what_handlers_raise(handler: http.Handler, status: int, body: str, cut_short: bool) -> None:
    answer = record(handler, "GET", "/")
    assert (answer.status, answer.text, answer.cut_short) == (status, body, cut_short)
    if status >= 400:
        assert "X-Secret" not in answer.headers
        assert answer.headers.get("X-Content-Type-Options") == "nosniff"
