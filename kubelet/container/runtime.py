"""Define the container runtime as the rest of the kubelet sees it, and the pods and containers that it reports.

Go: pkg/kubelet/container/runtime.go
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import types as kubetypes
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.apis.meta import v1 as metav1

if TYPE_CHECKING:
    from kubelet.container.container_gc import GCPolicy
    from kubelet.container.sync_result import PodSyncResult
    from pkg import credentialprovider, volume
    from pkg.client_go.util import flowcontrol


class Version(Protocol):
    """Define a version of the runtime."""

    def compare(self, other: str) -> int:
        """Return -1, 0 or 1 if this version is less than, equal to or greater than `other`. Raise ValueError."""
        ...

    def __str__(self) -> str: ...


class BinaryWriter(Protocol):
    """Define the destination of logs and output."""

    def write(self, data: bytes, /) -> int: ...


class BinaryReader(Protocol):
    """Define the source of input."""

    def read(self, size: int = -1, /) -> bytes: ...


class Annotation(NamedTuple):
    name: str
    value: str


@dataclass(slots=True)
class ImageSpec:
    """Describe an image that the kubelet requests."""

    image: str = ""
    # `runtime_handler` is the runtime handler that the image is for; it is empty for the default handler.
    runtime_handler: str = ""
    annotations: list[Annotation] = field(default_factory=list)


@dataclass(slots=True)
class ImageStats:
    """Hold the usage of all images together."""

    total_storage_bytes: int = 0


class ErrPodNotFound(Exception):
    """Signal that the runtime has no sandbox of the pod."""

    def __init__(self) -> None:
        super().__init__("pod sandboxes not found")


class ImageService(Protocol):
    """Define the operations on images in the runtime."""

    def pull_image(
        self,
        ctx: golang.Context,
        image: ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        """Pull an image with each of the credentials in turn.

        Return the image's reference and the credentials that worked, if any.
        """
        ...

    def get_image_ref(self, ctx: golang.Context, image: ImageSpec) -> str:
        """Return the digest or ID of an image in local storage, or "" if it is not there."""
        ...

    def list_images(self, ctx: golang.Context) -> list[Image]: ...

    def remove_image(self, ctx: golang.Context, image: ImageSpec) -> None: ...

    def image_stats(self, ctx: golang.Context) -> ImageStats: ...

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        """Return the usage of the file systems that hold images and containers."""
        ...

    def get_image_size(self, ctx: golang.Context, image: ImageSpec) -> int:
        """Return the size of the image in bytes."""
        ...


class Runtime(ImageService, Protocol):
    """Define a container runtime. All methods are thread-safe and raise the errors of the runtime."""

    def type(self) -> str:
        """Return the runtime's name, with which container IDs begin."""
        ...

    def version(self, ctx: golang.Context) -> Version: ...

    def api_version(self) -> Version:
        """Return the cached version of the runtime's API."""
        ...

    def status(self, ctx: golang.Context) -> RuntimeStatus: ...

    def get_pods(self, ctx: golang.Context, all: bool) -> list[Pod]:
        """Return the containers and sandboxes by pod; `all` includes those that have stopped."""
        ...

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> Pod:
        """Return the pod's current sandboxes and containers. Raise ErrPodNotFound if it has no sandbox."""
        ...

    def garbage_collect(
        self, ctx: golang.Context, gc_policy: GCPolicy, all_sources_ready: bool, evict_non_deleted_pods: bool
    ) -> None:
        """Remove dead containers.

        Unless all sources are ready, the list of pods is incomplete, so containers of unknown pods stay.
        evict_non_deleted_pods also removes the containers of terminated pods that still exist in the API.
        """
        ...

    def sync_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        pod_status: PodStatus,
        pull_secrets: Sequence[v1.Secret],
        back_off: flowcontrol.Backoff,
        restart_all_containers: bool,
    ) -> PodSyncResult:
        """Bring the pod's containers to the state in its spec. The result holds all errors; the method raises none."""
        ...

    def kill_pod(
        self, ctx: golang.Context, pod: v1.Pod | None, running_pod: Pod, grace_period_override: int | None
    ) -> None:
        """Stop all containers of running_pod and its sandboxes. The override is in seconds and may be 0."""
        ...

    def get_pod_status(self, ctx: golang.Context, pod: Pod) -> PodStatus:
        """Return the detailed status of the sandboxes and containers that `pod` lists."""
        ...

    def get_container_logs(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: ContainerID,
        log_options: Any,  # `log_options` has the fields of v1.PodLogOptions.
        stdout: BinaryWriter | None,
        stderr: BinaryWriter | None,
    ) -> None:
        """Copy the container's log according to the options; with follow, until the container ends or ctx is done."""
        ...

    def delete_container(self, ctx: golang.Context, container_id: ContainerID) -> None:
        """Remove a container. Raise an error if it is running."""
        ...

    def update_pod_cidr(self, ctx: golang.Context, pod_cidr: str) -> None: ...

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None: ...

    def generate_pod_status(self, event: runtimeapi.ContainerEventResponse) -> PodStatus:
        """Return the pod status that an event of the runtime carries."""
        ...

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]: ...

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]: ...

    def get_container_status(self, ctx: golang.Context, pod_uid: types.UID, id: ContainerID) -> Status: ...

    def get_container_swap_behavior(self, pod: v1.Pod, container: v1.Container) -> kubetypes.SwapBehavior: ...

    def is_pod_resize_in_progress(self, allocated_pod: v1.Pod, pod_status: PodStatus) -> bool: ...

    def update_actuated_pod_level_resources(self, actuated_pod: v1.Pod) -> None: ...


