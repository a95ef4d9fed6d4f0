"""Generate the operations on volumes: attach, mount, map, expand and their opposites.

A step that fails ends its operation. The operation records the state that the volume has reached by then, so that the
reconciler knows what to undo or to repeat.

The expansion on the storage server is missing: only the controller uses that part of Go's file.

Go: pkg/volume/util/operationexecutor/operation_generator.go
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from kubelet import events as kevents
from pkg import golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.component_helpers.storage import volume as storagehelpers
from pkg.util import filesystem
from pkg.volume import util
from pkg.volume.plugins import (
    AttachableVolumePlugin,
    BlockVolumePlugin,
    NodeExpandableVolumePlugin,
    NodeResizeOptions,
    PluginNotFoundError,
    Spec,
    VolumePlugin,
    VolumePluginMgr,
)
from pkg.volume.util import hostutil, volumepathhandler
from pkg.volume.util import types as volumetypes
from pkg.volume.util.operationexecutor.node_expander import (
    ExpansionError,
    NodeExpander,
    NodeExpansion,
    NodeResizeOperationOpts,
)
from pkg.volume.util.operationexecutor.operation_executor import (
    ActualStateOfWorldAttacherUpdater,
    ActualStateOfWorldMounterUpdater,
    AttachedVolume,
    DeviceMountState,
    MarkVolumeOpts,
    MountedVolume,
    MountPreConditionFailed,
    VolumeLogger,
    VolumeMountState,
    VolumeToAttach,
    VolumeToMount,
)
from pkg.volume.volume import (
    Attacher,
    BlockVolumeMapper,
    BlockVolumeUnmapper,
    CustomBlockVolumeMapper,
    CustomBlockVolumeUnmapper,
    DeviceMounter,
    DeviceMounterArgs,
    Mounter,
    MounterArgs,
)

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record

UNKNOWN_VOLUME_PLUGIN = "UnknownVolumePlugin"
UNKNOWN_ATTACHABLE_VOLUME_PLUGIN = "UnknownAttachableVolumePlugin"
DETACH_OPERATION_NAME = "volume_detach"
VERIFY_CONTROLLER_ATTACHED_VOLUME_OP_NAME = "verify_controller_attached_volume"

# A volume of this plugin may be attached even if the plugin cannot attach it, or no longer can. Such a volume must be
# detached too.
_CSI_PLUGIN_NAME = "kubernetes.io/csi"
_IN_USE_ELSEWHERE = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
_DEVICE_IN_USE = "the device is in use when it was no longer expected to be in use"


class OperationError(Exception):
    """Signal that an operation has failed, with one error for the pod's event and one for the log."""

    def __init__(self, event_err: Exception | None, detailed_err: Exception) -> None:
        super().__init__(str(detailed_err))
        self.event_err = event_err
        self.detailed_err = detailed_err


@dataclass(frozen=True, slots=True)
class _Paths:
    """Hold the paths of a volume that is being set up."""

    device: str = ""
    staging: str = ""
    mount: str = ""


