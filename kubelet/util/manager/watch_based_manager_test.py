"""Test objects that have a watch each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind
from framework.waiting import wait_for

from kubelet.util import manager as manager_
from kubelet.util.manager import watch_based_manager
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.client_go.tools.cache.testing import FakeControllerSource
from pkg.golang import testing as golangtesting

UID = types.UID("pod")

_WAIT = 30.0


def secret(version: str = "", immutable: bool | None = None) -> v1.Secret:
    metadata = metav1.ObjectMeta(namespace="ns", name="name", labels={"version": version})
    return v1.Secret(metadata=metadata, immutable=immutable)


class World:
    def __init__(self, ctx: golang.Context) -> None:
        self.source: FakeControllerSource[v1.Secret] = FakeControllerSource(v1.Secret)
        self.clock = testingclock.FakeClock()
        self.namespaces: list[str] = []
        # The channel has the pods of each notification.
        self.told: golang.Channel[set[str]] = golang.Channel(10)
        self.cache = manager_.ObjectCache(
            ctx,
            self._client,
            v1.Secret,
            lambda obj: obj.immutable is True,
            "secret",
            self.clock,
            60.0,
            lambda pods: self.told.send(set(pods)),
            self._get,
        )
        # The cache requested these names from the API server individually.
        self.asked: list[str] = []

    def _get(self, namespace: str, name: str, options: metav1.GetOptions) -> v1.Secret:
        self.asked.append(name)
        return v1.Secret(metadata=metav1.ObjectMeta(namespace=namespace, name=name))

    def _client(self, namespace: str) -> FakeControllerSource[v1.Secret]:
        self.namespaces.append(namespace)
        return self.source

    def get(self) -> str | None:
        """Return the version of the object, or None if it does not exist."""
        try:
            return self.cache.get("ns", "name").metadata.labels["version"]
        except apierrors.StatusError as err:
            assert str(err) == 'secret "name" not found'
            return None

    def watched(self) -> bool:
        item = self.cache.item("ns", "name")
        return item is not None and not item.stopped

    def reflectors(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == 'object-"ns"/"name"']


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the timeout, because a busy machine may take longer than a pod should wait."""
    monkeypatch.setattr(watch_based_manager, "_SYNC_TIMEOUT", _WAIT)


@pytest.fixture
def world() -> Iterator[World]:
    with golang.ThreadGroup() as group:
        ctx, cancel = golang.with_cancel(golang.background())
        made = World(ctx)
        yield made
        cancel()
        assert not group.join(_WAIT)


def test_changes_are_seen(world: World) -> None:
    world.cache.add_reference("ns", "name", UID)
    assert world.get() is None
    world.source.add(secret("1"))
    wait_for("version 1 is seen", lambda: world.get() == "1")
    world.source.modify(secret("2"))
    wait_for("version 2 is seen", lambda: world.get() == "2")
    world.source.delete(secret())
    wait_for("the deletion is seen", lambda: world.get() is None)
    world.cache.delete_reference("ns", "name", UID)
    with pytest.raises(LookupError, match='object "ns"/"name" not registered'):
        world.get()
    wait_for("the watch has ended", lambda: not world.reflectors() and not world.source.watches())


def watched_names(world: World, names: list[str]) -> list[str]:
    return [name for name in names if world.cache.item("ns", name) is not None]


def test_what_a_pod_refers_to_beyond_a_number_is_not_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_based_manager, "MAX_WATCHED_PER_POD", 2)
    names = ["a", "b", "c", "d"]
    for name in names:
        world.cache.add_reference("ns", name, types.UID("greedy"))
    world.cache.add_reference("ns", "c", types.UID("bystander"))
    assert watched_names(world, names) == ["a", "b", "c"]
    for _ in range(2):
        assert world.cache.get("ns", "d").metadata.name == "d"
    assert world.asked == ["d"], "the answer is good for a while"
    for name in names:
        world.cache.delete_reference("ns", name, types.UID("greedy"))
    assert watched_names(world, names) == ["c"], "the bystander needs it"
    with pytest.raises(LookupError, match="not registered"):
        world.cache.get("ns", "d")
    world.cache.add_reference("ns", "d", types.UID("greedy"))
    assert watched_names(world, names) == ["c", "d"]


def test_what_all_pods_refer_to_beyond_a_number_is_not_watched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_based_manager, "MAX_WATCHED", 2)
    names = ["a", "b", "c"]
    for name in names:
        world.cache.add_reference("ns", name, types.UID(f"pod-of-{name}"))
    assert watched_names(world, names) == ["a", "b"]
    assert world.cache.get("ns", "c").metadata.name == "c"
    world.cache.delete_reference("ns", "c", types.UID("pod-of-c"))
    assert world.cache._unwatched.reference_count("ns", "c") == 0


