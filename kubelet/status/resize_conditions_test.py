"""Test the resize conditions of the status manager.

Go: pkg/kubelet/status/status_manager_test.go
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from kubelet import metrics, status
from kubelet import pod as kubepod
from kubelet.status.testing import FakePodDeletionSafetyProvider, FakePodStartupLatencyStateHelper
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.metrics import testing as metricstesting

UID = types.UID("12345")
PENDING, IN_PROGRESS = v1.POD_RESIZE_PENDING, v1.POD_RESIZE_IN_PROGRESS


@pytest.fixture
def m() -> Iterator[status.Manager]:
    manager = status.Manager(
        None, kubepod.BasicManager(), FakePodDeletionSafetyProvider(), FakePodStartupLatencyStateHelper()
    )
    yield manager
    manager.remove_orphaned_statuses(set())


def shown(m: status.Manager, uid: str = UID) -> list[tuple[str, str, str, int]]:
    found = m.get_pod_resize_conditions(types.UID(uid))
    assert all(c.status == v1.CONDITION_TRUE and c.last_transition_time and c.last_probe_time for c in found)
    return [(c.type, c.reason, c.message, c.observed_generation) for c in found]


def test_pod_resize_conditions(m: status.Manager) -> None:
    assert shown(m) == []
    assert m.set_pod_resize_in_progress_condition(UID, "some-reason", "some-message", 1) == 1
    in_progress = (IN_PROGRESS, "some-reason", "some-message", 1)
    assert shown(m) == [in_progress]
    assert m.set_pod_resize_in_progress_condition(UID, "", "", 1) is None
    assert m.set_pod_resize_in_progress_condition(UID, "", "", 2) is None
    assert shown(m) == [in_progress], "reason, message and generation stay"
    assert m.set_pod_resize_in_progress_condition(UID, "some-reason", "other", 2) == 1

    assert m.clear_pod_resize_in_progress_condition(UID) == 1
    assert m.clear_pod_resize_in_progress_condition(UID) is None
    assert m.set_pod_resize_in_progress_condition(UID, "", "", 2) == 2
    in_progress = (IN_PROGRESS, "", "", 2)
    assert m.clear_pod_resize_in_progress_condition(UID, 1) is None
    assert shown(m) == [in_progress], "only a resize of an earlier generation is complete"

    assert m.set_pod_resize_pending_condition(UID, "some-reason", "some-message", 1)
    assert shown(m) == [(PENDING, "Deferred", "some-message", 1), in_progress]
    assert not m.set_pod_resize_pending_condition(UID, "Deferred", "some-other-message", 1)
    assert shown(m) == [(PENDING, "Deferred", "some-other-message", 1), in_progress]
    assert (m.is_pod_resize_deferred(UID), m.is_pod_resize_infeasible(UID)) == (True, False)
    assert m.set_pod_resize_pending_condition(UID, "Deferred", "some-other-message", 2)
    assert m.set_pod_resize_pending_condition(UID, "Infeasible", "some-message", 3)
    assert shown(m) == [(PENDING, "Infeasible", "some-message", 3), in_progress]
    assert (m.is_pod_resize_deferred(UID), m.is_pod_resize_infeasible(UID)) == (False, True)

    m.clear_pod_resize_pending_condition(UID)
    m.clear_pod_resize_pending_condition(UID)
    assert shown(m) == [in_progress]
    assert (m.is_pod_resize_deferred(UID), m.is_pod_resize_infeasible(UID)) == (False, False)
    assert shown(m, "another") == []


def test_transition_is_that_of_the_reason(m: status.Manager) -> None:
    since = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    pod = v1.Pod(metadata=metav1.ObjectMeta(uid=UID))
    pod.status.conditions = [
        v1.PodCondition(type=PENDING, reason="Deferred", message="m", observed_generation=2, last_transition_time=since)
    ]
    m.backfill_pod_resize_conditions([pod])
    m.set_pod_resize_pending_condition(UID, "Deferred", "another", 3)
    (condition,) = m.get_pod_resize_conditions(UID)
    assert (condition.last_transition_time, condition.observed_generation) == (since, 3)
    m.set_pod_resize_pending_condition(UID, "Infeasible", "another", 3)
    (condition,) = m.get_pod_resize_conditions(UID)
    assert condition.last_transition_time is not None and condition.last_transition_time > since


def test_backfill(m: status.Manager) -> None:
    def pod(uid: str, *conditions: tuple[str, str, str, int]) -> v1.Pod:
        made = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID(uid)))
        now = metav1.now()
        made.status.conditions = [
            v1.PodCondition(type=t, reason=r, message=text, observed_generation=g, last_transition_time=now)
            for t, r, text, g in conditions
        ]
        return made

    pending, in_progress = (PENDING, "Infeasible", "a", 1), (IN_PROGRESS, "Error", "b", 2)
    pods = [
        pod("both", pending, in_progress),
        pod("pending", pending),
        pod("progress", in_progress),
        pod("neither", (v1.POD_READY, "", "", 1)),
    ]
    m.backfill_pod_resize_conditions(pods)
    assert shown(m, "both") == [pending, in_progress]
    assert shown(m, "pending") == [pending]
    assert shown(m, "progress") == [in_progress]
    assert shown(m, "neither") == []
    assert metricstesting.value(metrics.POD_PENDING_RESIZES.labels("infeasible")) == 2
    assert metricstesting.value(metrics.POD_IN_PROGRESS_RESIZES) == 2


def test_counts(m: status.Manager) -> None:
    def counts() -> tuple[float, float, float]:
        pending = metrics.POD_PENDING_RESIZES
        deferred, infeasible = (metricstesting.value(pending.labels(reason)) for reason in ("deferred", "infeasible"))
        return deferred, infeasible, metricstesting.value(metrics.POD_IN_PROGRESS_RESIZES)

    m.set_pod_resize_pending_condition(types.UID("a"), "Deferred", "", 1)
    m.set_pod_resize_pending_condition(types.UID("b"), "Whatever", "", 1)
    m.set_pod_resize_in_progress_condition(types.UID("a"), "", "", 1)
    assert counts() == (2, 0, 1)
    m.set_pod_resize_pending_condition(types.UID("b"), "Infeasible", "", 1)
    assert counts() == (1, 1, 1)
    m.clear_pod_resize_pending_condition(types.UID("a"))
    m.clear_pod_resize_in_progress_condition(types.UID("a"))
    assert counts() == (0, 1, 0)


def test_pods_that_are_gone_are_forgotten(m: status.Manager) -> None:
    pod = v1.Pod(metadata=metav1.ObjectMeta(name="p", uid=UID))
    m.set_pod_status(pod, v1.PodStatus())
    m.set_pod_resize_in_progress_condition(UID, "", "", 1)
    m.remove_orphaned_statuses(set())
    assert shown(m) == []
    assert metricstesting.value(metrics.POD_IN_PROGRESS_RESIZES) == 0
