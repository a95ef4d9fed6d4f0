"""Test named operations: only one runs at a time, and a failure delays the next one."""

from __future__ import annotations

import datetime
import io

import pytest

from pkg import golang, klog
from pkg.apimachinery.clock import testing
from pkg.golang.testing import Held, out_of_threads
from pkg.util import goroutinemap
from pkg.util.goroutinemap import exponentialbackoff

WAIT = 30.0


def fail() -> None:
    raise ValueError("bad")


@pytest.mark.parametrize("back_off", [True, False])
def test_one_at_a_time(back_off: bool) -> None:
    grm = goroutinemap.GoRoutineMap(back_off)
    release: golang.Channel[None] = golang.Channel()
    grm.run("op", release.recv)
    assert grm.is_operation_pending("op") and not grm.is_operation_pending("other")
    with pytest.raises(goroutinemap.AlreadyExistsError, match='name "op"'):
        grm.run("op", fail)
    done: golang.Channel[str] = golang.Channel(1)
    grm.run("other", lambda: done.send("other"))
    assert done.recv(WAIT) == ("other", True)
    release.close()
    grm.wait()
    grm.run("op", lambda: None)
    grm.wait()


def test_a_failure_delays_the_next_run(log: io.StringIO) -> None:
    clock = testing.FakeClock()
    grm = goroutinemap.GoRoutineMap(True, clock)
    for pause in (0.5, 1.0):
        grm.run("op", fail)
        grm.wait_for_completion()
        assert not grm.is_operation_pending("op")
        clock.step(pause)
        with pytest.raises(exponentialbackoff.ExponentialBackoffError, match=rf'\({pause:g}s\)\. Last error: "bad"'):
            grm.run("op", fail)
        clock.step(0.001)
    grm.run("op", lambda: None)
    grm.wait()
    assert "No retries permitted until 2020-01-01 00:00:00.500000" in log.getvalue()


def test_failure_that_is_forgotten_delays_nothing() -> None:
    grm = goroutinemap.GoRoutineMap(True, testing.FakeClock())
    grm.run("op", fail)
    grm.wait_for_completion()
    grm.forget_failure("op")
    done: golang.Channel[str] = golang.Channel(1)
    grm.run("op", lambda: done.send("again"))
    assert done.recv(WAIT) == ("again", True)
    grm.wait()


def test_without_back_off_a_failure_is_only_logged(log: io.StringIO) -> None:
    grm = goroutinemap.GoRoutineMap(False)
    grm.run("op", fail)
    grm.wait()
    grm.run("op", lambda: None)
    grm.wait()
    assert r'"operation for \"op\" failed" err="bad"' in log.getvalue()


def test_the_wait_grows_to_its_maximum() -> None:
    backoff = exponentialbackoff.ExponentialBackoff()
    now = testing.FakeClock().now()
    pauses = []
    for _ in range(10):
        backoff.update(ValueError("x"), now)
        pauses.append(backoff.duration_before_retry)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]


def test_what_completes_is_told_when_the_next_may_run() -> None:
    completed: golang.Channel[bool] = golang.Channel(10)
    grm = goroutinemap.GoRoutineMap(True, on_complete=lambda: completed.send(grm.is_operation_pending("op")))
    for operation in (lambda: None, fail):
        grm.run("op", operation)
        assert completed.recv(WAIT) == (False, True)


def test_of_what_has_failed_nothing_is_kept_but_the_text() -> None:
    """The objects of a failed operation are freed without the garbage collector."""
    held = Held()

    def work() -> None:
        _large = held.new()
        raise ValueError("bad")

    grm = goroutinemap.GoRoutineMap(True, testing.FakeClock())
    with golang.ThreadGroup() as threads:
        grm.run("op", work)
    assert threads.join(WAIT) == []
    assert held.freed() == [True]
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match="bad"):
        grm.run("op", work)


def test_of_a_failure_without_end_the_beginning_is_kept() -> None:
    backoff = exponentialbackoff.ExponentialBackoff()
    now = testing.FakeClock().now()
    backoff.update(ValueError("\x01" * 1_000_000), now)
    assert backoff.must_wait(now)
    with pytest.raises(exponentialbackoff.ExponentialBackoffError) as caught:
        backoff.safe_to_retry("op", now)
    # Escaping turns each character into four.
    assert len(str(caught.value)) < 5 * exponentialbackoff.MAX_ERROR_LENGTH
    assert len(backoff.generate_no_retries_permitted_msg("op")) < 2 * exponentialbackoff.MAX_ERROR_LENGTH


def test_who_has_to_wait_quotes_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a waiting operation does not build its text until the text is needed.

    The thread that starts all operations meets each waiting operation again and again.
    """
    backoff = exponentialbackoff.ExponentialBackoff()
    now = testing.FakeClock().now()
    backoff.update(ValueError("bad"), now)
    monkeypatch.setattr(klog, "quote", None)
    with pytest.raises(exponentialbackoff.ExponentialBackoffError) as caught:
        backoff.safe_to_retry("op", now)
    monkeypatch.undo()
    assert str(caught.value).endswith('Last error: "bad".')


def test_operation_that_cannot_be_started_may_be_tried_later() -> None:
    clock = testing.FakeClock()
    grm = goroutinemap.GoRoutineMap(True, clock)
    with out_of_threads("operation-op"), pytest.raises(golang.ThreadError, match="can't start new thread"):
        grm.run("op", lambda: None)
    assert not grm.is_operation_pending("op")
    clock.step(0.6)
    grm.run("op", lambda: None)
    grm.wait()


@pytest.mark.parametrize("err", [RecursionError(), golang.Canceled()])
def test_end_that_cannot_be_told_is_an_end(err: Exception) -> None:
    def fail_to_tell() -> None:
        raise err

    grm = goroutinemap.GoRoutineMap(True, on_complete=fail_to_tell)
    grm.run("op", lambda: None)
    grm.wait()


def test_time_of_day_that_is_set_back_does_not_lengthen_the_wait() -> None:
    clock = testing.FakeClock()
    grm = goroutinemap.GoRoutineMap(True, clock)
    grm.run("op", fail)
    grm.wait_for_completion()
    clock.set_time(clock.now() - datetime.timedelta(hours=1))
    clock.step(0.6)
    grm.run("op", lambda: None)
    grm.wait()
