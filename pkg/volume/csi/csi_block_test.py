"""Test CSI volumes that pods use as block devices.

Go: pkg/volume/csi/csi_block_test.go
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once, raising
from pkg.util import procfs
from pkg.volume.csi import csi_client, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_attacher import get_attachment_name
from pkg.volume.csi.csi_block import CSIBlockMapper
from pkg.volume.csi.testing import NODE_NAME, TEST_DRIVER, TEST_VOL, FakeNode, TestPlugin
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes

POD_UID = types.UID("pod-uid")
NO_UID = types.UID("")

POD = v1.Pod(
    metadata=metav1.ObjectMeta(name="test-pod", namespace="test-ns", uid=types.UID("pod-uid")),
    spec=v1.PodSpec(service_account_name="test-account"),
)


def spec(secret: str = "", read_only: bool = False, name: str = "test-pv") -> Spec:
    reference = v1.SecretReference(name=secret, namespace="ns") if secret else None
    source = v1.CSIPersistentVolumeSource(
        driver=TEST_DRIVER,
        volume_handle=TEST_VOL,
        node_stage_secret_ref=reference,
        node_publish_secret_ref=reference,
        volume_attributes={"a": "b"},
    )
    pv = v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name=name),
        spec=v1.PersistentVolumeSpec(csi=source, volume_mode="Block", access_modes=[v1.READ_WRITE_MANY]),
    )
    return Spec(persistent_volume=pv, read_only=read_only)


def driver(**fields: Any) -> storagev1.CSIDriver:
    return storagev1.CSIDriver(metadata=metav1.ObjectMeta(name=TEST_DRIVER), spec=storagev1.CSIDriverSpec(**fields))


def devices(root: Path) -> Path:
    return root / "plugins/kubernetes.io/csi/volumeDevices"


def test_paths(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        assert mapper.get_global_map_path(spec()) == f"{devices(tmp_path)}/test-pv/dev"
        assert mapper.get_staging_path() == f"{devices(tmp_path)}/staging/test-pv"
        expected = (f"{tmp_path}/pods/pod-uid/volumeDevices/kubernetes.io~csi", "test-pv")
        assert mapper.get_pod_device_map_path() == expected
        assert mapper.supports_metrics()


def test_data_of_a_new_mapper(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.plugin.new_block_volume_mapper(spec(), POD)
        data = json.loads((devices(tmp_path) / "test-pv/data/vol_data.json").read_text())
        assert data == {
            "specVolID": "test-pv",
            "volumeHandle": TEST_VOL,
            "driverName": TEST_DRIVER,
            "nodeName": NODE_NAME,
            "attachmentID": get_attachment_name(TEST_VOL, TEST_DRIVER, NODE_NAME),
        }
        rebuilt = world.plugin.construct_block_volume_spec(POD_UID, "test-pv", "/path")
        assert rebuilt.name() == "test-pv" and rebuilt.persistent_volume is not None
        assert rebuilt.persistent_volume.spec.volume_mode == "Block"
        assert rebuilt.persistent_volume.spec.csi == v1.CSIPersistentVolumeSource(
            driver=TEST_DRIVER, volume_handle=TEST_VOL
        )


def test_set_up_and_tear_down(tmp_path: Path) -> None:
    secret = v1.Secret(metadata=metav1.ObjectMeta(name="secret", namespace="ns"), data={"key": b"value"})
    with TestPlugin(tmp_path) as world:
        world.client.add(secret)
        world.attach(devicePath="/dev/sdx")
        mapper = world.plugin.new_block_volume_mapper(spec("secret", read_only=True), POD)
        staging, device = f"{devices(tmp_path)}/staging/test-pv", f"{devices(tmp_path)}/publish/test-pv/pod-uid"
        assert mapper.set_up_device() == staging
        staged = world.node.staged[TEST_VOL]
        assert (staged.path, staged.block, staged.access_mode) == (staging, True, "MULTI_NODE_MULTI_WRITER")
        assert staged.secrets == {"key": "value"} and staged.publish_context == {"devicePath": "/dev/sdx"}
        assert mapper.map_pod_device() == device
        published = world.node.published[TEST_VOL]
        assert (published.path, published.device_mount_path, published.block) == (device, staging, True)
        assert published.secrets == {"key": "value"} and published.publish_context == {"devicePath": "/dev/sdx"}
        assert published.volume_context == {"a": "b"} and published.read_only
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", POD_UID)
        unmapper.unmap_pod_device()
        assert not os.path.exists(device)
        unmapper.tear_down_device(f"{devices(tmp_path)}/test-pv/dev", "")
        assert world.node.calls == [
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
        ]
        assert world.node.staged == {} and world.node.published == {}
        assert sorted(os.listdir(devices(tmp_path))) == ["publish", "staging"]
        assert os.listdir(devices(tmp_path) / "publish") == os.listdir(devices(tmp_path) / "staging") == []


@pytest.mark.parametrize("name", ["staging", "publish"])
def test_volume_with_the_name_of_a_directory_leaves_the_files_of_others(tmp_path: Path, name: str) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        other = devices(tmp_path) / name / "other"
        other.mkdir(parents=True)
        world.plugin.new_block_volume_mapper(spec(name=name), POD).set_up_device()
        world.plugin.new_block_volume_unmapper(name, POD_UID).tear_down_device(f"{devices(tmp_path)}/{name}/dev", "")
        assert other.exists() and not (devices(tmp_path) / name / "data").exists() and world.node.staged == {}


def test_what_a_driver_has_left_mounted_is_not_emptied(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        mounted = Path(mapper.set_up_device(), "mounted")
        mounted.mkdir()
        (mounted / "file").touch()
        world.host.mounter.mount("/dev/x", str(mounted), "ext4", [])
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", NO_UID)
        with pytest.raises(OSError, match=f"{mounted} is a mount point"):
            unmapper.tear_down_device("", "")
        assert (mounted / "file").exists()
        world.host.mounter.unmount(str(mounted))
        unmapper.tear_down_device("", "")
        assert not mounted.exists()


def test_driver_that_stages_nothing(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, FakeNode(), driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        assert mapper.set_up_device() == ""
        mapper.map_pod_device()
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", POD_UID)
        unmapper.unmap_pod_device()
        unmapper.tear_down_device("", "")
        assert world.node.calls == ["NodePublishVolume", "NodeUnpublishVolume"]
        assert not (devices(tmp_path) / "test-pv").exists()


def test_pod_info(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False, pod_info_on_mount=True)) as world:
        world.plugin.new_block_volume_mapper(spec(), POD).map_pod_device()
        assert world.node.published[TEST_VOL].volume_context == {
            "a": "b",
            "csi.storage.k8s.io/pod.name": "test-pod",
            "csi.storage.k8s.io/pod.namespace": "test-ns",
            "csi.storage.k8s.io/pod.uid": "pod-uid",
            "csi.storage.k8s.io/serviceAccount.name": "test-account",
            "csi.storage.k8s.io/ephemeral": "false",
        }


@pytest.mark.parametrize(
    ("code", "kept"), [(grpc.StatusCode.INTERNAL, False), (grpc.StatusCode.DEADLINE_EXCEEDED, True)]
)
def test_files_are_kept_as_long_as_the_device_may_be_staged(tmp_path: Path, code: grpc.StatusCode, kept: bool) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        world.node.errors["NodeStageVolume"] = (code, "no")
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        with pytest.raises(Exception, match="desc = no") as raised:
            mapper.set_up_device()
        assert volumetypes.is_operation_finished_error(raised.value) is not kept
        assert (devices(tmp_path) / "test-pv").exists() is kept
        assert os.path.exists(mapper.get_staging_path()) is kept


def test_device_that_was_staged_before_a_restart_is_unstaged_whatever_the_driver_says(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        world.plugin.new_block_volume_mapper(spec(), POD).set_up_device()
        world.node.errors["NodeStageVolume"] = (grpc.StatusCode.INTERNAL, "no")
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        with pytest.raises(Exception, match="desc = no"):
            mapper.set_up_device(reconstructed_volume=True)
        map_path = mapper.get_global_map_path(spec())
        world.plugin.new_block_volume_unmapper("test-pv", NO_UID).tear_down_device(map_path, "")
        assert world.node.staged == {} and world.node.calls[-1] == "NodeUnstageVolume"


def test_device_may_be_staged_while_the_disk_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may be staged if the disk fails to show whether it is.

    The test covers all versions of Python: from 3.14 on, Path.exists returns False for errors that it raised before.
    """
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        mapper.set_up_device()
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", NO_UID)
        monkeypatch.setattr(Path, "exists", os.path.exists)
        fault = OSError(errno.EIO, os.strerror(errno.EIO))
        monkeypatch.setattr(os, "stat", failing_once(os.stat, fault, about=mapper.get_staging_path()))
        with pytest.raises(OSError, match="Input/output error"):
            unmapper.tear_down_device(mapper.get_global_map_path(spec()), "")
        assert set(world.node.staged) == {TEST_VOL}
        unmapper.tear_down_device(mapper.get_global_map_path(spec()), "")
        assert world.node.staged == {}


