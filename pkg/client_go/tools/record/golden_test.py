"""Test with the events that the Go kubelet sent to a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock import testing
from pkg.apimachinery.runtime import codec
from pkg.client_go.tools import record

GOLDEN = Path(__file__).resolve().parents[4] / "test/data/golden"
SOURCE = v1.EventSource(component="kubelet", host="labnode")
SCENARIOS = sorted(GOLDEN.glob("*/*/api.jsonl"))


def calls(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each write of an event that is recorded from its first occurrence on, with the event as first sent."""
    first: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        call = json.loads(line)
        where = call["uri"].split("?")[0].split("/")
        if call["verb"] == "create" and where[-1] == "events" and "code" in call:
            first[call["sent"]["metadata"]["name"]] = call["sent"]
            yield call, call["sent"]
        elif call["verb"] == "patch" and where[-2] == "events" and where[-1] in first:
            yield call, first[where[-1]]


class Sink:
    def __init__(self) -> None:
        self.calls: golang.Channel[tuple[str, bytes]] = golang.Channel(10)

    def create(self, ctx: golang.Context, event: v1.Event) -> v1.Event:
        self.calls.send(("create", codec.encode_json(event)))
        return event

    def patch(self, ctx: golang.Context, event: v1.Event, data: bytes) -> v1.Event:
        self.calls.send(("patch", data))
        return event


class Kubelet:
    """Represent the part of a kubelet that sends events."""

    def __init__(self, clock: testing.FakeClock) -> None:
        self.sink = Sink()
        self.broadcaster = record.new_broadcaster(clock=clock)
        self.broadcaster.start_recording_to_sink(self.sink)
        self.recorder = self.broadcaster.new_recorder(SOURCE)

    def report(self, about: v1.ObjectReference, event_type: str, reason: str, message: str) -> tuple[str, Any]:
        """Record an event, and return the resulting call."""
        self.recorder.event(about, event_type, reason, message)
        written, ok = self.sink.calls.recv(timeout=30)
        assert ok and written is not None, "nothing was sent"
        return written[0], json.loads(written[1])


def comparable(body: dict[str, Any], about: v1.ObjectReference) -> dict[str, Any]:
    """Return the body without Go's nulls, without the type that the client adds, and without the time in the name."""
    rest = {key: value for key, value in body.items() if key not in ("eventTime", "kind", "apiVersion")}
    if "metadata" in body:
        rest["metadata"] = {key: value for key, value in body["metadata"].items() if key != "name"}
        name, _, moment = body["metadata"]["name"].rpartition(".")
        assert name == about.name and int(moment, 16) > 10**18
    return rest


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.parent.name for path in SCENARIOS])
def test_events_are_as_those_of_go(path: Path) -> None:
    clock = testing.FakeClock()
    kubelet = Kubelet(clock)
    found = 0
    for call, event in calls(path):
        found += 1
        if event["reason"] == "Starting":  # The kubelet was restarted.
            kubelet.broadcaster.shutdown()
            kubelet = Kubelet(clock)
        sent = call["sent"]
        clock.set_time(datetime.fromisoformat(sent["lastTimestamp"]))
        about = codec.convert(event["involvedObject"], v1.ObjectReference)
        verb, body = kubelet.report(about, event["type"], event["reason"], sent["message"])
        assert (verb, comparable(body, about)) == (call["verb"], comparable(sent, about))
    kubelet.broadcaster.shutdown()
    assert found, "the scenario has no event"
