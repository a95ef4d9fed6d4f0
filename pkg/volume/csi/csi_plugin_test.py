"""Test the plugin: the volumes that it supports, the drivers that register, and the node's CSINode object.

Go: pkg/volume/csi/csi_plugin_test.go
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util import version, wait
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.csi_spec import csi_pb2
from pkg.util import grpcstatus
from pkg.volume import csi
from pkg.volume.csi import csi_plugin, csi_util, nodeinfomanager
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_attacher import get_attachment_name
from pkg.volume.csi.csi_drivers_store import Driver
from pkg.volume.csi.testing import NODE_NAME, TEST_DRIVER, TEST_VOL, FakeNode, TestPlugin
from pkg.volume.plugins import Spec
from pkg.volume.testing import FakeVolumeHost

CTX = golang.background()
NODE = v1.Node(metadata=metav1.ObjectMeta(name="node", uid=types.UID("node-uid")))
POD = v1.Pod(metadata=metav1.ObjectMeta(name="pod", namespace="ns", uid=types.UID("pod-uid")))
INLINE = Spec(v1.Volume(name="inline", csi=v1.CSIVolumeSource(driver=TEST_DRIVER)))
OTHER = Spec(v1.Volume(name="other", empty_dir=v1.EmptyDirVolumeSource()))


def pv_spec(driver: str = TEST_DRIVER) -> Spec:
    source = v1.CSIPersistentVolumeSource(driver=driver, volume_handle=TEST_VOL)
    metadata = metav1.ObjectMeta(name="test-pv")
    return Spec(persistent_volume=v1.PersistentVolume(metadata=metadata, spec=v1.PersistentVolumeSpec(csi=source)))


def csi_driver(name: str = TEST_DRIVER, **fields: Any) -> storagev1.CSIDriver:
    spec = storagev1.CSIDriverSpec(**fields)
    return storagev1.CSIDriver(metadata=metav1.ObjectMeta(name=name), spec=spec)


def test_get_volume_name(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        assert world.plugin.get_plugin_name() == "kubernetes.io/csi"
        assert world.plugin.get_volume_name(pv_spec()) == "test-driver^vol-123"
        with pytest.raises(ValueError, match=r"plugin.GetVolumeName failed to extract volume source from spec"):
            world.plugin.get_volume_name(INLINE)


def test_can_support(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        assert [world.plugin.can_support(spec) for spec in (pv_spec(), INLINE, OTHER)] == [True, True, False]
        manager = world.host.plugin_mgr
        assert manager.find_attachable_plugin_by_spec(pv_spec()) is world.plugin
        assert manager.find_attachable_plugin_by_spec(INLINE) is None
        assert manager.find_device_mountable_plugin_by_spec(pv_spec()) is world.plugin
        assert manager.find_device_mountable_plugin_by_spec(INLINE) is None
        assert manager.find_mapper_plugin_by_spec(pv_spec()) is world.plugin
        assert manager.find_node_expandable_plugin_by_spec(pv_spec()) is world.plugin


def test_can_attach(tmp_path: Path) -> None:
    objects = [
        csi_driver("attachable", attach_required=True),
        csi_driver("not-attachable", attach_required=False),
        csi_driver("silent"),
    ]
    with TestPlugin(tmp_path, None, *objects) as world:
        found = {
            name: world.plugin.can_attach(pv_spec(name)) for name in ("attachable", "not-attachable", "silent", "x")
        }
        assert found == {"attachable": True, "not-attachable": False, "silent": True, "x": True}
        with pytest.raises(ValueError, match="volume source not found"):
            world.plugin.can_attach(OTHER)


def test_what_the_drivers_object_says(tmp_path: Path) -> None:
    objects = [csi_driver(requires_republish=True, se_linux_mount=True), csi_driver("silent")]
    with TestPlugin(tmp_path, None, *objects) as world:
        for ask in (world.plugin.requires_remount, world.plugin.supports_selinux_context_mount):
            assert [ask(pv_spec(name)) for name in (TEST_DRIVER, "silent", "none")] == [True, False, False]
        assert world.plugin.requires_remount(INLINE)
        assert not world.plugin.requires_remount(OTHER)


def test_objects_that_are_not_known_yet(tmp_path: Path) -> None:
    class Waiting(FakeVolumeHost):
        def wait_for_cache_sync(self, ctx: golang.Context) -> None:
            raise TimeoutError("timed out waiting for caches to sync")

    with TestPlugin(tmp_path) as world:
        host = Waiting(str(tmp_path), world.client, plugins=[])
        host.csi_drivers = world.host.csi_drivers
        world.plugin.init(host)
        with pytest.raises(TimeoutError):
            world.plugin.can_attach(pv_spec())
        assert not world.plugin.requires_remount(pv_spec())


def test_objects_are_waited_for_once_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []

    class Waiting(FakeVolumeHost):
        def wait_for_cache_sync(self, ctx: golang.Context) -> None:
            waited.append(ctx.err() is None)
            ctx.wait(None)
            raise TimeoutError("timed out waiting for caches to sync")

    monkeypatch.setattr(csi_plugin, "_DRIVERS_SYNC_TIMEOUT", 0.01)
    with TestPlugin(tmp_path) as world:
        host = Waiting(str(tmp_path), world.client, plugins=[])
        host.csi_drivers = world.host.csi_drivers
        plugin = csi.CSIPlugin()
        plugin.init(host)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                plugin.can_attach(pv_spec())
    assert waited == [True, False, False]


def test_standalone(tmp_path: Path) -> None:
    plugin = csi.CSIPlugin()
    FakeVolumeHost(str(tmp_path), None, plugins=[plugin])
    plugin.start(CTX)
    assert plugin.can_support(INLINE) and not plugin.requires_remount(INLINE)
    for make in (plugin.new_attacher, lambda: plugin.new_mounter(INLINE, POD)):
        with pytest.raises(csierrors.NoAPIServerError, match="kubernetes client"):
            make()


@pytest.mark.parametrize("mode", ["Persistent", "Ephemeral"])
def test_construct_volume_spec(tmp_path: Path, mode: str) -> None:
    with TestPlugin(tmp_path) as world:
        (tmp_path / "vol_data.json").write_text(
            '{"specVolID":"name","volumeHandle":"handle","driverName":"driver","nodeName":"node",'
            f'"volumeLifecycleMode":"{mode}","seLinuxMountContext":"s0"}}'
        )
        found = world.plugin.construct_volume_spec("name", str(tmp_path))
        assert found.selinux_mount_context == "s0"
        if mode == "Ephemeral":
            assert found.spec == Spec(v1.Volume(name="name", csi=v1.CSIVolumeSource(driver="driver")))
            return
        persistent = found.spec.persistent_volume
        assert persistent is not None and persistent.metadata.name == "name"
        assert persistent.spec.csi == v1.CSIPersistentVolumeSource(driver="driver", volume_handle="handle")
        assert persistent.spec.volume_mode == "Filesystem"


def test_construct_volume_spec_fails(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        with pytest.raises(FileNotFoundError, match=r"plugin.ConstructVolumeSpec failed loading volume data using"):
            world.plugin.construct_volume_spec("name", str(tmp_path))
        with pytest.raises(FileNotFoundError, match=r"plugin.ConstructBlockVolumeSpec failed loading volume data"):
            world.plugin.construct_block_volume_spec(types.UID("uid"), "name", str(tmp_path))


VERSIONS = [
    (["v1.0.0"], ""),
    (["0.3.0"], "must be v1.x"),
    (["0.2.0", "v0.3.0"], "highest supported version reported is 0.3.0, must be v1.x"),
    (["0.2.0", "v1.0.0"], ""),
    (["v1.2.3", "v0.3.0"], ""),
    (["v1.2.3", "4.9.12", "boo", "v0.3.0", "2.0.1"], ""),
    (["4.9.12", "2.0.1"], r"could not find a highest supported version from versions \(\[4.9.12 2.0.1\]\)"),
    ([], "Plugin returned an empty list for supported versions"),
    (["var", "boo", "foo"], "could not find a highest supported version"),
]


@pytest.mark.parametrize(("versions", "refused"), VERSIONS)
def test_validate_plugin(tmp_path: Path, versions: list[str], refused: str) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        if not refused:
            handler.validate_plugin("new", "/csi.sock", versions)
            return
        with pytest.raises(ValueError, match=refused) as raised:
            handler.validate_plugin("new", "/csi.sock", versions)
        assert str(raised.value).startswith("validation failed for CSI Driver new at endpoint /csi.sock: kubernetes.io")


def test_validate_plugin_existing_driver(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        world.plugin.csi_drivers.set("known", Driver("/csi.sock", version.parse_generic("v1.0.0")))
        handler.validate_plugin("another", "/csi.sock", ["v1.0.0"])
        handler.validate_plugin("known", "/csi.sock", ["v0.3.0", "v1.0.1"])
        with pytest.raises(ValueError, match=r'already registered with a higher supported version: "1.0.0"'):
            handler.validate_plugin("known", "/csi.sock", ["v1.0.0"])


def test_registration(tmp_path: Path) -> None:
    node = FakeNode()
    node.info = csi_pb2.NodeGetInfoResponse(
        node_id="node-id",
        max_volumes_per_node=12,
        accessible_topology=csi_pb2.Topology(segments={"example.com/zone": "a"}),
    )
    with TestPlugin(tmp_path, node) as world:
        handler = csi.RegistrationHandler(world.plugin)
        handler.register_plugin("new", world.socket, ["1.0.0"], None)
        assert world.plugin.csi_drivers.get("new") == Driver(world.socket, version.parse_generic("1.0.0"))
        drivers = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers
        allocatable = storagev1.VolumeNodeResources(count=12)
        assert drivers == [
            storagev1.CSINodeDriver(
                name="new", node_id="node-id", topology_keys=["example.com/zone"], allocatable=allocatable
            )
        ]
        registered = world.client.core_v1.nodes().get(CTX, NODE_NAME)
        assert registered.metadata.labels == {"example.com/zone": "a"}
        assert registered.metadata.annotations == {"csi.volume.kubernetes.io/nodeid": '{"new":"node-id"}'}
        handler.deregister_plugin("new", world.socket)
        assert world.plugin.csi_drivers.get("new") is None
        assert world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers == []
        assert world.client.core_v1.nodes().get(CTX, NODE_NAME).metadata.annotations == {}


def test_newer_driver_stays_when_the_older_one_goes(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        world.plugin.csi_drivers.set("new", Driver("/older", version.parse_generic("1.0.0")))
        handler.register_plugin("new", world.socket, ["1.1.0"], None)
        handler.deregister_plugin("new", "/older")
        assert world.plugin.csi_drivers.get("new") == Driver(world.socket, version.parse_generic("1.1.0"))
        drivers = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers
        assert [driver.name for driver in drivers] == ["new"]


def test_driver_that_registers_while_its_namesake_goes_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        handler.register_plugin("new", world.socket, ["1.0.0"], None)
        next_socket = str(tmp_path / "next.sock")
        os.link(world.socket, next_socket)
        failures = iter([OSError("connection reset")])

        def fail_once(action: Action) -> tuple[bool, object]:
            err = next(failures, None)
            return err is not None, err

        def register_before_the_next_attempt(*args: object) -> None:
            handler.register_plugin("new", next_socket, ["1.0.0"], None)

        world.client.prepend_reactor("update", "csinodes", fail_once)
        monkeypatch.setattr(wait, "pause", register_before_the_next_attempt)
        handler.deregister_plugin("new", world.socket)
        drivers = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers
        assert [driver.name for driver in drivers] == ["new"]
        annotations = world.client.core_v1.nodes().get(CTX, NODE_NAME).metadata.annotations
        assert annotations == {"csi.volume.kubernetes.io/nodeid": '{"new":"node-id"}'}


def test_newer_driver_that_fails_leaves_the_older_one_in_use(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        handler.register_plugin("new", world.socket, ["1.0.0"], None)
        older = world.plugin.csi_drivers.get("new")
        with pytest.raises(grpcstatus.StatusError):
            handler.register_plugin("new", str(tmp_path / "newer.sock"), ["1.1.0"], 0.1)
        assert world.plugin.csi_drivers.get("new") == older
        drivers = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers
        assert [driver.name for driver in drivers] == ["new"]
        handler.deregister_plugin("new", world.socket)
        assert world.plugin.csi_drivers.get("new") is None


@pytest.mark.parametrize("older_goes_first", [False, True])
def test_older_driver_is_used_again_when_the_newer_one_goes(tmp_path: Path, older_goes_first: bool) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        handler.register_plugin("new", world.socket, ["1.0.0"], None)
        older = world.plugin.csi_drivers.get("new")
        newer = str(tmp_path / "newer.sock")
        os.link(world.socket, newer)
        handler.register_plugin("new", newer, ["1.1.0"], None)
        if older_goes_first:
            handler.deregister_plugin("new", world.socket)
        handler.deregister_plugin("new", newer)
        assert world.plugin.csi_drivers.get("new") == (None if older_goes_first else older)
        drivers = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers
        assert [driver.name for driver in drivers] == ([] if older_goes_first else ["new"])


def test_driver_that_does_not_answer_is_not_used(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        handler = csi.RegistrationHandler(world.plugin)
        world.node.errors["NodeGetInfo"] = (grpc.StatusCode.INTERNAL, "no")
        with pytest.raises(grpcstatus.StatusError, match="desc = no"):
            handler.register_plugin("new", world.socket, ["1.0.0"], 5.0)
        assert world.plugin.csi_drivers.get("new") is None


def test_driver_that_contradicts_the_nodes_labels_is_not_used(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        node = v1.Node(metadata=metav1.ObjectMeta(name=NODE_NAME, uid=types.UID("node-uid"), labels={"zone": "b"}))
        world.client.add(node)
        topology = csi_pb2.Topology(segments={"zone": "a"})
        world.node.info = csi_pb2.NodeGetInfoResponse(node_id="id", accessible_topology=topology)
        expected = 'collision: driver reported "zone":"a" but existing label is "zone":"b"'
        with pytest.raises(nodeinfomanager.NodeInfoError, match=expected):
            csi.RegistrationHandler(world.plugin).register_plugin("new", world.socket, ["1.0.0"], None)
        assert world.plugin.csi_drivers.get("new") is None


def test_deregistration_without_the_api_server(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.client.prepend_reactor("*", "csinodes", lambda action: (True, OSError("away")))
        csi.RegistrationHandler(world.plugin).deregister_plugin(TEST_DRIVER, world.socket)
        assert world.plugin.csi_drivers.get(TEST_DRIVER) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [(None, False), (grpc.StatusCode.INTERNAL.value[0], False), (grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], True)],
)
def test_verify_exhausted_resource(tmp_path: Path, code: int | None, expected: bool) -> None:
    with TestPlugin(tmp_path, None, csi_driver(node_allocatable_update_period_seconds=30)) as world:
        world.node.info = csi_pb2.NodeGetInfoResponse(node_id="id", max_volumes_per_node=3)
        name = get_attachment_name(TEST_VOL, TEST_DRIVER, NODE_NAME)
        status = storagev1.VolumeAttachmentStatus(attach_error=storagev1.VolumeError(message="full", error_code=code))
        world.client.add(storagev1.VolumeAttachment(metadata=metav1.ObjectMeta(name=name), status=status))
        assert world.plugin.verify_exhausted_resource(pv_spec()) is expected
        assert world.node.calls == (["NodeGetInfo"] if expected else [])
        if expected:
            driver = world.client.storage_v1.csi_nodes().get(CTX, NODE_NAME).spec.drivers[0]
            assert driver.allocatable == storagev1.VolumeNodeResources(count=3)


def test_resource_is_not_exhausted_as_far_as_can_be_told(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, csi_driver("silent")) as world:
        for spec in (INLINE, pv_spec(), pv_spec("silent")):
            assert not world.plugin.verify_exhausted_resource(spec)
        assert not csi_plugin.is_resource_exhaust_error(storagev1.VolumeAttachment())


def eager_clock() -> FakeClock:
    """Return a clock with which nothing waits."""
    clock = FakeClock()
    clock.skip_pauses()
    return clock


class Host(FakeVolumeHost):
    """Record the changes of the kubelet's error state."""

    def __init__(self, client: FakeClientset) -> None:
        super().__init__("/nowhere", client, plugins=[])
        self.told = golang.Channel[Exception | None](10)

    def set_kubelet_error(self, err: Exception | None) -> None:
        self.told.send(err)


