"""Collects what belongs to objects that are gone, and lets those go last that wait for it.

Go: pkg/controller/garbagecollector. Here one thread does it all: it hears of all changes in the order in which they are
made, keeps who owns whom, and asks the store only about owners that it has not heard of.
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
    """An object that there is, as it was last heard of."""

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
        """Whether it is being deleted, and has such a finalizer."""
        return self.is_ending and finalizer in (self.metadata.get("finalizers") or [])


class GarbageCollector(base.WatchController):
    """Looks again at an object whenever it changes, an owner of it goes, or an owner begins to wait for it."""

    name = "garbage"
    resources = COLLECTED

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Node] = {}  # by uid
        # By the owner's uid, whether it is known or not; dicts keep the order.
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
        """An owner that waits for its dependents may have had its last."""
        for uid in dict.fromkeys(owner["uid"] for owner in owners):
            owner = self._nodes.get(uid)
            if owner is not None and owner.waits(DELETE_DEPENDENTS):
                self._finish(owner)

    def _dependents_of(self, uid: str) -> list[Node]:
        return [self._nodes[each] for each in self._dependents.get(uid, {})]

    # What becomes of one object.

    def _attempt(self, node: Node) -> None:
        """Delete an object that no owner keeps, or take those owners from it that are gone."""
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
                self._change(node, _unblock_owners)  # they may wait for one another
            self._delete(node, FOREGROUND)
        else:
            finalizers = node.metadata.get("finalizers") or []
            marked = ORPHAN if ORPHAN_DEPENDENTS in finalizers else BACKGROUND
            self._delete(node, FOREGROUND if DELETE_DEPENDENTS in finalizers else marked)

    def _owner(self, node: Node, reference: Object) -> Node | None:
        """Who a reference means; None if it is gone. Raises UnknownOwnerError."""
        resource = BY_KIND.get((reference["apiVersion"], reference["kind"]))
        if resource is None or (resource.namespaced and not node.namespace):
            raise UnknownOwnerError
        namespace = node.namespace if resource.namespaced else ""
        owner = self._nodes.get(reference["uid"])
        if owner is None:
            # It may be so new that its event is still to come.
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
        """Let an object go that waits for its dependents, if none is left of those that it has to wait for."""
        dependents = self._dependents_of(node.uid)
        if not any(_blocks(each, node) for each in dependents):
            self._change(node, partial(_remove_finalizer, finalizer=DELETE_DEPENDENTS))

    def _orphan(self, node: Node) -> None:
        """Take a deleted object from its dependents' owners, and let it go then."""
        for dependent in self._dependents_of(node.uid):
            others = {each["uid"] for each in dependent.owners} - {node.uid}
            self._change(dependent, partial(_keep_owners, uids=others))
        self._change(node, partial(_remove_finalizer, finalizer=ORPHAN_DEPENDENTS))

    # Writes. What another wrote meanwhile leads to another event, and another look.

    def _delete(self, node: Node, policy: str) -> None:
        version = node.metadata["resourceVersion"]
        metadata = {"metadata": node.metadata}
        try:
            base.delete_if_exists(
                self.store, node.resource, metadata, propagation_policy=policy, resource_version=version
            )
        except ApiError as err:
            # Admission may refuse this one; others are not to wait for it.
            klog.error_s(err, "Failed to collect", resource=node.resource, name=metadata["metadata"]["name"])

    def _change(self, node: Node, mutate: Callable[[Object], bool]) -> None:
        def same(found: Object) -> bool:
            return found["metadata"]["uid"] == node.uid and mutate(found)

        base.change(self.store, node.resource, node.metadata["name"], node.namespace, same)


class UnknownOwnerError(Exception):
    """An owner is of a kind that there is not, or cannot own this object: it stays."""


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
