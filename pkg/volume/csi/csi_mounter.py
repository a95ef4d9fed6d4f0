"""Publish CSI volumes in pods' directories.

Go: pkg/volume/csi/csi_mounter.go
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pkg import golang, klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.util import filesystem
from pkg.volume.csi import csi_attacher, csi_client, csi_metrics, csi_util
from pkg.volume.csi import errors as csierrors
from pkg.volume.csi.csi_mount_dir import check_unmounted, clean_up_mount_dir, remove_mount_dir
from pkg.volume.csi.csi_util import CSI_TIMEOUT, VOL_DATA_FILE_NAME, VolDataKey, log
from pkg.volume.plugins import Spec
from pkg.volume.util import metrics as volumeutil
from pkg.volume.util import selinux
from pkg.volume.util import types as volumetypes
from pkg.volume.volume import Attributes, Metrics, MounterArgs
from pkg.volume.volume_linux import VolumeOwnership

if TYPE_CHECKING:
    from pkg.volume.csi.csi_plugin import CSIPlugin

# `_TOKENS_ATTRIBUTE` is the volume attribute that passes requested service account tokens to the driver.
_TOKENS_ATTRIBUTE = "csi.storage.k8s.io/serviceAccount.tokens"


@dataclass(slots=True)
class _Publication:
    """Hold the arguments of the driver's publish call."""

    fs_type: str
    attributes: dict[str, str]
    secret_ref: v1.SecretReference | None
    access_mode: str = v1.READ_WRITE_ONCE
    mount_options: list[str] = field(default_factory=list)
    device_mount_path: str = ""
    publish_context: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    fs_group: int | None = None
    selinux_mount: bool = False


