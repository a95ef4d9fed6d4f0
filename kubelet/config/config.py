"""Merge the pods of all sources into one stream of minimal changes.

Go: pkg/kubelet/config/config.go
"""

from __future__ import annotations

import copy
import datetime
import enum
import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from kubelet import container as kubecontainer
from kubelet import events
from kubelet import types as kubetypes
from kubelet.config.mux import Mux
from kubelet.config.notes import ManifestNote, ManifestNotes
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util import runtime
from pkg.client_go.tools import record

_UPDATES_CAPACITY = 50


class PodConfigNotificationMode(enum.IntEnum):
    """Name the ways in which the updates channel describes changes."""

    UNKNOWN = 0
    # The channel gets the full state as one SET whenever anything has changed.
    SNAPSHOT = 1
    # The channel gets a SET when pods were added or removed, and otherwise UPDATE and DELETE.
    SNAPSHOT_AND_UPDATES = 2
    # The channel gets ADD, UPDATE, DELETE, REMOVE and RECONCILE. The kubelet uses this mode.
    INCREMENTAL = 3


POD_CONFIG_NOTIFICATION_UNKNOWN = PodConfigNotificationMode.UNKNOWN
POD_CONFIG_NOTIFICATION_SNAPSHOT = PodConfigNotificationMode.SNAPSHOT
POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES = PodConfigNotificationMode.SNAPSHOT_AND_UPDATES
POD_CONFIG_NOTIFICATION_INCREMENTAL = PodConfigNotificationMode.INCREMENTAL


class PodStartupSLIObserver(Protocol):
    """Define the receiver of the times at which pods first arrive, for the start-up latency metric."""

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None: ...


class PodConfig:
    """Merge several pod sources, and send only the changes to the reader, in order."""

    def __init__(
        self,
        mode: PodConfigNotificationMode,
        recorder: record.EventRecorder,
        startup_sli_observer: PodStartupSLIObserver,
    ) -> None:
        self._updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(_UPDATES_CAPACITY)
        self._pods = PodStorage(self._updates, mode, recorder, startup_sli_observer)
        self._mux: Mux[kubetypes.PodUpdate] = Mux(self._pods)
        self._sources_lock = threading.Lock()  # This lock guards _sources.
        self._sources: set[str] = set()
        # `_notes` holds the faults in the manifests of each source, for status reports.
        self._notes = {source: ManifestNotes() for source in (kubetypes.FILE_SOURCE, kubetypes.HTTP_SOURCE)}

    def channel(self, ctx: golang.Context, source: str) -> golang.Channel[kubetypes.PodUpdate]:
        """Return the channel on which the source sends its pods.

        The call also makes the source one of those that seen_all_sources waits for. PodConfig owns every pod from the
        moment it is sent: the sender must no longer change it.
        """
        with self._sources_lock:
            self._sources.add(source)
            return self._mux.channel_with_context(ctx, source)

    def seen_all_sources(self, seen_sources: set[str]) -> bool:
        """Report whether `seen_sources` names all sources and each of them has sent its full state at least once."""
        with self._sources_lock:
            sources = set(self._sources)
        klog.v(5).info_s("Looking for sources, have seen", sources=sorted(sources), seenSources=sorted(seen_sources))
        return sources <= seen_sources and self._pods.seen_sources(sources)

    def updates(self) -> golang.Channel[kubetypes.PodUpdate]:
        """Return the stream of changes. Only PodConfig may send on it."""
        return self._updates

    def find(self, namespace: str, name: str) -> v1.Pod | None:
        """Return a copy of the pod with this name from any source, even if the reader has not received it yet."""
        return self._pods.find(namespace, name)

    def notes_of(self, source: str) -> ManifestNotes:
        """Return the notes in which a file or URL source records the faults of its manifests."""
        return self._notes[source]

    def manifest_notes(self) -> list[ManifestNote]:
        """Return the current faults of all manifests."""
        return [note for notes in self._notes.values() for note in notes.all()]

    def unknown_fields(self, uid: types.UID) -> list[str]:
        """Return the fields of the pod's manifest that the kubelet ignores because the pod type lacks them."""
        return [field for notes in self._notes.values() for field in notes.unknown_fields(uid)]

    def sources(self) -> dict[str, golang.Channel[kubetypes.PodUpdate]]:
        """Return the channels of the sources by name, for inspection only."""
        return self._mux.sources()

    def sync(self) -> None:
        """Send the full state to the updates channel. The call blocks while the channel is full."""
        self._pods.sync()


