"""Test the file server.

Go: net/http/fs_test.go
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from pkg.golang.http import ClientGone, Request, ResponseWriter, fs
from pkg.golang.http import testing as httptesting
from pkg.golang.http.fs import FileServer

_DATE = 1_767_323_045
_HTTP_DATE = "Fri, 02 Jan 2026 03:04:05 GMT"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a directory with a neighbour, files of ten bytes, and links."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "log"
    (root / "pods").mkdir(parents=True)
    (root / "pods" / "0.log").write_text("0123456789")
    (root / "node.log").write_text("abcdefghij")
    (root / "empty.log").write_text("")
    os.utime(root / "node.log", (_DATE, _DATE))
    (root / "inside").symlink_to(root / "pods" / "0.log")
    (root / "above").symlink_to("pods/../node.log")
    (root / "outside").symlink_to("../secret")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "slash").symlink_to("/")
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    (root / '<a b>:"%.log').write_text("odd")
    return root


def _get(root: Path, path: str, method: str = "GET", query: str = "", **headers: str) -> httptesting.Recorded:
    def handler(w: ResponseWriter, r: Request) -> None:
        FileServer(str(root)).serve(w, r, path)

    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httptesting.record(handler, method, f"/logs/x{query}", sent)


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("node.log", 200, "abcdefghij"),
        ("/node.log", 200, "abcdefghij"),
        ("pods/0.log", 200, "0123456789"),
        ("inside", 200, "0123456789"),
        ("above", 200, "abcdefghij"),
        ("empty.log", 200, ""),
        ("missing", 404, "404 page not found\n"),
        ("node.log/x", 404, "404 page not found\n"),
        ("no\0de", 404, "404 page not found\n"),
        # None of these paths leads out of the directory.
        ("../secret", 404, "404 page not found\n"),
        ("../../../../etc/passwd", 404, "404 page not found\n"),
        ("pods/../../secret", 404, "404 page not found\n"),
        ("..\\secret", 404, "404 page not found\n"),
        ("outside", 403, "403 Forbidden\n"),
        ("absolute", 403, "403 Forbidden\n"),
        ("slash/etc/passwd", 403, "403 Forbidden\n"),
        # None of these paths makes the server wait forever or fail.
        ("pipe", 403, "403 Forbidden\n"),
        ("circle", 404, "404 page not found\n"),
        ("x" * 300, 404, "404 page not found\n"),
    ],
)
def test_files(root: Path, path: str, status: int, body: str) -> None:
    got = _get(root, path)
    assert (got.status, got.text) == (status, body)


def test_listing(root: Path) -> None:
    got = _get(root, "")
    assert got.headers.get("Content-Type") == "text/html; charset=utf-8"
    lines = got.text.splitlines()
    assert lines[:3] == ["<!doctype html>", '<meta name="viewport" content="width=device-width">', "<pre>"]
    assert lines[3] == '<a href="./%3Ca%20b%3E:%22%25.log">&lt;a b&gt;:&quot;%.log</a>'
    assert '<a href="pods/">pods/</a>' in lines
    # A link is listed as a link, wherever it leads.
    assert '<a href="slash">slash</a>' in lines
    assert lines[-1] == "</pre>"
    assert _get(root, "pods/").text.splitlines()[3:-1] == ['<a href="0.log">0.log</a>']


def test_index_page_takes_the_place_of_a_listing(root: Path) -> None:
    (root / "pods" / "index.html").write_text("the page")
    assert _get(root, "pods/").text == "the page"
    assert _get(root, "pods/index.html").headers.get("Location") == "./"


@pytest.mark.parametrize(
    ("path", "query", "location"),
    [("pods", "", "pods/"), ("pods", "?a=b", "pods/?a=b"), ("node.log/", "", "../node.log")],
)
def test_directories_end_with_a_slash_and_files_do_not(root: Path, path: str, query: str, location: str) -> None:
    got = _get(root, path, query=query)
    assert (got.status, got.headers.get("Location")) == (301, location)


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        ("bytes=0-3", 206, "abcd", "bytes 0-3/10"),
        ("bytes=4-", 206, "efghij", "bytes 4-9/10"),
        ("bytes=-3", 206, "hij", "bytes 7-9/10"),
        ("bytes=-99", 206, "abcdefghij", "bytes 0-9/10"),
        ("bytes=5-99999999999999", 206, "fghij", "bytes 5-9/10"),
        ("bytes=9-9", 206, "j", "bytes 9-9/10"),
        ("bytes=10-", 416, "invalid range: failed to overlap\n", "bytes */10"),
        ("bytes=5-4", 416, "invalid range\n", ""),
        ("bytes=-", 416, "invalid range\n", ""),
        ("bytes=a-b", 416, "invalid range\n", ""),
        ("lines=1-2", 416, "invalid range\n", ""),
        pytest.param("bytes=" + " " * 1_000_000 + "x", 416, "invalid range\n", "", id="blanks"),
        ("bytes= 0 - 3 ", 206, "abcd", "bytes 0-3/10"),
        ("bytes=12345678901234567890-", 416, "invalid range\n", ""),
        ("bytes=0-1,3-4", 200, "abcdefghij", ""),
    ],
)
def test_ranges(root: Path, wanted: str, status: int, body: str, content_range: str) -> None:
    got = _get(root, "node.log", Range=wanted)
    assert (got.status, got.text, got.headers.get("Content-Range")) == (status, body, content_range)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If_Modified_Since": _HTTP_DATE}, 304),
        ({"If_Modified_Since": "Thu, 01 Jan 2026 03:04:05 GMT"}, 200),
        ({"If_Modified_Since": "last week"}, 200),
        ({"If_Unmodified_Since": _HTTP_DATE}, 200),
        ({"If_Unmodified_Since": "Thu, 01 Jan 2026 03:04:05 GMT"}, 412),
        ({"Range": "bytes=0-3", "If_Range": _HTTP_DATE}, 206),
        ({"Range": "bytes=0-3", "If_Range": "Thu, 01 Jan 2026 03:04:05 GMT"}, 200),
    ],
)
def test_conditions(root: Path, headers: dict[str, str], status: int) -> None:
    got = _get(root, "node.log", **headers)
    assert got.status == status
    assert got.headers.get("Last-Modified") == _HTTP_DATE


@pytest.mark.parametrize("seconds", [2**63 - 1, 253402300800], ids=["latest", "year-10000"])
@pytest.mark.parametrize("path", ["node.log", ""], ids=["file", "directory"])
def test_time_that_no_date_can_be_written_of(
    root: Path, monkeypatch: pytest.MonkeyPatch, path: str, seconds: int
) -> None:
    """A file whose time cannot be written as a date is served without Last-Modified.

    Some file systems accept any time; that of the test may not, so the test fakes it.
    """
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((*fstat(fd)[:7], seconds, seconds, seconds)))
    got = _get(root, path)
    assert (got.status, got.headers.get("Last-Modified")) == (200, "")
    assert ("abcdefghij" if path else "node.log") in got.text


def test_head(root: Path) -> None:
    got = _get(root, "node.log", "HEAD")
    assert (got.status, got.headers.get("Content-Length"), got.body) == (200, "10", b"")


def test_no_more_than_was_there_at_the_start(root: Path) -> None:
    (root / "large.log").write_bytes(b"x" * 200_000)
    got = _get(root, "large.log")
    assert got.headers.get("Content-Length") == "200000"
    assert len(got.body) == 200_000


def test_file_that_is_cut_short_while_it_is_sent() -> None:
    def handler(w: ResponseWriter, r: Request) -> None:
        with pytest.raises(ClientGone, match="truncated"):
            fs._copy(w, io.BytesIO(b"abc"), 5)

    assert httptesting.record(handler, "GET", "/").body == b"abc"
