"""Wait for the attachment of CSI volumes, and ask drivers to stage them on the node.

Go: pkg/volume/csi/csi_attacher.go
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery.api import errors as apierrors
from pkg.util import filesystem
from pkg.volume.csi import csi_client, csi_mount_dir, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_util import CSI_TIMEOUT, VOL_DATA_FILE_NAME, VolDataKey, log
from pkg.volume.plugins import Spec
from pkg.volume.util import selinux
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import DeviceMounterArgs

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.volume.csi.csi_plugin import CSIPlugin

GLOBAL_MOUNT_IN_GLOBAL_PATH = "globalmount"


@dataclass(frozen=True, slots=True)
class _MountOptions:
    options: list[str]
    has_selinux_label: bool


class CSIAttacher:
    """Serve as attacher, detacher, device mounter and device unmounter of all drivers.

    Every method is safe from any thread.
    """

    def __init__(self, plugin: CSIPlugin, k8s: kubernetes.Interface, watch_timeout: float = CSI_TIMEOUT) -> None:
        """Create an attacher; watch_timeout limits, in seconds, the calls of one mount together."""
        self._plugin = plugin
        self._k8s = k8s
        self._watch_timeout = watch_timeout
        # Tests set this field. If it is None, the client of the registered driver is used.
        self.csi_client: csi_client.CSIDriverClient | None = None

    def attach(self, spec: Spec, node_name: str) -> str:
        """Raise NotImplementedError, because the attach/detach controller attaches volumes."""
        raise NotImplementedError("attaching volumes from the kubelet is not supported")

    def wait_for_attach(self, spec: Spec, device_path: str, pod: v1.Pod, timeout: float) -> str:
        """Return the name of the volume's attachment. Raise errors.NotAttachedError if the volume is not attached.

        The method does not wait or watch: the caller retries it (kubernetes issue 124398).
        """
        try:
            source = csi_util.get_pv_source_from_spec(spec)
        except ValueError as err:
            raise ValueError(log(f"attacher.WaitForAttach failed to extract CSI volume source: {err}")) from err
        handle = source.volume_handle
        name = get_attachment_name(handle, source.driver, self._plugin.host.get_node_name())
        try:
            attachment = self._k8s.storage_v1.volume_attachments().get(golang.background(), name)
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            klog.error_s(err, log(f"attacher.WaitForAttach failed for volume [{handle}] (will continue to try)"))
            raise csierrors.NotAttachedError(
                f"volume {handle} has GET error for volume attachment {name}: {err}"
            ) from err
        if not verify_attachment_status(attachment, handle):
            klog.error_s(
                None, log(f"attacher.WaitForAttach failed for volume [{handle}] attached (will continue to try)")
            )
            raise csierrors.NotAttachedError(f"volume {handle} is not attached for volume attachment {name}")
        return attachment.metadata.name

    def volumes_are_attached(self, specs: list[Spec], node_name: str) -> dict[str, bool]:
        klog.v(4).info_s(log(f"probing attachment status for {len(specs)} volume(s) "))
        return {spec.name(): self._is_attached(spec, node_name) for spec in specs}

    def _is_attached(self, spec: Spec, node_name: str) -> bool:
        try:
            source = csi_util.get_pv_source_from_spec(spec)
        except ValueError as err:
            klog.error_s(err, log("attacher.VolumesAreAttached failed to get CSIPersistentVolumeSource"))
            return False
        try:
            if self._plugin.skip_attach(source.driver):
                # A volume that needs no attachment counts as attached.
                return True
        except (apierrors.StatusError, csierrors.CSIError, TimeoutError) as err:
            klog.error_s(err, log(f"Failed to check CSIDriver for {source.driver}"))
        name = get_attachment_name(source.volume_handle, source.driver, node_name)
        try:
            attachment = self._k8s.storage_v1.volume_attachments().get(golang.background(), name)
        except Exception as err:
            # Whatever error the API server returns, the caller asks again.
            klog.error_s(err, log(f"attacher.VolumesAreAttached failed for attach.ID={name}"))
            return False
        return attachment.status.attached

    def get_device_mount_path(self, spec: Spec) -> str:
        """Return the staging path. Raise ValueError if the volume is not a persistent CSI volume."""
        klog.v(4).info_s(log(f"attacher.GetDeviceMountPath for volume({spec.name()})"))
        try:
            path = make_device_mount_path(self._plugin, spec)
        except ValueError as err:
            raise ValueError(log(f"attacher.GetDeviceMountPath failed to make device mount path: {err}")) from err
        klog.v(4).info_s("attacher.GetDeviceMountPath succeeded", deviceMountPath=path)
        return path

    def mount_device(self, spec: Spec, device_path: str, device_mount_path: str, args: DeviceMounterArgs) -> None:
        """Ask the driver to stage the volume, if the driver supports staging.

        Raise types.TransientOperationFailure, UncertainProgressError, or another error, which is final.
        """
        klog.v(4).info_s(log(f"attacher.MountDevice({device_path}, {device_mount_path})"))
        if not device_mount_path:
            raise ValueError(log("attacher.MountDevice failed, deviceMountPath is empty"))
        try:
            source = csi_util.get_pv_source_from_spec(spec)
        except ValueError as err:
            raise ValueError(log(f"attacher.MountDevice failed to get CSIPersistentVolumeSource: {err}")) from err
        client = self._client(source.driver, "attacher.MountDevice")
        ctx, cancel = csi_util.create_csi_operation_context(spec, self._watch_timeout)
        try:
            self._stage(ctx, client, spec, source, device_mount_path, args)
        finally:
            cancel()

    def _client(self, driver_name: str, caller: str) -> csi_client.CSIDriverClient:
        if self.csi_client is not None:
            return self.csi_client
        try:
            return csi_client.new_csi_driver_client(self._plugin.csi_drivers, driver_name)
        except csierrors.UnknownDriverError as err:
            # The driver may be about to register, for the first time or again (kubernetes issue 120268).
            raise volumetypes.TransientOperationFailure(
                log(f"{caller} failed to create newCsiDriverClient: {err}")
            ) from err

    def _stage(
        self,
        ctx: golang.Context,
        client: csi_client.CSIDriverClient,
        spec: Spec,
        source: v1.CSIPersistentVolumeSource,
        device_mount_path: str,
        args: DeviceMounterArgs,
    ) -> None:
        with csi_util.before_the_driver_acts():
            stages = client.node_supports_stage_unstage(ctx)
            publish_context = self._publish_context(source)
            secrets = self._stage_secrets(source) if stages else {}
            mount_options = self._mount_options(spec, args.selinux_label)
            try:
                # DIVERGES (safer): the kubelet does not access a staging directory on which something is mounted, and
                # leaves the directory to the driver.
                # Go: pkg/volume/csi/csi_attacher.go, (*csiAttacher).MountDevice: the Go kubelet accesses the directory,
                # and fails while the server or daemon of that mount is gone.
                # Why: only the driver can mount the volume again.
                # Test: csi_attacher_test.py:test_mount_that_is_broken_is_left_to_the_driver
                if not csi_mount_dir.is_dir_mounted(self._plugin, device_mount_path):
                    filesystem.mkdir_all_with_path_check(device_mount_path, 0o750)
            except OSError as err:
                raise OSError(log(f'attacher.MountDevice failed to create dir "{device_mount_path}":  {err}')) from err
            klog.v(4).info_s(log(f"created target path successfully [{device_mount_path}]"))
            if not stages:
                klog.info_s(
                    log("attacher.MountDevice STAGE_UNSTAGE_VOLUME capability not set. Skipping MountDevice...")
                )
                return
            fs_group = args.fs_group if self._delegates_fs_group(ctx, client, source.driver) else None
            data: dict[str, str] = {
                VolDataKey.VOL_HANDLE: source.volume_handle,
                VolDataKey.DRIVER_NAME: source.driver,
            }
            if mount_options.has_selinux_label:
                data[VolDataKey.SELINUX_MOUNT_CONTEXT] = args.selinux_label
            self._save_data(device_mount_path, data)
        assert spec.persistent_volume is not None
        access_mode = next(iter(spec.persistent_volume.spec.access_modes), v1.READ_WRITE_ONCE)
        try:
            client.node_stage_volume(
                ctx,
                source.volume_handle,
                publish_context,
                device_mount_path,
                source.fs_type,
                access_mode,
                secrets,
                source.volume_attributes,
                mount_options.options,
                fs_group,
            )
        except Exception as err:
            # DIVERGES (fault of Go): the kubelet keeps the data of a volume that was staged before the kubelet started
            # if staging it again fails.
            # Go: pkg/volume/csi/csi_attacher.go, (*csiAttacher).MountDevice: the Go kubelet removes the data after a
            # final error, unless something is mounted at the staging path.
            # Why: without the data the volume would later be detached without having been unstaged; a driver may stage
            # it without a mount.
            # Test:
            # csi_attacher_test.py:test_volume_staged_before_a_restart_is_unstaged_although_staging_it_again_fails
            if volumetypes.is_operation_finished_error(err) and not args.reconstructed_volume:
                klog.error_s(err, log("attacher.MountDevice failed"))
                self._clean_up(device_mount_path)
            raise
        klog.v(4).info_s(log(f"attacher.MountDevice successfully requested NodeStageVolume [{device_mount_path}]"))

    def _publish_context(self, source: v1.CSIPersistentVolumeSource) -> dict[str, str]:
        node_name = self._plugin.host.get_node_name()
        try:
            return self._plugin.get_publish_context(self._k8s, source.volume_handle, source.driver, node_name)
        except Exception as err:
            # Whatever error the API server returns, no operation has started, and the mount is retried.
            raise volumetypes.TransientOperationFailure(str(err)) from err

    def _stage_secrets(self, source: v1.CSIPersistentVolumeSource) -> dict[str, str]:
        reference = source.node_stage_secret_ref
        if reference is None:
            return {}
        try:
            return csi_util.get_credentials_from_secret(self._k8s, reference)
        except csierrors.SecretError as err:
            raise volumetypes.TransientOperationFailure(
                f"fetching NodeStageSecretRef {reference.namespace}/{reference.name} failed: {err}"
            ) from err

    def _mount_options(self, spec: Spec, selinux_label: str) -> _MountOptions:
        assert spec.persistent_volume is not None
        options = spec.persistent_volume.spec.mount_options
        try:
            supported = self._plugin.supports_selinux_context_mount(spec)
        except Exception as err:
            # Whatever the error is, the driver has not been asked to do anything.
            raise csierrors.DriverCallError(log(f"failed to query for SELinuxMount support: {err}")) from err
        if supported and selinux_label:
            return _MountOptions(selinux.add_selinux_mount_option(options, selinux_label), has_selinux_label=True)
        return _MountOptions(options, has_selinux_label=False)

    def _delegates_fs_group(self, ctx: golang.Context, client: csi_client.CSIDriverClient, driver: str) -> bool:
        try:
            delegates = client.node_supports_volume_mount_group(ctx)
        except Exception as err:
            # Whatever the error is, no operation has started.
            raise volumetypes.TransientOperationFailure(
                log(
                    "attacher.MountDevice failed to determine if the node service has VOLUME_MOUNT_GROUP "
                    f"capability: {err}"
                )
            ) from err
        if delegates:
            klog.v(3).info_s(
                "Driver supports applying FSGroup (has VOLUME_MOUNT_GROUP node capability). Delegating FSGroup "
                "application to the driver through NodeStageVolume.",
                driver=driver,
            )
        return delegates

    def _save_data(self, device_mount_path: str, data: dict[str, str]) -> None:
        """Save the volume's data for unmount_device and for reconstruction after a restart."""
        try:
            csi_util.save_volume_data(os.path.dirname(device_mount_path), VOL_DATA_FILE_NAME, data)
        except OSError as err:
            klog.error_s(err, log("failed to save volume info data"))
            if not csi_util.has_volume_data(os.path.dirname(device_mount_path), VOL_DATA_FILE_NAME):
                self._clean_up(device_mount_path)
            raise OSError(log(f"failed to save volume info data: {err}")) from err

    def _clean_up(self, device_mount_path: str) -> None:
        what = "attacher.MountDevice failed to remove mount dir after error"
        csi_mount_dir.clean_up_mount_dir(self._plugin, device_mount_path, what)

    def detach(self, volume_name: str, node_name: str) -> None:
        """Raise NotImplementedError, because the attach/detach controller detaches volumes."""
        raise NotImplementedError("detaching volumes from the kubelet is not supported")

    def unmount_device(self, device_mount_path: str) -> None:
        """Ask the driver to unstage the volume. Raise types.TransientOperationFailure, CSIError or OSError."""
        klog.v(4).info_s(log(f"attacher.UnmountDevice({device_mount_path})"))
        data_dir = os.path.dirname(device_mount_path)
        try:
            data = csi_util.load_volume_data(data_dir, VOL_DATA_FILE_NAME)
        except FileNotFoundError:
            what = f"attacher.UnmountDevice skipped because volume data file [{data_dir}] does not exist"
            klog.v(4).info_s(log(what))
            # DIVERGES (fault of Go): the kubelet removes the empty directory of a volume whose driver stages nothing.
            # Go: pkg/volume/csi/csi_attacher.go, (*csiAttacher).UnmountDevice: the Go kubelet skips a volume without
            # data, and its directory stays forever.
            # Why: each volume that the node ever had would leave a directory.
            # Test: csi_attacher_test.py:test_driver_that_stages_nothing
            csi_mount_dir.remove_staging_dir(self._plugin, device_mount_path)
            return
        except (OSError, ValueError) as err:
            klog.error_s(err, log("attacher.UnmountDevice failed to get driver and volume name from device mount path"))
            raise
        client = self._client(data.get(VolDataKey.DRIVER_NAME, ""), "attacher.UnmountDevice")
        ctx, cancel = csi_util.create_csi_operation_context(None, CSI_TIMEOUT)
        try:
            self._unstage(ctx, client, data.get(VolDataKey.VOL_HANDLE, ""), device_mount_path)
        finally:
            cancel()
        try:
            csi_mount_dir.check_unmounted(self._plugin, device_mount_path)
            csi_mount_dir.remove_staging_dir(self._plugin, device_mount_path)
        except OSError as err:
            raise OSError(log(f"failed to clean up global mount {data_dir}: {err}")) from err
        klog.v(4).info_s(log(f"attacher.UnmountDevice successfully requested NodeUnStageVolume [{device_mount_path}]"))

    def _unstage(
        self, ctx: golang.Context, client: csi_client.CSIDriverClient, vol_id: str, device_mount_path: str
    ) -> None:
        try:
            stages = client.node_supports_stage_unstage(ctx)
        except Exception as err:
            # Whatever the error is, the unmount is retried until it succeeds.
            raise csierrors.DriverCallError(
                log(f"attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set: {err}")
            ) from err
        if not stages:
            klog.info_s(
                log("attacher.UnmountDevice STAGE_UNSTAGE_VOLUME capability not set. Skipping UnmountDevice...")
            )
            return
        try:
            client.node_unstage_volume(ctx, vol_id, device_mount_path)
        except Exception as err:
            # Whatever the error is, the unmount is retried until it succeeds.
            raise csierrors.DriverCallError(log(f"attacher.UnmountDevice failed: {err}")) from err


