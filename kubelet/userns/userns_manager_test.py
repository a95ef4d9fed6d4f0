from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import userns
from kubelet.userns.testing import LENGTH, MAPPING_LENGTH, FakeUserNsPodsManager
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime.testing import raising

UID = types.UID("uid")
ONE = types.UID("one")
TWO = types.UID("two")


def _pod(uid: str, host_users: bool | None = False) -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID(uid), name=uid, namespace="ns"),
        spec=v1.PodSpec(containers=[], host_users=host_users),
    )


def _mapping(host: int = 131072, container: int = 0, length: int = LENGTH) -> dict[str, int]:
    return {"hostId": host, "containerId": container, "length": length}


@pytest.mark.parametrize("length", [LENGTH, 1048576], ids=["default", "custom"])
def test_allocate(tmp_path: Path, length: int) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, mapping=(length, length * 2000)), length)
    first, got = manager.allocate_one(ONE)
    assert got == length
    assert manager.is_set(first)
    second, _ = manager.allocate_one(TWO)
    assert first != second
    manager.record(TWO, second, length)
    with pytest.raises(ValueError, match="wrong user namespace offset"):
        manager.record(TWO, second + 1, length)
    with pytest.raises(ValueError, match="different user namespace range already used"):
        manager.record(TWO, first, length)
    with pytest.raises(ValueError, match="already taken"):
        manager.record(types.UID("three"), first, length)
    manager.release(ONE)
    manager.release(TWO)
    assert not manager.is_set(first)
    assert not manager.is_set(second)
    ranges = [manager.allocate_one(types.UID(str(number)))[0] for number in range(1000)]
    assert len(set(ranges)) == 1000
    assert all(length <= start <= length * 2000 and manager.is_set(start) for start in ranges)


def test_no_range_is_left(tmp_path: Path) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, mapping=(LENGTH, LENGTH), max_pods=1))
    manager.record(ONE, LENGTH, LENGTH)
    with pytest.raises(ValueError, match="could not find an empty slot"):
        manager.allocate_one(TWO)
    with pytest.raises(ValueError, match="out of range"):
        manager.record(TWO, 2 * LENGTH, LENGTH)
    assert manager.is_set(2 * LENGTH)


@pytest.mark.parametrize(
    ("mapping", "max_pods", "message"),
    [
        ((LENGTH + 1, MAPPING_LENGTH), 110, "assigned ID 65537 is not a multiple of 65536"),
        ((0, MAPPING_LENGTH), 110, "assigned ID 0 must be greater or equal to 65536"),
        ((LENGTH, LENGTH + 1), 1, "IDs length 65537 is not a multiple of 65536"),
        ((LENGTH, LENGTH), 2, "IDs are not enough to support 2 pods"),
    ],
    ids=["firstID not multiple", "firstID is root", "mappingLen not multiple", "range can't fit maxPods"],
)
def test_mappings_that_do_not_do(tmp_path: Path, mapping: tuple[int, int], max_pods: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        userns.UsernsManager(FakeUserNsPodsManager(tmp_path, mapping=mapping, max_pods=max_pods))


@pytest.mark.parametrize(
    ("uids", "gids", "message"),
    [
        ([_mapping()], [_mapping()], ""),
        ([_mapping(length=0)], [_mapping(length=0)], "wrong user namespace length 0"),
        ([_mapping()], [_mapping(host=1)], "GID and UID mapping should be identical"),
        ([_mapping()], [_mapping(), _mapping(196608)], "GID and UID mappings should be identical"),
        ([_mapping(), _mapping(196608)], [_mapping()], "no more than one mapping"),
        ([_mapping(container=1)], [_mapping(container=1)], "UID 0 must be mapped"),
        ([_mapping()], [_mapping(container=1)], "GID and UID mapping should be identical"),
        ([_mapping(host=-1)], [_mapping(host=-1)], "invalid user namespace mappings file"),
    ],
    ids=[
        "basic",
        "invalid length",
        "wrong offset",
        "two GID mappings",
        "two UID mappings",
        "no root UID",
        "no root GID",
        "no uint32",
    ],
)
def test_parse_user_ns_file(
    tmp_path: Path, uids: list[dict[str, int]], gids: list[dict[str, int]], message: str
) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path))
    content = json.dumps({"uidMappings": uids, "gidMappings": gids}).encode()
    if not message:
        manager.parse_user_ns_file_and_record(UID, content)
        assert manager.pod_allocated(UID)
        return
    with pytest.raises(ValueError, match=message):
        manager.parse_user_ns_file_and_record(UID, content)
    assert not manager.pod_allocated(UID)


