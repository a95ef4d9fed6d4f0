"""What the kubelet does about the volumes of pods that are gone.

Go: pkg/kubelet/kubelet_volumes.go
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet import events, metrics, orphans
from kubelet.kubelet_getters import KubeletGetters, list_pods_from_disk
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.util.runtime.runtime import contain
from pkg.util import removeall

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from pkg import volume as pkgvolume

# Seconds for which the directory of a pod that is gone may stay before that is worth an event.
ORPHAN_PATIENCE = 20.0


class KubeletVolumes(KubeletGetters):
    """Volumes of pods, mounted ones and left-over ones."""

    def list_volumes_for_pod(self, pod_uid: str) -> dict[str, pkgvolume.Volume]:
        """The mounted volumes of the pod by their name in its spec; empty when it has none."""
        mounted = self.volume_manager.get_mounted_volumes_for_pod(pod_uid)
        return {name: info.mounter for name, info in mounted.items() if info.mounter is not None}

    def list_block_volumes_for_pod(self, pod_uid: str) -> dict[str, pkgvolume.BlockVolume]:
        """The pod's volumes that are devices by their name in its spec; empty when it has none."""
        mounted = self.volume_manager.get_mounted_volumes_for_pod(pod_uid)
        mappers = {name: info.block_volume_mapper for name, info in mounted.items()}
        return {name: mapper for name, mapper in mappers.items() if mapper is not None}

    def pod_volumes_exist(self, pod_uid: str) -> bool:
        """Whether the pod may still have something mounted. When in doubt, yes: its directory must then stay."""
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

    def cleanup_orphaned_pod_dirs(self, pods: list[v1.Pod], running_pods: list[kubecontainer.Pod]) -> None:
        """Remove the directories of pods that are neither configured nor running, never across a mount.

        Raises an ExceptionGroup of what could not be removed, after trying all.

        DIVERGES: Go logs each time that there are some that stay; here each is an event of the node, once.
        """
        known = {pod.metadata.uid for pod in pods} | {pod.id for pod in running_pods}
        orphaned = [uid for uid in list_pods_from_disk(self.get_pods_dir()) if uid not in known]
        # Why, by pod; there may be more to say of it.
        stuck: dict[str, str] = {}
        removal_errors: list[Exception] = []
        for uid in orphaned:
            try:
                errors = self._remove_orphan(uid, removal_errors)
            except Exception as err:  # whatever it is, the directories of other pods go
                klog.error_s(err, "Failed to clean up an orphaned pod", podUID=uid, stacktrace=klog.stacktrace(err))
                errors = [err]
                removal_errors.append(err)
            if errors:
                stuck[uid] = str(errors[0])
        with contain("Failed to report the directories of orphaned pods", golang.background()):
            self._tell_orphans(stuck)
        metrics.ORPHAN_POD_CLEANED_VOLUMES.set(len(orphaned))
        metrics.ORPHAN_POD_CLEANED_VOLUMES_ERRORS.set(len(stuck))
        if removal_errors:
            raise ExceptionGroup("orphaned pod directories could not be removed", removal_errors)

    def _remove_orphan(self, uid: str, removal_errors: list[Exception]) -> list[Exception]:
        """Why the pod's directory stays. Those that its volumes are not to blame for go to removal_errors, too."""
        if self.pod_volumes_exist(uid):
            klog.v(3).info_s("Orphaned pod found, but volumes are not cleaned up", podUID=uid)
            self.volume_manager.orphan_ended()
            return [OSError("its volumes are in use")]
        if errors := self.remove_orphaned_pod_volume_dirs(uid):
            _log(errors)
        elif errors := self._remove_orphaned_pod_dir(uid):
            _log(errors)
            removal_errors += errors
        return errors

    def _tell_orphans(self, stuck: dict[str, str]) -> None:
        """One event for each that stays. Not at once: a pod that has just gone still has its volumes taken down."""
        now = self.clock.monotonic()
        self.orphans_since = {uid: self.orphans_since.get(uid, now) for uid in stuck}
        since = self.orphans_since.items()
        due = [uid for uid, then in since if then is not None and now - then >= ORPHAN_PATIENCE]
        if due:
            # All processes and files of the pod may have to be looked at, which no other pod is to wait for.
            golang.go(self._tell_of_orphans, {uid: stuck[uid] for uid in due}, name="orphaned-pod-directories")
            # Only after the thread has started: if no thread can be had, the next scan reports these orphans.
            self.orphans_since |= dict.fromkeys(due)

    def _tell_of_orphans(self, stuck: dict[str, str]) -> None:
        for uid, reason in stuck.items():
            with contain("Could not look into the directory of an orphaned pod", golang.background(), podUID=uid):
                self._tell_of_orphan(uid, reason)

    def _tell_of_orphan(self, uid: str, reason: str) -> None:
        orphan = orphans.inspect(self.get_pods_dir(), uid)
        if orphan.kind is not orphans.Kind.LEFTOVER:
            reason = orphan.reasons[0]
        message = f'the directory {orphan.path} of the orphaned pod "{uid}" is not removed: {reason}'
        self.recorder.event(self.node_ref, v1.EVENT_TYPE_WARNING, events.ORPHANED_POD_DIRECTORY, message)
        klog.warning_s("Orphaned pod directory is not removed", podUID=uid, path=orphan.path, reason=reason)

    def remove_orphaned_pod_volume_dirs(self, pod_uid: str) -> list[Exception]:
        """Remove the empty volume directories of a pod; what stands in the way is returned."""
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

    def _remove_orphaned_pod_dir(self, pod_uid: str) -> list[Exception]:
        """Remove what is left of a pod's directory once its volumes are gone."""
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
    """Call remove(path) and collect its fault, so that one orphan never hides the others."""
    try:
        remove(path)
    except FileNotFoundError:
        pass
    except OSError as err:
        errors.append(OSError(f"{message}: {err}"))


def _log(errors: list[Exception]) -> None:
    for err in errors:
        klog.v(5).info_s("Orphan pod", err=err)
