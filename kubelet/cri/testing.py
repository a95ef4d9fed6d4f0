"""Provide runtime and image services whose state a test sets directly.

For a runtime that behaves by itself, see kubelet.cri.remote.fake.

Go: k8s.io/cri-api/pkg/apis/testing
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf.message import Message

from kubelet.cri import errors as crierror
from pkg import golang
from pkg.apimachinery import clock as clockpkg

FAKE_VERSION = "0.1.0"
FAKE_RUNTIME_NAME = "fakeRuntime"
FAKE_POD_SANDBOX_IP = "192.168.192.168"
FAKE_IMAGE_SIZE = 1


class Call(NamedTuple):
    """Record a call: the method's name in the CRI, and its arguments without the context."""

    method: str
    args: tuple[Any, ...]


def not_found(what: str, name: str) -> crierror.RemoteError:
    """Return the error of a real runtime for an unknown id."""
    return crierror.RemoteError(grpc.StatusCode.NOT_FOUND, f'{what} "{name}" not found')


def build_container_name(metadata: runtimeapi.ContainerMetadata, sandbox_id: str) -> str:
    """Return the fake's id of a container."""
    return f"{sandbox_id}_{metadata.name}_{metadata.attempt}"


def build_sandbox_name(metadata: runtimeapi.PodSandboxMetadata) -> str:
    """Return the fake's id of a sandbox."""
    return f"{metadata.name}_{metadata.namespace}_{metadata.uid}_{metadata.attempt}"


def _copy(message: Any) -> Any:
    if not isinstance(message, Message):
        return message
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


