"""Tests of reading mounts."""

from pathlib import Path

import pytest

from pkg import mount_utils

MOUNT_INFO = r"""25 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 25 0:27 / /var/lib/a\040b rw,nosuid shared:12 master:3 - tmpfs tmpfs rw,size=1024k
"""


def test_mount_info_is_read() -> None:
    first, second = mount_utils.parse_mount_info(MOUNT_INFO)
    assert (first.device, first.path, first.type) == ("/dev/vda", "/", "ext4")
    assert (second.path, second.type, second.options) == ("/var/lib/a b", "tmpfs", ("rw", "nosuid"))


def test_root_and_proc_of_this_machine() -> None:
    mounter = mount_utils.Mounter()
    assert mounter.is_mount_point("/proc")
    assert not mounter.is_likely_not_mount_point("/proc")


def test_directory_is_no_mount_point(tmp_path: Path) -> None:
    mounter = mount_utils.Mounter()
    assert mounter.is_likely_not_mount_point(str(tmp_path)) and not mounter.is_mount_point(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        mounter.is_likely_not_mount_point(str(tmp_path / "missing"))


def test_failed_mount_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"mount --no-canonicalize -t nosuchfs .*exit status"):
        mount_utils.Mounter().mount("none", str(tmp_path), "nosuchfs", [])


def test_path_exists_sees_dangling_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert mount_utils.path_exists(str(tmp_path / "link"))
    assert not mount_utils.path_exists(str(tmp_path / "missing"))
