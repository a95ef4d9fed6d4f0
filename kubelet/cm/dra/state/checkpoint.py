"""Encode claims in the Go kubelet's format, so that either kubelet can take a node over from the other.

Go: pkg/kubelet/cm/dra/state/checkpoint.go
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kubelet.checkpointmanager import errors
from kubelet.cm.dra.state.state import ClaimInfoState, Device, DriverState
from pkg.apimachinery.runtime import codec

CHECKPOINT_API_GROUP = "checkpoint.dra.kubelet.k8s.io"
CHECKPOINT_KIND = "DRACheckpoint"
CHECKPOINT_API_VERSION = f"{CHECKPOINT_API_GROUP}/v1"

T = TypeVar("T")


class Checkpoint:
    """Hold claims as text, and the checksum of the text."""

    def __init__(self, data: Iterable[ClaimInfoState] = ()) -> None:
        document = {
            "kind": CHECKPOINT_KIND,
            "apiVersion": CHECKPOINT_API_VERSION,
            "ClaimInfoStateList": [_claim_to_json(claim) for claim in data],
        }
        self.data = go_json(document)
        self.checksum = zlib.crc32(self.data.encode())

    def marshal_checkpoint(self) -> bytes:
        return go_json({"Data": self.data, "Checksum": self.checksum}).encode()

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        document = _value(json.loads(blob), dict, "checkpoint")
        self.data = _value(document.get("Data", ""), str, "Data")
        self.checksum = _value(document.get("Checksum", 0), int, "Checksum")
        self.verify_checksum()

    def verify_checksum(self) -> None:
        actual = zlib.crc32(self.data.encode())
        if actual != self.checksum:
            raise errors.CorruptCheckpointError(actual, self.checksum)

    @codec.reading("Data of the checkpoint")
    def get_claim_info_state_list(self) -> list[ClaimInfoState]:
        """Parse the text. Raise ValueError, which names the part that has an unexpected form or version."""
        document = _value(json.loads(self.data), dict, "Data")
        # DIVERGES (safer): the kubelet rejects a checkpoint of another kind or version.
        # Go: pkg/kubelet/cm/dra/state/checkpoint.go, (*Checkpoint).GetClaimInfoStateList: it checks neither.
        # Why: the file of a newer kubelet may have another meaning, and its claims would be lost.
        # Test: checkpointer_test.py:test_what_cannot_be_read
        for key, known in (("kind", CHECKPOINT_KIND), ("apiVersion", CHECKPOINT_API_VERSION)):
            if document.get(key, known) != known:
                raise ValueError(f"{key} of the checkpoint is {document[key]!r}, not {known!r}")
        return _list(document, "ClaimInfoStateList", _claim_from_json)


def _claim_to_json(claim: ClaimInfoState) -> dict[str, Any]:
    return {
        "ClaimUID": claim.claim_uid,
        "ClaimName": claim.claim_name,
        "Namespace": claim.namespace,
        "PodUIDs": {uid: {} for uid in sorted(claim.pod_uids)},
        "DriverState": {
            name: {"Devices": [_device_to_json(device) for device in driver.devices] or None}
            for name, driver in sorted(claim.driver_state.items())
        },
    }


def _device_to_json(device: Device) -> dict[str, Any]:
    return {
        "PoolName": device.pool_name,
        "DeviceName": device.device_name,
        "ShareID": device.share_id,
        "RequestNames": list(device.request_names) or None,
        "CDIDeviceIDs": list(device.cdi_device_ids) or None,
    }


def _claim_from_json(claim: dict[str, Any]) -> ClaimInfoState:
    drivers = _value(claim.get("DriverState") or {}, dict, "DriverState")
    return ClaimInfoState(
        claim_uid=_value(claim.get("ClaimUID", ""), str, "ClaimUID"),
        claim_name=_value(claim.get("ClaimName", ""), str, "ClaimName"),
        namespace=_value(claim.get("Namespace", ""), str, "Namespace"),
        pod_uids=set(_value(claim.get("PodUIDs") or {}, dict, "PodUIDs")),
        driver_state={
            name: DriverState(_list(_value(driver, dict, "DriverState"), "Devices", _device_from_json))
            for name, driver in drivers.items()
        },
    )


def _device_from_json(device: dict[str, Any]) -> Device:
    share_id = device.get("ShareID")
    return Device(
        pool_name=_value(device.get("PoolName", ""), str, "PoolName"),
        device_name=_value(device.get("DeviceName", ""), str, "DeviceName"),
        share_id=None if share_id is None else _value(share_id, str, "ShareID"),
        request_names=_texts(device, "RequestNames"),
        cdi_device_ids=_texts(device, "CDIDeviceIDs"),
    )


def _texts(document: dict[str, Any], key: str) -> tuple[str, ...]:
    return tuple(_value(text, str, key) for text in _value(document.get(key) or [], list, key))


def _list(document: dict[str, Any], key: str, convert: Callable[[dict[str, Any]], T]) -> list[T]:
    return [convert(_value(item, dict, key)) for item in _value(document.get(key) or [], list, key)]


def _value(value: Any, kind: type[T], name: str) -> T:
    """Return the value if it has the expected type. Raise ValueError, which names the value, otherwise."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} of the checkpoint is {value!r}, not a {kind.__name__}")
    return value


def go_json(document: object) -> str:
    """Return JSON as Go's encoder writes it, which escapes characters that could end a script in a web page."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
