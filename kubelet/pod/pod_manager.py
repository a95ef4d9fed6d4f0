"""Hold the pods that the sources assign to this node, and connect static pods with their mirror pods.

A static pod comes from a file or a URL, so the API server does not know it. A mirror pod with the same name and
namespace, but another UID, represents it in the API server and shows its status.

Go: pkg/kubelet/pod/pod_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet import types as kubetypes
from kubelet.pod.mirror_client import get_hash_from_mirror_pod, get_pod_hash
from pkg.api.core import v1
from pkg.apimachinery import types


@dataclass(frozen=True, slots=True)
class PodAndMirrorPod:
    """Hold a pod and its mirror pod; either one was used to find the other."""

    pod: v1.Pod | None
    mirror_pod: v1.Pod | None
    # `was_mirror` tells whether the search began with the mirror pod.
    was_mirror: bool


class Manager(Protocol):
    """Define access to this node's pods. All methods are thread-safe; callers must not modify the returned pods."""

    def get_pod_by_full_name(self, pod_full_name: str) -> v1.Pod | None:
        """Return the pod with this full name, but never a mirror pod."""
        ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        """Return the pod with this name, but never a mirror pod."""
        ...

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None:
        """Return the pod with this UID, but never a mirror pod."""
        ...

    def get_pod_by_mirror_pod(self, mirror_pod: v1.Pod) -> v1.Pod | None: ...

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None: ...

    def get_pod_and_mirror_pod(self, a_pod: v1.Pod) -> PodAndMirrorPod: ...

    def get_pods(self) -> list[v1.Pod]:
        """Return all pods except mirror pods."""
        ...

    def get_pods_and_mirror_pods(self) -> tuple[list[v1.Pod], list[v1.Pod], list[str]]:
        """Return all pods, all mirror pods, and the full names of mirror pods whose static pod no longer exists."""
        ...

    def get_static_pod_to_mirror_pod_map(self) -> list[tuple[v1.Pod, v1.Pod | None]]:
        """Return each static pod with its mirror pod, or None if it has none."""
        ...

    def set_pods(self, pods: Iterable[v1.Pod]) -> None:
        """Replace all pods, for tests."""
        ...

    def add_pod(self, pod: v1.Pod) -> None: ...

    def update_pod(self, pod: v1.Pod) -> None: ...

    def remove_pod(self, pod: v1.Pod) -> None: ...

    def translate_pod_uid(self, uid: types.UID) -> kubetypes.ResolvedPodUID:
        """Return the static pod's UID for the UID of a mirror pod, and any other UID unchanged."""
        ...

    def get_uid_translations(
        self,
    ) -> tuple[
        dict[kubetypes.ResolvedPodUID, kubetypes.MirrorPodUID],
        dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID],
    ]:
        """Return the map from static pods' UIDs to mirror pods' UIDs, and the reverse map.

        In the first map, "" stands for a missing mirror pod.
        """
        ...


