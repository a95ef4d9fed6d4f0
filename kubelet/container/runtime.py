"""The container runtime as the rest of the kubelet sees it, and the pods and containers it reports.

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
    """A version of the runtime."""

    def compare(self, other: str) -> int:
        """-1, 0 or 1 as this version is less than, equal to or greater than `other`; raises ValueError."""
        ...

    def __str__(self) -> str: ...


class BinaryWriter(Protocol):
    """Where logs and output go."""

    def write(self, data: bytes, /) -> int: ...


class BinaryReader(Protocol):
    """Where input comes from."""

    def read(self, size: int = -1, /) -> bytes: ...


class Annotation(NamedTuple):
    name: str
    value: str


@dataclass(slots=True)
class ImageSpec:
    """An image as it is asked for."""

    image: str = ""
    # The runtime handler that the image is for; empty for the default one.
    runtime_handler: str = ""
    annotations: list[Annotation] = field(default_factory=list)


@dataclass(slots=True)
class ImageStats:
    """All images together."""

    total_storage_bytes: int = 0


class ErrPodNotFound(Exception):
    """The runtime has no sandbox of the pod."""

    def __init__(self) -> None:
        super().__init__("pod sandboxes not found")


class ImageService(Protocol):
    """Images in the runtime."""

    def pull_image(
        self,
        ctx: golang.Context,
        image: ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        """Pull, trying the credentials in turn; returns the image's reference and what worked, if any."""
        ...

    def get_image_ref(self, ctx: golang.Context, image: ImageSpec) -> str:
        """The digest or id of an image in local storage; "" if it is not there."""
        ...

    def list_images(self, ctx: golang.Context) -> list[Image]: ...

    def remove_image(self, ctx: golang.Context, image: ImageSpec) -> None: ...

    def image_stats(self, ctx: golang.Context) -> ImageStats: ...

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        """The file systems that hold images and containers."""
        ...

    def get_image_size(self, ctx: golang.Context, image: ImageSpec) -> int:
        """Bytes."""
        ...


class Runtime(ImageService, Protocol):
    """A container runtime. All methods are safe from any thread and raise what the runtime answers."""

    def type(self) -> str:
        """The runtime's name, which container ids begin with."""
        ...

    def version(self, ctx: golang.Context) -> Version: ...

    def api_version(self) -> Version:
        """The cached version of its API."""
        ...

    def status(self, ctx: golang.Context) -> RuntimeStatus: ...

    def get_pods(self, ctx: golang.Context, all: bool) -> list[Pod]:
        """Containers and sandboxes by pod; with `all` those that have stopped too."""
        ...

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> Pod:
        """The pod's sandboxes and containers as they are now; raises ErrPodNotFound if it has no sandbox."""
        ...

    def garbage_collect(
        self, ctx: golang.Context, gc_policy: GCPolicy, all_sources_ready: bool, evict_non_deleted_pods: bool
    ) -> None:
        """Remove dead containers.

        Unless all sources are ready the list of pods is not complete, and containers of unknown pods stay.
        evict_non_deleted_pods also removes those of pods that have ended but still exist in the API.
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
        """Bring the pod's containers to what the spec says; errors are in the result, never raised."""
        ...

    def kill_pod(
        self, ctx: golang.Context, pod: v1.Pod | None, running_pod: Pod, grace_period_override: int | None
    ) -> None:
        """Stop all containers of running_pod and its sandboxes. The override, in seconds, may be 0."""
        ...

    def get_pod_status(self, ctx: golang.Context, pod: Pod) -> PodStatus:
        """The detailed status of the sandboxes and containers that `pod` lists."""
        ...

    def get_container_logs(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: ContainerID,
        log_options: Any,  # with the fields of v1.PodLogOptions
        stdout: BinaryWriter | None,
        stderr: BinaryWriter | None,
    ) -> None:
        """Copy the container's log as the options say; with follow, until it ends or ctx is done."""
        ...

    def delete_container(self, ctx: golang.Context, container_id: ContainerID) -> None:
        """Remove a container; raises if it is running."""
        ...

    def update_pod_cidr(self, ctx: golang.Context, pod_cidr: str) -> None: ...

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None: ...

    def generate_pod_status(self, event: runtimeapi.ContainerEventResponse) -> PodStatus:
        """The pod status that an event of the runtime carries."""
        ...

    def list_metric_descriptors(self, ctx: golang.Context) -> list[runtimeapi.MetricDescriptor]: ...

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[runtimeapi.PodSandboxMetrics]: ...

    def get_container_status(self, ctx: golang.Context, pod_uid: types.UID, id: ContainerID) -> Status: ...

    def get_container_swap_behavior(self, pod: v1.Pod, container: v1.Container) -> kubetypes.SwapBehavior: ...

    def is_pod_resize_in_progress(self, allocated_pod: v1.Pod, pod_status: PodStatus) -> bool: ...

    def update_actuated_pod_level_resources(self, actuated_pod: v1.Pod) -> None: ...


