"""Test the limit on the texts of a pod's status."""

from __future__ import annotations

import pytest

from kubelet.status import budget
from pkg.api.core import v1
from pkg.apimachinery.runtime import codec


def waiting(name: str, message: str, reason: str = "ImagePullBackOff") -> v1.ContainerStatus:
    state = v1.ContainerState(waiting=v1.ContainerStateWaiting(reason=reason, message=message))
    return v1.ContainerStatus(name=name, state=state)


def message_of(status: v1.ContainerStatus) -> str:
    assert status.state.waiting is not None
    return status.state.waiting.message


def test_texts_that_fit_stay_as_they_are() -> None:
    half = budget.MAX_STATUS_TEXT_LENGTH // 2
    status = v1.PodStatus(message="é" * (half // 2), container_statuses=[waiting("a", "b" * half, reason="")])
    before = v1.deepcopy(status)
    budget.cut_texts(status)
    assert status == before


def test_only_the_longest_texts_are_cut_all_to_the_same_length() -> None:
    half = budget.MAX_STATUS_TEXT_LENGTH // 2
    long = ["a" * (half + 1), "b" * half, "é" * half]
    statuses = [waiting(str(i), text) for i, text in enumerate([*long, "short"])]
    status = v1.PodStatus(reason="Evicted", container_statuses=statuses)
    budget.cut_texts(status)
    messages = [message_of(found) for found in status.container_statuses]
    assert messages[3] == "short"
    lengths = [len(message.encode()) for message in messages[:3]]
    assert max(lengths) - min(lengths) <= 1, "at most part of a character is lost"
    assert all(text.startswith(message) for text, message in zip(long, messages[:3], strict=True))
    assert status.reason == "Evicted"
    assert {found.state.waiting.reason for found in status.container_statuses if found.state.waiting} == {
        "ImagePullBackOff"
    }
    total = sum(lengths) + len("short") + len("Evicted") + 4 * len("ImagePullBackOff")
    assert budget.MAX_STATUS_TEXT_LENGTH - 4 <= total <= budget.MAX_STATUS_TEXT_LENGTH
    cut = v1.deepcopy(status)
    budget.cut_texts(status)
    assert status == cut, "the API server's copy compares equal"


LONG = "\x01" * (1 << 20)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(v1.PodStatus(message=LONG), id="message"),
        pytest.param(v1.PodStatus(reason=LONG), id="reason"),
        pytest.param(v1.PodStatus(conditions=[v1.PodCondition(type=v1.POD_READY, message=LONG)]), id="condition"),
        pytest.param(
            v1.PodStatus(conditions=[v1.PodCondition(type=v1.DISRUPTION_TARGET, message=LONG)]), id="shared-condition"
        ),
        pytest.param(v1.PodStatus(init_container_statuses=[waiting("a", LONG)]), id="init-container"),
        pytest.param(v1.PodStatus(ephemeral_container_statuses=[waiting("a", LONG)]), id="ephemeral-container"),
        pytest.param(
            v1.PodStatus(
                container_statuses=[
                    v1.ContainerStatus(
                        name="a",
                        last_state=v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=1, reason=LONG)),
                    )
                ]
            ),
            id="last-state",
        ),
        pytest.param(
            v1.PodStatus(
                container_statuses=[
                    v1.ContainerStatus(
                        name="a",
                        allocated_resources_status=[
                            v1.ResourceStatus(name="gpu", resources=[v1.ResourceHealth(resource_id="0", message=LONG)])
                        ],
                    )
                ]
            ),
            id="health",
        ),
    ],
)
def test_every_text_counts(status: v1.PodStatus) -> None:
    budget.cut_texts(status)
    # The rest of the status is small, and a control character takes six bytes of JSON.
    assert len(codec.encode_json(status)) < 6 * budget.MAX_STATUS_TEXT_LENGTH + 1024


def test_conditions_of_others_stay_as_they_are() -> None:
    status = v1.PodStatus(message="a" * (1 << 20), conditions=[v1.PodCondition(type="example.com/x", message=LONG)])
    budget.cut_texts(status)
    assert status.conditions[0].message == LONG
    assert len(status.message) == budget.MAX_STATUS_TEXT_LENGTH
