"""Test the kubelet's server: what it serves, to whom, and how it responds to invalid input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kubelet import server
from kubelet.apis import config as kubeletconfig
from kubelet.cri.streaming import remotecommand
from kubelet.server import metrics as servermetrics
from kubelet.server.auth import KubeletAuth, NodeAuthorizerAttributesGetter
from kubelet.server.server import get_url_root_path
from kubelet.server.testing import FakeHost, FakeSummaryProvider
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authorization import authorizer
from pkg.apiserver.server import dynamiccertificates, healthz
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang import http
from pkg.golang import testing as golangtesting
from pkg.golang.http.testing import Recorded, record
from pkg.util import exec as utilexec


def configuration(**fields: bool) -> kubeletconfig.KubeletConfiguration:
    """Return a configuration that enables everything, except for the fields that are False."""
    made = kubeletconfig.KubeletConfiguration()
    for name in ("debugging_handlers", "system_log_handler", "profiling_handler", "debug_flags_handler"):
        setattr(made, f"enable_{name}", fields.get(f"enable_{name}", True))
    return made


def make(host: FakeHost, auth: KubeletAuth | None = None, **fields: bool) -> server.Server:
    return server.Server(
        host, FakeSummaryProvider(), auth=auth, kube_cfg=configuration(**fields), debug_pages=[add_debug_page]
    )


def add_debug_page(mux: http.ServeMux) -> None:
    mux.handle("/debug/syncloop", lambda w, r: w.write(b"page"), ["GET"])


def get(host: FakeHost, target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Recorded:
    return record(make(host), method, target, headers)


@pytest.mark.parametrize(
    ("resync", "seconds", "healthy"),
    [
        (60.0, None, True),
        (60.0, 0.0, True),
        (60.0, 300.0, True),
        (60.0, 300.5, False),
        (600.0, 1200.0, True),
        (600.0, 1201.0, False),
    ],
)
def test_sync_loop_health_check(resync: float, seconds: float | None, healthy: bool) -> None:
    clock, host = FakeClock(), FakeHost()
    host.resync_interval = resync
    if seconds is not None:
        host.entered = clock.now()
        clock.step(seconds)
    check = server.sync_loop_health_check(host, clock)
    if healthy:
        check()
    else:
        with pytest.raises(healthz.UnhealthyError, match="sync Loop took longer than expected"):
            check()


# ---- Responses ----


class _SlowHost(FakeHost):
    """Wait for a gate at each list of its pods."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = golangtesting.Gate()

    def get_pods(self) -> list[v1.Pod]:
        self.gate.pass_through()
        return super().get_pods()


