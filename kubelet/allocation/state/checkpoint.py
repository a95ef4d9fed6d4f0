"""Encode the resources of pods as Go does, byte for byte, so that another kubelet can take over the node.

Go: pkg/kubelet/allocation/state/checkpoint.go
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kubelet.allocation.state.state import PodResourceInfo, PodResourceInfoMap
from kubelet.checkpointmanager import checksum
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec


@dataclass(frozen=True, slots=True)
class PodResourceCheckpointInfo:
    """Hold the content of a checkpoint."""

    entries: PodResourceInfoMap = field(default_factory=dict)


class Checkpoint:
    """Hold the content as text, and the checksum of the text."""

    def __init__(self, data: str | None = None) -> None:
        """Create a checkpoint. Without data it is empty until unmarshal_checkpoint fills it."""
        self.data = data or ""
        self.checksum = 0 if data is None else checksum.new(data)

    def marshal_checkpoint(self) -> bytes:
        return _go_json({"data": self.data, "checksum": self.checksum}).encode()

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        document = json.loads(blob)
        if not isinstance(document, dict):
            raise ValueError("checkpoint is not a JSON object")
        data, sum_ = document.get("data", ""), document.get("checksum", 0)
        if not isinstance(data, str) or not isinstance(sum_, int):
            raise ValueError("checkpoint must have a text in data and a number in checksum")
        self.data, self.checksum = data, sum_

    def verify_checksum(self) -> None:
        checksum.verify(self.checksum, self.data)

    @codec.reading("checkpoint data")
    def get_pod_resource_checkpoint_info(self) -> PodResourceCheckpointInfo:
        """Decode the text. Raise ValueError if it is invalid."""
        document = json.loads(self.data)
        if not isinstance(document, dict):
            raise ValueError("checkpoint data is not a JSON object")
        entries = _object(document.get("entries"), "entries of the checkpoint are")
        return PodResourceCheckpointInfo(
            {types.UID(uid): _info_from(types.UID(uid), entry) for uid, entry in entries.items()}
        )


class Serializer:
    """Encode the content as Go does: maps are sorted by key, and structs have the order of their fields.

    Usually only one of many pods changes, so the serializer caches the texts of all pods. It is not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[types.UID, tuple[PodResourceInfo, str]] = {}

    def serialize(self, allocations: PodResourceCheckpointInfo) -> str:
        known: dict[types.UID, tuple[PodResourceInfo, str]] = {}
        for uid, info in sorted(allocations.entries.items()):
            before = self._known.get(uid)
            if before is None or before[0] is not info:
                before = info, f"{_go_json(uid)}:{_go_json(_info_to(info))}"
            known[uid] = before
        self._known = known
        return f'{{"entries":{{{",".join(text for _, text in known.values())}}}}}' if known else "{}"


def _info_to(info: PodResourceInfo) -> dict[str, Any]:
    containers = {name: _resources_to(r) for name, r in sorted(info.container_resources.items())}
    pod_level = info.pod_level_resources
    return {
        "ContainerResources": containers,
        "PodLevelResources": None if pod_level is None else _resources_to(pod_level),
    }


def _resources_to(resources: v1.ResourceRequirements) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            document[name] = {key: str(quantity) for key, quantity in sorted(amounts.items())}
    if resources.claims:
        document["claims"] = codec.to_builtins(resources.claims)
    return document


def _info_from(uid: types.UID, value: Any) -> PodResourceInfo:
    entry = _object(value, f"entry {uid} of the checkpoint is")
    found = _object(entry.get("ContainerResources"), f"ContainerResources of entry {uid} of the checkpoint are")
    containers = {name: codec.convert(resources, v1.ResourceRequirements) for name, resources in found.items()}
    pod_level = entry.get("PodLevelResources")
    return PodResourceInfo(containers, None if pod_level is None else codec.convert(pod_level, v1.ResourceRequirements))


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{what} not a JSON object")
    return value


def _go_json(document: object) -> str:
    """Encode JSON as Go does, which escapes characters that are special in HTML."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
