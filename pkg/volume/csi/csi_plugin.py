"""Serve volumes of CSI drivers, which are programs that register on the kubelet's sockets.

Go: pkg/volume/csi/csi_plugin.go
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from pkg import csi_translation_lib, golang, klog
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import version as utilversion
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.util import filesystem, procfs, removeall
from pkg.volume.csi import csi_client, csi_util, nodeinfomanager
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_attacher import CSIAttacher, get_attachment_name
from pkg.volume.csi.csi_block import PUBLISH_DIR, STAGING_DIR, CSIBlockMapper
from pkg.volume.csi.csi_drivers_store import Driver, DriversStore
from pkg.volume.csi.csi_mount_dir import clean_up_mount_dir
from pkg.volume.csi.csi_mounter import CSIMountMgr, make_volume_handle
from pkg.volume.csi.csi_node_updater import CSINodeUpdater, get_node_allocatable_update_period
from pkg.volume.csi.csi_util import CSI_PLUGIN_NAME, CSI_TIMEOUT, VOL_DATA_FILE_NAME, VOL_NAME_SEP, VolDataKey, log
from pkg.volume.csi.expander import Expander
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin

if TYPE_CHECKING:
    from pkg.client_go import kubernetes
    from pkg.client_go.listers.storage import v1 as storagelisters

# `MIGRATED_PLUGINS` names the in-tree plugins that CSI drivers have replaced. The populator translates their volumes.
MIGRATED_PLUGINS = tuple(csi_translation_lib.get_in_tree_plugin_names())
# `_API_SERVER_CHECK_PERIOD` is the time, in seconds, between two attempts to reach the API server.
_API_SERVER_CHECK_PERIOD = 1.0
# `_DRIVERS_SYNC_TIMEOUT` is the time, in seconds, that all requests for a CSIDriver object together wait for the
# objects, counted from the first request.
_DRIVERS_SYNC_TIMEOUT = 5.0


def probe_volume_plugins() -> list[VolumePlugin]:
    return [CSIPlugin()]


class RegistrationHandler:
    """Register the drivers that the plugin manager finds. Every method is safe from any thread."""

    def __init__(self, csi_plugin: CSIPlugin) -> None:
        self._csi_plugin = csi_plugin
        self._lock = threading.Lock()  # This lock is held while a driver replaces another one. It guards `_replaced`.
        # `_replaced` holds replaced drivers whose sockets still exist, by name. The driver that was replaced last is at
        # the end of its list.
        self._replaced: dict[str, list[Driver]] = {}

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Check that the driver can be registered.

        Raise ValueError if no version is supported, or if a driver of the same name with the same or a newer version is
        registered.
        """
        text = ",".join(versions)
        klog.info_s(
            log(f"Trying to validate a new CSI Driver with name: {plugin_name} endpoint: {endpoint} versions: {text}")
        )
        try:
            self._validate_versions("ValidatePlugin", plugin_name, versions)
        except ValueError as err:
            raise ValueError(f"validation failed for CSI Driver {plugin_name} at endpoint {endpoint}: {err}") from err

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        """Use the driver from now on, and publish its information about the node in the cluster.

        Raise ValueError as validate_plugin does, and any error of the driver or the API server; the driver is then not
        used.

        DIVERGES (fault of Go): a driver replaces an older one only after it has responded; if it fails, the older one
        stays in use.
        Go: pkg/volume/csi/csi_plugin.go, (*RegistrationHandler).RegisterPlugin: a driver replaces the older one before
        it has responded, and if it fails, the Go kubelet uses neither.
        Why: nothing registers the older driver again, and the kubelet could not even unmount its volumes.
        Test: csi_plugin_test.py:test_newer_driver_that_fails_leaves_the_older_one_in_use
        """
        klog.info_s(log(f"Register new plugin with name: {plugin_name} at endpoint: {endpoint}"))
        highest_supported_version = self._validate_versions("RegisterPlugin", plugin_name, versions)
        plugin = self._csi_plugin
        driver = Driver(endpoint, highest_supported_version)
        try:
            info = _node_get_info(plugin_name, driver, plugin_client_timeout)
            self._use(plugin_name, driver)
            plugin.node_info_manager.install_csi_driver(golang.background(), plugin_name, *info)
        except Exception:
            # Whatever the error is, the plugin manager reports it.
            self._let_go(plugin_name, endpoint)
            raise
        if plugin.csi_node_updater is not None:
            plugin.csi_node_updater.sync_driver_updater(plugin_name)

    def _use(self, plugin_name: str, driver: Driver) -> None:
        drivers = self._csi_plugin.csi_drivers
        with self._lock:
            before = drivers.get(plugin_name)
            if before is not None and before.endpoint != driver.endpoint:
                self._replaced.setdefault(plugin_name, []).append(before)
            drivers.set(plugin_name, driver)

    def _let_go(self, plugin_name: str, endpoint: str) -> None:
        """Stop using the driver at the endpoint.

        If a driver that it replaced still exists, use the replaced driver again.
        """
        drivers = self._csi_plugin.csi_drivers
        with self._lock:
            used = drivers.get(plugin_name)
            others = [driver for driver in self._replaced.pop(plugin_name, []) if driver.endpoint != endpoint]
            is_other = used is not None and used.endpoint != endpoint
            resumes = not is_other and bool(others)
            if resumes:
                drivers.set(plugin_name, others.pop())
            elif not is_other:
                drivers.delete(plugin_name)
            if others:
                self._replaced[plugin_name] = others
        if is_other:
            return
        try:
            if resumes:
                self._csi_plugin.update_csi_driver(plugin_name)
            else:
                self._csi_plugin.unregister_driver(plugin_name)
        except csierrors.CSIError as err:
            # Which driver this node uses matters more than the cluster's record of it.
            klog.error_s(
                err, log("failed to update the information about the driver in the cluster"), driver=plugin_name
            )

    def _validate_versions(self, caller_name: str, plugin_name: str, versions: Sequence[str]) -> utilversion.Version:
        what = f'{caller_name} for CSI driver "{plugin_name}" failed.'
        if not versions:
            raise ValueError(log(f"{what} Plugin returned an empty list for supported versions"))
        try:
            new_version = utilversion.highest_supported_version(versions)
        except ValueError as err:
            listed = " ".join(klog.quote(version) for version in versions)
            raise ValueError(log(f"{what} None of the versions specified [{listed}] are supported. err={err}")) from err
        existing = self._csi_plugin.csi_drivers.get(plugin_name)
        if existing is not None and not existing.highest_supported_version < new_version:
            raise ValueError(
                log(
                    f"{what} Another driver with the same name is already registered with a higher supported version: "
                    f'"{existing.highest_supported_version}"'
                )
            )
        return new_version

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        """Stop using a driver whose socket is gone.

        DIVERGES (fault of Go): a driver at another socket that has replaced the one that is gone stays in use.
        Go: pkg/volume/csi/csi_plugin.go, (*RegistrationHandler).DeRegisterPlugin: the Go kubelet stops using whichever
        driver has the name.
        Why: nothing registers the newer driver again.
        Test: csi_plugin_test.py:test_newer_driver_stays_when_the_older_one_goes,
        csi_plugin_test.py:test_older_driver_is_used_again_when_the_newer_one_goes
        """
        klog.info_s(log(f"registrationHandler.DeRegisterPlugin request for plugin {plugin_name}, endpoint {endpoint}"))
        self._let_go(plugin_name, endpoint)
        if self._csi_plugin.csi_node_updater is not None:
            self._csi_plugin.csi_node_updater.sync_driver_updater(plugin_name)


