"""Record which volumes this node needs, and which pods need them.

Go: pkg/kubelet/volumemanager/cache/desired_state_of_world.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from kubelet.volumemanager.cache import desired_state_of_wold_selinux_metrics as selinux_metrics
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api.resource import Quantity
from pkg.component_helpers import resource as resourcehelper
from pkg.volume import PluginNotFoundError, Spec, VolumePlugin, VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.util.operationexecutor import VolumeToMount

if TYPE_CHECKING:
    import prometheus_client

ZERO = Quantity(0)
# `MAX_POD_ERRORS` is the number of errors that are kept for one pod; further ones would add no information.
MAX_POD_ERRORS = 10
CSI_PLUGIN_NAME = "kubernetes.io/csi"


@dataclass(frozen=True, slots=True)
class _PodToMount:
    """Describe a pod that needs a volume."""

    pod: v1.Pod
    # `volume_spec` is, for a claim, the spec of the persistent volume that the claim is bound to.
    volume_spec: Spec
    # `outer_volume_spec_names` are the volume's names in the pod's spec: a pod may list the same claim under several
    # names.
    outer_volume_spec_names: list[str]
    mount_request_time: datetime


@dataclass(frozen=True, slots=True)
class _SELinuxLabel:
    """Describe the SELinux label that a volume must be mounted with."""

    plugin_supports_it: bool
    # "" means no label.
    label: str = ""


@dataclass(slots=True)
class _VolumeToMount:
    """Describe a volume that pods need."""

    volume_name: str
    plugin_is_attachable: bool
    plugin_is_device_mountable: bool
    volume_gid_value: str
    # None means no limit.
    desired_size_limit: Quantity | None
    # `effective_selinux_mount_file_label` is the label for the mount option -o context=, or "" if the volume is mounted
    # without it.
    effective_selinux_mount_file_label: str
    # `original_selinux_label` is the label that the volume would get if volumes of every access mode were mounted with
    # one. It serves only to count conflicts.
    original_selinux_label: str
    # `persistent_volume_size` is the capacity in the spec of the persistent volume.
    persistent_volume_size: Quantity = ZERO
    pods_to_mount: dict[str, _PodToMount] = field(default_factory=dict)
    # `reported_in_use` says whether the node's status lists the volume in volumesInUse. Before that the volume must not
    # be attached or mounted.
    reported_in_use: bool = False


class DesiredStateOfWorld:
    """Record volumes and the pods that need them. Every method is safe from any thread, and returns copies.

    The populator writes the desired state, and the reconciler compares it with the actual state.
    """

    def __init__(
        self,
        volume_plugin_mgr: VolumePluginMgr,
        selinux_translator: volumeutil.SELinuxLabelTranslator,
        on_pod_change: Callable[[str], None] | None = None,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Create an empty state.

        The state calls on_pod_change, from any thread, with the name of a pod for which it has a new error.
        """
        self._volume_plugin_mgr = volume_plugin_mgr
        self._selinux_translator = selinux_translator
        self._on_pod_change = on_pod_change or (lambda pod_name: None)
        self._clock = clock or clocklib.RealClock()
        self._lock = threading.Lock()  # This lock guards all fields below.
        self._volumes_to_mount: dict[str, _VolumeToMount] = {}
        self._pod_errors: dict[str, dict[str, Exception]] = {}
        # `_kept_pods` holds the pods whose needed volumes are not fully known, so that they keep every volume they
        # have.
        self._kept_pods: frozenset[str] = frozenset()
        selinux_metrics.register_selinux_metrics()

    def add_pod_to_volume(
        self,
        pod_name: str,
        pod: v1.Pod,
        volume_spec: Spec,
        outer_volume_spec_name: str,
        volume_gid_value: str,
        selinux_container_contexts: list[v1.SELinuxOptions],
    ) -> str:
        """Record that the pod needs the volume, or update that record. Return the volume's unique name.

        Raise ValueError if not exactly one plugin supports the volume, or if the SELinux labels of its users conflict.
        """
        try:
            plugin = self._volume_plugin_mgr.find_plugin_by_spec(volume_spec)
        except PluginNotFoundError as err:
            quoted = klog.quote(volume_spec.name())
            raise ValueError(f"failed to get Plugin from volumeSpec for volume {quoted} err={err}") from err
        attachable = volumeutil.is_attachable_volume(volume_spec, self._volume_plugin_mgr)
        device_mountable = volumeutil.is_device_mountable_volume(volume_spec, self._volume_plugin_mgr)
        volume_name = _unique_volume_name(pod_name, plugin, volume_spec, attachable or device_mountable)
        selinux = self._get_selinux_label(volume_spec, selinux_container_contexts, pod.spec.security_context)
        label = selinux.label
        klog.v(4).info_s("expected volume SELinux label context", volume=volume_spec.name(), label=label)
        # Call the plugin without the lock, because the plugin may have to wait until it knows its drivers.
        remounts = plugin.requires_remount(volume_spec)
        with self._lock:
            volume = self._volumes_to_mount.get(volume_name)
            if volume is None:
                volume = _VolumeToMount(
                    volume_name=volume_name,
                    plugin_is_attachable=attachable,
                    plugin_is_device_mountable=device_mountable,
                    volume_gid_value=volume_gid_value,
                    desired_size_limit=_size_limit(pod, volume_spec),
                    effective_selinux_mount_file_label=_effective_label(volume_spec, label),
                    original_selinux_label=label,
                    persistent_volume_size=_persistent_volume_size(volume_spec),
                )
                if label:
                    selinux_metrics.SELINUX_VOLUMES_ADMITTED.labels(*_volume_labels(plugin, volume_spec)).inc()
            elif selinux.plugin_supports_it and pod_name not in volume.pods_to_mount:
                _check_selinux_conflict(plugin, volume_spec, volume, label)
            self._volumes_to_mount[volume_name] = volume
            volume.pods_to_mount[pod_name] = self._pod_to_mount(
                volume.pods_to_mount.get(pod_name), pod, remounts, volume_spec, outer_volume_spec_name
            )
        return volume_name

    def _pod_to_mount(
        self, old: _PodToMount | None, pod: v1.Pod, remounts: bool, spec: Spec, outer_name: str
    ) -> _PodToMount:
        names = list(old.outer_volume_spec_names) if old is not None else []
        if outer_name not in names:
            names.append(outer_name)
        # For a volume whose content changes, each call is a new mount request. For any other volume the first request
        # stays.
        requested = old.mount_request_time if old is not None and not remounts else self._clock.steady()
        return _PodToMount(pod, spec, names, requested)

    def _get_selinux_label(
        self,
        volume_spec: Spec,
        container_contexts: list[v1.SELinuxOptions],
        pod_security_context: v1.PodSecurityContext | None,
    ) -> _SELinuxLabel:
        """Return the label to mount with. Raise ValueError if the labels conflict or cannot be determined.

        For volumes that are not mounted with a label, such errors are only counted.
        """
        access_mode = _get_volume_access_mode(volume_spec)
        try:
            info = volumeutil.get_mount_selinux_label(
                volume_spec,
                container_contexts,
                pod_security_context,
                self._volume_plugin_mgr,
                self._selinux_translator,
            )
        except volumeutil.SELinuxLabelTranslationError as err:
            _handle_selinux_metric_error(
                err,
                volumeutil.volume_supports_selinux_mount(volume_spec),
                selinux_metrics.SELINUX_CONTAINER_CONTEXT_WARNINGS.labels(access_mode),
                selinux_metrics.SELINUX_CONTAINER_CONTEXT_ERRORS.labels(access_mode),
            )
            return _SELinuxLabel(plugin_supports_it=True)
        except volumeutil.MultipleSELinuxLabelsError as err:
            _handle_selinux_metric_error(
                err,
                volumeutil.volume_supports_selinux_mount(volume_spec),
                selinux_metrics.SELINUX_POD_CONTEXT_MISMATCH_WARNINGS.labels(access_mode),
                selinux_metrics.SELINUX_POD_CONTEXT_MISMATCH_ERRORS.labels(access_mode),
            )
            return _SELinuxLabel(plugin_supports_it=False)
        return _SELinuxLabel(info.plugin_supports_selinux_context_mount, info.selinux_mount_label)

    def mark_volumes_reported_in_use(self, reported_volumes: Iterable[str]) -> bool:
        """Record the volumes that the node's status lists as in use. Report whether that changed any volume here."""
        reported = set(reported_volumes)
        with self._lock:
            changed = [v for v in self._volumes_to_mount.values() if v.reported_in_use != (v.volume_name in reported)]
            for volume in changed:
                volume.reported_in_use = not volume.reported_in_use
        return bool(changed)

    def delete_pod_from_volume(self, pod_name: str, volume_name: str) -> None:
        """Remove the volume from the pod, and forget the pod's errors and a volume that no other pod needs."""
        with self._lock:
            self._pod_errors.pop(pod_name, None)
            volume = self._volumes_to_mount.get(volume_name)
            if volume is None:
                return
            volume.pods_to_mount.pop(pod_name, None)
            if not volume.pods_to_mount:
                del self._volumes_to_mount[volume_name]

    def update_persistent_volume_size(self, volume_name: str, size: Quantity) -> None:
        """Set the capacity that the spec of the persistent volume now gives."""
        with self._lock:
            if (volume := self._volumes_to_mount.get(volume_name)) is not None:
                volume.persistent_volume_size = size

    def mark_volume_attachability(self, volume_name: str, attachable: bool) -> None:
        """Set whether the volume must be attached, after its driver has changed that."""
        with self._lock:
            if (volume := self._volumes_to_mount.get(volume_name)) is not None:
                volume.plugin_is_attachable = attachable

    def volume_exists(self, volume_name: str, selinux_mount_context: str) -> bool:
        """Report whether pods need the volume with this SELinux context.

        A volume that is mounted with another context must be unmounted everywhere before it can be mounted with the new
        one, so it does not count as existing.
        """
        with self._lock:
            volume = self._volumes_to_mount.get(volume_name)
            return volume is not None and volume.effective_selinux_mount_file_label == selinux_mount_context

    def keep_volumes_of(self, pod_names: Collection[str]) -> None:
        """Set the pods that keep every volume they have; they replace those of the last call."""
        with self._lock:
            self._kept_pods = frozenset(pod_names)

    def pod_exists_in_volume(self, pod_name: str, volume_name: str, selinux_mount_option: str) -> bool:
        """Report whether the pod needs, or may need, the volume with this SELinux context."""
        with self._lock:
            volume = self._volumes_to_mount.get(volume_name)
            return pod_name in self._kept_pods or (
                volume is not None
                and volume.effective_selinux_mount_file_label == selinux_mount_option
                and pod_name in volume.pods_to_mount
            )

    def volume_exists_with_spec_name(self, pod_name: str, volume_spec_name: str) -> bool:
        """Report whether the pod needs, or may need, a volume whose directory has this name."""
        with self._lock:
            if pod_name in self._kept_pods:
                return True
            pods = (volume.pods_to_mount.get(pod_name) for volume in self._volumes_to_mount.values())
            return any(pod is not None and pod.volume_spec.name() == volume_spec_name for pod in pods)

    def find_volume_with_spec_name(self, pod_name: str, plugin_name: str, volume_spec_name: str) -> str | None:
        """Return the unique name of the plugin's volume that the pod needs and whose directory has this name."""
        with self._lock:
            for volume in self._volumes_to_mount.values():
                pod = volume.pods_to_mount.get(pod_name)
                is_plugins = volume.volume_name.startswith(f"{plugin_name}/")
                if is_plugins and pod is not None and pod.volume_spec.name() == volume_spec_name:
                    return volume.volume_name
        return None

    def get_pods(self) -> set[str]:
        """Return the pods that need volumes."""
        with self._lock:
            return {pod_name for volume in self._volumes_to_mount.values() for pod_name in volume.pods_to_mount}

    def get_volume_names_for_pod(self, pod_name: str) -> dict[str, str]:
        """Return the unique names of the pod's volumes, by their names in the pod's spec."""
        with self._lock:
            return {
                outer_name: volume.volume_name
                for volume in self._volumes_to_mount.values()
                if (pod := volume.pods_to_mount.get(pod_name)) is not None
                for outer_name in pod.outer_volume_spec_names
            }

    def get_volumes_to_mount(self) -> list[VolumeToMount]:
        """List the volumes to mount, each once for every pod that needs it."""
        with self._lock:
            return [
                _new_volume_to_mount(volume, pod_name, pod)
                for volume in self._volumes_to_mount.values()
                for pod_name, pod in volume.pods_to_mount.items()
            ]

    def get_attachable_volumes(self) -> set[str]:
        """Return the names of the volumes that must be attached."""
        with self._lock:
            return {volume.volume_name for volume in self._volumes_to_mount.values() if volume.plugin_is_attachable}

    def add_error_to_pod(self, pod_name: str, err: Exception) -> None:
        """Keep an error for the pod's next sync. Errors with the same text are kept once."""
        with self._lock:
            errors = self._pod_errors.setdefault(pod_name, {})
            if len(errors) < MAX_POD_ERRORS:
                errors[str(err)] = golang.without_frames(err)
        self._on_pod_change(pod_name)

    def pop_pod_errors(self, pod_name: str) -> list[Exception]:
        """Return the pod's errors, sorted by text, and forget them."""
        with self._lock:
            return [err for _, err in sorted(self._pod_errors.pop(pod_name, {}).items())]

    def get_pods_with_errors(self) -> list[str]:
        with self._lock:
            return list(self._pod_errors)


