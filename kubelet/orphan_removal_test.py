"""Test the threads that remove the directories of orphaned pods."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet import container as kubecontainer
from kubelet import orphan_removal
from kubelet import types as kubetypes
from kubelet.orphan_removal import MAX_REMOVALS, OrphanRemoval
from kubelet.testing import TestKubelet, new_pod
from pkg import golang, mount_utils
from pkg.apimachinery import types
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failures
from pkg.golang.testing import out_of_threads
from pkg.util import removeall


class Disk:
    """Represent the pods' directories. Those of `held` are removed only after `release` is called."""

    def __init__(self, *held: str) -> None:
        self._held = set(held)
        self._released = threading.Event()
        self.begun: golang.Channel[str] = golang.Channel(100)
        self.removed: golang.Channel[str] = golang.Channel(100)
        self.told: list[tuple[str, str]] = []
        self.errors: dict[str, Exception] = {}
        self.removal = OrphanRemoval(FakeClock(), self.remove, lambda uid, reason: self.told.append((uid, reason)))

    def remove(self, uid: str) -> list[Exception]:
        self.begun.send(uid)
        if uid in self._held:
            assert self._released.wait(30)
        if uid in self.errors:
            raise self.errors[uid]
        self.removed.send(uid)
        return []

    def hand_over(self, ctx: golang.Context, uids: Iterable[str]) -> None:
        self.removal.hand_over(ctx, [types.UID(uid) for uid in uids])

    def wait(self, ctx: golang.Context, uid: str) -> None:
        self.removal.wait(ctx, types.UID(uid))

    def release(self) -> None:
        self._released.set()


def received(channel: golang.Channel[str], count: int = 1) -> list[str]:
    found = [channel.recv(30) for _ in range(count)]
    assert all(ok for _, ok in found), "the channel received nothing"
    return sorted(uid for uid, _ in found if uid is not None)


def test_pod_whose_directory_takes_long_holds_up_no_other(ctx: golang.Context) -> None:
    disk = Disk("slow")
    disk.hand_over(ctx, ["slow", "a", "b"])
    assert received(disk.removed, 2) == ["a", "b"]
    disk.hand_over(ctx, ["slow", "c"])
    assert received(disk.removed) == ["c"]
    disk.release()
    assert received(disk.removed) == ["slow"]
    assert received(disk.begun, 4) == ["a", "b", "c", "slow"], "the slow directory has only one thread"


def test_there_are_no_more_threads_than_the_bound(ctx: golang.Context) -> None:
    uids = [f"uid-{number}" for number in range(MAX_REMOVALS + 3)]
    disk = Disk(*uids)
    for _ in range(3):
        disk.hand_over(ctx, uids)
    assert received(disk.begun, MAX_REMOVALS) == uids[:MAX_REMOVALS]
    assert len(disk.begun) == 0
    disk.release()
    assert received(disk.removed, len(uids)) == sorted(uids)


def test_what_waits_keeps_its_turn_and_goes_when_it_is_no_orphan_any_more(ctx: golang.Context) -> None:
    slow = [f"slow-{number}" for number in range(MAX_REMOVALS)]
    disk = Disk(*slow)
    disk.hand_over(ctx, [*slow, "first", "back"])
    received(disk.begun, MAX_REMOVALS)
    disk.hand_over(ctx, [*slow, "new", "first"])
    assert list(disk.removal._waiting) == ["first", "new"]
    disk.release()
    assert received(disk.begun, 2) == ["first", "new"]


def test_thread_ends_with_the_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    slow = [f"slow-{number}" for number in range(MAX_REMOVALS)]
    disk = Disk(*slow)
    disk.hand_over(ctx, [*slow, "waits"])
    received(disk.begun, MAX_REMOVALS)
    cancel()
    disk.release()
    wait_for_end_of_threads("orphaned-pod-directories")
    assert received(disk.removed, MAX_REMOVALS) == slow and len(disk.begun) == 0


def test_pod_that_comes_back_waits_for_the_end_of_the_removal(ctx: golang.Context) -> None:
    disk, waits, removed_before = Disk("uid"), threading.Event(), list[int]()
    disk.hand_over(ctx, ["uid"])
    received(disk.begun)

    def come_back() -> None:
        waits.set()
        disk.wait(ctx, "uid")
        removed_before.append(len(disk.removed))

    worker = golang.go(come_back, name="worker")
    assert waits.wait(30)
    disk.wait(ctx, "other")
    disk.release()
    worker.join(30)
    assert removed_before == [1]


