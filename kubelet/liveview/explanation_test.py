"""Test the sentences, with one case for each state of a pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kubelet import container as kubecontainer
from kubelet.activity import Activity
from kubelet.liveview.explanation import (
    PodFacts,
    ProbeFacts,
    State,
    explain_pod,
)
from kubelet.liveview.history import MAX_TEXT_LENGTH, Call, PodEvent
from kubelet.pod_workers import TERMINATED_POD, TERMINATING_POD, PodWorkerSnapshot
from kubelet.prober import ProbeType
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=20)
READY = v1.PodCondition(type=v1.POD_READY, status=v1.CONDITION_TRUE)
RUNNING = v1.ContainerState(running=v1.ContainerStateRunning(started_at=NOW))


def ended(code: int, reason: str = "Error", seconds: float = 3, message: str = "") -> v1.ContainerState:
    began = NOW - timedelta(seconds=60)
    return v1.ContainerState(
        terminated=v1.ContainerStateTerminated(
            container_id="c://1",
            exit_code=code,
            reason=reason,
            message=message,
            started_at=began,
            finished_at=began + timedelta(seconds=seconds),
        )
    )


def waiting(reason: str, message: str = "") -> v1.ContainerState:
    return v1.ContainerState(waiting=v1.ContainerStateWaiting(reason=reason, message=message))


def status(state: v1.ContainerState, name: str = "main", **fields: Any) -> v1.ContainerStatus:
    known = state.waiting is None or "last_state" in fields
    return v1.ContainerStatus(name=name, state=state, container_id="c://1" if known else "", **fields)


def pod(*containers: v1.Container, **spec: Any) -> v1.Pod:
    meta = metav1.ObjectMeta(namespace="ns", name="pod", uid=types.UID("1"))
    return v1.Pod(
        metadata=meta,
        spec=v1.PodSpec(containers=list(containers) or [v1.Container(name="main", image="app:1")], **spec),
    )


def pending(*statuses: v1.ContainerStatus, **fields: Any) -> v1.PodStatus:
    return v1.PodStatus(phase=v1.POD_PENDING, container_statuses=list(statuses), **fields)


def running(*statuses: v1.ContainerStatus, **fields: Any) -> v1.PodStatus:
    return v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=list(statuses), **fields)


def event(reason: str, message: str, container: str = "", **cause: Any) -> PodEvent:
    path = f"spec.containers{{{container}}}" if container else ""
    return PodEvent(NOW.timestamp(), NOW.timestamp(), "Warning", reason, message, path, **cause)


def unhealthy(probe: ProbeType, said: str) -> PodEvent:
    return event("Unhealthy", f"{probe} probe failed: {said}", "main", probe=probe, said=said)


def missing(kind: str, name: str) -> metav1.StatusDetails:
    return metav1.StatusDetails(kind=kind, name=name)


def failed(err: str, **fields: Any) -> PodWorkerSnapshot:
    return PodWorkerSnapshot(failures=2, err=err, next_step=LATER, **fields)


@dataclass
class Case:
    name: str
    state: State
    cause: str
    sentence: str
    pod: v1.Pod | None = field(default_factory=pod)
    facts: dict[str, Any] = field(default_factory=dict)
    # `until` says what the pod waits for, if the explanation must contain that.
    until: str = ""
    # The evidence must contain these texts.
    evidence: tuple[str, ...] = ()


CREATING = waiting("ContainerCreating")
RPC = "rpc error: code = Unknown desc = "
NO_MANIFEST = 'failed to pull and unpack image "app:1": failed to resolve reference "app:1": app:1: not found'
PROBED = v1.Container(
    name="main",
    image="app:1",
    startup_probe=v1.Probe(),
    liveness_probe=v1.Probe(),
    readiness_probe=v1.Probe(),
)
CASES = [
    Case(
        "never heard of",
        State.UNKNOWN,
        "Unknown",
        "This kubelet does not know this pod: no source contains it, and none of its containers runs.",
        pod=None,
    ),
    Case(
        "gone",
        State.GONE,
        "Removed",
        "It is gone: no source contains it any longer, and none of its containers runs.",
        pod=None,
        facts={"events": [event("Killing", "Stopping container main")]},
    ),
    Case(
        "ready",
        State.READY,
        "Ready",
        "It is running and ready.",
        facts={"status": running(status(RUNNING, ready=True), conditions=[READY])},
    ),
    Case(
        "ready after restarts",
        State.READY,
        "Ready",
        "It is running and ready; container main has been restarted once, most recently after it ended with exit "
        "code 7.",
        facts={
            "status": running(status(RUNNING, ready=True, restart_count=1, last_state=ended(7)), conditions=[READY])
        },
        evidence=("main ended with exit code 7",),
    ),
    Case(
        "succeeded",
        State.SUCCEEDED,
        "Succeeded",
        "It has succeeded: all its containers ended with exit code 0.",
        facts={"status": v1.PodStatus(phase=v1.POD_SUCCEEDED)},
    ),
    Case(
        "failed",
        State.FAILED,
        "ContainerFailed",
        "It has failed permanently: container main ended with exit code 3, and is not restarted (restartPolicy Never).",
        pod=pod(restart_policy="Never"),
        facts={
            "status": v1.PodStatus(phase=v1.POD_FAILED, container_statuses=[status(ended(3))]),
            "last_log_lines": {"main": "no such table"},
        },
        evidence=("no such table",),
    ),
    Case(
        "refused",
        State.REFUSED,
        "OutOfcpu",
        "This node has rejected it permanently: Node didn't have enough resource: cpu, requested: 9000 (OutOfcpu).",
        facts={
            "status": v1.PodStatus(
                phase=v1.POD_FAILED,
                reason="OutOfcpu",
                message="Pod was rejected: Node didn't have enough resource: cpu, requested: 9000",
            )
        },
        evidence=("OutOfcpu: Node didn't",),
    ),
    Case(
        "refused, which the status does not say in these words",
        State.REFUSED,
        "OutOfcpu",
        "This node has rejected it permanently: too much (OutOfcpu).",
        facts={"refused": True, "status": v1.PodStatus(phase=v1.POD_FAILED, reason="OutOfcpu", message="too much")},
    ),
    Case(
        "crash of a container that a probe has not ended",
        State.STUCK,
        "CrashLoop",
        "Its container main ended with exit code 1 after 3 s, once so far.",
        pod=pod(PROBED),
        facts={
            "status": running(status(waiting("CrashLoopBackOff"), last_state=ended(1))),
            "events": [
                unhealthy(ProbeType.LIVENESS, "no heartbeat"),
                event("Killing", "Container main failed liveness probe", "main"),
            ],
        },
    ),
    Case(
        "evicted",
        State.FAILED,
        "Evicted",
        "It was evicted because the node was short of a resource: The node was low on resource: memory.",
        facts={
            "status": v1.PodStatus(
                phase=v1.POD_FAILED, reason="Evicted", message="The node was low on resource: memory."
            )
        },
    ),
    Case(
        "deadline",
        State.FAILED,
        "DeadlineExceeded",
        "It ran longer than its activeDeadlineSeconds allows: Pod was active on the node longer.",
        facts={
            "status": v1.PodStatus(
                phase=v1.POD_FAILED, reason="DeadlineExceeded", message="Pod was active on the node longer"
            )
        },
    ),
    Case(
        "stopping",
        State.STOPPING,
        "Terminating",
        "It is being deleted: container main still runs (grace period 30 s).",
        facts={
            "status": running(status(RUNNING)),
            "worker": PodWorkerSnapshot(phase=TERMINATING_POD, deleted=True, grace_period=30, terminating_at=NOW),
        },
        until="killed if still running",
    ),
    Case(
        "stopping, its status forgotten",
        State.STOPPING,
        "Terminating",
        "It is being deleted: container main still runs (grace period 30 s).",
        pod=None,
        facts={
            "worker": PodWorkerSnapshot(phase=TERMINATING_POD, deleted=True, grace_period=30, terminating_at=NOW),
            "calls": [Call("stop_container", NOW.timestamp(), types.UID("1"), "main")],
        },
        evidence=("stop_container main",),
        until="killed if still running",
    ),
    Case(
        "stopping with a grace period that never ends",
        State.STOPPING,
        "Terminating",
        "It is being deleted: container main still runs (grace period 9223372036854775807 s).",
        facts={
            "status": running(status(RUNNING)),
            "worker": PodWorkerSnapshot(
                phase=TERMINATING_POD, deleted=True, grace_period=2**63 - 1, terminating_at=NOW
            ),
        },
        until="killed if still running",
    ),
    Case(
        "outlives its grace period",
        State.STOPPING,
        "Terminating",
        "It is being deleted: containers a and b still run although its grace period is over.",
        facts={
            "status": running(status(RUNNING, "a"), status(RUNNING, "b")),
            "worker": PodWorkerSnapshot(
                phase=TERMINATING_POD, deleted=True, grace_period=5, terminating_at=NOW - timedelta(seconds=30)
            ),
        },
        until="killed if still running",
    ),
    Case(
        "cannot be stopped",
        State.STUCK,
        "CannotStop",
        "It is being deleted, but its containers cannot be stopped: error killing pod: no answer.",
        facts={
            "status": running(status(RUNNING)),
            "worker": failed("error killing pod: no answer", phase=TERMINATING_POD, deleted=True),
        },
        until="next attempt",
        evidence=("error killing pod: no answer",),
    ),
    Case(
        "cannot be cleaned up",
        State.STUCK,
        "CannotCleanUp",
        "Its containers have stopped, but it cannot be cleaned up: mounted volumes=[nfs]: context deadline exceeded.",
        facts={"worker": failed("mounted volumes=[nfs]: context deadline exceeded", phase=TERMINATED_POD)},
        until="next attempt",
    ),
    Case(
        "is cleaned up",
        State.STOPPING,
        "CleaningUp",
        "Its containers have stopped; it waits until volumes are unmounted.",
        facts={"worker": PodWorkerSnapshot(phase=TERMINATED_POD, activity=Activity.WAITS_FOR_UNMOUNT)},
    ),
    Case(
        "runtime is down",
        State.STUCK,
        "NodeNotReady",
        "The kubelet currently syncs no pods on this node: container runtime is down.",
        facts={"node_problem": "container runtime is down", "worker": PodWorkerSnapshot()},
    ),
    Case(
        "static pod waits for its name",
        State.STUCK,
        "WaitsForSameName",
        "It waits because the pod of the same name with UID 2 is still running: static pods with the same name never "
        "run at the same time.",
        facts={"worker": PodWorkerSnapshot(waits_to_start=True, runs_instead="2", next_step=LATER)},
        until="next check",
    ),
    Case(
        "no network",
        State.STUCK,
        "NetworkNotReady",
        "It waits for the node's pod network: cni plugin not initialized.",
        facts={
            "network_problem": "cni plugin not initialized",
            "status": pending(status(CREATING)),
            "worker": failed("network is not ready: cni plugin not initialized"),
        },
        until="next attempt",
    ),
    Case(
        "the host's network needs none",
        State.STARTING,
        "Starting",
        "It is starting: the next relist of the PLEG will show the result of its last step.",
        pod=pod(host_network=True),
        facts={
            "network_problem": "cni plugin not initialized",
            "status": pending(status(CREATING)),
            "worker": PodWorkerSnapshot(next_step=LATER),
        },
        until="next step",
    ),
    Case(
        "volumes on their way",
        State.STARTING,
        "Volumes",
        "It waits for its volumes a and b to be mounted.",
        facts={
            "unmounted": ["a", "b"],
            "status": pending(status(CREATING)),
            "worker": PodWorkerSnapshot(step_began=NOW, activity=Activity.WAITS_FOR_VOLUMES),
        },
    ),
    Case(
        "config map of a volume",
        State.STUCK,
        "MissingObject",
        "It waits for its volume settings: ConfigMap app does not exist in namespace ns.",
        facts={
            "unmounted": ["settings"],
            "status": pending(status(CREATING)),
            "worker": PodWorkerSnapshot(step_began=NOW),
            "events": [
                event(
                    "FailedMount",
                    'MountVolume.SetUp failed for volume "settings" : configmap "app" not found',
                    missing=missing("configmap", "app"),
                )
            ],
        },
        evidence=('configmap "app" not found',),
    ),
    Case(
        "volume that cannot be mounted",
        State.STUCK,
        "VolumeFailed",
        "It waits for its volume data: mount.nfs: access denied by server.",
        facts={
            "unmounted": ["data"],
            "status": pending(status(CREATING)),
            "worker": failed(
                "unmounted volumes=[data], unattached volumes=[]: context deadline exceeded",
                failed_at=Activity.WAITS_FOR_VOLUMES,
            ),
            "events": [
                event("FailedMount", 'MountVolume.SetUp failed for volume "data" : mount.nfs: access denied by server'),
                event("FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data]: timed out"),
            ],
        },
        until="next attempt",
        evidence=("access denied by server", "context deadline exceeded"),
    ),
    Case(
        "claim that is not there",
        State.STUCK,
        "MissingObject",
        "It waits for its volume data: PersistentVolumeClaim mine does not exist in namespace ns.",
        facts={
            "unmounted": ["data"],
            "status": pending(status(CREATING)),
            "worker": failed(
                "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing "
                'PVC ns/mine: failed to fetch PVC from API server: persistentvolumeclaims "mine" not found',
                failed_at=Activity.WAITS_FOR_VOLUMES,
                missing=missing("persistentvolumeclaims", "mine"),
            ),
        },
        until="next attempt",
    ),
    Case(
        "sandbox",
        State.STUCK,
        "SandboxFailed",
        'The runtime cannot create its sandbox: plugin type="bridge" failed (add): no IP addresses available.',
        facts={
            "status": pending(status(CREATING)),
            "worker": failed("failed to CreatePodSandbox"),
            "events": [
                event(
                    "FailedCreatePodSandBox",
                    f'Failed to create pod sandbox: {RPC}plugin type="bridge" failed (add): no IP addresses available',
                )
            ],
        },
        until="next attempt",
    ),
    Case(
        "sandbox of which no event tells",
        State.STUCK,
        "SandboxFailed",
        "The runtime cannot create its sandbox: no.",
        facts={
            "status": pending(status(CREATING)),
            "worker": failed("no", failed_actions=frozenset({kubecontainer.KILL_POD_SANDBOX})),
        },
        until="next attempt",
        evidence=("no",),
    ),
    Case(
        "cgroup",
        State.STUCK,
        "SandboxFailed",
        "The runtime cannot create its sandbox: no.",
        facts={"status": pending(status(CREATING)), "worker": failed("no", failed_at=Activity.MAKES_CGROUP)},
        until="next attempt",
        evidence=("no",),
    ),
    Case(
        "error that speaks of a sandbox and of volumes",
        State.STUCK,
        "SyncFailed",
        "Its last sync failed: no sandbox for volumes=[data].",
        facts={
            "status": pending(status(CREATING)),
            "unmounted": ["data"],
            "worker": failed("no sandbox for volumes=[data]", failed_at=Activity.SYNCS),
        },
        until="next attempt",
    ),
    Case(
        "image that is not there",
        State.STUCK,
        "ImagePull",
        'Its container main waits because image "app:1" cannot be pulled: not found.',
        facts={
            "status": pending(status(CREATING)),
            "reasons": {"main": ("ErrImagePull", f"{RPC}{NO_MANIFEST}")},
            "pull_at": {"app:1": LATER},
            "worker": failed('failed to "StartContainer"'),
        },
        until="next pull",
        evidence=(NO_MANIFEST,),
    ),
    Case(
        "image pull in back-off",
        State.STUCK,
        "ImagePull",
        'Its container main waits because image "app:1" cannot be pulled: not found.',
        facts={
            "status": pending(
                status(waiting("ImagePullBackOff", f'Back-off pulling image "app:1": ErrImagePull: {RPC}{NO_MANIFEST}'))
            ),
            "pull_at": {"app:1": LATER},
        },
        until="next pull",
    ),
    Case(
        "image name that is none",
        State.STUCK,
        "InvalidImageName",
        'Its container main cannot start: "app:1" is not a valid image name.',
        facts={"status": pending(status(waiting("InvalidImageName", "could not parse")))},
    ),
    Case(
        "image that must not be pulled",
        State.STUCK,
        "ErrImageNeverPull",
        'Its container main cannot start: image "app:1" is not on this node, and its pull policy is Never.',
        facts={"status": pending(status(waiting("ErrImageNeverPull", "not present with pull policy of Never")))},
    ),
    Case(
        "secret of a variable",
        State.STUCK,
        "MissingObject",
        "Its container main cannot be configured: Secret smtp does not exist in namespace ns.",
        facts={
            "status": pending(status(waiting("CreateContainerConfigError", 'secret "smtp" not found'))),
            "worker": failed("CreateContainerConfigError"),
            "missing": {"main": missing("secrets", "ns/smtp")},
        },
        until="next attempt",
    ),
    Case(
        "key of a secret",
        State.STUCK,
        "CreateContainerConfigError",
        "Its container main cannot be configured: couldn't find key password in Secret ns/smtp.",
        facts={
            "status": pending(
                status(waiting("CreateContainerConfigError", "couldn't find key password in Secret ns/smtp"))
            )
        },
    ),
    Case(
        "runtime refuses the container",
        State.STUCK,
        "CreateContainerError",
        "Its container main cannot be started: device not found.",
        facts={"status": pending(status(waiting("CreateContainerError", f"{RPC}device not found")))},
    ),
    Case(
        "crash loop",
        State.STUCK,
        "CrashLoop",
        "Its container main ended with exit code 1 after 3 s, 5 times so far; its last output was "
        '"cannot reach db:5432".',
        facts={
            "status": running(status(waiting("CrashLoopBackOff"), last_state=ended(1), restart_count=4)),
            "restart_at": {"main": LATER},
            "last_log_lines": {"main": "cannot reach db:5432"},
        },
        until="next start",
        evidence=("exit code 1 after 3 s", "cannot reach db:5432"),
    ),
    Case(
        "killed for its memory",
        State.STUCK,
        "OOMKilled",
        "Its container main was killed because it used more memory than its limit (OOMKilled) after 3 s, once so far; "
        "its limit is 16Mi.",
        pod=pod(
            v1.Container(
                name="main", resources=v1.ResourceRequirements(limits={"memory": resource.parse_quantity("16Mi")})
            )
        ),
        facts={"status": running(status(waiting("CrashLoopBackOff"), last_state=ended(137, "OOMKilled")))},
    ),
    Case(
        "program that is not in the image",
        State.STUCK,
        "CannotRun",
        'Its container main cannot be started: exec: "/bin/serve": stat /bin/serve: no such file or directory.',
        facts={
            "status": running(
                status(
                    waiting("CrashLoopBackOff"),
                    last_state=ended(
                        128,
                        "StartError",
                        message="failed to create containerd task: OCI runtime create failed: unable to start "
                        'container process: exec: "/bin/serve": stat /bin/serve: no such file or directory: unknown',
                    ),
                )
            ),
            "restart_at": {"main": LATER},
        },
        until="next attempt",
    ),
    Case(
        "killed by its liveness probe",
        State.STUCK,
        "LivenessProbe",
        "Its container main is killed repeatedly because its liveness probe fails: no heartbeat.",
        pod=pod(PROBED),
        facts={
            "status": running(status(waiting("CrashLoopBackOff"), last_state=ended(137), restart_count=3)),
            "events": [
                unhealthy(ProbeType.LIVENESS, "no heartbeat"),
                event("Killing", "Container main failed liveness probe, will be restarted", "main"),
            ],
            "killed_for": {"main": "LivenessProbe"},
            "restart_at": {"main": LATER},
        },
        until="next start",
        evidence=("Liveness probe failed: no heartbeat",),
    ),
    Case(
        "about to be restarted",
        State.STARTING,
        "Restarting",
        "Its container main ended with exit code 1 within a second of its start, and is about to be restarted.",
        pod=pod(restart_policy="Always"),
        facts={"status": running(status(ended(1, seconds=0)))},
    ),
    Case(
        "init container that fails",
        State.STUCK,
        "InitCrashLoop",
        "Its init container schema ended with exit code 3 after 3 s, 2 times so far.",
        pod=pod(init_containers=[v1.Container(name="schema")]),
        facts={
            "status": pending(
                status(waiting("PodInitializing")),
                init_container_statuses=[
                    status(waiting("CrashLoopBackOff"), "schema", last_state=ended(3), restart_count=1)
                ],
            )
        },
    ),
    Case(
        "init container that runs",
        State.STARTING,
        "Initializing",
        "Its init container schema is running; the next containers start when it has ended.",
        pod=pod(init_containers=[v1.Container(name="schema")]),
        facts={
            "status": pending(status(waiting("PodInitializing")), init_container_statuses=[status(RUNNING, "schema")])
        },
    ),
    Case(
        "startup probe that has not been asked yet",
        State.STARTING,
        "StartupProbe",
        "Its container main has not passed its startup probe yet.",
        pod=pod(PROBED),
        facts={
            "status": running(status(RUNNING, started=False)),
            "probes": [ProbeFacts(container="main", type="Startup", next_at=LATER)],
        },
        until="next probe",
    ),
    Case(
        "startup probe that fails",
        State.STUCK,
        "StartupProbe",
        "Its container main has not passed its startup probe yet: connection refused.",
        pod=pod(PROBED),
        facts={
            "status": running(status(RUNNING, started=False)),
            "probes": [ProbeFacts(container="main", type="Startup", result="FAILURE", run=2, what="TCP port 80")],
            "events": [unhealthy(ProbeType.STARTUP, "connection refused")],
        },
        evidence=("Startup of main: TCP port 80, every 10 s, failed 2 times in a row, limit 3",),
    ),
    Case(
        "readiness probe that fails",
        State.NOT_READY,
        "ReadinessProbe",
        "Its container main runs but is not ready: its readiness probe fails: HTTP probe failed with statuscode: 503.",
        pod=pod(v1.Container(name="main", readiness_probe=v1.Probe())),
        facts={
            "status": running(status(RUNNING, started=True)),
            "probes": [ProbeFacts(container="main", type="Readiness", result="FAILURE", run=4, next_at=LATER)],
            "events": [unhealthy(ProbeType.READINESS, "HTTP probe failed with statuscode: 503")],
        },
        until="next probe",
    ),
    Case(
        "readiness gate",
        State.NOT_READY,
        "ReadinessGate",
        "Its containers are ready, but its readiness gate example.com/lb is not: another program must set this "
        "condition.",
        pod=pod(readiness_gates=[v1.PodReadinessGate(condition_type="example.com/lb")]),
        facts={"status": running(status(RUNNING, ready=True))},
    ),
    Case(
        "fault that has no sentence of its own",
        State.STUCK,
        "SyncFailed",
        "Its last sync failed: error making pod data directories: disk full.",
        facts={"worker": failed("error making pod data directories: disk full"), "status": pending(status(CREATING))},
        until="next attempt",
    ),
    Case(
        "image is being pulled",
        State.STARTING,
        "Pulling",
        'It is starting: image "app:1" is being pulled.',
        facts={
            "status": pending(status(CREATING)),
            "worker": PodWorkerSnapshot(step_began=NOW),
            "calls": [Call("pull_image", NOW.timestamp(), types.UID("1"), subject="app:1")],
        },
        evidence=("pull_image app:1",),
    ),
    Case(
        "is being started",
        State.STARTING,
        "Starting",
        "It is starting: it waits for the runtime to create its sandbox.",
        facts={
            "status": pending(status(CREATING)),
            "worker": PodWorkerSnapshot(step_began=NOW, activity=Activity.SYNCS),
            "calls": [Call("run_podsandbox", NOW.timestamp(), types.UID("1"))],
        },
        evidence=("waits for the runtime to create its sandbox (InstrumentedRuntimeService.run_pod_sandbox)",),
    ),
    Case("just seen", State.STARTING, "Seen", "The kubelet has received it, and its pod worker is about to start."),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_explain_pod(case: Case) -> None:
    found = explain_pod(PodFacts(namespace="ns", name="pod", now=NOW, pod=case.pod, **case.facts))

    assert (found.state, found.cause, found.sentence) == (case.state, case.cause, case.sentence)
    assert (found.until_what if found.until is not None else "") == case.until
    said = "\n".join(evidence.text for evidence in found.evidence)
    for text in case.evidence:
        assert text in said


@pytest.mark.parametrize("hours", [-12, 14])
def test_end_of_an_endless_grace_period_is_a_time_everywhere(hours: int) -> None:
    worker = PodWorkerSnapshot(phase=TERMINATING_POD, deleted=True, grace_period=2**63 - 1, terminating_at=NOW)
    facts = PodFacts(namespace="ns", name="pod", now=NOW, status=running(status(RUNNING)), worker=worker)
    until = explain_pod(facts).until
    assert until is not None
    # The kubelet sends the moment to `kubelet explain` as a number of seconds.
    assert datetime.fromtimestamp(until.timestamp(), timezone(timedelta(hours=hours))).year == 9999


def test_a_worker_at_work_does_not_say_when_it_tries_again() -> None:
    facts = PodFacts(
        namespace="ns",
        name="pod",
        now=NOW,
        pod=pod(),
        status=pending(status(waiting("CreateContainerConfigError", 'secret "x" not found'))),
        worker=failed("no", step_began=NOW),
    )
    assert explain_pod(facts).until is None


@pytest.mark.parametrize(("restart", "step"), [(10, 18), (18, 10)], ids=["back-off ends first", "step comes first"])
def test_container_starts_at_the_first_step_after_its_back_off(restart: int, step: int) -> None:
    facts = PodFacts(
        namespace="ns",
        name="pod",
        now=NOW,
        pod=pod(),
        status=running(status(waiting("CrashLoopBackOff"), last_state=ended(1))),
        worker=PodWorkerSnapshot(failures=1, next_step=NOW + timedelta(seconds=step)),
        restart_at={"main": NOW + timedelta(seconds=restart)},
    )
    assert explain_pod(facts).until == NOW + timedelta(seconds=18)


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        ({}, "kubectl logs --previous -n ns pod -c main"),
        ({"standalone": True, "last_logs": {"main": "/var/log/pods/x/main/1.log"}}, "read /var/log/pods/x/main/1.log"),
        ({"standalone": True}, ""),
    ],
    ids=["with an API server", "without one", "without a log"],
)
def test_advice_on_a_container_that_crashes(facts: dict[str, Any], advice: str) -> None:
    crashing = running(status(waiting("CrashLoopBackOff"), last_state=ended(1)))
    found = explain_pod(PodFacts(namespace="ns", name="pod", now=NOW, pod=pod(), status=crashing, **facts))
    assert (found.cause, found.advice) == ("CrashLoop", advice)


@pytest.mark.parametrize(
    ("standalone", "advice"),
    [(False, "create Secret x; "), (True, "put Secret x into the manifest directory; ")],
)
def test_advice_on_what_is_missing(standalone: bool, advice: str) -> None:
    waits = pending(status(waiting("CreateContainerConfigError", 'secret "x" not found')))
    facts = PodFacts(namespace="ns", name="pod", now=NOW, pod=pod(), status=waits, standalone=standalone)
    facts.missing["main"] = missing("secret", "x")
    assert explain_pod(facts).advice == f"{advice}the pod continues as soon as it exists"


def test_long_errors_are_cut_in_the_sentence_only() -> None:
    error = "word " * 100
    facts = PodFacts(namespace="ns", name="pod", now=NOW, pod=pod(), worker=failed(error), status=pending())

    found = explain_pod(facts)

    assert len(found.sentence) < 240 and found.sentence.endswith("…")
    assert found.evidence[0].text == error


def test_error_that_quotes_a_long_name() -> None:
    """A very long name in an error does not make the explanation slow: an image may contain any user name."""
    message = f"container has runAsNonRoot and image has non-numeric user (secret {'a/' * 500_000})"
    facts = PodFacts(
        namespace="ns", name="pod", now=NOW, pod=pod(), reasons={"main": ("CreateContainerConfigError", message)}
    )
    facts.status = pending(status(waiting("CreateContainerConfigError")))

    found = explain_pod(facts)

    assert found.cause == "CreateContainerConfigError"
    assert all(len(evidence.text) < MAX_TEXT_LENGTH + 100 for evidence in found.evidence)
