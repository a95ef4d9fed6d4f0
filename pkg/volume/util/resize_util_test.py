"""Test how an expansion is recorded in the claim's status."""

from __future__ import annotations

import datetime

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api import errors, resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.volume.util import resize_util

NOW = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)
RESIZING, PENDING, ERROR = (
    v1.PERSISTENT_VOLUME_CLAIM_RESIZING,
    v1.PERSISTENT_VOLUME_CLAIM_FILE_SYSTEM_RESIZE_PENDING,
    v1.PERSISTENT_VOLUME_CLAIM_NODE_RESIZE_ERROR,
)


def condition(kind: str, status: str = "True", at: datetime.datetime = NOW) -> v1.PersistentVolumeClaimCondition:
    return v1.PersistentVolumeClaimCondition(type=kind, status=status, last_transition_time=at)


@pytest.mark.parametrize(
    ("before", "new", "keep", "after"),
    [
        ([condition(RESIZING)], [], False, []),
        ([condition(RESIZING)], [condition(PENDING)], False, [condition(PENDING)]),
        ([condition(RESIZING)], [condition(RESIZING, at=LATER)], False, [condition(RESIZING)]),
        ([condition(RESIZING)], [condition(RESIZING, "False")], False, [condition(RESIZING, "False")]),
        ([], [condition(RESIZING)], False, [condition(RESIZING)]),
        ([condition(RESIZING)], [condition(ERROR)], True, [condition(RESIZING), condition(ERROR)]),
        ([condition("Other")], [], False, [condition("Other")]),
    ],
)
def test_conditions(
    before: list[v1.PersistentVolumeClaimCondition],
    new: list[v1.PersistentVolumeClaimCondition],
    keep: bool,
    after: list[v1.PersistentVolumeClaimCondition],
) -> None:
    pvc = v1.PersistentVolumeClaim(status=v1.PersistentVolumeClaimStatus(conditions=before))
    assert resize_util.merge_resize_condition_on_pvc(pvc, new, keep).status.conditions == after


def claim(client: FakeClientset | None = None) -> v1.PersistentVolumeClaim:
    pvc = v1.PersistentVolumeClaim(
        metadata=metav1.ObjectMeta(name="c", namespace="ns"),
        status=v1.PersistentVolumeClaimStatus(
            capacity={v1.RESOURCE_STORAGE: resource.parse_quantity("1G")},
            allocated_resource_statuses={v1.RESOURCE_STORAGE: "NodeResizePending", "other": "x"},
            conditions=[condition(RESIZING)],
        ),
    )
    if client is not None:
        client.add(pvc)
    return pvc


def test_finished() -> None:
    client = FakeClientset()
    done = resize_util.mark_fs_resize_finished(claim(client), resource.parse_quantity("2G"), client)
    assert str(done.status.capacity[v1.RESOURCE_STORAGE]) == "2G"
    assert done.status.allocated_resource_statuses == {"other": "x"} and done.status.conditions == []


def test_infeasible() -> None:
    client = FakeClientset()
    failed = resize_util.mark_node_expansion_infeasible(claim(client), client, ValueError("too large"))
    assert failed.status.allocated_resource_statuses[v1.RESOURCE_STORAGE] == "NodeResizeInfeasible"
    assert [(each.type, each.message) for each in failed.status.conditions] == [
        (RESIZING, ""),
        (ERROR, "failed to expand pvc with too large"),
    ]


def test_claim_that_has_changed_meanwhile_is_left_alone() -> None:
    client = FakeClientset()
    pvc = claim(client)
    pvc.metadata.resource_version = "1"
    patch = resize_util.create_pvc_patch(pvc, pvc, True)
    assert patch == b'{"metadata":{"resourceVersion":"1"}}'
    assert resize_util.create_pvc_patch(pvc, pvc, False) == b"{}"


def test_claim_that_is_gone() -> None:
    with pytest.raises(errors.StatusError):
        resize_util.mark_node_expansion_in_progress(claim(), FakeClientset())