def test_who_has_asked_in_vain_is_told_once(world: World) -> None:
    for pod in ("pod", "other"):
        world.cache.add_reference("ns", "name", types.UID(pod))
    assert world.get() is None
    world.source.add(secret("1"))
    assert world.told.recv(_WAIT) == ({"pod", "other"}, True)
    assert world.get() == "1"
    world.source.delete(secret())
    wait_for("the deletion is seen", lambda: world.get() is None)
    world.source.add(secret("2"))
    assert world.told.recv(_WAIT) == ({"pod", "other"}, True)
    world.source.delete(secret())
    world.source.add(secret("3"))
    wait_for("version 3 is seen", lambda: world.get() == "3")
    assert len(world.told) == 0


def test_who_got_no_answer_is_told_when_there_is_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_based_manager, "_SYNC_TIMEOUT", 0.01)
    world.source.add(secret("1"))
    world.source.watch_errors.extend([apierrors.new_too_many_requests("later", 1)] * 1000)
    world.cache.add_reference("ns", "name", UID)
    with pytest.raises(TimeoutError):
        world.get()
    world.source.watch_errors.clear()
    assert world.told.recv(_WAIT) == ({"pod"}, True)
    assert world.get() == "1"


def test_object_that_comes_while_it_is_missed(world: World) -> None:
    world.cache.add_reference("ns", "name", UID)
    assert world.get() is None
    item = world.cache.item("ns", "name")
    assert item is not None
    world.source.add(secret("1"))
    world.told.recv(_WAIT)
    item.store.miss()
    assert world.told.recv(_WAIT) == ({"pod"}, True)


def test_one_watch_of_the_one_object(world: World) -> None:
    for pod in ("pod", "pod", "other"):
        world.cache.add_reference("ns", "name", types.UID(pod))
    world.get()
    [(verb, options)] = world.source.calls
    assert (verb, options.field_selector, world.namespaces) == ("watch", "metadata.name=name", ["ns"])
    assert 1800 <= (options.timeout_seconds or 0) <= 3600
    for pod in ("pod", "other", "never"):
        world.cache.delete_reference("ns", "name", types.UID(pod))
    assert world.watched()
    world.cache.delete_reference("ns", "name", UID)
    assert not world.watched()


def test_who_asked_before_the_last_reference_went_begins_no_watch(world: World) -> None:
    world.cache.add_reference("ns", "name", UID)
    world.get()
    item = world.cache.item("ns", "name")
    assert item is not None
    world.cache.delete_reference("ns", "name", UID)
    item.restart_reflector_if_needed()
    assert item.stopped


def test_a_server_without_watch_lists_is_asked_for_a_list(world: World) -> None:
    world.source.watch_list = False
    world.source.add(secret("1"))
    world.cache.add_reference("ns", "name", UID)
    assert world.get() == "1"
    lists = [options for verb, options in world.source.calls if verb == "list"]
    assert [options.field_selector for options in lists] == ["metadata.name=name"]


@pytest.mark.parametrize(
    ("initial", "eventual"),
    [
        (None, secret("2")),
        (None, secret("2", True)),
        (secret("1"), secret("2", False)),
        (secret("1"), secret("2", True)),
        (secret("1", True), None),
    ],
    ids=["created mutable", "created immutable", "stays mutable", "becomes immutable", "immutable"],
)
def test_immutable_ones_are_not_watched_any_more(
    initial: v1.Secret | None, eventual: v1.Secret | None, world: World
) -> None:
    if initial is not None:
        world.source.add(initial)
    world.cache.add_reference("ns", "name", UID)
    assert world.get() == ("1" if initial is not None else None)
    assert world.watched() is (initial is None or not initial.immutable)
    if eventual is not None:
        (world.source.add if initial is None else world.source.modify)(eventual)
        wait_for("version 2 is seen", lambda: world.get() == "2")
        assert world.watched() is not bool(eventual.immutable)
    elif initial is not None:
        world.clock.step(3600)
        assert world.get() == "1"
        assert not world.watched()
        assert len(world.source.calls) == 1


def test_what_nobody_asks_for_is_not_watched_until_somebody_does(world: World) -> None:
    world.source.add(secret("1"))
    world.cache.add_reference("ns", "name", UID)
    assert world.get() == "1"
    world.clock.step(59)
    world.cache.start_recycle_idle_watch()
    assert world.watched()
    world.clock.step(31)
    world.cache.start_recycle_idle_watch()
    assert not world.watched()
    world.source.modify(secret("2"))
    # The object from the earlier watch no longer counts.
    assert world.get() == "2"
    assert world.watched()
    for _ in range(4):
        world.clock.step(20)
        world.get()
    world.cache.start_recycle_idle_watch()
    assert world.watched()
    wait_for("the watch has begun", lambda: len(world.reflectors()) == 1)


