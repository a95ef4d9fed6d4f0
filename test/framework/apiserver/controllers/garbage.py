"""Collect the dependents of deleted objects, and remove the finalizers of objects that wait for their dependents.

Go: pkg/controller/garbagecollector. Here one thread does everything: it sees all changes in their order, keeps the
graph of owners, and reads from the store only the owners that it has not seen yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from pkg import klog

from ..deletion import BACKGROUND, DELETE_DEPENDENTS, FOREGROUND, ORPHAN, ORPHAN_DEPENDENTS
from ..errors import ApiError
from ..interfaces import Object, WatchEvent
from ..resources import BY_KIND, COLLECTED
from . import base

NAME = "garbage-collector-controller"


@dataclass
class Node:
    """Describe an existing object as of its last event."""

    resource: str
    metadata: Object
    owners: list[Object] = field(default_factory=list)

    @property
    def uid(self) -> str:
        uid: str = self.metadata["uid"]
        return uid

    @property
    def namespace(self) -> str:
        namespace: str = self.metadata.get("namespace", "")
        return namespace

    @property
    def is_ending(self) -> bool:
        return "deletionTimestamp" in self.metadata

    def waits(self, finalizer: str) -> bool:
        """Report whether the object is being deleted and has this finalizer."""
        return self.is_ending and finalizer in (self.metadata.get("finalizers") or [])


class GarbageCollector(base.WatchController):
    """Check an object when it changes, when an owner is deleted, and when an owner begins to wait for it."""

    name = "garbage"
    resources = COLLECTED

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Node] = {}  # The key is a UID.
        # The key is the UID of the owner, whether it is known or not. The dicts keep the order of the dependents.
        self._dependents: dict[str, dict[str, None]] = {}

    def handle(self, resource: str, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        before = self._nodes.pop(metadata["uid"], None)
        for owner in before.owners if before is not None else ():
            self._dependents.get(owner["uid"], {}).pop(metadata["uid"], None)
        node = Node(resource, metadata, metadata.get("ownerReferences") or [])
        if event.type == "DELETED":
            for dependent in self._dependents_of(metadata["uid"]):
                self._attempt(dependent)
            self._dependents.pop(metadata["uid"], None)
        else:
            self._add(node, before)
        self._look_at_owners([*node.owners, *(before.owners if before is not None else ())])

    def _add(self, node: Node, before: Node | None) -> None:
        self._nodes[node.uid] = node
        for owner in node.owners:
            self._dependents.setdefault(owner["uid"], {})[node.uid] = None
        if node.waits(ORPHAN_DEPENDENTS):
            self._orphan(node)
        elif node.waits(DELETE_DEPENDENTS):
            if before is None or not before.waits(DELETE_DEPENDENTS):
                for dependent in self._dependents_of(node.uid):
                    self._attempt(dependent)
            self._finish(node)
        else:
            self._attempt(node)

    def _look_at_owners(self, owners: Iterable[Object]) -> None:
        """Remove the finalizer of each owner that waits for its dependents if the last of them is gone."""
        for uid in dict.fromkeys(owner["uid"] for owner in owners):
            owner = self._nodes.get(uid)
            if owner is not None and owner.waits(DELETE_DEPENDENTS):
                self._finish(owner)

    def _dependents_of(self, uid: str) -> list[Node]:
        return [self._nodes[each] for each in self._dependents.get(uid, {})]

    def _attempt(self, node: Node) -> None:
        """Delete an object without remaining owners, or remove its references to owners that no longer exist."""
        if node.is_ending or not node.owners:
            return
        kept: list[Object] = []
        waiting: list[Object] = []
        for reference in node.owners:
            try:
                owner = self._owner(node, reference)
            except UnknownOwnerError:
                return
            if owner is not None:
                (waiting if owner.waits(DELETE_DEPENDENTS) else kept).append(reference)
        if kept:
            if len(kept) < len(node.owners):
                self._change(node, partial(_keep_owners, uids={each["uid"] for each in kept}))
            return
        dependents = self._dependents_of(node.uid)
        if waiting and dependents:
            if any(each.waits(DELETE_DEPENDENTS) for each in dependents):
                self._change(node, _unblock_owners)  # The objects may wait for one another.
            self._delete(node, FOREGROUND)
        else:
            finalizers = node.metadata.get("finalizers") or []
            marked = ORPHAN if ORPHAN_DEPENDENTS in finalizers else BACKGROUND
            self._delete(node, FOREGROUND if DELETE_DEPENDENTS in finalizers else marked)

    def _owner(self, node: Node, reference: Object) -> Node | None:
        """Return the owner that a reference names, or None if it no longer exists.

        Raise UnknownOwnerError if the owner's kind is unknown or cannot own the object.
        """
        resource = BY_KIND.get((reference["apiVersion"], reference["kind"]))
        if resource is None or (resource.namespaced and not node.namespace):
            raise UnknownOwnerError
        namespace = node.namespace if resource.namespaced else ""
        owner = self._nodes.get(reference["uid"])
        if owner is None:
            # The owner may be so new that its event has not arrived yet.
            found = base.find(self.store, resource.plural, reference["name"], namespace)
            owner = Node(resource.plural, found["metadata"]) if found is not None else None
        if owner is None or owner.uid != reference["uid"]:
            return None
        same = (owner.resource, owner.metadata["name"], owner.namespace) == (
            resource.plural,
            reference["name"],
            namespace,
        )
        if not same and resource.namespaced and owner.namespace != namespace:
            self._tell_of_namespace(node, reference)
        return owner if same else None

    def _tell_of_namespace(self, node: Node, reference: Object) -> None:
        kind = next(each for each in BY_KIND.values() if each.plural == node.resource)
        involved = base.reference(kind.kind, {"metadata": node.metadata}) | {"apiVersion": kind.group_version}
        identity = (
            f"[{reference['apiVersion']}/{reference['kind']}, namespace: {node.namespace}, name: {reference['name']}, "
            f"uid: {reference['uid']}]"
        )
        message = f'ownerRef {identity} does not exist in namespace "{node.namespace}"'
        base.record(self.store, involved, NAME, "Warning", "OwnerRefInvalidNamespace", message)

    def _finish(self, node: Node) -> None:
        """Remove the finalizer of an object that waits for its dependents if no blocking dependent is left."""
        dependents = self._dependents_of(node.uid)
        if not any(_blocks(each, node) for each in dependents):
            self._change(node, partial(_remove_finalizer, finalizer=DELETE_DEPENDENTS))

    def _orphan(self, node: Node) -> None:
        """Remove a deleted object from the owners of its dependents, and then remove its finalizer."""
        for dependent in self._dependents_of(node.uid):
            others = {each["uid"] for each in dependent.owners} - {node.uid}
            self._change(dependent, partial(_keep_owners, uids=others))
        self._change(node, partial(_remove_finalizer, finalizer=ORPHAN_DEPENDENTS))

    # Another writer's change leads to another event, after which the object is checked again.

    def _delete(self, node: Node, policy: str) -> None:
        version = node.metadata["resourceVersion"]
        metadata = {"metadata": node.metadata}
        try:
            base.delete_if_exists(
                self.store, node.resource, metadata, propagation_policy=policy, resource_version=version
            )
        except ApiError as err:
            # Admission may refuse this deletion, which must not delay the others.
            klog.error_s(err, "Failed to collect", resource=node.resource, name=metadata["metadata"]["name"])

    def _change(self, node: Node, mutate: Callable[[Object], bool]) -> None:
        def same(found: Object) -> bool:
            return found["metadata"]["uid"] == node.uid and mutate(found)

        base.change(self.store, node.resource, node.metadata["name"], node.namespace, same)


class UnknownOwnerError(Exception):
    """Signal that an owner's kind is unknown or cannot own this object. The object stays."""


def _blocks(dependent: Node, owner: Node) -> bool:
    return any(each["uid"] == owner.uid and each.get("blockOwnerDeletion") for each in dependent.owners)


def _keep_owners(obj: Object, uids: set[str]) -> bool:
    metadata = obj["metadata"]
    before = metadata.get("ownerReferences") or []
    metadata["ownerReferences"] = [each for each in before if each["uid"] in uids]
    return len(metadata["ownerReferences"]) < len(before)


def _unblock_owners(obj: Object) -> bool:
    blocking = [each for each in obj["metadata"].get("ownerReferences") or [] if each.get("blockOwnerDeletion")]
    for each in blocking:
        each["blockOwnerDeletion"] = False
    return bool(blocking)


def _remove_finalizer(obj: Object, finalizer: str) -> bool:
    metadata = obj["metadata"]
    before = metadata.get("finalizers") or []
    metadata["finalizers"] = [each for each in before if each != finalizer]
    return finalizer in before
