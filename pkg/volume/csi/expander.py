"""Expand CSI volumes on the node.

Go: pkg/volume/csi/expander.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from pkg import klog
from pkg.api.core import v1
from pkg.util import grpcstatus
from pkg.volume import util as volumeutil
from pkg.volume.csi import csi_client, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_drivers_store import DriversStore
from pkg.volume.csi.csi_util import FS_TYPE_BLOCK_NAME, log
from pkg.volume.plugins import NodeResizeOptions, VolumeHost
from pkg.volume.util import types as volumetypes

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

_INFEASIBLE = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.NOT_FOUND}


class Expander:
    """Provide the part of CSIPlugin that expands volumes."""

    host: VolumeHost
    csi_drivers: DriversStore

    def requires_fs_resize(self) -> bool:
        return True

    def node_expand(self, resize_options: NodeResizeOptions) -> bool:
        """Ask the driver to expand the volume. Return true, or raise an error.

        Raise types.OperationNotSupportedError, FailedPreconditionError if the driver cannot expand a volume in use,
        InfeasibleError, UncertainProgressError, TransientOperationFailure if the driver is not registered, and
        DriverCallError for any other error of the driver.
        """
        klog.v(4).info_s(log(f"Expander.NodeExpand({resize_options.device_mount_path})"))
        try:
            source = csi_util.get_csi_source_from_spec(resize_options.volume_spec)
        except ValueError as err:
            raise ValueError(log(f"Expander.NodeExpand failed to get CSI persistent source: {err}")) from err
        try:
            client = csi_client.new_csi_driver_client(self.csi_drivers, source.driver)
        except csierrors.UnknownDriverError as err:
            # The driver may be about to register again (kubernetes issue 120268).
            raise volumetypes.TransientOperationFailure(str(err)) from err
        try:
            fs_volume = volumeutil.check_volume_mode_filesystem(resize_options.volume_spec)
        except ValueError as err:
            raise ValueError(log(f"Expander.NodeExpand failed to check VolumeMode of source: {err}")) from err
        return self._node_expand_with_client(resize_options, source, client, fs_volume)

    def _node_expand_with_client(
        self,
        resize_options: NodeResizeOptions,
        source: v1.CSIPersistentVolumeSource,
        client: csi_client.CSIDriverClient,
        fs_volume: bool,
    ) -> bool:
        ctx, cancel = csi_util.create_csi_operation_context(resize_options.volume_spec, csi_util.CSI_TIMEOUT)
        try:
            with csi_util.before_the_driver_acts():
                try:
                    supported = client.node_supports_node_expand(ctx)
                except Exception as err:
                    # Whatever the error is, no operation has started.
                    message = f"Expander.NodeExpand failed to check if node supports expansion : {err}"
                    raise csierrors.DriverCallError(message) from err
            if not supported:
                raise volumetypes.OperationNotSupportedError(
                    f"NodeExpand is not supported by the CSI driver {source.driver}"
                )
            with csi_util.before_the_driver_acts():
                options = self._resize_options(resize_options, source, fs_volume)
            try:
                client.node_expand_volume(ctx, options)
            except (grpcstatus.StatusError, volumetypes.UncertainProgressError) as err:
                raise _expansion_error(err) from err
        finally:
            cancel()
        return True

    def _resize_options(
        self, resize_options: NodeResizeOptions, source: v1.CSIPersistentVolumeSource, fs_volume: bool
    ) -> csi_client.CSIResizeOptions:
        volume = resize_options.volume_spec.persistent_volume
        assert volume is not None, "only persistent volumes have such a source"
        secrets: dict[str, str] = {}
        if source.node_expand_secret_ref is not None:
            secrets = self._expand_secrets(source.node_expand_secret_ref)
        return csi_client.CSIResizeOptions(
            volume_id=source.volume_handle,
            # A block device has no mount path.
            volume_path=resize_options.device_mount_path if fs_volume else resize_options.device_path,
            staging_target_path=resize_options.device_staging_path,
            fs_type=source.fs_type if fs_volume else FS_TYPE_BLOCK_NAME,
            access_mode=next(iter(volume.spec.access_modes), v1.READ_WRITE_ONCE),
            new_size=resize_options.new_size,
            mount_options=volume.spec.mount_options,
            secrets=secrets,
        )

    def _expand_secrets(self, reference: v1.SecretReference) -> dict[str, str]:
        client: kubernetes.Interface | None = self.host.get_kube_client()
        assert client is not None, "persistent CSI volumes need an API server"
        try:
            return csi_util.get_credentials_from_secret(client, reference)
        except csierrors.SecretError as err:
            raise csierrors.SecretError(
                f"expander.NodeExpand failed to get NodeExpandSecretRef {reference.namespace}/{reference.name}: {err}"
            ) from err


def in_use_error(err: Exception) -> bool:
    """Report whether the driver cannot expand a volume that is in use."""
    return grpcstatus.code(err) is grpc.StatusCode.FAILED_PRECONDITION


def is_infeasible_error(err: Exception) -> bool:
    """Report whether the driver can never expand the volume as requested. All such errors are final."""
    return grpcstatus.code(err) in _INFEASIBLE


def _expansion_error(err: Exception) -> Exception:
    what = "Expander.NodeExpand failed to expand the volume"
    if in_use_error(err):
        return volumetypes.FailedPreconditionError(f"{what} : {err}")
    if is_infeasible_error(err):
        return volumetypes.InfeasibleError(f"{what} {err}")
    if isinstance(err, volumetypes.UncertainProgressError):
        return volumetypes.UncertainProgressError(f"{what} : {err}")
    return csierrors.DriverCallError(f"{what} : {err}")
