"""Runs the hooks of containers: postStart and preStop.

Go: pkg/kubelet/lifecycle/handlers.go
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.client_go.tools import record
from pkg.component_base import version
from pkg.util import exec as utilexec

# Of a hook's answer no more is read.
_MAX_RESP_BODY_LENGTH = 10 << 10
# Seconds; Go's transport has the same.
_CONNECT_TIMEOUT = 30.0


class HookError(Exception):
    """A hook failed; `message` is what the container's waiting state shows."""

    def __init__(self, cause: Exception, message: str) -> None:
        super().__init__(str(cause))
        self.message = message


class HTTPResponseError(Exception):
    """The server of an https URL speaks plain http."""

    def __init__(self) -> None:
        super().__init__("server gave HTTP response to HTTPS client")


class HTTPDoer(Protocol):
    """Makes the requests of httpGet hooks."""

    def do(self, ctx: golang.Context, url: str, headers: Mapping[str, str]) -> None:
        """A GET whose answer does not matter; it ends when ctx is cancelled.

        Raises OSError or http.client.HTTPException when there is no answer, and HTTPResponseError.
        """
        ...


class HTTPClient:
    """Go: insecureContainerLifecycleHTTPClient. Certificates are not checked: pods make their own."""

    def __init__(self) -> None:
        self._context = ssl._create_unverified_context()

    def do(self, ctx: golang.Context, url: str, headers: Mapping[str, str]) -> None:
        """See HTTPDoer. Redirects are not followed."""
        parsed = urlsplit(url)
        connection = self._connection(parsed.scheme, parsed.hostname or "", parsed.port)
        target = parsed.path or "/"
        if parsed.query:
            target = f"{target}?{parsed.query}"
        try:
            connection.connect()
            # The hook may take as long as it likes; only connecting is limited.
            connection.sock.settimeout(None)
            stop = golang.after_func(ctx, lambda: _shut_down(connection.sock))
            try:
                connection.request("GET", target, headers=dict(headers))
                connection.getresponse().read(_MAX_RESP_BODY_LENGTH)
            finally:
                stop()
        except ssl.SSLError as err:
            if err.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
                raise HTTPResponseError from err
            raise
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_CONNECT_TIMEOUT, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=_CONNECT_TIMEOUT)


