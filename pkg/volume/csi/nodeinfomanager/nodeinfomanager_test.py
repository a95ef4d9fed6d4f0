"""Tests of what the cluster is told of this node's drivers.

Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager_test.go
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
from pkg.volume.csi import nodeinfomanager
from pkg.volume.testing import FakeVolumeHost

CTX = golang.background()
KEY = nodeinfomanager.MIGRATED_PLUGINS_ANNOTATION_KEY
NODE_IDS = nodeinfomanager.ANNOTATION_KEY_NODE_ID
NODE = v1.Node(metadata=metav1.ObjectMeta(name="node", uid="node-uid"))


def csi_node(owner_uid: str = "node-uid", annotation: str = "a,b") -> storagev1.CSINode:
    owner = metav1.OwnerReference(api_version="v1", kind="Node", name="node", uid=owner_uid)
    metadata = metav1.ObjectMeta(name="node", owner_references=[owner])
    if annotation:
        metadata.annotations[KEY] = annotation
    return storagev1.CSINode(metadata=metadata)


def make_manager(client: FakeClientset | None, clock: FakeClock | None = None) -> nodeinfomanager.NodeInfoManager:
    """Nobody waits, unless there is a clock."""
    if clock is None:
        clock = FakeClock()
        clock.skip_pauses()
    return nodeinfomanager.NodeInfoManager("node", FakeVolumeHost("/nowhere", client), ("b", "a"), clock)


def calls(client: FakeClientset) -> list[str]:
    return [f"{action.verb} {action.resource}" for action in client.actions()]


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        pytest.param(None, ["get nodes", "get csinodes", "create csinodes"], id="there is none"),
        pytest.param(csi_node(), ["get nodes", "get csinodes"], id="nothing to change"),
        pytest.param(
            csi_node(annotation="a,c"), ["get nodes", "get csinodes", "update csinodes"], id="another annotation"
        ),
        pytest.param(
            csi_node("old-uid"),
            ["get nodes", "get csinodes", "delete csinodes", "get nodes", "get csinodes", "create csinodes"],
            id="of an older node",
        ),
    ],
)
def test_initialize_csi_node(existing: storagev1.CSINode | None, expected: list[str]) -> None:
    client = FakeClientset(NODE, *([existing] if existing is not None else []))
    make_manager(client).initialize_csi_node_with_annotation(CTX)
    assert calls(client) == expected
    found = client.storage_v1.csi_nodes().get(CTX, "node")
    assert found.metadata.annotations == {KEY: "a,b"}
    assert [owner.uid for owner in found.metadata.owner_references] == ["node-uid"]


def test_initialize_csi_node_gives_up() -> None:
    client, clock = FakeClientset(), FakeClock()
    pauses = clock.skip_pauses()
    with pytest.raises(RuntimeError, match=r'timed out waiting for the condition; caused by: .*"node" not found'):
        make_manager(client, clock).initialize_csi_node_with_annotation(CTX)
    assert calls(client) == ["get nodes"] * 4
    assert [round(pause, 1) for pause in pauses] == pytest.approx([0.01, 0.05, 0.25], abs=0.05)
