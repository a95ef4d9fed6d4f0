"""Test the metrics providers of volumes.

Go: pkg/volume/metrics_du_test.go, metrics_nil_test.go, metrics_statfs_test.go, metrics_block_linux_test.go
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest

from kubelet.server import metrics as servermetrics
from pkg import mount_utils, volume
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util.runtime.testing import failures, raising
from pkg.golang.testing import frames_kept_after, out_of_threads
from pkg.golang.turn import Turns
from pkg.util import filetree, testing
from pkg.volume import Metrics
from pkg.volume.util import fs


def value(quantity: Quantity | None) -> int:
    assert quantity is not None
    return quantity.value()


def test_du(tmp_path: Path) -> None:
    provider = volume.MetricsDu(str(tmp_path))
    empty = provider.get_metrics()
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    os.link(tmp_path / "file", tmp_path / "other")
    metrics = provider.get_metrics()
    assert value(metrics.used) - value(empty.used) in range(10_000, 30_000)
    assert value(metrics.inodes_used) - value(empty.inodes_used) == 1
    assert value(metrics.capacity) > value(metrics.available) > 0
    assert metrics.time is not None and value(metrics.inodes) >= value(metrics.inodes_free)


def test_du_of_a_tree_deeper_than_a_path(tmp_path: Path) -> None:
    with testing.deep_tree(str(tmp_path / "t"), 3000):
        usage = fs.disk_usage(str(tmp_path))
    assert usage.inodes == 1 + 1 + 3000 + 1


class WatchedTurns(Turns):
    """Report whether a thread has a turn, and count the turns."""

    def __init__(self) -> None:
        super().__init__(1)
        self.held = self.taken = 0

    def take(self, had: float) -> tuple[float, bool]:
        self.held += 1
        self.taken += 1
        return super().take(had)

    def give_back(self, newcomer_had: float = 0.0) -> None:
        self.held -= 1
        super().give_back(newcomer_had)


@pytest.mark.parametrize("breaks_off", [False, True])
def test_du_counts_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_off: bool) -> None:
    """The count takes turns.

    Many volumes may be counted at the same time, and other threads need the interpreter too.
    """
    turns = WatchedTurns()

    for number in range(500):
        (tmp_path / f"{number}").touch()
    scandir = os.scandir

    @contextlib.contextmanager
    def scan(fd: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(fd) as entries:
            assert turns.held == 1
            yield entries
        if breaks_off:
            raise OSError("the disk is broken")

    monkeypatch.setattr(fs.fs, "_turns", turns)
    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(OSError, match="broken") if breaks_off else contextlib.nullcontext():
        assert fs.disk_usage(str(tmp_path)).inodes == 501
    assert turns.held == 0
    assert turns.taken > 500 // fs.fs._STEPS_PER_TURN


def test_du_passes_its_turn_on_while_it_enters_empty_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty directories count as steps too, because entering one takes longer than counting an entry."""
    turns = WatchedTurns()
    entered = Counter[int]()
    enter = filetree.Directory.enter

    def note(directory: filetree.Directory, name: str, one_filesystem: bool = True) -> None:
        entered[turns.taken] += 1
        enter(directory, name, one_filesystem)

    for number in range(500):
        (tmp_path / f"{number}").mkdir()
    monkeypatch.setattr(fs.fs, "_turns", turns)
    monkeypatch.setattr(filetree.Directory, "enter", note)
    assert fs.disk_usage(str(tmp_path)).inodes == 501
    assert sum(entered.values()) == 500
    assert max(entered.values()) <= fs.fs._STEPS_PER_TURN


def test_du_of_files_with_several_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 10_000)
        for number in range(3):
            os.link(tmp_path / name, tmp_path / f"{name}{number}")
    (tmp_path / "single").write_bytes(b"x" * 10_000)
    files = [tmp_path / name for name in ("a", "b", "single")]
    size = sum(file.stat().st_blocks * 512 for file in [tmp_path, *files])
    assert fs.disk_usage(str(tmp_path)) == fs.UsageInfo(size, 4)


