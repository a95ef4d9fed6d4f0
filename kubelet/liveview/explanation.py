"""Explain in one sentence why a pod is not running, with evidence.

Go: none

`explain_pod` checks the possible causes in the order in which a pod meets them, and returns the first that applies. It
works on facts alone, so that every sentence can be tested without a kubelet. Sentences do not contain times such as "in
10 s", which would be wrong soon after. The field `until` says how long the pod waits, and the client shows a countdown.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.events import CONTAINER_UNHEALTHY
from kubelet.kuberuntime import REASON_LIVENESS_PROBE, REASON_STARTUP_PROBE
from kubelet.liveview import activity
from kubelet.liveview.history import Call, PodEvent, describe_end, shortened
from kubelet.liveview.words import spoken
from kubelet.pod_workers import SYNC_POD, TERMINATED_POD, TERMINATING_POD, PodWorkerSnapshot
from kubelet.prober import ProbeType
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.apis.meta import v1 as metav1

# This is one day before the last moment of datetime, so that every time zone can represent it.
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "ErrImageNeverPull",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_STARTING_REASONS = frozenset({"", "ContainerCreating", "PodInitializing"})
# Containers that ended for these reasons never ran their program.
_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
# A pod has no sandbox until these actions succeed.
_SANDBOX_ACTIONS = frozenset(
    {kubecontainer.CREATE_POD_SANDBOX, kubecontainer.CONFIG_POD_SANDBOX, kubecontainer.KILL_POD_SANDBOX}
)
_VOLUME_EVENTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
# A sentence quotes at most this many characters of an error. The evidence contains all of it.
_QUOTE = 200


class State(enum.StrEnum):
    """Represent the overall state of a pod, for example to choose a color."""

    READY = "ready"
    NOT_READY = "not ready"
    STARTING = "starting"
    # The pod cannot continue until something happens or changes. The kubelet tries again.
    STUCK = "stuck"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Evidence:
    """Record a message or a measurement that supports the sentence. `source` names its origin."""

    source: str
    text: str
    at: datetime | None = None
    # `count` is the number of times that the message occurred, or 0 if the number is meaningless.
    count: int = 0


@dataclass(slots=True)
class Explanation:
    """Hold the sentence and its details.

    `cause` is one word for programs, and `container` is the container that the sentence is about, if any.
    """

    state: State
    cause: str
    sentence: str
    evidence: list[Evidence] = field(default_factory=list)
    container: str = ""
    # The fields below say what the pod waits for and until when, if that is known.
    until: datetime | None = None
    until_what: str = ""
    # `advice` says what a person can do about the problem. It is empty if there is nothing to do.
    advice: str = ""


@dataclass(slots=True, kw_only=True)
class ProbeFacts:
    """Describe one probe of one container."""

    container: str
    # The type is Liveness, Readiness or Startup.
    type: str
    # The result is SUCCESS, FAILURE or UNKNOWN, or an empty string before the first result.
    result: str = ""
    # `run` counts equal results in a row. The probe has failed after `failure_threshold` failures in a row.
    run: int = 0
    failure_threshold: int = 3
    period: float = 10.0
    what: str = ""
    next_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class PodFacts:
    """Hold the known facts about a pod at one time."""

    namespace: str
    name: str
    now: datetime
    # The pod is None when it is no longer in any source.
    pod: v1.Pod | None = None
    # A standalone kubelet has no API server, so advice must not mention kubectl.
    standalone: bool = False
    # `remembered` means that the history has an entry for the pod, `refused` that this kubelet rejected it permanently.
    remembered: bool = False
    refused: bool = False
    status: v1.PodStatus = field(default_factory=v1.PodStatus)
    worker: PodWorkerSnapshot | None = None
    # These problems prevent the start of any pod, or of any pod without host network.
    node_problem: str = ""
    network_problem: str = ""
    events: Sequence[PodEvent] = ()
    calls: Sequence[Call] = ()
    probes: Sequence[ProbeFacts] = ()
    unmounted: Sequence[str] = ()
    # This field holds the reason and the message of each container's last failed start; the keys are container names.
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)
    # These fields hold the object whose absence prevented a start, and the reason for the last kill; the keys are
    # container names.
    missing: dict[str, metav1.StatusDetails] = field(default_factory=dict)
    killed_for: dict[str, str] = field(default_factory=dict)
    # These fields hold the times when a container will be started again and when an image will be pulled again; the
    # keys are the names of the containers and of the images.
    restart_at: dict[str, datetime] = field(default_factory=dict)
    pull_at: dict[str, datetime] = field(default_factory=dict)
    # These fields of the pod's manifest do not exist in the API.
    unknown_fields: Sequence[str] = ()
    # This field holds the last line that each container wrote, only for containers that ended with an error.
    last_log_lines: dict[str, str] = field(default_factory=dict)
    # This field holds the log file that contains the line, or would contain it; the keys are container names.
    last_logs: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def explain_pod(facts: PodFacts) -> Explanation:
    """Explain the state of the pod."""
    found = _explain(facts)
    found.evidence += [
        Evidence("manifest", f"{name}: a pod has no such field, so the kubelet ignores it")
        for name in facts.unknown_fields
    ]
    return found


def _explain(facts: PodFacts) -> Explanation:
    for cause in _CAUSES:
        if (found := cause(facts)) is not None:
            return found
    return _starting(facts)


# ---- Pods at their end ----


def _gone(facts: PodFacts) -> Explanation | None:
    if facts.pod is not None or facts.worker is not None:
        return None
    if facts.remembered or facts.events:
        return Explanation(
            State.GONE, "Removed", "It is gone: no source contains it any longer, and none of its containers runs."
        )
    sentence = "This kubelet does not know this pod: no source contains it, and none of its containers runs."
    return Explanation(State.UNKNOWN, "Unknown", sentence)


def _ended(facts: PodFacts) -> Explanation | None:
    """Explain a pod that was rejected or evicted, or that failed or succeeded.

    A pod whose containers are still being stopped is left to `_stopping`.
    """
    status, worker = facts.status, facts.worker
    still_stopping = worker is not None and worker.phase is TERMINATING_POD and not worker.finished
    if status.phase not in (v1.POD_FAILED, v1.POD_SUCCEEDED) or still_stopping:
        return None
    if status.phase == v1.POD_SUCCEEDED:
        return Explanation(State.SUCCEEDED, "Succeeded", "It has succeeded: all its containers ended with exit code 0.")
    message = status.message.removeprefix(kubetypes.REJECTED_POD_MESSAGE)
    # After a restart of the kubelet, only the message in the status tells that the pod was rejected.
    if facts.refused or status.message.startswith(kubetypes.REJECTED_POD_MESSAGE):
        sentence = f"This node has rejected it permanently: {_quote(message or status.reason)} ({status.reason})."
        evidence = [Evidence("admission", f"{status.reason}: {message}"), *_said(facts, status.reason)]
        return Explanation(State.REFUSED, status.reason, sentence, evidence, advice=_advice_for_refused(status.reason))
    if status.reason == "Evicted":
        sentence = f"It was evicted because the node was short of a resource: {_quote(message)}"
        return Explanation(State.FAILED, "Evicted", _end(sentence), [Evidence("status", message)])
    if status.reason == "DeadlineExceeded":
        sentence = f"It ran longer than its activeDeadlineSeconds allows: {_quote(message)}"
        return Explanation(State.FAILED, "DeadlineExceeded", _end(sentence), [Evidence("status", message)])
    for container, ended in _failed_containers(status):
        sentence = f"It has failed permanently: container {container.name} {describe_end(ended)}, and is not restarted"
        sentence += f" (restartPolicy {facts.pod.spec.restart_policy})." if facts.pod is not None else "."
        evidence = _end_evidence(facts, container, ended)
        return Explanation(State.FAILED, "ContainerFailed", sentence, evidence, container.name)
    sentence = f"It has failed: {_quote(message or status.reason or 'the reason is unknown')}"
    return Explanation(State.FAILED, status.reason or "Failed", _end(sentence), [Evidence("status", message)])


def _advice_for_refused(reason: str) -> str:
    if reason.startswith("OutOf"):
        return "free resources on the node or lower the pod's requests, then create the pod again"
    return "change the pod or the node accordingly, then create the pod again"


def _after(moment: datetime, seconds: float) -> datetime:
    """Return `moment` plus `seconds`, limited to the last moment that every time zone can represent.

    The limit is needed because a grace period may have any length.
    """
    return moment + timedelta(seconds=min(seconds, (_LAST_MOMENT - moment).total_seconds()))


def _stopping(facts: PodFacts) -> Explanation | None:
    worker = facts.worker
    if worker is None or worker.phase is SYNC_POD:
        return None
    if worker.finished:
        return Explanation(State.GONE, "Finished", "It has terminated, and its clean-up is complete.")
    why = "was evicted" if worker.evicted else "is being deleted" if worker.deleted else "is being stopped"
    if worker.phase is TERMINATED_POD:
        return _cleaning_up(facts, worker)
    began = worker.terminating_at or facts.now
    until = _after(began, worker.grace_period) if worker.grace_period else None
    running = [each.name for each in _all_statuses(facts.status) if each.state.running is not None]
    # When no source has the pod any longer, its status is forgotten before its containers have stopped.
    running = running or [call.container for call in facts.calls if call.operation == "stop_container"]
    evidence = [*_calls_evidence(facts), *_said(facts, "FailedKillPod", "FailedPreStopHook", "Killing")]
    if worker.failures:
        evidence.insert(0, Evidence("last step", worker.err, worker.step_ended, worker.failures))
        sentence = f"It {why}, but its containers cannot be stopped: {_quote(worker.err)}"
        return Explanation(
            State.STUCK, "CannotStop", _end(sentence), evidence, until=worker.next_step, until_what=_RETRY
        )
    if running:
        late = until is not None and facts.now - timedelta(seconds=2) > until
        sentence = f"It {why}: {_containers(running)} still {_runs(running)}"
        sentence += " although its grace period is over." if late else f" (grace period {worker.grace_period} s)."
        return Explanation(
            State.STOPPING, "Terminating", sentence, evidence, until=until, until_what="killed if still running"
        )
    sentence = f"It {why}: its containers have stopped, and the runtime is stopping its sandbox."
    return Explanation(State.STOPPING, "Terminating", sentence, evidence)


def _cleaning_up(facts: PodFacts, worker: PodWorkerSnapshot) -> Explanation:
    evidence = [*_said(facts, "FailedUnmount", "FailedMount"), *_calls_evidence(facts)]
    if worker.err and worker.failures:
        evidence.insert(0, Evidence("last step", worker.err, worker.step_ended, worker.failures))
        sentence = f"Its containers have stopped, but it cannot be cleaned up: {_quote(worker.err)}"
        return Explanation(
            State.STUCK, "CannotCleanUp", _end(sentence), evidence, until=worker.next_step, until_what=_RETRY
        )
    step = activity.of_worker(worker, facts.calls)
    what = step.text if step is not None else "is being cleaned up"
    return Explanation(State.STOPPING, "CleaningUp", f"Its containers have stopped; it {what}.", evidence)


def _is_ready(facts: PodFacts) -> Explanation | None:
    status = facts.status
    if status.phase != v1.POD_RUNNING or not podutil.is_pod_ready_condition_true(status):
        return None
    count = len(status.container_statuses)
    sentence = "It is running and ready" + (f", with all {count} containers" if count > 1 else "")
    evidence = []
    restarted = [each for each in status.container_statuses if each.restart_count]
    for each in restarted:
        if (ended := each.last_state.terminated) is not None:
            evidence.append(Evidence("last exit", f"{each.name} {describe_end(ended)}", ended.finished_at))
    if restarted:
        latest = max(restarted, key=lambda each: each.restart_count)
        times = "once" if latest.restart_count == 1 else f"{latest.restart_count} times"
        sentence += f"; container {latest.name} has been restarted {times}"
        if (ended := latest.last_state.terminated) is not None:
            sentence += f", most recently after it {describe_end(ended)}"
    sentence += "."
    return Explanation(State.READY, "Ready", sentence, evidence)


# ---- Problems that affect every pod ----


def _node_is_down(facts: PodFacts) -> Explanation | None:
    if not facts.node_problem:
        return None
    sentence = f"The kubelet currently syncs no pods on this node: {_quote(facts.node_problem)}"
    evidence = [Evidence("runtime state", facts.node_problem)]
    return Explanation(State.STUCK, "NodeNotReady", _end(sentence), evidence, advice="check the container runtime")


def _waits_for_turn(facts: PodFacts) -> Explanation | None:
    worker = facts.worker
    if worker is None or not worker.waits_to_start:
        return None
    who = (
        f"the pod of the same name with UID {worker.runs_instead}"
        if worker.runs_instead
        else "another pod of the same name"
    )
    sentence = f"It waits because {who} is still running: static pods with the same name never run at the same time."
    return Explanation(State.STUCK, "WaitsForSameName", sentence, [], until=worker.next_step, until_what="next check")


def _no_network(facts: PodFacts) -> Explanation | None:
    if not facts.network_problem or facts.pod is None or facts.pod.spec.host_network or _any_container(facts):
        return None
    sentence = f"It waits for the node's pod network: {_quote(facts.network_problem)}"
    advice = "install or repair the node's network plugin (CNI configuration)"
    evidence = [Evidence("runtime", facts.network_problem), *_said(facts, "NetworkNotReady")]
    return Explanation(State.STUCK, "NetworkNotReady", _end(sentence), evidence, advice=advice, **_retry(facts))


# ---- Before the first container ----


def _volumes(facts: PodFacts) -> Explanation | None:
    """Explain which volumes are missing, and why."""
    if not facts.unmounted or _any_container(facts):
        return None
    at_it = facts.worker is not None and facts.worker.activity is Activity.WAITS_FOR_VOLUMES
    mount_errors = _last_events(facts, *_VOLUME_EVENTS)
    said = [_evidence_of(event) for event in mount_errors]
    failed = facts.worker is not None and facts.worker.failed_at is Activity.WAITS_FOR_VOLUMES
    if not (at_it or said or failed):
        return None
    names = _list(facts.unmounted)
    what = f"volume {names}" if len(facts.unmounted) == 1 else f"volumes {names}"
    if not said and not failed:
        return Explanation(State.STARTING, "Volumes", f"It waits for its {what} to be mounted.", _calls_evidence(facts))
    error = _volume_error(mount_errors, facts)
    evidence = list(said)
    if failed and facts.worker is not None:
        evidence.append(Evidence("last step", facts.worker.err, facts.worker.step_ended, facts.worker.failures))
    missing = _missing_for_volumes(mount_errors, facts)
    if missing is not None:
        kind, name = missing
        sentence = f"It waits for its {what}: {kind} {name} does not exist in namespace {facts.namespace}."
        advice = _create(facts, kind, name)
        return Explanation(State.STUCK, "MissingObject", sentence, evidence, advice=advice, **_retry(facts))
    sentence = f"It waits for its {what}: {_quote(error)}"
    return Explanation(State.STUCK, "VolumeFailed", _end(sentence), evidence, **_retry(facts))


def _create(facts: PodFacts, kind: str, name: str) -> str:
    how = f"put {kind} {name} into the manifest directory" if facts.standalone else f"create {kind} {name}"
    return f"{how}; the pod continues as soon as it exists"


def _volume_error(events: Sequence[PodEvent], facts: PodFacts) -> str:
    """Return the most informative error: a mount's own error rather than the timeout of waiting for it."""
    texts = [event.message for event in reversed(events)]
    for text in texts:
        if "Unable to attach or mount volumes" not in text:
            return _strip(text.partition(": ")[2] or text)
    text = texts[0] if texts else (facts.worker.err if facts.worker is not None else "")
    return _strip(re.sub(r"^.*failed to process volumes=\[[^]]*\]: ", "", text))