def start(host: Host, clock: FakeClock, ctx: golang.Context = CTX) -> golang.Thread:
    client = host.get_kube_client()
    assert client is not None
    manager = nodeinfomanager.NodeInfoManager("node", host, csi.MIGRATED_PLUGINS, eager_clock())
    return csi_plugin.initialize_csi_node(ctx, client, host, manager, clock)


def next_error(host: Host) -> str | None:
    err, ok = host.told.recv(30)
    assert ok, "the kubelet's error state changes"
    return None if err is None else str(err)


def test_node_is_not_ready_without_its_csi_node() -> None:
    client, clock = FakeClientset(), FakeClock()
    host = Host(client)
    thread = start(host, clock)
    assert next_error(host) == "CSINode is not yet initialized"
    message = next_error(host)
    assert message is not None and message.startswith("failed to initialize CSINode: error updating CSINode annotation")
    client.add(NODE)
    clock.wait_for_waiters()
    clock.step(1)
    assert next_error(host) is None
    thread.join(30)
    first = client.actions()[0]
    assert (first.verb, first.resource) == ("get", "csinodes"), "the first request checks whether the CSINode exists"
    annotations = client.storage_v1.csi_nodes().get(CTX, "node").metadata.annotations
    assert annotations[nodeinfomanager.MIGRATED_PLUGINS_ANNOTATION_KEY] == ",".join(csi.MIGRATED_PLUGINS)


