"""Test downwardAPI volumes.

Go: pkg/volume/downwardapi/downwardapi_test.go
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import errors as utilerrors
from pkg.golang.testing import frames_kept_after
from pkg.volume import MounterArgs, Spec
from pkg.volume.downwardapi import downwardapi
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.atomic_writer import FileProjection


def field(path: str, field_path: str, mode: int | None = None) -> v1.DownwardAPIVolumeFile:
    return v1.DownwardAPIVolumeFile(path=path, field_ref=v1.ObjectFieldSelector(field_path=field_path), mode=mode)


def amount(path: str, resource: str, container: str = "c") -> v1.DownwardAPIVolumeFile:
    reference = v1.ResourceFieldSelector(container_name=container, resource=resource)
    return v1.DownwardAPIVolumeFile(path=path, resource_field_ref=reference)


def pod() -> v1.Pod:
    limits = {"cpu": parse_quantity("1500m"), "memory": parse_quantity("1Gi")}
    containers = [
        v1.Container(name="c", resources=v1.ResourceRequirements(limits=limits)),
        v1.Container(name="unlimited"),
    ]
    labels, annotations = {"b": "2", "a": "1"}, {"note": 'multi\nline "quoted"'}
    metadata = metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u"), labels=labels, annotations=annotations)
    return v1.Pod(metadata=metadata, spec=v1.PodSpec(containers=containers))


class World:
    """Hold a pod with a downwardAPI volume."""

    def __init__(self, root: Path, *items: v1.DownwardAPIVolumeFile) -> None:
        self.host = FakeVolumeHost(str(root))
        self.host.node_allocatable = {"memory": parse_quantity("8Gi"), "cpu": parse_quantity("4")}
        self.plugin = downwardapi.DownwardAPIPlugin()
        self.plugin.init(self.host)
        source = v1.DownwardAPIVolumeSource(items=list(items), default_mode=0o644)
        self.spec = Spec(v1.Volume(name="v", downward_api=source))
        self.pod = pod()
        self.path = root / "pods/u/volumes/kubernetes.io~downward-api/v"

    def set_up(self, **args: object) -> None:
        self.plugin.new_mounter(self.spec, self.pod).set_up(MounterArgs(**args))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("item", "path", "content"),
    [
        pytest.param(field("labels", "metadata.labels"), "labels", 'a="1"\nb="2"', id="labels"),
        pytest.param(
            field("annotations", "metadata.annotations"),
            "annotations",
            'note="multi\\nline \\"quoted\\""',
            id="annotations",
        ),
        pytest.param(field("name", "metadata.name"), "name", "p", id="name"),
        pytest.param(field("namespace", "metadata.namespace"), "namespace", "ns", id="namespace"),
        pytest.param(field("uid", "metadata.uid"), "uid", "u", id="uid"),
        pytest.param(field("this/is/mine", "metadata.name"), "this/is/mine", "p", id="nested path"),
        pytest.param(field("./unclean//path", "metadata.name"), "unclean/path", "p", id="unclean path"),
        pytest.param(field("one", "metadata.labels['a']"), "one", "1", id="one label"),
        pytest.param(field("one", "metadata.annotations['none']"), "one", "", id="annotation that is not there"),
        pytest.param(amount("cpu", "limits.cpu"), "cpu", "2", id="processors"),
        pytest.param(amount("memory", "limits.memory"), "memory", str(1 << 30), id="memory"),
        pytest.param(amount("memory", "limits.memory", "unlimited"), "memory", str(8 << 30), id="all of the node's"),
    ],
)
def test_content(tmp_path: Path, item: v1.DownwardAPIVolumeFile, path: str, content: str) -> None:
    world = World(tmp_path, item)
    world.set_up()
    assert (world.path / path).read_text() == content
    assert (world.path / path).stat().st_mode & 0o777 == 0o644


def test_modes(tmp_path: Path) -> None:
    payload = downwardapi.collect_data(
        [field("a", "metadata.name", 0o400), field("b", "metadata.name")], pod(), World(tmp_path).host, 0o640
    )
    assert payload == {"a": FileProjection(b"p", 0o400), "b": FileProjection(b"p", 0o640)}


def test_every_fault_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, field("a", "spec.nothing"), field("b", "metadata.name"), amount("c", "limits.cpu", "none"))
    with pytest.raises(utilerrors.Aggregate) as caught:
        world.set_up()
    assert str(caught.value) == "[unsupported fieldPath: spec.nothing, container none not found]"
    assert not world.path.exists()


def test_nothing_is_left_for_the_garbage_collector_of_files_that_are_not_all_there(tmp_path: Path) -> None:
    items, host = [field("b", "metadata.name"), field("a", "spec.nothing")], World(tmp_path).host
    assert frames_kept_after(lambda: downwardapi.collect_data(items, pod(), host, 0o640)) == []


def test_mode_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no defaultMode used"):
        downwardapi.collect_data([], pod(), World(tmp_path).host, None)


def test_changes_reach_the_volume(tmp_path: Path) -> None:
    world = World(tmp_path, field("labels", "metadata.labels"), field("name", "metadata.name"))
    world.set_up()
    before = os.readlink(world.path / "..data")
    world.set_up(is_remount=True)
    assert os.readlink(world.path / "..data") == before
    world.pod.metadata.labels = {"c": "3"}
    world.set_up(is_remount=True)
    assert (world.path / "labels").read_text() == 'c="3"'
    assert os.readlink(world.path / "..data") != before


def test_plugin(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.plugin.get_plugin_name() == "kubernetes.io/downward-api"
    assert world.plugin.get_volume_name(world.spec) == "v"
    assert world.plugin.can_support(world.spec) and not world.plugin.can_support(Spec())
    with pytest.raises(ValueError, match="does not reference a DownwardAPI"):
        world.plugin.get_volume_name(Spec(v1.Volume()))
    assert world.plugin.can_support(world.plugin.construct_volume_spec("v", "").spec)


def test_set_up_and_tear_down_in_memory(tmp_path: Path) -> None:
    world = World(tmp_path, field("name", "metadata.name"))
    world.set_up()
    assert [point.path for point in world.host.mounter.list()] == [str(world.path)]
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert world.host.mounter.list() == [] and not world.path.exists()
