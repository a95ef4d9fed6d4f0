"""Run one probe of one container.

Go: pkg/kubelet/prober/prober.go
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet import events
from kubelet.prober import results
from pkg import golang, klog
from pkg import probe as probing
from pkg.api.core import v1
from pkg.golang import net
from pkg.golang.turn import let_others
from pkg.probe import http as httpprobe

if TYPE_CHECKING:
    from pkg.client_go.tools import record

# `MAX_PROBE_RETRIES` is the number of attempts to run a probe. A probe that could not run is retried at once.
MAX_PROBE_RETRIES = 3


class ProbeType(enum.StrEnum):
    """Name the kinds of a container's probes."""

    LIVENESS = "Liveness"
    READINESS = "Readiness"
    STARTUP = "Startup"


class Prober:
    """Run probes. All methods are thread-safe."""

    def __init__(self, runner: kubecontainer.CommandRunner, recorder: record.EventRecorder) -> None:
        self._runner = runner
        self._recorder = recorder

    def probe(
        self,
        ctx: golang.Context,
        probe_type: ProbeType,
        pod: v1.Pod,
        status: v1.PodStatus,
        container: v1.Container,
        container_id: kubecontainer.ContainerID,
    ) -> results.Result:
        """Run the probe and return success or failure; record an event for a failure, a warning or an error.

        Raise the error that kept the probe from running.
        """
        spec = probe_spec(container, probe_type)
        if spec is None:
            return results.SUCCESS
        uid = pod.metadata.uid
        where = {"probeType": probe_type, "pod": klog.kobj(pod), "podUID": uid, "containerName": container.name}
        try:
            result, output = self._run_probe_with_retries(ctx, spec, pod, status, container, container_id)
        except golang.Canceled:
            raise
        except Exception as err:
            klog.v(1).info_s("Probe errored", **where, err=err)
            broken = isinstance(err, probing.BrokenAnswerError)
            state = probing.Result.FAILURE if broken else probing.Result.UNKNOWN
            text = "%s probe errored and resulted in %s state: %s"
            self._record(pod, container, events.CONTAINER_UNHEALTHY, text, probe_type, state, err)
            raise
        match result:
            case probing.Result.SUCCESS:
                klog.v(3).info_s("Probe succeeded", **where)
                return results.SUCCESS
            case probing.Result.WARNING:
                klog.v(3).info_s("Probe succeeded with a warning", **where, output=output)
                self._record(pod, container, events.CONTAINER_PROBE_WARNING, "%s probe warning: %s", probe_type, output)
                return results.SUCCESS
        klog.v(1).info_s("Probe failed", **where, probeResult=result, output=output)
        self._record(pod, container, events.CONTAINER_UNHEALTHY, "%s probe failed: %s", probe_type, output)
        return results.FAILURE

    def _run_probe_with_retries(
        self,
        ctx: golang.Context,
        spec: v1.Probe,
        pod: v1.Pod,
        status: v1.PodStatus,
        container: v1.Container,
        container_id: kubecontainer.ContainerID,
    ) -> tuple[probing.Result, str]:
        for attempt in range(1, MAX_PROBE_RETRIES + 1):
            try:
                return self._run_probe(ctx, spec, pod, status, container, container_id)
            except golang.Canceled:
                raise
            except Exception as err:
                # The error of the last attempt is the result. After any other attempt, the next one may succeed.
                if attempt == MAX_PROBE_RETRIES:
                    raise
                klog.v(4).info_s("Retrying the probe", pod=klog.kobj(pod), attempt=attempt, err=err)
        raise AssertionError("unreachable")

    def _run_probe(
        self,
        ctx: golang.Context,
        spec: v1.Probe,
        pod: v1.Pod,
        status: v1.PodStatus,
        container: v1.Container,
        container_id: kubecontainer.ContainerID,
    ) -> tuple[probing.Result, str]:
        timeout = float(spec.timeout_seconds)
        ctx = net.with_owner(ctx, pod.metadata.uid)
        if spec.exec is not None:
            command = kubecontainer.expand_container_command_only_static(spec.exec.command, container.env)
            return probing.probe_exec(lambda: self._run_in_container(ctx, container_id, command, timeout))
        if spec.http_get is not None:
            url = httpprobe.new_request_url(spec.http_get, container, status.pod_ip)
            klog.v(4).info_s("HTTP-Probe", url=url, timeout=timeout)
            return probing.probe_http(ctx, url, httpprobe.headers_of(spec.http_get, "probe"), timeout)
        if spec.tcp_socket is not None:
            port = probing.resolve_container_port(spec.tcp_socket.port or 0, container)
            host = spec.tcp_socket.host or status.pod_ip
            klog.v(4).info_s("TCP-Probe", host=host, port=port, timeout=timeout)
            return probing.probe_tcp(ctx, host, port, timeout)
        if spec.grpc is not None:
            host, service = status.pod_ip, spec.grpc.service or ""
            klog.v(4).info_s("GRPC-Probe", host=host, service=service, port=spec.grpc.port, timeout=timeout)
            return probing.probe_grpc(ctx, host, service, spec.grpc.port, timeout)
        raise ValueError(f"missing probe handler for {klog.kobj(pod)}:{container.name}")

    def _run_in_container(
        self, ctx: golang.Context, container_id: kubecontainer.ContainerID, command: list[str], timeout: float
    ) -> bytes:
        with let_others(ctx):
            return self._runner.run_in_container(ctx, container_id, command, timeout)

    def _record(self, pod: v1.Pod, container: v1.Container, reason: str, message_fmt: str, *args: object) -> None:
        try:
            reference = kubecontainer.generate_container_ref(pod, container)
        except ValueError as err:
            klog.error_s(err, "Can't make a ref to pod and container", pod=klog.kobj(pod))
            return
        self._recorder.eventf(reference, v1.EVENT_TYPE_WARNING, reason, message_fmt, *args)


def probe_spec(container: v1.Container, probe_type: ProbeType) -> v1.Probe | None:
    """Return the container's probe of this type, or None."""
    match probe_type:
        case ProbeType.LIVENESS:
            return container.liveness_probe
        case ProbeType.READINESS:
            return container.readiness_probe
        case ProbeType.STARTUP:
            return container.startup_probe
