"""Test the clientset without a server."""

from __future__ import annotations

from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes import testing

CTX = golang.background()


def pod(name: str, node: str = "", uid: str = "u") -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="n", uid=types.UID(uid)), spec=v1.PodSpec(node_name=node)
    )


def test_life_of_an_object() -> None:
    client = testing.FakeClientset()
    pods = client.core_v1.pods("n")
    created = pods.create(CTX, pod("a"))
    assert created.metadata.uid == "u" and created.metadata.resource_version
    with pytest.raises(apierrors.StatusError) as caught:
        pods.create(CTX, pod("a"))
    assert apierrors.is_already_exists(caught.value)
    created.status.phase = "Running"
    created.spec.node_name = "ignored"
    assert pods.update_status(CTX, created).spec.node_name == ""
    with pytest.raises(apierrors.StatusError) as caught:
        pods.update(CTX, created)
    assert apierrors.is_conflict(caught.value)
    other = metav1.DeleteOptions(preconditions=metav1.Preconditions(uid=types.UID("v")))
    with pytest.raises(apierrors.StatusError) as caught:
        pods.delete(CTX, "a", other)
    assert apierrors.is_conflict(caught.value)
    pods.delete(CTX, "a")
    with pytest.raises(apierrors.StatusError, match='pods "a" not found'):
        pods.get(CTX, "a")
    verbs = [f"{action.verb} {action.resource}/{action.subresource}" for action in client.actions()]
    assert verbs[2] == "update pods/status" and len(verbs) == 7


@pytest.mark.parametrize(
    ("patch_type", "data"),
    [
        (types.PatchType.STRATEGIC_MERGE, b'{"status":{"phase":"Failed"},"spec":{"nodeName":"x"}}'),
        (types.PatchType.MERGE, b'{"status":{"phase":"Failed"},"spec":{"nodeName":"x"}}'),
        (types.PatchType.JSON, b'[{"op":"add","path":"/status/phase","value":"Failed"}]'),
    ],
)
def test_patch_of_status(patch_type: types.PatchType, data: bytes) -> None:
    first = pod("a")
    first.status.phase = "Pending"
    client = testing.FakeClientset(first)
    patched = client.core_v1.pods("n").patch(CTX, "a", patch_type, data, None, "status")
    assert patched.status.phase == "Failed" and patched.spec.node_name == ""
    assert client.actions("patch", "pods/status")[0].patch == data


def test_watch_with_selector_sees_objects_come_and_go() -> None:
    client = testing.FakeClientset(pod("a"))
    options = metav1.ListOptions(field_selector="spec.nodeName=x")
    watcher = client.core_v1.pods("").watch(CTX, options)
    client.add(pod("a", "x"))
    client.add(pod("b"))
    client.add(pod("a", "x"))
    client.add(pod("a", "y"))
    client.stop_watches()
    assert [event.type for event in watcher.result_chan()] == [watch.ADDED, watch.MODIFIED, watch.DELETED]
    assert client.core_v1.pods("").list(CTX, options).items == []


def test_watch_begins_where_the_list_ended() -> None:
    client = testing.FakeClientset(pod("a"), pod("b"))
    version = client.core_v1.pods("n").list(CTX).metadata.resource_version
    client.add(pod("c"))
    client.remove(pod("a"))
    client.add(v1.Node(metadata=metav1.ObjectMeta(name="c")))
    watcher = client.core_v1.pods("n").watch(CTX, metav1.ListOptions(resource_version=version))
    client.add(pod("c"))
    client.stop_watches()
    seen = [(event.type, event.object.metadata.name) for event in watcher.result_chan()]
    assert seen == [(watch.ADDED, "c"), (watch.DELETED, "a"), (watch.MODIFIED, "c")]


def test_watch_begins_where_the_list_of_nothing_ended() -> None:
    client = testing.FakeClientset()
    version = client.core_v1.pods("n").list(CTX).metadata.resource_version
    client.add(pod("a"))
    watcher = client.core_v1.pods("n").watch(CTX, metav1.ListOptions(resource_version=version))
    client.stop_watches()
    assert [event.type for event in watcher.result_chan()] == [watch.ADDED]


def test_reactors() -> None:
    client = testing.FakeClientset(pod("a"))

    def refuse(action: testing.Action) -> tuple[bool, Any]:
        return action.name == "a", apierrors.new_forbidden("pods", "a", "no")

    client.prepend_reactor("get", "pods", refuse)
    with pytest.raises(apierrors.StatusError, match="forbidden"):
        client.core_v1.pods("n").get(CTX, "a")
    assert client.core_v1.pods("n").list(CTX).items[0].metadata.name == "a"


def test_objects_are_copies() -> None:
    first = pod("a")
    client = testing.FakeClientset(first)
    first.metadata.labels["x"] = "y"
    client.core_v1.pods("n").get(CTX, "a").metadata.labels["x"] = "y"
    assert client.core_v1.pods("n").get(CTX, "a").metadata.labels == {}
