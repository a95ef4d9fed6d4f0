"""Test the attachment and staging of CSI volumes.

Go: pkg/volume/csi/csi_attacher_test.go
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.mount_utils import MountPoint
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_attacher import get_attachment_name
from pkg.volume.csi.testing import NODE_NAME, TEST_DRIVER, TEST_VOL, FakeNode, TestPlugin
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import DeviceMounterArgs

POD = v1.Pod(metadata=metav1.ObjectMeta(name="pod", namespace="ns", uid=types.UID("pod-uid")))


def pv_spec(
    handle: str = TEST_VOL, driver: str = TEST_DRIVER, change: Callable[[v1.PersistentVolume], None] | None = None
) -> Spec:
    source = v1.CSIPersistentVolumeSource(driver=driver, volume_handle=handle)
    pv = v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="test-pv"),
        spec=v1.PersistentVolumeSpec(csi=source, access_modes=[v1.READ_WRITE_ONCE]),
    )
    if change is not None:
        change(pv)
    return Spec(persistent_volume=pv)


def inline_spec(driver: str = TEST_DRIVER) -> Spec:
    return Spec(v1.Volume(name="inline", csi=v1.CSIVolumeSource(driver=driver)))


def test_kubelets_attach_nothing(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        attacher = world.plugin.new_attacher()
        with pytest.raises(NotImplementedError, match="attaching volumes from the kubelet is not supported"):
            attacher.attach(pv_spec(), NODE_NAME)
        with pytest.raises(NotImplementedError, match="detaching volumes from the kubelet is not supported"):
            attacher.detach("volume", NODE_NAME)


def test_wait_for_attach(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        attacher = world.plugin.new_attacher()
        name = get_attachment_name(TEST_VOL, TEST_DRIVER, NODE_NAME)
        with pytest.raises(
            csierrors.NotAttachedError, match=f"has GET error for volume attachment {name}: .*not found"
        ):
            attacher.wait_for_attach(pv_spec(), "", POD, 1.0)
        world.attach(attached=False)
        with pytest.raises(
            csierrors.NotAttachedError, match=f"volume {TEST_VOL} is not attached for volume attachment {name}"
        ):
            attacher.wait_for_attach(pv_spec(), "", POD, 1.0)
        world.attach()
        assert attacher.wait_for_attach(pv_spec(), "", POD, 1.0) == name
        with pytest.raises(ValueError, match=r"unexpected api.CSIVolumeSource found"):
            attacher.wait_for_attach(inline_spec(), "", POD, 1.0)


@pytest.mark.parametrize(
    ("deleted", "error", "expected"),
    [(True, "", "volume attachment is being deleted"), (False, "no such disk", "no such disk")],
)
def test_attachment_that_will_not_be(tmp_path: Path, deleted: bool, error: str, expected: str) -> None:
    with TestPlugin(tmp_path) as world:
        name = get_attachment_name(TEST_VOL, TEST_DRIVER, NODE_NAME)
        metadata = metav1.ObjectMeta(name=name, deletion_timestamp=metav1.now() if deleted else None)
        status = storagev1.VolumeAttachmentStatus(attach_error=storagev1.VolumeError(message=error) if error else None)
        world.client.add(storagev1.VolumeAttachment(metadata=metadata, status=status))
        with pytest.raises(csierrors.NotAttachedError, match=f"^{expected}$"):
            world.plugin.new_attacher().wait_for_attach(pv_spec(), "", POD, 1.0)


def test_volumes_are_attached(tmp_path: Path) -> None:
    no_attachment = storagev1.CSIDriver(
        metadata=metav1.ObjectMeta(name="local-driver"), spec=storagev1.CSIDriverSpec(attach_required=False)
    )
    with TestPlugin(tmp_path, None, no_attachment) as world:
        world.attach("attached")
        world.attach("detached", attached=False)

        def named(handle: str, driver: str = TEST_DRIVER) -> Spec:
            def name_it(pv: v1.PersistentVolume) -> None:
                pv.metadata.name = handle

            return pv_spec(handle, driver, name_it)

        specs = [named("attached"), named("detached"), named("unknown"), named("local", "local-driver"), inline_spec()]
        assert world.plugin.new_attacher().volumes_are_attached(specs, NODE_NAME) == {
            "attached": True,
            "detached": False,
            "unknown": False,
            "local": True,
            "inline": False,
        }


def test_get_device_mount_path(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        attacher = world.plugin.new_attacher()
        sha = hashlib.sha256(TEST_VOL.encode()).hexdigest()
        expected = f"{tmp_path}/plugins/kubernetes.io/csi/{TEST_DRIVER}/{sha}/globalmount"
        assert attacher.get_device_mount_path(pv_spec()) == expected
        for spec, message in (
            (pv_spec(handle=""), "volume handle is empty"),
            (pv_spec(driver=""), "driver name is empty"),
            (inline_spec(), "unexpected api.CSIVolumeSource"),
            (Spec(persistent_volume=v1.PersistentVolume()), "volume source not found in volume.Spec"),
        ):
            with pytest.raises(ValueError, match=message):
                attacher.get_device_mount_path(spec)


def test_mount_device(tmp_path: Path) -> None:
    def change(pv: v1.PersistentVolume) -> None:
        assert pv.spec.csi is not None
        pv.spec.mount_options = ["noatime"]
        pv.spec.access_modes = [v1.READ_WRITE_MANY, v1.READ_WRITE_ONCE]
        pv.spec.csi.volume_attributes = {"size": "big"}
        pv.spec.csi.fs_type = "ext4"
        pv.spec.csi.node_stage_secret_ref = v1.SecretReference(name="stage", namespace="ns")

    with TestPlugin(tmp_path) as world:
        world.attach(devicePath="/dev/sdx")
        world.client.add(v1.Secret(metadata=metav1.ObjectMeta(name="stage", namespace="ns"), data={"key": b"value"}))
        path = tmp_path / "driver/hash/globalmount"
        args = DeviceMounterArgs(fs_group=3000, selinux_label="s0")
        world.plugin.new_device_mounter().mount_device(pv_spec(change=change), "", str(path), args)
        staged = world.node.staged[TEST_VOL]
        assert staged.path == str(path) and path.is_dir()
        assert path.parent.stat().st_mode & 0o777 == 0o750
        assert staged.publish_context == {"devicePath": "/dev/sdx"}
        assert staged.secrets == {"key": "value"}
        assert staged.volume_context == {"size": "big"}
        assert (staged.fs_type, staged.access_mode) == ("ext4", "MULTI_NODE_MULTI_WRITER")
        assert staged.mount_flags == ["noatime"], "no CSIDriver object declares support for SELinux mounts"
        assert staged.volume_mount_group == "", "the driver cannot apply a group"
        data = (path.parent / "vol_data.json").read_text()
        assert data == '{"driverName":"test-driver","volumeHandle":"vol-123"}\n'


def test_mount_device_with_what_the_driver_can_do(tmp_path: Path) -> None:
    driver = storagev1.CSIDriver(
        metadata=metav1.ObjectMeta(name=TEST_DRIVER),
        spec=storagev1.CSIDriverSpec(attach_required=False, se_linux_mount=True),
    )
    node = FakeNode("STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP")
    with TestPlugin(tmp_path, node, driver) as world:
        path = tmp_path / "driver/hash/globalmount"
        mounter = world.plugin.new_device_mounter()
        mounter.mount_device(pv_spec(), "", str(path), DeviceMounterArgs(fs_group=3000, selinux_label="s0:c1,c2"))
        assert node.staged[TEST_VOL].mount_flags == ['context="s0:c1,c2"']
        assert node.staged[TEST_VOL].volume_mount_group == "3000"
        data = json.loads((path.parent / "vol_data.json").read_text())
        assert data["seLinuxMountContext"] == "s0:c1,c2"
        mounter.mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
        assert node.staged[TEST_VOL].volume_mount_group == ""
        assert node.staged[TEST_VOL].mount_flags == []


def test_driver_that_stages_nothing(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, FakeNode()) as world:
        world.attach()
        path = tmp_path / "driver/hash/globalmount"
        world.plugin.new_device_mounter().mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
        assert path.is_dir() and world.node.calls == []
        world.plugin.new_device_unmounter().unmount_device(str(path))
        assert not path.parent.exists() and world.node.calls == []


def test_mount_that_is_broken_is_left_to_the_driver(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        path = tmp_path / "driver/hash/globalmount"
        path.parent.mkdir(parents=True)
        # The path is not a directory for a reader, as if the mount of a daemon that is gone were there.
        path.touch()
        world.host.mounter.mount("daemon", str(path), "fuse", [])
        world.plugin.new_device_mounter().mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
        assert world.node.staged[TEST_VOL].path == str(path)


@pytest.mark.parametrize("staged", [True, False])
def test_volume_that_is_staged_is_not_forgotten_when_the_disk_is_full(tmp_path: Path, staged: bool) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        path = tmp_path / "driver/hash/globalmount"
        attacher = world.plugin.new_device_mounter()
        if staged:
            attacher.mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
            (path.parent / "vol_data.json").write_text("{}")
        (path.parent / "vol_data.json.incomplete").mkdir(parents=True)
        with pytest.raises(volumetypes.TransientOperationFailure, match="failed to save volume info data"):
            attacher.mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
        assert (path.parent / "vol_data.json").exists() is staged
        assert path.exists() is staged


@pytest.mark.parametrize(
    ("code", "error", "kept"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, volumetypes.UncertainProgressError, True),
        (grpc.StatusCode.UNAVAILABLE, volumetypes.UncertainProgressError, True),
        (grpc.StatusCode.INTERNAL, Exception, False),
    ],
)
def test_data_is_kept_as_long_as_the_volume_may_be_staged(
    tmp_path: Path, code: grpc.StatusCode, error: type[Exception], kept: bool
) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        world.node.errors["NodeStageVolume"] = (code, "no")
        path = tmp_path / "driver/hash/globalmount"
        with pytest.raises(error, match="desc = no") as raised:
            world.plugin.new_device_mounter().mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
        assert volumetypes.is_operation_finished_error(raised.value) is not kept
        assert (path.parent / "vol_data.json").exists() is kept
        assert path.exists() is kept


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_driver_that_dies_after_it_was_asked_to_stage(tmp_path: Path, code: grpc.StatusCode) -> None:
    """A driver's error in a later call says nothing about the first call: the volume may be staged."""
    with TestPlugin(tmp_path) as world:
        world.attach()
        path = tmp_path / "driver/hash/globalmount"
        mounter = world.plugin.new_device_mounter()
        for method, error in (("NodeStageVolume", grpc.StatusCode.DEADLINE_EXCEEDED), ("NodeGetCapabilities", code)):
            world.node.errors = {method: (error, "no")}
            with pytest.raises(Exception, match="desc = no") as raised:
                mounter.mount_device(pv_spec(), "", str(path), DeviceMounterArgs())
            assert not volumetypes.is_operation_finished_error(raised.value)
        assert (path.parent / "vol_data.json").exists()