@dataclass(slots=True)
class _Recorder:
    """Record calls, and raise injected errors. All methods are thread-safe."""

    calls: list[Call] = field(default_factory=list)
    # The function runs before each call, without any lock, so that a test can block in it.
    on_call: Callable[[Call], None] | None = None
    # The lock guards calls, errors and the state of the subclass.
    lock: threading.Lock = field(default_factory=threading.Lock)
    errors: dict[str, list[Exception]] = field(default_factory=dict)

    def inject_error(self, method: str, err: Exception) -> None:
        """Make the next call of the method raise this error, after earlier injected ones."""
        with self.lock:
            self.errors.setdefault(method, []).append(err)

    def called(self) -> list[str]:
        """Return the names of the calls so far."""
        with self.lock:
            return [call.method for call in self.calls]

    def requests(self, method: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of a method."""
        with self.lock:
            return [call.args for call in self.calls if call.method == method]

    def reset_calls(self) -> None:
        """Forget the calls so far."""
        with self.lock:
            self.calls.clear()

    def _record(self, method: str, *args: Any) -> None:
        call = Call(method, tuple(_copy(arg) for arg in args))
        with self.lock:
            self.calls.append(call)
            injected = self.errors.get(method)
            raised = [injected.pop(0)] if injected else []
        if self.on_call is not None:
            self.on_call(call)
        if raised:
            # A variable would keep the error, and with it the frames of the tested code.
            raise raised.pop()


@dataclass(slots=True)
class FakeContainer:
    """Hold a container's status and the id of its sandbox."""

    status: runtimeapi.ContainerStatus
    sandbox_id: str


@dataclass(slots=True)
class FakeRuntimeService(_Recorder):
    """Simulate a runtime whose containers start at once and exit with code 0 when they are stopped.

    All methods are thread-safe.
    """

    clock: clockpkg.Clock = field(default_factory=clockpkg.RealClock)
    sandboxes: dict[str, runtimeapi.PodSandboxStatus] = field(default_factory=dict)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    runtime_status: runtimeapi.StatusResponse = field(default_factory=runtimeapi.StatusResponse)
    # exec_sync returns this output.
    stdout: bytes = b""
    stderr: bytes = b""
    # The keys are container or sandbox ids.
    fake_container_stats: dict[str, runtimeapi.ContainerStats] = field(default_factory=dict)
    fake_pod_sandbox_stats: dict[str, runtimeapi.PodSandboxStats] = field(default_factory=dict)
    # The keys are sandbox ids. Without a directory there are no log files.
    log_directories: dict[str, str] = field(default_factory=dict)

    def set_fake_sandboxes(self, sandboxes: Iterable[runtimeapi.PodSandboxStatus]) -> None:
        """Replace all sandboxes."""
        with self.lock:
            self.sandboxes = {s.id: s for s in sandboxes}

    def set_fake_containers(self, containers: Iterable[FakeContainer]) -> None:
        """Replace all containers."""
        with self.lock:
            self.containers = {c.status.id: c for c in containers}

    def exit_container(self, container_id: str, exit_code: int, reason: str = "") -> None:
        """Make a container exit by itself."""
        with self.lock:
            self._exit_locked(container_id, exit_code, reason)

    def _now(self) -> int:
        return int(self.clock.now().timestamp() * 1_000_000) * 1000

    def _exit_locked(self, container_id: str, exit_code: int, reason: str) -> None:
        status = self.containers[container_id].status
        status.state = runtimeapi.CONTAINER_EXITED
        status.finished_at = self._now()
        status.exit_code = exit_code
        status.reason = reason or ("Completed" if exit_code == 0 else "Error")

    def version(self, ctx: golang.Context, api_version: str) -> runtimeapi.VersionResponse:
        self._record("Version", api_version)
        return runtimeapi.VersionResponse(
            version=FAKE_VERSION,
            runtime_name=FAKE_RUNTIME_NAME,
            runtime_version=FAKE_VERSION,
            runtime_api_version=FAKE_VERSION,
        )

    def status(self, ctx: golang.Context, verbose: bool) -> runtimeapi.StatusResponse:
        self._record("Status", verbose)
        return self.runtime_status

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        self._record("RuntimeConfig")
        return runtimeapi.RuntimeConfigResponse()

    def update_runtime_config(self, ctx: golang.Context, runtime_config: runtimeapi.RuntimeConfig) -> None:
        self._record("UpdateRuntimeConfig", runtime_config)

    def close(self, ctx: golang.Context) -> None:
        self._record("Close")

    def run_pod_sandbox(self, ctx: golang.Context, config: runtimeapi.PodSandboxConfig, runtime_handler: str) -> str:
        self._record("RunPodSandbox", config, runtime_handler)
        sandbox_id = build_sandbox_name(config.metadata)
        options = config.linux.security_context.namespace_options
        status = runtimeapi.PodSandboxStatus(
            id=sandbox_id,
            metadata=config.metadata,
            state=runtimeapi.SANDBOX_READY,
            created_at=self._now(),
            network=runtimeapi.PodSandboxNetworkStatus(
                ip="" if options.network == runtimeapi.NODE else FAKE_POD_SANDBOX_IP
            ),
            linux=runtimeapi.LinuxPodSandboxStatus(namespaces=runtimeapi.Namespace(options=options)),
            labels=config.labels,
            annotations=config.annotations,
            runtime_handler=runtime_handler,
        )
        with self.lock:
            self.sandboxes[sandbox_id] = status
            self.log_directories[sandbox_id] = config.log_directory
        return sandbox_id

    def stop_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        self._record("StopPodSandbox", pod_sandbox_id)
        with self.lock:
            self._sandbox_locked(pod_sandbox_id).state = runtimeapi.SANDBOX_NOTREADY

    def remove_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        self._record("RemovePodSandbox", pod_sandbox_id)
        with self.lock:
            self.sandboxes.pop(pod_sandbox_id, None)

    def _sandbox_locked(self, sandbox_id: str) -> runtimeapi.PodSandboxStatus:
        if sandbox_id not in self.sandboxes:
            raise not_found("pod sandbox", sandbox_id)
        return self.sandboxes[sandbox_id]

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        self._record("PodSandboxStatus", pod_sandbox_id, verbose)
        with self.lock:
            return runtimeapi.PodSandboxStatusResponse(status=self._sandbox_locked(pod_sandbox_id))

    def list_pod_sandbox(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxFilter | None
    ) -> Sequence[runtimeapi.PodSandbox]:
        self._record("ListPodSandbox", filter)
        with self.lock:
            return [
                runtimeapi.PodSandbox(
                    id=s.id,
                    metadata=s.metadata if s.HasField("metadata") else None,
                    state=s.state,
                    created_at=s.created_at,
                    labels=s.labels,
                    annotations=s.annotations,
                    runtime_handler=s.runtime_handler,
                )
                for s in self.sandboxes.values()
                if _matches(filter, s.id, s.state, s.labels)
            ]

    def port_forward(
        self, ctx: golang.Context, request: runtimeapi.PortForwardRequest
    ) -> runtimeapi.PortForwardResponse:
        self._record("PortForward", request)
        return runtimeapi.PortForwardResponse(url=f"http://fake/portforward/{request.pod_sandbox_id}")

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        self._record("UpdatePodSandboxResources", request)
        return runtimeapi.UpdatePodSandboxResourcesResponse()

    def create_container(
        self,
        ctx: golang.Context,
        pod_sandbox_id: str,
        config: runtimeapi.ContainerConfig,
        sandbox_config: runtimeapi.PodSandboxConfig,
    ) -> str:
        self._record("CreateContainer", pod_sandbox_id, config, sandbox_config)
        container_id = build_container_name(config.metadata, pod_sandbox_id)
        status = runtimeapi.ContainerStatus(
            id=container_id,
            metadata=config.metadata,
            image=config.image,
            image_ref=config.image.image,
            created_at=self._now(),
            state=runtimeapi.CONTAINER_CREATED,
            labels=config.labels,
            annotations=config.annotations,
            mounts=config.mounts,
            resources=runtimeapi.ContainerResources(linux=config.linux.resources),
        )
        with self.lock:
            directory = self.log_directories.get(pod_sandbox_id, "")
            status.log_path = f"{directory}/{config.log_path}" if directory else config.log_path
            self.containers[container_id] = FakeContainer(status, pod_sandbox_id)
        return container_id

    def start_container(self, ctx: golang.Context, container_id: str) -> None:
        self._record("StartContainer", container_id)
        with self.lock:
            status = self._container_locked(container_id).status
            status.state = runtimeapi.CONTAINER_RUNNING
            status.started_at = self._now()

    def stop_container(self, ctx: golang.Context, container_id: str, timeout: int) -> None:
        self._record("StopContainer", container_id, timeout)
        with self.lock:
            self._container_locked(container_id)
            self._exit_locked(container_id, 0, "")

    def remove_container(self, ctx: golang.Context, container_id: str) -> None:
        self._record("RemoveContainer", container_id)
        with self.lock:
            self.containers.pop(container_id, None)

    def _container_locked(self, container_id: str) -> FakeContainer:
        if container_id not in self.containers:
            raise not_found("container", container_id)
        return self.containers[container_id]

    def list_containers(
        self, ctx: golang.Context, filter: runtimeapi.ContainerFilter | None
    ) -> Sequence[runtimeapi.Container]:
        self._record("ListContainers", filter)
        with self.lock:
            return [
                runtimeapi.Container(
                    id=c.status.id,
                    pod_sandbox_id=c.sandbox_id,
                    metadata=c.status.metadata if c.status.HasField("metadata") else None,
                    image=c.status.image,
                    image_ref=c.status.image_ref,
                    image_id=c.status.image_id,
                    state=c.status.state,
                    created_at=c.status.created_at,
                    labels=c.status.labels,
                    annotations=c.status.annotations,
                )
                for c in self.containers.values()
                if _matches(filter, c.status.id, c.status.state, c.status.labels)
                and (not filter or filter.pod_sandbox_id in ("", c.sandbox_id))
            ]

    def container_status(
        self, ctx: golang.Context, container_id: str, verbose: bool
    ) -> runtimeapi.ContainerStatusResponse:
        self._record("ContainerStatus", container_id, verbose)
        with self.lock:
            return runtimeapi.ContainerStatusResponse(status=self._container_locked(container_id).status)

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        self._record("UpdateContainerResources", container_id, resources)

    def exec_sync(
        self, ctx: golang.Context, container_id: str, cmd: Sequence[str], timeout: float
    ) -> tuple[bytes, bytes]:
        self._record("ExecSync", container_id, list(cmd), timeout)
        return self.stdout, self.stderr

    def exec(self, ctx: golang.Context, request: runtimeapi.ExecRequest) -> runtimeapi.ExecResponse:
        self._record("Exec", request)
        return runtimeapi.ExecResponse(url=f"http://fake/exec/{request.container_id}")

    def attach(self, ctx: golang.Context, request: runtimeapi.AttachRequest) -> runtimeapi.AttachResponse:
        self._record("Attach", request)
        return runtimeapi.AttachResponse(url=f"http://fake/attach/{request.container_id}")

    def reopen_container_log(self, ctx: golang.Context, container_id: str) -> None:
        self._record("ReopenContainerLog", container_id)

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        self._record("CheckpointContainer", options)

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[runtimeapi.ContainerEventResponse]], None] | None,
    ) -> None:
        self._record("GetContainerEvents")

    def container_stats(self, ctx: golang.Context, container_id: str) -> runtimeapi.ContainerStats:
        self._record("ContainerStats", container_id)
        return self.fake_container_stats.get(container_id, runtimeapi.ContainerStats())

    def list_container_stats(
        self, ctx: golang.Context, filter: runtimeapi.ContainerStatsFilter | None
    ) -> Sequence[runtimeapi.ContainerStats]:
        self._record("ListContainerStats", filter)
        sandbox_id = filter.pod_sandbox_id if filter is not None else ""
        found = self.fake_container_stats.items()
        return [stats for id, stats in found if not sandbox_id or self.containers[id].sandbox_id == sandbox_id]

    def pod_sandbox_stats(self, ctx: golang.Context, pod_sandbox_id: str) -> runtimeapi.PodSandboxStats:
        self._record("PodSandboxStats", pod_sandbox_id)
        return self.fake_pod_sandbox_stats.get(pod_sandbox_id, runtimeapi.PodSandboxStats())

    def list_pod_sandbox_stats(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxStatsFilter | None
    ) -> Sequence[runtimeapi.PodSandboxStats]:
        self._record("ListPodSandboxStats", filter)
        return list(self.fake_pod_sandbox_stats.values())

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        self._record("ListMetricDescriptors")
        return []

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        self._record("ListPodSandboxMetrics")
        return []


