"""Test local volumes."""

import errno
import os
from pathlib import Path

import pytest

from pkg import mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import raising
from pkg.mount_utils.testing import FakeMounter
from pkg.util import exec as utilexec
from pkg.util.testing import FakeExec, exit_status
from pkg.volume import DeviceMounterArgs, MounterArgs, NodeResizeOptions, Spec
from pkg.volume.local import local
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.hostutil import FileType
from pkg.volume.util.types import is_filesystem_mismatch_error

DEVICE = "/fake/device"


@pytest.fixture
def host(tmp_path: Path) -> FakeVolumeHost:
    (tmp_path / "data").mkdir()
    host = FakeVolumeHost(str(tmp_path))
    host.hostutil.types = {DEVICE: FileType.BLOCK_DEVICE, "/fake/char": FileType.CHARACTER_DEVICE}
    return host


@pytest.fixture
def plugin(host: FakeVolumeHost) -> local.LocalVolumePlugin:
    plugin = local.LocalVolumePlugin()
    plugin.init(host)
    return plugin


def volume(path: str, *, read_only: bool = False, fs_type: str | None = None, block: bool = False) -> Spec:
    spec = v1.PersistentVolumeSpec(
        local=v1.LocalVolumeSource(path=path, fs_type=fs_type),
        volume_mode=v1.PERSISTENT_VOLUME_BLOCK if block else v1.PERSISTENT_VOLUME_FILESYSTEM,
        mount_options=["noatime"],
    )
    pv = v1.PersistentVolume(metadata=metav1.ObjectMeta(name="pvA"), spec=spec)
    return Spec(persistent_volume=pv, read_only=read_only)


def pod(uid: str) -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid), name=uid, namespace="ns"))


