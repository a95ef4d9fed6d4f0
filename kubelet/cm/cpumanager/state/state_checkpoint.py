"""Keep the CPUs of containers in memory and on disk.

Go: pkg/kubelet/cm/cpumanager/state/state_checkpoint.go
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kubelet.checkpointmanager import CheckpointManager
from kubelet.checkpointmanager.errors import CorruptCheckpointError, ErrCheckpointNotFound
from kubelet.cm.containermap import ContainerMap
from kubelet.cm.cpumanager.state.checkpoint import CPUManagerCheckpoint, CPUManagerCheckpointV1, Entries
from kubelet.cm.cpumanager.state.state import ContainerCPUAssignments
from kubelet.cm.cpumanager.state.state_mem import StateMemory
from pkg import klog
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

# With this policy no container has exclusive CPUs, so the content of the file does not matter.
_POLICY_NONE = "none"


class StateCheckpoint(StateMemory):
    """Implement State in memory, and write each change to a file."""

    def __init__(
        self, state_dir: str, checkpoint_name: str, policy_name: str, initial_containers: ContainerMap
    ) -> None:
        """Restore an earlier kubelet's state. Raise ValueError for an unusable file, or OSError."""
        super().__init__()
        self._policy_name = policy_name
        self._checkpoint_name = checkpoint_name
        self._checkpoint_manager = CheckpointManager(state_dir)
        self._initial_containers = initial_containers
        self._store_lock = threading.Lock()  # This lock serializes writes.
        # `_waits` says whether changes are being collected for one write, `_has_waiting` whether there are any.
        self._waits = self._has_waiting = False
        path = os.path.join(state_dir, checkpoint_name)
        try:
            self._restore_state()
        except _UnreadableError as err:
            if policy_name != _POLICY_NONE:
                raise ValueError(_drain_message(err, path)) from err
            # DIVERGES (safer): with the CPU manager policy none, the kubelet sets an unreadable state file aside.
            # Go: pkg/kubelet/cm/cpumanager/state/state_checkpoint.go, NewCheckpointState: the Go kubelet does not start
            # until an administrator removes the file.
            # Why: no container has exclusive CPUs with this policy, so the file contains nothing of value.
            # Test: state_checkpoint_test.py:test_without_a_policy_garbage_is_set_aside
            self._checkpoint_manager.set_aside(checkpoint_name, err)
            self._store_state()
        except ValueError as err:
            raise ValueError(_drain_message(err, path)) from err

    def _restore_state(self) -> None:
        try:
            checkpoint = self._load_and_migrate_checkpoint()
        except ErrCheckpointNotFound:
            self._store_state()
            return
        if checkpoint.policy_name != self._policy_name:
            raise ValueError(
                f"configured policy {json.dumps(self._policy_name)} differs from state checkpoint policy "
                f"{json.dumps(checkpoint.policy_name)}"
            )
        default_cpu_set = _parse(checkpoint.default_cpu_set, "default cpu set")
        self._assignments = _parse_entries(checkpoint.entries)
        self._default_cpu_set = default_cpu_set
        klog.v(2).info_s("State checkpoint: restored state from checkpoint")
        klog.v(2).info_s("State checkpoint: defaultCPUSet", defaultCpuSet=str(default_cpu_set))

    def _load_and_migrate_checkpoint(self) -> CPUManagerCheckpoint:
        checkpoint = CPUManagerCheckpoint()
        try:
            self._checkpoint_manager.get_checkpoint(self._checkpoint_name, checkpoint)
            return checkpoint
        except CorruptCheckpointError as err:
            klog.error_s(err, "V2 checkpoint is corrupt, falling back to V1")
            failure: ValueError = err
        except ValueError as err:
            klog.info_s("could not load V2 checkpoint, falling back to V1", err=err)
            failure = err
        checkpoint_v1 = CPUManagerCheckpointV1()
        try:
            self._checkpoint_manager.get_checkpoint(self._checkpoint_name, checkpoint_v1)
        except ValueError:
            # The error for version 2 is more informative.
            raise _UnreadableError(str(failure)) from failure
        return self._migrate_v1_checkpoint_to_v2_checkpoint(checkpoint_v1)

    def _migrate_v1_checkpoint_to_v2_checkpoint(self, src: CPUManagerCheckpointV1) -> CPUManagerCheckpoint:
        klog.info_s("migrating cpu manager checkpoint from v1 to v2")
        entries: Entries = {}
        for container_id, cpus in src.entries.items():
            try:
                pod_uid, container_name = self._initial_containers.get_container_ref(container_id)
            except LookupError as err:
                raise ValueError(
                    "failed to migrate checkpoint from v1 to v2: "
                    f"containerID '{container_id}' not found in initial containers list"
                ) from err
            entries.setdefault(pod_uid, {})[container_name] = cpus
        return CPUManagerCheckpoint(src.policy_name, src.default_cpu_set, entries)

    def _store_state(self) -> None:
        """Write the file. If several threads call this at once, the last one writes the changes of all."""
        with self._store_lock:
            entries = {
                pod_uid: {name: str(cpus) for name, cpus in containers.items()}
                for pod_uid, containers in self.get_cpu_assignments().items()
            }
            checkpoint = CPUManagerCheckpoint(self._policy_name, str(self.get_default_cpu_set()), entries)
            self._checkpoint_manager.create_checkpoint(self._checkpoint_name, checkpoint)

    @contextmanager
    def together(self) -> Iterator[None]:
        self._waits, self._has_waiting = True, False
        try:
            with super().together():
                yield
        finally:
            self._waits = False
        if self._has_waiting:
            self._changed()

    def _changed(self) -> None:
        if self._waits:
            self._has_waiting = True
            return
        try:
            self._store_state()
        except OSError as err:
            klog.error_s(err, "Failed to store state to checkpoint")

    def set_cpu_set(self, pod_uid: str, container_name: str, cpus: CPUSet) -> None:
        super().set_cpu_set(pod_uid, container_name, cpus)
        self._changed()

    def set_default_cpu_set(self, cpus: CPUSet) -> None:
        super().set_default_cpu_set(cpus)
        self._changed()

    def delete(self, pod_uid: str, container_name: str) -> None:
        super().delete(pod_uid, container_name)
        self._changed()


class _UnreadableError(ValueError):
    """Signal that the file is not a checkpoint of any version, or is corrupt."""


def _drain_message(err: ValueError, path: str) -> str:
    return (
        f"could not restore state from checkpoint: {err}, please drain this node and delete the CPU manager checkpoint "
        f"file {json.dumps(path)} before restarting Kubelet"
    )


def _parse(text: str, what: str, where: str = "") -> CPUSet:
    try:
        return cpuset.parse(text)
    except ValueError as err:
        raise ValueError(f"could not parse {what} {json.dumps(text)}{where}: {err}") from err


def _parse_entries(entries: Entries) -> ContainerCPUAssignments:
    return {
        pod_uid: {
            name: _parse(cpus, "cpuset", f" for container {json.dumps(name)} in pod {json.dumps(pod_uid)}")
            for name, cpus in containers.items()
        }
        for pod_uid, containers in entries.items()
    }
