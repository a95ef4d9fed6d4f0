"""Every state that the pods of an API server ever had, in order, and what must never happen in it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from framework.apiserver.interfaces import Store
from framework.pods import Pod

DELETED = "DELETED"
_PHASES = ("Pending", "Running", "Succeeded", "Failed")
_ENDED = ("Succeeded", "Failed")
_KINDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True)
class Version(Pod):
    """A pod as it once was; type is that of the watch's event, and DELETED comes with the last state."""

    type: str

    @property
    def version(self) -> int:
        return int(self.json["metadata"]["resourceVersion"])

    @property
    def deleted(self) -> bool:
        """Whether it has been asked to go."""
        return "deletionTimestamp" in self.json["metadata"]

    @property
    def grace(self) -> int | None:
        """Within how many seconds it was asked to go."""
        found: int | None = self.json["metadata"].get("deletionGracePeriodSeconds")
        return found

    @property
    def statuses(self) -> dict[str, dict[str, Any]]:
        """The statuses of all containers by their names."""
        return {each["name"]: each for kind in _KINDS for each in self.status.get(kind) or []}

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        return {each["type"]: each for each in self.status.get("conditions") or []}

    @property
    def ready(self) -> bool:
        return bool(self.conditions.get("Ready", {}).get("status") == "True")


class PodHistory:
    """Records the pods of a store from when it is made until it is stopped, what has been before excepted.

    It looks into the store itself, so that no fault of the server hides anything; what somebody has seen there before
    asking is always known here, too. Use it from any thread.
    """

    def __init__(self, store: Store) -> None:
        self._watch = store.watch("pods")
        # Guards the versions, and the watch.
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, str], list[Version]] = {}
        self._all: list[Version] = []

    def stop(self) -> None:
        with self._caught_up():
            self._watch.stop()

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, with all that has happened recorded."""
        with self._lock:
            for event in self._watch.pending():
                metadata = event.object["metadata"]
                version = Version(event.object, event.type)
                self._all.append(version)
                self._versions.setdefault((metadata["namespace"], metadata["name"]), []).append(version)
            yield

    # What has been.

    def all(self) -> list[Version]:
        """The versions of all pods."""
        with self._caught_up():
            return list(self._all)

    def of(self, name: str, uid: str = "", namespace: str = "default") -> list[Version]:
        """The versions of a pod, or of all that had the name if no uid is given."""
        with self._caught_up():
            found = self._versions.get((namespace, name), [])
            return [each for each in found if uid in ("", each.uid)]

    def latest(self, name: str, namespace: str = "default") -> Version | None:
        """The pod as it is now; None if there is none."""
        found = self.of(name, namespace=namespace)
        return found[-1] if found and found[-1].type != DELETED else None

    def present(self) -> list[Version]:
        """All pods as they are now."""
        with self._caught_up():
            return [found[-1] for found in self._versions.values() if found[-1].type != DELETED]


def assert_history_monotonic(versions: Iterable[Version]) -> None:
    """Check that no pod ever went backwards, however many are among these versions, in the order in which they were.

    What another than the kubelet wrote must not be among them.
    """
    by_uid: dict[str, list[Version]] = {}
    for version in versions:
        by_uid.setdefault(version.uid, []).append(version)
    for found in by_uid.values():
        faults = [fault for before, after in pairwise(found) for fault in _steps_back(before, after)]
        faults += _containers_come_back(found)
        assert not faults, f"{found[0].name}: " + "; ".join(faults)


def assert_never_unready(versions: Sequence[Version]) -> None:
    """Check that a pod, once ready, stayed so until it was asked to go."""
    ready = False
    for version in versions:
        if version.deleted:
            return
        ready = ready or version.ready
        assert version.ready == ready, f"no more ready at {version.version}: {version.summary()}"


def _steps_back(before: Version, after: Version) -> Iterator[str]:
    """What of a pod's next version is less than there was."""
    at = f"at {after.version}"
    if before.type == DELETED:
        yield f"is there again {at}"
    if _rank(after) < _rank(before) or (before.phase in _ENDED and after.phase != before.phase):
        yield f"phase {before.phase} became {after.phase} {at}"
    if before.deleted and not after.deleted:
        yield f"is not to go any more {at}"
    if before.grace is not None and (after.grace is None or after.grace > before.grace):
        yield f"grace {before.grace} became {after.grace} {at}"
    start = before.status.get("startTime")
    if start and after.status.get("startTime") != start:
        yield f"startTime {start} became {after.status.get('startTime')} {at}"
    for name, status in before.statuses.items():
        faults = _container_steps_back(status, after.statuses.get(name))
        yield from (f"container {name} {fault} {at}" for fault in faults)
    for kind, condition in before.conditions.items():
        if fault := _condition_steps_back(condition, after.conditions.get(kind)):
            yield f"condition {kind} {fault} {at}"


def _rank(version: Version) -> int:
    return min(_PHASES.index(version.phase), _PHASES.index("Succeeded"))


def _container_steps_back(before: dict[str, Any], after: dict[str, Any] | None) -> Iterator[str]:
    if after is None:
        yield "has no status any more"
        return
    if after["restartCount"] < before["restartCount"]:
        yield f"restartCount {before['restartCount']} became {after['restartCount']}"
    same = after.get("containerID", "") == before.get("containerID", "")
    state, was = after.get("state") or {}, before.get("state") or {}
    if same and before.get("containerID") and "running" in state and "terminated" in was:
        yield f"{after['containerID']} runs again"
    if same and "running" in state and "running" in was and state["running"] != was["running"]:
        yield f"running since {was['running']} became {state['running']}"
    if before.get("containerID") and not after.get("containerID"):
        yield "has no containerID any more"


def _condition_steps_back(before: dict[str, Any], after: dict[str, Any] | None) -> str:
    if after is None:
        return "is gone"
    was, now = before.get("lastTransitionTime") or "", after.get("lastTransitionTime") or ""
    # It may have changed and changed back between two writes, so the time may grow while the status is the same.
    return f"lastTransitionTime {was} became {now}" if now < was else ""


def _containers_come_back(versions: Iterable[Version]) -> list[str]:
    """The containers that were replaced and are what the status shows again."""
    faults = []
    shown: dict[str, list[str]] = {}
    for version in versions:
        for name, status in version.statuses.items():
            ids = shown.setdefault(name, [])
            if (found := status.get("containerID")) and found not in ids[-1:]:
                if found in ids:
                    faults.append(f"container {name} is {found} again at {version.version}")
                ids.append(found)
    return faults
