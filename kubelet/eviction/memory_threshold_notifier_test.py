"""Test the notifiers that wake the eviction manager.

Go: pkg/kubelet/eviction/memory_threshold_notifier_test.go
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction import threshold_notifier
from kubelet.eviction.memory_threshold_notifier import LinuxMemoryThresholdNotifier
from kubelet.eviction.testing import FakeCgroupNotifier, FakeNotifierFactory, amount, threshold
from kubelet.eviction.types import CgroupNotifier
from pkg import golang
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.golang import testing as golangtesting
from pkg.util.testing import open_files

MEMORY, ALLOCATABLE = evictionapi.Signal.MEMORY_AVAILABLE, evictionapi.Signal.ALLOCATABLE_MEMORY_AVAILABLE


@pytest.fixture
def hierarchy(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path


def summary(available: str, working_set: str, usage: str, of_pods: bool) -> statsapi.Summary:
    memory = statsapi.MemoryStats(
        available_bytes=amount(available), working_set_bytes=amount(working_set), usage_bytes=amount(usage)
    )
    if of_pods:
        pods = statsapi.ContainerStats(name=statsapi.SYSTEM_CONTAINER_PODS, memory=memory)
        return statsapi.Summary(node=statsapi.NodeStats(system_containers=[pods]))
    return statsapi.Summary(node=statsapi.NodeStats(memory=memory))


@pytest.mark.parametrize(
    ("signal", "available", "working_set", "usage", "expected", "below"),
    [
        pytest.param(MEMORY, "3Gi", "1Gi", "2Gi", "4Gi", "memory", id="node level threshold"),
        pytest.param(ALLOCATABLE, "4Gi", "1Gi", "3Gi", "6Gi", "memory/kubepods", id="allocatable threshold"),
    ],
)
def test_update_threshold(
    hierarchy: Path,
    ctx: golang.Context,
    signal: evictionapi.Signal,
    available: str,
    working_set: str,
    usage: str,
    expected: str,
    below: str,
) -> None:
    first, second = FakeCgroupNotifier(), FakeCgroupNotifier()
    factory = FakeNotifierFactory([first, second])
    notifier = LinuxMemoryThresholdNotifier(
        threshold(signal, "1Gi"), "/kubepods", factory, lambda m: None, str(hierarchy)
    )
    figures = summary(available, working_set, usage, signal is ALLOCATABLE)
    notifier.update_threshold(ctx, figures)
    assert factory.asked == [(str(hierarchy / below), "memory.usage_in_bytes", amount(expected))]
    assert first.started.recv(timeout=30)[1] and not first.stopped
    notifier.update_threshold(ctx, figures)
    assert second.started.recv(timeout=30)[1] and first.stopped
    factory.err = OSError("no such cgroup")
    with pytest.raises(OSError, match="no such cgroup"):
        notifier.update_threshold(ctx, figures)


@pytest.mark.parametrize(
    ("signal", "figures", "err"),
    [
        pytest.param(
            MEMORY,
            statsapi.Summary(node=statsapi.NodeStats(memory=statsapi.MemoryStats(usage_bytes=1))),
            ValueError,
            id="incomplete",
        ),
        pytest.param(MEMORY, statsapi.Summary(), ValueError, id="no memory"),
        pytest.param(ALLOCATABLE, summary("1Gi", "1Gi", "1Gi", False), LookupError, id="no cgroup of pods"),
    ],
)
def test_update_threshold_with_invalid_summary(
    hierarchy: Path,
    ctx: golang.Context,
    signal: evictionapi.Signal,
    figures: statsapi.Summary,
    err: type[Exception],
) -> None:
    notifier = LinuxMemoryThresholdNotifier(
        threshold(signal, "1Gi"), "/kubepods", FakeNotifierFactory(), lambda m: None, str(hierarchy)
    )
    with pytest.raises(err):
        notifier.update_threshold(ctx, figures)


def test_start(hierarchy: Path, ctx: golang.Context) -> None:
    told: golang.Channel[str] = golang.Channel(10)
    factory = FakeNotifierFactory([FakeCgroupNotifier(events=4)])
    notifier = LinuxMemoryThresholdNotifier(threshold(MEMORY, "1Gi"), "/kubepods", factory, told.send, str(hierarchy))
    thread = golang.go(notifier.start, ctx, name="test-notifier")
    notifier.update_threshold(ctx, summary("2Gi", "1Gi", "1Gi", False))
    for _ in range(4):
        assert told.recv(timeout=30) == ("eviction manager: hard memory eviction threshold crossed", True)
    assert thread.is_alive()


def test_no_memory_controller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="memory cgroup mount point not found: "):
        LinuxMemoryThresholdNotifier(
            threshold(MEMORY, "1Gi"), "/kubepods", FakeNotifierFactory(), lambda m: None, str(tmp_path)
        )


@pytest.mark.parametrize(
    ("signal", "grace_period", "description"),
    [
        (MEMORY, 0, "hard memory eviction threshold"),
        (MEMORY, 120, "soft memory eviction threshold"),
        (ALLOCATABLE, 120, "soft allocatable memory eviction threshold"),
        (ALLOCATABLE, 0, "hard allocatable memory eviction threshold"),
    ],
)
def test_description(hierarchy: Path, signal: evictionapi.Signal, grace_period: float, description: str) -> None:
    notifier = LinuxMemoryThresholdNotifier(
        threshold(signal, "2Gi", grace_period), "/kubepods", FakeNotifierFactory(), lambda m: None, str(hierarchy)
    )
    assert notifier.description() == description


def test_a_notifier_that_was_not_granted_leaves_nothing(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError):
        threshold_notifier.LinuxCgroupNotifier(str(tmp_path), "memory.usage_in_bytes", 1)
    (tmp_path / "memory.usage_in_bytes").touch()
    with pytest.raises(FileNotFoundError):
        threshold_notifier.LinuxCgroupNotifier(str(tmp_path / "gone"), "memory.usage_in_bytes", 1)
    assert open_files() <= before


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    """Return a directory with the files of a cgroup v1, which sends no events by itself."""
    (tmp_path / "memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "cgroup.event_control").touch()
    return tmp_path


def test_events_are_asked_for_and_passed_on(cgroup: Path, ctx: golang.Context) -> None:
    notifier = threshold_notifier.LinuxCgroupNotifier(str(cgroup), "memory.usage_in_bytes", 1 << 30)
    eventfd, _, asked = (cgroup / "cgroup.event_control").read_text().split()
    assert asked == str(1 << 30)
    events: golang.Channel[None] = golang.Channel(1)
    thread = golang.go(notifier.start, ctx, events, name="test-memcg-events")
    os.eventfd_write(int(eventfd), 1)
    assert events.recv(timeout=30)[1]
    notifier.stop()
    thread.join(30)
    assert not thread.is_alive()
    notifier.stop()
    assert not events.try_recv()[2]


def test_the_end_of_the_context_ends_the_reader(cgroup: Path) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    notifier = threshold_notifier.LinuxCgroupNotifier(str(cgroup), "memory.usage_in_bytes", 1)
    thread = golang.go(notifier.start, ctx, golang.Channel(1), name="test-memcg-events")
    cancel()
    thread.join(30)
    assert not thread.is_alive()


def test_a_cgroup_of_version_2_tells_of_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctx: golang.Context
) -> None:
    monkeypatch.setattr(threshold_notifier, "is_cgroup2_unified_mode", lambda: True)
    pressure = tmp_path / "memory.pressure"
    pressure.touch()
    notifier = threshold_notifier.new_cgroup_notifier(str(tmp_path), "memory.usage_in_bytes", 1)
    assert isinstance(notifier, threshold_notifier.PressureNotifier)
    assert pressure.read_bytes() == b"some 200000 2000000\0"
    # An ordinary file never has urgent data, unlike the kernel's file, but a connection can have it.
    events: golang.Channel[None] = golang.Channel(1)
    with _connection() as (kernel, told):
        os.dup2(told.fileno(), notifier._file)
        thread = golang.go(notifier.start, ctx, events, name="test-memory-pressure")
        kernel.send(b"!", socket.MSG_OOB)
        assert events.recv(timeout=30)[1]
        notifier.stop()
        thread.join(30)
    assert not thread.is_alive()
    notifier.stop()


@contextmanager
def _connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one, other


def test_without_figures_of_waiting_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctx: golang.Context
) -> None:
    monkeypatch.setattr(threshold_notifier, "is_cgroup2_unified_mode", lambda: True)
    notifier = threshold_notifier.new_cgroup_notifier(str(tmp_path), "memory.usage_in_bytes", 1)
    events: golang.Channel[None] = golang.Channel(1)
    notifier.start(ctx, events)
    notifier.stop()
    assert not events.try_recv()[2]


@failures
def test_listener_that_fails_ends_alone(hierarchy: Path, ctx: golang.Context, err: Exception) -> None:
    class Broken(FakeCgroupNotifier):
        def start(self, ctx: golang.Context, event_ch: golang.Channel[None]) -> None:
            raise err

    factory = FakeNotifierFactory([Broken(events=0), FakeCgroupNotifier(events=1)])
    told: golang.Channel[str] = golang.Channel(10)
    handler = failing_once(told.send, err)
    notifier = LinuxMemoryThresholdNotifier(threshold(MEMORY, "1Gi"), "/kubepods", factory, handler, str(hierarchy))
    golang.go(notifier.start, ctx, name="test-notifier")
    for _ in range(2):
        notifier.update_threshold(ctx, summary("2Gi", "1Gi", "1Gi", False))
    notifier._events.send(None)
    notifier._events.send(None)
    assert told.recv(timeout=30)[1]


def test_notifier_that_finds_no_thread_leaves_nothing_open(
    hierarchy: Path, cgroup: Path, ctx: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Factory:
        def new_cgroup_notifier(self, path: str, attribute: str, threshold: int) -> CgroupNotifier:
            return threshold_notifier.LinuxCgroupNotifier(str(cgroup), "memory.usage_in_bytes", 1)

    notifier = LinuxMemoryThresholdNotifier(
        threshold(MEMORY, "1Gi"), "/kubepods", Factory(), lambda message: None, str(hierarchy)
    )
    before = open_files()
    with golangtesting.out_of_threads():
        for _ in range(3):
            with pytest.raises(golang.ThreadError):
                notifier.update_threshold(ctx, summary("2Gi", "1Gi", "1Gi", False))
    assert open_files() <= before
