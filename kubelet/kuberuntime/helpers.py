"""Convert between the types of the runtime and the kubelet, sort objects of the runtime, and build log paths.

Go: pkg/kubelet/kuberuntime/helpers.go
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cm
from kubelet import container as kubecontainer
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import labels
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.security import apparmor
from pkg.util import parsers

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi

_NANOSECONDS = 1_000_000_000


def sort_containers_by_created_then_id(
    containers: Iterable[runtimeapi.Container],
) -> list[runtimeapi.Container]:
    """Sort containers, newest first; equal times are sorted by ID to keep the order stable."""
    return sorted(containers, key=lambda c: (-c.created_at, c.id))


def sort_pod_sandboxes_by_created_then_id(
    sandboxes: Iterable[runtimeapi.PodSandbox],
) -> list[runtimeapi.PodSandbox]:
    """Sort sandboxes, newest first: by attempt, then by creation time, then by ID."""
    return sorted(sandboxes, key=lambda s: (-s.metadata.attempt, -s.created_at, s.id))


def sort_container_statuses_by_created(
    statuses: Iterable[kubecontainer.Status],
) -> list[kubecontainer.Status]:
    """Sort statuses so that the newest run of each name comes first."""
    return sorted(statuses, key=kubecontainer.creation_order, reverse=True)


def time_from_nanoseconds(nanoseconds: int) -> datetime:
    """Convert the runtime's nanoseconds since the epoch."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def status_message(err: BaseException) -> str:
    """Return the runtime's own message without gRPC's prefix.

    Go: status.FromError
    """
    return err.message if isinstance(err, crierror.RemoteError) else str(err)


_STATES = {
    runtimeapi.CONTAINER_CREATED: kubecontainer.CONTAINER_STATE_CREATED,
    runtimeapi.CONTAINER_RUNNING: kubecontainer.CONTAINER_STATE_RUNNING,
    runtimeapi.CONTAINER_EXITED: kubecontainer.CONTAINER_STATE_EXITED,
}


def to_kube_container_state(state: runtimeapi.ContainerState.ValueType) -> kubecontainer.State:
    """Convert the runtime's state; an unknown value becomes UNKNOWN."""
    return _STATES.get(state, kubecontainer.CONTAINER_STATE_UNKNOWN)


_PROTOCOLS = {
    v1.PROTOCOL_TCP: runtimeapi.TCP,
    v1.PROTOCOL_UDP: runtimeapi.UDP,
    v1.PROTOCOL_SCTP: runtimeapi.SCTP,
}


def to_runtime_protocol(protocol: str) -> runtimeapi.Protocol.ValueType:
    """Convert the protocol; an unknown value becomes TCP."""
    if protocol not in _PROTOCOLS:
        klog.info_s("Unknown protocol, defaulting to TCP", protocol=protocol)
    return _PROTOCOLS.get(protocol, runtimeapi.TCP)


@dataclass(kw_only=True, eq=False, repr=False)
class HelperMethods:
    """Convert what depends on the runtime's name or on settings."""

    # Container IDs begin with this name.
    runtime_name: str
    image_service: internalapi.ImageManagerService
    seccomp_profile_root: str

    def to_kube_container(self, c: runtimeapi.Container) -> kubecontainer.Container:
        """Convert a container. Raise ValueError if it has no ID or image."""
        if not c.id or not c.HasField("image"):
            raise ValueError("unable to convert a nil pointer to a runtime container")
        return kubecontainer.Container(
            id=kubecontainer.ContainerID(self.runtime_name, c.id),
            name=c.metadata.name,
            # Runtimes before 1.30 report no image ID.
            image_id=c.image_id or c.image_ref,
            image_ref=c.image_ref,
            image_runtime_handler=c.image.runtime_handler,
            image=c.image.image,
            hash=labels.get_hash_from_annotations(c.annotations),
            state=to_kube_container_state(c.state),
            pod_sandbox_id=c.pod_sandbox_id,
            created_at=c.created_at,
        )

    def sandbox_to_kube_container(self, s: runtimeapi.PodSandbox) -> kubecontainer.Container:
        """Convert a sandbox to a container, as the PLEG requires. Raise ValueError if the sandbox has no ID."""
        if not s.id:
            raise ValueError("unable to convert a nil pointer to a runtime container")
        return kubecontainer.Container(
            id=kubecontainer.ContainerID(self.runtime_name, s.id),
            state=kubecontainer.sandbox_to_container_state(s.state),
            pod_sandbox_id=s.id,
            created_at=s.created_at,
        )

    def get_image_user(self, ctx: golang.Context, image: str) -> tuple[int | None, str]:
        """Return the UID or the user name that the image's commands run as; only one of them is set.

        The result is root if the image names no user.
        """
        response = self.image_service.image_status(ctx, runtimeapi.ImageSpec(image=image), False)
        if response.HasField("image"):
            if response.image.HasField("uid"):
                return response.image.uid.value, ""
            if response.image.username:
                return None, response.image.username
        return 0, ""

    def get_seccomp_profile(
        self,
        pod_sec_context: v1.PodSecurityContext | None,
        container_sec_context: v1.SecurityContext | None,
        fallback_to_runtime_default: bool,
    ) -> runtimeapi.SecurityProfile:
        """Return the container's profile, else the pod's, else the node's default. Raise ValueError."""
        profile = container_sec_context.seccomp_profile if container_sec_context is not None else None
        if profile is None and pod_sec_context is not None:
            profile = pod_sec_context.seccomp_profile
        return field_seccomp_profile(profile, self.seccomp_profile_root, fallback_to_runtime_default)


