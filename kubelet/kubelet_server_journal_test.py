"""Test queries of the node's logs.

Go: pkg/kubelet/kubelet_server_journal_test.go
"""

from __future__ import annotations

import gzip
import io
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubelet import kubelet_server_journal as journal
from kubelet.kubelet_server_journal import NodeLogQuery
from pkg import golang
from pkg.apimachinery.util import errors as utilerrors
from pkg.golang import http
from pkg.golang.http import testing as httptesting
from pkg.golang.testing import frames_kept_after

_CTX = golang.background()
_SINCE = datetime(2023, 1, 4, 2, tzinfo=UTC)
_UNTIL = datetime(2023, 2, 4, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "services", "arguments"),
    [
        (NodeLogQuery(), [], []),
        (NodeLogQuery(), ["p1", "p2"], ["--unit=p1", "--unit=p2"]),
        (NodeLogQuery(), ["p1", "", "p2"], ["--unit=p1", "--unit=p2"]),
        (
            NodeLogQuery(since_time=_SINCE, until_time=_UNTIL),
            [],
            ["--since=2023-01-04 02:00:00 UTC", "--until=2023-02-04 02:00:00 UTC"],
        ),
        (NodeLogQuery(tail_lines=5), ["p"], ["--pager-end", "--lines=5", "--unit=p"]),
        (NodeLogQuery(pattern="-x y", boot=-1), [], ["--grep=-x y", "--boot", "-1"]),
    ],
)
def test_get_logging_cmd(query: NodeLogQuery, services: list[str], arguments: list[str]) -> None:
    command = journal.get_logging_cmd(query, services)
    assert command == ["journalctl", "--utc", "--no-pager", "--output=short-precise", *arguments]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"unknown": ["true"]}, None),
        ({"sinceTime": [""], "untilTime": [""]}, None),
        ({"sinceTime": ["2023-01-04T03:00:00+01:00"]}, NodeLogQuery(since_time=_SINCE)),
        ({"untilTime": ["2023-02-04T02:00:00Z"]}, NodeLogQuery(until_time=_UNTIL)),
        ({"tailLines": ["100"]}, NodeLogQuery(tail_lines=100)),
        ({"pattern": ["foo"]}, NodeLogQuery(pattern="foo")),
        ({"boot": ["0"]}, NodeLogQuery(boot=0)),
        ({"boot": ["-23"]}, NodeLogQuery(boot=-23)),
        ({"query": ["foo"]}, NodeLogQuery(services=["foo"])),
        ({"query": ["foo", "bar"]}, NodeLogQuery(services=["foo", "bar"])),
        ({"query": ["foo", "/bar"]}, NodeLogQuery(services=["foo"], files=["/bar"])),
        ({"query": ["/foo", "\\bar"]}, NodeLogQuery(files=["/foo", "\\bar"])),
    ],
)
def test_new_node_log_query(values: dict[str, list[str]], expected: NodeLogQuery | None) -> None:
    assert journal.new_node_log_query(values) == expected


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sinceTime", ["2019-12-04 02:00:00"]),
        ("sinceTime", ["2019-12-04 02:00:00.000"]),
        ("sinceTime", ["2019-12-04 02"]),
        ("untilTime", ["2019-12-04 02:00"]),
        ("untilTime", ["99999-12-04T02:00:00Z"]),
        ("tailLines", ["foo"]),
        ("tailLines", [" "]),
        ("tailLines", ["9" * 5000]),
        ("boot", ["foo"]),
        ("boot", [" "]),
        ("query", [""]),
        ("query", ["   ", "    "]),
    ],
)
def test_new_node_log_query_of_nonsense(name: str, values: list[str]) -> None:
    with pytest.raises(utilerrors.Aggregate) as caught:
        journal.new_node_log_query({name: values})
    assert str(caught.value).startswith(f"{name}: Invalid value: ")


def test_nonsense_keeps_nothing_of_the_request() -> None:
    assert frames_kept_after(lambda: journal.new_node_log_query({"boot": ["foo"]})) == []


@pytest.mark.parametrize("service", ["svc1", "svc.foo", "svc_foo", "svc@foo", "svc:foo", "svc-foo"])
def test_good_service(service: str) -> None:
    assert not journal.validate_services([service])


@pytest.mark.parametrize("service", ["svc\n", "svc.foo\n", "svc/foo", "svc foo", "$(svc)", "svcé", "svc1" * 100])
def test_bad_service(service: str) -> None:
    assert len(journal.validate_services([service])) == 1


def test_too_many_services() -> None:
    assert str(journal.validate_services(["s"] * 5)[0]) == "query: Too many: 5: must have at most 4 items"


