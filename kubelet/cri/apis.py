"""What the kubelet asks of a container runtime and of its image store.

Every method may be called from any thread. A refusal raises `errors.RemoteError`; durations are seconds.

Go: k8s.io/cri-api/pkg/apis/services.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from pkg import golang

__all__ = [
    "ContainerManager",
    "ContainerStatsManager",
    "ImageManagerService",
    "PodSandboxManager",
    "RuntimeService",
    "RuntimeVersioner",
    "runtimeapi",
]


class RuntimeVersioner(Protocol):
    def version(self, ctx: golang.Context, api_version: str) -> runtimeapi.VersionResponse:
        """Name and version of the runtime and of the API it speaks."""


class ContainerManager(Protocol):
    def create_container(
        self,
        ctx: golang.Context,
        pod_sandbox_id: str,
        config: runtimeapi.ContainerConfig,
        sandbox_config: runtimeapi.PodSandboxConfig,
    ) -> str:
        """Create a container in a sandbox; returns its id."""

    def start_container(self, ctx: golang.Context, container_id: str) -> None:
        """Start a created container."""

    def stop_container(self, ctx: golang.Context, container_id: str, timeout: int) -> None:
        """Ask a container to end, kill it after `timeout` seconds, return when it is gone."""

    def remove_container(self, ctx: golang.Context, container_id: str) -> None:
        """Remove a container that has ended."""

    def list_containers(
        self, ctx: golang.Context, filter: runtimeapi.ContainerFilter | None
    ) -> Sequence[runtimeapi.Container]:
        """The containers that match, all without a filter."""

    def container_status(
        self, ctx: golang.Context, container_id: str, verbose: bool
    ) -> runtimeapi.ContainerStatusResponse:
        """Everything the runtime knows of one container."""

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        """Change the limits of a container, all of them or none."""

    def exec_sync(
        self, ctx: golang.Context, container_id: str, cmd: Sequence[str], timeout: float
    ) -> tuple[bytes, bytes]:
        """Run a command to its end; returns stdout and stderr.

        Raises `pkg.util.exec.CodeExitError`, which carries both, when it ends with another code than 0, and
        `pkg.util.exec.CommandTimedOutError` when it takes longer than `timeout` (0: no limit).
        """

    def exec(self, ctx: golang.Context, request: runtimeapi.ExecRequest) -> runtimeapi.ExecResponse:
        """Prepare a stream to a new command; the answer is where to find it."""

    def attach(self, ctx: golang.Context, request: runtimeapi.AttachRequest) -> runtimeapi.AttachResponse:
        """Prepare a stream to the container's own process."""

    def reopen_container_log(self, ctx: golang.Context, container_id: str) -> None:
        """Go on in a new log file, after the old one was moved away."""

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        """Write the state of a container to a file."""

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[runtimeapi.ContainerEventResponse]], None] | None,
    ) -> None:
        """Send the runtime's events into the channel until the stream breaks, which raises."""


class PodSandboxManager(Protocol):
    def run_pod_sandbox(self, ctx: golang.Context, config: runtimeapi.PodSandboxConfig, runtime_handler: str) -> str:
        """Make a sandbox, network included, and start it; returns its id."""

    def stop_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        """Kill what runs in the sandbox and give its network back."""

    def remove_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        """Remove a sandbox and the containers left in it."""

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        """Everything the runtime knows of one sandbox."""

    def list_pod_sandbox(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxFilter | None
    ) -> Sequence[runtimeapi.PodSandbox]:
        """The sandboxes that match, all without a filter."""

    def port_forward(
        self, ctx: golang.Context, request: runtimeapi.PortForwardRequest
    ) -> runtimeapi.PortForwardResponse:
        """Prepare a stream to ports of a sandbox."""

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        """Tell the runtime what the pod's cgroup was changed to."""


class ContainerStatsManager(Protocol):
    def container_stats(self, ctx: golang.Context, container_id: str) -> runtimeapi.ContainerStats:
        """What one container uses."""

    def list_container_stats(
        self, ctx: golang.Context, filter: runtimeapi.ContainerStatsFilter | None
    ) -> Sequence[runtimeapi.ContainerStats]:
        """What the running containers use."""

    def pod_sandbox_stats(self, ctx: golang.Context, pod_sandbox_id: str) -> runtimeapi.PodSandboxStats:
        """What one sandbox uses."""

    def list_pod_sandbox_stats(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxStatsFilter | None
    ) -> Sequence[runtimeapi.PodSandboxStats]:
        """What the sandboxes use."""

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        """What `list_pod_sandbox_metrics` will speak of."""

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        """The runtime's own metrics of every sandbox."""


class RuntimeService(RuntimeVersioner, ContainerManager, PodSandboxManager, ContainerStatsManager, Protocol):
    def update_runtime_config(self, ctx: golang.Context, runtime_config: runtimeapi.RuntimeConfig) -> None:
        """Tell the runtime the node's pod CIDR."""

    def status(self, ctx: golang.Context, verbose: bool) -> runtimeapi.StatusResponse:
        """Whether the runtime and its network are ready."""

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        """How the runtime is set up, its cgroup driver above all."""

    def close(self, ctx: golang.Context) -> None:
        """End the connection."""


class ImageManagerService(Protocol):
    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        """The images that match, all without a filter."""

    def image_status(
        self, ctx: golang.Context, image: runtimeapi.ImageSpec, verbose: bool
    ) -> runtimeapi.ImageStatusResponse:
        """What is known of one image; the answer has no `image` when it is not there."""

    def pull_image(
        self,
        ctx: golang.Context,
        image: runtimeapi.ImageSpec,
        auth: runtimeapi.AuthConfig | None,
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> str:
        """Fetch an image, however long it takes; returns the reference to use it by."""

    def remove_image(self, ctx: golang.Context, image: runtimeapi.ImageSpec) -> None:
        """Remove an image and all its names."""

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        """The file systems that images and containers live on."""

    def close(self, ctx: golang.Context) -> None:
        """End the connection."""