class StreamingRuntime(Protocol):
    """Define a runtime that serves exec, attach and port-forward itself; each method returns the URL of the stream."""

    def get_exec(
        self,
        ctx: golang.Context,
        id: ContainerID,
        cmd: Sequence[str],
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str: ...

    def get_attach(
        self, ctx: golang.Context, id: ContainerID, stdin: bool, stdout: bool, stderr: bool, tty: bool
    ) -> str: ...

    def get_port_forward(
        self, ctx: golang.Context, pod_name: str, pod_namespace: str, pod_uid: types.UID, ports: Sequence[int]
    ) -> str: ...


class Attacher(Protocol):
    """Define how to attach to a running container."""

    def attach_container(
        self,
        ctx: golang.Context,
        id: ContainerID,
        stdin: BinaryReader | None,
        stdout: BinaryWriter | None,
        stderr: BinaryWriter | None,
        tty: bool,
        resize: golang.Channel[tuple[int, int]] | None,  # The items are pairs of width and height.
    ) -> None: ...


class CommandRunner(Protocol):
    """Define how to run commands in containers."""

    def run_in_container(self, ctx: golang.Context, id: ContainerID, cmd: Sequence[str], timeout: float) -> bytes:
        """Run a command and return its output.

        If the exit code is not 0, raise an error with the exit code and the output.
        """
        ...


class ContainerID(NamedTuple):
    """Identify a container by the runtime's name and the ID in that runtime."""

    type: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.type}://{self.id}"

    def is_empty(self) -> bool:
        return not self.type and not self.id


_NO_ID = ContainerID()


def build_container_id(type: str, id: str) -> ContainerID:
    return ContainerID(type, id)


def parse_container_id(container_id: str) -> ContainerID:
    """Parse "type://id". If the text has another form, log this and return the empty ID."""
    parts = container_id.strip('"').split("://")
    if len(parts) != 2:
        klog.error_s(ValueError(f'invalid container ID: "{container_id}"'), "Parsing containerID failed")
        return ContainerID()
    return ContainerID(*parts)


