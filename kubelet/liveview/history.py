"""Record what the running kubelet does, so that the live view can show it.

Go: none

The code that runs all the time only appends to a list of bounded length or increments a counter. Everything else is
computed when a client asks. Times are wall-clock seconds since the epoch, because they are only shown. Durations come
from the steady clock.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubelet.observer import Observers
from kubelet.prober import ProbeType
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1

# The history keeps this many events of the sync loop, which is more than a minute of a busy node.
_TAPE_LENGTH = 1200
# The history keeps this many relists of the PLEG.
_RELISTS_KEPT = 120
# The history keeps this many calls of each kind.
_CALLS_KEPT = 64
# The history keeps this many pods and, for each pod, its first lines, its latest lines and its latest events.
_STORIES = 1024
_BEGINNING = 32
_LATEST = 32
_EVENTS_OF_A_POD = 16
# The history keeps this many characters of a message. The output of a probe or a hook may be ten times as long.
MAX_TEXT_LENGTH = 1024
# A stage that a pod goes through again in less than this time, in seconds, is not recorded.
_NO_TIME = 0.02
# The history remembers for this many runtime ids which pod they belong to.
_IDS = 8192


class Taken(NamedTuple):
    """Describe one event of the sync loop: its case, its time, and how many seconds its handling took."""

    at: float
    case: int
    seconds: float


class LoopHistory:
    """Record the events of the sync loop. Only the loop's thread writes; any thread may read."""

    def __init__(self, cases: int) -> None:
        self.counts = [0] * cases
        self.busy_seconds = [0.0] * cases
        self.tape: deque[Taken] = deque(maxlen=_TAPE_LENGTH)
        # While the loop handles a case, this field holds the case and the time when it began. It is None while the loop
        # waits in `select`.
        self.at_work: tuple[int, float] | None = None
        self.last: int | None = None
        self._began = 0.0

    def took(self, case: int) -> None:
        """Record that `select` has chosen this case."""
        self.counts[case] += 1
        self.last = case
        self._began = time.monotonic()
        self.at_work = (case, time.time())

    def done(self) -> None:
        """Record that the loop returns to `select`."""
        if self.at_work is None:
            return
        case, at = self.at_work
        seconds = time.monotonic() - self._began
        self.busy_seconds[case] += seconds
        self.tape.append(Taken(at, case, seconds))
        self.at_work = None


@dataclass(slots=True)
class Call:
    """Describe one call of the container runtime. `uid` and `container` name the pod and the container, if known."""

    operation: str
    began: float
    uid: types.UID = types.UID("")
    container: str = ""
    # The subject is what the call is about: an image or an id.
    subject: str = ""


class Ended(NamedTuple):
    """Describe a call that has ended."""

    at: float
    seconds: float
    failed: bool


@dataclass(slots=True)
class CallTotals:
    """Count the calls of one kind since the kubelet's start."""

    count: int = 0
    errors: int = 0
    last_error: str = ""
    recent: deque[Ended] = field(default_factory=lambda: deque(maxlen=_CALLS_KEPT))


class Line(NamedTuple):
    """Describe one line of a pod's history: a stage, or a moment if `began` equals `ended`."""

    stage: str
    began: float
    ended: float
    detail: str = ""
    failed: bool = False


@dataclass(slots=True)
class PodEvent:
    """Record an event of the pod. Repetitions of the same event increase its count."""

    first: float
    last: float
    type: str
    reason: str
    message: str
    # The event is about this field of the pod's spec. An empty string stands for the pod as a whole.
    field_path: str
    count: int = 1
    # The fields below come from the arguments of the message: the probe that failed, its output, and the object that
    # does not exist.
    probe: ProbeType | None = None
    said: str = ""
    missing: metav1.StatusDetails | None = None