def _missing_for_volumes(events: Sequence[PodEvent], facts: PodFacts) -> tuple[str, str] | None:
    """Return the kind and name of the object that the latest event, or else the worker's last step, did not find."""
    for event in reversed(events):
        if event.missing is not None:
            return _named(event.missing)
    return None if facts.worker is None else _named(facts.worker.missing)


_KINDS = {"secret": "Secret", "configmap": "ConfigMap", "persistentvolumeclaim": "PersistentVolumeClaim"}


def _named(missing: metav1.StatusDetails | None) -> tuple[str, str] | None:
    """Return the kind and name of a missing object if it is of a kind that a user could create for the pod."""
    if missing is None:
        return None
    kind = _KINDS.get(missing.kind.lower().removesuffix("s"))
    return None if kind is None else (kind, missing.name.rpartition("/")[2])


def _sandbox(facts: PodFacts) -> Explanation | None:
    worker = facts.worker
    if worker is None or _any_container(facts):
        return None
    said = _said(facts, "FailedCreatePodSandBox", "FailedCreatePodContainer")
    no_sandbox = worker.failed_at is Activity.MAKES_CGROUP or not worker.failed_actions.isdisjoint(_SANDBOX_ACTIONS)
    if not worker.failures or not (said or no_sandbox):
        return None
    error = said[-1].text.partition(": ")[2] if said else worker.err
    evidence = [*said, Evidence("last step", worker.err, worker.step_ended, worker.failures)]
    sentence = f"The runtime cannot create its sandbox: {_quote(_strip(error))}"
    return Explanation(State.STUCK, "SandboxFailed", _end(sentence), evidence, **_retry(facts))


