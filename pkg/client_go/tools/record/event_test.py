"""Test how events reach a sink and the log."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator

import pytest
from framework.waiting import wait_for

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing
from pkg.apimachinery.runtime import codec
from pkg.client_go.kubernetes import testing as kubernetestesting
from pkg.client_go.tools import record
from pkg.client_go.tools.record import event as event_

POD = v1.Pod(metadata=metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u1"), resource_version="7"))
SOURCE = v1.EventSource(component="kubelet", host="labnode")


class Sink:
    """Keep events by name; raise `errors` first, one per call, and block while `gate` is cleared."""

    def __init__(self) -> None:
        self.calls: golang.Channel[tuple[str, v1.Event, bytes]] = golang.Channel(1000)
        self.errors: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()

    def create(self, ctx: golang.Context, event: v1.Event) -> v1.Event:
        return self._called("create", event, b"")

    def patch(self, ctx: golang.Context, event: v1.Event, data: bytes) -> v1.Event:
        return self._called("patch", event, data)

    def _called(self, verb: str, event: v1.Event, data: bytes) -> v1.Event:
        assert self.gate.wait(30)
        # The error is chosen before the test sees the call, so an error that the test adds then affects a later call.
        error = self.errors.pop(0) if self.errors else None
        self.calls.send((verb, event, data))
        if error is not None:
            raise error
        kept = codec.deepcopy(event)
        kept.metadata.resource_version = "9"
        return kept

    def next(self) -> tuple[str, v1.Event, bytes]:
        call, ok = self.calls.recv(timeout=30)
        assert ok and call is not None, "nothing was written"
        return call


class World:
    def __init__(self, max_queued: int = 1000) -> None:
        self.clock = testing.FakeClock()
        self.sink = Sink()
        self.broadcaster = record.new_broadcaster(clock=self.clock, max_queued=max_queued)
        self.recorder = self.broadcaster.new_recorder(SOURCE)
        self.broadcaster.start_recording_to_sink(self.sink)

    def retry(self) -> None:
        """Wait until the sink's thread sleeps, and wake it."""
        self.clock.wait_for_waiters()
        self.clock.step(10)


@pytest.fixture
def world(log: io.StringIO) -> Iterator[World]:
    made = World()
    yield made
    made.broadcaster.shutdown()
    assert "Event handler failed" not in log.getvalue()


