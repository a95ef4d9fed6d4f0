"""Test the detection of swap."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from kubelet.util.swap import swap_util
from pkg.mount_utils.testing import FakeMounter


class _RefusingMounter(FakeMounter):
    def mount_sensitive(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        self.calls.append(("mount", target))
        raise OSError("bad option")


@pytest.mark.parametrize(
    ("release", "in_user_ns", "mount_error", "supported", "mounted"),
    [
        pytest.param((6, 4), False, False, True, False, id="new kernel"),
        pytest.param((6, 4), True, False, False, False, id="in a user namespace"),
        pytest.param((5, 15), False, False, True, True, id="old kernel that has it"),
        pytest.param((5, 15), False, True, False, True, id="old kernel that has not"),
    ],
)
def test_noswap(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: tuple[int, int],
    in_user_ns: bool,
    mount_error: bool,
    supported: bool,
    mounted: bool,
) -> None:
    monkeypatch.setattr(swap_util, "_kernel_version", lambda: release)
    monkeypatch.setattr(swap_util, "_running_in_user_ns", lambda: in_user_ns)
    mounter = _RefusingMounter() if mount_error else FakeMounter()
    assert swap_util._try_tmpfs_noswap_option(mounter, str(tmp_path)) is supported
    assert bool(mounter.calls) is mounted and mounter.list() == []
    assert os.listdir(tmp_path) == []


_NO_SWAP = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.mark.parametrize(
    ("content", "on"),
    [(None, False), ("", False), (_NO_SWAP, False), (f"{_NO_SWAP}/dev/vda5 partition 8388604 0 -2\n", True)],
    ids=["none", "empty", "no device", "a device"],
)
def test_is_swap_on(tmp_path: Path, log: io.StringIO, content: str | None, on: bool) -> None:
    swaps = tmp_path / "swaps"
    if content is not None:
        swaps.write_text(content)
    assert swap_util.is_swap_on(str(swaps)) is on
    assert ('"Swap is on" /proc/swaps contents=' in log.getvalue()) is on
    assert ("/dev/vda5 partition 8388604" in log.getvalue()) is on


def test_accident_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_util, "_kernel_version", lambda: (5, 15))
    monkeypatch.setattr(swap_util, "_running_in_user_ns", lambda: False)
    monkeypatch.setattr(swap_util, "_tmpfs_noswap_option_supported", None)
    mounter = FakeMounter()

    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert not swap_util.is_tmpfs_noswap_option_supported(mounter, str(tmp_path / "none"))
    with monkeypatch.context() as patch:
        patch.setattr(mounter, "mount_sensitive", no_descriptor)
        assert not swap_util.is_tmpfs_noswap_option_supported(mounter, str(tmp_path))
    assert swap_util.is_tmpfs_noswap_option_supported(mounter, str(tmp_path))


def test_mount_that_cannot_be_undone_is_left_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_util, "_kernel_version", lambda: (5, 15))
    monkeypatch.setattr(swap_util, "_running_in_user_ns", lambda: False)
    monkeypatch.setattr(swap_util, "_tmpfs_noswap_option_supported", None)
    mounter = FakeMounter()

    def busy(target: str) -> None:
        # The kernel refuses to remove a mounted directory, like one that is not empty.
        (tmp_path / target / "busy").touch()
        raise OSError("target is busy")

    monkeypatch.setattr(mounter, "unmount", busy)
    for _ in range(2):
        assert swap_util.is_tmpfs_noswap_option_supported(mounter, str(tmp_path))
    assert len(mounter.list()) == 1


def test_this_kernel() -> None:
    assert swap_util._kernel_version() >= (2, 6)
