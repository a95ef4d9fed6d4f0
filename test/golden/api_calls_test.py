"""Test that recorded calls can be read, and that their comparison finds differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from golden import api_calls, normalize
from golden.api_calls import Call, Known

SCENARIOS = sorted(path.name for path in normalize.DATA.iterdir() if path.is_dir())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_equals_itself(scenario: str) -> None:
    calls = api_calls.load(scenario)
    assert calls == sorted(calls, key=lambda call: call.at)
    writes = [call for call in calls if call.changes]
    assert writes
    assert list(api_calls.diff_writes(writes, copy.deepcopy(writes), scenario)) == []


def test_calls_about_one_pod() -> None:
    life = api_calls.lives(api_calls.load("01-plain"))["plain"]
    pod = "/api/v1/namespaces/golden/pods/plain"
    assert [str(call) for call in life.writes] == [*[f"patch {pod}/status 200"] * 5, f"delete {pod} 200"]
    assert [call.sent["reason"] for call in life.events] == ["Pulled", "Created", "Started", "Killing"]
    assert life.unread() == []


def test_a_watch_is_one_call() -> None:
    watches = [str(c) for c in api_calls.load("00-register") if c.verb == "watch" and c.resource == "pods"]
    selected = "/api/v1/pods?allowWatchBookmarks=true&fieldSelector=spec.nodeName=labnode"
    rest = "timeoutSeconds=<random>&watch=true 200"
    assert watches == [
        f"watch {selected}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&{rest}",
        f"watch {selected}&resourceVersion=<version>&{rest}",
    ]


def _no_message(calls: list[Call]) -> None:
    calls[0].sent["status"]["conditions"][2]["message"] = "other"


def _swapped(calls: list[Call]) -> None:
    calls[0], calls[1] = calls[1], calls[0]


def _once_more(calls: list[Call]) -> None:
    calls.insert(1, calls[1])


def _no_precondition(calls: list[Call]) -> None:
    del calls[-1].sent["preconditions"]["uid"]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (_no_message, ['plain: patch status conditions[2] message: recorded "containers with', 'ours "other"']),
        (_swapped, ["plain: only recorded: patch ", "plain: only ours: patch "]),
        (_once_more, ["plain: only ours: patch ", '"type": "PodReadyToStartContainers"']),
        (list.pop, ["plain: only recorded: delete "]),
        (_no_precondition, ['plain: delete preconditions uid: recorded "<uid>", ours null']),
    ],
)
def test_differences_are_found(change: Callable[[list[Call]], object], want: list[str]) -> None:
    recorded = api_calls.lives(api_calls.load("01-plain"))["plain"].writes
    ours = copy.deepcopy(recorded)
    change(ours)
    found = "\n".join(api_calls.diff_writes(recorded, ours, "plain"))
    assert found
    for text in want:
        assert text in found


def test_two_statuses_in_quick_succession_may_be_told_as_one() -> None:
    recorded = api_calls.lives(api_calls.load("01-plain"))["plain"].writes
    first, second, *rest = copy.deepcopy(recorded)
    types = [each["type"] for each in second.sent["status"]["$setElementOrder/conditions"]]
    of_type: dict[str, dict[str, Any]] = {}
    for each in (*first.sent["status"]["conditions"], *second.sent["status"]["conditions"]):
        of_type[each["type"]] = of_type.get(each["type"], {}) | each
    first.sent["status"] |= second.sent["status"] | {"conditions": [of_type[name] for name in types]}
    assert list(api_calls.diff_writes(recorded, [first, *rest], "plain")) == []
    assert list(api_calls.diff_writes([first, *rest], recorded, "plain")) == []


def test_a_status_in_whose_place_comes_the_next_may_be_left_out() -> None:
    recorded = api_calls.lives(api_calls.load("06-restart"))["everything"].writes
    left_out = next(i for i, call in enumerate(recorded) if call.at.endswith("03:44:11.444666Z"))
    ours = [call for i, call in enumerate(recorded) if i != left_out]
    assert list(api_calls.diff_writes(recorded, ours, "everything")) == []


def test_of_a_condition_that_two_statuses_change_all_fields_are_told() -> None:
    recorded = api_calls.lives(api_calls.load("03-ends"))["no-config"].writes
    ours = copy.deepcopy(recorded)
    first = next(i for i, call in enumerate(ours) if call.at.endswith("03:43:14.722805Z"))
    ours[first].sent["status"]["conditions"][0] |= {"status": "False"}
    del ours[first + 1]
    assert list(api_calls.diff_writes(recorded, ours, "no-config")) == []


def test_statuses_between_which_time_passed_are_not_told_as_one() -> None:
    recorded = api_calls.lives(api_calls.load("06-restart"))["everything"].writes
    ours = copy.deepcopy(recorded)
    first = next(i for i, call in enumerate(ours) if call.at.endswith("03:44:12.808158Z"))
    ours[first].sent["status"] |= ours[first + 2].sent["status"]
    del ours[first + 1 : first + 3]
    assert list(api_calls.diff_writes(recorded, ours, "everything"))


def test_a_patch_without_a_read_before_it_is_found() -> None:
    life = api_calls.lives(api_calls.load("01-plain"))["plain"]
    life.calls = [call for call in life.calls if call.verb != "get"]
    assert len(life.unread()) == 5


def test_what_is_of_the_run_is_replaced() -> None:
    condition = {"type": "Ready", "lastProbeTime": None, "lastTransitionTime": "2026-11-21T03:41:39Z"}
    sent = {
        "metadata": {
            "uid": "05663215-4463-4eb9-a4fd-27fe0ae7a2d3",
            "resourceVersion": "1",
            "name": "a.18e9f2726b164728",
        },
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}],
            "conditions": [condition],
            "podIP": "10.89.0.2",
            "message": None,
            "containerStatuses": [{"containerID": f"containerd://{'0a' * 32}", "startedAt": "2026-11-21T03:41:39Z"}],
        },
        "renewTime": "2026-11-21T03:41:39.123456Z",
    }
    assert api_calls.comparable(sent) == {
        "metadata": {"uid": "<uid>", "name": "a.<random>"},
        "status": {
            "podIP": "<ip>",
            "message": None,
            "containerStatuses": [{"containerID": "containerd://<id>", "startedAt": "<time>"}],
        },
        "renewTime": "<fine time>",
    }


def test_only_what_is_known_is_left_out() -> None:
    table = [Known("^a: .*count", "why"), Known("never", "why")]
    assert list(api_calls.unknown(table, ["a: patch count", "b: patch count"])) == ["b: patch count"]
    assert [known.seen for known in table] == [True, False]
