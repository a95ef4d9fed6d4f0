"""Start the operations that turn the actual state of volumes into the desired state.

Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go
"""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from kubelet.volumemanager import cache
from pkg import golang, klog
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util.runtime import contain
from pkg.util.goroutinemap import exponentialbackoff
from pkg.volume import VolumePluginMgr
from pkg.volume.util import hostutil as hostutil_
from pkg.volume.util import nestedpendingoperations, operationexecutor
from pkg.volume.util.nestedpendingoperations import EMPTY_NODE_NAME, EMPTY_UNIQUE_POD_NAME
from pkg.volume.util.operationexecutor import MountedVolume, VolumeLogger, VolumeToMount

if TYPE_CHECKING:
    from kubelet.volumemanager.reconciler.reconstruct_common import PodVolume
    from pkg.client_go import kubernetes


# `MAX_OPERATIONS_PER_POD` is the number of operations that may run at the same time for one pod. When one ends, it
# wakes the reconciler, which starts the next.
MAX_OPERATIONS_PER_POD = 64


class _Turns:
    """Count the running operations of each pod.

    DIVERGES (safer): at most 64 operations run for one pod at the same time; further ones start when one of these ends.
    Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).mountOrAttachVolumes: the Go kubelet
    sets no limit.
    Why: a pod with many thousand volumes would use up all threads and processes of the node.
    Test: reconciler_test.py:test_pod_with_very_many_volumes_has_few_operations_at_one_time
    """

    def __init__(self, running: Iterable[str]) -> None:
        self._running = Counter(running)

    def may_start(self, pod_name: str) -> bool:
        return self._running[pod_name] < MAX_OPERATIONS_PER_POD

    def started(self, pod_name: str) -> None:
        self._running[pod_name] += 1


