"""Test reading the kernel's list of mounts."""

import errno
import io
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from pkg import golang
from pkg.mount_utils import Mounter, mount_helper_unix
from pkg.mount_utils.mount_helper_unix import MountInfo
from pkg.util import procfs


def parse(tmp_path: Path, text: str) -> list[MountInfo]:
    file = tmp_path / "mountinfo"
    file.write_text(text)
    return mount_helper_unix.parse_mount_info(str(file))


def test_all_fields(tmp_path: Path) -> None:
    line = r"31 25 0:27 /a\040b /var/lib/a\040b rw,nosuid shared:12 master:3 - tmpfs my\040tmpfs rw,size=1024k"
    assert parse(tmp_path, line + "\n") == [
        MountInfo(
            id=31,
            parent_id=25,
            major=0,
            minor=27,
            root="/a b",
            mount_point="/var/lib/a b",
            mount_options=("rw", "nosuid"),
            optional_fields=("shared:12", "master:3"),
            fs_type="tmpfs",
            source="my tmpfs",
            super_options=("rw", "size=1024k"),
        )
    ]


def test_empty_source_and_no_optional_fields(tmp_path: Path) -> None:
    (info,) = parse(tmp_path, "31 25 0:27 / /a rw - tmpfs  rw")
    assert (info.source, info.optional_fields, info.super_options) == ("", (), ("rw",))


def test_lost_directory_is_still_known_by_its_path(tmp_path: Path) -> None:
    (info,) = parse(tmp_path, r"31 25 0:27 / /mnt/a\040(deleted) rw - nfs server:/ rw")
    assert info.mount_point == "/mnt/a"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("31 25 0:27 / /a rw", "wrong number of fields"),
        ("31 25 0 / /a rw - tmpfs tmpfs rw", "not enough values"),
        ("x 25 0:27 / /a rw - tmpfs tmpfs rw", "invalid literal"),
        ("31 25 0:27 / /a rw shared:1 x tmpfs tmpfs rw", "is not in list"),
        ("31 25 0:27 / /a rw shared:1 master:1 - tmpfs", "not enough values"),
    ],
)
def test_bad_line_is_logged_and_hides_no_other(tmp_path: Path, log: io.StringIO, line: str, message: str) -> None:
    good = "32 25 0:27 / /b rw - tmpfs tmpfs rw"
    assert [info.id for info in parse(tmp_path, f"{line}\n{good}\n")] == [32]
    assert message in log.getvalue() and line in log.getvalue()
    (tmp_path / "mountinfo").write_text(f"31\n{good}\n")
    assert mount_helper_unix.mount_points(str(tmp_path / "mountinfo")) == {"/b"}


@pytest.mark.parametrize("name", ["a\rb", "a\x0bb", "a\x0cb", "a\x1cb", "a\x85b", "a\u2028b", "a\r", "a\udcffb"])
def test_only_a_newline_ends_a_line(tmp_path: Path, name: str) -> None:
    """Only a newline ends a line of the mount table. The kernel escapes only spaces, tabs, newlines and backslashes."""
    line = f"31 25 0:27 /v/{name} /mnt/{name} rw - tmpfs t rw\n32 25 0:28 / /other rw - tmpfs t rw\n"
    (tmp_path / "mountinfo").write_bytes(os.fsencode(line))
    infos = mount_helper_unix.parse_mount_info(str(tmp_path / "mountinfo"))
    assert [info.mount_point for info in infos] == [f"/mnt/{name}", "/other"]
    assert infos[0].root == f"/v/{name}"
    assert mount_helper_unix.mount_points(str(tmp_path / "mountinfo")) == {f"/mnt/{name}", "/other"}


