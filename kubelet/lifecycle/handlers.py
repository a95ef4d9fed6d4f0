"""Run the postStart and preStop hooks of containers, and implement some small admission handlers.

Go: pkg/kubelet/lifecycle/handlers.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.lifecycle.features import is_pod_level_resources_supported
from kubelet.lifecycle.interfaces import PodAdmitAttributes, PodAdmitResult
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.version import Version
from pkg.client_go.tools import record
from pkg.component_helpers import nodedeclaredfeatures as ndf
from pkg.golang import net
from pkg.golang.turn import Turn, Turns, with_turn
from pkg.probe import NoSocketError, httpclient
from pkg.probe import http as httpprobe
from pkg.probe.httpclient import HTTPRequestError, HTTPResponseError
from pkg.security import apparmor
from pkg.util import exec as utilexec

# DIVERGES (safer): a message about a failed hook shows at most this many bytes of each of its command or path, its
# output and its error.
# Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).Run: the message has no limit.
# Why: the text becomes part of the pod's status, which the API server rejects if it has megabytes.
# Test: handlers_test.py:test_of_what_the_hook_is_the_beginning_is_shown
MAX_RESP_BODY_LENGTH = 10 << 10
# The kubelet may kill 256 containers of a pod at the same time, each with a hook whose server redirects again and
# again. As with probes, only a few hooks work at a time, and each gives up its turn while it waits for the server.
_TURNS = Turns(by_use=True)
# `_SOCKET_RETRY_PERIOD` is the time, in seconds, after which a hook that got no socket is tried again.
_SOCKET_RETRY_PERIOD = 1.0

# The pod requests a profile that this node cannot enforce.
APP_ARMOR_NOT_ADMITTED_REASON = "AppArmor"
# The pod needs a feature that this node does not declare.
POD_FEATURE_UNSUPPORTED = "PodFeatureUnsupported"


_HOOK_CONTEXT = object()


def without_cancel_but_for_hooks(ctx: golang.Context) -> golang.Context:
    """Return a context that is never done. hook_context returns `ctx` itself for it.

    DIVERGES (safer): a running postStart hook is cancelled when its pod must terminate.
    Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncPod: the Go kubelet runs the hook in a context that nothing cancels.
    Why: a hook that never ends would keep its pod from terminating.
    Test: kubelet/kuberuntime/kuberuntime_manager_test.py:test_post_start_hook_is_cut_when_its_pod_is_to_end
    """
    return golang.with_value(golang.without_cancel(ctx), _HOOK_CONTEXT, ctx)


def hook_context(ctx: golang.Context) -> golang.Context:
    """Return the context of the pod's sync; the hook is cancelled with it when the pod must terminate."""
    found: golang.Context | None = ctx.value(_HOOK_CONTEXT)
    return ctx if found is None else found


class HookError(Exception):
    """Signal that a hook failed; the container's waiting state shows `message`."""

    def __init__(self, cause: Exception | str, message: str) -> None:
        super().__init__(str(cause))
        self.message = message


class HTTPDoer(Protocol):
    """Define how to make the requests of httpGet hooks."""

    def do(self, ctx: golang.Context, url: str, headers: httpclient.Headers) -> None:
        """Send a GET request and ignore the response; the request ends when ctx is cancelled.

        Raise HTTPRequestError if there is no response, or HTTPResponseError.
        """
        ...


class HTTPClient:
    """Make requests without checking certificates, because pods create their own. The object is thread-safe.

    Go: pkg/kubelet/kubelet.go, NewMainKubelet
    """

    def do(self, ctx: golang.Context, url: str, headers: httpclient.Headers) -> None:
        """Send a GET request as HTTPDoer describes, and follow redirects to the same host.

        DIVERGES (safer): if the kubelet has no file descriptor left for a hook, the hook waits for one.
        Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).runHTTPHandler: the hook fails.
        Why: the kubelet kills a container whose postStart hook fails, but this failure is not the container's fault.
        Test: handlers_test.py:test_client_waits_while_no_socket_is_left
        """
        turn = Turn(_TURNS)
        ctx = with_turn(ctx, turn)
        while True:
            try:
                with turn:
                    httpclient.get(ctx, url, headers)
                return
            except NoSocketError as err:
                klog.info_s("No socket for a lifecycle hook, trying again", err=err)
                if ctx.wait(_SOCKET_RETRY_PERIOD):
                    raise


