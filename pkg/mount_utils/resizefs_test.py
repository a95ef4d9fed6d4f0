"""Test growing file systems."""

import pytest

from pkg import mount_utils
from pkg.util.testing import FakeExec, exit_status

BTRFS = "superblock\nsectorsize\t\t4096\ntotal_bytes\t\t1048576\nother words here\n"


def disk(read_only: str = "0", file_system: str = "", size: str = "0", btrfs: str = BTRFS) -> FakeExec:
    def answer(command: list[str]) -> bytes:
        match command:
            case ["blockdev", "--getro", _]:
                return read_only.encode()
            case ["blockdev", *_]:
                return size.encode()
            case ["blkid", *_] if not file_system:
                raise exit_status(2)
            case ["blkid", *_]:
                return f"TYPE={file_system}\n".encode()
            case ["btrfs", "inspect-internal", *_]:
                return btrfs.encode()
        return b""

    return FakeExec(answer)


@pytest.mark.parametrize(
    ("executor", "needed"),
    [
        (disk(read_only="1", file_system="ext4"), False),
        (disk(), False),
        (disk(file_system="ext3"), True),
        (disk(file_system="ext4"), True),
        (disk(file_system="xfs"), True),
        (disk(file_system="btrfs", size="1048576"), False),
        (disk(file_system="btrfs", size="1052672"), False),
        (disk(file_system="btrfs", size="2097152"), True),
    ],
)
def test_need_resize(executor: FakeExec, needed: bool) -> None:
    assert mount_utils.ResizeFs(executor).need_resize("/dev/x", "/m") is needed


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (disk(read_only="2"), "Expected 1 or 0"),
        (disk(file_system="vfat"), "could not parse fs info of given filesystem format: vfat"),
        (disk(file_system="btrfs", btrfs=""), "could not find block size"),
        (disk(file_system="btrfs", btrfs="sectorsize 1"), "could not find total size"),
        (disk(file_system="btrfs", btrfs="sectorsize x"), "failed to parse sectorsize x"),
        (disk(file_system="btrfs", size="many"), "failed to parse size"),
    ],
)
def test_need_that_cannot_be_told(executor: FakeExec, message: str) -> None:
    with pytest.raises(OSError, match=message):
        mount_utils.ResizeFs(executor).need_resize("/dev/x", "/m")


@pytest.mark.parametrize(
    ("file_system", "command"),
    [
        ("ext4", "resize2fs /dev/x"),
        ("xfs", "xfs_growfs -d /m"),
        ("btrfs", "btrfs filesystem resize max /m"),
    ],
)
def test_each_file_system_has_its_tool(file_system: str, command: str) -> None:
    executor = disk(file_system=file_system)
    assert mount_utils.ResizeFs(executor).resize("/dev/x", "/m")
    assert " ".join(executor.commands[-1]) == command


def test_nothing_to_resize_and_unknown_file_system() -> None:
    assert not mount_utils.ResizeFs(disk()).resize("/dev/x", "/m")
    with pytest.raises(OSError, match="resize of format vfat is not supported"):
        mount_utils.ResizeFs(disk(file_system="vfat")).resize("/dev/x", "/m")


def test_failed_tool_is_quoted() -> None:
    def answer(command: list[str]) -> bytes:
        if command[0] == "blkid":
            return b"TYPE=ext4\n"
        raise exit_status(1, "superblock lost")

    with pytest.raises(OSError, match=r"resize of device /dev/x failed: exit status 1\. resize2fs output: superblock"):
        mount_utils.ResizeFs(FakeExec(answer)).resize("/dev/x", "/m")
