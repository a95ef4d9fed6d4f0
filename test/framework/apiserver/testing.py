"""Define a store for the tests of code that only reads the store."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from . import errors
from .interfaces import Object, Objects, Watch


class FakeStore:
    """Return the objects that the test added. A field selector can only be on spec.nodeName."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}

    def add(self, resource: str, obj: Object) -> Object:
        metadata = obj["metadata"]
        self._objects[resource, metadata.get("namespace", ""), metadata["name"]] = obj
        return obj

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        del self._objects[resource, namespace, name]

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        try:
            return copy.deepcopy(self._objects[resource, namespace, name])
        except KeyError:
            raise errors.not_found(resource, "", name) from None

    def list(
        self, resource: str, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        assert not label_selector
        node = field_selector.removeprefix("spec.nodeName=")
        return [
            copy.deepcopy(obj)
            for (kind, place, _), obj in self._objects.items()
            if kind == resource
            and namespace in ("", place)
            and (not node or (obj.get("spec") or {}).get("nodeName") == node)
        ]

    def create(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        raise NotImplementedError

    def update(self, resource: str, obj: Object, *, subresource: str = "") -> Object:
        raise NotImplementedError

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "", *, subresource: str = "") -> Object:
        raise NotImplementedError

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        grace_period_seconds: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: str = "",
    ) -> Object:
        raise NotImplementedError

    def watch(
        self,
        resource: str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> Watch:
        raise NotImplementedError

    def watch_several(self, resources: Sequence[str]) -> Watch:
        raise NotImplementedError