class StreamingRuntime(Protocol):
    """A runtime that serves exec, attach and port-forward itself; each method returns the URL to go to."""

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
    """Attaching to a running container."""

    def attach_container(
        self,
        ctx: golang.Context,
        id: ContainerID,
        stdin: BinaryReader | None,
        stdout: BinaryWriter | None,
        stderr: BinaryWriter | None,
        tty: bool,
        resize: golang.Channel[tuple[int, int]] | None,  # width and height
    ) -> None: ...


class CommandRunner(Protocol):
    """Running commands in containers."""

    def run_in_container(self, ctx: golang.Context, id: ContainerID, cmd: Sequence[str], timeout: float) -> bytes:
        """The command's output; raises an error with the exit code and the output if that is not 0."""
        ...


class ContainerID(NamedTuple):
    """A container in a runtime: the runtime's name and the id it gave."""

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
    """Parse "type://id"; anything else is logged and gives the empty id."""
    parts = container_id.strip('"').split("://")
    if len(parts) != 2:
        klog.error_s(ValueError(f'invalid container ID: "{container_id}"'), "Parsing containerID failed")
        return ContainerID()
    return ContainerID(*parts)


class State(enum.StrEnum):
    """What a container is doing."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


CONTAINER_STATE_CREATED = State.CREATED  # not started yet
CONTAINER_STATE_RUNNING = State.RUNNING
CONTAINER_STATE_EXITED = State.EXITED
CONTAINER_STATE_UNKNOWN = State.UNKNOWN  # anything else, restarting or paused say

# The reason given when nobody can tell what became of a container.
CONTAINER_REASON_STATUS_UNKNOWN = "ContainerStatusUnknown"


@dataclass(slots=True)
class Container:
    """What listing the runtime tells of a container."""

    id: ContainerID = _NO_ID
    name: str = ""
    # The image with its tag.
    image: str = ""
    image_id: str = ""
    # The image by its digest.
    image_ref: str = ""
    # The handler with which the image was pulled; may be empty.
    image_runtime_handler: str = ""
    # The hash of the container's spec, see hash_container; 0 for containers that are not the kubelet's.
    hash: int = 0
    state: State = State.UNKNOWN
    pod_sandbox_id: str = ""
    # Nanoseconds since 1970.
    created_at: int = 0


@dataclass(slots=True)
class Pod:
    """The sandboxes and containers of one pod, as listed by the runtime."""

    id: types.UID = types.UID("")
    name: str = ""
    namespace: str = ""
    # Nanoseconds since 1970.
    created_at: int = 0
    containers: list[Container] = field(default_factory=list)
    # The sandboxes, dressed as containers; newest first.
    sandboxes: list[Container] = field(default_factory=list)
    # When this was read from the runtime, by the steady clock.
    timestamp: datetime.datetime | None = None

    def find_container_by_name(self, container_name: str) -> Container | None:
        """The first container of that name."""
        return next((c for c in self.containers if c.name == container_name), None)

    def find_container_by_id(self, id: ContainerID) -> Container | None:
        return next((c for c in self.containers if c.id == id), None)

    def find_sandbox_by_id(self, id: ContainerID) -> Container | None:
        return next((c for c in self.sandboxes if c.id == id), None)

    def to_api_pod(self) -> v1.Pod:
        """An API pod with the little that is known here: uid, names and images."""
        return v1.Pod(
            metadata=metav1.ObjectMeta(uid=self.id, name=self.name, namespace=self.namespace),
            spec=v1.PodSpec(containers=[v1.Container(name=c.name, image=c.image) for c in self.containers]),
        )

    def is_empty(self) -> bool:
        return self == Pod()


@dataclass(slots=True)
class PodPair:
    """A pod as the API and as the runtime knows it; either may be missing."""

    api_pod: v1.Pod | None = None
    running_pod: Pod | None = None


@dataclass(slots=True)
class ContainerResources:
    """What the runtime says it enforces; None where it does not say."""

    cpu_request: Quantity | None = None
    cpu_limit: Quantity | None = None
    memory_request: Quantity | None = None
    memory_limit: Quantity | None = None


@dataclass(slots=True)
class LinuxContainerUser:
    """Whom the container's first process runs as."""

    uid: int = 0
    gid: int = 0
    supplemental_groups: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ContainerUser:
    linux: LinuxContainerUser | None = None


