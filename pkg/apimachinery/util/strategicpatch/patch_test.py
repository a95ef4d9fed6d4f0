"""Test strategic merge patches."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import msgspec
import pytest

from pkg.api.core import v1
from pkg.apimachinery.util import mergepatch, strategicpatch


class Item(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    name: str = ""
    value: str = ""
    other: str = ""
    merging_list: list[Item] = []
    plain_list: list[Item] = []
    merging_ints: list[int] = []
    plain_ints: list[int] = []
    item: Item | None = None
    retained: Item | None = None
    retained_list: list[Item] = []
    labels: dict[str, str] = {}
    PATCH_TAGS: ClassVar[dict[str, tuple[str, str]]] = {
        "mergingList": ("merge", "name"),
        "mergingInts": ("merge", ""),
        "retained": ("retainKeys", ""),
        "retainedList": ("merge,retainKeys", "name"),
    }


def names(*keys: Any) -> list[dict[str, Any]]:
    return [{"name": key} for key in keys]


TWO_WAY: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nothing": ({"a": 1}, {"a": 1}, {}),
    "add, change and delete a field": (
        {"a": 1, "b": 2},
        {"b": 3, "c": 4},
        {"a": None, "b": 3, "c": 4},
    ),
    "change of type": ({"a": 1}, {"a": "1"}, {"a": "1"}),
    "true is not one": ({"a": 1}, {"a": True}, {"a": True}),
    "label": ({"labels": {"a": "1", "b": "2"}}, {"labels": {"b": "2"}}, {"labels": {"a": None}}),
    "lists of unknown fields are replaced": ({"new": [{"x": 1}]}, {"new": [{"x": 2}]}, {"new": [{"x": 2}]}),
    "atomic list": ({"plainInts": [1, 2]}, {"plainInts": [2, 1]}, {"plainInts": [2, 1]}),
    "element added": (
        {"mergingList": names(1)},
        {"mergingList": names(1, 2)},
        {"$setElementOrder/mergingList": names(1, 2), "mergingList": names(2)},
    ),
    "first element added": ({}, {"mergingList": names(1)}, {"mergingList": names(1)}),
    "element changed": (
        {"mergingList": [{"name": 1, "value": "a"}, {"name": 2}]},
        {"mergingList": [{"name": 1, "value": "b"}, {"name": 2}]},
        {"$setElementOrder/mergingList": names(1, 2), "mergingList": [{"name": 1, "value": "b"}]},
    ),
    "elements deleted": (
        {"mergingList": names("c", "b", "a")},
        {"mergingList": names("b")},
        {
            "$setElementOrder/mergingList": names("b"),
            "mergingList": [{"name": "a", "$patch": "delete"}, {"name": "c", "$patch": "delete"}],
        },
    ),
    "last element deleted": (
        {"mergingList": names(1)},
        {"mergingList": []},
        {"mergingList": [{"name": 1, "$patch": "delete"}]},
    ),
    "only the order": (
        {"mergingList": names(1, 2, 3)},
        {"mergingList": names(3, 1, 2)},
        {"$setElementOrder/mergingList": names(3, 1, 2)},
    ),
    "list in an element": (
        {"mergingList": [{"name": 1, "mergingInts": [1, 2]}]},
        {"mergingList": [{"name": 1, "mergingInts": [3, 2]}]},
        {
            "$setElementOrder/mergingList": names(1),
            "mergingList": [
                {
                    "name": 1,
                    "$setElementOrder/mergingInts": [3, 2],
                    "$deleteFromPrimitiveList/mergingInts": [1],
                    "mergingInts": [3],
                }
            ],
        },
    ),
    "retained keys": (
        {"retained": {"name": "a", "value": "b"}},
        {"retained": {"name": "a", "other": "c"}},
        {"retained": {"$retainKeys": ["name", "other"], "other": "c", "value": None}},
    ),
    "retained keys of an element": (
        {"retainedList": [{"name": "a", "value": "b"}]},
        {"retainedList": [{"name": "a", "other": "c"}]},
        {
            "$setElementOrder/retainedList": names("a"),
            "retainedList": [{"name": "a", "$retainKeys": ["name", "other"], "other": "c", "value": None}],
        },
    ),
}


@pytest.mark.parametrize(("original", "modified", "patch"), TWO_WAY.values(), ids=TWO_WAY)
def test_two_way(original: dict[str, Any], modified: dict[str, Any], patch: dict[str, Any]) -> None:
    before = msgspec.json.encode([original, modified])
    assert strategicpatch.create_two_way_merge_map_patch(original, modified, Item) == patch
    assert strategicpatch.strategic_merge_map_patch(original, patch, Item) == modified
    assert msgspec.json.encode([original, modified]) == before, "neither is touched"


APPLY: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "replace a map": (
        {"item": {"name": "a", "value": "b"}},
        {"item": {"$patch": "replace", "other": "c"}},
        {"item": {"other": "c"}},
    ),
    "empty a map": ({"item": {"name": "a"}, "a": 1}, {"item": {"$patch": "delete"}}, {"item": {}, "a": 1}),
    "delete what is not there": ({"a": 1}, {"item": {"$patch": "delete"}, "b": None}, {"a": 1}),
    "replace a list": (
        {"mergingList": names(1, 2)},
        {"mergingList": [*names(3), {"$patch": "replace"}]},
        {"mergingList": names(3)},
    ),
    "replace a list that is not there": (
        {},
        {"mergingList": [*names(3), {"$patch": "replace"}]},
        {"mergingList": names(3)},
    ),
    "delete an element that is not there": (
        {"mergingList": names(1)},
        {"mergingList": [{"name": 2, "$patch": "delete"}]},
        {"mergingList": names(1)},
    ),
    "elements of the server stay in their place": (
        {"mergingList": names(1, 2, 3, 4)},
        {"$setElementOrder/mergingList": names(4, 1), "mergingList": [{"name": 4, "value": "x"}]},
        {"mergingList": [*names(2, 3), {"name": 4, "value": "x"}, {"name": 1}]},
    ),
    "what the server added meanwhile comes last": (
        {"mergingList": names(1, 2, 9)},
        {"$setElementOrder/mergingList": names(2, 3, 1), "mergingList": names(3)},
        {"mergingList": names(2, 3, 1, 9)},
    ),
    "union of scalars": ({"mergingInts": [1, 2]}, {"mergingInts": [2, 3]}, {"mergingInts": [1, 2, 3]}),
    "nulls within a new value": ({}, {"item": {"name": "a", "value": None}}, {"item": {"name": "a"}}),
    "directives within a new value": (
        {},
        {"retained": {"name": "a", "$retainKeys": ["name"], "$setElementOrder/mergingList": []}},
        {"retained": {"name": "a"}},
    ),
    "scalars deleted from a list that is not there": ({}, {"$deleteFromPrimitiveList/mergingInts": [3]}, {}),
    "scalars deleted from an atomic list": (
        {"plainInts": [1, 2, 3]},
        {"$deleteFromPrimitiveList/plainInts": [2]},
        {"plainInts": [1, 3]},
    ),
    "directive in an atomic list": (
        {"plainList": names(1, 2)},
        {"plainList": [{"name": 1, "$patch": "delete"}]},
        {"plainList": [{"name": 1, "$patch": "delete"}]},
    ),
    "maps without merge key differ in nothing but type": (
        {"item": []},
        {"item": {"name": "a"}},
        {"item": {"name": "a"}},
    ),
    "a field that only the server knows": ({"newer": {"a": [1]}}, {"name": "n"}, {"newer": {"a": [1]}, "name": "n"}),
}


@pytest.mark.parametrize(("original", "patch", "expected"), APPLY.values(), ids=APPLY)
def test_apply(original: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert strategicpatch.strategic_merge_map_patch(original, patch, Item) == expected


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "unknown directive": ({}, {"$patch": "turn"}, mergepatch.BadPatchTypeError, "unknown .patch type 'turn'"),
    "unknown directive of an element": (
        {"mergingList": names(1)},
        {"mergingList": [{"name": 1, "$patch": "turn"}]},
        mergepatch.BadPatchTypeError,
        "turn",
    ),
    "element without key": (
        {"mergingList": names(1)},
        {"mergingList": [{"value": "x"}]},
        mergepatch.NoMergeKeyError,
        "lacks the merge key 'name'",
    ),
    "order contradicts": (
        {"mergingList": names(1, 2)},
        {"$setElementOrder/mergingList": names(1, 2), "mergingList": names(2, 1)},
        mergepatch.BadPatchFormatError,
        "does not match",
    ),
    "order of nothing": ({}, {"$setElementOrder": []}, mergepatch.BadPatchFormatError, "FIELD"),
    "set and not retained": (
        {"retained": {"name": "a"}},
        {"retained": {"$retainKeys": ["name"], "value": "b"}},
        mergepatch.BadPatchFormatError,
        "'value' is set and not retained",
    ),
    "lists of lists": ({"mergingInts": [1]}, {"mergingInts": [[1]]}, mergepatch.NoListOfListsError, "lists of lists"),
    "mixed elements": ({"mergingInts": [1]}, {"mergingInts": [{}]}, mergepatch.PatchError, "not of one type"),
}


@pytest.mark.parametrize(("original", "patch", "error", "text"), BAD.values(), ids=BAD)
def test_bad_patch(original: dict[str, Any], patch: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        strategicpatch.strategic_merge_map_patch(original, patch, Item)


@pytest.mark.parametrize("document", [b"[]", b"{", b"1"])
def test_bad_document(document: bytes) -> None:
    with pytest.raises(mergepatch.PatchError):
        strategicpatch.create_two_way_merge_patch(document, b"{}", v1.Pod)
    with pytest.raises(mergepatch.PatchError):
        strategicpatch.strategic_merge_patch(b"{}", document, v1.Pod)


def test_bytes_are_sorted() -> None:
    patch = strategicpatch.create_two_way_merge_patch(b"", b'{"b": 1, "a": {"d": 1, "c": 2}}', None)
    assert patch == b'{"a":{"c":2,"d":1},"b":1}'
    assert strategicpatch.strategic_merge_patch(b'{"z":0}', patch, None) == b'{"a":{"c":2,"d":1},"b":1,"z":0}'


def test_merge_keys_of_core_types() -> None:
    condition = {"type": "Ready", "status": "False"}
    original = {
        "metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1"}]},
        "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}], "tolerations": [{"key": "a"}]},
        "status": {"conditions": [condition], "podIPs": [{"ip": "::1"}]},
    }
    patch = {
        "metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "2"}]},
        "spec": {"containers": [{"name": "c", "env": [{"name": "B"}]}], "tolerations": [{"key": "b"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "::2"}]},
    }
    # New elements come first, as in Go.
    assert strategicpatch.strategic_merge_map_patch(original, patch, v1.Pod) == {
        "metadata": {"finalizers": ["b", "a"], "ownerReferences": [{"uid": "2"}, {"uid": "1"}]},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "B"}, {"name": "A", "value": "1"}]}],
            "tolerations": [{"key": "b"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "::2"}, {"ip": "::1"}]},
    }


class Pods:
    """Make random pods as JSON, with keyed lists in any order, nesting, and fields that our types lack."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pod(self) -> dict[str, Any]:
        return self._some(
            metadata=self._some(labels=self._labels(), finalizers=self._random.sample(["a", "b", "c"], 2)),
            spec=self._some(
                containers=self._keyed("name", self._container),
                volumes=self._keyed("name", self._volume),
                tolerations=[{"key": self._word()}],
                futureField={"list": [self._word()], "map": self._labels()},
            ),
            status=self._some(
                conditions=self._keyed("type", lambda: {"status": self._word(), "message": self._word()}),
                podIPs=self._keyed("ip", dict),
                phase=self._word(),
            ),
        )

    def _container(self) -> dict[str, Any]:
        return self._some(
            image=self._word(),
            env=self._keyed("name", lambda: self._some(value=self._word())),
            ports=[{"containerPort": port} for port in self._random.sample([80, 443, 8080], 2)],
            resources={"limits": self._labels()},
        )

    def _volume(self) -> dict[str, Any]:
        return {self._word(): self._labels()}

    def _labels(self) -> dict[str, Any]:
        return {self._word(): self._word() for _ in range(2)}

    def _keyed(self, key: str, make: Any) -> list[dict[str, Any]]:
        chosen = self._random.sample(["a", "b", "c", "d"], self._random.randint(1, 4))
        return [{**make(), key: name} for name in chosen]

    def _some(self, **fields: Any) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if self._random.random() < 0.8}

    def _word(self) -> str:
        return self._random.choice(["x", "y", "z"])


def test_patch_of_any_two_pods_makes_one_of_the_other() -> None:
    for seed in range(500):
        pods = Pods(seed)
        old, new = pods.pod(), pods.pod()
        patch = strategicpatch.create_two_way_merge_map_patch(old, new, v1.Pod)
        assert strategicpatch.strategic_merge_map_patch(old, patch, v1.Pod) == new, f"seed {seed}"
        assert strategicpatch.create_two_way_merge_map_patch(new, new, v1.Pod) == {}
