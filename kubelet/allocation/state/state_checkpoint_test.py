"""Test the checkpoint of pods' resources.

Go: pkg/kubelet/allocation/state/state_checkpoint_test.go
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_until_equal

from kubelet.allocation import state
from kubelet.allocation.state import checkpoint as checkpoint_module
from kubelet.allocation.state.state_checkpoint import restore_state
from kubelet.checkpointmanager import CheckpointManager, checksum
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.util.runtime.testing import raising

POD_A = types.UID("a")
POD_1 = types.UID("pod1")

_NAME = "allocated_pods_state"
# A Go kubelet writes the file like this.
_GO = (
    r'{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":'
    r'{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}'
)


def _file(data: str) -> str:
    """Return a checkpoint whose checksum is right for any data."""
    return json.dumps({"data": data, "checksum": checksum.new(data)})


# These are original files of Go kubelets of 1.36 with the allocated and actuated resources of pods.
_GO_FILES = sorted(Path(__file__).with_name("testdata").glob("*.json"))


def requirements(amount: str) -> v1.ResourceRequirements:
    quantity = resource.must_parse(amount)
    return v1.ResourceRequirements(requests={"cpu": quantity, "memory": quantity})


_SUFFIXES = ["Ki", "Mi", "Gi", "Ti", "Pi", "n", "u", "m", "k", "M", "G", "T", "P", ""]
_FACTORS = ["1", "0.1", "0.03", "10", "100", "512", "1000", "1024", "700", "10000"]
_AMOUNTS = [factor + suffix for factor in _FACTORS for suffix in _SUFFIXES]


@pytest.mark.parametrize("amount", [*_AMOUNTS, "0.1E", "0.03E", "1E", "0.1Ei", "0.03Ei", "1Ei"])
def test_store_state(tmp_path: Path, amount: str) -> None:
    info = state.PodResourceInfo({"container1": requirements(amount)}, requirements(amount))
    first = state.StateCheckpoint(str(tmp_path), _NAME)
    first.set_pod_resource_info(POD_1, info)
    assert first.get_pod_resource_info_map() == {"pod1": info}

    second = state.StateCheckpoint(str(tmp_path), _NAME)
    assert second.get_pod_resource_info_map() == {"pod1": info}
    assert second.get_container_resources(POD_1, "container1") == info.container_resources["container1"]
    assert second.get_pod_level_resources(POD_1) == info.pod_level_resources

    path = tmp_path / _NAME
    path.unlink()
    for same in (first, second):
        same.set_pod_resource_info(POD_1, info)
        assert not path.exists(), "an unchanged state is not written"
    first.set_pod_resource_info(types.UID("other"), state.PodResourceInfo({"container1": requirements("1")}))
    assert path.exists()


def test_reads_what_go_wrote(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_text(_GO)
    found, data = restore_state(CheckpointManager(str(tmp_path)), _NAME)
    assert found == {"pod1": state.PodResourceInfo({"container1": requirements("1Ki")})}
    assert data.startswith('{"entries":{"pod1"')


@pytest.mark.parametrize("file", _GO_FILES, ids=lambda file: file.stem)
def test_file_of_a_go_kubelet_stays_the_same(tmp_path: Path, file: Path) -> None:
    text = file.read_text()
    path = tmp_path / _NAME
    path.write_text(text)
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    uid, info = next(iter(checkpoint.get_pod_resource_info_map().items()))
    checkpoint.set_pod_resource_info(types.UID("other"), info)
    checkpoint.remove_pod(types.UID("other"))
    checkpoint.set_pod_resource_info(uid, info)
    assert path.read_text() == text


def test_writes_what_go_writes(tmp_path: Path) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    limits = {"memory": resource.must_parse("1Gi"), "cpu": resource.must_parse("1500m")}
    both = v1.ResourceRequirements(limits=limits, requests={"cpu": resource.must_parse("0.5")})
    checkpoint.set_container_resources(types.UID("b"), "<c>", both)
    checkpoint.set_pod_level_resources(POD_A, v1.ResourceRequirements(claims=[v1.ResourceClaim(name="gpu")]))
    data = (
        r"{\"entries\":{\"a\":{\"ContainerResources\":{},\"PodLevelResources\":{\"claims\":[{\"name\":\"gpu\"}]}},"
        r"\"b\":{\"ContainerResources\":{\"\\u003cc\\u003e\":{\"limits\":{\"cpu\":\"1500m\",\"memory\":\"1Gi\"},"
        r"\"requests\":{\"cpu\":\"500m\"}}},\"PodLevelResources\":null}}}"
    )
    text = (tmp_path / _NAME).read_text()
    assert text.startswith('{"data":"' + data + '","checksum":')
    assert state.StateCheckpoint(str(tmp_path), _NAME).get_container_resources(types.UID("b"), "<c>") == both


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (_GO.replace("1178570812", "1"), "checkpoint is corrupted"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[]", "checkpoint is not a JSON object"),
        ('{"data":1,"checksum":1}', "checkpoint must have a text in data and a number in checksum"),
        (_file("[]"), "checkpoint data is not a JSON object"),
        (_file("[" * 100_000), "checkpoint data is nested too deeply"),
        (_file('{"entries":[]}'), "entries of the checkpoint are not a JSON object"),
        (_file('{"entries":{"a":[]}}'), "entry a of the checkpoint is not a JSON object"),
        (_file('{"entries":{"a":{"ContainerResources":[1]}}}'), "ContainerResources of entry a"),
        (_file('{"entries":{"a":{"ContainerResources":{"c":{"limits":{"cpu":"much"}}}}}}'), "quantities must match"),
    ],
)
def test_broken_file_is_set_aside(tmp_path: Path, text: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After a damaged file was set aside, pods get what they request, and the kubelet starts."""
    path = tmp_path / _NAME
    path.write_text(text)
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    assert checkpoint.get_pod_resource_info_map() == {}
    assert not path.exists()
    assert (tmp_path / f"{_NAME}.corrupt").read_text() == text
    logged = capsys.readouterr().err
    assert "Could not restore state from checkpoint" in logged and fault in logged and f"{_NAME}.corrupt" in logged

    checkpoint.set_container_resources(POD_A, "c", requirements("1"))
    again = state.StateCheckpoint(str(tmp_path), _NAME)
    assert again.get_container_resources(POD_A, "c") == requirements("1")


