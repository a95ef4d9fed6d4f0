"""Make a snapshot of the running kubelet when a client requests one.

Go: none

The collector only reads. It holds no lock for longer than a copy takes, and it calls neither the runtime nor the API
server, so it works when they do not respond. All times in a snapshot are seconds since the epoch, and durations are in
seconds.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kubelet import kuberuntime
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.config import common
from kubelet.kubelet import HOUSEKEEPING_PERIOD, SYNC_PERIOD, LoopCase
from kubelet.liveview import activity, history
from kubelet.liveview.explanation import Explanation, PodFacts, ProbeFacts, State, explain_pod
from kubelet.liveview.words import spoken
from kubelet.pleg import GenericPLEG
from kubelet.pod_workers import SYNC_POD, PodWorkerSnapshot
from kubelet.prober.prober import ProbeType
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.component_base import version
from pkg.util import regularfile

if TYPE_CHECKING:
    from kubelet.kubelet import Kubelet

# An Object is a JSON object.
Object = dict[str, Any]

# Rates are averages over this time, in seconds.
_RATE_WINDOW = 60.0
# A pod that is gone stays visible for this time, in seconds.
_SHOW_GONE = 60.0
# A snapshot is shared by all requests that arrive within this time, in seconds.
_REUSE = 0.25
# A call or a loop iteration that takes longer than this, in seconds, is reported as a problem. Some calls are expected
# to take long and are exempt.
_LONG_CALL = 20.0
_LONG_STEP = 5.0
_MEANT_TO_LAST = frozenset({"pull_image", "get_container_events", "stop_container", "exec_sync"})
# A snapshot reports at most `_SHOWN_MANIFESTS` manifest problems, under the name `_MANIFEST`.
_SHOWN_MANIFESTS = 20
_MANIFEST = "manifest"
# The collector searches this many bytes at the end of a log for its last line.
_LOG_TAIL = 4096

_CASES = {
    LoopCase.CONFIG: "config",
    LoopCase.PLEG: "pleg",
    LoopCase.SYNC: "sync",
    LoopCase.LIVENESS: "liveness",
    LoopCase.READINESS: "readiness",
    LoopCase.STARTUP: "startup",
    LoopCase.CONTAINER_MANAGER: "container manager",
    LoopCase.HOUSEKEEPING: "housekeeping",
    LoopCase.STOP: "stop",
}


class Collector:
    """Make snapshots of one kubelet from its state and its history.

    This class is thread-safe.
    """

    def __init__(self, kubelet: Kubelet, noted: history.History) -> None:
        self._kubelet = kubelet
        self._history = noted
        self._lock = threading.Lock()  # The lock guards the two fields below, and makes snapshots one at a time.
        self._last: Object | None = None
        self._made_at = 0.0

    def snapshot(self) -> Object:
        """Return everything. The caller must not change the result, because other callers may share it."""
        with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._made_at > _REUSE:
                self._last = self._snapshot()
                self._made_at = now
            return self._last

    def _snapshot(self) -> Object:
        look = _Look(self._kubelet, self._history)
        pods = [look.pod(facts, uid) for uid, facts in look.all_pods()]
        pods.sort(key=lambda pod: (pod["namespace"], pod["name"], pod["created"] or 0.0))
        return {
            "now": look.at,
            "node": look.node(pods),
            "loop": look.loop(),
            "sources": look.sources(),
            "channels": look.channels(),
            "pleg": look.pleg(),
            "workers": look.workers(),
            "calls": look.calls(),
            "threads": threading.active_count(),
            "pods": pods,
        }

    def explain_pod(self, namespace: str, name: str) -> Object | None:
        """Return the pods of that name, newest last, as in a snapshot, or None if there never was one.

        A static pod is also found by the name in its manifest.
        """
        look = _Look(self._kubelet, self._history)
        static = common.generate_pod_name(name, self._kubelet.node_name)
        found = look.pods_of(namespace, name) or look.pods_of(namespace, static)
        if not found:
            return None
        found.sort(
            key=lambda pod: (
                (pod["explanation"]["state"] != State.GONE, pod["timeline"][0]["began"])
                if pod["timeline"]
                else (True, look.at)
            )
        )
        return {"now": look.at, "node": look.node([]), "pods": found}

    def manifests(self) -> Object:
        """Return what is wrong with the manifests now. This call is cheap, so clients may poll it."""
        notes = self._kubelet.pod_config.manifest_notes()[:_SHOWN_MANIFESTS]
        return {"manifests": [{"origin": note.origin, "text": history.shortened(note.text)} for note in notes]}

    def explain_node(self) -> Object:
        """Return the state of the node and, in short form, of each pod."""
        snapshot = self.snapshot()
        return {key: snapshot[key] for key in ("now", "node", "pods", "pleg", "calls", "workers")}


class _Look:
    """Hold the data that all pods of one snapshot share, so that it is read once."""

    def __init__(self, kubelet: Kubelet, noted: history.History) -> None:
        self.kubelet = kubelet
        self.history = noted
        self.at = time.time()
        self.now = datetime.fromtimestamp(self.at, UTC)
        self.runtime_problem = _text(kubelet.runtime_state.runtime_errors())
        self.network_problem = _text(kubelet.runtime_state.network_errors())
        self.in_flight = self.history.calls.in_flight()
        self.probers = self._probers()
        self.pod_workers = {
            uid: dataclasses.replace(worker, err=history.shortened(worker.err))
            for uid, worker in kubelet.pod_workers.snapshot().items()
        }

    # ---- Pods ----

    def pods_of(self, namespace: str, name: str) -> list[Object]:
        """Return the pods of that name as JSON objects."""
        found = [
            self.pod(facts, uid)
            for uid, facts in self.all_pods(show_gone=float("inf"))
            if (facts.namespace, facts.name) == (namespace, name)
        ]
        if not found and (pod := self.kubelet.pod_config.find(namespace, name)) is not None:
            # The sync loop, which may be paused, has not received this pod yet.
            found = [self.pod(self.facts(pod.metadata.uid, pod), pod.metadata.uid)]
        return found

    def all_pods(self, show_gone: float = _SHOW_GONE) -> Iterator[tuple[types.UID, PodFacts]]:
        """Yield the facts of desired pods, of pods that still have a worker, and of recently removed pods."""
        seen = set()
        for pod in self.kubelet.pod_manager.get_pods():
            seen.add(pod.metadata.uid)
            yield pod.metadata.uid, self.facts(pod.metadata.uid, pod)
        # A pod that has a worker may no longer be in any source.
        for uid, worker in self.pod_workers.items():
            if uid not in seen:
                seen.add(uid)
                yield uid, self.facts(uid, worker.pod, worker.namespace, worker.name)
        for uid, (namespace, name) in self.history.pods.names().items():
            if uid in seen or not name:
                continue
            lines, _ = self.history.pods.get(uid)
            if lines and self.at - max(line.ended for line in lines) < show_gone:
                yield uid, self.facts(uid, None, namespace, name)

    def facts(self, uid: types.UID, pod: v1.Pod | None, namespace: str = "", name: str = "") -> PodFacts:
        """Return what is known of a pod. Namespace and name are needed only for a pod that is in no source."""
        kubelet = self.kubelet
        if pod is not None:
            namespace, name = pod.metadata.namespace, pod.metadata.name
        status = kubelet.status_manager.get_pod_status(uid)
        if status is None:
            status = v1.PodStatus() if pod is None else pod.status
        worker = self.pod_workers.get(uid)
        lines, events = self.history.pods.get(uid)
        facts = PodFacts(
            namespace=namespace,
            name=name,
            now=self.now,
            pod=pod,
            remembered=bool(lines),
            refused=self.history.pods.was_refused(uid),
            killed_for=self.history.pods.killed_for(uid),
            standalone=kubelet.kube_client is None,
            status=status,
            worker=worker,
            node_problem=self.runtime_problem,
            network_problem=self.network_problem,
            events=sorted(events, key=lambda event: event.last),
            calls=[call for call in self.in_flight if call.uid == uid],
            probes=self.probers.get(uid, ()),
            unknown_fields=kubelet.pod_config.unknown_fields(uid),
        )
        if pod is not None and (worker is None or worker.phase is SYNC_POD):
            facts.unmounted = kubelet.volume_manager.get_missing_volumes_for_pod(pod)
            self._add_reasons(facts, uid, pod)
        return facts

    def _add_reasons(self, facts: PodFacts, uid: types.UID, pod: v1.Pod) -> None:
        """Add to the facts why containers could not be started, and when the kubelet tries again."""
        statuses = {s.name: s for s in (*facts.status.init_container_statuses, *facts.status.container_statuses)}
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            item = self.kubelet.reason_cache.get(uid, container.name)
            if item is not None:
                facts.reasons[container.name] = (item.reason, item.message)
                if item.missing is not None:
                    facts.missing[container.name] = item.missing
                if item.retry_at is not None:
                    facts.restart_at[container.name] = item.retry_at
            if (pull_at := self.kubelet.image_back_off.until(f"{uid}_{_with_tag(container.image)}")) is not None:
                facts.pull_at[container.image] = pull_at
            status = statuses.get(container.name)
            if status is not None and _ended_badly(status):
                path, line = self._last_log(pod, status)
                facts.last_logs[container.name] = path
                if line:
                    facts.last_log_lines[container.name] = line

    def _last_log(self, pod: v1.Pod, status: v1.ContainerStatus) -> tuple[str, str]:
        """Return the log of the container's last instance that wrote a line, and the last of its lines."""
        meta = pod.metadata
        folder = kuberuntime.build_container_logs_directory(
            self.kubelet.pod_logs_directory, meta.namespace, meta.name, meta.uid, status.name
        )
        paths = [os.path.join(folder, f"{count}.log") for count in (status.restart_count, status.restart_count - 1)]
        for path in paths:
            if line := _last_line(path):
                return path, line
        return paths[0], ""

    def pod(self, facts: PodFacts, uid: types.UID) -> Object:
        """Return one pod as a JSON object."""
        pod = facts.pod
        found = explain_pod(facts)
        annotations = {} if pod is None else pod.metadata.annotations
        return {
            "uid": uid,
            "namespace": facts.namespace,
            "name": facts.name,
            "source": annotations.get(kubetypes.CONFIG_SOURCE_ANNOTATION_KEY, ""),
            "static": pod is not None and kubetypes.is_static_pod(pod),
            "created": _seconds(None if pod is None else pod.metadata.creation_timestamp),
            "phase": facts.status.phase,
            "explanation": _explanation(found),
            "worker": _worker(facts),
            "containers": list(_containers(facts)),
            "probes": [_probe(probe) for probe in facts.probes],
            "calls": [self._call(call) for call in facts.calls],
            "events": [_event(event) for event in facts.events],
            "timeline": self._timeline(uid, facts),
        }

    def _timeline(self, uid: types.UID, facts: PodFacts) -> list[Object]:
        """Return the pod's history as lines, including what is under way. A line under way has no end."""
        lines, _ = self.history.pods.get(uid)
        told = [_line(line) for line in sorted(lines, key=lambda line: line.began)]
        stages = history.STAGES
        for call in facts.calls:
            if call.operation in stages:
                told.append({**_line(history.line_of(call, self.at)), "ended": None})
        worker = facts.worker
        if worker is None or worker.step_began is None:
            return told
        if worker.activity is Activity.WAITS_FOR_VOLUMES:
            told.append(_line(history.Line("volumes", worker.step_began.timestamp(), self.at)) | {"ended": None})
        return told

    # ---- Workers and probes ----

    def _probers(self) -> dict[str, list[ProbeFacts]]:
        found: dict[str, list[ProbeFacts]] = {}
        for probe in self.kubelet.probe_manager.snapshot():
            facts = ProbeFacts(
                container=probe.container,
                type=probe.probe_type.value,
                result="" if probe.last_result is None else probe.last_result.name,
                run=probe.result_run,
                failure_threshold=probe.spec.failure_threshold or 3,
                period=float(probe.spec.period_seconds or 10),
                what=_describe_probe(probe.spec),
                next_at=self.now + timedelta(seconds=probe.due_in),
            )
            found.setdefault(probe.pod_uid, []).append(facts)
        for probes in found.values():
            probes.sort(key=lambda probe: (probe.container, list(ProbeType).index(ProbeType(probe.type))))
        return found

    def workers(self) -> Object:
        """Return how many pods are in each phase, and how many sync steps are under way."""
        phases = {"sync": 0, "terminating": 0, "terminated": 0, "finished": 0}
        workers = self.pod_workers.values()
        for worker in workers:
            phases["finished" if worker.finished else str(worker.phase)] += 1
        at_work = sum(worker.step_began is not None for worker in workers)
        failing = sum(worker.failures > 0 for worker in workers)
        threads = sum(worker.has_worker for worker in workers)
        return {**phases, "at_work": at_work, "failing": failing, "threads": threads}

    # ---- The loop and its channels ----

    def loop(self) -> Object:
        loop, kubelet = self.history.loop, self.kubelet
        tape = list(loop.tape)
        window = _window(tape, self.at)
        taken = [0] * len(_CASES)
        for each in tape:
            if each.at >= self.at - _RATE_WINDOW:
                taken[each.case] += 1
        channels: dict[LoopCase, golang.Channel[Any]] = {
            LoopCase.CONFIG: kubelet.pod_config.updates(),
            LoopCase.PLEG: kubelet.pleg.watch(),
            LoopCase.LIVENESS: kubelet.liveness_manager.updates(),
            LoopCase.READINESS: kubelet.readiness_manager.updates(),
            LoopCase.STARTUP: kubelet.startup_manager.updates(),
            LoopCase.CONTAINER_MANAGER: kubelet.container_manager.updates(),
        }
        cases = [
            {
                "name": name,
                "count": loop.counts[case],
                "rate": taken[case] / window,
                "busy_seconds": loop.busy_seconds[case],
                "period": {LoopCase.SYNC: SYNC_PERIOD, LoopCase.HOUSEKEEPING: HOUSEKEEPING_PERIOD}.get(case),
                **_channel(channels.get(case)),
            }
            for case, name in _CASES.items()
            if case is not LoopCase.STOP
        ]
        at_work = loop.at_work
        return {
            "cases": cases,
            "last": None if loop.last is None else _CASES[LoopCase(loop.last)],
            "at_work": None if at_work is None else {"case": _CASES[LoopCase(at_work[0])], "since": at_work[1]},
            "paused": self.runtime_problem,
            "tape": [[round(t.at, 3), t.case, round(t.seconds, 6)] for t in tape if t.at >= self.at - 2 * _RATE_WINDOW],
        }

    def sources(self) -> list[Object]:
        """Return the sources of pods, how many updates each has sent, and how many pods it has."""
        counts: dict[str, int] = {}
        for pod in self.kubelet.pod_manager.get_pods():
            name = pod.metadata.annotations.get(kubetypes.CONFIG_SOURCE_ANNOTATION_KEY, "")
            counts[name] = counts.get(name, 0) + 1
        return [
            {"name": name, "pods": counts.get(name, 0), **_channel(channel)}
            for name, channel in sorted(self.kubelet.pod_config.sources().items())
        ]

    def channels(self) -> list[Object]:
        """Return the depth of other channels that are worth watching."""
        found = [{"name": "statuses to send", **_channel(self.kubelet.status_manager.updates())}]
        if isinstance(self.kubelet.pleg, GenericPLEG):
            found.insert(0, {"name": "relist requests", **_channel(self.kubelet.pleg.relist_requests())})
        return found

    # ---- The runtime ----

    def pleg(self) -> Object:
        relists = list(self.history.relists.latest)
        try:
            self.kubelet.pleg.healthy()
            problem = ""
        except Exception as err:  # Every error is reported to the client as the PLEG's problem.
            problem = str(err)
        durations = sorted(relist.seconds for relist in relists)
        return {
            "problem": problem,
            "relists": [[round(r.at, 3), round(r.seconds, 6), r.failed] for r in relists],
            "p50": _quantile(durations, 0.5),
            "p99": _quantile(durations, 0.99),
            "last_at": relists[-1].at if relists else None,
        }

    def calls(self) -> Object:
        operations = []
        for name, totals in sorted(self.history.calls.totals().items()):
            durations = sorted(ended.seconds for ended in totals.recent)
            operations.append(
                {
                    "name": name,
                    "count": totals.count,
                    "errors": totals.errors,
                    "last_error": totals.last_error,
                    "last_at": totals.recent[-1].at if totals.recent else None,
                    "p50": _quantile(durations, 0.5),
                    "p99": _quantile(durations, 0.99),
                    "recent": [[round(e.at, 3), round(e.seconds, 6), e.failed] for e in totals.recent],
                }
            )
        return {"in_flight": [self._call(call) for call in self.in_flight], "operations": operations}

    def _call(self, call: history.Call) -> Object:
        namespace, name = self.history.pods.names().get(call.uid, ("", "")) if call.uid else ("", "")
        return {
            "operation": call.operation,
            "began": call.began,
            "uid": call.uid,
            "pod": f"{namespace}/{name}" if name else "",
            "container": call.container,
            "subject": call.subject,
        }

    # ---- The node ----

    def node(self, pods: list[Object]) -> Object:
        kubelet = self.kubelet
        problems = list(self._problems())
        info = version.get()
        standalone = kubelet.kube_client is None
        states: dict[str, int] = {}
        for pod in pods:
            state = pod["explanation"]["state"]
            states[state] = states.get(state, 0) + 1
        return {
            "name": kubelet.node_name,
            "version": info.git_version,
            "release": info.version,
            "began": self.history.began,
            "standalone": standalone,
            "registered": kubelet.registration_completed,
            "state": "down" if any(p["serious"] for p in problems) else "warning" if problems else "ok",
            "sentence": _node_sentence(problems, states),
            "problems": problems,
            "pods": states,
        }

    def _problems(self) -> Iterator[Object]:
        """Yield what is wrong with the node, worst first."""
        kubelet, loop = self.kubelet, self.history.loop
        if self.runtime_problem:
            yield _problem("runtime", f"the kubelet syncs no pods: {self.runtime_problem}", serious=True)
        at_work = loop.at_work
        if at_work is not None and self.at - at_work[1] > _LONG_STEP:
            what = _CASES[LoopCase(at_work[0])]
            text = f"the sync loop has been handling one event ({what}) for {spoken(self.at - at_work[1])}"
            yield _problem("sync loop", text, serious=True)
        if self.network_problem:
            yield _problem("network", f"pods without host network cannot start: {self.network_problem}")
        if not kubelet.sources_ready.all_ready():
            silent = [name for name, channel in kubelet.pod_config.sources().items() if not channel.passed]
            who = f": nothing from {', '.join(silent)}" if silent else ""
            yield _problem("sources", f"not all pod sources have reported yet{who}, so no pod is removed")
        if kubelet.kube_client is not None and not kubelet.registration_completed:
            yield _problem("API server", "the node is not registered with the API server yet")
        for call in self.in_flight:
            age = self.at - call.began
            if age > _LONG_CALL and call.operation not in _MEANT_TO_LAST:
                whose = self._call(call)["pod"]
                text = (
                    f"the runtime has not answered {call.operation}{f' for {whose}' if whose else ''} in {spoken(age)}"
                )
                yield _problem("runtime", text)
        yield from self._manifest_problems()

    def _manifest_problems(self) -> Iterator[Object]:
        notes = self.kubelet.pod_config.manifest_notes()
        for note in notes[:_SHOWN_MANIFESTS]:
            yield _problem(_MANIFEST, history.shortened(note.text))
        if len(notes) > _SHOWN_MANIFESTS:
            yield _problem(_MANIFEST, f"and {len(notes) - _SHOWN_MANIFESTS} more, which the log lists")


