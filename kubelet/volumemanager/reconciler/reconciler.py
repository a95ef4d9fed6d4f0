"""Makes the actual state the desired one.

Go: pkg/kubelet/volumemanager/reconciler/reconciler.go, reconciler_common.go
"""

from __future__ import annotations

from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from kubelet.volumemanager.populator import DesiredStateOfWorldPopulator
from kubelet.volumemanager.reconciler.reconstruct import volumes_on_disk
from pkg import klog
from pkg.volume import VolumePluginMgr
from pkg.volume.util.operationexecutor.simple_executor import OperationExecutor


class Reconciler:
    """reconcile() starts what is needed and never waits for it; called from the volume manager's thread."""

    def __init__(
        self,
        desired: DesiredStateOfWorld,
        actual: ActualStateOfWorld,
        populator: DesiredStateOfWorldPopulator,
        operation_executor: OperationExecutor,
        plugins: VolumePluginMgr,
        pods_dir: str,
    ) -> None:
        self._desired = desired
        self._actual = actual
        self._populator = populator
        self._operation_executor = operation_executor
        self._plugins = plugins
        self._pods_dir = pods_dir

    def reconstruct(self) -> None:
        """Fill the actual state from the disk: what a kubelet before us set up. Called once, before reconcile."""
        for volume in volumes_on_disk(self._pods_dir, self._plugins):
            klog.v(2).info_s("Reconstructed volume", volumeName=volume.volume_name, podUID=volume.pod_name)
            self._actual.mark_volume_as_mounted(volume)

    def reconcile(self) -> bool:
        """One round. Whether the two states still differ, so that another round must follow."""
        pending = False
        if self._populator.has_added_pods():
            pending = self._unmount_volumes()
        return self._mount_volumes() or pending

    def _unmount_volumes(self) -> bool:
        pending = False
        for volume in self._actual.get_all_mounted_volumes():
            if self._desired.pod_exists_in_volume(volume.pod_name, volume.volume_name):
                continue
            pending = True
            if not self._operation_executor.is_operation_pending(volume.volume_name, volume.pod_name):
                self._operation_executor.unmount_volume(volume, self._actual, self._pods_dir)
        return pending

    def _mount_volumes(self) -> bool:
        pending = False
        for volume in self._desired.get_volumes_to_mount():
            if self._actual.is_volume_mounted(volume.pod_name, volume.volume_name):
                continue
            pending = True
            if not self._operation_executor.is_operation_pending(volume.volume_name, volume.pod_name):
                self._operation_executor.mount_volume(volume, self._actual)
        return pending