class CSIMountMgr:
    """Publish and unpublish a volume of one pod. Only one thread at a time may use an instance."""

    def __init__(
        self,
        plugin: CSIPlugin,
        pod_uid: types.UID,
        spec_volume_id: str,
        driver_name: str,
        volume_id: str,
        csi_client_getter: csi_client.CSIClientGetter,
        *,
        spec: Spec | None = None,
        pod: v1.Pod | None = None,
        read_only: bool = False,
        volume_lifecycle_mode: str = "",
    ) -> None:
        """Create a mounter, or an unmounter if spec and pod are None.

        spec_volume_id is the volume's name in the spec, and volume_id is the driver's handle for it.
        """
        self.csi_client_getter = csi_client_getter
        self._plugin = plugin
        self._pod_uid = pod_uid
        self._spec_volume_id = spec_volume_id
        self._driver_name = driver_name
        self._volume_id = volume_id
        self._spec = spec
        self._pod = pod
        self._read_only = read_only
        self._volume_lifecycle_mode = volume_lifecycle_mode
        self._need_selinux_relabel = False

    def get_metrics(self) -> Metrics:
        """Return the usage of the volume. Raise the errors of MetricsCSI.get_metrics."""
        return csi_metrics.MetricsCSI(self._volume_id, self.get_path(), self.csi_client_getter).get_metrics()

    def get_path(self) -> str:
        target = csi_util.get_target_path(self._pod_uid, self._spec_volume_id, self._plugin.host)
        path = csi_util.get_csi_mounter_path(target)
        klog.v(4).info_s(log(f"mounter.GetPath generated [{path}]"))
        return path

    def set_up(self, args: MounterArgs) -> None:
        """Ask the driver to publish the volume in the pod's directory."""
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        klog.v(4).info_s(log(f"Mounter.SetUpAt({directory})"))
        assert self._spec is not None and self._pod is not None, "an unmounter sets up nothing"
        client = self.csi_client_getter.get_for("mounter.SetUpAt")
        ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
        try:
            self._set_up_at(ctx, client, directory, args, self._spec, self._pod)
        finally:
            cancel()
        klog.v(4).info_s(log(f"mounter.SetUp successfully requested NodePublish [{directory}]"))

    def _set_up_at(
        self,
        ctx: golang.Context,
        client: csi_client.CSIDriverClient,
        directory: str,
        args: MounterArgs,
        spec: Spec,
        pod: v1.Pod,
    ) -> None:
        with csi_util.before_the_driver_acts():
            fs_group_policy = self._check_driver_object()
            publication = self._publication(spec, pod)
            if spec.persistent_volume is not None:
                self._add_staging(ctx, client, publication, spec)
            self._add_secrets(publication)
            self._add_pod_info(publication, pod)
            delegates_fs_group = self._delegates_fs_group(ctx, client)
            if delegates_fs_group:
                publication.fs_group = args.fs_group
            self._add_selinux_option(publication, spec, args.selinux_label)
            self._make_directory(os.path.dirname(directory))
            is_known = csi_util.has_volume_data(os.path.dirname(directory), VOL_DATA_FILE_NAME)
            self._save_data(directory, spec, args.selinux_label if publication.selinux_mount else "")
        self._publish(ctx, client, directory, args, publication, is_known)
        if not publication.selinux_mount:
            self._look_for_selinux(directory)
        if not delegates_fs_group and self._supports_fs_group(publication.fs_type, args.fs_group, fs_group_policy):
            self._change_ownership(directory, args, spec, pod)

    def _check_driver_object(self) -> str:
        """Return the driver's fsGroup policy. The driver must support the volume's lifecycle mode."""
        try:
            self._supports_volume_lifecycle_mode()
        except Exception as err:
            # Whatever the error is, it is not final: the CSIDriver object may be created or change.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetupAt failed to check volume lifecycle mode: {err}")
            ) from err
        try:
            return self._get_fs_group_policy()
        except Exception as err:
            # Whatever the error is, it is not final: the CSIDriver object may be created or change.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetupAt failed to check fsGroup policy: {err}")
            ) from err

    def _publication(self, spec: Spec, pod: v1.Pod) -> _Publication:
        """Return the arguments that the volume's spec determines."""
        volume, persistent = csi_util.get_source_from_spec(spec)
        if volume is not None:
            reference = None
            if volume.node_publish_secret_ref is not None:
                name = volume.node_publish_secret_ref.name
                reference = v1.SecretReference(name=name, namespace=pod.metadata.namespace)
            return _Publication(volume.fs_type or "", dict(volume.volume_attributes), reference)
        assert persistent is not None and spec.persistent_volume is not None
        return _Publication(
            persistent.fs_type,
            dict(persistent.volume_attributes),
            persistent.node_publish_secret_ref,
            next(iter(spec.persistent_volume.spec.access_modes), v1.READ_WRITE_ONCE),
            spec.persistent_volume.spec.mount_options,
        )

    def _add_staging(
        self, ctx: golang.Context, client: csi_client.CSIDriverClient, publication: _Publication, spec: Spec
    ) -> None:
        """Add the staging path and the data of the attachment."""
        try:
            stages = client.node_supports_stage_unstage(ctx)
        except Exception as err:
            # Whatever the error is, no operation has started.
            raise csierrors.DriverCallError(
                log(f"mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability: {err}")
            ) from err
        if stages:
            publication.device_mount_path = csi_attacher.make_device_mount_path(self._plugin, spec)
        host = self._plugin.host
        k8s = host.get_kube_client()
        assert k8s is not None, "new_mounter requires a client"
        try:
            publication.publish_context = self._plugin.get_publish_context(
                k8s, self._volume_id, self._driver_name, host.get_node_name()
            )
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetUpAt failed to fetch publishContext: {err}")
            ) from err

    def _add_secrets(self, publication: _Publication) -> None:
        reference = publication.secret_ref
        if reference is None:
            return
        k8s = self._plugin.host.get_kube_client()
        assert k8s is not None, "new_mounter requires a client"
        try:
            publication.secrets = csi_util.get_credentials_from_secret(k8s, reference)
        except csierrors.SecretError as err:
            raise volumetypes.TransientOperationFailure(
                f"fetching NodePublishSecretRef {reference.namespace}/{reference.name} failed: {err}"
            ) from err

    def _add_pod_info(self, publication: _Publication, pod: v1.Pod) -> None:
        """Add the pod's information and tokens that the driver requires."""
        try:
            if self._plugin.pod_info_enabled(self._driver_name):
                publication.attributes |= csi_util.get_pod_info_attrs(pod, self._volume_lifecycle_mode)
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetUpAt failed to assemble volume attributes: {err}")
            ) from err
        try:
            self._add_service_account_tokens(publication, pod)
        except Exception as err:
            # Whatever error the API server returns, the next attempt asks again.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetUpAt failed to get service accoount token attributes: {err}")
            ) from err

    def _delegates_fs_group(self, ctx: golang.Context, client: csi_client.CSIDriverClient) -> bool:
        try:
            delegates = client.node_supports_volume_mount_group(ctx)
        except Exception as err:
            # Whatever the error is, no operation has started.
            raise volumetypes.TransientOperationFailure(
                log(f"mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: {err}")
            ) from err
        if delegates:
            klog.v(3).info_s(
                "Driver supports applying FSGroup (has VOLUME_MOUNT_GROUP node capability). Delegating FSGroup "
                "application to the driver through NodePublishVolume.",
                driver=self._driver_name,
            )
        return delegates

    def _add_selinux_option(self, publication: _Publication, spec: Spec, selinux_label: str) -> None:
        try:
            supported = self._plugin.supports_selinux_context_mount(spec)
        except Exception as err:
            # Whatever the error is, the driver has not been asked to do anything.
            raise csierrors.DriverCallError(log(f"failed to query for SELinuxMount support: {err}")) from err
        if supported and selinux_label:
            publication.mount_options = selinux.add_selinux_mount_option(publication.mount_options, selinux_label)
            publication.selinux_mount = True

    def _make_directory(self, path: str) -> None:
        """Create the volume's directory in the pod's directory. Raise OSError.

        DIVERGES (fault of Go): the kubelet creates the volume's directory when it knows everything that the driver
        needs.
        Go: pkg/volume/csi/csi_mounter.go, (*csiMountMgr).SetUpAt: the Go kubelet creates the directory before it asks
        for secrets, tokens and the driver's capabilities.
        Why: if one of these requests fails, a directory without the volume's data stays, and cannot be identified after
        a restart.
        Test: csi_mounter_test.py:test_volume_whose_driver_has_not_been_asked_has_no_directory
        """
        try:
            filesystem.mkdir_all(path, 0o750)
        except OSError as err:
            raise OSError(log(f'mounter.SetUpAt failed to create dir "{path}":  {err}')) from err
        klog.v(4).info_s(log(f"created target path successfully [{path}]"))

    def _save_data(self, directory: str, spec: Spec, selinux_label: str) -> None:
        node_name = self._plugin.host.get_node_name()
        data: dict[str, str] = {
            VolDataKey.SPEC_VOL_ID: spec.name(),
            VolDataKey.VOL_HANDLE: self._volume_id,
            VolDataKey.DRIVER_NAME: self._driver_name,
            VolDataKey.NODE_NAME: node_name,
            VolDataKey.VOLUME_LIFECYCLE_MODE: self._volume_lifecycle_mode,
            VolDataKey.ATTACHMENT_ID: csi_attacher.get_attachment_name(self._volume_id, self._driver_name, node_name),
        }
        if selinux_label:
            data[VolDataKey.SELINUX_MOUNT_CONTEXT] = selinux_label
        try:
            csi_util.save_volume_data(os.path.dirname(directory), VOL_DATA_FILE_NAME, data)
        except OSError as err:
            klog.error_s(err, log("mounter.SetUpAt failed to save volume info data"))
            if not csi_util.has_volume_data(os.path.dirname(directory), VOL_DATA_FILE_NAME):
                clean_up_mount_dir(self._plugin, directory, "mounter.SetUpAt failed to remove mount dir after error")
            raise

    def _publish(
        self,
        ctx: golang.Context,
        client: csi_client.CSIDriverClient,
        directory: str,
        args: MounterArgs,
        publication: _Publication,
        is_known: bool,
    ) -> None:
        """Ask the driver to publish the volume; is_known says whether the driver may have been asked before."""
        try:
            client.node_publish_volume(
                ctx,
                self._volume_id,
                self._read_only,
                publication.device_mount_path,
                directory,
                publication.access_mode,
                publication.publish_context,
                publication.attributes,
                publication.secrets,
                publication.fs_type,
                publication.mount_options,
                publication.fs_group,
            )
        except Exception as err:
            # A pod that already has the volume continues to use it. Without the directory the pod would keep old
            # content that no later publication replaces (kubernetes issue 121271).
            finished = volumetypes.is_operation_finished_error(err)
            # A volume whose publication never started will not be unpublished, so its directory must be removed now.
            never_begun = isinstance(err, volumetypes.TransientOperationFailure) and not is_known
            if never_begun or (finished and not args.reconstructed_volume and not args.is_remount):
                what = "mounter.SetupAt failed to remove mount dir after a NodePublish() error"
                clean_up_mount_dir(self._plugin, directory, what)
            raise

    def _look_for_selinux(self, directory: str) -> None:
        """Record whether the runtime must change the SELinux labels of the volume's files."""
        try:
            self._need_selinux_relabel = self._plugin.host.get_hostutil().get_selinux_support(directory)
        except OSError as err:
            # The volume is published, and must be unpublished when the pod ends.
            raise volumetypes.UncertainProgressError(f"error checking for SELinux support: {err}") from err

    def _change_ownership(self, directory: str, args: MounterArgs, spec: Spec, pod: v1.Pod) -> None:
        ownership = VolumeOwnership(
            self,
            directory,
            args.fs_group,
            args.fs_group_change_policy,
            volumeutil.fs_group_complete_hook(self._plugin, spec),
        )
        if args.recorder is not None:
            ownership.add_progress_notifier(pod, args.recorder)
        try:
            ownership.change_permissions()
        except Exception as err:
            # The pod cannot use the volume in this state; but it is published, and must be unpublished when the pod
            # ends.
            raise volumetypes.UncertainProgressError(f"applyFSGroup failed for vol {self._volume_id}: {err}") from err
        klog.v(4).info_s(log(f"mounter.SetupAt fsGroup [{args.fs_group}] applied successfully to {self._volume_id}"))

    def _add_service_account_tokens(self, publication: _Publication, pod: v1.Pod) -> None:
        """Add tokens for the audiences that the CSIDriver object lists."""
        driver = self._plugin.find_csi_driver(self._driver_name)
        if driver is None:
            klog.v(5).info_s(
                log(f'CSIDriver "{self._driver_name}" not found, not adding service account token information')
            )
            return
        if not driver.spec.token_requests:
            return
        account, namespace = pod.spec.service_account_name, pod.metadata.namespace
        outputs = {}
        for wanted in driver.spec.token_requests:
            request = _token_request(pod, wanted)
            answer = self._plugin.host.get_service_account_token(namespace, account, request)
            status = codec.to_builtins(answer.status)
            outputs[wanted.audience] = {key: status[key] for key in ("token", "expirationTimestamp")}
        klog.v(4).info_s(log(f'Fetched service account token attrs for CSIDriver "{self._driver_name}"'))
        tokens = msgspec.json.encode(dict(sorted(outputs.items()))).decode()
        in_secrets = driver.spec.service_account_token_in_secrets
        (publication.secrets if in_secrets else publication.attributes)[_TOKENS_ATTRIBUTE] = tokens

    def get_attributes(self) -> Attributes:
        return Attributes(
            read_only=self._read_only, managed=not self._read_only, selinux_relabel=self._need_selinux_relabel
        )

    def tear_down(self) -> None:
        """Ask the driver to unpublish the volume."""
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        """Ask the driver to unpublish the volume at the directory.

        Raise types.TransientOperationFailure if the driver is not registered, CSIError or OSError.
        """
        klog.v(4).info_s(log(f"Unmounter.TearDownAt({directory})"))
        client = self.csi_client_getter.get_for("Unmounter.TearDownAt")
        ctx, cancel = csi_util.create_csi_operation_context(self._spec, CSI_TIMEOUT)
        try:
            client.node_unpublish_volume(ctx, self._volume_id, directory)
        except Exception as err:
            # Whatever the error is, the unmount is retried until it succeeds.
            raise csierrors.DriverCallError(log(f"Unmounter.TearDownAt failed: {err}")) from err
        finally:
            cancel()
        # The driver should have removed the directory, but some drivers do not.
        try:
            check_unmounted(self._plugin, directory)
            remove_mount_dir(self._plugin, directory)
        except OSError as err:
            raise OSError(log(f"Unmounter.TearDownAt failed to clean mount dir [{directory}]: {err}")) from err
        klog.v(4).info_s(log(f"Unmounter.TearDownAt successfully unmounted dir [{directory}]"))

    def _supports_fs_group(self, fs_type: str, fs_group: int | None, driver_policy: str) -> bool:
        """Report whether the kubelet must change the group of the volume's files."""
        if fs_group is None or driver_policy == storagev1.NONE_FS_GROUP_POLICY or self._read_only:
            return False
        if driver_policy == storagev1.FILE_FS_GROUP_POLICY:
            return True
        why_not = self._why_no_fs_group(fs_type)
        if why_not:
            klog.v(4).info_s(log(f"mounter.SetupAt WARNING: skipping fsGroup, {why_not}"))
        return not why_not

    def _why_no_fs_group(self, fs_type: str) -> str:
        if not fs_type:
            return "fsType not provided"
        if self._spec is not None and self._spec.persistent_volume is not None:
            modes = self._spec.persistent_volume.spec.access_modes
            if not modes:
                return "access modes not provided"
            return "" if csi_util.has_read_write_once(modes) else "only support ReadWriteOnce access mode"
        # An inline volume belongs to a single pod.
        is_inline = self._spec is not None and self._spec.volume is not None and self._spec.volume.csi is not None
        return "" if is_inline else "unsupported volume type"

    def _get_fs_group_policy(self) -> str:
        """Return the policy of the CSIDriver object.

        Raise ValueError if the object has no policy, and any error of reading the object.
        """
        driver = self._plugin.find_csi_driver(self._driver_name) if self._plugin.csi_driver_lister else None
        if driver is None:
            return storagev1.READ_WRITE_ONCE_WITH_FS_TYPE_FS_GROUP_POLICY
        if not driver.spec.fs_group_policy:
            raise ValueError(log("expected valid fsGroupPolicy, received nil value or empty string"))
        return driver.spec.fs_group_policy

    def _supports_volume_lifecycle_mode(self) -> None:
        """Check that the driver supports the volume's lifecycle mode.

        Raise ValueError if it does not, and any error of reading the CSIDriver object.
        """
        driver = self._plugin.find_csi_driver(self._driver_name) if self._plugin.csi_driver_lister else None
        mode = self._volume_lifecycle_mode
        if driver is None:
            # Without a CSIDriver object, only what every driver supports is known.
            if mode == storagev1.VOLUME_LIFECYCLE_PERSISTENT:
                return
            raise ValueError(f'volume mode "{mode}" not supported by driver {self._driver_name} (no CSIDriver object)')
        if contains_volume_mode(driver.spec.volume_lifecycle_modes, mode):
            return
        modes = " ".join(f'"{one}"' for one in driver.spec.volume_lifecycle_modes)
        raise ValueError(f'volume mode "{mode}" not supported by driver {self._driver_name} (only supports [{modes}])')


def _token_request(pod: v1.Pod, wanted: storagev1.TokenRequest) -> authenticationv1.TokenRequest:
    return authenticationv1.TokenRequest(
        spec=authenticationv1.TokenRequestSpec(
            audiences=[wanted.audience] if wanted.audience else [],
            expiration_seconds=wanted.expiration_seconds,
            bound_object_ref=authenticationv1.BoundObjectReference(
                api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
            ),
        )
    )


def contains_volume_mode(modes: list[str], mode: str) -> bool:
    return mode in modes


def make_volume_handle(pod_uid: types.UID, vol_source_spec_name: str) -> str:
    """Return the handle that drivers get for an inline volume."""
    return f"csi-{hashlib.sha256(f'{pod_uid}{vol_source_spec_name}'.encode()).hexdigest()}"
