"""Test the inspection of the directories of orphaned pods."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kubelet import orphans
from pkg import mount_utils
from pkg.apimachinery import types
from pkg.mount_utils.testing import FakeMounter
from pkg.util import filetree, removeall, testing


def inspect(tmp_path: Path, *mounts: str) -> orphans.Orphan:
    proc = tmp_path / "proc" / "self"
    proc.mkdir(parents=True, exist_ok=True)
    lines = [f"{9 + n} 1 0:5 / {tmp_path}/pods/u/{where} rw - tmpfs none rw\n" for n, where in enumerate(mounts)]
    (proc / "mountinfo").write_text("".join(lines))
    (proc / "ns").mkdir(exist_ok=True)
    if not (proc / "ns" / "mnt").is_symlink():
        os.symlink("mnt:[1]", proc / "ns" / "mnt")
    return orphans.inspect(str(tmp_path / "pods"), types.UID("u"), str(tmp_path / "proc"))


@pytest.mark.parametrize(
    ("directories", "files", "kind", "reasons"),
    [
        (["containers/c"], ["etc-hosts"], orphans.Kind.LEFTOVER, ["it holds nothing except what"]),
        (["volumes/plugin/name"], [], orphans.Kind.LEFTOVER, ["it holds nothing except what"]),
        (
            ["volumes/kubernetes.io~empty-dir/data/deep"],
            [f"volumes/kubernetes.io~empty-dir/data/deep/{name}" for name in "abcd"],
            orphans.Kind.DATA,
            ["volume data (kubernetes.io/empty-dir) still holds 4 files: deep/a, deep/b, deep/c, ..."],
        ),
        (
            ["volume-subpaths/data/c"],
            ["volume-subpaths/data/c/0"],
            orphans.Kind.DATA,
            ["sub-path of volume data still holds 1 file: c/0"],
        ),
    ],
)
def test_kinds(
    tmp_path: Path, directories: list[str], files: list[str], kind: orphans.Kind, reasons: list[str]
) -> None:
    for name in directories:
        (tmp_path / "pods/u" / name).mkdir(parents=True)
    for name in files:
        (tmp_path / "pods/u" / name).write_text("content")
    orphan = inspect(tmp_path)
    assert orphan.kind is kind and orphan.path == str(tmp_path / "pods/u")
    assert [found.startswith(expected) for found, expected in zip(orphan.reasons, reasons, strict=True)] == [True]


def test_tree_deeper_than_a_path_is_looked_at_and_removed(tmp_path: Path) -> None:
    top = tmp_path / "pods/u/volumes/kubernetes.io~empty-dir/data"
    with testing.deep_tree(str(top), 3000):
        orphan = inspect(tmp_path)
        assert orphan.kind is orphans.Kind.DATA
        assert orphan.reasons[0].endswith("still holds 1 file: " + "d/" * filetree.HELD_LEVELS + ".../last")
        orphans.remove(FakeMounter(), orphan)
        assert not (tmp_path / "pods/u").exists()


def test_links_to_devices_are_told(tmp_path: Path) -> None:
    (tmp_path / "pods/u/volumeDevices/kubernetes.io~csi").mkdir(parents=True)
    os.symlink("/dev/loop9", tmp_path / "pods/u/volumeDevices/kubernetes.io~csi/disk")
    orphan = inspect(tmp_path)
    assert orphan.kind is orphans.Kind.DATA
    assert orphan.reasons == ["block volume disk (kubernetes.io/csi) is still linked to /dev/loop9"]


def test_what_a_mount_hides_is_not_looked_at(tmp_path: Path) -> None:
    mounted = tmp_path / "pods/u/volumes/plugin/name"
    mounted.mkdir(parents=True)
    (mounted / "file").write_text("data")
    orphan = inspect(tmp_path, "volumes/plugin/name")
    assert orphan.kind is orphans.Kind.MOUNTED
    assert orphan.reasons == [f"{mounted} is mounted (tmpfs from none)"]


def test_directory_with_data_is_removed_when_asked_to(tmp_path: Path) -> None:
    (tmp_path / "pods/u/volumes/plugin/name").mkdir(parents=True)
    (tmp_path / "pods/u/volumes/plugin/name/file").write_text("data")
    orphans.remove(FakeMounter(), inspect(tmp_path))
    assert not (tmp_path / "pods/u").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_nothing_is_removed_of_a_directory_with_a_mount(tmp_path: Path) -> None:
    mounted = tmp_path / "pods/u/volumes/plugin/name"
    mounted.mkdir(parents=True)
    (tmp_path / "pods/u/etc-hosts").write_text("")
    orphan = inspect(tmp_path)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mounted], check=True)
    try:
        with pytest.raises(removeall.MountedError, match=f"{mounted} is a mount point"):
            orphans.remove(mount_utils.Mounter(), orphan)
        assert (tmp_path / "pods/u/etc-hosts").exists()
    finally:
        subprocess.run(["umount", mounted], check=True)
