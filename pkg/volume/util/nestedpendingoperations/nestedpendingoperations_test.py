"""Test that conflicting operations exclude each other, and that others run at the same time."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from framework.waiting import wait_for

from pkg import golang
from pkg.apimachinery.clock import testing
from pkg.golang.testing import Held, frames_kept_after, out_of_threads
from pkg.util.goroutinemap import exponentialbackoff
from pkg.volume.util import types as volumetypes
from pkg.volume.util.nestedpendingoperations import AlreadyExistsError, NestedPendingOperations

VOLUME, POD_1, POD_2, NODE_1, NODE_2 = "volume-name", "pod-1", "pod-2", "node-1", "node-2"
WAIT = 30.0


class Gate:
    """Represent an operation that ends when the test releases it."""

    def __init__(self, name: str = "op", err: Exception | None = None) -> None:
        self.started: golang.Channel[None] = golang.Channel(1)
        self.release: golang.Channel[None] = golang.Channel()
        self.err = err
        self.operations = volumetypes.GeneratedOperations(name, self._run)

    def _run(self) -> volumetypes.OperationContext:
        self.started.send(None)
        self.release.recv()
        return volumetypes.OperationContext(detailed_err=self.err)


def done(name: str = "op") -> volumetypes.GeneratedOperations:
    return volumetypes.GeneratedOperations(name, volumetypes.OperationContext)


def failing(name: str = "op") -> volumetypes.GeneratedOperations:
    return volumetypes.GeneratedOperations(name, lambda: volumetypes.OperationContext(detailed_err=ValueError("bad")))


def crash() -> volumetypes.OperationContext:
    raise RuntimeError("crashed")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.release.close()


@pytest.mark.parametrize(
    ("first", "second", "in_the_way"),
    [
        ((VOLUME, "", ""), (VOLUME, "", ""), True),
        ((VOLUME, "", ""), (VOLUME, POD_1, ""), True),
        ((VOLUME, "", ""), (VOLUME, "", NODE_1), True),
        ((VOLUME, POD_1, ""), (VOLUME, "", ""), True),
        ((VOLUME, POD_1, ""), (VOLUME, POD_1, ""), True),
        ((VOLUME, POD_1, ""), (VOLUME, POD_2, ""), False),
        ((VOLUME, POD_1, ""), (VOLUME, "", NODE_1), True),
        ((VOLUME, "", NODE_1), (VOLUME, "", ""), True),
        ((VOLUME, "", NODE_1), (VOLUME, POD_1, ""), True),
        ((VOLUME, "", NODE_1), (VOLUME, "", NODE_1), True),
        ((VOLUME, "", NODE_1), (VOLUME, "", NODE_2), False),
        ((VOLUME, "", ""), ("other", "", ""), False),
        (("", "", ""), ("", "", ""), False),
        (("", POD_1, ""), ("", POD_1, ""), False),
    ],
)
def test_second_operation_before_the_first_ends(
    gate: Gate, first: tuple[str, str, str], second: tuple[str, str, str], in_the_way: bool
) -> None:
    operations = NestedPendingOperations(True)
    operations.run(*first, gate.operations)
    assert gate.started.recv(WAIT)[1]
    assert operations.is_operation_pending(*second) == in_the_way
    assert operations.is_operation_safe_to_retry(*second, "op") != in_the_way
    if in_the_way:
        with pytest.raises(AlreadyExistsError, match="already executing"):
            operations.run(*second, done())
    else:
        operations.run(*second, done())


@pytest.mark.parametrize("back_off", [True, False])
def test_second_operation_after_the_first_ended(gate: Gate, back_off: bool) -> None:
    operations = NestedPendingOperations(back_off)
    operations.run(VOLUME, "", "", gate.operations)
    gate.release.send(None)
    operations.wait()
    assert operations.is_operation_safe_to_retry(VOLUME, "", "", "op")
    operations.run(VOLUME, "", "", done())
    operations.wait()


def test_failure_delays_the_same_operation_only(log: io.StringIO) -> None:
    clock = testing.FakeClock()
    operations = NestedPendingOperations(True, clock=clock)
    assert operations.next_retry() is None
    for pause in (0.5, 1.0):
        operations.run(VOLUME, "", "", failing())
        operations.wait_for_completion()
        assert operations.next_retry() == pause
        assert not operations.is_operation_safe_to_retry(VOLUME, "", "", "op")
        with pytest.raises(exponentialbackoff.ExponentialBackoffError, match=rf'\({pause:g}s\)\. Last error: "bad"'):
            operations.run(VOLUME, "", "", done())
        assert not frames_kept_after(lambda: operations.run(VOLUME, "", "", done()))
        clock.step(pause + 0.001)
        assert operations.next_retry() is None
    operations.run(VOLUME, "", "", failing())
    operations.wait_for_completion()
    assert operations.is_operation_safe_to_retry(VOLUME, "", "", "another")
    operations.run(VOLUME, "", "", done("another"))
    operations.wait()
    assert "{volumeName:volume-name podName: nodeName:}" in log.getvalue()


def test_failure_is_forgotten_when_asked_to() -> None:
    operations = NestedPendingOperations(True, clock=testing.FakeClock())
    operations.run(VOLUME, POD_1, "", failing())
    operations.wait_for_completion()
    operations.forget_failures("other")
    assert not operations.is_operation_safe_to_retry(VOLUME, POD_1, "", "op")
    operations.forget_failures(VOLUME)
    operations.run(VOLUME, POD_1, "", done())
    operations.wait()


def test_who_has_to_wait_leaves_nothing_for_the_garbage_collector() -> None:
    operations = NestedPendingOperations(True, clock=testing.FakeClock())
    operations.run(VOLUME, "", "", failing())
    operations.wait_for_completion()
    assert not operations.is_operation_safe_to_retry(VOLUME, "", "", "op")
    assert frames_kept_after(lambda: operations.is_operation_safe_to_retry(VOLUME, "", "", "op")) == []
    assert frames_kept_after(lambda: operations.run(VOLUME, "", "", failing())) == []


def test_failure_of_what_nobody_wants_any_more_is_forgotten() -> None:
    clock = testing.FakeClock()
    operations = NestedPendingOperations(True, clock=clock)
    operations.run(VOLUME, POD_1, "", failing())
    operations.run(VOLUME, POD_2, "", failing())
    operations.wait_for_completion()
    clock.step(60)
    operations.run(VOLUME, POD_2, "", failing())
    operations.wait_for_completion()
    clock.step(exponentialbackoff.MAX_DURATION_BEFORE_RETRY - 30)
    assert operations.next_retry() is None
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match=r"\(2s\)"):
        for _ in range(2):
            operations.run(VOLUME, POD_2, "", failing())
            operations.wait_for_completion()
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match=r"\(0\.5s\)"):
        for _ in range(2):
            operations.run(VOLUME, POD_1, "", failing())
            operations.wait_for_completion()


def test_without_a_volume_each_completes_for_itself(gate: Gate) -> None:
    """The failure of one operation does not end another one with the same key."""
    operations = NestedPendingOperations(True)
    other = Gate(err=ValueError("bad"))
    operations.run("", POD_1, "", other.operations)
    operations.run("", POD_1, "", gate.operations)
    assert gate.started.recv(WAIT)[1] and other.started.recv(WAIT)[1]

    def pending() -> list[bool]:
        return [operation.pending for operation in operations._operations.get("", [])]

    wait_for("both operations are pending", lambda: len(pending()) == 2)
    other.release.close()
    wait_for("the failed operation is no longer pending", lambda: pending() == [False, True])
    gate.release.send(None)
    wait_for("only the failed operation is still remembered", lambda: pending() == [False])


def test_operation_that_cannot_be_started_may_be_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = testing.FakeClock()
    operations = NestedPendingOperations(True, clock=clock)

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start new thread"):
        patch.setattr(golang, "go", refuse)
        operations.run(VOLUME, "", "", done())
    assert not operations.is_operation_pending(VOLUME, "", "")
    clock.step(0.6)
    operations.run(VOLUME, "", "", done())
    operations.wait()


def test_without_back_off_a_failure_is_only_logged(log: io.StringIO) -> None:
    operations = NestedPendingOperations(False)
    operations.run(VOLUME, "", "", failing())
    operations.wait()
    operations.run(VOLUME, "", "", done())
    operations.wait()
    assert "failed with: bad" in log.getvalue()


def test_crash_is_a_failure() -> None:
    operations = NestedPendingOperations(True, clock=testing.FakeClock())
    operations.run(VOLUME, "", "", volumetypes.GeneratedOperations("op", crash))
    operations.wait_for_completion()
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match="crashed"):
        operations.run(VOLUME, "", "", done())


def test_of_what_has_failed_nothing_is_kept_but_the_text() -> None:
    """What the error refers to is freed at once, not only by the garbage collector."""
    held = Held()

    def work() -> None:
        _large = held.new()
        raise ValueError("bad")

    def fail() -> volumetypes.OperationContext:
        detailed = RuntimeError("the volume is bad")
        try:
            work()
        except ValueError as err:
            detailed.__cause__ = err
        return volumetypes.OperationContext(detailed_err=detailed)

    operations = NestedPendingOperations(True, clock=testing.FakeClock())
    with golang.ThreadGroup() as threads:
        operations.run(VOLUME, "", "", volumetypes.GeneratedOperations("op", fail))
    assert threads.join(WAIT) == []
    assert held.freed() == [True]
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match="the volume is bad"):
        operations.run(VOLUME, "", "", done())


def test_running_operation_counts_before_a_failed_one_of_the_same_key(gate: Gate) -> None:
    operations = NestedPendingOperations(True, clock=testing.FakeClock())
    operations.run(VOLUME, POD_1, "", failing())
    operations.wait_for_completion()
    operations.run(VOLUME, POD_2, "", gate.operations)
    assert operations.is_operation_pending(VOLUME, "", "")
    with pytest.raises(AlreadyExistsError):
        operations.run(VOLUME, "", "", done())


def test_failed_operation_of_the_same_key_counts_before_others() -> None:
    clock = testing.FakeClock()
    operations = NestedPendingOperations(True, clock=clock)
    for pod in (POD_1, POD_2):
        operations.run(VOLUME, pod, "", failing())
        operations.wait_for_completion()
    # The operation on all pods replaces the failure of the first one; the failure of the second one stays.
    clock.step(0.6)
    operations.run(VOLUME, POD_2, "", done())
    operations.wait_for_completion()
    operations.run(VOLUME, "", "", failing())
    operations.wait_for_completion()
    with pytest.raises(exponentialbackoff.ExponentialBackoffError, match=r"\(1s\)"):
        operations.run(VOLUME, "", "", done())


def test_whoever_wants_to_know_is_told_of_each_end() -> None:
    told: golang.Channel[None] = golang.Channel(2)
    operations = NestedPendingOperations(True, on_complete=lambda: told.send(None))
    operations.run(VOLUME, "", "", done())
    assert told.recv(WAIT)[1]
    operations.run("other", "", "", failing())
    assert told.recv(WAIT)[1]


@pytest.mark.parametrize("err", [RecursionError(), MemoryError(), golang.Canceled(), UnicodeError("bad name")])
def test_operation_whose_end_cannot_be_told_has_ended(err: Exception) -> None:
    def fail(param: object = None) -> None:
        raise err

    operations = volumetypes.GeneratedOperations("op", volumetypes.OperationContext, fail, fail)
    nested = NestedPendingOperations(True, on_complete=fail)
    nested.run(VOLUME, "", "", operations)
    nested.wait()
    nested.run(VOLUME, "", "", done())
    nested.wait()


def test_operation_without_a_thread_has_failed_and_is_tried_again() -> None:
    clock = testing.FakeClock()
    nested = NestedPendingOperations(True, clock=clock)
    with out_of_threads("volume-op"), pytest.raises(golang.ThreadError, match="can't start new thread"):
        nested.run(VOLUME, "", "", done())
    assert not nested.is_operation_pending(VOLUME, "", "")
    assert nested.next_retry() == exponentialbackoff.INITIAL_DURATION_BEFORE_RETRY
    clock.step(0.6)
    nested.run(VOLUME, "", "", done())
    nested.wait()