class ReconcilerCommon:
    """Hold the state that the parts of the reconciler share, and start operations."""

    def __init__(
        self,
        kube_client: kubernetes.Interface | None,
        controller_attach_detach_enabled: bool,
        wait_for_attach_timeout: float,
        node_name: str,
        desired_state_of_world: cache.DesiredStateOfWorld,
        actual_state_of_world: cache.ActualStateOfWorld,
        populator_has_added_pods: Callable[[], bool],
        operation_executor: operationexecutor.OperationExecutor,
        hostutil: hostutil_.HostUtils,
        volume_plugin_mgr: VolumePluginMgr,
        kubelet_pods_dir: str,
        pod_has_begun: Callable[[str], bool] = lambda pod_name: True,
        pod_may_run_unwanted: Callable[[str], bool] = lambda pod_name: False,
        on_reconciled: Callable[[], None] | None = None,
    ) -> None:
        """Create the reconciler; wait_for_attach_timeout is in seconds.

        The reconciler mounts nothing for a pod before pod_has_begun returns true, and unmounts nothing of a pod while
        pod_may_run_unwanted returns true. It calls on_reconciled after each pass.
        """
        self._kube_client = kube_client
        # `_controller_attach_detach_enabled` says whether the attach/detach controller, and not the kubelet, attaches
        # volumes to this node.
        self._controller_attach_detach_enabled = controller_attach_detach_enabled
        self._wait_for_attach_timeout = wait_for_attach_timeout
        self._node_name = node_name
        self._desired_state_of_world = desired_state_of_world
        self._actual_state_of_world = actual_state_of_world
        self._populator_has_added_pods = populator_has_added_pods
        self._operation_executor = operation_executor
        self._hostutil = hostutil
        self._volume_plugin_mgr = volume_plugin_mgr
        self._kubelet_pods_dir = kubelet_pods_dir
        self._pod_has_begun = pod_has_begun
        self._pod_may_run_unwanted = pod_may_run_unwanted
        self._on_reconciled = on_reconciled or (lambda: None)
        self._wake: golang.Channel[None] = golang.Channel(1)
        # `_has_reconstructed` says whether the volumes on disk have been read. Any thread may read this flag without a
        # lock.
        self._has_reconstructed = False
        # `_all_could_be_read` says whether the last reading of the disk missed nothing. `_met_accident` says whether it
        # failed for lack of file descriptors or memory.
        self._all_could_be_read = self._met_accident = False
        # `_volumes_failed_reconstruction` holds volumes found on disk that could not be identified. They are unmounted
        # once it is known that no pod needs them.
        self._volumes_failed_reconstruction: list[PodVolume] = []
        # `_volumes_being_cleaned_up` holds the members of `_volumes_failed_reconstruction` whose unmount has started.
        self._volumes_being_cleaned_up: set[PodVolume] = set()
        # `_volumes_given_up` holds unidentified volumes whose unmount could not even start, and that may still be
        # mounted.
        self._volumes_given_up: set[PodVolume] = set()
        # `_mounts_begun` holds the directory names of mounts that may still be running, by volume and pod.
        self._mounts_begun: dict[tuple[str, str], str] = {}
        # `_found_without_pods` holds the names of volumes that were found staged, but in no pod's directory.
        self._found_without_pods: set[str] = set()
        self._lock = threading.Lock()  # This lock guards the two fields below.
        # `_volumes_need_update_from_node_status` holds reconstructed volumes whose device paths are not yet known from
        # the node's status.
        self._volumes_need_update_from_node_status: list[str] = []
        self._states_have_been_synced = False

    def unmount_volumes(self) -> None:
        """Unmount the volumes that their pods no longer need."""
        mounted_volumes = self._actual_state_of_world.get_all_mounted_volumes()
        # Once these volumes are unmounted, the actual state no longer knows them. They must not then be cleaned up as
        # unidentified volumes.
        known = {(each.pod_name, each.plugin_name, each.inner_volume_spec_name) for each in mounted_volumes}
        self._volumes_failed_reconstruction = [
            each
            for each in self._volumes_failed_reconstruction
            if (each.pod_name, each.plugin_name, each.volume_spec_name) not in known
        ]
        turns = self._turns((mounted.volume_name, mounted.pod_name) for mounted in mounted_volumes)
        for mounted in mounted_volumes:
            with self._contained("UnmountVolume", mounted.volume_name):
                self._unmount_volume(mounted, turns)

    def _unmount_volume(self, mounted: MountedVolume, turns: _Turns) -> None:
        if self._desired_state_of_world.pod_exists_in_volume(
            mounted.pod_name, mounted.volume_name, mounted.selinux_mount_context
        ):
            return
        if self._pod_may_run_unwanted(mounted.pod_name):
            return
        if self._operation_executor.is_operation_pending(mounted.volume_name, mounted.pod_name, EMPTY_NODE_NAME):
            return
        # DIVERGES (fault of Go): the reconciler does not unmount a volume whose unmount has ended since it listed the
        # mounted volumes.
        # Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).unmountVolumes: the Go kubelet
        # unmounts the volume a second time, because no operation on it is pending any more.
        # Why: the second unmount may fail where the first one has succeeded, and the volume would then count as mounted
        # again.
        # Test: reconciler_test.py:test_volume_whose_unmount_ends_just_now_is_not_unmounted_again
        if self._actual_state_of_world.pod_removed_from_volume(mounted.pod_name, mounted.volume_name):
            return
        if not turns.may_start(mounted.pod_name):
            return
        with self._starting("UnmountVolume", mounted):
            self._operation_executor.unmount_volume(mounted, self._actual_state_of_world, self._kubelet_pods_dir)
            turns.started(mounted.pod_name)

    def mount_or_attach_volumes(self) -> None:
        """Start the operations that pods need: wait for attachment, mount, remount, expand."""
        volumes = self._desired_state_of_world.get_volumes_to_mount()
        # Mounts of one volume for several pods exclude each other, also during the backoff after a failure. If the
        # order were fixed, the first pod could block the others forever. Go iterates over a map, whose order is random
        # too.
        random.shuffle(volumes)
        turns = self._turns((volume.volume_name, volume.pod_name) for volume in volumes)
        pending = self._operation_executor.is_operation_pending
        self._mounts_begun = {key: name for key, name in self._mounts_begun.items() if pending(*key, EMPTY_NODE_NAME)}
        for volume in volumes:
            if pending(volume.volume_name, EMPTY_UNIQUE_POD_NAME, EMPTY_NODE_NAME):
                continue
            if not turns.may_start(volume.pod_name):
                continue
            try:
                self._mount_or_attach_volume(volume)
            except Exception as err:
                # Whatever is wrong with this volume, the others must not wait for it. The next pass tries it again.
                klog.error_s(err, "Failed to mount or attach a volume", stacktrace=klog.stacktrace(err))
                self._desired_state_of_world.add_error_to_pod(volume.pod_name, err)
            if pending(volume.volume_name, volume.pod_name, EMPTY_NODE_NAME):
                turns.started(volume.pod_name)

    def _turns(self, volumes: Iterable[tuple[str, str]]) -> _Turns:
        """Count the running operations of each pod; volumes are pairs of a volume's name and a pod."""
        pending = self._operation_executor.is_operation_pending
        return _Turns(pod_name for volume_name, pod_name in volumes if pending(volume_name, pod_name, EMPTY_NODE_NAME))

    def _mount_or_attach_volume(self, volume: VolumeToMount) -> None:
        known = self._pod_exists_in_volume(volume)
        inline = volume.volume_spec.volume is not None and not volume.plugin_is_attachable
        if isinstance(known.err, cache.VolumeNotAttachedError) and inline:
            # The Go kubelet starts an operation here that does no more than this call.
            self._actual_state_of_world.mark_volume_as_attached(
                volume.volume_name, volume.volume_spec, self._node_name, ""
            )
            known = self._pod_exists_in_volume(volume)
        if known.device_path:
            volume = dataclasses.replace(volume, device_path=known.device_path)
        match known.err:
            case cache.SELinuxMountMismatchError():
                # The volume must first be unmounted from all other pods.
                self._desired_state_of_world.add_error_to_pod(volume.pod_name, known.err)
            case cache.VolumeNotAttachedError():
                self._wait_for_volume_attach(volume)
            case cache.RemountRequiredError():
                self._mount_attached_volumes(volume, is_remount=True)
            case cache.FsResizeRequiredError(current_size=current_size) if not volume.volume_spec.read_only:
                # DIVERGES (fault of Go): the kubelet does not expand a volume for a pod that mounts it read-only.
                # Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).expandVolume: the Go
                # kubelet starts an operation ten times a second, and each one ends with a FileSystemResizeFailed event.
                # Why: a read-only file system cannot grow; a pod that may write to the volume expands it.
                # Test: reconciler_test.py:test_volume_that_is_mounted_read_only_is_not_expanded
                self._expand_volume(volume, current_size)
            case _ if not known.is_mounted and self._pod_has_begun(volume.pod_name):
                self._mount_attached_volumes(volume, is_remount=False)

    def _pod_exists_in_volume(self, volume: VolumeToMount) -> cache.PodInVolume:
        return self._actual_state_of_world.pod_exists_in_volume(
            volume.pod_name, volume.volume_name, volume.desired_persistent_volume_size, volume.selinux_label
        )

    def _expand_volume(self, volume: VolumeToMount, current_size: Quantity) -> None:
        with self._starting("ExpandInUseVolume", volume, level=4):
            self._operation_executor.expand_in_use_volume(volume, self._actual_state_of_world, current_size)

    def _mount_attached_volumes(self, volume: VolumeToMount, is_remount: bool) -> None:
        remounting = "Volume is already mounted to pod, but remount was requested." if is_remount else ""
        if is_remount:
            self._actual_state_of_world.mark_remount_begun(volume.pod_name, volume.volume_name)
        with self._starting("MountVolume", volume, remounting, level=5 if is_remount else 1):
            self._operation_executor.mount_volume(
                self._wait_for_attach_timeout, volume, self._actual_state_of_world, is_remount
            )
            self._mounts_begun[volume.volume_name, volume.pod_name] = volume.volume_spec.name()

    def _wait_for_volume_attach(self, volume: VolumeToMount) -> None:
        if not self._controller_attach_detach_enabled and volume.plugin_is_attachable:
            to_attach = operationexecutor.VolumeToAttach(
                volume.volume_name, volume.volume_spec, self._node_name, [volume.pod]
            )
            with self._starting("AttachVolume", to_attach):
                self._operation_executor.attach_volume(to_attach, self._actual_state_of_world)
            return
        if volume.plugin_is_attachable and not volume.reported_in_use:
            # Do not start the operation: it would fail, and the backoff would then delay the next attempt.
            message = "operationExecutor.VerifyControllerAttachedVolume failed"
            klog.v(5).info_s(volume.generate_msg_detailed(message, " volume not marked in-use"))
            return
        with self._starting("VerifyControllerAttachedVolume", volume):
            self._operation_executor.verify_controller_attached_volume(
                volume, self._node_name, self._actual_state_of_world
            )

    def unmount_detach_devices(self) -> None:
        """Unmount the devices, and detach the volumes, that no pod needs any more."""
        for unmounted in self._actual_state_of_world.get_unmounted_volumes():
            name = unmounted.volume_name
            if self._desired_state_of_world.volume_exists(name, unmounted.selinux_mount_context):
                continue
            if self._operation_executor.is_operation_pending(name, EMPTY_UNIQUE_POD_NAME, EMPTY_NODE_NAME):
                continue
            # A mount may have ended since the list was made, so check again. No new one can start: only this thread
            # starts mounts.
            # DIVERGES (fault of Go): a device stays mounted if a mount of it for a pod has ended since the reconciler
            # listed the devices without pods.
            # Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).unmountDetachDevices: the Go
            # kubelet starts to unmount the device; only the plugin's check for other mounts of the device can stop it.
            # Why: the volume could be unstaged while a pod that has just got it uses it.
            # Test: reconciler_test.py:test_device_is_not_unmounted_under_a_pod_whose_mount_ends_just_now
            if self._actual_state_of_world.is_volume_mounted_elsewhere(name, EMPTY_UNIQUE_POD_NAME):
                continue
            attached = self._actual_state_of_world.get_attached_volume(name)
            with self._contained("UnmountDevice", name):
                if attached is not None and not self._may_have_unknown_pods(attached):
                    self._unmount_or_detach_device(attached)

    def _may_have_unknown_pods(self, volume: cache.AttachedVolume) -> bool:
        """Report whether a pod directory that cannot be read or identified may belong to the volume.

        DIVERGES (safer): a device stays mounted while a pod directory that may belong to its volume cannot be read or
        identified.
        Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).unmountDetachDevices: the Go
        kubelet ignores such a directory; the plugin looks for other mounts of the device.
        Why: a CSI volume may be unstaged only when no pod has it, and the mounts of some drivers do not show which pods
        have the volume.
        Test: reconciler_test.py:test_staged_volume_is_left_while_it_is_not_known_which_pods_have_it,
        reconciler_test.py:test_staged_volume_of_another_name_is_left_while_a_pod_may_have_it
        """
        spec_name = volume.volume_spec.name()
        # The data of a staged volume may give it another name than the directories of its pods do.
        is_without_pods = volume.volume_name in self._found_without_pods
        for untold in (*self._volumes_failed_reconstruction, *self._volumes_given_up):
            may_be_of_it = is_without_pods or untold.volume_spec_name == spec_name
            if untold.plugin_name == volume.plugin_name and may_be_of_it and untold.is_there():
                return True
        is_uncertain = volume.device_mount_state is operationexecutor.DeviceMountState.DEVICE_MOUNT_UNCERTAIN
        return is_uncertain and is_without_pods and not self._all_could_be_read

    def _unmount_or_detach_device(self, attached: cache.AttachedVolume) -> None:
        if attached.device_may_be_mounted():
            with self._starting("UnmountDevice", attached):
                self._operation_executor.unmount_device(attached, self._actual_state_of_world, self._hostutil)
        elif self._controller_attach_detach_enabled or not attached.plugin_is_attachable:
            self._actual_state_of_world.mark_volume_as_detached(attached.volume_name, attached.node_name)
            klog.info_s(attached.generate_msg_detailed("Volume detached", f'DevicePath "{attached.device_path}"'))
        else:
            with self._starting("DetachVolume", attached):
                self._operation_executor.detach_volume(
                    attached, verify_safe_to_detach=False, actual_state_of_world=self._actual_state_of_world
                )

    def _contained(self, operation: str, volume_name: str) -> AbstractContextManager[None]:
        """Log any error of the body, so that other volumes are served and the next pass tries again."""
        message = f"Failed to start {operation}"
        return contain(message, golang.background(), volumeName=volume_name)

    @contextmanager
    def _starting(self, operation: str, volume: VolumeLogger, note: str = "", level: int = 0) -> Iterator[None]:
        """Log the start of an operation, or the error that kept it from starting.

        An error that only postpones the operation is logged at a high verbosity.
        """
        name = f"operationExecutor.{operation}"
        if klog.v(5).enabled:
            klog.v(5).info_s(volume.generate_msg_detailed(f"Starting {name}", note))
        try:
            yield
        except EXPECTED_ERRORS as err:
            klog.v(5).info_s("Volume operation is not started", operation=operation, reason=err)
            return
        except Exception as err:
            # A volume that cannot be served must not delay the others. The next pass tries it again.
            message = (
                f"{name} failed (controllerAttachDetachEnabled {str(self._controller_attach_detach_enabled).lower()})"
            )
            klog.error_s(err, str(volume.generate_error_detailed(message, err)))
            if isinstance(volume, VolumeToMount):
                # DIVERGES (safer): the kubelet reports at once to the pod why an operation on its volume could not
                # start.
                # Go: pkg/kubelet/volumemanager/reconciler/reconciler_common.go, (*reconciler).mountAttachedVolumes: the
                # Go kubelet logs the reason; after two minutes the pod learns only that its volume is not mounted.
                # Why: the owner of the pod cannot read the log.
                # Test: reconciler_test.py:test_what_is_wrong_with_one_volume_is_told_its_pod_alone
                self._desired_state_of_world.add_error_to_pod(volume.pod_name, err)
            return
        if klog.v(level).enabled:
            klog.v(level).info_s(volume.generate_msg_detailed(f"{name} started", note))


# These errors only postpone an operation: another one on the volume is running, this one failed a short time ago, or a
# precondition is not met yet.
EXPECTED_ERRORS = (
    nestedpendingoperations.AlreadyExistsError,
    exponentialbackoff.ExponentialBackoffError,
    operationexecutor.MountPreConditionFailed,
)