def test_du_counts_each_name_as_a_part_of_its_file(tmp_path: Path) -> None:
    """Each name counts as a part, so that no file need be kept in memory: a pod may create millions of names."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/inside").write_bytes(b"x" * 10_000)
    os.link(tmp_path / "volume/inside", tmp_path / "outside")
    directory, file = (tmp_path / "volume").stat().st_blocks, (tmp_path / "outside").stat().st_blocks
    assert fs.disk_usage(str(tmp_path / "volume")) == fs.UsageInfo((directory + file // 2) * 512, 1)


@pytest.mark.parametrize(
    ("source", "provider", "good"),
    [("du", volume.MetricsDu, "."), ("statfs", volume.MetricsStatFS, "."), ("block", volume.MetricsBlock, "device")],
)
def test_time_that_it_takes_is_noted(
    tmp_path: Path,
    source: str,
    provider: type[volume.MetricsDu | volume.MetricsStatFS | volume.MetricsBlock],
    good: str,
) -> None:
    (tmp_path / "device").touch()
    duration = servermetrics.VOLUME_STAT_CAL_DURATION.labels(source)
    before = count(duration)
    provider(str(tmp_path / good)).get_metrics()
    with pytest.raises((OSError, volume.MetricsError)):
        provider(str(tmp_path / "none")).get_metrics()
    assert count(duration) == before + 2


def count(histogram: prometheus_client.Histogram) -> float:
    samples = [sample for family in histogram.collect() for sample in family.samples]
    return next(float(sample.value) for sample in samples if sample.name.endswith("_count"))


def test_stat_fs(tmp_path: Path) -> None:
    metrics = volume.MetricsStatFS(str(tmp_path)).get_metrics()
    assert value(metrics.capacity) > value(metrics.used) > 0
    assert value(metrics.inodes_used) == value(metrics.inodes) - value(metrics.inodes_free)


def test_no_path() -> None:
    for provider in (volume.MetricsDu(""), volume.MetricsStatFS(""), volume.MetricsBlock("")):
        with pytest.raises(volume.MetricsError, match="no path defined") as caught:
            provider.get_metrics()
        assert caught.value.code is volume.ErrCode.NO_PATH_DEFINED


def test_path_that_is_not_there(tmp_path: Path) -> None:
    assert frames_kept_after(volume.MetricsDu(str(tmp_path / "none")).get_metrics) == []
    with pytest.raises(FileNotFoundError):
        volume.MetricsDu(str(tmp_path / "none")).get_metrics()
    with pytest.raises(volume.MetricsError, match="failed to get FsInfo due to error"):
        volume.MetricsStatFS(str(tmp_path / "none")).get_metrics()


def test_no_thread_to_ask_a_file_system(tmp_path: Path) -> None:
    with out_of_threads("file-system-") as refused:
        with pytest.raises(OSError, match=f"{tmp_path}: cannot query the file system: .*can't start new thread"):
            fs.disk_usage(str(tmp_path))
        with pytest.raises(volume.MetricsError, match="cannot query the file system"):
            volume.MetricsStatFS(str(tmp_path)).get_metrics()
    assert len(refused) == 2
    assert volume.MetricsStatFS(str(tmp_path)).get_metrics().capacity


def test_nil() -> None:
    provider = volume.MetricsNil()
    assert not provider.supports_metrics()
    with pytest.raises(volume.MetricsError) as caught:
        provider.get_metrics()
    assert volume.is_not_supported(caught.value)
    assert not volume.is_not_supported(volume.new_no_path_defined_error())
    assert not volume.is_not_supported(OSError())
    assert volume.is_not_supported(volume.new_not_implemented_error("x"))
    assert str(volume.new_not_supported_error_with_driver_name("d")) == "metrics are not supported for d volumes"


def test_block(tmp_path: Path) -> None:
    (tmp_path / "device").touch()
    os.truncate(tmp_path / "device", 123 << 20)
    assert value(volume.MetricsBlock(str(tmp_path / "device")).get_metrics().capacity) == 123 << 20
    with pytest.raises(OSError, match="unable to open device"):
        volume.MetricsBlock(str(tmp_path / "none")).get_metrics()


def test_cached() -> None:
    class Provider:
        calls = 0

        def get_metrics(self) -> Metrics:
            self.calls += 1
            if self.calls == 1:
                raise OSError("not yet")
            return Metrics()

    provider = Provider()
    cached = volume.CachedMetrics(provider)
    with pytest.raises(OSError, match="not yet"):
        cached.get_metrics()
    assert cached.get_metrics() is cached.get_metrics()
    assert provider.calls == 2


def test_du_leaves_out_what_is_mounted_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted/file").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(fs.fs, "_mounts_below", lambda path: frozenset({f"{path}/mounted"}))
    assert fs.disk_usage(str(tmp_path)).inodes == 1


def test_du_leaves_out_what_is_mounted_below_a_root_directory_that_is_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk/volume/mounted").mkdir(parents=True)
    (tmp_path / "root").symlink_to("disk")
    list_mounts(tmp_path, monkeypatch, "/", f"{tmp_path}/disk/volume/mounted")
    # The mount point itself is not counted either: a call of stat may hang because the server of its file system never
    # responds.
    assert fs.disk_usage(f"{tmp_path}/root/volume").inodes == 1


def test_server_is_asked_by_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = volume.MetricsStatFS(str(tmp_path), fs.info_of_server).get_metrics()
    disk = os.statvfs(tmp_path)
    assert value(found.capacity) == disk.f_blocks * disk.f_frsize
    assert value(found.inodes) == disk.f_files
    assert 0 < value(found.available) < value(found.capacity)
    with pytest.raises(volume.MetricsError, match="No such file"):
        volume.MetricsStatFS(str(tmp_path / "none"), fs.info_of_server).get_metrics()
    # The command waits for a writer.
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "stat").write_text(f"#!/bin/sh\nread line < {tmp_path}/fifo\n")
    (tmp_path / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(fs.fs, "SERVER_ANSWER_TIMEOUT", 0.2)
    with pytest.raises(volume.MetricsError, match=r"the server did not respond within 0\.2 seconds"):
        volume.MetricsStatFS(str(tmp_path), fs.info_of_server).get_metrics()
    assert not is_running(tmp_path / "stat")


def is_running(program: Path) -> bool:
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(os.fsencode(program) in cmdline.read_bytes())
    return any(found)


@pytest.mark.parametrize(
    ("path", "below"),
    [("/plain", {"/plain/m"}), ("/plai", set()), ("/other", set()), ("/a b", {"/a b/m"}), ("/a#b", {"/a#b/m"})],
)
def test_mounts_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, below: set[str]) -> None:
    list_mounts(tmp_path, monkeypatch, "/", "/plain", "/plain/m", "/a\\040b/m", "/a#b/m")
    assert fs.fs._mounts_below(path) == below


def list_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *points: str) -> None:
    """Make the kernel's list of mounts contain these mount points."""
    lines = [f"{25 + i} 1 254:0 / {point} rw,relatime - ext4 /dev/vda rw\n" for i, point in enumerate(points)]
    (tmp_path / "mountinfo").write_text("".join(lines))
    for module in (mount_utils, mount_utils.mount):
        monkeypatch.setattr(module, "MOUNT_INFO", str(tmp_path / "mountinfo"))