@dataclass(slots=True)
class _Changes:
    """Collect the pods of one merge by the operation to send for them."""

    adds: list[v1.Pod] = field(default_factory=list)
    updates: list[v1.Pod] = field(default_factory=list)
    deletes: list[v1.Pod] = field(default_factory=list)
    removes: list[v1.Pod] = field(default_factory=list)
    reconciles: list[v1.Pod] = field(default_factory=list)
    # `complete` tells whether all pods could be merged, `lacked_memory` whether a lack of memory prevented one.
    complete: bool = True
    lacked_memory: bool = False


@dataclass(frozen=True, slots=True)
class _SourcePods:
    """Hold the pods of one source. A merge replaces the whole object; a stored object never changes."""

    pods: dict[types.UID, v1.Pod] = field(default_factory=dict)  # The keys are UIDs.
    # `merged` holds the last object that the source sent for each pod. A source often sends the same object again
    # because another pod has changed.
    merged: dict[types.UID, v1.Pod] = field(default_factory=dict)
    # `seen` tells whether the source has sent its full state.
    seen: bool = False


class _PodChange(NamedTuple):
    """Describe the change of one pod: the pod to store, and the copy to send, if any."""

    stored: v1.Pod
    told: list[v1.Pod] | None = None
    copy: v1.Pod | None = None


