"""Test the expansion of volumes on the node.

Go: pkg/volume/csi/expander_test.go
"""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.testing import TEST_DRIVER, TEST_VOL, FakeNode, TestPlugin
from pkg.volume.plugins import NodeResizeOptions, Spec
from pkg.volume.util import types as volumetypes


def options(
    mode: str = v1.PERSISTENT_VOLUME_FILESYSTEM, secret: bool = False, driver: str = TEST_DRIVER
) -> NodeResizeOptions:
    reference = v1.SecretReference(name="expand", namespace="ns") if secret else None
    source = v1.CSIPersistentVolumeSource(
        driver=driver, volume_handle=TEST_VOL, fs_type="ext4", node_expand_secret_ref=reference
    )
    pv = v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="test-pv"),
        spec=v1.PersistentVolumeSpec(csi=source, volume_mode=mode, mount_options=["noatime"]),
    )
    return NodeResizeOptions(
        volume_spec=Spec(persistent_volume=pv),
        device_path="/mnt/foobar",
        device_mount_path="/foo/bar",
        device_staging_path="/staging",
        new_size=resource.must_parse("20Gi"),
        old_size=resource.must_parse("10Gi"),
    )


def test_node_expand(tmp_path: Path) -> None:
    node = FakeNode("EXPAND_VOLUME")
    with TestPlugin(tmp_path, node) as world:
        world.client.add(v1.Secret(metadata=metav1.ObjectMeta(name="expand", namespace="ns"), data={"a": b"b"}))
        assert world.plugin.node_expand(options(secret=True))
    request = node.expansion
    assert request is not None
    assert (request.volume_id, request.volume_path, request.staging_target_path) == (TEST_VOL, "/foo/bar", "/staging")
    assert request.capacity_range.required_bytes == 20 * 2**30
    assert dict(request.secrets) == {"a": "b"}
    mount = request.volume_capability.mount
    assert (mount.fs_type, list(mount.mount_flags)) == ("ext4", ["noatime"])


def test_node_expand_of_a_device(tmp_path: Path) -> None:
    node = FakeNode("EXPAND_VOLUME")
    with TestPlugin(tmp_path, node) as world:
        assert world.plugin.node_expand(options("Block"))
    assert node.expansion is not None
    assert node.expansion.volume_path == "/mnt/foobar"
    assert node.expansion.volume_capability.HasField("block")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("FAILED_PRECONDITION", volumetypes.FailedPreconditionError),
        ("INVALID_ARGUMENT", volumetypes.InfeasibleError),
        ("OUT_OF_RANGE", volumetypes.InfeasibleError),
        ("NOT_FOUND", volumetypes.InfeasibleError),
        ("UNAVAILABLE", volumetypes.UncertainProgressError),
        ("INTERNAL", csierrors.DriverCallError),
    ],
)
def test_driver_refuses(tmp_path: Path, code: str, expected: type[Exception]) -> None:
    node = FakeNode("EXPAND_VOLUME")
    node.errors["NodeExpandVolume"] = (grpc.StatusCode[code], "no")
    with (
        TestPlugin(tmp_path, node) as world,
        pytest.raises(expected, match=r"^Expander.NodeExpand failed to expand the volume .*desc = no$"),
    ):
        world.plugin.node_expand(options())


def test_driver_that_cannot(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, FakeNode()) as world:
        with pytest.raises(volumetypes.OperationNotSupportedError, match="not supported by the CSI driver test-driver"):
            world.plugin.node_expand(options())
        with pytest.raises(volumetypes.TransientOperationFailure, match="driver name other not found"):
            world.plugin.node_expand(options(driver="other"))
        world.node.capabilities = ["EXPAND_VOLUME"]
        with pytest.raises(
            volumetypes.TransientOperationFailure, match="failed to get NodeExpandSecretRef ns/expand: "
        ):
            world.plugin.node_expand(options(secret=True))


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL"])
def test_driver_that_does_not_tell_what_it_can_has_not_failed(tmp_path: Path, code: str) -> None:
    """The claim's status must not show a failure, because an earlier attempt may even have succeeded."""
    node = FakeNode("EXPAND_VOLUME")
    node.errors["NodeGetCapabilities"] = (grpc.StatusCode[code], "no")
    with TestPlugin(tmp_path, node) as world, pytest.raises(Exception, match="desc = no") as raised:
        world.plugin.node_expand(options())
    assert not volumetypes.is_operation_finished_error(raised.value)
