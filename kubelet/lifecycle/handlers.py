"""Runs the hooks of containers, postStart and preStop, and has smaller handlers of admission.

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

# DIVERGES (safer): of a failed hook's command or path, its output and its error, so many bytes of each are shown.
# Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).Run: has no bound.
# Why: the text becomes part of the pod's status, which the API server refuses if it has megabytes.
# Test: handlers_test.py:test_of_what_the_hook_is_the_beginning_is_shown
MAX_RESP_BODY_LENGTH = 10 << 10
# A pod may have 256 of its containers killed at the same time, each with a hook whose server redirects again and again.
# As for probes, a few are worked for at a time, and let others have their turn while they wait for the server.
_TURNS = Turns(by_use=True)
# Seconds until a hook is tried again that had no socket.
_SOCKET_RETRY_PERIOD = 1.0

# The pod wants a profile that this node cannot give it.
APP_ARMOR_NOT_ADMITTED_REASON = "AppArmor"
# The pod needs a feature that this node does not declare.
POD_FEATURE_UNSUPPORTED = "PodFeatureUnsupported"


_HOOK_CONTEXT = object()


def without_cancel_but_for_hooks(ctx: golang.Context) -> golang.Context:
    """A context that is never done, under which hook_context is ctx itself.

    DIVERGES (safer): a postStart hook that still runs is cancelled when its pod is to end.
    Go: pkg/kubelet/kubelet.go, (*Kubelet).SyncPod: runs it in a context that nothing cancels.
    Why: a hook without end keeps its pod from ending for ever.
    Test: kubelet/kuberuntime/kuberuntime_manager_test.py:test_post_start_hook_is_cut_when_its_pod_is_to_end
    """
    return golang.with_value(golang.without_cancel(ctx), _HOOK_CONTEXT, ctx)


def hook_context(ctx: golang.Context) -> golang.Context:
    """What a hook is to end with: the sync of its pod, which is cancelled when the pod is to end."""
    found: golang.Context | None = ctx.value(_HOOK_CONTEXT)
    return ctx if found is None else found


class HookError(Exception):
    """A hook failed; `message` is what the container's waiting state shows."""

    def __init__(self, cause: Exception | str, message: str) -> None:
        super().__init__(str(cause))
        self.message = message


class HTTPDoer(Protocol):
    """Makes the requests of httpGet hooks."""

    def do(self, ctx: golang.Context, url: str, headers: httpclient.Headers) -> None:
        """A GET whose answer does not matter; it ends when ctx is cancelled.

        Raises HTTPRequestError when there is no answer, and HTTPResponseError.
        """
        ...


class HTTPClient:
    """Go: pkg/kubelet/kubelet.go, NewMainKubelet. Certificates are not checked: pods make their own. Thread-safe."""

    def do(self, ctx: golang.Context, url: str, headers: httpclient.Headers) -> None:
        """See HTTPDoer. Redirects are followed on the same host.

        DIVERGES (safer): a hook for which the kubelet has no file descriptor left waits until there is one.
        Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).runHTTPHandler: the hook fails.
        Why: a container is ended when its postStart hook fails, and here the fault is not the container's.
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
    """As much as is shown of what a command wrote, or of what a hook is."""
    if isinstance(output, str):
        output = output.encode(errors="replace")
    return output[:MAX_RESP_BODY_LENGTH].decode(errors="replace")


class PodStatusProvider(Protocol):
    """Go: podStatusProvider"""

    def get_pod(self, ctx: golang.Context, pod_uid: types.UID) -> kubecontainer.Pod: ...

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
                self._run_http_handler(net.with_owner(ctx, pod.metadata.uid), pod, container, handler.http_get)
            except Exception as err:  # The runtime, the network or the server: all mean that the hook failed.
                path, fault = _beginning(handler.http_get.path), _beginning(str(err))
                klog.v(1).info_s("HTTP lifecycle hook for Container in Pod failed", path=path, **log, err=fault)
                raise HookError(fault, f"HTTP lifecycle hook ({path}) {where} {fault}") from err
        elif handler.sleep is not None:
            self._run_sleep_handler(ctx, handler.sleep.seconds, where, log)
        else:
            # DIVERGES (platform): a handler that says nothing known is shown as JSON.
            # Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).Run: it is shown as Go prints its own structures.
            # Why: Python has no such form; the API's own form says the same.
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
        except Exception as err:  # The runtime's refusal, or the command's exit code.
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
                # What is wrong is what the pod asked for.
                raise err from None
            metrics.LIFECYCLE_HANDLER_HTTP_FALLBACKS.inc()
            message = f"request to HTTPS lifecycle hook {netloc} got HTTP response, retry with HTTP succeeded"
            # DIVERGES (fault of Go): the event LifecycleHTTPFallback is about the container, and is sent.
            # Go: pkg/kubelet/lifecycle/handlers.go, (*handlerRunner).runHTTPHandler: the event is about the pod, and
            # the runtime manager's recorder drops events that are not about a container.
            # Why: nobody hears that a hook which asks for HTTPS was run without it.
            # Test: handlers_test.py:test_https_falls_back_to_http_without_credentials
            ref = kubecontainer.generate_container_ref(pod, container)
            self._event_recorder.event(ref, v1.EVENT_TYPE_WARNING, "LifecycleHTTPFallback", message)

    def _pod_ip(self, ctx: golang.Context, pod: v1.Pod) -> str:
        """Raises LookupError."""
        try:
            runtime_pod = self._container_manager.get_pod(ctx, pod.metadata.uid)
        except Exception as err:
            # Whatever the runtime says: without the pod's address the hook cannot run.
            raise LookupError(f"unable to get pod, event handlers may be invalid: {err}") from err
        try:
            status = self._container_manager.get_pod_status(ctx, runtime_pod)
        except Exception as err:
            # As above.
            raise LookupError(f"unable to get pod status, event handlers may be invalid: {err}") from err
        if not status.ips:
            raise LookupError(f"failed to find networking container: {status}")
        return status.ips[0]


class AppArmorAdmitHandler:
    """A lifecycle.PodAdmitHandler: turns away pods whose AppArmor profiles could not be enforced."""

    def __init__(self, validator: apparmor.Validator) -> None:
        self._validator = validator

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        """A pod that runs already, or has ended, is not asked again."""
        if attrs.pod.status.phase != v1.POD_PENDING:
            return PodAdmitResult(admit=True)
        try:
            self._validator.validate(attrs.pod)
        except ValueError as err:
            return PodAdmitResult(False, APP_ARMOR_NOT_ADMITTED_REASON, f"Cannot enforce AppArmor: {err}")
        return PodAdmitResult(admit=True)


class PodFeaturesAdmitHandler:
    """A lifecycle.PodAdmitHandler: turns away pods that use what is turned off here."""

    def admit(self, attrs: PodAdmitAttributes) -> PodAdmitResult:
        return is_pod_level_resources_supported(attrs.pod)


class DeclaredFeaturesAdmitHandler:
    """A lifecycle.PodAdmitHandler: turns away pods that need features which this node does not declare."""

    def __init__(self, framework: ndf.Framework, declared: Callable[[], Iterable[str]], version: Version) -> None:
        """declared() is what the node declares at the time.

        DIVERGES (safer): a pod is judged by the features that the runtime has when the pod comes.
        Go: pkg/kubelet/lifecycle/handlers.go, NewDeclaredFeaturesAdmitHandler: gets those of the kubelet's start.
        Why: when the runtime does not answer as the kubelet starts, pods that need its features would be refused until
        the kubelet is restarted.
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
