"""Reconstruct, after a restart, the volumes that an earlier run of the kubelet set up.

Go: pkg/kubelet/volumemanager/reconciler/reconstruct.go
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from kubelet.volumemanager.reconciler.reconstruct_common import (
    GlobalVolumeInfo,
    PodVolume,
    ReconstructCommonMethods,
    get_device_mount_path,
    get_volumes_from_pod_dir,
    get_volumes_in_use,
)
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime import contain
from pkg.util import procfs
from pkg.volume.util.nestedpendingoperations import EMPTY_NODE_NAME, EMPTY_UNIQUE_POD_NAME
from pkg.volume.util.operationexecutor import (
    AttachedVolume,
    DeviceMountState,
    MarkVolumeOpts,
    MountedVolume,
    VolumeMountState,
    VolumeToMount,
)

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# `NODE_STATUS_RETRY_PERIOD` is the time, in seconds, between two attempts to read the node's status, and
# `NODE_STATUS_TIMEOUT` the timeout of one attempt.
NODE_STATUS_RETRY_PERIOD = 1.0
NODE_STATUS_TIMEOUT = 10.0


class ReconstructMethods(ReconstructCommonMethods):
    """Reconstruct, rename and clean up the volumes that an earlier run of the kubelet left behind."""

    def _ready_to_unmount(self) -> bool:
        """Report whether both the desired and the actual state are complete, so that it is safe to unmount.

        An earlier unmount could affect a volume of a pod that the populator has not processed yet, or use a wrong
        device path. The pods' directories must have been read too: a staged volume whose pods are unknown would be
        unstaged while their containers use it.
        """
        return self._has_reconstructed and self._devices_are_known() and self._populator_has_added_pods()

    def _devices_are_known(self) -> bool:
        with self._lock:
            return not self._volumes_need_update_from_node_status

    def reconstruct_volumes(self) -> bool:
        """Add the volumes found in the pods' directories to the actual state, as uncertain.

        Report whether everything could be read; if not, the caller calls this method again later. The method reads
        nothing below a volume's directory, because a mount may hang. A volume that is already known stays as it is. A
        volume that cannot be identified is kept in a list until it is known whether a pod needs it.

        DIVERGES (safer): if a volume directory could not be read when the kubelet started, the reconciler reads it
        again later.
        Go: pkg/kubelet/volumemanager/reconciler/reconstruct.go, (*reconciler).reconstructVolumes: the Go kubelet reads
        each directory once.
        Why: a volume that the kubelet overlooks stays mounted and is never unmounted.
        Test: reconciler_test.py:test_directory_that_could_not_be_read_is_read_later,
        reconciler_test.py:test_reconstruction_that_failed_is_tried_again
        """
        self._all_could_be_read, self._met_accident = True, False
        pod_volumes = self._get_volumes_from_pod_dir()
        pod_volumes += self._get_published_devices(pod_volumes)
        reconstructed_volumes: dict[str, GlobalVolumeInfo] = {}
        for volume in pod_volumes:
            ref = {"podName": volume.pod_name, "volumeSpecName": volume.volume_spec_name}
            is_being_mounted = self._is_being_mounted(volume)
            if self._is_known(volume):
                klog.v(4).info_s("Volume exists in actual state, skip cleaning up mounts", **ref)
                continue
            if volume in self._volumes_failed_reconstruction:
                continue
            if is_being_mounted:
                # The running mount may change the files that identify the volume. Read now, they could describe a
                # volume that cannot be unmounted later.
                self._all_could_be_read = False
                continue
            try:
                reconstructed = self._reconstruct_volume(volume)
            except Exception as err:
                # Whatever is wrong with this volume, the other volumes must be found.
                klog.info_s("Could not construct volume information", **ref, err=err)
                if procfs.is_accident(err):
                    self._note_unread(err)
                else:
                    self._remove_if_nothing_is_there(volume)
                    self._volumes_failed_reconstruction.append(volume)
                continue
            klog.v(4).info_s("Adding reconstructed volume to actual state and node status", **ref)
            info = reconstructed_volumes.setdefault(
                reconstructed.volume_name, GlobalVolumeInfo.from_reconstructed_volume(reconstructed)
            )
            info.add_pod_volume(reconstructed)
        for info in self._get_staged_volumes():
            reconstructed_volumes.setdefault(info.volume_name, info)
        known = {volume.volume_name for volume in self._actual_state_of_world.get_attached_volumes()}
        self._found_without_pods = {
            name
            for name, info in reconstructed_volumes.items()
            if not info.pod_volumes and (name not in known or name in self._found_without_pods)
        }
        self._update_states(reconstructed_volumes, known)
        with self._lock:
            # Only a volume with a device has an attachment and a device path to look up.
            self._volumes_need_update_from_node_status += [
                name for name, info in reconstructed_volumes.items() if info.has_device() and name not in known
            ]
        self._has_reconstructed = self._has_reconstructed or not self._met_accident
        klog.v(2).info_s("Volume reconstruction finished", allCouldBeRead=self._all_could_be_read)
        return self._all_could_be_read

    def has_reconstructed(self) -> bool:
        """Report whether the actual state contains the volumes that were on disk at the start of the kubelet.

        Volumes that cannot be read do not count. The exception is a lack of file descriptors or memory: that lack
        passes soon, so the method returns False until the volumes have been read.
        """
        return self._has_reconstructed

    def _get_volumes_from_pod_dir(self) -> list[PodVolume]:
        try:
            volumes, errors = get_volumes_from_pod_dir(self._kubelet_pods_dir)
        except OSError as err:
            klog.error_s(err, "Cannot get volumes from disk, skip sync states for volume reconstruction")
            volumes, errors = [], [err]
        for error in errors:
            self._note_unread(error)
        return volumes

    def _is_known(self, volume: PodVolume) -> bool:
        return self._actual_state_of_world.volume_exists_with_spec_name(
            volume.pod_name, volume.plugin_name, volume.volume_spec_name
        )

    def _is_being_mounted(self, volume: PodVolume) -> bool:
        """Report whether a mount is running that creates this directory, whatever the unique name of its volume.

        Call this method before _is_known, because a mount records its result before it ends. No mount can start in
        between: only this thread starts mounts.
        """
        pending = self._operation_executor.is_operation_pending
        return any(
            pod_name == volume.pod_name
            and spec_name == volume.volume_spec_name
            and pending(volume_name, pod_name, EMPTY_NODE_NAME)
            for (volume_name, pod_name), spec_name in self._mounts_begun.items()
        )

    def _remove_if_nothing_is_there(self, volume: PodVolume) -> None:
        """Remove the directory if it is empty and not a mount point, so that no staged volume waits for it.

        Only plugins that stage volumes are considered, because an empty directory may be a valid volume of other
        plugins. If a set-up is creating the directory at this moment, the set-up fails and is tried again.
        """
        plugins = self._volume_plugin_mgr.find_remembering_plugins()
        if any(plugin.get_plugin_name() == volume.plugin_name for plugin in plugins):
            with contextlib.suppress(OSError):
                os.rmdir(volume.volume_path)

    def _update_states(self, reconstructed_volumes: dict[str, GlobalVolumeInfo], known: set[str]) -> None:
        for info in reconstructed_volumes.values():
            message = "Could not add volume information to actual state of world"
            with contain(message, golang.background(), volumeName=info.volume_name):
                if info.volume_name not in known:
                    self._actual_state_of_world.add_attach_uncertain_reconstructed_volume(
                        info.volume_name, info.volume_spec, self._node_name, info.device_path
                    )
                context = self._mark_pod_volumes(info)
                if info.has_device():
                    self._mark_device(info, context)

    def _mark_pod_volumes(self, info: GlobalVolumeInfo) -> str:
        """Add the volume of each pod to the actual state, and return the SELinux context of the mounts."""
        context = ""
        for volume in info.pod_volumes.values():
            self._actual_state_of_world.check_and_mark_volume_as_uncertain_via_reconstruction(
                MarkVolumeOpts(
                    pod_name=volume.pod_name,
                    pod_uid=types.UID(volume.pod_name),
                    volume_name=volume.volume_name,
                    volume_spec=volume.volume_spec,
                    mounter=volume.mounter,
                    block_volume_mapper=volume.block_volume_mapper,
                    volume_gid_volume=volume.volume_gid_value,
                    volume_mount_state=VolumeMountState.VOLUME_MOUNT_UNCERTAIN,
                    selinux_mount_context=volume.selinux_mount_context,
                )
            )
            context = volume.selinux_mount_context
            klog.v(2).info_s(
                "Volume is marked as uncertain and added into the actual state",
                podName=volume.pod_name,
                volumeName=volume.volume_name,
                seLinuxMountContext=context,
            )
        return context

    def _mark_device(self, info: GlobalVolumeInfo, selinux_mount_context: str) -> None:
        state = self._actual_state_of_world.get_device_mount_state(info.volume_name)
        if state is not DeviceMountState.DEVICE_NOT_MOUNTED:
            return
        try:
            path = get_device_mount_path(info)
        except Exception as err:
            # The mounts in the pods' directories can be unmounted even if the path of the device is unknown.
            klog.error_s(err, "Could not find device mount path for volume", volumeName=info.volume_name)
            return
        self._actual_state_of_world.mark_device_as_uncertain(
            info.volume_name, info.device_path, path, selinux_mount_context
        )
        klog.v(2).info_s(
            "Volume is marked device as uncertain and added into the actual state",
            volumeName=info.volume_name,
            deviceMountPath=path,
        )

    def _rename_reconstructed_volumes(self) -> None:
        """Rename reconstructed volumes whose directories give another unique name than their pods do.

        DIVERGES (fault of Go): a volume that was found on disk under another name than its pod's spec gives it counts
        as that pod's volume.
        Go: pkg/kubelet/volumemanager/reconciler/reconstruct.go, (*reconciler).reconstructVolumes: the Go kubelet treats
        the two names as two volumes, and unmounts the one that it found on disk while the pod's containers use it.
        Why: the directory of an iSCSI volume contains the portal with its port, which the pod's spec may leave out;
        every restart of the kubelet would unmount such a disk.
        Test: reconciler_test.py:test_volume_whose_directory_tells_another_name_is_left_to_its_pod
        """
        for found in self._actual_state_of_world.get_all_mounted_volumes():
            if self._actual_state_of_world.is_volume_reconstructed(found.volume_name, found.pod_name):
                with self._contained("renaming", found.volume_name):
                    self._rename_reconstructed_volume(found)
        unwanted = [
            staged
            for staged in self._actual_state_of_world.get_unmounted_volumes()
            if self._actual_state_of_world.is_volume_device_reconstructed(staged.volume_name)
            and not self._desired_state_of_world.volume_exists(staged.volume_name, staged.selinux_mount_context)
        ]
        wanted = self._desired_state_of_world.get_volumes_to_mount() if unwanted else []
        for staged in unwanted:
            with self._contained("renaming", staged.volume_name):
                self._rename_staged_volume(staged, wanted)

    def _rename_reconstructed_volume(self, found: MountedVolume) -> None:
        desired = self._desired_state_of_world
        if desired.pod_exists_in_volume(found.pod_name, found.volume_name, found.selinux_mount_context):
            return
        name = desired.find_volume_with_spec_name(found.pod_name, found.plugin_name, found.inner_volume_spec_name)
        if name is not None and name != found.volume_name:
            self._rename(found.volume_name, name)

    def _rename_staged_volume(self, staged: AttachedVolume, wanted: list[VolumeToMount]) -> None:
        """Rename a staged volume that was found in no pod's directory, if a pod needs it under another name."""
        name, prefix = staged.volume_name, f"{staged.plugin_name}/"
        if self._operation_executor.is_operation_pending(name, EMPTY_UNIQUE_POD_NAME, EMPTY_NODE_NAME):
            return
        for plugin in self._volume_plugin_mgr.find_remembering_plugins():
            if plugin.get_plugin_name() != staged.plugin_name:
                continue
            for volume in wanted:
                is_plugins = volume.volume_name.startswith(prefix) and volume.volume_name != name
                if is_plugins and plugin.is_staged_by_another_name(volume.volume_spec, staged.volume_spec):
                    self._rename(name, volume.volume_name)
                    return

    def _rename(self, name: str, new_name: str) -> None:
        klog.v(2).info_s("Pod needs the reconstructed volume under another name", volumeName=name, newName=new_name)
        desired = self._desired_state_of_world
        attachable = new_name in desired.get_attachable_volumes()
        pods_of_old_name = {
            found.pod_name
            for found in self._actual_state_of_world.get_all_mounted_volumes()
            if found.volume_name == name
            and desired.pod_exists_in_volume(found.pod_name, name, found.selinux_mount_context)
        }
        self._actual_state_of_world.rename_reconstructed_volume(name, new_name, attachable, pods_of_old_name)

    def _clean_orphan_volumes(self) -> None:
        """Unmount the volumes that could not be identified and that no pod needs.

        The mount for a pod handles a volume that the pod needs. If no mount follows, for example because the pod was
        terminating when the kubelet started, the volume is unmounted once the pod no longer needs it.

        DIVERGES (safer): the kubelet retries the unmount of a volume that it cannot identify.
        Go: pkg/kubelet/volumemanager/reconciler/reconstruct.go, (*reconciler).cleanOrphanVolumes: the Go kubelet tries
        each unmount once.
        Why: the mount would stay until the next start of the kubelet.
        Test: reconciler_test.py:test_volume_that_cannot_be_reconstructed_is_unmounted_again_after_a_failure
        """
        left: list[PodVolume] = []
        for volume in self._volumes_failed_reconstruction:
            if self._clean_orphan_volume(volume):
                left.append(volume)
            else:
                self._volumes_being_cleaned_up.discard(volume)
        self._volumes_failed_reconstruction = left
        # The containers of these pods have stopped, so a volume without a mount is no longer in use.
        self._volumes_given_up = get_volumes_in_use(self._volumes_given_up)

    def _clean_orphan_volume(self, volume: PodVolume) -> bool:
        """Unmount one unidentified volume. Report whether the next pass must examine it again."""
        ref = {"podName": volume.pod_name, "volumeSpecName": volume.volume_spec_name}
        is_being_mounted = self._is_being_mounted(volume)
        if self._is_known(volume):
            # A mount has set the volume up for its pod since, so the actual state knows it.
            return False
        if self._desired_state_of_world.volume_exists_with_spec_name(volume.pod_name, volume.volume_spec_name):
            klog.v(4).info_s("Volume exists in desired state, skip cleaning up mounts", **ref)
            # The executor may forget an earlier failure meanwhile, which would look as if the clean-up had succeeded.
            self._volumes_being_cleaned_up.discard(volume)
            return True
        if self._pod_may_run_unwanted(volume.pod_name):
            self._volumes_being_cleaned_up.discard(volume)
            return True
        operation = volume.volume_path, volume.pod_name, EMPTY_NODE_NAME
        if self._operation_executor.is_operation_pending(*operation):
            return True
        begun = volume in self._volumes_being_cleaned_up
        if begun and not self._operation_executor.has_operation_failed(*operation):
            klog.v(2).info_s("Orphan volume cleanup finished", **ref)
            return False
        # The clean-up uses another operation name than the mount. It would run beside a mount and remove what that
        # creates.
        return is_being_mounted or self._cleanup_mounts(volume)

    def update_reconstructed_from_node_status(self, ctx: golang.Context) -> None:
        """Look up in the node's status where the devices of reconstructed volumes are; return when that is known.

        Nothing is unmounted before this method succeeds. It runs on a thread of its own because the API server may be
        unreachable for long, and pods that need nothing from it must not wait.
        """
        with self._lock:
            names = list(self._volumes_need_update_from_node_status)
        if not names:
            return
        if self._kube_client is None:
            klog.v(2).info_s("Skipped reconstruction of DevicePaths from node.status in standalone mode")
        else:
            node = self._get_node(ctx, self._kube_client)
            if node is None:
                return
            with contain("Failed to update device paths from the node's status", ctx):
                self._update_from_node(names, node)
            klog.v(2).info_s("DevicePaths of reconstructed volumes updated")
        with self._lock:
            self._volumes_need_update_from_node_status = [
                name for name in self._volumes_need_update_from_node_status if name not in names
            ]
        self._wake.try_send(None)

    def _get_node(self, ctx: golang.Context, kube_client: kubernetes.Interface) -> v1.Node | None:
        """Return the node object from the API server, or None if ctx ends first."""
        while ctx.err() is None:
            with_timeout, cancel = golang.with_timeout(ctx, NODE_STATUS_TIMEOUT)
            try:
                return kube_client.core_v1.nodes().get(with_timeout, self._node_name)
            except Exception as err:
                # The API server is unreachable, or does not know the node yet.
                klog.v(4).info_s("Failed to get Node status to reconstruct device paths", err=err)
            finally:
                cancel()
            ctx.wait(NODE_STATUS_RETRY_PERIOD)
        return None

    def _update_from_node(self, names: list[str], node: v1.Node) -> None:
        paths = {volume.name: volume.device_path for volume in node.status.volumes_attached}
        for name in names:
            if name in paths:
                self._actual_state_of_world.update_reconstructed_device_path(name, paths[name])
                message = "Updated devicePath from node status for volume"
                klog.v(4).info_s(message, volumeName=name, path=paths[name])
            self._actual_state_of_world.update_reconstructed_volume_attachability(name, name in paths)