def _unique_volume_name(pod_name: str, plugin: VolumePlugin, spec: Spec, shared: bool) -> str:
    """Return the unique name of the volume. A volume that is not shared includes the pod in its name.

    A volume is shared if the node attaches or mounts it once for all pods. Raise ValueError if the plugin cannot name
    it.
    """
    if not shared:
        return volumeutil.get_unique_volume_name_from_spec_with_pod(pod_name, plugin, spec)
    try:
        return volumeutil.get_unique_volume_name_from_spec(plugin, spec)
    except ValueError as err:
        raise ValueError(
            f"failed to GetUniqueVolumeNameFromSpec for volumeSpec {klog.quote(spec.name())} using volume plugin "
            f"{klog.quote(plugin.get_plugin_name())} err={err}"
        ) from err


def _size_limit(pod: v1.Pod, spec: Spec) -> Quantity | None:
    """Return the size limit of a volume on local ephemeral storage: the lower of the pod's and the volume's own."""
    if spec.volume is None or not volumeutil.is_local_ephemeral_volume(spec.volume):
        return None
    limits = resourcehelper.pod_limits(pod, resourcehelper.PodResourcesOptions())
    limit = limits.get(v1.RESOURCE_EPHEMERAL_STORAGE, ZERO).value()
    empty_dir = spec.volume.empty_dir
    if empty_dir is not None and empty_dir.size_limit is not None:
        own = empty_dir.size_limit.value()
        if own > 0 and (limit == 0 or own < limit):
            limit = own
    return Quantity(limit)