class PodStorage:
    """Store the pods of each source, and send the changes. No other object sends on the updates channel.

    PodStorage owns the stored pods and hands out copies. Its stored state matches what it has sent. If it cannot copy a
    changed pod, it does not store the change either, and finds the change again when the mux repeats the update. The
    same holds when memory runs out: PodStorage stores nothing of an update before it has built all messages about it.
    """

    def __init__(
        self,
        updates: golang.Channel[kubetypes.PodUpdate],
        mode: PodConfigNotificationMode,
        recorder: record.EventRecorder,
        startup_sli_observer: PodStartupSLIObserver,
    ) -> None:
        self._mode = mode
        self._recorder = recorder
        self._startup_sli_observer = startup_sli_observer
        self._pod_lock = threading.Lock()  # This lock guards _sources.
        self._sources: dict[str, _SourcePods] = {}
        # A merge holds this lock until it has sent its changes, so that the reader receives all changes in the order of
        # the merges. Only the holder of this lock changes `_sources`.
        self._update_lock = threading.Lock()
        self._updates = updates

    def find(self, namespace: str, name: str) -> v1.Pod | None:
        """Return a copy of the pod with this name, or None if no source has one."""
        with self._pod_lock:
            for source in self._sources.values():
                for pod in source.pods.values():
                    if (pod.metadata.namespace, pod.metadata.name) == (namespace, name):
                        return v1.deepcopy(pod)
        return None

    def merge(self, ctx: golang.Context, source: str, update: kubetypes.PodUpdate) -> bool:
        """Merge one update of a source and send the changes; report whether all its pods could be merged.

        The call blocks while the updates channel is full. Raise ctx.err() if ctx ends meanwhile.
        """
        with self._update_lock:
            before = self._sources.get(source, _SourcePods())
            changes, after = self._merge(source, update, before)
            messages = self._notifications(source, changes, after, after.seen and not before.seen)
            with self._pod_lock:
                self._sources[source] = after
            for message in messages:
                message.complete = after.seen and message is messages[-1]
                self._updates.send(message, ctx)
            return changes.complete

    def _notifications(
        self, source: str, changes: _Changes, after: _SourcePods, first_set: bool
    ) -> list[kubetypes.PodUpdate]:
        match self._mode:
            case PodConfigNotificationMode.INCREMENTAL:
                return _incremental(source, changes, first_set)
            case PodConfigNotificationMode.SNAPSHOT_AND_UPDATES:
                messages = []
                if changes.removes or changes.adds or first_set:
                    messages.append(self._snapshot(source, after))
                if changes.updates:
                    messages.append(_pod_update(source, kubetypes.UPDATE, changes.updates))
                if changes.deletes:
                    messages.append(_pod_update(source, kubetypes.DELETE, changes.deletes))
                return messages
            case PodConfigNotificationMode.SNAPSHOT:
                if changes.updates or changes.deletes or changes.adds or changes.removes or first_set:
                    return [self._snapshot(source, after)]
                return []
            case _:
                raise ValueError(f"unsupported PodConfigNotificationMode: {self._mode!r}")

    def _snapshot(self, source: str, after: _SourcePods) -> kubetypes.PodUpdate:
        """Return a SET of all pods, with the new state of this source."""
        return _pod_update(source, kubetypes.SET, _copies({**self._sources, source: after}))

    def _merge(self, source: str, update: kubetypes.PodUpdate, before: _SourcePods) -> tuple[_Changes, _SourcePods]:
        """Return the changes that the update makes, and the pods of the source after it."""
        changes = _Changes()
        match update.op:
            case kubetypes.ADD | kubetypes.UPDATE | kubetypes.DELETE:
                _log_operation(source, update)
                after = _SourcePods(dict(before.pods), dict(before.merged), before.seen)
                self._update_pods(source, update.pods, before, after, changes)
            case kubetypes.REMOVE:
                _log_operation(source, update)
                gone = {pod.metadata.uid: before.pods.get(pod.metadata.uid) for pod in update.pods}
                changes.removes.extend(pod for pod in gone.values() if pod is not None)
                after = _SourcePods(_without(before.pods, gone), _without(before.merged, gone), before.seen)
            case kubetypes.SET:
                klog.v(4).info_s("Setting pods for source", source=source)
                after = _SourcePods()
                self._update_pods(source, update.pods, before, after, changes)
                changes.removes.extend(_without(before.pods, after.pods).values())
                # The kubelet must not stop a running pod because it had no memory to merge the pod's update.
                after = replace(after, seen=before.seen or not changes.lacked_memory)
            case _:
                klog.info_s("Received invalid update type", type=update)
                after = before
        return changes, after

    def _update_pods(
        self, source: str, new_pods: Sequence[v1.Pod], before: _SourcePods, after: _SourcePods, changes: _Changes
    ) -> None:
        """Merge new_pods into `after`, and collect what has changed."""
        now = datetime.datetime.now(datetime.UTC)
        for ref in filter_invalid_pods(new_pods, source, self._recorder):
            uid = ref.metadata.uid
            existing, merged = before.pods.get(uid), before.merged.get(uid)
            if existing is not None:
                after.pods[uid] = existing  # The pod stays even if the merge of its update fails.
            if merged is not None:
                after.merged[uid] = merged
            change: _PodChange | None = None
            taken_in = False
            with runtime.contain("Unable to merge a pod", source=source, pod=klog.kobj(ref), podUID=uid):
                try:
                    change = self._change_of_pod(source, ref, existing, merged, changes, now)
                    taken_in = True
                except MemoryError:
                    changes.lacked_memory = True
                    raise
            changes.complete = changes.complete and taken_in
            if change is None:
                continue
            # An error below this line must fail the whole update. Otherwise PodStorage would store a change that it
            # does not send.
            after.pods[uid], after.merged[uid] = change.stored, ref
            if change.told is not None and change.copy is not None:
                change.told.append(change.copy)

    def _change_of_pod(
        self,
        source: str,
        ref: v1.Pod,
        existing: v1.Pod | None,
        merged: v1.Pod | None,
        changes: _Changes,
        now: datetime.datetime,
    ) -> _PodChange | None:
        """Return the change that `ref` makes to the existing pod, or None. Modify no argument except `ref`."""
        # The annotation must be set before any comparison.
        ref.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = source
        if not kubetypes.is_static_pod(ref):
            self._startup_sli_observer.observed_pod_on_watch(ref, now)
        if existing is None:
            _record_first_seen_time(ref)
            return _PodChange(ref, changes.adds, v1.deepcopy(ref))
        if merged is ref:
            return None  # The source has sent the same object again. Go compares the contents to detect that.
        if isinstance(existing, v1.PartialPod) and not isinstance(ref, v1.PartialPod):
            # The pod counts as changed even if its unreadable fields are gone, because only now the kubelet knows the
            # whole pod.
            _keep_first_seen_time(existing, ref)
            told = changes.updates if ref.metadata.deletion_timestamp is None else changes.deletes
            return _PodChange(ref, told, v1.deepcopy(ref))
        updated = _shallow_copy(existing)
        match _check_and_update_pod(updated, ref):
            case _Difference.NONE:
                return _PodChange(updated)
            case _Difference.UPDATE:
                told = changes.updates
            case _Difference.RECONCILE:
                told = changes.reconciles
            case _Difference.GRACEFUL_DELETE:
                told = changes.deletes
        return _PodChange(updated, told, v1.deepcopy(updated))

    def seen_sources(self, sources: Iterable[str]) -> bool:
        """Report whether each of the sources has sent a SET."""
        with self._pod_lock:
            return all(source in self._sources and self._sources[source].seen for source in sources)

    def sync(self) -> None:
        """Send a copy of the full state to the updates channel."""
        with self._update_lock:
            self._updates.send(kubetypes.PodUpdate(self.merged_state(), kubetypes.SET, kubetypes.ALL_SOURCE))

    def merged_state(self) -> list[v1.Pod]:
        """Return copies of all pods of all sources."""
        with self._pod_lock:
            return _copies(self._sources)


