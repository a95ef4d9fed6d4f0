"""Test the measurement of volumes.

Go: pkg/kubelet/server/stats/volume_stat_calculator_test.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest
from framework.waiting import wait_for, wait_for_end_of_threads, wait_until_equal

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.server.stats import fs_resource_analyzer, volume_stat_calculator
from kubelet.server.stats.testing import FakeMeasuredVolume, FakeProvider
from kubelet.server.stats.volume_stat_calculator import VolumeStatCalculator
from pkg import features, golang, volume
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

UID = types.UID("UIDpod0")


def metrics(used: int, abnormal: bool | None = None, message: str | None = None) -> volume.Metrics:
    quantity = resource.new_quantity
    return volume.Metrics(
        available=quantity(5_000_000),
        capacity=quantity(10_000_000),
        used=quantity(used),
        inodes=quantity(2000),
        inodes_free=quantity(1000),
        abnormal=abnormal,
        message=message,
    )


class World:
    """Run a calculator for one pod with volumes that the test adds."""

    def __init__(self) -> None:
        claim = v1.PersistentVolumeClaimVolumeSource
        volumes = [
            v1.Volume(name="disk", gce_persistent_disk=v1.GCEPersistentDiskVolumeSource(pd_name="fake-device1")),
            v1.Volume(name="claim", persistent_volume_claim=claim(claim_name="pvc-fake0")),
            v1.Volume(name="device", persistent_volume_claim=claim(claim_name="pvc-fake1")),
            v1.Volume(name="ephemeral", ephemeral=v1.EphemeralVolumeSource()),
            v1.Volume(name="local", empty_dir=v1.EmptyDirVolumeSource()),
        ]
        meta = metav1.ObjectMeta(name="pod0", namespace="test0", uid=UID)
        self.pod = v1.Pod(metadata=meta, spec=v1.PodSpec(volumes=volumes))
        self.provider = FakeProvider(pods=[self.pod])
        self.recorder = FakeRecorder(10)
        self.volumes: list[FakeMeasuredVolume] = []
        self.calculator = VolumeStatCalculator(self.provider, self.pod, self.recorder)

    def add(self, name: str, fake: FakeMeasuredVolume, block: bool = False) -> FakeMeasuredVolume:
        self.volumes.append(fake)
        if block:
            self.provider.block_volumes.setdefault(UID, {})[name] = cast(volume.BlockVolume, fake)
        else:
            self.provider.volumes.setdefault(UID, {})[name] = cast(volume.Volume, fake)
        return fake

    def latest(self) -> volume_stat_calculator.PodVolumeStats:
        self.calculator.calc_and_store_stats()
        found = self.calculator.get_latest()
        assert found is not None
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    yield world
    for fake in world.volumes:
        fake.release()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 2.0)


def test_pvc_ref(world: World) -> None:
    for name in ("disk", "claim", "ephemeral", "local"):
        world.add(name, FakeMeasuredVolume(metrics(7)))
    world.add("device", FakeMeasuredVolume(volume.Metrics(capacity=resource.new_quantity(9))), block=True)
    world.add("mute device", FakeMeasuredVolume(metrics(1), supported=False), block=True)
    latest = world.latest()
    assert [found.name for found in latest.ephemeral_volumes] == ["local"]
    found = {found.name: found for found in latest.persistent_volumes}
    assert {name: one.pvc_ref and one.pvc_ref.name for name, one in found.items()} == {
        "disk": None,
        "claim": "pvc-fake0",
        "ephemeral": "pod0-ephemeral",
        "device": "pvc-fake1",
    }
    assert found["claim"] == statsapi.VolumeStats(
        name="claim",
        pvc_ref=statsapi.PVCReference(name="pvc-fake0", namespace="test0"),
        available_bytes=5_000_000,
        capacity_bytes=10_000_000,
        used_bytes=7,
        inodes=2000,
        inodes_free=1000,
        inodes_used=0,
    )
    device = found["device"]
    assert (device.capacity_bytes, device.used_bytes, device.inodes) == (9, 0, 0), "what is not known is 0"


@pytest.mark.parametrize(
    ("gate", "abnormal", "events"),
    [
        (True, True, ["Warning VolumeConditionAbnormal Volume claim: The target path of the volume doesn't exist"]),
        (True, False, []),
        (True, None, []),
        (False, True, []),
    ],
)
def test_health(world: World, gate: bool, abnormal: bool | None, events: list[str]) -> None:
    world.add("claim", FakeMeasuredVolume(metrics(1, abnormal, "The target path of the volume doesn't exist")))
    world.add("device", FakeMeasuredVolume(metrics(1, abnormal)), block=True)
    with set_feature_gate_during_test(features.feature_gate, features.CSI_VOLUME_HEALTH, gate):
        latest = world.latest()
    assert world.recorder.drain() == events
    expected = None if abnormal is None else statsapi.VolumeHealthStats(abnormal=abnormal)
    assert [found.volume_health_stats for found in latest.persistent_volumes] == [expected, expected]


def test_volumes_that_cannot_tell(world: World) -> None:
    world.add("claim", FakeMeasuredVolume(volume.new_not_supported_error()))
    broken = world.add("disk", FakeMeasuredVolume(metrics(1)))
    world.add("local", FakeMeasuredVolume(metrics(2)))
    assert [found.name for found in world.latest().persistent_volumes] == ["disk"]
    broken.answer = OSError("no such device")
    latest = world.latest()
    assert latest.persistent_volumes == [], "nothing is said of what failed"
    assert len(latest.ephemeral_volumes) == 1 and latest.stale == frozenset()


@pytest.mark.parametrize(("told", "expected"), [(-(2**63), 0), (2**64 * 4096, 2**64 - 1)])
def test_absurd_figures_are_cut_to_what_a_summary_can_hold(told: int, expected: int) -> None:
    """Values are limited to unsigned 64 bits, because clients would reject the whole summary otherwise."""
    amount = resource.new_quantity(told, resource.Format.BINARY_SI)
    figures = volume.Metrics(
        available=amount, capacity=amount, used=amount, inodes=amount, inodes_free=amount, inodes_used=amount
    )
    shown = volume_stat_calculator.parse_pod_volume_stats("v", None, figures)
    numbers = [shown.available_bytes, shown.capacity_bytes, shown.used_bytes]
    assert [*numbers, shown.inodes, shown.inodes_free, shown.inodes_used] == [expected] * 6


def test_pod_without_volumes(world: World) -> None:
    world.calculator.calc_and_store_stats()
    assert world.calculator.get_latest() is None


def test_volume_that_is_unmounted(world: World) -> None:
    world.add("claim", FakeMeasuredVolume(metrics(1)))
    world.add("local", FakeMeasuredVolume(metrics(1)))
    world.latest()
    del world.provider.volumes[UID]["claim"]
    assert world.latest().persistent_volumes == []


def test_volume_that_is_unmounted_before_it_answers_takes_no_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 0.01)
    monkeypatch.setattr(volume_stat_calculator, "MAX_ASKED", 1)
    world.add("claim", FakeMeasuredVolume(metrics(1))).block()
    local = world.add("local", FakeMeasuredVolume(metrics(1)))
    assert world.latest().stale == frozenset({"claim", "local"})
    del world.provider.volumes[UID]["claim"]
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 30.0)
    assert world.latest().stale == frozenset() and local.asked == 1


def asking(name: str) -> list[threading.Thread]:
    """Return the threads that wait for the volume."""
    return [thread for thread in threading.enumerate() if thread.name == f"volume-stats-{UID}-{name}"]


def test_dead_server_costs_nobody_but_itself(world: World, impatient: None) -> None:
    """A dead volume's statistics stay, marked as stale, and it is not asked again before it responds."""
    dead = world.add("claim", FakeMeasuredVolume(metrics(1)))
    alive = world.add("local", FakeMeasuredVolume(metrics(2)))
    assert world.latest().stale == frozenset()
    dead.block()
    dead.answer, alive.answer = metrics(100), metrics(200)
    for _ in range(3):
        latest = world.latest()
        assert latest.stale == frozenset({"claim"})
        assert [found.used_bytes for found in latest.persistent_volumes] == [1]
        assert [found.used_bytes for found in latest.ephemeral_volumes] == [200]
    assert dead.asked == 2
    [thread] = asking("claim")
    dead.release()
    thread.join(30)
    latest = world.latest()
    assert latest.stale == frozenset() and latest.persistent_volumes[0].used_bytes == 100
    world.latest()
    assert dead.asked == 3


