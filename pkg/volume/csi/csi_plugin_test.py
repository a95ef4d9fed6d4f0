"""Tests of the node's CSINode object.

Go: pkg/volume/csi/csi_plugin_test.go, pkg/volume/csi/nodeinfomanager/nodeinfomanager_test.go
"""

from __future__ import annotations

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.volume import csi
from pkg.volume.csi import nodeinfomanager

CTX = golang.background()
KEY = nodeinfomanager.MIGRATED_PLUGINS_ANNOTATION_KEY
NODE = v1.Node(metadata=metav1.ObjectMeta(name="node", uid="node-uid"))


def csi_node(owner_uid: str = "node-uid", annotation: str = "a,b") -> storagev1.CSINode:
    owner = metav1.OwnerReference(api_version="v1", kind="Node", name="node", uid=owner_uid)
    metadata = metav1.ObjectMeta(name="node", owner_references=[owner])
    if annotation:
        metadata.annotations[KEY] = annotation
    return storagev1.CSINode(metadata=metadata)


def eager_clock() -> FakeClock:
    """Nobody waits."""
    clock = FakeClock()
    clock.skip_pauses()
    return clock


def make_manager(client: FakeClientset, clock: FakeClock | None = None) -> nodeinfomanager.NodeInfoManager:
    return nodeinfomanager.NodeInfoManager("node", client, ("b", "a"), clock or eager_clock())


def calls(client: FakeClientset) -> list[str]:
    return [f"{action.verb} {action.resource}" for action in client.actions()]


def test_node_is_not_ready_without_its_csi_node() -> None:
    client, clock = FakeClientset(), eager_clock()
    errors: list[str | None] = []

    def set_error(err: Exception | None) -> None:
        errors.append(str(err) if err is not None else None)
        if err is not None and "caused by" in str(err):
            client.add(NODE)

    thread = csi.initialize_csi_node(CTX, client, "node", set_error, make_manager(client, clock), clock)
    thread.join(10)
    assert errors[0] == "CSINode is not yet initialized"
    assert errors[1] is not None
    assert errors[1].startswith("failed to initialize CSINode: error updating CSINode annotation")
    assert errors[2:] == [None]
    first = client.actions()[0]
    assert (first.verb, first.resource) == ("get", "csinodes"), "the API server is asked whether it is there"


def test_api_server_is_waited_for() -> None:
    client, clock = FakeClientset(NODE), FakeClock()
    away = [apierrors.new_forbidden("csinodes", "node", "not yet")]
    client.prepend_reactor("get", "csinodes", lambda action: (True, away[0]) if away else (False, None))
    errors: list[Exception | None] = []
    ready = golang.Channel[None](10)

    def set_error(err: Exception | None) -> None:
        errors.append(err)
        if err is None:
            ready.send(None)

    thread = csi.initialize_csi_node(CTX, client, "node", set_error, make_manager(client), clock)
    while not clock.has_waiters():
        assert thread.is_alive()
        CTX.wait(0.001)
    assert len(errors) == 1
    away.clear()
    clock.step(1)
    assert ready.recv(10)[1]
    thread.join(10)


def test_end_of_the_kubelet_ends_the_attempts() -> None:
    ctx, cancel = golang.with_cancel(CTX)
    client, clock = FakeClientset(), FakeClock()
    thread = csi.initialize_csi_node(ctx, client, "node", lambda err: None, make_manager(client, clock), clock)
    cancel()
    thread.join(10)
    assert not thread.is_alive()
