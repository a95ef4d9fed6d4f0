"""Test which lines the log writes, and when."""

from __future__ import annotations

import contextlib
import enum
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pkg import golang, klog

HEADER = r"([IWE])\d{4} \d\d:\d\d:\d\d\.\d{6} +(\d+) klog_test\.py:(\d+)\] (.*)\n"


class Color(enum.Enum):
    RED = "red"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Yield the log output of the test, with the settings of a fresh process."""
    stream = io.StringIO()
    klog.set_output(stream)
    yield stream
    klog.set_output(None)
    klog.set_verbosity(0)
    klog.set_vmodule("")
    klog.set_format("text")


def test_header(out: io.StringIO) -> None:
    klog.info_s("Starting")
    match = re.fullmatch(HEADER, out.getvalue())
    assert match is not None, out.getvalue()
    line = test_header.__code__.co_firstlineno + 1
    assert match.groups() == ("I", str(os.getpid()), str(line), '"Starting"')


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("plain", '"plain"', id="text"),
        pytest.param('say "hi"\\', r'"say \"hi\"\\"', id="quoted text"),
        pytest.param("tab\tand\x1bé\u200b", r'"tab\tand\x1bé\u200b"', id="what cannot be printed"),
        pytest.param("a\nb\n", "<\n\ta\n\tb\n >", id="several lines"),
        pytest.param(3, "3", id="number"),
        pytest.param(1.5, "1.5", id="fraction"),
        pytest.param(True, "true", id="boolean"),
        pytest.param(None, "null", id="nothing"),
        pytest.param(["a", 1], '["a",1]', id="list"),
        pytest.param({"a": {"b"}}, '{"a":["b"]}', id="nested"),
        pytest.param(ValueError("bad"), '"bad"', id="error"),
        pytest.param(Color.RED, '"red"', id="enum"),
        pytest.param(klog.kref("ns", "pod"), '"ns/pod"', id="reference"),
        pytest.param([klog.kref("", "node")], '["node"]', id="references"),
        pytest.param(datetime(2024, 1, 2, tzinfo=UTC), '"2024-01-02 00:00:00+00:00"', id="time"),
    ],
)
def test_text_values(out: io.StringIO, value: Any, expected: str) -> None:
    klog.info_s("m", key=value)
    assert out.getvalue().split("] ", 1)[1] == f'"m" key={expected}\n'


def test_severities_and_errors(out: io.StringIO) -> None:
    klog.info_s("i")
    klog.warning_s("w")
    klog.error_s(ValueError("bad"), "e", err_code=2)
    klog.error_s(None, "no error", msg="a key like the parameter")
    lines = out.getvalue().splitlines()
    assert [line[0] for line in lines] == ["I", "W", "E", "E"]
    assert lines[2].endswith('"e" err="bad" err_code=2')
    assert lines[3].endswith('"no error" msg="a key like the parameter"')


@pytest.mark.parametrize(
    ("verbosity", "vmodule", "logged"),
    [
        pytest.param(3, "", False, id="below"),
        pytest.param(4, "", True, id="at"),
        pytest.param(0, "klog_test=4", True, id="this file"),
        pytest.param(0, "klog_test=3", False, id="this file, not enough"),
        pytest.param(0, "other=9,klog_*=4", True, id="by pattern"),
        pytest.param(0, "other=9", False, id="another file"),
    ],
)
def test_verbosity(out: io.StringIO, verbosity: int, vmodule: str, logged: bool) -> None:
    klog.set_verbosity(verbosity)
    klog.set_vmodule(vmodule)
    klog.v(4).info_s("m", k=1)
    assert klog.v(4).enabled is logged and bool(klog.v(4)) is logged
    assert bool(out.getvalue()) is logged
    assert "klog_test.py" in out.getvalue() or not logged


@pytest.mark.parametrize("patterns", ["a", "a=x", "=3", "a=-1"])
def test_bad_vmodule(patterns: str) -> None:
    with pytest.raises(ValueError, match=r"vmodule: expected pattern=N"):
        klog.set_vmodule(patterns)


def test_bad_format() -> None:
    with pytest.raises(ValueError, match="expected text or json, got 'xml'"):
        klog.set_format("xml")


def test_json(out: io.StringIO) -> None:
    klog.set_format("json")
    klog.set_verbosity(4)
    klog.v(4).info_s("hello", pod=klog.kref("ns", "p"), node=klog.kref("", "n"), count=2)
    klog.error_s(ValueError("bad"), "oops", items={"b", "a"})
    info, error = (json.loads(line) for line in out.getvalue().splitlines())
    assert isinstance(info.pop("ts"), float)
    assert re.fullmatch(r"pkg/klog_test\.py:\d+", info.pop("caller"))
    assert info == {
        "msg": "hello",
        "v": 4,
        "pod": {"name": "p", "namespace": "ns"},
        "node": {"name": "n"},
        "count": 2,
    }
    assert (error["msg"], error["err"], error["items"]) == ("oops", "bad", ["a", "b"])
    assert "v" not in error


def test_depth_names_the_caller_of_the_helper(out: io.StringIO) -> None:
    def helper() -> None:
        klog.info_s_depth(1, "m")

    helper()
    line = test_depth_names_the_caller_of_the_helper.__code__.co_firstlineno + 4
    assert out.getvalue().count(f"klog_test.py:{line}]") == 1


def test_kobj() -> None:
    class Meta:
        namespace, name = "ns", "p"

    class Pod:
        metadata = Meta()

    assert klog.kobj(Pod()) == "ns/p"
    assert klog.kobj(None) == ""
    assert klog.kobjs([Pod(), Pod()]) == ["ns/p", "ns/p"]


def test_logging_of_libraries_arrives(out: io.StringIO) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        klog.capture_logging()
        logging.getLogger("lib").info("not this")
        logging.getLogger("lib").warning("careful: %s", "x")
        try:
            raise ValueError("bad")
        except ValueError:
            logging.getLogger("lib").exception("failed")
    finally:
        root.handlers[:], root.level = handlers, level
    text = out.getvalue()
    assert "not this" not in text
    assert re.match(r'W.* klog_test\.py:\d+\] "careful: x" logger="lib"\n', text)
    assert re.search(r'\nE.*\] "failed" logger="lib" stacktrace=<\n\tTraceback', text)


def test_lines_of_many_threads_stay_whole(out: io.StringIO) -> None:
    def work(n: int) -> None:
        for i in range(100):
            klog.info_s("m", n=n, i=i)

    threads = [golang.go(work, n, name=f"logger-{n}") for n in range(4)]
    for thread in threads:
        thread.join(30)
    lines = out.getvalue().splitlines(keepends=True)
    assert len(lines) == 400
    assert all(re.fullmatch(HEADER, line) for line in lines)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_that_cannot_be_encoded_is_logged(tmp_path: Path, out: io.StringIO, log_format: str) -> None:
    """Text with lone surrogates is logged. The name of a file that is not UTF-8 contains them."""
    klog.set_format(log_format)
    with (tmp_path / "log").open("w", encoding="utf-8") as stream:
        klog.set_output(stream)
        klog.info_s("Found", names=["a\udcffb"], text="two lines:\na\udcffb")
    assert (tmp_path / "log").read_text(encoding="utf-8").count("a\ufffdb") == 2


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_cannot_be_shown_does_not_fail_the_caller(out: io.StringIO, log_format: str) -> None:
    klog.set_format(log_format)
    klog.info_s("Found", number=10**5000)
    assert "Found" in out.getvalue() and "notLogged" in out.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(
    "value",
    [
        "\x01" * 1_000_000,
        ["a", "\x01" * 1_000_000],
        ["\x01"] * 1_000_000,
        [[]] * 1_000_000,
        {str(n): "\x01" * 10 for n in range(200_000)},
        ValueError("\x01" * 1_000_000),
        {("\x01" * 1_000_000,)},
    ],
)
def test_of_a_value_without_end_the_beginning_is_logged(out: io.StringIO, value: Any, log_format: str) -> None:
    klog.set_format(log_format)
    klog.info_s("m", a=value, b="after")
    # Escaping turns one character into up to six.
    assert len(out.getvalue()) < 7 * klog.MAX_VALUE
    assert "after" in out.getvalue()


def test_of_an_error_without_end_the_beginning_is_logged(out: io.StringIO) -> None:
    klog.error_s(ValueError("e" * 1_000_000), "m")
    assert 0 < out.getvalue().count("e") < 2 * klog.MAX_VALUE


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_of_a_message_without_end_the_beginning_is_logged(out: io.StringIO, log_format: str) -> None:
    klog.set_format(log_format)
    klog.info_s("\x01" * 1_000_000, a="after")
    assert len(out.getvalue()) < 7 * klog.MAX_VALUE
    assert "after" in out.getvalue()


def test_a_log_that_is_gone_does_no_harm(out: io.StringIO) -> None:
    out.close()
    klog.info_s("nobody reads this")
    klog.flush()
    klog.set_output(io.StringIO())


def test_a_log_on_a_full_disk_does_no_harm(out: io.StringIO) -> None:
    # Writing to this device fails as on a full disk. Closing the file drops the buffered data.
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        klog.set_output(full)
        klog.info_s("nobody reads this")
        klog.flush()
        klog.set_output(out)
        klog.info_s("somebody reads this")
    assert "somebody reads this" in out.getvalue()


@pytest.mark.parametrize(("err", "shown"), [(KeyError("k"), True), (AttributeError("a"), True), (OSError("o"), False)])
def test_faults_of_the_code_show_where_they_are(out: io.StringIO, err: Exception, shown: bool) -> None:
    def fail() -> None:
        raise err

    with pytest.raises(type(err)):
        fail()
    klog.error_s(err, "m")
    klog.info_s("m", err=err)
    assert out.getvalue().count("in fail") == (2 if shown else 0)


def test_stacktrace() -> None:
    assert klog.stacktrace(None) == ""
    assert klog.stacktrace(ValueError("bad")) == "ValueError: bad"