def _copies(sources: Mapping[str, _SourcePods]) -> list[v1.Pod]:
    return [v1.deepcopy(pod) for source in sources.values() for pod in source.pods.values()]


def _without(pods: Mapping[types.UID, v1.Pod], uids: Container[types.UID]) -> dict[types.UID, v1.Pod]:
    return {uid: pod for uid, pod in pods.items() if uid not in uids}


def _pod_update(source: str, op: kubetypes.PodOperation, pods: list[v1.Pod]) -> kubetypes.PodUpdate:
    return kubetypes.PodUpdate(pods, op, source)


def _incremental(source: str, changes: _Changes, first_set: bool) -> list[kubetypes.PodUpdate]:
    messages = []
    if changes.removes:
        messages.append(_pod_update(source, kubetypes.REMOVE, changes.removes))
    if changes.adds:
        messages.append(_pod_update(source, kubetypes.ADD, changes.adds))
    if changes.updates:
        messages.append(_pod_update(source, kubetypes.UPDATE, changes.updates))
    if changes.deletes:
        messages.append(_pod_update(source, kubetypes.DELETE, changes.deletes))
    if first_set and not (changes.adds or changes.updates or changes.deletes):
        # An empty ADD tells the kubelet that the source is ready and has no pods.
        messages.append(_pod_update(source, kubetypes.ADD, []))
    if changes.reconciles:
        messages.append(_pod_update(source, kubetypes.RECONCILE, changes.reconciles))
    return messages


def _log_operation(source: str, update: kubetypes.PodUpdate) -> None:
    messages = {
        kubetypes.ADD: "Adding new pods from source",
        kubetypes.DELETE: "Gracefully deleting pods from source",
        kubetypes.UPDATE: "Updating pods from source",
        kubetypes.REMOVE: "Removing pods from source",
    }
    if klog.v(4).enabled:
        klog.v(4).info_s(messages[update.op], source=source, pods=klog.kobjs(update.pods))


def filter_invalid_pods(pods: Sequence[v1.Pod], source: str, recorder: record.EventRecorder) -> list[v1.Pod]:
    """Return the pods whose full name and UID no earlier pod in the list has; record an event for each other pod.

    Each source has validated its pods one by one. This function only finds conflicts between two pods.

    DIVERGES (fault of Go): of two pods from one source with the same UID, the kubelet ignores the second.
    Go: pkg/kubelet/config/config.go, filterInvalidPods: the Go kubelet compares only the names, and accepts both pods.
    Why: both pods would share a worker and a directory, and each would undo what the other needs.
    Test: config_test.py:test_duplicate_filtered_with_event
    """
    names: set[str] = set()
    uids: set[types.UID] = set()
    filtered: list[v1.Pod] = []
    for pod in pods:
        name, uid = kubecontainer.get_pod_full_name(pod), pod.metadata.uid
        if name in names:
            _ignore_duplicate(pod, source, recorder, "name", pod.metadata.name)
        elif uid in uids:
            _ignore_duplicate(pod, source, recorder, "uid", uid)
        else:
            names.add(name)
            uids.add(uid)
            filtered.append(pod)
    return filtered