@pytest.mark.parametrize("host_users", [None, True])
def test_the_nodes_user_namespace(tmp_path: Path, host_users: bool | None) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path))
    got = manager.get_or_create_user_namespace_mappings(_pod("uid", host_users), "")
    assert got == runtimeapi.UserNamespace(mode=runtimeapi.NODE)
    assert not manager.pod_allocated(UID)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("handlers", "handler", "message"),
    [
        ({"": False}, "", "can't set `spec.hostUsers: false`, runtime does not support user namespaces"),
        (
            {"kata": False},
            "kata",
            'can\'t set `spec.hostUsers: false`, RuntimeClass handler "kata" does not support user namespaces',
        ),
        (
            {},
            "kata",
            "can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does not support user namespaces: 'kata'",
        ),
    ],
    ids=["runtime", "handler", "unknown handler"],
)
def test_a_runtime_without_user_namespaces(
    tmp_path: Path, handlers: dict[str, bool], handler: str, message: str
) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers=handlers))
    with pytest.raises(ValueError) as caught:
        manager.get_or_create_user_namespace_mappings(_pod("uid"), handler)
    assert str(caught.value) == message
    assert not manager.pod_allocated(UID)


def test_the_range_outlasts_the_kubelet(tmp_path: Path) -> None:
    pods = FakeUserNsPodsManager(tmp_path, handlers={"": True})
    first = userns.UsernsManager(pods).get_or_create_user_namespace_mappings(_pod("uid"), "")
    assert first.mode == runtimeapi.POD
    assert first.uids == first.gids
    start = first.uids[0].host_id
    assert start % LENGTH == 0
    assert start >= LENGTH
    assert json.loads((tmp_path / "uid" / "userns").read_text()) == {
        "uidMappings": [_mapping(start)],
        "gidMappings": [_mapping(start)],
    }
    again = userns.UsernsManager(pods)
    assert again.is_set(start)
    assert again.get_or_create_user_namespace_mappings(_pod("uid"), "") == first
    assert again.get_or_create_user_namespace_mappings(_pod("other"), "").uids[0].host_id != start
    again.release(UID)
    assert not again.is_set(start)
    assert not (tmp_path / "uid" / "userns").exists()
    assert not userns.UsernsManager(pods).pod_allocated(UID)


def _write_record(root: Path, uid: str, content: str | dict[str, int]) -> Path:
    """Write a record with this content, or with this mapping for both kinds of IDs."""
    if isinstance(content, dict):
        content = json.dumps({"uidMappings": [content], "gidMappings": [content]})
    (root / uid).mkdir(exist_ok=True)
    path = root / uid / "userns"
    path.write_text(content)
    return path


def test_a_record_that_cannot_be_read_is_the_trouble_of_its_pod(tmp_path: Path) -> None:
    path = _write_record(tmp_path, "broken", '{"uidMappings":')
    _write_record(tmp_path, "sound", _mapping())
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers={"": True}))
    get = manager.get_or_create_user_namespace_mappings

    with pytest.raises(ValueError, match=r"^user namespace: invalid user namespace mappings file"):
        get(_pod("broken"), "")
    assert get(_pod("sound"), "").uids[0].host_id == 131072
    # The pod with the invalid record may have any range.
    with pytest.raises(ValueError, match=r'^create user namespace: the range of pod "broken" is unknown'):
        get(_pod("new"), "")
    manager.release(types.UID("broken"))
    assert not path.exists()
    assert get(_pod("new"), "").mode == runtimeapi.POD