def _beginning(output: bytes | str) -> str:
    """Return the beginning of a command's output, or of a hook's description, that a message shows."""
    if isinstance(output, str):
        output = output.encode(errors="replace")
    return output[:MAX_RESP_BODY_LENGTH].decode(errors="replace")


class PodStatusProvider(Protocol):
    """Define what the hook runner needs to find a pod's address.

    Go: podStatusProvider
    """

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> kubecontainer.Pod: ...

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus: ...


class HandlerRunner:
    """Run hooks. All methods are thread-safe.

    Go: handlerRunner
    """

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
        """Run the hook, block until it has ended, and return "". Raise HookError."""
        where = f'for Container "{container.name}" in Pod "{format.pod(pod)}" failed - error:'
        log = {"containerName": container.name, "pod": klog.kobj(pod)}
        if handler.exec is not None:
            self._run_exec(ctx, container_id, handler.exec, where, log)
        elif handler.http_get is not None:
            try:
                self._run_http_handler(net.with_owner(ctx, pod.metadata.uid), pod, container, handler.http_get)
            except Exception as err:  # Any error of the runtime, the network or the server means that the hook failed.
                path, fault = _beginning(handler.http_get.path), _beginning(str(err))
                klog.v(1).info_s("HTTP lifecycle hook for Container in Pod failed", path=path, **log, err=fault)
                raise HookError(fault, f"HTTP lifecycle hook ({path}) {where} {fault}") from err
        elif handler.sleep is not None:
            self._run_sleep_handler(ctx, handler.sleep.seconds, where, log)
        else:
            # DIVERGES (platform): the message about a handler of an unknown kind shows the handler as JSON.
            # Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).Run: the message shows the handler in Go's
            # notation for structures.
            # Why: Python has no such notation, and the API's own notation carries the same information.
            # Test: handlers_test.py:test_invalid_handler
            error = ValueError(f"invalid handler: {codec.encode_json(handler).decode()}")
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
        except Exception as err:  # Either the runtime refuses, or the command exits with another code than 0.
            output = err.output if isinstance(err, utilexec.CodeExitError) else b""
            fault, text = _beginning(str(err)), _beginning(output)
            klog.v(1).info_s(
                "Exec lifecycle hook for Container in Pod failed",
                execCommand=utilexec.shown_arguments(action.command),
                **log,
                message=text,
                err=fault,
            )
            command = _beginning(" ".join(action.command))
            message = f"Exec lifecycle hook ([{command}]) {where} {fault}, message: {klog.quote(text)}"
            raise HookError(fault, message) from err

    def _run_sleep_handler(self, ctx: golang.Context, seconds: int, where: str, log: Mapping[str, object]) -> None:
        if not ctx.wait(seconds):
            return
        metrics.LIFECYCLE_HANDLER_SLEEP_TERMINATED.inc()
        err = InterruptedError("container terminated before sleep hook finished")
        klog.v(1).info_s("Sleep lifecycle hook for Container in Pod failed", sleepSeconds=seconds, **log, err=err)
        raise HookError(err, f"Sleep lifecycle hook ({seconds}) {where} {err}")

    def _run_http_handler(
        self, ctx: golang.Context, pod: v1.Pod, container: v1.Container, action: v1.HTTPGetAction
    ) -> None:
        url = httpprobe.new_request_url(action, container, action.host or self._pod_ip(ctx, pod))
        headers = httpprobe.headers_of(action, "lifecycle")
        try:
            self._http_doer.do(ctx, url, headers)
        except HTTPResponseError as err:
            netloc = net.split(url).netloc
            klog.v(1).info_s(
                "HTTPS request to lifecycle hook got HTTP response, retrying with HTTP.",
                pod=klog.kobj(pod),
                host=netloc,
                err=err,
            )
            plain = [(name, value) for name, value in headers if name.lower() != "authorization"]
            try:
                self._http_doer.do(ctx, "http" + url.removeprefix("https"), plain)
            except HTTPRequestError:
                # The error to report is that of the request that the pod specifies.
                raise err from None
            metrics.LIFECYCLE_HANDLER_HTTP_FALLBACKS.inc()
            message = f"request to HTTPS lifecycle hook {netloc} got HTTP response, retry with HTTP succeeded"
            # DIVERGES (fault of Go): the event LifecycleHTTPFallback is about the container, and is recorded.
            # Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).runHTTPHandler: the event is about the pod, and
            # the runtime manager's recorder drops events that are not about a container.
            # Why: nobody would learn that a hook which specifies HTTPS was run over HTTP.
            # Test: handlers_test.py:test_https_falls_back_to_http_without_credentials
            ref = kubecontainer.generate_container_ref(pod, container)
            self._event_recorder.event(ref, v1.EVENT_TYPE_WARNING, "LifecycleHTTPFallback", message)

    def _pod_ip(self, ctx: golang.Context, pod: v1.Pod) -> str:
        """Return the pod's primary IP. Raise LookupError."""
        try:
            runtime_pod = self._container_manager.get_pod(ctx, pod.metadata.uid)
        except Exception as err:
            # Whatever the error is, the hook cannot run without the pod's address.
            raise LookupError(f"unable to get pod, event handlers may be invalid: {err}") from err
        try:
            status = self._container_manager.get_pod_status(ctx, runtime_pod)
        except Exception as err:
            # Whatever the error is, the hook cannot run without the pod's address.
            raise LookupError(f"unable to get pod status, event handlers may be invalid: {err}") from err
        if not status.ips:
            raise LookupError(f"failed to find networking container: {status}")
        return status.ips[0]


