"""Test projected volumes.

Go: pkg/volume/projected/projected_test.go
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import errors as utilerrors
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.golang.testing import frames_kept_after
from pkg.volume import MounterArgs, Spec
from pkg.volume.projected import projected
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.atomic_writer import FileProjection

SECRET = v1.Secret(metadata=metav1.ObjectMeta(namespace="ns", name="s"), data={"user": b"admin", "word": b"x"})
CONFIG_MAP = v1.ConfigMap(
    metadata=metav1.ObjectMeta(namespace="ns", name="m"), data={"a": "1"}, binary_data={"b": b"2"}
)


def _token(action: Action) -> tuple[bool, object]:
    """Return a token that contains the request's arguments."""
    request = action.object
    seconds = request.spec.expiration_seconds
    audiences = request.spec.audiences or ["https://api"]
    bound = request.spec.bound_object_ref
    request.status.token = f"{action.namespace}:{action.name}:{seconds or 3600}:{audiences}:{bound.kind}:{bound.uid}"
    return True, request


class World:
    """Hold a pod with a projected volume."""

    def __init__(self, root: Path, *sources: v1.VolumeProjection, default_mode: int | None = 0o644) -> None:
        self.client = FakeClientset(SECRET, CONFIG_MAP)
        self.client.prepend_reactor("create", "serviceaccounts/token", _token)
        self.host = FakeVolumeHost(str(root), self.client)
        self.host.trust_anchors_by_name = {"bundle": b"PEM of bundle"}
        self.host.trust_anchors_by_signer = {"example.com/signer": b"PEM of signer"}
        self.plugin = projected.ProjectedPlugin()
        self.plugin.init(self.host)
        source = v1.ProjectedVolumeSource(sources=list(sources), default_mode=default_mode)
        self.spec = Spec(v1.Volume(name="v", projected=source))
        self.pod = v1.Pod(
            metadata=metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u"), labels={"a": "1"}),
            spec=v1.PodSpec(service_account_name="sa"),
        )
        self.path = root / "pods/u/volumes/kubernetes.io~projected/v"

    def collect(self, **args: int | None) -> dict[str, FileProjection]:
        mounter = self.plugin.new_mounter(self.spec, self.pod)
        return mounter.collect_data(MounterArgs(**args))  # type: ignore[arg-type]

    def set_up(self, **args: object) -> None:
        self.plugin.new_mounter(self.spec, self.pod).set_up(MounterArgs(**args))  # type: ignore[arg-type]

    def contents(self) -> dict[str, str]:
        return {name: (self.path / name).read_text() for name in os.listdir(self.path) if not name.startswith("..")}


def of_secret(name: str = "s", *items: v1.KeyToPath, optional: bool | None = None) -> v1.VolumeProjection:
    return v1.VolumeProjection(secret=v1.SecretProjection(name=name, items=list(items), optional=optional))


def of_config_map(name: str = "m", *items: v1.KeyToPath, optional: bool | None = None) -> v1.VolumeProjection:
    return v1.VolumeProjection(config_map=v1.ConfigMapProjection(name=name, items=list(items), optional=optional))


def of_pod(path: str, field_path: str) -> v1.VolumeProjection:
    item = v1.DownwardAPIVolumeFile(path=path, field_ref=v1.ObjectFieldSelector(field_path=field_path))
    return v1.VolumeProjection(downward_api=v1.DownwardAPIProjection(items=[item]))


def of_token(path: str = "token", audience: str = "", seconds: int | None = None) -> v1.VolumeProjection:
    return v1.VolumeProjection(
        service_account_token=v1.ServiceAccountTokenProjection(path=path, audience=audience, expiration_seconds=seconds)
    )


def of_bundle(**fields: object) -> v1.VolumeProjection:
    source = v1.ClusterTrustBundleProjection(path="ca.pem", **fields)  # type: ignore[arg-type]
    return v1.VolumeProjection(cluster_trust_bundle=source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(of_secret(), {"user": b"admin", "word": b"x"}, id="secret"),
        pytest.param(of_secret("s", v1.KeyToPath(key="user", path="a/b")), {"a/b": b"admin"}, id="item of a secret"),
        pytest.param(of_secret("none", optional=True), {}, id="optional secret"),
        pytest.param(
            of_secret("s", v1.KeyToPath(key="none", path="x"), optional=True), {}, id="optional key of a secret"
        ),
        pytest.param(of_config_map(), {"a": b"1", "b": b"2"}, id="config map"),
        pytest.param(of_config_map("m", v1.KeyToPath(key="b", path="x")), {"x": b"2"}, id="item of a config map"),
        pytest.param(of_config_map("none", optional=True), {}, id="optional config map"),
        pytest.param(of_pod("labels", "metadata.labels"), {"labels": b'a="1"'}, id="field of the pod"),
        pytest.param(of_bundle(name="bundle"), {"ca.pem": b"PEM of bundle"}, id="trust bundle"),
        pytest.param(of_bundle(signer_name="example.com/signer"), {"ca.pem": b"PEM of signer"}, id="signer"),
        pytest.param(of_bundle(name="none", optional=True), {"ca.pem": b""}, id="optional trust bundle"),
    ],
)
def test_collect_data(tmp_path: Path, source: v1.VolumeProjection, expected: dict[str, bytes]) -> None:
    payload = World(tmp_path, source).collect()
    assert payload == {path: FileProjection(content, 0o644) for path, content in expected.items()}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(of_secret("none"), 'secrets "none" not found', id="secret"),
        pytest.param(
            of_secret("s", v1.KeyToPath(key="zab", path="x")), "references non-existent secret key: zab", id="key"
        ),
        pytest.param(of_config_map("none"), 'configmaps "none" not found', id="config map"),
        pytest.param(
            of_config_map("m", v1.KeyToPath(key="zab", path="x")),
            "configmap references non-existent config key: zab",
            id="key of a config map",
        ),
        pytest.param(of_pod("x", "spec.none"), "unsupported fieldPath: spec.none", id="field"),
        pytest.param(of_bundle(name="none"), 'no trust anchors for "none"', id="trust bundle"),
        pytest.param(
            of_bundle(), "ClusterTrustBundle projection requires either name or signerName to be set", id="no bundle"
        ),
        pytest.param(
            v1.VolumeProjection(pod_certificate=v1.PodCertificateProjection()),
            "PodCertificate projection is not supported",
            id="certificate",
        ),
    ],
)
def test_what_is_missing(tmp_path: Path, source: v1.VolumeProjection, message: str) -> None:
    with pytest.raises(utilerrors.Aggregate) as caught:
        World(tmp_path, of_secret(), source).collect()
    assert str(caught.value) == message