def test_it_is_told_that_there_was_no_descriptor_for_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error shows that there was no descriptor for the data.

    Only such an error makes reconstruction try again later; any other failure is final.
    """
    with TestPlugin(tmp_path) as world:
        world.plugin.new_block_volume_mapper(spec(), POD)
        shortage = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        monkeypatch.setattr(csi_util, "save_volume_data", raising(shortage))
        with pytest.raises(OSError, match="failed to save volume info data") as raised:
            world.plugin.new_block_volume_mapper(spec(), POD)
        assert procfs.is_accident(raised.value)


def test_device_is_known_after_a_restart_though_nothing_can_be_written(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.plugin.new_block_volume_mapper(spec(), POD)
        # This directory makes the write fail, as a full disk would.
        (devices(tmp_path) / "test-pv/data/vol_data.json.incomplete").mkdir()
        [staged] = world.plugin.list_staged_volumes()
        world.plugin.new_block_volume_mapper(staged, v1.Pod())
        world.plugin.new_block_volume_unmapper("test-pv", NO_UID)


def test_without_the_driver_all_is_to_be_tried_again(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", POD_UID)
        os.makedirs(mapper.get_staging_path())
        world.plugin.csi_drivers.clear()
        for call in (
            mapper.set_up_device,
            mapper.map_pod_device,
            unmapper.unmap_pod_device,
            lambda: unmapper.tear_down_device("", ""),
        ):
            with pytest.raises(volumetypes.TransientOperationFailure, match="failed to get CSI client: driver name"):
                call()


def test_what_is_missing_in_the_cluster_is_to_be_tried_again(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        mapper = world.plugin.new_block_volume_mapper(spec("none"), POD)
        for call in (mapper.set_up_device, mapper.map_pod_device):
            with pytest.raises(volumetypes.TransientOperationFailure, match="failed to get volume attachment"):
                call()
        world.attach()
        with pytest.raises(volumetypes.TransientOperationFailure, match="failed to get NodeStageSecretRef ns/none"):
            mapper.set_up_device()
        with pytest.raises(volumetypes.TransientOperationFailure, match="failed to get NodePublishSecretRef ns/none"):
            mapper.map_pod_device()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_driver_that_dies_after_it_was_asked_to_stage(tmp_path: Path, code: grpc.StatusCode) -> None:
    """A driver's error in a later call says nothing about the first call: the device may be staged."""
    with TestPlugin(tmp_path, FakeNode("STAGE_UNSTAGE_VOLUME"), driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        for method, error in (("NodeStageVolume", grpc.StatusCode.DEADLINE_EXCEEDED), ("NodeGetCapabilities", code)):
            world.node.errors = {method: (error, "no")}
            with pytest.raises(Exception, match="desc = no") as raised:
                mapper.set_up_device()
            assert not volumetypes.is_operation_finished_error(raised.value)
        assert (devices(tmp_path) / "test-pv/data/vol_data.json").exists(), "the unmount needs the data file"


def test_device_of_which_nobody_can_tell_whether_it_is_staged_is_not_forgotten(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        getter = csi_client.CSIClientGetter(world.plugin.csi_drivers, TEST_DRIVER)
        (devices(tmp_path) / "staging").mkdir(parents=True)
        # As with a disk fault, it is unknown whether a path that is too long exists.
        unmapper = CSIBlockMapper(world.plugin, TEST_DRIVER, TEST_VOL, "a" * 300, types.UID("uid"), getter)
        with pytest.raises(OSError, match="File name too long"):
            unmapper.tear_down_device("", "")


def test_tear_down_fails(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        mapper.set_up_device()
        mapper.map_pod_device()
        unmapper = world.plugin.new_block_volume_unmapper("test-pv", POD_UID)
        world.node.errors = dict.fromkeys(
            ("NodeUnpublishVolume", "NodeUnstageVolume"), (grpc.StatusCode.INTERNAL, "no")
        )
        with pytest.raises(csierrors.DriverCallError, match=r"unpublishVolumeForBlock failed: .* desc = no"):
            unmapper.unmap_pod_device()
        with pytest.raises(csierrors.DriverCallError, match=r"unstageVolumeForBlock failed: .* desc = no"):
            unmapper.tear_down_device("", "")
        assert (devices(tmp_path) / "test-pv/data/vol_data.json").exists(), "the next attempt needs the data file"


@pytest.mark.parametrize("capabilities", [["STAGE_UNSTAGE_VOLUME"], []], ids=["stages", "does not stage"])
def test_device_is_torn_down_again_when_a_step_after_that_failed(tmp_path: Path, capabilities: list[str]) -> None:
    with TestPlugin(tmp_path, FakeNode(*capabilities), driver(attach_required=False)) as world:
        mapper = world.plugin.new_block_volume_mapper(spec(), POD)
        mapper.set_up_device()
        mapper.map_pod_device()
        world.plugin.new_block_volume_unmapper("test-pv", POD_UID).unmap_pod_device()
        map_path = mapper.get_global_map_path(spec())
        for _ in range(2):
            world.plugin.new_block_volume_unmapper("test-pv", NO_UID).tear_down_device(map_path, "")
        assert world.node.staged == {}
        assert world.node.calls.count("NodeUnstageVolume") == len(capabilities)


def test_device_without_data_that_may_be_staged_is_not_torn_down(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(attach_required=False)) as world:
        world.plugin.new_block_volume_mapper(spec(), POD).set_up_device()
        (devices(tmp_path) / "test-pv/data/vol_data.json").unlink()
        with pytest.raises(FileNotFoundError, match="unmapper failed to load volume data file"):
            world.plugin.new_block_volume_unmapper("test-pv", NO_UID)
