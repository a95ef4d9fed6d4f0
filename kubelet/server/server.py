"""Serve the kubelet's HTTP API: authorize each request, and dispatch it to the part of the kubelet that handles it.

Go: pkg/kubelet/server/server.go
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kubelet import container as kubecontainer
from kubelet.cri.errors import RemoteError
from kubelet.server import metrics as servermetrics
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.apiserver.authentication.authenticator import AuthenticationError
from pkg.apiserver.authorization.authorizer import AuthorizationError, Decision
from pkg.apiserver.server import healthz
from pkg.apiserver.util import flushwriter
from pkg.golang import http, singleflight
from pkg.util import exec as utilexec

if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet.apis import config as kubeletconfig
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cadvisor.info import v2 as cadvisorapiv2
    from kubelet.cri.streaming import portforward, remotecommand
    from kubelet.server import auth as serverauth
    from kubelet.server import stats
    from kubelet.server import tls as servertls
    from pkg.apiserver.authorization.authorizer import Attributes
    from pkg.apiserver.server import flagz as flagzlib

COMPONENT_KUBELET = "kubelet"
JSON_CONTENT_TYPE = "application/json"
_TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"

METRICS_PATH = "/metrics"
PROBER_METRICS_PATH = "/metrics/probes"
SLIS_METRICS_PATH = "/metrics/slis"
STATS_PATH = "/stats"
LOGS_PATH = "/logs/"
CHECKPOINT_PATH = "/checkpoint/"
PPROF_BASE_PATH = "/debug/pprof/"
DEBUG_FLAG_PATH = "/debug/flags/v"
PODS_PATH = "/pods"
RUNNING_PODS_PATH = "/runningpods/"

# The sync loop never counts as stuck before this time, in seconds, has passed without an iteration.
MIN_SYNC_LOOP_DURATION = 300.0

# Methods of the host raise these errors when they cannot do what the request asks for.
_HOST_ERRORS = (
    RemoteError,
    utilexec.CodeExitError,
    utilexec.CommandTimedOutError,
    LookupError,
    ValueError,
    OSError,
)
_GET = ("GET",)
_GET_AND_POST = ("GET", "POST")
_METHOD_BUCKETS = frozenset(("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"))
_LONG_RUNNING = frozenset(("exec", "attach", "portforward", "debug"))
# Requests of these kinds may hold a connection as long as the client wants.
_LASTING = frozenset(("exec", "attach", "portForward", "containerLogs", "run", "checkpoint", "logs", "debug"))
# The log contains at most this many characters of a request, because any client can send one.
MAX_LOGGED_LENGTH = 1024

# An InstallPages function adds pages below /debug/ to a server.
InstallPages = Callable[[http.ServeMux], None]


class HostInterface(Protocol):
    """Define what the server needs from the kubelet. The server's threads call it."""

    resync_interval: float

    def get_pods(self) -> list[v1.Pod]: ...

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]: ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None: ...

    def latest_loop_entry_time(self) -> datetime.datetime | None: ...

    def run_in_container(
        self, ctx: golang.Context, pod_full_name: str, pod_uid: types.UID, container_name: str, cmd: list[str]
    ) -> bytes: ...

    def checkpoint_container(
        self,
        ctx: golang.Context,
        pod_uid: types.UID,
        pod_full_name: str,
        container_name: str,
        options: runtimeapi.CheckpointContainerRequest,
    ) -> None: ...

    def get_kubelet_container_logs(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        container_name: str,
        log_options: v1.PodLogOptions,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
    ) -> None: ...

    def serve_logs(self, w: http.ResponseWriter, r: http.Request) -> None: ...

    def get_exec(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        pod_uid: types.UID,
        container_name: str,
        cmd: list[str],
        stream_opts: remotecommand.Options,
    ) -> str: ...

    def get_attach(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        pod_uid: types.UID,
        container_name: str,
        stream_opts: remotecommand.Options,
    ) -> str: ...

    def get_port_forward(
        self,
        ctx: golang.Context,
        pod_name: str,
        pod_namespace: str,
        pod_uid: types.UID,
        port_forward_opts: portforward.V4Options,
    ) -> str: ...

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]: ...

    def get_version_info(self) -> cadvisorapi.VersionInfo: ...

    def get_cached_machine_info(self) -> cadvisorapi.MachineInfo: ...

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None: ...

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> Sequence[runtimeapi.PodSandboxMetrics]: ...

    def list_metric_descriptors(self, ctx: golang.Context) -> Sequence[runtimeapi.MetricDescriptor]: ...