def _ignore_duplicate(pod: v1.Pod, source: str, recorder: record.EventRecorder, what: str, value: str) -> None:
    message = f"Pod failed validation due to duplicate pod {what}, ignoring"
    klog.info_s(message, pod=klog.kobj(pod), podUID=pod.metadata.uid, source=source)
    recorder.eventf(
        pod,
        v1.EVENT_TYPE_WARNING,
        events.FAILED_VALIDATION,
        'Error validating pod %s from %s due to duplicate pod %s "%s", ignoring',
        format.pod(pod),
        source,
        what,
        value,
    )


# `_LOCAL_ANNOTATIONS` holds the annotations that the kubelet itself adds to a pod.
_LOCAL_ANNOTATIONS = (
    kubetypes.CONFIG_SOURCE_ANNOTATION_KEY,
    kubetypes.CONFIG_MIRROR_ANNOTATION_KEY,
    kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY,
)


def _is_annotation_map_equal(existing: Mapping[str, str], candidate: Mapping[str, str]) -> bool:
    """Report whether the two maps are equal except for local annotations."""
    return _without_local(existing) == _without_local(candidate)


def _without_local(annotations: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in annotations.items() if k not in _LOCAL_ANNOTATIONS}


def _record_first_seen_time(pod: v1.Pod) -> None:
    klog.v(4).info_s("Receiving a new pod", pod=klog.kobj(pod))
    seen = kubetypes.Timestamp().get_string()
    pod.metadata.annotations[kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY] = seen


def _keep_first_seen_time(existing: v1.Pod, ref: v1.Pod) -> None:
    first_seen = existing.metadata.annotations.get(kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY, "")
    ref.metadata.annotations[kubetypes.CONFIG_FIRST_SEEN_ANNOTATION_KEY] = first_seen


def _update_annotations(existing: v1.Pod, ref: v1.Pod) -> None:
    """Replace the annotations of `existing` with those of `ref`, but keep its local ones."""
    annotations = dict(ref.metadata.annotations)
    for key in _LOCAL_ANNOTATIONS:
        if key in existing.metadata.annotations:
            annotations[key] = existing.metadata.annotations[key]
    existing.metadata.annotations = annotations


def _pods_differ_semantically(existing: v1.Pod, ref: v1.Pod) -> bool:
    """Report whether `ref` differs from `existing` in anything except the status and local annotations."""
    old, new = existing.metadata, ref.metadata
    # The test with `is` avoids comparing two specs if this pod was last updated from the same `ref`.
    return not (
        (existing.spec is ref.spec or existing.spec == ref.spec)
        and old.labels == new.labels
        and old.deletion_timestamp == new.deletion_timestamp
        and old.deletion_grace_period_seconds == new.deletion_grace_period_seconds
        and _is_annotation_map_equal(old.annotations, new.annotations)
    )


class _Difference(enum.Enum):
    """Name what the kubelet must do about a pod that its source has sent again."""

    NONE = enum.auto()
    UPDATE = enum.auto()
    # Only the status differs. The kubelet is the authority on the status, so it corrects what another client has
    # written.
    RECONCILE = enum.auto()
    GRACEFUL_DELETE = enum.auto()


def _check_and_update_pod(existing: v1.Pod, ref: v1.Pod) -> _Difference:
    """Update `existing` from `ref`, and return how they differed."""
    if not _pods_differ_semantically(existing, ref):
        if existing.status is ref.status or existing.status == ref.status:
            return _Difference.NONE
        existing.status = ref.status
        return _Difference.RECONCILE

    _keep_first_seen_time(existing, ref)
    existing.spec = ref.spec
    existing.metadata.labels = ref.metadata.labels
    existing.metadata.deletion_timestamp = ref.metadata.deletion_timestamp
    existing.metadata.deletion_grace_period_seconds = ref.metadata.deletion_grace_period_seconds
    existing.metadata.generation = ref.metadata.generation
    existing.status = ref.status
    _update_annotations(existing, ref)

    return _Difference.UPDATE if ref.metadata.deletion_timestamp is None else _Difference.GRACEFUL_DELETE


def _shallow_copy(pod: v1.Pod) -> v1.Pod:
    """Copy the pod so that its fields and those of its metadata can be set without changing the original."""
    copied = copy.copy(pod)
    copied.metadata = copy.copy(pod.metadata)
    return copied
