"""Set the default values of a pod's fields.

All functions change their argument in place.

Go: pkg/apis/core/v1/defaults.go, zz_generated.defaults.go
"""

from __future__ import annotations

from collections.abc import Iterable

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apis.core import helper
from pkg.component_helpers import resource as resourcehelper
from pkg.util import parsers

# Every field of a Volume except its name is a source.
_VOLUME_SOURCES = tuple(name for name in v1.Volume.__struct_fields__ if name != "name")
_MILLI = 10**6  # The value is in nanos.


def set_defaults_resource_list(resources: dict[str, Quantity]) -> None:
    """Round amounts up to thousandths, the smallest unit that the API stores."""
    for key, quantity in resources.items():
        if quantity.nanos % _MILLI:
            resources[key] = Quantity(-(-quantity.nanos // _MILLI) * _MILLI, quantity.format)


def set_defaults_volume(volume: v1.Volume) -> None:
    """Make a volume without a source an emptyDir, and set the pull policy of an image volume.

    The policy's default is the same as for containers.
    """
    if all(getattr(volume, name) is None for name in _VOLUME_SOURCES):
        volume.empty_dir = v1.EmptyDirVolumeSource()
    if volume.image is not None and not volume.image.pull_policy:
        volume.image.pull_policy = _default_pull_policy(volume.image.reference)


def _default_pull_policy(image: str) -> str:
    try:
        _, tag, _ = parsers.parse_image_name(image)
    except ValueError:
        tag = ""  # Validation will report the error.
    return v1.PULL_ALWAYS if tag == "latest" else v1.PULL_IF_NOT_PRESENT


def set_defaults_container(container: v1.Container) -> None:
    if not container.image_pull_policy:
        container.image_pull_policy = _default_pull_policy(container.image)
    if not container.termination_message_path:
        container.termination_message_path = v1.TERMINATION_MESSAGE_PATH_DEFAULT
    if not container.termination_message_policy:
        container.termination_message_policy = v1.TERMINATION_MESSAGE_READ_FILE


def set_defaults_pod(pod: v1.Pod) -> None:
    """Set the defaults that apply to a pod but not to a pod template."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for key, limit in container.resources.limits.items():
            container.resources.requests.setdefault(key, limit)
    # Pod-level requests depend on the containers' requests, so they are set afterwards.
    if features.feature_gate.enabled(features.POD_LEVEL_RESOURCES):
        _default_huge_page_pod_limits(pod)
        _default_pod_requests(pod)
    if pod.spec.enable_service_links is None:
        pod.spec.enable_service_links = v1.DEFAULT_ENABLE_SERVICE_LINKS
    if pod.spec.host_network:
        _default_host_network_ports(pod.spec.containers)
        _default_host_network_ports(pod.spec.init_containers)


def set_defaults_pod_spec(spec: v1.PodSpec) -> None:
    spec.dns_policy = spec.dns_policy or v1.DNS_CLUSTER_FIRST
    spec.restart_policy = spec.restart_policy or v1.RESTART_POLICY_ALWAYS
    if spec.security_context is None:
        spec.security_context = v1.PodSecurityContext()
    if spec.termination_grace_period_seconds is None:
        spec.termination_grace_period_seconds = v1.DEFAULT_TERMINATION_GRACE_PERIOD_SECONDS
    spec.scheduler_name = spec.scheduler_name or v1.DEFAULT_SCHEDULER_NAME


def set_defaults_probe(probe: v1.Probe) -> None:
    probe.timeout_seconds = probe.timeout_seconds or 1
    probe.period_seconds = probe.period_seconds or 10
    probe.success_threshold = probe.success_threshold or 1
    probe.failure_threshold = probe.failure_threshold or 3


def set_defaults_http_get_action(action: v1.HTTPGetAction) -> None:
    action.path = action.path or "/"
    action.scheme = action.scheme or v1.URI_SCHEME_HTTP


def _default_host_network_ports(containers: Iterable[v1.Container]) -> None:
    """Set the host port of each port to the container port, as the host's network requires."""
    for container in containers:
        for port in container.ports:
            port.host_port = port.host_port or port.container_port


def _default_pod_requests(pod: v1.Pod) -> None:
    """Set pod-level requests if there are pod-level limits.

    For resources that may be overcommitted they are the sum of the containers' requests; otherwise they are the limits.
    """
    resources = pod.spec.resources
    if resources is None or not resources.limits:
        return
    aggregated = resourcehelper.aggregate_container_requests(pod, resourcehelper.PodResourcesOptions())
    for key, quantity in aggregated.items():
        if resourcehelper.is_supported_pod_level_resource(key) and helper.is_overcommit_allowed(key):
            resources.requests.setdefault(key, quantity)
    for key, limit in resources.limits.items():
        if resourcehelper.is_supported_pod_level_resource(key):
            resources.requests.setdefault(key, limit)


def _default_huge_page_pod_limits(pod: v1.Pod) -> None:
    """Set the pod-level limits of huge pages to the sum of the containers' limits, if there are pod-level resources."""
    resources = pod.spec.resources
    if resources is None or not (resources.limits or resources.requests):
        return
    aggregated = resourcehelper.aggregate_container_limits(pod, resourcehelper.PodResourcesOptions())
    for key, quantity in aggregated.items():
        if not resourcehelper.is_supported_pod_level_resource(key) or not helper.is_huge_page_resource_name(key):
            continue
        if key not in resources.requests:
            resources.limits.setdefault(key, quantity)


# The following functions correspond to Go's generated code, which applies the defaults of each type.


def set_object_defaults_pod(pod: v1.Pod) -> None:
    """Set all defaults of a pod in Go's order."""
    set_defaults_pod(pod)
    spec = pod.spec
    set_defaults_pod_spec(spec)
    for volume in spec.volumes:
        set_defaults_volume(volume)
        _set_volume_source_defaults(volume)
    for container in (*spec.init_containers, *spec.containers):
        set_defaults_container(container)
        _set_container_parts_defaults(container)
    set_defaults_resource_list(spec.overhead)
    if spec.resources is not None:
        set_defaults_resource_list(spec.resources.limits)
        set_defaults_resource_list(spec.resources.requests)


def _set_container_parts_defaults(container: v1.Container) -> None:
    for port in container.ports:
        port.protocol = port.protocol or v1.PROTOCOL_TCP
    for env in container.env:
        if env.value_from is None:
            continue
        if env.value_from.field_ref is not None:
            env.value_from.field_ref.api_version = env.value_from.field_ref.api_version or "v1"
        if env.value_from.file_key_ref is not None and env.value_from.file_key_ref.optional is None:
            env.value_from.file_key_ref.optional = False
    set_defaults_resource_list(container.resources.limits)
    set_defaults_resource_list(container.resources.requests)
    for probe in (container.liveness_probe, container.readiness_probe, container.startup_probe):
        if probe is not None:
            _set_probe_parts_defaults(probe)
    if container.lifecycle is not None:
        for handler in (container.lifecycle.post_start, container.lifecycle.pre_stop):
            if handler is not None and handler.http_get is not None:
                set_defaults_http_get_action(handler.http_get)


def _set_probe_parts_defaults(probe: v1.Probe) -> None:
    set_defaults_probe(probe)
    if probe.http_get is not None:
        set_defaults_http_get_action(probe.http_get)
    if probe.grpc is not None and probe.grpc.service is None:
        probe.grpc.service = ""


def _set_volume_source_defaults(volume: v1.Volume) -> None:
    if volume.host_path is not None and volume.host_path.type is None:
        volume.host_path.type = v1.HOST_PATH_UNSET
    for source in (volume.secret, volume.config_map, volume.downward_api, volume.projected):
        if source is not None and source.default_mode is None:
            # The default mode is the same for all four sources.
            source.default_mode = v1.SECRET_VOLUME_SOURCE_DEFAULT_MODE
    if volume.downward_api is not None:
        _set_downward_api_items_defaults(volume.downward_api.items)
    if volume.projected is not None:
        _set_projections_defaults(volume.projected.sources)
    if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
        claim = volume.ephemeral.volume_claim_template.spec
        claim.volume_mode = claim.volume_mode or v1.PERSISTENT_VOLUME_FILESYSTEM
        set_defaults_resource_list(claim.resources.limits)
        set_defaults_resource_list(claim.resources.requests)
    _set_remote_volume_defaults(volume)


def _set_downward_api_items_defaults(items: Iterable[v1.DownwardAPIVolumeFile]) -> None:
    for item in items:
        if item.field_ref is not None:
            item.field_ref.api_version = item.field_ref.api_version or "v1"


def _set_projections_defaults(sources: Iterable[v1.VolumeProjection]) -> None:
    for source in sources:
        if source.downward_api is not None:
            _set_downward_api_items_defaults(source.downward_api.items)
        if source.service_account_token is not None and source.service_account_token.expiration_seconds is None:
            source.service_account_token.expiration_seconds = 3600


def _set_remote_volume_defaults(volume: v1.Volume) -> None:
    if volume.iscsi is not None:
        volume.iscsi.iscsi_interface = volume.iscsi.iscsi_interface or "default"
    if volume.rbd is not None:
        volume.rbd.pool = volume.rbd.pool or "rbd"
        volume.rbd.user = volume.rbd.user or "admin"
        volume.rbd.keyring = volume.rbd.keyring or "/etc/ceph/keyring"
    if volume.azure_disk is not None:
        disk = volume.azure_disk
        disk.caching_mode = v1.AZURE_DATA_DISK_CACHING_READ_WRITE if disk.caching_mode is None else disk.caching_mode
        disk.fs_type = "ext4" if disk.fs_type is None else disk.fs_type
        disk.read_only = False if disk.read_only is None else disk.read_only
        disk.kind = v1.AZURE_SHARED_BLOB_DISK if disk.kind is None else disk.kind
    if volume.scale_io is not None:
        volume.scale_io.storage_mode = volume.scale_io.storage_mode or "ThinProvisioned"
        volume.scale_io.fs_type = volume.scale_io.fs_type or "xfs"
