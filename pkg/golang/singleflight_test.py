"""Test shared calls.

Go: golang.org/x/sync/singleflight/singleflight_test.go
"""

from __future__ import annotations

import queue

import pytest

from pkg import golang
from pkg.golang import singleflight
from pkg.golang import testing as golangtesting


def test_who_asks_during_a_round_shares_the_next_one() -> None:
    gate = golangtesting.Gate()

    def make() -> int:
        gate.pass_through()
        return gate.rounds

    rounds = singleflight.Rounds(make)
    assert golangtesting.ask_as_crowd(gate, rounds.get) == [1, 2, 2, 2]
    assert rounds.get() == 3, "what was made is not kept"


def test_round_that_fails_fails_for_all_who_share_it() -> None:
    gate = golangtesting.Gate()

    def make() -> int:
        gate.pass_through()
        raise LookupError(gate.rounds)

    rounds = singleflight.Rounds(make)

    def ask(ctx: golang.Context) -> str:
        with pytest.raises(LookupError) as failed:
            rounds.get(ctx)
        return str(failed.value)

    assert golangtesting.ask_as_crowd(gate, ask) == ["1", "2", "2", "2"]


def test_round_of_others_is_waited_for_no_longer_than_the_context_lasts() -> None:
    gate = golangtesting.Gate()
    answers: queue.Queue[str] = queue.Queue()
    ended, end = golang.with_cancel(golang.background())
    end()

    def make() -> str:
        gate.pass_through()
        return f"round {gate.rounds}"

    rounds = singleflight.Rounds(make)

    def ask(ctx: golang.Context) -> None:
        try:
            answers.put(rounds.get(ctx))
        except golang.Canceled as err:
            answers.put(str(err))

    threads = [golang.go(lambda: ask(golang.background()), name="asks-first")]
    assert gate.first_has_come.wait(30)
    # One of the two makes the call of the next round, and has to wait for the first round.
    threads += [golang.go(lambda: ask(ended), name=f"asks-meanwhile-{i}") for i in range(2)]
    assert answers.get(timeout=30) == "context canceled"
    gate.open.set()
    for thread in threads:
        thread.join(30)
    assert [answers.get_nowait(), answers.get_nowait()] == ["round 1", "round 2"]


def test_error_keeps_nobody_who_got_it() -> None:
    def fail() -> int:
        raise LookupError("nothing")

    group, rounds = singleflight.Group[int](), singleflight.Rounds(fail)
    assert golangtesting.frames_kept_after(lambda: group.do("key", fail)) == []
    assert golangtesting.frames_kept_after(rounds.get) == []


def test_error_that_is_shared_keeps_nobody_who_got_it() -> None:
    gate = golangtesting.Gate()

    def fail() -> str:
        gate.pass_through()
        raise LookupError("nothing")

    rounds = singleflight.Rounds(fail)

    def ask(ctx: golang.Context) -> str:
        try:
            return rounds.get(ctx)
        except LookupError as err:
            return str(err)

    assert golangtesting.frames_kept_after(lambda: golangtesting.ask_as_crowd(gate, ask)) == []
    assert gate.rounds == 2