def test_who_asks_while_pods_are_listed_shares_the_next_list() -> None:
    host = _SlowHost()
    handler = make(host)
    answers = golangtesting.ask_as_crowd(host.gate, lambda ctx: record(handler, "GET", "/pods", ctx=ctx))
    assert [answer.status for answer in answers] == [200] * 4
    assert host.gate.rounds == 2


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/healthz", 200, "ok"),
        ("GET", "/healthz/ping", 200, "ok"),
        ("GET", "/healthz/log", 200, "ok"),
        ("GET", "/healthz/syncloop", 200, "ok"),
        ("GET", "/healthz/none", 404, "404 page not found\n"),
        ("POST", "/pods", 405, "405: Method Not Allowed"),
        ("GET", "/pods/more", 404, "404: Page Not Found"),
        ("GET", "/run/ns/pod/c", 405, "405: Method Not Allowed"),
        ("POST", "/run/ns/pod/c?cmd=ls+-l", 200, "output"),
        ("POST", "/run/ns/none/c?cmd=ls", 404, "pod does not exist"),
        ("GET", "/exec/ns/pod", 404, "404: Page Not Found"),
        ("GET", "/exec/ns/pod/c", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("GET", "/exec/ns/none/c?output=1", 404, "pod does not exist"),
        ("GET", "/exec/ns/pod/c?output=1", 400, "Upgrade request required\n"),
        ("PUT", "/exec/ns/pod/c?output=1", 405, "405: Method Not Allowed"),
        ("GET", "/attach/ns/pod/c", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("POST", "/attach/ns/pod/u/c?input=1", 400, "Upgrade request required\n"),
        ("GET", "/attach/ns/none/c?output=1", 404, "pod does not exist"),
        ("POST", "/portForward/ns/pod", 400, "Upgrade request required\n"),
        ("POST", "/portForward/ns/pod/other", 404, "pod not found"),
        ("POST", "/portForward/ns/none", 404, "pod does not exist"),
        ("GET", "/containerLogs/ns/pod", 404, "404: Page Not Found"),
        ("GET", "/containerLogs/ns/none/c", 404, 'pod "none" does not exist'),
        ("GET", "/containerLogs/ns/pod/none", 404, 'container "none" not found in pod "pod"'),
        ("GET", "/containerLogs/ns/pod/c", 200, "line\n"),
        ("GET", "/containerLogs/ns/pod/c?tailLines=many", 400, '{"message": "Unable to decode query."}'),
        ("GET", "/containerLogs/ns/pod/c?sinceTime=yesterday", 400, '{"message": "Unable to decode query."}'),
        ("GET", "/containerLogs/ns/pod/c?tailLines=-1", 422, '{"message": "Invalid request."}'),
        ("GET", "/containerLogs/ns/pod/c?limitBytes=0", 422, '{"message": "Invalid request."}'),
        ("GET", "/containerLogs/ns/pod/c?stream=Both", 422, '{"message": "Invalid request."}'),
        ("GET", "/containerLogs/ns/pod/..%2F..%2Fx", 307, None),
        ("GET", "/containerLogs/ns/pod/c?stream=Stdout", 400, None),
        ("POST", "/checkpoint/ns/pod/c", 200, '{"items":["/checkpoints/x.tar"]}'),
        ("POST", "/checkpoint/ns/pod/none", 404, "container none does not exist"),
        ("POST", "/checkpoint/ns/pod/c?timeout=long", 404, "cannot parse value of timeout parameter"),
        ("POST", "/checkpoint/ns/pod/c?timeout=99999999999999999999", 404, "cannot parse value of timeout parameter"),
        ("POST", "/checkpoint/ns/none/c", 404, "pod does not exist"),
        ("GET", "/logs/syslog", 200, "log of /logs/syslog"),
        ("GET", "/logs", 307, None),
        ("GET", "/stats", 307, None),
        ("GET", "/checkpoint", 307, None),
        ("GET", "/runningpods", 307, None),
        ("GET", "/exec", 404, "404: Page Not Found"),
        ("GET", "/healthz/", 404, "404 page not found\n"),
        ("GET", "/debug/pprof/", 200, None),
        ("GET", "/debug/pprof/none", 404, None),
        ("GET", "/debug/flags/v", 406, None),
        ("GET", "/debug/syncloop", 200, "page"),
        ("GET", "/metrics/none", 404, "404 page not found\n"),
        ("GET", "/stats/", 404, "404: Page Not Found"),
        ("GET", "/", 404, "404 page not found\n"),
    ],
)
def test_answers(method: str, target: str, status: int, body: str | None) -> None:
    answer = get(FakeHost(), target, method)
    assert (answer.status, answer.text if body is not None else None) == (status, body)


@pytest.mark.parametrize("path", ["/pods", "/pods/", "/runningpods/"])
def test_pods(path: str) -> None:
    answer = get(FakeHost(), path)
    assert (answer.status, answer.headers.get("Content-Type")) == (200, "application/json")
    found = json.loads(answer.body)
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in found["items"]] == ["pod"]


@pytest.mark.parametrize(
    "path", ["/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/metrics/slis"]
)
def test_metric_pages(path: str) -> None:
    answer = get(FakeHost(), path)
    assert answer.status == 200
    assert answer.headers.get("Content-Type").startswith("text/plain; version=0.0.4; charset=utf-8")


# ---- Requests to the kubelet ----


