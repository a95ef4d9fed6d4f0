"""Test the checkpoint of claims.

Go: pkg/kubelet/cm/dra/state/checkpointer_test.go
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from kubelet.cm.dra import state

TESTDATA = Path(__file__).parent / "testdata"
NAME = "dra_manager_state"
SHARE = "5fb79ebe-3887-4d3a-afe9-bab50d76a65b"


def checkpointer(tmp_path: Path, content: str | None = None) -> state.Checkpointer:
    if content is not None:
        (tmp_path / NAME).write_text(content)
    return state.Checkpointer(str(tmp_path), NAME)


def written(data: object, **changes: object) -> str:
    """Return a checkpoint with this data and the right checksum, except for the given changes."""
    text = json.dumps(data) if not isinstance(data, str) else data
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode()), **changes})


def test_reads_what_go_wrote(tmp_path: Path) -> None:
    content = (TESTDATA / "two_drivers.json").read_text()
    own, shared = checkpointer(tmp_path, content).get_or_create().get_claim_info_state_list()
    assert (own.claim_name, own.namespace, len(own.pod_uids)) == ("claims-two-own-prkvs", "default", 1)
    assert own.claim_uid == "a90f6f42-fc67-4aeb-923d-1896103bcc97"
    nic = own.driver_state["nic.example.com"].devices
    assert nic == [
        state.Device(
            pool_name="big",
            device_name="nic-0",
            share_id=SHARE,
            request_names=("nic",),
            cdi_device_ids=(f"nic.example.com/claim={own.claim_uid}-nic-0", "nic.example.com/device=nic-0"),
        )
    ]
    assert [device.device_name for device in own.driver_state["gpu.example.com"].devices] == ["gpu-1", "gpu-2"]
    assert (shared.claim_name, len(shared.pod_uids)) == ("shared-gpu", 2)


@pytest.mark.parametrize("name", ["two_drivers", "no_claims"])
def test_writes_what_go_wrote(tmp_path: Path, name: str) -> None:
    content = (TESTDATA / f"{name}.json").read_bytes()
    states = checkpointer(tmp_path, content.decode()).get_or_create().get_claim_info_state_list()
    checkpointer(tmp_path).store(state.Checkpoint(states))
    assert (tmp_path / NAME).read_bytes() == content


def test_what_is_missing_is_written_as_go_does(tmp_path: Path) -> None:
    devices = [state.Device(pool_name="p", device_name="<d>")]
    claim = state.ClaimInfoState("u", "c", "n", {"b", "a"}, {"z": state.DriverState(), "y": state.DriverState(devices)})
    assert json.loads(state.Checkpoint([claim]).marshal_checkpoint())["Data"] == (
        '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":['
        '{"ClaimUID":"u","ClaimName":"c","Namespace":"n","PodUIDs":{"a":{},"b":{}},"DriverState":{"y":{"Devices":['
        '{"PoolName":"p","DeviceName":"\\u003cd\\u003e","ShareID":null,"RequestNames":null,"CDIDeviceIDs":null}]},'
        '"z":{"Devices":null}}}]}'
    )


def test_none_there_makes_an_empty_one(tmp_path: Path) -> None:
    assert checkpointer(tmp_path).get_or_create().get_claim_info_state_list() == []
    assert (tmp_path / NAME).read_bytes() == (TESTDATA / "no_claims.json").read_bytes()


def test_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="received empty string instead of checkpointName"):
        state.Checkpointer(str(tmp_path), "")


def test_fields_that_are_new_need_not_be_there(tmp_path: Path) -> None:
    device = {"PoolName": "p", "DeviceName": "d", "CDIDeviceIDs": ["a/b=c"], "Later": 1}
    claim = {"ClaimUID": "u", "ClaimName": "c", "Namespace": "n", "DriverState": {"x": {"Devices": [device]}}}
    found = checkpointer(tmp_path, written({"ClaimInfoStateList": [claim]})).get_or_create()
    (info,) = found.get_claim_info_state_list()
    assert info.driver_state["x"].devices == [state.Device("p", "d", cdi_device_ids=("a/b=c",))]
    assert info.pod_uids == set()


_LIST = '{"kind":"DRACheckpoint","ClaimInfoStateList":[%s]}'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param("", "failed to get checkpoint dra_manager_state: Expecting value", id="empty"),
        pytest.param("{", "Expecting property name", id="truncated"),
        pytest.param("[]", r"checkpoint of the checkpoint is \[\], not a dict", id="no-object"),
        pytest.param('{"Data": 1}', "Data of the checkpoint is 1, not a str", id="data-of-another-kind"),
        pytest.param('{"Checksum": true}', "Checksum of the checkpoint is True, not a int", id="checksum-of-another"),
        pytest.param(written(_LIST % "", Checksum=17), "checkpoint is corrupted", id="wrong-checksum"),
        pytest.param('{"version":"v1","entries":{},"checksum":7}', "Expecting value", id="old-form"),
        pytest.param(written({"kind": "Other"}), "kind of the checkpoint is 'Other', not 'DRACheck", id="kind"),
        pytest.param(
            written({"apiVersion": "checkpoint.dra.kubelet.k8s.io/v2"}),
            "apiVersion of the checkpoint is 'checkpoint.dra.kubelet.k8s.io/v2', not",
            id="version",
        ),
        pytest.param(written("[" * 100_000), "Data of the checkpoint is nested too deeply", id="deep"),
        pytest.param(written(_LIST % "3"), "ClaimInfoStateList of the checkpoint is 3, not a dict", id="no-claim"),
        pytest.param(written(_LIST % '{"PodUIDs":["a"]}'), "PodUIDs of the checkpoint", id="pods-in-a-list"),
        pytest.param(
            written(_LIST % '{"DriverState":{"a":{"Devices":[{"RequestNames":[1]}]}}}'),
            "RequestNames of the checkpoint is 1, not a str",
            id="request-that-is-no-text",
        ),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        checkpointer(tmp_path, content).get_or_create().get_claim_info_state_list()
