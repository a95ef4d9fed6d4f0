"""Test the pages under /debug/pprof/."""

from __future__ import annotations

import errno
import gzip
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from pkg import golang
from pkg.golang import pprof
from pkg.golang.http.testing import Recorded, record
from pkg.golang.pprof import encoding, handlers, profiles, sampler
from pkg.util.testing import open_files

Message = dict[int, list[int | bytes]]


def decode(data: bytes) -> Message:
    """Return the fields of a protobuf message by number: integers, and the bytes of length-delimited fields."""
    fields: Message = {}
    position = 0

    def varint() -> int:
        nonlocal position
        number = shift = 0
        while True:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while position < len(data):
        tag = varint()
        if tag & 7 == 0:
            fields.setdefault(tag >> 3, []).append(varint())
        else:
            assert tag & 7 == 2
            length = varint()
            fields.setdefault(tag >> 3, []).append(data[position : position + length])
            position += length
    return fields


def strings(profile: Message) -> list[str]:
    return [text.decode() for text in profile[6] if isinstance(text, bytes)]


def page(target: str, method: str = "GET") -> Recorded:
    return record(pprof.serve, method, f"/debug/pprof/{target}")


def test_encoding() -> None:
    inner, outer = encoding.Frame("inner", "a.py", 300), encoding.Frame("outer", "b.py", 2)
    types = (encoding.ValueType("samples", "count"), encoding.ValueType("cpu", "nanoseconds"))
    profile = encoding.Profile(types, {(inner, outer): (1, 500), (outer,): (2, 1 << 40)}, 7, 8, types[1], 10)
    message = decode(gzip.decompress(encoding.encode(profile)))

    table = strings(message)
    assert table[0] == ""
    value_types = [decode(each) for each in message[1] if isinstance(each, bytes)]
    names = [[table[int(each[key][0])] for key in (1, 2)] for each in value_types]
    assert names == [["samples", "count"], ["cpu", "nanoseconds"]]
    functions = {f[1][0]: f for f in (decode(each) for each in message[5] if isinstance(each, bytes))}
    lines = {}
    for each in message[4]:
        assert isinstance(each, bytes)
        location = decode(each)
        line = decode(bytes(location[4][0]))
        function = functions[line[1][0]]
        lines[location[1][0]] = (table[int(function[2][0])], table[int(function[4][0])], line[2][0])
    assert lines == {1: ("inner", "a.py", 300), 2: ("outer", "b.py", 2)}
    samples = [decode(each) for each in message[2] if isinstance(each, bytes)]
    assert samples[0] == {1: [b"\x01\x02"], 2: [b"\x01\xf4\x03"]}
    assert (message[9], message[10], message[12]) == ([7], [8], [10])


@pytest.fixture
def busy() -> Iterator[None]:
    """Run a thread that uses the processor."""
    stop = threading.Event()

    def burn_the_processor() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = golang.go(burn_the_processor, name="burner")
    yield
    stop.set()
    thread.join(30)


def test_profile_shows_who_uses_the_processor(busy: None) -> None:
    response = page("profile?seconds=1")
    assert response.headers.get("Content-Disposition") == 'attachment; filename="profile"'
    message = decode(gzip.decompress(response.body))
    assert {"burner", "samples", "count", "cpu", "nanoseconds"} <= set(strings(message))
    assert any(name.endswith("burn_the_processor") for name in strings(message))


def test_profile_ends_with_the_client() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    assert sampler.cpu_profile(ctx, 3600.0).samples == {}


def test_profile_keeps_no_descriptor_of_threads_that_have_ended() -> None:
    stop = threading.Event()
    clocks = sampler._ThreadClocks()
    before = open_files()
    ended = [golang.go(stop.wait, name=f"ended-{number}") for number in range(20)]
    sampler._look(clocks, Counter(), Counter())
    stop.set()
    for thread in ended:
        thread.join(30)
    paths = {f"/{thread.native_id}/schedstat" for thread in ended}
    sampler._look(clocks, Counter(), Counter())
    assert not [name for _, name in open_files() if any(path in name for path in paths)]
    clocks.close()
    assert open_files() <= before


def test_profile_keeps_no_descriptor_of_a_thread_that_ends_as_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread_has_ended(file: int) -> int:
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(sampler, "_read", thread_has_ended)
    clocks = sampler._ThreadClocks()
    before = open_files()
    assert clocks.spent(threading.get_native_id()) == 0
    assert open_files() == before


def test_profile_counts_stacks_together_that_are_too_many(busy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "MAX_STACKS", 0)
    message = decode(gzip.decompress(page("profile?seconds=1").body))
    assert "others" in strings(message) and "burner" not in strings(message)


def test_two_profiles_at_once() -> None:
    with handlers._profiling:
        response = page("profile")
    assert (response.status, "already in use" in response.text) == (500, True)


def test_a_very_long_profile() -> None:
    assert page("profile?seconds=99999999999999999999").status == 400


def test_a_profile_of_more_seconds_than_a_number_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_DEFAULT_SECONDS", 0.01)
    assert page("profile?seconds=" + "9" * 400).status == 200


def test_threads() -> None:
    assert "[MainThread]:" in page("goroutine?debug=2").text
    text = page("goroutine?debug=1").text
    assert text.startswith("goroutine profile: total ") and "thread_profile" in text
    assert strings(decode(gzip.decompress(page("goroutine").body)))[1:3] == ["threads", "count"]


def test_heap_needs_python_to_record_it() -> None:
    assert not tracemalloc.is_tracing()
    response = page("heap")
    assert (response.status, "PYTHONTRACEMALLOC" in response.text) == (501, True)


def test_heap() -> None:
    tracemalloc.start(5)
    try:
        kept = [bytes(1000) for _ in range(100)]
        profile = profiles.heap_profile()
        text = page("heap?debug=1").text
    finally:
        tracemalloc.stop()
    assert len(kept) == 100
    assert any(count >= 100 and size >= 100_000 for count, size in profile.samples.values())
    assert "pprof_test.py" in text


@pytest.mark.parametrize("name", ["allocs", "block", "mutex", "trace"])
def test_what_python_cannot_tell(name: str) -> None:
    response = page(name)
    assert (response.status, response.text.startswith("Python ")) == (501, True)


def test_other_pages() -> None:
    index = page("")
    assert index.headers.get("Content-Type") == "text/html; charset=utf-8"
    assert 'href="profile"' in index.text
    assert "python" in page("cmdline").text
    assert page("symbol", "POST").text == "num_symbols: 0\n"
    assert (page("nonsense").status, page("goroutine/x").status) == (404, 404)