@pytest.mark.parametrize(
    ("method", "target", "asked"),
    [
        ("POST", "/run/ns/pod/c?cmd=ls+-l", ("pod_ns", "", "c", ["ls", "-l"])),
        ("POST", "/run/ns/pod/u/c", ("pod_ns", "u", "c", [""])),
        (
            "POST",
            "/exec/ns/pod/c?command=ls&command=-l&output=1&error=1",
            ("pod_ns", "", "c", ["ls", "-l"], remotecommand.Options(stdout=True, stderr=True)),
        ),
        (
            "GET",
            "/exec/ns/pod/u/c?input=1&output=1&error=1&tty=1",
            ("pod_ns", "u", "c", [], remotecommand.Options(stdin=True, stdout=True, tty=True)),
        ),
        ("GET", "/attach/ns/pod/c?output=1", ("pod_ns", "", "c", remotecommand.Options(stdout=True))),
        ("POST", "/portForward/ns/pod/u", ("pod", "ns", "u", [])),
        ("POST", "/checkpoint/ns/pod/c?timeout=1&timeout=5", ("u", "pod_ns", "c", 5)),
        ("GET", "/runningpods/", ()),
    ],
)
def test_what_the_kubelet_is_asked(method: str, target: str, asked: tuple[Any, ...]) -> None:
    host = FakeHost()
    get(host, target, method)
    assert host.asked == [asked]


@pytest.mark.parametrize(
    ("query", "stdout", "stderr", "options"),
    [
        ("", True, True, v1.PodLogOptions(stream="All")),
        ("?stream=Stdout", True, False, v1.PodLogOptions(stream="Stdout")),
        ("?stream=Stderr", False, True, v1.PodLogOptions(stream="Stderr")),
        ("?tail=5&follow=true", True, True, v1.PodLogOptions(stream="All", tail_lines=5, follow=True)),
        ("?tail=all&tailLines=5", True, True, v1.PodLogOptions(stream="All")),
    ],
)
def test_which_logs_the_kubelet_is_asked_for(query: str, stdout: bool, stderr: bool, options: v1.PodLogOptions) -> None:
    host = FakeHost()
    with set_feature_gate_during_test(features.feature_gate, features.POD_LOGS_QUERY_SPLIT_STREAMS, True):
        answer = get(host, f"/containerLogs/ns/pod/c{query}")
    assert (answer.status, answer.headers.get("Content-Length")) == (200, "")
    assert answer.may_pause
    assert host.asked == [("pod_ns", "c", options, stdout, stderr)]


def test_pods_are_no_stream() -> None:
    assert not get(FakeHost(), "/pods").may_pause


@pytest.mark.parametrize(
    ("err", "method", "target", "status", "body"),
    [
        (LookupError("no log"), "GET", "/containerLogs/ns/pod/c", 400, "no log"),
        (OSError("no disk"), "GET", "/containerLogs/ns/pod/c", 400, "no disk"),
        (RuntimeError("secret"), "GET", "/containerLogs/ns/pod/c", 500, "Internal Server Error\n"),
        (LookupError("gone"), "POST", "/run/ns/pod/c", 500, "gone"),
        (LookupError("gone"), "GET", "/runningpods/", 500, "gone"),
        (LookupError("gone"), "POST", "/exec/ns/pod/c?output=1", 500, "gone"),
        (LookupError("gone"), "POST", "/attach/ns/pod/c?output=1", 500, "gone"),
        (LookupError("gone"), "POST", "/portForward/ns/pod", 500, "gone"),
        (LookupError("gone"), "POST", "/checkpoint/ns/pod/c", 500, "checkpointing of ns/pod/c failed (gone)"),
    ],
)
def test_what_the_kubelet_cannot_do(err: Exception, method: str, target: str, status: int, body: str) -> None:
    host = FakeHost()
    host.err, host.log = err, []
    answer = get(host, target, method)
    assert (answer.status, answer.text) == (status, body)


def test_a_log_that_fails_late_says_so_at_its_end() -> None:
    host = FakeHost()
    host.err = OSError("disk is gone")
    answer = get(host, "/containerLogs/ns/pod/c")
    assert (answer.status, answer.text) == (200, "line\ndisk is gone")