@dataclass(slots=True)
class Mount:
    """A mount of a container."""

    # The volume's name in the pod spec.
    name: str = ""
    container_path: str = ""
    host_path: str = ""
    read_only: bool = False
    # Only with read_only.
    recursive_read_only: bool = False
    se_linux_relabel: bool = False
    propagation: runtimeapi.MountPropagation.ValueType = runtimeapi.PROPAGATION_PRIVATE
    # For a volume that is an image, which image, and which path of it.
    image: runtimeapi.ImageSpec | None = None
    image_sub_path: str = ""


@dataclass(slots=True)
class Status:
    """What inspecting a container tells. The times are None where the runtime has none."""

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
    # Why the container is in this state, in a word, and what it wrote before it ended.
    reason: str = ""
    message: str = ""
    resources: ContainerResources | None = None
    user: ContainerUser | None = None
    mounts: list[Mount] = field(default_factory=list)
    stop_signal: str | None = None


@dataclass(slots=True)
class PodStatus:
    """What inspecting a pod's sandboxes and containers tells."""

    id: types.UID = types.UID("")
    name: str = ""
    namespace: str = ""
    ips: list[str] = field(default_factory=list)
    container_statuses: list[Status] = field(default_factory=list)
    # Those of the newest sandbox, if it is ready.
    active_container_statuses: list[Status] = field(default_factory=list)
    # Newest first.
    sandbox_statuses: list[runtimeapi.PodSandboxStatus] = field(default_factory=list)
    # When the statuses were taken, by the steady clock.
    time_stamp: datetime.datetime | None = None
    # container_statuses by name, with the list and the length that they were made for. A pod may have thousands of
    # containers, each of which is looked up several times in a sync.
    _runs: tuple[list[Status], int, dict[str, list[Status]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def find_container_status_by_name(self, container_name: str) -> Status | None:
        """The first status of that name, which is the newest container's."""
        runs = self.get_container_statuses_by_name(container_name)
        return runs[0] if runs else None

    def get_container_statuses_by_name(self, container_name: str) -> Sequence[Status]:
        """All statuses of that name, in the order of container_statuses."""
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
    """An image in local storage."""

    id: str = ""
    repo_tags: list[str] = field(default_factory=list)
    repo_digests: list[str] = field(default_factory=list)
    # Bytes.
    size: int = 0
    spec: ImageSpec = field(default_factory=ImageSpec)
    # Not to be garbage collected.
    pinned: bool = False


class EnvVar(NamedTuple):
    name: str
    value: str


# Image specs by volume name.
ImageVolumes = dict[str, runtimeapi.ImageSpec]


@dataclass(slots=True)
class PortMapping:
    """A port of a container and of the host."""

    protocol: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""


@dataclass(slots=True)
class DeviceInfo:
    """A device of the host in a container; permissions as cgroups write them ("mrw")."""

    path_on_host: str = ""
    path_in_container: str = ""
    permissions: str = ""


@dataclass(slots=True)
class CDIDevice:
    """A device by its fully qualified name in the container device interface."""

    name: str = ""


@dataclass(slots=True)
class RunContainerOptions:
    """What the kubelet adds to a container's spec to run it."""

    envs: list[EnvVar] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)
    devices: list[DeviceInfo] = field(default_factory=list)
    cdi_devices: list[CDIDevice] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    # Where the file for the termination message is made; empty if the container wants none.
    pod_container_dir: str = ""
    # Whether the root file system is read-only.
    read_only: bool = False


@dataclass(slots=True)
class VolumeInfo:
    """A volume of a pod, mounted on the host."""

    mounter: volume.Mounter | None = None
    block_volume_mapper: volume.BlockVolumeMapper | None = None
    se_linux_labeled: bool = False
    read_only: bool = False
    # The persistent volume's name where there is one, else the volume's own.
    inner_volume_spec_name: str = ""


# Volumes by the name they have in the pod spec.
VolumeMap = dict[str, VolumeInfo]


class RuntimeConditionType(enum.StrEnum):
    """Conditions that every runtime must report."""

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
    """A way to run containers, which a RuntimeClass may choose."""

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
    """What the runtime can do whatever the handler."""

    supplemental_groups_policy: bool = False
    user_namespaces_host_network: bool = False

    def __str__(self) -> str:
        return (
            f"SupplementalGroupsPolicy: {_bool(self.supplemental_groups_policy)}"
            f" UserNamespacesHostNetwork: {_bool(self.user_namespaces_host_network)}"
        )


@dataclass(slots=True)
class RuntimeStatus:
    """How the runtime is."""

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
    """Pods of the runtime, with ways to find one. Finding none gives an empty pod."""

    def find_pod_by_id(self, pod_uid: types.UID) -> Pod:
        return next((pod for pod in self if pod.id == pod_uid), None) or Pod()

    def find_pod_by_full_name(self, pod_full_name: str) -> Pod:
        found = (pod for pod in self if build_pod_full_name(pod.name, pod.namespace) == pod_full_name)
        return next(found, None) or Pod()

    def find_pod(self, pod_full_name: str, pod_uid: types.UID) -> Pod:
        """By full name if that is given, else by uid."""
        if pod_full_name:
            return self.find_pod_by_full_name(pod_full_name)
        return self.find_pod_by_id(pod_uid)


def get_pod_full_name(pod: v1.Pod) -> str:
    """name_namespace, which no two pods of a node share; neither may contain an underscore."""
    return build_pod_full_name(pod.metadata.name, pod.metadata.namespace)


def build_pod_full_name(name: str, namespace: str) -> str:
    return f"{name}_{namespace}"


def parse_pod_full_name(pod_full_name: str) -> tuple[str, str]:
    """Name and namespace; raises ValueError."""
    parts = pod_full_name.split("_")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f'failed to parse the pod full name "{pod_full_name}"')
    return parts[0], parts[1]


_NEVER = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def creation_order(status: Status) -> tuple[int, datetime.datetime]:
    """Sorts the containers of one name, the oldest first.

    DIVERGES (fault of Go): containers are sorted by restart count first, then by creation time.
    Go: pkg/kubelet/container/runtime.go, SortContainerStatusesByCreationTime.Less: compares the creation time alone.
    Why: after the clock was set back, an ended container looks newer than the running one that replaced it, and the
    kubelet starts a third.
    Test: runtime_test.py:test_restarted_containers_are_newer_also_when_the_clock_was_set_back
    """
    return status.restart_count, status.created_at or _NEVER


def sort_container_statuses_by_creation_time(statuses: Iterable[Status]) -> list[Status]:
    """The statuses, of each name the oldest container first."""
    return sorted(statuses, key=creation_order)


# The most bytes of termination messages that all containers of a pod may have together.
MAX_POD_TERMINATION_MESSAGE_LOG_LENGTH = 1024 * 12
# The most bytes of a container's termination message file that are read.
MAX_CONTAINER_TERMINATION_MESSAGE_LENGTH = 1024 * 4
# The most bytes and lines of a container's log that serve as its termination message.
MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LENGTH = 1024 * 2
MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LINES = 80