def test_all_that_is_missing_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, of_secret("none"), of_config_map("none"))
    with pytest.raises(utilerrors.Aggregate) as caught:
        world.set_up()
    assert str(caught.value) == '[secrets "none" not found, configmaps "none" not found]'
    assert not world.path.exists()


def test_nothing_is_left_for_the_garbage_collector_of_files_that_are_not_all_there(tmp_path: Path) -> None:
    assert frames_kept_after(World(tmp_path, of_secret(), of_config_map("none")).collect) == []


def test_mode_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no defaultMode used"):
        World(tmp_path, of_token(), default_mode=None).collect()


@pytest.mark.parametrize(
    ("source", "path", "content"),
    [
        pytest.param(of_token("token", "https://example.com", 60), "token", "60:['https://example.com']", id="given"),
        pytest.param(of_token("other-token", "", 60), "other-token", "60:['https://api']", id="audience left out"),
        pytest.param(of_token(), "token", "3600:['https://api']", id="life left out"),
    ],
)
def test_service_account_token(tmp_path: Path, source: v1.VolumeProjection, path: str, content: str) -> None:
    expected = f"ns:sa:{content}:Pod:u"
    assert World(tmp_path, source).collect() == {path: FileProjection(expected.encode(), 0o644)}


@pytest.mark.parametrize(
    ("fs_user", "fs_group", "mode"),
    [(None, None, 0o644), (1000, None, 0o600), (None, 2000, 0o600), (1000, 2000, 0o600)],
)
@pytest.mark.parametrize("source", [of_token("file"), of_bundle(name="bundle")], ids=["token", "bundle"])
def test_owned_files(
    tmp_path: Path, source: v1.VolumeProjection, fs_user: int | None, fs_group: int | None, mode: int
) -> None:
    (projection,) = World(tmp_path, source).collect(fs_user=fs_user, fs_group=fs_group).values()
    assert (projection.mode, projection.fs_user) == (mode, fs_user)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize(
    ("args", "owner", "group", "mode"),
    [({"fs_user": 1000}, 1000, 0, 0o600), ({"fs_group": 2000}, 0, 2000, 0o660), ({}, 0, 0, 0o644)],
)
def test_token_on_disk(tmp_path: Path, args: dict[str, int], owner: int, group: int, mode: int) -> None:
    world = World(tmp_path, of_token())
    world.set_up(**args)
    info = (world.path / "token").stat()
    # The volume is read-only, so the change of ownership adds only read permission for the group.
    expected = 0o640 if "fs_group" in args else mode
    assert (info.st_uid, info.st_gid, info.st_mode & 0o777) == (owner, group, expected)


def test_later_source_wins(tmp_path: Path) -> None:
    world = World(tmp_path, of_pod("a", "metadata.name"), of_config_map())
    assert world.collect()["a"].data == b"1"


def test_set_up_update_and_tear_down(tmp_path: Path) -> None:
    world = World(tmp_path, of_config_map(), of_secret(), of_token(), of_pod("name", "metadata.name"))
    world.set_up()
    assert set(world.contents()) == {"a", "b", "user", "word", "token", "name"}
    assert [point.type for point in world.host.mounter.list()] == ["tmpfs"]
    world.pod.metadata.name = "renamed"
    world.set_up(is_remount=True)
    assert world.contents()["name"] == "renamed"
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not world.path.exists() and world.host.mounter.list() == []
    assert world.host.deleted_token_pods == ["u"]


def test_bad_path_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, of_token("../token"))
    with pytest.raises(ValueError, match=r"must not contain '\.\.'"):
        world.set_up()
    assert not world.path.exists() and world.host.mounter.list() == []


def test_plugin(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.plugin.get_plugin_name() == "kubernetes.io/projected"
    assert world.plugin.get_volume_name(world.spec) == "v"
    assert world.plugin.can_support(world.spec) and not world.plugin.can_support(Spec())
    with pytest.raises(ValueError, match="does not reference a projected"):
        world.plugin.get_volume_name(Spec(v1.Volume()))
    assert world.plugin.can_support(world.plugin.construct_volume_spec("v", "").spec)


def test_standalone_has_what_needs_no_api_server(tmp_path: Path) -> None:
    world = World(tmp_path, of_pod("name", "metadata.name"))
    world.host.kube_client = None
    world.set_up()
    assert world.contents() == {"name": "p"}