def test_few_volumes_think_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few volumes are asked at a time, because each request takes a thread and many descriptors."""
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 0.01)
    names = [f"v{number}" for number in range(volume_stat_calculator.MAX_ASKED * 2)]
    fakes = [world.add(name, FakeMeasuredVolume(metrics(1))) for name in names]
    first = names[: volume_stat_calculator.MAX_ASKED]
    for fake in fakes:
        fake.block()
    for _ in range(3):
        assert world.latest().stale == frozenset(names)
        assert [name for name in names if asking(name)] == first
    for fake in fakes:
        fake.release()
    for name in first:
        for thread in asking(name):
            thread.join(30)
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 30.0)
    assert world.latest().stale == frozenset()
    assert [fake.asked for fake in fakes] == [1] * len(fakes)


def test_server_that_never_answered(world: World, impatient: None) -> None:
    world.add("claim", FakeMeasuredVolume(metrics(1))).block()
    latest = world.latest()
    assert (latest.persistent_volumes, latest.stale) == ([], frozenset({"claim"}))


# ---- All pods ----


def analyzer(world: World, period: float, clock: FakeClock) -> fs_resource_analyzer.FsResourceAnalyzer:
    return fs_resource_analyzer.FsResourceAnalyzer(world.provider, period, world.recorder, clock)


def is_measured(uid: str) -> bool:
    """Report whether a thread measures the volumes of the pod."""
    return any(thread.name == f"volume-stats-{uid}" for thread in threading.enumerate())


def test_all_pods_are_measured(world: World) -> None:
    """Each pod is measured one to two periods after its last measurement, and a pod that is gone is forgotten."""
    clock = FakeClock()
    local = world.add("local", FakeMeasuredVolume(metrics(1)))
    stats = analyzer(world, 60.0, clock)
    assert stats.get_pod_volume_stats(UID) is None
    ctx, cancel = golang.with_cancel(golang.background())
    stats.start(ctx)
    stats.start(ctx)
    wait_for(
        "the pod is measured and its next turn is waited for",
        lambda: stats.get_pod_volume_stats(UID) is not None and not is_measured(UID) and clock.has_waiters(),
    )
    assert local.asked == 1
    clock.step(59)
    assert local.asked == 1
    clock.step(61)
    wait_for(
        "the pod is measured again and its next turn is waited for", lambda: local.asked == 2 and clock.has_waiters()
    )
    world.provider.pods = []
    clock.step(60)
    wait_for("the pod is forgotten", lambda: stats.get_pod_volume_stats(UID) is None)
    cancel()
    wait_for_end_of_threads("volume-stats")


def test_one_pod_in_trouble_leaves_the_others(world: World) -> None:
    clock = FakeClock()
    world.add("local", FakeMeasuredVolume(metrics(1)))
    other = v1.Pod(metadata=metav1.ObjectMeta(name="other", namespace="test0", uid=types.UID("other")))
    world.provider.pods = [other, world.pod]
    world.provider.volumes["other"] = cast(dict[str, volume.Volume], 3)
    stats = analyzer(world, 60.0, clock)
    ctx, cancel = golang.with_cancel(golang.background())
    stats.start(ctx)
    wait_for("the pod is measured", lambda: stats.get_pod_volume_stats(UID) is not None)
    cancel()


def test_one_pod_with_many_silent_volumes_leaves_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's silent volumes do not delay other pods, whose limits and ranking depend on the statistics."""
    monkeypatch.setattr(volume_stat_calculator, "ANSWER_TIMEOUT", 3600.0)
    monkeypatch.setattr(fs_resource_analyzer, "TURN_TIMEOUT", 0.01)
    clock = FakeClock()
    silent = world.add("claim", FakeMeasuredVolume(metrics(1)))
    silent.block()
    other = v1.Pod(metadata=metav1.ObjectMeta(name="other", namespace="test0", uid=types.UID("other")))
    world.provider.pods = [world.pod, other]
    alive = FakeMeasuredVolume(metrics(2))
    world.provider.volumes["other"] = {"local": cast(volume.Volume, alive)}
    stats = analyzer(world, 60.0, clock)
    ctx, cancel = golang.with_cancel(golang.background())
    stats.start(ctx)
    wait_for("the silent volume is asked", lambda: silent.asked == 1)
    wait_for(
        "the other pod is measured",
        lambda: stats.get_pod_volume_stats(types.UID("other")) is not None and not is_measured("other"),
    )
    for times in (2, 3):
        clock.wait_for_waiters()
        clock.step(120)
        wait_until_equal("measurements of the other pod", lambda: alive.asked, times)
        wait_for("the measurement has ended", lambda: not is_measured("other"))
    assert silent.asked == 1 and is_measured(UID), "its turn has not ended"
    silent.release()
    wait_for("the pod is measured", lambda: stats.get_pod_volume_stats(UID) is not None)
    cancel()


