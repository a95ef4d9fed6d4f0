"""Keep the resources of pods over restarts.

Go: pkg/kubelet/allocation/state/state_checkpoint.go
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from kubelet.allocation.state import checkpoint as checkpoints
from kubelet.allocation.state.state import PodResourceInfo, PodResourceInfoMap, State
from kubelet.allocation.state.state_mem import StateMemory
from kubelet.checkpointmanager import CheckpointManager
from kubelet.checkpointmanager.errors import ErrCheckpointNotFound
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types


class StateCheckpoint:
    """Store resources in memory, and write a file at every change, as State describes."""

    def __init__(self, state_dir: str, checkpoint_name: str) -> None:
        """Read the file of an earlier run, or set aside a file that is damaged. Raise OSError."""
        self._checkpoint_manager = CheckpointManager(state_dir)
        self._checkpoint_name = checkpoint_name
        self._lock = threading.Lock()  # This lock lets one thread write at a time, and guards the fields below.
        self._serializer = checkpoints.Serializer()
        try:
            resources, self._last_data = restore_state(self._checkpoint_manager, checkpoint_name)
        except ValueError as err:
            # Without the file, pods get the resources that they request unless the node lacks them, and the kubelet
            # actuates the resources of containers once more.
            # DIVERGES (safer): the kubelet sets a damaged checkpoint aside and starts without it.
            # Go: pkg/kubelet/allocation/state/state_checkpoint.go, NewStateCheckpoint: the Go kubelet does not start
            # until somebody has drained the node and deleted the file.
            # Why: one damaged file would make the whole node unavailable.
            # Test: state_checkpoint_test.py:test_broken_file_is_set_aside
            self._checkpoint_manager.set_aside(checkpoint_name, err)
            resources, self._last_data = {}, ""
        self._cache: State = StateMemory(resources)

    def _store_state(self) -> None:
        """Write the file, unless it already holds the current state. Raise OSError.

        The caller makes its change first, so that the first of several waiting threads writes the changes of all.
        """
        with self._lock:
            info = checkpoints.PodResourceCheckpointInfo(self._cache.get_pod_resource_info_map())
            # Go compares checksums, but comparing the texts is cheaper.
            data = self._serializer.serialize(info)
            if data == self._last_data:
                return
            try:
                self._checkpoint_manager.create_checkpoint(self._checkpoint_name, checkpoints.Checkpoint(data))
            except OSError as err:
                klog.error_s(err, "Failed to save pod resource information checkpoint")
                raise
            self._last_data = data

    def get_container_resources(self, pod_uid: types.UID, container_name: str) -> v1.ResourceRequirements | None:
        return self._cache.get_container_resources(pod_uid, container_name)

    def get_pod_level_resources(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        return self._cache.get_pod_level_resources(pod_uid)

    def get_pod_resource_info_map(self) -> PodResourceInfoMap:
        return self._cache.get_pod_resource_info_map()

    def get_pod_resource_info(self, pod_uid: types.UID) -> PodResourceInfo | None:
        return self._cache.get_pod_resource_info(pod_uid)

    def set_container_resources(
        self, pod_uid: types.UID, container_name: str, resources: v1.ResourceRequirements
    ) -> None:
        self._cache.set_container_resources(pod_uid, container_name, resources)
        self._store_state()

    def set_pod_level_resources(self, pod_uid: types.UID, resources: v1.ResourceRequirements | None) -> None:
        self._cache.set_pod_level_resources(pod_uid, resources)
        self._store_state()

    def set_pod_resource_info(self, pod_uid: types.UID, resource_info: PodResourceInfo) -> None:
        self._cache.set_pod_resource_info(pod_uid, resource_info)
        self._store_state()

    def remove_pod(self, pod_uid: types.UID) -> None:
        # The file is not written: an extra pod in it does no harm, and the next change removes the pod.
        self._cache.remove_pod(pod_uid)

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        # The file is not written: extra pods in it do no harm, and the next change removes them.
        self._cache.remove_orphaned_pods(remaining_pods)


def restore_state(checkpoint_manager: CheckpointManager, checkpoint_name: str) -> tuple[PodResourceInfoMap, str]:
    """Return the contents of the file and its text, or nothing if there is no file. Raise OSError or ValueError."""
    checkpoint = checkpoints.Checkpoint()
    try:
        checkpoint_manager.get_checkpoint(checkpoint_name, checkpoint)
    except ErrCheckpointNotFound:
        return {}, ""
    try:
        info = checkpoint.get_pod_resource_checkpoint_info()
    except ValueError as err:
        raise ValueError(f"failed to get pod resource information: {err}") from err
    klog.v(2).info_s("State checkpoint: restored pod resource state from checkpoint")
    return info.entries, checkpoint.data


class NoopStateCheckpoint:
    """Store nothing, but implement State."""

    def get_container_resources(self, pod_uid: types.UID, container_name: str) -> v1.ResourceRequirements | None:
        return None

    def get_pod_level_resources(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        return None

    def get_pod_resource_info_map(self) -> PodResourceInfoMap:
        return {}

    def get_pod_resource_info(self, pod_uid: types.UID) -> PodResourceInfo | None:
        return None

    def set_container_resources(
        self, pod_uid: types.UID, container_name: str, resources: v1.ResourceRequirements
    ) -> None:
        """Ignore the call."""

    def set_pod_resource_info(self, pod_uid: types.UID, resource_info: PodResourceInfo) -> None:
        """Ignore the call."""

    def set_pod_level_resources(self, pod_uid: types.UID, resources: v1.ResourceRequirements | None) -> None:
        """Ignore the call."""

    def remove_pod(self, pod_uid: types.UID) -> None:
        """Ignore the call."""

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        """Ignore the call."""
