"""Map CSI volumes that pods use as block devices.

The files of a volume, below plugins/kubernetes.io/csi/volumeDevices:

    staging/<name>          the path where the driver stages the volume, if it stages volumes
    publish/<name>/<pod>    the device that the driver creates when it publishes the volume for a pod
    <name>/data             the directory of the volume's data file
    <name>/dev              links to the device, one for each pod, which the volume manager creates

The pod's directory has volumeDevices/kubernetes.io~csi/<name>, a link to the device.

Go: pkg/volume/csi/csi_block.go
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.util import filesystem, removeall
from pkg.volume.csi import csi_attacher, csi_client, csi_metrics, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_util import CSI_PLUGIN_NAME, CSI_TIMEOUT, FS_TYPE_BLOCK_NAME, log
from pkg.volume.plugins import Spec
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import Metrics

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.volume.csi.csi_plugin import CSIPlugin

# These directories are next to the volumes' own directories.
STAGING_DIR = "staging"
PUBLISH_DIR = "publish"


class CSIBlockMapper:
    """Map and unmap a block device for one pod. Only one thread at a time may use an instance."""

    def __init__(
        self,
        plugin: CSIPlugin,
        driver_name: str,
        volume_id: str,
        spec_name: str,
        pod_uid: types.UID,
        csi_client_getter: csi_client.CSIClientGetter,
        *,
        spec: Spec | None = None,
        pod: v1.Pod | None = None,
        read_only: bool = False,
    ) -> None:
        """Create a mapper, or an unmapper if spec and pod are None.

        spec_name is the volume's name in the spec, and volume_id is the driver's handle for it.
        """
        self.csi_client_getter = csi_client_getter
        self._plugin = plugin
        self._driver_name = driver_name
        self._volume_id = volume_id
        self._spec_name = spec_name
        self._pod_uid = pod_uid
        self._spec = spec
        self._pod = pod
        self._read_only = read_only

    def get_metrics(self) -> Metrics:
        """Return the usage of the volume. Raise the errors of MetricsCSI.get_metrics."""
        path = os.path.join(csi_util.get_volume_device_plugin_dir(self._spec_name, self._plugin.host), self._pod_uid)
        return csi_metrics.MetricsCSI(self._volume_id, path, self.csi_client_getter).get_metrics()

    def get_global_map_path(self, spec: Spec) -> str:
        """Return the directory of links to the device."""
        path = csi_util.get_volume_device_plugin_dir(self._spec_name, self._plugin.host)
        klog.v(4).info_s(log(f"blockMapper.GetGlobalMapPath = {path}"))
        return path

    def get_staging_path(self) -> str:
        """Return the path where the driver stages the volume."""
        devices = self._plugin.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME)
        return os.path.join(devices, STAGING_DIR, self._spec_name)

    def supports_metrics(self) -> bool:
        return True

    def _get_publish_dir(self) -> str:
        """Return the directory in which the driver publishes the volume, with one entry for each pod."""
        devices = self._plugin.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME)
        return os.path.join(devices, PUBLISH_DIR, self._spec_name)

    def _get_publish_path(self) -> str:
        return os.path.join(self._get_publish_dir(), self._pod_uid)

    def get_pod_device_map_path(self) -> tuple[str, str]:
        """Return the pod's directory of devices, and the name of the link in it."""
        name = csi_util.escape_qualified_name(CSI_PLUGIN_NAME)
        path = self._plugin.host.get_pod_volume_device_dir(self._pod_uid, name)
        klog.v(4).info_s(log(f"blockMapper.GetPodDeviceMapPath [path={path}; name={self._spec_name}]"))
        return path, self._spec_name

    def _stage_volume_for_block(
        self,
        ctx: golang.Context,
        client: csi_client.CSIDriverClient,
        access_mode: str,
        source: v1.CSIPersistentVolumeSource,
        publish_context: dict[str, str],
    ) -> str:
        """Ask the driver to stage the device. Return the path, or "" if the driver does not support staging."""
        klog.v(4).info_s(log("blockMapper.stageVolumeForBlock called"))
        staging_path = self.get_staging_path()
        with csi_util.before_the_driver_acts():
            try:
                stages = client.node_supports_stage_unstage(ctx)
            except Exception as err:
                # Whatever the error is, no operation has started.
                raise csierrors.DriverCallError(
                    log(f"blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: {err}")
                ) from err
            if not stages:
                klog.info_s(
                    log(
                        "blockMapper.stageVolumeForBlock STAGE_UNSTAGE_VOLUME capability not set. "
                        "Skipping MountDevice..."
                    )
                )
                return ""
            secrets = self._secrets(
                source.node_stage_secret_ref, "blockMapper.stageVolumeForBlock failed to get NodeStageSecretRef"
            )
            try:
                filesystem.mkdir_all(staging_path, 0o750)
            except OSError as err:
                raise OSError(
                    log(f"blockMapper.stageVolumeForBlock failed to create dir {staging_path}: {err}")
                ) from err
        client.node_stage_volume(
            ctx,
            source.volume_handle,
            publish_context,
            staging_path,
            FS_TYPE_BLOCK_NAME,
            access_mode,
            secrets,
            source.volume_attributes,
            [],
            None,
        )
        klog.v(4).info_s(
            log(f"blockMapper.stageVolumeForBlock successfully requested NodeStageVolume [{staging_path}]")
        )
        return staging_path

    def _publish_volume_for_block(
        self,
        ctx: golang.Context,
        client: csi_client.CSIDriverClient,
        access_mode: str,
        source: v1.CSIPersistentVolumeSource,
        publish_context: dict[str, str],
    ) -> str:
        """Ask the driver to publish the device in the volume's directory. Return the device's path."""
        klog.v(4).info_s(log("blockMapper.publishVolumeForBlock called"))
        with csi_util.before_the_driver_acts():
            attributes = source.volume_attributes | self._pod_info()
            secrets = self._secrets(
                source.node_publish_secret_ref, "blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef"
            )
            publish_path = self._get_publish_path()
            publish_dir = os.path.dirname(publish_path)
            try:
                filesystem.mkdir_all(publish_dir, 0o750)
            except OSError as err:
                raise OSError(
                    log(f"blockMapper.publishVolumeForBlock failed to create dir {publish_dir}:  {err}")
                ) from err
        client.node_publish_volume(
            ctx,
            self._volume_id,
            self._read_only,
            self.get_staging_path(),
            publish_path,
            access_mode,
            publish_context,
            attributes,
            secrets,
            FS_TYPE_BLOCK_NAME,
            [],
            None,
        )
        return publish_path

    def _pod_info(self) -> dict[str, str]:
        assert self._pod is not None, "an unmapper publishes nothing"
        try:
            if not self._plugin.pod_info_enabled(self._driver_name):
                return {}
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            raise volumetypes.TransientOperationFailure(
                log(f"blockMapper.publishVolumeForBlock failed to assemble volume attributes: {err}")
            ) from err
        return csi_util.get_pod_info_attrs(self._pod, storagev1.VOLUME_LIFECYCLE_PERSISTENT)

    def _secrets(self, reference: v1.SecretReference | None, what: str) -> dict[str, str]:
        if reference is None:
            return {}
        try:
            return csi_util.get_credentials_from_secret(self._kube_client(), reference)
        except csierrors.SecretError as err:
            raise volumetypes.TransientOperationFailure(
                log(f"{what} {reference.namespace}/{reference.name}: {err}")
            ) from err

    def _kube_client(self) -> kubernetes.Interface:
        k8s = self._plugin.host.get_kube_client()
        assert k8s is not None, "new_block_volume_mapper requires a client"
        return k8s

    def set_up_device(self, reconstructed_volume: bool = False) -> str:
        """Ask the driver to stage the device. Return the path, or "" if the driver does not support staging.

        Raise types.TransientOperationFailure, UncertainProgressError, or another error, which is final.
        """
        klog.v(4).info_s(log("blockMapper.SetUpDevice called"))
        with csi_util.before_the_driver_acts():
            source, access_mode = self._source("blockMapper.SetUpDevice")
            publish_context = self._publish_context(source, "blockMapper.SetupDevice")
        client = self.csi_client_getter.get_for("blockMapper.SetUpDevice")
        ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
        try:
            return self._stage_volume_for_block(ctx, client, access_mode, source, publish_context)
        except Exception as err:
            # DIVERGES (fault of Go): the kubelet keeps the files of a device that was staged before the kubelet started
            # if staging it again fails.
            # Go: pkg/volume/csi/csi_block.go, (*csiBlockMapper).SetUpDevice: the Go kubelet removes the files after a
            # final error, as far as their directories are empty.
            # Why: without its files the device would later be detached without having been unstaged.
            # Test: csi_block_test.py:test_device_that_was_staged_before_a_restart_is_unstaged_whatever_the_driver_says
            if volumetypes.is_operation_finished_error(err) and not reconstructed_volume:
                self._try_cleanup()
            raise
        finally:
            cancel()

    def map_pod_device(self) -> str:
        """Ask the driver to publish the device for the pod. Return its path. Raise the errors of set_up_device."""
        klog.v(4).info_s(log("blockMapper.MapPodDevice called"))
        with csi_util.before_the_driver_acts():
            source, access_mode = self._source("blockMapper.MapPodDevice")
            publish_context = self._publish_context(source, "blockMapper.MapPodDevice")
        client = self.csi_client_getter.get_for("blockMapper.MapPodDevice")
        ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
        try:
            return self._publish_volume_for_block(ctx, client, access_mode, source, publish_context)
        finally:
            cancel()

    def _source(self, caller: str) -> tuple[v1.CSIPersistentVolumeSource, str]:
        """Return the volume's source and access mode."""
        if self._spec is None or self._spec.persistent_volume is None:
            raise ValueError(log(f"{caller} spec is nil"))
        try:
            source = csi_util.get_csi_source_from_spec(self._spec)
        except ValueError as err:
            raise ValueError(log(f"{caller} failed to get CSI persistent source: {err}")) from err
        return source, next(iter(self._spec.persistent_volume.spec.access_modes), v1.READ_WRITE_ONCE)

    def _publish_context(self, source: v1.CSIPersistentVolumeSource, caller: str) -> dict[str, str]:
        """Return what the driver's controller recorded at the attachment."""
        try:
            if self._plugin.skip_attach(source.driver):
                return {}
        except Exception as err:
            # Whatever the error is, no operation has started.
            raise csierrors.DriverCallError(
                log(f"{caller} failed to check CSIDriver for {source.driver}: {err}")
            ) from err
        name = csi_attacher.get_attachment_name(source.volume_handle, source.driver, self._plugin.host.get_node_name())
        try:
            attachment = self._kube_client().storage_v1.volume_attachments().get(golang.background(), name)
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            raise volumetypes.TransientOperationFailure(
                log(f"{caller} failed to get volume attachment [id={name}]: {err}")
            ) from err
        return attachment.status.attachment_metadata

    def _unpublish_volume_for_block(
        self, ctx: golang.Context, client: csi_client.CSIDriverClient, publish_path: str
    ) -> None:
        try:
            client.node_unpublish_volume(ctx, self._volume_id, publish_path)
        except Exception as err:
            # Whatever the error is, the unmap is retried until it succeeds.
            raise csierrors.DriverCallError(log(f"blockMapper.unpublishVolumeForBlock failed: {err}")) from err
        klog.v(4).info_s(log(f"blockMapper.unpublishVolumeForBlock NodeUnpublished successfully [{publish_path}]"))

    def _unstage_volume_for_block(
        self, ctx: golang.Context, client: csi_client.CSIDriverClient, staging_path: str
    ) -> None:
        try:
            stages = client.node_supports_stage_unstage(ctx)
        except Exception as err:
            # Whatever the error is, the unmap is retried until it succeeds.
            raise csierrors.DriverCallError(
                log(f"blockMapper.unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: {err}")
            ) from err
        if not stages:
            klog.info_s(
                log(
                    "blockMapper.unstageVolumeForBlock STAGE_UNSTAGE_VOLUME capability not set. "
                    "Skipping unstageVolumeForBlock ..."
                )
            )
            return
        try:
            client.node_unstage_volume(ctx, self._volume_id, staging_path)
        except Exception as err:
            # Whatever the error is, the unmap is retried until it succeeds.
            raise csierrors.DriverCallError(log(f"blockMapper.unstageVolumeForBlock failed: {err}")) from err
        klog.v(4).info_s(log(f"blockMapper.unstageVolumeForBlock NodeUnstageVolume successfully [{staging_path}]"))
        try:
            # DIVERGES (safer): the kubelet removes nothing if the driver has left something mounted in the staging
            # directory.
            # Go: pkg/volume/csi/csi_block.go, (*csiBlockMapper).unstageVolumeForBlock: the Go kubelet removes the
            # directory with its content, including mounts.
            # Why: a faulty driver would make the kubelet delete the files of the volume.
            # Test: csi_block_test.py:test_what_a_driver_has_left_mounted_is_not_emptied
            removeall.remove_all_one_filesystem(self._plugin.host.get_mounter(), staging_path)
        except OSError as err:
            raise OSError(
                log(
                    "blockMapper.unstageVolumeForBlock failed to remove staging path after NodeUnstageVolume() error "
                    f"[{staging_path}]: {err}"
                )
            ) from err

    def tear_down_device(self, map_path: str, device_path: str) -> None:
        """Ask the driver to unstage the device, and remove its files.

        Raise types.TransientOperationFailure if the driver is not registered, CSIError or OSError.
        """
        staging_path = self.get_staging_path()
        # `exists` raises OSError if it cannot determine whether the path exists.
        if filesystem.exists(staging_path):
            client = self.csi_client_getter.get_for("blockMapper.TearDownDevice")
            ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
            try:
                self._unstage_volume_for_block(ctx, client, staging_path)
            finally:
                cancel()
        else:
            what = f"stagingPath({staging_path}) has already been deleted, skip calling NodeUnstageVolume"
            klog.v(4).info_s(log(f"blockMapper.TearDownDevice {what}"))
        self._try_cleanup()

    def _try_cleanup(self) -> None:
        try:
            self._cleanup_orphan_device_files()
        except OSError as err:
            klog.v(4).info_s("Failed to clean up block volume directory", err=err)

    def _cleanup_orphan_device_files(self) -> None:
        """Remove the files of a volume that no pod has any more. Raise OSError at the first file still in use."""
        for what, path in (
            ("remove publish directory", self._get_publish_dir()),
            ("delete volume staging path", self.get_staging_path()),
        ):
            try:
                removeall.remove(path)
            except FileNotFoundError:
                pass
            except OSError as err:
                raise OSError(log(f"failed to {what} [{path}]: {err}")) from err
        # DIVERGES (fault of Go): from the directory of a block volume, the kubelet removes only the files of that
        # volume.
        # Go: pkg/volume/csi/csi_block.go, (*csiBlockMapper).cleanupOrphanDeviceFiles: the Go kubelet removes the
        # directory with its content.
        # Why: if a persistent volume has the name "staging" or "publish", its directory has the files of all other
        # volumes.
        # Test: csi_block_test.py:test_volume_with_the_name_of_a_directory_leaves_the_files_of_others
        host = self._plugin.host
        for directory in (
            csi_util.get_volume_device_plugin_dir(self._spec_name, host),
            csi_util.get_volume_device_data_dir(self._spec_name, host),
        ):
            removeall.remove_all_one_filesystem(host.get_mounter(), directory)
        removeall.remove(csi_util.get_volume_plugin_dir(self._spec_name, host))

    def unmap_pod_device(self) -> None:
        """Ask the driver to unpublish the device, even if no device exists: the driver may still be publishing it.

        Raise types.TransientOperationFailure if the driver is not registered, or CSIError.
        """
        client = self.csi_client_getter.get_for("blockMapper.UnmapPodDevice")
        ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
        try:
            self._unpublish_volume_for_block(ctx, client, self._get_publish_path())
        finally:
            cancel()
