"""Tests of emptyDir volumes."""

import os
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.volume import MounterArgs, Spec
from pkg.volume.emptydir import empty_dir
from pkg.volume.testing import FakeVolumeHost


def make(tmp_path: Path, **source: object) -> tuple[FakeVolumeHost, empty_dir.EmptyDirPlugin, Spec, v1.Pod]:
    host = FakeVolumeHost(str(tmp_path))
    plugin = empty_dir.EmptyDirPlugin()
    plugin.init(host)
    spec = Spec(v1.Volume(name="v", empty_dir=v1.EmptyDirVolumeSource(**source)))  # type: ignore[arg-type]
    return host, plugin, spec, v1.Pod(metadata=metav1.ObjectMeta(uid="u"))


def test_directory_is_made_for_everybody_and_removed(tmp_path: Path) -> None:
    _, plugin, spec, pod = make(tmp_path)
    mounter = plugin.new_mounter(spec, pod)
    mounter.set_up(MounterArgs())
    path = tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/v"
    assert mounter.get_path() == str(path) and path.stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "pods/u/plugins/kubernetes.io~empty-dir/v/ready").exists()
    (path / "file").write_text("x")
    plugin.new_unmounter("v", "u").tear_down()
    assert not path.exists() and os.listdir(path.parent) == []


def test_second_set_up_keeps_what_is_inside(tmp_path: Path) -> None:
    _, plugin, spec, pod = make(tmp_path)
    mounter = plugin.new_mounter(spec, pod)
    mounter.set_up(MounterArgs())
    Path(mounter.get_path(), "file").write_text("x")
    mounter.set_up(MounterArgs())
    assert Path(mounter.get_path(), "file").read_text() == "x"


def test_tear_down_of_what_is_gone_is_success(tmp_path: Path) -> None:
    _, plugin, _, _ = make(tmp_path)
    plugin.new_unmounter("v", "u").tear_down()


def test_memory_is_mounted_once_with_its_size_and_unmounted(tmp_path: Path) -> None:
    host, plugin, spec, pod = make(tmp_path, medium="Memory", size_limit=parse_quantity("1Mi"))
    mounter = plugin.new_mounter(spec, pod)
    mounter.set_up(MounterArgs())
    mounter.set_up(MounterArgs())
    (point,) = host.mounter.list()
    assert (point.type, point.options, point.path) == ("tmpfs", ("size=1048576",), mounter.get_path())
    plugin.new_unmounter("v", "u").tear_down()
    assert host.mounter.list() == [] and not os.path.exists(mounter.get_path())


@pytest.mark.parametrize(
    ("node", "pod_limit", "volume_limit", "expected"),
    [
        pytest.param("4Gi", None, None, "4Gi", id="node alone"),
        pytest.param("4Gi", "1Gi", None, "1Gi", id="pod's limit"),
        pytest.param("4Gi", "1Gi", "2Gi", "1Gi", id="volume allows more than the pod"),
        pytest.param("4Gi", "1Gi", "64Mi", "64Mi", id="volume's limit"),
        pytest.param("4Gi", None, "0", "4Gi", id="zero is no limit"),
    ],
)
def test_memory_size(node: str, pod_limit: str | None, volume_limit: str | None, expected: str) -> None:
    limits = {"memory": parse_quantity(pod_limit)} if pod_limit else {}
    container = v1.Container(name="c", resources=v1.ResourceRequirements(limits=limits))
    pod = v1.Pod(spec=v1.PodSpec(containers=[container]))
    source = v1.EmptyDirVolumeSource(size_limit=parse_quantity(volume_limit) if volume_limit else None)
    size = empty_dir.calculate_empty_dir_memory_size({"memory": parse_quantity(node)}, source, pod)
    assert str(size) == expected


def test_unknown_medium_is_refused(tmp_path: Path) -> None:
    _, plugin, spec, pod = make(tmp_path, medium="Paper")
    with pytest.raises(ValueError, match='unknown storage medium "Paper"'):
        plugin.new_mounter(spec, pod).set_up(MounterArgs())


def test_group_owns_the_directory_and_what_is_made_in_it(tmp_path: Path) -> None:
    _, plugin, spec, pod = make(tmp_path)
    mounter = plugin.new_mounter(spec, pod)
    group = os.getgid()
    mounter.set_up(MounterArgs(fs_group=group))
    info = os.stat(mounter.get_path())
    assert info.st_gid == group and info.st_mode & 0o2000
