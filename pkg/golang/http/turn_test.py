"""Tests of how the turns of a server go round."""

from __future__ import annotations

import contextlib

from pkg import golang
from pkg.golang.http.turn import MAX_TURNS, Turn, Turns

_TIMEOUT = 30.0


def _wait_for_line(turns: Turns, length: int) -> None:
    ctx, cancel = golang.with_timeout(golang.background(), _TIMEOUT)
    while len(turns._waiting) != length:
        assert not ctx.wait(0.001), "nobody came"
    cancel()


def test_a_turn_goes_to_who_has_waited_longest() -> None:
    """And not back to a client that always has more to say."""
    turns, order = Turns(), list[str]()

    def work(name: str) -> None:
        with Turn(turns):
            order.append(name)

    first, *others = [Turn(turns) for _ in range(MAX_TURNS)]
    with contextlib.ExitStack() as held:
        for each in (first, *others):
            held.enter_context(each)
        threads = []
        for name in ("a", "b"):
            threads.append(golang.go(work, name, name=name))
            _wait_for_line(turns, len(threads))
        with first.let_others():
            pass
        assert order == ["a", "b"]
    for thread in threads:
        thread.join(_TIMEOUT)
