"""Test the format of the checkpoint of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.checkpointmanager import errors
from kubelet.cm.devicemanager import checkpoint

_RECORDED = (Path(__file__).parent / "testdata/two_plugins.json").read_bytes()


def _read(blob: bytes) -> checkpoint.Data:
    data = checkpoint.Data()
    data.unmarshal_checkpoint(blob)
    data.verify_checksum()
    return data


def test_what_go_wrote() -> None:
    data = _read(_RECORDED)
    entries, registered = data.get_data()
    assert [(e.container_name, e.resource_name, e.device_ids) for e in entries] == [
        ("train", "example.com/gpu", {0: ["dev-0", "dev-2"]}),
        ("train", "example.com/nic", {-1: ["dev-0"]}),
        ("prepare", "example.com/gpu", {0: ["dev-0"]}),
        ("main", "example.com/gpu", {1: ["dev-1"]}),
    ]
    response = pluginapi.ContainerAllocateResponse.FromString(entries[1].alloc_resp or b"")
    assert [device.name for device in response.cdi_devices] == ["example.com/device=dev-0"]
    assert registered["example.com/nic"] == ["dev-0", "dev-1"]


def test_written_as_go_writes() -> None:
    assert checkpoint.Data(*_read(_RECORDED).get_data()).marshal_checkpoint() == _RECORDED.strip()


# _NOTHING is what Go writes for the same structs.
_NOTHING = b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}'
_NO_ENTRY = (
    b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"b.com/r":[],"a.com/r":["2","1"]}},"Checksum":44922261}'
)
_NIL = (
    b'{"Data":{"PodDeviceEntries":['
    b'{"PodUID":"u","ContainerName":"c","ResourceName":"a.com/r","DeviceIDs":{},"AllocResp":""},'
    b'{"PodUID":"u","ContainerName":"d","ResourceName":"a.com/r",'
    b'"DeviceIDs":{"10":null,"-1":["x"],"2":["y","z"]},"AllocResp":null},'
    b'{"PodUID":"u","ContainerName":"e","ResourceName":"a.com/r","DeviceIDs":null,"AllocResp":"AP8="}'
    b'],"RegisteredDevices":null},"Checksum":2983664120}'
)


@pytest.mark.parametrize(
    ("blob", "registered"),
    [(_NOTHING, {}), (_NO_ENTRY, {"b.com/r": [], "a.com/r": ["2", "1"]})],
    ids=["nothing", "no entry"],
)
def test_what_is_written_without_entries(blob: bytes, registered: dict[str, list[str] | None]) -> None:
    assert checkpoint.Data([], registered).marshal_checkpoint() == blob
    assert _read(blob).get_data() == ([], registered)


def test_what_go_calls_nil() -> None:
    entries, registered = _read(_NIL).get_data()
    assert [entry.device_ids for entry in entries] == [{}, {10: None, -1: ["x"], 2: ["y", "z"]}, None]
    assert registered == {}


@pytest.mark.parametrize(
    ("blob", "fault"),
    [
        (_RECORDED[:100], "not a checkpoint of devices: Input data was truncated"),
        (b"", "not a checkpoint of devices: Input data was truncated"),
        (b'{"PolicyName": "none"}', "not a checkpoint of devices: Object missing required field `Data`"),
        (
            _RECORDED.replace(b'"0":["dev-0","dev-2"]', b'"zero":["dev-0"]'),
            "not a checkpoint of devices: Expected `int`",
        ),
    ],
    ids=["truncated", "empty", "of something else", "not a node"],
)
def test_what_is_no_checkpoint(blob: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        _read(blob)


def test_wrong_checksum() -> None:
    with pytest.raises(errors.CorruptCheckpointError, match="checkpoint is corrupted"):
        _read(_RECORDED.replace(b"dev-2", b"dev-3"))
