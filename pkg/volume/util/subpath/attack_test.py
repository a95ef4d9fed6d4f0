"""Test attacks of containers that try to make the kubelet expose files of the host.

The containers write to the volume as root. The tests use the real file system, and real bind mounts.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pkg import golang, mount_utils
from pkg.mount_utils.testing import FakeMounter
from pkg.volume.util import subpath

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class Node:
    """Hold a volume, a pod's directory, and a file that no container may see."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.volume = root / "volume"
        self.pod = root / "pod"
        self.host = root / "host"
        for directory in (self.volume, self.pod, self.host):
            directory.mkdir()
        (self.host / "shadow").write_text("secret")
        self.mounter = mount_utils.Mounter()
        self.subpather = subpath.Subpather(self.mounter)

    def sub_path(self, relative: str) -> subpath.Subpath:
        return subpath.Subpath(0, str(self.volume / relative), "vol", str(self.volume), str(self.pod), "c")

    def prepare(self, relative: str) -> Path:
        target, _ = self.subpather.prepare_safe_subpath(self.sub_path(relative))
        return Path(target)

    def mounts(self) -> list[str]:
        return [point.path for point in self.mounter.list() if point.path.startswith(f"{self.root}/")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for path in reversed(node.mounts()):
        node.mounter.unmount(path)


def exchange(one: Path, other: Path) -> None:
    """Swap two paths in one step, so that both always exist."""
    if _LIBC.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


@contextlib.contextmanager
def swapped_in_a_loop(one: Path, other: Path) -> Iterator[None]:
    """Swap two paths all the time, so that a concurrent attempt meets either state by chance."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(one, other)

    thread = golang.go(swap, name="attacker")
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


class SwapBefore:
    """Swap two paths before the n-th system call of an attempt that opens, creates or mounts."""

    def __init__(self, number: int, one: Path, other: Path) -> None:
        self.swapped = False
        self._number = number
        self._paths = (one, other)
        self._calls = 0

    def hook(self, fn: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if self._calls == self._number:
                exchange(*self._paths)
                self.swapped = True
            self._calls += 1
            return fn(*args, **kwargs)

        return call


def with_a_swap_at_each_moment(
    node: Node, monkeypatch: pytest.MonkeyPatch, one: Path, other: Path, attempt: Callable[[int], None]
) -> list[str]:
    """Repeat the attempt, each time with the swap one system call later. Return the results."""
    found = list[str]()
    while True:
        number = len(found)
        swap = SwapBefore(number, one, other)
        with monkeypatch.context() as patch:
            for name in ("open", "mkdir"):
                patch.setattr(os, name, swap.hook(getattr(os, name)))
            mount = "mount_sensitive_without_systemd_with_mount_flags"
            patch.setattr(node.mounter, mount, swap.hook(getattr(node.mounter, mount)))
            try:
                attempt(number)
                found.append("done")
            except subpath.NotWithinVolumeError:
                found.append("refused")
        if not swap.swapped:
            return found[:-1]
        exchange(one, other)


Attack = Callable[[Node, Path], None]


def absolute(node: Node, link: Path) -> None:
    link.symlink_to(node.host)


def etc_shadow(node: Node, link: Path) -> None:
    link.symlink_to("/etc/shadow")


def relative(node: Node, link: Path) -> None:
    link.symlink_to("../host")


def relative_from_deep_below(node: Node, link: Path) -> None:
    (node.volume / "a/b").mkdir(parents=True)
    link.symlink_to("a/b/../../../host")


def all_the_way_up(node: Node, link: Path) -> None:
    link.symlink_to("../" * 50 + "etc")


def chain(node: Node, link: Path) -> None:
    (node.volume / "one").symlink_to("two")
    (node.volume / "two").symlink_to("../host")
    link.symlink_to("one")


def back_in_through_the_outside(node: Node, link: Path) -> None:
    (node.volume / "dir").mkdir()
    link.symlink_to("../volume/dir")


def out_and_named_like_the_volume(node: Node, link: Path) -> None:
    (node.root / "volume-of-others").mkdir()
    link.symlink_to(node.root / "volume-of-others")


def absolute_with_steps_back(node: Node, link: Path) -> None:
    link.symlink_to(f"{node.volume}/../host")


def root_of_a_process(node: Node, link: Path) -> None:
    link.symlink_to("/proc/1/root")


def alias_of_the_outside(node: Node, link: Path) -> None:
    (node.root / "alias").symlink_to(node.root)
    link.symlink_to(node.root / "alias/host")


def missing_outside(node: Node, link: Path) -> None:
    link.symlink_to("/no/such/place")


ATTACKS: list[Attack] = [
    absolute,
    etc_shadow,
    relative,
    relative_from_deep_below,
    all_the_way_up,
    chain,
    back_in_through_the_outside,
    out_and_named_like_the_volume,
    absolute_with_steps_back,
    root_of_a_process,
    alias_of_the_outside,
    missing_outside,
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("below", ["", "/below"])
def test_link_out_of_the_volume_is_never_bound(node: Node, attack: Attack, below: str) -> None:
    """A link that leads out of the volume is never bound.

    In CVE-2017-1002101, the container replaces its sub-path with a link, and restarts.
    """
    attack(node, node.volume / "data")
    with pytest.raises(subpath.NotWithinVolumeError):
        node.prepare("data" + below)
    assert node.mounts() == [] and not any(node.pod.iterdir())


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_directory_is_made_through_a_link_out_of_the_volume(node: Node, attack: Attack) -> None:
    attack(node, node.volume / "data")
    before = sorted(path for path in node.root.rglob("*"))
    with pytest.raises(subpath.NotWithinVolumeError):
        node.subpather.safe_make_dir("data/new/dir", str(node.volume), 0o777)
    assert sorted(path for path in node.root.rglob("*")) == before


@pytest.mark.parametrize("sub_path", ["..", "../host", "a/../../host", "a/../..", "/etc"])
def test_steps_back_out_of_the_volume_are_refused(node: Node, sub_path: str) -> None:
    (node.volume / "a").mkdir()
    with pytest.raises(subpath.NotWithinVolumeError):
        node.prepare(sub_path)
    with pytest.raises(subpath.NotWithinVolumeError):
        node.subpather.safe_make_dir(sub_path, str(node.volume), 0o777)
    assert sorted(os.listdir(node.host)) == ["shadow"]


def test_endless_links_and_paths_end(node: Node) -> None:
    (node.volume / "a").symlink_to("b")
    (node.volume / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        node.prepare("a")
    with pytest.raises(OSError, match="File name too long"):
        node.subpather.safe_make_dir("d/" * 1000, str(node.volume), 0o777)


@needs_root
def test_link_made_while_the_old_directory_is_still_bound(node: Node) -> None:
    """A link that replaces a directory is rejected while the directory is still bound.

    The sub-path of a container stays bound between two starts of the container.
    """
    (node.volume / "data").mkdir()
    (node.volume / "data/own").touch()
    target = node.prepare("data")
    assert node.prepare("data") == target and node.mounts() == [str(target)]
    (node.volume / "data").rename(node.volume / "moved")
    (node.volume / "data").symlink_to(node.host)
    with pytest.raises(subpath.NotWithinVolumeError):
        node.prepare("data")
    assert os.listdir(target) == ["own"]


@needs_root
def test_other_directory_in_its_place_is_bound_anew(node: Node) -> None:
    (node.volume / "data").mkdir()
    (node.volume / "data/old").touch()
    target = node.prepare("data")
    (node.volume / "data").rename(node.volume / "moved")
    (node.volume / "data").mkdir()
    (node.volume / "data/new").touch()
    assert node.prepare("data") == target
    assert os.listdir(target) == ["new"] and node.mounts() == [str(target)]


@needs_root
def test_file_in_the_place_of_a_directory_is_bound(node: Node) -> None:
    """A file that has replaced a directory is bound.

    A writer of the volume may create the file while the container is down.
    """
    (node.volume / "data").mkdir()
    target = node.prepare("data")
    (node.volume / "data").rmdir()
    (node.volume / "data").write_text("file")
    assert node.prepare("data") == target and target.read_text() == "file"
    assert node.mounts() == [str(target)]


def bind_and_look(node: Node, path: str, check: Callable[[Path], None]) -> None:
    target = node.prepare(path)
    check(target)
    node.subpather.clean_subpaths(str(node.pod), "vol")


@needs_root
@pytest.mark.parametrize("path", ["data", "data/sub", "link/sub"])
def test_race_of_directory_and_link_never_binds_the_host(
    node: Node, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race between a directory and a link never binds files of the host.

    In CVE-2021-25741, the link appears between the check of the path and the mount.
    """
    for directory in (node.volume / "data/sub", node.host / "sub"):
        directory.mkdir(parents=True)
    (node.volume / "link").symlink_to("data")
    (node.volume / "swap").symlink_to(node.host)
    inodes = {(node.volume / name).stat().st_ino for name in ("data", "data/sub")}

    def check(target: Path) -> None:
        assert target.stat().st_ino in inodes and not (target / "shadow").exists()

    paths = (node.volume / "data", node.volume / "swap")
    found = with_a_swap_at_each_moment(node, monkeypatch, *paths, lambda _: bind_and_look(node, path, check))
    assert found[0] == "refused", "the link existed before the first check"
    assert found[-1] == "done", "the directory was open before the link existed"
    with swapped_in_a_loop(*paths):
        for _ in range(100):
            with contextlib.suppress(subpath.NotWithinVolumeError):
                bind_and_look(node, path, check)


@needs_root
def test_race_of_file_and_link_never_binds_the_host(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.volume / "file").write_text("own")
    (node.volume / "swap").symlink_to(node.host / "shadow")

    def check(target: Path) -> None:
        assert target.read_text() == "own"

    paths = (node.volume / "file", node.volume / "swap")
    found = with_a_swap_at_each_moment(node, monkeypatch, *paths, lambda _: bind_and_look(node, "file", check))
    assert found[0] == "refused" and found[-1] == "done"
    with swapped_in_a_loop(*paths):
        for _ in range(100):
            with contextlib.suppress(subpath.NotWithinVolumeError):
                bind_and_look(node, "file", check)


def test_race_of_directory_and_link_never_makes_directories_on_the_host(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.volume / "data").mkdir()
    (node.volume / "swap").symlink_to(node.host)

    def make(number: int) -> None:
        node.subpather.safe_make_dir(f"data/{number}/x", str(node.volume), 0o777)

    paths = (node.volume / "data", node.volume / "swap")
    found = with_a_swap_at_each_moment(node, monkeypatch, *paths, make)
    assert found[0] == "refused" and found[-1] == "done"
    with swapped_in_a_loop(*paths):
        for number in range(1000):
            with contextlib.suppress(subpath.NotWithinVolumeError):
                make(number)
    assert os.listdir(node.host) == ["shadow"]


@needs_root
def test_cleaning_up_removes_nothing_of_the_volume(node: Node) -> None:
    (node.volume / "data/deep").mkdir(parents=True)
    (node.volume / "data/deep/file").write_text("kept")
    node.prepare("data")
    node.subpather.clean_subpaths(str(node.pod), "vol")
    assert (node.volume / "data/deep/file").read_text() == "kept"
    assert node.mounts() == [] and not any(node.pod.iterdir())


@needs_root
def test_busy_sub_path_is_left_alone(node: Node) -> None:
    (node.volume / "data").mkdir()
    (node.volume / "data/file").write_text("kept")
    target = node.prepare("data")
    with (target / "file").open(), pytest.raises(OSError, match="busy"):
        node.subpather.clean_subpaths(str(node.pod), "vol")
    assert (node.volume / "data/file").read_text() == "kept" and node.mounts() == [str(target)]


@needs_root
def test_mount_below_a_sub_path_is_not_crossed(node: Node) -> None:
    """The clean-up fails on a mount below a sub-path, and removes nothing of that mount.

    A container whose mounts propagate to the host may have mounted something in its sub-path.
    """
    (node.volume / "data/tmpfs").mkdir(parents=True)
    target = node.prepare("data")
    node.mounter.mount("tmpfs", str(target / "tmpfs"), "tmpfs", [])
    (target / "tmpfs/file").write_text("kept")
    with pytest.raises(OSError, match="busy"):
        node.subpather.clean_subpaths(str(node.pod), "vol")
    assert (target / "tmpfs/file").read_text() == "kept"


@needs_root
def test_second_mount_over_a_sub_path_is_not_cleared(node: Node) -> None:
    (node.volume / "data").mkdir()
    (node.volume / "data/file").write_text("kept")
    target = node.prepare("data")
    node.mounter.mount(str(node.host), str(target), "", ["bind"])
    with contextlib.suppress(OSError):
        node.subpather.clean_subpaths(str(node.pod), "vol")
    with contextlib.suppress(OSError):
        node.subpather.clean_subpaths(str(node.pod), "vol")
    assert node.mounts() == [] and not any(node.pod.iterdir())
    assert (node.volume / "data/file").exists() and (node.host / "shadow").exists()


@needs_root
def test_link_among_the_bind_targets_is_not_followed(node: Node) -> None:
    elsewhere = node.root / "elsewhere"
    elsewhere.mkdir()
    node.mounter.mount("tmpfs", str(elsewhere), "tmpfs", [])
    container = node.pod / "volume-subpaths/vol/c"
    container.mkdir(parents=True)
    (container / "0").symlink_to(elsewhere)
    (node.pod / "volume-subpaths/vol/d").symlink_to(node.host)
    with pytest.raises(OSError):
        # The link in place of a container's directory stays, and so does what it points to.
        node.subpather.clean_subpaths(str(node.pod), "vol")
    assert node.mounts() == [str(elsewhere)] and (node.host / "shadow").exists() and not container.exists()


def test_full_directory_among_the_bind_targets_stays(node: Node) -> None:
    left_over = node.pod / "volume-subpaths/vol/c/0"
    left_over.mkdir(parents=True)
    (left_over / "file").touch()
    with pytest.raises(OSError, match="not empty"):
        subpath.Subpather(FakeMounter()).clean_subpaths(str(node.pod), "vol")
    assert (left_over / "file").exists()
