"""Test containers of static pods and of API pods: each sentence that the documentation has about them.

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap. A container reports what
it found in its termination message, or with the time in its log. On the local cluster the longest pause between
restarts is 4 s.

- init containers, with retries and status: test_init_containers_run_in_order_and_a_failing_one_again,
  test_status_of_init_containers, test_failing_init_container_fails_the_pod_that_is_never_restarted
- sidecars start in order, each when the one before has started: test_sidecars_start_in_order
- sidecars have probes, run during termination, and end in reverse order: probes_test.py, termination_test.py
- ephemeral containers, with the target's processes: test_ephemeral_container_sees_its_target
- shareProcessNamespace: test_containers_share_their_processes_if_told_to
- restart policies of the pod: test_restart_policy_of_the_pod
- restart policies of containers: test_restart_policy_of_a_container
- rules by exit codes: test_exit_code_decides_about_the_restart, test_exit_code_restarts_all_containers
- crash back-off as configured: test_pause_between_restarts_is_as_configured
- activeDeadlineSeconds: test_deadline_ends_the_pod
- stop signal: test_image_says_which_signal_stops_it
- terminationMessage from the file or the log's tail, with caps: test_message_comes_from, test_message_is_capped,
  test_messages_of_many_containers_share_a_cap
- stdin, tty, stdinOnce: test_input_is_open_if_asked_for, test_container_has_a_terminal_if_asked_for,
  test_input_once_reaches_the_runtime
- memory over the limit, of a container and of one process of several:
  test_container_that_takes_too_much_memory_is_killed_alone, test_process_that_takes_too_much_memory
- hooks, the environment, runtime classes and user namespaces: hooks_test.py, environment_test.py and others
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cgroups import V2
from framework.cluster_client import (
    TIMEOUT,
    Namespace,
    conditions,
    container,
    is_running,
    last_terminated,
    restarts,
    terminated,
)
from framework.containerd import BUSYBOX_SIGQUIT
from framework.local_cluster import Environment
from framework.pod_ways import Pods, teller
from framework.pods import Manifest, lines_of, pod, shell, sleeper
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, V1ContainerStateTerminated, V1Pod

# This is the longest pause between restarts on the local cluster, in seconds.
LONGEST_PAUSE = 4
# A busy node needs at most this many seconds to start all pods of this file.
DEADLINE = 30
MESSAGE = "/dev/termination-log"
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


@pytest.fixture(scope="module", autouse=True)
def _impatient_kubelet(environment: Environment) -> Iterator[None]:
    """Let the kubelet restart containers sooner than by default while the tests of this file run."""
    if environment.local is None:
        yield
        return
    with environment.local.kubelet.configured({"crashLoopBackOff": {"maxContainerRestartPeriod": f"{LONGEST_PAUSE}s"}}):
        yield


@pytest.fixture(scope="module", autouse=True)
def _pods(_impatient_kubelet: None, environment: Environment, both_ways: dict[str, Pods], namespace: Namespace) -> None:
    manifests = [init(), init_fails(), sidecars(), processes(shared=True), processes(shared=False), *policies()]
    manifests += [container_policies(), exit_codes(), all_again(), crashes(), deadline()]
    manifests += [messages(), long_messages(), many_messages(), terminal(), hungry()]
    if environment.local is not None:
        # Only the local cluster has this pod's image.
        manifests.append(signalled())
    for manifest in manifests:
        for pods in both_ways.values():
            pods.create(manifest)
    namespace.create(pod("debugged", shell("sleep 7654 & trap 'exit 0' TERM; wait $!")))


def with_data(manifest: Manifest) -> Manifest:
    """Mount one empty directory at /data in all containers."""
    spec = manifest["spec"]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    for each in [*spec.get("initContainers", []), *spec["containers"]]:
        each["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return manifest


def init() -> Manifest:
    second = "echo second >> /data/order; test $(wc -l < /data/order) -gt 2"
    containers = [shell("echo first >> /data/order", "first"), shell(second, "second")]
    main = shell(f"tr '\\n' ' ' < /data/order > {MESSAGE}; exit 0")
    return with_data(pod("init", main, initContainers=containers, restartPolicy="OnFailure"))


def init_fails() -> Manifest:
    init = [shell("exit 5", "bad"), sleeper("never")]
    return pod("init-fails", sleeper(), initContainers=init, restartPolicy="Never")


def sidecars() -> Manifest:
    """Return a pod whose first sidecar has started, according to its startup probe, 2 s after its process started."""
    waits = f"say start; sleep 2; say started; touch /tmp/started; {FOREVER}"
    begins = f"say start; {FOREVER}"
    probe = {"exec": {"command": ["test", "-e", "/tmp/started"]}, "periodSeconds": 1, "failureThreshold": 60}
    containers = [
        teller(waits, "one", restartPolicy="Always", startupProbe=probe),
        teller("say start", "plain"),
        teller(begins, "two", restartPolicy="Always"),
    ]
    return pod("sidecars", teller(begins), initContainers=containers)


def processes(shared: bool) -> Manifest:
    looks = shell(f"sleep 2; ps | grep -c ' [s]leep 4321$' > {MESSAGE}; exit 0", "looks")
    other = shell("trap 'exit 0' TERM; sleep 4321 & wait $!", "other")
    name = "shared" if shared else "not-shared"
    return pod(name, other, looks, shareProcessNamespace=shared, restartPolicy="OnFailure")


def policies() -> list[Manifest]:
    """Return a pod for each policy, with a container that fails first and then succeeds."""
    return [with_data(pod(name.lower(), shell(fails_once("runs")), restartPolicy=name)) for name in POLICIES]


def fails_once(runs: str) -> str:
    """Return a script that fails once, succeeds twice, and then keeps running.

    Endless restarts would keep the machine busy.
    """
    count = f"$(wc -l < /data/{runs})"
    return f"echo >> /data/{runs}; test {count} -gt 3 && exec sleep 1000; test {count} -gt 1"


# Under each policy a container that fails once restarts at least this often.
POLICIES = {"Always": 2, "OnFailure": 1, "Never": 0}


def container_policies() -> Manifest:
    containers = [shell(fails_once(name), name.lower(), restartPolicy=name) for name in POLICIES]
    return with_data(pod("own-policies", *containers, restartPolicy="Never"))


def rule(operator: str, *codes: int, action: str = "Restart") -> dict[str, object]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


# Each container restarts this often, and ends with this exit code.
CODES = {"named": (1, 3), "other": (0, 42), "not-in": (1, 3)}


def exit_codes() -> Manifest:
    """Return a pod whose containers exit with 42 and, after a restart, with 3."""
    script = "test -e /data/{0} && exit 3; touch /data/{0}; exit 42"
    named = shell(script.format("named"), "named", restartPolicy="Never", restartPolicyRules=[rule("In", 41, 42)])
    other = shell(script.format("other"), "other", restartPolicy="Never", restartPolicyRules=[rule("In", 41)])
    not_in = shell(script.format("notin"), "not-in", restartPolicy="Never", restartPolicyRules=[rule("NotIn", 3, 0)])
    return with_data(pod("exit-codes", named, other, not_in, restartPolicy="Never"))


def all_again() -> Manifest:
    init = shell("echo >> /data/init", "init")
    rules = [rule("In", 42, action="RestartAllContainers")]
    once = "test -e /data/once && exec sleep 1000; touch /data/once; sleep 1; exit 42"
    causes = shell(once, "causes", restartPolicy="Never", restartPolicyRules=rules)
    return with_data(pod("all-again", causes, sleeper("beside"), initContainers=[init], grace=1, restartPolicy="Never"))


def crashes() -> Manifest:
    """Return a pod whose container crashes five times and keeps running after its sixth start."""
    script = "say start >> /data/starts; test $(wc -l < /data/starts) -gt 5 && exec sleep 1000; exit 1"
    return with_data(pod("crashes", teller(script), grace=1))


def deadline() -> Manifest:
    script = "trap 'say SIGTERM; exit 0' TERM; say start; while true; do sleep 1000 & wait $!; done"
    return pod("deadline", teller(script), activeDeadlineSeconds=DEADLINE)


def signalled() -> Manifest:
    traps = "trap 'say SIGTERM; exit 0' TERM; trap 'say SIGQUIT; exit 0' QUIT"
    script = f"{traps}; say start; while true; do sleep 1000 & wait $!; done"
    return pod("signalled", {**teller(script), "image": BUSYBOX_SIGQUIT}, grace=10)


FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def messages() -> Manifest:
    elsewhere = {"terminationMessagePath": "/tmp/told"}
    return pod(
        "messages",
        shell(f"echo -n from the file > {MESSAGE}; echo not this", "file"),
        shell("echo -n from elsewhere > /tmp/told", "path", **elsewhere),
        shell("echo from the log; exit 1", "log", **FALLBACK),
        shell("echo not told; exit 0", "well", **FALLBACK),
        shell("echo not told; exit 1", "bad"),
        shell(f"echo -n the file > {MESSAGE}; echo not told; exit 1", "both", **FALLBACK),
        restartPolicy="Never",
    )


def long_messages() -> Manifest:
    return pod(
        "long-messages",
        shell(f"yes 1234567 | head -c 5000 > {MESSAGE}", "file"),
        shell("yes $(head -c 99 /dev/zero | tr '\\0' x) | head -n 60; exit 1", "bytes", **FALLBACK),
        shell("seq 100; exit 1", "lines", **FALLBACK),
        restartPolicy="Never",
    )


def many_messages() -> Manifest:
    """Return a pod whose four messages have 16 KiB together."""
    script = f"yes 1234567 | head -c 4096 > {MESSAGE}"
    return pod("many-messages", *(shell(script, f"c{number}") for number in range(4)), restartPolicy="Never")


def terminal() -> Manifest:
    reads = "read line; echo -n ended > /dev/termination-log; exit 0"
    tells = f"test -t 0 && test -t 1 && echo -n a terminal > {MESSAGE}; exit 0"
    return pod(
        "terminal",
        shell(reads, "open", stdin=True),
        shell(reads, "once", stdin=True, stdinOnce=True),
        shell(reads, "closed"),
        shell(tells, "tty", stdin=True, tty=True),
        shell(tells, "no-tty"),
        grace=1,
        restartPolicy="Never",
    )


def hungry() -> Manifest:
    """Return a pod with a container that exceeds its memory limit, one whose child does, and one that stays below.

    The killed containers restart, and are killed again. See `ends`.
    """
    limits = {"resources": {"limits": {"memory": "16Mi"}}, "restartPolicy": "OnFailure"}
    parent = f"tail /dev/zero; echo -n $? > {MESSAGE}; exit 0"
    containers = [shell("exec tail /dev/zero", "hog", **limits), shell(parent, "parent", **limits), sleeper("beside")]
    return pod("hungry", *containers, restartPolicy="Never")


def ends(pods: Pods, name: str) -> list[V1ContainerStateTerminated]:
    """List all terminated states of a container of the hungry pod that the API server has received.

    A single state says nothing about the reason: containerd up to 2.2 sometimes misses the kernel's OOM event if the
    container ends with it. Then containerd reports the reason Error.
    """
    states = [look(each.object, name) for each in pods.history("hungry") for look in (terminated, last_terminated)]
    return [state for state in states if state is not None]


def was_killed_for_memory(pods: Pods, name: str) -> bool:
    return any(state.reason == "OOMKilled" for state in ends(pods, name))


def message(found: V1Pod, name: str = "main") -> str | None:
    """Return the termination message of a container, or None while it has not ended."""
    state = terminated(found, name)
    return None if state is None else state.message or ""


def is_in_state_running(found: V1Pod, name: str) -> bool:
    status = container(found, name)
    return status is not None and status.state.running is not None


def has_ended(found: V1Pod) -> bool:
    return found.status.phase in ("Succeeded", "Failed")


# --- Init containers and sidecars -------------------------------------------------------------------


def test_init_containers_run_in_order_and_a_failing_one_again(pods: Pods) -> None:
    ended = pods.wait_for("init", "Succeeded", lambda found: found.status.phase == "Succeeded")

    assert message(ended) == "first second second "
    assert (restarts(ended, "first"), restarts(ended, "second")) == (0, 1)


def test_status_of_init_containers(pods: Pods) -> None:
    pods.wait_for("init", "Succeeded", lambda found: found.status.phase == "Succeeded")

    versions = [each.object for each in pods.history("init") if each.object.status.init_container_statuses]
    failed = next(version for version in versions if last_terminated(version, "second") is not None)
    state = last_terminated(failed, "second")
    assert state is not None and (state.exit_code, state.reason) == (1, "Error")
    waiting = next(version for version in versions if conditions(version)["Initialized"].status == "False")
    assert waiting.status.phase == "Pending"
    assert conditions(waiting)["Initialized"].reason == "ContainersNotInitialized"
    main = container(waiting)
    assert main is not None and main.state.waiting is not None and main.state.waiting.reason == "PodInitializing"
    for name in ("first", "second"):
        status = container(versions[-1], name)
        assert status is not None and status.ready and not status.started
        assert status.state.terminated is not None and status.state.terminated.reason == "Completed"


def test_failing_init_container_fails_the_pod_that_is_never_restarted(pods: Pods) -> None:
    ended = pods.wait_for("init-fails", "Failed", lambda found: found.status.phase == "Failed")

    state = terminated(ended, "bad")
    assert state is not None and (state.exit_code, state.reason) == (5, "Error")
    never = container(ended, "never")
    assert never is not None and never.state.waiting is not None and never.state.waiting.reason == "PodInitializing"
    assert conditions(ended)["Initialized"].message == "containers with incomplete status: [bad never]"


@pytest.mark.local
def test_sidecars_start_in_order(pods: Pods) -> None:
    """Each init container starts when the previous one has ended or, as a sidecar, has started. Main starts last."""
    found = pods.wait_for_running("sidecars")

    logs = [pods.log("sidecars", name) for name in ("one", "plain", "two", "main")]
    starts = [pods.wait_for_said(log, "start")[0] for log in logs]
    assert starts == sorted(starts)
    assert starts[1] >= logs[0].when("started")[0]
    for name in ("one", "two"):
        status = container(found, name)
        assert status is not None and status.started and status.ready and status.state.running is not None


# --- Processes --------------------------------------------------------------------------------------


def test_ephemeral_container_sees_its_target(core: CoreV1Api, namespace: Namespace) -> None:
    """An ephemeral container, as `kubectl debug --target` creates it, sees the processes of its target.

    The API server refuses ephemeral containers for static pods.
    """
    namespace.wait_for_running("debugged")
    looks = f"ps | grep -c ' [s]leep 7654$' > {MESSAGE}; cat /proc/1/cmdline | tr '\\0' ' ' >> {MESSAGE}; exit 0"
    debugger = {**shell(looks, "debugger"), "image": namespace.images.busybox, "targetContainerName": "main"}

    patch = {"spec": {"ephemeralContainers": [debugger]}}
    core.patch_namespaced_pod_ephemeralcontainers("debugged", namespace.name, patch)

    found = namespace.wait_for("debugged", "the debugger has ended", lambda found: debugger_ended(found) is not None)
    ended = debugger_ended(found)
    assert ended is not None and ended.exit_code == 0
    assert ended.message.startswith("1\n") and "sleep 7654" in ended.message
    assert is_running(found) and restarts(found) == 0
    namespace.wait_for_event("debugged", "Started", "Container started", "spec.ephemeralContainers{debugger}")


def debugger_ended(found: V1Pod) -> V1ContainerStateTerminated | None:
    return next((each.state.terminated for each in found.status.ephemeral_container_statuses or []), None)


@pytest.mark.parametrize(("name", "count"), [("shared", "1\n"), ("not-shared", "0\n")])
def test_containers_share_their_processes_if_told_to(pods: Pods, name: str, count: str) -> None:
    found = pods.wait_for(name, "has counted the processes", lambda found: message(found, "looks") is not None)
    assert message(found, "looks") == count


# --- Restarts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_restart_policy_of_the_pod(pods: Pods, policy: str) -> None:
    name, wanted = policy.lower(), POLICIES[policy]
    found = pods.wait_for(name, f"{wanted} restarts", lambda found: restarts(found) >= wanted)
    if policy != "Always":
        found = pods.wait_for(name, "ended", has_ended)
        assert restarts(found) == wanted
        assert found.status.phase == ("Succeeded" if wanted else "Failed")


def test_restart_policy_of_a_container(pods: Pods) -> None:
    """A container's restart policy overrides that of the pod.

    The pod does not end while one of its containers will restart.
    """

    def all_ran(found: V1Pod) -> bool:
        enough = all(restarts(found, policy.lower()) >= wanted for policy, wanted in POLICIES.items())
        return enough and terminated(found, "never") is not None

    found = pods.wait_for("own-policies", "all containers have run", all_ran)
    assert found.status.phase == "Running"
    assert (restarts(found, "onfailure"), restarts(found, "never")) == (1, 0)
    state = terminated(found, "never")
    assert state is not None and state.exit_code == 1


def test_exit_code_decides_about_the_restart(pods: Pods) -> None:
    found = pods.wait_for("exit-codes", "ended", has_ended)

    assert found.status.phase == "Failed"
    ends = {name: (restarts(found, name), state.exit_code) for name in CODES if (state := terminated(found, name))}
    assert ends == CODES


def test_exit_code_restarts_all_containers(pods: Pods) -> None:
    """All containers restart in the same sandbox: those that ended, those that run, and init containers."""
    found = pods.wait_for(
        "all-again",
        "all containers have restarted",
        lambda found: is_running(found) and all(restarts(found, name) == 1 for name in ("init", "causes", "beside")),
    )
    assert len({each.object.status.pod_ip for each in pods.history("all-again") if each.object.status.pod_ip}) == 1
    assert found.status.phase == "Running"


@pytest.mark.local
def test_pause_between_restarts_is_as_configured(pods: Pods, environment: Environment) -> None:
    """The longest pause between restarts is the configured one. By default the fourth pause would be 80 s."""
    pods.wait_for("crashes", "five restarts", lambda found: restarts(found) >= 5)

    assert environment.local is not None
    data = Path("pods", pods.uid("crashes"), "volumes", "kubernetes.io~empty-dir", "data")
    told = environment.local.kubelet.root_dir / data / "starts"
    wait_for("the sixth start in the log", lambda: len(lines_of(told)) >= 6, TIMEOUT)
    starts = [float(line.split()[0]) for line in lines_of(told)]
    assert len(starts) == 6
    assert all(after - before >= LONGEST_PAUSE - 0.2 for before, after in itertools.pairwise(starts[1:]))
    assert starts[5] - starts[4] < LONGEST_PAUSE + 40
    backing_off = f"back-off {LONGEST_PAUSE}s restarting failed container=main pod="
    pods.wait_for_seen("crashes", "back-off", lambda found: backing_off in waiting_message(found))


def waiting_message(found: V1Pod) -> str:
    main = container(found)
    return main.state.waiting.message or "" if main is not None and main.state.waiting is not None else ""


# --- Ends -------------------------------------------------------------------------------------------


@pytest.mark.local
def test_deadline_ends_the_pod(pods: Pods) -> None:
    log = pods.log("deadline")
    ended = pods.wait_for("deadline", "Failed", lambda found: found.status.phase == "Failed")

    assert ended.status.reason == "DeadlineExceeded"
    assert ended.status.message == "Pod was active on the node longer than the specified deadline"
    ((start,), (told,)) = log.when("start"), pods.wait_for_said(log, "SIGTERM")
    # The kubelet must notice the deadline by itself. The next periodic sync, up to a minute later, would be too late.
    assert told - start < DEADLINE + 25


@pytest.mark.local
def test_image_says_which_signal_stops_it(pods: Pods) -> None:
    pods.wait_for_running("signalled")
    log = pods.log("signalled")
    pods.wait_for_said(log, "start")

    pods.delete("signalled")

    pods.wait_for_said(log, "SIGQUIT")
    pods.wait_deleted("signalled")
    assert not log.when("SIGTERM")


# --- Messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("file", "from the file"),
        ("path", "from elsewhere"),
        ("log", "from the log\n"),
        ("well", ""),
        ("bad", ""),
        ("both", "the file"),
    ],
)
def test_message_comes_from(pods: Pods, name: str, text: str) -> None:
    found = pods.wait_for("messages", f"container {name} has ended", lambda found: message(found, name) is not None)
    assert message(found, name) == text


def test_message_is_capped(pods: Pods) -> None:
    """A message is cut to its last 4 KiB from a file, and to its last 2 KiB or 80 lines from a log."""
    found = pods.wait_for("long-messages", "ended", has_ended)

    written = "1234567\n" * 1000
    assert message(found, "file") == written[:5000][-4096:]
    assert message(found, "bytes") == (("x" * 99 + "\n") * 60)[-2048:]
    assert message(found, "lines") == "".join(f"{number}\n" for number in range(21, 101))


def test_messages_of_many_containers_share_a_cap(pods: Pods) -> None:
    """The messages of many containers share 12 KiB, and the beginning of each message is kept."""
    found = pods.wait_for("many-messages", "ended", has_ended)

    written = "1234567\n" * 1000
    for number in range(4):
        assert message(found, f"c{number}") == written[:3072]


# --- Input and terminal -----------------------------------------------------------------------------


def test_input_is_open_if_asked_for(pods: Pods) -> None:
    found = pods.wait_for("terminal", "container closed has ended", lambda found: message(found, "closed") is not None)

    assert message(found, "closed") == "ended"
    assert is_in_state_running(found, "open") and is_in_state_running(found, "once")


@pytest.mark.parametrize(("name", "text"), [("tty", "a terminal"), ("no-tty", "")])
def test_container_has_a_terminal_if_asked_for(pods: Pods, name: str, text: str) -> None:
    found = pods.wait_for("terminal", f"container {name} has ended", lambda found: message(found, name) is not None)
    assert message(found, name) == text


@pytest.mark.local
def test_input_once_reaches_the_runtime(pods: Pods, environment: Environment) -> None:
    """The kubelet passes `stdinOnce` to the runtime, which then closes the input after the first attached client."""
    assert environment.local is not None
    found = pods.wait_for(
        "terminal",
        "both containers are running",
        lambda found: is_in_state_running(found, "open") and is_in_state_running(found, "once"),
    )
    asked = {}
    for name in ("open", "once"):
        status = container(found, name)
        assert status is not None
        request = runtimeapi.ContainerStatusRequest(container_id=status.container_id.rpartition("/")[2], verbose=True)
        info = json.loads(environment.local.cri.runtime.ContainerStatus(request, timeout=60).info["info"])
        asked[name] = (info["config"].get("stdin", False), info["config"].get("stdin_once", False))
    assert asked == {"open": (True, False), "once": (True, True)}


# --- Memory -----------------------------------------------------------------------------------------


def test_container_that_takes_too_much_memory_is_killed_alone(pods: Pods) -> None:
    # The hog may be killed before the last container has started.
    found = pods.wait_for(
        "hungry",
        "the hog has been killed for its memory",
        lambda found: was_killed_for_memory(pods, "hog") and is_in_state_running(found, "beside"),
    )

    assert {state.exit_code for state in ends(pods, "hog")} == {137}
    assert restarts(found, "beside") == 0


@pytest.mark.local
def test_process_that_takes_too_much_memory(pods: Pods) -> None:
    """With cgroups v2 the kernel kills all processes of the container. Otherwise it kills one process.

    The parent of that process survives and reports its end.
    """
    if V2:
        pods.wait_for("hungry", "the parent has been killed", lambda _: was_killed_for_memory(pods, "parent"))
        assert {(state.exit_code, state.message) for state in ends(pods, "parent")} == {(137, None)}
    else:
        pods.wait_for("hungry", "the parent has ended", lambda _: ends(pods, "parent"))
        assert {(state.exit_code, state.message) for state in ends(pods, "parent")} == {(0, "137")}
