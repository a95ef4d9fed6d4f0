"""Define what controllers share: threads that watch, and writes that are repeated after a conflict."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pkg import golang, klog
from pkg.apimachinery.runtime import codec

from ..errors import ApiError
from ..interfaces import Object, Server, Store, Watch, WatchEvent
from ..resources import BY_KIND

_ATTEMPTS = 10


class WatchController:
    """Handle the changes of some resources, one at a time and in their order.

    One thread calls `handle`. The thread holds _lock, which guards the fields of subclasses.
    """

    name = ""
    resources: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._thread: golang.Thread | None = None
        self._stopped = threading.Event()
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        assert self._store is not None, f"{self.name} was never started"
        return self._store

    def start(self, server: Server) -> None:
        self._store = server.store
        self._stopped.clear()
        self.prepare()
        self._watch = self.store.watch_several(self.resources)
        self._thread = golang.go(self._run, self._watch, name=self.name)

    def stop(self) -> None:
        self._stopped.set()
        if self._watch is not None and self._thread is not None:
            self._watch.stop()
            self._thread.join()
        self._watch = self._thread = None

    def prepare(self) -> None:
        """Prepare for the watches. `start` calls this first."""

    def handle(self, resource: str, event: WatchEvent) -> None:
        """Handle a change. For each existing object the first change is ADDED."""

    def _run(self, watch: Watch) -> None:
        for event in watch:
            if self._stopped.is_set():
                return
            resource = resource_of(event.object)
            try:
                with self._lock:
                    self.handle(resource, event)
            except (ApiError, codec.DecodeError) as err:
                # Either another client has deleted or changed the object, and the next event will report that; or the
                # object does not have the expected form, and the controller leaves it alone.
                metadata = event.object["metadata"]
                klog.v(2).info_s(
                    "Controller failed", controller=self.name, resource=resource, name=metadata["name"], err=str(err)
                )


def resource_of(obj: Mapping[str, Any]) -> str:
    """Return the resource of a stored object."""
    return BY_KIND[obj["apiVersion"], obj["kind"]].plural


def change(
    store: Store,
    resource: str,
    name: str,
    namespace: str,
    mutate: Callable[[Object], bool],
    subresource: str = "",
) -> Object | None:
    """Read, change and write an object until no other write comes in between.

    `mutate` reports whether it has changed the object. Return the written object, or None if there is no change or no
    object of this name.
    """
    for _ in range(_ATTEMPTS):
        try:
            found = store.get(resource, name, namespace)
            return store.update(resource, found, subresource=subresource) if mutate(found) else None
        except ApiError as err:
            if err.code == 404:
                return None
            if err.code != 409:
                raise
    raise ApiError(
        409, "Conflict", f"update {resource} {namespace}/{name}: another client changes the object before each attempt"
    )


def find(store: Store, resource: str, name: str, namespace: str = "") -> Object | None:
    """Return the object of this name, or None if it does not exist."""
    try:
        return store.get(resource, name, namespace)
    except ApiError as err:
        if err.code != 404:
            raise
        return None


def create_unless_exists(store: Store, resource: str, obj: Object) -> None:
    try:
        store.create(resource, obj)
    except ApiError as err:
        if err.reason != "AlreadyExists":
            raise


def delete_if_exists(
    store: Store,
    resource: str,
    obj: Mapping[str, Any],
    grace_period_seconds: int | None = None,
    *,
    resource_version: str = "",
    propagation_policy: str = "",
) -> None:
    """Delete exactly this object, and not a newer one with the same name."""
    metadata = obj["metadata"]
    try:
        store.delete(
            resource,
            metadata["name"],
            metadata.get("namespace", ""),
            grace_period_seconds=grace_period_seconds,
            uid=metadata["uid"],
            resource_version=resource_version,
            propagation_policy=propagation_policy,
        )
    except ApiError as err:
        if err.code not in (404, 409):
            raise


def reference(kind: str, obj: Mapping[str, Any]) -> Object:
    """Return a reference to an object in the form that events have."""
    metadata = obj["metadata"]
    found = {"apiVersion": "v1", "kind": kind, "name": metadata["name"], "uid": metadata.get("uid", "")}
    for key in ("namespace", "resourceVersion"):
        if metadata.get(key):
            found[key] = metadata[key]
    return found


def record(store: Store, involved: Object, component: str, kind: str, reason: str, message: str) -> None:
    """Create an event as the recorder of client-go does."""
    now = timestamp()
    namespace = involved.get("namespace", "default")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _event_name(involved), "namespace": namespace},
        "involvedObject": involved,
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
    }
    store.create("events", event)


def record_action(
    store: Store, involved: Object, component: str, kind: str, reason: str, action: str, message: str
) -> None:
    """Create an event as the recorder of events.k8s.io does, which the scheduler uses."""
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _event_name(involved), "namespace": involved.get("namespace", "default")},
        "involvedObject": involved,
        "type": kind,
        "reason": reason,
        "action": action,
        "message": message,
        "eventTime": micro_timestamp(),
        "source": {},
        "reportingComponent": component,
        "reportingInstance": f"{component}-{socket.gethostname()}",
    }
    store.create("events", event)


def _event_name(involved: Mapping[str, Any]) -> str:
    return f"{involved['name']}.{time.time_ns():x}"


def timestamp(seconds: float | None = None) -> str:
    """Return a time in the form that API objects have: the present, or that number of seconds since 1970."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if seconds is None else seconds))


def micro_timestamp() -> str:
    now = time.time_ns()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 10**9))}.{now // 1000 % 10**6:06d}Z"


def condition(obj: Mapping[str, Any], kind: str) -> Object | None:
    """Return an object's condition of this type, or None if it has none."""
    conditions: list[Object] = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), None)