class Story:
    """Record what happened to one pod. The lock of its PodStories guards it."""

    __slots__ = (
        "beginning",
        "containers",
        "events",
        "killed_for",
        "latest",
        "name",
        "namespace",
        "phase",
        "ready",
        "refused",
        "uid",
    )

    def __init__(self, uid: types.UID) -> None:
        self.uid = uid
        self.namespace = self.name = ""
        self.beginning: list[Line] = []
        self.latest: deque[Line] = deque(maxlen=_LATEST)
        self.events: deque[PodEvent] = deque(maxlen=_EVENTS_OF_A_POD)
        self.phase = ""
        self.ready = False
        self.refused = False
        # This field holds, by container name, the reason for the last kill, which is a REASON_ constant of the runtime
        # manager.
        self.killed_for: dict[str, str] = {}
        # This field holds the id of each container and whether it has ended, as of its latest status.
        self.containers: dict[str, tuple[str, bool]] = {}

    def add(self, line: Line) -> None:
        line = line._replace(detail=shortened(line.detail))
        if len(self.beginning) < _BEGINNING:
            self.beginning.append(line)
        else:
            self.latest.append(line)

    def lines(self) -> list[Line]:
        return [*self.beginning, *self.latest]


class PodStories:
    """Record the history of each pod by UID.

    When there are too many pods, the least recently updated one is dropped. This class is thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _stories and all that is in them.
        self._stories: OrderedDict[types.UID, Story] = OrderedDict()

    # The kubelet calls the following methods (its PodObserver).

    def seen(self, pod: v1.Pod, at: datetime.datetime) -> None:
        began = at.timestamp()
        with self._lock:
            story = self._story_locked(pod.metadata.uid)
            story.namespace, story.name = pod.metadata.namespace, pod.metadata.name
            story.add(Line("seen", began, began))

    def admitted(self, uid: types.UID) -> None:
        self.mark(uid, "admitted")

    def refused(self, uid: types.UID, reason: str, message: str) -> None:
        self.mark(uid, "refused", f"{reason}: {message}", failed=True)
        with self._lock:
            self._story_locked(uid).refused = True

    def killing(self, uid: types.UID, container: str, reason: str) -> None:
        """Record the reason for a kill. The runtime manager calls this method through RuntimeCalls."""
        with self._lock:
            self._story_locked(uid).killed_for[container] = reason

    def waits_for_admission(self, uid: types.UID, message: str) -> None:
        self.mark(uid, "waiting", message)

    def updated(self, uid: types.UID, deleted: bool) -> None:
        self.mark(uid, "deleted" if deleted else "updated")

    def removed(self, uid: types.UID) -> None:
        self.mark(uid, "removed")

    def waits_for_volumes(self, uid: types.UID) -> AbstractContextManager[None]:
        return self.stage(uid, "volumes")

    def mark(self, uid: types.UID, stage: str, detail: str = "", failed: bool = False) -> None:
        """Record that something happened to the pod just now."""
        now = time.time()
        self.add(uid, Line(stage, now, now, detail, failed))

    def add(self, uid: types.UID, line: Line) -> None:
        with self._lock:
            self._story_locked(uid).add(line)

    @contextmanager
    def stage(self, uid: types.UID, stage: str, detail: str = "") -> Iterator[None]:
        """Record the `with` block as a stage of the pod. The stage fails if the block raises an exception."""
        began = time.time()
        try:
            yield
        except Exception as err:
            self.add(uid, Line(stage, began, time.time(), f"{detail}: {err}" if detail else str(err), True))
            raise
        line = Line(stage, began, time.time(), detail)
        with self._lock:
            story = self._story_locked(uid)
            # Each sync goes through the stage again, usually in almost no time, and recording that would add nothing.
            if line.ended - began >= _NO_TIME or all(known.stage != stage for known in story.lines()):
                story.add(line)

    def note_event(self, obj: Any, event_type: str, reason: str, message: str, args: tuple[Any, ...] = ()) -> None:
        """Record an event whose message was formatted with `args`. Events that are not about pods are ignored."""
        if isinstance(obj, v1.Pod):
            uid, field_path = obj.metadata.uid, ""
        elif isinstance(obj, v1.ObjectReference) and obj.kind == "Pod":
            uid, field_path = obj.uid, obj.field_path
        else:
            return
        now, message = time.time(), shortened(message)
        with self._lock:
            events = self._story_locked(uid).events
            for known in events:
                if (known.reason, known.message, known.field_path) == (reason, message, field_path):
                    known.last, known.count = now, known.count + 1
                    events.remove(known)
                    events.append(known)
                    return
            event = PodEvent(now, now, event_type, reason, message, field_path)
            _note_cause(event, args)
            events.append(event)

    # The status manager calls the following methods (its PodUpdateNotifier).

    def on_pod_updated(self, pod: v1.Pod, status: v1.PodStatus, is_added: bool) -> None:
        now = time.time()
        ready = podutil.is_pod_ready_condition_true(status)
        with self._lock:
            story = self._story_locked(pod.metadata.uid)
            story.namespace, story.name = pod.metadata.namespace, pod.metadata.name
            for container in (*status.init_container_statuses, *status.container_statuses):
                _note_container(story, container, now)
            if status.phase != story.phase:
                failed = status.phase == v1.POD_FAILED
                story.add(Line(status.phase.lower(), now, now, status.message or status.reason, failed))
                story.phase = status.phase
            if ready != story.ready:
                story.add(Line("ready" if ready else "not ready", now, now))
                story.ready = ready

    def on_pod_removed(self, pod: v1.Pod) -> None:
        self.on_pod_updated(pod, pod.status, False)
        self.mark(pod.metadata.uid, "finished")

    # The following methods answer queries.

    def get(self, uid: types.UID) -> tuple[list[Line], list[PodEvent]]:
        """Return copies of the lines and the events of a pod, oldest first."""
        with self._lock:
            story = self._stories.get(uid)
            return (
                ([], []) if story is None else (story.lines(), [dataclasses.replace(event) for event in story.events])
            )

    def was_refused(self, uid: types.UID) -> bool:
        """Report whether this kubelet has rejected the pod permanently."""
        with self._lock:
            story = self._stories.get(uid)
            return story is not None and story.refused

    def killed_for(self, uid: types.UID) -> dict[str, str]:
        """Return a copy of the reasons for which each container of the pod was last killed, by name."""
        with self._lock:
            story = self._stories.get(uid)
            return {} if story is None else dict(story.killed_for)

    def names(self) -> dict[types.UID, tuple[str, str]]:
        """Return the namespaces and names of the recorded pods by UID, least recently updated first."""
        with self._lock:
            return {uid: (story.namespace, story.name) for uid, story in self._stories.items()}

    def _story_locked(self, uid: types.UID) -> Story:
        story = self._stories.get(uid)
        if story is None:
            story = self._stories[uid] = Story(uid)
            if len(self._stories) > _STORIES:
                self._stories.popitem(last=False)
        else:
            self._stories.move_to_end(uid)
        return story


def shortened(text: str) -> str:
    """Return the part of the text that the history keeps."""
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…"


def _note_cause(event: PodEvent, args: tuple[Any, ...]) -> None:
    """Copy the probe, its output and the missing object from the arguments of the message into the event."""
    for arg in args:
        if isinstance(arg, ProbeType):
            event.probe, event.said = arg, shortened(str(args[-1]))
        elif isinstance(arg, Exception):
            event.missing = apierrors.what_is_not_found(arg)


def _note_container(story: Story, status: v1.ContainerStatus, now: float) -> None:
    """Record that a container has ended, unless this is already recorded."""
    ended, container_id = status.state.terminated, status.container_id
    if ended is None and status.last_state.terminated is not None:
        # The container may have ended and now wait for its restart, or already run again.
        ended = status.last_state.terminated
        container_id = ended.container_id or container_id
    if ended is None or story.containers.get(status.name) == (container_id, True):
        return
    story.containers[status.name] = (container_id, True)
    at = ended.finished_at.timestamp() if ended.finished_at is not None else now
    # A status truncates times to seconds, so the container ended at some time in that second, but not after now.
    at = min(at + 1.0, now) if at.is_integer() else at
    detail = f"{status.name} {describe_end(ended)}"
    story.add(Line("exit", at, at, detail, ended.exit_code != 0))


def describe_end(ended: v1.ContainerStateTerminated) -> str:
    """Return in words how a container ended."""
    if ended.reason == "OOMKilled":
        return "was killed because it used more memory than its limit (OOMKilled)"
    if ended.exit_code == 0:
        return "ended with exit code 0"
    if ended.signal:
        return f"was killed by signal {ended.signal}"
    if ended.exit_code == 137:
        return "was killed (exit code 137)"
    return f"ended with exit code {ended.exit_code}"


# These operations are stages of a pod's history. The values are the stages' names.
STAGES = {
    "run_podsandbox": "sandbox",
    "pull_image": "pull",
    "create_container": "create",
    "start_container": "start",
    "stop_container": "stop",
    "stop_podsandbox": "stop sandbox",
}


class RuntimeCalls:
    """Record the calls of the container runtime, both those under way and those that have ended.

    This class is thread-safe.
    """

    def __init__(self, stories: PodStories) -> None:
        self._stories = stories
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._numbers = itertools.count()
        self._in_flight: dict[int, Call] = {}
        self._totals: dict[str, CallTotals] = {}
        # This field holds the pod's UID and the container's name, by the runtime's id of each sandbox and container.
        self._owners: OrderedDict[str, tuple[types.UID, str]] = OrderedDict()

    @contextmanager
    def recorded(self, operation: str, owner: tuple[str, str] = ("", ""), subject: str = "") -> Iterator[None]:
        """Count the `with` block as a call.

        `owner` is a pod's UID and a container's name. Without it, the owner is looked up by the runtime id in
        `subject`.
        """
        began, at = time.monotonic(), time.time()
        with self._lock:
            uid, container = owner if owner[0] else self._owners.get(subject, owner)
            number = next(self._numbers)
            self._in_flight[number] = Call(operation, at, types.UID(uid), container, subject)
        error: Exception | None = None
        try:
            yield
        except Exception as err:
            error = err
            raise
        finally:
            self._end(number, time.monotonic() - began, error)

    def _end(self, number: int, seconds: float, error: Exception | None) -> None:
        with self._lock:
            call = self._in_flight.pop(number)
            totals = self._totals.get(call.operation)
            if totals is None:
                totals = self._totals[call.operation] = CallTotals()
            totals.count += 1
            totals.recent.append(Ended(call.began, seconds, error is not None))
            if error is not None:
                totals.errors += 1
                totals.last_error = shortened(str(error))
        stage = STAGES.get(call.operation)
        if stage and call.uid:
            self._stories.add(call.uid, line_of(call, call.began + seconds, error))

    def own(self, runtime_id: str, uid: types.UID, container: str = "") -> None:
        """Record that the sandbox or container with this id belongs to the pod."""
        with self._lock:
            self._owners[runtime_id] = (uid, container)
            if len(self._owners) > _IDS:
                self._owners.popitem(last=False)

    def disown(self, runtime_id: str) -> None:
        """Forget the owner of a sandbox or container that has been removed."""
        with self._lock:
            self._owners.pop(runtime_id, None)

    def killing(self, uid: types.UID, container: str, reason: str) -> None:
        self._stories.killing(uid, container, reason)

    def in_flight(self) -> list[Call]:
        """Return the calls under way, oldest first."""
        with self._lock:
            return list(self._in_flight.values())

    def totals(self) -> dict[str, CallTotals]:
        """Return copies of the totals by operation."""
        with self._lock:
            return {
                operation: CallTotals(known.count, known.errors, known.last_error, known.recent.copy())
                for operation, known in self._totals.items()
            }


def line_of(call: Call, ended: float, error: Exception | None = None) -> Line:
    """Return the call as a line of its pod's history."""
    stage = STAGES.get(call.operation, call.operation)
    what = call.subject if call.operation == "pull_image" else call.container
    detail = what if error is None else f"{what}: {error}" if what else str(error)
    return Line(stage, call.began, ended, detail, error is not None)


class Relist(NamedTuple):
    """Describe one relist of the PLEG."""

    at: float
    seconds: float
    failed: bool


class RelistHistory:
    """Record the latest relists. Only the PLEG's thread writes; any thread may read."""

    def __init__(self) -> None:
        self.latest: deque[Relist] = deque(maxlen=_RELISTS_KEPT)

    def relisted(self, at: float, seconds: float, failed: bool) -> None:
        self.latest.append(Relist(at, seconds, failed))


class History:
    """Hold the histories of the loop, the pods, the runtime calls and the relists."""

    def __init__(self, loop_cases: int) -> None:
        self.began = time.time()
        self.loop = LoopHistory(loop_cases)
        self.pods = PodStories()
        self.calls = RuntimeCalls(self.pods)
        self.relists = RelistHistory()

    def observers(self) -> Observers:
        """Return the observers through which a kubelet reports to this history."""
        return Observers(loop=self.loop, pods=self.pods, runtime=self.calls, relists=self.relists)
