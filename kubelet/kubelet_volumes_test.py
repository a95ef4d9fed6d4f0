"""Test the clean-up of the volumes and directories of orphaned pods."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet import container as kubecontainer
from kubelet import metrics, orphan_removal, orphans
from kubelet.testing import TestKubelet, new_pod, runtime_pod
from pkg.apimachinery import types
from pkg.mount_utils import MountPoint

UID = types.UID("pod1uid")


def hand_over(test_kubelet: TestKubelet, *uids: str, running: tuple[str, ...] = ()) -> None:
    pods = [new_pod("p", uid=uid) for uid in uids]
    running_pods = [runtime_pod(new_pod("r", uid=uid)).pod for uid in running]
    test_kubelet.kubelet.cleanup_orphaned_pod_dirs(test_kubelet.ctx, pods, running_pods)


def clean_up(test_kubelet: TestKubelet, *uids: str, running: tuple[str, ...] = ()) -> None:
    """Hand over the pods, and wait for the threads that remove their directories."""
    hand_over(test_kubelet, *uids, running=running)
    wait_for_end_of_threads("orphaned-pod-directories")


def pod_dir(test_kubelet: TestKubelet, *parts: str) -> Path:
    return Path(test_kubelet.kubelet.get_pod_dir(UID), *parts)


def test_nothing_to_do(test_kubelet: TestKubelet) -> None:
    clean_up(test_kubelet)


def test_pods_directory_that_is_not_there(test_kubelet: TestKubelet) -> None:
    os.rmdir(test_kubelet.kubelet.get_pods_dir())
    with pytest.raises(FileNotFoundError):
        clean_up(test_kubelet)


@pytest.mark.parametrize("known", ["configured", "running"])
def test_directory_of_a_pod_that_is_known_stays(test_kubelet: TestKubelet, known: str) -> None:
    pod_dir(test_kubelet, "volumes/plugin/name").mkdir(parents=True)
    if known == "configured":
        clean_up(test_kubelet, UID)
    else:
        clean_up(test_kubelet, running=(UID,))
    assert pod_dir(test_kubelet, "volumes/plugin/name").is_dir()


@pytest.mark.parametrize(
    ("directories", "files", "goes"),
    [
        (["volumes"], [], True),
        (["volumes/plugin/name"], [], True),
        (["volumes/plugin/name/subdir"], [], False),
        (["volume-subpaths/volume/container/0"], [], True),
        (["volume-subpaths/volume/container"], [], True),
        (["volumes/plugin/name"], ["volumes/plugin/name/test.txt"], False),
        (["volume-subpaths/volume/container/0"], ["volume-subpaths/volume/container/0/test.txt"], False),
        (["volume-subpaths/volume/container"], ["volume-subpaths/volume/container/0"], True),
        (["volumes", "containers/c", "plugins/p"], ["etc-hosts", "containers/c/123abc"], True),
        ([], ["volumes"], False),
    ],
)
def test_directory_of_an_orphan(
    test_kubelet: TestKubelet, directories: list[str], files: list[str], goes: bool
) -> None:
    for name in directories:
        pod_dir(test_kubelet, name).mkdir(parents=True, exist_ok=True)
    for name in files:
        pod_dir(test_kubelet, name).parent.mkdir(parents=True, exist_ok=True)
        pod_dir(test_kubelet, name).write_text("content")
    clean_up(test_kubelet)
    assert pod_dir(test_kubelet).exists() != goes
    for name in files:
        assert pod_dir(test_kubelet, name).exists() != goes, "a directory with data in a volume stays"


@pytest.mark.parametrize("where", ["volumes/plugin/name", "plugins/below", "containers/c/deep"])
def test_nothing_across_a_mount_is_removed(test_kubelet: TestKubelet, where: str) -> None:
    mounted = pod_dir(test_kubelet, where)
    mounted.mkdir(parents=True)
    (mounted / "precious").write_text("data")
    test_kubelet.mounter.mount_points.append(MountPoint("server:/x", str(mounted), "nfs", ()))
    clean_up(test_kubelet)
    errors = test_kubelet.kubelet.remove_orphan(UID)
    fault = "volumes are in use" if where.startswith("volumes") else "error occurred when trying to remove subdir"
    assert any(fault in str(err) for err in errors)
    assert (mounted / "precious").read_text() == "data"


@pytest.mark.parametrize("state", ["configured", "ending"])
def test_directory_of_a_pod_that_came_back_stays(test_kubelet: TestKubelet, state: str) -> None:
    """Housekeeping saw nothing of the pod, but the pod is back when a thread begins to remove its directory."""
    pod_dir(test_kubelet, "containers/c").mkdir(parents=True)
    if state == "configured":
        test_kubelet.kubelet.pod_manager.add_pod(new_pod("p", uid=UID))
    else:
        test_kubelet.workers.running = {UID}
    clean_up(test_kubelet)
    assert pod_dir(test_kubelet, "containers/c").is_dir()


def test_orphan_whose_volume_may_be_mounted_stays(test_kubelet: TestKubelet) -> None:
    pod_dir(test_kubelet, "containers").mkdir(parents=True)
    test_kubelet.volumes.possibly_mounted = {UID}
    clean_up(test_kubelet)
    assert pod_dir(test_kubelet, "containers").is_dir()
    assert test_kubelet.volumes.changes == ["orphan"], "the volume manager must check the orphan's volumes"
    test_kubelet.volumes.possibly_mounted = set()
    clean_up(test_kubelet)
    assert not pod_dir(test_kubelet).exists()


def test_one_orphan_does_not_hide_the_others(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = Path(test_kubelet.kubelet.get_pods_dir())
    for uid in ("a", "b", "c", "d"):
        (pods / uid / "containers").mkdir(parents=True)
    rmdir, listdir = os.rmdir, os.listdir

    def failing_rmdir(path: str, **kwargs: int) -> None:
        if str(path) == str(pods / "a"):
            raise PermissionError("not allowed")
        rmdir(path, **kwargs)

    def failing_listdir(path: str = ".") -> list[str]:
        if str(path) == str(pods / "b"):
            raise OSError("bad disk")
        return listdir(path)

    monkeypatch.setattr(os, "rmdir", failing_rmdir)
    monkeypatch.setattr(os, "listdir", failing_listdir)
    clean_up(test_kubelet)
    errors = [err for uid in ("a", "b") for err in test_kubelet.kubelet.remove_orphan(types.UID(uid))]
    monkeypatch.undo()
    assert [str(err) for err in errors] == [
        "orphaned pod 'a' found, but error occurred when trying to remove the pod directory: not allowed",
        "orphaned pod 'b' found, but error occurred during reading the pod dir from disk: bad disk",
    ]
    assert sorted(os.listdir(pods)) == ["a", "b"]
    assert value(metrics.ORPHAN_POD_CLEANED_VOLUMES) == 4
    assert value(metrics.ORPHAN_POD_CLEANED_VOLUMES_ERRORS) == 2


def value(gauge: object) -> float:
    (metric,) = gauge.collect()  # type: ignore[attr-defined]
    (sample,) = metric.samples
    return float(sample.value)


@pytest.mark.parametrize(
    ("directories", "mounted", "exist"),
    [
        ([], [], False),
        (["volumes"], [], False),
        (["volumes/plugin/name"], [], False),
        (["volumes/plugin/name"], ["volumes/plugin/name"], True),
        (["volumes/plugin/name/mount"], ["volumes/plugin/name/mount"], False),
        (["volumes/kubernetes.io~csi/name"], [], False),
        (["volumes/kubernetes.io~csi/name/mount"], [], False),
        (["volumes/kubernetes.io~csi/name/mount"], ["volumes/kubernetes.io~csi/name/mount"], True),
    ],
)
def test_pod_volumes_exist(test_kubelet: TestKubelet, directories: list[str], mounted: list[str], exist: bool) -> None:
    for name in directories:
        pod_dir(test_kubelet, name).mkdir(parents=True)
    points = [MountPoint("/dev/sdb", str(pod_dir(test_kubelet, name)), "ext4", ()) for name in mounted]
    test_kubelet.mounter.mount_points = points
    assert test_kubelet.kubelet.pod_volumes_exist(UID) == exist


def test_in_doubt_volumes_exist(test_kubelet: TestKubelet) -> None:
    pod_dir(test_kubelet).mkdir()
    pod_dir(test_kubelet, "volumes").write_text("no directory")
    assert test_kubelet.kubelet.pod_volumes_exist(UID)


def test_directory_stays_until_the_volumes_of_an_earlier_kubelet_are_known(test_kubelet: TestKubelet) -> None:
    link = pod_dir(test_kubelet, "volumeDevices", "kubernetes.io~local-volume", "disk")
    link.parent.mkdir(parents=True)
    link.symlink_to("/dev/null")
    test_kubelet.volumes.reconstructed = False
    clean_up(test_kubelet)
    assert link.is_symlink()
    test_kubelet.volumes.reconstructed = True
    clean_up(test_kubelet)
    assert not pod_dir(test_kubelet).exists()


def test_volumes_of_a_pod(test_kubelet: TestKubelet) -> None:
    mounter = object()
    test_kubelet.volumes.mounted[UID] = {
        "mounted": kubecontainer.VolumeInfo(mounter=mounter),  # type: ignore[arg-type]
        "block": kubecontainer.VolumeInfo(),
    }
    assert test_kubelet.kubelet.list_volumes_for_pod(UID) == {"mounted": mounter}
    assert test_kubelet.kubelet.list_volumes_for_pod(types.UID("other")) == {}


def test_orphan_that_stays_is_one_event_of_the_node(test_kubelet: TestKubelet) -> None:
    (pod_dir(test_kubelet, "volumes/kubernetes.io~empty-dir/data")).mkdir(parents=True)
    (pod_dir(test_kubelet, "volumes/kubernetes.io~empty-dir/data/file")).write_text("precious")
    clean_up(test_kubelet)
    assert orphan_events(test_kubelet) == [], "unmounting the volumes may still take a while"
    for _ in range(3):
        test_kubelet.clock.step(orphan_removal.ORPHAN_PATIENCE)
        clean_up(test_kubelet)
    path = pod_dir(test_kubelet)
    assert orphan_events(test_kubelet) == [
        f'Warning OrphanedPodDirectory the directory {path} of the orphaned pod "{UID}" is not removed: '
        "volume data (kubernetes.io/empty-dir) still holds 1 file: file"
    ]


def test_orphan_that_cannot_be_removed_tells_why(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    pod_dir(test_kubelet, "containers").mkdir(parents=True)

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        os.stat(path, dir_fd=dir_fd)  # os.stat raises an error if the path does not exist.
        raise PermissionError("not allowed")

    monkeypatch.setattr(os, "rmdir", refuse)
    for _ in range(2):
        clean_up(test_kubelet)
        test_kubelet.clock.step(orphan_removal.ORPHAN_PATIENCE)
    (event,) = orphan_events(test_kubelet)
    assert "is not removed: orphaned pod 'pod1uid' found, but error occurred" in event and "not allowed" in event


@pytest.mark.parametrize("err", [RecursionError("too deep"), UnicodeError("bad name"), MemoryError("no memory")])
def test_orphan_that_fails_in_another_way_does_not_hide_the_others(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    pods = Path(test_kubelet.kubelet.get_pods_dir())
    for uid in ("a", "b"):
        (pods / uid / "containers").mkdir(parents=True)
    exist = test_kubelet.kubelet.pod_volumes_exist

    def fail(uid: str) -> bool:
        if uid == "a":
            raise err
        return exist(types.UID(uid))

    monkeypatch.setattr(test_kubelet.kubelet, "pod_volumes_exist", fail)
    clean_up(test_kubelet)
    assert os.listdir(pods) == ["a"]
    assert value(metrics.ORPHAN_POD_CLEANED_VOLUMES_ERRORS) == 1


@pytest.mark.parametrize("err", [RecursionError("too deep"), UnicodeError("bad name")])
def test_orphan_that_cannot_be_looked_into_is_nobody_elses_trouble(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    def fail(pods_dir: str, uid: str) -> orphans.Orphan:
        if uid == "a":
            raise err
        return inspect(pods_dir, types.UID(uid))

    inspect = orphans.inspect
    monkeypatch.setattr(orphans, "inspect", fail)
    for uid in ("a", "b"):
        (Path(test_kubelet.kubelet.get_pods_dir()) / uid / "containers").mkdir(parents=True)
    test_kubelet.volumes.possibly_mounted = {"a", "b"}
    clean_up(test_kubelet)
    test_kubelet.clock.step(orphan_removal.ORPHAN_PATIENCE)
    clean_up(test_kubelet)
    (event,) = orphan_events(test_kubelet)
    assert 'orphaned pod "b"' in event


def test_orphan_that_a_fault_of_the_disk_keeps_is_told(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = pod_dir(test_kubelet, "volumes")
    volumes.mkdir(parents=True)
    fault = OSError(errno.EIO, os.strerror(errno.EIO), str(volumes))
    listdir, scandir = os.listdir, os.scandir

    def fail(path: Any, read: Callable[[Any], Any]) -> Any:
        if str(path) == str(volumes):
            raise fault
        return read(path)

    monkeypatch.setattr(os, "listdir", lambda path: fail(path, listdir))
    monkeypatch.setattr(os, "scandir", lambda path: fail(path, scandir))
    clean_up(test_kubelet)
    test_kubelet.clock.step(orphan_removal.ORPHAN_PATIENCE)
    clean_up(test_kubelet)
    (event,) = orphan_events(test_kubelet)
    assert f"{volumes.parent} of the orphaned pod" in event


def test_orphan_that_went_and_came_back_is_told_again(test_kubelet: TestKubelet) -> None:
    for _ in range(2):
        pod_dir(test_kubelet, "containers").mkdir(parents=True)
        test_kubelet.volumes.possibly_mounted = {UID}
        clean_up(test_kubelet)
        test_kubelet.clock.step(orphan_removal.ORPHAN_PATIENCE)
        clean_up(test_kubelet)
        test_kubelet.volumes.possibly_mounted = set()
        clean_up(test_kubelet)
    events = orphan_events(test_kubelet)
    assert len(events) == 2 and all(event.endswith("is not removed: its volumes are in use") for event in events)


def orphan_events(test_kubelet: TestKubelet) -> list[str]:
    return [event for event in test_kubelet.recorder.drain() if "OrphanedPodDirectory" in event]


def test_block_volumes_of_a_pod(test_kubelet: TestKubelet) -> None:
    mapper = object()
    test_kubelet.volumes.mounted[UID] = {
        "mounted": kubecontainer.VolumeInfo(mounter=object()),  # type: ignore[arg-type]
        "block": kubecontainer.VolumeInfo(block_volume_mapper=mapper),  # type: ignore[arg-type]
    }
    assert test_kubelet.kubelet.list_block_volumes_for_pod(UID) == {"block": mapper}