def is_init_container_failed(status: kubecontainer.Status) -> bool:
    """Report whether the container ran out of memory, exited with another code than 0, or is in an unknown state."""
    return (
        status.reason == "OOMKilled"
        or (status.state is kubecontainer.CONTAINER_STATE_EXITED and status.exit_code != 0)
        or status.state is kubecontainer.CONTAINER_STATE_UNKNOWN
    )


def get_backoff_key(pod: v1.Pod, container: v1.Container) -> str:
    """Return the key of a container's crash backoff. A new image or new resources start a new backoff."""
    return "/".join(
        (
            pod.metadata.name,
            pod.metadata.namespace,
            pod.metadata.uid,
            container.name,
            # The rest of a longer name does not matter because no such image can exist.
            container.image[: parsers.MAX_IMAGE_NAME_LENGTH],
            codec.encode_json(container.resources).decode(),
        )
    )


_LOG_PATH_DELIMITER = "_"


def build_container_logs_path(container_name: str, restart_count: int) -> str:
    """Return the path of a container's log file below its pod's log directory."""
    return os.path.join(container_name, f"{restart_count}.log")


def build_container_logs_directory(
    pod_logs_dir: str, pod_namespace: str, pod_name: str, pod_uid: types.UID, container_name: str
) -> str:
    """Return the path of a container's log directory."""
    return os.path.join(build_pod_logs_directory(pod_logs_dir, pod_namespace, pod_name, pod_uid), container_name)


def build_pod_logs_directory(pod_logs_dir: str, pod_namespace: str, pod_name: str, pod_uid: types.UID) -> str:
    """Return the path of a pod's log directory, which ends with NAMESPACE_NAME_UID."""
    return os.path.join(pod_logs_dir, _LOG_PATH_DELIMITER.join((pod_namespace, pod_name, pod_uid)))


def parse_pod_uid_from_logs_directory(name: str) -> types.UID:
    """Return the UID in NAMESPACE_NAME_UID, or the name itself if it is only a UID."""
    return types.UID(name.rsplit(_LOG_PATH_DELIMITER, 1)[-1])


def to_kube_runtime_status(response: runtimeapi.StatusResponse) -> kubecontainer.RuntimeStatus:
    """Convert the conditions, handlers and features of the runtime."""
    conditions = [
        kubecontainer.RuntimeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
        for c in response.status.conditions
    ]
    handlers = [
        kubecontainer.RuntimeHandler(
            name=h.name,
            supports_recursive_read_only_mounts=h.features.recursive_read_only_mounts,
            supports_user_namespaces=h.features.user_namespaces,
        )
        for h in response.runtime_handlers
    ]
    runtime_features = None
    if response.HasField("features"):
        runtime_features = kubecontainer.RuntimeFeatures(
            supplemental_groups_policy=response.features.supplemental_groups_policy
        )
    return kubecontainer.RuntimeStatus(conditions=conditions, handlers=handlers, features=runtime_features)


