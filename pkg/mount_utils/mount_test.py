"""Test mounting, on the real kernel where it matters."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.waiting import wait_for

from pkg import mount_utils
from pkg.mount_utils import BindOptions, mount
from pkg.mount_utils.testing import FakeMounter
from pkg.util import exec as utilexec
from pkg.util.testing import FakeExec, exit_status
from pkg.volume.util.hostutil import HostUtil

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

MOUNT_INFO = r"""25 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 25 0:27 / /var/lib/a\040b rw,nosuid shared:12 master:3 - tmpfs tmpfs rw,size=1024k
40 25 254:0 /data /bound rw,relatime - ext4 /dev/vda rw
41 31 254:0 /data /var/lib/a\040b/x rw,relatime - ext4 /dev/vda rw
42 31 0:28 / /ro rw,relatime - nfs server:/x ro,vers=4
"""


@pytest.fixture
def mount_info(tmp_path: Path) -> str:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNT_INFO)
    return str(file)


@pytest.fixture
def unmounted_after(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    mounter = mount_utils.Mounter()
    for point in reversed(mounter.list()):
        if point.path.startswith(f"{tmp_path}/"):
            mounter.unmount(point.path)


def test_mounts_are_listed_with_all_options(mount_info: str) -> None:
    points = mount.list_proc_mounts(mount_info)
    assert points[1] == mount_utils.MountPoint("tmpfs", "/var/lib/a b", "tmpfs", ("rw", "nosuid", "size=1024k"))
    assert points[4].options == ("ro", "relatime", "vers=4")


@pytest.mark.parametrize(
    ("source", "refs"),
    [
        ("/bound", ["/var/lib/a b/x"]),
        ("/var/lib/a b/x", ["/bound"]),
        # This is a plain directory that is bound twice.
        ("/data", ["/bound", "/var/lib/a b/x"]),
        ("/var/lib/a b", []),
        ("/data/below", []),
    ],
)
def test_same_mounts_are_found(mount_info: str, source: str, refs: list[str]) -> None:
    assert mount_utils.search_mount_points(source, mount_utils.parse_mount_info(mount_info)) == refs


def test_root_and_proc_of_this_machine() -> None:
    mounter = mount_utils.Mounter()
    assert mounter.is_mount_point("/proc") and mounter.is_mount_point("/")
    assert not mounter.is_likely_not_mount_point("/proc/")


def test_directory_is_no_mount_point(tmp_path: Path) -> None:
    mounter = mount_utils.Mounter()
    assert mounter.is_likely_not_mount_point(str(tmp_path)) and not mounter.is_mount_point(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        mounter.is_likely_not_mount_point(str(tmp_path / "missing"))


@needs_root
def test_bind_mounts_are_seen_through_links(unmounted_after: Path) -> None:
    source, target, link = (unmounted_after / name for name in ("source", "target", "link"))
    source.mkdir()
    target.mkdir()
    link.symlink_to(target)
    (unmounted_after / "above").symlink_to(unmounted_after)
    mounter = mount_utils.Mounter()
    mounter.mount(str(source), str(target), "", ["bind"])
    assert mounter.is_mount_point(str(target)) and mounter.is_mount_point(str(link))
    assert mounter.is_mount_point(str(unmounted_after / "above/target"))
    assert mounter.get_mount_refs(str(source)) == [str(target)]
    mounter.unmount(str(target))
    assert not mounter.is_mount_point(str(target)) and mounter.get_mount_refs(str(source)) == []


@needs_root
def test_read_only_bind_leaves_the_source_and_its_flags_alone(unmounted_after: Path) -> None:
    source, target = unmounted_after / "source", unmounted_after / "target"
    source.mkdir()
    target.mkdir()
    mounter = mount_utils.Mounter()
    mounter.mount("tmpfs", str(source), "tmpfs", ["size=64k", "nosuid", "noexec"])
    mounter.mount(str(source), str(target), "", ["bind", "ro"])
    (source / "file").touch()
    with pytest.raises(OSError):
        (target / "other").touch()
    options = next(point.options for point in mounter.list() if point.path == str(target))
    assert {"ro", "nosuid", "noexec"} <= {*options}


@needs_root
def test_unmounting_what_is_not_mounted_is_fine_but_a_busy_mount_is_not(unmounted_after: Path) -> None:
    target = unmounted_after / "target"
    target.mkdir()
    mounter = mount_utils.Mounter()
    assert mounter.can_safely_skip_mount_point_check()
    mounter.unmount(str(target))
    mounter.mount("tmpfs", str(target), "tmpfs", [])
    with (target / "open").open("w"), pytest.raises(OSError, match=r"unmount failed: exit status 32\nUnm(?s:.*)busy"):
        mounter.unmount(str(target))


def test_failed_mount_says_what_was_tried_but_no_secret(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        mount_utils.Mounter().mount_sensitive("none", str(tmp_path), "nosuchfs", ["a=b"], ["password=sesame"])
    text = str(caught.value)
    assert text.startswith(
        "mount failed: exit status 32\nMounting command: mount\n"
        f"Mounting arguments: -t nosuchfs -o a=b,<masked> -- none {tmp_path}\nOutput: "
    )
    assert "sesame" not in text


@needs_root
@pytest.mark.parametrize("options", [[], ["ro"]])
def test_source_is_never_an_option_of_mount(unmounted_after: Path, options: list[str]) -> None:
    source, target = unmounted_after / "source", unmounted_after / "target"
    for directory in (source, target):
        directory.mkdir()
    # A pod could write this file to its own volume to have a directory of the node mounted at another place.
    fstab = unmounted_after / "host:" / "fstab"
    fstab.parent.mkdir()
    fstab.write_text(f"{source} {target} nfs bind 0 0\n")
    mounter = mount_utils.Mounter()
    with pytest.raises(OSError, match="mount failed"):
        mounter.mount_sensitive_without_systemd(f"--fstab={fstab}", str(target), "nfs", options, [])
    assert not mounter.is_mount_point(str(target))


def test_missing_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OSError, match=r'"mount": executable file not found in \$PATH'):
        mount_utils.Mounter().mount("none", "/x", "tmpfs", [])


def test_hanging_umount_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "umount"
    fake.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/log\n[ "$1" = -f ] || exec sleep 1000\n')
    fake.chmod(0o755)
    mounter = mount_utils.Mounter()
    assert mounter.can_safely_skip_mount_point_check() in (True, False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    mounter.unmount_with_force("/x", 0.2)
    assert (tmp_path / "log").read_text().splitlines() == ["/x", "-f /x"]


@needs_root
def test_mounts_are_unmounted_without_looking_at_them(unmounted_after: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (unmounted_after / "target").mkdir()
    (unmounted_after / "above").symlink_to(".")
    mounter = mount_utils.Mounter()
    mounter.mount("tmpfs", str(unmounted_after / "target"), "tmpfs", [])
    fake = unmounted_after / "umount"
    fake.write_text(f'#!/bin/sh\necho "$@" >>{unmounted_after}/log\n')
    fake.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(unmounted_after))
        mounter.unmount(str(unmounted_after / "above/target/"))
    assert (unmounted_after / "log").read_text().splitlines()[-1] == f"-c {unmounted_after}/target"


@needs_root
@pytest.mark.skipif(shutil.which("busybox") is None, reason="there is no busybox")
def test_small_systems_have_the_tools_of_busybox(unmounted_after: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (unmounted_after / "target").mkdir()
    for tool in ("mount", "umount"):
        (unmounted_after / tool).symlink_to(str(shutil.which("busybox")))
    monkeypatch.setenv("PATH", str(unmounted_after))
    mounter = mount_utils.Mounter()
    mounter.mount("tmpfs", str(unmounted_after / "target"), "tmpfs", ["size=1m"])
    assert mounter.is_mount_point(str(unmounted_after / "target"))
    mount_utils.cleanup_mount_point(str(unmounted_after / "target"), mounter, True)
    assert not (unmounted_after / "target").exists()


@pytest.mark.parametrize(
    ("options", "sensitive", "expected"),
    [
        (["vers=2", "ro", "_netdev"], [], None),
        (["bind", "_netdev"], [], BindOptions(["bind", "_netdev"], ["bind", "remount", "_netdev"], [])),
        (["bind", "vers=2", "ro"], [], BindOptions(["bind"], ["bind", "remount", "vers=2", "ro"], [])),
        (["bind", "remount", "ro"], [], BindOptions(["bind"], ["bind", "remount", "ro"], [])),
        (["ro"], ["bind", "secret"], BindOptions(["bind"], ["bind", "remount", "ro"], ["secret"])),
    ],
)
def test_bind_options(options: list[str], sensitive: list[str], expected: BindOptions | None) -> None:
    assert mount_utils.make_bind_opts_sensitive(options, sensitive) == expected


@pytest.mark.parametrize(
    ("full", "base", "within"),
    [
        ("/a/b/c", "/a", True),
        ("/a/b/c", "/b", False),
        ("/a/b/c", "/a/b/c/d", False),
        ("/a", "/a", True),
        ("/a/b/..", "/a", True),
        ("/a/b/../..", "/a", False),
        ("/a/..bold", "/a", True),
        ("a", "/a", False),
    ],
)
def test_path_within_base(full: str, base: str, within: bool) -> None:
    assert mount_utils.path_within_base(full, base) is within


def test_scope_of_systemd_is_put_in_front() -> None:
    command, arguments, for_log = mount.add_systemd_scope_sensitive("systemd-run", "/x", "mount", ["-o", "s"], "-o *")
    assert command == "systemd-run" and arguments[1:] == ["--scope", "--", "mount", "-o", "s"]
    assert for_log.endswith("--scope -- mount -o *")


def test_umount_of_other_words_is_not_trusted() -> None:
    def answer(command: list[str]) -> bytes:
        raise exit_status(1, "umount: /x: Invalid argument")

    assert not mount.detect_safe_not_mounted_behavior_with_exec(FakeExec(answer))
    assert not mount.detect_safe_not_mounted_behavior_with_exec(FakeExec())


@needs_root
def test_umount_works_while_it_cannot_be_told_how_it_behaves(
    unmounted_after: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unmounting works while the behaviour of umount cannot be detected.

    The disk with the temporary directory may be full when a pod's volumes must be unmounted.
    """
    mounter, target = mount_utils.Mounter(), unmounted_after / "target"
    target.mkdir()
    mounter.mount("tmpfs", str(target), "tmpfs", [])
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(unmounted_after / "none"))
        assert not mounter.can_safely_skip_mount_point_check()
        mounter.unmount(str(target))
    assert not mounter.is_mount_point(str(target))
    assert mounter.can_safely_skip_mount_point_check()