# ---- Containers ----


def _containers_in_the_way(facts: PodFacts) -> Explanation | None:
    """Explain the first container that has a problem, init containers first, in the order of the spec."""
    spec = facts.pod.spec if facts.pod is not None else v1.PodSpec()
    init = {each.name: each for each in facts.status.init_container_statuses}
    for container in spec.init_containers:
        status = init.get(container.name)
        if status is None:
            continue
        if (found := _container(facts, container, status, "init container")) is not None:
            return found
        if status.state.running is not None and not podutil.is_restartable_init_container(container):
            return _init_runs(facts, container, status)
    regular = {each.name: each for each in facts.status.container_statuses}
    for container in spec.containers:
        status = regular.get(container.name)
        if status is not None and (found := _container(facts, container, status, "container")) is not None:
            return found
    return None


def _init_runs(facts: PodFacts, container: v1.Container, status: v1.ContainerStatus) -> Explanation:
    started = status.state.running.started_at if status.state.running is not None else None
    sentence = f"Its init container {container.name} is running; the next containers start when it has ended."
    return Explanation(
        State.STARTING, "Initializing", sentence, [Evidence("running", container.name, started)], container.name
    )


def _container(facts: PodFacts, container: v1.Container, status: v1.ContainerStatus, kind: str) -> Explanation | None:
    """Explain what is wrong with one container, or return None if nothing is."""
    if status.state.running is not None:
        return _running_container(facts, container, status, kind)
    reason, message = _waiting_reason(facts, status)
    if reason in _IMAGE_REASONS:
        return _image(facts, container, kind, reason, message)
    if reason == "CrashLoopBackOff":
        return _crash_loop(facts, container, status, kind)
    if reason == "CreateContainerConfigError":
        return _configuration(facts, container, kind, message)
    if reason not in _STARTING_REASONS and status.state.terminated is None:
        sentence = f"Its {kind} {container.name} cannot be started: {_quote(_strip(message) or reason)}"
        evidence = [Evidence("runtime", f"{reason}: {message}"), *_said(facts, "Failed", "FailedPostStartHook")]
        return Explanation(State.STUCK, reason, _end(sentence), evidence, container.name, **_retry(facts))
    ended = status.state.terminated
    if ended is not None and kind == "init container" and ended.exit_code != 0:
        return _crash_loop(facts, container, status, kind)
    if ended is not None and kind == "container":
        return _between_starts(facts, container, status, ended)
    return None


