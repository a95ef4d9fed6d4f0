"""Test how a server hands out turns."""

from __future__ import annotations

import contextlib

from framework.waiting import wait_until_equal

from pkg import golang
from pkg.golang.testing import OnlyTurn
from pkg.golang.turn import ALLOWANCE, Turn, Turns, let_others

_TIMEOUT = 30.0


def _order_of(turns: Turns, waiting: dict[str, Turn]) -> list[str]:
    """Return the order in which waiting connections, which arrive one after the other, get their turns."""
    order = list[str]()

    def work(name: str) -> None:
        with waiting[name]:
            order.append(name)

    first, *others = [Turn(turns) for _ in range(turns._free)]
    with contextlib.ExitStack() as held:
        for each in (first, *others):
            held.enter_context(each)
        threads = []
        for name in waiting:
            threads.append(golang.go(work, name, name=name))
            wait_until_equal("threads in line", lambda: len(turns._waiting), len(threads))
        # This connection represents a client that always sends more.
        first._had = 1000.0
        with first.let_others():
            pass
        got = list(order)
    for thread in threads:
        thread.join(_TIMEOUT)
    return got


def _turn(turns: Turns, had: float) -> Turn:
    turn = Turn(turns)
    turn._had = had
    return turn


def test_a_turn_goes_to_who_has_waited_longest() -> None:
    """The turn does not go back to a client that always sends more."""
    turns = Turns()
    assert _order_of(turns, {"much": _turn(turns, 100.0), "little": _turn(turns, 1.0)}) == ["much", "little"]


def test_a_turn_goes_to_who_has_had_least() -> None:
    """Hundreds of busy clients must not delay a client that sends little."""
    turns = Turns(by_use=True)
    waiting = {"much": _turn(turns, 100.0), "little": _turn(turns, 1.0), "as little": _turn(turns, 1.0)}
    assert _order_of(turns, waiting) == ["little", "as little", "much"]


def test_what_was_not_used_is_hardly_counted() -> None:
    turns = Turns(by_use=True)
    with _turn(turns, 100.0):
        pass
    new, paused = Turn(turns), _turn(turns, 1.0)
    with new, paused:
        assert new._had == 100.0
        assert paused._had == 100.0 - ALLOWANCE


def test_who_has_paused_goes_before_who_is_new_for_one_turn() -> None:
    """Hundreds of connections may pause together, and a new one waits until each of them has used its advantage."""
    turns = Turns(by_use=True)
    with _turn(turns, 100.0):
        had, _ = turns.take(1.0)
    one_turn = 0.001
    assert turns.level() - one_turn < had < turns.level()


def test_new_connections_do_not_keep_the_others_waiting_for_ever() -> None:
    turns = Turns(1, by_use=True)
    known = _turn(turns, 100.0)
    for _ in range(4):
        turns.take(turns.level())
        turns.give_back(30.0)
    assert turns.level() > known._had
    new = Turn(turns)
    assert _order_of(turns, {"new": new, "known": known}) == ["known", "new"]


def test_what_is_had_while_others_wait_is_counted() -> None:
    turns = Turns(by_use=True)
    waiting = Turn(turns)
    assert _order_of(turns, {"waiting": waiting}) == ["waiting"]
    assert waiting._had > 0


def test_what_waits_lets_others_have_the_turn_of_its_context() -> None:
    only = OnlyTurn()
    with only.turn:
        ctx, cancel = golang.with_timeout(only.ctx, _TIMEOUT)
        with let_others(ctx):
            assert only.is_free()
        assert not only.is_free()
        cancel()
    # Without a taken turn, let_others has nothing to give up.
    for without in (only.ctx, golang.background(), None):
        with let_others(without):
            assert only.is_free()
