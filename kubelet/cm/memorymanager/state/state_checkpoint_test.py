"""Test the memory manager's checkpoint.

Go: pkg/kubelet/cm/memorymanager/state/state_checkpoint_test.go
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubelet.cm.memorymanager import state
from pkg.util import hash

_NAME = "memory_manager_state"
_TESTDATA = Path(__file__).parent / "testdata"
_TABLE = {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512, "free": 1024}
_DOCUMENT = {
    "policyName": "static",
    "machineState": {"0": {"numberOfAssignments": 0, "memoryMap": {"memory": _TABLE}, "cells": []}},
    "entries": {"pod": {"container1": [{"numaAffinity": [0], "type": "memory", "size": 512}]}},
    # The checksum is the one of upstream's test.
    "checksum": 4215593881,
}


def _restore(directory: Path, text: str, policy: str = "static") -> state.StateCheckpoint:
    (directory / _NAME).write_text(text)
    return state.StateCheckpoint(str(directory), _NAME, policy)


@pytest.mark.parametrize("changes", [{}, {"checksum": 0}, {"unknown": 1}], ids=["valid", "no checksum", "more fields"])
def test_checkpoint_state_restore(tmp_path: Path, changes: dict[str, object]) -> None:
    restored = _restore(tmp_path, json.dumps(_DOCUMENT | changes))
    assert restored.get_memory_assignments() == {"pod": {"container1": [state.Block((0,), "memory", 512)]}}
    assert restored.get_memory_blocks("pod", "container1") == [state.Block((0,), "memory", 512)]
    assert restored.get_memory_blocks("pod", "other") is None
    assert restored.get_memory_blocks("other", "container1") is None
    table = state.MemoryTable(2048, 512, 1536, 512, 1024)
    assert restored.get_machine_state() == {0: state.NUMANodeState(0, {"memory": table}, [])}


def test_checksum_over_the_name_of_todays_struct_of_go(tmp_path: Path) -> None:
    printed = (
        "(*state.MemoryManagerCheckpointV1){PolicyName:(string)static MachineState:(state.NUMANodeMap)map[] "
        "Entries:(state.ContainerMemoryAssignments)map[pod:map[c:[{NUMAAffinity:([]int)[0] "
        "Type:(v1.ResourceName)memory Size:(uint64)512}]]] Checksum:(checksum.Checksum)0}"
    )
    entries = {"pod": {"c": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}
    document = {"policyName": "static", "machineState": {}, "entries": entries}
    restored = _restore(tmp_path, json.dumps(document | {"checksum": hash.fnv32a(printed.encode())}))
    assert restored.get_memory_assignments() == {"pod": {"c": [state.Block((0,), "memory", 512)]}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (json.dumps(_DOCUMENT | {"checksum": 101010}), "checkpoint is corrupted"),
        (json.dumps(_DOCUMENT | {"policyName": "other"}), "checkpoint is corrupted"),
        ("{", "truncated"),
        ("", "truncated"),
        (json.dumps(_DOCUMENT)[:-100], "truncated"),
        ("[]", "Expected `object`"),
        (json.dumps(_DOCUMENT | {"machineState": {"0": 1}}), r"Expected `object`, got `int` .*machineState"),
        (
            json.dumps(_DOCUMENT | {"checksum": 0, "policyName": "other"}),
            r'\[memorymanager\] configured policy "static" differs from state checkpoint policy "other"',
        ),
    ],
)
def test_checkpoint_that_cannot_be_trusted(tmp_path: Path, text: str, fault: str) -> None:
    """The kubelet does not start with a corrupt checkpoint. It names the file to delete, and leaves the file alone."""
    with pytest.raises(ValueError, match=f"could not restore state from checkpoint: .*{fault}.*drain this node") as err:
        _restore(tmp_path, text)
    assert f'"{tmp_path}/{_NAME}"' in str(err.value)
    assert (tmp_path / _NAME).read_text() == text


def test_without_a_policy_garbage_is_set_aside(tmp_path: Path) -> None:
    restored = _restore(tmp_path, "{", "None")
    assert restored.get_machine_state() == {}
    assert (tmp_path / f"{_NAME}.corrupt").read_text() == "{"
    assert (tmp_path / _NAME).read_text() == (_TESTDATA / "none.json").read_text()
    with pytest.raises(ValueError, match='configured policy "None" differs from state checkpoint policy "static"'):
        _restore(tmp_path, json.dumps(_DOCUMENT), "None")


@pytest.mark.parametrize("name", ["none", "static_one_node", "static_two_sockets"])
def test_checkpoint_of_go(tmp_path: Path, name: str) -> None:
    """A checkpoint of the Go kubelet can be read, and is written again byte for byte."""
    text = (_TESTDATA / f"{name}.json").read_text()
    policy = json.loads(text)["policyName"]
    restored = _restore(tmp_path, text, policy)
    assignments, nodes = restored.get_memory_assignments(), restored.get_machine_state()
    restored.clear_state()
    assert (tmp_path / _NAME).read_text() != text or name == "none"
    restored.set_memory_assignments(dict(reversed(assignments.items())))
    restored.set_machine_state(dict(reversed(nodes.items())))
    assert (tmp_path / _NAME).read_text() == text


def test_checkpoint_with_pod_level_resources_is_of_another_kubelet(tmp_path: Path) -> None:
    """The kubelet rejects a checkpoint with pod-level resources.

    Go does the same without its feature gate PodLevelResourceManagers.
    """
    text = (_TESTDATA / "static_pod_level_and_two_nodes.json").read_text()
    with pytest.raises(ValueError, match="checkpoint is corrupted"):
        _restore(tmp_path, text, "Static")


def test_nodes_are_in_the_order_of_go(tmp_path: Path) -> None:
    """Nodes are in Go's order: Go's encoder sorts the keys of a map as text, its debug printer as numbers."""
    first = state.StateCheckpoint(str(tmp_path), _NAME, "Static")
    first.set_machine_state({node: state.NUMANodeState(0, {}, [node]) for node in range(12)})
    written = json.loads((tmp_path / _NAME).read_text())["machineState"]
    assert list(written) == ["0", "1", "10", "11", *"23456789"]
    second = state.StateCheckpoint(str(tmp_path), _NAME, "Static")
    assert second.get_machine_state() == first.get_machine_state()


def test_checkpoint_state_store(tmp_path: Path) -> None:
    first = state.StateCheckpoint(str(tmp_path), _NAME, "static")
    assert (tmp_path / _NAME).exists(), "a kubelet that has given nothing away says so"
    nodes = {0: state.NUMANodeState(1, {"memory": state.MemoryTable(2048, 512, 1536, 1024, 512)}, [0])}
    first.set_machine_state(nodes)
    blocks = [state.Block((0,), "memory", 1024)]
    first.set_memory_blocks("pod", "one", blocks)
    first.set_memory_blocks("pod", "two", blocks)
    second = state.StateCheckpoint(str(tmp_path), _NAME, "static")
    assert second.get_machine_state() == nodes
    assert second.get_memory_assignments() == {"pod": {"one": blocks, "two": blocks}}
    second.delete("pod", "one")
    second.delete("pod", "never")
    second.delete("never", "one")
    third = state.StateCheckpoint(str(tmp_path), _NAME, "static")
    assert third.get_memory_assignments() == {"pod": {"two": blocks}}
    third.delete("pod", "two")
    assert third.get_memory_assignments() == {}
    third.clear_state()
    assert state.StateCheckpoint(str(tmp_path), _NAME, "static").get_machine_state() == {}


def test_what_is_handed_out_is_a_copy(tmp_path: Path) -> None:
    kept = state.StateCheckpoint(str(tmp_path), _NAME, "static")
    nodes = {0: state.NUMANodeState(1, {"memory": state.MemoryTable(free=1)}, [0])}
    blocks = [state.Block((0,), "memory", 1)]
    kept.set_machine_state(nodes)
    kept.set_memory_blocks("pod", "c", blocks)
    for mine, theirs in ((nodes, blocks), (kept.get_machine_state(), kept.get_memory_blocks("pod", "c"))):
        assert theirs is not None
        mine[0].memory_map["memory"].free = 7
        mine[0].cells.append(1)
        theirs.clear()
    kept.get_memory_assignments()["pod"].clear()
    assert kept.get_machine_state() == {0: state.NUMANodeState(1, {"memory": state.MemoryTable(free=1)}, [0])}
    assert kept.get_memory_blocks("pod", "c") == [state.Block((0,), "memory", 1)]


def test_a_file_that_cannot_be_written_keeps_nobody_from_memory(tmp_path: Path) -> None:
    kept = state.StateCheckpoint(str(tmp_path), _NAME, "static")
    (tmp_path / _NAME).unlink()
    (tmp_path / _NAME).mkdir()
    kept.set_memory_blocks("pod", "c", [state.Block((0,), "memory", 1)])
    assert kept.get_memory_blocks("pod", "c") == [state.Block((0,), "memory", 1)]