def _persistent_volume_size(spec: Spec) -> Quantity:
    if spec.persistent_volume is None:
        return ZERO
    return spec.persistent_volume.spec.capacity.get(v1.RESOURCE_STORAGE, ZERO)


def _effective_label(spec: Spec, label: str) -> str:
    if volumeutil.volume_supports_selinux_mount(spec):
        return label
    message = "volume does not support SELinux context mount, clearing the expected label"
    klog.v(4).info_s(message, volume=spec.name())
    return ""


def _check_selinux_conflict(plugin: VolumePlugin, spec: Spec, volume: _VolumeToMount, label: str) -> None:
    """Count a conflict, or raise ValueError, if other pods need the volume with another label."""
    if label == volume.original_selinux_label:
        return
    labels = _volume_labels(plugin, spec)
    _handle_selinux_metric_error(
        ValueError(
            f"conflicting SELinux labels of volume {spec.name()}: {klog.quote(volume.original_selinux_label)} "
            f"and {klog.quote(label)}"
        ),
        volumeutil.volume_supports_selinux_mount(spec),
        selinux_metrics.SELINUX_VOLUME_CONTEXT_MISMATCH_WARNINGS.labels(*labels),
        selinux_metrics.SELINUX_VOLUME_CONTEXT_MISMATCH_ERRORS.labels(*labels),
    )


