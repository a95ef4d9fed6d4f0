"""Test the API server source.

Go: pkg/kubelet/config/apiserver_test.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet import config
from kubelet import types as kubetypes
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.client_go.kubernetes.testing import FakeClientset

TIMEOUT = 30.0


def make_pod(name: str, node: str = "node", **labels: str) -> v1.Pod:
    metadata = metav1.ObjectMeta(namespace="default", name=name, uid=types.UID(f"{name}-uid"), labels=labels)
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(node_name=node))


@pytest.fixture
def ctx() -> Iterator[golang.Context]:
    ctx, cancel = golang.with_cancel(golang.background())
    yield ctx
    cancel()
    wait_for_end_of_threads("config-api")


def start(
    ctx: golang.Context, client: FakeClientset, node_has_synced: Callable[[], bool] = lambda: True
) -> golang.Channel[kubetypes.PodUpdate]:
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(50)
    config.new_source_apiserver(ctx, client, "node", node_has_synced, updates)
    return updates


def receive(updates: golang.Channel[kubetypes.PodUpdate]) -> dict[str, dict[str, str]]:
    """Return the labels of the pods in the next update, by name."""
    update, ok = updates.recv(TIMEOUT)
    assert ok and update is not None
    assert (update.op, update.source) == (kubetypes.SET, kubetypes.APISERVER_SOURCE)
    return {pod.metadata.name: pod.metadata.labels for pod in update.pods}


def test_sends_all_pods_at_each_change(ctx: golang.Context) -> None:
    client = FakeClientset(make_pod("a"))
    updates = start(ctx, client)
    assert receive(updates) == {"a": {}}
    client.add(make_pod("b"))
    assert receive(updates) == {"a": {}, "b": {}}
    client.add(make_pod("a", changed="yes"))
    assert receive(updates) == {"a": {"changed": "yes"}, "b": {}}
    client.remove(make_pod("a"))
    assert receive(updates) == {"b": {}}


def test_asks_for_the_pods_of_its_node_alone(ctx: golang.Context) -> None:
    client = FakeClientset(make_pod("mine"), make_pod("foreign", node="other"))
    updates = start(ctx, client)
    assert receive(updates) == {"mine": {}}
    [listed] = client.actions("list", "pods")
    assert (listed.namespace, listed.options.field_selector) == ("", "spec.nodeName=node")


def test_waits_for_the_node(ctx: golang.Context) -> None:
    client = FakeClientset(make_pod("a"))
    asked, synced = threading.Event(), threading.Event()

    def node_has_synced() -> bool:
        asked.set()
        return synced.is_set()

    updates = start(ctx, client, node_has_synced)
    assert asked.wait(TIMEOUT)
    assert client.actions("*", "pods") == []
    synced.set()
    assert receive(updates) == {"a": {}}


def test_sends_later_what_there_is_no_memory_to_send(ctx: golang.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClientset(make_pod("a"))
    updates = start(ctx, client)
    assert receive(updates) == {"a": {}}
    monkeypatch.setattr(kubetypes, "PodUpdate", failing_once(kubetypes.PodUpdate, MemoryError()))
    client.add(make_pod("b"))
    assert receive(updates) == {"a": {}, "b": {}}


def test_says_when_there_is_no_pod(ctx: golang.Context) -> None:
    assert receive(start(ctx, FakeClientset())) == {}