def test_pod_that_comes_back_waits_no_longer_than_the_bound(
    ctx: golang.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk("uid")
    disk.hand_over(ctx, ["uid"])
    received(disk.begun)
    monkeypatch.setattr(orphan_removal, "REMOVAL_TIMEOUT", 0.01)
    with pytest.raises(TimeoutError, match="earlier pod with the UID 'uid' is being removed"):
        disk.wait(ctx, "uid")
    ended, end = golang.with_cancel(ctx)
    end()
    monkeypatch.undo()
    with pytest.raises(golang.Canceled):
        disk.wait(ended, "uid")
    disk.release()


def test_pod_that_comes_back_before_its_turn_keeps_its_directory(ctx: golang.Context) -> None:
    slow = [f"slow-{number}" for number in range(MAX_REMOVALS)]
    disk = Disk(*slow)
    disk.hand_over(ctx, [*slow, "back", "last"])
    disk.wait(ctx, "back")
    disk.release()
    assert "back" not in received(disk.removed, MAX_REMOVALS + 1)


@failures
def test_removal_that_fails_is_nobody_elses_trouble(ctx: golang.Context, err: Exception) -> None:
    disk = Disk()
    disk.errors["bad"] = err
    for _ in range(2):
        disk.hand_over(ctx, ["bad", "good"])
        assert received(disk.begun, 2) == ["bad", "good"]
        for uid in ("bad", "good"):
            disk.wait(ctx, uid)
    assert received(disk.removed, 2) == ["good", "good"]


def test_removal_without_threads_is_made_later(ctx: golang.Context) -> None:
    disk = Disk()
    with out_of_threads("orphaned-pod-directories") as refused, pytest.raises(golang.ThreadError):
        disk.hand_over(ctx, ["uid"])
    assert refused and len(disk.begun) == 0
    disk.hand_over(ctx, ["uid"])
    assert received(disk.removed) == ["uid"]


# ---- In the kubelet ----


@pytest.fixture
def held(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Provide a disk that removes the directory of the pod "uid-gone" only after `release` is called."""
    disk = Disk("uid-gone")
    remove_dirs = removeall.remove_dirs_one_filesystem

    def held_remove_dirs(mounter: mount_utils.Interface, path: str) -> None:
        disk.remove("uid-gone")
        remove_dirs(mounter, path)

    test_kubelet.kubelet.make_pod_data_dirs(new_pod("gone"))
    monkeypatch.setattr(removeall, "remove_dirs_one_filesystem", held_remove_dirs)
    return disk


def test_housekeeping_does_not_wait_for_the_disk(test_kubelet: TestKubelet, held: Disk) -> None:
    test_kubelet.housekeep()
    assert received(held.begun) == ["uid-gone"]
    test_kubelet.housekeep()
    assert os.listdir(test_kubelet.kubelet.get_pods_dir()) == ["uid-gone"]
    held.release()
    test_kubelet.kubelet.orphan_removal.wait(test_kubelet.ctx, types.UID("uid-gone"))
    assert os.listdir(test_kubelet.kubelet.get_pods_dir()) == []


def test_pod_with_the_same_uid_makes_its_directories_once_the_old_ones_are_gone(
    test_kubelet: TestKubelet, held: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, pod = test_kubelet.kubelet, new_pod("gone")
    test_kubelet.housekeep()
    received(held.begun)
    kubelet.pod_manager.add_pod(pod)
    status = kubecontainer.PodStatus(id=types.UID("uid-gone"), name="gone", namespace="ns")
    with monkeypatch.context() as impatient:
        impatient.setattr(orphan_removal, "REMOVAL_TIMEOUT", 0.01)
        with pytest.raises(TimeoutError):
            kubelet.sync_pod(test_kubelet.ctx, kubetypes.SYNC_POD_CREATE, pod, None, status)
    assert "earlier pod with the UID" in str(test_kubelet.events())
    held.release()
    kubelet.sync_pod(test_kubelet.ctx, kubetypes.SYNC_POD_SYNC, pod, None, status)
    assert sorted(os.listdir(kubelet.get_pod_dir(types.UID("uid-gone")))) == ["plugins", "volumes"]
