"""Expand a volume on the node in such a way that the controller can revert a failed expansion.

Go: pkg/volume/util/operationexecutor/node_expander.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import events as kevents
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.volume import util
from pkg.volume.plugins import NodeExpandableVolumePlugin, NodeResizeOptions
from pkg.volume.util import types as volumetypes
from pkg.volume.util.operationexecutor.operation_executor import ActualStateOfWorldMounterUpdater, VolumeToMount

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record

_STATUSES_TO_EXPAND = (
    v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_PENDING,
    v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_IN_PROGRESS,
)


@dataclass(frozen=True, slots=True)
class NodeResizeOperationOpts:
    """Describe an expansion of a volume.

    Go: pkg/volume/util/operationexecutor/operation_generator.go, nodeResizeOperationOpts
    """

    vmt: VolumeToMount
    pvc: v1.PersistentVolumeClaim
    pv: v1.PersistentVolume
    plugin_resize_opts: NodeResizeOptions
    volume_plugin: NodeExpandableVolumePlugin
    actual_state_of_world: ActualStateOfWorldMounterUpdater

    def tell_success(self, recorder: record.EventRecorder) -> None:
        prefix = "MountVolume.NodeExpandVolume succeeded"
        simple, detailed = self.vmt.generate_msg(prefix, self.vmt.pod.spec.node_name)
        for obj in (self.vmt.pod, self.pvc):
            recorder.event(obj, v1.EVENT_TYPE_NORMAL, kevents.FILE_SYSTEM_RESIZE_SUCCESS, simple)
        klog.info_s(detailed, pod=klog.kobj(self.vmt.pod))


@dataclass(slots=True)
class TestResponseData:
    """Record what the expander did, for tests."""

    __test__ = False

    resize_called_on_plugin: bool = False
    # `assume_resize_finished` is also true if there was nothing to do, or if a retry would not help.
    assume_resize_finished: bool = False


class ExpansionError(Exception):
    """Signal that the claim of a volume that must be expanded cannot be read or written. The operation is retried."""


@dataclass(frozen=True, slots=True)
class NodeExpansion:
    """Describe the result of an attempt to expand a volume."""

    done: bool
    # `size` is the size that the volume has now.
    size: Quantity


class NodeExpander:
    """Expand one volume, once."""

    def __init__(
        self, resize_op: NodeResizeOperationOpts, client: kubernetes.Interface, recorder: record.EventRecorder
    ) -> None:
        self._op = resize_op
        self._kube_client = client
        self._recorder = recorder
        self._pvc = resize_op.pvc
        self._resize_status = ""
        # The claim now requests another size, so after a failure the controller reverts this expansion.
        self._mark_expansion_infeasible_on_failure = False
        # The claim's status already shows the new size: another node or the controller was faster.
        self.pvc_already_updated = False
        self.test_status = TestResponseData()

    def run_pre_check(self) -> bool:
        """Report whether the volume must be expanded on this node now."""
        status, new_size = self._pvc.status, self._op.plugin_resize_opts.new_size
        self._resize_status = status.allocated_resource_statuses.get(v1.RESOURCE_STORAGE, "")
        zero = Quantity(0)
        wanted = self._pvc.spec.resources.requests.get(v1.RESOURCE_STORAGE, zero)
        state, name = self._op.actual_state_of_world, self._op.vmt.volume_name
        if wanted != new_size and state.check_volume_in_failed_expansion_with_final_errors(name):
            self._mark_expansion_infeasible_on_failure = True
        if status.capacity.get(v1.RESOURCE_STORAGE, zero) >= new_size and not self._resize_status:
            self.pvc_already_updated = True
        # A volume that several nodes use must be expanded on each of them.
        shared = v1.READ_WRITE_MANY in self._pvc.spec.access_modes
        not_required = volumetypes.NODE_EXPANSION_NOT_REQUIRED in self._pvc.metadata.annotations
        if self.pvc_already_updated and shared and not not_required:
            return True
        return self._resize_status in _STATUSES_TO_EXPAND

    def expand_on_plugin(self) -> NodeExpansion:
        """Expand the volume if it must be expanded now. Raise any error of the plugin or the API server."""
        options = self._op.plugin_resize_opts
        if not self.run_pre_check():
            self.test_status = TestResponseData(assume_resize_finished=True)
            if self.pvc_already_updated:
                return NodeExpansion(True, options.new_size)
            klog.v(3).info_s(
                "NodeExpandVolume is not allowed to proceed for volume",
                volumeName=self._op.vmt.volume_name,
                resizeStatus=self._resize_status,
            )
            return NodeExpansion(False, options.old_size)
        if not self.pvc_already_updated:
            self._mark_in_progress()
        try:
            self._op.volume_plugin.node_expand(options)
        except Exception as err:  # A driver may raise any error, and some errors do not mean a failure.
            return self._handle_failure(err)
        self._op.tell_success(self._recorder)
        self.test_status = TestResponseData(resize_called_on_plugin=True, assume_resize_finished=True)
        if not self.pvc_already_updated:
            try:
                self._pvc = util.mark_node_expansion_finished_with_recovery(
                    self._pvc, options.new_size, self._kube_client
                )
            except Exception as err:
                # Whatever error the API server returns, the next attempt finds that the volume is already large enough.
                raise ExpansionError(f"mountVolume.NodeExpandVolume update pvc status failed: {err}") from err
        return NodeExpansion(True, options.new_size)

    def _mark_in_progress(self) -> None:
        try:
            self._pvc = util.mark_node_expansion_in_progress(self._pvc, self._kube_client)
        except Exception as err:
            prefix = "MountVolume.NodeExpandVolume failed to mark node expansion in progress"
            klog.error_s(None, str(self._op.vmt.generate_error_detailed(prefix, err)))
            raise

    def _handle_failure(self, err: Exception) -> NodeExpansion:
        volume, options = self._op.vmt, self._op.plugin_resize_opts
        if isinstance(err, volumetypes.OperationNotSupportedError) and self.pvc_already_updated:
            # The driver has nothing to do on nodes. It was called only because several nodes share the volume
            # (kubernetes issue 131381).
            prefix, suffix = "MountVolume.NodeExpandVolume failed", "NodeExpandVolume not supported"
            klog.v(4).info_s(volume.generate_msg_detailed(prefix, suffix), pod=klog.kobj(volume.pod))
            self.test_status = TestResponseData(assume_resize_finished=True)
            return NodeExpansion(True, options.new_size)
        if volumetypes.is_operation_finished_error(err):
            self._mark_failed(err)
        self.test_status = TestResponseData(resize_called_on_plugin=True, assume_resize_finished=True)
        if isinstance(err, volumetypes.FailedPreconditionError):
            # The driver cannot expand the volume while it is in use on this node. The pod still gets the volume.
            self._op.actual_state_of_world.mark_for_in_use_expansion_error(volume.volume_name)
            klog.error_s(None, str(volume.generate_error_detailed("MountVolume.NodeExapndVolume failed", err)))
            return NodeExpansion(False, options.old_size)
        raise err

    def _mark_failed(self, err: Exception) -> None:
        self._op.actual_state_of_world.mark_volume_expansion_failed_with_final_error(self._op.vmt.volume_name)
        infeasible = isinstance(err, volumetypes.InfeasibleError) or self._mark_expansion_infeasible_on_failure
        mark = util.mark_node_expansion_infeasible if infeasible else util.mark_node_expansion_failed_condition
        try:
            self._pvc = mark(self._pvc, self._kube_client, err)
        except Exception as mark_err:  # The driver's error is the one to report.
            prefix = "MountMount.NodeExpandVolume failed to mark node expansion as failed"
            klog.error_s(None, str(self._op.vmt.generate_error_detailed(prefix, mark_err)))