def test_mount_device_fails_before_the_driver_is_asked(tmp_path: Path) -> None:
    def secret(pv: v1.PersistentVolume) -> None:
        assert pv.spec.csi is not None
        pv.spec.csi.node_stage_secret_ref = v1.SecretReference(name="none", namespace="ns")

    with TestPlugin(tmp_path) as world:
        path, mounter = str(tmp_path / "driver/hash/globalmount"), world.plugin.new_device_mounter()

        def mount(spec: Spec, where: str = path) -> None:
            mounter.mount_device(spec, "", where, DeviceMounterArgs())

        with pytest.raises(volumetypes.TransientOperationFailure, match=r'"csi-.*" not found'):
            mount(pv_spec())
        world.attach()
        with pytest.raises(
            volumetypes.TransientOperationFailure,
            match=r"fetching NodeStageSecretRef ns/none failed: kubernetes.io/csi: failed to find the secret none",
        ):
            mount(pv_spec(change=secret))
        with pytest.raises(volumetypes.TransientOperationFailure, match="newCsiDriverClient: driver name other not"):
            mount(pv_spec(driver="other"))
        with pytest.raises(ValueError, match="deviceMountPath is empty"):
            mount(pv_spec(), "")
        with pytest.raises(ValueError, match=r"unexpected api.CSIVolumeSource"):
            mount(inline_spec())
        assert world.node.calls == []
        (tmp_path / "file").touch()
        with pytest.raises(volumetypes.TransientOperationFailure, match="exists but is not a directory"):
            mount(pv_spec(), str(tmp_path / "file"))