def _node_get_info(plugin_name: str, driver: Driver, timeout: float | None) -> tuple[str, int, dict[str, str]]:
    """Ask a driver that is not in use yet about the node. Raise any error of the client."""
    drivers = DriversStore()
    drivers.set(plugin_name, driver)
    ctx, cancel = golang.with_timeout(golang.background(), CSI_TIMEOUT if timeout is None else timeout)
    try:
        return csi_client.new_csi_driver_client(drivers, plugin_name).node_get_info(ctx)
    finally:
        cancel()


class CSIPlugin(Expander):
    """Serve volumes of CSI drivers. Every method is safe from any thread.

    The plugin holds what Go keeps in package variables, so that one process can have several plugins.
    """

    host: VolumeHost
    node_info_manager: nodeinfomanager.NodeInfoManager

    def __init__(self) -> None:
        # This context ends when no request waits for the CSIDriver objects any longer.
        self._drivers_sync: golang.Context | None = None
        self.csi_drivers = DriversStore()
        self.csi_driver_lister: storagelisters.CSIDriverLister | None = None
        # `csi_node_updater` is None before start, and in standalone mode.
        self.csi_node_updater: CSINodeUpdater | None = None

    def init(self, host: VolumeHost) -> None:
        self.host = host
        self.node_info_manager = nodeinfomanager.NodeInfoManager(host.get_node_name(), host, MIGRATED_PLUGINS)
        with contain(log("failed to remove incomplete directories of volumes"), golang.background()):
            self._remove_what_a_kill_left()
        if host.get_kube_client() is None:
            klog.warning_s(log("kubeclient not set, assuming standalone kubelet"))
            return
        self.csi_driver_lister = host.csi_driver_lister()
        if self.csi_driver_lister is None:
            klog.error_s(None, log("CSIDriverLister not found on KubeletVolumeHost"))

    def _remove_what_a_kill_left(self) -> None:
        """Remove directories of volumes that have no data file, and incomplete data files, after a kill of the kubelet.

        DIVERGES (fault of Go): the kubelet removes directories of volumes without a data file when it starts.
        Go: pkg/volume/csi/csi_plugin.go, (*csiPlugin).Init: such directories stay forever, because nothing refers to a
        volume without its data.
        Why: each kubelet that is killed at the wrong moment would leave one.
        Test: csi_plugin_test.py:test_directories_of_volumes_that_are_lost_to_a_kill_go
        """
        plugin_dir = Path(self.host.get_plugin_dir(CSI_PLUGIN_NAME))
        devices = Path(self.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME))
        unfinished = VOL_DATA_FILE_NAME + csi_util.INCOMPLETE
        of_pods = f"*/volumes/{csi_util.escape_qualified_name(CSI_PLUGIN_NAME)}/*/{unfinished}"
        with contextlib.suppress(OSError):
            for file in [*Path(self.host.get_pods_dir()).glob(of_pods), *plugin_dir.glob(f"*/*/{unfinished}")]:
                file.unlink()
        for volume in devices.glob("*"):
            if volume.name in (STAGING_DIR, PUBLISH_DIR):
                continue
            if not csi_util.has_volume_data(str(volume / "data"), VOL_DATA_FILE_NAME):
                self._remove_device_directory(volume)
        for volume in plugin_dir.glob("*/*"):
            if volume.parent != devices:
                # `rmdir` fails if the directory is not empty: the volume has a data file, or belongs to a driver that
                # stages nothing.
                with contextlib.suppress(OSError):
                    volume.rmdir()

    def _remove_device_directory(self, volume: Path) -> None:
        try:
            csi_util.remove_volume_data(str(volume / "data"), VOL_DATA_FILE_NAME)
            removeall.remove_dirs_one_filesystem(self.host.get_mounter(), str(volume))
        except OSError as err:
            klog.error_s(err, log("failed to remove the directory of a volume without data"), path=volume)

    def start(self, ctx: golang.Context, clock: clocklib.Clock | None = None) -> None:
        """Publish this node's drivers in the cluster until ctx ends. Call this method once, after init.

        Go starts this work in init, and never ends it.
        """
        client = self.host.get_kube_client()
        if client is None:
            klog.warning_s("Skipping CSINode initialization, kubelet running in standalone mode")
            return
        clock = clock or clocklib.RealClock()
        self.initialize_csi_node(ctx, clock)
        informer = self.host.get_csi_driver_informer()
        if informer is not None and self.csi_node_updater is None:
            self.csi_node_updater = CSINodeUpdater(ctx, informer, self.csi_drivers, self.update_csi_driver, clock)
            self.csi_node_updater.run()

    def initialize_csi_node(self, ctx: golang.Context, clock: clocklib.Clock | None = None) -> golang.Thread:
        """Keep the node from being ready until its CSINode exists. A thread creates the CSINode, and ends with ctx."""
        client = self.host.get_kube_client()
        assert client is not None, "a kubelet without an API server has no CSINode"
        return initialize_csi_node(ctx, client, self.host, self.node_info_manager, clock or clocklib.RealClock())

    def update_csi_driver(self, plugin_name: str) -> None:
        """Ask the driver about the node again, and update the cluster. Raise errors.DriverCallError."""
        ctx, cancel = golang.with_timeout(golang.background(), CSI_TIMEOUT)
        try:
            info = csi_client.new_csi_driver_client(self.csi_drivers, plugin_name).node_get_info(ctx)
        except Exception as err:
            # Whatever the error is, the caller must learn which driver it concerns.
            raise csierrors.DriverCallError(f'failed to get NodeGetInfo from driver "{plugin_name}": {err}') from err
        finally:
            cancel()
        try:
            self.node_info_manager.update_csi_driver(golang.background(), plugin_name, *info)
        except (nodeinfomanager.NodeInfoError, ValueError) as err:
            raise csierrors.DriverCallError(f'failed to update driver "{plugin_name}": {err}') from err

    def unregister_driver(self, driver_name: str) -> None:
        """Remove the driver from the cluster's record of this node. Raise errors.CSINodeError."""

        def is_used() -> bool:
            return self.csi_drivers.get(driver_name) is not None

        try:
            self.node_info_manager.uninstall_csi_driver(golang.background(), driver_name, is_used)
        except nodeinfomanager.NodeInfoError as err:
            raise csierrors.CSINodeError(log(f"Error uninstalling CSI driver: {err}")) from err

    def verify_exhausted_resource(self, spec: Spec) -> bool:
        """Report whether the node has reached the driver's volume limit. If it has, update the limit in the cluster."""
        source = spec.persistent_volume.spec.csi if spec.persistent_volume is not None else None
        client = self.host.get_kube_client()
        if source is None or client is None:
            klog.error_s(None, "Invalid volume spec for CSI")
            return False
        ctx, cancel = golang.with_timeout(golang.background(), CSI_TIMEOUT)
        try:
            if get_node_allocatable_update_period(self.get_csi_driver(source.driver)) == 0:
                return False
            name = get_attachment_name(source.volume_handle, source.driver, self.host.get_node_name())
            attachment = client.storage_v1.volume_attachments().get(ctx, name)
        except Exception as err:
            # The pod waits for its volume in any case.
            klog.error_s(err, "Failed to get volume attachment", driver=source.driver, volume=source.volume_handle)
            return False
        finally:
            cancel()
        if not is_resource_exhaust_error(attachment):
            return False
        klog.v(4).info_s(
            "Detected ResourceExhausted error for volume", pluginName=source.driver, volumeHandle=source.volume_handle
        )
        try:
            self.update_csi_driver(source.driver)
        except csierrors.DriverCallError as err:
            klog.error_s(err, "Failed to update CSIDriver", pluginName=source.driver)
        return True

    def get_plugin_name(self) -> str:
        return CSI_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        """Return the driver's name and the volume's handle. Raise ValueError if it is not a persistent CSI volume."""
        try:
            source = csi_util.get_pv_source_from_spec(spec)
        except ValueError as err:
            raise ValueError(log(f"plugin.GetVolumeName failed to extract volume source from spec: {err}")) from err
        return f"{source.driver}{VOL_NAME_SEP}{source.volume_handle}"

    def can_support(self, spec: Spec) -> bool:
        return (spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None) or (
            spec.volume is not None and spec.volume.csi is not None
        )

    def requires_remount(self, spec: Spec) -> bool:
        """Report whether the driver must publish its volumes periodically."""
        if self.csi_driver_lister is None:
            return False
        try:
            driver = self.get_csi_driver(csi_util.get_csi_driver_name(spec))
        except Exception as err:
            # Without a CSIDriver object the kubelet republishes nothing. Any other error may be over at the next
            # request.
            klog.v(5).info_s(log(f'Failed to mark "{spec.name()}" as republish required'), err=err)
            return False
        return bool(driver.spec.requires_republish)

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> CSIMountMgr:
        """Return a mounter.

        Raise ValueError for another kind of volume, and errors.NoAPIServerError in standalone mode.
        """
        volume, persistent = csi_util.get_source_from_spec(spec)
        if volume is not None:
            driver_name, read_only = volume.driver, bool(volume.read_only)
            volume_handle = make_volume_handle(pod.metadata.uid, spec.name())
        else:
            assert persistent is not None
            driver_name, read_only = persistent.driver, spec.read_only
            volume_handle = persistent.volume_handle
        self._require_client()
        getter = csi_client.CSIClientGetter(self.csi_drivers, driver_name)
        mounter = CSIMountMgr(
            self,
            pod.metadata.uid,
            spec.name(),
            driver_name,
            volume_handle,
            getter,
            spec=spec,
            pod=pod,
            read_only=read_only,
            volume_lifecycle_mode=self.get_volume_lifecycle_mode(spec),
        )
        klog.v(4).info_s(log("mounter created successfully"))
        return mounter

    def _require_client(self) -> kubernetes.Interface:
        client = self.host.get_kube_client()
        if client is None:
            raise csierrors.NoAPIServerError(log("failed to get a kubernetes client"))
        return client

    def new_unmounter(self, name: str, pod_uid: types.UID) -> CSIMountMgr:
        """Return an unmounter. Raise OSError or ValueError if the volume's data file cannot be read."""
        klog.v(4).info_s(log(f"setting up unmounter for [name={name}, podUID={pod_uid}]"))
        path = csi_util.get_csi_mounter_path(csi_util.get_target_path(pod_uid, name, self.host))
        try:
            data = csi_util.load_volume_data(os.path.dirname(path), VOL_DATA_FILE_NAME)
        except (OSError, ValueError) as err:
            raise type(err)(log(f"unmounter failed to load volume data file [{path}]: {err}")) from err
        driver_name = data.get(VolDataKey.DRIVER_NAME, "")
        getter = csi_client.CSIClientGetter(self.csi_drivers, driver_name)
        return CSIMountMgr(self, pod_uid, name, driver_name, data.get(VolDataKey.VOL_HANDLE, ""), getter)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        klog.v(4).info_s(log(f"plugin.ConstructVolumeSpec [pv.Name={volume_name}, path={volume_path}]"))
        try:
            data = csi_util.load_volume_data(volume_path, VOL_DATA_FILE_NAME)
        except (OSError, ValueError) as err:
            what = f"plugin.ConstructVolumeSpec failed loading volume data using [{volume_path}]: {err}"
            raise type(err)(log(what)) from err
        klog.v(4).info_s(log("plugin.ConstructVolumeSpec extracted"), data=data)
        name, driver = data.get(VolDataKey.SPEC_VOL_ID, ""), data.get(VolDataKey.DRIVER_NAME, "")
        if data.get(VolDataKey.VOLUME_LIFECYCLE_MODE) == storagev1.VOLUME_LIFECYCLE_EPHEMERAL:
            spec = self._construct_vol_source_spec(name, driver)
        else:
            handle = data.get(VolDataKey.VOL_HANDLE, "")
            spec = self._construct_pv_source_spec(name, driver, handle, v1.PERSISTENT_VOLUME_FILESYSTEM)
        return ReconstructedVolume(spec, data.get(VolDataKey.SELINUX_MOUNT_CONTEXT, ""))

    def _construct_vol_source_spec(self, vol_spec_name: str, driver_name: str) -> Spec:
        return Spec(v1.Volume(name=vol_spec_name, csi=v1.CSIVolumeSource(driver=driver_name)))

    def _construct_pv_source_spec(
        self, vol_spec_name: str, driver_name: str, volume_handle: str, volume_mode: str
    ) -> Spec:
        source = v1.CSIPersistentVolumeSource(driver=driver_name, volume_handle=volume_handle)
        return Spec(
            persistent_volume=v1.PersistentVolume(
                metadata=metav1.ObjectMeta(name=vol_spec_name),
                spec=v1.PersistentVolumeSpec(csi=source, volume_mode=volume_mode),
            )
        )

    def supports_mount_option(self) -> bool:
        return True

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        """Report whether the driver's CSIDriver object declares support for the mount option -o context=.

        Raise ValueError for another kind of volume, and any error of reading the object.
        """
        driver = self.find_csi_driver(csi_util.get_csi_driver_name(spec))
        return driver is not None and bool(driver.spec.se_linux_mount)

    def new_attacher(self) -> CSIAttacher:
        return self._new_attacher_detacher()

    def new_device_mounter(self) -> CSIAttacher:
        return self._new_attacher_detacher()

    def new_detacher(self) -> CSIAttacher:
        return self._new_attacher_detacher()

    def can_attach(self, spec: Spec) -> bool:
        """Report whether the volume must be attached.

        Raise ValueError for another kind of volume, and any error of reading the CSIDriver object.
        """
        if self.get_volume_lifecycle_mode(spec) == storagev1.VOLUME_LIFECYCLE_EPHEMERAL:
            klog.v(5).info_s(log(f"plugin.CanAttach = false, ephemeral mode detected for spec {spec.name()}"))
            return False
        return not self.skip_attach(csi_util.get_csi_source_from_spec(spec).driver)

    def can_device_mount(self, spec: Spec) -> bool:
        """Report whether the volume may have to be staged. Raise ValueError for another kind of volume."""
        if self.get_volume_lifecycle_mode(spec) == storagev1.VOLUME_LIFECYCLE_EPHEMERAL:
            klog.v(5).info_s(log(f"plugin.CanDeviceMount skipped ephemeral mode detected for spec {spec.name()}"))
            return False
        return True

    def new_device_unmounter(self) -> CSIAttacher:
        return self._new_attacher_detacher()

    def get_device_mount_refs(self, device_mount_path: str) -> list[str]:
        return self.host.get_mounter().get_mount_refs(device_mount_path)

    def new_block_volume_mapper(self, spec: Spec, pod: v1.Pod) -> CSIBlockMapper:
        """Return a mapper, and record the volume's data.

        Raise ValueError if the volume is not a persistent CSI volume, NoAPIServerError in standalone mode, or OSError.
        """
        source = csi_util.get_csi_source_from_spec(spec)
        klog.v(4).info_s(log(f"setting up block mapper for [volume={source.volume_handle},driver={source.driver}]"))
        self._require_client()
        getter = csi_client.CSIClientGetter(self.csi_drivers, source.driver)
        mapper = CSIBlockMapper(
            self,
            source.driver,
            source.volume_handle,
            spec.name(),
            pod.metadata.uid,
            getter,
            spec=spec,
            pod=pod,
            read_only=csi_util.get_read_only_from_spec(spec),
        )
        data_dir = csi_util.get_volume_device_data_dir(spec.name(), self.host)
        try:
            filesystem.mkdir_all(data_dir, 0o750)
        except OSError as err:
            raise OSError(log(f"failed to create data dir {data_dir}:  {err}")) from err
        node = self.host.get_node_name()
        data: dict[str, str] = {
            VolDataKey.SPEC_VOL_ID: spec.name(),
            VolDataKey.VOL_HANDLE: source.volume_handle,
            VolDataKey.DRIVER_NAME: source.driver,
            VolDataKey.NODE_NAME: node,
            VolDataKey.ATTACHMENT_ID: get_attachment_name(source.volume_handle, source.driver, node),
        }
        try:
            csi_util.save_volume_data(data_dir, VOL_DATA_FILE_NAME, data)
        except OSError as err:
            if not csi_util.has_volume_data(data_dir, VOL_DATA_FILE_NAME):
                clean_up_mount_dir(self, data_dir, "csi.NewBlockVolumeMapper failed to remove data dir after error")
            raise OSError(log(f"csi.NewBlockVolumeMapper failed to save volume info data: {err}")) from err
        return mapper

    def new_block_volume_unmapper(self, name: str, pod_uid: types.UID) -> CSIBlockMapper:
        """Return an unmapper; with a pod_uid of "" it is for the device itself.

        Raise OSError or ValueError if the volume's data file cannot be read.
        """
        klog.v(4).info_s(log(f"setting up block unmapper for [Spec={name}, podUID={pod_uid}]"))
        data_dir = csi_util.get_volume_device_data_dir(name, self.host)
        try:
            data = csi_util.load_volume_data(data_dir, VOL_DATA_FILE_NAME)
        except (OSError, ValueError) as err:
            if not isinstance(err, FileNotFoundError) or pod_uid or self._is_device_staged(name):
                raise type(err)(log(f"unmapper failed to load volume data file [{data_dir}]: {err}")) from err
            # DIVERGES (fault of Go): a device that is not staged and has no data file counts as torn down.
            # Go: pkg/volume/csi/csi_plugin.go, (*csiPlugin).NewBlockVolumeUnmapper: a device without a data file is an
            # error.
            # Why: if a step after the tear-down fails, for example because a process still has the device open, every
            # later attempt would fail, and the volume would never be detached.
            # Test: csi_block_test.py:test_device_is_torn_down_again_when_a_step_after_that_failed
            data = {}
        driver_name = data.get(VolDataKey.DRIVER_NAME, "")
        getter = csi_client.CSIClientGetter(self.csi_drivers, driver_name)
        return CSIBlockMapper(self, driver_name, data.get(VolDataKey.VOL_HANDLE, ""), name, pod_uid, getter)

    def _is_device_staged(self, name: str) -> bool:
        """Report whether the driver may have staged the device. Raise OSError if that cannot be determined."""
        devices = self.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME)
        return filesystem.exists(os.path.join(devices, STAGING_DIR, name))

    def construct_block_volume_spec(self, pod_uid: types.UID, volume_name: str, volume_path: str) -> Spec:
        klog.v(4).info_s("plugin.ConstructBlockVolumeSpec", podUID=pod_uid, specVolName=volume_name, path=volume_path)
        data_dir = csi_util.get_volume_device_data_dir(volume_name, self.host)
        try:
            data = csi_util.load_volume_data(data_dir, VOL_DATA_FILE_NAME)
        except (OSError, ValueError) as err:
            what = f"plugin.ConstructBlockVolumeSpec failed loading volume data using [{volume_path}]: {err}"
            raise type(err)(log(what)) from err
        return self._construct_pv_source_spec(
            data.get(VolDataKey.SPEC_VOL_ID, ""),
            data.get(VolDataKey.DRIVER_NAME, ""),
            data.get(VolDataKey.VOL_HANDLE, ""),
            v1.PERSISTENT_VOLUME_BLOCK,
        )

    def list_staged_volumes(self) -> list[Spec]:
        """List all volumes with data files, except those in pods' directories. Invalid data files are skipped.

        Raise OSError if the lack of a file descriptor keeps a data file from being read.

        DIVERGES (fault of Go): after a restart, the kubelet unstages a staged volume that no pod has.
        Go: pkg/kubelet/volumemanager/reconciler/reconstruct_common.go, getVolumesFromPodDir: the Go kubelet finds only
        volumes that have a directory in a pod's directory.
        Why: a kubelet that is killed after the last such directory is gone would leave the volume staged forever.
        Test: csi_plugin_test.py:test_what_is_staged_and_published_is_found_by_its_records,
        kubelet/volumemanager/reconciler/reconciler_test.py:test_staged_volume_that_no_directory_tells_of_is_unstaged
        """
        plugin_dir = Path(self.host.get_plugin_dir(CSI_PLUGIN_NAME))
        devices = Path(self.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME))
        staged = [path / VOL_DATA_FILE_NAME for driver in _paths_in(plugin_dir) for path in _paths_in(driver)]
        mapped = [path / "data" / VOL_DATA_FILE_NAME for path in _paths_in(devices)]
        volumes = [
            *((path, v1.PERSISTENT_VOLUME_FILESYSTEM) for path in staged),
            *((path, v1.PERSISTENT_VOLUME_BLOCK) for path in mapped),
        ]
        specs = []
        for path, mode in volumes:
            try:
                data = csi_util.load_volume_data(str(path.parent), VOL_DATA_FILE_NAME)
            except FileNotFoundError:
                continue  # The directory is not a volume's directory.
            except (OSError, ValueError) as err:
                if procfs.is_accident(err):
                    raise
                klog.error_s(err, log("failed to identify a staged volume"), path=path)
                continue
            driver, handle = data.get(VolDataKey.DRIVER_NAME, ""), data.get(VolDataKey.VOL_HANDLE, "")
            specs.append(self._construct_pv_source_spec(data.get(VolDataKey.SPEC_VOL_ID, handle), driver, handle, mode))
        return specs

    def list_published_devices(self) -> list[tuple[str, str]]:
        """List the block devices that the driver has published, by the files that it created for pods.

        DIVERGES (fault of Go): after a restart, the kubelet finds a device that the driver has published for a pod and
        that no link in the pod's directory points to.
        Go: pkg/volume/util/operationexecutor/operation_generator.go, (*operationGenerator).GenerateUnmapVolumeFunc: the
        Go kubelet removes the link before it asks the driver to unpublish the device.
        Why: a kubelet that is killed between the two steps would leave the device published forever.
        Test: csi_plugin_test.py:test_what_is_staged_and_published_is_found_by_its_records,
        kubelet/volumemanager/reconciler/reconciler_test.py:test_published_device_that_no_link_tells_of_is_unmapped
        """
        devices = Path(self.host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME))
        return [(path.name, name.name) for name in _paths_in(devices / PUBLISH_DIR) for path in _paths_in(name)]

    def is_staged_by_another_name(self, spec: Spec, staged: Spec) -> bool:
        """Report false, because the data files contain the names."""
        return False

    def skip_attach(self, driver: str) -> bool:
        """Report whether the driver's CSIDriver object declares that its volumes need no attachment."""
        csi_driver = self.find_csi_driver(driver)
        return csi_driver is not None and csi_driver.spec.attach_required is False

    def get_csi_driver(self, driver: str) -> storagev1.CSIDriver:
        """Return the driver's CSIDriver object.

        Raise a not-found StatusError if there is none, and TimeoutError while no objects are known. All callers share
        one wait: if each request for each volume waited, an unreachable API server would keep pods from their volumes
        for minutes.

        DIVERGES (safer): a request for a CSIDriver object fails, and is retried, if no objects are known five seconds
        after the first request.
        Go: pkg/kubelet/volume_host.go, (*kubeletVolumeHost).WaitForCacheSync: the Go kubelet waits forever.
        Why: all volumes of the node would wait, including those that need nothing from the API server.
        Test: csi_plugin_test.py:test_objects_are_waited_for_once_by_all
        """
        if self.csi_driver_lister is None:
            raise csierrors.NoAPIServerError("CSIDriver lister does not exist")
        if self._drivers_sync is None:
            self._drivers_sync, _ = golang.with_timeout(golang.background(), _DRIVERS_SYNC_TIMEOUT)
        self.host.wait_for_cache_sync(self._drivers_sync)
        return self.csi_driver_lister.get(driver)

    def find_csi_driver(self, driver: str) -> storagev1.CSIDriver | None:
        """Return the driver's CSIDriver object as get_csi_driver does, or None if there is none."""
        try:
            return self.get_csi_driver(driver)
        except apierrors.StatusError as err:
            if apierrors.is_not_found(err):
                return None
            raise

    def get_volume_lifecycle_mode(self, spec: Spec) -> str:
        """Return whether the volume is ephemeral or persistent. Raise ValueError for another kind of volume."""
        volume, _ = csi_util.get_source_from_spec(spec)
        if volume is not None:
            return storagev1.VOLUME_LIFECYCLE_EPHEMERAL
        return storagev1.VOLUME_LIFECYCLE_PERSISTENT

    def get_publish_context(
        self, client: kubernetes.Interface, handle: str, driver: str, node_name: str
    ) -> dict[str, str]:
        """Return what the driver's controller recorded at the attachment. Raise any error of the API server."""
        if self.skip_attach(driver):
            return {}
        name = get_attachment_name(handle, driver, node_name)
        return client.storage_v1.volume_attachments().get(golang.background(), name).status.attachment_metadata

    def _new_attacher_detacher(self) -> CSIAttacher:
        client = self.host.get_kube_client()
        if client is None:
            raise csierrors.NoAPIServerError(log("unable to get kubernetes client from host"))
        return CSIAttacher(self, client)

    def pod_info_enabled(self, driver_name: str) -> bool:
        """Report whether the driver requires information about the pod."""
        driver = self.find_csi_driver(driver_name)
        if driver is None:
            klog.v(4).info_s(log(f'CSIDriver "{driver_name}" not found, not adding pod information'))
            return False
        if not driver.spec.pod_info_on_mount:
            klog.v(4).info_s(log(f'CSIDriver "{driver_name}" does not require pod information'))
            return False
        return True