class State(enum.StrEnum):
    """Name the states of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


CONTAINER_STATE_CREATED = State.CREATED  # The container has not started yet.
CONTAINER_STATE_RUNNING = State.RUNNING
CONTAINER_STATE_EXITED = State.EXITED
CONTAINER_STATE_UNKNOWN = State.UNKNOWN  # The container is in another state, such as restarting or paused.

# This is the reason if the kubelet cannot find out what happened to a container.
CONTAINER_REASON_STATUS_UNKNOWN = "ContainerStatusUnknown"


@dataclass(slots=True)
class Container:
    """Describe a container as the runtime lists it."""

    id: ContainerID = _NO_ID
    name: str = ""
    # `image` is the image with its tag.
    image: str = ""
    image_id: str = ""
    # `image_ref` is the image with its digest.
    image_ref: str = ""
    # `image_runtime_handler` is the handler with which the image was pulled; it may be empty.
    image_runtime_handler: str = ""
    # `hash` is the hash of the container's spec, see hash_container; it is 0 for containers that are not the kubelet's.
    hash: int = 0
    state: State = State.UNKNOWN
    pod_sandbox_id: str = ""
    # `created_at` is in nanoseconds since 1970.
    created_at: int = 0


@dataclass(slots=True)
class Pod:
    """Describe the sandboxes and containers of one pod as the runtime lists them."""

    id: types.UID = types.UID("")
    name: str = ""
    namespace: str = ""
    # `created_at` is in nanoseconds since 1970.
    created_at: int = 0
    containers: list[Container] = field(default_factory=list)
    # The sandboxes have the type of containers here, and the newest one comes first.
    sandboxes: list[Container] = field(default_factory=list)
    # `timestamp` is the time, on the steady clock, at which the pod was read from the runtime.
    timestamp: datetime.datetime | None = None

    def find_container_by_name(self, container_name: str) -> Container | None:
        """Return the first container with this name, or None."""
        return next((c for c in self.containers if c.name == container_name), None)

    def find_container_by_id(self, id: ContainerID) -> Container | None:
        return next((c for c in self.containers if c.id == id), None)

    def find_sandbox_by_id(self, id: ContainerID) -> Container | None:
        return next((c for c in self.sandboxes if c.id == id), None)

    def to_api_pod(self) -> v1.Pod:
        """Return an API pod with the few fields that are known here: UID, names and images."""
        return v1.Pod(
            metadata=metav1.ObjectMeta(uid=self.id, name=self.name, namespace=self.namespace),
            spec=v1.PodSpec(containers=[v1.Container(name=c.name, image=c.image) for c in self.containers]),
        )

    def is_empty(self) -> bool:
        return self == Pod()


@dataclass(slots=True)
class PodPair:
    """Hold a pod as the API and as the runtime know it; either may be missing."""

    api_pod: v1.Pod | None = None
    running_pod: Pod | None = None


@dataclass(slots=True)
class ContainerResources:
    """Hold the resources that the runtime reports; None stands for what it does not report."""

    cpu_request: Quantity | None = None
    cpu_limit: Quantity | None = None
    memory_request: Quantity | None = None
    memory_limit: Quantity | None = None


@dataclass(slots=True)
class LinuxContainerUser:
    """Identify the user of the container's first process."""

    uid: int = 0
    gid: int = 0
    supplemental_groups: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ContainerUser:
    linux: LinuxContainerUser | None = None


@dataclass(slots=True)
class Mount:
    """Describe a mount of a container."""

    # `name` is the volume's name in the pod spec.
    name: str = ""
    container_path: str = ""
    host_path: str = ""
    read_only: bool = False
    # `recursive_read_only` requires `read_only`.
    recursive_read_only: bool = False
    se_linux_relabel: bool = False
    propagation: runtimeapi.MountPropagation.ValueType = runtimeapi.PROPAGATION_PRIVATE
    # For an image volume, these fields hold the image, and the path in it.
    image: runtimeapi.ImageSpec | None = None
    image_sub_path: str = ""


@dataclass(slots=True)
class Status:
    """Describe a container in detail. Times that the runtime does not report are None."""

    id: ContainerID = _NO_ID
    name: str = ""
    state: State = State.UNKNOWN
    created_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    exit_code: int = 0
    image: str = ""
    image_id: str = ""
    image_ref: str = ""
    image_runtime_handler: str = ""
    hash: int = 0
    restart_count: int = 0
    # `reason` explains the state in one word; `message` is the container's termination message.
    reason: str = ""
    message: str = ""
    resources: ContainerResources | None = None
    user: ContainerUser | None = None
    mounts: list[Mount] = field(default_factory=list)
    stop_signal: str | None = None