@pytest.mark.parametrize("err", [RecursionError("too deep"), ValueError("bad"), golang.DeadlineExceeded()])
def test_making_the_csi_node_is_tried_again_whatever_went_wrong(err: Exception) -> None:
    clock = FakeClock()
    host = Host(FakeClientset(NODE))
    manager = nodeinfomanager.NodeInfoManager("node", host, csi.MIGRATED_PLUGINS, eager_clock())
    initialize, errs = manager.initialize_csi_node_with_annotation, [err]

    def fail_once(ctx: golang.Context) -> None:
        if errs:
            raise errs.pop()
        initialize(ctx)

    manager.initialize_csi_node_with_annotation = fail_once  # type: ignore[method-assign]
    client = host.get_kube_client()
    assert client is not None
    thread = csi_plugin.initialize_csi_node(CTX, client, host, manager, clock)
    assert next_error(host) == "CSINode is not yet initialized"
    assert next_error(host) == f"failed to initialize CSINode: {err}"
    clock.wait_for_waiters()
    clock.step(1)
    assert next_error(host) is None
    thread.join(30)


def test_making_the_csi_node_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClientset(NODE)
    host = Host(client)
    manager = nodeinfomanager.NodeInfoManager("node", host, csi.MIGRATED_PLUGINS, eager_clock())
    errs = [OSError("away")] * 7

    def initialize(ctx: golang.Context) -> None:
        if errs:
            raise errs.pop()

    monkeypatch.setattr(manager, "initialize_csi_node_with_annotation", initialize)
    thread = csi_plugin.initialize_csi_node(CTX, client, host, manager, eager_clock())
    assert next_error(host) == "CSINode is not yet initialized"
    for _ in range(7):
        assert next_error(host) == "failed to initialize CSINode: away"
    assert next_error(host) is None
    thread.join(30)