def _waiting_reason(facts: PodFacts, status: v1.ContainerStatus) -> tuple[str, str]:
    """Return the reason and message of the last attempt to start the container.

    The worker's reason cache has them before the status does.
    """
    waiting = status.state.waiting
    told = ("", "") if waiting is None else (waiting.reason, waiting.message)
    reason, message = facts.reasons.get(status.name, told)
    return reason, shortened(message)


def _image(facts: PodFacts, container: v1.Container, kind: str, reason: str, message: str) -> Explanation:
    image = container.image
    said = [each for each in _said(facts, "Failed", "InspectFailed") if image in each.text]
    evidence = [Evidence("image manager", f"{reason}: {message}"), *said]
    if reason == "InvalidImageName":
        sentence = f'Its {kind} {container.name} cannot start: "{image}" is not a valid image name.'
        advice = "correct the image name in the pod"
        return Explanation(State.STUCK, "InvalidImageName", sentence, evidence, container.name, advice=advice)
    if reason == "ErrImageNeverPull":
        sentence = f'Its {kind} {container.name} cannot start: image "{image}" is not on this node, '
        sentence += "and its pull policy is Never."
        advice = "load the image on the node, or change imagePullPolicy"
        return Explanation(
            State.STUCK, "ErrImageNeverPull", sentence, evidence, container.name, advice=advice, **_retry(facts)
        )
    why = _registry_error(message or (said[-1].text if said else ""), image)
    sentence = f'Its {kind} {container.name} waits because image "{image}" cannot be pulled: {_quote(why)}'
    until = _at_its_step(facts, facts.pull_at.get(image))
    return Explanation(
        State.STUCK, "ImagePull", _end(sentence), evidence, container.name, until, "next pull" if until else ""
    )


