"""Test with the patches that the Go kubelet sent to a real API server, and their results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery.util import strategicpatch

GOLDEN = Path(__file__).resolve().parents[4] / "test/data/golden"
TYPES: dict[str, type] = {"Pod": v1.Pod, "Node": v1.Node}
# Go writes unset times as null; this implementation leaves them out.
_UNSET_TIMES = ("lastProbeTime", "startedAt", "finishedAt", "creationTimestamp")


def patches(path: Path) -> Iterator[tuple[type, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield the type, the object before the patch, the status patch, and the object after it."""
    latest: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        call = json.loads(line)
        after = call.get("got")
        if not isinstance(after, dict) or after.get("kind") not in TYPES or call["code"] >= 300:
            continue
        uid = after["metadata"]["uid"]
        if call["verb"] == "patch" and "/status" in call["uri"] and uid in latest:
            yield TYPES[after["kind"]], latest[uid], call["sent"], after
        latest[uid] = after


def without_unset_times(value: Any) -> Any:
    match value:
        case dict():
            unset = [key for key in value if key in _UNSET_TIMES and value[key] is None]
            return {key: without_unset_times(inner) for key, inner in value.items() if key not in unset}
        case list():
            return [without_unset_times(element) for element in value]
    return value


SCENARIOS = sorted(GOLDEN.glob("*/*/api.jsonl"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.parent.name for path in SCENARIOS])
def test_patches_are_as_those_of_go(path: Path) -> None:
    found = 0
    for type_, before, patch, after in patches(path):
        found += 1
        old, new = ({"status": without_unset_times(obj["status"])} for obj in (before, after))
        sent = without_unset_times({"status": patch.get("status", {})})
        made = strategicpatch.create_two_way_merge_map_patch(old, new, type_)
        assert {"status": {}, **made} == sent
        assert (
            without_unset_times(strategicpatch.strategic_merge_map_patch(before, patch, type_))["status"]
            == new["status"]
        )
    assert found, "the scenario has no status patch"