class Disk:
    """Fake the output of the tools for one disk."""

    def __init__(self, blkid: str | int, mkfs: int = 0, fsck: int = 0) -> None:
        self._answers = {"blkid": blkid, "dd": "", "mkfs.ext4": mkfs, "mkfs.xfs": mkfs, "fsck": fsck}
        self.exec = FakeExec(self._answer)

    def _answer(self, command: list[str]) -> bytes:
        answer = self._answers[command[0]]
        if isinstance(answer, int) and answer != 0:
            raise exit_status(answer, "what it said")
        return str(answer).encode()


@pytest.mark.parametrize(
    ("disk", "fstype", "options", "commands"),
    [
        (Disk(2), "", [], ["blkid", "dd", "blkid", "mkfs.ext4 -F -m0 /dev/x"]),
        (Disk(2), "xfs", [], ["blkid", "dd", "blkid", "mkfs.xfs -f /dev/x"]),
        (Disk("TYPE=ext4\n"), "ext4", [], ["blkid", "fsck -a /dev/x"]),
        (Disk("TYPE=ext4\n", fsck=1), "ext4", [], ["blkid", "fsck -a /dev/x"]),
        (Disk("TYPE=ext4\n", fsck=8), "ext4", [], ["blkid", "fsck -a /dev/x"]),
        (Disk("TYPE=ext4\n"), "ext4", ["ro"], ["blkid"]),
    ],
)
def test_format_and_mount(disk: Disk, fstype: str, options: list[str], commands: list[str]) -> None:
    mounter = FakeMounter()
    mount_utils.SafeFormatAndMount(mounter, disk.exec).format_and_mount("/dev/x", "/t", fstype, options)
    assert [c[0] if c[0] in ("blkid", "dd") else " ".join(c) for c in disk.exec.commands] == commands
    assert mounter.mounts == [("/dev/x", "/t", fstype or "ext4", [*options, "defaults"])]