def test_event_as_it_is_sent(world: World) -> None:
    world.recorder.annotated_eventf(POD, {"a": "b"}, "Warning", "Failed", "%s failed", "it")
    verb, event, _ = world.sink.next()
    now = codec.seconds(world.clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert verb == "create"
    nanoseconds = int(world.clock.now().timestamp()) * 10**9 + world.clock.now().microsecond * 1000
    assert json.loads(codec.encode_json(event)) == {
        "metadata": {"name": f"p.{nanoseconds:x}", "namespace": "ns", "annotations": {"a": "b"}},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "ns",
            "name": "p",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "reason": "Failed",
        "message": "it failed",
        "source": {"component": "kubelet", "host": "labnode"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
        "reportingComponent": "kubelet",
        "reportingInstance": "labnode",
    }


def test_a_message_is_cut(world: World) -> None:
    world.recorder.event(POD, "Warning", "Failed", "x" * 1_000_000)
    _, event, _ = world.sink.next()
    assert event.message == "x" * event_.MAX_MESSAGE_LENGTH + "…"


def test_repetition_is_a_patch(world: World) -> None:
    for _ in range(3):
        world.recorder.event(POD, "Normal", "Pulled", "same")
        world.clock.step(1)
    verb, first, _ = world.sink.next()
    assert verb == "create"
    for count in (2, 3):
        verb, event, patch = world.sink.next()
        assert (verb, event.metadata.name, event.count) == ("patch", first.metadata.name, count)
        body = json.loads(patch)
        assert list(body) == ["count", "lastTimestamp", "message"]
        assert (body["count"], body["message"]) == (count, "same")
        assert event.first_timestamp == first.first_timestamp


def test_objects_without_namespace_and_with_odd_names(world: World) -> None:
    world.recorder.event(v1.Node(metadata=metav1.ObjectMeta(name="n")), "Normal", "Starting", "m")
    _, event, _ = world.sink.next()
    assert (event.metadata.namespace, event.involved_object.namespace) == ("default", "")
    world.recorder.event(v1.ObjectReference(kind="Pod", name="x" * 250), "Normal", "R", "m")
    _, event, _ = world.sink.next()
    assert len(event.metadata.name) == 36, "a UUID, for what would not be a name"


def test_patch_of_an_expired_event_creates_it(world: World) -> None:
    world.recorder.event(POD, "Normal", "R", "m")
    world.sink.next()
    world.sink.errors = [apierrors.new_not_found("events", "p")]
    world.recorder.event(POD, "Normal", "R", "m")
    assert world.sink.next()[0] == "patch"
    verb, event, _ = world.sink.next()
    assert (verb, event.count, event.metadata.resource_version) == ("create", 2, "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (apierrors.new_forbidden("events", "p", "no"), "Server rejected event (will not retry!)"),
        (apierrors.new_already_exists("events", "p"), ""),
    ],
)
def test_rejected_events_are_not_tried_again(world: World, log: io.StringIO, error: Exception, text: str) -> None:
    world.sink.errors = [error]
    world.recorder.event(POD, "Normal", "R", "rejected")
    world.recorder.event(POD, "Normal", "R", "next")
    assert [world.sink.next()[1].message for _ in range(2)] == ["rejected", "next"]
    assert text in log.getvalue()
    assert ("rejected event" in log.getvalue()) == bool(text), "what exists already is not worth a line"


def test_unreachable_server_gets_them_all_later(world: World, log: io.StringIO) -> None:
    world.sink.errors = [ConnectionRefusedError("away")] * 30
    world.recorder.event(POD, "Normal", "R", "first")
    world.recorder.event(POD, "Normal", "R", "second")
    for _ in range(30):
        assert world.sink.next()[1].message == "first"
        world.retry()
    assert [world.sink.next()[1].message for _ in range(2)] == ["first", "second"]


def test_event_that_cuts_each_connection_is_given_up_after_an_hour(world: World, log: io.StringIO) -> None:
    world.sink.errors = [ConnectionResetError("cut")] * 362
    world.recorder.event(POD, "Normal", "R", "bad")
    world.recorder.event(POD, "Normal", "R", "next")
    assert world.sink.next()[1].message == "bad"
    # The first delay is randomly shorter, but the clock is stepped by 10 s each time.
    for _ in range(361):
        world.retry()
        assert world.sink.next()[1].message == "bad"
    assert world.sink.next()[1].message == "next"
    assert "Unable to write event (retry limit exceeded!)" in log.getvalue()


def test_event_that_cannot_be_encoded_is_not_tried_again(world: World, log: io.StringIO) -> None:
    world.sink.errors = [UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), TypeError("no JSON")]
    for message in ("first", "second", "third"):
        world.recorder.event(POD, "Normal", "R", message)
    assert [world.sink.next()[1].message for _ in range(3)] == ["first", "second", "third"]
    assert log.getvalue().count("Unable to construct event (will not retry!)") == 2


def test_message_that_quotes_what_is_no_text_is_sent(world: World) -> None:
    """A message that quotes invalid UTF-8 is sent.

    A file's name consists of bytes, which appear in a message as lone surrogates.
    """
    world.recorder.event(POD, "Normal", "R", "no a\udcffb")
    world.recorder.eventf(POD, "Normal", "R", "no %s", "a\udcffb")
    world.recorder.annotated_eventf(POD, {}, "Normal", "R", "not %s", "a\udcffb")
    sent = [world.sink.next()[1] for _ in range(3)]
    assert [event.message for event in sent] == ["no a\ufffdb", "no a\ufffdb", "not a\ufffdb"]


def test_other_failures_end_after_twelve_tries(world: World, log: io.StringIO) -> None:
    world.sink.errors = [apierrors.new_internal_error("broken")] * 12
    world.recorder.event(POD, "Normal", "R", "bad")
    world.recorder.event(POD, "Normal", "R", "next")
    for _ in range(11):
        assert world.sink.next()[1].message == "bad"
        world.retry()
    assert [world.sink.next()[1].message for _ in range(2)] == ["bad", "next"]
    assert "Unable to write event (retry limit exceeded!)" in log.getvalue()


def test_namespace_whose_events_are_refused_delays_others_once(world: World) -> None:
    other = v1.Pod(metadata=metav1.ObjectMeta(namespace="other", name="p"))
    world.sink.errors = [apierrors.new_internal_error("webhook")] * 14
    for message in ("first", "second", "third"):
        world.recorder.event(POD, "Normal", "R", message)
    for _ in range(11):
        assert world.sink.next()[1].message == "first"
        world.retry()
    world.recorder.event(other, "Normal", "R", "of the other")
    assert [world.sink.next()[1].message for _ in range(4)] == ["first", "second", "third", "of the other"]
    assert world.sink.errors == []


