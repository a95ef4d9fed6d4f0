"""Test probes of static pods and of API pods: each sentence that the documentation has about them.

Each probed container has a witness beside it: a server in the same pod that responds as the path of the probe demands,
and whose log has the time of each request (see framework/witness.py). All times come from the containers' logs. A
fixture creates all pods, and each test then checks its own pod.

- liveness, readiness, startup; by exec, httpGet, tcpSocket, gRPC: test_all_kinds_of_probes_pass_by_each_action,
  test_liveness_fails_by_each_action, test_readiness_fails_by_each_action, test_startup_fails_by_each_action
- httpGet over HTTPS, without verification: test_https_certificate_is_not_verified
- headers, and the user agent: test_request_has_its_headers, test_kubelet_says_who_it_is
- redirects: test_redirect_on_the_same_host_is_followed, test_redirect_to_another_host_is_a_warning
- named ports, host: test_port_may_be_named, test_host_may_be_another
- gRPC with a service's name: test_grpc_asks_for_the_service
- initial delay, period, timeout: test_first_probe_waits_for_the_initial_delay, test_probes_come_once_a_period,
  test_late_answer_is_a_failure
- thresholds: test_container_is_killed_by_the_last_failure_that_it_may_have,
  test_ready_by_as_many_successes_as_asked_for
- terminationGracePeriodSeconds of a probe: test_grace_of_the_probe_replaces_that_of_the_pod
- no probes between a failure and the restart: test_no_probe_between_the_failure_and_the_restart
- the startup probe holds back the other two: test_nothing_else_is_probed_before_the_start
- readiness of terminating pods: test_terminating_container_is_probed_for_readiness_only,
  test_terminating_pod_gets_unready
- readiness gates: probes_and_mounts_test.py
- probes of sidecars but not of plain init containers: test_sidecar_is_probed,
  test_plain_init_container_has_no_probes
- first probes that are spread over the period: test_probes_of_the_same_period_have_turns_of_their_own, and after a
  restart of the kubelet the test below
- results that act at once: test_failed_liveness_acts_at_once, test_readiness_is_told_at_once
- a restart of the kubelet that changes nothing: test_restarted_kubelet_goes_on_probing_and_flips_nothing
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from framework.apiserver.certificates import CertificateAuthority
from framework.cluster_client import TIMEOUT, Namespace, container, is_true, restarts, summary, terminated
from framework.containerd import ROOT
from framework.local_cluster import LocalCluster
from framework.pod_ways import ContainerLog, Pods, Said, teller
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for
from framework.web import ManifestServer
from framework.witness import GRPC, HTTP, HTTPS
from kubernetes.client import ApiException, V1ContainerStatus, V1Pod

pytestmark = pytest.mark.local

# A container that ends at its first failure needs no second probe. The delay lets the container's shell install a
# signal handler. Other containers are probed rarely, so that events of their failures do not crowd out other events.
ONCE = {"initialDelaySeconds": 2, "periodSeconds": 5, "failureThreshold": 1, "timeoutSeconds": 10}
SELDOM = {"periodSeconds": 60, "failureThreshold": 1, "timeoutSeconds": 10}
ACTIONS = ["exec", "http", "tcp", "grpc"]
TURNS = [f"turn-{number}" for number in range(8)]
PERIOD = 10
# Even on a busy machine a probe's result takes effect within these seconds. Without a cause the kubelet sends statuses
# only every 10 s and syncs pods only every 60 s, so the effect cannot come from there.
BEFORE_STATUSES, BEFORE_SYNC = 9.0, 40.0
# seconds
DELAY = 10


def http_get(path: str, port: int | str = HTTP, **fields: object) -> dict[str, Any]:
    """Return a probe for every second, whose timeout suits a busy machine."""
    action = {"path": path, "port": port, **fields}
    return {"httpGet": action, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10}


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ManifestServer]:
    """Yield a server outside of the probed pods."""
    with ManifestServer() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _pods(both_ways: dict[str, Pods], local: LocalCluster, elsewhere: ManifestServer) -> None:
    pair = CertificateAuthority.create().server_pair(["witness.example.com"])
    certificate, key = pair.write(local.folder, "witness")
    there = {**http_get("/redirect?to=http://elsewhere.example.com/"), **SELDOM}
    unready = failing("readiness", sleeper("there", readinessProbe=there))
    manifests = [passing(), details(elsewhere), failing("liveness"), failing("startup"), unready]
    manifests += [timing(), killed(), terminating(), spread()]
    for manifest in manifests:
        add_witness(manifest, "chroot", "/host", sys.executable, "-m", "framework.witness", str(certificate), str(key))
        for pods in both_ways.values():
            pods.create(manifest)


def add_witness(manifest: Manifest, *command: str) -> None:
    """Add the witness as the first sidecar, so that it listens before the others start. It runs on the node's files."""
    # One waiting probe causes no events. Each failing probe would cause one, and a pod gets at most 25 events.
    answers = f"until wget -q -O /dev/null localhost:{HTTP}/ok; do sleep 0.2; done"
    environment = {"PYTHONPATH": str(ROOT / "test"), "PYTHONDONTWRITEBYTECODE": "1"}
    witness = shell(
        "",
        "witness",
        command=command,
        env=[{"name": name, "value": value} for name, value in environment.items()],
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["sh", "-c", answers]}, "timeoutSeconds": 300},
        volumeMounts=[{"name": "node", "mountPath": "/host", "readOnly": True}],
    )
    manifest["spec"]["initContainers"] = [witness, *manifest["spec"].get("initContainers", [])]
    manifest["spec"]["volumes"] = [{"name": "node", "hostPath": {"path": "/"}}]


