"""The pods that the sources want on this node, with static pods tied to their mirror pods.

A static pod comes from a file or URL, so the API server does not know it. A mirror pod of the same name and
namespace, but another uid, stands there for it and shows its status.

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
    """A pod and its mirror pod, found by one of the two."""

    pod: v1.Pod | None
    mirror_pod: v1.Pod | None
    # Whether the mirror pod was asked about.
    was_mirror: bool


class Manager(Protocol):
    """Knows the pods of this node. Safe from any thread; pods that come out are shared: never modify them."""

    def get_pod_by_full_name(self, pod_full_name: str) -> v1.Pod | None:
        """The pod, never a mirror pod, of that full name."""
        ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        """The pod, never a mirror pod, of that name."""
        ...

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None:
        """The pod, never a mirror pod, of that uid."""
        ...

    def get_pod_by_mirror_pod(self, mirror_pod: v1.Pod) -> v1.Pod | None: ...

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None: ...

    def get_pod_and_mirror_pod(self, a_pod: v1.Pod) -> PodAndMirrorPod: ...

    def get_pods(self) -> list[v1.Pod]:
        """All pods but mirror pods."""
        ...

    def get_pods_and_mirror_pods(self) -> tuple[list[v1.Pod], list[v1.Pod], list[str]]:
        """All pods, all mirror pods, and the full names of mirror pods whose static pod is gone."""
        ...

    def get_static_pod_to_mirror_pod_map(self) -> list[tuple[v1.Pod, v1.Pod | None]]:
        """Each static pod with its mirror pod, if it has one."""
        ...

    def set_pods(self, pods: Iterable[v1.Pod]) -> None:
        """Replace all pods; for tests."""
        ...

    def add_pod(self, pod: v1.Pod) -> None: ...

    def update_pod(self, pod: v1.Pod) -> None: ...

    def remove_pod(self, pod: v1.Pod) -> None: ...

    def translate_pod_uid(self, uid: types.UID) -> kubetypes.ResolvedPodUID:
        """The static pod's uid for a mirror pod's, any other uid as it is."""
        ...

    def get_uid_translations(
        self,
    ) -> tuple[
        dict[kubetypes.ResolvedPodUID, kubetypes.MirrorPodUID],
        dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID],
    ]:
        """From static pods' uids to mirror pods' ("" where there is none), and the other way."""
        ...


class BasicManager:
    """The pods, in memory."""

    def __init__(self) -> None:
        # Guards all dicts.
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
        """Replace one pod in all indices. Mirror pods and static pods find each other by full name."""
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
        """The name goes to another pod that has it, if there is one.

        DIVERGES (fault of Go): a static pod keeps its name when a pod of the API server with the same name is removed.
        Go: pkg/kubelet/pod/pod_manager.go, (*basicManager).RemovePod: the name is forgotten, whoever else has it.
        Why: the static pod's mirror pod would count as orphaned, and be deleted and created again for ever.
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
        """Pairs, where Go has a map: our pods are no keys."""
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
    """Count ephemeral containers; None stands for no pod."""
    old, new = (len(pod.spec.ephemeral_containers) if pod is not None else 0 for pod in (old_pod, new_pod))
    if old != new:
        metrics.MANAGED_EPHEMERAL_CONTAINERS.inc(new - old)


def is_mirror_pod_of(mirror_pod: v1.Pod, pod: v1.Pod) -> bool:
    """Whether the mirror pod stands for this very version of the static pod."""
    if kubecontainer.get_pod_full_name(pod) != kubecontainer.get_pod_full_name(mirror_pod):
        return False
    hash = get_hash_from_mirror_pod(mirror_pod)
    return hash is not None and hash == get_pod_hash(pod)
