"""List the volumes of pods, and remove the directories of pods that no longer exist.

Go: pkg/kubelet/kubelet_volumes.go
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import events, metrics, orphans
from kubelet.kubelet_getters import KubeletGetters, list_pods_from_disk
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.util import removeall

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from kubelet.orphan_removal import OrphanRemoval
    from kubelet.pod_workers import PodWorkers
    from pkg import volume as pkgvolume
    from pkg.client_go.tools import record


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletVolumes(KubeletGetters):
    """List the volumes of pods, and remove the directories of orphaned pods."""

    node_ref: v1.ObjectReference
    recorder: record.EventRecorder
    pod_workers: PodWorkers
    # `orphan_removal` removes the directories of orphaned pods in separate threads.
    orphan_removal: OrphanRemoval

    def list_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, pkgvolume.Volume]:
        """Return the pod's mounted volumes, by their names in the spec; empty if there are none."""
        mounted = self.volume_manager.get_mounted_volumes_for_pod(pod_uid)
        return {name: info.mounter for name, info in mounted.items() if info.mounter is not None}

    def list_block_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, pkgvolume.BlockVolume]:
        """Return the pod's block volumes, by their names in the spec; empty if there are none."""
        mounted = self.volume_manager.get_mounted_volumes_for_pod(pod_uid)
        mappers = {name: info.block_volume_mapper for name, info in mounted.items()}
        return {name: mapper for name, mapper in mappers.items() if mapper is not None}

    def pod_volumes_exist(self, pod_uid: types.UID) -> bool:
        """Report whether the pod may still have something mounted, in which case its directory must stay.

        In doubt, return True.

        DIVERGES (fault of Go): an orphan's directory stays until the volumes of an earlier kubelet have been
        reconstructed.
        Go: pkg/kubelet/kubelet_volumes.go, (*Kubelet).podVolumesExist: until then only mounts keep the directory.
        Why: an orphan's block devices are not mounted in its directory. If the directory is removed before they have
        been reconstructed, they are never released.
        Test: kubelet_volumes_test.py:test_directory_stays_until_the_volumes_of_an_earlier_kubelet_are_known
        """
        if not self.volume_manager.volumes_have_been_reconstructed():
            return True
        if self.volume_manager.has_possibly_mounted_volumes_for_pod(pod_uid):
            return True
        try:
            paths = self.get_mounted_volume_path_list_from_disk(pod_uid)
        except OSError as err:
            klog.error_s(err, "Pod found, but error occurred during checking mounted volumes from disk", podUID=pod_uid)
            return True
        if paths:
            klog.v(4).info_s("Pod found, but volumes are still mounted on disk", podUID=pod_uid, paths=paths)
        return bool(paths)

    def cleanup_orphaned_pod_dirs(
        self, ctx: golang.Context, pods: list[v1.Pod], running_pods: list[kubecontainer.Pod]
    ) -> None:
        """Have threads that end with ctx remove the directories of pods that are neither configured nor running.

        Raise OSError if the directories cannot be listed, and golang.ThreadError if a thread cannot start.
        """
        known = {pod.metadata.uid for pod in pods} | {pod.id for pod in running_pods}
        orphaned = [uid for uid in list_pods_from_disk(self.get_pods_dir()) if uid not in known]
        metrics.ORPHAN_POD_CLEANED_VOLUMES.set(len(orphaned))
        self.orphan_removal.hand_over(ctx, orphaned)

    def remove_orphan(self, uid: types.UID) -> list[Exception]:
        """Remove an orphaned pod's directory, but nothing in a mount below it; return the reasons why it stays.

        Go: cleanupOrphanedPodDirs
        """
        # Since housekeeping listed the orphans, a static pod with this UID may have come back, and may even be
        # terminating again.
        is_back = self.pod_manager.get_pod_by_uid(uid) is not None
        if is_back or self.pod_workers.could_have_running_containers(uid):
            return []
        if self.pod_volumes_exist(uid):
            klog.v(3).info_s("Orphaned pod found, but volumes are not cleaned up", podUID=uid)
            self.volume_manager.orphan_ended()
            return [OSError("its volumes are in use")]
        errors = self.remove_orphaned_pod_volume_dirs(uid) or self._remove_orphaned_pod_dir(uid)
        for err in errors:
            klog.v(5).info_s("Orphan pod", err=err)
        return errors

    def tell_of_orphan(self, uid: types.UID, reason: str) -> None:
        """Record an event of the node: the orphaned pod's directory stays, for the given reason or a more exact one.

        DIVERGES (safer): the kubelet records one event of the node for a directory that cannot be removed, which names
        what prevents it.
        Go: pkg/kubelet/kubelet_volumes.go, (*Kubelet).cleanupOrphanedPodDirs: every two seconds a log line gives the
        number of such errors.
        Why: an operator has to remove the directory by hand, and must know which one it is and whether it holds data.
        Test: kubelet_volumes_test.py:test_orphan_that_stays_is_one_event_of_the_node
        """
        path = self.get_pod_dir(uid)
        try:
            orphan = orphans.inspect(self.get_pods_dir(), uid)
        except OSError as err:
            # The disk fault that prevents the inspection is probably also the reason why the directory stays.
            klog.error_s(err, "Failed to inspect the directory of an orphaned pod", podUID=uid)
        else:
            path = orphan.path
            if orphan.kind is not orphans.Kind.LEFTOVER:
                reason = orphan.reasons[0]
        message = f'the directory {path} of the orphaned pod "{uid}" is not removed: {reason}'
        self.recorder.event(self.node_ref, v1.EVENT_TYPE_WARNING, events.ORPHANED_POD_DIRECTORY, message)
        klog.warning_s("Orphaned pod directory is not removed", podUID=uid, path=path, reason=reason)

    def remove_orphaned_pod_volume_dirs(self, pod_uid: types.UID) -> list[Exception]:
        """Remove the empty volume directories of a pod; return the errors."""
        errors: list[Exception] = []
        try:
            for path in self.get_pod_volume_path_list_from_disk(pod_uid):
                _try(
                    errors,
                    f"orphaned pod {pod_uid!r} found, but failed to rmdir() volume at path {path}",
                    os.rmdir,
                    path,
                )
            for path in self.get_pod_volume_subpath_list_from_disk(pod_uid):
                message = f"orphaned pod {pod_uid!r} found, but failed to remove subpath at path {path}"
                _try(errors, message, removeall.remove, path)
        except OSError as err:
            message = f"orphaned pod {pod_uid!r} found, but error occurred during reading volume dir from disk: {err}"
            return [*errors, OSError(message)]
        message = f"orphaned pod {pod_uid!r} found, but error occurred when trying to remove the volumes dir"
        volumes_dir = self.get_pod_volumes_dir(pod_uid)
        _try(errors, message, lambda path: removeall.remove_dirs_one_filesystem(self.mounter, path), volumes_dir)
        return errors

    def _remove_orphaned_pod_dir(self, pod_uid: types.UID) -> list[Exception]:
        """Remove the rest of a pod's directory after its volumes are gone; return the errors."""
        pod_dir = self.get_pod_dir(pod_uid)
        errors: list[Exception] = []
        try:
            names = sorted(os.listdir(pod_dir))
        except OSError as err:
            message = f"orphaned pod {pod_uid!r} found, but error occurred during reading the pod dir from disk: {err}"
            return [OSError(message)]
        for name in names:
            if name == "volumes":
                errors.append(OSError(f"orphaned pod {pod_uid!r} found, but its volumes subdir was not removed"))
                continue
            path = os.path.join(pod_dir, name)
            message = f"orphaned pod {pod_uid!r} found, but error occurred when trying to remove subdir {path!r}"
            _try(errors, message, lambda path: removeall.remove_all_one_filesystem(self.mounter, path), path)
        klog.v(3).info_s("Orphaned pod found, removing", podUID=pod_uid)
        message = f"orphaned pod {pod_uid!r} found, but error occurred when trying to remove the pod directory"
        _try(errors, message, os.rmdir, pod_dir)
        return errors


def _try(errors: list[Exception], message: str, remove: Callable[[str], None], path: str) -> None:
    """Call remove(path) and collect its error, so that one failure does not prevent the other removals."""
    try:
        remove(path)
    except FileNotFoundError:
        pass
    except OSError as err:
        errors.append(OSError(f"{message}: {err}"))