def spread() -> Manifest:
    """Return a pod with containers that differ only in their names."""
    probes = {name: {**http_get(f"/ok/{name}"), "periodSeconds": PERIOD} for name in TURNS}
    return pod("spread", *(sleeper(name, livenessProbe=probe) for name, probe in probes.items()))


def passing() -> Manifest:
    """Return a pod with a container for each action, whose three probes all pass."""
    good: dict[str, dict[str, Any]] = {
        "exec": {"exec": {"command": ["sh", "-c", "exit 0"]}},
        "http": {"httpGet": {"path": "/ok/{}", "port": HTTP}},
        "tcp": {"tcpSocket": {"port": HTTP}},
        "grpc": {"grpc": {"port": GRPC, "service": "good {}"}},
    }

    def probes(action: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind in ("startup", "liveness", "readiness"):
            probe = {name: dict(what) for name, what in good[action].items()}
            for what in probe.values():
                what.update({name: value.format(kind) for name, value in what.items() if isinstance(value, str)})
            found[f"{kind}Probe"] = {**probe, "periodSeconds": 3, "failureThreshold": 3, "timeoutSeconds": 10}
        return found

    return pod("passing", *(sleeper(action, **probes(action)) for action in ACTIONS))


def details(elsewhere: ManifestServer) -> Manifest:
    """Return a pod whose readiness probes by HTTP and gRPC use every option."""
    headers = [{"name": "X-Mark", "value": "one"}, {"name": "X-Mark", "value": "two"}, {"name": "Host", "value": "a.b"}]
    named = {"ports": [{"name": "asked", "containerPort": HTTP}]}
    here = http_get("/redirect?to=/ok/redirected")
    far = elsewhere.url.rpartition("/")[0].rpartition(":")[2]
    return pod(
        "details",
        sleeper("https", readinessProbe=http_get("/ok/secure", HTTPS, scheme="HTTPS")),
        sleeper("headers", readinessProbe=http_get("/ok/headers", httpHeaders=headers)),
        sleeper("named", readinessProbe=http_get("/ok/named", "asked"), **named),
        sleeper("here", readinessProbe=here),
        sleeper("host", readinessProbe=http_get("/elsewhere", int(far), host="127.0.0.1")),
        sleeper("service", readinessProbe={"grpc": {"port": GRPC}, "periodSeconds": 1, "timeoutSeconds": 10}),
    )


BAD: dict[str, dict[str, Any]] = {
    "exec": {"exec": {"command": ["sh", "-c", "echo no life; exit 1"]}},
    "http": {"httpGet": {"path": "/status/503", "port": HTTP}},
    "tcp": {"tcpSocket": {"port": 1}},
    "grpc": {"grpc": {"port": GRPC, "service": "bad one"}},
}


def failing(kind: str, *more: dict[str, Any]) -> Manifest:
    """Return a pod with a container for each action, whose probe fails and which does not restart.

    Each kind has its own pod, because the events of one pod are limited: to 25, and then to a few.
    """
    often = SELDOM if kind == "readiness" else ONCE
    probes = {name: {f"{kind}Probe": {**probe, **often}} for name, probe in BAD.items()}
    containers = [sleeper(name, **probe) for name, probe in probes.items()]
    return pod(f"fails-{kind}", *containers, *more, grace=30, restartPolicy="Never")


def timing() -> Manifest:
    gated = {
        # The period is long enough that the first success takes effect before the next probe is due.
        "startupProbe": {**http_get("/from/3/started"), "periodSeconds": 5, "failureThreshold": 30},
        "livenessProbe": {**http_get("/ok/after-start-liveness"), "failureThreshold": 10},
        "readinessProbe": http_get("/ok/after-start-readiness"),
    }
    beside = sleeper("beside", restartPolicy="Always", readinessProbe=http_get("/ok/beside"))
    delayed = {**http_get("/ok/delayed"), "initialDelaySeconds": DELAY}
    return pod(
        "timing",
        teller("say start; exec sleep 1000", "delayed", readinessProbe=delayed),
        sleeper("gated", **gated),
        sleeper("counted", readinessProbe={**http_get("/from/2/counted"), "successThreshold": 3}),
        sleeper("slow", livenessProbe={**http_get("/slow/3"), "timeoutSeconds": 1, "failureThreshold": 1000}),
        initContainers=[beside],
        grace=1,
    )


def killed() -> Manifest:
    """Return a pod whose container is killed after its third failed probe in a row, and passes its probes afterwards.

    The container ignores SIGTERM for 30 s, unless it is killed before.
    """
    probe = {**http_get("/between/3/5/killed"), "failureThreshold": 3, "terminationGracePeriodSeconds": 10}
    stubborn = "trap 'say SIGTERM; i=300' TERM; say start; while [ $((i -= 1)) -ne 0 ]; do sleep 0.1; say tick; done"
    return pod("killed", teller(stubborn, livenessProbe=probe), grace=60)


def terminating() -> Manifest:
    """Return a pod whose readiness changes while it terminates."""
    ending = "say SIGTERM; sleep 6; wget -q -O /dev/null localhost:8080/set/ended; sleep 8; say end; exit 0"
    return pod(
        "terminating",
        teller(
            f"trap '{ending}' TERM; say start; while true; do sleep 1000 & wait $!; done",
            readinessProbe=http_get("/unless/ended"),
            livenessProbe=http_get("/ok/alive"),
        ),
        grace=60,
    )


def asked(pods: Pods, name: str, path: str, count: int = 1) -> list[Said]:
    """Wait until a pod's witness has had `count` requests for the path, and return them."""
    log = pods.log(name, "witness")
    return wait_for(f"{count} requests for {path}", lambda: enough(log, path, count), TIMEOUT, log.raw)


def enough(log: ContainerLog, path: str, count: int) -> list[Said]:
    found = [said for said in log.lines() if said.json["path"] == path]
    return found if len(found) >= count else []


def headers(request: Said) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in request.json["headers"]:
        found.setdefault(name.lower(), []).append(value)
    return found


# --- Kinds and actions ------------------------------------------------------------------------------


def test_all_kinds_of_probes_pass_by_each_action(pods: Pods) -> None:
    found = pods.wait_for_running("passing")

    for action in ACTIONS:
        status = container(found, action)
        assert status is not None and status.started and status.ready and status.restart_count == 0
    for kind in ("startup", "liveness", "readiness"):
        assert asked(pods, "passing", f"/ok/{kind}")
        assert asked(pods, "passing", f"good {kind}")
    assert not [event for event in pods.events_of("passing") if "}" in event.message or "Probe" in event.reason]


FAILURES = {
    "exec": "no life\n",
    "http": "HTTP probe failed with statuscode: 503",
    "tcp": r"dial tcp \S+:1: connect: connection refused",
    "grpc": re.escape('service unhealthy (responded with "NOT_SERVING")'),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_liveness_fails_by_each_action(pods: Pods, action: str) -> None:
    field = f"spec.containers{{{action}}}"
    unhealthy = pods.wait_for_event("fails-liveness", "Unhealthy", f"Liveness probe failed: {FAILURES[action]}", field)
    assert unhealthy.type == "Warning"
    # If this is the last running container, the whole pod ends.
    message = f"(Container {action} failed liveness probe|Stopping container {action})"
    killing = pods.wait_for_event("fails-liveness", "Killing", message, field)
    assert killing.type == "Normal"
    found = pods.wait_for(
        "fails-liveness", f"container {action} has ended", lambda found: terminated(found, action) is not None
    )
    state = terminated(found, action)
    assert state is not None and (state.exit_code, state.reason) == (0, "Completed")


@pytest.mark.parametrize("action", ACTIONS)
def test_readiness_fails_by_each_action(pods: Pods, action: str) -> None:
    message = f"Readiness probe failed: {FAILURES[action]}"
    pods.wait_for_event("fails-readiness", "Unhealthy", message, f"spec.containers{{{action}}}")
    # The container's status may arrive after the event.
    found = pods.wait_for("fails-readiness", f"container {action} has started", lambda found: is_started(found, action))
    assert not any(status.ready for status in statuses(pods, "fails-readiness", action))
    status = container(found, action)
    assert status is not None and status.state.running is not None


@pytest.mark.parametrize("action", ACTIONS)
def test_startup_fails_by_each_action(pods: Pods, action: str) -> None:
    field = f"spec.containers{{{action}}}"
    pods.wait_for_event("fails-startup", "Unhealthy", f"Startup probe failed: {FAILURES[action]}", field)
    pods.wait_for("fails-startup", f"container {action} has ended", lambda found: terminated(found, action) is not None)
    message = f"(Container {action} failed startup probe|Stopping container {action})"
    pods.wait_for_event("fails-startup", "Killing", message, field)
    assert not any(status.started for status in statuses(pods, "fails-startup", action))


def statuses(pods: Pods, name: str, of: str) -> list[V1ContainerStatus]:
    """List all versions of the status of a container."""
    return [status for each in pods.history(name) if (status := container(each.object, of)) is not None]


# --- Requests ---------------------------------------------------------------------------------------


def test_https_certificate_is_not_verified(pods: Pods) -> None:
    request = asked(pods, "details", "/ok/secure")[0]

    assert request.json["scheme"] == "https"
    pods.wait_for("details", "container https is ready", lambda found: is_ready(found, "https"))


def is_started(found: V1Pod, name: str) -> bool:
    status = container(found, name)
    return status is not None and status.started is True


def is_ready(found: V1Pod, name: str) -> bool:
    status = container(found, name)
    return status is not None and status.ready


def test_request_has_its_headers(pods: Pods) -> None:
    found = headers(asked(pods, "details", "/ok/headers")[0])

    assert found["x-mark"] == ["one", "two"]
    assert found["host"] == ["a.b"]


def test_kubelet_says_who_it_is(pods: Pods) -> None:
    found = headers(asked(pods, "details", "/ok/named")[0])
    assert found["user-agent"] == ["kube-probe/1.36"]
    assert found["accept"] == ["*/*"]
    assert found["connection"] == ["close"]
    found = headers(asked(pods, "details", "")[0])
    assert found["user-agent"][0].startswith("kube-probe/1.36 grpc-")


def test_redirect_on_the_same_host_is_followed(pods: Pods) -> None:
    assert asked(pods, "details", "/ok/redirected")
    pods.wait_for("details", "ready", lambda found: is_ready(found, "here"))


def test_redirect_to_another_host_is_a_warning(pods: Pods) -> None:
    message = "Readiness probe warning: Probe terminated redirects.*"
    event = pods.wait_for_event("fails-readiness", "ProbeWarning", message, "spec.containers{there}")
    assert event.type == "Warning"
    pods.wait_for("fails-readiness", "ready", lambda found: is_ready(found, "there"))


def test_port_may_be_named(pods: Pods) -> None:
    assert asked(pods, "details", "/ok/named")
    pods.wait_for("details", "ready", lambda found: is_ready(found, "named"))


def test_host_may_be_another(pods: Pods, elsewhere: ManifestServer) -> None:
    elsewhere.wait_for_requests(2)
    pods.wait_for("details", "ready", lambda found: is_ready(found, "host"))


def test_grpc_asks_for_the_service(pods: Pods) -> None:
    """A gRPC probe sends the name of the service, and a probe without a name asks for the whole server.

    A service that is not serving fails the probe.
    """
    pods.wait_for("details", "ready", lambda found: is_ready(found, "service"))
    assert asked(pods, "passing", "good readiness")[0].json["scheme"] == "grpc"
    assert asked(pods, "fails-liveness", "bad one")


# --- Times ------------------------------------------------------------------------------------------


def test_first_probe_waits_for_the_initial_delay(pods: Pods) -> None:
    first = asked(pods, "timing", "/ok/delayed")[0].at
    (started,) = pods.wait_for_said(pods.log("timing", "delayed"), "start")
    # The runtime's start time is earlier, and on a busy machine much earlier.
    assert first - started >= DELAY - 5


def test_probes_come_once_a_period(pods: Pods) -> None:
    times = [request.at for request in asked(pods, "timing", "/ok/beside", 20)]

    gaps = [after - before for before, after in itertools.pairwise(times)]
    # The first result may cause an extra probe. After that the times are fixed.
    assert 0.8 <= (times[-1] - times[1]) / (len(times) - 2) <= 2, gaps


def test_late_answer_is_a_failure(pods: Pods) -> None:
    pods.wait_for_event(
        "timing",
        "Unhealthy",
        r'Liveness probe failed: Get "http://\S+:8080/slow/3": context deadline exceeded.*',
        "spec.containers{slow}",
    )
    assert restarts(pods.wait_for("timing", "there", lambda _: True), "slow") == 0


def test_ready_by_as_many_successes_as_asked_for(pods: Pods) -> None:
    """The container becomes ready only after its readiness probe has succeeded three times in a row after a failure."""
    requests = asked(pods, "timing", "/from/2/counted", 4)
    seen = first_ready(pods, "timing", "counted")
    assert seen >= requests[3].at


def first_ready(pods: Pods, name: str, main: str) -> float:
    """Return the time at which the API server first received that the container is ready."""
    pods.wait_for_seen(name, f"container {main} is ready", lambda found: is_ready(found, main))
    return next(each.at for each in pods.history(name) if is_ready(each.object, main))


def test_probes_of_the_same_period_have_turns_of_their_own(pods: Pods) -> None:
    assert_spread([asked(pods, "spread", f"/ok/{name}")[0].at for name in TURNS])


def assert_spread(times: list[float]) -> None:
    """Check that the times are spread over the period. Probes that began together would all lie within a second."""
    turns = sorted(at % PERIOD for at in times)
    assert max(b - a for a, b in itertools.pairwise([*turns, turns[0] + PERIOD])) < PERIOD - 1


def test_readiness_is_told_at_once(pods: Pods) -> None:
    """The kubelet reports readiness at once, not with the next sync of the pod or the next batch of statuses."""
    requests = asked(pods, "timing", "/from/2/counted", 4)
    assert first_ready(pods, "timing", "counted") - requests[3].at < BEFORE_STATUSES


def test_nothing_else_is_probed_before_the_start(pods: Pods) -> None:
    started = asked(pods, "timing", "/from/3/started", 3)
    live = asked(pods, "timing", "/ok/after-start-liveness")
    ready = asked(pods, "timing", "/ok/after-start-readiness")

    assert started[2].at <= live[0].at
    assert started[2].at <= ready[0].at
    assert len(asked(pods, "timing", "/from/3/started")) == 3, "the startup probe ran again after its success"
    pods.wait_for("timing", "container gated is ready", lambda found: is_ready(found, "gated"))


# --- Liveness ---------------------------------------------------------------------------------------


@pytest.fixture
def story(pods: Pods) -> dict[str, list[float]]:
    """Return when the pod `killed` was probed, got its signal, was last alive, and started again."""
    pods.wait_for("killed", "a restart", lambda found: restarts(found) == 1)
    requests = [request.at for request in asked(pods, "killed", "/between/3/5/killed", 6)]
    log, again = pods.log("killed"), pods.log("killed", restart=1)
    return {
        "asked": requests,
        "told": pods.wait_for_said(log, "SIGTERM"),
        "alive": pods.wait_for_said(log, "tick"),
        "again": pods.wait_for_said(again, "start"),
    }


def test_container_is_killed_by_the_last_failure_that_it_may_have(pods: Pods, story: dict[str, list[float]]) -> None:
    """The container is killed after its third failure in a row, which is the fifth request."""
    assert len([at for at in story["asked"] if at <= story["told"][0]]) == 5
    pods.wait_for_event("killed", "Killing", "Container main failed liveness probe, will be restarted")


def test_failed_liveness_acts_at_once(story: dict[str, list[float]]) -> None:
    """A failed liveness probe acts at once, not with the next periodic sync, which comes once a minute."""
    assert 0 <= story["told"][0] - story["asked"][4] < BEFORE_SYNC


def test_grace_of_the_probe_replaces_that_of_the_pod(story: dict[str, list[float]]) -> None:
    """The container is killed after the probe's grace period of 10 s, not after the pod's of 60 s.

    Without the kill it would end by itself 30 s after the signal.
    """
    assert 5 <= story["alive"][-1] - story["told"][0] < 28


def test_no_probe_between_the_failure_and_the_restart(story: dict[str, list[float]]) -> None:
    assert story["asked"][5] >= story["again"][0]


# --- Other containers -------------------------------------------------------------------------------


def test_sidecar_is_probed(pods: Pods) -> None:
    assert asked(pods, "timing", "/ok/beside")
    pods.wait_for("timing", "container beside is ready", lambda found: is_ready(found, "beside"))


def test_plain_init_container_has_no_probes(namespace: Namespace) -> None:
    with pytest.raises(ApiException, match=r"may not be set for init containers without restartPolicy=Always"):
        namespace.create(pod("init-probe", sleeper(), initContainers=[sleeper("init", livenessProbe=http_get("/"))]))


# --- Ends -------------------------------------------------------------------------------------------


def test_restarted_kubelet_goes_on_probing_and_flips_nothing(both_ways: dict[str, Pods], local: LocalCluster) -> None:
    """After a restart the kubelet continues to probe, and no container's readiness changes.

    The test covers API pods and static pods together. The new kubelet reads the former state of a static pod from the
    mirror pod.
    """
    for pods in both_ways.values():
        pods.wait_for_running("passing")
    before = {way: len(pods.history("passing")) for way, pods in both_ways.items()}
    requests = {way: len(asked(pods, "passing", "/ok/readiness")) for way, pods in both_ways.items()}
    turns = {
        (way, name): len(asked(pods, "spread", f"/ok/{name}")) for way, pods in both_ways.items() for name in TURNS
    }

    local.kubelet.kill()
    local.kubelet.start()

    for way, pods in both_ways.items():
        assert_spread([asked(pods, "spread", f"/ok/{name}", turns[way, name] + 1)[-1].at for name in TURNS])
        asked(pods, "passing", "/ok/liveness", requests[way] + 2)
        asked(pods, "passing", "/ok/readiness", requests[way] + 2)
        versions = [each.object for each in pods.history("passing")[before[way] :]]
        assert not [summary(version) for version in versions if not is_true(version, "Ready")]
        for action in ACTIONS:
            assert restarts(pods.wait_for_running("passing"), action) == 0


def test_terminating_container_is_probed_for_readiness_only(both_ways: dict[str, Pods]) -> None:
    """While a container terminates, only its readiness probe continues.

    The test covers API pods and static pods together, because they take long to end. This kubelet, like the Go kubelet,
    no longer probes a static pod whose manifest is gone.
    """
    logs = {}
    for way, pods in both_ways.items():
        pods.wait_for_running("terminating")
        logs[way] = (pods.log("terminating"), pods.log("terminating", "witness"))
    for pods in both_ways.values():
        pods.delete("terminating")
    for way, pods in both_ways.items():
        main, witness = logs[way]
        ((told,), (end,)) = pods.wait_for_said(main, "SIGTERM"), pods.wait_for_said(main, "end")
        during = [said.json["path"] for said in witness.lines() if told + 3 < said.at < end]
        assert "/ok/alive" not in during
        assert way == "static" or during.count("/unless/ended") >= 2


def test_terminating_pod_gets_unready(namespace: Namespace) -> None:
    """A terminating pod becomes unready when its readiness probe fails, while its container still runs.

    The mirror pod of a removed static pod gets no such update.
    """
    namespace.wait_deleted("terminating")

    versions = [each.object for each in namespace.history("terminating")]
    running = [version for version in versions if (main := container(version)) is not None and main.state.running]
    after = running[next(number for number, version in enumerate(running) if is_true(version, "Ready")) :]
    assert after[-1].metadata.deletion_timestamp is not None
    assert not is_true(after[-1], "Ready")
