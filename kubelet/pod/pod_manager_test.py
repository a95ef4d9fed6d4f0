"""Test the pod manager and the mirror client.

Go: pkg/kubelet/pod/pod_manager_test.go, mirror_client_test.go
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest

from kubelet import metrics
from kubelet import pod as kubepod
from kubelet import types as kubetypes
from kubelet.pod import PodAndMirrorPod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes, rest
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.component_base.metrics import testing as metricstesting

CTX = golang.background()


def make_pod(uid: str, name: str, annotations: dict[str, str]) -> v1.Pod:
    metadata = metav1.ObjectMeta(uid=types.UID(uid), name=name, namespace="default", annotations=annotations)
    return v1.Pod(metadata=metadata)


MIRROR = make_pod(
    "mirror-uid",
    "static",
    {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "api", kubetypes.CONFIG_MIRROR_ANNOTATION_KEY: "h"},
)
STATIC = make_pod(
    "static-uid",
    "static",
    {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "file", kubetypes.CONFIG_HASH_ANNOTATION_KEY: "h"},
)
NORMAL = make_pod("normal-uid", "normal", {})


@pytest.mark.parametrize("order", [(MIRROR, STATIC, NORMAL), (NORMAL, STATIC, MIRROR)], ids=["a", "b"])
def test_get_set_pods(order: tuple[v1.Pod, ...]) -> None:
    manager = kubepod.BasicManager()
    manager.set_pods(order)
    assert {pod.metadata.uid for pod in manager.get_pods()} == {"static-uid", "normal-uid"}
    assert manager.get_pod_by_full_name("static_default") is STATIC
    assert manager.get_pod_by_name("default", "normal") is NORMAL
    assert manager.get_pod_by_uid(types.UID("static-uid")) is STATIC
    assert manager.get_pod_by_uid(types.UID("mirror-uid")) is None
    assert manager.translate_pod_uid(types.UID("mirror-uid")) == "static-uid"
    assert manager.translate_pod_uid(types.UID("normal-uid")) == "normal-uid"
    assert manager.translate_pod_uid(types.UID("")) == ""
    assert manager.get_uid_translations() == ({"static-uid": "mirror-uid"}, {"mirror-uid": "static-uid"})
    assert manager.get_mirror_pod_by_pod(STATIC) is MIRROR
    assert manager.get_mirror_pod_by_pod(NORMAL) is None
    assert manager.get_pod_by_mirror_pod(MIRROR) is STATIC
    assert manager.get_pod_and_mirror_pod(MIRROR) == PodAndMirrorPod(STATIC, MIRROR, was_mirror=True)
    assert manager.get_pod_and_mirror_pod(STATIC) == PodAndMirrorPod(STATIC, MIRROR, was_mirror=False)
    assert manager.get_pod_and_mirror_pod(NORMAL) == PodAndMirrorPod(NORMAL, None, was_mirror=False)
    assert manager.get_static_pod_to_mirror_pod_map() == [(STATIC, MIRROR)]


@pytest.mark.parametrize(
    ("removed", "pods", "mirror_pods", "orphaned"),
    [
        pytest.param(MIRROR, [STATIC, NORMAL], [], [], id="mirror"),
        pytest.param(STATIC, [NORMAL], [MIRROR], ["static_default"], id="static"),
        pytest.param(NORMAL, [STATIC], [MIRROR], [], id="normal"),
    ],
)
def test_remove_pods(removed: v1.Pod, pods: list[v1.Pod], mirror_pods: list[v1.Pod], orphaned: list[str]) -> None:
    manager = kubepod.BasicManager()
    manager.set_pods([MIRROR, STATIC, NORMAL])
    manager.remove_pod(removed)
    manager.remove_pod(removed)
    assert manager.get_pods_and_mirror_pods() == (pods, mirror_pods, orphaned)


def test_removed_pod_leaves_its_name_to_the_static_pod_that_has_it() -> None:
    manager = kubepod.BasicManager()
    namesake = make_pod("namesake-uid", "static", {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "api"})
    manager.set_pods([STATIC, namesake])
    manager.remove_pod(namesake)
    manager.add_pod(MIRROR)
    assert manager.get_pod_by_mirror_pod(MIRROR) is STATIC
    assert manager.get_pods_and_mirror_pods()[2] == []
    assert manager.translate_pod_uid(types.UID("mirror-uid")) == "static-uid"
    manager.remove_pod(STATIC)
    assert manager.get_pod_by_full_name("static_default") is None


def test_static_pod_without_mirror() -> None:
    manager = kubepod.BasicManager()
    manager.add_pod(STATIC)
    assert manager.get_uid_translations() == ({"static-uid": ""}, {})


def test_ephemeral_containers_are_counted() -> None:
    manager = kubepod.BasicManager()
    metrics.MANAGED_EPHEMERAL_CONTAINERS.set(0)
    pod = make_pod("u", "p", {})
    manager.add_pod(pod)
    debugged = make_pod("u", "p", {})
    debugged.spec.ephemeral_containers = [v1.EphemeralContainer(name="d"), v1.EphemeralContainer(name="e")]
    manager.update_pod(debugged)
    assert metricstesting.value(metrics.MANAGED_EPHEMERAL_CONTAINERS) == 2
    manager.remove_pod(debugged)
    assert metricstesting.value(metrics.MANAGED_EPHEMERAL_CONTAINERS) == 0


def test_is_mirror_pod_of() -> None:
    assert kubepod.is_mirror_pod_of(MIRROR, STATIC)
    assert not kubepod.is_mirror_pod_of(STATIC, STATIC)
    newer = make_pod("x", "static", {kubetypes.CONFIG_HASH_ANNOTATION_KEY: "other"})
    assert not kubepod.is_mirror_pod_of(MIRROR, newer)
    assert not kubepod.is_mirror_pod_of(MIRROR, NORMAL)


class Nodes:
    def __init__(self, uid: str) -> None:
        self.uid = uid

    def get(self, name: str) -> v1.Node:
        return v1.Node(metadata=metav1.ObjectMeta(name=name, uid=types.UID(self.uid)))


def test_create_mirror_pod() -> None:
    client = FakeClientset()
    kubepod.BasicMirrorClient(client, "node", Nodes("node-uid")).create_mirror_pod(CTX, STATIC)
    mirror = client.core_v1.pods("default").get(CTX, "static")
    assert mirror.metadata.annotations[kubetypes.CONFIG_MIRROR_ANNOTATION_KEY] == "h"
    owner = mirror.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Node", "node", "node-uid", True)
    assert kubetypes.CONFIG_MIRROR_ANNOTATION_KEY not in STATIC.metadata.annotations


def test_create_mirror_pod_that_exists() -> None:
    kubepod.BasicMirrorClient(FakeClientset(MIRROR), "node", Nodes("u")).create_mirror_pod(CTX, STATIC)
    other = make_pod("x", "static", {})
    with pytest.raises(apierrors.StatusError, match='pods "static" already exists'):
        kubepod.BasicMirrorClient(FakeClientset(other), "node", Nodes("u")).create_mirror_pod(CTX, STATIC)


def test_create_mirror_pod_before_the_node_exists() -> None:
    with pytest.raises(kubepod.NodeUIDError, match="failed to get node UID: UID unset for node node"):
        kubepod.BasicMirrorClient(FakeClientset(), "node", Nodes("")).create_mirror_pod(CTX, STATIC)


def test_delete_mirror_pod() -> None:
    client = FakeClientset(make_pod("uid", "p", {}))
    mirror_client = kubepod.BasicMirrorClient(client, "node", Nodes("u"))
    assert not mirror_client.delete_mirror_pod(CTX, "p_default", types.UID("other-uid")), "the pod has another UID"
    assert mirror_client.delete_mirror_pod(CTX, "p_default", types.UID("uid"))
    options = client.actions("delete", "pods")[-1].options
    assert (options.grace_period_seconds, options.preconditions.uid) == (0, "uid")
    assert not mirror_client.delete_mirror_pod(CTX, "p_default", None), "the pod no longer exists"
    client.prepend_reactor("delete", "pods", lambda action: (True, RuntimeError("no connection")))
    assert not mirror_client.delete_mirror_pod(CTX, "p_default", None)
    with pytest.raises(ValueError, match="failed to parse the pod full name"):
        mirror_client.delete_mirror_pod(CTX, "bad", None)


def test_standalone() -> None:
    mirror_client = kubepod.BasicMirrorClient(None, "node", Nodes(""))
    mirror_client.create_mirror_pod(CTX, STATIC)
    assert not mirror_client.delete_mirror_pod(CTX, "p_ns", None)


def test_deletion_in_the_background_waits_for_nobody_and_is_asked_for_once() -> None:
    client = FakeClientset(make_pod("uid", "p", {}))
    asked: golang.Channel[None] = golang.Channel(10)
    answer: golang.Channel[None] = golang.Channel()

    def hang(action: Action) -> tuple[bool, Any]:
        asked.send(None)
        answer.recv(30)
        return False, None

    client.prepend_reactor("delete", "pods", hang)
    mirror_client = kubepod.BasicMirrorClient(client, "node", Nodes("u"))
    deletions = client.core_v1.pods("default").watch(CTX)
    for _ in range(3):
        mirror_client.delete_in_background(CTX, {"p_default": types.UID("uid"), "not-a-full-name": types.UID("other")})
    assert asked.recv(30)[1]
    answer.close()
    event, _ = deletions.result_chan().recv(30)
    deletions.stop()
    assert event is not None and event.type == watch.DELETED
    assert not asked.try_recv()[2]


def test_mirror_client_gives_up_on_an_api_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror client gives up on a real connection to a server that accepts it and never responds."""
    monkeypatch.setattr(kubepod.mirror_client, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with contextlib.closing(kubernetes.new_for_config(rest.Config(host=host))) as client:
            mirror_client = kubepod.BasicMirrorClient(client, "node", Nodes("u"))
            with pytest.raises(golang.DeadlineExceeded):
                mirror_client.create_mirror_pod(CTX, STATIC)
            assert not mirror_client.delete_mirror_pod(CTX, "static_default", None)