class BasicManager:
    """Hold the pods in memory."""

    def __init__(self) -> None:
        # This lock guards all dicts.
        self._lock = threading.Lock()
        self._pod_by_uid: dict[kubetypes.ResolvedPodUID, v1.Pod] = {}
        self._mirror_pod_by_uid: dict[kubetypes.MirrorPodUID, v1.Pod] = {}
        self._pod_by_full_name: dict[str, v1.Pod] = {}
        self._mirror_pod_by_full_name: dict[str, v1.Pod] = {}
        self._translation_by_uid: dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID] = {}

    def set_pods(self, pods: Iterable[v1.Pod]) -> None:
        with self._lock:
            self._pod_by_uid.clear()
            self._pod_by_full_name.clear()
            self._mirror_pod_by_uid.clear()
            self._mirror_pod_by_full_name.clear()
            self._translation_by_uid.clear()
            for pod in pods:
                self._update_pod_locked(pod)

    def add_pod(self, pod: v1.Pod) -> None:
        self.update_pod(pod)

    def update_pod(self, pod: v1.Pod) -> None:
        with self._lock:
            self._update_pod_locked(pod)

    def _update_pod_locked(self, pod: v1.Pod) -> None:
        """Replace one pod in all indexes. Mirror pods and static pods find each other by their full names."""
        full_name = kubecontainer.get_pod_full_name(pod)
        if kubetypes.is_mirror_pod(pod):
            self._mirror_pod_by_uid[kubetypes.MirrorPodUID(pod.metadata.uid)] = pod
            self._mirror_pod_by_full_name[full_name] = pod
            static = self._pod_by_full_name.get(full_name)
            if static is not None:
                self._translate_locked(pod, static)
        else:
            uid = kubetypes.ResolvedPodUID(pod.metadata.uid)
            _update_metrics(self._pod_by_uid.get(uid), pod)
            self._pod_by_uid[uid] = pod
            self._pod_by_full_name[full_name] = pod
            mirror = self._mirror_pod_by_full_name.get(full_name)
            if mirror is not None:
                self._translate_locked(mirror, pod)

    def _translate_locked(self, mirror: v1.Pod, pod: v1.Pod) -> None:
        mirror_uid = kubetypes.MirrorPodUID(mirror.metadata.uid)
        self._translation_by_uid[mirror_uid] = kubetypes.ResolvedPodUID(pod.metadata.uid)

    def remove_pod(self, pod: v1.Pod) -> None:
        full_name = kubecontainer.get_pod_full_name(pod)
        with self._lock:
            if kubetypes.is_mirror_pod(pod):
                mirror_uid = kubetypes.MirrorPodUID(pod.metadata.uid)
                self._mirror_pod_by_uid.pop(mirror_uid, None)
                self._mirror_pod_by_full_name.pop(full_name, None)
                self._translation_by_uid.pop(mirror_uid, None)
            else:
                _update_metrics(self._pod_by_uid.pop(kubetypes.ResolvedPodUID(pod.metadata.uid), None), None)
                self._forget_full_name_locked(full_name)

    def _forget_full_name_locked(self, full_name: str) -> None:
        """Forget the pod's full name, or assign it to another pod that has the same name.

        DIVERGES (fault of Go): a static pod keeps its name when a pod of the API server with the same name is removed.
        Go: pkg/kubelet/pod/pod_manager.go, (*basicManager).RemovePod: the Go kubelet forgets the name even if another
        pod has it.
        Why: the static pod's mirror pod would count as an orphan, and would be deleted and created again forever.
        Test: pod_manager_test.py:test_removed_pod_leaves_its_name_to_the_static_pod_that_has_it
        """
        for pod in self._pod_by_uid.values():
            if kubecontainer.get_pod_full_name(pod) == full_name:
                self._pod_by_full_name[full_name] = pod
                return
        self._pod_by_full_name.pop(full_name, None)

    def get_pods(self) -> list[v1.Pod]:
        with self._lock:
            return list(self._pod_by_uid.values())

    def get_pods_and_mirror_pods(self) -> tuple[list[v1.Pod], list[v1.Pod], list[str]]:
        with self._lock:
            orphaned = self._mirror_pod_by_full_name.keys() - self._pod_by_full_name.keys()
            return list(self._pod_by_uid.values()), list(self._mirror_pod_by_uid.values()), list(orphaned)

    def get_static_pod_to_mirror_pod_map(self) -> list[tuple[v1.Pod, v1.Pod | None]]:
        """Return pairs. Go returns a map, but our pods cannot be keys."""
        with self._lock:
            return [
                (pod, self._mirror_pod_by_full_name.get(kubecontainer.get_pod_full_name(pod)))
                for pod in self._pod_by_uid.values()
                if kubetypes.is_static_pod(pod)
            ]

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None:
        with self._lock:
            return self._pod_by_uid.get(kubetypes.ResolvedPodUID(uid))

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        return self.get_pod_by_full_name(kubecontainer.build_pod_full_name(name, namespace))

    def get_pod_by_full_name(self, pod_full_name: str) -> v1.Pod | None:
        with self._lock:
            return self._pod_by_full_name.get(pod_full_name)

    def translate_pod_uid(self, uid: types.UID) -> kubetypes.ResolvedPodUID:
        with self._lock:
            translated = self._translation_by_uid.get(kubetypes.MirrorPodUID(uid))
        return translated if translated is not None else kubetypes.ResolvedPodUID(uid)

    def get_uid_translations(
        self,
    ) -> tuple[
        dict[kubetypes.ResolvedPodUID, kubetypes.MirrorPodUID],
        dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID],
    ]:
        with self._lock:
            pod_to_mirror = {
                uid: kubetypes.MirrorPodUID("") for uid, pod in self._pod_by_uid.items() if kubetypes.is_static_pod(pod)
            }
            mirror_to_pod = dict(self._translation_by_uid)
        pod_to_mirror.update((pod, mirror) for mirror, pod in mirror_to_pod.items())
        return pod_to_mirror, mirror_to_pod

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None:
        with self._lock:
            return self._mirror_pod_by_full_name.get(kubecontainer.get_pod_full_name(pod))

    def get_pod_by_mirror_pod(self, mirror_pod: v1.Pod) -> v1.Pod | None:
        with self._lock:
            return self._pod_by_full_name.get(kubecontainer.get_pod_full_name(mirror_pod))

    def get_pod_and_mirror_pod(self, a_pod: v1.Pod) -> PodAndMirrorPod:
        full_name = kubecontainer.get_pod_full_name(a_pod)
        with self._lock:
            if kubetypes.is_mirror_pod(a_pod):
                return PodAndMirrorPod(self._pod_by_full_name.get(full_name), a_pod, was_mirror=True)
            return PodAndMirrorPod(a_pod, self._mirror_pod_by_full_name.get(full_name), was_mirror=False)


def _update_metrics(old_pod: v1.Pod | None, new_pod: v1.Pod | None) -> None:
    """Update the count of ephemeral containers; None means that there is no pod."""
    old, new = (len(pod.spec.ephemeral_containers) if pod is not None else 0 for pod in (old_pod, new_pod))
    if old != new:
        metrics.MANAGED_EPHEMERAL_CONTAINERS.inc(new - old)


def is_mirror_pod_of(mirror_pod: v1.Pod, pod: v1.Pod) -> bool:
    """Report whether the mirror pod represents exactly this version of the static pod."""
    if kubecontainer.get_pod_full_name(pod) != kubecontainer.get_pod_full_name(mirror_pod):
        return False
    hash = get_hash_from_mirror_pod(mirror_pod)
    return hash is not None and hash == get_pod_hash(pod)