@pytest.mark.parametrize(
    ("disk", "options", "error_type"),
    [
        (Disk(4), [], mount_utils.MountErrorType.GET_DISK_FORMAT_FAILED),
        (Disk("no answer"), [], mount_utils.MountErrorType.GET_DISK_FORMAT_FAILED),
        (Disk(2), ["ro"], mount_utils.MountErrorType.UNFORMATTED_READ_ONLY),
        (Disk(2, mkfs=1), [], mount_utils.MountErrorType.FORMAT_FAILED),
        (Disk("TYPE=ext4\n", fsck=4), [], mount_utils.MountErrorType.HAS_FILESYSTEM_ERRORS),
        (Disk("TYPE=ext4\n"), [], mount_utils.MountErrorType.UNKNOWN_MOUNT_ERROR),
        (Disk("TYPE=xfs\n"), [], mount_utils.MountErrorType.FILESYSTEM_MISMATCH),
        (Disk("PTTYPE=gpt\n"), [], mount_utils.MountErrorType.FILESYSTEM_MISMATCH),
    ],
)
def test_what_keeps_a_disk_from_being_mounted(
    disk: Disk, options: list[str], error_type: mount_utils.MountErrorType
) -> None:
    mounter = FakeMounter()
    mounter.errors["/t"] = OSError("cannot")
    with pytest.raises(mount_utils.MountError) as caught:
        mount_utils.SafeFormatAndMount(mounter, disk.exec).format_and_mount("/dev/x", "/t", "ext4", options)
    assert caught.value.type is error_type