_BEFORE_REGISTRY = re.compile(
    r"^(Failed to pull image|failed to pull and unpack image|failed to resolve (reference|image)) \"[^\"]*\": "
)


def _registry_error(message: str, image: str) -> str:
    """Return what the registry said, without the prefixes that other programs added."""
    text = _strip(message)
    text = re.sub(r'^Back-off pulling image "[^"]*"(: )?', "", text)
    text = re.sub(r"^(ErrImagePull|ImagePullBackOff|RegistryUnavailable): ", "", text)
    text = _strip(text)
    while (shorter := _strip(_BEFORE_REGISTRY.sub("", text))) != text:
        text = shorter
    text = text.removeprefix(f"{image}: ")
    return text or "the runtime gave no reason"


def _configuration(facts: PodFacts, container: v1.Container, kind: str, message: str) -> Explanation:
    evidence = [Evidence("kubelet", f"CreateContainerConfigError: {message}"), *_said(facts, "Failed")]
    missing = _named(facts.missing.get(container.name))
    if missing is not None:
        sentence = (
            f"Its {kind} {container.name} cannot be configured: {missing[0]} {missing[1]} does not exist "
            f"in namespace {facts.namespace}."
        )
        advice = _create(facts, *missing)
        return Explanation(
            State.STUCK, "MissingObject", sentence, evidence, container.name, advice=advice, **_retry(facts)
        )
    sentence = f"Its {kind} {container.name} cannot be configured: {_quote(message)}"
    return Explanation(
        State.STUCK, "CreateContainerConfigError", _end(sentence), evidence, container.name, **_retry(facts)
    )