def _problem(what: str, text: str, serious: bool = False) -> Object:
    return {"what": what, "text": text, "serious": serious}


_TROUBLED = (State.STUCK, State.NOT_READY, State.REFUSED, State.FAILED, State.UNKNOWN)


def _node_sentence(problems: list[Object], states: Mapping[str, int]) -> str:
    """Return one sentence about the node and its pods.

    A manifest that cannot be used does not make the node unhealthy, but the sentence mentions it.
    """
    own = [problem for problem in problems if problem["what"] != _MANIFEST]
    if own:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"The node is unhealthy: {own[0]['text']}{more}."
    but = "; at least one manifest has a problem" if problems else ""
    return f"The node is healthy{_pods_sentence(states)}{but}."


def _pods_sentence(states: Mapping[str, int]) -> str:
    total = sum(count for state, count in states.items() if state != State.GONE)
    troubled = sum(states.get(state, 0) for state in _TROUBLED)
    match total, troubled:
        case 0, _:
            return ", and has no pods"
        case 1, 0:
            return ", and its pod has no problem"
        case 1, _:
            return "; its pod has a problem"
        case _, 0:
            return f", and all {total} pods are without problems"
        case _, 1:
            return f"; 1 of {total} pods has a problem"
        case _:
            return f"; {troubled} of {total} pods have a problem"


