"""Test the deletion of mirror pods in the background."""

from __future__ import annotations

import pytest

from kubelet.pod.mirror_client import BasicMirrorClient
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.golang import testing as golangtesting

CTX = golang.background()


def _deleted(client: FakeClientset) -> list[str]:
    return sorted(action.name for action in client.actions() if action.verb == "delete")


@failures
def test_mirror_that_cannot_be_deleted_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    api = FakeClientset()
    client = BasicMirrorClient(api, "node", None)
    monkeypatch.setattr(client, "delete_mirror_pod", failing_once(client.delete_mirror_pod, err, "bad_ns"))
    for _ in range(2):
        with golang.ThreadGroup() as group:
            client.delete_in_background(
                CTX, dict.fromkeys(["a_ns", "bad_ns", "z_ns", "no full name"], types.UID("uid"))
            )
        assert len(group.alive()) <= 1, "there may not be enough threads for all pods"
        assert group.join(30) == []
    assert _deleted(api) == ["a", "a", "bad", "z", "z"]


def test_pod_that_has_the_name_of_a_mirror_by_now_stays() -> None:
    somebodys = v1.Pod(metadata=metav1.ObjectMeta(name="a", namespace="ns", uid=types.UID("uid")))
    api = FakeClientset(somebodys)
    with golang.ThreadGroup() as group:
        BasicMirrorClient(api, "node", None).delete_in_background(CTX, {"a_ns": types.UID("uid of the mirror")})
    assert group.join(30) == []
    assert _deleted(api) == ["a"]
    assert api.core_v1.pods("ns").get(CTX, "a").metadata.uid == "uid"


def test_mirror_is_deleted_once_there_are_threads_again() -> None:
    api = FakeClientset()
    client = BasicMirrorClient(api, "node", None)
    with golangtesting.out_of_threads(), pytest.raises(golang.ThreadError):
        client.delete_in_background(CTX, {"a_ns": types.UID("uid")})
    with golang.ThreadGroup() as group:
        client.delete_in_background(CTX, {"a_ns": types.UID("uid")})
    assert group.join(30) == []
    assert _deleted(api) == ["a"]
