"""Test CSI volumes in pods' directories.

Go: pkg/volume/csi/csi_mounter_test.go, pkg/volume/csi/csi_util_test.go
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import Action
from pkg.csi_spec import csi_pb2
from pkg.mount_utils import MountPoint
from pkg.util import grpcstatus
from pkg.volume.csi import csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_attacher import get_attachment_name, make_device_mount_path
from pkg.volume.csi.testing import NODE_NAME, TEST_DRIVER, TEST_VOL, FakeNode, TestPlugin
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import MounterArgs

POD_UID = types.UID("pod-uid")

BOTH = [storagev1.VOLUME_LIFECYCLE_PERSISTENT, storagev1.VOLUME_LIFECYCLE_EPHEMERAL]
POD = v1.Pod(
    metadata=metav1.ObjectMeta(name="test-pod", namespace="test-ns", uid=types.UID("pod-uid")),
    spec=v1.PodSpec(service_account_name="test-account"),
)
POD_INFO = {
    "csi.storage.k8s.io/pod.name": "test-pod",
    "csi.storage.k8s.io/pod.namespace": "test-ns",
    "csi.storage.k8s.io/pod.uid": "pod-uid",
    "csi.storage.k8s.io/serviceAccount.name": "test-account",
}
TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"


def driver(**spec: Any) -> storagev1.CSIDriver:
    """Return a CSIDriver object with the defaults of the API server."""
    defaults: dict[str, Any] = {
        "attach_required": False,
        "pod_info_on_mount": False,
        "fs_group_policy": storagev1.READ_WRITE_ONCE_WITH_FS_TYPE_FS_GROUP_POLICY,
        "volume_lifecycle_modes": BOTH,
    }
    spec = defaults | spec
    return storagev1.CSIDriver(metadata=metav1.ObjectMeta(name=TEST_DRIVER), spec=storagev1.CSIDriverSpec(**spec))


def pv_spec(read_only: bool = False, **spec: Any) -> Spec:
    source = v1.CSIPersistentVolumeSource(
        driver=TEST_DRIVER,
        volume_handle=TEST_VOL,
        fs_type=spec.pop("fs_type", ""),
        volume_attributes=spec.pop("volume_attributes", {}),
        node_publish_secret_ref=spec.pop("secret", None),
    )
    spec.setdefault("access_modes", [v1.READ_WRITE_ONCE])
    pv = v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="test-pv"), spec=v1.PersistentVolumeSpec(csi=source, **spec)
    )
    return Spec(persistent_volume=pv, read_only=read_only)


def inline_spec(**source: Any) -> Spec:
    return Spec(v1.Volume(name="inline", csi=v1.CSIVolumeSource(driver=TEST_DRIVER, **source)))


def test_get_path(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        expected = f"{tmp_path}/pods/pod-uid/volumes/kubernetes.io~csi/test-pv/mount"
        assert world.plugin.new_mounter(pv_spec(), POD).get_path() == expected


def test_volume_can_be_taken_away_once_its_directory_can_be_removed(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        mounter.set_up(MounterArgs())
        directory = Path(mounter.get_path()).parent
        (directory / "notes").write_text("of somebody else")
        for _ in range(2):
            with pytest.raises(OSError, match="failed to delete volume path"):
                world.plugin.new_unmounter("test-pv", POD_UID).tear_down()
        (directory / "notes").unlink()
        world.plugin.new_unmounter("test-pv", POD_UID).tear_down()
        assert not directory.exists()


def test_set_up(tmp_path: Path) -> None:
    secret = v1.Secret(metadata=metav1.ObjectMeta(name="publish", namespace="ns"), data={"key": b"value"})
    spec = pv_spec(
        read_only=True,
        fs_type="zfs",
        mount_options=["noatime"],
        volume_attributes={"foo": "bar"},
        secret=v1.SecretReference(name="publish", namespace="ns"),
        access_modes=[v1.READ_ONLY_MANY],
    )
    with TestPlugin(tmp_path) as world:
        world.client.add(secret)
        world.attach(devicePath="/dev/sdx")
        mounter = world.plugin.new_mounter(spec, POD)
        mounter.set_up(MounterArgs(fs_group=2000, selinux_label="s0"))
        published = world.node.published[TEST_VOL]
        assert published.path == mounter.get_path()
        assert published.device_mount_path == make_device_mount_path(world.plugin, spec)
        assert published.publish_context == {"devicePath": "/dev/sdx"}
        assert published.volume_context == {"foo": "bar"}
        assert published.secrets == {"key": "value"}
        assert (published.fs_type, published.access_mode) == ("zfs", "MULTI_NODE_READER_ONLY")
        assert published.mount_flags == ["noatime"]
        assert published.read_only
        assert mounter.get_attributes().read_only and not mounter.get_attributes().managed
        directory = Path(mounter.get_path()).parent
        assert directory.stat().st_mode & 0o777 == 0o750
        assert json.loads((directory / "vol_data.json").read_text()) == {
            "specVolID": "test-pv",
            "volumeHandle": TEST_VOL,
            "driverName": TEST_DRIVER,
            "nodeName": NODE_NAME,
            "volumeLifecycleMode": "Persistent",
            "attachmentID": get_attachment_name(TEST_VOL, TEST_DRIVER, NODE_NAME),
        }
        assert sorted(os.listdir(directory)) == ["mount", "vol_data.json"]


def test_spec_is_not_changed(tmp_path: Path) -> None:
    spec = pv_spec(volume_attributes={"foo": "bar"}, mount_options=["noatime"])
    with TestPlugin(tmp_path, None, driver(pod_info_on_mount=True, se_linux_mount=True)) as world:
        world.plugin.new_mounter(spec, POD).set_up(MounterArgs(selinux_label="s0"))
    assert spec == pv_spec(volume_attributes={"foo": "bar"}, mount_options=["noatime"])


@pytest.mark.parametrize(
    ("objects", "attributes", "expected"),
    [
        pytest.param([driver()], {}, {}, id="no pod info"),
        pytest.param([], {}, {}, id="no object: no pod info"),
        pytest.param([driver(pod_info_on_mount=None)], {}, {}, id="object that does not say"),
        pytest.param([driver()], {"foo": "bar"}, {"foo": "bar"}, id="attributes are kept"),
        pytest.param(
            [driver(pod_info_on_mount=True)],
            {"foo": "bar"},
            {"foo": "bar", **POD_INFO, "csi.storage.k8s.io/ephemeral": "false"},
            id="pod info is added",
        ),
    ],
)
def test_pod_info(
    tmp_path: Path, objects: list[storagev1.CSIDriver], attributes: dict[str, str], expected: dict[str, str]
) -> None:
    with TestPlugin(tmp_path, None, *objects) as world:
        world.attach()
        world.plugin.new_mounter(pv_spec(volume_attributes=attributes), POD).set_up(MounterArgs())
        assert world.node.published[TEST_VOL].volume_context == expected


@pytest.mark.parametrize(
    ("supported", "label", "expected"),
    [(True, "s0,c0", ['context="s0,c0"']), (False, "s0,c0", []), (None, "s0,c0", []), (True, "", [])],
)
def test_selinux_mount_option(tmp_path: Path, supported: bool | None, label: str, expected: list[str]) -> None:
    with TestPlugin(tmp_path, None, driver(se_linux_mount=supported)) as world:
        mounter = world.plugin.new_mounter(pv_spec(mount_options=["noatime"]), POD)
        mounter.set_up(MounterArgs(selinux_label=label))
        assert world.node.published[TEST_VOL].mount_flags == ["noatime", *expected]
        data = csi_util.load_volume_data(os.path.dirname(mounter.get_path()), "vol_data.json")
        assert data.get("seLinuxMountContext", "") == (label if expected else "")


def test_inline_volume(tmp_path: Path) -> None:
    reference = v1.LocalObjectReference(name="publish")
    secret = v1.Secret(metadata=metav1.ObjectMeta(name="publish", namespace="test-ns"), data={"a": b"b"})
    spec = inline_spec(
        fs_type="ext4", volume_attributes={"foo": "bar"}, node_publish_secret_ref=reference, read_only=True
    )
    with TestPlugin(tmp_path, None, driver(pod_info_on_mount=True, attach_required=True)) as world:
        world.client.add(secret)
        mounter = world.plugin.new_mounter(spec, POD)
        mounter.set_up(MounterArgs())
        handle = f"csi-{hashlib.sha256(b'pod-uidinline').hexdigest()}"
        published = world.node.published[handle]
        assert published.volume_context == {"foo": "bar", **POD_INFO, "csi.storage.k8s.io/ephemeral": "true"}
        assert published.device_mount_path == "" and published.publish_context == {}
        assert (published.fs_type, published.access_mode) == ("ext4", "SINGLE_NODE_WRITER")
        assert published.secrets == {"a": "b"} and published.read_only
        data = csi_util.load_volume_data(os.path.dirname(mounter.get_path()), "vol_data.json")
        assert (data["volumeLifecycleMode"], data["volumeHandle"]) == ("Ephemeral", handle)


@pytest.mark.parametrize(
    ("objects", "spec", "expected"),
    [
        pytest.param(
            [],
            inline_spec(),
            'check volume lifecycle mode: volume mode "Ephemeral" not supported by driver test-driver '
            r"\(no CSIDriver object\)",
            id="inline without an object",
        ),
        pytest.param(
            [driver(volume_lifecycle_modes=["Persistent"])],
            inline_spec(),
            r'volume mode "Ephemeral" not supported by driver test-driver \(only supports \["Persistent"\]\)',
            id="inline where only persistent ones are known",
        ),
        pytest.param(
            [driver(volume_lifecycle_modes=["Ephemeral"])],
            pv_spec(),
            r'volume mode "Persistent" not supported by driver test-driver \(only supports \["Ephemeral"\]\)',
            id="persistent where only inline ones are known",
        ),
        pytest.param(
            [driver(fs_group_policy=None)],
            pv_spec(),
            "failed to check fsGroup policy: .*expected valid fsGroupPolicy, received nil value or empty string",
            id="no fsGroup policy",
        ),
        pytest.param([], pv_spec(), 'failed to fetch publishContext: .*"csi-.*" not found', id="not attached"),
        pytest.param(
            [driver()],
            pv_spec(secret=v1.SecretReference(name="none", namespace="ns")),
            "fetching NodePublishSecretRef ns/none failed: .*failed to find the secret none in the namespace ns",
            id="no secret",
        ),
    ],
)
def test_what_may_be_different_later(
    tmp_path: Path, objects: list[storagev1.CSIDriver], spec: Spec, expected: str
) -> None:
    with TestPlugin(tmp_path, None, *objects) as world:
        mounter = world.plugin.new_mounter(spec, POD)
        with pytest.raises(volumetypes.TransientOperationFailure, match=expected):
            mounter.set_up(MounterArgs())
        assert world.node.calls == []
        assert not os.path.exists(mounter.get_path())


def test_set_up_before_the_driver_has_registered(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.plugin.csi_drivers.clear()
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        with pytest.raises(
            volumetypes.TransientOperationFailure,
            match=r"^kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name test-driver not found in",
        ):
            mounter.set_up(MounterArgs())
        world.register(TEST_DRIVER)
        world.attach()
        mounter.set_up(MounterArgs())
        assert TEST_VOL in world.node.published


def test_volume_whose_driver_has_not_been_asked_has_no_directory(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        world.attach()
        mounter = world.plugin.new_mounter(pv_spec(secret=v1.SecretReference(name="none", namespace="ns")), POD)
        with pytest.raises(volumetypes.TransientOperationFailure, match="failed to find the secret"):
            mounter.set_up(MounterArgs())
        assert not Path(mounter.get_path()).parent.exists()


def test_last_question_to_a_driver_before_it_would_be_asked_to_publish_fails(tmp_path: Path) -> None:
    """If the last request before the publish call fails, no directory of the volume stays.

    Nothing would ever unpublish the volume, and the pod's directory could not be removed.
    """

    class Failing(FakeNode):
        questions = 0

        def NodeGetCapabilities(self, request: Any, context: Any) -> Any:
            self.questions += 1
            if self.questions == 3:
                context.abort(grpc.StatusCode.INTERNAL, "not now")
            return super().NodeGetCapabilities(request, context)

    with TestPlugin(tmp_path, Failing("STAGE_UNSTAGE_VOLUME"), driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        with pytest.raises(volumetypes.TransientOperationFailure, match="not now"):
            mounter.set_up(MounterArgs())
        assert not Path(mounter.get_path()).parent.exists()
        mounter.set_up(MounterArgs())
        assert TEST_VOL in world.node.published


def test_secret_that_is_no_text(tmp_path: Path) -> None:
    reference = v1.SecretReference(name="binary", namespace="ns")
    with TestPlugin(tmp_path, None, driver()) as world:
        world.client.add(v1.Secret(metadata=metav1.ObjectMeta(name="binary", namespace="ns"), data={"a": b"\xff"}))
        with pytest.raises(
            volumetypes.TransientOperationFailure, match="binary in the namespace ns has a value that is not text"
        ):
            world.plugin.new_mounter(pv_spec(secret=reference), POD).set_up(MounterArgs())


@pytest.mark.parametrize(
    ("code", "args", "kept"),
    [
        pytest.param("DEADLINE_EXCEEDED", MounterArgs(), True, id="it may still be at it"),
        pytest.param("UNAVAILABLE", MounterArgs(), True, id="the driver died"),
        pytest.param("INVALID_ARGUMENT", MounterArgs(), False, id="it will not"),
        pytest.param("INVALID_ARGUMENT", MounterArgs(reconstructed_volume=True), True, id="found after a restart"),
        pytest.param("INVALID_ARGUMENT", MounterArgs(is_remount=True), True, id="the pod has it already"),
    ],
)
def test_publishing_fails(tmp_path: Path, code: str, args: MounterArgs, kept: bool) -> None:
    with TestPlugin(tmp_path, None, driver()) as world:
        world.node.errors["NodePublishVolume"] = (grpc.StatusCode[code], "mount failed")
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        with pytest.raises(Exception, match="desc = mount failed") as raised:
            mounter.set_up(args)
        final = code == "INVALID_ARGUMENT"
        assert isinstance(raised.value, grpcstatus.StatusError if final else volumetypes.UncertainProgressError)
        directory = Path(mounter.get_path()).parent
        assert (directory / "vol_data.json").exists() is kept
        assert directory.exists() is kept


@pytest.mark.parametrize("published", [True, False])
def test_volume_that_is_published_is_not_forgotten_when_the_disk_is_full(tmp_path: Path, published: bool) -> None:
    with TestPlugin(tmp_path, None, driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        if published:
            mounter.set_up(MounterArgs())
        directory = Path(mounter.get_path()).parent
        if published:
            (directory / "vol_data.json").write_text("{}")
        (directory / "vol_data.json.incomplete").mkdir(parents=True)
        with pytest.raises(volumetypes.TransientOperationFailure, match="failed to save volume data file"):
            mounter.set_up(MounterArgs())
        assert (directory / "vol_data.json").exists() is published


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_driver_that_dies_after_it_was_asked_to_publish(tmp_path: Path, code: grpc.StatusCode) -> None:
    """A driver's error in a later call says nothing about the first call: the volume may be published."""
    with TestPlugin(tmp_path, FakeNode("STAGE_UNSTAGE_VOLUME"), driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        for method, error in (("NodePublishVolume", grpc.StatusCode.DEADLINE_EXCEEDED), ("NodeGetCapabilities", code)):
            world.node.errors = {method: (error, "no")}
            with pytest.raises(Exception, match="desc = no") as raised:
                mounter.set_up(MounterArgs())
            assert not volumetypes.is_operation_finished_error(raised.value)
        assert (Path(mounter.get_path()).parent / "vol_data.json").exists()


def test_driver_that_dies_while_it_publishes(tmp_path: Path) -> None:
    died: list[Callable[[], object]] = []

    class Dying(FakeNode):
        def NodePublishVolume(self, request: Any, context: Any) -> Any:
            answer = super().NodePublishVolume(request, context)
            died[0]()
            return answer

    node = Dying("STAGE_UNSTAGE_VOLUME")
    with TestPlugin(tmp_path, node, driver()) as world:
        died.append(world.kill)
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        with pytest.raises(volumetypes.UncertainProgressError, match=r"code = (Unavailable|Canceled)"):
            mounter.set_up(MounterArgs())
        assert os.path.isdir(mounter.get_path())
        assert (Path(mounter.get_path()).parent / "vol_data.json").exists(), "the unmount needs the data file"


FS_GROUP_CASES = [
    pytest.param("ext4", None, [v1.READ_WRITE_ONCE], False, None, False, id="no group"),
    pytest.param("", 3000, [v1.READ_WRITE_ONCE], False, None, False, id="no file system type"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_MANY, v1.READ_ONLY_MANY], False, None, False, id="many nodes"),
    pytest.param("ext4", 3000, [], False, None, False, id="no access modes"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE], True, None, False, id="read-only"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE], False, None, True, id="one node"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE_POD], False, None, True, id="one pod"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE], False, "ReadWriteOnceWithFSType", True, id="policy of old"),
    pytest.param("", 3000, [v1.READ_WRITE_MANY], False, "File", True, id="File: always"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE], True, "File", False, id="File: not read-only"),
    pytest.param("ext4", 3000, [v1.READ_WRITE_ONCE], False, "None", False, id="None: never"),
]


