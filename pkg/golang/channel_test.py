"""Test channels and select against the rules of the Go language."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from pkg import golang
from pkg.golang import channel as channel_

WAIT = 30.0


def wait_for_blocked(ch: golang.Channel[Any], receivers: int = 0, senders: int = 0) -> None:
    """Wait until the given numbers of operations are blocked on the channel."""
    ctx, cancel = golang.with_timeout(golang.background(), WAIT)
    try:
        while True:
            with channel_.lock:
                if len(ch._receivers) == receivers and len(ch._senders) == senders:
                    return
            assert not ctx.wait(0.001), "nobody blocked"
    finally:
        cancel()


def filled(capacity: int, *values: Any) -> golang.Channel[Any]:
    ch: golang.Channel[Any] = golang.Channel(capacity)
    for value in values:
        ch.send(value)
    return ch


def outcome(selected: golang.Selected[Any] | None, *cases: golang.Case) -> tuple[int, Any, bool]:
    """Return the result of a select, with the index of its case among `cases`, or -1 if it executed none."""
    assert selected is not None
    places = [i for i, case in enumerate(cases) if case is selected.case and case is not None]
    return places[0] if places else -1, selected.value, selected.ok


def drain(ch: golang.Channel[Any]) -> list[Any]:
    return [ch.recv()[0] for _ in range(len(ch))]


def closed(ch: golang.Channel[Any]) -> golang.Channel[Any]:
    ch.close()
    return ch


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: golang.Channel(0), (None, False, False), id="unbuffered and nobody sends"),
        pytest.param(lambda: golang.Channel(1), (None, False, False), id="empty buffer"),
        pytest.param(lambda: filled(2, "a", "b"), ("a", True, True), id="first in first out"),
        pytest.param(lambda: closed(filled(1, "a")), ("a", True, True), id="closed drains first"),
        pytest.param(lambda: closed(golang.Channel(1)), (None, False, True), id="closed and empty"),
        pytest.param(lambda: filled(1, None), (None, True, True), id="None is a value"),
    ],
)
def test_try_recv(make: Callable[[], golang.Channel[Any]], expected: tuple[Any, bool, bool]) -> None:
    assert make().try_recv() == expected


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: golang.Channel(0), False, id="unbuffered and nobody receives"),
        pytest.param(lambda: golang.Channel(1), True, id="room in the buffer"),
        pytest.param(lambda: filled(1, "a"), False, id="full buffer"),
    ],
)
def test_try_send(make: Callable[[], golang.Channel[Any]], expected: bool) -> None:
    assert make().try_send("x") is expected


def test_negative_capacity() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        golang.Channel(-1)


def test_close_rules() -> None:
    ch: golang.Channel[int] = closed(golang.Channel(1))
    with pytest.raises(golang.ClosedChannelError, match="close of closed channel"):
        ch.close()
    for send in (
        lambda: ch.send(1),
        lambda: ch.try_send(1),
        lambda: golang.select(golang.Send(ch, 1), default=True),
    ):
        with pytest.raises(golang.ClosedChannelError, match="send on closed channel"):
            send()


def test_an_empty_channel_is_true_and_has_a_length() -> None:
    ch = filled(2, "a")
    assert ch and len(ch) == 1 and ch.maxsize == 2
    assert golang.Channel[int]()


def test_rendezvous_needs_both() -> None:
    ch: golang.Channel[str] = golang.Channel()
    sent: list[str] = []

    def send() -> None:
        ch.send("x")
        sent.append("x")

    thread = golang.go(send, name="sender")
    wait_for_blocked(ch, senders=1)
    assert sent == [] and len(ch) == 0
    assert ch.recv() == ("x", True)
    thread.join(WAIT)
    assert sent == ["x"]


def test_blocked_receivers_are_served_in_order() -> None:
    ch: golang.Channel[int] = golang.Channel()
    got: dict[str, int | None] = {}
    threads = []
    for i, name in enumerate(["first", "second", "third"]):
        threads.append(golang.go(lambda n=name: got.update({n: ch.recv()[0]}), name=name))
        wait_for_blocked(ch, receivers=i + 1)
    for value in range(3):
        assert ch.try_send(value)
    for thread in threads:
        thread.join(WAIT)
    assert got == {"first": 0, "second": 1, "third": 2}


def test_blocked_senders_refill_the_buffer_in_order() -> None:
    ch = filled(1, 0)
    threads = []
    for value in (1, 2):
        threads.append(golang.go(ch.send, value, name=f"sender-{value}"))
        wait_for_blocked(ch, senders=value)
    assert [ch.recv()[0] for _ in range(3)] == [0, 1, 2]
    for thread in threads:
        thread.join(WAIT)


def test_close_wakes_all_receivers() -> None:
    ch: golang.Channel[int] = golang.Channel()
    got: golang.Channel[Any] = golang.Channel(3)
    threads = [golang.go(lambda: got.send(ch.recv()), name=f"receiver-{i}") for i in range(3)]
    wait_for_blocked(ch, receivers=3)
    ch.close()
    assert [got.recv(WAIT) for _ in range(3)] == [((None, False), True)] * 3
    for thread in threads:
        thread.join(WAIT)


def test_close_makes_blocked_senders_raise() -> None:
    ch: golang.Channel[int] = golang.Channel()
    errors: golang.Channel[Exception] = golang.Channel(1)

    def send() -> None:
        try:
            ch.send(1)
        except golang.ClosedChannelError as err:
            errors.send(err)

    thread = golang.go(send, name="sender")
    wait_for_blocked(ch, senders=1)
    ch.close()
    err, ok = errors.recv(WAIT)
    assert ok and str(err) == "send on closed channel"
    thread.join(WAIT)


def test_iteration_drains_and_ends() -> None:
    assert list(closed(filled(3, 1, 2, 3))) == [1, 2, 3]


def test_recv_timeout() -> None:
    ch: golang.Channel[int] = golang.Channel()
    assert ch.recv(timeout=0.001) == (None, False)
    assert ch._receivers == {}, "a waiter that timed out stays queued"


def test_send_with_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    ch: golang.Channel[int] = golang.Channel()
    errors: golang.Channel[Exception] = golang.Channel(1)

    def send() -> None:
        try:
            ch.send(1, ctx)
        except golang.Canceled as err:
            errors.send(err)

    thread = golang.go(send, name="sender")
    wait_for_blocked(ch, senders=1)
    cancel()
    assert errors.recv(WAIT)[1]
    assert ch._senders == {}, "a sender that gave up stays queued"
    thread.join(WAIT)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        pytest.param([None, filled(1, "x")], (1, "x", True), id="nil channel is never ready"),
        pytest.param([golang.Send(None, 1), filled(1, "x")], (1, "x", True), id="nor is sending on it"),
        pytest.param([golang.Channel(0), closed(golang.Channel(0))], (1, None, False), id="closed is ready"),
        pytest.param([golang.Channel(0), golang.Send(golang.Channel(1), 5)], (1, None, True), id="send"),
        pytest.param([golang.Channel(0)], (-1, None, False), id="nothing ready"),
        pytest.param([None], (-1, None, False), id="only nil"),
        pytest.param([], (-1, None, False), id="no case"),
    ],
)
def test_select_default_and_timeout(cases: list[Any], expected: tuple[int, Any, bool]) -> None:
    if expected[0] == -1:
        assert outcome(golang.select(*cases, timeout=0.001), *cases) == expected
    assert outcome(golang.select(*cases, default=True), *cases) == expected


def test_took_tells_which_case() -> None:
    """Each result has the type of its channel, which mypy checks here."""
    numbers, texts = filled(1, 7), golang.Channel[str]()
    selected = golang.select(numbers, texts, None)
    number = selected.took(numbers)
    assert number is selected and number.value == 7 and number.ok
    assert selected.took(texts) is None and selected.took(None) is None
    sending = golang.Send(texts, "x")
    receiver = golang.go(texts.recv, name="receiver")
    assert golang.select(sending, numbers).took(sending)
    receiver.join(WAIT)
    assert golang.select(numbers, None, default=True).took(None) is None


def test_took_refuses_what_is_no_case_of_the_select() -> None:
    """`took` refuses a channel that was not a case of the select.

    An example is a timer that the caller creates again instead of passing the one of the select.
    """
    ready, others = closed(golang.Channel()), golang.Channel[int]()
    for selected in (golang.select(ready), golang.select(golang.Channel(), default=True)):
        with pytest.raises(ValueError, match="the select had no such case"):
            selected.took(others)
        with pytest.raises(ValueError, match="the select had no such case"):
            selected.took(None)


def test_select_takes_nothing_from_the_other_cases() -> None:
    a, b = filled(1, "a"), filled(1, "b")
    golang.select(a, b)
    assert len(a) + len(b) == 1


def test_select_blocks_until_any_case() -> None:
    a: golang.Channel[int] = golang.Channel()
    b: golang.Channel[int] = golang.Channel()
    cases = (a, b, golang.Send(b, 1))
    got: golang.Channel[golang.Selected[Any]] = golang.Channel(1)
    thread = golang.go(lambda: got.send(golang.select(*cases)), name="selector")
    wait_for_blocked(b, receivers=1, senders=1)
    b.send(7)
    assert outcome(got.get(timeout=WAIT), *cases) == (1, 7, True)
    assert (a._receivers, b._receivers, b._senders) == ({}, {}, {}), "the other cases stay queued"
    thread.join(WAIT)


def test_two_selects_meet_on_one_channel() -> None:
    """If each of two selects may send or receive on the same channel, one sends and the other receives."""
    ch: golang.Channel[str] = golang.Channel()
    got: golang.Channel[golang.Selected[Any]] = golang.Channel(2)
    threads = [golang.go(lambda: got.send(golang.select(ch, golang.Send(ch, "x"))), name=f"peer-{i}") for i in range(2)]
    received = [got.get(timeout=WAIT).took(ch) for _ in range(2)]
    assert [each.value for each in received if each] == ["x"]
    for thread in threads:
        thread.join(WAIT)


def test_the_same_channel_twice_in_one_select() -> None:
    ch: golang.Channel[int] = golang.Channel()
    got: golang.Channel[golang.Selected[Any]] = golang.Channel(1)
    thread = golang.go(lambda: got.send(golang.select(ch, ch)), name="selector")
    wait_for_blocked(ch, receivers=2)
    ch.close()
    assert got.recv(WAIT)[1]
    assert ch._receivers == {}
    thread.join(WAIT)


def test_a_deadline_noticed_by_a_select_takes_away_whom_it_would_have_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """A select that comes after the deadline of two waiting selects finds neither a partner nor a closed channel."""
    now = monotonic()
    for other_sends in (True, False):
        for _ in range(20):  # The executed case is random, so the test repeats.
            ch: golang.Channel[str] = golang.Channel()
            ctx, cancel = golang.with_deadline(golang.background(), now + 3600)
            ours, theirs = (ch, golang.Send(ch, "x")) if other_sends else (golang.Send(ch, "x"), ch)
            other = selecting(theirs, ctx.done())
            wait_for_blocked(ch, receivers=not other_sends, senders=other_sends)
            with monkeypatch.context() as later:
                later.setattr(channel_, "monotonic", lambda: now + 3600)
                assert outcome(golang.select(ours, ctx.done()), ours, ctx.done()) == (1, None, False)
            assert outcome(other.get(timeout=WAIT), theirs, ctx.done()) == (1, None, False)
            assert len(ch) == 0
            cancel()


def test_a_timer_that_fires_for_another_leaves_nothing_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = monotonic()
    timer = golang.Timer(3600)
    ch: golang.Channel[str] = golang.Channel()
    other = selecting(golang.Send(ch, "x"), timer.channel)
    wait_for_blocked(ch, senders=1)
    with monkeypatch.context() as later:
        later.setattr(channel_, "monotonic", lambda: now + 3601)
        assert golang.select(ch, timer.channel, default=True).case is None
    assert other.get(timeout=WAIT).took(timer.channel)


def selecting(*cases: channel_.Case) -> golang.Channel[golang.Selected[Any]]:
    """Run a select in a thread, and return a channel that delivers its result."""
    taken: golang.Channel[golang.Selected[Any]] = golang.Channel(1)
    golang.go(lambda: taken.send(golang.select(*cases)), name="selector")
    return taken


def test_choice_is_uniform() -> None:
    """A chi-square test over 7 ready cases passes.

    The seed makes the result reproducible; the bound is that of p = 0.001.
    """
    golang.seed(1)
    channels = [closed(golang.Channel[int]()) for _ in range(7)]
    rounds = 14000
    counts = Counter(golang.select(*channels).case for _ in range(rounds))
    expected = rounds / len(channels)
    chi_square = sum((counts[ch] - expected) ** 2 / expected for ch in channels)
    assert chi_square < 22.46, counts


def test_choice_is_uniform_among_the_ready_ones_only() -> None:
    golang.seed(2)
    idle: golang.Channel[int] = golang.Channel()
    one, two = closed(golang.Channel[int]()), closed(golang.Channel[int]())
    counts = Counter(golang.select(idle, one, None, two, idle).case for _ in range(4000))
    assert set(counts) == {one, two}
    assert abs(counts[one] - 2000) < 210  # 210 is 6.6 standard deviations.


def test_choice_can_be_replayed() -> None:
    channels: list[golang.Case] = [closed(golang.Channel[int]()) for _ in range(5)]

    def run() -> list[int]:
        golang.seed(42)
        return [channels.index(golang.select(*channels).case) for _ in range(50)]

    first = run()
    assert first == run()
    assert len(set(first)) == 5


def test_no_case_starves_beside_a_busy_one() -> None:
    """While one case is always ready, another case that becomes ready once is executed within a few rounds."""
    golang.seed(3)
    busy = closed(golang.Channel[int]())
    rare = filled(1, "x")
    rounds = 0
    while not golang.select(busy, rare).took(rare):
        rounds += 1
        assert rounds < 60, "starved; the chance of that is 2**-60"


def test_stress_every_value_arrives_once() -> None:
    """Every value arrives once with concurrent senders and selects over channels in different orders and capacities."""
    channels: list[golang.Channel[int]] = [golang.Channel(n) for n in (0, 0, 1, 3)]
    per_sender, senders = 300, 4
    got: list[int] = []
    guard = threading.Lock()
    done: golang.Channel[None] = golang.Channel()

    def send(start: int) -> None:
        for value in range(start, start + per_sender):
            golang.select(*(golang.Send(ch, value) for ch in channels))

    def receive(order: list[golang.Channel[int]]) -> None:
        while True:
            taken = golang.select(*order, done)
            if taken.took(done):
                return
            with guard:
                got.append(taken.value)

    receivers = [golang.go(receive, channels[i:] + channels[:i], name=f"receiver-{i}") for i in range(3)]
    threads = [golang.go(send, i * per_sender, name=f"sender-{i}") for i in range(senders)]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    done.close()
    for thread in receivers:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    # This check comes last, because a receiver could take a value that drain has counted.
    rest = [value for ch in channels for value in drain(ch)]
    assert sorted(got + rest) == list(range(per_sender * senders))
    assert all(not ch._receivers and not ch._senders for ch in channels)


def test_values_that_passed_are_counted() -> None:
    ch = filled(2, "a", "b")
    thread = golang.go(ch.send, "c", name="sender")
    wait_for_blocked(ch, senders=1)
    assert ch.passed == 2
    assert [*drain(ch), ch.recv()[0]] == ["a", "b", "c"]
    thread.join()
    assert ch.passed == 3
    unbuffered: golang.Channel[int] = golang.Channel()
    thread = golang.go(unbuffered.recv, name="receiver")
    wait_for_blocked(unbuffered, receivers=1)
    unbuffered.send(1)
    thread.join()
    unbuffered.close()
    unbuffered.recv()
    assert unbuffered.passed == 1
