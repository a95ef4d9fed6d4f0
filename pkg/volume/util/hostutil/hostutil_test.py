"""Test the examination of the host's files."""

import os
import re
import socket
from pathlib import Path

import pytest

from pkg.mount_utils import MountPoint
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util import hostutil
from pkg.volume.util.hostutil import hostutil as module

MOUNT_INFO = """62 0 253:0 / / rw,relatime shared:1 - ext4 /dev/ssd rw,seclabel,data=ordered
78 62 0:41 / /tmp rw,nosuid,nodev shared:30 - tmpfs tmpfs rw,seclabel
80 62 0:42 / /var/lib/private rw - tmpfs tmpfs rw
83 63 0:44 / /var/lib/bar rw - nfs server:/x rw,context="system_u:object_r:container_file_t:s0:c0,c1"
90 62 0:45 / /var/lib/private/cover rw shared:2 - tmpfs tmpfs rw
91 90 0:46 / /var/lib/private/cover rw - tmpfs tmpfs rw
"""


@pytest.fixture
def mount_info(tmp_path: Path) -> str:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNT_INFO)
    return str(file)


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/", True),
        ("/tmpfoo", True),
        ("/tmp/foo", True),
        ("/var/lib/private/a/b", False),
        # The topmost mount counts.
        ("/var/lib/private/cover", False),
    ],
)
def test_shared_mounts(mount_info: str, path: str, shared: bool) -> None:
    assert module.is_shared(path, mount_info) is shared


def test_path_on_no_mount_is_told(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("")
    with pytest.raises(OSError, match='cannot find mount point for "/x"'):
        module.find_mount_info("/x", str(tmp_path / "mountinfo"))


@pytest.mark.parametrize(
    ("path", "enabled", "support", "context"),
    [
        ("/tmp/x", True, True, ""),
        ("/var/lib/private", True, False, ""),
        ("/var/lib/bar", True, False, "system_u:object_r:container_file_t:s0:c0,c1"),
        ("/tmp/x", False, False, ""),
        ("/var/lib/bar", False, False, ""),
    ],
)
def test_selinux_of_mounts(mount_info: str, path: str, enabled: bool, support: bool, context: str) -> None:
    assert module.get_selinux(path, mount_info, lambda: enabled) is support
    assert module.get_selinux_mount_context(path, mount_info, lambda: enabled) == context


def test_file_types(tmp_path: Path) -> None:
    util = hostutil.HostUtil()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    assert util.get_file_type(str(tmp_path)) == "Directory"
    assert util.get_file_type(str(tmp_path / "link")) == "File"
    assert util.get_file_type("/dev/null") == "CharDevice" and util.path_is_device("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert util.get_file_type(str(tmp_path / "socket")) == "Socket"
    with pytest.raises(OSError, match="only recognise"):
        util.get_file_type(str(tmp_path / "fifo"))
    with pytest.raises(FileNotFoundError, match=re.escape(f'path "{tmp_path}/no" does not exist')):
        util.get_file_type(str(tmp_path / "no"))


def test_links_are_followed(tmp_path: Path) -> None:
    util = hostutil.HostUtil()
    (tmp_path / "dangling").symlink_to("no")
    (tmp_path / "link").symlink_to("..")
    assert not util.path_exists(str(tmp_path / "dangling")) and util.path_exists(str(tmp_path / "link"))
    assert util.eval_host_symlinks(str(tmp_path / "link")) == str(tmp_path.parent)
    with pytest.raises(FileNotFoundError):
        util.eval_host_symlinks(str(tmp_path / "dangling"))
    assert util.get_owner(str(tmp_path)) == (os.getuid(), os.getgid())


def test_device_opened(tmp_path: Path) -> None:
    util = hostutil.HostUtil()
    assert not util.device_opened("/dev/null") and not util.device_opened(str(tmp_path))
    with pytest.raises(OSError, match="PathIsDevice failed"):
        util.device_opened(str(tmp_path / "no"))


@pytest.mark.parametrize(
    ("path", "name"),
    [("/pods/u/vol", "dev/disk"), ("/elsewhere/vol", "vol")],
)
def test_device_name_from_mount(path: str, name: str) -> None:
    plugin_dir = "/plugins/p/mounts" if path.startswith("/pods") else "/plugins/other"
    points = [MountPoint("/dev/sdb", p, "ext4", ()) for p in (path, "/plugins/p/mounts/dev/disk")]
    assert hostutil.get_device_name_from_mount(FakeMounter(points), path, plugin_dir) == name
    with pytest.raises(OSError, match="is not mounted"):
        hostutil.get_device_name_from_mount(FakeMounter(), path, plugin_dir)
