"""Test event recorders."""

from __future__ import annotations

import io

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing
from pkg.client_go.tools import record
from pkg.client_go.tools.record.testing import FakeRecorder

POD = v1.Pod(metadata=metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u1")))
CONTAINER = v1.ObjectReference(kind="Pod", api_version="v1", namespace="ns", name="p", field_path="spec.containers{c}")


def test_standalone_logs_and_keeps(log: io.StringIO) -> None:
    clock = testing.FakeClock()
    recorder = record.StandaloneRecorder(keep=2, clock=clock)
    recorder.event(POD, "Normal", "Dropped", "the oldest goes")
    recorder.event(POD, "Normal", "Literal", "100% as it is")
    clock.step(1)
    recorder.annotated_eventf(CONTAINER, {"a": "b"}, "Warning", "Failed", "%s took %d s", "it", 5)
    first, second = recorder.events()
    assert (first.reason, first.message) == ("Literal", "100% as it is")
    ref = first.involved_object
    assert (ref.kind, ref.api_version, ref.namespace, ref.name, ref.uid) == ("Pod", "v1", "ns", "p", "u1")
    assert second.involved_object is CONTAINER
    assert (second.type, second.message, second.annotations) == ("Warning", "it took 5 s", {"a": "b"})
    assert second.time == clock.now() and (second.time - first.time).total_seconds() == 1
    last = log.getvalue().splitlines()[-1]
    assert "record_test.py:" in last, "the line names who recorded"
    assert last.endswith(
        '"Event occurred" object="ns/p" fieldPath="spec.containers{c}" kind="Pod" apiVersion="v1" '
        'type="Warning" reason="Failed" message="it took 5 s"'
    )


def test_observer_is_told_of_each_event(log: io.StringIO) -> None:
    told: list[tuple[object, ...]] = []
    recorder = record.StandaloneRecorder()
    recorder.observer = lambda *event: told.append(event)
    recorder.event(POD, "Normal", "Pulled", "it is there")
    recorder.eventf(POD, "Warning", "Failed", "%s took %d s", "it", 5)
    recorder.annotated_eventf(POD, {"a": "b"}, "Warning", "Failed", "%d", 1)
    assert told == [
        (POD, "Normal", "Pulled", "it is there", ()),
        (POD, "Warning", "Failed", "it took 5 s", ("it", 5)),
        (POD, "Warning", "Failed", "1", (1,)),
    ]


def test_eventf_formats(log: io.StringIO) -> None:
    recorder: record.EventRecorder = (standalone := record.StandaloneRecorder())
    recorder.eventf(POD, "Normal", "Pulled", "%s", "image")
    assert standalone.events()[0].message == "image"
    assert 'message="image"' in log.getvalue()


def test_fake() -> None:
    fake = FakeRecorder(3)
    recorder: record.EventRecorder = fake
    recorder.event(POD, "Normal", "Started", "100%")
    recorder.eventf(POD, "Warning", "Failed", "%s: %d", "x", 1)
    recorder.annotated_eventf(POD, {"b": "2", "a": "1"}, "Normal", "R", "m")
    with pytest.raises(AssertionError, match="no room for another event: Normal R m"):
        recorder.event(POD, "Normal", "R", "m")
    assert fake.drain() == ["Normal Started 100%", "Warning Failed x: 1", "Normal R m map[a:1 b:2]"]
    assert fake.drain() == []
