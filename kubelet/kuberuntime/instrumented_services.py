"""Measure the calls to the runtime service and the image service.

Go: pkg/kubelet/kuberuntime/instrumented_services.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import metrics
from kubelet.cri import apis as internalapi
from pkg import golang
from pkg.apimachinery import types


class RuntimeObserver(Protocol):
    """Define the receiver of reports on calls to the runtime. Any thread may call it.

    Go: none
    """

    def recorded(
        self, operation: str, owner: tuple[str, str] = ("", ""), subject: str = ""
    ) -> AbstractContextManager[None]:
        """Record a call that lasts as long as the block, and fails if the block raises.

        `subject` is the object of the call, such as an ID or an image. `owner` holds the UID of the pod and the name of
        the container; both are empty if only the ID in `subject` identifies them.
        """
        ...

    def own(self, runtime_id: str, uid: types.UID, container: str = "") -> None:
        """Record that the sandbox or container with this ID belongs to the pod."""
        ...

    def disown(self, runtime_id: str) -> None:
        """Record that the sandbox or container was removed."""
        ...

    def killing(self, uid: types.UID, container: str, reason: str) -> None:
        """Record that the runtime manager is about to kill a container. `reason` is one of its REASON_ constants."""
        ...


class NullRuntimeObserver:
    """Ignore all reports."""

    def recorded(
        self, operation: str, owner: tuple[str, str] = ("", ""), subject: str = ""
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def own(self, runtime_id: str, uid: types.UID, container: str = "") -> None: ...

    def disown(self, runtime_id: str) -> None: ...

    def killing(self, uid: types.UID, container: str, reason: str) -> None: ...


class _Recorder:
    """Count the calls of a service in the metrics, and report them to an observer."""

    def __init__(self, observer: RuntimeObserver | None) -> None:
        self._observer = observer if observer is not None else NullRuntimeObserver()

    @contextmanager
    def _recorded(self, operation: str, subject: str = "", owner: tuple[str, str] = ("", "")) -> Iterator[None]:
        """Record an operation, its duration, and whether it raised.

        `subject` is the object of the call. `owner` holds the UID of the pod and the name of the container, unless the
        ID in `subject` identifies them.
        """
        start = monotonic()
        try:
            with self._observer.recorded(operation, owner, subject):
                yield
        except Exception:
            metrics.RUNTIME_OPERATIONS_ERRORS.labels(operation).inc()
            raise
        finally:
            metrics.RUNTIME_OPERATIONS.labels(operation).inc()
            metrics.RUNTIME_OPERATIONS_DURATION.labels(operation).observe(monotonic() - start)


@contextmanager
def _recorded_sandbox(runtime_handler: str) -> Iterator[None]:
    """Record the additional metrics of new sandboxes, which are kept by runtime handler."""
    start = monotonic()
    try:
        yield
    except Exception:
        metrics.RUN_POD_SANDBOX_ERRORS.labels(runtime_handler).inc()
        raise
    finally:
        metrics.RUN_POD_SANDBOX_DURATION.labels(runtime_handler).observe(monotonic() - start)


class InstrumentedRuntimeService(_Recorder):
    """Forward every call to an `apis.RuntimeService` and record it."""

    def __init__(self, service: internalapi.RuntimeService, observer: RuntimeObserver | None = None) -> None:
        super().__init__(observer)
        self._service = service

    def version(self, ctx: golang.Context, api_version: str) -> runtimeapi.VersionResponse:
        with self._recorded("version"):
            return self._service.version(ctx, api_version)

    def create_container(
        self,
        ctx: golang.Context,
        pod_sandbox_id: str,
        config: runtimeapi.ContainerConfig,
        sandbox_config: runtimeapi.PodSandboxConfig,
    ) -> str:
        owner = (types.UID(sandbox_config.metadata.uid), config.metadata.name)
        with self._recorded("create_container", pod_sandbox_id, owner):
            container_id = self._service.create_container(ctx, pod_sandbox_id, config, sandbox_config)
        self._observer.own(container_id, *owner)
        return container_id

    def start_container(self, ctx: golang.Context, container_id: str) -> None:
        with self._recorded("start_container", container_id):
            self._service.start_container(ctx, container_id)

    def stop_container(self, ctx: golang.Context, container_id: str, timeout: int) -> None:
        with self._recorded("stop_container", container_id):
            self._service.stop_container(ctx, container_id, timeout)

    def remove_container(self, ctx: golang.Context, container_id: str) -> None:
        with self._recorded("remove_container", container_id):
            self._service.remove_container(ctx, container_id)
        self._observer.disown(container_id)

    def list_containers(
        self, ctx: golang.Context, filter: runtimeapi.ContainerFilter | None
    ) -> Sequence[runtimeapi.Container]:
        with self._recorded("list_containers"):
            return self._service.list_containers(ctx, filter)

    def container_status(
        self, ctx: golang.Context, container_id: str, verbose: bool
    ) -> runtimeapi.ContainerStatusResponse:
        with self._recorded("container_status", container_id):
            return self._service.container_status(ctx, container_id, verbose)

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        with self._recorded("update_container", container_id):
            self._service.update_container_resources(ctx, container_id, resources)

    def exec_sync(
        self, ctx: golang.Context, container_id: str, cmd: Sequence[str], timeout: float
    ) -> tuple[bytes, bytes]:
        with self._recorded("exec_sync", container_id):
            return self._service.exec_sync(ctx, container_id, cmd, timeout)

    def exec(self, ctx: golang.Context, request: runtimeapi.ExecRequest) -> runtimeapi.ExecResponse:
        with self._recorded("exec"):
            return self._service.exec(ctx, request)

    def attach(self, ctx: golang.Context, request: runtimeapi.AttachRequest) -> runtimeapi.AttachResponse:
        with self._recorded("attach"):
            return self._service.attach(ctx, request)

    def reopen_container_log(self, ctx: golang.Context, container_id: str) -> None:
        with self._recorded("reopen_container_log", container_id):
            self._service.reopen_container_log(ctx, container_id)

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        with self._recorded("checkpoint_container"):
            self._service.checkpoint_container(ctx, options)

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[runtimeapi.ContainerEventResponse]], None] | None,
    ) -> None:
        with self._recorded("get_container_events"):
            self._service.get_container_events(ctx, container_events_ch, connection_established_callback)

    def run_pod_sandbox(self, ctx: golang.Context, config: runtimeapi.PodSandboxConfig, runtime_handler: str) -> str:
        owner = (types.UID(config.metadata.uid), "")
        with self._recorded("run_podsandbox", owner=owner), _recorded_sandbox(runtime_handler):
            sandbox_id = self._service.run_pod_sandbox(ctx, config, runtime_handler)
        self._observer.own(sandbox_id, *owner)
        return sandbox_id

    def stop_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        with self._recorded("stop_podsandbox", pod_sandbox_id):
            self._service.stop_pod_sandbox(ctx, pod_sandbox_id)

    def remove_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        with self._recorded("remove_podsandbox", pod_sandbox_id):
            self._service.remove_pod_sandbox(ctx, pod_sandbox_id)
        self._observer.disown(pod_sandbox_id)

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        with self._recorded("podsandbox_status", pod_sandbox_id):
            return self._service.pod_sandbox_status(ctx, pod_sandbox_id, verbose)

    def list_pod_sandbox(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxFilter | None
    ) -> Sequence[runtimeapi.PodSandbox]:
        with self._recorded("list_podsandbox"):
            return self._service.list_pod_sandbox(ctx, filter)

    def port_forward(
        self, ctx: golang.Context, request: runtimeapi.PortForwardRequest
    ) -> runtimeapi.PortForwardResponse:
        with self._recorded("port_forward"):
            return self._service.port_forward(ctx, request)

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        with self._recorded("update_podsandbox_resources"):
            return self._service.update_pod_sandbox_resources(ctx, request)

    def container_stats(self, ctx: golang.Context, container_id: str) -> runtimeapi.ContainerStats:
        with self._recorded("container_stats", container_id):
            return self._service.container_stats(ctx, container_id)

    def list_container_stats(
        self, ctx: golang.Context, filter: runtimeapi.ContainerStatsFilter | None
    ) -> Sequence[runtimeapi.ContainerStats]:
        with self._recorded("list_container_stats"):
            return self._service.list_container_stats(ctx, filter)

    def pod_sandbox_stats(self, ctx: golang.Context, pod_sandbox_id: str) -> runtimeapi.PodSandboxStats:
        with self._recorded("podsandbox_stats", pod_sandbox_id):
            return self._service.pod_sandbox_stats(ctx, pod_sandbox_id)

    def list_pod_sandbox_stats(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxStatsFilter | None
    ) -> Sequence[runtimeapi.PodSandboxStats]:
        with self._recorded("list_podsandbox_stats"):
            return self._service.list_pod_sandbox_stats(ctx, filter)

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        with self._recorded("list_metric_descriptors"):
            return self._service.list_metric_descriptors(ctx)

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        with self._recorded("list_podsandbox_metrics"):
            return self._service.list_pod_sandbox_metrics(ctx)

    def update_runtime_config(self, ctx: golang.Context, runtime_config: runtimeapi.RuntimeConfig) -> None:
        with self._recorded("update_runtime_config"):
            self._service.update_runtime_config(ctx, runtime_config)

    def status(self, ctx: golang.Context, verbose: bool) -> runtimeapi.StatusResponse:
        with self._recorded("status"):
            return self._service.status(ctx, verbose)

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        with self._recorded("runtime_config"):
            return self._service.runtime_config(ctx)

    def close(self, ctx: golang.Context) -> None:
        with self._recorded("close"):
            self._service.close(ctx)


class InstrumentedImageManagerService(_Recorder):
    """Forward every call to an `apis.ImageManagerService` and record it.

    DIVERGES (fault of Go): a failed image_fs_info raises its error.
    Go: pkg/kubelet/kuberuntime/instrumented_services.go, instrumentedImageManagerService.ImageFsInfo: the method
    returns no error.
    Why: the caller would conclude from a failed call that the runtime has no file system for images.
    Test: instrumented_services_test.py:test_failed_image_fs_info_is_an_error
    """

    def __init__(self, service: internalapi.ImageManagerService, observer: RuntimeObserver | None = None) -> None:
        super().__init__(observer)
        self._service = service

    def list_images(self, ctx: golang.Context, filter: runtimeapi.ImageFilter | None) -> Sequence[runtimeapi.Image]:
        with self._recorded("list_images"):
            return self._service.list_images(ctx, filter)

    def image_status(
        self, ctx: golang.Context, image: runtimeapi.ImageSpec, verbose: bool
    ) -> runtimeapi.ImageStatusResponse:
        with self._recorded("image_status", image.image):
            return self._service.image_status(ctx, image, verbose)

    def pull_image(
        self,
        ctx: golang.Context,
        image: runtimeapi.ImageSpec,
        auth: runtimeapi.AuthConfig | None,
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
    ) -> str:
        uid = "" if pod_sandbox_config is None else pod_sandbox_config.metadata.uid
        with self._recorded("pull_image", image.image, (uid, "")):
            return self._service.pull_image(ctx, image, auth, pod_sandbox_config)

    def remove_image(self, ctx: golang.Context, image: runtimeapi.ImageSpec) -> None:
        with self._recorded("remove_image", image.image):
            self._service.remove_image(ctx, image)

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        with self._recorded("image_fs_info"):
            return self._service.image_fs_info(ctx)

    def close(self, ctx: golang.Context) -> None:
        with self._recorded("close"):
            self._service.close(ctx)


if TYPE_CHECKING:

    def _implement(
        runtime: InstrumentedRuntimeService, image: InstrumentedImageManagerService
    ) -> tuple[internalapi.RuntimeService, internalapi.ImageManagerService]:
        return runtime, image