def _crash_loop(facts: PodFacts, container: v1.Container, status: v1.ContainerStatus, kind: str) -> Explanation:
    ended = status.state.terminated or status.last_state.terminated
    until = _at_its_step(facts, facts.restart_at.get(container.name))
    if ended is None:
        sentence = f"Its {kind} {container.name} ends repeatedly and waits for its next start."
        return Explanation(State.STUCK, "CrashLoop", sentence, [], container.name, until, _RESTART)
    if ended.reason in _NEVER_RAN:
        return _cannot_run(facts, container, status, kind, ended)
    times = status.restart_count + 1
    often = "once so far" if times == 1 else f"{times} times so far"
    ran = _ran_for(ended)
    unhealthy = _killed_by_probe(facts, container.name)
    evidence = _end_evidence(facts, status, ended)
    advice = f"kubectl logs --previous -n {facts.namespace} {facts.name} -c {container.name}"
    if facts.standalone:
        advice = f"read {facts.last_logs[container.name]}" if container.name in facts.last_logs else ""
    if unhealthy is not None:
        which, event = unhealthy
        sentence = f"Its {kind} {container.name} is killed repeatedly because its {which.lower()} probe fails: "
        sentence += _quote(event.said) or "the probe gave no output"
        evidence.insert(0, _evidence_of(event))
        return Explanation(
            State.STUCK, f"{which}Probe", _end(sentence), evidence, container.name, until, _RESTART, advice
        )
    cause = "OOMKilled" if ended.reason == "OOMKilled" else "CrashLoop"
    sentence = f"Its {kind} {container.name} {describe_end(ended)}{ran}, {often}"
    if cause == "OOMKilled":
        limit = container.resources.limits.get("memory") if container.resources else None
        sentence += f"; its limit is {limit}" if limit is not None else ""
        advice = "raise the container's memory limit, or reduce its memory use"
    elif line := facts.last_log_lines.get(container.name) or ended.message.strip().rpartition("\n")[2]:
        sentence += f'; its last output was "{_quote(line, 120)}"'
    if kind == "init container":
        cause = "InitCrashLoop" if cause == "CrashLoop" else cause
    return Explanation(State.STUCK, cause, _end(sentence), evidence, container.name, until, _RESTART, advice)


def _cannot_run(
    facts: PodFacts, container: v1.Container, status: v1.ContainerStatus, kind: str, ended: v1.ContainerStateTerminated
) -> Explanation:
    """Explain that the runtime created the container but could not run its program."""
    why = ended.message.strip() or facts.last_log_lines.get(container.name, "")
    why = _strip(why.rpartition("unable to start container process: ")[2]).removesuffix(": unknown")
    sentence = f"Its {kind} {container.name} cannot be started: {_quote(why or ended.reason)}"
    evidence = _end_evidence(facts, status, ended)
    until = _at_its_step(facts, facts.restart_at.get(container.name))
    missing = "no such file or directory" in why or "executable file not found" in why
    advice = "check the container's command: its image has no such program" if missing else ""
    return Explanation(State.STUCK, "CannotRun", _end(sentence), evidence, container.name, until, _RETRY, advice)


def _between_starts(
    facts: PodFacts, container: v1.Container, status: v1.ContainerStatus, ended: v1.ContainerStateTerminated
) -> Explanation | None:
    """Explain a container that ended and will be restarted soon. Return None if it stays ended."""
    spec = facts.pod.spec if facts.pod is not None else v1.PodSpec()
    if not podutil.container_should_restart(container, spec, ended.exit_code):
        return None
    sentence = f"Its container {container.name} {describe_end(ended)}{_ran_for(ended)}, and is about to be restarted."
    evidence = _end_evidence(facts, status, ended)
    until = _at_its_step(facts, facts.restart_at.get(container.name))
    return Explanation(
        State.STARTING, "Restarting", sentence, evidence, container.name, until, _RESTART if until else ""
    )


def _running_container(
    facts: PodFacts, container: v1.Container, status: v1.ContainerStatus, kind: str
) -> Explanation | None:
    if container.startup_probe is not None and not status.started:
        return _probe(facts, container, ProbeType.STARTUP, "has not passed its startup probe yet", State.STARTING)
    if status.ready or kind == "init container":
        return None
    if (
        container.liveness_probe is not None
        and (worst := _failing(facts, container.name, ProbeType.LIVENESS)) is not None
    ):
        return _probe(
            facts, container, ProbeType.LIVENESS, f"fails its liveness probe ({_runs_of(worst)})", State.STUCK
        )
    if container.readiness_probe is not None:
        return _probe(
            facts, container, ProbeType.READINESS, "runs but is not ready: its readiness probe", State.NOT_READY
        )
    return None