def _paths_in(directory: Path) -> list[Path]:
    """List the paths in a directory as filesystem.names_in lists the names."""
    return [directory / name for name in filesystem.names_in(directory)]


def is_resource_exhaust_error(attachment: storagev1.VolumeAttachment) -> bool:
    """Report whether the attachment failed because the node has reached its volume limit."""
    error = attachment.status.attach_error
    return error is not None and error.error_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def initialize_csi_node(
    ctx: golang.Context,
    kube_client: kubernetes.Interface,
    host: VolumeHost,
    nim: nodeinfomanager.NodeInfoManager,
    clock: clocklib.Clock,
) -> golang.Thread:
    """Keep the node from being ready until its CSINode exists. A thread, which ends with ctx, creates the CSINode.

    The thread sets the host's kubelet error to the reason, and clears it once the CSINode exists.

    DIVERGES (safer): the kubelet retries the creation of the CSINode without a limit.
    Go: pkg/volume/csi/csi_plugin.go, initializeCSINode: the Go kubelet exits after six failures.
    Why: a running kubelet serves its pods, and a restart does not bring the API server back.
    Test: csi_plugin_test.py:test_making_the_csi_node_is_not_given_up
    """
    host.set_kubelet_error(csierrors.CSINodeError("CSINode is not yet initialized"))

    def initialize() -> None:
        try:
            wait_for_api_server_forever(ctx, kube_client, host.get_node_name(), clock)
            _initialize_with_backoff(ctx, host, nim, clock)
        except golang.ContextError as err:
            klog.v(4).info_s("Stopped initializing the CSINode", err=err)

    return golang.go(initialize, name="csi-node")