def _shut_down(sock: socket.socket) -> None:
    """Wakes whoever reads from it; it may have been closed meanwhile."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class PodStatusProvider(Protocol):
    """Go: podStatusProvider"""

    def get_pod(self, ctx: golang.Context, pod_uid: str) -> kubecontainer.Pod: ...

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus: ...


class HandlerRunner:
    """Go: handlerRunner. Thread-safe."""

    def __init__(
        self,
        http_doer: HTTPDoer,
        command_runner: kubecontainer.CommandRunner,
        container_manager: PodStatusProvider,
        event_recorder: record.EventRecorder,
    ) -> None:
        self._http_doer = http_doer
        self._command_runner = command_runner
        self._container_manager = container_manager
        self._event_recorder = event_recorder

    def run(
        self,
        ctx: golang.Context,
        container_id: kubecontainer.ContainerID,
        pod: v1.Pod,
        container: v1.Container,
        handler: v1.LifecycleHandler,
    ) -> str:
        """Blocks until the hook has ended; returns "". Raises HookError."""
        where = f'for Container "{container.name}" in Pod "{format.pod(pod)}" failed - error:'
        log = {"containerName": container.name, "pod": klog.kobj(pod)}
        if handler.exec is not None:
            self._run_exec(ctx, container_id, handler.exec, where, log)
        elif handler.http_get is not None:
            try:
                self._run_http_handler(ctx, pod, container, handler.http_get)
            except Exception as err:  # The runtime, the network or the server: all mean that the hook failed.
                path = handler.http_get.path
                klog.v(1).info_s("HTTP lifecycle hook for Container in Pod failed", path=path, **log, err=err)
                raise HookError(err, f"HTTP lifecycle hook ({path}) {where} {err}") from err
        elif handler.sleep is not None:
            self._run_sleep(ctx, handler.sleep.seconds, where, log)
        else:
            error = ValueError(f"invalid handler: {handler}")
            klog.error_s(error, "Cannot run handler")
            raise HookError(error, f"Cannot run handler: {error}")
        return ""

    def _run_exec(
        self,
        ctx: golang.Context,
        container_id: kubecontainer.ContainerID,
        action: v1.ExecAction,
        where: str,
        log: Mapping[str, object],
    ) -> None:
        try:
            self._command_runner.run_in_container(ctx, container_id, action.command, 0)
        except Exception as err:  # The runtime's refusal, or the command's exit code.
            output = err.output.decode(errors="replace") if isinstance(err, utilexec.CodeExitError) else ""
            klog.v(1).info_s(
                "Exec lifecycle hook for Container in Pod failed",
                execCommand=action.command,
                **log,
                message=output,
                err=err,
            )
            command = " ".join(action.command)
            message = f"Exec lifecycle hook ([{command}]) {where} {err}, message: {klog.quote(output)}"
            raise HookError(err, message) from err

    def _run_sleep(self, ctx: golang.Context, seconds: int, where: str, log: Mapping[str, object]) -> None:
        if not ctx.wait(seconds):
            return
        metrics.LIFECYCLE_HANDLER_SLEEP_TERMINATED.inc()
        err = InterruptedError("container terminated before sleep hook finished")
        klog.v(1).info_s("Sleep lifecycle hook for Container in Pod failed", sleepSeconds=seconds, **log, err=err)
        raise HookError(err, f"Sleep lifecycle hook ({seconds}) {where} {err}")

    def _run_http_handler(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container, action: v1.HTTPGetAction
    ) -> None:
        host = action.host or self._pod_ip(ctx, pod)
        headers = _headers(action.http_headers)
        url = _format_url(action, container, host)
        try:
            self._http_doer.do(ctx, url, headers)
        except HTTPResponseError as err:
            netloc = urlsplit(url).netloc
            klog.v(1).info_s(
                "HTTPS request to lifecycle hook got HTTP response, retrying with HTTP.",
                pod=klog.kobj(pod),
                host=netloc,
                err=err,
            )
            plain = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            self._http_doer.do(ctx, "http" + url.removeprefix("https"), plain)
            metrics.LIFECYCLE_HANDLER_HTTP_FALLBACKS.inc()
            message = f"request to HTTPS lifecycle hook {netloc} got HTTP response, retry with HTTP succeeded"
            self._event_recorder.event(pod, v1.EVENT_TYPE_WARNING, "LifecycleHTTPFallback", message)

    def _pod_ip(self, ctx: golang.Context, pod: v1.Pod) -> str:
        runtime_pod = self._container_manager.get_pod(ctx, pod.metadata.uid)
        status = self._container_manager.get_pod_status(ctx, runtime_pod)
        if not status.ips:
            raise LookupError(f"failed to find networking container: {status}")
        return status.ips[0]


def _headers(http_headers: list[v1.HTTPHeader]) -> dict[str, str]:
    headers = {"User-Agent": f"kube-lifecycle/{version.get().major}.{version.get().minor}", "Accept": "*/*"}
    for header in http_headers:
        canonical = header.name.title()
        headers[canonical] = header.value
    if not headers["Accept"]:
        del headers["Accept"]
    return headers


def _format_url(action: v1.HTTPGetAction, container: v1.Container, host: str) -> str:
    scheme = action.scheme.lower() or "http"
    netloc = f"[{host}]" if ":" in host else host
    path = action.path if action.path.startswith("/") or not action.path else f"/{action.path}"
    return f"{scheme}://{netloc}:{_resolve_port(action.port, container)}{path}"


def _resolve_port(port: int | str | None, container: v1.Container) -> int:
    """The number of a port that may be given by name. Raises ValueError."""
    if isinstance(port, str):
        named = next((p.container_port for p in container.ports if p.name == port), None)
        try:
            port = named if named is not None else int(port)
        except ValueError:
            raise ValueError(f"couldn't find port: {port} in container {container.name}") from None
    if port is None or not 0 < port < 65536:
        raise ValueError(f"invalid port number: {port}")
    return port