class AppArmorAdmitHandler:
    """Reject pods whose AppArmor profiles cannot be enforced, as a lifecycle.PodAdmitHandler."""

    def __init__(self, validator: apparmor.Validator) -> None:
        self._validator = validator

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        """Admit a pod that is running or has terminated without checking it again."""
        if attrs.pod.status.phase != v1.POD_PENDING:
            return PodAdmitResult(admit=True)
        try:
            self._validator.validate(attrs.pod)
        except ValueError as err:
            return PodAdmitResult(False, APP_ARMOR_NOT_ADMITTED_REASON, f"Cannot enforce AppArmor: {err}")
        return PodAdmitResult(admit=True)


class PodFeaturesAdmitHandler:
    """Reject pods that use features which are off on this node, as a lifecycle.PodAdmitHandler."""

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        return is_pod_level_resources_supported(attrs.pod)


class DeclaredFeaturesAdmitHandler:
    """Reject pods that need features which this node does not declare, as a lifecycle.PodAdmitHandler."""

    def __init__(self, framework: ndf.Framework, declared: Callable[[], Iterable[str]], version: Version) -> None:
        """Set up the handler; declared() returns the features that the node declares at that moment.

        DIVERGES (safer): the kubelet checks a pod against the features that the runtime has when the pod arrives.
        Go: pkg/kubelet/lifecycle/handlers.go, NewDeclaredFeaturesAdmitHandler: the Go kubelet uses the features from
        its start.
        Why: if the runtime does not respond while the kubelet starts, the kubelet would reject pods that need the
        runtime's features until its next restart.
        Test: handlers_test.py:test_feature_that_is_declared_later_counts
        """
        self._framework = framework
        self._declared = declared
        self._version = version

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        required = self._framework.infer_for_pod_scheduling(attrs.pod, self._version)
        if not required:
            return PodAdmitResult(admit=True)
        match = self._framework.match_node_feature_set(required, frozenset(self._declared()))
        if match.is_match:
            return PodAdmitResult(admit=True)
        missing = ", ".join(match.unsatisfied_requirements)
        message = f"Pod requires node features that are not available: {missing}"
        return PodAdmitResult(False, POD_FEATURE_UNSUPPORTED, message)