def _initialize_with_backoff(
    ctx: golang.Context, host: VolumeHost, nim: nodeinfomanager.NodeInfoManager, clock: clocklib.Clock
) -> None:
    # The longest delay is two minutes.
    backoff = wait.Backoff(duration=0.03, factor=8.0, jitter=0.1, steps=4)
    while True:
        klog.v(4).info_s("Initializing migrated drivers on CSINode")
        try:
            nim.initialize_csi_node_with_annotation(ctx)
        except Exception as err:
            # Whatever the error is, the node's Ready condition shows it, and the next attempt follows.
            if (ended := ctx.err()) is not None:
                raise ended from err
            host.set_kubelet_error(csierrors.CSINodeError(f"failed to initialize CSINode: {err}"))
            klog.error_s(err, "Failed to initialize CSINode")
        else:
            host.set_kubelet_error(None)
            return
        wait.pause(ctx, backoff.step(), clock)


def wait_for_api_server_forever(
    ctx: golang.Context, client: kubernetes.Interface, node_name: str, clock: clocklib.Clock
) -> None:
    """Wait until the API server has reported whether the CSINode exists. Raise ctx.err() when ctx ends.

    Any response also shows that the kubelet has its permissions, which it lacks during TLS bootstrapping.
    """
    # Version 0 accepts any state of the object, so that the API server can respond from its cache.
    options = metav1.GetOptions(resource_version="0")

    def answers() -> bool:
        try:
            client.storage_v1.csi_nodes().get(ctx, node_name, options)
        except Exception as err:
            # Whatever the failure is, the loop sends the request again.
            if (ended := ctx.err()) is not None:
                raise ended from err
            if apierrors.is_not_found(err):
                return True
            klog.v(2).info_s("Failed to contact API server when waiting for CSINode publishing", err=err)
            return False
        return True

    wait.poll_until_context_cancel(ctx, _API_SERVER_CHECK_PERIOD, True, answers, clock)
