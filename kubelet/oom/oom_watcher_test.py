"""Test the events about processes that were killed because the machine was out of memory.

Go: pkg/kubelet/oom/oom_watcher_linux_test.go
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from kubelet import oom
from kubelet.cadvisor.oomparser import OomInstance
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go.tools.record.testing import FakeRecorder

_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_NODE = v1.ObjectReference(kind="Node", name="n")


class _Streamer:
    """Yield these reports, and then wait until the context ends."""

    def __init__(self, *instances: OomInstance) -> None:
        self._instances = instances

    def stream_ooms(self, ctx: golang.Context) -> Iterator[OomInstance]:
        yield from self._instances
        ctx.wait(None)


def _instance(pid: int = 1000, name: str = "fake", victim: str = "/", age: timedelta = timedelta()) -> OomInstance:
    return OomInstance(_NOW - age, pid, name, "/some-container", victim)


@pytest.mark.parametrize(
    ("instances", "messages"),
    [
        ([_instance()], ["System OOM encountered, victim process: fake, pid: 1000"]),
        ([_instance(0)], ["System OOM encountered"]),
        ([_instance(name="")], ["System OOM encountered"]),
        ([_instance(1, victim="/kubepods"), _instance(2)], ["System OOM encountered, victim process: fake, pid: 2"]),
        (
            [_instance(1, age=timedelta(hours=2)), _instance(2, age=timedelta(minutes=59))],
            ["System OOM encountered, victim process: fake, pid: 2"],
        ),
    ],
    ids=["victim is named", "no pid", "no name", "of a cgroup", "old"],
)
def test_events(instances: list[OomInstance], messages: list[str]) -> None:
    recorder = FakeRecorder(10)
    ctx, cancel = golang.with_cancel(golang.background())
    # The last report always causes an event, so the test sees every event before it.
    last = _instance(99, "last")
    oom.OomWatcher(recorder, _Streamer(*instances, last), FakeClock(_NOW)).start(ctx, _NODE)
    for message in (*messages, "System OOM encountered, victim process: last, pid: 99"):
        event, ok = recorder.events.recv(30)
        assert (event, ok) == (f"Warning SystemOOM {message}", True)
    cancel()


@failures
def test_event_that_cannot_be_told_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    recorder = FakeRecorder(10)
    monkeypatch.setattr(recorder, "event", failing_once(recorder.event, err))
    ctx, cancel = golang.with_cancel(golang.background())
    oom.OomWatcher(recorder, _Streamer(_instance(1), _instance(2)), FakeClock(_NOW)).start(ctx, _NODE)
    assert recorder.events.recv(30) == ("Warning SystemOOM System OOM encountered, victim process: fake, pid: 2", True)
    cancel()


@failures
def test_stream_that_breaks_ends_the_watch_alone(err: Exception) -> None:
    class Broken:
        def stream_ooms(self, ctx: golang.Context) -> Iterator[OomInstance]:
            yield _instance(1)
            raise err

    recorder = FakeRecorder(10)
    watcher = oom.OomWatcher(recorder, Broken(), FakeClock(_NOW))
    with golang.ThreadGroup() as group:
        watcher.start(golang.background(), _NODE)
    assert recorder.events.recv(30)[1]
    assert group.join(30) == []
