"""Test container hooks: whether and when they run, hooks that fail, and hooks that never end.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap. The containers record
all times themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from framework.cluster_client import TIMEOUT, Namespace, last_terminated, terminated, waiting_reason
from framework.local_cluster import LocalCluster
from framework.pod_ways import SAY, ContainerLog, Pods, teller
from framework.pods import Manifest, pod, shell, sleeper
from framework.waiting import wait_for
from kubernetes.client import V1Pod

pytestmark = pytest.mark.local

# The script logs when it begins and when it gets its signal.
LIVES = "trap 'say told; exit 0' TERM; say begun; while true; do sleep 1000 & wait $!; done"
STUBBORN = "trap 'say told' TERM; say begun; while true; do sleep 1000 & wait $!; done"
# The tests find these commands among all processes by their command lines.
HANGING_STOP = "sleep 987001"
HANGING_START = "sleep 987002"
# This grace period, in seconds, is long enough for a busy node to start the hook.
HANGING_GRACE = 8
# Each output stream is cut to this many bytes.
MOST_OUTPUT = 10 * 1024


def in_log(words: str) -> dict[str, object]:
    """Return a hook that writes to its container's log as soon as the container's program has started."""
    return {"exec": {"command": ["sh", "-c", f"until {{ {SAY} {words}; }} > /proc/1/fd/1; do sleep 0.1; done"]}}


def bad_exec(script: str) -> dict[str, object]:
    return {"exec": {"command": ["sh", "-c", script]}}


def with_hook(name: str, kind: str, hook: dict[str, object], script: str = LIVES, grace: int = 30) -> Manifest:
    return pod(name, teller(script, lifecycle={kind: hook}), grace=grace)


def get(**fields: object) -> dict[str, object]:
    return {"httpGet": fields}


# Each of these hooks fails after the container has started.
BAD_STARTS: dict[str, dict[str, object]] = {
    "exit-code": bad_exec("echo not well; exit 4"),
    "no-command": {"exec": {"command": ["/not-there"]}},
    "endless-output": bad_exec("yes | head -c 3000000 | tee /dev/stderr; exit 1"),
    "port-name": get(port="nope", path="/x"),
    "refused": get(port=9, host="127.0.0.1", path="/x"),
    "header": get(port=9, host="127.0.0.1", httpHeaders=[{"name": "X-Bad", "value": "a\nInjected: b"}]),
    "tcp": {"tcpSocket": {"port": 80}},
}


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace, environment: object) -> None:
    server = shell("httpd -f -vv -p 8080 -h /tmp 2>&1", ports=[{"name": "web", "containerPort": 8080}])
    namespace.create(pod("server", server))
    namespace.create(with_hook("start-exec", "postStart", in_log("say hook")))
    sleeps = teller(LIVES, lifecycle={"postStart": {"sleep": {"seconds": 2}}})
    namespace.create(pod("start-sleep", sleeps, teller(LIVES, "second")))
    for name, hook in BAD_STARTS.items():
        namespace.create(with_hook(f"bad-{name}", "postStart", hook, grace=2))
    namespace.create(with_hook("start-hangs", "postStart", bad_exec(HANGING_START)))

    namespace.create(with_hook("stop-exec", "preStop", in_log("say hook; sleep 1; say done")))
    namespace.create(with_hook("stop-sleep", "preStop", {"sleep": {"seconds": 3}}))
    namespace.create(with_hook("stop-sleep-long", "preStop", {"sleep": {"seconds": 300}}, grace=600))
    namespace.create(with_hook("stop-fails", "preStop", bad_exec("echo no; exit 9")))
    namespace.create(with_hook("stop-takes-time", "preStop", in_log("sleep 3; say done"), STUBBORN, grace=12))
    namespace.create(with_hook("stop-hangs", "preStop", bad_exec(HANGING_STOP), STUBBORN, grace=HANGING_GRACE))
    address = namespace.wait_for_running("server")[0].status.pod_ip
    namespace.create(with_hook("start-http", "postStart", get(port=8080, host=address, path="/started")))
    agent = [{"name": "X-A", "value": "1"}, {"name": "X-A", "value": "2"}]
    namespace.create(
        with_hook("start-https", "postStart", get(port=8080, host=address, scheme="HTTPS", httpHeaders=agent))
    )
    served = teller("say begun; exec httpd -f -vv -p 8080 -h /tmp 2>&1", ports=[{"name": "web", "containerPort": 8080}])
    namespace.create(pod("stop-http", {**served, "lifecycle": {"preStop": get(port="web", path="/stop")}}, grace=5))


@pytest.fixture(scope="module")
def seen(namespace: Namespace, local: LocalCluster) -> Iterator[Pods]:
    with closing(Pods(namespace, local)) as pods:
        yield pods


def processes(command: str) -> list[int]:
    """List the processes of the machine that run exactly this command."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def logged(seen: Pods, name: str, container: str = "main") -> ContainerLog:
    seen.namespace.wait_for_seen(name, "a container that was started", lambda found: found.status.container_statuses)
    return seen.log(name, container)