def test_a_record_that_is_mended_or_removed(tmp_path: Path) -> None:
    path = _write_record(tmp_path, "broken", "")
    path.unlink()
    path.mkdir()  # The record cannot even be read.
    other = _write_record(tmp_path, "other", "[]")
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers={"": True}))
    other.unlink()
    with pytest.raises(ValueError, match='pod "broken"'):
        manager.get_or_create_user_namespace_mappings(_pod("other"), "")
    path.rmdir()
    _write_record(tmp_path, "broken", _mapping())
    assert manager.get_or_create_user_namespace_mappings(_pod("broken"), "").uids[0].host_id == 131072
    assert manager.get_or_create_user_namespace_mappings(_pod("other"), "").uids[0].host_id != 131072


def test_a_record_for_which_there_is_no_descriptor_just_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_record(tmp_path, "one", _mapping())
    (tmp_path / "without").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", raising(OSError(errno.EMFILE, "Too many open files")))
        manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers={"": True}))
        with pytest.raises(ValueError, match='the range of pod "one" is unknown'):
            manager.get_or_create_user_namespace_mappings(_pod("new"), "")
    assert manager.get_or_create_user_namespace_mappings(_pod("new"), "").uids[0].host_id != 131072
    assert manager.pod_allocated(ONE)


