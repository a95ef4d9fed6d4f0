"""Test what the kubelet records about itself."""

from __future__ import annotations

import contextlib
import datetime

import pytest

from kubelet.liveview import history
from kubelet.prober import ProbeType
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1

UID = types.UID("1")


def pod(uid: str = "1") -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid), namespace="ns", name="pod"))


def stages(stories: history.PodStories, uid: str = "1") -> list[str]:
    return [line.stage for line in stories.get(types.UID(uid))[0]]


def test_loop_counts_what_it_took() -> None:
    loop = history.LoopHistory(3)

    loop.took(1)
    at_work = loop.at_work
    loop.done()
    loop.took(2)

    assert at_work is not None and at_work[0] == 1
    assert (loop.counts, loop.last, [taken.case for taken in loop.tape]) == ([0, 1, 1], 2, [1])
    assert loop.busy_seconds[1] == loop.tape[0].seconds
    assert loop.at_work is not None and loop.at_work[0] == 2


def test_done_without_event_is_nothing() -> None:
    loop = history.LoopHistory(1)
    loop.done()
    assert not loop.tape


def test_story_keeps_its_beginning_and_its_end() -> None:
    stories = history.PodStories()
    for number in range(1000):
        stories.mark(UID, str(number))

    told = stages(stories)
    assert told[:2] == ["0", "1"] and told[-1] == "999"
    assert len(told) == history._BEGINNING + history._LATEST


def test_story_keeps_the_beginning_of_long_texts() -> None:
    text = "x" * 100_000
    calls = history.RuntimeCalls(stories := history.PodStories())
    stories.mark(UID, "refused", text)
    stories.note_event(pod(), "Warning", "Unhealthy", text)
    with contextlib.suppress(OSError), calls.recorded("pull_image", ("1", "c")):
        raise OSError(text)
    lines, events = stories.get(UID)
    texts = [*(line.detail for line in lines), *(event.message for event in events)]
    texts += [totals.last_error for totals in calls.totals().values()]
    assert len(texts) == 4
    assert {len(each) for each in texts} == {history.MAX_TEXT_LENGTH + len("…")}


def test_oldest_story_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_STORIES", 2)
    stories = history.PodStories()
    for uid in ("1", "2", "1", "3"):
        stories.mark(types.UID(uid), "seen")
    assert list(stories.names()) == ["1", "3"]


def test_stage_that_is_passed_again_in_no_time_is_told_once() -> None:
    stories = history.PodStories()
    for _ in range(3):
        with stories.stage(UID, "volumes"):
            pass
    assert stages(stories) == ["volumes"]


def test_stage_that_fails() -> None:
    stories = history.PodStories()
    for _ in range(2):
        with contextlib.suppress(RuntimeError), stories.stage(UID, "volumes"):
            raise RuntimeError("no disk")
    lines, _ = stories.get(UID)
    assert [(line.detail, line.failed) for line in lines] == [("no disk", True)] * 2


def test_events_that_repeat_are_counted() -> None:
    stories = history.PodStories()
    reference = v1.ObjectReference(kind="Pod", uid=types.UID("1"), field_path="spec.containers{main}")
    stories.note_event(reference, "Warning", "Unhealthy", "no")
    stories.note_event(pod(), "Normal", "Pulled", "yes")
    stories.note_event(reference, "Warning", "Unhealthy", "no")
    stories.note_event(v1.ObjectReference(kind="Node", uid=types.UID("1")), "Warning", "Other", "of a node")

    _, events = stories.get(UID)
    assert [(event.reason, event.count, event.field_path) for event in events] == [
        ("Pulled", 1, ""),
        ("Unhealthy", 2, "spec.containers{main}"),
    ]


def test_event_tells_its_cause() -> None:
    stories = history.PodStories()
    failed = RuntimeError("MountVolume.SetUp failed")
    failed.__cause__ = apierrors.new_not_found("configmap", "app")
    stories.note_event(pod(), "Warning", "Unhealthy", "…", (ProbeType.LIVENESS, "no heartbeat"))
    stories.note_event(pod(), "Warning", "FailedMount", "…", (failed,))
    stories.note_event(pod(), "Normal", "Pulled", "…", ("image", 5))

    unhealthy, mount, pulled = stories.get(UID)[1]

    assert (unhealthy.probe, unhealthy.said) == (ProbeType.LIVENESS, "no heartbeat")
    assert mount.missing is not None and (mount.missing.kind, mount.missing.name) == ("configmap", "app")
    assert (pulled.probe, pulled.missing) == (None, None)


