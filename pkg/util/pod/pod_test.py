"""Patches of a pod's status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pkg import golang
from pkg.api.core import v1
from pkg.util import pod as statusutil


class Client:
    """The clientset, the client of the core group and that of pods."""

    def __init__(self) -> None:
        self.core_v1 = self
        self.calls: list[tuple[Any, ...]] = []

    def pods(self, namespace: str) -> Client:
        self.calls.append((namespace,))
        return self

    def patch(self, ctx: golang.Context, name: str, *args: Any) -> v1.Pod:
        self.calls.append((name, *args))
        return v1.Pod(kind="patched")


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
    client = Client()
    pod, patch, unchanged = statusutil.patch_pod_status(golang.background(), client, "ns", "p", "u1", old, new)  # type: ignore[arg-type]
    assert (pod, unchanged) == (v1.Pod(kind="patched"), False)
    assert json.loads(patch) == {"metadata": {"uid": "u1"}, "status": expected}
    assert client.calls == [("ns",), ("p", "application/strategic-merge-patch+json", patch, None, "status")]


def test_unchanged_status_is_no_call() -> None:
    client, status = Client(), v1.PodStatus(phase="Running", conditions=[condition("A", "True")])
    result = statusutil.patch_pod_status(golang.background(), client, "ns", "p", "u1", status, status)  # type: ignore[arg-type]
    assert result == (None, b'{"metadata":{"uid":"u1"}}', True) and client.calls == []