def test_disk_that_blkid_could_not_read_for_a_moment_is_not_formatted() -> None:
    answers: Iterator[str | int] = iter([2, "TYPE=ext4\n"])

    def answer(command: list[str]) -> bytes:
        return Disk(next(answers)).exec.run(command) if command[0] == "blkid" else b""

    executor = FakeExec(answer)
    mount_utils.SafeFormatAndMount(FakeMounter(), executor).format_and_mount("/dev/x", "/t", "ext4", [])
    assert [command[0] for command in executor.commands] == ["blkid", "dd", "blkid", "fsck"]


def test_disk_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    executor = utilexec.Executor()
    with pytest.raises(OSError, match=r"cannot read the start of .*: Is a directory"):
        mount.get_disk_format(executor, str(tmp_path))
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    assert mount.get_disk_format(executor, str(tmp_path / "disk")) == ""


@pytest.mark.parametrize("fstype", ["fuse.sh", "xfs,fuse.sh", "../x", "ext4 -F", "ext4\n", "proc", "sysfs"])
def test_file_system_that_is_none_is_not_mounted(fstype: str) -> None:
    mounter, disk = FakeMounter(), Disk("TYPE=ext4\n")
    with pytest.raises(mount_utils.MountError, match="is not the type of a disk file system"):
        mount_utils.SafeFormatAndMount(mounter, disk.exec).format_and_mount("/dev/x", "/t", fstype, [])
    assert mounter.mounts == [] and disk.exec.commands == []


@needs_root
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="no mkfs.ext4")
def test_real_disk_is_formatted_once_and_grown(unmounted_after: Path) -> None:
    disk, target = unmounted_after / "disk", unmounted_after / "target"
    disk.touch()
    os.truncate(disk, 8 << 20)
    target.mkdir()
    executor = utilexec.Executor()
    device = executor.run(["losetup", "--find", "--show", str(disk)]).decode().strip()
    try:
        safe = mount_utils.SafeFormatAndMount(mount_utils.Mounter(), executor)
        safe.format_and_mount(device, str(target), "ext4", [])
        (target / "kept").touch()
        safe.interface.unmount(str(target))
        safe.format_and_mount(device, str(target), "ext4", [])
        assert (target / "kept").exists()
        before = os.statvfs(target).f_blocks
        safe.interface.unmount(str(target))
        # A container that is being started elsewhere may briefly have a copy of the mount.
        wait_for("nobody has the device open", lambda: not HostUtil().device_opened(device))
        os.truncate(disk, 32 << 20)
        executor.run(["losetup", "--set-capacity", device])
        # The file system is unmounted, because growing a mounted one requires CAP_SYS_RESOURCE.
        executor.run(["e2fsck", "-f", "-p", device])
        resizer = mount_utils.ResizeFs(executor)
        assert resizer.need_resize(device, str(target)) and resizer.resize(device, str(target))
        safe.format_and_mount(device, str(target), "ext4", [])
        assert os.statvfs(target).f_blocks > 2 * before
        mount_utils.cleanup_mount_point(str(target), safe.interface, True)
        assert not target.exists()
    finally:
        executor.run(["losetup", "--detach", device])
