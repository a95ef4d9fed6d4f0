"""Fills the desired state from the pods, and takes out what pods no longer need.

Go: pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go
"""

from __future__ import annotations

import threading
from typing import Protocol

from kubelet.volumemanager.cache import DesiredStateOfWorld
from pkg import klog
from pkg.api.core import v1
from pkg.volume import Spec
from pkg.volume import util as volumeutil


class PodManager(Protocol):
    """The pods there are."""

    def get_pods(self) -> list[v1.Pod]: ...

    def get_pod_by_uid(self, uid: str) -> v1.Pod | None: ...


class PodStateProvider(Protocol):
    """How far pods have come; the pod workers know."""

    def should_pod_containers_be_terminating(self, uid: str) -> bool: ...

    def should_pod_runtime_be_removed(self, uid: str) -> bool: ...


class DesiredStateOfWorldPopulator:
    """populate() brings the desired state up to date; it may be called from any thread, one at a time."""

    def __init__(
        self,
        pod_manager: PodManager,
        pod_state_provider: PodStateProvider,
        desired: DesiredStateOfWorld,
    ) -> None:
        self._pod_manager = pod_manager
        self._pod_state_provider = pod_state_provider
        self._desired = desired
        self._lock = threading.Lock()  # guards the two below
        self._processed_pods: set[str] = set()
        self._has_added_pods = False

    def populate(self, sources_ready: bool) -> None:
        """Add volumes of new pods, drop those of pods that ended."""
        for pod in self._pod_manager.get_pods():
            self._add_pod_if_wanted(pod)
        self._remove_deleted_pods()
        if sources_ready and not self.has_added_pods():
            klog.info_s("Finished populating initial desired state of world")
            with self._lock:
                self._has_added_pods = True

    def has_added_pods(self) -> bool:
        """Whether the pods of all sources have been seen once: before that nothing on disk is surely unwanted."""
        with self._lock:
            return self._has_added_pods

    def reprocess_pod(self, pod_name: str) -> None:
        """Look at the pod's volumes anew at the next round."""
        with self._lock:
            self._processed_pods.discard(pod_name)

    def _add_pod_if_wanted(self, pod: v1.Pod) -> None:
        uid = pod.metadata.uid
        # At the start volumes of pods that still terminate are needed to find out what must be unmounted.
        if self.has_added_pods():
            unwanted = self._pod_state_provider.should_pod_containers_be_terminating(uid)
        else:
            unwanted = self._pod_state_provider.should_pod_runtime_be_removed(uid)
        with self._lock:
            unwanted = unwanted or uid in self._processed_pods
        if not unwanted:
            self._process_pod_volumes(pod)

    def _process_pod_volumes(self, pod: v1.Pod) -> None:
        pod_name = volumeutil.get_unique_pod_name(pod)
        mounts, devices, _ = volumeutil.get_pod_volume_names(pod)
        all_added = True
        for volume in pod.spec.volumes:
            if volume.name not in mounts and volume.name not in devices:
                klog.v(4).info_s("Skipping unused volume", pod=klog.kobj(pod), volumeName=volume.name)
                continue
            try:
                self._desired.add_pod_to_volume(pod_name, pod, self._create_volume_spec(volume), volume.name)
            except ValueError as err:
                klog.error_s(err, "Error processing volume", pod=klog.kobj(pod), volumeName=volume.name)
                self._desired.add_error_to_pod(pod_name, str(err))
                all_added = False
        if all_added:
            with self._lock:
                self._processed_pods.add(pod_name)

    def _create_volume_spec(self, volume: v1.Volume) -> Spec:
        """The volume's spec on its own: the name of a shared object must not change under the plugins."""
        return Spec(v1.deepcopy(volume))

    def _remove_deleted_pods(self) -> None:
        pods: set[str] = set()
        for volume in self._desired.get_volumes_to_mount():
            pods.add(volume.pod_name)
            if self._pod_state_provider.should_pod_runtime_be_removed(volume.pod_name):
                klog.v(4).info_s(
                    "Removing volume from desired state", pod=klog.kobj(volume.pod), volumeName=volume.volume_name
                )
                self._desired.delete_pod_from_volume(volume.pod_name, volume.volume_name)
                self.reprocess_pod(volume.pod_name)
        with self._lock:
            gone = [name for name in self._processed_pods - pods if self._pod_manager.get_pod_by_uid(name) is None]
            self._processed_pods.difference_update(gone)