@pytest.mark.parametrize(
    ("query", "valid"),
    [
        ({}, False),
        ({"services": [], "since_time": _SINCE}, False),
        ({"services": ["a"]}, True),
        ({"services": ["a", "b"]}, True),
        ({"services": ["a"], "files": ["/f"]}, False),
        ({"files": ["/f", "/g"]}, False),
        ({"files": ["/f"], "pattern": "foo"}, False),
        ({"files": ["/f"], "boot": 0}, False),
        ({"files": ["/surely/not/there"]}, False),
        ({"files": ["/../../etc/passwd"]}, False),
        ({"files": ["/no\0where"]}, False),
        ({"services": ["a"], "pattern": "foo\\"}, False),
        ({"services": ["a"], "pattern": "(" * 3000}, False),
        ({"services": ["a"], "pattern": "x" * 5000}, False),
        ({"services": ["a"], "pattern": r"\\Q(\E[[:alpha:]]\pL\P{^Greek}"}, False),
        ({"services": ["a"], "pattern": r"\\\Q(\E[[:alpha:]]\pL\P{^Greek}"}, True),
        ({"services": ["a"], "pattern": r"a(?i)b(?<n>c)\x{10FFFF}\z"}, True),
        ({"services": ["a"], "pattern": "[[:alpha:]"}, False),
        ({"services": ["a"], "pattern": "(?i:[y-é])[é-ü]\\u00e9"}, True),
        ({"services": ["a"], "pattern": "(?i:" + "[\x01-\U0010ffff]" * 500 + ")"}, True),
        ({"services": ["a"], "pattern": r"\N[\x01-\N{U+E9}]"}, True),
        ({"services": ["a"], "pattern": "(?ix)" + r"[\x01-\N{VARIATION SELECTOR-256}]" * 120}, True),
        ({"services": ["a"], "since_time": _SINCE, "until_time": _UNTIL}, True),
        ({"services": ["a"], "since_time": _UNTIL, "until_time": _SINCE}, False),
        ({"services": ["a"], "boot": -1}, True),
        ({"services": ["a"], "boot": 1}, False),
        ({"services": ["a"], "tail_lines": 100_000}, True),
        ({"services": ["a"], "tail_lines": 100_001}, False),
        ({"services": ["a"], "tail_lines": -1}, False),
    ],
)
def test_validate(query: dict[str, Any], valid: bool) -> None:
    assert (not NodeLogQuery(**query).validate()) is valid


def test_heuristics_copy_file_logs(tmp_path: Path) -> None:
    def copied(service: str) -> bytes:
        out = io.BytesIO()
        journal.heuristics_copy_file_logs(_CTX, out, str(tmp_path), service)
        return out.getvalue()

    assert copied("service") == b"\nlog not found for service\n"
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "service.log").write_text("in its directory")
    assert copied("service") == b"in its directory"
    (tmp_path / "service.log").write_text("valid logs")
    assert copied("service.log") == b"valid logs"
    assert copied("service") == b"valid logs"
    (tmp_path / "other").symlink_to("/etc/passwd")
    assert copied("other") == b"\nerror getting log for other: permission denied\n"


# ---- Journal: a program named journalctl that does what the test needs ----


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "journalctl"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(journal, "NODE_LOG_DIR", str(tmp_path))
    _write(program, 'echo "args: $*"; echo "and an error" >&2; exit 1')
    return program


def _write(program: Path, does: str) -> None:
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --field ]; then echo kubelet.service; echo crio.service; exit; fi\n{does}\n'
    )
    program.chmod(0o755)


def _serve(query: NodeLogQuery, **headers: str) -> httptesting.Recorded:
    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        journal.serve_journal(w, r, query)

    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return httptesting.record(handler, "GET", "/logs/", sent)


def test_service_of_the_journal(journalctl: Path) -> None:
    got = _serve(NodeLogQuery(services=["kubelet"], tail_lines=3))
    assert got.headers.get("Content-Type") == "text/plain;charset=UTF-8"
    command = "--utc --no-pager --output=short-precise --pager-end --lines=3 --unit=kubelet"
    assert got.text == f"args: {command}\nand an error\n"


def test_compressed_for_who_says_so(journalctl: Path) -> None:
    got = _serve(NodeLogQuery(services=["kubelet"]), Accept_Encoding="gzip")
    assert got.headers.get("Content-Encoding") == "gzip"
    assert gzip.decompress(got.body).startswith(b"args: ")


def test_service_with_a_file_beside_one_of_the_journal(journalctl: Path, tmp_path: Path) -> None:
    (tmp_path / "foo.log").write_text("of foo\n")
    got = _serve(NodeLogQuery(services=["foo", "kubelet", "bar"]))
    assert got.text.endswith("and an error\nof foo\n\nlog not found for bar\n")


def test_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(journal, "NODE_LOG_DIR", str(tmp_path))
    assert _serve(NodeLogQuery(services=["kubelet"])).text == "\nlog not found for kubelet\n"


class _UntilLine:
    """Cancel a context at the first line, like a client that has read enough and leaves."""

    def __init__(self) -> None:
        self.ctx, self.cancel = golang.with_cancel(_CTX)
        self.data = b""

    def write(self, data: bytes, /) -> None:
        self.data += data
        self.cancel()


def test_journal_is_not_read_on_when_the_client_has_gone(journalctl: Path, tmp_path: Path) -> None:
    _write(journalctl, f"echo $$ > {tmp_path}/pid; echo line; exec sleep 1000")
    w = _UntilLine()
    with pytest.raises(golang.Canceled):
        NodeLogQuery(services=["kubelet"]).copy(w.ctx, w)
    assert w.data == b"line\n"
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_journal_that_takes_too_long(journalctl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_TIMEOUT", 1.0)
    _write(journalctl, "echo line; exec sleep 1000")
    assert _serve(NodeLogQuery(services=["kubelet"])).text == "line\n\ncontext error: context deadline exceeded\n"
