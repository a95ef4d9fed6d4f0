"""Test the reading and following of logs.

Go: k8s.io/cri-client/pkg/logs/logs_test.go, tail_test.go
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_for, wait_until_equal
from hypothesis import given, settings
from hypothesis import strategies as st

from kubelet.cri import testing
from kubelet.kuberuntime import logs
from kubelet.kuberuntime.logs import log_files, tail, turns
from kubelet.kuberuntime.logs.logs import (
    LINES_IN_TURN,
    _LogWriter,
    _MaximumWriteError,
    parse_cri_log,
    parse_docker_json_log,
)
from pkg import golang
from pkg.golang.turn import Turn

_CTX = golang.background()
_LINES = (
    "2020-09-27T11:18:01.1Z stdout F one\n"
    "2020-09-27T11:18:02.2Z stderr F two\n"
    "2020-09-27T11:18:03.000000003Z stdout F three\n"
)


def _read(path: Path, ctx: golang.Context = _CTX, **options: Any) -> tuple[bytes, bytes]:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    opts = logs.LogOptions(**options)
    logs.read_logs(ctx, str(path), "cid", opts, testing.FakeRuntimeService(), stdout, stderr)
    return stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_text(_LINES)
    return path


class _Client:
    """Record whether a reader holds a turn while it sends to this client."""

    def __init__(self) -> None:
        self.were_at_work: list[bool] = []

    def write(self, data: bytes, /) -> int:
        self.were_at_work.append(not turns.TURNS._free)
        return len(data)


@pytest.mark.parametrize("options", [{}, {"timestamp": True}, {"tail_lines": 2}, {"limit_bytes": 5}])
def test_a_client_that_does_not_read_holds_up_no_other(log: Path, options: dict[str, Any]) -> None:
    client = _Client()
    logs.read_logs(_CTX, str(log), "", logs.LogOptions(**options), testing.FakeRuntimeService(), client, client)
    assert client.were_at_work and not any(client.were_at_work)
    assert turns.TURNS._free


def test_one_log_after_the_other_is_taken_apart(log: Path) -> None:
    """A reader waits while another thread parses a block, whatever the client has requested."""
    out = io.BytesIO()
    args = (_CTX, str(log), "", logs.LogOptions(), testing.FakeRuntimeService(), out, out)
    with Turn(turns.TURNS):
        thread = golang.go(logs.read_logs, *args, name="reader")
        thread.join(0.2)
        assert thread.is_alive() and not out.getvalue()
    thread.join()
    assert out.getvalue() == b"one\ntwo\nthree\n"


def _wait_for_line(length: int) -> None:
    wait_until_equal("threads in line", lambda: len(turns.TURNS._waiting), length)


def test_who_reads_a_little_goes_before_who_reads_much(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of a short termination message does not wait for hundreds of clients that read large logs."""
    order: list[str] = []
    monkeypatch.setattr(_LogWriter, "_add", lambda *_: order.append(threading.current_thread().name))
    out = io.BytesIO()
    much = _LogWriter(str(log), out, None, logs.LogOptions())
    much._turn._had = turns.TURNS.level() + 100.0
    little = (_CTX, str(log), "", logs.LogOptions(), testing.FakeRuntimeService(), out, out)
    threads = []
    with Turn(turns.TURNS):
        threads.append(golang.go(much.write, _LINES.encode(), name="much"))
        _wait_for_line(1)
        threads.append(golang.go(logs.read_logs, *little, name="little"))
        _wait_for_line(2)
    for thread in threads:
        thread.join()
    assert order == ["little", "much"]