def test_namespace_whose_events_are_taken_again_has_all_tries(world: World) -> None:
    world.sink.errors = [apierrors.new_internal_error("webhook")] * 12
    world.recorder.event(POD, "Normal", "R", "given up")
    for _ in range(11):
        world.sink.next()
        world.retry()
    world.sink.next()
    world.recorder.event(POD, "Normal", "R", "taken")
    assert world.sink.next()[1].message == "taken"
    world.sink.errors = [apierrors.new_internal_error("webhook")]
    world.recorder.event(POD, "Normal", "R", "tried again")
    assert world.sink.next()[1].message == "tried again"
    world.retry()
    assert world.sink.next()[1].message == "tried again"


def test_full_queue_forgets_the_oldest(log: io.StringIO) -> None:
    world = World(max_queued=3)
    world.sink.errors = [ConnectionRefusedError("away")]
    world.recorder.event(POD, "Normal", "R", "0")
    assert world.sink.next()[1].message == "0"
    for i in range(1, 6):
        world.recorder.event(POD, "Normal", "R", str(i))
    world.retry()
    assert [world.sink.next()[1].message for _ in range(4)] == ["0", "3", "4", "5"]
    world.broadcaster.shutdown()
    assert log.getvalue().count("too many queued events, dropped event") == 2


def test_shutdown_ends_a_retry(world: World, log: io.StringIO) -> None:
    world.sink.errors = [ConnectionRefusedError("away")]
    world.recorder.event(POD, "Normal", "R", "m")
    world.sink.next()
    world.clock.wait_for_waiters()
    world.broadcaster.shutdown()
    assert "Unable to write event (broadcaster is shut down)" in log.getvalue()


def test_sink_of_the_api_server() -> None:
    client = kubernetestesting.FakeClientset()
    broadcaster = record.new_broadcaster(clock=testing.FakeClock())
    broadcaster.start_recording_to_sink(record.EventSinkImpl(client.core_v1.events))
    recorder = broadcaster.new_recorder(SOURCE)
    recorder.event(POD, "Normal", "Pulled", "same")
    recorder.event(POD, "Normal", "Pulled", "same")
    wait_for("both events are sent", lambda: len(client.actions(resource="events")) == 2)
    assert [action.verb for action in client.actions()] == ["create", "patch"]
    broadcaster.shutdown()
    (event,) = client.core_v1.events("ns").list(golang.background()).items
    assert (event.count, event.message, event.involved_object.name) == (2, "same", "p")


def test_what_is_no_event(world: World, log: io.StringIO) -> None:
    world.recorder.event(None, "Normal", "R", "m")
    world.recorder.event(POD, "Odd", "R", "m")
    world.recorder.event(POD, "Normal", "R", "good")
    assert world.sink.next()[1].message == "good"
    assert "Could not construct reference, will not report event" in log.getvalue()
    assert 'Unsupported event type" eventType="Odd"' in log.getvalue()


def test_handler_that_fails_goes_on(log: io.StringIO) -> None:
    broadcaster = record.new_broadcaster()
    seen: golang.Channel[str] = golang.Channel(2)

    def handle(event: v1.Event) -> None:
        seen.send(event.message)
        raise RuntimeError("fault")

    broadcaster.start_event_watcher(handle)
    recorder = broadcaster.new_recorder(SOURCE)
    recorder.event(POD, "Normal", "R", "1")
    recorder.event(POD, "Normal", "R", "2")
    assert [seen.recv(timeout=30)[0] for _ in range(2)] == ["1", "2"]
    broadcaster.shutdown()
    assert "Event handler failed" in log.getvalue()


def test_logging_names_the_line_that_records(log: io.StringIO) -> None:
    broadcaster = record.new_broadcaster()
    recorder = broadcaster.new_recorder(SOURCE)
    broadcaster.start_structured_logging(0)
    recorder.event(POD, "Normal", "Started", "100% as it is")
    recorder.eventf(POD, "Warning", "Failed", "%d", 1)
    recorder.annotated_eventf(POD, {}, "Normal", "R", "m")
    lines = log.getvalue().splitlines()
    assert len(lines) == 3 and all("event_test.py:" in line for line in lines)
    assert lines[0].endswith(
        '"Event occurred" object="ns/p" fieldPath="" kind="Pod" apiVersion="v1" '
        'type="Normal" reason="Started" message="100% as it is"'
    )
    quiet = record.new_broadcaster()
    quiet.start_structured_logging(9)
    quiet.new_recorder(SOURCE).event(POD, "Normal", "R", "m")
    assert len(log.getvalue().splitlines()) == 3
