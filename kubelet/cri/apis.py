"""Define what the kubelet needs from a container runtime and its image store.

Every method is thread-safe, and raises `errors.RemoteError` if the call fails. Durations are in seconds.

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
        """Return the name and version of the runtime, and the version of its API."""


class ContainerManager(Protocol):
    def create_container(
        self,
        ctx: golang.Context,
        pod_sandbox_id: str,
        config: runtimeapi.ContainerConfig,
        sandbox_config: runtimeapi.PodSandboxConfig,
    ) -> str:
        """Create a container in a sandbox, and return its id."""

    def start_container(self, ctx: golang.Context, container_id: str) -> None:
        """Start a created container."""

    def stop_container(self, ctx: golang.Context, container_id: str, timeout: int) -> None:
        """Stop a container, kill it after `timeout` seconds, and return when it has stopped."""

    def remove_container(self, ctx: golang.Context, container_id: str) -> None:
        """Remove a stopped container."""

    def list_containers(
        self, ctx: golang.Context, filter: runtimeapi.ContainerFilter | None
    ) -> Sequence[runtimeapi.Container]:
        """List the containers that match the filter; None matches all."""

    def container_status(
        self, ctx: golang.Context, container_id: str, verbose: bool
    ) -> runtimeapi.ContainerStatusResponse:
        """Return the status of a container."""

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        """Change the resource limits of a container, all of them or none."""

    def exec_sync(
        self, ctx: golang.Context, container_id: str, cmd: Sequence[str], timeout: float
    ) -> tuple[bytes, bytes]:
        """Run a command to its end, and return its stdout and stderr.

        Raise `pkg.util.exec.CodeExitError`, which carries both, if the exit code is not 0, and
        `pkg.util.exec.CommandTimedOutError` if the command runs longer than `timeout` (0: no limit).
        """

    def exec(self, ctx: golang.Context, request: runtimeapi.ExecRequest) -> runtimeapi.ExecResponse:
        """Prepare a stream to a new command, and return its URL."""

    def attach(self, ctx: golang.Context, request: runtimeapi.AttachRequest) -> runtimeapi.AttachResponse:
        """Prepare a stream to the container's main process, and return its URL."""

    def reopen_container_log(self, ctx: golang.Context, container_id: str) -> None:
        """Make the runtime write to a new log file after the old one was renamed."""

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        """Write the state of a container to a file."""

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[runtimeapi.ContainerEventResponse]], None] | None,
    ) -> None:
        """Send the runtime's events into the channel until the stream fails, which raises an exception."""


class PodSandboxManager(Protocol):
    def run_pod_sandbox(self, ctx: golang.Context, config: runtimeapi.PodSandboxConfig, runtime_handler: str) -> str:
        """Create and start a sandbox with its network, and return its id."""

    def stop_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        """Kill the processes in the sandbox, and release its network."""

    def remove_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        """Remove a sandbox and its remaining containers."""

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        """Return the status of a sandbox."""

    def list_pod_sandbox(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxFilter | None
    ) -> Sequence[runtimeapi.PodSandbox]:
        """List the sandboxes that match the filter; None matches all."""

    def port_forward(
        self, ctx: golang.Context, request: runtimeapi.PortForwardRequest
    ) -> runtimeapi.PortForwardResponse:
        """Prepare a stream to ports of a sandbox, and return its URL."""

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        """Inform the runtime of the changed resources of the pod's cgroup."""


class ContainerStatsManager(Protocol):
    def container_stats(self, ctx: golang.Context, container_id: str) -> runtimeapi.ContainerStats:
        """Return the statistics of a container."""

    def list_container_stats(
        self, ctx: golang.Context, filter: runtimeapi.ContainerStatsFilter | None
    ) -> Sequence[runtimeapi.ContainerStats]:
        """List the statistics of the running containers."""

    def pod_sandbox_stats(self, ctx: golang.Context, pod_sandbox_id: str) -> runtimeapi.PodSandboxStats:
        """Return the statistics of a sandbox."""

    def list_pod_sandbox_stats(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxStatsFilter | None
    ) -> Sequence[runtimeapi.PodSandboxStats]:
        """List the statistics of the sandboxes."""

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        """List the descriptors of the metrics that `list_pod_sandbox_metrics` returns."""

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        """List the runtime's own metrics of each sandbox."""


class RuntimeService(RuntimeVersioner, ContainerManager, PodSandboxManager, ContainerStatsManager, Protocol):
    def update_runtime_config(self, ctx: golang.Context, runtime_config: runtimeapi.RuntimeConfig) -> None:
        """Inform the runtime of the node's pod CIDR."""

    def status(self, ctx: golang.Context, verbose: bool) -> runtimeapi.StatusResponse:
        """Return whether the runtime and its network are ready."""

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        """Return the runtime's configuration, such as its cgroup driver."""

    def close(self, ctx: golang.Context) -> None:
        """Close the connection."""


class ImageManagerService(Protocol):
    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        """List the images that match the filter; None matches all."""

    def image_status(
        self, ctx: golang.Context, image: runtimeapi.ImageSpec, verbose: bool
    ) -> runtimeapi.ImageStatusResponse:
        """Return the status of an image; its field `image` is unset if the image does not exist."""

    def pull_image(
        self,
        ctx: golang.Context,
        image: runtimeapi.ImageSpec,
        auth: runtimeapi.AuthConfig | None,
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> str:
        """Pull an image without a time limit, and return the runtime's reference to it."""

    def remove_image(self, ctx: golang.Context, image: runtimeapi.ImageSpec) -> None:
        """Remove an image and all its names."""

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        """Return the usage of the file systems of images and containers."""

    def close(self, ctx: golang.Context) -> None:
        """Close the connection."""