def test_a_long_block_leaves_the_turn_to_others(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of single lines passes the turn on, because hundreds of clients may have such a block at once."""
    order: list[str] = []
    monkeypatch.setattr(_LogWriter, "_add_usual_lines", lambda *_: False)
    monkeypatch.setattr(_LogWriter, "_add_line", lambda *_: order.append(threading.current_thread().name))
    out = io.BytesIO()
    many = _LogWriter(str(log), out, None, logs.LogOptions())
    few = _LogWriter(str(log), out, None, logs.LogOptions())
    few_lines, many_lines = _LINES.encode(), _LINES.encode() * LINES_IN_TURN
    threads = []
    with Turn(turns.TURNS):
        threads.append(golang.go(many.write, many_lines, name="many"))
        _wait_for_line(1)
        threads.append(golang.go(few.write, few_lines, name="few"))
        _wait_for_line(2)
    for thread in threads:
        thread.join()
    assert order.index("few") == LINES_IN_TURN
    assert order.count("many") == many_lines.count(b"\n")


_SECOND = datetime(2020, 9, 27, 11, 18, 2, 200000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "stdout", "stderr"),
    [
        ({}, b"one\nthree\n", b"two\n"),
        ({"tail_lines": 2}, b"three\n", b"two\n"),
        ({"tail_lines": 0}, b"", b""),
        ({"tail_lines": 9}, b"one\nthree\n", b"two\n"),
        ({"since": _SECOND}, b"three\n", b"two\n"),
        ({"limit_bytes": 5}, b"one\n", b"t"),
        ({"limit_bytes": 4}, b"one\n", b""),
        (
            {"timestamp": True, "tail_lines": 1},
            b"2020-09-27T11:18:03.000000003Z three\n",
            b"",
        ),
        ({"timestamp": True, "tail_lines": 2, "limit_bytes": 10}, b"", b"2020-09-27"),
    ],
)
def test_read_logs(log: Path, options: dict[str, Any], stdout: bytes, stderr: bytes) -> None:
    assert _read(log, **options) == (stdout, stderr)


def test_timestamps_have_nine_digits(log: Path) -> None:
    assert _read(log, timestamp=True)[1] == b"2020-09-27T11:18:02.200000000Z two\n"


_T = b"2026-01-02T03:04:0"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, b"one\nthree\n\rtwo\n"),
        (
            {"timestamp": True},
            _T + b"5.100000000Z one\n" + _T + b"5.200000000Z three\n" + _T + b"6.000000001Z \rtwo\n",
        ),
        ({"since": datetime(2026, 1, 2, 3, 4, 5, 200000, tzinfo=UTC)}, b"three\n\rtwo\n"),
        ({"since": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)}, b"\rtwo\n"),
        ({"limit_bytes": 4}, b"one\n"),
        ({"limit_bytes": 12}, b"one\nthree\n\rt"),
        ({"limit_bytes": 10**18}, b"one\nthree\n\rtwo\n"),
        ({"tail_lines": 10**18}, b"one\nthree\n\rtwo\n"),
    ],
)
# An invalid line, which is omitted, makes the reader parse the block line by line.
@pytest.mark.parametrize("bad", [b"", b"nonsense\n"])
def test_both_streams_to_one_place(tmp_path: Path, options: dict[str, Any], expected: bytes, bad: bytes) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(
        _T + b"5.1Z stdout F one\n" + _T + b"5.20Z stderr F three\n" + bad + _T + b"6.000000001Z stdout F \rtwo\n"
    )
    out = io.BytesIO()
    logs.read_logs(_CTX, str(path), "", logs.LogOptions(**options), testing.FakeRuntimeService(), out, out)
    assert out.getvalue() == expected


def test_stream_that_nobody_wants_does_not_count(log: Path) -> None:
    stdout = io.BytesIO()
    opts = logs.LogOptions(limit_bytes=6)
    logs.read_logs(_CTX, str(log), "", opts, testing.FakeRuntimeService(), stdout, None)
    assert stdout.getvalue() == b"one\nth"


def test_partial_lines_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(
        "2020-09-27T11:18:01Z stdout P one \n2020-09-27T11:18:02Z stdout P:X two \n"
        "2020-09-27T11:18:03Z stdout F three\n"
    )
    assert _read(path)[0] == b"one two three\n"
    assert _read(path, timestamp=True)[0] == b"2020-09-27T11:18:01.000000000Z one two three\n"


def test_unfinished_last_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(_LINES + "2020-09-27T11:18:04Z stdout F four")
    assert _read(path)[0] == b"one\nthree\nfour"


def test_bad_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text(_LINES + "nonsense\n2020-09-27T11:18:04Z stdout F four\n")
    assert _read(path)[0] == b"one\nthree\nfour\n"


def test_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("nonsense\n")
    with pytest.raises(ValueError, match=r'failed to get parse function: unsupported log format: "nonsense\\n"'):
        _read(path)


def test_missing_log(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f'failed to try resolving symlinks in path "{tmp_path}/0.log": lstat'):
        _read(tmp_path / "0.log")
    with pytest.raises(OSError, match=f'failed to open log file "{tmp_path}": is a directory'):
        _read(tmp_path)


def test_symbolic_link_is_followed(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(log)
    assert _read(link)[1] == b"two\n"


class _Follower:
    """Follow a log in a thread; the container runs until `stop`."""

    def __init__(self, path: Path, ctx: golang.Context = _CTX, **options: Any) -> None:
        self.runtime = testing.FakeRuntimeService()
        status = runtimeapi.ContainerStatus(id="cid", state=runtimeapi.CONTAINER_RUNNING)
        self.runtime.set_fake_containers([testing.FakeContainer(status, "sandbox")])
        self.lines: golang.Channel[bytes] = golang.Channel(100)
        self.error: Exception | None = None
        opts = logs.LogOptions(follow=True, **options)
        self.thread = golang.go(self._run, ctx, path, opts, name="follower")

    def _run(self, ctx: golang.Context, path: Path, opts: logs.LogOptions) -> None:
        try:
            logs.read_logs(ctx, str(path), "cid", opts, self.runtime, self, self)
        except golang.ContextError as err:
            self.error = err

    def write(self, data: bytes, /) -> int:
        self.lines.send(data)
        return len(data)

    def next(self) -> bytes | None:
        return self.lines.recv(timeout=30)[0]

    def stop(self) -> None:
        self.runtime.exit_container("cid", 0)
        self.thread.join(timeout=30)
        assert not self.thread.is_alive()


def test_follow_sees_new_lines_and_ends_with_the_container(log: Path) -> None:
    follower = _Follower(log, tail_lines=1)
    assert follower.next() == b"three\n"
    with log.open("a") as f:
        f.write("2020-09-27T11:18:04Z stdout F ")
        f.flush()
        f.write("four\n")
    assert follower.next() == b"four\n"
    follower.stop()


def test_follow_goes_on_in_the_new_file_after_a_rotation(log: Path) -> None:
    follower = _Follower(log, tail_lines=1)
    assert follower.next() == b"three\n"

    # The watch exists once the follower has requested the container's status.
    wait_for("the watch", lambda: "ContainerStatus" in follower.runtime.called())
    os.rename(log, f"{log}.20200927-111804")
    log.write_text("2020-09-27T11:18:05Z stdout F five\n")
    assert follower.next() == b"five\n"
    follower.stop()


@pytest.mark.parametrize("rotated", [False, True])
def test_what_was_rotated_away_is_read_by_who_wants_it(log: Path, rotated: bool) -> None:
    os.rename(log, f"{log}.20200927-111804")
    log.write_text("2020-09-27T11:18:05Z stdout F five\n")
    stdout, _ = _read(log, rotated=rotated)
    assert stdout == (b"one\nthree\nfive\n" if rotated else b"five\n")


def test_follow_ends_with_its_context(log: Path) -> None:
    ctx, cancel = golang.with_cancel(_CTX)
    follower = _Follower(log, ctx, tail_lines=1)
    assert follower.next() == b"three\n"
    cancel()
    follower.thread.join(timeout=30)
    assert isinstance(follower.error, golang.Canceled)


@pytest.mark.parametrize(
    ("line", "stream", "text", "nanoseconds"),
    [
        (b"2016-10-20T18:39:20.57606443Z stdout F a b\n", b"stdout", b"a b\n", 576064430),
        (b"2016-10-20T18:39:20Z stderr P a\n", b"stderr", b"a", 0),
        (b"2016-10-20T20:39:20.1+02:00 stdout F \n", b"stdout", b"\n", 100000000),
        (b"2016-10-20T18:39:20.5+00:00 stdout F x\n", b"stdout", b"x\n", 500000000),
        (b"2016-10-20T18:39:20.5Z stdout F:TAG x\n", b"stdout", b"x\n", 500000000),
    ],
)
def test_parse_cri_log(line: bytes, stream: bytes, text: bytes, nanoseconds: int) -> None:
    msg = parse_cri_log(line)
    second = int(datetime(2016, 10, 20, 18, 39, 20, tzinfo=UTC).timestamp())
    assert (msg.stream, msg.log) == (stream, text)
    assert msg.nanoseconds == second * 10**9 + nanoseconds


@pytest.mark.parametrize(
    "line",
    [b"", b"2016-10-20T18:39:20Z stdout\n", b"not-a-time stdout F x\n", b"2016-10-20T18:39:20Z std F x\n"],
)
def test_parse_bad_cri_log(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"not found|unexpected"):
        parse_cri_log(line)


def test_parse_docker_json_log() -> None:
    msg = parse_docker_json_log(b'{"log":"text\\n","stream":"stdout","time":"2016-10-20T18:39:20.57606443Z"}\n')
    assert (msg.stream, msg.log) == (b"stdout", b"text\n")


@pytest.mark.parametrize(("n", "start"), [(-1, 0), (0, len("a\nbc\nd\n")), (1, 5), (2, 2), (3, 0), (9, 0)])
def test_find_tail_line_start_index(n: int, start: int) -> None:
    assert tail.find_tail_line_start_index(io.BytesIO(b"a\nbc\nd\n"), n) == start


def test_tail_of_a_file_of_many_blocks() -> None:
    data = b"".join(b"%05d" % i + b"x" * 100 + b"\n" for i in range(100))
    start = tail.find_tail_line_start_index(io.BytesIO(data), 42)
    assert data[start : start + 5] == b"00058"


def test_line_that_never_ends_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_LINE_LENGTH", 1000)
    monkeypatch.setattr(log_files, "_BLOCK_SIZE", 100)
    line = b"2016-10-20T18:39:20Z stdout F "
    (tmp_path / "0.log").write_bytes(line + b"x" * 2000 + b"\n")
    with pytest.raises(ValueError, match="has a line of more than 1000 bytes"):
        _read(tmp_path / "0.log")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_log_that_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(tmp_path / "0.log")
    else:
        (tmp_path / "0.log").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="failed to open log file"):
        _read(tmp_path / "0.log")


@pytest.mark.parametrize(("limit", "expected"), [(3, b"def"), (6, b"abcdef"), (9, b"abcdef")])
def test_read_at_most(tmp_path: Path, limit: int, expected: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    assert tail.read_at_most(str(path), limit) == expected


_STAMPS = st.sampled_from(
    [
        b"2026-01-02T03:04:05.1Z",
        b"2026-01-02T03:04:05.100000000Z",
        b"2026-01-02T03:04:05.123456789Z",
        b"2026-01-02T03:04:05Z",
        b"2026-01-02T03:04:06.0Z",
        b"2026-01-02T05:04:05.5+02:00",
        b"2026-12-31T23:59:59.999999999Z",
        b"2026-13-02T03:04:05.1Z",
        b"0000-01-02T03:04:05.1Z",
        b"yesterday",
    ]
)
_STREAMS = st.sampled_from([b"stdout", b"stderr", b"stdin"])
_TAGS = st.sampled_from([b"F", b"P", b"F:X", b"P:X"])
_TEXTS = st.sampled_from([b"", b"text", b" stdout F ", b"\r", b"2026-01-02T03:04:05.1Z stdout F x"])
_ANY_LINE = st.one_of(
    st.tuples(_STAMPS, _STREAMS, _TAGS, _TEXTS).map(b" ".join),
    # Most lines must be valid, because otherwise no block would ever consist of usual lines.
    st.tuples(
        _STAMPS.filter(lambda stamp: stamp.startswith(b"2026-01-02T03")), st.just(b"stdout"), st.just(b"F"), _TEXTS
    ).map(b" ".join),
    st.just(b"nonsense"),
)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(_ANY_LINE, min_size=1, max_size=8),
    timestamp=st.booleans(),
    limit=st.one_of(st.none(), st.integers(1, 60)),
    since=st.sampled_from(
        [None, _SECOND, datetime(2026, 1, 2, 3, 4, 5, 100000, UTC), datetime(2026, 1, 2, 3, 4, 6, 0, UTC)]
    ),
    stderr=st.sampled_from(["same", "other", "none"]),
)
def test_lines_come_out_the_same_together_and_one_by_one(
    lines: list[bytes], timestamp: bool, limit: int | None, since: datetime | None, stderr: str
) -> None:
    opts = logs.LogOptions(timestamp=timestamp, limit_bytes=limit, since=since)
    data = b"\n".join([b"2026-01-02T03:04:05.1Z stdout F first", *lines, b""])
    results = []
    for together in (True, False):
        out, err = io.BytesIO(), io.BytesIO()
        writer = _LogWriter("0.log", out, {"same": out, "other": err, "none": None}[stderr], opts)
        if not together:
            writer._add_usual_lines = lambda data: False  # type: ignore[method-assign]
        with contextlib.suppress(_MaximumWriteError):
            writer.write(data)
        results.append((out.getvalue(), err.getvalue()))
    assert results[0] == results[1]
