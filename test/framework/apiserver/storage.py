"""Store objects by resource and key, with one resource version for all of them and a history for watches.

The storage knows nothing about the meaning of objects. It never changes a stored object: each change stores another
one. All methods are thread-safe; the storage calls no other code while it holds its lock.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from .interfaces import Object

Key = tuple[str, str]
"""The key is a namespace, which is empty for cluster-scoped objects, and a name."""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_encode = msgspec.json.encode


class CompactedError(Exception):
    """Signal that a version has been forgotten. `oldest` is the oldest known version."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"compacted up to {oldest}")
        self.oldest = oldest


class Entry:
    """Hold one object at one version. Each form of it is encoded at most once."""

    __slots__ = ("_encoded", "_item", "key", "object", "version")

    def __init__(self, key: Key, obj: Object, version: int) -> None:
        self.key = key
        self.object = obj
        self.version = version
        self._encoded: bytes | None = None
        self._item: bytes | None = None

    def json(self) -> bytes:
        if self._encoded is None:
            self._encoded = _encode(self.object)
        return self._encoded

    def item_json(self) -> bytes:
        """Return the object as an item of a list, without its kind and version."""
        if self._item is None:
            self._item = _encode({k: v for k, v in self.object.items() if k not in ("kind", "apiVersion")})
        return self._item

    def copy(self) -> Object:
        """Return a copy of the object that the caller may change."""
        obj: Object = msgspec.json.decode(self.json())
        return obj


class Change:
    """Describe the change at one version. The entry of a deletion is the last state, at the version of the deletion."""

    __slots__ = ("_gone", "entry", "lines", "previous", "type", "version")

    def __init__(self, type: str, entry: Entry, previous: Entry | None) -> None:
        self.type = type
        self.entry = entry
        self.previous = previous
        self.version = entry.version
        self.lines: dict[object, bytes] = {}  # Watches send these lines. The key is the form.
        self._gone: Entry | None = None

    def gone(self) -> Entry:
        """Return the previous state at this version, for a watch whose selector no longer matches the object."""
        if self.previous is None:
            return self.entry
        if self._gone is None:
            self._gone = at_version(self.previous, self.version)
        return self._gone


def at_version(entry: Entry, version: int) -> Entry:
    obj = dict(entry.object)
    obj["metadata"] = {**obj["metadata"], "resourceVersion": str(version)}
    return Entry(entry.key, obj, version)


class Watcher:
    """Deliver the changes of some resources in order to one consumer. Any thread may call `stop`."""

    def __init__(self, storage: Storage, resources: Sequence[str], namespace: str = "", name: str = "") -> None:
        self._storage = storage
        self._resources = resources
        self._namespace = namespace
        self._name = name
        self._queue: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self.initial: list[Entry] = []
        self.version = 0
        self.stopped = False

    def next(self, timeout: float | None) -> Change | None:
        """Return the next change, or None after the timeout or after `stop`."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def is_empty(self) -> bool:
        """Report whether the consumer has received all changes."""
        return self._queue.empty()

    def caught_up(self) -> int | None:
        """Return the version up to which the consumer has seen everything, or None if changes are waiting."""
        return self._storage.version_if(self.is_empty)

    def stop(self) -> None:
        self.stopped = True
        self._storage.forget(self._resources, self)
        self._queue.put(None)

    def wants(self, key: Key) -> bool:
        return (not self._namespace or key[0] == self._namespace) and (not self._name or key[1] == self._name)

    def put(self, change: Change) -> None:
        if change.version > self.version:  # A watch may begin at a future version.
            self._queue.put(change)


@dataclass(slots=True)
class _Bucket:
    """Hold the objects, the history and the watchers of one resource."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    history: deque[Change] = field(default_factory=deque)
    compacted: int = 0  # This is the version of the newest forgotten change.
    watchers: list[Watcher] = field(default_factory=list)