def _probe(facts: PodFacts, container: v1.Container, which: ProbeType, text: str, state: State) -> Explanation:
    probe = next((p for p in facts.probes if (p.container, p.type) == (container.name, which)), None)
    events = _failures_of(facts, container.name, which)
    failed = bool(events) if probe is None else probe.result == "FAILURE"
    evidence = [_evidence_of(event) for event in events[-2:]]
    if probe is not None:
        evidence.append(Evidence("probe", _describe(probe)))
    said = _quote(events[-1].said) if events else ""
    if which is ProbeType.READINESS:
        if failed:
            text += f" fails: {said}" if said else " fails"
        else:
            text += " has not succeeded yet"
    elif said and failed:
        text += f": {said}"
    if which is ProbeType.STARTUP and failed:
        state = State.STUCK
    sentence = _end(f"Its container {container.name} {text}")
    until = probe.next_at if probe is not None else None
    cause = f"{which}Probe"
    return Explanation(state, cause, sentence, evidence, container.name, until, "next probe" if until else "")


def _failing(facts: PodFacts, container: str, which: ProbeType) -> ProbeFacts | None:
    for probe in facts.probes:
        if (probe.container, probe.type, probe.result) == (container, which, "FAILURE"):
            return probe
    return None


_KILLS = {REASON_LIVENESS_PROBE: ProbeType.LIVENESS, REASON_STARTUP_PROBE: ProbeType.STARTUP}


def _killed_by_probe(facts: PodFacts, container: str) -> tuple[ProbeType, PodEvent] | None:
    """Return the probe whose failure last killed the container, and the event of that failure."""
    which = _KILLS.get(facts.killed_for.get(container, ""))
    failures = [] if which is None else _failures_of(facts, container, which)
    return (which, failures[-1]) if which is not None and failures else None


def _failures_of(facts: PodFacts, container: str, which: ProbeType) -> list[PodEvent]:
    """Return the events of a container's failed probes of one type, oldest first."""
    return [
        event
        for event in facts.events
        if event.reason == CONTAINER_UNHEALTHY and event.probe is which and container in event.field_path
    ]


def _readiness_gates(facts: PodFacts) -> Explanation | None:
    if facts.pod is None or facts.status.phase != v1.POD_RUNNING:
        return None
    conditions = {each.type: each for each in facts.status.conditions}
    missing = [
        gate.condition_type
        for gate in facts.pod.spec.readiness_gates
        if (found := conditions.get(gate.condition_type)) is None or found.status != v1.CONDITION_TRUE
    ]
    if not missing:
        return None
    sentence = (
        f"Its containers are ready, but its readiness gate {_list(missing)} is not: "
        "another program must set this condition."
    )
    evidence = [Evidence("condition", f"{name} is not True") for name in missing]
    return Explanation(State.NOT_READY, "ReadinessGate", sentence, evidence)


# ---- Pods that are starting ----


def _failing_step(facts: PodFacts) -> Explanation | None:
    """Explain that the worker's sync fails for a reason that none of the causes above covers."""
    worker = facts.worker
    if worker is None or not worker.failures or not worker.err:
        return None
    evidence = [Evidence("last step", worker.err, worker.step_ended, worker.failures), *_said(facts, "FailedSync")]
    sentence = f"Its last sync failed: {_quote(_strip(worker.err))}"
    return Explanation(State.STUCK, "SyncFailed", _end(sentence), evidence, **_retry(facts))


def _starting(facts: PodFacts) -> Explanation:
    """Explain a pod that is starting normally."""
    evidence = _calls_evidence(facts)
    for call in facts.calls:
        if call.operation == "pull_image":
            sentence = f'It is starting: image "{call.subject}" is being pulled.'
            return Explanation(State.STARTING, "Pulling", sentence, evidence)
    worker = facts.worker
    if worker is None:
        return Explanation(
            State.STARTING, "Seen", "The kubelet has received it, and its pod worker is about to start.", evidence
        )
    step = activity.of_worker(worker, facts.calls)
    if worker.step_began is not None and step is not None:
        since = Evidence("worker", f"{step.text} ({step.function})", worker.step_began)
        return Explanation(State.STARTING, "Starting", f"It is starting: it {step.text}.", [since, *evidence])
    sentence = "It is starting: the next relist of the PLEG will show the result of its last step."
    return Explanation(State.STARTING, "Starting", sentence, evidence, until=worker.next_step, until_what="next step")


