"""Test emptyDir volumes.

Go: pkg/volume/emptydir/empty_dir_test.go
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pkg import mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity, parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import raising
from pkg.mount_utils.testing import FakeMounter
from pkg.util import testing
from pkg.volume import MounterArgs, Spec, VolumeOwnership, VolumePluginMgr
from pkg.volume.emptydir import empty_dir
from pkg.volume.emptydir.testing import FakeMountDetector
from pkg.volume.testing import FakeVolumeHost


class World:
    """Hold a plugin on a host below a directory, and one volume of one pod."""

    def __init__(self, root: Path, **source: object) -> None:
        self.host = FakeVolumeHost(str(root))
        self.host.node_allocatable = {"memory": parse_quantity("4Gi")}
        self.plugin = empty_dir.EmptyDirPlugin()
        self.plugin.init(self.host)
        self.spec = Spec(v1.Volume(name="v", empty_dir=v1.EmptyDirVolumeSource(**source)))  # type: ignore[arg-type]
        self.pod = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")))
        self.path = root / "pods/u/volumes/kubernetes.io~empty-dir/v"
        self.ready = root / "pods/u/plugins/kubernetes.io~empty-dir/v/ready"

    def set_up(self, detector: empty_dir.MountDetector | None = None, **args: object) -> None:
        detector = detector or empty_dir.RealMountDetector(self.host.mounter)
        mounter = self.plugin._new_mounter_internal(self.spec, self.pod, detector)
        mounter.set_up(MounterArgs(**args))  # type: ignore[arg-type]

    def options(self) -> list[str]:
        (point,) = self.host.mounter.list()
        return [option for option in point.options if option != "noswap"]


def test_can_support(tmp_path: Path) -> None:
    plugins = VolumePluginMgr()
    plugins.init_plugins(empty_dir.probe_volume_plugins(), FakeVolumeHost(str(tmp_path)))
    plugin = plugins.find_plugin_by_name("kubernetes.io/empty-dir")
    spec = Spec(v1.Volume(name="v", empty_dir=v1.EmptyDirVolumeSource()))
    assert plugin.can_support(spec) and plugin.get_volume_name(spec) == "v"
    assert not plugin.can_support(Spec(v1.Volume(name="v")))
    with pytest.raises(ValueError, match="does not reference an emptyDir"):
        plugin.get_volume_name(Spec(v1.Volume(name="v")))


def test_directory_is_made_for_everybody_and_removed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.set_up()
    assert world.path.stat().st_mode & 0o777 == 0o777 and world.ready.exists()
    (world.path / "file").write_text("x")
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not world.path.exists() and os.listdir(world.path.parent) == []
    assert not world.ready.parent.exists()


def test_second_set_up_keeps_what_is_inside(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.set_up()
    (world.path / "file").write_text("x")
    world.set_up()
    assert (world.path / "file").read_text() == "x"


def test_directory_that_was_removed_comes_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.set_up()
    world.path.rmdir()
    world.set_up()
    assert world.path.is_dir() and world.ready.exists()


def test_set_up_succeeds_though_it_cannot_be_noted(tmp_path: Path) -> None:
    """The set-up succeeds with a full disk, because a volume that is mounted must be recorded as such."""
    world = World(tmp_path, medium="Memory")
    world.ready.parent.parent.parent.mkdir(parents=True)
    world.ready.parent.parent.write_text("no directory")
    world.set_up()
    (point,) = world.host.mounter.list()
    assert point.path == str(world.path)


def test_tear_down_of_a_tree_deeper_than_a_path(tmp_path: Path) -> None:
    world = World(tmp_path)
    with testing.deep_tree(str(world.path / "top"), 3000):
        world.plugin.new_unmounter("v", types.UID("u")).tear_down()
        assert not world.path.exists()


def test_tear_down_of_what_is_gone_is_success(tmp_path: Path) -> None:
    World(tmp_path).plugin.new_unmounter("v", types.UID("u")).tear_down()


def test_metrics_are_of_what_is_inside(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.set_up()
    mounter = world.plugin.new_mounter(world.spec, world.pod)
    empty = mounter.get_metrics()
    (world.path / "file").write_bytes(b"x" * 100_000)
    metrics = mounter.get_metrics()
    assert empty.used is not None and metrics.used is not None and metrics.inodes_used is not None
    assert metrics.used.sub(empty.used).value() >= 100_000 and metrics.inodes_used.value() == 2
    assert metrics.capacity is not None and metrics.capacity.value() > 0


@pytest.mark.parametrize(
    ("medium", "detector", "mounts", "unmounts"),
    [
        pytest.param("", FakeMountDetector("", False), 0, 0, id="disk"),
        pytest.param("Memory", FakeMountDetector("", False), 1, 0, id="memory, nothing mounted"),
        pytest.param("Memory", FakeMountDetector("Memory", True), 0, 1, id="memory, mounted"),
        pytest.param("Memory", FakeMountDetector("Memory", False), 1, 0, id="in memory, but no mount of its own"),
        pytest.param("HugePages-2Mi", FakeMountDetector("", False), 1, 0, id="huge pages, nothing mounted"),
        pytest.param("HugePages-2Mi", FakeMountDetector("HugePages", True, "2Mi"), 0, 1, id="huge pages, mounted"),
        pytest.param("HugePages", FakeMountDetector("HugePages", True), 0, 1, id="huge pages of no size, mounted"),
    ],
)
def test_mounts(tmp_path: Path, medium: str, detector: FakeMountDetector, mounts: int, unmounts: int) -> None:
    world = World(tmp_path, medium=medium)
    requests = {"hugepages-2Mi": parse_quantity("100Mi")}
    world.pod.spec.containers = [v1.Container(resources=v1.ResourceRequirements(requests=requests))]
    world.set_up(detector)
    assert [call for call, _ in world.host.mounter.calls] == ["mount"] * mounts
    assert world.path.stat().st_mode & 0o777 == 0o777 and world.ready.exists()
    world.host.mounter.reset_log()
    if not unmounts:
        world.host.mounter.mount_points = []  # The mount table must agree with the detector.
    world.plugin._new_unmounter_internal("v", types.UID("u"), detector).tear_down()
    assert [call for call, _ in world.host.mounter.calls] == ["unmount"] * unmounts
    assert not world.path.exists() and not world.ready.parent.exists()


def test_huge_pages_of_another_size_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, medium="HugePages-2Mi")
    with pytest.raises(ValueError, match="pagesize '1Gi' and requested medium size '2Mi' differ"):
        world.set_up(FakeMountDetector("HugePages", True, "1Gi"))
    with pytest.raises(ValueError, match="pagesize is not determined"):
        world.set_up(FakeMountDetector("HugePages", True))


def test_memory_is_mounted_once_with_its_size(tmp_path: Path) -> None:
    world = World(tmp_path, medium="Memory", size_limit=parse_quantity("1Mi"))
    world.set_up()
    (point,) = world.host.mounter.list()
    assert (point.device, point.type, point.path) == ("tmpfs", "tmpfs", str(world.path))
    assert world.options() == ["size=1048576"]


def test_what_is_mounted_below_is_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.set_up()
    below = world.path / "left"
    below.mkdir()
    (below / "file").write_text("x")
    world.host.mounter.mount("/other", str(below), "", ["bind"])
    with pytest.raises(OSError, match=f"cannot delete directory {world.path}: {below} is a mount point"):
        world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert (below / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize("covered", [False, True], ids=["a server's directory", "one below memory"])
def test_what_is_mounted_on_it_is_left_alone(tmp_path: Path, covered: bool) -> None:
    """The kubelet does not remove what is mounted on an emptyDir.

    A container with bidirectional mount propagation may have mounted something there before it ended.
    """
    world = World(tmp_path)
    mounter = mount_utils.Mounter()
    world.host.mounter = mounter  # type: ignore[assignment]
    world.set_up()
    server = tmp_path / "server"
    server.mkdir()
    (server / "file").write_text("x")
    mounter.mount(str(server), str(world.path), "", ["bind"])
    if covered:
        mounter.mount("tmpfs", str(world.path), "tmpfs", [])
    try:
        with pytest.raises(OSError, match=f"cannot delete directory {world.path}: {world.path} is a mount point"):
            world.plugin.new_unmounter("v", types.UID("u")).tear_down()
        assert (server / "file").exists()
    finally:
        mounter.unmount(str(world.path))
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not world.path.exists() and (server / "file").exists()


@pytest.mark.parametrize(
    ("size", "noswap", "expected"),
    [
        ("1Mi", False, ["size=1048576"]),
        ("1Mi", True, ["size=1048576", "noswap"]),
        ("0", True, ["noswap"]),
        ("0", False, []),
    ],
)
def test_generate_tmpfs_mount_options(tmp_path: Path, size: str, noswap: bool, expected: list[str]) -> None:
    world = World(tmp_path)
    detector = FakeMountDetector("", False)
    volume = empty_dir.EmptyDir(world.plugin, world.pod, "v", "Memory", parse_quantity(size), detector)
    assert volume.generate_tmpfs_mount_options(noswap) == expected


def test_memory_is_mounted_anew_only_for_another_size(tmp_path: Path) -> None:
    world = World(tmp_path, medium="Memory", size_limit=parse_quantity("1000000"))
    for _ in range(3):
        world.set_up()
    assert len(world.host.mounter.calls) == 1
    assert world.spec.volume is not None and world.spec.volume.empty_dir is not None
    world.spec.volume.empty_dir.size_limit = parse_quantity("2M")
    for _ in range(3):
        world.set_up(is_remount=True)
    assert len(world.host.mounter.calls) == 2
    assert world.host.mounter.mounts[-1][3] == ["remount", "size=2000000"]


def test_memory_is_what_the_pod_was_given_and_not_what_it_wants(tmp_path: Path) -> None:
    def limited(memory: str) -> v1.Pod:
        resources = v1.ResourceRequirements(limits={"memory": parse_quantity(memory)})
        metadata = metav1.ObjectMeta(uid=types.UID("u"))
        return v1.Pod(metadata=metadata, spec=v1.PodSpec(containers=[v1.Container(resources=resources)]))

    world = World(tmp_path, medium="Memory")
    world.pod, world.host.allocated_pods["u"] = limited("1M"), limited("2M")
    world.set_up()
    assert world.options() == ["size=2000000"]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[World]:
    """Return a world with a volume that is really mounted."""
    world = World(tmp_path, medium="Memory", size_limit=parse_quantity("1Mi"))
    world.host.mounter = mount_utils.Mounter()  # type: ignore[assignment]
    world.set_up()
    yield world
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not world.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_memory_follows_its_limit(real: World) -> None:
    (real.path / "file").write_bytes(b"x" * 900_000)

    def size_with(limit: str) -> int:
        assert real.spec.volume is not None and real.spec.volume.empty_dir is not None
        real.spec.volume.empty_dir.size_limit = parse_quantity(limit)
        real.set_up(is_remount=True)
        info = os.statvfs(real.path)
        return info.f_blocks * info.f_frsize

    assert real.plugin.requires_remount(real.spec)
    assert size_with("1Mi") == 1 << 20
    assert size_with("2Mi") == 2 << 20
    assert size_with("512Ki") == 2 << 20
    assert size_with("1Mi") == 1 << 20
    assert (real.path / "file").stat().st_size == 900_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_full_memory_is_the_pods_own_trouble(real: World) -> None:
    with pytest.raises(OSError, match="No space left"):
        (real.path / "file").write_bytes(b"x" * (2 << 20))
    real.set_up(is_remount=True)


@pytest.mark.skipif(
    os.geteuid() != 0 or "hugetlbfs" not in Path("/proc/filesystems").read_text(), reason="mounts huge pages"
)
def test_huge_pages_are_mounted_once_and_unmounted(tmp_path: Path) -> None:
    world = World(tmp_path, medium="HugePages-2Mi")
    world.pod = _pod(["2Mi"])
    world.pod.metadata.uid = types.UID("u")
    world.host.mounter = mount_utils.Mounter()  # type: ignore[assignment]
    for _ in range(2):
        world.set_up()
    found = [point for point in world.host.mounter.list() if point.path == str(world.path)]
    world.plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert [(point.type, empty_dir.get_page_size(point)) for point in found] == [("hugetlbfs", parse_quantity("2Mi"))]
    assert not world.path.exists()


@pytest.mark.parametrize(
    ("node", "pod_limits", "volume_limit", "expected"),
    [
        pytest.param("16Gi", [], None, "16Gi", id="node alone"),
        pytest.param("16Gi", [None], None, "16Gi", id="pod without limits"),
        pytest.param("16Gi", ["10Gi"], None, "10Gi", id="pod's limit"),
        pytest.param("16Gi", ["10Gi", "2Gi"], None, "12Gi", id="pod's limit is that of its containers together"),
        pytest.param("16Gi", ["10Gi", None], None, "16Gi", id="a container without a limit leaves the pod without one"),
        pytest.param("16Gi", ["20Gi"], None, "16Gi", id="pod is allowed more than the node has"),
        pytest.param("16Gi", ["10Gi"], "1Gi", "1Gi", id="volume's limit"),
        pytest.param("16Gi", ["10Gi"], "12Gi", "10Gi", id="volume allows more than the pod"),
        pytest.param("16Gi", [], "1Gi", "1Gi", id="volume's limit, none of the pod"),
        pytest.param("16Gi", [], "32Gi", "16Gi", id="volume allows more than the node has"),
        pytest.param("16Gi", [], "0", "16Gi", id="zero is no limit"),
    ],
)
def test_memory_size(node: str, pod_limits: list[str | None], volume_limit: str | None, expected: str) -> None:
    def container(limit: str | None) -> v1.Container:
        of = {"memory": parse_quantity(limit)} if limit else {}
        return v1.Container(resources=v1.ResourceRequirements(limits=of, requests=dict(of)))

    pod = v1.Pod(spec=v1.PodSpec(containers=[container(limit) for limit in pod_limits]))
    source = v1.EmptyDirVolumeSource(size_limit=parse_quantity(volume_limit) if volume_limit else None)
    spec = Spec(v1.Volume(name="v", empty_dir=source))
    size = empty_dir.calculate_empty_dir_memory_size(parse_quantity(node), spec, pod)
    assert size == parse_quantity(expected)


def _pod(*containers: list[str], init: list[str] | None = None, pod: list[str] | None = None) -> v1.Pod:
    """Return a pod that requests huge pages of these sizes."""

    def requirements(sizes: list[str]) -> v1.ResourceRequirements:
        return v1.ResourceRequirements(requests={f"hugepages-{size}": parse_quantity("100Mi") for size in sizes})

    spec = v1.PodSpec(containers=[v1.Container(resources=requirements(sizes)) for sizes in containers])
    if init is not None:
        spec.init_containers = [v1.Container(resources=requirements(init))]
    if pod is not None:
        spec.resources = requirements(pod)
    return v1.Pod(spec=spec)


@pytest.mark.parametrize(
    ("medium", "pod", "expected"),
    [
        pytest.param("HugePages", _pod(["2Mi"]), "2Mi", id="only one size"),
        pytest.param("HugePages", _pod(["1Gi"], ["1Gi"]), "1Gi", id="same size in several containers"),
        pytest.param("HugePages-2Mi", _pod(["2Mi", "1Gi"]), "2Mi", id="medium says which of two"),
        pytest.param("HugePages-1Gi", _pod(["2Mi"], ["1Gi"]), "1Gi", id="medium says which of two containers'"),
        pytest.param("HugePages", _pod([], init=["1Gi"]), "1Gi", id="init container"),
        pytest.param("HugePages", _pod([], pod=["2Mi"]), "2Mi", id="pod as a whole"),
    ],
)
def test_get_page_size_mount_option(medium: str, pod: v1.Pod, expected: str) -> None:
    assert empty_dir.get_page_size_mount_option(medium, pod) == f"pagesize={expected}"


@pytest.mark.parametrize(
    ("medium", "pod", "message"),
    [
        pytest.param("HugePages", _pod(["2Mi", "1Gi"]), "multiple huge page sizes", id="several sizes"),
        pytest.param("HugePages", _pod(["2Mi"], ["1Gi"]), "multiple huge page sizes", id="several containers"),
        pytest.param("HugePages", _pod(["2Mi"], init=["1Gi"]), "multiple huge page sizes", id="init container"),
        pytest.param("HugePages", _pod([]), "no resource request for huge pages", id="no request"),
        pytest.param("HugePages-2Mi", _pod(["1Gi"]), "no resource request for huge pages", id="another size"),
        pytest.param("HugePages-2Mo", _pod(["2Mi"]), "quantities must match", id="no size at all"),
    ],
)
def test_get_page_size_mount_option_refused(medium: str, pod: v1.Pod, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        empty_dir.get_page_size_mount_option(medium, pod)


@pytest.mark.parametrize(
    ("mounted", "medium", "expected"),
    [
        pytest.param(None, "", empty_dir.MountMedium("", False), id="nothing"),
        pytest.param(("ext4", ()), "", empty_dir.MountMedium("", True), id="disk"),
        pytest.param(("tmpfs", ()), "", empty_dir.MountMedium("Memory", True), id="memory"),
        pytest.param(
            ("tmpfs", ("rw", "size=1024k")), "", empty_dir.MountMedium("Memory", True, size=1 << 20), id="sized memory"
        ),
        pytest.param(
            ("hugetlbfs", ("rw", "pagesize=2M")),
            "HugePages-2Mi",
            empty_dir.MountMedium("HugePages", True, parse_quantity("2Mi")),
            id="huge pages",
        ),
        pytest.param(("hugetlbfs", ()), "HugePages", empty_dir.MountMedium("HugePages", True), id="size not asked for"),
    ],
)
def test_mount_detector(
    tmp_path: Path, mounted: tuple[str, tuple[str, ...]] | None, medium: str, expected: empty_dir.MountMedium
) -> None:
    mounter = FakeMounter()
    if mounted is not None:
        mounter.mount("device", str(tmp_path), mounted[0], list(mounted[1]))
    assert empty_dir.RealMountDetector(mounter).get_mount_medium(str(tmp_path), medium) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["rw", "pagesize=2M"], "2Mi"),
        (["pagesize=1024Mi"], "1Gi"),
        (["rw", "pagesize=NaN"], "error getting page size from 'pagesize=NaN'"),
        (["rw"], "no pagesize option specified for /path"),
    ],
)
def test_get_page_size(options: list[str], expected: str) -> None:
    point = mount_utils.MountPoint("device", "/path", "hugetlbfs", tuple(options))
    try:
        size: Quantity | str = empty_dir.get_page_size(point)
    except ValueError as err:
        assert expected in str(err)
    else:
        assert size == parse_quantity(expected)


def test_unknown_medium_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='unknown storage medium "Paper"'):
        World(tmp_path, medium="Paper").set_up()


def test_group_owns_the_directory_and_what_is_made_in_it(tmp_path: Path) -> None:
    world, group = World(tmp_path), os.getgid()
    world.set_up(fs_group=group)
    info = os.stat(world.path)
    assert info.st_gid == group and info.st_mode & 0o2000


def test_volume_that_cannot_be_given_to_the_group_is_set_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, group = World(tmp_path), os.getgid()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Too many open files"):
        shortage = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        patch.setattr(VolumeOwnership, "change_permissions", raising(shortage))
        world.set_up(fs_group=group)
    world.set_up(fs_group=group)
    assert os.stat(world.path).st_mode & 0o2000