def test_which_volumes_are_its_own(plugin: local.LocalVolumePlugin) -> None:
    assert plugin.can_support(volume("/x")) and plugin.get_volume_name(volume("/x")) == "pvA"
    assert not plugin.can_support(Spec(v1.Volume(name="v", host_path=v1.HostPathVolumeSource(path="/x"))))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "local path is not set"),
        ("/fake/char", "only directory and block device are supported"),
        ("/no/such/dir", 'path "/no/such/dir" does not exist'),
    ],
)
def test_paths_that_are_refused(plugin: local.LocalVolumePlugin, path: str, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        plugin.new_mounter(volume(path), pod("a"))


def test_steps_back_are_refused(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    mounter = plugin.new_mounter(volume(f"{host.root}/data/../data"), pod("a"))
    with pytest.raises(ValueError, match=r"invalid path: .*/data/\.\./data must not contain"):
        mounter.set_up(MounterArgs())
    assert host.mounter.calls == []


@pytest.mark.parametrize("read_only", [False, True])
def test_directory_is_bound_and_unbound(host: FakeVolumeHost, plugin: local.LocalVolumePlugin, read_only: bool) -> None:
    mounter = plugin.new_mounter(volume(f"{host.root}/data", read_only=read_only), pod("a"))
    path = f"{host.root}/pods/a/volumes/kubernetes.io~local-volume/pvA"
    mounter.set_up(MounterArgs())
    mounter.set_up(MounterArgs())
    options = ["bind", "noatime"] + (["ro"] if read_only else [])
    assert host.mounter.mounts == [(f"{host.root}/data", path, "", options)]
    assert mounter.get_attributes().managed is not read_only
    plugin.new_unmounter("pvA", types.UID("a")).tear_down()
    assert host.mounter.list() == [] and not os.path.exists(path) and os.path.exists(f"{host.root}/data")


def test_failed_bind_leaves_no_directory(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    mounter = plugin.new_mounter(volume(f"{host.root}/data"), pod("a"))
    host.mounter.errors[mounter.get_path()] = OSError("no")
    with pytest.raises(OSError, match=r"^no$"):
        mounter.set_up(MounterArgs())
    assert not os.path.exists(mounter.get_path())


def test_change_of_ownership_that_fails_is_done_again(
    host: FakeVolumeHost, plugin: local.LocalVolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()]
    changed: list[str] = []

    def change(mounter: local.LocalVolumeMounter, directory: str, args: MounterArgs) -> None:
        if failures:
            raise failures.pop(0)
        changed.append(directory)

    monkeypatch.setattr(local.LocalVolumeMounter, "_change_ownership", change)
    mounter = plugin.new_mounter(volume(f"{host.root}/data"), pod("a"))
    for failure in list(failures):
        with pytest.raises(type(failure)):
            mounter.set_up(MounterArgs(fs_group=1234))
        assert host.mounter.list() == [] and not os.path.exists(mounter.get_path())
    mounter.set_up(MounterArgs(fs_group=1234))
    assert changed == [mounter.get_path()]


def test_directory_that_cannot_be_read_keeps_no_pod_from_the_volume(
    host: FakeVolumeHost, plugin: local.LocalVolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt to set up the volume raises the read error, and the second attempt succeeds."""
    monkeypatch.setattr(os, "scandir", raising(OSError(errno.EIO, os.strerror(errno.EIO))))
    mounter = plugin.new_mounter(volume(f"{host.root}/data"), pod("a"))
    with pytest.raises(OSError, match="Input/output error"):
        mounter.set_up(MounterArgs(fs_group=1234))
    mounter.set_up(MounterArgs(fs_group=1234))
    assert [point.path for point in host.mounter.list()] == [mounter.get_path()]


def test_second_group_is_warned(
    host: FakeVolumeHost, plugin: local.LocalVolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [f"{host.root}/pods/other/volumes/kubernetes.io~local-volume/pvA", "/elsewhere"]
    monkeypatch.setattr(host.mounter, "get_mount_refs", lambda path: refs)
    group = os.stat(f"{host.root}/data").st_gid
    plugin.new_mounter(volume(f"{host.root}/data"), pod("a")).set_up(MounterArgs(fs_group=group))
    assert len(host.recorder.events) == 0
    plugin.new_mounter(volume(f"{host.root}/data"), pod("b")).set_up(MounterArgs(fs_group=group + 7))
    event, _, _ = host.recorder.events.try_recv()
    assert event == (
        f"Warning AlreadyMountedVolume The requested fsGroup is {group + 7}, but the volume pvA has GID {group}. "
        "The volume may not be shareable."
    )


def device_mounter(plugin: local.LocalVolumePlugin, blkid: str | int) -> tuple[local.DeviceMounter, FakeExec]:
    def answer(command: list[str]) -> bytes:
        if command[0] == "blkid" and isinstance(blkid, int):
            raise exit_status(blkid)
        return str(blkid).encode()

    executor = FakeExec(answer)
    return local.DeviceMounter(plugin, executor), executor


def test_device_is_formatted_mounted_and_unmounted(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    spec = volume(DEVICE)
    mounter, executor = device_mounter(plugin, 2)
    path = mounter.get_device_mount_path(spec)
    assert path == f"{host.root}/plugins/kubernetes.io/local-volume/mounts/pvA"
    mounter.mount_device(spec, "", path, DeviceMounterArgs())
    mounter.mount_device(spec, "", path, DeviceMounterArgs())
    assert host.mounter.mounts == [(DEVICE, path, "ext4", ["noatime", "defaults"])]
    assert ["mkfs.ext4", "-F", "-m0", DEVICE] in executor.commands
    assert plugin.new_mounter(spec, pod("a")).get_attributes().managed
    assert plugin.construct_volume_spec("pvA", path).spec.name() == "pvA"
    plugin.new_device_unmounter().unmount_device(path)
    assert host.mounter.list() == [] and not os.path.exists(path)


def test_wrong_file_system_is_told(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    spec = volume(DEVICE, fs_type="xfs", read_only=True)
    mounter, _ = device_mounter(plugin, "TYPE=ext4\n")
    path = mounter.get_device_mount_path(spec)
    host.mounter.errors[path] = OSError("wrong fs type")
    with pytest.raises(OSError, match=r"local: failed to mount device .* \(fstype: xfs\), error wrong") as caught:
        mounter.mount_device(spec, "", path, DeviceMounterArgs())
    assert is_filesystem_mismatch_error(caught.value) and not os.path.exists(path)


def test_directory_needs_no_device_mount(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    spec = volume(f"{host.root}/data")
    mounter, executor = device_mounter(plugin, 2)
    assert mounter.get_device_mount_path(spec) == f"{host.root}/data"
    mounter.mount_device(spec, "", f"{host.root}/data", DeviceMounterArgs())
    mounter.unmount_device(f"{host.root}/data")
    assert host.mounter.calls == [] and executor.commands == [] and os.path.exists(f"{host.root}/data")


def test_block_volume(host: FakeVolumeHost, plugin: local.LocalVolumePlugin) -> None:
    spec = volume("dev/sdx", block=True)
    mapper = plugin.new_block_volume_mapper(spec, pod("a"))
    assert isinstance(mapper, local.LocalVolumeMapper)
    assert (mapper.set_up_device(), mapper.map_pod_device(), mapper.get_staging_path()) == ("", "/dev/sdx", "")
    expected = f"{host.root}/plugins/kubernetes.io~local-volume/volumeDevices/pvA"
    assert mapper.get_global_map_path(spec) == expected
    device_dir = f"{host.root}/pods/a/volumeDevices/kubernetes.io~local-volume"
    assert mapper.get_pod_device_map_path() == (device_dir, "pvA")
    assert plugin.new_block_volume_unmapper("pvA", types.UID("a")).get_pod_device_map_path() == (device_dir, "pvA")
    again = plugin.construct_block_volume_spec(types.UID("a"), "pvA", "/x")
    assert again.name() == "pvA" and plugin.can_support(again)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(volume("/x", block=True), True), (volume("/tmp"), True), (volume("/fake/char"), None)],
)
def test_node_expand(plugin: local.LocalVolumePlugin, spec: Spec, expected: bool | None) -> None:
    size = resource.parse_quantity("1Gi")
    options = NodeResizeOptions(spec, "", "/m", "", size, size)
    assert plugin.requires_fs_resize()
    if expected is None:
        with pytest.raises(ValueError, match="only directory and block device"):
            plugin.node_expand(options)
    else:
        assert plugin.node_expand(options) is expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_real_device_in_a_pod(host: FakeVolumeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").touch()
    os.truncate(tmp_path / "disk", 8 << 20)
    executor = utilexec.Executor()
    device = executor.run(["losetup", "--find", "--show", str(tmp_path / "disk")]).decode().strip()
    monkeypatch.setattr(host, "mounter", mount_utils.Mounter())
    plugin = local.LocalVolumePlugin()
    plugin.init(host)
    try:
        spec = volume(device)
        path = plugin.get_global_local_path(spec)
        mounter = plugin.new_mounter(spec, pod("a"))
        try:
            plugin.new_device_mounter().mount_device(spec, "", path, DeviceMounterArgs())
            mounter.set_up(MounterArgs(fs_group=1234))
            assert os.stat(mounter.get_path()).st_gid == 1234 and os.path.ismount(mounter.get_path())
            rebuilt = plugin.construct_volume_spec("pvA", mounter.get_path()).spec
            assert local.get_volume_source(rebuilt).path == device
        finally:
            plugin.new_unmounter("pvA", types.UID("a")).tear_down()
            plugin.new_device_unmounter().unmount_device(path)
    finally:
        executor.run(["losetup", "--detach", device])
    assert not os.path.exists(path) and not isinstance(host.mounter, FakeMounter)
