"""Test patches of a pod's status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes import testing as kubernetestesting
from pkg.util import pod as statusutil


def client_with(status: v1.PodStatus) -> kubernetestesting.FakeClientset:
    metadata = metav1.ObjectMeta(namespace="ns", name="p", uid=types.UID("u1"))
    return kubernetestesting.FakeClientset(v1.Pod(metadata=metadata, status=status))


def condition(kind: str, status: str) -> v1.PodCondition:
    return v1.PodCondition(type=kind, status=status)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (v1.PodStatus(), v1.PodStatus(phase="Running"), {"phase": "Running"}),
        (v1.PodStatus(reason="Evicted"), v1.PodStatus(), {"reason": None}),
        (
            v1.PodStatus(conditions=[condition("A", "True"), condition("B", "False")]),
            v1.PodStatus(conditions=[condition("A", "True"), condition("B", "True")]),
            {
                "$setElementOrder/conditions": [{"type": "A"}, {"type": "B"}],
                "conditions": [{"type": "B", "status": "True"}],
            },
        ),
        (
            v1.PodStatus(container_statuses=[v1.ContainerStatus(name="a")]),
            v1.PodStatus(container_statuses=[v1.ContainerStatus(name="a", ready=True)]),
            {
                "containerStatuses": [
                    {
                        "name": "a",
                        "ready": True,
                        "restartCount": 0,
                        "image": "",
                        "imageID": "",
                        "state": {},
                        "lastState": {},
                    }
                ]
            },
        ),
    ],
)
def test_patch_pod_status(old: v1.PodStatus, new: v1.PodStatus, expected: dict[str, Any]) -> None:
    client = client_with(old)
    result = statusutil.patch_pod_status(golang.background(), client, "ns", "p", types.UID("u1"), old, new)
    assert result.pod is not None and result.pod.status == new
    assert json.loads(result.patch) == {"metadata": {"uid": "u1"}, "status": expected}
    (action,) = client.actions()
    assert (action.verb, action.subresource, action.namespace, action.name) == ("patch", "status", "ns", "p")
    assert (action.patch_type, action.patch) == (types.PatchType.STRATEGIC_MERGE, result.patch)


def test_unchanged_status_is_no_call() -> None:
    status = v1.PodStatus(phase="Running", conditions=[condition("A", "True")])
    client = client_with(status)
    result = statusutil.patch_pod_status(golang.background(), client, "ns", "p", types.UID("u1"), status, status)
    assert result == statusutil.StatusPatch(None, b'{"metadata":{"uid":"u1"}}') and client.actions() == []