def _matches(
    filter: runtimeapi.PodSandboxFilter | runtimeapi.ContainerFilter | None,
    id: str,
    state: int,
    labels: Mapping[str, str],
) -> bool:
    if filter is None:
        return True
    if filter.id and filter.id != id:
        return False
    if filter.HasField("state") and filter.state.state != state:
        return False
    return all(labels.get(key) == value for key, value in filter.label_selector.items())


@dataclass(slots=True)
class FakeImageService(_Recorder):
    """Keep images by the requested name; a pull creates one. All methods are thread-safe."""

    images: dict[str, runtimeapi.Image] = field(default_factory=dict)
    fake_image_size: int = FAKE_IMAGE_SIZE
    file_systems: runtimeapi.ImageFsInfoResponse = field(default_factory=runtimeapi.ImageFsInfoResponse)

    def set_fake_images(self, names: Iterable[str]) -> None:
        """Replace all images."""
        with self.lock:
            self.images = {name: self._image(name) for name in names}

    def _image(self, name: str) -> runtimeapi.Image:
        return runtimeapi.Image(
            id=name, size=self.fake_image_size, repo_tags=[name], spec=runtimeapi.ImageSpec(image=name)
        )

    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        self._record("ListImages", filter)
        with self.lock:
            wanted = filter.image.image if filter is not None else ""
            return [image for image in self.images.values() if not wanted or wanted in image.repo_tags]

    def image_status(
        self, ctx: golang.Context, image: runtimeapi.ImageSpec, verbose: bool
    ) -> runtimeapi.ImageStatusResponse:
        self._record("ImageStatus", image, verbose)
        with self.lock:
            return runtimeapi.ImageStatusResponse(image=self.images.get(image.image))

    def pull_image(
        self,
        ctx: golang.Context,
        image: runtimeapi.ImageSpec,
        auth: runtimeapi.AuthConfig | None,
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> str:
        self._record("PullImage", image, auth, pod_sandbox_config)
        with self.lock:
            if image.image not in self.images:
                self.images[image.image] = self._image(image.image)
        return image.image

    def remove_image(self, ctx: golang.Context, image: runtimeapi.ImageSpec) -> None:
        self._record("RemoveImage", image)
        with self.lock:
            self.images.pop(image.image, None)

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        self._record("ImageFsInfo")
        return self.file_systems

    def close(self, ctx: golang.Context) -> None:
        self._record("Close")