def get_attachment_name(vol_name: str, csi_driver_name: str, node_name: str) -> str:
    """Return the name of the VolumeAttachment for a volume and a node."""
    return f"csi-{hashlib.sha256(f'{vol_name}{csi_driver_name}{node_name}'.encode()).hexdigest()}"


def make_device_mount_path(plugin: CSIPlugin, spec: Spec) -> str:
    """Return the path where the driver stages the volume.

    Raise ValueError if the volume has no driver or handle, or is not a persistent CSI volume.
    """
    driver = csi_util.get_csi_driver_name(spec)
    if not driver:
        raise ValueError("makeDeviceMountPath failed, csi source driver name is empty")
    try:
        handle = csi_util.get_pv_source_from_spec(spec).volume_handle
    except ValueError as err:
        raise ValueError(log(f"makeDeviceMountPath failed to get CSIPersistentVolumeSource: {err}")) from err
    if not handle:
        raise ValueError("makeDeviceMountPath failed, CSIPersistentVolumeSource volume handle is empty")
    plugin_dir = plugin.host.get_plugin_dir(plugin.get_plugin_name())
    return os.path.join(plugin_dir, driver, hashlib.sha256(handle.encode()).hexdigest(), GLOBAL_MOUNT_IN_GLOBAL_PATH)


def verify_attachment_status(attachment: storagev1.VolumeAttachment, volume_handle: str) -> bool:
    """Report whether the volume is attached.

    Raise errors.NotAttachedError if the attachment failed or is being undone.
    """
    if attachment.metadata.deletion_timestamp is not None:
        name = attachment.metadata.name
        klog.error_s(
            None, log(f"VolumeAttachment [{name}] has deletion timestamp, will not continue to wait for attachment")
        )
        raise csierrors.NotAttachedError("volume attachment is being deleted")
    if attachment.status.attached:
        return True
    if attachment.status.attach_error is not None:
        message = attachment.status.attach_error.message
        klog.error_s(None, log(f"attachment for {volume_handle} failed"), err=message)
        raise csierrors.NotAttachedError(message)
    return False