def started(seen: Pods, name: str) -> ContainerLog:
    """Wait until the container runs and can handle its signal, and return its log."""
    seen.wait_for_running(name)
    log = logged(seen, name)
    seen.wait_for_said(log, "begun")
    return log


def only(times: list[float]) -> float:
    (time,) = times
    return time


# --- postStart --------------------------------------------------------------------------------------


def test_post_start_exec(seen: Pods) -> None:
    log = logged(seen, "start-exec")
    seen.wait_for_said(log, "hook")
    seen.wait_for_running("start-exec")


def test_post_start_sleep_holds_up_the_next_container(seen: Pods) -> None:
    seen.wait_for_running("start-sleep")
    logs = [logged(seen, "start-sleep", name) for name in ("main", "second")]
    first, second = (only(seen.wait_for_said(log, "begun")) for log in logs)
    assert second - first >= 1.9


def test_post_start_http(seen: Pods) -> None:
    seen.wait_for_running("start-http")
    log = logged(seen, "server")
    wait_for("the hook's request", lambda: any("url:/started" in line for line in log.raw()), TIMEOUT, log.raw)


def test_post_start_https_falls_back_to_http(seen: Pods) -> None:
    seen.wait_for_running("start-https")
    text = r"request to HTTPS lifecycle hook [0-9.]+:8080 got HTTP response, retry with HTTP succeeded"
    seen.wait_for_event("start-https", "LifecycleHTTPFallback", text, "spec.containers{main}")


def failure(kind: str, shown: str, error: str) -> str:
    return rf'{kind} lifecycle hook \({shown}\) for Container "main" in Pod "bad-.*_.*\(.*\)" failed - error: {error}'


MESSAGES = {
    "exit-code": failure(
        "Exec", r"\[sh -c echo not well; exit 4\]", r'command .* exited with 4: .*, message: "not well\\n"'
    ),
    "no-command": failure("Exec", r"\[/not-there\]", '.*no such file or directory.*, message: ""'),
    "endless-output": failure("Exec", r"\[sh -c .*\]", r'command .* exited with 1: .*, message: "(y\\n){5120}"'),
    "port-name": failure("HTTP", "/x", 'strconv.Atoi: parsing "nope": invalid syntax'),
    "refused": failure("HTTP", "/x", 'Get "http://127.0.0.1:9/x": dial tcp 127.0.0.1:9: connect: connection refused'),
    "header": failure("HTTP", "/", 'Get "http://127.0.0.1:9/": net/http: invalid header field value for "X-Bad"'),
    "tcp": r'Cannot run handler: invalid handler: \{"tcpSocket":\{"port":80\}\}',
}


@pytest.mark.parametrize("name", BAD_STARTS)
def test_post_start_that_fails_ends_the_container(namespace: Namespace, name: str) -> None:
    def shows_error(found: V1Pod) -> bool:
        return waiting_reason(found) == "PostStartHookError"

    found = namespace.wait_for_seen(f"bad-{name}", "with the hook's error", shows_error)

    waiting = found.status.container_statuses[0].state.waiting
    assert waiting is not None
    assert re.fullmatch(MESSAGES[name], waiting.message, re.DOTALL), waiting.message[:1000]
    assert len(waiting.message) < 3 * MOST_OUTPUT, "the hook's output makes the status too large"
    ended = last_terminated(found)
    assert ended is not None
    namespace.wait_for_event(f"bad-{name}", "FailedPostStartHook", "PostStartHook failed", "spec.containers{main}")
    namespace.wait_for_event(f"bad-{name}", "Killing", "FailedPostStartHook", "spec.containers{main}")


def test_post_start_without_end_does_not_hold_up_the_end_of_the_pod(seen: Pods) -> None:
    wait_for("the hook runs", lambda: processes(HANGING_START), TIMEOUT)
    log = logged(seen, "start-hangs")
    seen.wait_for_said(log, "begun")
    seen.delete("start-hangs")
    seen.wait_deleted("start-hangs")

    assert log.when("told"), "the process got no signal"
    assert processes(HANGING_START) == []