class Server:
    """Serve requests. The object is a handler for `http.Server`; after its constructor any thread may call it."""

    def __init__(
        self,
        host: HostInterface,
        resource_analyzer: stats.SummaryProvider,
        checkers: Sequence[healthz.HealthChecker] = (),
        flagz: flagzlib.Reader | None = None,
        auth: serverauth.KubeletAuth | None = None,
        kube_cfg: kubeletconfig.KubeletConfiguration | None = None,
        debug_pages: Sequence[InstallPages] = (),
    ) -> None:
        """Create the handlers.

        Without `auth` the server is read-only and open; without `kube_cfg` debugging handlers are off. `debug_pages`
        are served if the configuration enables debugging handlers. Go has no counterpart.
        """
        self._host = host
        self._resource_analyzer = resource_analyzer
        self._extended_checkers = checkers
        self._flagz = flagz
        self._auth = auth
        self._mux = http.ServeMux()
        self._metrics_buckets: set[str] = set()
        self._pods = singleflight.Rounds(lambda: _encode_pods(host.get_pods()))
        servermetrics.register()
        if auth is not None:
            self._install_auth_filter(auth)
        self._install_auth_not_required_handlers()
        if kube_cfg is not None and kube_cfg.enable_debugging_handlers:
            klog.info_s("Adding debug handlers to kubelet server")
            self._install_system_log_handler(kube_cfg.enable_system_log_handler)
            self._install_profiling_handler(kube_cfg.enable_profiling_handler)
            self._install_debug_flags_handler(kube_cfg.enable_debug_flags_handler)
            for install in debug_pages:
                install(self._mux)
            # These handlers come last, so that /statusz knows all paths.
            self._install_auth_required_handlers()
        else:
            self._install_debugging_disabled_handlers()

    def registered_paths(self) -> list[str]:
        return self._mux.registered_paths()

    # ---- Authentication and authorization ----

    def _install_auth_filter(self, auth: serverauth.KubeletAuth) -> None:
        def auth_filter(handler: http.Handler) -> http.Handler:
            def handle(w: http.ResponseWriter, r: http.Request) -> None:
                refusal = self._refusal(auth, r)
                if refusal is None:
                    handler(w, r)
                else:
                    _write_error(w, *refusal)

            return handle

        self._mux.filter(auth_filter)

    def _refusal(self, auth: serverauth.KubeletAuth, r: http.Request) -> tuple[int, str] | None:
        """Return status and text for a client that must not make this request, or None if it may. Raise HTTPError."""
        try:
            response = auth.authenticate_request(r)
        except AuthenticationError as err:
            klog.error_s(err, "Unable to authenticate the request due to an error")
            return 401, "Unauthorized"
        if response is None:
            return 401, "Unauthorized"
        kind = self._metric_bucket(r.path)
        r.admit(response.user.name, kind, lasting=kind in _LASTING)
        attributes = auth.get_request_attributes(response.user, r)
        for each in attributes:
            try:
                decision, _ = auth.authorize(r.ctx, each)
            except AuthorizationError as err:
                asked = {"user": each.user.name, "verb": each.verb, "resource": each.resource}
                klog.error_s(err, "Authorization error", **asked, subresource=each.subresource)
                return 500, f"Authorization error ({_described(each)}, subresource={each.subresource})"
            if decision == Decision.ALLOW:
                return None
        if not attributes:
            klog.error_s(None, "Authorization error", err="could not determine attributes for request")
            return 403, "Authorization error: could not determine attributes for request"
        subresources = [each.subresource for each in attributes]
        first = attributes[0]
        fields = {"user": first.user.name, "verb": first.verb, "resource": first.resource}
        klog.v(2).info_s("Forbidden", **fields, **{"subresource(s)": subresources})
        return 403, f"Forbidden ({_described(first)}, subresource(s)=[{' '.join(subresources)}])\n"

    def install_filter(self, added: http.Filter) -> None:
        """Wrap all handlers, inside the authentication.

        Go: InstallTracingFilter
        """
        self._mux.filter(added)

    # ---- Paths ----

    def _install_auth_not_required_handlers(self) -> None:
        """Install what the read-only server also serves.

        Do not add new endpoints here: they would be accessible without authentication.
        """
        from kubelet.server import stats

        self._metrics_buckets.add("healthz")
        checkers = [
            healthz.PING_HEALTHZ,
            healthz.LOG_HEALTHZ,
            healthz.HealthChecker("syncloop", sync_loop_health_check(self._host)),
        ]
        healthz.install_handler(self._mux, *checkers, *self._extended_checkers)
        self._service(PODS_PATH)
        self._mux.handle(PODS_PATH, self._get_pods, _GET)
        self._service(f"{STATS_PATH}/")
        for path, handler in stats.create_handlers(STATS_PATH, self._resource_analyzer).items():
            self._mux.handle(path, handler, _GET_AND_POST)
        self._install_metric_pages()

    def _install_metric_pages(self) -> None:
        from kubelet import prober
        from kubelet.server import metric_pages
        from pkg.component_base import metrics
        from pkg.component_base.metrics import http as metricshttp
        from pkg.component_base.metrics import legacyregistry
        from pkg.component_base.metrics.prometheus import slis

        self._metrics_buckets |= {"metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource"}
        self._mux.handle(METRICS_PATH, legacyregistry.handler())
        self._mux.handle(SLIS_METRICS_PATH, slis.handler_with_reset())
        probes = metrics.KubeRegistry()
        metrics.register_process_start_time(probes)
        probes.must_register(prober.PROBER_RESULTS, prober.PROBER_DURATION)
        self._mux.handle(PROBER_METRICS_PATH, metricshttp.handler_for(probes))
        for path, handler in metric_pages.metric_handlers(self._host, self._resource_analyzer).items():
            self._mux.handle(path, handler)

    def _install_auth_required_handlers(self) -> None:
        """Install what is served only to authorized clients."""
        from pkg.component_base import configz

        self._service("/run")
        self._container_paths("/run", self._get_run, ("POST",))
        self._service("/exec")
        self._container_paths("/exec", self._get_exec, _GET_AND_POST)
        self._service("/attach")
        self._container_paths("/attach", self._get_attach, _GET_AND_POST)
        self._service("/portForward")
        for pattern in ("/portForward/{podNamespace}/{podID}", "/portForward/{podNamespace}/{podID}/{uid}"):
            self._mux.handle(pattern, self._get_port_forward, _GET_AND_POST)
        self._service("/containerLogs")
        self._mux.handle("/containerLogs/{podNamespace}/{podID}/{containerName}", self._get_container_logs, _GET)
        self._metrics_buckets.add("configz")
        configz.install_handler(self._mux)
        self._service(RUNNING_PODS_PATH)
        self._mux.handle(f"{RUNNING_PODS_PATH}{{$}}", self._get_running_pods, _GET)
        if features.feature_gate.enabled(features.CONTAINER_CHECKPOINT):
            self._service(CHECKPOINT_PATH)
            self._mux.handle("/checkpoint/{podNamespace}/{podID}/{containerName}", self._checkpoint, ("POST",))
        self._install_zpages()

    def _container_paths(self, root: str, handler: http.Handler, methods: Sequence[str]) -> None:
        self._mux.handle(f"{root}/{{podNamespace}}/{{podID}}/{{containerName}}", handler, methods)
        self._mux.handle(f"{root}/{{podNamespace}}/{{podID}}/{{uid}}/{{containerName}}", handler, methods)

    def _service(self, root: str) -> None:
        """Count requests for paths below the root. Paths without a handler get the kubelet's own 404 response."""
        self._metrics_buckets.add(root.strip("/"))
        for pattern in {root, root.rstrip("/") + "/"}:
            self._mux.handle(pattern, _page_not_found)

    def _install_zpages(self) -> None:
        from pkg.apiserver.server import flagz, statusz

        if features.feature_gate.enabled(features.COMPONENT_FLAGZ) and self._flagz is not None:
            self._metrics_buckets.add("flagz")
            flagz.install(self._mux, COMPONENT_KUBELET, self._flagz)
        if features.feature_gate.enabled(features.COMPONENT_STATUSZ):
            self._metrics_buckets.add("statusz")
            statusz.install(self._mux, COMPONENT_KUBELET, statusz.Registry(self._mux.registered_paths()))

    def _install_debugging_disabled_handlers(self) -> None:
        disabled = _disabled_endpoint("Debug endpoints are disabled.")
        for path in ("/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", RUNNING_PODS_PATH, LOGS_PATH):
            self._metrics_buckets.add(path.strip("/"))
            self._mux.handle(path, disabled)
        self._metrics_buckets.add("pprof")
        self._mux.handle(PPROF_BASE_PATH, disabled)

    def _install_system_log_handler(self, enabled: bool) -> None:
        self._metrics_buckets.add("logs")
        if enabled:
            self._mux.handle("/logs/{logpath...}", self._host.serve_logs, _GET)
        else:
            self._mux.handle(LOGS_PATH, _disabled_endpoint("logs endpoint is disabled."))

    def _install_debug_flags_handler(self, enabled: bool) -> None:
        if enabled:
            self._mux.handle(DEBUG_FLAG_PATH, debug_flags_handler())
        else:
            self._mux.handle(DEBUG_FLAG_PATH, _disabled_endpoint("flags endpoint is disabled."))

    def _install_profiling_handler(self, enabled: bool) -> None:
        self._metrics_buckets.add("debug")
        if enabled:
            # DIVERGES (fault of Go): /debug/pprof/ shows an index of the profiles.
            # Go: pkg/kubelet/server/server.go, (*Server).InstallProfilingHandler: the Go kubelet has the same index,
            # but its router finds no route for the path without a profile's name, and responds with 404.
            # Why: people look in the index for the names of the profiles.
            # Test: server_test.py:test_answers
            self._mux.handle(PPROF_BASE_PATH, profiling_handler(), _GET)
        else:
            self._mux.handle(PPROF_BASE_PATH, _disabled_endpoint("profiling endpoint is disabled."))

    # ---- Pods ----

    def _get_pods(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Respond with the pods that this node must run.

        DIVERGES (safer): all requests for /pods that arrive while a list is being made share the next list.
        Go: pkg/kubelet/server/server.go, (*Server).getPods: the Go kubelet makes a list for each request.
        Why: each list takes a lock that the pod workers need. A client with hundreds of connections would block them.
        Test: server_test.py:test_who_asks_while_pods_are_listed_shares_the_next_list
        """
        _write_json(w, self._pods.get(r.ctx))

    def _get_running_pods(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Respond with the pods that the runtime has, whether or not they should be running."""
        try:
            pods = self._host.get_running_pods(r.ctx)
        except _HOST_ERRORS as err:
            _write_error(w, 500, str(err))
            return
        _write_json(w, _encode_pods(pods))

    def _find_pod(self, w: http.ResponseWriter, r: http.Request) -> v1.Pod | None:
        """Return the pod that the path names. If there is none, respond with an error and return None."""
        pod = self._host.get_pod_by_name(r.path_values["podNamespace"], r.path_values["podID"])
        if pod is None:
            _write_error(w, 404, "pod does not exist")
        return pod

    # ---- Logs ----

    def _get_container_logs(self, w: http.ResponseWriter, r: http.Request) -> None:
        log_options = _log_options(w, r)
        if log_options is None:
            return
        pod_name, container_name = r.path_values["podID"], r.path_values["containerName"]
        pod = self._host.get_pod_by_name(r.path_values["podNamespace"], pod_name)
        if pod is None:
            _write_error(w, 404, f'pod "{pod_name}" does not exist')
            return
        if kubecontainer.get_container_spec(pod, container_name) is None:
            _write_error(w, 404, f'container "{container_name}" not found in pod "{pod_name}"')
            return
        w.let_client_pause()
        writer = flushwriter.wrap(w)
        stdout = None if log_options.stream == v1.LOG_STREAM_STDERR else writer
        stderr = None if log_options.stream == v1.LOG_STREAM_STDOUT else writer
        full_name = kubecontainer.get_pod_full_name(pod)
        try:
            self._host.get_kubelet_container_logs(r.ctx, full_name, container_name, log_options, stdout, stderr)
        except http.ClientGone:
            raise
        except _HOST_ERRORS as err:
            # The error follows the part of the log that was already sent, if any.
            _write_error(w, 400, str(err))

    # ---- Commands and streams ----

    def _get_attach(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Attach to a container. Return when the connection has ended."""
        stream_opts = _stream_options(w, r)
        if stream_opts is None or (pod := self._find_pod(w, r)) is None:
            return
        full_name, uid = kubecontainer.get_pod_full_name(pod), types.UID(r.path_values.get("uid", ""))
        try:
            url = self._host.get_attach(r.ctx, full_name, uid, r.path_values["containerName"], stream_opts)
        except _HOST_ERRORS as err:
            _write_stream_error(w, err)
            return
        _serve_stream(w, r, url, stream_opts, "attach")

    def _get_exec(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Run a command in a container. Return when the connection has ended."""
        stream_opts = _stream_options(w, r)
        if stream_opts is None or (pod := self._find_pod(w, r)) is None:
            return
        full_name, uid = kubecontainer.get_pod_full_name(pod), types.UID(r.path_values.get("uid", ""))
        cmd = r.query.get("command", [])
        try:
            url = self._host.get_exec(r.ctx, full_name, uid, r.path_values["containerName"], cmd, stream_opts)
        except _HOST_ERRORS as err:
            _write_stream_error(w, err)
            return
        _serve_stream(w, r, url, stream_opts, "exec")

    def _get_run(self, w: http.ResponseWriter, r: http.Request) -> None:
        pod = self._find_pod(w, r)
        if pod is None:
            return
        full_name, uid = kubecontainer.get_pod_full_name(pod), types.UID(r.path_values.get("uid", ""))
        # In contrast to exec, the command is one string.
        cmd = r.param("cmd").split(" ")
        try:
            output = self._host.run_in_container(r.ctx, full_name, uid, r.path_values["containerName"], cmd)
        except _HOST_ERRORS as err:
            _write_error(w, 500, str(err))
            return
        _write_json(w, output)

    def _get_port_forward(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Forward ports into a pod. Return when the connection has ended."""
        from kubelet.cri.streaming import portforward
        from pkg.apimachinery.util import proxy
        from pkg.apimachinery.util.httpstream import wsstream
        from pkg.apiserver.util import proxy as translator

        enabled = features.feature_gate.enabled(features.EXTEND_WEBSOCKETS_TO_KUBELET)
        tunnel = enabled and wsstream.is_websocket_request_with_tunneling_protocol(r)
        try:
            options = portforward.V4Options() if tunnel else portforward.new_v4_options(r)
        except ValueError as err:
            _write_error(w, 400, str(err))
            return
        pod = self._find_pod(w, r)
        if pod is None:
            return
        uid = r.path_values.get("uid", "")
        if uid and pod.metadata.uid != uid:
            _write_error(w, 404, "pod not found")
            return
        meta = pod.metadata
        try:
            url = self._host.get_port_forward(r.ctx, meta.name, meta.namespace, meta.uid, options)
        except _HOST_ERRORS as err:
            _write_stream_error(w, err)
            return
        if tunnel:
            servermetrics.inc_web_socket_streaming_request("portforward")
            translator.TunnelingHandler(url).serve_http(w, r)
        else:
            proxy.UpgradeAwareHandler(url).serve_http(w, r)

    def _checkpoint(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Let the runtime checkpoint a running container. Respond with the name of the archive."""
        from cri_api.v1 import api_pb2 as runtimeapi

        pod = self._find_pod(w, r)
        if pod is None:
            return
        container_name = r.path_values["containerName"]
        if kubecontainer.get_container_spec(pod, container_name) is None:
            _write_error(w, 404, f"container {container_name} does not exist")
            return
        options = runtimeapi.CheckpointContainerRequest()
        try:
            # The last value counts.
            options.timeout = int(r.query.get("timeout", ["0"])[-1])
        except ValueError:
            _write_error(w, 404, "cannot parse value of timeout parameter")
            return
        full_name = kubecontainer.get_pod_full_name(pod)
        try:
            self._host.checkpoint_container(r.ctx, pod.metadata.uid, full_name, container_name, options)
        except _HOST_ERRORS as err:
            where = f"{pod.metadata.namespace}/{pod.metadata.name}/{container_name}"
            _write_error(w, 500, f"checkpointing of {where} failed ({err})")
            return
        _write_json(w, codec.encode_json({"items": [options.location]}))

    # ---- Request handling ----

    def __call__(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve a request, count it and log it."""
        path = self._metric_bucket(r.path)
        labels = (
            r.method if r.method in _METHOD_BUCKETS else "other",
            path,
            "readonly" if self._auth is None else "readwrite",
            "true" if path in _LONG_RUNNING else "false",
        )
        servermetrics.HTTP_REQUESTS.labels(*labels).inc()
        in_flight = servermetrics.HTTP_INFLIGHT_REQUESTS.labels(*labels)
        in_flight.inc()
        started = time.monotonic()
        try:
            self._mux(w, r)
        finally:
            seconds = time.monotonic() - started
            in_flight.dec()
            servermetrics.HTTP_REQUESTS_DURATION.labels(*labels).observe(seconds)
            if klog.v(3).enabled:
                _log_request(w, r, seconds)

    def _metric_bucket(self, path: str) -> str:
        root = get_url_root_path(path)
        return root if root in self._metrics_buckets else "other"


def listen_kubelet_server(
    handler: http.Handler,
    kube_cfg: kubeletconfig.KubeletConfiguration,
    tls_config: servertls.TLSConfig | None,
    *,
    authenticates: bool,
) -> http.Server:
    """Bind the server's port. Without a TLS configuration the server uses plain HTTP, as hollow nodes do.

    `authenticates` means that the handler authenticates each client. Raise OSError.
    """
    klog.info_s("Starting to listen", address=kube_cfg.address, port=kube_cfg.port)
    tls_context = None if tls_config is None else tls_config.context
    server = http.Server(handler, name="kubelet-server", tls_context=tls_context, authenticates=authenticates)
    _listen(server, "port", kube_cfg.address, kube_cfg.port)
    return server


def listen_debug_server(debug_pages: Sequence[InstallPages], path: str) -> http.Server:
    """Bind a Unix socket for root, on which these pages need no authentication. Raise OSError.

    Go has no counterpart.
    """
    mux = http.ServeMux()
    for install in debug_pages:
        install(mux)
    mux.handle(PPROF_BASE_PATH, profiling_handler())
    mux.handle(DEBUG_FLAG_PATH, debug_flags_handler())
    server = http.Server(mux, name="debug-server")
    server.listen_unix(path)
    return server


def listen_kubelet_read_only_server(handler: http.Handler, address: str, port: int) -> http.Server:
    """Bind the port that serves clients without authentication. Raise OSError."""
    klog.info_s("Starting to listen read-only", address=address, port=port)
    server = http.Server(handler, name="read-only-server")
    _listen(server, "readOnlyPort", address, port)
    return server


def _listen(server: http.Server, setting: str, address: str, port: int) -> None:
    """Bind the server to a port of the configuration. Raise OSError with the name of the setting."""
    try:
        server.listen(address, port)
    except OSError as err:
        raise OSError(err.errno, f"{setting} {port}: {err.strerror}") from err


def debug_flags_handler() -> http.Handler:
    """Return a handler with which PUT sets the verbosity of the log."""
    from pkg.apiserver.server import routes
    from pkg.component_base.logs import logs

    return routes.string_flag_put_handler(logs.glog_setter)


def profiling_handler() -> http.Handler:
    """Return the handler for the pages below /debug/pprof/. The first request loads the profiler."""

    def handle(w: http.ResponseWriter, r: http.Request) -> None:
        from pkg.golang import pprof

        pprof.serve(w, r)

    return handle


def sync_loop_health_check(host: HostInterface, clock: clocklib.Clock | None = None) -> Callable[[], None]:
    """Return a check that fails if the sync loop has not iterated for twice the resync interval, at least 5 minutes."""
    clock = clock or clocklib.RealClock()

    def check() -> None:
        entered = host.latest_loop_entry_time()
        if entered is None:
            return
        allowed = max(host.resync_interval * 2, MIN_SYNC_LOOP_DURATION)
        if (clock.steady() - entered).total_seconds() > allowed:
            raise healthz.UnhealthyError("sync Loop took longer than expected")

    return check


def get_url_root_path(path: str) -> str:
    """Return the first segment of a path, or the first two for metrics."""
    parts = path.removeprefix("/").split("/", 2)
    if parts[0] == "metrics" and len(parts) > 1:
        return f"{parts[0]}/{parts[1]}"
    return parts[0]


def _described(attributes: Attributes) -> str:
    return f"user={attributes.user.name}, verb={attributes.verb}, resource={attributes.resource}"


def _log_options(w: http.ResponseWriter, r: http.Request) -> v1.PodLogOptions | None:
    """Return the log options of the request. If they are invalid, respond with an error and return None."""
    from pkg.apis.core.v1 import conversion, validation

    query = dict(r.query)
    # "tail" is an old name of this parameter.
    if tail := r.param("tail"):
        query["tailLines"] = [tail]
        if tail == "all":
            del query["tailLines"]
    try:
        options = conversion.convert_url_values_to_pod_log_options(query)
    except ValueError:
        _write_error(w, 400, '{"message": "Unable to decode query."}')
        return None
    split = features.feature_gate.enabled(features.POD_LOGS_QUERY_SPLIT_STREAMS)
    if split and options.stream is None:
        options.stream = v1.LOG_STREAM_ALL
    if validation.validate_pod_log_options(options):
        _write_error(w, 422, '{"message": "Invalid request."}')
        return None
    if not split and options.stream not in (None, v1.LOG_STREAM_ALL):
        hint = "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
        _write_error(w, 400, f'unable to return the given log stream: "{options.stream}". {hint}')
        return None
    return options


def _stream_options(w: http.ResponseWriter, r: http.Request) -> remotecommand.Options | None:
    """Return the streams that the client wants. If it wants none, respond with an error and return None."""
    from kubelet.cri.streaming import remotecommand

    try:
        return remotecommand.new_options(r)
    except ValueError as err:
        _write_error(w, 400, str(err))
        return None


def _serve_stream(
    w: http.ResponseWriter, r: http.Request, url: str, opts: remotecommand.Options, subresource: str
) -> None:
    """Connect the client to the runtime's streaming server until the streams have ended."""
    from pkg.apimachinery.util import proxy
    from pkg.apimachinery.util.httpstream import wsstream
    from pkg.apiserver.util import proxy as translator

    enabled = features.feature_gate.enabled(features.EXTEND_WEBSOCKETS_TO_KUBELET)
    if enabled and wsstream.is_websocket_request_with_stream_close_protocol(r):
        servermetrics.inc_web_socket_streaming_request(subresource)
        options = translator.Options(stdin=opts.stdin, stdout=opts.stdout, stderr=opts.stderr, tty=opts.tty)
        translator.StreamTranslatorHandler(url, options).serve_http(w, r)
    else:
        proxy.UpgradeAwareHandler(url).serve_http(w, r)


def _write_stream_error(w: http.ResponseWriter, err: Exception) -> None:
    from kubelet.cri import streaming

    streaming.write_error(err, w)


def _log_request(w: http.ResponseWriter, r: http.Request, seconds: float) -> None:
    """Log one request.

    Go: k8s.io/apiserver/pkg/server/httplog
    """
    source = f"{r.remote_addr[0]}:{r.remote_addr[1]}" if r.remote_addr else ""
    klog.v(3).info_s(
        "HTTP",
        verb=r.method,
        URI=r.target[:MAX_LOGGED_LENGTH],
        latency=f"{seconds * 1000:.3f}ms",
        userAgent=r.headers.get("User-Agent")[:MAX_LOGGED_LENGTH],
        srcIP=source,
        resp=w.status,
        hijacked=w.hijacked,
    )


def _disabled_endpoint(message: str) -> http.Handler:
    def handle(w: http.ResponseWriter, r: http.Request) -> None:
        http.error(w, message, 405)

    return handle


def _page_not_found(w: http.ResponseWriter, r: http.Request) -> None:
    _write_error(w, 404, "404: Page Not Found")


def _encode_pods(pods: list[v1.Pod]) -> bytes:
    return codec.encode_json(v1.PodList(api_version="v1", kind="PodList", items=pods))


def _write_json(w: http.ResponseWriter, data: bytes) -> None:
    w.headers.set("Content-Type", JSON_CONTENT_TYPE)
    w.write(data)


def _write_error(w: http.ResponseWriter, code: int, text: str) -> None:
    if not w.started:
        w.headers.set("Content-Type", _TEXT_CONTENT_TYPE)
    w.write_header(code)
    w.write(text.encode(errors="replace"))