def _handle_selinux_metric_error(
    err: Exception,
    selinux_supported: bool,
    warning_metric: prometheus_client.Gauge,
    error_metric: prometheus_client.Gauge,
) -> None:
    """Count the error, and raise it if volumes of this kind are mounted with SELinux labels."""
    if selinux_supported:
        error_metric.inc()
        try:
            raise err
        finally:
            # The error's traceback refers to this frame, and this frame to the error. Without `del` the cycle would
            # keep all callers' frames in memory until the garbage collector runs.
            del err
    warning_metric.inc()
    klog.v(4).info_s("Ignoring an SELinux label error, because the volume is not mounted with a label", err=err)


def _volume_labels(plugin: VolumePlugin, spec: Spec) -> tuple[str, str]:
    return _get_volume_plugin_name_with_driver(plugin, spec), _get_volume_access_mode(spec)


def _get_volume_plugin_name_with_driver(plugin: VolumePlugin, spec: Spec) -> str:
    """Return the plugin's name; for CSI append the driver's name."""
    name = plugin.get_plugin_name()
    if name != CSI_PLUGIN_NAME:
        return name
    sources = (
        spec.persistent_volume.spec.csi if spec.persistent_volume is not None else None,
        spec.volume.csi if spec.volume is not None else None,
    )
    return f"{name}/{next((source.driver for source in sources if source is not None), 'unknown')}"