def test_what_a_watch_writes_as_it_ends_is_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.add(secret("1"))
    world.cache.add_reference("ns", "name", UID)
    assert world.get() == "1"
    item = world.cache.item("ns", "name")
    assert item is not None and item.stop()
    item.store.replace([secret("1")], "1")
    monkeypatch.setattr(watch_based_manager, "_SYNC_TIMEOUT", 0.01)
    world.source.watch_errors.extend([apierrors.new_too_many_requests("later", 1)] * 1000)
    with pytest.raises(TimeoutError):
        world.get()
    world.source.watch_errors.clear()
    wait_for("the first list is there", item.store.has_synced)
    assert world.get() == "1"


def test_a_watch_that_has_not_begun_is_not_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_based_manager, "_SYNC_TIMEOUT", 0.01)
    failing = [apierrors.new_too_many_requests("later", 1)] * 1000
    world.source.watch_errors.extend(failing)
    world.cache.add_reference("ns", "name", UID)
    world.clock.step(90)
    world.cache.start_recycle_idle_watch()
    assert world.watched()
    with pytest.raises(TimeoutError, match=r"^failed to sync secret cache: timed out waiting for the condition$"):
        world.get()
    world.source.watch_errors.clear()
    wait_for("the first list is there", lambda: world.cache.item("ns", "name").store.has_synced())  # type: ignore[union-attr]
    # The object was read meanwhile.
    world.cache.start_recycle_idle_watch()
    assert world.watched()


def test_no_watch_begins_when_the_kubelet_ends() -> None:
    with golang.ThreadGroup() as group:
        ctx, cancel = golang.with_cancel(golang.background())
        world = World(ctx)
        world.source.add(secret("1"))
        world.cache.add_reference("ns", "name", UID)
        assert world.get() == "1"
        cancel()
        assert not group.join(_WAIT)
        world.cache.add_reference("ns", "other", UID)
        assert not group.alive()
        assert world.get() == "1"


@pytest.mark.parametrize(
    ("steps", "counts"),
    [
        ("+ns1/s1/p1 +ns1/s1/p1 -ns1/s1/p1 -ns1/s1/p1", [1, 2, 1, None]),
        ("-ns1/s1/p1", [None]),
        ("+ns1/s1/p1 -ns1/s1/p1 -ns1/s1/p1", [1, None, None]),
        ("+ns1/s1/p1 -ns1/s1/p2 -ns1/s2/p1 -ns2/s1/p1", [1, 1, 1, 1]),
    ],
)
def test_references(steps: str, counts: list[int | None], world: World) -> None:
    for step, count in zip(steps.split(), counts, strict=True):
        namespace, name, pod = step[1:].split("/")
        (world.cache.add_reference if step[0] == "+" else world.cache.delete_reference)(namespace, name, types.UID(pod))
        item = world.cache.item("ns1", "s1")
        assert (item.references[types.UID("p1")] if item is not None else None) == count


def test_object_is_watched_once_there_are_threads_again(world: World) -> None:
    world.source.add(secret("1"))
    with golangtesting.out_of_threads("object-"):
        world.cache.add_reference("ns", "name", UID)
        with pytest.raises(golang.ThreadError):
            world.get()
        assert not world.watched()
    assert world.get() == "1"


@faulty_call.cases(
    Call("kubelet/util/manager/watch_based_manager.py", "secrets", "get"),
    Call("kubelet/util/manager/watch_based_manager.py", "configmaps", "get"),
)
def test_call_that_gets_what_is_not_watched(
    call: Call, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_based_manager, "MAX_WATCHED", 0)
    clock = testingclock.FakeClock()
    ctx, cancel = golang.with_cancel(golang.background())
    with FaultyCall(tmp_path, call, kind) as api, golang.ThreadGroup() as group:
        api.create(call.resource, {})
        core = api.client.core_v1
        client: Any = core.secrets if call.resource == "secrets" else core.config_maps
        manager: manager_.Manager[Any] = manager_.new_watch_based_manager(
            ctx,
            client,
            v1.Secret if call.resource == "secrets" else v1.ConfigMap,
            lambda obj: False,
            call.resource,
            0.0,
            lambda pod: {MINE, OTHER},
            clock,
            lambda pods: None,
        )
        manager.register_pod(v1.Pod(metadata=metav1.ObjectMeta(namespace="default", name="pod", uid=types.UID("pod"))))

        def get(name: str) -> object:
            clock.step(watch_based_manager.UNWATCHED_TTL + 1)
            return manager.get_object("default", name).data

        api.see_recover(get, {})
        cancel()
        assert not group.join(_WAIT)
