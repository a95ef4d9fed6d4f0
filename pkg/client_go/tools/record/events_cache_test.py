"""Test how events are combined, counted and filtered."""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing
from pkg.client_go.tools.record import events_cache


def make_event(message: str, name: str = "p", reason: str = "R") -> v1.Event:
    return v1.Event(
        metadata=metav1.ObjectMeta(name=f"{name}.1", namespace="ns"),
        involved_object=v1.ObjectReference(kind="Pod", namespace="ns", name=name),
        source=v1.EventSource(component="kubelet", host="n"),
        reason=reason,
        message=message,
        count=1,
        type="Normal",
    )


def test_similar_events_are_combined_from_the_tenth_on() -> None:
    clock = testing.FakeClock()
    correlator = events_cache.EventCorrelator(clock)
    sent = []
    for i in range(12):
        sent.append(correlator.event_correlate(make_event(f"message {i}")))
        clock.step(1)
    events = [result.event for result in sent if result is not None]
    assert [event.message for event in events] == [
        *(f"message {i}" for i in range(9)),
        *(f"(combined from similar events): message {i}" for i in range(9, 12)),
    ]
    assert [event.count for event in events] == [1] * 10 + [2, 3]
    assert len({event.metadata.name for event in events[9:]}) == 1
    other = correlator.event_correlate(make_event("message", reason="Other"))
    assert other is not None and other.event.message == "message"


def test_after_ten_quiet_minutes_events_are_told_singly_again() -> None:
    clock = testing.FakeClock()
    aggregator = events_cache.EventAggregator(10, 3, 600, clock)
    for i in range(5):
        aggregator.event_aggregate(make_event(str(i)))
    clock.step(600)
    assert aggregator.event_aggregate(make_event("x"))[0].message == "(combined from similar events): x"
    clock.step(601)
    assert aggregator.event_aggregate(make_event("y"))[0].message == "y"


def test_what_is_remembered_of_an_event_is_short_however_long_its_message() -> None:
    long = make_event("x" * 100_000)
    group, local = events_cache.event_aggregator_by_reason_func(long)
    for key in (events_cache.get_event_key(long), (*group, local)):
        assert sum(map(len, key)) < 1000
    assert events_cache.get_event_key(long) != events_cache.get_event_key(make_event("x" * 100_001))


def test_a_noisy_source_is_stopped() -> None:
    clock = testing.FakeClock()
    correlator = events_cache.EventCorrelator(clock)
    passed = [correlator.event_correlate(make_event("same")) is not None for _ in range(30)]
    assert passed == [True] * 25 + [False] * 5
    assert correlator.event_correlate(make_event("same", name="other")) is not None
    clock.step(299)
    assert correlator.event_correlate(make_event("same")) is None
    clock.step(2)
    result = correlator.event_correlate(make_event("same"))
    assert result is not None and result.event.count == 32, "what was dropped counts"


def test_counting_goes_on_from_the_servers_answer() -> None:
    correlator = events_cache.EventCorrelator(testing.FakeClock())
    first = correlator.event_correlate(make_event("m"))
    assert first is not None and first.patch == b""
    answer = make_event("m")
    answer.metadata.name = "another"
    answer.metadata.resource_version = "5"
    answer.count = 7
    correlator.update_state(answer)
    second = correlator.event_correlate(make_event("m"))
    assert second is not None
    assert (second.event.metadata.name, second.event.metadata.resource_version) == ("another", "5")
    assert second.patch == b'{"count":8,"message":"m"}'


def test_lru_forgets_what_was_used_longest_ago() -> None:
    cache: events_cache.LRU[int] = events_cache.LRU(2)
    cache.add(("a",), 1)
    cache.add(("b",), 2)
    assert cache.get(("a",)) == 1
    cache.add(("c",), 3)
    assert [cache.get((key,)) for key in "abc"] == [1, None, 3]
