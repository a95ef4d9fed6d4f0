"""Test how this node's drivers are published in the cluster.

Go: pkg/volume/csi/nodeinfomanager/nodeinfomanager_test.go
"""

from __future__ import annotations

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.volume.csi import nodeinfomanager
from pkg.volume.testing import FakeVolumeHost

CTX = golang.background()
KEY = nodeinfomanager.MIGRATED_PLUGINS_ANNOTATION_KEY
NODE_IDS = nodeinfomanager.ANNOTATION_KEY_NODE_ID
NODE = v1.Node(metadata=metav1.ObjectMeta(name="node", uid=types.UID("node-uid")))


def csi_node(owner_uid: str = "node-uid", annotation: str = "a,b") -> storagev1.CSINode:
    owner = metav1.OwnerReference(api_version="v1", kind="Node", name="node", uid=types.UID(owner_uid))
    metadata = metav1.ObjectMeta(name="node", owner_references=[owner])
    if annotation:
        metadata.annotations[KEY] = annotation
    return storagev1.CSINode(metadata=metadata)


def make_manager(client: FakeClientset | None, clock: FakeClock | None = None) -> nodeinfomanager.NodeInfoManager:
    """Return a manager that does not wait, unless a clock is given."""
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
    with pytest.raises(
        nodeinfomanager.NodeInfoError, match=r'timed out waiting for the condition; caused by: .*"node" not found'
    ):
        make_manager(client, clock).initialize_csi_node_with_annotation(CTX)
    assert calls(client) == ["get nodes"] * 4
    assert [round(pause, 1) for pause in pauses] == pytest.approx([0.01, 0.05, 0.25], abs=0.05)


def node(ids: str = "", **labels: str) -> v1.Node:
    annotations = {NODE_IDS: ids} if ids else {}
    labels = {name.replace("_", "/"): value for name, value in labels.items()}
    return v1.Node(
        metadata=metav1.ObjectMeta(name="node", uid=types.UID("node-uid"), annotations=annotations, labels=labels)
    )


def with_drivers(*drivers: storagev1.CSINodeDriver) -> storagev1.CSINode:
    found = csi_node()
    found.spec.drivers = list(drivers)
    return found


def entry(name: str, node_id: str, *keys: str, count: int | None = None) -> storagev1.CSINodeDriver:
    allocatable = storagev1.VolumeNodeResources(count=count) if count is not None else None
    return storagev1.CSINodeDriver(name=name, node_id=node_id, topology_keys=list(keys), allocatable=allocatable)


MINE, OTHER = "com.example.csi", "net.example.csi"


@pytest.mark.parametrize(
    ("existing", "topology", "limit", "expected_node", "expected_drivers"),
    [
        pytest.param(
            (node(), None),
            {"example/zone": "a"},
            0,
            node(f'{{"{MINE}":"id"}}', example_zone="a"),
            [entry(MINE, "id", "example/zone")],
            id="new node",
        ),
        pytest.param(
            (node(f'{{"{MINE}":"id"}}', example_zone="a"), with_drivers(entry(MINE, "id", "example/zone"))),
            {"example/zone": "a"},
            0,
            node(f'{{"{MINE}":"id"}}', example_zone="a"),
            [entry(MINE, "id", "example/zone")],
            id="the same as before",
        ),
        pytest.param(
            (node(f'{{"{OTHER}":"x"}}', example_rack="1"), with_drivers(entry(OTHER, "x", "example/rack"))),
            {"example/zone": "a"},
            0,
            node(f'{{"{MINE}":"id","{OTHER}":"x"}}', example_rack="1", example_zone="a"),
            [entry(OTHER, "x", "example/rack"), entry(MINE, "id", "example/zone")],
            id="another driver before",
        ),
        pytest.param(
            (node(f'{{"{MINE}":"old"}}', example_zone="a"), with_drivers(entry(MINE, "old", "example/zone"))),
            {"example/rack": "1"},
            0,
            node(f'{{"{MINE}":"id"}}', example_rack="1", example_zone="a"),
            [entry(MINE, "id", "example/rack")],
            id="another id and other keys before",
        ),
        pytest.param(
            (node(f'{{"{MINE}":"id"}}', example_zone="a"), with_drivers(entry(MINE, "id", "example/zone", count=4))),
            {},
            0,
            node(f'{{"{MINE}":"id"}}', example_zone="a"),
            [entry(MINE, "id")],
            id="topology and limit before",
        ),
        pytest.param((node(), None), {}, 10, node(f'{{"{MINE}":"id"}}'), [entry(MINE, "id", count=10)], id="limit"),
        pytest.param(
            (node(), with_drivers(entry(MINE, "id", count=10))),
            {},
            20,
            node(f'{{"{MINE}":"id"}}'),
            [entry(MINE, "id", count=20)],
            id="another limit",
        ),
        pytest.param(
            (node(), None), {}, 2**40, node(f'{{"{MINE}":"id"}}'), [entry(MINE, "id", count=2**31 - 1)], id="huge limit"
        ),
        pytest.param((node(), None), {}, -1, node(f'{{"{MINE}":"id"}}'), [entry(MINE, "id")], id="limit below zero"),
        pytest.param(
            (node(), csi_node("old-uid")), {}, 0, node(f'{{"{MINE}":"id"}}'), [entry(MINE, "id")], id="of an older node"
        ),
    ],
)
def test_install_csi_driver(
    existing: tuple[v1.Node, storagev1.CSINode | None],
    topology: dict[str, str],
    limit: int,
    expected_node: v1.Node,
    expected_drivers: list[storagev1.CSINodeDriver],
) -> None:
    client = FakeClientset(*(obj for obj in existing if obj is not None))
    make_manager(client).install_csi_driver(CTX, MINE, "id", limit, topology)
    found = client.core_v1.nodes().get(CTX, "node").metadata
    assert found.annotations == expected_node.metadata.annotations
    assert found.labels == expected_node.metadata.labels
    registered = client.storage_v1.csi_nodes().get(CTX, "node")
    assert registered.spec.drivers == expected_drivers
    assert [owner.uid for owner in registered.metadata.owner_references] == ["node-uid"]
    assert registered.metadata.annotations == {KEY: "a,b"}