@pytest.mark.parametrize(
    ("err", "text"),
    [
        (utilexec.CodeExitError(ValueError("command 'ls' exited with 1: "), 1), "command 'ls' exited with 1: "),
        (utilexec.CommandTimedOutError(["ls"], 1), 'command timed out: "ls" timed out after 1s'),
    ],
)
def test_how_a_command_failed_is_told(err: Exception, text: str) -> None:
    host = FakeHost()
    host.err = err
    answer = get(host, "/run/ns/pod/c?cmd=ls", "POST")
    assert (answer.status, answer.text) == (500, text)


# ---- Disabled endpoints ----


@pytest.mark.parametrize(
    ("fields", "target", "body"),
    [
        ({"enable_system_log_handler": False}, "/logs/syslog", "logs endpoint is disabled.\n"),
        ({"enable_profiling_handler": False}, "/debug/pprof/heap", "profiling endpoint is disabled.\n"),
        ({"enable_debug_flags_handler": False}, "/debug/flags/v", "flags endpoint is disabled.\n"),
        *(
            ({"enable_debugging_handlers": False}, path, "Debug endpoints are disabled.\n")
            for path in (
                "/run/ns/pod/c",
                "/exec/ns/pod/c",
                "/attach/ns/pod/c",
                "/portForward/ns/pod",
                "/containerLogs/ns/pod/c",
                "/runningpods/",
                "/debug/pprof/",
                "/logs/syslog",
            )
        ),
    ],
)
def test_what_is_switched_off(fields: dict[str, bool], target: str, body: str) -> None:
    answer = record(make(FakeHost(), None, **fields), "GET", target)
    assert (answer.status, answer.text) == (405, body)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/healthz", 200),
        ("/pods", 200),
        ("/metrics", 200),
        ("/exec/ns/pod/c?output=1", 405),
        ("/runningpods/", 405),
        ("/debug/syncloop", 404),
        ("/configz", 404),
        ("/checkpoint/ns/pod/c", 404),
    ],
)
def test_the_read_only_server(target: str, status: int) -> None:
    assert record(server.Server(FakeHost(), FakeSummaryProvider()), "GET", target).status == status


# ---- Authorization ----


class Auth:
    """Authenticate everybody as `user`, or nobody, or raise an error. Some subresources are allowed."""

    def __init__(self, user: str = "user", allowed: tuple[str, ...] = (), err: Exception | None = None) -> None:
        self._user = user
        self._allowed = allowed
        self._err = err

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        if isinstance(self._err, authenticator.AuthenticationError):
            raise self._err
        return authenticator.Response(userinfo.Info(self._user)) if self._user else None

    def authorize(self, ctx: golang.Context, attributes: authorizer.Attributes) -> tuple[authorizer.Decision, str]:
        if self._err is not None:
            raise self._err
        allowed = attributes.subresource in self._allowed
        return authorizer.Decision.ALLOW if allowed else authorizer.Decision.NO_OPINION, ""


@pytest.mark.parametrize(
    ("auth", "method", "target", "status", "body"),
    [
        (Auth(user=""), "GET", "/pods", 401, "Unauthorized"),
        (Auth(err=authenticator.AuthenticationError("expired")), "GET", "/pods", 401, "Unauthorized"),
        (
            Auth(err=authorizer.AuthorizationError("no API server")),
            "GET",
            "/stats/summary",
            500,
            "Authorization error (user=user, verb=get, resource=nodes, subresource=stats)",
        ),
        (
            Auth(),
            "GET",
            "/pods",
            403,
            "Forbidden (user=user, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
        ),
        (Auth(allowed=("pods",)), "GET", "/healthz", 403, None),
        (Auth(allowed=("healthz",)), "GET", "/healthz", 200, "ok"),
        (Auth(allowed=("proxy",)), "GET", "/healthz", 200, "ok"),
        # Only authorized clients learn that a path does not exist or that a method is not allowed.
        (Auth(), "GET", "/run/ns/pod/c", 403, None),
        (Auth(), "GET", "/exec", 403, None),
        (Auth(allowed=("proxy",)), "GET", "/exec", 404, "404: Page Not Found"),
        (Auth(user=""), "GET", "/nowhere", 404, "404 page not found\n"),
        # A redirect repeats the client's input, so it comes after the authorization.
        (Auth(user=""), "GET", "//pods", 401, "Unauthorized"),
        (Auth(user=""), "GET", "/logs", 401, "Unauthorized"),
        (Auth(), "GET", "//pods", 403, None),
        (Auth(allowed=("pods",)), "GET", "//pods", 307, None),
        (Auth(allowed=("log",)), "GET", "/logs", 307, None),
        (Auth(allowed=("pods",)), "GET", f"//pods?{'x' * 5000}", 414, "414 Request URI Too Long\n"),
        (Auth(user=""), "GET", f"/{'x' * 20_000}", 414, "414 Request URI Too Long\n"),
    ],
)
def test_who_may(auth: Auth, method: str, target: str, status: int, body: str | None) -> None:
    no_ca = dynamiccertificates.NoCAContent()
    kubelet_auth = KubeletAuth(auth, NodeAuthorizerAttributesGetter("node"), auth, no_ca)
    answer = record(make(FakeHost(), kubelet_auth), method, target)
    assert (answer.status, answer.text if body is not None else None) == (status, body)