def test_a_directory_that_cannot_be_looked_into_just_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be read may contain a record, so no range is allocated until it can be read."""
    _write_record(tmp_path, "one", _mapping())
    (tmp_path / "without").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", raising(OSError(errno.EIO, "Input/output error")))
        patch.setattr(Path, "stat", raising(OSError(errno.EIO, "Input/output error")))
        manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers={"": True}))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", raising(OSError(errno.EMFILE, "Too many open files")))
        with pytest.raises(ValueError, match='the range of pod "one" is unknown'):
            manager.get_or_create_user_namespace_mappings(_pod("new"), "")
    assert manager.get_or_create_user_namespace_mappings(_pod("new"), "").uids[0].host_id != 131072
    assert manager.pod_allocated(ONE) and not manager.pod_allocated(types.UID("without"))


def test_memory_is_short_for_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is only this range.
    pods = FakeUserNsPodsManager(tmp_path, pods=[], handlers={"": True}, max_pods=1, mapping=(131072, LENGTH))
    manager = userns.UsernsManager(pods)
    _write_record(tmp_path, "one", _mapping())
    with monkeypatch.context() as patch:
        patch.setattr(codec, "json_decoder", raising(MemoryError()))
        with pytest.raises(MemoryError):
            manager.get_or_create_user_namespace_mappings(_pod("one"), "")
    with pytest.raises(ValueError, match="could not find an empty slot"):
        manager.get_or_create_user_namespace_mappings(_pod("new"), "")
    assert manager.pod_allocated(ONE)


@pytest.mark.parametrize(
    ("mapping", "message", "held"),
    [
        (_mapping(length=LENGTH * 2), "wrong user namespace length 131072", {1, 2}),
        (_mapping(host=LENGTH + 1), "wrong user namespace offset specified 65537", {0, 1}),
        (_mapping(host=LENGTH * 5), "id 327680 is out of range", set()),
        (_mapping(host=0, length=2**32 - 1), "wrong user namespace length", {0, 1, 2, 3}),
    ],
    ids=["of more ids", "between two ranges", "beyond all ranges", "of all ids"],
)
def test_a_record_that_does_not_fit_keeps_what_it_touches(
    tmp_path: Path, mapping: dict[str, int], message: str, held: set[int]
) -> None:
    _write_record(tmp_path, "odd", mapping)
    pods = FakeUserNsPodsManager(tmp_path, handlers={"": True}, max_pods=4, mapping=(LENGTH, 4 * LENGTH))
    manager = userns.UsernsManager(pods)
    get = manager.get_or_create_user_namespace_mappings
    for _ in range(2):
        with pytest.raises(ValueError, match=f"^user namespace: {message}"):
            get(_pod("odd"), "")

    free = [number for number in range(4) if number not in held]
    given = {get(_pod(f"pod-{number}"), "").uids[0].host_id // LENGTH - 1 for number in free}
    assert given == set(free)
    with pytest.raises(ValueError, match="could not find an empty slot"):
        get(_pod("late"), "")
    manager.cleanup_orphaned_pod_userns_allocations([_pod(f"pod-{number}") for number in free], [], set())
    assert {number for number in range(4) if not manager.is_set((number + 1) * LENGTH)} == held


def test_a_range_in_two_records_is_free_when_both_are_gone(tmp_path: Path) -> None:
    for uid in ("one", "two"):
        _write_record(tmp_path, uid, _mapping())
    pods = FakeUserNsPodsManager(tmp_path, ["one", "two"], handlers={"": True})
    manager = userns.UsernsManager(pods)
    with pytest.raises(ValueError, match='user namespace: range picked for pod "two" already taken'):
        manager.get_or_create_user_namespace_mappings(_pod("two"), "")
    manager.release(ONE)
    assert manager.is_set(131072)
    manager.release(TWO)
    assert not manager.is_set(131072)


def test_a_record_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, handlers={"": True}))

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ValueError, match="create user namespace: disk full"):
        manager.get_or_create_user_namespace_mappings(_pod("uid"), "")
    assert not manager.pod_allocated(UID)


def test_pods_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="read pods from disk: no"):
        userns.UsernsManager(FakeUserNsPodsManager(tmp_path, list_error=PermissionError("no")))
    manager = userns.UsernsManager(FakeUserNsPodsManager(tmp_path, list_error=FileNotFoundError("no")))
    with pytest.raises(OSError, match="user namespace: read pods from disk: no"):
        manager.cleanup_orphaned_pod_userns_allocations([], [], set())


@pytest.mark.parametrize(
    ("listed", "known", "running", "with_worker", "kept"),
    [
        (["pod-1", "pod-2"], [], [], [], []),
        (["pod-1", "pod-2"], [], ["pod-1"], [], ["pod-1"]),
        (["pod-1", "pod-2"], ["pod-1"], [], [], ["pod-1"]),
        (["pod-1", "pod-2"], [], [], ["pod-1"], ["pod-1"]),
        ([], [], ["pod-1"], [], []),
        ([], [], [], [], []),
    ],
    ids=[
        "no stale pods set",
        "one running pod",
        "one pod",
        "one pod whose worker makes it",
        "set before but not listed",
        "no listed pods",
    ],
)
def test_cleanup_orphaned_pod_userns_allocations(
    tmp_path: Path,
    listed: list[str],
    known: list[str],
    running: list[str],
    with_worker: list[str],
    kept: list[str],
) -> None:
    pods = FakeUserNsPodsManager(tmp_path)
    manager = userns.UsernsManager(pods)
    manager.record(types.UID("pod-1"), LENGTH, LENGTH)
    manager.record(types.UID("pod-2"), 2 * LENGTH, LENGTH)
    pods.pods = listed
    running_pods = [kubecontainer.Pod(id=types.UID(uid), name=uid, namespace="ns") for uid in running]
    manager.cleanup_orphaned_pod_userns_allocations(
        [_pod(uid) for uid in known], running_pods, {types.UID(uid) for uid in with_worker}
    )
    assert [uid for uid in ("pod-1", "pod-2") if manager.pod_allocated(types.UID(uid))] == kept