@pytest.mark.parametrize(("fs_type", "fs_group", "modes", "read_only", "policy", "changed"), FS_GROUP_CASES)
def test_fs_group(
    tmp_path: Path,
    fs_type: str,
    fs_group: int | None,
    modes: list[str],
    read_only: bool,
    policy: str | None,
    changed: bool,
) -> None:
    if os.geteuid() != 0 and changed:
        pytest.skip("giving files to another group takes root")
    objects = [driver(fs_group_policy=policy)] if policy is not None else []
    with TestPlugin(tmp_path, None, *objects) as world:
        world.attach()
        mounter = world.plugin.new_mounter(pv_spec(read_only, fs_type=fs_type, access_modes=modes), POD)
        mounter.set_up(MounterArgs(fs_group=fs_group))
        assert (Path(mounter.get_path()).stat().st_gid == 3000) is changed
        assert world.node.published[TEST_VOL].volume_mount_group == ""


def test_fs_group_of_an_inline_volume(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to another group takes root")
    with TestPlugin(tmp_path, None, driver()) as world:
        mounter = world.plugin.new_mounter(inline_spec(fs_type="ext4"), POD)
        mounter.set_up(MounterArgs(fs_group=3000))
        assert Path(mounter.get_path()).stat().st_gid == 3000


@pytest.mark.parametrize(("fs_group", "expected"), [(3000, "3000"), (None, "")])
def test_fs_group_is_the_drivers_matter(tmp_path: Path, fs_group: int | None, expected: str) -> None:
    node = FakeNode("VOLUME_MOUNT_GROUP")
    with TestPlugin(tmp_path, node, driver(fs_group_policy="File")) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        mounter.set_up(MounterArgs(fs_group=fs_group))
        assert node.published[TEST_VOL].volume_mount_group == expected
        assert Path(mounter.get_path()).stat().st_gid != 3000


def test_volume_that_cannot_be_given_to_the_group_is_there_all_the_same(tmp_path: Path) -> None:
    class Faulty(FakeNode):
        """Report a publication without creating anything at the path."""

        def NodePublishVolume(self, request: Any, context: Any) -> Any:
            answer = super().NodePublishVolume(request, context)
            os.rmdir(request.target_path)
            return answer

    with TestPlugin(tmp_path, Faulty(), driver(fs_group_policy="File")) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        with pytest.raises(volumetypes.UncertainProgressError, match="applyFSGroup failed for vol vol-123: "):
            mounter.set_up(MounterArgs(fs_group=3000))
        assert (Path(mounter.get_path()).parent / "vol_data.json").exists()


@pytest.mark.parametrize(
    ("audiences", "in_secrets", "expected"),
    [
        ([], None, None),
        ([""], None, '{"":{"token":"test-ns:test-account:3600:[]","expirationTimestamp":"1970-01-01T00:00:01Z"}}'),
        (
            ["gcp", "aws"],
            None,
            '{"aws":{"token":"test-ns:test-account:3600:[aws]","expirationTimestamp":"1970-01-01T00:00:01Z"},'
            '"gcp":{"token":"test-ns:test-account:3600:[gcp]","expirationTimestamp":"1970-01-01T00:00:01Z"}}',
        ),
        (
            ["gcp"],
            True,
            '{"gcp":{"token":"test-ns:test-account:3600:[gcp]","expirationTimestamp":"1970-01-01T00:00:01Z"}}',
        ),
    ],
)
def test_pod_service_account_token_attrs(
    tmp_path: Path, audiences: list[str], in_secrets: bool | None, expected: str | None
) -> None:
    requests = [storagev1.TokenRequest(audience=audience, expiration_seconds=3600) for audience in audiences]
    asked: list[authenticationv1.TokenRequest] = []

    def issue(action: Action) -> tuple[bool, authenticationv1.TokenRequest]:
        request = action.object
        asked.append(request)
        spec = request.spec
        token = f"{action.namespace}:{action.name}:{spec.expiration_seconds}:[{' '.join(spec.audiences)}]"
        expires = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        request.status = authenticationv1.TokenRequestStatus(token=token, expiration_timestamp=expires)
        return True, request

    objects = driver(token_requests=requests, service_account_token_in_secrets=in_secrets)
    with TestPlugin(tmp_path, None, objects) as world:
        world.client.prepend_reactor("create", "serviceaccounts/token", issue)
        mounter = world.plugin.new_mounter(inline_spec(), POD)
        mounter.set_up(MounterArgs())
        published = next(iter(world.node.published.values()))
    place, other = (
        (published.secrets, published.volume_context) if in_secrets else (published.volume_context, published.secrets)
    )
    assert place == ({TOKENS: expected} if expected is not None else {})
    assert other == {}
    for request in asked:
        assert request.spec.bound_object_ref == authenticationv1.BoundObjectReference(
            api_version="v1", kind="Pod", name="test-pod", uid=types.UID("pod-uid")
        )


def test_tokens_that_are_not_given(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver(token_requests=[storagev1.TokenRequest(audience="a")])) as world:
        world.client.prepend_reactor("create", "serviceaccounts/token", lambda action: (True, OSError("away")))
        with pytest.raises(
            volumetypes.TransientOperationFailure, match="failed to get service accoount token attributes: away"
        ):
            world.plugin.new_mounter(inline_spec(), POD).set_up(MounterArgs())


def test_tear_down(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        mounter.set_up(MounterArgs())
        unmounter = world.plugin.new_unmounter("test-pv", POD_UID)
        world.plugin.csi_drivers.clear()
        with pytest.raises(volumetypes.TransientOperationFailure, match="TearDownAt failed to get CSI client: driver"):
            unmounter.tear_down()
        world.register(TEST_DRIVER)
        unmounter.tear_down()
        assert world.node.calls[-1] == "NodeUnpublishVolume"
        assert world.node.published == {}
        assert not Path(mounter.get_path()).parent.exists()
        unmounter.tear_down()


def test_tear_down_fails(tmp_path: Path) -> None:
    with TestPlugin(tmp_path, None, driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        mounter.set_up(MounterArgs())
        world.node.errors["NodeUnpublishVolume"] = (grpc.StatusCode.UNAVAILABLE, "no")
        unmounter = world.plugin.new_unmounter("test-pv", POD_UID)
        with pytest.raises(
            csierrors.DriverCallError, match=r"TearDownAt failed: rpc error: code = Unavailable desc = no"
        ):
            unmounter.tear_down()
        assert (Path(mounter.get_path()).parent / "vol_data.json").exists()


def test_tear_down_leaves_what_is_mounted(tmp_path: Path) -> None:
    class Lying(FakeNode):
        def NodeUnpublishVolume(self, request: Any, context: Any) -> Any:
            return csi_pb2.NodeUnpublishVolumeResponse()

    with TestPlugin(tmp_path, Lying(), driver()) as world:
        mounter = world.plugin.new_mounter(pv_spec(), POD)
        mounter.set_up(MounterArgs())
        world.host.mounter.mount_points.append(MountPoint("/dev/x", mounter.get_path(), "ext4", ()))
        with pytest.raises(OSError, match="the driver has left something mounted"):
            world.plugin.new_unmounter("test-pv", POD_UID).tear_down()
        assert (Path(mounter.get_path()).parent / "vol_data.json").exists(), "the volume is still mounted"
        world.host.mounter.mount_points.clear()
        world.plugin.new_unmounter("test-pv", POD_UID).tear_down()
        assert not Path(mounter.get_path()).parent.exists(), "the kubelet removes what the driver has left"


def test_new_unmounter_without_data(tmp_path: Path) -> None:
    with TestPlugin(tmp_path) as world:
        with pytest.raises(FileNotFoundError, match="unmounter failed to load volume data file"):
            world.plugin.new_unmounter("test-pv", POD_UID)
        directory = tmp_path / "pods/pod-uid/volumes/kubernetes.io~csi/test-pv"
        directory.mkdir(parents=True)
        for content in (b"{", b"[]", b'{"a":1}', b"\xff", b"[" * 100_000):
            (directory / "vol_data.json").write_bytes(content)
            with pytest.raises(ValueError, match="failed to parse volume data file"):
                world.plugin.new_unmounter("test-pv", POD_UID)


def test_volume_data_is_whole_or_old(tmp_path: Path) -> None:
    csi_util.save_volume_data(str(tmp_path), "vol_data.json", {"b": "ü", "a": "1"})
    assert (tmp_path / "vol_data.json").read_text() == '{"a":"1","b":"ü"}\n'
    (tmp_path / "vol_data.json.incomplete").write_text('{"a"')
    assert csi_util.load_volume_data(str(tmp_path), "vol_data.json") == {"a": "1", "b": "ü"}
    csi_util.remove_volume_data(str(tmp_path), "vol_data.json")
    csi_util.remove_volume_data(str(tmp_path), "vol_data.json")
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="failed to save volume data file"):
        csi_util.save_volume_data(str(tmp_path / "none"), "vol_data.json", {})


def test_volume_data_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").read_text()))
    replaced: list[list[str]] = []
    monkeypatch.setattr(Path, "replace", lambda file, target: replaced.append([*synced]))
    csi_util.save_volume_data(str(tmp_path), "vol_data.json", {"a": "1"})
    assert replaced == [['{"a":"1"}\n']]