def _explanation(found: Explanation) -> Object:
    return {
        "state": found.state.value,
        "cause": found.cause,
        "sentence": found.sentence,
        "container": found.container,
        "until": _seconds(found.until),
        "until_what": found.until_what if found.until is not None else "",
        "advice": found.advice,
        "evidence": [
            {"source": e.source, "text": e.text, "at": _seconds(e.at), "count": e.count} for e in found.evidence
        ],
    }


def _worker(facts: PodFacts) -> Object | None:
    if (worker := facts.worker) is None:
        return None
    step = activity.of_worker(worker, facts.calls)
    waits_for, until = _waits_for(worker, step)
    return {
        "phase": "finished" if worker.finished else str(worker.phase),
        "waits_for": waits_for,
        "until": _seconds(until),
        "function": step.function if step is not None else "",
        "step_began": _seconds(worker.step_began),
        "step_ended": _seconds(worker.step_ended),
        "pending": worker.pending,
        "steps": worker.steps,
        "failures": worker.failures,
        "error": worker.err,
        "terminating_at": _seconds(worker.terminating_at),
        "terminated_at": _seconds(worker.terminated_at),
        "grace_period": worker.grace_period,
    }


def _waits_for(worker: PodWorkerSnapshot, step: activity.Step | None) -> tuple[str, datetime | None]:
    """Return what the worker waits for, and the latest time at which it continues."""
    if worker.finished:
        return "has finished; its thread has ended", None
    if worker.waits_to_start:
        return "waits until the pod with the same name has terminated", worker.next_step
    if step is None:
        return "is about to start", None
    if worker.activity is Activity.WAITS_FOR_UPDATE:
        return ("waits to try again" if worker.failures else step.text), worker.next_step
    return step.text, None