class Kernel:
    """Fake a kernel of a given release, whose list of mounts returns the given paths at each reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, release: str, readings: Iterable[str]) -> None:
        self._readings = iter(readings)
        uname = os.uname()
        monkeypatch.setattr(os, "uname", lambda: os.uname_result((*uname[:2], release, *uname[3:])))
        monkeypatch.setattr(procfs, "read", self._read)
        # The result is cached for the process, so the test bypasses the cache.
        monkeypatch.setattr(
            mount_helper_unix, "_kernel_has_mountinfo_bug", mount_helper_unix._kernel_has_mountinfo_bug.__wrapped__
        )

    def _read(self, path: str) -> str:
        return "".join(f"31 25 0:27 / /{name} rw - tmpfs t rw\n" for name in next(self._readings))


@pytest.mark.parametrize("release", ["3.10.0", "4.18.0-553.el8_10.x86_64", "5.4.0-216-generic", "5.7-rc1", "strange"])
def test_list_that_an_old_kernel_may_have_left_a_mount_out_of(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """The list is read again until it is complete.

    If mount "a" disappears between two pieces of the list, an old kernel skips the first mount of the second piece.
    """
    Kernel(monkeypatch, release, ["abd", "bcd", "bcd", "abd", "bcd", "bcd"])
    assert mount_helper_unix.mount_points("mountinfo") == {"/b", "/c", "/d"}
    assert [info.mount_point for info in mount_helper_unix.parse_mount_info("mountinfo")] == ["/b", "/c", "/d"]


def test_list_of_an_old_kernel_that_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    Kernel(monkeypatch, "4.18.0", ["a", "b"] * 20)
    with pytest.raises(OSError, match="could not get consistent content of mountinfo after 10 attempts"):
        mount_helper_unix.mount_points("mountinfo")


@pytest.mark.parametrize("release", ["5.8.0", "5.15.0-1", "6.1.0", "10.0"])
def test_newer_kernels_are_asked_once(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    Kernel(monkeypatch, release, ["ab"])
    assert mount_helper_unix.mount_points("mountinfo") == {"/a", "/b"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_mount_at_a_strange_name_of_the_real_kernel(tmp_path: Path) -> None:
    path = os.path.join(str(tmp_path), "a\r b\x1c\udcff\\")
    os.mkdir(path)
    mounter = Mounter()
    mounter.mount("t", path, "tmpfs", [])
    try:
        assert mounter.is_mount_point(path)
        assert [point.device for point in mounter.list() if point.path == path] == ["t"]
    finally:
        mounter.unmount(path)
    assert not mounter.is_mount_point(path)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", ()),
        ("rw", ("rw",)),
        ("rw,relatime", ("rw", "relatime")),
        (
            'rw,context="system_u:object_r:t:s0:c0,c1",seclabel',
            ("rw", 'context="system_u:object_r:t:s0:c0,c1"', "seclabel"),
        ),
        ('rw,context="a,b', ("rw", 'context="a,b')),
    ],
)
def test_commas_between_quotes_separate_nothing(text: str, options: tuple[str, ...]) -> None:
    assert mount_helper_unix.split_mount_options(text) == options


@pytest.mark.parametrize(
    ("err", "corrupted"),
    [
        (None, False),
        (OSError(errno.ENOTCONN, "x"), True),
        (OSError(errno.ESTALE, "x"), True),
        (OSError(errno.EIO, "x"), True),
        (OSError(errno.EACCES, "x"), True),
        (OSError(errno.EHOSTDOWN, "x"), True),
        (OSError(errno.EWOULDBLOCK, "x"), True),
        (OSError(errno.ENODEV, "x"), True),
        (OSError(errno.ENOENT, "x"), False),
        (ValueError("x"), False),
    ],
)
def test_which_errors_mean_a_broken_mount(err: Exception | None, corrupted: bool) -> None:
    assert mount_helper_unix.is_corrupted_mnt(err) is corrupted


def test_path_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    exists = {n: mount_helper_unix.path_exists(str(tmp_path / n)) for n in ("file", "link", "dangling", "no", "file/x")}
    assert exists == {"file": True, "link": True, "dangling": False, "no": False, "file/x": False}


def test_waits_no_longer_than_its_context(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").touch()
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        mount_helper_unix.wait_until(ctx, lambda: False, str(tmp_path / "mountinfo"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_asks_again_when_a_mount_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_helper_unix, "_RESYNC_PERIOD", 600.0)
    subprocess.run(["mount", "-t", "tmpfs", "t", tmp_path], check=True)
    asked: golang.Channel[None] = golang.Channel(100)

    def is_gone() -> bool:
        asked.send(None)
        mounts = mount_helper_unix.parse_mount_info(mount_helper_unix.MOUNT_INFO)
        return all(info.mount_point != str(tmp_path) for info in mounts)

    waiting = golang.go(mount_helper_unix.wait_until, golang.background(), is_gone, name="wait-test")
    try:
        assert asked.recv(30)[1]
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    waiting.join(30)
    assert not waiting.is_alive()