class DeadServer:
    """Simulate a file system call that does not return until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked = threading.Event()
        self._answer = threading.Event()

    def __call__(self, path: str) -> os.statvfs_result:
        self.asked += 1
        self.was_asked.set()
        self._answer.wait()
        raise OSError("server is gone")

    def release(self) -> None:
        self._answer.set()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadServer]:
    server = DeadServer()
    monkeypatch.setattr(fs.fs.os, "statvfs", server)  # type: ignore[attr-defined]
    monkeypatch.setattr(fs.fs, "ANSWER_TIMEOUT", 0.05)
    yield server
    server.release()


def test_dead_server_holds_up_nobody(server: DeadServer) -> None:
    provider = volume.MetricsStatFS("/dead")
    with pytest.raises(volume.MetricsError, match="/dead: the file system did not respond within"):
        provider.get_metrics()
    # The next call does not even wait, and starts no other thread.
    with pytest.raises(volume.MetricsError, match="/dead: the file system has not responded yet"):
        provider.get_metrics()
    assert server.was_asked.wait(30) and server.asked == 1


def test_file_systems_beside_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead server costs the paths behind it one inquiry; later inquiries skip it until it has responded."""
    server, real = DeadServer(), os.statvfs
    monkeypatch.setattr(fs.fs.os, "statvfs", lambda path: (server if path == "/dead" else real)(path))  # type: ignore[attr-defined]
    monkeypatch.setattr(fs.fs, "ANSWER_TIMEOUT", 1.0)
    try:
        assert fs.infos(["/", "/none", "/dead", "/proc"]).keys() == {"/"}
        assert fs.infos(["/", "/none", "/dead", "/proc"]).keys() == {"/", "/proc"}
        assert fs.infos(["/dead"]) == {}
        with pytest.raises(volume.MetricsError, match="/dead: the file system has not responded yet"):
            volume.MetricsStatFS("/dead").get_metrics()
        assert server.asked == 1
    finally:
        server.release()
    fs.fs._asked["/dead"][0].join()
    assert fs.infos(["/dead", "/proc"]).keys() == {"/proc"}
    assert server.asked == 2


@failures
def test_file_systems_beside_one_that_fails(err: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs
    monkeypatch.setattr(fs.fs.os, "statvfs", lambda path: (raising(err) if path == "/bad" else real)(path))  # type: ignore[attr-defined]
    assert fs.infos(["/bad", "/"]).keys() == {"/"}