@dataclass(slots=True)
class PodStatus:
    """Describe the sandboxes and containers of a pod in detail."""

    id: types.UID = types.UID("")
    name: str = ""
    namespace: str = ""
    ips: list[str] = field(default_factory=list)
    container_statuses: list[Status] = field(default_factory=list)
    # `active_container_statuses` holds the containers of the newest sandbox if it is ready.
    active_container_statuses: list[Status] = field(default_factory=list)
    # The newest sandbox comes first.
    sandbox_statuses: list[runtimeapi.PodSandboxStatus] = field(default_factory=list)
    # `time_stamp` is the time, on the steady clock, at which the statuses were taken.
    time_stamp: datetime.datetime | None = None
    # `_runs` holds container_statuses by name, with the list and the length from which it was built. A pod may have
    # thousands of containers, and a sync looks up each of them several times.
    _runs: tuple[list[Status], int, dict[str, list[Status]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def find_container_status_by_name(self, container_name: str) -> Status | None:
        """Return the first status with this name, which is that of the newest container, or None."""
        runs = self.get_container_statuses_by_name(container_name)
        return runs[0] if runs else None

    def get_container_statuses_by_name(self, container_name: str) -> Sequence[Status]:
        """Return all statuses with this name, in the order of container_statuses."""
        statuses, runs = self.container_statuses, self._runs
        if runs is None or runs[0] is not statuses or runs[1] != len(statuses):
            by_name: dict[str, list[Status]] = {}
            for status in statuses:
                by_name.setdefault(status.name, []).append(status)
            runs = self._runs = (statuses, len(statuses), by_name)
        return runs[2].get(container_name, ())

    def get_running_container_statuses(self) -> list[Status]:
        return [s for s in self.container_statuses if s.state is State.RUNNING]


@dataclass(slots=True)
class Image:
    """Describe an image in local storage."""

    id: str = ""
    repo_tags: list[str] = field(default_factory=list)
    repo_digests: list[str] = field(default_factory=list)
    # `size` is in bytes.
    size: int = 0
    spec: ImageSpec = field(default_factory=ImageSpec)
    # Garbage collection must not remove a pinned image.
    pinned: bool = False


class EnvVar(NamedTuple):
    name: str
    value: str


# `ImageVolumes` maps volume names to image specs.
ImageVolumes = dict[str, runtimeapi.ImageSpec]


@dataclass(slots=True)
class PortMapping:
    """Map a port of a container to a port of the host."""

    protocol: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""


@dataclass(slots=True)
class DeviceInfo:
    """Describe a device of the host in a container; `permissions` has the form that cgroups use, such as "mrw"."""

    path_on_host: str = ""
    path_in_container: str = ""
    permissions: str = ""


@dataclass(slots=True)
class CDIDevice:
    """Identify a device by its fully qualified name in the container device interface."""

    name: str = ""


@dataclass(slots=True)
class RunContainerOptions:
    """Hold what the kubelet adds to a container's spec to run it."""

    envs: list[EnvVar] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    devices: list[DeviceInfo] = field(default_factory=list)
    cdi_devices: list[CDIDevice] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    # The file for the termination message is created in this directory. An empty string means that the container needs
    # none.
    pod_container_dir: str = ""
    # `read_only` tells whether the root file system is read-only.
    read_only: bool = False


@dataclass(slots=True)
class VolumeInfo:
    """Describe a volume of a pod that is mounted on the host."""

    mounter: volume.Mounter | None = None
    block_volume_mapper: volume.BlockVolumeMapper | None = None
    se_linux_labeled: bool = False
    read_only: bool = False
    # `inner_volume_spec_name` is the name of the persistent volume if there is one, otherwise that of the volume.
    inner_volume_spec_name: str = ""


# `VolumeMap` maps the names in the pod spec to volumes.
VolumeMap = dict[str, VolumeInfo]


class RuntimeConditionType(enum.StrEnum):
    """Name the conditions that every runtime must report."""

    RUNTIME_READY = "RuntimeReady"
    NETWORK_READY = "NetworkReady"


RUNTIME_READY = RuntimeConditionType.RUNTIME_READY
NETWORK_READY = RuntimeConditionType.NETWORK_READY


@dataclass(slots=True)
class RuntimeCondition:
    type: str
    status: bool = False
    reason: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.type}={_bool(self.status)} reason:{self.reason} message:{self.message}"


@dataclass(slots=True)
class RuntimeHandler:
    """Describe a way to run containers, which a RuntimeClass may select."""

    name: str = ""
    supports_recursive_read_only_mounts: bool = False
    supports_user_namespaces: bool = False

    def __str__(self) -> str:
        return (
            f"Name={self.name} SupportsRecursiveReadOnlyMounts: "
            f"{_bool(self.supports_recursive_read_only_mounts)} "
            f"SupportsUserNamespaces: {_bool(self.supports_user_namespaces)}"
        )


@dataclass(slots=True)
class RuntimeFeatures:
    """Describe the features of the runtime that do not depend on the handler."""

    supplemental_groups_policy: bool = False
    user_namespaces_host_network: bool = False

    def __str__(self) -> str:
        return (
            f"SupplementalGroupsPolicy: {_bool(self.supplemental_groups_policy)}"
            f" UserNamespacesHostNetwork: {_bool(self.user_namespaces_host_network)}"
        )


@dataclass(slots=True)
class RuntimeStatus:
    """Describe the condition of the runtime."""

    conditions: list[RuntimeCondition] = field(default_factory=list)
    handlers: list[RuntimeHandler] = field(default_factory=list)
    features: RuntimeFeatures | None = None

    def get_runtime_condition(self, type: str) -> RuntimeCondition | None:
        return next((c for c in self.conditions if c.type == type), None)

    def __str__(self) -> str:
        conditions = ", ".join(map(str, self.conditions))
        handlers = ", ".join(map(str, self.handlers))
        features = "nil" if self.features is None else self.features
        return f"Runtime Conditions: {conditions}; Handlers: {handlers}, Features: {features}"


def _bool(value: bool) -> str:
    return str(value).lower()


class Pods(list[Pod]):
    """Hold pods of the runtime, and find one of them. An empty pod means that none was found."""

    def find_pod_by_id(self, pod_uid: types.UID) -> Pod:
        return next((pod for pod in self if pod.id == pod_uid), None) or Pod()

    def find_pod_by_full_name(self, pod_full_name: str) -> Pod:
        found = (pod for pod in self if build_pod_full_name(pod.name, pod.namespace) == pod_full_name)
        return next(found, None) or Pod()

    def find_pod(self, pod_full_name: str, pod_uid: types.UID) -> Pod:
        """Find a pod by its full name if this is given, otherwise by its UID."""
        if pod_full_name:
            return self.find_pod_by_full_name(pod_full_name)
        return self.find_pod_by_id(pod_uid)


def get_pod_full_name(pod: v1.Pod) -> str:
    """Return name_namespace, which is unique on a node because neither part may contain an underscore."""
    return build_pod_full_name(pod.metadata.name, pod.metadata.namespace)


def build_pod_full_name(name: str, namespace: str) -> str:
    return f"{name}_{namespace}"


def parse_pod_full_name(pod_full_name: str) -> tuple[str, str]:
    """Return the name and the namespace. Raise ValueError if the text has another form."""
    parts = pod_full_name.split("_")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f'failed to parse the pod full name "{pod_full_name}"')
    return parts[0], parts[1]