def test_pod_is_measured_in_its_next_turn_when_there_was_no_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    local = world.add("local", FakeMeasuredVolume(metrics(1)))
    monkeypatch.setattr(golang, "go", failing_once(golang.go, golang.ThreadError("none left"), about="._measure "))
    stats = analyzer(world, 60.0, clock)
    ctx, cancel = golang.with_cancel(golang.background())
    stats.start(ctx)
    clock.wait_for_waiters()
    assert local.asked == 0
    clock.step(120)
    wait_for("the volume is asked", lambda: local.asked == 1)
    cancel()


def test_period_of_zero_measures_nothing(world: World) -> None:
    stats = analyzer(world, 0.0, FakeClock())
    stats.start(golang.background())
    assert not any(thread.name == "volume-stats" for thread in threading.enumerate())


@failures
def test_volume_whose_answer_cannot_be_told_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    monkeypatch.setattr(volume, "is_not_supported", raising(err))
    broken = world.add("local", FakeMeasuredVolume(OSError("broken")))
    world.add("disk", FakeMeasuredVolume(metrics(1)))
    assert [found.name for found in world.latest().persistent_volumes] == ["disk"]
    world.latest()
    assert broken.asked == 2


@failures
def test_volumes_are_measured_after_the_pods_could_not_be_listed(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    world.add("local", FakeMeasuredVolume(metrics(1)))
    monkeypatch.setattr(world.provider, "get_pods", failing_once(world.provider.get_pods, err))
    clock = FakeClock()
    analyzer = fs_resource_analyzer.FsResourceAnalyzer(world.provider, 60.0, world.recorder, clock)
    ctx, cancel = golang.with_cancel(golang.background())
    with golang.ThreadGroup() as group:
        analyzer.start(ctx)

    def measured() -> bool:
        clock.step(30)
        return analyzer.get_pod_volume_stats(UID) is not None

    wait_for("the pod is measured", measured)
    cancel()
    assert group.join(30) == []