def test_why_a_container_was_killed_last() -> None:
    stories = history.PodStories()
    calls = history.RuntimeCalls(stories)
    calls.killing(UID, "main", "LivenessProbe")
    calls.killing(UID, "main", "Unknown")
    assert (stories.killed_for(UID), stories.killed_for(types.UID("2"))) == ({"main": "Unknown"}, {})


def test_refusal_is_remembered() -> None:
    stories = history.PodStories()
    stories.refused(UID, "OutOfcpu", "too much")
    assert (stories.was_refused(UID), stories.was_refused(types.UID("2"))) == (True, False)


def test_status_changes_are_told() -> None:
    stories = history.PodStories()
    ready = v1.PodCondition(type=v1.POD_READY, status=v1.CONDITION_TRUE)
    stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_PENDING), True)
    stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_RUNNING), False)
    stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_RUNNING, conditions=[ready]), False)
    stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_RUNNING, conditions=[ready]), False)
    stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_RUNNING), False)

    assert stages(stories) == ["pending", "running", "ready", "not ready"]
    assert stories.names() == {"1": ("ns", "pod")}


def test_container_that_ends_and_ends_again() -> None:
    stories = history.PodStories()
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def ended(container_id: str, code: int) -> v1.ContainerState:
        state = v1.ContainerStateTerminated(container_id=container_id, exit_code=code, finished_at=at)
        return v1.ContainerState(terminated=state)

    def told(status: v1.ContainerStatus) -> None:
        stories.on_pod_updated(pod(), v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=[status]), False)

    told(v1.ContainerStatus(name="main", container_id="a", state=ended("a", 1)))
    told(v1.ContainerStatus(name="main", container_id="a", state=ended("a", 1)))
    waiting = v1.ContainerState(waiting=v1.ContainerStateWaiting(reason="CrashLoopBackOff"))
    told(v1.ContainerStatus(name="main", container_id="a", state=waiting, last_state=ended("a", 1)))
    running = v1.ContainerState(running=v1.ContainerStateRunning())
    told(v1.ContainerStatus(name="main", container_id="b", state=running, last_state=ended("a", 1)))
    told(v1.ContainerStatus(name="main", container_id="b", state=ended("b", 0), last_state=ended("a", 1)))

    exits = [line for line in stories.get(UID)[0] if line.stage == "exit"]
    assert [(line.detail, line.failed) for line in exits] == [
        ("main ended with exit code 1", True),
        ("main ended with exit code 0", False),
    ]
    assert exits[0].began == at.timestamp() + 1


def test_calls_belong_to_pods() -> None:
    stories = history.PodStories()
    calls = history.RuntimeCalls(stories)
    with calls.recorded("create_container", ("1", "main")):
        (call,) = calls.in_flight()
        assert (call.operation, call.uid, call.container) == ("create_container", "1", "main")
    calls.own("id", UID, "main")
    with calls.recorded("start_container", subject="id"):
        pass
    with contextlib.suppress(RuntimeError), calls.recorded("stop_container", subject="id"):
        raise RuntimeError("no")
    calls.disown("id")
    with calls.recorded("start_container", subject="id"):
        pass

    lines, _ = stories.get(UID)
    assert [(line.stage, line.detail, line.failed) for line in lines] == [
        ("create", "main", False),
        ("start", "main", False),
        ("stop", "main: no", True),
    ]
    assert not calls.in_flight()
    totals = calls.totals()
    assert {name: (t.count, t.errors, t.last_error) for name, t in totals.items()} == {
        "create_container": (1, 0, ""),
        "start_container": (2, 0, ""),
        "stop_container": (1, 1, "no"),
    }


def test_owners_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_IDS", 2)
    calls = history.RuntimeCalls(history.PodStories())
    for runtime_id in ("a", "b", "c"):
        calls.own(runtime_id, UID)
    assert list(calls._owners) == ["b", "c"]
