"""Test the CPU manager's checkpoint, also with files that the Go kubelet wrote.

Go: pkg/kubelet/cm/cpumanager/state/state_checkpoint_test.go
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubelet.cm.containermap import ContainerMap
from kubelet.cm.cpumanager.state import ContainerCPUAssignments, StateCheckpoint
from kubelet.cm.cpumanager.state.checkpoint import CPUManagerCheckpoint, CPUManagerCheckpointV1, Entries
from pkg.utils import cpuset

_TESTDATA = Path(__file__).with_name("testdata")
_NAME = "cpu_manager_state"


def _state(folder: Path, policy: str = "static", containers: ContainerMap | None = None) -> StateCheckpoint:
    return StateCheckpoint(str(folder), _NAME, policy, containers or ContainerMap())


def _text(assignments: ContainerCPUAssignments) -> dict[str, dict[str, str]]:
    return {uid: {name: str(cpus) for name, cpus in names.items()} for uid, names in assignments.items()}


# These files have no entries for whole pods.
@pytest.mark.parametrize("name", ["static_two_sockets", "static_none_assigned", "none"])
def test_files_of_go_are_read_and_written_the_same(tmp_path: Path, name: str) -> None:
    content = (_TESTDATA / f"{name}.json").read_bytes()
    (tmp_path / _NAME).write_bytes(content)
    document = json.loads(content)
    state = _state(tmp_path, document["policyName"])
    assert str(state.get_default_cpu_set()) == document["defaultCpuSet"]
    assert _text(state.get_cpu_assignments()) == document.get("entries", {})
    (tmp_path / _NAME).unlink()
    state.set_default_cpu_set(state.get_default_cpu_set())
    assert (tmp_path / _NAME).read_bytes() == content


def test_a_file_with_pods_as_a_whole_is_refused_by_its_feature(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_bytes((_TESTDATA / "static_pod_level.json").read_bytes())
    with pytest.raises(ValueError, match="feature gate PodLevelResourceManagers, which is off here, please drain"):
        _state(tmp_path)


_ENTRIES = {"pod": {"container1": "4-6", "container2": "1-3"}}
_BY_ID = {"containerID1": "4-6", "containerID2": "1-3"}


@pytest.mark.parametrize(
    ("document", "default", "assigned"),
    [
        ({"defaultCpuSet": "4-6", "entries": {}, "checksum": 354655845}, "4-6", {}),
        ({"defaultCpuSet": "1-3", "entries": _ENTRIES, "checksum": 3610638499}, "1-3", _ENTRIES),
        ({"defaultCpuSet": "1-3", "checksum": 1694838852}, "1-3", {}),
        ({"defaultCpuSet": "1-3", "entries": _BY_ID, "checksum": 3680390589}, "1-3", _ENTRIES),
        ({"defaultCpuSet": "1-3", "entries": _BY_ID}, "1-3", _ENTRIES),
        ({"defaultCpuSet": "1-3", "entries": _ENTRIES}, "1-3", _ENTRIES),
    ],
    ids=["empty", "entries", "sum of version 1", "version 1", "version 1 without sum", "without sum"],
)
def test_restore(tmp_path: Path, document: dict[str, object], default: str, assigned: Entries) -> None:
    (tmp_path / _NAME).write_text(json.dumps({"policyName": "none", **document}))
    containers = ContainerMap()
    containers.add("pod", "container1", "containerID1")
    containers.add("pod", "container2", "containerID2")
    state = _state(tmp_path, "none", containers)
    assert (str(state.get_default_cpu_set()), _text(state.get_cpu_assignments())) == (default, assigned)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ('{"policyName":"static","defaultCpuSet":"4-6","checksum":1337}', "checkpoint is corrupted"),
        ("{", "Input data was truncated"),
        ("", "Input data was truncated"),
        ('{"policyName":"static","defaultCpuSet":7}', "Expected `str`, got `int` - at `$.defaultCpuSet`"),
        (
            '{"policyName":"other","defaultCpuSet":"1-3"}',
            'configured policy "static" differs from state checkpoint policy "other"',
        ),
        (
            '{"policyName":"static","defaultCpuSet":"1.3"}',
            'could not parse default cpu set "1.3": strconv.Atoi: parsing "1.3": invalid syntax',
        ),
        (
            '{"policyName":"static","entries":{"p":{"c":"asd"}}}',
            'could not parse cpuset "asd" for container "c" in pod "p": strconv.Atoi: parsing "asd": invalid syntax',
        ),
        (
            '{"policyName":"static","entries":{"some-id":"1"}}',
            "failed to migrate checkpoint from v1 to v2: containerID 'some-id' not found in initial containers list",
        ),
    ],
    ids=["wrong sum", "truncated", "empty", "wrong type", "policy", "default set", "set", "version 1, unknown id"],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, content: str, want: str) -> None:
    (tmp_path / _NAME).write_text(content)
    with pytest.raises(ValueError) as err:
        _state(tmp_path)
    assert str(err.value) == (
        f"could not restore state from checkpoint: {want}, please drain this node and delete the CPU manager "
        f'checkpoint file "{tmp_path / _NAME}" before restarting Kubelet'
    )
    assert (tmp_path / _NAME).read_text() == content


def test_without_a_policy_garbage_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_text("{")
    state = _state(tmp_path, "none")
    assert state.get_default_cpu_set().is_empty()
    assert (tmp_path / f"{_NAME}.corrupt").read_text() == "{"
    assert (tmp_path / _NAME).read_bytes() == (_TESTDATA / "none.json").read_bytes()
    with pytest.raises(ValueError, match='configured policy "static" differs from state checkpoint policy "none"'):
        _state(tmp_path)


def test_changes_are_stored(tmp_path: Path) -> None:
    state = _state(tmp_path)

    def stored() -> tuple[str, dict[str, dict[str, str]]]:
        found = _state(tmp_path)
        return str(found.get_default_cpu_set()), _text(found.get_cpu_assignments())

    state.set_default_cpu_set(cpuset.new(0, 1, 2))
    state.set_cpu_set("pod", "one", cpuset.new(5, 6))
    state.set_cpu_set("pod", "two", cpuset.new(7))
    assert stored() == ("0-2", {"pod": {"one": "5-6", "two": "7"}})
    assert str(state.get_cpu_set_or_default("pod", "two")) == "7"
    assert str(state.get_cpu_set_or_default("pod", "other")) == "0-2"
    assert state.get_cpu_set("pod", "other") is None
    state.delete("pod", "one")
    state.delete("pod", "one")
    assert stored() == ("0-2", {"pod": {"two": "7"}})
    state.delete("pod", "two")
    assert stored() == ("0-2", {})


def test_a_disk_that_fails_is_no_reason_to_forget(tmp_path: Path) -> None:
    state = _state(tmp_path / "state")
    (tmp_path / "state" / _NAME).unlink()
    (tmp_path / "state").rmdir()
    state.set_cpu_set("pod", "one", cpuset.new(5))
    assert state.get_cpu_set("pod", "one") == cpuset.new(5)


def test_checksums() -> None:
    checkpoint = CPUManagerCheckpoint("none")
    assert checkpoint.marshal_checkpoint() == b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    with pytest.raises(NotImplementedError):
        CPUManagerCheckpointV1().marshal_checkpoint()
