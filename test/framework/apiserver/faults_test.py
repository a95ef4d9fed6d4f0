from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from framework.apiserver import errors, faults
from framework.apiserver.interfaces import Answer, Cut, Request, UserInfo
from framework.waiting import wait_for
from pkg import golang

PATCH = Request(
    "PATCH",
    "/api/v1/namespaces/ns/pods/p/status",
    verb="patch",
    resource="pods",
    subresource="status",
    namespace="ns",
    name="p",
    user=UserInfo("system:node:n1"),
)
LIST = Request("GET", "/api/v1/nodes", verb="list", resource="nodes", user=UserInfo("ann"))
WATCH = Request("GET", "/api/v1/pods", verb="watch", resource="pods", user=UserInfo("system:node:n1"))


class FakeStream:
    def __init__(self) -> None:
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1


SELECTIONS: list[tuple[faults.Filter, list[Request]]] = [
    ({}, [PATCH, LIST, WATCH]),
    ({"verb": "patch"}, [PATCH]),
    ({"verb": ("list", "watch")}, [LIST, WATCH]),
    ({"resource": "pods"}, [PATCH, WATCH]),
    ({"resource": "pods", "subresource": ""}, [WATCH]),
    ({"user": "ann"}, [LIST]),
    ({"user": "system:node:n1", "verb": "list"}, []),
    ({"namespace": "ns", "name": "p"}, [PATCH]),
]


@pytest.mark.parametrize(("selected", "struck"), SELECTIONS)
def test_whom_a_fault_strikes(selected: faults.Filter, struck: list[Request]) -> None:
    every = faults.Faults()
    with every.status(500, **selected) as fault:
        for request in (PATCH, LIST, WATCH):
            if request in struck:
                with pytest.raises(errors.ApiError):
                    every.before(request)
            else:
                every.before(request)
    assert fault.hits == len(struck)
    every.before(PATCH)
    assert fault.hits == len(struck)


def test_a_fault_that_strikes_twice() -> None:
    every = faults.Faults()
    fault = every.status(500, times=2)
    for _ in range(2):
        with pytest.raises(errors.ApiError):
            every.before(LIST)
    every.before(LIST)
    assert fault.hits == 2


@pytest.mark.parametrize(
    ("code", "retry_after", "reason", "headers"),
    [
        (429, 3, "TooManyRequests", {"Retry-After": "3"}),
        (429, None, "TooManyRequests", {}),
        (500, None, "InternalError", {}),
        (503, 1, "ServiceUnavailable", {"Retry-After": "1"}),
        (401, None, "Unauthorized", {}),
    ],
)
def test_the_status_of_a_fault(code: int, retry_after: int | None, reason: str, headers: dict[str, str]) -> None:
    every = faults.Faults()
    with every.status(code, retry_after), pytest.raises(errors.ApiError) as raised:
        every.before(LIST)
    assert (raised.value.code, raised.value.reason, raised.value.headers) == (code, reason, headers)
    assert raised.value.status.get("details", {}).get("retryAfterSeconds") == retry_after


def test_what_hangs_goes_on_when_the_fault_ends() -> None:
    every = faults.Faults()
    fault = every.hang(verb="list")
    done = threading.Event()

    def ask() -> None:
        every.before(LIST)
        done.set()

    thread = golang.go(ask, name="asks")
    wait_for("the request hangs", lambda: fault.hits == 1, timeout=30)
    assert not done.is_set()
    fault.end()
    thread.join()
    assert done.is_set()


def test_refusing() -> None:
    every = faults.Faults()
    stream = FakeStream()
    every.stream_opened(WATCH, stream)
    assert not every.refuse_connection()
    with every.refuse() as fault:
        assert stream.cuts == 1
        assert every.refuse_connection()
        with pytest.raises(Cut):
            every.before(LIST)
        assert fault.hits == 3
    assert not every.refuse_connection()
    every.before(LIST)


@pytest.mark.parametrize(
    "cut",
    [
        lambda every: every.cut_watches(resource="pods"),
        lambda every: every.cut_connections(resource="pods"),
    ],
)
def test_cutting_watches(cut: Callable[[faults.Faults], faults.Fault]) -> None:
    every = faults.Faults()
    hit, spared, over = FakeStream(), FakeStream(), FakeStream()
    every.stream_opened(WATCH, hit)
    every.stream_opened(LIST, spared)
    every.stream_opened(WATCH, over)
    every.stream_closed(WATCH, over)
    assert every.watches == [WATCH, LIST]
    with cut(every) as fault:
        assert (hit.cuts, spared.cuts, over.cuts, fault.hits) == (1, 0, 0, 1)


def test_cutting_watches_again_and_again() -> None:
    every = faults.Faults()
    stream = FakeStream()
    every.stream_opened(WATCH, stream)
    with every.cut_watches(every=0.01) as fault:
        wait_for("three cuts", lambda: stream.cuts >= 3, timeout=30)
    assert fault.hits == stream.cuts


def test_stale_lists() -> None:
    version = 7
    every = faults.Faults(lambda: version)
    assert every.serve_stale(LIST) is None
    with every.stale_lists(resource="nodes"):
        version = 9
        assert every.serve_stale(LIST) == 7
        assert every.serve_stale(WATCH) is None
    with every.stale_lists(3):
        assert every.serve_stale(LIST) == 3
    assert every.serve_stale(LIST) is None


def test_all_faults_end() -> None:
    every = faults.Faults()
    every.status(500)
    every.refuse()
    every.end_all()
    every.before(LIST)
    assert not every.refuse_connection()


def test_the_log_of_requests() -> None:
    log = faults.RequestLog()
    log(PATCH, 200)
    log(PATCH, 409)
    log(LIST, 200)
    assert [call.code for call in log.calls(verb="patch", resource="pods")] == [200, 409]
    assert log.count_by_verb() == {"patch pods/status": 2, "list nodes": 1}
    assert log.count_by_verb(user="ann") == {"list nodes": 1}
    log.clear()
    assert log.calls() == []


def test_answers_that_are_lies_late_or_cut() -> None:
    every = faults.Faults()
    with every.lie(lambda body: b"lie", resource="nodes") as fault:
        answer = every.on_answer(LIST)
        assert answer is not None and answer.answer(404, b"truth") == Answer(200, b"lie", 3)
        assert every.on_answer(PATCH) is None
    assert fault.hits == 1
    with every.cut_answers(name="p"):
        answer = every.on_answer(PATCH)
        assert answer is not None and answer.answer(200, b"truth") == Answer(200, b"tr", 5)
    late = every.late()
    answer = every.on_answer(LIST)
    late.end()
    assert answer is not None and answer.answer(200, b"truth") == Answer(200, b"truth", 5)


def test_watches_that_lie_or_are_cut() -> None:
    every = faults.Faults()
    with every.lie(lambda event: b"lie"):
        assert every.on_answer(WATCH) is None, "the fault hits the events of a watch, not its start"
        assert list(every.wrap_stream(WATCH, iter([b"truth\n"]))) == [b"lie\n"]
    with every.cut_answers():
        stream = every.wrap_stream(WATCH, iter([b"truth\n"]))
        assert next(stream) == b"tru"
        with pytest.raises(Cut):
            next(stream)
    assert list(every.wrap_stream(WATCH, iter([b"truth\n"]))) == [b"truth\n"]


def test_fault_of_one_caller() -> None:
    every = faults.Faults()
    with every.status(500, caller="file.py"):
        every.before(LIST)
        with pytest.raises(errors.ApiError):
            every.before(replace(LIST, headers={faults.CALLER_HEADER: "file.py"}))