class Storage:
    """Store objects. `history` is the number of changes of each resource that are remembered."""

    def __init__(self, history: int = 2000) -> None:
        self._history = history
        # The lock guards the version and the buckets with their content.
        self._lock = threading.Lock()
        self._version = 1
        self._buckets: dict[str, _Bucket] = {}

    @property
    def version(self) -> int:
        return self._version

    def get(self, resource: str, key: Key) -> Entry | None:
        with self._lock:
            return self._bucket(resource).entries.get(key)

    def entries(self, resource: str, namespace: str = "", *, version: int | None = None) -> tuple[list[Entry], int]:
        """Return the objects in the order of their keys, and their version. Raise CompactedError if it is forgotten."""
        with self._lock:
            bucket = self._bucket(resource)
            if version is None or version >= self._version:
                found = list(bucket.entries.values())
                version = self._version
            else:
                found = list(_rolled_back(bucket, version).values())
        if namespace:
            found = [entry for entry in found if entry.key[0] == namespace]
        found.sort(key=lambda entry: entry.key)
        return found, version

    def insert(self, resource: str, key: Key, obj: Object) -> Entry | None:
        """Store a new object and set its resourceVersion. Return None if the key exists."""
        with self._lock:
            bucket = self._bucket(resource)
            if key in bucket.entries:
                return None
            entry = self._stamp(key, obj)
            bucket.entries[key] = entry
            self._record(bucket, Change(ADDED, entry, None))
            return entry

    def replace(self, resource: str, old: Entry, obj: Object) -> Entry | None:
        """Store a new state and set its resourceVersion. Return None if `old` is no longer the stored state."""
        with self._lock:
            bucket = self._bucket(resource)
            if bucket.entries.get(old.key) is not old:
                return None
            entry = self._stamp(old.key, obj)
            bucket.entries[old.key] = entry
            self._record(bucket, Change(MODIFIED, entry, old))
            return entry

    def remove(self, resource: str, old: Entry) -> Entry | None:
        """Remove an object. Return its last state with the deletion's version, or None if `old` is outdated."""
        with self._lock:
            bucket = self._bucket(resource)
            if bucket.entries.get(old.key) is not old:
                return None
            del bucket.entries[old.key]
            self._version += 1
            entry = at_version(old, self._version)
            self._record(bucket, Change(DELETED, entry, old))
            return entry

    def watch(self, resource: str, since: int | None, namespace: str = "", name: str = "") -> Watcher:
        """Watch the changes after a version. With None, the watch begins with all objects, in `initial`.

        Raise CompactedError if the version has been forgotten.
        """
        watcher = Watcher(self, (resource,), namespace, name)
        with self._lock:
            bucket = self._bucket(resource)
            watcher.version = self._version if since is None else since
            if since is None:
                watcher.initial = sorted(
                    (entry for entry in bucket.entries.values() if watcher.wants(entry.key)),
                    key=lambda entry: entry.key,
                )
            elif since < bucket.compacted:
                raise CompactedError(bucket.compacted)
            else:
                for change in bucket.history:
                    if watcher.wants(change.entry.key):
                        watcher.put(change)
            bucket.watchers.append(watcher)
        return watcher

    def watch_several(self, resources: Sequence[str]) -> Watcher:
        """Watch several resources. The changes arrive in the order of the writes, after all existing objects."""
        watcher = Watcher(self, resources)
        with self._lock:
            watcher.version = self._version
            for resource in resources:
                bucket = self._bucket(resource)
                watcher.initial += sorted(bucket.entries.values(), key=lambda entry: entry.key)
                bucket.watchers.append(watcher)
        return watcher

    def forget(self, resources: Sequence[str], watcher: Watcher) -> None:
        with self._lock:
            for resource in resources:
                watchers = self._bucket(resource).watchers
                if watcher in watchers:
                    watchers.remove(watcher)

    def version_if(self, condition: Callable[[], bool]) -> int | None:
        """Return the version if a condition holds while nothing changes, else None."""
        with self._lock:
            return self._version if condition() else None

    def stop_watches(self) -> None:
        with self._lock:
            watchers = [watcher for bucket in self._buckets.values() for watcher in bucket.watchers]
        for watcher in watchers:
            watcher.stop()

    def compact(self) -> None:
        """Forget the history. A client that continues from an older version gets error 410."""
        with self._lock:
            for bucket in self._buckets.values():
                bucket.history.clear()
                bucket.compacted = self._version

    def dump(self) -> Object:
        """Return all objects and the version, for `load`."""
        with self._lock:
            kept = {resource: list(bucket.entries.values()) for resource, bucket in self._buckets.items()}
            version = self._version
        objects = {resource: [entry.copy() for entry in entries] for resource, entries in kept.items()}
        return {"version": version, "objects": objects}

    def load(self, dumped: Object) -> None:
        """Replace all objects with the result of `dump`. The history is lost, and no watch may exist yet."""
        with self._lock:
            self._version = dumped["version"]
            self._buckets.clear()
            for resource, objects in dumped["objects"].items():
                bucket = self._bucket(resource)
                bucket.compacted = self._version
                for obj in objects:
                    meta = obj["metadata"]
                    key = (meta.get("namespace", ""), meta["name"])
                    bucket.entries[key] = Entry(key, obj, int(meta["resourceVersion"]))

    def _bucket(self, resource: str) -> _Bucket:
        if (bucket := self._buckets.get(resource)) is None:
            bucket = self._buckets[resource] = _Bucket()
        return bucket

    def _stamp(self, key: Key, obj: Object) -> Entry:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        return Entry(key, obj, self._version)

    def _record(self, bucket: _Bucket, change: Change) -> None:
        bucket.history.append(change)
        if len(bucket.history) > self._history:
            bucket.compacted = bucket.history.popleft().version
        for watcher in bucket.watchers:
            if watcher.wants(change.entry.key):
                watcher.put(change)


def _rolled_back(bucket: _Bucket, version: int) -> dict[Key, Entry]:
    """Return the entries as they were at a version."""
    if version < bucket.compacted:
        raise CompactedError(bucket.compacted)
    entries = dict(bucket.entries)
    for change in reversed(bucket.history):
        if change.version <= version:
            break
        if change.previous is None:
            entries.pop(change.entry.key, None)
        else:
            entries[change.entry.key] = change.previous
    return entries
