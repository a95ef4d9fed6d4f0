"""Record every state of an API server's pods in order, and check what must never happen."""

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
    """Hold a version of a pod; `type` is the type of the watch event. DELETED comes with the last state."""

    type: str

    @property
    def version(self) -> int:
        return int(self.json["metadata"]["resourceVersion"])

    @property
    def deleted(self) -> bool:
        """Report whether somebody has requested the pod's deletion."""
        return "deletionTimestamp" in self.json["metadata"]

    @property
    def grace(self) -> int | None:
        """Return the deletion's grace period in seconds, or None if nobody has requested a deletion."""
        found: int | None = self.json["metadata"].get("deletionGracePeriodSeconds")
        return found

    @property
    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the statuses of all containers by their names."""
        return {each["name"]: each for kind in _KINDS for each in self.status.get(kind) or []}

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        return {each["type"]: each for each in self.status.get("conditions") or []}

    @property
    def ready(self) -> bool:
        return bool(self.conditions.get("Ready", {}).get("status") == "True")


class PodHistory:
    """Record the pods of a store from now on until `stop`. All methods are thread-safe.

    The record comes from the store itself, so that no fault of the server hides anything. It contains everything that
    the caller has already seen in the store.
    """

    def __init__(self, store: Store) -> None:
        self._watch = store.watch("pods")
        # The lock guards the versions and the watch.
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, str], list[Version]] = {}
        self._all: list[Version] = []

    def stop(self) -> None:
        with self._caught_up():
            self._watch.stop()

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, after all past events have been recorded."""
        with self._lock:
            for event in self._watch.pending():
                metadata = event.object["metadata"]
                version = Version(event.object, event.type)
                self._all.append(version)
                self._versions.setdefault((metadata["namespace"], metadata["name"]), []).append(version)
            yield

    def all(self) -> list[Version]:
        """Return the versions of all pods."""
        with self._caught_up():
            return list(self._all)

    def of(self, name: str, uid: str = "", namespace: str = "default") -> list[Version]:
        """Return the versions of a pod, or of all pods that had this name if no UID is given."""
        with self._caught_up():
            found = self._versions.get((namespace, name), [])
            return [each for each in found if uid in ("", each.uid)]

    def latest(self, name: str, namespace: str = "default") -> Version | None:
        """Return the pod's current version, or None if the pod does not exist."""
        found = self.of(name, namespace=namespace)
        return found[-1] if found and found[-1].type != DELETED else None

    def present(self) -> list[Version]:
        """Return the current versions of all pods."""
        with self._caught_up():
            return [found[-1] for found in self._versions.values() if found[-1].type != DELETED]


def assert_history_monotonic(versions: Iterable[Version]) -> None:
    """Check that no pod's status ever moved backwards. The versions, of any number of pods, are in their order.

    They must not include versions that a program other than the kubelet wrote.
    """
    by_uid: dict[str, list[Version]] = {}
    for version in versions:
        by_uid.setdefault(version.uid, []).append(version)
    for found in by_uid.values():
        faults = [fault for before, after in pairwise(found) for fault in _steps_back(before, after)]
        faults += _containers_come_back(found)
        assert not faults, f"{found[0].name}: " + "; ".join(faults)


def assert_never_unready(versions: Sequence[Version]) -> None:
    """Check that a ready pod stayed ready until its deletion was requested."""
    ready = False
    for version in versions:
        if version.deleted:
            return
        ready = ready or version.ready
        assert version.ready == ready, f"readiness became {version.ready} at {version.version}: {version.summary()}"


def _steps_back(before: Version, after: Version) -> Iterator[str]:
    """Yield what has moved backwards in a pod's next version."""
    at = f"at {after.version}"
    if before.type == DELETED:
        yield f"exists again {at}"
    if _rank(after) < _rank(before) or (before.phase in _ENDED and after.phase != before.phase):
        yield f"phase {before.phase} became {after.phase} {at}"
    if before.deleted and not after.deleted:
        yield f"no longer has a deletionTimestamp {at}"
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
        yield "no longer has a status"
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
        yield "no longer has a containerID"


def _condition_steps_back(before: dict[str, Any], after: dict[str, Any] | None) -> str:
    if after is None:
        return "is gone"
    was, now = before.get("lastTransitionTime") or "", after.get("lastTransitionTime") or ""
    # The condition may have changed and changed back between two writes, so the time may advance while the status stays
    # the same.
    return f"lastTransitionTime {was} became {now}" if now < was else ""


def _containers_come_back(versions: Iterable[Version]) -> list[str]:
    """Find the containers that the status shows again after another container has replaced them."""
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