def _get_volume_access_mode(spec: Spec) -> str:
    """Return the abbreviation of the persistent volume's most permissive access mode."""
    if spec.persistent_volume is None:
        return "inline"
    modes = spec.persistent_volume.spec.access_modes
    for mode, short in (
        (v1.READ_WRITE_MANY, "RWX"),
        (v1.READ_ONLY_MANY, "ROX"),
        (v1.READ_WRITE_ONCE, "RWO"),
        (v1.READ_WRITE_ONCE_POD, "RWOP"),
    ):
        if mode in modes:
            return short
    return ""


def _new_volume_to_mount(volume: _VolumeToMount, pod_name: str, pod: _PodToMount) -> VolumeToMount:
    return VolumeToMount(
        volume_name=volume.volume_name,
        pod_name=pod_name,
        volume_spec=pod.volume_spec,
        pod=pod.pod,
        outer_volume_spec_names=pod.outer_volume_spec_names,
        plugin_is_attachable=volume.plugin_is_attachable,
        plugin_is_device_mountable=volume.plugin_is_device_mountable,
        volume_gid_value=volume.volume_gid_value,
        reported_in_use=volume.reported_in_use,
        desired_size_limit=volume.desired_size_limit,
        mount_request_time=pod.mount_request_time,
        desired_persistent_volume_size=volume.persistent_volume_size,
        selinux_label=volume.effective_selinux_mount_file_label,
    )