def field_seccomp_profile(
    profile: v1.SeccompProfile | None, profile_root_path: str, fallback_to_runtime_default: bool
) -> runtimeapi.SecurityProfile:
    """Convert the profile. Raise ValueError if a Localhost profile names no file."""
    kinds = runtimeapi.SecurityProfile
    if profile is None:
        default = kinds.RuntimeDefault if fallback_to_runtime_default else kinds.Unconfined
        return runtimeapi.SecurityProfile(profile_type=default)
    match profile.type:
        case v1.SECCOMP_PROFILE_TYPE_RUNTIME_DEFAULT:
            return runtimeapi.SecurityProfile(profile_type=kinds.RuntimeDefault)
        case v1.SECCOMP_PROFILE_TYPE_LOCALHOST:
            if not profile.localhost_profile:
                raise ValueError("localhostProfile must be set if seccompProfile type is Localhost.")
            path = os.path.join(profile_root_path, profile.localhost_profile)
            return runtimeapi.SecurityProfile(profile_type=kinds.Localhost, localhost_ref=path)
    return runtimeapi.SecurityProfile(profile_type=kinds.Unconfined)


def get_app_armor_profile(pod: v1.Pod, container: v1.Container) -> tuple[runtimeapi.SecurityProfile | None, str]:
    """Return the profile, and its name in the form for older runtimes. Raise ValueError."""
    profile = apparmor.get_profile(pod, container)
    if profile is None:
        return None, ""
    kinds = runtimeapi.SecurityProfile
    match profile.type:
        case v1.APP_ARMOR_PROFILE_TYPE_RUNTIME_DEFAULT:
            deprecated = v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_RUNTIME_DEFAULT
            return runtimeapi.SecurityProfile(profile_type=kinds.RuntimeDefault), deprecated
        case v1.APP_ARMOR_PROFILE_TYPE_UNCONFINED:
            deprecated = v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_UNCONFINED
            return runtimeapi.SecurityProfile(profile_type=kinds.Unconfined), deprecated
        case v1.APP_ARMOR_PROFILE_TYPE_LOCALHOST:
            name = profile.localhost_profile
            if name is None:
                raise ValueError("missing localhost apparmor profile name")
            deprecated = v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_PREFIX + name
            return runtimeapi.SecurityProfile(profile_type=kinds.Localhost, localhost_ref=name), deprecated
    raise ValueError(f'unknown apparmor profile type: "{profile.type}"')


def merge_resource_config(source: cm.ResourceConfig, update: cm.ResourceConfig) -> cm.ResourceConfig:
    """Return a copy of `source` with the values that `update` sets."""
    names = ("memory", "cpu_shares", "cpu_quota", "cpu_period", "pids_limit")
    changes = {name: value for name in names if (value := getattr(update, name)) is not None}
    pages = {**source.huge_page_limit, **update.huge_page_limit}
    return dataclasses.replace(source, **changes, huge_page_limit=pages)


def convert_resource_config_to_linux_container_resources(
    config: cm.ResourceConfig,
) -> runtimeapi.LinuxContainerResources:
    """Convert the configuration to the runtime's type."""
    return runtimeapi.LinuxContainerResources(
        cpu_period=config.cpu_period or 0,
        cpu_quota=config.cpu_quota or 0,
        cpu_shares=config.cpu_shares or 0,
        memory_limit_in_bytes=config.memory or 0,
    )


def get_container_config_stop_signal(container: v1.Container) -> runtimeapi.Signal.ValueType | None:
    """Return the container's stop signal, or None if the image determines it."""
    if not features.feature_gate.enabled(features.CONTAINER_STOP_SIGNALS):
        return None
    if container.lifecycle is None or container.lifecycle.stop_signal is None:
        return None
    # The runtime spells SIGRTMIN+1 as SIGRTMINPLUS1. An unknown name means the default signal.
    name = container.lifecycle.stop_signal.replace("+", "PLUS").replace("-", "MINUS")
    known = name in runtimeapi.Signal.DESCRIPTOR.values_by_name
    return runtimeapi.Signal.Value(name) if known else runtimeapi.RUNTIME_DEFAULT


def runtime_signal_to_string(signal: runtimeapi.Signal.ValueType) -> str:
    """Return the signal in the API's spelling, or the number of a signal that this kubelet does not know."""
    values = runtimeapi.Signal.DESCRIPTOR.values_by_number
    name = values[signal].name if signal in values else str(signal)
    return re.sub(r"^(SIGRTM\w\w)(PLUS|MINUS)", lambda m: m[1] + ("+" if m[2] == "PLUS" else "-"), name)


def sandbox_ids(sandboxes: Sequence[runtimeapi.PodSandbox]) -> list[str]:
    """Return the IDs of the sandboxes, newest first."""
    return [s.id for s in sort_pod_sandboxes_by_created_then_id(sandboxes)]
