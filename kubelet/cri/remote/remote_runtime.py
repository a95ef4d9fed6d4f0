"""Call a container runtime over its socket.

Go: k8s.io/cri-client/pkg/remote_runtime.go, pkg/kubelet/cri/remote/remote_runtime.go in 1.27

DIVERGES (platform): the kubelet gets lists with unary calls, even if the feature gate CRIListStreaming is on.
Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).ListContainers: the Go kubelet streams a list if
the gate, which is off by default, is on and the runtime supports the streaming calls.
Why: the Python package with the CRI's messages, cri-api, lacks the streaming calls.
Test: remote_runtime_test.py:test_lists_are_not_streamed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from google.protobuf import text_format

from kubelet.cri import apis as internalapi
from kubelet.cri import errors
from kubelet.cri.remote import client, utils
from pkg import golang, klog
from pkg.component_base import tracing
from pkg.component_base.logs import logreduction
from pkg.util import exec as utilexec

# DIVERGES (safer): the error of a failed command contains at most this many bytes of its stderr.
# Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).execSyncV1: the error contains the whole stderr.
# Why: the error becomes part of the log and of events.
# Test: remote_runtime_test.py:test_exec_sync_shows_the_beginning_of_endless_complaints
MAX_STDERR_LENGTH = 10 * 1024
# Two reports of the same error are at least this many seconds apart.
_IDENTICAL_ERROR_DELAY = 60.0
# This is Go's maximum duration in seconds. A runtime treats a longer grace period as zero, and kills at once.
_MAX_DURATION = (2**63 - 1) // 10**9


class ContainerStatusNilError(Exception):
    """Signal that the runtime's response has no status.

    Go: ErrContainerStatusNil
    """

    def __init__(self) -> None:
        super().__init__("container status is nil")


class RemoteRuntimeService:
    """Implement `apis.RuntimeService` on a unix socket.

    The constructor does not connect, because the kubelet outlives its runtime, and may start first.
    `connection_timeout` limits each call, in seconds, unless its method has another limit.
    """

    def __init__(
        self,
        ctx: golang.Context,
        endpoint: str,
        connection_timeout: float,
        tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
    ) -> None:
        klog.v(3).info_s("Connecting to runtime service", endpoint=endpoint)
        self._endpoint = endpoint
        self._timeout = connection_timeout
        self._client: client.Client = client.GRPCClient(endpoint, "RuntimeService", tracer_provider)
        self._log_reduction = logreduction.LogReduction(_IDENTICAL_ERROR_DELAY)

    def close(self, ctx: golang.Context) -> None:
        klog.v(3).info_s("Closing runtime service connection")
        self._client.close()

    def validate_service_connection(self, ctx: golang.Context) -> None:
        """Raise ConnectionError unless a runtime with CRI v1 answers."""
        klog.v(4).info_s("Validating the CRI v1 API runtime version")
        try:
            self._client.invoke(ctx, "Version", runtimeapi.VersionRequest(), self._timeout)
        except errors.RemoteError as err:
            raise ConnectionError(
                "validate service connection: validate CRI v1 runtime API for endpoint "
                f'"{self._endpoint}": {err}{self._hint(ctx, err)}'
            ) from err
        klog.v(2).info_s("Validated CRI v1 runtime API")

    def _hint(self, ctx: golang.Context, err: errors.RemoteError) -> str:
        if err.code is not grpc.StatusCode.UNIMPLEMENTED:
            return ""
        grpc_client = self._client
        if isinstance(grpc_client, client.GRPCClient) and grpc_client.speaks_v1alpha2_only(ctx, self._timeout):
            return " (the runtime speaks CRI v1alpha2 only and must be updated)"
        return " (the listener is not a container runtime, or its CRI plugin is disabled)"

    def version(self, ctx: golang.Context, api_version: str) -> runtimeapi.VersionResponse:
        """Return the versions. Raise InvalidResponseError, which names the fields that the runtime omitted."""
        request = runtimeapi.VersionRequest(version=api_version)
        typed_version: runtimeapi.VersionResponse
        try:
            typed_version = self._call(ctx, "Version", request, "Version from runtime service failed")
        except errors.RemoteError as err:
            if hint := self._hint(ctx, err):
                raise errors.RemoteError(err.code, err.message + hint) from err
            raise
        fields = {
            "Version": typed_version.version,
            "RuntimeName": typed_version.runtime_name,
            "RuntimeApiVersion": typed_version.runtime_api_version,
            "RuntimeVersion": typed_version.runtime_version,
        }
        missing = [name for name, value in fields.items() if not value]
        if missing:
            raise errors.InvalidResponseError(
                f"not all fields are set in VersionResponse (missing {', '.join(missing)})"
            )
        return typed_version

    def run_pod_sandbox(self, ctx: golang.Context, config: runtimeapi.PodSandboxConfig, runtime_handler: str) -> str:
        request = runtimeapi.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler)
        # The call gets twice the usual time, because it sets up a network and may pull the sandbox's image.
        what = "RunPodSandbox from runtime service failed"
        response = self._call_within(ctx, self._timeout * 2, "RunPodSandbox", request, what)
        if not response.pod_sandbox_id:
            name = f"{config.metadata.namespace}/{config.metadata.name}"
            raise _refuse("RunPodSandbox failed", f"PodSandboxId is not set for sandbox {name!r}")
        return response.pod_sandbox_id  # type: ignore[no-any-return]

    def stop_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        request = runtimeapi.StopPodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        what = "StopPodSandbox from runtime service failed"
        self._call(ctx, "StopPodSandbox", request, what, podSandboxID=pod_sandbox_id)

    def remove_pod_sandbox(self, ctx: golang.Context, pod_sandbox_id: str) -> None:
        request = runtimeapi.RemovePodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        what = "RemovePodSandbox from runtime service failed"
        self._call(ctx, "RemovePodSandbox", request, what, podSandboxID=pod_sandbox_id)

    def pod_sandbox_status(
        self, ctx: golang.Context, pod_sandbox_id: str, verbose: bool
    ) -> runtimeapi.PodSandboxStatusResponse:
        """Return the status of a sandbox.

        Raise InvalidResponseError for a status that is missing, incomplete, or that of another sandbox. The caller logs
        failures.
        """
        request = runtimeapi.PodSandboxStatusRequest(pod_sandbox_id=pod_sandbox_id, verbose=verbose)
        response: runtimeapi.PodSandboxStatusResponse = self._client.invoke(
            ctx, "PodSandboxStatus", request, self._timeout
        )
        utils.verify_sandbox_status(response.status, pod_sandbox_id)
        return response

    def list_pod_sandbox(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxFilter | None
    ) -> Sequence[runtimeapi.PodSandbox]:
        request = runtimeapi.ListPodSandboxRequest(filter=filter)
        what = "ListPodSandbox with filter from runtime service failed"
        return self._call_reduced(ctx, "ListPodSandbox", request, what, filter=filter).items  # type: ignore[no-any-return]

    def create_container(
        self,
        ctx: golang.Context,
        pod_sandbox_id: str,
        config: runtimeapi.ContainerConfig,
        sandbox_config: runtimeapi.PodSandboxConfig,
    ) -> str:
        request = runtimeapi.CreateContainerRequest(
            pod_sandbox_id=pod_sandbox_id, config=config, sandbox_config=sandbox_config
        )
        what = "CreateContainer in sandbox from runtime service failed"
        response = self._call(ctx, "CreateContainer", request, what, podSandboxID=pod_sandbox_id)
        if not response.container_id:
            raise _refuse("CreateContainer failed", f"ContainerId is not set for container {config.metadata.name!r}")
        return response.container_id  # type: ignore[no-any-return]

    def start_container(self, ctx: golang.Context, container_id: str) -> None:
        request = runtimeapi.StartContainerRequest(container_id=container_id)
        what = "StartContainer from runtime service failed"
        self._call(ctx, "StartContainer", request, what, containerID=container_id)

    def stop_container(self, ctx: golang.Context, container_id: str, timeout: int) -> None:
        # DIVERGES (fault of Go): the kubelet shortens a grace period of more than 292 years to 292 years.
        # Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).StopContainer: the time limit of the call
        # overflows, usually to a time in the past, and then the call is not sent.
        # Why: a container whose pod was deleted gets no signal, and continues to run.
        # Test: remote_runtime_test.py:test_grace_period_that_is_too_long_for_the_runtime,
        # remote_runtime_test.py:test_grace_period_that_is_too_long_for_grpc_is_not_over_at_once
        request = runtimeapi.StopContainerRequest(container_id=container_id, timeout=min(timeout, _MAX_DURATION))
        self._log_reduction.clear_id(container_id)
        # The call gets the grace period, and the usual time to kill the container after it.
        limit = self._timeout + timeout
        what = "StopContainer from runtime service failed"
        self._call_within(ctx, limit, "StopContainer", request, what, containerID=container_id)

    def remove_container(self, ctx: golang.Context, container_id: str) -> None:
        request = runtimeapi.RemoveContainerRequest(container_id=container_id)
        self._log_reduction.clear_id(container_id)
        what = "RemoveContainer from runtime service failed"
        self._call(ctx, "RemoveContainer", request, what, containerID=container_id)

    def list_containers(
        self, ctx: golang.Context, filter: runtimeapi.ContainerFilter | None
    ) -> Sequence[runtimeapi.Container]:
        request = runtimeapi.ListContainersRequest(filter=filter)
        what = "ListContainers with filter from runtime service failed"
        return self._call_reduced(ctx, "ListContainers", request, what, filter=filter).containers  # type: ignore[no-any-return]

    def container_status(
        self, ctx: golang.Context, container_id: str, verbose: bool
    ) -> runtimeapi.ContainerStatusResponse:
        """Return the status of a container.

        Raise InvalidResponseError for a status that is missing, incomplete, or that of another container.
        """
        request = runtimeapi.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        what = "ContainerStatus from runtime service failed"
        response: runtimeapi.ContainerStatusResponse = self._call_reduced(
            ctx, "ContainerStatus", request, what, containerID=container_id
        )
        try:
            utils.verify_container_status(response.status, container_id)
        except errors.InvalidResponseError as err:
            klog.error_s(err, "verify ContainerStatus failed", containerID=container_id)
            raise
        return response

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None:
        request = runtimeapi.UpdateContainerResourcesRequest(container_id=container_id, linux=resources.linux)
        what = "UpdateContainerResources from runtime service failed"
        self._call(ctx, "UpdateContainerResources", request, what, containerID=container_id)

    def exec_sync(
        self, ctx: golang.Context, container_id: str, cmd: Sequence[str], timeout: float
    ) -> tuple[bytes, bytes]:
        """Run a command to its end, and return its stdout and stderr.

        The runtime gets `timeout` in whole seconds, and the call has the usual time in addition.
        """
        request = runtimeapi.ExecSyncRequest(container_id=container_id, cmd=cmd, timeout=int(timeout))
        limit = self._timeout + timeout if timeout else None
        what = "ExecSync cmd from runtime service failed"
        log = {"containerID": container_id, "cmd": utilexec.shown_arguments(cmd)}
        try:
            response = self._call_within(ctx, limit, "ExecSync", request, what, **log)
        except errors.RemoteError as err:
            if err.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise utilexec.CommandTimedOutError(cmd, timeout) from err
            raise
        if response.exit_code != 0:
            stderr = response.stderr[:MAX_STDERR_LENGTH].decode(errors="replace")
            text = f"command '{utilexec.shown(cmd)}' exited with {response.exit_code}: {stderr}"
            raise utilexec.CodeExitError(ValueError(text), response.exit_code, response.stdout + response.stderr)
        return response.stdout, response.stderr

    def exec(self, ctx: golang.Context, request: runtimeapi.ExecRequest) -> runtimeapi.ExecResponse:
        what = "Exec cmd from runtime service failed"
        log = {"containerID": request.container_id, "cmd": utilexec.shown_arguments(request.cmd)}
        response = self._call(ctx, "Exec", request, what, **log)
        return _with_url(response, "Exec failed")  # type: ignore[no-any-return]

    def attach(self, ctx: golang.Context, request: runtimeapi.AttachRequest) -> runtimeapi.AttachResponse:
        what = "Attach container from runtime service failed"
        response = self._call(ctx, "Attach", request, what, containerID=request.container_id)
        return _with_url(response, "Attach failed")  # type: ignore[no-any-return]

    def port_forward(
        self, ctx: golang.Context, request: runtimeapi.PortForwardRequest
    ) -> runtimeapi.PortForwardResponse:
        what = "PortForward from runtime service failed"
        response = self._call(ctx, "PortForward", request, what, podSandboxID=request.pod_sandbox_id)
        return _with_url(response, "PortForward failed")  # type: ignore[no-any-return]

    def update_pod_sandbox_resources(
        self, ctx: golang.Context, request: runtimeapi.UpdatePodSandboxResourcesRequest
    ) -> runtimeapi.UpdatePodSandboxResourcesResponse:
        what = "UpdatePodSandboxResources from runtime service failed"
        return self._call(  # type: ignore[no-any-return]
            ctx, "UpdatePodSandboxResources", request, what, podSandboxID=request.pod_sandbox_id
        )

    def update_runtime_config(self, ctx: golang.Context, runtime_config: runtimeapi.RuntimeConfig) -> None:
        request = runtimeapi.UpdateRuntimeConfigRequest(runtime_config=runtime_config)
        # A failure is not logged here, as in Go: the caller logs it with the pod CIDR.
        self._client.invoke(ctx, "UpdateRuntimeConfig", request, self._timeout)

    def status(self, ctx: golang.Context, verbose: bool) -> runtimeapi.StatusResponse:
        """Return the status. Raise InvalidResponseError if one of the two required conditions is missing."""
        request = runtimeapi.StatusRequest(verbose=verbose)
        what = "Status from runtime service failed"
        response: runtimeapi.StatusResponse = self._call_reduced(ctx, "Status", request, what)
        if len(response.status.conditions) < 2:
            raise _refuse("Status failed", "RuntimeReady or NetworkReady condition are not set")
        return response

    def container_stats(self, ctx: golang.Context, container_id: str) -> runtimeapi.ContainerStats:
        request = runtimeapi.ContainerStatsRequest(container_id=container_id)
        what = "ContainerStats from runtime service failed"
        return self._call_reduced(ctx, "ContainerStats", request, what, containerID=container_id).stats  # type: ignore[no-any-return]

    def list_container_stats(
        self, ctx: golang.Context, filter: runtimeapi.ContainerStatsFilter | None
    ) -> Sequence[runtimeapi.ContainerStats]:
        request = runtimeapi.ListContainerStatsRequest(filter=filter)
        what = "ListContainerStats with filter from runtime service failed"
        return self._call_reduced(ctx, "ListContainerStats", request, what, filter=filter).stats  # type: ignore[no-any-return]

    def pod_sandbox_stats(self, ctx: golang.Context, pod_sandbox_id: str) -> runtimeapi.PodSandboxStats:
        request = runtimeapi.PodSandboxStatsRequest(pod_sandbox_id=pod_sandbox_id)
        what = "PodSandbox from runtime service failed"
        return self._call_reduced(ctx, "PodSandboxStats", request, what, podSandboxID=pod_sandbox_id).stats  # type: ignore[no-any-return]

    def list_pod_sandbox_stats(
        self, ctx: golang.Context, filter: runtimeapi.PodSandboxStatsFilter | None
    ) -> Sequence[runtimeapi.PodSandboxStats]:
        request = runtimeapi.ListPodSandboxStatsRequest(filter=filter)
        what = "ListPodSandboxStats with filter from runtime service failed"
        return self._call_reduced(ctx, "ListPodSandboxStats", request, what, filter=filter).stats  # type: ignore[no-any-return]

    def reopen_container_log(self, ctx: golang.Context, container_id: str) -> None:
        request = runtimeapi.ReopenContainerLogRequest(container_id=container_id)
        what = "ReopenContainerLog from runtime service failed"
        self._call(ctx, "ReopenContainerLog", request, what, containerID=container_id)

    def checkpoint_container(self, ctx: golang.Context, options: runtimeapi.CheckpointContainerRequest) -> None:
        """Write the state of a container to a file.

        The timeout in `options` applies if it is longer than the usual one. Raise ValueError if it is negative.
        """
        if options.timeout < 0:
            raise ValueError("CheckpointContainer requires the timeout value to be > 0")
        request = runtimeapi.CheckpointContainerRequest()
        request.CopyFrom(options)
        request.timeout = max(options.timeout, int(self._timeout))
        limit = max(float(options.timeout), self._timeout)
        what = "CheckpointContainer from runtime service failed"
        self._call_within(ctx, limit, "CheckpointContainer", request, what, containerID=options.container_id)

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[runtimeapi.ContainerEventResponse]], None] | None,
    ) -> None:
        """Send the runtime's events into the channel.

        The method ends only with an exception: EOFError if the runtime ended the stream, or RemoteError.
        """
        try:
            with self._client.stream(ctx, "GetContainerEvents", runtimeapi.GetEventsRequest()) as stream:
                if connection_established_callback is not None:
                    connection_established_callback(stream)
                for response in stream:
                    container_events_ch.send(response, ctx)
                    if klog.v(4).enabled:
                        line = text_format.MessageToString(response, as_one_line=True)
                        klog.info_s("container event received", resp=line)
        except golang.Canceled:
            raise
        except errors.RemoteError as err:
            klog.error_s(err, "failed to receive streaming container event")
            raise
        eof = EOFError("container events stream is closed")
        klog.error_s(eof, "container events stream is closed")
        raise eof

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]:
        request = runtimeapi.ListMetricDescriptorsRequest()
        what = "ListMetricDescriptors from runtime service failed"
        return self._call(ctx, "ListMetricDescriptors", request, what).descriptors  # type: ignore[no-any-return]

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]:
        request = runtimeapi.ListPodSandboxMetricsRequest()
        what = "ListPodSandboxMetrics from runtime service failed"
        return self._call(ctx, "ListPodSandboxMetrics", request, what).pod_metrics  # type: ignore[no-any-return]

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        request = runtimeapi.RuntimeConfigRequest()
        what = "RuntimeConfig from runtime service failed"
        return self._call(ctx, "RuntimeConfig", request, what)  # type: ignore[no-any-return]

    def _call(self, ctx: golang.Context, method: str, request: Any, what: str, **kv: Any) -> Any:
        return self._call_within(ctx, self._timeout, method, request, what, **kv)

    def _call_within(
        self, ctx: golang.Context, limit: float | None, method: str, request: Any, what: str, **kv: Any
    ) -> Any:
        """Call with a time limit in seconds, and log a failure as `what`."""
        # The log omits the request, because the environment of a container may contain secrets.
        klog.v(10).info_s(f"[RemoteRuntimeService] {method}", **kv, timeout=limit)
        try:
            return self._client.invoke(ctx, method, request, limit)
        except golang.Canceled:
            raise  # The caller that cancelled needs no log line.
        except errors.RemoteError as err:
            klog.error_s(err, what, **kv)
            raise

    def _call_reduced(self, ctx: golang.Context, method: str, request: Any, what: str, **kv: Any) -> Any:
        """Call like _call, but log the same failure of the same object only once a minute.

        DIVERGES (safer): the kubelet logs the same failure of a list, or of the runtime's status, once a minute.
        Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).listPodSandboxV1: the Go kubelet logs each
        failure.
        Why: the kubelet makes these calls every second, and all of them fail while the runtime is down.
        Test: remote_runtime_test.py:test_repeated_failures_are_logged_once
        """
        parent_id = kv.get("containerID") or kv.get("podSandboxID") or method
        klog.v(10).info_s(f"[RemoteRuntimeService] {method}", **kv, timeout=self._timeout)
        try:
            response = self._client.invoke(ctx, method, request, self._timeout)
        except golang.Canceled:
            raise
        except errors.RemoteError as err:
            if self._log_reduction.should_message_be_printed(str(err), parent_id):
                klog.error_s(err, what, **kv)
            raise
        self._log_reduction.clear_id(parent_id)
        return response


def _refuse(what: str, message: str) -> errors.InvalidResponseError:
    err = errors.InvalidResponseError(message)
    klog.error_s(err, what)
    return err


def _with_url(response: Any, what: str) -> Any:
    if not response.url:
        raise _refuse(what, "URL is not set")
    return response


if TYPE_CHECKING:

    def _implements(service: RemoteRuntimeService) -> internalapi.RuntimeService:
        return service