class OperationGenerator:
    """Generate operations. Every method is safe from any thread.

    A method raises whatever error prevents the start of the operation.
    """

    def __init__(
        self,
        kube_client: kubernetes.Interface | None,
        volume_plugin_mgr: VolumePluginMgr,
        recorder: record.EventRecorder,
        blk_util: volumepathhandler.BlockVolumePathHandler,
    ) -> None:
        self._kube_client = kube_client
        self._volume_plugin_mgr = volume_plugin_mgr
        self._recorder = recorder
        self._blk_util = blk_util

    def generate_volumes_are_attached_func(
        self,
        attached_volumes: list[AttachedVolume],
        node_name: str,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> volumetypes.GeneratedOperations:
        volumes_per_plugin: dict[str, list[AttachedVolume]] = {}
        for volume in attached_volumes:
            with _logging(volume, "VolumesAreAttached.FindPluginBySpec failed"):
                plugin = self._volume_plugin_mgr.find_plugin_by_spec(volume.volume_spec)
                volumes_per_plugin.setdefault(plugin.get_plugin_name(), []).append(volume)

        def run() -> None:
            for plugin_name, volumes in volumes_per_plugin.items():
                try:
                    self._mark_detached_volumes(plugin_name, volumes, node_name, actual_state_of_world)
                except Exception as err:
                    # An error of one plugin must not keep the volumes of the others from being checked.
                    klog.error_s(err, "VolumesAreAttached failed", pluginName=plugin_name, node=node_name)

        name = "verify_volumes_are_attached_per_node"
        return volumetypes.GeneratedOperations(
            name, _operation(run), complete_func=util.operation_complete_hook("<n/a>", name)
        )

    def generate_attach_volume_func(
        self, volume_to_attach: VolumeToAttach, actual_state_of_world: ActualStateOfWorldAttacherUpdater
    ) -> volumetypes.GeneratedOperations:
        return volumetypes.GeneratedOperations(
            "volume_attach",
            _operation(
                lambda: self._attach_volume(volume_to_attach, actual_state_of_world), volume_to_attach.volume_spec
            ),
            self._event_recorder(volume_to_attach.scheduled_pods, kevents.FAILED_ATTACH_VOLUME),
            self._complete_hook(volume_to_attach.volume_spec, "volume_attach", UNKNOWN_ATTACHABLE_VOLUME_PLUGIN),
        )

    def generate_detach_volume_func(
        self,
        volume_to_detach: AttachedVolume,
        verify_safe_to_detach: bool,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> volumetypes.GeneratedOperations:
        spec = volume_to_detach.volume_spec
        with _generating(volume_to_detach, "DetachVolume.findDetachablePluginBySpec failed"):
            plugin = find_detachable_plugin_by_spec(spec, self._volume_plugin_mgr)
        with _generating(volume_to_detach, "DetachVolume.GetVolumeName failed"):
            volume_name = plugin.get_volume_name(spec)
        with _generating(volume_to_detach, "DetachVolume.NewDetacher failed"):
            detacher = plugin.new_detacher()

        def detach() -> None:
            if verify_safe_to_detach:
                self.verify_volume_is_safe_to_detach(volume_to_detach)
            detacher.detach(volume_name, volume_to_detach.node_name)

        return volumetypes.GeneratedOperations(
            DETACH_OPERATION_NAME,
            _operation(lambda: self._detach_volume(volume_to_detach, detach, actual_state_of_world), spec),
            complete_func=_hook(plugin.get_plugin_name(), spec, DETACH_OPERATION_NAME),
        )

    def generate_mount_volume_func(
        self,
        wait_for_attach_timeout: float,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        is_remount: bool,
    ) -> volumetypes.GeneratedOperations:
        return volumetypes.GeneratedOperations(
            "volume_mount",
            _operation(
                lambda: self._mount_volume(wait_for_attach_timeout, volume_to_mount, actual_state_of_world, is_remount),
                volume_to_mount.volume_spec,
            ),
            self._event_recorder([volume_to_mount.pod], kevents.FAILED_MOUNT_VOLUME),
            self._complete_hook(volume_to_mount.volume_spec, "volume_mount", UNKNOWN_VOLUME_PLUGIN),
        )

    def generate_unmount_volume_func(
        self, volume_to_unmount: MountedVolume, actual_state_of_world: ActualStateOfWorldMounterUpdater, pods_dir: str
    ) -> volumetypes.GeneratedOperations:
        with _generating(volume_to_unmount, "UnmountVolume.FindPluginByName failed"):
            plugin = self._volume_plugin_mgr.find_plugin_by_name(volume_to_unmount.plugin_name)
        with _generating(volume_to_unmount, "UnmountVolume.NewUnmounter failed"):
            unmounter = plugin.new_unmounter(volume_to_unmount.inner_volume_spec_name, volume_to_unmount.pod_uid)
        pod_dir = os.path.join(pods_dir, volume_to_unmount.pod_uid)
        return volumetypes.GeneratedOperations(
            "volume_unmount",
            _operation(
                lambda: self._unmount_volume(volume_to_unmount, pod_dir, unmounter.tear_down, actual_state_of_world),
                volume_to_unmount.volume_spec,
            ),
            complete_func=_hook(plugin.get_plugin_name(), volume_to_unmount.volume_spec, "volume_unmount"),
        )

    def generate_unmount_device_func(
        self,
        device_to_detach: AttachedVolume,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        host_util: hostutil.HostUtils,
    ) -> volumetypes.GeneratedOperations:
        with _generating(device_to_detach, "UnmountDevice.FindDeviceMountablePluginByName failed"):
            plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_name(device_to_detach.plugin_name)
            if plugin is None:
                raise ValueError("the plugin mounts no devices")
        with _generating(device_to_detach, "UnmountDevice.NewDeviceUnmounter failed"):
            unmounter = plugin.new_device_unmounter()
        with _generating(device_to_detach, "UnmountDevice.NewDeviceMounter failed"):
            mounter = plugin.new_device_mounter()

        def run() -> None:
            path = self._device_mount_path(device_to_detach, mounter)
            with _failing(device_to_detach, "GetDeviceMountRefs check failed"):
                refs = plugin.get_device_mount_refs(path)
                if util.has_mount_refs(path, refs):
                    quoted = klog.quote(path)
                    raise OSError(f"the device mount path {quoted} is still mounted by other references {refs}")
            self._unmount_device(device_to_detach, path, unmounter.unmount_device, actual_state_of_world, host_util)

        return volumetypes.GeneratedOperations(
            "unmount_device",
            _operation(run, device_to_detach.volume_spec),
            complete_func=_hook(plugin.get_plugin_name(), device_to_detach.volume_spec, "unmount_device"),
        )

    def generate_map_volume_func(
        self,
        wait_for_attach_timeout: float,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
    ) -> volumetypes.GeneratedOperations:
        spec, pod = volume_to_mount.volume_spec, volume_to_mount.pod
        with _generating(volume_to_mount, "MapVolume.FindMapperPluginBySpec failed"):
            plugin = _mapper(self._volume_plugin_mgr.find_mapper_plugin_by_spec(spec))
        with self._telling(volume_to_mount, "MapVolume.NodeAffinity check failed", kevents.FAILED_MOUNT_VOLUME):
            self.check_node_affinity(volume_to_mount)
        return volumetypes.GeneratedOperations(
            "map_volume",
            _operation(
                lambda: self._map_volume(wait_for_attach_timeout, volume_to_mount, plugin, actual_state_of_world),
                spec,
            ),
            self._event_recorder([pod], kevents.FAILED_MAP_VOLUME),
            _hook(plugin.get_plugin_name(), spec, "map_volume"),
        )

    def generate_unmap_volume_func(
        self, volume_to_unmount: MountedVolume, actual_state_of_world: ActualStateOfWorldMounterUpdater
    ) -> volumetypes.GeneratedOperations:
        with _generating(volume_to_unmount, "UnmapVolume.FindMapperPluginByName failed"):
            plugin = _mapper(self._volume_plugin_mgr.find_mapper_plugin_by_name(volume_to_unmount.plugin_name))
        with _generating(volume_to_unmount, "UnmapVolume.NewUnmapper failed"):
            name, uid = volume_to_unmount.inner_volume_spec_name, volume_to_unmount.pod_uid
            unmapper = plugin.new_block_volume_unmapper(name, uid)
        return volumetypes.GeneratedOperations(
            "unmap_volume",
            _operation(
                lambda: self._unmap_volume(volume_to_unmount, unmapper, actual_state_of_world),
                volume_to_unmount.volume_spec,
            ),
            complete_func=_hook(plugin.get_plugin_name(), volume_to_unmount.volume_spec, "unmap_volume"),
        )

    def generate_unmap_device_func(
        self,
        device_to_detach: AttachedVolume,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        host_util: hostutil.HostUtils,
    ) -> volumetypes.GeneratedOperations:
        with _generating(device_to_detach, "UnmapDevice.FindMapperPluginByName failed"):
            plugin = _mapper(self._volume_plugin_mgr.find_mapper_plugin_by_name(device_to_detach.plugin_name))
        with _generating(device_to_detach, "UnmapDevice.NewUnmapper failed"):
            unmapper = plugin.new_block_volume_unmapper(device_to_detach.volume_spec.name(), types.UID(""))
        return volumetypes.GeneratedOperations(
            "unmap_device",
            _operation(
                lambda: self._unmap_device(device_to_detach, unmapper, actual_state_of_world, host_util),
                device_to_detach.volume_spec,
            ),
            complete_func=_hook(plugin.get_plugin_name(), device_to_detach.volume_spec, "unmap_device"),
        )

    def generate_verify_controller_attached_volume_func(
        self,
        volume_to_mount: VolumeToMount,
        node_name: str,
        actual_state_of_world: ActualStateOfWorldAttacherUpdater,
    ) -> volumetypes.GeneratedOperations:
        """Generate the check that the controller has attached the volume.

        Raise MountPreConditionFailed if the kubelet's copy of the node's status does not list the volume yet.
        """
        with _generating(volume_to_mount, "VerifyControllerAttachedVolume.FindPluginBySpec failed"):
            plugin = self._volume_plugin_mgr.find_plugin_by_spec(volume_to_mount.volume_spec)
        if volume_to_mount.plugin_is_attachable and self._is_known_to_be_unattached(volume_to_mount.volume_name):
            raise MountPreConditionFailed(f"volume {volume_to_mount.volume_name} is not yet in node's status")
        name = VERIFY_CONTROLLER_ATTACHED_VOLUME_OP_NAME
        return volumetypes.GeneratedOperations(
            name,
            _operation(
                lambda: self._verify_controller_attached_volume(volume_to_mount, node_name, actual_state_of_world),
                volume_to_mount.volume_spec,
            ),
            complete_func=_hook(plugin.get_plugin_name(), volume_to_mount.volume_spec, name),
        )

    def _is_known_to_be_unattached(self, volume_name: str) -> bool:
        """Report whether the kubelet's copy of the node's status lacks the volume.

        This check costs no thread, no request and no backoff. If it passes, the operation asks the API server, whose
        response is newer.
        """
        try:
            return volume_name not in self._volume_plugin_mgr.host.get_attached_volumes_from_node_status()
        except Exception as err:  # The kubelet has not read the node's status yet.
            klog.v(4).info_s("Node status is not known", volumeName=volume_name, err=err)
            return False

    def generate_expand_in_use_volume_func(
        self,
        volume_to_mount: VolumeToMount,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        current_size: Quantity,
    ) -> volumetypes.GeneratedOperations:
        with _generating(volume_to_mount, "NodeExpandVolume.FindPluginBySpec failed"):
            plugin = self._volume_plugin_mgr.find_plugin_by_spec(volume_to_mount.volume_spec)

        # DIVERGES (fault of Go): if an expansion may not start yet, the kubelet checks it again with a growing backoff.
        # Go: pkg/volume/util/operationexecutor/operation_generator.go,
        # (*operationGenerator).GenerateExpandInUseVolumeFunc: in the Go kubelet such an operation succeeds, and a tenth
        # of a second later the next one asks the API server about the claim.
        # Why: an infeasible expansion stays infeasible until the owner of the claim withdraws it, which may never
        # happen.
        # Test:
        # kubelet/volumemanager/reconciler/reconciler_test.py:test_infeasible_expansion_is_not_looked_into_all_the_time
        def run() -> None:
            with _failing(volume_to_mount, "NodeExpandvolume.expansion failed"):
                if current_size.is_zero() or volume_to_mount.desired_persistent_volume_size.is_zero():
                    raise ValueError("current or new size of the volume is not set")
            options = self._resize_options_in_use(volume_to_mount, plugin, current_size)
            if not self._do_online_expansion(volume_to_mount, actual_state_of_world, options):
                what = "Waiting for volume to be expandable on the node"
                raise OperationError(None, volume_to_mount.generate_error_detailed(what, None))

        return volumetypes.GeneratedOperations(
            "volume_fs_resize",
            _operation(run, volume_to_mount.volume_spec),
            self._event_recorder([volume_to_mount.pod], kevents.VOLUME_RESIZE_FAILED),
            _hook(plugin.get_plugin_name(), volume_to_mount.volume_spec, "volume_fs_resize"),
        )

    # ---- The steps of the operations; each raises OperationError. ----

    def _mark_detached_volumes(
        self, plugin_name: str, volumes: list[AttachedVolume], node_name: str, state: ActualStateOfWorldAttacherUpdater
    ) -> None:
        plugin = self._volume_plugin_mgr.find_attachable_plugin_by_name(plugin_name)
        if plugin is None:
            return
        attached = plugin.new_attacher().volumes_are_attached([volume.volume_spec for volume in volumes], node_name)
        for volume in volumes:
            if not attached.get(volume.volume_spec.name(), True):
                state.mark_volume_as_detached(volume.volume_name, node_name)
                klog.v(1).info_s(
                    "VerifyVolumesAreAttached determined that the volume is no longer attached to the node, "
                    "therefore it was marked as detached",
                    volumeName=volume.volume_name,
                    specName=volume.volume_spec.name(),
                    node=node_name,
                )

    def _attach_volume(self, volume: VolumeToAttach, state: ActualStateOfWorldAttacherUpdater) -> None:
        with _failing(volume, "AttachVolume.FindAttachablePluginBySpec failed"):
            plugin = self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume.volume_spec)
            if plugin is None:
                raise ValueError("the plugin attaches no volumes")
        with _failing(volume, "AttachVolume.NewAttacher failed"):
            attacher = plugin.new_attacher()
        with _failing(volume, "AttachVolume.Attach failed"):
            try:
                device_path = attacher.attach(volume.volume_spec, volume.node_name)
            except Exception:
                with _logging(volume, "AttachVolume.MarkVolumeAsUncertain failed"):
                    state.mark_volume_as_uncertain(volume.volume_name, volume.volume_spec, volume.node_name)
                raise
        with _failing(volume, "AttachVolume.MarkVolumeAsAttached failed"):
            state.mark_volume_as_attached(volume.volume_name, volume.volume_spec, volume.node_name, device_path)
        simple, detailed = volume.generate_msg("AttachVolume.Attach succeeded", "")
        for pod in volume.scheduled_pods:
            self._recorder.event(pod, v1.EVENT_TYPE_NORMAL, kevents.SUCCESSFUL_ATTACH_VOLUME, simple)
        klog.info_s(detailed)

    def _detach_volume(
        self, volume: AttachedVolume, detach: Callable[[], None], state: ActualStateOfWorldAttacherUpdater
    ) -> None:
        with _failing(volume, "DetachVolume.Detach failed"):
            try:
                detach()
            except Exception:
                # The volume may be half detached. It must be attached again before the node's status may report it as
                # attached.
                with _logging(volume, "DetachVolume.MarkVolumeAsUncertain failed"):
                    state.mark_volume_as_uncertain(volume.volume_name, volume.volume_spec, volume.node_name)
                raise
        klog.info_s(volume.generate_msg_detailed("DetachVolume.Detach succeeded", ""))
        state.mark_volume_as_detached(volume.volume_name, volume.node_name)

    def _mount_volume(
        self, timeout: float, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater, is_remount: bool
    ) -> None:
        spec = volume.volume_spec
        with _failing(volume, "MountVolume.FindPluginBySpec failed"):
            plugin = self._volume_plugin_mgr.find_plugin_by_spec(spec)
        with _failing(volume, "MountVolume.NodeAffinity check failed"):
            self.check_node_affinity(volume)
        with _failing(volume, "MountVolume.NewMounter initialization failed"):
            mounter = plugin.new_mounter(spec, volume.pod)
        with _failing(volume, "MountVolume.MountOptionSupport check failed"):
            check_mount_option_support(volume, plugin)
        with _failing(volume, "MountVolume.SetUp failed"):
            _check_read_write_once_pod(volume, state)
        device_path = self._wait_for_attach(volume, timeout, "MountVolume", lambda: self._global_path(volume), state)
        paths = _Paths(device=device_path or volume.device_path)
        paths = replace(paths, staging=self._mount_device(volume, paths.device, state))
        mark_opts = _mark_opts(volume, mounter=mounter, selinux_mount_context=volume.selinux_label)
        self._set_up(volume, mounter, mark_opts, state, is_remount)
        paths = replace(paths, mount=mounter.get_path())
        self._expand_while_mounting(volume, "MountVolume.Setup failed while expanding volume", paths, mark_opts, state)
        if volume.mount_request_time is not None:
            # The latency counts from the request for the mount, and so includes all waiting.
            seconds = (clocklib.RealClock().steady() - volume.mount_request_time).total_seconds()
            name = util.get_full_qualified_plugin_name_for_volume(plugin.get_plugin_name(), spec)
            util.record_operation_latency_metric(name, "overall_volume_mount", seconds)
        with _failing(volume, "MountVolume.MarkVolumeAsMounted failed"):
            state.mark_volume_as_mounted(mark_opts)

    def _wait_for_attach(
        self,
        volume: VolumeToMount,
        timeout: float,
        prefix: str,
        global_path: Callable[[], str],
        state: ActualStateOfWorldMounterUpdater,
    ) -> str:
        """Wait until the volume is attached. Return the path of its device, "" if it need not be attached."""
        attacher = self._attacher(volume, prefix)
        if attacher is None:
            return ""
        pod, path = klog.kobj(volume.pod), volume.device_path
        klog.info_s(volume.generate_msg_detailed(f"{prefix}.WaitForAttach entering", f'DevicePath "{path}"'), pod=pod)
        with _failing(volume, f"{prefix}.WaitForAttach failed"):
            try:
                path = attacher.wait_for_attach(volume.volume_spec, path, volume.pod, timeout)
            except volumetypes.UncertainProgressError as err:
                # DIVERGES (fault of Go): what a plugin may have attached before its attempt failed is undone when the
                # pod is gone.
                # Go: pkg/volume/util/operationexecutor/operation_generator.go,
                # (*operationGenerator).GenerateMountVolumeFunc: in the Go kubelet the device counts as not mounted, so
                # the kubelet never asks the plugin to unmount it.
                # Why: if the disk does not appear in an iSCSI session, the session that the kubelet has opened would
                # stay forever.
                # Test: operation_generator_test.py:test_device_that_may_be_attached_by_its_plugin_is_uncertain
                self.mark_device_error_state(volume, path, global_path(), err, state)
                raise
        klog.info_s(volume.generate_msg_detailed(f"{prefix}.WaitForAttach succeeded", f'DevicePath "{path}"'), pod=pod)
        return path

    def _attacher(self, volume: VolumeToMount, prefix: str) -> Attacher | None:
        with _failing(volume, f"{prefix}.NewAttacher failed"):
            plugin = self._volume_plugin_mgr.find_attachable_plugin_by_spec(volume.volume_spec)
            return plugin.new_attacher() if plugin is not None else None

    def _global_path(self, volume: VolumeToMount) -> str:
        """Return the path of the volume's global mount on the node, or "" if the plugin has none."""
        plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_spec(volume.volume_spec)
        return plugin.new_device_mounter().get_device_mount_path(volume.volume_spec) if plugin is not None else ""

    def _mount_device(self, volume: VolumeToMount, device_path: str, state: ActualStateOfWorldMounterUpdater) -> str:
        """Mount the device if the plugin mounts devices. Return the path of the mount, or "" if there is none."""
        with _failing(volume, "MountVolume.NewDeviceMounter failed"):
            plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_spec(volume.volume_spec)
            if plugin is None:
                return ""
            mounter = plugin.new_device_mounter()
        with _failing(volume, "MountVolume.GetDeviceMountPath failed"):
            path = mounter.get_device_mount_path(volume.volume_spec)
        if state.get_device_mount_state(volume.volume_name) is DeviceMountState.DEVICE_GLOBALLY_MOUNTED:
            return path
        args = DeviceMounterArgs(
            fs_group=_fs_group(volume.pod)[0],
            selinux_label=volume.selinux_label,
            reconstructed_volume=_is_device_reconstructed(volume, state),
        )
        with _failing(volume, "MountVolume.MountDevice failed"):
            try:
                mounter.mount_device(volume.volume_spec, device_path, path, args)
            except Exception as err:
                self.check_for_failed_mount(volume, err)
                plugin_dir = self._volume_plugin_mgr.host.get_plugin_dir(plugin.get_plugin_name())
                self.mark_device_error_state(
                    volume, device_path, path, self._uncertain_if_mounted(err, path, plugin_dir), state
                )
                raise
        done = volume.generate_msg_detailed("MountVolume.MountDevice succeeded", f'device mount path "{path}"')
        klog.info_s(done, pod=klog.kobj(volume.pod))
        with _failing(volume, "MountVolume.MarkDeviceAsMounted failed"):
            state.mark_device_as_mounted(volume.volume_name, device_path, path, volume.selinux_label)
        return path

    def _set_up(
        self,
        volume: VolumeToMount,
        mounter: Mounter,
        mark_opts: MarkVolumeOpts,
        state: ActualStateOfWorldMounterUpdater,
        is_remount: bool,
    ) -> None:
        fs_group, fs_group_change_policy = _fs_group(volume.pod)
        reconstructed = state.is_volume_reconstructed(volume.volume_name, volume.pod_name)
        args = MounterArgs(
            fs_user=util.fs_user_from(volume.pod),
            fs_group=fs_group,
            fs_group_change_policy=fs_group_change_policy,
            desired_size=volume.desired_size_limit,
            selinux_label=volume.selinux_label,
            recorder=self._recorder,
            reconstructed_volume=reconstructed,
            is_remount=is_remount,
        )
        with _failing(volume, "MountVolume.SetUp failed"):
            try:
                mounter.set_up(args)
            except Exception as err:
                self.check_for_failed_mount(volume, err)
                pods_dir = self._volume_plugin_mgr.host.get_pods_dir()
                self.mark_volume_error_state(
                    volume,
                    mark_opts,
                    self._uncertain_if_mounted(err, mounter.get_path(), pods_dir),
                    state,
                    reconstructed,
                )
                raise
        done = volume.generate_msg_detailed("MountVolume.SetUp succeeded", "")
        klog.v(4 if is_remount else 1).info_s(done, pod=klog.kobj(volume.pod))

    def _uncertain_if_mounted(self, err: Exception, path: str, base: str) -> Exception:
        """Return the error, as an UncertainProgressError if something below base is mounted at the path.

        DIVERGES (safer): a mount that a failed set-up has left at the path of the volume is unmounted when the pod is
        gone.
        Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).markVolumeErrorState: in the
        Go kubelet the volume counts as not mounted after a final error.
        Why: the mount would stay forever, and the pod could not end.
        Test: operation_generator_test.py:test_set_up_that_fails_and_leaves_a_mount_leaves_the_volume_uncertain,
        operation_generator_test.py:test_failed_mount_of_a_device_that_leaves_a_mount_leaves_the_device_uncertain
        """
        if volumetypes.is_operation_finished_error(err) and self._is_mounted_below(path, base):
            return volumetypes.UncertainProgressError(str(err))
        return err

    def _is_mounted_below(self, path: str, base: str) -> bool:
        """Report whether something is mounted at the path, or may be.

        Return False if the path is not below base: a path outside base belongs to the node, as that of a hostPath
        volume does.
        """
        if len(path) > filesystem.MAX_PATH_LENGTH:
            return False  # Nothing can be mounted at such a path, and resolving it would take minutes.
        try:
            real = mount_utils.without_links_above(path)
            return mount_utils.path_within_base(real, os.path.realpath(base)) and any(
                point.path == real for point in self._volume_plugin_mgr.host.get_mounter().list()
            )
        except OSError as err:
            klog.error_s(err, "Failed to determine whether a failed set-up has left a mount")
            return True

    def _expand_while_mounting(
        self,
        volume: VolumeToMount,
        prefix: str,
        paths: _Paths,
        mark_opts: MarkVolumeOpts,
        state: ActualStateOfWorldMounterUpdater,
    ) -> None:
        with _failing(volume, prefix):
            try:
                self._expand_volume_during_mount(volume, state, paths)
            except Exception:
                # The volume is set up and must be unmounted later, but no pod may start with a volume that is too
                # small.
                with _logging(volume, "MountVolume.MarkVolumeMountAsUncertain failed"):
                    state.mark_volume_mount_as_uncertain(mark_opts)
                raise

    def check_for_failed_mount(self, volume_to_mount: VolumeToMount, mount_error: Exception) -> None:
        """Emit an event for the persistent volume if its device holds another file system than its spec requires."""
        pv = volume_to_mount.volume_spec.persistent_volume
        if pv is not None and volumetypes.is_filesystem_mismatch_error(mount_error):
            simple, _ = volume_to_mount.generate_msg("MountVolume failed", str(mount_error))
            self._recorder.event(pv, v1.EVENT_TYPE_WARNING, kevents.FAILED_MOUNT_ON_FILESYSTEM_MISMATCH, simple)

    def mark_device_error_state(
        self,
        volume_to_mount: VolumeToMount,
        device_path: str,
        device_mount_path: str,
        mount_error: Exception,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
    ) -> None:
        """Record the state of a device after a failed mount. A device that is known to be mounted keeps its state."""
        name, state = (
            volume_to_mount.volume_name,
            actual_state_of_world.get_device_mount_state(volume_to_mount.volume_name),
        )
        if volumetypes.is_operation_finished_error(mount_error) and state is DeviceMountState.DEVICE_MOUNT_UNCERTAIN:
            if actual_state_of_world.is_volume_device_reconstructed(name):
                klog.v(2).info_s("MountVolume.markDeviceErrorState leaving volume uncertain", volumeName=name)
                return
            with _logging(volume_to_mount, "MountDevice.MarkDeviceAsUnmounted failed"):
                actual_state_of_world.mark_device_as_unmounted(name)
        elif _is_uncertain(mount_error) and state is DeviceMountState.DEVICE_NOT_MOUNTED:
            with _logging(volume_to_mount, "MountDevice.MarkDeviceAsUncertain failed"):
                label = volume_to_mount.selinux_label
                actual_state_of_world.mark_device_as_uncertain(name, device_path, device_mount_path, label)

    def mark_volume_error_state(
        self,
        volume_to_mount: VolumeToMount,
        mark_opts: MarkVolumeOpts,
        mount_error: Exception,
        actual_state_of_world: ActualStateOfWorldMounterUpdater,
        reconstructed: bool,
    ) -> None:
        """Record the state of the pod's volume after a failed mount.

        A volume that is known to be mounted keeps its state.

        The argument reconstructed says whether the volume was found on disk, or may have been mapped, before the mount
        began; a failed mount then leaves the volume uncertain. Go determines this after the failure. Here
        reconstruction may run again during the mount: it would find a directory that the mount has created and removed
        again, and that volume could never be unmounted.
        """
        name = volume_to_mount.volume_name
        state = actual_state_of_world.get_volume_mount_state(name, mark_opts.pod_name)
        if volumetypes.is_operation_finished_error(mount_error) and state is VolumeMountState.VOLUME_MOUNT_UNCERTAIN:
            if reconstructed:
                klog.v(3).info_s("MountVolume.markVolumeErrorState leaving volume uncertain", volumeName=name)
                return
            with _logging(volume_to_mount, "MountVolume.MarkVolumeAsUnmounted failed"):
                actual_state_of_world.mark_volume_as_unmounted(volume_to_mount.pod_name, name)
        elif _is_uncertain(mount_error) and state is VolumeMountState.VOLUME_NOT_MOUNTED:
            with _logging(volume_to_mount, "MountVolume.MarkVolumeMountAsUncertain failed"):
                actual_state_of_world.mark_volume_mount_as_uncertain(mark_opts)

    def _unmount_volume(
        self,
        volume: MountedVolume,
        pod_dir: str,
        tear_down: Callable[[], None],
        state: ActualStateOfWorldMounterUpdater,
    ) -> None:
        with _failing(volume, "error cleaning subPath mounts"):
            subpather = self._volume_plugin_mgr.host.get_subpather()
            subpather.clean_subpaths(pod_dir, volume.inner_volume_spec_name)
        with _failing(volume, "UnmountVolume.TearDown failed"):
            try:
                tear_down()
            except Exception:
                # The unmount may have done a part of its work, so a new pod must set the volume up again.
                with _logging(volume, "UnmountVolume.MarkVolumeMountAsUncertain failed"):
                    state.mark_volume_mount_as_uncertain(_uncertain_opts(volume))
                raise
        self._mark_unmounted("UnmountVolume.TearDown succeeded", volume, state)

    def _mark_unmounted(self, what: str, volume: MountedVolume, state: ActualStateOfWorldMounterUpdater) -> None:
        klog.info_s(
            f"{what} for volume",
            volumeName=volume.volume_name,
            podUID=volume.pod_uid,
            innerVolumeSpecName=volume.inner_volume_spec_name,
            pluginName=volume.plugin_name,
        )
        with _logging(volume, f"{what.split()[0].split('.')[0]}.MarkVolumeAsUnmounted failed"):
            state.mark_volume_as_unmounted(volume.pod_name, volume.volume_name)

    def _device_mount_path(self, device: AttachedVolume, mounter: DeviceMounter) -> str:
        try:
            return mounter.get_device_mount_path(device.volume_spec)
        except Exception as err:
            # DIVERGES (safer): the kubelet uses the path that it recorded at the mount if the plugin cannot determine
            # where the device is mounted because a file server or daemon is gone.
            # Go: pkg/volume/util/operationexecutor/operation_generator.go,
            # (*operationGenerator).GenerateUnmountDeviceFunc: the Go kubelet uses the recorded path only if the plugin
            # reports that something does not exist.
            # Why: the device of a local volume in a directory of a server that never returns would count as mounted
            # forever.
            # Test: operation_generator_test.py:test_device_is_unmounted_though_what_tells_its_path_is_gone
            if not isinstance(err, FileNotFoundError) and not mount_utils.is_corrupted_mnt(err):
                raise OperationError(*device.generate_error("GetDeviceMountPath failed", err)) from err
            # The plugin's source of the path is gone, so the plugin cannot have the device mounted at another path. So
            # the operation marks the device as unmounted.
            path = device.device_mount_path
            prefix = (
                f"GetDeviceMountPath failed, but unmount operation will proceed using deviceMountPath={path}: {err}"
            )
            klog.warning_s(device.generate_msg_detailed(prefix, ""))
            return path

    def _unmount_device(
        self,
        device: AttachedVolume,
        path: str,
        unmount_device: Callable[[str], None],
        state: ActualStateOfWorldMounterUpdater,
        host_util: hostutil.HostUtils,
    ) -> None:
        with _failing(device, "UnmountDevice failed"):
            try:
                unmount_device(path)
                # If another process still has the device open, the device must not be detached.
                if is_device_opened(device, host_util):
                    raise OSError(_DEVICE_IN_USE)
            except Exception:
                # A new pod must mount the device again.
                # DIVERGES (fault of Go): the kubelet mounts a device again for a new pod if it cannot tell whether the
                # device is still open after its unmount.
                # Go: pkg/volume/util/operationexecutor/operation_generator.go,
                # (*operationGenerator).GenerateUnmountDeviceFunc: in the Go kubelet the device still counts as mounted.
                # Why: no pod could start with the volume, because its device is not mounted.
                # Test:
                # operation_generator_test.py:test_device_of_which_nobody_can_tell_whether_it_is_in_use_is_mounted_again
                with _logging(device, "UnmountDevice.MarkDeviceAsUncertain failed"):
                    context = device.selinux_mount_context
                    state.mark_device_as_uncertain(device.volume_name, device.device_path, path, context)
                raise
        klog.info_s(device.generate_msg_detailed("UnmountDevice succeeded", ""))
        with _failing(device, "MarkDeviceAsUnmounted failed"):
            state.mark_device_as_unmounted(device.volume_name)

    def _map_volume(
        self,
        timeout: float,
        volume: VolumeToMount,
        plugin: BlockVolumePlugin,
        state: ActualStateOfWorldMounterUpdater,
    ) -> None:
        # DIVERGES (safer): a plugin that is slow to create its block mapper delays only its own volume.
        # Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).GenerateMapVolumeFunc: the
        # Go kubelet creates the mapper on the one goroutine that starts the operations on all volumes.
        # Why: the plugin may ask the API server for a secret, or write to a disk.
        # Test: operation_generator_test.py:test_mapper_is_made_by_the_operation
        with _failing(volume, "MapVolume.NewBlockVolumeMapper initialization failed"):
            mapper = plugin.new_block_volume_mapper(volume.volume_spec, volume.pod)
        with _failing(volume, "MapVolume.SetUpDevice failed"):
            _check_read_write_once_pod(volume, state)
        with _failing(volume, "MapVolume.GetGlobalMapPath failed"):
            global_map_path = mapper.get_global_map_path(volume.volume_spec)
        device_path = self._wait_for_attach(volume, timeout, "MapVolume", lambda: global_map_path, state)
        custom = _custom_mapper(mapper)
        staging = self._set_up_device(volume, custom, device_path, global_map_path, state)
        with _failing(volume, "MapVolume.MarkDeviceAsMounted failed"):
            state.mark_device_as_mounted(volume.volume_name, device_path, global_map_path, "")
        mark_opts = _mark_opts(volume, block_volume_mapper=mapper)
        # DIVERGES (fault of Go): a device that an earlier attempt may have mapped is still unmapped later, even if the
        # driver rejects this attempt.
        # Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).markVolumeErrorState: in
        # the Go kubelet a final error of this attempt makes the volume count as not mapped.
        # Why: the earlier attempt may have failed after the driver had published the device, for example on a full
        # disk; the kubelet would never ask the driver to unpublish it.
        # Test:
        # operation_generator_test.py:test_mapping_that_failed_is_not_forgotten_when_the_driver_refuses_the_next
        was_begun = (
            state.get_volume_mount_state(volume.volume_name, volume.pod_name) is VolumeMountState.VOLUME_MOUNT_UNCERTAIN
        )
        pod_device_path = self._map_pod_device(volume, custom, device_path, mark_opts, state, was_begun)
        # DIVERGES (fault of Go): when the pod is gone, the kubelet unmaps a device that it may have mapped itself.
        # Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).GenerateMapVolumeFunc: the
        # Go kubelet unmaps such a device only if the plugin maps devices itself, as the CSI plugin does.
        # Why: a device that is still bound for a pod that no longer exists never leaves the node.
        # Test:
        # operation_generator_test.py:test_mapping_without_a_driver_that_fails_half_way_leaves_the_volume_uncertain
        try:
            self._bind_and_expand(
                volume, mapper, _Paths(pod_device_path, staging), device_path, global_map_path, mark_opts, state
            )
        except OperationError as err:
            if err.event_err is not None:
                # The driver or the kubelet may have mapped the device, so it must be unmapped when the pod is gone.
                uncertain = volumetypes.UncertainProgressError(str(err.event_err))
                self.mark_volume_error_state(volume, mark_opts, uncertain, state, was_begun)
            raise

    def _set_up_device(
        self,
        volume: VolumeToMount,
        custom: CustomBlockVolumeMapper | None,
        device_path: str,
        global_map_path: str,
        state: ActualStateOfWorldMounterUpdater,
    ) -> str:
        """Ask the driver to stage the device. Return its staging path, or "" if the driver had nothing to stage."""
        mounted = state.get_device_mount_state(volume.volume_name) is DeviceMountState.DEVICE_GLOBALLY_MOUNTED
        if custom is None or mounted:
            return ""
        with _failing(volume, "MapVolume.SetUpDevice failed"):
            try:
                return custom.set_up_device(_is_device_reconstructed(volume, state))
            except Exception as err:
                self.mark_device_error_state(volume, device_path, global_map_path, err, state)
                raise

    def _map_pod_device(
        self,
        volume: VolumeToMount,
        custom: CustomBlockVolumeMapper | None,
        device_path: str,
        mark_opts: MarkVolumeOpts,
        state: ActualStateOfWorldMounterUpdater,
        was_begun: bool,
    ) -> str:
        """Ask the driver to publish the device.

        Return the driver's path, or the attachment's if the driver returns none.
        """
        if custom is None:
            return device_path
        with _failing(volume, "MapVolume.MapPodDevice failed"):
            try:
                return custom.map_pod_device() or device_path
            except Exception as err:
                self.mark_volume_error_state(volume, mark_opts, err, state, was_begun)
                raise

    def _bind_and_expand(
        self,
        volume: VolumeToMount,
        mapper: BlockVolumeMapper,
        paths: _Paths,
        marked_device_path: str,
        global_map_path: str,
        mark_opts: MarkVolumeOpts,
        state: ActualStateOfWorldMounterUpdater,
    ) -> None:
        with _failing(volume, "MapVolume failed"):
            if _custom_mapper(mapper) is not None and not paths.device:
                raise ValueError("device path of the volume is empty")
        with _failing(volume, "MapVolume.EvalHostSymlinks failed"):
            device_path = self._volume_plugin_mgr.host.get_hostutil().eval_host_symlinks(paths.device)
        if device_path != marked_device_path:
            with _failing(volume, "MapVolume.MarkDeviceAsMounted failed"):
                state.mark_device_as_mounted(volume.volume_name, device_path, global_map_path, "")
        pod_map_path, name = mapper.get_pod_device_map_path()
        with _failing(volume, "MapVolume.MapBlockVolume failed"):
            uid = volume.pod.metadata.uid
            util.map_block_volume(self._blk_util, device_path, global_map_path, pod_map_path, name, uid)
        self._tell_mapped(volume, f'globalMapPath "{global_map_path}"', 4)
        self._tell_mapped(volume, f'volumeMapPath "{pod_map_path}"', 1)
        prefix = "MapVolume.MarkVolumeAsMounted failed while expanding volume"
        self._expand_while_mounting(volume, prefix, replace(paths, device=device_path), mark_opts, state)
        with _failing(volume, "MapVolume.MarkVolumeAsMounted failed"):
            state.mark_volume_as_mounted(mark_opts)

    def _tell_mapped(self, volume: VolumeToMount, where: str, verbosity: int) -> None:
        simple, detailed = volume.generate_msg("MapVolume.MapPodDevice succeeded", where)
        self._recorder.event(volume.pod, v1.EVENT_TYPE_NORMAL, kevents.SUCCESSFUL_MOUNT_VOLUME, simple)
        klog.v(verbosity).info_s(detailed, pod=klog.kobj(volume.pod))

    def _unmap_volume(
        self, volume: MountedVolume, unmapper: BlockVolumeUnmapper, state: ActualStateOfWorldMounterUpdater
    ) -> None:
        pod_map_path, name = unmapper.get_pod_device_map_path()
        with _failing(volume, "UnmapVolume.GetGlobalMapPath failed"):
            global_map_path = unmapper.get_global_map_path(volume.volume_spec)
        # Mark the volume before anything is undone: if a step below fails, all must be done again.
        with _failing(volume, "UnmapVolume.MarkDeviceAsUncertain failed"):
            state.mark_volume_mount_as_uncertain(_uncertain_opts(volume))
        with _failing(volume, "UnmapVolume.UnmapBlockVolume failed"):
            util.unmap_block_volume(self._blk_util, global_map_path, pod_map_path, name, volume.pod_uid)
        custom = _custom_unmapper(unmapper)
        if custom is not None:
            with _failing(volume, "UnmapVolume.UnmapPodDevice failed"):
                custom.unmap_pod_device()
        self._mark_unmounted("UnmapVolume succeeded", volume, state)

    def _unmap_device(
        self,
        device: AttachedVolume,
        unmapper: BlockVolumeUnmapper,
        state: ActualStateOfWorldMounterUpdater,
        host_util: hostutil.HostUtils,
    ) -> None:
        map_path = device.device_mount_path
        with _failing(device, "UnmapDevice.GetDeviceBindMountRefs check failed"):
            try:
                refs = self._blk_util.get_device_bind_mount_refs(device.device_path, map_path)
            except FileNotFoundError:
                refs = []  # The set-up failed before it created the map path.
        with _failing(device, "UnmapDevice failed"):
            if refs:
                raise OSError(f"the device {klog.quote(map_path)} is still referenced from other Pods {refs}")
        # Mark the device before anything is undone: if a step below fails, all must be done again.
        with _failing(device, "UnmapDevice.MarkDeviceAsUncertain failed"):
            state.mark_device_as_uncertain(device.volume_name, device.device_path, map_path, "")
        custom = _custom_unmapper(unmapper)
        if custom is not None:
            with _failing(device, "UnmapDevice.TearDownDevice failed"):
                custom.tear_down_device(map_path, device.device_path)
        with _failing(device, "UnmapDevice.RemoveMapPath failed"):
            self._blk_util.remove_map_path(map_path)
        with _failing(device, "UnmapDevice failed"):
            if is_device_opened(device, host_util):
                raise OSError(_DEVICE_IN_USE)
        klog.info_s(device.generate_msg_detailed("UnmapDevice succeeded", ""))
        with _failing(device, "MarkDeviceAsUnmounted failed"):
            state.mark_device_as_unmounted(device.volume_name)

    def _verify_controller_attached_volume(
        self, volume: VolumeToMount, node_name: str, state: ActualStateOfWorldAttacherUpdater
    ) -> None:
        with _failing(volume, "VerifyControllerAttachedVolume fetching pvc failed"):
            claim_size = self._claim_size(volume, state)
        if not volume.plugin_is_attachable:
            prefix = "VerifyControllerAttachedVolume.MarkVolumeAsAttachedByUniqueVolumeName failed"
            with _failing(volume, prefix):
                state.mark_volume_as_attached(volume.volume_name, volume.volume_spec, node_name, "")
            state.initialize_claim_size(volume.volume_name, claim_size)
            return
        if not volume.reported_in_use:
            prefix = "Volume has not been added to the list of VolumesInUse in the node's volume status"
            raise OperationError(*volume.generate_error(prefix, None))
        with _failing(volume, "VerifyControllerAttachedVolume failed fetching node from API server"):
            node = self._client().core_v1.nodes().get(golang.background(), node_name)
        for attached in node.status.volumes_attached:
            if attached.name != volume.volume_name:
                continue
            path = attached.device_path
            done = volume.generate_msg_detailed("Controller attach succeeded", f'device path: "{path}"')
            klog.info_s(done, pod=klog.kobj(volume.pod))
            with _failing(volume, "VerifyControllerAttachedVolume.MarkVolumeAsAttached failed"):
                state.mark_volume_as_attached("", volume.volume_spec, node_name, path)
            state.initialize_claim_size(volume.volume_name, claim_size)
            return
        raise OperationError(*volume.generate_error("Volume not attached according to node status", None))

    def _claim_size(self, volume: VolumeToMount, state: ActualStateOfWorldAttacherUpdater) -> Quantity:
        size = state.get_claim_size(volume.volume_name)
        pv = volume.volume_spec.persistent_volume
        if pv is None or not size.is_zero() or self._kube_client is None:
            return size
        return self._claim_of(pv).status.capacity.get(v1.RESOURCE_STORAGE, size)

    def _claim_of(self, pv: v1.PersistentVolume) -> v1.PersistentVolumeClaim:
        reference = pv.spec.claim_ref
        if reference is None:
            raise ValueError(f"persistent volume {klog.quote(pv.metadata.name)} is not bound to a claim")
        claims = self._client().core_v1.persistent_volume_claims(reference.namespace)
        return claims.get(golang.background(), reference.name)

    def _client(self) -> kubernetes.Interface:
        if self._kube_client is None:
            raise ValueError("the kubelet has no API server")
        return self._kube_client

    def verify_volume_is_safe_to_detach(self, volume_to_detach: AttachedVolume) -> None:
        """Raise an error if the node's status lists the volume as in use, or if the status cannot be read."""
        from pkg.apimachinery.api import errors  # A kubelet without an API server does not need this module.

        prefix = "DetachVolume failed fetching node from API server"
        try:
            node = self._client().core_v1.nodes().get(golang.background(), volume_to_detach.node_name)
        except errors.StatusError as err:
            if not errors.is_not_found(err):
                raise volume_to_detach.generate_error_detailed(prefix, err) from err
            message = "Node not found on API server. DetachVolume will skip safe to detach check"
            klog.warning_s(volume_to_detach.generate_msg_detailed(message, ""))
            return
        if volume_to_detach.volume_name in node.status.volumes_in_use:
            in_use = ValueError("volume is still in use by node, according to Node status")
            raise volume_to_detach.generate_error_detailed("DetachVolume failed", in_use)
        klog.info_s(volume_to_detach.generate_msg_detailed("Verified volume is safe to detach", ""))

    # ---- Expansion ----

    def _resize_options_in_use(
        self, volume: VolumeToMount, plugin: VolumePlugin, current_size: Quantity
    ) -> NodeResizeOptions:
        spec = volume.volume_spec
        with _failing(volume, "NodeExpandvolume.CheckVolumeModeFilesystem failed"):
            is_filesystem = util.check_volume_mode_filesystem(spec)
        mount_path = staging = ""
        if is_filesystem:
            with _failing(volume, "NodeExpandVolume.NewMounter initialization failed"):
                mount_path = plugin.new_mounter(spec, volume.pod).get_path()
            with _failing(volume, "NodeExpandVolume.GetDeviceMountPath failed"):
                device_plugin = self._volume_plugin_mgr.find_device_mountable_plugin_by_spec(spec)
                if device_plugin is not None:
                    staging = device_plugin.new_device_mounter().get_device_mount_path(spec)
        else:
            with _failing(volume, "MapVolume.FindMapperPluginBySpec failed"):
                mapper_plugin = _mapper(self._volume_plugin_mgr.find_mapper_plugin_by_spec(spec))
            with _failing(volume, "MapVolume.NewBlockVolumeMapper initialization failed"):
                custom = _custom_mapper(mapper_plugin.new_block_volume_mapper(spec, volume.pod))
                staging = custom.get_staging_path() if custom is not None else ""
        return NodeResizeOptions(
            volume_spec=spec,
            device_path=volume.device_path,
            device_mount_path=mount_path,
            device_staging_path=staging,
            new_size=volume.desired_persistent_volume_size,
            old_size=current_size,
        )

    def _do_online_expansion(
        self, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater, options: NodeResizeOptions
    ) -> bool:
        """Expand the volume, and report whether it has the desired size now.

        DIVERGES (fault of Go): after an expansion to less than the size of the persistent volume, the kubelet checks
        the volume again with a growing backoff.
        Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).doOnlineExpansion: in the Go
        kubelet such an expansion has succeeded; as the volume is still too small, the next operation asks the API
        server a tenth of a second later.
        Why: the persistent volume may stay larger than its claim: the driver has rounded the size up, or the claim now
        requests less.
        Test:
        kubelet/volumemanager/reconciler/reconciler_test.py:test_volume_that_was_rounded_up_is_not_looked_into_all_the_time
        """
        with _failing(volume, "NodeExpandVolume.NodeExpandVolume failed"):
            expansion = self._node_expand_volume(volume, state, options)
        new_size = expansion.size
        if not expansion.done:
            return False
        with _failing(volume, "NodeExpandVolume.MarkVolumeAsResized failed"):
            if not state.mark_volume_as_resized(volume.volume_name, new_size):
                raise ValueError("unable to mark volume as resized")
        return new_size >= options.new_size

    def _expand_volume_during_mount(
        self, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater, paths: _Paths
    ) -> None:
        """Expand a volume to the size in its persistent volume before a pod gets it.

        Raise ExpansionError, or any error of the plugin, if the expansion fails.
        """
        plugin, pv = self._find_expander(volume), volume.volume_spec.persistent_volume
        if plugin is None or pv is None:
            return
        try:
            pvc = self._claim_of(pv)
        except Exception as err:
            # Whatever error the API server returns, the pod must not get the volume before it has the right size.
            raise ExpansionError(f"mountVolume.NodeExpandVolume get PVC failed : {err}") from err
        zero = Quantity(0)
        old, new = pvc.status.capacity.get(v1.RESOURCE_STORAGE, zero), pv.spec.capacity.get(v1.RESOURCE_STORAGE, zero)
        if old >= new:
            return
        if volume.volume_spec.read_only:
            self._tell_read_only(volume, pvc)
            return
        options = NodeResizeOptions(volume.volume_spec, paths.device, paths.mount, paths.staging, new, old)
        self._expand(NodeResizeOperationOpts(volume, pvc, pv, options, plugin, state))

    def _find_expander(self, volume: VolumeToMount) -> NodeExpandableVolumePlugin | None:
        spec = volume.volume_spec
        if spec.persistent_volume is None or spec.inline_volume_spec_for_csi_migration or self._kube_client is None:
            return None
        plugin = self._volume_plugin_mgr.find_node_expandable_plugin_by_spec(volume.volume_spec)
        return plugin if plugin is not None and plugin.requires_fs_resize() else None

    def _node_expand_volume(
        self, volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater, options: NodeResizeOptions
    ) -> NodeExpansion:
        """Expand the volume if it has to grow and the plugin supports that. Return its size.

        Raise ExpansionError, or any error of the plugin, if the expansion fails.
        """
        plugin, pv = self._find_expander(volume), volume.volume_spec.persistent_volume
        if plugin is None or pv is None or options.new_size <= options.old_size:
            return NodeExpansion(True, options.old_size)
        try:
            pvc = self._claim_of(pv)
        except Exception as err:
            # Whatever error the API server returns, the reconciler tries again.
            raise ExpansionError(f"mountVolume.NodeExpandVolume get PVC failed : {err}") from err
        if volume.volume_spec.read_only:
            self._tell_read_only(volume, pvc)
            return NodeExpansion(True, pvc.status.capacity.get(v1.RESOURCE_STORAGE, Quantity(0)))
        return self._expand(NodeResizeOperationOpts(volume, pvc, pv, options, plugin, state))

    def _expand(self, resize_op: NodeResizeOperationOpts) -> NodeExpansion:
        """Ask the plugin to expand the volume. Raise an error if that fails."""
        pvc = resize_op.pvc
        if not self._check_for_recovery_from_expansion(pvc, resize_op.vmt):
            done = self._legacy_call_node_expand_on_plugin(resize_op)
            return NodeExpansion(done, resize_op.plugin_resize_opts.new_size)
        allocated = pvc.status.allocated_resources.get(v1.RESOURCE_STORAGE, Quantity(0))
        options = replace(resize_op.plugin_resize_opts, new_size=allocated)
        expander = NodeExpander(replace(resize_op, plugin_resize_opts=options), self._client(), self._recorder)
        return expander.expand_on_plugin()

    def _check_for_recovery_from_expansion(self, pvc: v1.PersistentVolumeClaim, volume: VolumeToMount) -> bool:
        """Report whether the resize controller records the allocated size.

        Recovery from a failed expansion needs that size.
        """
        if pvc.status.allocated_resource_statuses.get(v1.RESOURCE_STORAGE) or pvc.status.allocated_resources:
            return True
        prefix = "MountVolume.NodeExpandVolume running with"
        klog.warning_s(volume.generate_msg_detailed(prefix, "older external resize controller"))
        return False

    def _legacy_call_node_expand_on_plugin(self, resize_op: NodeResizeOperationOpts) -> bool:
        """Ask the plugin to expand the volume, for a claim without an allocated size.

        Report whether the node has nothing more to do. Raise an error if the expansion fails.
        """
        volume, pvc, options = resize_op.vmt, resize_op.pvc, resize_op.plugin_resize_opts
        pod = klog.kobj(volume.pod)
        prefix, where = "MountVolume.NodeExpandVolume entering", f'DevicePath "{volume.device_path}"'
        klog.v(4).info_s(volume.generate_msg_detailed(prefix, where), pod=pod)
        try:
            resize_op.volume_plugin.node_expand(options)
        except volumetypes.OperationNotSupportedError:
            prefix, suffix = "MountVolume.NodeExpandVolume failed", "NodeExpandVolume not supported"
            klog.v(4).info_s(volume.generate_msg_detailed(prefix, suffix), pod=pod)
            return True
        except volumetypes.FailedPreconditionError as err:
            # The driver cannot expand the volume while it is in use on this node. The pod still gets the volume.
            resize_op.actual_state_of_world.mark_for_in_use_expansion_error(volume.volume_name)
            klog.error_s(None, str(volume.generate_error_detailed("MountVolume.NodeExapndVolume failed", err)))
            return True
        resize_op.tell_success(self._recorder)
        if pvc.status.capacity.get(v1.RESOURCE_STORAGE, Quantity(0)) < options.new_size:
            try:
                util.mark_fs_resize_finished(pvc, options.new_size, self._client())
            except Exception as err:
                # The next attempt finds that the volume is already large enough.
                raise ExpansionError(f"mountVolume.NodeExpandVolume update PVC status failed : {err}") from err
        return True

    def _tell_read_only(self, volume: VolumeToMount, pvc: v1.PersistentVolumeClaim) -> None:
        prefix, suffix = "MountVolume.NodeExpandVolume failed", "requested read-only file system"
        simple, detailed = volume.generate_msg(prefix, suffix)
        klog.warning_s(detailed)
        for obj in (volume.pod, pvc):
            self._recorder.event(obj, v1.EVENT_TYPE_WARNING, kevents.FILE_SYSTEM_RESIZE_FAILED, simple)

    # ---- Helpers ----

    def check_node_affinity(self, volume_to_mount: VolumeToMount) -> None:
        """Raise ValueError if the persistent volume's node affinity excludes this node."""
        pv = volume_to_mount.volume_spec.persistent_volume
        if pv is not None and pv.spec.node_affinity is not None:
            storagehelpers.check_node_affinity(pv, self._volume_plugin_mgr.host.get_node_labels())

    def _event_recorder(self, pods: list[v1.Pod], reason: str) -> Callable[[Exception | None], None]:
        def record_event(err: Exception | None) -> None:
            for pod in pods if err is not None else []:
                self._recorder.eventf(pod, v1.EVENT_TYPE_WARNING, reason, "%s", err)

        return record_event

    @contextlib.contextmanager
    def _telling(self, volume: VolumeToMount, prefix: str, reason: str) -> Iterator[None]:
        """Turn any error of the body into one that names the volume, and emit an event for the pod."""
        try:
            yield
        except Exception as err:
            # Plugins raise whatever error their tools and servers cause. The error is raised again after the event.
            simple, detailed = volume.generate_error(prefix, err)
            self._recorder.event(volume.pod, v1.EVENT_TYPE_WARNING, reason, str(simple))
            raise detailed from err

    def _complete_hook(
        self, spec: Spec, operation_name: str, unknown: str
    ) -> Callable[[volumetypes.CompleteFuncParam], None]:
        try:
            plugin_name = self._volume_plugin_mgr.find_plugin_by_spec(spec).get_plugin_name()
        except PluginNotFoundError:
            plugin_name = unknown  # The operation itself reports this error.
        return _hook(plugin_name, spec, operation_name)


def check_mount_option_support(volume_to_mount: VolumeToMount, plugin: VolumePlugin) -> None:
    """Raise ValueError if the volume has mount options that the plugin would ignore."""
    if util.mount_option_from_spec(volume_to_mount.volume_spec) and not plugin.supports_mount_option():
        raise ValueError("mount options are not supported for this volume type")


def is_device_opened(device_to_detach: AttachedVolume, host_util: hostutil.HostUtils) -> bool:
    """Report whether any process on the node has the device open.

    Raise OperationError, without an event for the pod, if that cannot be determined.
    """
    path = device_to_detach.device_path
    try:
        is_device = host_util.path_is_device(path)
    except FileNotFoundError:
        is_device = False
    except OSError as err:
        raise OperationError(None, device_to_detach.generate_error_detailed("PathIsDevice failed", err)) from err
    if not is_device:
        klog.v(3).info_s("The path isn't device path or doesn't exist. Skip checking device path", path=path)
        return False
    try:
        return host_util.device_opened(path)
    except OSError as err:
        raise OperationError(None, device_to_detach.generate_error_detailed("DeviceOpened failed", err)) from err


def find_detachable_plugin_by_spec(spec: Spec, volume_plugin_mgr: VolumePluginMgr) -> AttachableVolumePlugin:
    """Return the plugin that detaches the volume. Raise ValueError if there is none.

    The function does not ask the CSI plugin whether it can attach the volume, because that may have been different when
    the volume was attached.
    """
    plugin: Any = volume_plugin_mgr.find_plugin_by_spec(spec)
    if not hasattr(plugin, "new_detacher"):
        raise ValueError("the plugin detaches no volumes")
    if plugin.get_plugin_name() != _CSI_PLUGIN_NAME and not plugin.can_attach(spec):
        raise ValueError("the plugin does not attach the volume")
    return cast("AttachableVolumePlugin", plugin)


def _operation(run: Callable[[], None], spec: Spec | None = None) -> Callable[[], volumetypes.OperationContext]:
    migrated = spec is not None and spec.migrated

    def operation() -> volumetypes.OperationContext:
        try:
            run()
        except OperationError as err:
            return volumetypes.OperationContext(err.event_err, err.detailed_err, migrated)
        return volumetypes.OperationContext(migrated=migrated)

    return operation


@contextlib.contextmanager
def _failing(volume: VolumeLogger, prefix: str) -> Iterator[None]:
    """Turn any error of the body into an OperationError whose message begins with prefix."""
    try:
        yield
    except OperationError:
        raise
    except Exception as err:  # Plugins raise whatever error their tools and servers cause.
        raise _operation_error(volume, prefix, err) from err


def _operation_error(volume: VolumeLogger, prefix: str, err: Exception) -> OperationError:
    simple, detailed = volume.generate_error(prefix, err)
    simple.__cause__ = detailed.__cause__ = err
    return OperationError(simple, detailed)


@contextlib.contextmanager
def _generating(volume: VolumeLogger, prefix: str) -> Iterator[None]:
    """Turn any error of the body, which prevents the operation's start, into one that names the volume."""
    try:
        yield
    except Exception as err:  # Plugins raise whatever error their tools and servers cause.
        raise volume.generate_error_detailed(prefix, err) from err


@contextlib.contextmanager
def _logging(volume: VolumeLogger, prefix: str) -> Iterator[None]:
    """Log any error of the body and continue, because no other reaction can help."""
    try:
        yield
    except Exception as err:
        # The docstring gives the reason.
        klog.error_s(None, str(volume.generate_error_detailed(prefix, err)))


def _hook(plugin_name: str, spec: Spec, operation_name: str) -> Callable[[volumetypes.CompleteFuncParam], None]:
    name = util.get_full_qualified_plugin_name_for_volume(plugin_name, spec)
    return util.operation_complete_hook(name, operation_name)


def _mapper(plugin: BlockVolumePlugin | None) -> BlockVolumePlugin:
    if plugin is None:
        raise ValueError("failed to find BlockVolumeMapper plugin. Volume plugin is nil.")
    return plugin


def _custom_mapper(mapper: BlockVolumeMapper) -> CustomBlockVolumeMapper | None:
    return cast("CustomBlockVolumeMapper", mapper) if hasattr(mapper, "set_up_device") else None


def _custom_unmapper(unmapper: BlockVolumeUnmapper) -> CustomBlockVolumeUnmapper | None:
    return cast("CustomBlockVolumeUnmapper", unmapper) if hasattr(unmapper, "tear_down_device") else None


def _check_read_write_once_pod(volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater) -> None:
    """Raise ValueError if another pod has a volume with the ReadWriteOncePod access mode.

    The scheduler enforces this too.
    """
    pv = volume.volume_spec.persistent_volume
    # With several access modes it is unknown which one the pod relies on.
    if pv is None or pv.spec.access_modes != [v1.READ_WRITE_ONCE_POD]:
        return
    if state.is_volume_mounted_elsewhere(volume.volume_name, volume.pod_name):
        raise ValueError(_IN_USE_ELSEWHERE)


def _is_device_reconstructed(volume: VolumeToMount, state: ActualStateOfWorldMounterUpdater) -> bool:
    """Report whether the device was found on disk after a restart and has not been mounted since."""
    uncertain = state.get_device_mount_state(volume.volume_name) is DeviceMountState.DEVICE_MOUNT_UNCERTAIN
    return uncertain and state.is_volume_device_reconstructed(volume.volume_name)


def _fs_group(pod: v1.Pod) -> tuple[int | None, str | None]:
    context = pod.spec.security_context
    return (context.fs_group, context.fs_group_change_policy) if context is not None else (None, None)


def _mark_opts(
    volume: VolumeToMount,
    mounter: Mounter | None = None,
    block_volume_mapper: BlockVolumeMapper | None = None,
    selinux_mount_context: str = "",
) -> MarkVolumeOpts:
    return MarkVolumeOpts(
        pod_name=volume.pod_name,
        pod_uid=volume.pod.metadata.uid,
        volume_name=volume.volume_name,
        volume_spec=volume.volume_spec,
        mounter=mounter,
        block_volume_mapper=block_volume_mapper,
        volume_gid_volume=volume.volume_gid_value,
        volume_mount_state=VolumeMountState.VOLUME_MOUNTED,
        selinux_mount_context=selinux_mount_context,
    )


def _uncertain_opts(volume: MountedVolume) -> MarkVolumeOpts:
    return MarkVolumeOpts(
        pod_name=volume.pod_name,
        pod_uid=volume.pod_uid,
        volume_name=volume.volume_name,
        volume_spec=volume.volume_spec,
        volume_gid_volume=volume.volume_gid_value,
        volume_mount_state=VolumeMountState.VOLUME_MOUNT_UNCERTAIN,
    )


def _is_uncertain(err: Exception) -> bool:
    return isinstance(err, volumetypes.UncertainProgressError)