# --- preStop ----------------------------------------------------------------------------------------


def test_pre_stop_exec_runs_before_the_process_is_told(seen: Pods) -> None:
    log = started(seen, "stop-exec")
    seen.delete("stop-exec")
    seen.wait_deleted("stop-exec")

    assert [said.text for said in log.lines()] == ["begun", "hook", "done", "told"]


def test_pre_stop_http(seen: Pods) -> None:
    """A preStop hook may send its HTTP request to a named port of its container."""
    log = started(seen, "stop-http")
    seen.delete("stop-http")
    seen.wait_deleted("stop-http")

    assert any("url:/stop" in line for line in log.raw())


def test_pre_stop_sleep_holds_up_the_signal(seen: Pods) -> None:
    log = started(seen, "stop-sleep")
    before = uptime()
    seen.delete("stop-sleep")
    seen.wait_deleted("stop-sleep")

    assert only(log.when("told")) - before >= 2.9


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def test_pre_stop_sleep_is_cut_at_the_end_of_the_grace_period(seen: Pods) -> None:
    log = started(seen, "stop-sleep-long")
    before = uptime()
    seen.namespace.core.delete_namespaced_pod("stop-sleep-long", seen.namespace.name, grace_period_seconds=4)
    text = "PreStopHook failed: not completed in grace period of 4s"
    seen.wait_for_event("stop-sleep-long", "FailedPreStopHook", text, "spec.containers{main}")
    seen.wait_deleted("stop-sleep-long")

    # This is much less than the hook's own duration.
    assert 3.9 <= only(log.when("told")) - before <= 60


def test_pre_stop_that_fails_is_told_and_the_pod_goes(seen: Pods) -> None:
    log = started(seen, "stop-fails")
    seen.delete("stop-fails")
    seen.wait_for_event("stop-fails", "FailedPreStopHook", "PreStopHook failed", "spec.containers{main}")
    last = seen.wait_deleted("stop-fails").object

    state = terminated(last)
    assert state is not None and state.exit_code == 0
    assert len(log.when("told")) == 1


def test_time_of_the_hook_is_taken_off_the_grace_period(seen: Pods) -> None:
    """The hook uses three of the twelve seconds of the grace period, so nine are left for the process.

    The process ignores its signal.
    """
    log = started(seen, "stop-takes-time")
    before = uptime()
    seen.delete("stop-takes-time")
    last = seen.wait_deleted("stop-takes-time").object

    state = terminated(last)
    assert state is not None and state.exit_code == 137
    assert only(log.when("told")) >= only(log.when("done")) >= before + 2.9
    # Without that rule the end would take fifteen seconds, and more on a busy machine. The unit tests check how much of
    # the grace period is left.
    assert uptime() - before >= 11.5


def test_pre_stop_without_end(seen: Pods, local: LocalCluster) -> None:
    """A hook that never ends uses up the grace period. The process gets two more seconds, and the hook is killed."""
    log = started(seen, "stop-hangs")
    before = uptime()
    seen.delete("stop-hangs")
    wait_for("the hook runs", lambda: processes(HANGING_STOP), HANGING_GRACE)
    text = f"PreStopHook failed: not completed in grace period of {HANGING_GRACE}s"
    seen.wait_for_event("stop-hangs", "FailedPreStopHook", text, "spec.containers{main}")
    last = seen.wait_deleted("stop-hangs").object

    state = terminated(last)
    assert state is not None and state.exit_code == 137
    assert only(log.when("told")) - before >= HANGING_GRACE - 0.1
    assert processes(HANGING_STOP) == []
    assert_no_threads_of_hooks(local)


def assert_no_threads_of_hooks(local: LocalCluster) -> None:
    """Check that the threads of preStop hooks have ended with their hooks."""

    def names() -> list[str]:
        found = []
        for path in Path(f"/proc/{local.kubelet.pid}/task").glob("*/comm"):
            try:
                found.append(path.read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
        return [name for name in found if name.startswith("prestop-")]

    wait_for("no thread of a hook", lambda: not names(), 60, names)


def test_pods_without_hooks_are_not_held_up(namespace: Namespace) -> None:
    """A pod without hooks starts while the hooks of other pods hang and fail."""
    namespace.create(pod("plain", sleeper()))
    namespace.wait_for_running("plain")