def _containers(facts: PodFacts) -> Iterator[Object]:
    """Yield the containers of the spec with the state of each, init containers first."""
    spec = facts.pod.spec if facts.pod is not None else v1.PodSpec()
    statuses = {s.name: s for s in (*facts.status.init_container_statuses, *facts.status.container_statuses)}
    kinds = [(c, "sidecar" if c.restart_policy == "Always" else "init") for c in spec.init_containers]
    for container, kind in [*kinds, *((c, "container") for c in spec.containers)]:
        status = statuses.get(container.name, v1.ContainerStatus())
        state, since = "waiting", None
        reason = facts.reasons.get(container.name, ("", ""))[0]
        if status.state.running is not None:
            state, since, reason = "running", status.state.running.started_at, ""
        elif status.state.terminated is not None and reason != "CrashLoopBackOff":
            ended = status.state.terminated
            state, since, reason = "ended", ended.finished_at, f"exit code {ended.exit_code}"
        elif status.state.waiting is not None:
            reason = reason or status.state.waiting.reason
        yield {
            "name": container.name,
            "kind": kind,
            "image": container.image,
            "state": state,
            "reason": reason,
            "since": _seconds(since),
            "ready": status.ready,
            "restarts": status.restart_count,
        }


def _probe(probe: ProbeFacts) -> Object:
    return {
        "container": probe.container,
        "type": probe.type.lower(),
        "what": probe.what,
        "result": probe.result.lower(),
        "run": probe.run,
        "failure_threshold": probe.failure_threshold,
        "period": probe.period,
        "next_at": _seconds(probe.next_at),
    }


