"""Test the checkpoint manager.

Go: pkg/kubelet/checkpointmanager/checkpoint_manager_test.go
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet import checkpointmanager
from kubelet.allocation import state
from kubelet.checkpointmanager import checksum, errors
from pkg.apimachinery.util.runtime.testing import raising


class TextCheckpoint:
    """Hold a text with its checksum in front."""

    __test__ = False

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.sum = checksum.new(text)

    def marshal_checkpoint(self) -> bytes:
        return f"{self.sum} {self.text}".encode()

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        number, self.text = blob.decode().split(" ", 1)
        self.sum = int(number)

    def verify_checksum(self) -> None:
        checksum.verify(self.sum, self.text)


def test_checkpoints(tmp_path: Path) -> None:
    manager = checkpointmanager.CheckpointManager(str(tmp_path / "new"))
    for name in ("one", "two"):
        manager.create_checkpoint(name, TextCheckpoint(f"text of {name}"))
    assert sorted(manager.list_checkpoints()) == ["one", "two"]
    found = TextCheckpoint()
    manager.get_checkpoint("one", found)
    assert found.text == "text of one"
    manager.remove_checkpoint("one")
    manager.remove_checkpoint("one")
    with pytest.raises(errors.ErrCheckpointNotFound):
        manager.get_checkpoint("one", found)
    (tmp_path / "new" / "two").write_bytes(b"1 text of two")
    with pytest.raises(errors.CorruptCheckpointError) as corrupt:
        manager.get_checkpoint("two", found)
    assert (corrupt.value.expected, corrupt.value.actual) == (1, checksum.new("text of two"))


def test_checkpoint_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "deep").write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match="checkpoint deep is nested too deeply"):
        checkpointmanager.CheckpointManager(str(tmp_path)).get_checkpoint("deep", state.Checkpoint())


def test_checkpoint_for_which_memory_is_short(tmp_path: Path) -> None:
    manager = checkpointmanager.CheckpointManager(str(tmp_path))
    checkpoint = TextCheckpoint()
    manager.create_checkpoint("large", checkpoint)
    checkpoint.unmarshal_checkpoint = raising(MemoryError())  # type: ignore[method-assign]
    # The error is not a ValueError, so that no caller continues without the checkpoint and replaces it.
    with pytest.raises(OSError, match="Cannot allocate memory: 'checkpoint large'"):
        manager.get_checkpoint("large", checkpoint)


def test_checksum_is_go_s() -> None:
    # The data is from the test of Go's allocation state.
    data = '{"entries":{"pod1":{"ContainerResources":{"container1":{"requests":{"cpu":"1Ki","memory":"1Ki"}}}}}}'
    assert checksum.new(data) == 1178570812