def staged(root: Path, data: str = '{"driverName":"test-driver","volumeHandle":"a/vol"}') -> Path:
    path = root / "driver/hash/globalmount"
    path.mkdir(parents=True)
    if data:
        (path.parent / "vol_data.json").write_text(data)
    return path


def test_unmount_device(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        path = staged(tmp_path)
        world.plugin.new_device_unmounter().unmount_device(str(path))
        assert world.node.calls == ["NodeUnstageVolume"]
        assert not path.parent.exists()
        world.plugin.new_device_unmounter().unmount_device(str(path))
        assert world.node.calls == ["NodeUnstageVolume"], "the volume is already unstaged"


def test_what_a_driver_leaves_beside_a_volume_does_not_keep_it_attached(tmp_path: Path) -> None:
    """Files that a driver leaves beside a volume do not keep the volume attached.

    Otherwise another node would wait for the volume forever. In Go the second attempt succeeds, because it finds no
    data.
    """
    with TestPlugin(tmp_path) as world:
        path = staged(tmp_path)
        (path.parent / "connector.json").touch()
        world.plugin.new_device_unmounter().unmount_device(str(path))
        world.plugin.new_device_unmounter().unmount_device(str(path))
        assert world.node.calls == ["NodeUnstageVolume"]
        assert [file.name for file in path.parent.iterdir()] == ["connector.json"]


def test_volume_that_was_staged_twice_is_unstaged_twice(tmp_path: Path) -> None:
    """A volume that was staged twice is unstaged twice.

    Otherwise the volume would be detached while it is mounted.
    """
    with TestPlugin(tmp_path) as world:
        path = staged(tmp_path)
        world.host.mounter.mount_points.append(MountPoint("/dev/x", str(path), "ext4", ()))
        with pytest.raises(OSError, match="the driver has left something mounted"):
            world.plugin.new_device_unmounter().unmount_device(str(path))
        assert (path.parent / "vol_data.json").exists(), "the next attempt needs the data file"
        world.host.mounter.mount_points.clear()
        world.plugin.new_device_unmounter().unmount_device(str(path))
        assert world.node.calls == ["NodeUnstageVolume", "NodeUnstageVolume"] and not path.parent.exists()


def test_unmount_device_fails(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        unmounter = world.plugin.new_device_unmounter()
        path = staged(tmp_path, '{"driverName"}}')
        with pytest.raises(ValueError, match="failed to parse volume data file"):
            unmounter.unmount_device(str(path))
        (path.parent / "vol_data.json").write_text('{"driverName":"unknown","volumeHandle":"v"}')
        with pytest.raises(volumetypes.TransientOperationFailure, match="driver name unknown not found"):
            unmounter.unmount_device(str(path))
        (path.parent / "vol_data.json").write_text('{"driverName":"test-driver","volumeHandle":"v"}')
        world.node.errors["NodeUnstageVolume"] = (grpc.StatusCode.INTERNAL, "busy")
        with pytest.raises(
            csierrors.DriverCallError, match="UnmountDevice failed: rpc error: code = Internal desc = busy"
        ):
            unmounter.unmount_device(str(path))
        assert (path.parent / "vol_data.json").exists()


def test_volume_staged_before_a_restart_is_unstaged_although_staging_it_again_fails(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        path = str(tmp_path / "driver/hash/globalmount")
        attacher = world.plugin.new_device_mounter()
        attacher.mount_device(pv_spec(), "", path, DeviceMounterArgs())
        world.node.errors = {"NodeStageVolume": (grpc.StatusCode.INTERNAL, "no")}
        with pytest.raises(Exception, match="desc = no"):
            attacher.mount_device(pv_spec(), "", path, DeviceMounterArgs(reconstructed_volume=True))
        world.plugin.new_device_unmounter().unmount_device(path)
        assert world.node.calls[-1] == "NodeUnstageVolume" and world.node.staged == {}
        assert not (tmp_path / "driver/hash").exists()