_CAUSES: tuple[Callable[[PodFacts], Explanation | None], ...] = (
    _gone,
    _ended,
    _stopping,
    _is_ready,
    _node_is_down,
    _waits_for_turn,
    _no_network,
    _volumes,
    _sandbox,
    _containers_in_the_way,
    _readiness_gates,
    _failing_step,
)

# ---- Helpers ----

_RETRY = "next attempt"
_RESTART = "next start"


class _Until(TypedDict, total=False):
    until: datetime
    until_what: str


def _retry(facts: PodFacts) -> _Until:
    """Return when the worker tries again, or nothing while it is working."""
    worker = facts.worker
    if worker is None or worker.step_began is not None or worker.next_step is None:
        return {}
    return {"until": worker.next_step, "until_what": _RETRY}


def _at_its_step(facts: PodFacts, earliest: datetime | None) -> datetime | None:
    """Return the time of the worker's next step, or `earliest` if that is later or no step is planned."""
    worker = facts.worker
    if earliest is None or worker is None or worker.step_began is not None or worker.next_step is None:
        return earliest
    return max(earliest, worker.next_step)


def _any_container(facts: PodFacts) -> bool:
    """Report whether the runtime has, or had, a container of the pod."""
    return any(each.container_id for each in _all_statuses(facts.status))


def _all_statuses(status: v1.PodStatus) -> Iterator[v1.ContainerStatus]:
    yield from status.init_container_statuses
    yield from status.container_statuses


def _failed_containers(status: v1.PodStatus) -> Iterator[tuple[v1.ContainerStatus, v1.ContainerStateTerminated]]:
    for each in _all_statuses(status):
        if (ended := each.state.terminated) is not None and ended.exit_code != 0:
            yield each, ended


def _end_evidence(facts: PodFacts, status: v1.ContainerStatus, ended: v1.ContainerStateTerminated) -> list[Evidence]:
    text = f"{status.name}: reason {ended.reason or 'unknown'}, exit code {ended.exit_code}{_ran_for(ended)}"
    evidence = [Evidence("last exit", text, ended.finished_at)]
    if ended.message:
        evidence.append(Evidence("termination message", ended.message.strip()))
    if line := facts.last_log_lines.get(status.name):
        evidence.append(Evidence("last line of its log", line))
    return [*evidence, *_said(facts, "BackOff", "Killing")]


def _ran_for(ended: v1.ContainerStateTerminated) -> str:
    # A container that never ran has the zero time as its start.
    if ended.started_at is None or ended.finished_at is None or ended.started_at.year < 2000:
        return ""
    seconds = (ended.finished_at - ended.started_at).total_seconds()
    if seconds < 0:
        return ""
    return f" after {spoken(seconds)}" if seconds >= 1 else " within a second of its start"


def _said(facts: PodFacts, *reasons: str) -> list[Evidence]:
    """Return the last three events with these reasons, oldest first."""
    return [_evidence_of(event) for event in _last_events(facts, *reasons)]


def _last_events(facts: PodFacts, *reasons: str) -> list[PodEvent]:
    return [event for event in facts.events if event.reason in reasons][-3:]


def _evidence_of(event: PodEvent) -> Evidence:
    return Evidence(f"event {event.reason}", event.message, _time(event.last), event.count)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _calls_evidence(facts: PodFacts) -> list[Evidence]:
    return [
        Evidence("call under way", f"{call.operation} {call.container or call.subject}".strip(), _time(call.began))
        for call in facts.calls
    ]


def _describe(probe: ProbeFacts) -> str:
    outcome = f"{_runs_of(probe)}" if probe.result else "no result yet"
    return f"{probe.type} of {probe.container}: {probe.what}, every {spoken(probe.period)}, {outcome}"


def _runs_of(probe: ProbeFacts) -> str:
    word = {"FAILURE": "failed", "SUCCESS": "succeeded"}.get(probe.result, "unknown")
    times = "once" if probe.run == 1 else f"{probe.run} times"
    limit = (
        f", limit {probe.failure_threshold}"
        if probe.result == "FAILURE" and probe.run <= probe.failure_threshold
        else ""
    )
    return f"{word} {times} in a row{limit}"


_PREFIX = re.compile(r"^rpc error: code = \w+ desc = ")


def _strip(text: str) -> str:
    """Return the text without the prefix that gRPC adds to an error."""
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    return text.strip()


def _quote(text: str, limit: int = _QUOTE) -> str:
    """Return the text as one line, shortened to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _end(sentence: str) -> str:
    return sentence if sentence.endswith((".", "…")) else sentence + "."


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _containers(names: Sequence[str]) -> str:
    return f"container {names[0]}" if len(names) == 1 else f"containers {_list(names)}"


def _runs(names: Sequence[str]) -> str:
    return "runs" if len(names) == 1 else "run"