@pytest.mark.parametrize("step", ["waiting for the API server", "making the CSINode"])
def test_failure_at_the_end_of_the_kubelet_ends_the_thread_alone(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, cancel = golang.with_cancel(golang.background())

    def fail(_: object) -> NoReturn:
        cancel()
        raise OSError("connection reset")

    client = FakeClientset(NODE)
    host = Host(client)
    manager = nodeinfomanager.NodeInfoManager("node", host, csi.MIGRATED_PLUGINS, eager_clock())
    if step == "making the CSINode":
        monkeypatch.setattr(manager, "initialize_csi_node_with_annotation", fail)
    else:
        client.prepend_reactor("get", "csinodes", fail)
    thread = csi_plugin.initialize_csi_node(ctx, client, host, manager, FakeClock())
    thread.join(30)
    assert not thread.is_alive() and next_error(host) == "CSINode is not yet initialized" and len(host.told) == 0


def test_api_server_is_waited_for() -> None:
    client, clock = FakeClientset(NODE), FakeClock()
    away = [apierrors.new_forbidden("csinodes", "node", "not yet")]
    client.prepend_reactor("get", "csinodes", lambda action: (True, away[0]) if away else (False, None))
    host = Host(client)
    thread = start(host, clock)
    assert next_error(host) == "CSINode is not yet initialized"
    clock.wait_for_waiters()
    away.clear()
    clock.step(1)
    assert next_error(host) is None
    thread.join(30)


def test_end_of_the_kubelet_ends_the_attempts() -> None:
    ctx, cancel = golang.with_cancel(CTX)
    host = Host(FakeClientset())
    thread = start(host, FakeClock(), ctx)
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_what_is_staged_and_published_is_found_by_its_records(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as made:
        check_records(made.plugin)


def check_records(plugin: csi_plugin.CSIPlugin) -> None:
    assert plugin.list_staged_volumes() == [] and plugin.list_published_devices() == []
    root = Path(plugin.host.get_plugin_dir(csi.CSI_PLUGIN_NAME))
    devices = Path(plugin.host.get_volume_device_plugin_dir(csi.CSI_PLUGIN_NAME))
    for folder, data in (
        (root / "d" / "hash", {"driverName": "d", "volumeHandle": "mounted"}),
        (devices / "pv" / "data", {"driverName": "d", "volumeHandle": "mapped", "specVolID": "pv"}),
    ):
        folder.mkdir(parents=True)
        csi_util.save_volume_data(str(folder), "vol_data.json", data)
    (root / "d" / "broken").mkdir()
    (root / "d" / "broken" / "vol_data.json").write_text("no JSON")
    (devices / "publish" / "pv" / "uid").mkdir(parents=True)
    found = [
        (spec.name(), spec.persistent_volume.spec.csi.volume_handle, spec.persistent_volume.spec.volume_mode)
        for spec in plugin.list_staged_volumes()
        if spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None
    ]
    assert found == [("mounted", "mounted", "Filesystem"), ("pv", "mapped", "Block")]
    assert plugin.list_published_devices() == [("uid", "pv")]


def test_staged_volumes_are_not_passed_over_for_a_lack_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TestPlugin(tmp_path) as made:
        folder = Path(made.plugin.host.get_plugin_dir(csi.CSI_PLUGIN_NAME), "d", "hash")
        folder.mkdir(parents=True)
        csi_util.save_volume_data(str(folder), "vol_data.json", {"driverName": "d", "volumeHandle": "mounted"})
        for code in (errno.ENFILE, errno.EIO):
            monkeypatch.setattr(Path, "read_bytes", raising(OSError(code, os.strerror(code))))
            if code == errno.ENFILE:
                with pytest.raises(OSError, match="Too many open files"):
                    made.plugin.list_staged_volumes()
            else:
                assert made.plugin.list_staged_volumes() == []


@pytest.mark.parametrize("at", ["plugins/kubernetes.io/csi", "plugins/kubernetes.io/csi/volumeDevices/publish/pv"])
def test_directories_of_volumes_are_not_passed_over_for_a_lack_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def listdir(path: Path) -> list[str]:
        if str(path).endswith(at):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return original(path)

    with TestPlugin(tmp_path) as made:
        check_records(made.plugin)
        original = os.listdir
        # In some Python versions, Path.glob skips what it cannot read.
        monkeypatch.setattr(os, "listdir", listdir)
        with pytest.raises(OSError, match="Too many open files"):
            (made.plugin.list_published_devices if "publish" in at else made.plugin.list_staged_volumes)()


def test_directories_of_volumes_that_are_lost_to_a_kill_go(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        host = world.plugin.host
        root = Path(host.get_plugin_dir(csi.CSI_PLUGIN_NAME))
        devices = Path(host.get_volume_device_plugin_dir(csi.CSI_PLUGIN_NAME))
        kept = {
            devices / "known/data": {"driverName": "d", "volumeHandle": "known"},
            root / "d/known": {"driverName": "d", "volumeHandle": "known"},
        }
        for directory, data in kept.items():
            directory.mkdir(parents=True)
            csi_util.save_volume_data(str(directory), "vol_data.json", data)
        stay = [
            devices / "staging/known",
            devices / "publish/known",
            devices / "used/dev",
            root / "plain/hash/globalmount",
        ]
        for directory in [*stay, devices / "forgotten/dev", devices / "new/data", root / "d/forgotten"]:
            directory.mkdir(parents=True)
        (devices / "used/dev/uid").touch()
        (devices / "new/data/vol_data.json.incomplete").touch()
        of_pod = Path(host.get_pod_volume_dir(types.UID("uid"), "kubernetes.io~csi", "pv"))
        for directory in (of_pod, root / "d/known"):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "vol_data.json.incomplete").touch()
        world.plugin.init(host)
        assert all(directory.is_dir() for directory in [*kept, *stay])
        assert sorted(each.name for each in devices.iterdir()) == ["known", "publish", "staging", "used"]
        assert [each.name for each in (root / "d").iterdir()] == ["known"]
        assert [*tmp_path.rglob("*.incomplete")] == [] and of_pod.is_dir()