def _event(event: history.PodEvent) -> Object:
    return {
        "first": event.first,
        "last": event.last,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": event.count,
    }


def _line(line: history.Line) -> Object:
    return {
        "stage": line.stage,
        "began": line.began,
        "ended": line.ended,
        "detail": line.detail,
        "failed": line.failed,
    }


def _channel(channel: golang.Channel[Any] | None) -> Object:
    if channel is None:
        return {"depth": None, "capacity": None, "passed": None}
    return {"depth": len(channel), "capacity": channel.maxsize, "passed": channel.passed}


def _describe_probe(spec: v1.Probe) -> str:
    if spec.exec is not None:
        return "exec " + " ".join(spec.exec.command)[:60]
    if spec.http_get is not None:
        return f"GET {spec.http_get.path or '/'} on port {spec.http_get.port}"
    if spec.tcp_socket is not None:
        return f"TCP port {spec.tcp_socket.port}"
    return f"gRPC port {spec.grpc.port}" if spec.grpc is not None else "no action"


def _ended_badly(status: v1.ContainerStatus) -> bool:
    ended = status.state.terminated or (None if status.state.running is not None else status.last_state.terminated)
    return ended is not None and ended.exit_code != 0


def _last_line(path: str) -> str:
    """Return the last line of a log in the CRI format, without its time and stream."""
    try:
        with os.fdopen(regularfile.open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL))
            lines = file.read(_LOG_TAIL).decode(errors="replace").rstrip("\n").split("\n")
    except OSError:
        return ""
    parts = lines[-1].split(" ", 3) if lines else []
    return parts[3].strip() if len(parts) == 4 else ""


def _with_tag(image: str) -> str:
    """Return the image's name with a tag, the form in which the image manager knows it."""
    last = image.rpartition("/")[2]
    return image if ":" in last or "@" in image else f"{image}:latest"


def _window(tape: Iterable[history.Taken], now: float) -> float:
    """Return how many seconds the tape covers without gaps: at least 1, and at most _RATE_WINDOW."""
    first = next(iter(tape), None)
    return _RATE_WINDOW if first is None else min(_RATE_WINDOW, max(1.0, now - first.at))


def _quantile(ascending: list[float], share: float) -> float | None:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else None


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else round(at.timestamp(), 3)


def _text(err: Exception | None) -> str:
    return "" if err is None else str(err)