def test_every_path_is_behind_the_authentication() -> None:
    no_ca = dynamiccertificates.NoCAContent()
    nobody = Auth(user="")
    handler = make(FakeHost(), KubeletAuth(nobody, NodeAuthorizerAttributesGetter("node"), nobody, no_ca))
    for path in handler.registered_paths():
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert record(handler, method, path.replace("{", "").replace("...", "").replace("}", "")).status == 401, (
                path
            )


# ---- Counting ----


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/", ""),
        ("/pods", "pods"),
        ("/exec/ns/pod/c", "exec"),
        ("/metrics", "metrics"),
        ("/metrics/cadvisor", "metrics/cadvisor"),
        ("/metrics/cadvisor/more", "metrics/cadvisor"),
        ("pods", "pods"),
    ],
)
def test_get_url_root_path(path: str, root: str) -> None:
    assert get_url_root_path(path) == root


@pytest.mark.parametrize(
    ("method", "target", "labels"),
    [
        ("GET", "/healthz", ("GET", "healthz", "readonly", "false")),
        ("BREW", "/healthz", ("other", "healthz", "readonly", "false")),
        ("GET", "/exec/ns/pod/c", ("GET", "exec", "readonly", "true")),
        ("GET", "/debug/pprof/", ("GET", "debug", "readonly", "true")),
        ("GET", "/metrics/resource/x", ("GET", "metrics/resource", "readonly", "false")),
        ("GET", "/nowhere", ("GET", "other", "readonly", "false")),
    ],
)
def test_requests_are_counted(method: str, target: str, labels: tuple[str, ...]) -> None:
    with metricstesting.moves(servermetrics.HTTP_REQUESTS.labels(*labels)):
        get(FakeHost(), target, method)
    assert metricstesting.value(servermetrics.HTTP_INFLIGHT_REQUESTS.labels(*labels)) == 0


@pytest.mark.parametrize(
    ("target", "kind", "lasting"),
    [
        ("/pods", "pods", False),
        ("/metrics/cadvisor", "metrics/cadvisor", False),
        ("/containerLogs/ns/pod/c", "containerLogs", True),
        ("/exec/ns/pod/c", "exec", True),
        ("/attach/ns/pod/c", "attach", True),
        ("/portForward/ns/pod", "portForward", True),
        ("/debug/syncloop", "debug", True),
        ("/logs/", "logs", True),
    ],
)
def test_who_asks_for_what_is_known_before_it_is_allowed(target: str, kind: str, lasting: bool) -> None:
    """The server knows the user and kind of each request early, so that no user can take all connections."""
    asked: list[tuple[str, str, bool]] = []

    def admit(user: str, kind: str, *, lasting: bool) -> None:
        asked.append((user, kind, lasting))

    auth = Auth()
    kubelet_auth = KubeletAuth(auth, NodeAuthorizerAttributesGetter("node"), auth, dynamiccertificates.NoCAContent())
    handler = make(FakeHost(), kubelet_auth)

    def admitting(w: http.ResponseWriter, r: http.Request) -> None:
        r.admit = admit
        handler(w, r)

    assert record(admitting, "GET", target).status == 403
    assert asked == [("user", kind, lasting)]
