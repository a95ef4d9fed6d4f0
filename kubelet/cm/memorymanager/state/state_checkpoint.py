"""Keep the memory allocations in memory and on disk.

Go: pkg/kubelet/cm/memorymanager/state/state_checkpoint.go
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubelet.checkpointmanager import CheckpointManager
from kubelet.checkpointmanager.errors import ErrCheckpointNotFound
from kubelet.cm.memorymanager.state.checkpoint import MemoryManagerCheckpoint
from kubelet.cm.memorymanager.state.state import Block, ContainerMemoryAssignments, NUMANodeMap, State
from kubelet.cm.memorymanager.state.state_mem import StateMemory
from pkg import klog

# This policy allocates no memory, so the content of the file does not matter.
_POLICY_NONE = "None"


class _OtherPolicyError(ValueError):
    """Signal that the file is intact, but was written under another policy."""


class StateCheckpoint:
    """Implement State in memory, and write each change to a file."""

    def __init__(self, state_dir: str, checkpoint_name: str, policy_name: str) -> None:
        """Restore an earlier kubelet's state.

        Raise OSError, or ValueError if the file is corrupt or from another policy, because its containers may have
        memory that the kubelet would not know of.
        """
        self._checkpoint_manager = CheckpointManager(state_dir)
        self._checkpoint_name = checkpoint_name
        self._policy_name = policy_name
        self._lock = threading.Lock()  # This lock serializes writes and guards the next two fields.
        # `_waits` says whether changes are being collected for one write, `_has_waiting` whether there are any.
        self._waits = self._has_waiting = False
        self._cache: State = StateMemory()
        path = os.path.join(state_dir, checkpoint_name)
        try:
            self._restore_state()
        except ValueError as err:
            if policy_name == _POLICY_NONE and not isinstance(err, _OtherPolicyError):
                # DIVERGES (safer): with the memory manager policy None, the kubelet sets an unreadable state file
                # aside.
                # Go: pkg/kubelet/cm/memorymanager/state/state_checkpoint.go, NewCheckpointState: the Go kubelet does
                # not start until an administrator removes the file.
                # Why: no container has exclusive memory with this policy, so the file contains nothing of value.
                # Test: state_checkpoint_test.py:test_without_a_policy_garbage_is_set_aside
                self._checkpoint_manager.set_aside(checkpoint_name, err)
                self._store_state()
                return
            raise ValueError(
                f"could not restore state from checkpoint: {err}, please drain this node and delete "
                f'the memory manager checkpoint file "{path}" before restarting Kubelet'
            ) from err

    def _restore_state(self) -> None:
        """Read the file, or write the first one."""
        checkpoint = MemoryManagerCheckpoint()
        try:
            self._checkpoint_manager.get_checkpoint(self._checkpoint_name, checkpoint)
        except ErrCheckpointNotFound:
            self._store_state()
            return
        if self._policy_name != checkpoint.policy_name:
            raise _OtherPolicyError(
                f'[memorymanager] configured policy "{self._policy_name}" differs from '
                f'state checkpoint policy "{checkpoint.policy_name}"'
            )
        self._cache.set_machine_state(checkpoint.machine_state)
        self._cache.set_memory_assignments(checkpoint.entries)
        klog.v(2).info_s("State checkpoint: restored state from checkpoint")

    def _store_state(self) -> None:
        checkpoint = MemoryManagerCheckpoint(
            self._policy_name, self._cache.get_machine_state(), self._cache.get_memory_assignments()
        )
        self._checkpoint_manager.create_checkpoint(self._checkpoint_name, checkpoint)

    @contextmanager
    def together(self, is_last: bool = True) -> Iterator[None]:
        with self._lock:
            self._waits = True
        try:
            with self._cache.together():
                yield
        finally:
            with self._lock:
                self._waits = False
        with self._lock:
            if self._has_waiting and is_last:
                self._save_locked()

    def _save_locked(self) -> None:
        """Write the state. A failure is only logged: the pod has its memory, and the next change tries again."""
        if self._waits:
            self._has_waiting = True
            return
        self._has_waiting = False
        try:
            self._store_state()
        except OSError as err:
            klog.error_s(err, "Failed to store state to checkpoint")

    def get_machine_state(self) -> NUMANodeMap:
        return self._cache.get_machine_state()

    def get_memory_blocks(self, pod_uid: str, container_name: str) -> list[Block] | None:
        return self._cache.get_memory_blocks(pod_uid, container_name)

    def get_memory_assignments(self) -> ContainerMemoryAssignments:
        return self._cache.get_memory_assignments()

    def set_machine_state(self, node_map: NUMANodeMap) -> None:
        with self._lock:
            self._cache.set_machine_state(node_map)
            self._save_locked()

    def set_memory_blocks(self, pod_uid: str, container_name: str, blocks: list[Block]) -> None:
        with self._lock:
            self._cache.set_memory_blocks(pod_uid, container_name, blocks)
            self._save_locked()

    def set_memory_assignments(self, assignments: ContainerMemoryAssignments) -> None:
        with self._lock:
            self._cache.set_memory_assignments(assignments)
            self._save_locked()

    def delete(self, pod_uid: str, container_name: str) -> None:
        with self._lock:
            self._cache.delete(pod_uid, container_name)
            self._save_locked()

    def clear_state(self) -> None:
        with self._lock:
            self._cache.clear_state()
            self._save_locked()


if TYPE_CHECKING:
    _: State = StateCheckpoint("", "", "")
