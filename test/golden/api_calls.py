"""Make calls of a kubelet to an API server comparable: the recorded ones of the Go kubelet and those of ours.

What differs from run to run (UIDs, times, addresses, random names) is replaced or left out. A difference between two
calls is a line of text, so that a pattern can separate the known differences from others.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from framework.apiserver import cluster
from framework.apiserver.interfaces import Request
from golden import normalize


@dataclass(slots=True, eq=False)
class Call:
    """Describe one call. `at` is its start time in the format of the recordings, which sorts as text."""

    verb: str
    uri: str
    at: str = ""
    code: int = 0
    sent: Any = None

    @property
    def path(self) -> str:
        return urlsplit(self.uri).path

    @property
    def query(self) -> str:
        """Return the query with placeholders for random times and for versions."""
        pairs = []
        for name, value in parse_qsl(urlsplit(self.uri).query):
            if name in ("timeoutSeconds", "timeout") and self.verb == "watch":
                value = "<random>"
            elif name == "resourceVersion" and value != "0":
                value = "<version>"
            pairs.append((name, value))
        return urlencode(sorted(pairs), safe="<>=!,")

    @property
    def resource(self) -> str:
        """Return the plural name of the resource, such as pods."""
        parts = self.path.split("/")[3 if self.path.startswith("/api/") else 4 :]
        return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]

    @property
    def changes(self) -> bool:
        return self.verb not in ("get", "list", "watch")

    @property
    def moment(self) -> float:
        """Return the start time in seconds since the epoch."""
        return datetime.fromisoformat(self.at).timestamp()

    def __str__(self) -> str:
        query = self.query
        path = re.sub(r"(/events/[^/.]+)\..*", r"\1.<random>", self.path)
        return f"{self.verb} {path}{'?' if query else ''}{query} {self.code}"


def load(scenario: str) -> list[Call]:
    """Return the recorded calls in the order in which they began.

    The recording has a watch twice: at its start and its end.
    """
    found: dict[tuple[str, str, str], Call] = {}
    for text in (normalize.DATA / scenario / "api.jsonl").read_text().splitlines():
        line = json.loads(text)
        call = Call(line["verb"], line["uri"], line["t"], line["code"], line.get("sent"))
        unique = (call.verb, call.uri, call.at) if call.verb == "watch" else (call.verb, call.uri, str(len(found)))
        found[unique] = call
    return sorted(found.values(), key=lambda call: call.at)


class Recorder:
    """Record a user's requests to a cluster from now on. Create the recorder before the cluster starts."""

    def __init__(self, target: cluster.Cluster, user: str) -> None:
        self._user = user
        self._lock = threading.Lock()  # The lock guards the two fields below.
        self._calls: list[Call] = []
        self._running: dict[int, Call] = {}
        self._before, self._after = target.faults.before, target.requests
        target.faults.before = self._begin  # type: ignore[method-assign]
        target.server.audit = self._end

    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls)

    def _begin(self, request: Request) -> None:
        if request.user.name == self._user:
            pairs = sorted((name, value) for name, values in request.query.items() for value in values)
            uri = f"{request.path}{'?' if pairs else ''}{urlencode(pairs)}"
            sent = json.loads(request.body) if request.body else None
            # The recorded server responds to a watch when the watch begins. Our watch may end only with the test.
            code = 200 if request.verb == "watch" else 0
            call = Call(request.verb, uri, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", code, sent)
            with self._lock:
                self._calls.append(call)
                self._running[id(request)] = call
        self._before(request)

    def _end(self, request: Request, code: int) -> None:
        with self._lock:
            call = self._running.pop(id(request), None)
            if call is not None and call.verb != "watch":
                call.code = code
        self._after(request, code)


@dataclass(slots=True)
class PodLife:
    """Hold the calls about a pod. Events and other calls come from two threads: their relative order means nothing."""

    calls: list[Call] = field(default_factory=list)

    @property
    def writes(self) -> list[Call]:
        """Return all writes except events, without patches that change nothing that is compared."""
        found = [call for call in self.calls if call.changes and call.resource != "events"]
        return [call for call in found if call.verb != "patch" or comparable(call.sent).get("status")]

    @property
    def events(self) -> list[Call]:
        """Return the writes of events.

        Those of containers that are stopped concurrently are sorted, because they have no order.
        """
        found = [call for call in self.calls if call.changes and call.resource == "events"]
        result: list[Call] = []
        for stopping, group in groupby(found, key=lambda call: call.sent.get("reason") == "Killing"):
            calls = list(group)
            result += sorted(calls, key=lambda call: str(call.sent["message"])) if stopping else calls
        return result

    def unread(self) -> list[str]:
        """Return the patches of the status without a preceding read of the pod."""
        found, read = [], False
        for call in self.calls:
            if call.resource != "pods":
                continue
            if call.verb == "patch" and not read:
                found.append(str(call))
            read = call.verb == "get"
        return found


def lives(calls: Iterable[Call]) -> dict[str, PodLife]:
    """Group the calls by the name of their pod."""
    found: dict[str, PodLife] = {}
    for call in calls:
        name = _pod_of(call)
        if name:
            found.setdefault(name, PodLife()).calls.append(call)
    return found


def _pod_of(call: Call) -> str:
    parts = call.path.split("/")
    if call.resource == "pods" and "namespaces" in parts:
        return parts[6] if len(parts) > 6 else str(call.sent["metadata"]["name"])
    if call.resource == "events" and "/namespaces/default/" not in call.path:
        return parts[6].split(".")[0] if len(parts) > 6 else str(call.sent["involvedObject"]["name"])
    return ""


def diff_writes(recorded: Sequence[Call], ours: Sequence[Call], where: str) -> Iterator[str]:
    """Yield the differences in order and content of the writes, one line each.

    Calls are first matched by everything that they contain. The remaining ones are then matched by their subject.
    """
    recorded = _as_told(recorded, ours)
    for some, others in _unmatched(recorded, _as_told(ours, recorded), _key):
        rest, other_rest = list(some), list(others)
        for one, other in _matched(some, others):
            yield from normalize.diff(comparable(one.sent), comparable(other.sent), f"{where}: {one.verb}")
            rest.remove(one)
            other_rest.remove(other)
        yield from (f"{where}: only recorded: {_key(call)}" for call in rest)
        yield from (f"{where}: only ours: {_key(call)}" for call in other_rest)


# Of two statuses that a pod has within this time, in seconds, a busy machine may report only the second.
_AT_ONCE = 1.5


def _as_told(calls: Sequence[Call], others: Sequence[Call]) -> Sequence[Call]:
    """Return the calls, with one patch in place of several patches that the other kubelet has sent as one.

    A kubelet, the Go kubelet included, reports the status that a pod has when the pod's turn comes, and none of the
    statuses before it. So the machine's speed decides which of two statuses in quick succession are reported.
    """
    sent = {_key(call) for call in others}
    result: list[Call] = []
    rest = list(calls)
    while rest:
        told, count = rest[0], 1
        if _key(told) not in sent:
            joined = enumerate(_joined(rest), start=2)
            count, told = next(((n, call) for n, call in joined if _key(call) in sent), (count, told))
        result.append(told)
        del rest[:count]
    return result


def _joined(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield patches that combine the first two calls, the first three, and so on, while they are about one status."""
    joined = calls[0]
    for call in calls[1:]:
        of_the_same = (str(call), call.resource, call.verb) == (str(joined), "pods", "patch")
        if not of_the_same or call.moment - joined.moment > _AT_ONCE:
            return
        joined = replace(joined, sent=call.sent | {"status": _patched(joined.sent["status"], call.sent["status"])})
        yield joined


def _patched(status: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Combine two patches into one. Conditions are combined one by one and field by field."""
    result = status | later
    if "conditions" in status and "conditions" in later:
        of_type: dict[str, dict[str, Any]] = {}
        for each in (*status["conditions"], *later["conditions"]):
            of_type[each["type"]] = of_type.get(each["type"], {}) | each
        order = result.get("$setElementOrder/conditions", [{"type": name} for name in of_type])
        result["conditions"] = [of_type[each["type"]] for each in order if each["type"] in of_type]
    return result


def _unmatched(
    recorded: Sequence[Call], ours: Sequence[Call], key: Callable[[Call], str]
) -> Iterator[tuple[Sequence[Call], Sequence[Call]]]:
    matcher = difflib.SequenceMatcher(None, [key(c) for c in recorded], [key(c) for c in ours], autojunk=False)
    for tag, start, end, our_start, our_end in matcher.get_opcodes():
        if tag != "equal":
            yield recorded[start:end], ours[our_start:our_end]


def _matched(recorded: Sequence[Call], ours: Sequence[Call]) -> Iterator[tuple[Call, Call]]:
    matcher = difflib.SequenceMatcher(None, [str(c) for c in recorded], [str(c) for c in ours], autojunk=False)
    for start, our_start, length in matcher.get_matching_blocks():
        yield from zip(recorded[start : start + length], ours[our_start : our_start + length], strict=True)


def _key(call: Call) -> str:
    return f"{call} {json.dumps(comparable(call.sent), sort_keys=True)}"


# The Go client writes these fields even if they are empty.
_EMPTY_TIMES = ("lastProbeTime", "eventTime", "startedAt", "finishedAt", "creationTimestamp")
# These times change with a status, unless the change happens within the same second.
_CHANGING_TIMES = ("lastTransitionTime", "lastHeartbeatTime")
_OF_THE_SERVER = ("resourceVersion", "managedFields")

_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_CONTAINER_ID = re.compile(r"\bcontainerd://[0-9a-f]{64}\b")
_ID = re.compile(r"(?<!sha256:)\b[0-9a-f]{64}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FRACTION = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
_HASH = re.compile(r"\b[0-9a-f]{32}\b")
_ADDRESS = re.compile(r"\b(?!0\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
_TOKEN_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b")
_EVENT_NAME = re.compile(r"(\w)\.[0-9a-f]{16}$")
# A cgroup of version 1 without a limit reports this value. The recorded kubelet mistook the value for a limit. The
# value is not part of the pod.
_UNLIMITED = "9007199254740988Ki"


def comparable(value: Any) -> Any:
    """Replace what is specific to a run by placeholders, and leave out conditions in which only the times changed."""
    if isinstance(value, dict):
        return _comparable_fields(value)
    if isinstance(value, list):
        items = map(comparable, value)
        return [item for item in items if item not in ({}, None)]
    if isinstance(value, str):
        return _replaced(value)
    return value


def _comparable_fields(value: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: comparable(item)
        for key, item in value.items()
        if key not in _CHANGING_TIMES + _OF_THE_SERVER and not (key in _EMPTY_TIMES and item is None)
    }
    # Leave out the conditions that a patch contains only because of their times.
    if "$setElementOrder/conditions" in kept:
        changed = [item for item in kept.get("conditions", []) if item.keys() - {"type"}]
        kept["conditions"] = changed
        if not changed:
            del kept["conditions"], kept["$setElementOrder/conditions"]
    if kept.get("resources") in ({}, {"limits": {"memory": _UNLIMITED}}, {"limits": None}):
        del kept["resources"]
    return kept


def _replaced(text: str) -> str:
    text = _CONTAINER_ID.sub("containerd://<id>", _UID.sub("<uid>", text))
    text = _EVENT_NAME.sub(r"\1.<random>", _ID.sub("<id>", text))
    text = _TOKEN_VOLUME.sub("kube-api-access-<random>", text)
    text = _HASH.sub("<hash>", _ADDRESS.sub("<ip>", _FRACTION.sub("<fine time>", _TIME.sub("<time>", text))))
    # Our client replaces the words of its own gRPC library for this error by the words of Go's library.
    return text.replace("context deadline exceeded", "Deadline Exceeded")


@dataclass(slots=True)
class Known:
    """Describe an expected difference by a pattern of its line and a reason.

    With `always`, a run without it is an error.
    """

    pattern: str
    why: str
    always: bool = True
    seen: bool = False


def unknown(table: Iterable[Known], differences: Iterable[str]) -> Iterator[str]:
    """Yield the differences that are not in the table, and mark the entries that were found."""
    table = list(table)
    for line in differences:
        fitting = [known for known in table if re.search(known.pattern, line)]
        for known in fitting:
            known.seen = True
        if not fitting:
            yield line
