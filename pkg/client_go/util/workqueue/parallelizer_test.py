"""Test parallel pieces of work."""

from __future__ import annotations

import threading

import pytest

from pkg import golang
from pkg.apimachinery.util.runtime.testing import failures
from pkg.client_go.util import workqueue
from pkg.golang import testing as golangtesting


@pytest.mark.parametrize(
    ("workers", "pieces", "threads"),
    [
        pytest.param(4, 0, 0, id="nothing to do"),
        pytest.param(4, 1, 1, id="one piece needs no thread but the caller's"),
        pytest.param(2, 5, 2, id="more pieces than workers"),
        pytest.param(8, 3, 3, id="fewer pieces than workers"),
    ],
)
def test_every_piece_once(workers: int, pieces: int, threads: int) -> None:
    done: list[int] = []
    names: set[str] = set()
    # All workers meet here before any of them continues, which shows that each takes part.
    meeting = threading.Barrier(max(threads, 1))

    def work(piece: int) -> None:
        if piece < threads:
            meeting.wait(30)
        names.add(threading.current_thread().name)
        done.append(piece)

    workqueue.parallelize_until(golang.background(), workers, pieces, work, name="test")
    assert sorted(done) == list(range(pieces))
    assert len(names) == threads


def test_pieces_that_have_not_begun_are_left_out() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    done: list[int] = []

    def work(piece: int) -> None:
        done.append(piece)
        if piece == 1:
            cancel()

    workqueue.parallelize_until(ctx, 1, 4, work, name="test")
    assert done == [0, 1]


@failures
def test_piece_that_fails_leaves_the_others(err: Exception) -> None:
    done: list[int] = []

    def work(piece: int) -> None:
        if piece == 1:
            raise err
        done.append(piece)

    workqueue.parallelize_until(golang.background(), 2, 5, work, name="test")
    assert sorted(done) == [0, 2, 3, 4]


@pytest.mark.parametrize("refused", ["test-", "test-2"])
def test_without_threads_fewer_do_all_of_it(refused: str) -> None:
    done: list[int] = []
    with golangtesting.out_of_threads(refused):
        workqueue.parallelize_until(golang.background(), 4, 9, done.append, name="test")
    assert sorted(done) == list(range(9))