def test_file_for_which_memory_is_short_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / _NAME).write_text(_GO)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "PodResourceCheckpointInfo", raising(MemoryError()))
        with pytest.raises(OSError, match="Cannot allocate memory"):
            state.StateCheckpoint(str(tmp_path), _NAME)
    assert state.StateCheckpoint(str(tmp_path), _NAME).get_container_resources(POD_1, "container1") is not None


def test_text_of_pods_that_stay_the_same_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an unchanged pod is built only once, because a node may have hundreds of pods."""
    made: list[state.PodResourceInfo] = []
    info_to = checkpoint_module._info_to

    def count(info: state.PodResourceInfo) -> dict[str, Any]:
        made.append(info)
        return info_to(info)

    monkeypatch.setattr(checkpoint_module, "_info_to", count)
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    for uid in ("b", "a", "c"):
        checkpoint.set_container_resources(types.UID(uid), "x", requirements("1"))
    assert len(made) == 3, "each pod's text is built once"
    checkpoint.set_container_resources(types.UID("b"), "y", requirements("2"))
    assert len(made) == 4
    again = state.StateCheckpoint(str(tmp_path), _NAME)
    assert again.get_pod_resource_info_map() == checkpoint.get_pod_resource_info_map()
    assert list(again.get_pod_resource_info_map()) == ["a", "b", "c"]


def test_changes_at_the_same_time_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the file finds that the next one in line has already written its change."""
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    begun, goes_on = threading.Event(), threading.Event()
    create, writes = CheckpointManager.create_checkpoint, []

    def slow(self: CheckpointManager, key: str, what: Any) -> None:
        writes.append(what.data)
        begun.set()
        assert goes_on.wait(30)
        create(self, key, what)

    monkeypatch.setattr(CheckpointManager, "create_checkpoint", slow)
    set_one = checkpoint.set_container_resources
    first = golang.go(set_one, "first", "c", requirements("1"), name="first")
    assert begun.wait(30)
    others = [golang.go(set_one, str(i), "c", requirements("1"), name=f"other-{i}") for i in range(5)]
    try:
        wait_until_equal("pods", lambda: len(checkpoint.get_pod_resource_info_map()), 6)
    finally:
        goes_on.set()
        for thread in (first, *others):
            thread.join(30)
    assert len(writes) == 2
    assert len(state.StateCheckpoint(str(tmp_path), _NAME).get_pod_resource_info_map()) == 6


def test_forgotten_pods_go_with_the_next_change(tmp_path: Path) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    for uid in ("a", "b", "c"):
        checkpoint.set_container_resources(types.UID(uid), "c", requirements("1"))
    checkpoint.remove_pod(POD_A)
    checkpoint.remove_orphaned_pods({types.UID("c")})
    assert set(checkpoint.get_pod_resource_info_map()) == {"c"}
    assert set(state.StateCheckpoint(str(tmp_path), _NAME).get_pod_resource_info_map()) == {"a", "b", "c"}
    checkpoint.set_container_resources(types.UID("c"), "other", requirements("1"))
    assert set(state.StateCheckpoint(str(tmp_path), _NAME).get_pod_resource_info_map()) == {"c"}


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointManager, "create_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.set_container_resources(POD_A, "c", requirements("1"))
    assert checkpoint.get_container_resources(POD_A, "c") == requirements("1")
    monkeypatch.undo()
    checkpoint.set_container_resources(POD_A, "c", requirements("1"))
    assert (tmp_path / _NAME).exists(), "the next change writes the state again"


def test_noop() -> None:
    noop = state.NoopStateCheckpoint()
    noop.set_container_resources(POD_A, "c", requirements("1"))
    noop.set_pod_level_resources(POD_A, requirements("1"))
    noop.set_pod_resource_info(POD_A, state.PodResourceInfo())
    assert noop.get_pod_resource_info_map() == {}
    assert noop.get_container_resources(POD_A, "c") is None
    assert noop.get_pod_level_resources(POD_A) is None
    assert noop.get_pod_resource_info(POD_A) is None
