"""Test that the recordings can be read, and that their comparison finds differences."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from golden import normalize
from google.protobuf import json_format

SCENARIOS = sorted(path.name for path in normalize.DATA.iterdir() if path.is_dir())
POD_SCENARIOS = [name for name in SCENARIOS if "00" <= name[:2] <= "05" and name[:2] != "00"]


def test_scenarios_are_there() -> None:
    assert [name[:2] for name in SCENARIOS] == ["00", "01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recordings_have_the_form_that_the_fake_runtime_records_in(scenario: str) -> None:
    for line in normalize.load(scenario):
        message = getattr(runtimeapi, f"{line['method']}Request")()
        json_format.ParseDict(line["request"], message)
        again = json_format.MessageToDict(message, preserving_proto_field_name=True)
        assert again == line["request"], line["method"]


@pytest.mark.parametrize("scenario", POD_SCENARIOS)
def test_a_recording_equals_itself(scenario: str) -> None:
    one = normalize.conversations(normalize.load(scenario))
    other = normalize.conversations(normalize.load(scenario))
    assert one
    for pod in one:
        assert normalize.diff_conversations(one[pod], other[pod]) == []


def test_conversation_of_one_pod() -> None:
    calls = normalize.conversations(normalize.load("01-plain"))["plain"]
    assert [str(call) for call in calls] == [
        "RunPodSandbox <sandbox>",
        "ImageStatus registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
        "CreateContainer <c#0>",
        "StartContainer <c#0>",
        "StopContainer <c#0>",
        "StopPodSandbox <sandbox>",
        "RemoveContainer <c#0>",
    ]
    create = calls[2].request
    assert create["pod_sandbox_id"] == "<sandbox>"
    assert create["config"]["image"]["image"] == "<id>"
    assert create["sandbox_config"]["metadata"]["uid"] == "<uid>"
    assert create["sandbox_config"]["annotations"]["kubernetes.io/config.seen"] == "<time>"
    [log] = [m for m in create["config"]["mounts"] if m["container_path"] == "/dev/termination-log"]
    assert log["host_path"] == "/var/lib/kubelet/pods/<uid>/containers/c/<random>"


def test_pods_are_told_apart() -> None:
    found = normalize.conversations(normalize.load("03-ends"))
    assert set(found) == {
        "succeeds", "fails", "crashes", "no-image", "no-config", "unhealthy", "deadline", "oom"
    }  # fmt: skip
    assert [str(call) for call in found["fails"]][-1] == "StopPodSandbox <sandbox>"
    assert [str(call) for call in found["no-image"]].count("PullImage registry.k8s.io/not-there:1 (failed)") == 2


def test_directories_are_replaced() -> None:
    directories = {"/var/lib/kubelet": "<root>", "/var/log/pods": "<logs>"}
    calls = normalize.conversations(normalize.load("01-plain"), directories=directories)["plain"]
    assert calls[0].request["config"]["log_directory"] == "<logs>/golden_plain_<uid>"


def _call(method: str, subject: str, **request: Any) -> normalize.Call:
    return normalize.Call(method, subject, request, False)


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        pytest.param(["StopContainer <a>", "StopContainer <b>", "StopPodSandbox <s>"], True, id="same"),
        pytest.param(["StopContainer <b>", "StopContainer <a>", "StopPodSandbox <s>"], True, id="stops swap"),
        pytest.param(["StopContainer <a>", "StopPodSandbox <s>", "StopContainer <b>"], False, id="too early"),
        pytest.param(["StopContainer <a>", "StopPodSandbox <s>"], False, id="one missing"),
        pytest.param(
            ["StopContainer <a>", "StopContainer <b>", "StopContainer <b>", "StopPodSandbox <s>"],
            False,
            id="one twice",
        ),
    ],
)
def test_order_matters_only_where_it_means_something(ours: list[str], same: bool) -> None:
    recorded = [_call(*text.split()) for text in ("StopContainer <a>", "StopContainer <b>", "StopPodSandbox <s>")]
    differences = normalize.diff_conversations(recorded, [_call(*text.split()) for text in ours])
    assert (differences == []) is same


def test_differences_are_named_by_their_path() -> None:
    recorded = normalize.conversations(normalize.load("01-plain"))["plain"]
    ours = copy.deepcopy(recorded)
    ours[2].request["config"]["linux"]["resources"]["cpu_shares"] = "3"
    ours[2].request["config"]["mounts"].pop()
    del ours[0].request["config"]["hostname"]
    found = normalize.diff_conversations(recorded, ours)
    assert len(found) == 3
    assert found[0] == 'RunPodSandbox <sandbox> config hostname: recorded "plain", ours null'
    assert found[1] == 'CreateContainer <c#0> config linux resources cpu_shares: recorded "2", ours "3"'
    assert found[2].startswith("CreateContainer <c#0> config mounts: recorded [")
    ignored = ("CreateContainer.config.linux.resources", "CreateContainer.config.mounts")
    assert len(normalize.diff_conversations(recorded, ours, ignored)) == 1