_NEVER = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def creation_order(status: Status) -> tuple[int, datetime.datetime]:
    """Return the sort key that puts the oldest container of each name first.

    DIVERGES (fault of Go): containers are sorted by restart count first, and then by creation time.
    Go: pkg/kubelet/container/runtime.go, SortContainerStatusesByCreationTime.Less: the Go kubelet compares only the
    creation times.
    Why: after somebody has set back the clock, an exited container looks newer than the running one that replaced it,
    and the kubelet starts a third.
    Test: runtime_test.py:test_restarted_containers_are_newer_also_when_the_clock_was_set_back
    """
    return status.restart_count, status.created_at or _NEVER


def sort_container_statuses_by_creation_time(statuses: Iterable[Status]) -> list[Status]:
    """Return the statuses sorted so that the oldest container of each name comes first."""
    return sorted(statuses, key=creation_order)


# The termination messages of all containers of a pod may have this many bytes together.
MAX_POD_TERMINATION_MESSAGE_LOG_LENGTH = 1024 * 12
# The kubelet reads at most this many bytes of a container's termination message file.
MAX_CONTAINER_TERMINATION_MESSAGE_LENGTH = 1024 * 4
# At most this many bytes and lines of a container's log serve as its termination message.
MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LENGTH = 1024 * 2
MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LINES = 80
