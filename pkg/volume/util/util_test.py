"""Test names, modes and options of volumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume import util
from pkg.volume.plugins import Spec
from pkg.volume.util import nested_volumes


def pv(**fields: object) -> v1.PersistentVolume:
    annotations = fields.pop("annotations", {})
    return v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="pv", annotations=annotations),  # type: ignore[arg-type]
        spec=v1.PersistentVolumeSpec(**fields),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("volume", "options", "expected"),
    [
        (None, ["a"], ["a"]),
        (pv(), ["b", "a"], ["b", "a"]),
        (pv(mount_options=["vers=4", "ro"]), ["ro", "a"], ["a", "ro", "vers=4"]),
        (pv(annotations={v1.MOUNT_OPTION_ANNOTATION: "c,,b"}, mount_options=["no"]), ["a"], ["a", "b", "c"]),
    ],
)
def test_mount_options(volume: v1.PersistentVolume | None, options: list[str], expected: list[str]) -> None:
    assert util.mount_option_from_spec(Spec(persistent_volume=volume), *options) == expected


@pytest.mark.parametrize(
    ("volume", "filesystem"),
    [(None, True), (pv(volume_mode="Filesystem"), True), (pv(volume_mode="Block"), False)],
)
def test_volume_mode(volume: v1.PersistentVolume | None, filesystem: bool) -> None:
    assert util.check_volume_mode_filesystem(Spec(persistent_volume=volume)) == filesystem


def test_volume_that_does_not_tell_its_mode() -> None:
    with pytest.raises(ValueError, match="cannot get volumeMode for volume: pv"):
        util.get_volume_mode(Spec(persistent_volume=pv()))


def test_unique_names() -> None:
    assert util.split_unique_name("kubernetes.io/csi/driver^handle") == ("kubernetes.io/csi", "driver^handle")
    assert util.get_unique_volume_name("kubernetes.io/csi", "x") == "kubernetes.io/csi/x"
    with pytest.raises(ValueError, match="cannot split volume unique name a/b"):
        util.split_unique_name("a/b")


@pytest.mark.parametrize(
    ("users", "expected"),
    [([1000], 1000), ([1000, 1000], 1000), ([1000, 1001], None), ([1000, None], None), ([None], None)],
)
def test_the_one_user_of_a_pod(users: list[int | None], expected: int | None) -> None:
    containers = [
        v1.Container(name=f"c{n}", security_context=v1.SecurityContext(run_as_user=user))
        for n, user in enumerate(users)
    ]
    assert util.fs_user_from(v1.Pod(spec=v1.PodSpec(containers=containers))) == expected


def test_volumes_that_containers_use() -> None:
    label = v1.SELinuxOptions(level="s0:c1,c2")
    pod = v1.Pod(
        spec=v1.PodSpec(
            init_containers=[v1.Container(name="i", volume_mounts=[v1.VolumeMount(name="a", mount_path="/a")])],
            containers=[
                v1.Container(
                    name="c",
                    volume_mounts=[
                        v1.VolumeMount(name="a", mount_path="/a"),
                        v1.VolumeMount(name="b", mount_path="/b"),
                    ],
                    volume_devices=[v1.VolumeDevice(name="d", device_path="/dev/d")],
                    security_context=v1.SecurityContext(se_linux_options=label),
                )
            ],
        )
    )
    assert util.get_pod_volume_names(pod) == ({"a", "b"}, {"d"}, {})
    assert util.get_pod_volume_names(pod, True)[2] == {"a": [label], "b": [label]}


@pytest.mark.parametrize(
    ("path", "refs", "expected"),
    [
        ("/var/lib/kubelet/plugins/kubernetes.io/p/mounts/v", [], False),
        (
            "/var/lib/kubelet/plugins/kubernetes.io/p/mounts/v",
            ["/mnt/other/kubelet/plugins/kubernetes.io/p/mounts/v"],
            False,
        ),
        ("/var/lib/kubelet/plugins/kubernetes.io/p/mounts/v", ["/data/manual"], True),
        ("/some/where", ["/host/some/where"], False),
        ("/some/where", ["/host/some/where", "/else"], True),
    ],
)
def test_mounts_that_are_not_the_kubelets(path: str, refs: list[str], expected: bool) -> None:
    assert util.has_mount_refs(path, refs) == expected


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (Spec(), True),
        (Spec(volume=v1.Volume(name="v", cinder=v1.CinderVolumeSource(volume_id="x"))), False),
        (Spec(persistent_volume=pv()), True),
        (Spec(persistent_volume=pv(access_modes=[v1.READ_WRITE_ONCE])), False),
        (Spec(persistent_volume=pv(access_modes=[v1.READ_WRITE_ONCE, v1.READ_ONLY_MANY])), True),
        (Spec(persistent_volume=pv(access_modes=[v1.READ_WRITE_MANY])), True),
    ],
)
def test_volumes_that_may_be_attached_to_several_nodes(spec: Spec, allowed: bool) -> None:
    assert util.is_multi_attach_allowed(spec) == allowed


def test_ready(tmp_path: Path) -> None:
    assert not util.is_ready(str(tmp_path / "meta"))
    util.set_ready(str(tmp_path / "meta"))
    assert util.is_ready(str(tmp_path / "meta"))


@pytest.mark.parametrize(("path", "expected"), [("a/../b", "/b"), ("/a//b/", "/a/b"), ("", "/")])
def test_absolute_paths(path: str, expected: str) -> None:
    assert util.make_absolute_path(path) == expected


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ({}, []),
        ({"vol1": ["/dir"], "vol2": ["/dir/nested"]}, ["nested"]),
        (
            {"vol1": ["/dir"], "vol2": ["/dir/nested/double", "/dir/nested-vol", "/dir/nested.vol", "/dir/nested"]},
            ["nested", "nested-vol", "nested.vol"],
        ),
        ({"vol1": ["/dir", "/other"], "vol2": ["/dir/nested", "/other/nested2"]}, ["nested", "nested2"]),
        ({"vol1": ["/dir"], "vol2": ["/directory/nested"]}, []),
    ],
)
def test_mount_points_below_a_volume(tmp_path: Path, mounts: dict[str, list[str]], expected: list[str]) -> None:
    volume_mounts = [v1.VolumeMount(name=name, mount_path=path) for name, paths in mounts.items() for path in paths]
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="c", volume_mounts=volume_mounts)]))
    util.make_nested_mountpoints("vol1", str(tmp_path), pod)
    assert sorted(path.name for path in tmp_path.iterdir()) == expected


def test_mount_points_of_a_pod_with_very_many() -> None:
    """The search is fast; otherwise the kubelet would need minutes for each attempt."""
    mounts = [v1.VolumeMount(name=name, mount_path=f"/{name}/{i}") for i in range(40_000) for name in ("vol1", "vol2")]
    mounts.append(v1.VolumeMount(name="vol2", mount_path="/vol1/7/x/y"))
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="c", volume_mounts=mounts)]))
    assert nested_volumes.get_nested_mountpoints("vol1", "/", pod) == ["x/y"]


@pytest.mark.parametrize(
    ("path", "below"), [("../../dir", "../../dir/x"), ("..", "../../other/x"), ("a/../..", "../x")]
)
def test_mount_point_outside_of_the_container_is_refused(tmp_path: Path, path: str, below: str) -> None:
    mounts = [v1.VolumeMount(name="vol1", mount_path=path), v1.VolumeMount(name="vol2", mount_path=below)]
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="c", volume_mounts=mounts)]))
    (tmp_path / "volumes/vol1").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"invalid container mount point \.\."):
        util.make_nested_mountpoints("vol1", str(tmp_path / "volumes/vol1"), pod)
    assert [path.name for path in tmp_path.iterdir()] == ["volumes"]
