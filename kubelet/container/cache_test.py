"""Test the cache of pod statuses.

Go: pkg/kubelet/container/cache_test.go
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from framework.waiting import wait_until_equal

from kubelet.container.cache import CacheImpl, _Data
from kubelet.container.runtime import PodStatus
from pkg import features, golang
from pkg.apimachinery import types
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.golang.testing import Held

UID = types.UID("p")

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DEADLINE = 30.0


def at(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def newer_than(cache: CacheImpl, id: str, min_time: datetime.datetime) -> _Data | None:
    with cache._lock:
        return cache._get_if_newer_than_locked(types.UID(id), min_time)


def test_not_initialized() -> None:
    assert newer_than(CacheImpl(), "1234", at(-1000)) is None


@pytest.mark.parametrize(
    ("cache_time", "modified", "observed", "expected"),
    [
        pytest.param(1, 0, None, True, id="global time newer"),
        pytest.param(1, -10, None, True, id="global time newer, entry old"),
        pytest.param(-1, 3, None, True, id="entry newer"),
        pytest.param(-1, -1, 3, True, id="observed newer"),
        pytest.param(-1, -1, None, False, id="all older"),
        pytest.param(0, 0, None, False, id="all equal"),
    ],
)
def test_get_if_newer_than_when_pod_exists(
    cache_time: float, modified: float, observed: float | None, expected: bool
) -> None:
    cache = CacheImpl()
    cache.update_time(at(cache_time))
    cache.set(UID, PodStatus(id=UID), None, at(modified))
    if observed is not None:
        cache.set_observed_time(UID, at(observed))
    assert (newer_than(cache, "p", NOW) is not None) is expected


@pytest.mark.parametrize(("min_time", "expected"), [(-1, True), (0, False), (1, False)])
def test_get_pod_newer_than_when_pod_does_not_exist(min_time: float, expected: bool) -> None:
    cache = CacheImpl()
    cache.update_time(NOW)
    data = newer_than(cache, "1234", at(min_time))
    assert (data is not None) is expected
    if data is not None:
        assert data.result() == PodStatus(id=types.UID("1234"))


def test_set_and_get() -> None:
    cache = CacheImpl()
    status = PodStatus(id=UID, name="n")
    assert cache.set(UID, status, None, NOW)
    assert cache.get(UID) is status
    error = RuntimeError("unable to get status")
    cache.set(UID, None, error, NOW)
    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            cache.get(UID)
        assert caught.value is error
    depth, traceback = 0, error.__traceback__
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    assert depth < 5, "the traceback grew with each raise"


def test_pod_does_not_exist() -> None:
    cache = CacheImpl()
    cache.update_time(NOW, ())
    assert cache.get(UID) == PodStatus(id=UID)


def test_pod_that_has_not_been_inspected_yet() -> None:
    cache = CacheImpl()
    cache.update_time(NOW)
    assert not cache.is_filled()
    with pytest.raises(LookupError, match="pod p has not been inspected yet"):
        cache.get(UID)
    cache.update_time(NOW, {UID})
    assert cache.is_filled()
    with pytest.raises(LookupError, match="pod p has not been inspected yet"):
        cache.get(UID)
    cache.set(UID, PodStatus(id=UID, name="n"), None, NOW)
    assert cache.get(UID).name == "n"


def test_delete() -> None:
    cache = CacheImpl()
    cache.update_time(NOW, ())
    cache.set(UID, PodStatus(id=UID, name="n"), None, NOW)
    cache.delete(UID)
    cache.delete(UID)
    assert cache.get(UID) == PodStatus(id=UID)


@pytest.mark.parametrize(("evented", "updated"), [(True, False), (False, True)])
def test_set_of_something_older(evented: bool, updated: bool) -> None:
    cache = CacheImpl()
    cache.set(UID, PodStatus(id=UID), None, NOW)
    gate = features.feature_gate
    with featuregatetesting.set_feature_gate_during_test(gate, features.EVENTED_PLEG, evented):
        assert cache.set(UID, PodStatus(id=UID, name="old"), None, at(-1)) is updated
    assert cache.get(UID).name == ("old" if updated else "")


def status_to_come(cache: CacheImpl, id: str, min_time: datetime.datetime) -> golang.Channel[PodStatus]:
    result: golang.Channel[PodStatus] = golang.Channel(1)
    golang.go(lambda: result.send(cache.get_newer_than(types.UID(id), min_time)), name="get-newer-than")
    return result


def wait_for_subscribers(cache: CacheImpl, count: int) -> None:
    wait_until_equal("subscribers", lambda: sum(map(len, list(cache._subscribers.values()))), count)


Action = Callable[[CacheImpl, datetime.datetime], object]
ACTIONS: dict[str, Action] = {
    "set": lambda c, t: c.set(UID, PodStatus(id=UID), None, t),
    "set_observed_time": lambda c, t: c.set_observed_time(UID, t),
    "update_time": lambda c, t: c.update_time(t),
}


@pytest.mark.parametrize(
    ("exists", "action"),
    [(True, name) for name in ACTIONS] + [(False, "set"), (False, "update_time")],
)
def test_get_newer_than(exists: bool, action: str) -> None:
    cache = CacheImpl()
    cache.update_time(NOW)
    if exists:
        cache.set(UID, PodStatus(id=UID), None, NOW)
    result = status_to_come(cache, "p", at(10))
    wait_for_subscribers(cache, 1)
    ACTIONS[action](cache, at(9))
    wait_for_subscribers(cache, 1)
    assert len(result) == 0
    ACTIONS[action](cache, at(11))
    assert result.recv(DEADLINE) == (PodStatus(id=UID), True)
    assert cache._subscribers == {}
    assert cache.get_newer_than(UID, at(10)) == PodStatus(id=UID)


def test_get_newer_than_any_time() -> None:
    cache = CacheImpl()
    cache.update_time(NOW)
    assert cache.get_newer_than(UID, None) == PodStatus(id=UID)


def test_get_newer_than_cancelled() -> None:
    cache = CacheImpl()
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        cache.get_newer_than(UID, NOW, ctx)
    assert cache._subscribers == {}


def test_cancelling_leaves_other_waiters() -> None:
    cache = CacheImpl()
    other = status_to_come(cache, "p", NOW)
    wait_for_subscribers(cache, 1)
    ctx, cancel = golang.with_timeout(golang.background(), 0.01)
    with pytest.raises(golang.DeadlineExceeded):
        cache.get_newer_than(UID, NOW, ctx)
    cancel()
    cache.update_time(at(1))
    assert other.recv(DEADLINE) == (PodStatus(id=UID), True)


def test_held_pods_are_not_covered_by_the_global_time() -> None:
    cache = CacheImpl()
    cache.set(types.UID("held"), PodStatus(id=types.UID("held")), None, at(-5))
    result = status_to_come(cache, "held", NOW)
    wait_for_subscribers(cache, 1)
    cache.update_time(at(1), {types.UID("held")})
    assert newer_than(cache, "held", NOW) is None
    assert newer_than(cache, "other", NOW) is not None
    cache.update_time(at(2))  # This call keeps the held pods.
    assert newer_than(cache, "held", NOW) is None
    wait_for_subscribers(cache, 1)
    cache.update_time(at(3), ())
    assert result.recv(DEADLINE) == (PodStatus(id=types.UID("held")), True)


def test_of_what_an_inspection_had_at_hand_nothing_is_kept_with_its_error() -> None:
    cache, held = CacheImpl(), Held()

    def inspect() -> None:
        _statuses = held.new()
        raise RuntimeError("unable to get status")

    try:
        inspect()
    except RuntimeError as err:
        cache.set(UID, None, err, NOW)
    assert held.freed() == [True]
    with pytest.raises(RuntimeError, match="unable to get status"):
        cache.get(UID)