def test_nothing_new_is_not_written() -> None:
    client = FakeClientset(node(f'{{"{MINE}":"id"}}'), with_drivers(entry(MINE, "id", count=3)))
    make_manager(client).install_csi_driver(CTX, MINE, "id", 3, {})
    assert all(action.verb == "get" for action in client.actions())


@pytest.mark.parametrize(
    ("existing", "node_id", "message"),
    [
        (node(), "", "^error adding CSI driver node info: driverNodeID must not be empty$"),
        (
            node(zone="b"),
            "id",
            r'^error updating Node object .*reported "zone":"a" but existing label is "zone":"b"',
        ),
        (node("boo"), "id", r"failed to parse node's \"csi.volume.kubernetes.io/nodeid\" annotation value \(\"boo\"\)"),
        (node('{"a":1}'), "id", "failed to parse node's .* annotation value .*Expected `str`, got `int`"),
        (node("[" * 100_000), "id", "failed to parse node's .* annotation value"),
    ],
)
def test_install_csi_driver_fails(existing: v1.Node, node_id: str, message: str) -> None:
    client = FakeClientset(existing)
    with pytest.raises((ValueError, nodeinfomanager.NodeInfoError), match=message):
        make_manager(client).install_csi_driver(CTX, MINE, node_id, 0, {"zone": "a"})
    assert client.storage_v1.csi_nodes().list(CTX).items == []


def test_somebody_else_is_faster() -> None:
    client = FakeClientset(node(), with_drivers(entry(OTHER, "x")))
    conflicts = [apierrors.new_conflict("csinodes.storage.k8s.io", "node", "changed")] * 2
    client.prepend_reactor("update", "csinodes", lambda action: (True, conflicts.pop()) if conflicts else (False, None))
    make_manager(client).install_csi_driver(CTX, MINE, "id", 0, {})
    assert client.storage_v1.csi_nodes().get(CTX, "node").spec.drivers == [entry(OTHER, "x"), entry(MINE, "id")]


def test_failures_are_told_once_each() -> None:
    client = FakeClientset(node())
    client.prepend_reactor("create", "csinodes", lambda action: (True, OSError("away")))
    with pytest.raises(
        nodeinfomanager.NodeInfoError,
        match=r"^error updating CSINode object with CSI driver node info: error updating CSINode: "
        r"timed out waiting for the condition; caused by: away$",
    ):
        make_manager(client).install_csi_driver(CTX, MINE, "id", 0, {})
    with pytest.raises(nodeinfomanager.NodeInfoError, match="error getting kube client"):
        make_manager(None).install_csi_driver(CTX, MINE, "id", 0, {})


@pytest.mark.parametrize(
    ("existing", "annotations", "drivers"),
    [
        pytest.param((node(), None), {}, None, id="nothing there"),
        pytest.param((node(f'{{"{MINE}":"id"}}'), with_drivers(entry(MINE, "id"))), {}, [], id="the only one"),
        pytest.param(
            (node(f'{{"{OTHER}":"x","{MINE}":"id"}}'), with_drivers(entry(MINE, "id"), entry(OTHER, "x"))),
            {NODE_IDS: f'{{"{OTHER}":"x"}}'},
            [entry(OTHER, "x")],
            id="one of two",
        ),
        pytest.param(
            (node(f'{{"{OTHER}":"x"}}'), with_drivers(entry(OTHER, "x"))),
            {NODE_IDS: f'{{"{OTHER}":"x"}}'},
            [entry(OTHER, "x")],
            id="another one",
        ),
        pytest.param((node(f'{{"{MINE}":"id"}}'), None), {}, None, id="in the node alone"),
    ],
)
def test_uninstall_csi_driver(
    existing: tuple[v1.Node, storagev1.CSINode | None],
    annotations: dict[str, str],
    drivers: list[storagev1.CSINodeDriver] | None,
) -> None:
    client = FakeClientset(*(obj for obj in existing if obj is not None))
    make_manager(client).uninstall_csi_driver(CTX, MINE, lambda: False)
    assert client.core_v1.nodes().get(CTX, "node").metadata.annotations == annotations
    found = client.storage_v1.csi_nodes().list(CTX).items
    assert [one.spec.drivers for one in found] == ([drivers] if drivers is not None else [])
